/* SPDX-License-Identifier: MIT
 * test_partial_loss.c - a layer whose ranks keep partial sums: the loss is of their sum, in phases 2 and 3,
 * and the sum is no part of what the layer is counted for. */
#include <math.h>

#include "lab/case/gradient.h"
#include "lab/case/loss.h"
#include "lab/case/train.h"
#include "tests/gate/right_run.h"
#include "tests/run_tests.h"

static bs_context *context;

static void open_context(void) {
  context = right_context();
}
static void close_context(void) {
  bs_context_close(context);
}

static const char *const methods[] = {"{name: row_parallel, y_placement: partial, bias: true}",
                                      "{name: masked_split, y_placement: partial}",
                                      "{name: blockshock, y_placement: partial, bias: true}",
                                      "{name: blockshock, y_placement: partial}\nmask: {name: random_2of4}"};
/* More features than columns and fewer: gradients of X are not laid out as outputs are. */
static const char *const models[] = {"{B: 16, N: 96, K: 64, dtype: float32}",
                                     "{B: 8, N: 24, K: 128, dtype: bf16}"};

START_TEST(right_runs_pass) {
  const int phase = 2 + _i / 8, method = _i % 4;
  char yaml[512];
  snprintf(yaml, sizeof yaml,
           "method: %s\nmodel: %s\nhardware: {backend: cpu, world_size: %d}\nphase: {name: %s}",
           methods[method], models[_i / 4 % 2], method == 0 ? 3 : 2,
           phase == 2 ? "phase2_backward_input" : "phase3_train_step");
  must_be_right(context, yaml);
}
END_TEST

enum { B = 8, N = 24, K = 40 };

typedef struct data {
  float x[B * K], w[N * K];
  bs_source sx, sw;
} data;

static bs_case make_case(data *d, uint32_t placement) {
  bs_error err = BS_ERROR_INIT;
  for (int i = 0; i < B * K; ++i) d->x[i] = (float)((i * 37 + 11) % 101 - 50) / 25.0f;
  for (int i = 0; i < N * K; ++i) d->w[i] = (float)((i * 53 + 29) % 103 - 51) / 25.0f;
  ck_assert_int_eq(bs_source_from_memory(d->x, BS_F32, B, K, K, &d->sx, &err), BS_OK);
  ck_assert_int_eq(bs_source_from_memory(d->w, BS_F32, N, K, K, &d->sw, &err), BS_OK);
  bs_case c = {.context = context,
               .method = "row_parallel",
               .backend = "cpu",
               .comm = "threads",
               .world_size = 3,
               .threads_per_rank = 1,
               .timeout_s = 60,
               .iterations = 1,
               .x = &d->sx,
               .w = &d->sw};
  c.spec = (bs_layer_spec){.struct_size = sizeof c.spec, .B = B, .N = N, .K = K, .y_placement = placement};
  c.spec.x_dtype = c.spec.w_dtype = c.spec.y_dtype = BS_F32;
  return c;
}

static void free_sources(data *d) {
  bs_source_release(&d->sx);
  bs_source_release(&d->sw);
}

/* The gradient of Y is that of X W^T, whatever each rank has of it. */
START_TEST(the_loss_is_of_the_sum) {
  static data d;
  bs_error err = BS_ERROR_INIT;
  bs_gradient_result r;
  const bs_case c = make_case(&d, BS_PARTIAL);
  ck_assert_msg(bs_gradient_run(&c, BS_LOSS_MSE_ZERO, NULL, &r, &err) == BS_OK, "%s", err.message);
  for (int b = 0; b < B; ++b)
    for (int n = 0; n < N; ++n) {
      double y = 0.0;
      for (int k = 0; k < K; ++k) y += (double)d.x[b * K + k] * d.w[n * K + k];
      const double want = 2.0 * y / (B * N), got = ((const float *)r.dy)[b * N + n];
      ck_assert_msg(fabs(got - want) < 1e-5, "%d %d: %g, not %g", b, n, got, want);
    }
  bs_gradient_result_free(&r);
  free_sources(&d);
}
END_TEST

START_TEST(steps_count_what_the_layer_does) {
  static data d;
  bs_error err = BS_ERROR_INIT;
  uint64_t wire[2];
  for (int partial = 0; partial < 2; ++partial) {
    bs_train_result r;
    const bs_case c = make_case(&d, partial ? BS_PARTIAL : BS_REPLICATED);
    const bs_train_options o = {.optimizer = BS_OPT_SGD, .lr = 0.1, .steps = 2, .loss = BS_LOSS_MSE_ZERO};
    ck_assert_msg(bs_train_run(&c, &o, &r, &err) == BS_OK, "%s", err.message);
    ck_assert(isfinite(r.loss[0]) && r.loss[1] < r.loss[0]);
    wire[partial] = r.ranks[0].counters[BS_COUNT_COLLECTIVES];
    bs_train_result_free(&r);
    free_sources(&d);
  }
  ck_assert_uint_eq(wire[1] + 1, wire[0]); /* all but the sum of Y */
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {right_runs_pass, 16}, {the_loss_is_of_the_sum}, {steps_count_what_the_layer_does}, {0}};
  return run_tests("partial_loss", tests, (test_setup){open_context, close_context, 60});
}
