/* SPDX-License-Identifier: MIT
 *
 * test_method_slope.c - backward through relu, gelu and silu of every method on ref and cpu: dX, dW, db and
 * fused steps against finite differences of the formula in double, within the roundings of the dtypes
 * (kit/method_gradient.c).
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "kit/method_gradient.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { B = 3 };

static const struct {
  const char *method;
  uint32_t world;
  const char *mask, *slices; /* 2:4 halves; NULL: none */
  const char *half;
} layers[] = {
    {"dense", 1, NULL, NULL, NULL},
    {"column_parallel", 2, NULL, NULL, NULL},
    {"column_parallel", 3, NULL, NULL, NULL},
    {"column_parallel", 8, NULL, NULL, NULL},
    {"row_parallel", 2, NULL, NULL, NULL},
    {"row_parallel", 3, NULL, NULL, NULL},
    {"masked_split", 2, NULL, NULL, NULL},
    {"masked_split", 4, "magnitude", NULL, NULL},
    {"blockshock", 1, NULL, NULL, NULL},
    {"blockshock", 2, NULL, NULL, NULL},
    {"blockshock", 4, NULL, NULL, NULL},
    {"blockshock", 2, "magnitude", NULL, NULL},
    {"blockshock", 4, "random_2of4", NULL, NULL},
    {"blockshock", 4, "transposable", "row", NULL},
    {"blockshock", 6, "magnitude", "column", NULL},
    {"blockshock", 1, "random_2of4", NULL, "0"},
    {"blockshock", 3, "random_2of4", "column", "1"},
    {"blockshock", 2, "random_2of4", "row", "1"},
};
#define N_LAYERS ((int)(sizeof layers / sizeof layers[0]))

/* Normal values as the dtype holds them. */
static float *values(uint64_t seed, uint32_t dtype, int64_t count) {
  float *v = mf_normals(seed, count);
  unsigned char stored[8];
  for (int64_t i = 0; i < count; i++) {
    bs_store_f64(dtype, stored, 0, 0.75 * (double)v[i]);
    v[i] = (float)bs_load_f64(dtype, stored, 0);
  }
  return v;
}

/* Of one half alone the other's weights are none. */
static void leave_out(float *w, const bs_mask *mask, uint32_t half, int64_t N, int64_t K) {
  const bs_kept *kept = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kept_make(mask, N, K, NULL, 1u - half, &kept, &err), BS_OK);
  for (int64_t n = 0; n < N; n++)
    for (int64_t k = 0; k < K; k++) {
      uint8_t bits = 0;
      ck_assert_int_eq(kept->read(kept->ctx, n, 1, k / 4, 1, &bits, 1, &err), BS_OK);
      if (bits >> (k % 4) & 1) w[n * K + k] = 0.0f;
    }
  bs_kept_free(kept);
}

static void check(bs_context *context, int index, const int64_t shape[2], uint32_t dtype, uint32_t activation,
                  uint32_t y_placement, int cpu) {
  const char *keys[] = {"slices", "half"}, *options[] = {layers[index].slices, layers[index].half};
  const int64_t N = shape[0], K = shape[1];
  bs_mask mask;
  bs_error err = BS_ERROR_INIT;
  float *x = values(11, dtype, B * K), *w = values(12, dtype, N * K), *dy = values(14, dtype, B * N);
  mg_case g = {.method = layers[index].method,
               .backend = cpu ? "cpu" : "ref",
               .world = layers[index].world,
               .x = x,
               .w = w,
               .dy = dy,
               .step = MG_FUSED};
  g.spec = mf_spec(B, N, K, dtype);
  g.spec.has_bias = 1;
  g.spec.activation = activation;
  g.spec.y_placement = y_placement;
  g.spec.mask = mf_mask_in(layers[index].mask, &mask);
  const int first = options[0] == NULL; /* slices, or half alone */
  g.spec.option_keys = keys + first;
  g.spec.option_values = options + first;
  g.spec.n_options = (uint32_t)(options[0] != NULL) + (options[1] != NULL);
  if (options[1] != NULL) leave_out(w, &mask, options[1][0] == '1', N, K);
  ck_assert_msg(mg_run(context, &g, &err) == BS_OK, "%s P=%u on %s: %s %s", g.method, g.world, g.backend,
                err.id, err.message);
  free(x), free(w), free(dy);
}

START_TEST(finite_differences) {
  static const int64_t shape[] = {7, 9};
  static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64};
  bs_context *context = mf_context();
  for (uint32_t activation = BS_ACT_RELU; activation <= BS_ACT_SILU; activation++)
    for (size_t d = 0; d < 4; d++)
      for (uint32_t y = BS_REPLICATED; y <= BS_SPLIT; y++)
        for (int cpu = 0; cpu < (dtypes[d] == BS_F64 ? 1 : 2); cpu++)
          check(context, _i, shape, dtypes[d], activation, y, cpu);
  bs_context_close(context);
}
END_TEST

/* Fewer features than there are ranks. */
START_TEST(empty_shares) {
  static const int64_t shape[] = {2, 5};
  bs_context *context = mf_context();
  for (uint32_t y = BS_REPLICATED; y <= BS_SPLIT; y++) {
    check(context, _i, shape, BS_F32, BS_ACT_GELU, y, 1);
    check(context, _i, shape, BS_BF16, BS_ACT_SILU, y, 0);
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{finite_differences, N_LAYERS}, {empty_shares, N_LAYERS}, {0}};
  return run_tests("method_slope", tests, (test_setup){.timeout = 60});
}
