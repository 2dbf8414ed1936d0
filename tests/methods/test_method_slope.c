/* SPDX-License-Identifier: MIT
 *
 * test_method_slope.c - backward through relu, gelu and silu of every method on ref and cpu: dX, dW, db and a
 * fused step against finite differences of the formula in double, within the roundings of the dtypes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "kit/method_fixture.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { B = 3, MOST_N = 7, MOST_K = 9 };
static int N = MOST_N, K = MOST_K; /* or fewer features than there are ranks */

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

typedef struct slopes {
  bs_layer_spec spec;
  const char *method, *backend, *half;
  double x[B * MOST_K], w[MOST_N * MOST_K], b[MOST_N], dy[B * MOST_N];
  double dx[B * MOST_K], dw[MOST_N * MOST_K], db[MOST_N];                /* finite differences */
  double dx_size[B * MOST_K], dw_size[MOST_N * MOST_K], db_size[MOST_N]; /* what their terms add up to */
} slopes;

static double apply(uint32_t activation, double v) {
  if (activation == BS_ACT_RELU) return v > 0 ? v : 0;
  if (activation == BS_ACT_GELU) return 0.5 * v * erfc(-v / sqrt(2.0));
  return v / (1 + exp(-v));
}

static double loss(const slopes *s) {
  double sum = 0;
  for (int t = 0; t < B; t++)
    for (int n = 0; n < N; n++) {
      double z = s->b[n];
      for (int k = 0; k < K; k++) z += s->x[t * K + k] * s->w[n * K + k];
      sum += s->dy[t * N + n] * apply(s->spec.activation, z);
    }
  return sum;
}

static void differences(slopes *s, double *at, double *out, int count) {
  const double h = 0x1p-14;
  for (int i = 0; i < count; i++) {
    const double keep = at[i];
    at[i] = keep + h;
    const double up = loss(s);
    at[i] = keep - h;
    out[i] = (up - loss(s)) / (2 * h);
    at[i] = keep;
  }
}

static void sizes(slopes *s) {
  memset(s->dx_size, 0, sizeof s->dx_size);
  memset(s->dw_size, 0, sizeof s->dw_size);
  memset(s->db_size, 0, sizeof s->db_size);
  for (int t = 0; t < B; t++)
    for (int n = 0; n < N; n++) {
      const double d = 1.2 * fabs(s->dy[t * N + n]);
      s->db_size[n] += d;
      for (int k = 0; k < K; k++) {
        s->dx_size[t * K + k] += d * fabs(s->w[n * K + k]);
        s->dw_size[n * K + k] += d * fabs(s->x[t * K + k]);
      }
    }
}

static void fill(uint64_t seed, uint32_t dtype, double *out, int count) {
  float *values = mf_normals(seed, count);
  unsigned char stored[8];
  for (int i = 0; i < count; i++) {
    bs_store_f64(dtype, stored, 0, 0.75 * (double)values[i]);
    out[i] = bs_load_f64(dtype, stored, 0);
  }
  free(values);
}

static bs_tensor take(bs_rank *rank, uint32_t dtype, uint32_t dims, int64_t rows, int64_t cols) {
  bs_tensor t;
  bs_error err = BS_ERROR_INIT;
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = dims, .dims = {rows, cols}};
  if (dims == 1) d.dims[1] = 0;
  ck_assert_msg(bs_rank_get_api()->tensor_alloc(rank, &d, BS_LIFE_ACTIVATION, &t, &err) == BS_OK, "%s",
                err.message);
  return t;
}

static int64_t column(const bs_partition *cols, int64_t j) {
  if (cols == NULL) return j;
  return cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[j] : cols->begin + j;
}

static int64_t width(const bs_ownership *own) {
  const int64_t cols = own->columns != NULL ? own->columns->count : K;
  return own->kept != NULL ? (cols + 3) / 4 * 2 : cols;
}

/* The column of value j of a row; -1: of padding. */
static int64_t place(const bs_ownership *own, int64_t row, int64_t j) {
  const int64_t cols = own->columns != NULL ? own->columns->count : K;
  uint8_t bits = 0;
  bs_error err = BS_ERROR_INIT;
  if (own->kept == NULL) return column(own->columns, j);
  ck_assert_int_eq(own->kept->read(own->kept->ctx, row, 1, j / 2, 1, &bits, 1, &err), BS_OK);
  const int first = __builtin_ctz(bits), second = __builtin_ctz(bits & (bits - 1u));
  const int64_t k = 4 * (j / 2) + (j % 2 == 0 ? first : second);
  return k < cols ? column(own->columns, k) : -1;
}

static void near(const slopes *s, uint32_t rank, const char *what, int64_t i, double got, double want,
                 double size) {
  const double u = bs_dtype_unit_roundoff(s->spec.y_dtype);
  ck_assert_msg(fabs(got - want) <= 3 * u * size + 16 * 0x1p-24 * size + 0x1p-24,
                "%s on %s %s activation %u y %u, rank %u: %s[%d] is %.9g, differences say %.9g", s->method,
                s->backend, bs_dtype_name(s->spec.y_dtype), s->spec.activation, s->spec.y_placement, rank,
                what, (int)i, got, want);
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  const slopes *s = arg;
  const bs_rank_api *api = bs_rank_get_api();
  const uint32_t me = api->rank(rank), world = api->world_size(rank);
  const uint32_t wide = s->spec.x_dtype == BS_F64 ? BS_F64 : BS_F32;
  bs_source w, b;
  bs_layer *layer = NULL;
  bs_ownership own = {.struct_size = sizeof own};
  int64_t begin = 0, count = N;
  if (s->spec.y_placement == BS_SPLIT) bs_share(N, me, world, &begin, &count);
  int32_t rc = bs_source_from_memory(s->w, BS_F64, N, K, K, &w, err);
  if (rc == BS_OK) rc = bs_source_from_memory(s->b, BS_F64, 1, N, N, &b, err);
  b.dtype = s->spec.y_dtype; /* whose values they are */
  if (rc == BS_OK) rc = bs_layer_build(rank, s->method, &s->spec, &w, &b, &layer, err);
  if (rc == BS_OK) rc = bs_layer_owns(layer, &own, err);
  if (rc != BS_OK) return rc;
  const int64_t cols = width(&own);
  bs_tensor x = take(rank, s->spec.x_dtype, 2, B, K), y = take(rank, s->spec.y_dtype, 2, B, count);
  bs_tensor dy = take(rank, s->spec.y_dtype, 2, B, count), dx = take(rank, s->spec.x_dtype, 2, B, K);
  bs_tensor dw = take(rank, wide, 2, own.row_count, cols), db = take(rank, wide, 1, own.row_count, 0);
  bs_tensor back = take(rank, BS_F64, 2, own.row_count, cols);
  for (int i = 0; i < B * K; i++) bs_store_f64(x.dtype, x.data, i, s->x[i]);
  for (int t = 0; t < B; t++)
    for (int64_t n = 0; n < count; n++)
      bs_store_f64(dy.dtype, dy.data, t * count + n, s->dy[t * N + begin + n]);
  rc = bs_layer_forward(layer, &x, &y, NULL, err);
  if (rc == BS_OK) rc = bs_layer_backward(layer, &x, &dy, &dx, &dw, &db, NULL, err);
  for (int64_t i = 0; rc == BS_OK && i < B * K; i++)
    near(s, me, "dX", i, bs_load_f64(dx.dtype, dx.data, i), s->dx[i], s->dx_size[i]);
  for (int64_t n = 0; rc == BS_OK && n < own.row_count; n++) {
    near(s, me, "db", n, bs_load_f64(wide, db.data, n), s->db[own.row_begin + n],
         s->db_size[own.row_begin + n]);
    for (int64_t j = 0; j < cols; j++) {
      const int64_t k = place(&own, n, j), at = (own.row_begin + n) * K + k;
      if (k >= 0) near(s, me, "dW", at, bs_load_f64(wide, dw.data, n * cols + j), s->dw[at], s->dw_size[at]);
    }
  }
  const bs_step step = {
      .struct_size = sizeof step, .optimizer = BS_OPT_SGD, .lr = 0.5, .db = &db, .x = &x, .dy = &dy};
  if (rc == BS_OK) rc = bs_layer_step(layer, &step, NULL, err);
  if (rc == BS_OK) rc = bs_layer_read_weights(layer, 0, &back, err);
  for (int64_t i = 0; rc == BS_OK && i < own.row_count * cols; i++) {
    const int64_t k = place(&own, i / cols, i % cols), at = (own.row_begin + i / cols) * K + k;
    if (k >= 0)
      near(s, me, "stepped W", at, ((const double *)back.data)[i], s->w[at] - 0.5 * s->dw[at],
           s->dw_size[at] + fabs(s->w[at]));
  }
  bs_tensor fewer = dy; /* not what forward had */
  fewer.dims[0] = B - 1;
  bs_error why = BS_ERROR_INIT;
  if (rc == BS_OK)
    ck_assert_int_eq(bs_layer_backward(layer, &x, &fewer, NULL, NULL, NULL, NULL, &why), BS_INVALID_ARGUMENT);
  bs_tensor *const all[] = {&x, &y, &dy, &dx, &dw, &db, &back};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) api->tensor_free(rank, all[i]);
  bs_layer_free(layer);
  bs_source_release(&w);
  bs_source_release(&b);
  return rc;
}

/* Of one half alone the other's weights are none. */
static void leave_out(slopes *s, const bs_mask *mask, uint32_t half) {
  const bs_kept *kept = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_kept_make(mask, N, K, NULL, 1u - half, &kept, &err), BS_OK);
  for (int64_t n = 0; n < N; n++)
    for (int64_t k = 0; k < K; k++) {
      uint8_t bits = 0;
      ck_assert_int_eq(kept->read(kept->ctx, n, 1, k / 4, 1, &bits, 1, &err), BS_OK);
      if (bits >> (k % 4) & 1) s->w[n * K + k] = 0.0;
    }
  bs_kept_free(kept);
}

static void check(bs_context *context, int index, uint32_t dtype, uint32_t activation, uint32_t y_placement,
                  int cpu) {
  slopes *s = calloc(1, sizeof *s);
  bs_world_options options = {.struct_size = sizeof options,
                              .world_size = layers[index].world,
                              .backend = cpu ? "cpu" : "ref",
                              .threads_per_rank = 1,
                              .timeout_s = 60};
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  s->method = layers[index].method;
  s->backend = options.backend;
  s->spec = mf_spec(B, N, K, dtype);
  s->spec.has_bias = 1;
  s->spec.activation = activation;
  s->spec.y_placement = y_placement;
  s->spec.flags = BS_LAYER_BACKWARD | BS_LAYER_SGD;
  const char *keys[2], *values[2];
  bs_mask mask;
  s->half = layers[index].half;
  if (layers[index].mask != NULL) {
    mask = mf_mask(layers[index].mask);
    s->spec.mask = &mask;
  }
  s->spec.option_keys = keys;
  s->spec.option_values = values;
  if (layers[index].slices != NULL) {
    keys[s->spec.n_options] = "slices";
    values[s->spec.n_options++] = layers[index].slices;
  }
  if (s->half != NULL) {
    keys[s->spec.n_options] = "half";
    values[s->spec.n_options++] = s->half;
  }
  fill(11, dtype, s->x, B * K);
  fill(12, dtype, s->w, N * K);
  if (s->half != NULL) leave_out(s, &mask, s->half[0] == '1');
  fill(13, dtype, s->b, N);
  fill(14, dtype, s->dy, B * N);
  differences(s, s->x, s->dx, B * K);
  differences(s, s->w, s->dw, N * K);
  differences(s, s->b, s->db, N);
  sizes(s);
  ck_assert_msg(bs_world_create(context, &options, &world, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_world_run(world, rank_main, s, &err) == BS_OK, "%s P=%u on %s: %s %s", s->method,
                options.world_size, s->backend, err.id, err.message);
  bs_world_destroy(world);
  free(s);
}

START_TEST(finite_differences) {
  static const uint32_t dtypes[] = {BS_F32, BS_BF16, BS_F16, BS_F64};
  bs_context *context = mf_context();
  for (uint32_t activation = BS_ACT_RELU; activation <= BS_ACT_SILU; activation++)
    for (size_t d = 0; d < 4; d++)
      for (uint32_t y = BS_REPLICATED; y <= BS_SPLIT; y++)
        for (int cpu = 0; cpu < (dtypes[d] == BS_F64 ? 1 : 2); cpu++)
          check(context, _i, dtypes[d], activation, y, cpu);
  bs_context_close(context);
}
END_TEST

START_TEST(empty_shares) {
  bs_context *context = mf_context();
  N = 2;
  K = 5;
  for (uint32_t y = BS_REPLICATED; y <= BS_SPLIT; y++) {
    check(context, _i, BS_F32, BS_ACT_GELU, y, 1);
    check(context, _i, BS_BF16, BS_ACT_SILU, y, 0);
  }
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case tests[] = {{finite_differences, N_LAYERS}, {empty_shares, N_LAYERS}, {0}};
  return run_tests("method_slope", tests, (test_setup){.timeout = 60});
}
