/* SPDX-License-Identifier: MIT
 * test_gate_by_row.c - halves of masks, as 2:4 values and in dense storage, through the gates of phases 0 and
 * 2: no false alarm on clean cases (masks x dtypes x P x slices x odd shapes), integers bit for bit, each
 * injected fault caught, those of masks among them; the same of one column of four on four ranks and of
 * uneven runs on three. One half alone: its product is right, and as far from the whole one as normal
 * weights have it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/gate/faults.h"
#include "lab/gate/gradient.h"
#include "lab/gate/half.h"
#include "lab/gate/small.h"
#include "tests/gate/gate_case.h"
#include "tests/run_tests.h"

#define ONE_PRECISION (BS_FAULT_FORWARD_COUNT_ - BS_FAULT_MIXED_COUNT) /* test_gate_mixed has the others */

static const char *const keys[] = {"kernel", "slices"};
static const double shares[3] = {5, 1, 2};

typedef struct subject {
  const char *mask, *kernel, *slices; /* kernel NULL: masked_split, which has neither option */
  uint32_t P;
} subject;
static const subject subjects[] = {
    {"magnitude", "auto", "auto", 2},
    {"magnitude", "auto", "row", 4},
    {"magnitude", "auto", "column", 4},
    {"random_2of4", "auto", "auto", 2},
    {"random_2of4", "auto", "row", 4},
    {"random_2of4", "auto", "column", 6},
    {"transposable", "auto", "auto", 2},
    {"transposable", "auto", "row", 6},
    {"transposable", "auto", "column", 4},
    {"complement_1010_0101", "sparse24", "auto", 2},
    {"complement_1001_0110", "sparse24", "row", 4},
    {"complement_1100_0011", "sparse24", "column", 4},
    {"magnitude", NULL, NULL, 2},
    {"random_2of4", NULL, NULL, 6},
    {"transposable", NULL, NULL, 4},
    {"interleave", "auto", "auto", 4},
    {"uneven", "auto", "auto", 3},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))
static const int64_t shapes[][3] = {{1, 1, 1}, {3, 7, 6}, {17, 65, 63}, {64, 24, 130}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])
static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16};

typedef struct made {
  bs_mask mask;
  const char *values[2];
} made;

static bs_case make_case(const subject *s, uint32_t dtype, const int64_t shape[3], made *m) {
  const char *method = s->kernel != NULL ? "blockshock" : "masked_split";
  m->mask = gate_mask(s->mask);
  m->mask.seed = 11;
  if (m->mask.kind == BS_MASK_UNEVEN) {
    m->mask.n_shares = 3;
    m->mask.shares = shares;
  }
  m->values[0] = s->kernel;
  m->values[1] = s->slices;
  bs_case c = gate_case(method, s->P, dtype, shape, &m->mask);
  if (dtype == BS_F16) c.backend = "ref";
  c.iterations = 2;
  c.spec.n_options = s->kernel != NULL ? 2 : 0;
  c.spec.option_keys = keys;
  c.spec.option_values = m->values;
  return c;
}

/* Alarms of one clean case: forward, T5, backward. */
static int run_clean(bs_case *c) {
  bs_error err = BS_ERROR_INIT;
  bs_small data;
  bs_case run;
  bs_case_result result;
  bs_verdict verdict;
  bs_gate integers;
  bs_gradient_result gradient;
  bs_gradient_verdict judged;
  ck_assert_int_eq(bs_small_open(context, "random_normal", &c->spec, &data, &err), BS_OK);
  bs_small_case(c, &c->spec, &data, &run);
  run.iterations = 2;
  int32_t rc = gate_run(&run, &run, &result, &verdict, &err);
  ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s", c->spec.mask->name, c->world_size, err.id, err.message);
  int alarms = gate_alarm(c, verdict.gates, verdict.n_gates);
  gate_claims_hold(&result);
  bs_case_result_free(&result);
  rc = bs_integer_gate(&run, BS_FAULT_COUNT_, 0, &integers, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  alarms += gate_alarm(c, &integers, 1);
  rc = bs_gradient_run(&run, BS_LOSS_MSE_ZERO, NULL, &gradient, &err);
  if (rc == BS_OK) rc = bs_gradient_judge(&run, &gradient, 0, &judged, &err);
  ck_assert_msg(rc == BS_OK, "backward of %s P=%u: %s: %s", c->spec.mask->name, c->world_size, err.id,
                err.message);
  alarms += gate_alarm(c, judged.gates, judged.n_gates);
  bs_gradient_result_free(&gradient);
  bs_small_close(&data);
  return alarms;
}

START_TEST(clean_cases_pass) {
  int alarms = 0, seed = 0;
  for (size_t shape = 0; shape < N_SHAPES; ++shape)
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d, ++seed) {
      made m;
      bs_case c = make_case(&subjects[_i], dtypes[d], shapes[shape], &m);
      c.spec.has_bias = (uint32_t)(seed % 2);
      c.spec.y_placement = seed % 3 == 1 ? BS_SPLIT : BS_REPLICATED;
      c.spec.reduce_dtype = seed % 5 == 2 ? dtypes[d] : 0;
      alarms += run_clean(&c);
    }
  ck_assert_int_eq(alarms, 0);
}
END_TEST

START_TEST(every_fault_is_caught) {
  static const int64_t shape[3] = {16, 96, 256};
  bs_error err = BS_ERROR_INIT;
  for (size_t d = 0; d < 2; ++d) {
    bs_fault_tally tally;
    bs_fault_report faults;
    made m;
    bs_case c = make_case(&subjects[_i], dtypes[d], shape, &m);
    const int halves = m.mask.kind != BS_MASK_INTERLEAVE && m.mask.kind != BS_MASK_UNEVEN;
    const int rows = halves && m.mask.kind != BS_MASK_COMPLEMENT;
    int32_t rc = bs_fault_gate(&c, &faults, &err);
    ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
    ck_assert_msg(faults.caught == faults.injected, "%s P=%u %s: missed %s", m.mask.name, c.world_size,
                  bs_dtype_name(dtypes[d]), faults.missed);
    /* All but those of an activation, and T5; those of masks where there are any. */
    ck_assert_uint_eq(faults.injected, ONE_PRECISION - 2 + 2 - (uint32_t)!halves - (uint32_t)!rows);
    rc = bs_gradient_fault_gate(&c, &tally, &err);
    ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
    ck_assert_msg(tally.caught == tally.injected && tally.injected >= 9,
                  "backward of %s P=%u %s: %u of %u, not %s", m.mask.name, c.world_size,
                  bs_dtype_name(dtypes[d]), tally.caught, tally.injected, tally.missed);
  }
}
END_TEST

/* ---- one half alone ------------------------------------------------------------------------------ */

enum { N_HALVES = 4 }; /* masks; with BS_TEST_BIG so many times, of other weights */

static bs_case half_case(const char *mask, const char *half, uint32_t P, int turn, made *m,
                         const char **key) {
  const int64_t shape[3] = {64, 256, 512 + 16 * turn}; /* other weights in other places */
  const subject s = {mask, "auto", "auto", P};
  bs_case c = make_case(&s, P % 2 ? BS_F32 : BS_BF16, shape, m);
  m->mask.seed += (uint64_t)turn;
  *key = "half";
  m->values[0] = half;
  c.spec.n_options = 1;
  c.spec.option_keys = key;
  c.spec.has_bias = 1;
  return c;
}

START_TEST(half_alone_is_as_wrong_as_was_said) {
  static const char *const names[] = {"magnitude", "transposable", "random_2of4", "complement_1100_0011"};
  static const double known[] = {0.364, 0.42, 0.707, 0.707}; /* of normal weights */
  static const char *const half[2] = {"0", "1"};
  const int i = _i % N_HALVES;
  bs_error err = BS_ERROR_INIT;
  for (uint32_t P = 1; P <= 4; ++P)
    for (int h = 0; h < 2; ++h) {
      made m;
      bs_small data;
      bs_case run;
      bs_case_result result;
      bs_verdict verdict;
      bs_gate gate;
      const char *key;
      double measured = 0, figure = 0, outputs;
      bs_case c = half_case(names[i], half[h], P, _i / N_HALVES, &m, &key);
      ck_assert_int_eq(bs_small_open(context, "random_normal", &c.spec, &data, &err), BS_OK);
      bs_small_case(&c, &c.spec, &data, &run);
      ck_assert_int_eq(bs_half_figure(&run, &figure, &err), BS_OK);
      int32_t rc = gate_run(&run, &run, &result, &verdict, &err);
      if (rc == BS_OK) rc = bs_half_gate(&run, &result, &gate, &err);
      if (rc == BS_OK) rc = bs_half_measure(&run, &result, 0, &measured, &outputs, &err);
      ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
      ck_assert_int_eq(gate_alarm(&run, verdict.gates, verdict.n_gates), 0);
      gate_claims_hold(&result);
      ck_assert_msg(gate.state == BS_GATE_PASS, "%s", gate.text);
      const double like = h == 0 ? known[i] : sqrt(1.0 - known[i] * known[i]);
      ck_assert_double_eq_tol(measured, like, 0.05 * like);
      ck_assert_double_eq_tol(figure, like, 0.01);
      bs_case_result_free(&result);
      bs_small_close(&data);
    }
}
END_TEST

static double misplaced(const bs_case *run, const bs_case_fault *fault) {
  bs_case c = *run;
  bs_case_result result;
  bs_gate gate;
  bs_error err = BS_ERROR_INIT;
  c.fault = fault;
  int32_t rc = bs_case_run(&c, &result, &err);
  if (rc == BS_OK) rc = bs_half_gate(run, &result, &gate, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  bs_case_result_free(&result);
  ck_assert_int_eq(gate.state == BS_GATE_PASS, gate.value == 0.0);
  return gate.value;
}

static void other_half(void *user, uint32_t rank, bs_layer_spec *spec) {
  static const char *const one[] = {"1"};
  (void)user, (void)rank;
  spec->option_values = one;
}

static void both_halves(void *user, uint32_t rank, bs_layer_spec *spec) {
  (void)user, (void)rank;
  spec->n_options = 0;
}

/* The gate can fail: the other half has all weights in wrong places, both halves have half of them. */
START_TEST(another_half_is_noticed) {
  static const char *const masks[] = {"magnitude", "complement_1100_0011"};
  bs_error err = BS_ERROR_INIT;
  const bs_case_fault other = {.layer = other_half}, both = {.layer = both_halves};
  for (int i = 0; i < 2; ++i) {
    made m;
    bs_small data;
    bs_case run;
    const char *key;
    bs_case c = half_case(masks[i], "0", 1, 0, &m, &key);
    ck_assert_int_eq(bs_small_open(context, "random_normal", &c.spec, &data, &err), BS_OK);
    bs_small_case(&c, &c.spec, &data, &run);
    const double weights = (double)(run.spec.N * run.spec.K);
    ck_assert(misplaced(&run, NULL) == 0);
    ck_assert(misplaced(&run, &other) == weights);
    ck_assert(misplaced(&run, &both) == weights / 2);
    bs_small_close(&data);
  }
}
END_TEST

int main(void) {
  const char *big = getenv("BS_TEST_BIG");
  const test_case tests[] = {{clean_cases_pass, N_SUBJECTS},
                             {every_fault_is_caught, N_SUBJECTS},
                             {half_alone_is_as_wrong_as_was_said, N_HALVES * (big ? atoi(big) : 1)},
                             {another_half_is_noticed},
                             {0}};
  return run_tests("gate_by_row", tests, (test_setup){open_context, close_context, 120});
}
