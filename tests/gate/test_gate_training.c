/* SPDX-License-Identifier: MIT
 * test_gate_training.c - the gates of training: right runs pass whose bias is not where fp64 takes it, or is
 * read through int8 steps, or whose weights are not finite; and what is wrong beside that is still caught. */
#include <math.h>

#include "lab/gate/step.h"
#include "tests/gate/gate_case.h"
#include "tests/run_tests.h"

/* Steps of lr 1 turn round-off of the bias's moments into steps of its own. */
static const char *const runs[] = {
    "method: {name: row_parallel, bias: true}\nhardware: {backend: cpu, world_size: 2}\n"
    "model: {B: 64, N: 512, K: 32, dtype: float32}\n"
    "phase: {name: phase3_train_step, optimizer: adamw, lr: 1, warmup_iters: 0, timed_iters: 4}",
    "method: {name: row_parallel, bias: true}\nhardware: {backend: cpu, world_size: 2}\n"
    "model: {B: 64, N: 512, K: 32, dtype: bf16}\n"
    "phase: {name: phase3_train_step, optimizer: adamw, lr: 1, warmup_iters: 0, timed_iters: 4}",
    /* little is left of 1 - beta where beta is rounded first */
    "method: {name: dense, bias: true}\nhardware: {backend: cpu, world_size: 1}\n"
    "model: {B: 32, N: 48, K: 40, dtype: float32}\n"
    "phase: {name: phase3_train_step, optimizer: adamw, beta1: 0.99999, beta2: 0.999999, lr: 0.01}",
    "method: {name: row_parallel, bias: true}\nhardware: {backend: cpu, world_size: 2}\n"
    "model: {B: 32, N: 48, K: 40, dtype: bf16}\n"
    "phase: {name: phase3_train_step, optimizer: adamw, beta2: 0.999999, lr: 0.1, timed_iters: 20}",
    "method: {name: dense, bias: true}\nhardware: {backend: ref, world_size: 1}\n"
    "model: {B: 32, N: 48, K: 40, dtype: float64}\n"
    "phase: {name: phase3_train_step, optimizer: adamw, beta2: 0.999999, lr: 0.01}",
    "method: {name: dense, bias: true}\nhardware: {backend: ref, world_size: 1}\n"
    "model: {B: 32, N: 48, K: 40, dtype: float64}\n"
    "phase: {name: phase3_train_step, optimizer: sgd, lr: 0.01, momentum: 0.9, weight_decay: 0.1}",
    "method: {name: dense}\nhardware: {backend: ref, world_size: 1}\n"
    "model: {B: 32, N: 48, K: 40, dtype: float32}\n"
    "phase: {name: phase3_train_step, optimizer: adamw, beta1: 0, beta2: 0.5, lr: 0.01}",
    "method: {name: dense, bias: true}\nhardware: {backend: cpu, world_size: 1}\n"
    "model: {B: 70, N: 257, K: 4, dtype: float32}\nphase: {name: phase3_train_step}",
    "method: {name: row_parallel, bias: true}\nhardware: {backend: ref, world_size: 2}\n"
    "model: {B: 16, N: 96, K: 64, dtype: float64}\n"
    "phase: {name: phase3_train_step, optimizer: adamw, timed_iters: 4}",
    "method: {name: row_parallel, accumulate: f64}\nhardware: {backend: ref, world_size: 2}\n"
    "model: {B: 16, N: 96, K: 64, dtype: float32}\nphase: {name: phase3_train_step, timed_iters: 4}",
    /* int8 */
    "method: {name: row_parallel, bias: true, reduce_dtype: int8}\nhardware: {backend: cpu, world_size: 2}\n"
    "model: {B: 32, N: 96, K: 128, dtype: float32}\nphase: {name: phase3_train_step, timed_iters: 4}",
    "method: {name: row_parallel, bias: true, reduce_dtype: int8, y_placement: split}\n"
    "hardware: {backend: cpu, world_size: 3}\n"
    "model: {B: 32, N: 420, K: 64, dtype: bf16}\n"
    "phase: {name: phase3_train_step, timed_iters: 4, remask: 2}",
    "method: {name: blockshock, reduce_dtype: int8}\nhardware: {backend: cpu, world_size: 2}\n"
    "model: {B: 32, N: 396, K: 128, dtype: float32}\n"
    "phase: {name: phase3_train_step, optimizer: adamw, timed_iters: 4, reference_features: 50}",
};

START_TEST(right_runs_pass) {
  must_be_right(context, runs[_i]);
}
END_TEST

/* ---- one training, and its result altered ---------------------------------------------------------- */

enum { B = 16, N = 48, K = 32, P = 2 };

typedef struct trained {
  float x[B * K], w[N * K], bias[N];
  gate_data data;
  bs_source sb;
  bs_case c;
  bs_train_options o;
  bs_train_result r;
} trained;

/* at: the weight that is `value` at first; -1: none. */
static void make_trained(trained *t, uint32_t reduce_dtype, uint32_t loss, int at, float value) {
  bs_error err = BS_ERROR_INIT;
  memset(t, 0, sizeof *t);
  for (int i = 0; i < B * K; ++i) t->x[i] = (float)((i * 37 + 11) % 101 - 50) / 25.0f;
  for (int i = 0; i < N * K; ++i) t->w[i] = (float)((i * 53 + 29) % 103 - 51) / 25.0f;
  for (int i = 0; i < N; ++i) t->bias[i] = (float)((i * 31 + 7) % 41 - 20) / 10.0f;
  if (at >= 0) t->w[at] = value;
  ck_assert_int_eq(bs_source_from_memory(t->bias, BS_F32, 1, N, N, &t->sb, &err), BS_OK);
  static const int64_t shape[3] = {B, N, K};
  t->c = gate_case("row_parallel", P, BS_F32, shape, NULL);
  t->c.spec.has_bias = 1;
  t->c.spec.reduce_dtype = reduce_dtype;
  gate_memory_open(&t->c, t->x, t->w, &t->data);
  t->c.bias = &t->sb;
  t->o = (bs_train_options){.optimizer = BS_OPT_SGD, .lr = 0.5, .steps = 3, .loss = loss};
  ck_assert_msg(bs_train_run(&t->c, &t->o, &t->r, &err) == BS_OK, "%s", err.message);
}

static void free_trained(trained *t) {
  bs_train_result_free(&t->r);
  gate_memory_close(&t->data);
  bs_source_release(&t->sb);
}

/* The names of what failed, and a space behind each. */
static bs_step_verdict judged(trained *t, char failed[128]) {
  bs_error err = BS_ERROR_INIT;
  bs_step_verdict v;
  failed[0] = '\0';
  ck_assert_msg(bs_step_judge(&t->c, &t->o, &t->r, &v, &err) == BS_OK, "%s", err.message);
  for (uint32_t g = 0; g < v.n_gates; ++g)
    if (v.gates[g].state == BS_GATE_FAIL)
      snprintf(failed + strlen(failed), 128 - strlen(failed), "%s ", v.gates[g].name);
  return v;
}

static float values[] = {INFINITY, -INFINITY, NAN};

/* Phases 0 and 2 accept what the inputs bring; so does this, with every loss. */
START_TEST(weights_that_are_not_finite_come_out_again) {
  char failed[128];
  trained *t = malloc(sizeof *t);
  make_trained(t, 0, _i / 3 ? BS_LOSS_SUM : BS_LOSS_MSE_ZERO, 5 * K + 20, values[_i % 3]);
  bs_step_verdict v = judged(t, failed);
  ck_assert_str_eq(failed, "");
  ck_assert_uint_gt(v.nonfinite, 0);
  /* lost on the way: the weight is a number again; or turned */
  double *lost = &t->r.w[(3 * N + 5) * K + 20], keep = *lost;
  for (int turned = 0; turned <= (isinf(keep) != 0); ++turned) {
    *lost = turned ? -keep : 1.0;
    judged(t, failed);
    ck_assert_ptr_nonnull(strstr(failed, "W.T3 "));
  }
  *lost = keep;
  /* and one that comes from nowhere */
  t->r.w[(2 * N + 6) * K + 20] = NAN;
  judged(t, failed);
  ck_assert_ptr_nonnull(strstr(failed, "W.T3 "));
  free_trained(t);
  /* or that forward made of finite inputs: what follows of it is as it must be, and no less wrong */
  make_trained(t, 0, BS_LOSS_MSE_ZERO, -1, 0);
  t->r.dy[(1 * B + 3) * N + 6] = NAN;
  for (int s = 2; s <= 3; ++s)
    for (int k = 0; k < K; ++k) t->r.w[(s * N + 6) * K + k] = NAN;
  t->r.zero[3 * N + 6] = NAN;
  judged(t, failed);
  ck_assert_ptr_nonnull(strstr(failed, "W.T3 "));
  free_trained(t);
  free(t);
}
END_TEST

START_TEST(a_finite_run_is_valid) {
  char failed[128];
  trained *t = malloc(sizeof *t);
  make_trained(t, 0, BS_LOSS_MSE_ZERO, -1, 0);
  ck_assert_uint_eq(judged(t, failed).nonfinite, 0);
  ck_assert_str_eq(failed, "");
  free_trained(t);
  free(t);
}
END_TEST

/* The bias that forward shows is not believed beyond what the steps can have done to it, and outputs that
 * were not made with it are seen. */
START_TEST(a_wrong_bias_is_caught) {
  char failed[128];
  trained *t = malloc(sizeof *t);
  make_trained(t, 0, BS_LOSS_MSE_ZERO, -1, 0);
  double *zero = &t->r.zero[3 * N + 7];
  *zero += 1e-4;
  judged(t, failed);
  ck_assert_ptr_nonnull(strstr(failed, "b.T3 "));
  *zero = NAN;
  judged(t, failed);
  ck_assert_ptr_nonnull(strstr(failed, "b.T3 "));
  *zero = t->bias[7];
  free_trained(t);
  make_trained(t, 0, BS_LOSS_MSE_ZERO, -1, 0);
  for (int r = 0; r < P; ++r)
    for (int b = 0; b < B; ++b) ((float *)t->r.run.ranks[r].y)[b * N + 7] += 1e-3f;
  judged(t, failed);
  ck_assert_ptr_nonnull(strstr(failed, "y.T"));
  ck_assert_ptr_null(strstr(failed, "b.T3 "));
  free_trained(t);
  free(t);
}
END_TEST

/* Outputs of a bias that is known to so much: no alarm within that, none is spared beyond it. */
START_TEST(outputs_keep_to_a_bias_known_to_so_much) {
  static const double known_to[] = {0.0, 1e-4, 1.1e-3};
  bs_error err = BS_ERROR_INIT;
  double bias[N], off[N] = {0};
  bs_source w, b;
  trained *t = malloc(sizeof *t);
  make_trained(t, 0, BS_LOSS_MSE_ZERO, -1, 0);
  for (int n = 0; n < N; ++n) bias[n] = t->r.zero[3 * N + n];
  bias[7] += 1e-3;
  ck_assert_int_eq(bs_source_from_memory(t->r.w + 3 * N * K, BS_F64, N, K, K, &w, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(bias, BS_F64, 1, N, N, &b, &err), BS_OK);
  bs_case c = t->c;
  c.w = &w;
  c.bias = &b;
  for (int i = 0; i < 3; ++i) {
    bs_verdict v;
    off[7] = known_to[i];
    const bs_verdict_within within = {.bias_error = off};
    ck_assert_msg(bs_verdict_make_within(&c, &t->r.run, 0, &within, &v, &err) == BS_OK, "%s", err.message);
    ck_assert_int_eq(bs_verdict_passed(v.gates, v.n_gates), i == 2);
  }
  bs_source_release(&w);
  bs_source_release(&b);
  free_trained(t);
  free(t);
}
END_TEST

/* Sums in int8 steps hide of the bias what they hide of an output, and not more. */
START_TEST(int8_steps_hide_a_step) {
  char failed[128];
  trained *t = malloc(sizeof *t);
  make_trained(t, BS_I8, BS_LOSS_MSE_ZERO, -1, 0);
  judged(t, failed);
  ck_assert_str_eq(failed, "");
  const double largest = t->r.zero_largest[3 * N + 7];
  ck_assert_double_gt(largest, 0.5);
  ck_assert_double_lt(largest, 10.0);
  t->r.zero[3 * N + 7] += 2.5 * largest / 127.0; /* two roundings of half a step, and what was there */
  judged(t, failed);
  ck_assert_str_eq(failed, "b.T3 ");
  free_trained(t);
  free(t);
}
END_TEST

int main(void) {
  const test_case tests[] = {{right_runs_pass, TEST_COUNT(runs)},
                             {weights_that_are_not_finite_come_out_again, 6},
                             {a_finite_run_is_valid},
                             {a_wrong_bias_is_caught},
                             {outputs_keep_to_a_bias_known_to_so_much},
                             {int8_steps_hide_a_step},
                             {0}};
  return run_tests("gate_training", tests, (test_setup){open_context, close_context, 60});
}
