/* SPDX-License-Identifier: MIT
 *
 * test_method_activation.c - activations of every method on ref and cpu: applied once, to the whole sum. The
 * layers are such that an activation of the partial sums, or a second one, gives other outputs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const struct {
  const char *method;
  uint32_t world;
} layers[] = {
    {"dense", 1},        {"column_parallel", 1}, {"column_parallel", 2}, {"column_parallel", 3},
    {"row_parallel", 1}, {"row_parallel", 2},    {"row_parallel", 3},    {"masked_split", 1},
    {"masked_split", 2}, {"masked_split", 4},    {"blockshock", 1},      {"blockshock", 2},
    {"blockshock", 4},
};
#define N_LAYERS ((int)(sizeof layers / sizeof layers[0]))

static const uint32_t activations[] = {BS_ACT_RELU, BS_ACT_GELU, BS_ACT_SILU};
static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64};

static double want_of(uint32_t activation, double v) {
  if (activation == BS_ACT_RELU) return v > 0 ? v : 0;
  if (activation == BS_ACT_GELU) return 0.5 * v * (1 + erf(v / sqrt(2.0)));
  return v / (1 + exp(-v));
}

enum { B = 3, N = 7, K = 9 };

/* Sums of small integers are exact; y is off by the activation's own ulps and its dtype's rounding. */
static void check_layer(bs_context *context, mf_case *c, const char *what) {
  mf_result result;
  mf_run_ok(context, c, &result);
  double *sum = mf_reference(c);
  const double u = bs_dtype_unit_roundoff(c->spec.y_dtype);
  for (uint32_t r = 0; r < c->world; r++) {
    const mf_rank *k = &result.rank[r];
    int64_t first = 0;
    for (uint32_t i = 0; c->spec.y_placement == BS_SPLIT && i < r; i++) first += result.rank[i].y_cols;
    for (int64_t i = 0; i < B * k->y_cols; i++) {
      const double v = sum[i / k->y_cols * N + first + i % k->y_cols], want = want_of(c->spec.activation, v);
      const double slack = c->spec.activation == BS_ACT_RELU ? 0 : u * fabs(want) + 8 * 0x1p-24 * fabs(v);
      ck_assert_msg(fabs(k->y[i] - want) <= slack, "%s, rank %u: y[%lld] = %g of the sum %g, want %g", what,
                    r, (long long)i, k->y[i], v, want);
    }
    ck_assert_uint_eq(k->collectives, k->proposal.n_collectives);
    ck_assert_uint_eq(k->counters[BS_COUNT_FLOPS], k->proposal.flops);
  }
  free(sum);
  mf_free(&result);
}

static void check_all(uint32_t y_placement, uint32_t reduce_dtype, int index) {
  bs_context *context = mf_context();
  float *x = mf_integers(4, B * K), *w = mf_integers(5, N * K), *bias = mf_integers(6, N);
  for (size_t a = 0; a < 3; a++)
    for (size_t d = 0; d < 4; d++)
      for (int cpu = 0; cpu < 2; cpu++) {
        char what[96];
        if (cpu && dtypes[d] == BS_F64) continue; /* the cpu backend has no f64 product */
        mf_case c = {.method = layers[index].method,
                     .backend = cpu ? "cpu" : "ref",
                     .world = layers[index].world,
                     .x = x,
                     .w = w,
                     .bias = bias};
        c.spec = mf_spec(B, N, K, dtypes[d]);
        c.spec.has_bias = 1;
        c.spec.activation = activations[a];
        c.spec.y_placement = y_placement;
        c.spec.reduce_dtype = reduce_dtype != 0 ? dtypes[d] : 0;
        snprintf(what, sizeof what, "%s P=%u %s on %s, activation %u", c.method, c.world,
                 bs_dtype_name(dtypes[d]), c.backend, activations[a]);
        check_layer(context, &c, what);
      }
  free(x);
  free(w);
  free(bias);
  bs_context_close(context);
}

START_TEST(whole_outputs) {
  check_all(BS_REPLICATED, 0, _i);
}
END_TEST

START_TEST(split_outputs) {
  check_all(BS_SPLIT, 0, _i);
}
END_TEST

/* The sum lies in y itself. */
START_TEST(reduced_in_the_dtype_of_y) {
  check_all(BS_REPLICATED, 1, _i);
  check_all(BS_SPLIT, 1, _i);
}
END_TEST

/* A forward of fewer tokens, and several of them: scratch is not carried over. */
START_TEST(fewer_tokens_and_again) {
  bs_context *context = mf_context();
  float *x = mf_integers(4, B * K), *w = mf_integers(5, N * K);
  mf_case c = {
      .method = "blockshock", .backend = "cpu", .world = 2, .x = x, .w = w, .forwards = 3, .rows = 2};
  c.spec = mf_spec(B, N, K, BS_BF16);
  c.spec.activation = BS_ACT_RELU;
  for (uint32_t placement = BS_REPLICATED; placement <= BS_SPLIT; placement++) {
    mf_result result;
    c.spec.y_placement = placement;
    mf_run_ok(context, &c, &result);
    double *sum = mf_reference(&c);
    for (uint32_t r = 0; r < 2; r++)
      for (int64_t i = 0; i < 2 * result.rank[r].y_cols; i++) {
        const int64_t cols = result.rank[r].y_cols, first = r == 1 && placement ? result.rank[0].y_cols : 0;
        ck_assert(result.rank[r].y[i] == fmax(sum[i / cols * N + first + i % cols], 0.0));
      }
    free(sum);
    mf_free(&result);
  }
  free(x);
  free(w);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{whole_outputs, N_LAYERS},
                             {split_outputs, N_LAYERS},
                             {reduced_in_the_dtype_of_y, N_LAYERS},
                             {fewer_tokens_and_again},
                             {0}};
  return run_tests("method_activation", tests, (test_setup){.timeout = 120});
}
