/* SPDX-License-Identifier: MIT
 * test_gate_repro.c - the gates of what a layer promises of its bits: they pass where it is kept, a single
 * bit fails them, and so does a layer that promises what it does not keep. Of backward passes and of training
 * too. */
#include <string.h>

#include "lab/gate/repro.h"
#include "lab/gate/small.h"
#include "tests/gate/gate_case.h"
#include "tests/run_tests.h"

static bs_small small;

static void teardown(void) {
  bs_small_close(&small);
  close_context();
}

static const char *const keys[] = {"repro"};
static const char *const values[5][1] = {{"R0"}, {"R1"}, {"R2"}, {"R3"}, {"R4"}};

static bs_case make(const char *method, int repro, uint32_t y_placement) {
  bs_error err = BS_ERROR_INIT;
  static const int64_t shape[3] = {9, 21, 300};
  bs_case c = gate_case(method, 4, BS_F32, shape, NULL);
  c.backend = "ref";
  c.spec.y_placement = y_placement;
  c.spec.n_options = 1;
  c.spec.option_keys = keys;
  c.spec.option_values = values[repro];
  ck_assert_int_eq(bs_small_open(context, "random_normal", &c.spec, &small, &err), BS_OK);
  c.x = &small.x;
  c.w = &small.w;
  return c;
}

static uint32_t judge(const bs_case *c, const bs_case_result *result, bs_gate gates[2]) {
  bs_error err = BS_ERROR_INIT;
  uint32_t count = 9;
  ck_assert_msg(bs_repro_gates(c, result, gates, &count, &err) == BS_OK, "%s", err.message);
  return count;
}

/* _i: the class; R0 and R1 are T4's. */
START_TEST(kept_and_broken_by_one_bit) {
  static const uint32_t placements[] = {BS_REPLICATED, BS_SPLIT};
  static const uint32_t wanted[] = {0, 0, 1, 2, 2};
  for (int p = 0; p < 4; p++) {
    bs_error err = BS_ERROR_INIT;
    bs_case_result result;
    bs_gate gates[2];
    bs_case c = make(p < 2 ? "row_parallel" : "column_parallel", _i, placements[p % 2]);
    ck_assert_msg(bs_case_run(&c, &result, &err) == BS_OK, "%s", err.message);
    ck_assert_uint_eq(bs_repro_of(&result), _i < 1 ? 1u : (uint32_t)_i);
    ck_assert_uint_eq(judge(&c, &result, gates), wanted[_i]);
    for (uint32_t g = 0; g < wanted[_i]; g++) {
      ck_assert_str_eq(gates[g].name, g == 0 ? "R2" : "R3");
      ck_assert_int_eq(gates[g].state, BS_GATE_PASS);
    }
    /* The last token's first output of the last rank. */
    const bs_case_rank *last = &result.ranks[3];
    ((uint8_t *)last->y)[(size_t)(8 * last->y_cols) * sizeof(float)] ^= 1u;
    (void)judge(&c, &result, gates);
    for (uint32_t g = 0; g < wanted[_i]; g++) {
      ck_assert_int_eq(gates[g].state, BS_GATE_FAIL);
      ck_assert_double_ge(gates[g].value, 1.0);
    }
    bs_case_result_free(&result);
    bs_small_close(&small);
  }
}
END_TEST

/* A plain sum over four ranks that says it is the one of any number of ranks. */
START_TEST(a_promise_that_is_not_kept) {
  bs_error err = BS_ERROR_INIT;
  bs_case_result result;
  bs_gate gates[2];
  bs_case c = make("row_parallel", 2, BS_REPLICATED);
  ck_assert_int_eq(bs_case_run(&c, &result, &err), BS_OK);
  for (uint32_t r = 0; r < 4; r++) result.ranks[r].proposal.repro = BS_REPRO_R3;
  ck_assert_uint_eq(judge(&c, &result, gates), 2);
  ck_assert_int_eq(gates[0].state, BS_GATE_PASS);
  ck_assert_int_eq(gates[1].state, BS_GATE_FAIL);
  ck_assert_ptr_nonnull(strstr(gates[1].text, "4 ranks and one"));
  bs_case_result_free(&result);
}
END_TEST

/* ---- a backward pass and steps -------------------------------------------------------------------- */

static const struct {
  const char *method, *mask;
  uint32_t world, dtype, x, y, activation, optimizer;
  double momentum;
} trained[] = {
    {"row_parallel", NULL, 2, BS_F32, BS_SPLIT, BS_REPLICATED, BS_ACT_GELU, BS_OPT_SGD, 0.0},
    {"row_parallel", NULL, 8, BS_BF16, BS_REPLICATED, BS_SPLIT, BS_ACT_SILU, BS_OPT_ADAMW, 0.0},
    {"column_parallel", NULL, 4, BS_F32, BS_REPLICATED, BS_REPLICATED, BS_ACT_GELU, BS_OPT_SGD, 0.9},
    {"column_parallel", NULL, 2, BS_BF16, BS_REPLICATED, BS_REPLICATED, BS_ACT_NONE, BS_OPT_SGD, 0.0},
    {"blockshock", "complement_1100_0011", 4, BS_F32, BS_REPLICATED, BS_REPLICATED, BS_ACT_RELU, BS_OPT_ADAMW,
     0.0},
    {"blockshock", "interleave", 2, BS_F16, BS_SPLIT, BS_SPLIT, BS_ACT_NONE, BS_OPT_SGD, 0.0},
    {"masked_split", "complement_1100_0011", 2, BS_F32, BS_REPLICATED, BS_REPLICATED, BS_ACT_SILU, BS_OPT_SGD,
     0.0},
    {"masked_split", "interleave", 4, BS_BF16, BS_SPLIT, BS_REPLICATED, BS_ACT_NONE, BS_OPT_ADAMW, 0.0},
};
#define N_TRAINED ((int)(sizeof trained / sizeof trained[0]))

static bs_case make_trained(int i, int repro, bs_mask *mask) {
  bs_error err = BS_ERROR_INIT;
  static const int64_t shape[3] = {150, 21, 300}; /* more tokens than one block of dW */
  if (trained[i].mask != NULL) *mask = gate_mask(trained[i].mask);
  bs_case c = gate_case(trained[i].method, trained[i].world, trained[i].dtype, shape,
                        trained[i].mask != NULL ? mask : NULL);
  c.spec.x_placement = trained[i].x;
  c.spec.y_placement = trained[i].y;
  c.spec.activation = trained[i].activation;
  c.spec.has_bias = 1;
  c.spec.n_options = 1;
  c.spec.option_keys = keys;
  c.spec.option_values = values[repro];
  ck_assert_int_eq(bs_small_open(context, "random_normal", &c.spec, &small, &err), BS_OK);
  c.x = &small.x;
  c.w = &small.w;
  c.bias = &small.bias;
  return c;
}

static bs_gate gradient_gate(const bs_case *c, const bs_gradient_result *result) {
  bs_error err = BS_ERROR_INIT;
  bs_gate gate = {0};
  uint32_t count = 9;
  ck_assert_msg(bs_repro_gradient_gate(c, BS_LOSS_MSE_ZERO, NULL, result, &gate, &count, &err) == BS_OK, "%s",
                err.message);
  ck_assert_uint_eq(count, 1);
  ck_assert_str_eq(gate.name, "R3");
  return gate;
}

START_TEST(gradients_kept_and_broken_by_one_bit) {
  bs_error err = BS_ERROR_INIT;
  bs_gradient_result result;
  bs_mask mask;
  const bs_case c = make_trained(_i, 3, &mask);
  ck_assert_msg(bs_gradient_run(&c, BS_LOSS_MSE_ZERO, NULL, &result, &err) == BS_OK, "%s", err.message);
  bs_gate gate = gradient_gate(&c, &result);
  ck_assert_msg(gate.state == BS_GATE_PASS, "%s: %s", c.method, gate.text);
  for (uint32_t r = 0; r < c.world_size; r++) { /* the host counted what each rank proposed */
    const bs_proposal *p = &result.run.ranks[r].proposal;
    uint64_t payload = 0;
    for (uint32_t i = 0; i < p->n_backward; i++) payload += p->backward_payload[i];
    ck_assert_uint_eq(result.ranks[r].counters[BS_COUNT_FLOPS], p->backward_flops);
    ck_assert_uint_eq(result.ranks[r].counters[BS_COUNT_COLLECTIVES], p->n_backward);
    ck_assert_uint_eq(result.ranks[r].counters[BS_COUNT_PAYLOAD_BYTES], payload);
  }
  const bs_gradient_rank *last = &result.ranks[c.world_size - 1];
  uint8_t *const bits[] = {result.run.ranks[0].y, last->dw, last->db};
  for (size_t i = 0; i < 3; i++) {
    *bits[i] ^= 1u;
    gate = gradient_gate(&c, &result);
    ck_assert_int_eq(gate.state, BS_GATE_FAIL);
    ck_assert_double_eq(gate.value, 3.0); /* one row, beside each of three other numbers of ranks */
    *bits[i] ^= 1u;
  }
  bs_gradient_result_free(&result);
}
END_TEST

static bs_gate step_gate(const bs_case *c, uint32_t fault, int i, int promised) {
  bs_error err = BS_ERROR_INIT;
  bs_gate gate = {0};
  uint32_t count = 9;
  const bs_train_options o = {.optimizer = trained[i].optimizer,
                              .lr = 0.01,
                              .momentum = trained[i].momentum,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .steps = 2,
                              .loss = BS_LOSS_MSE_ZERO,
                              .fault = fault};
  bs_case trains = *c;
  trains.spec.flags |= bs_train_flags(&o);
  bs_case_rank ranks[8] = {{0}};
  for (uint32_t r = 0; r < 8; r++) ranks[r].proposal.repro = (uint32_t)promised;
  const bs_case_result promising = {.world_size = c->world_size, .ranks = ranks};
  ck_assert_msg(bs_repro_step_gate(&trains, &o, &promising, &gate, &count, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(count, promised < BS_REPRO_R3 ? 0 : 1);
  return gate;
}

START_TEST(weights_kept_and_broken_by_a_fault) {
  bs_mask mask;
  const bs_case c = make_trained(_i, 3, &mask);
  bs_gate gate = step_gate(&c, BS_TRAIN_RIGHT, _i, BS_REPRO_R3);
  ck_assert_msg(gate.state == BS_GATE_PASS, "%s: %s", c.method, gate.text);
  gate = step_gate(&c, BS_TRAIN_LR_DOUBLED, _i, BS_REPRO_R3);
  ck_assert_msg(gate.state == BS_GATE_FAIL, "%s: %s", c.method, gate.text);
  (void)step_gate(&c, BS_TRAIN_RIGHT, _i, BS_REPRO_R2);
}
END_TEST

/* Sums over ranks of R2 that say that they are those of any number of ranks. column_parallel sums only dX
 * over ranks, and no weight depends on it. */
START_TEST(training_that_does_not_keep_it) {
  static const int rows[] = {0, 2};
  bs_error err = BS_ERROR_INIT;
  bs_gradient_result result;
  bs_mask mask;
  const bs_case c = make_trained(rows[_i], 2, &mask);
  ck_assert_int_eq(bs_gradient_run(&c, BS_LOSS_MSE_ZERO, NULL, &result, &err), BS_OK);
  for (uint32_t r = 0; r < c.world_size; r++) result.run.ranks[r].proposal.repro = BS_REPRO_R3;
  ck_assert_int_eq(gradient_gate(&c, &result).state, BS_GATE_FAIL);
  ck_assert_int_eq(step_gate(&c, BS_TRAIN_RIGHT, rows[_i], BS_REPRO_R3).state,
                   rows[_i] == 0 ? BS_GATE_FAIL : BS_GATE_PASS);
  bs_gradient_result_free(&result);
}
END_TEST

int main(void) {
  const test_case tests[] = {{kept_and_broken_by_one_bit, 5},
                             {a_promise_that_is_not_kept},
                             {gradients_kept_and_broken_by_one_bit, N_TRAINED},
                             {weights_kept_and_broken_by_a_fault, N_TRAINED},
                             {training_that_does_not_keep_it, 2},
                             {0}};
  return run_tests("gate_repro", tests, (test_setup){open_context, teardown, 60});
}
