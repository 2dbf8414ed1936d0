/* SPDX-License-Identifier: MIT
 * test_op_quantize.c - quantize_groups and dequantize_sum on ref and cpu: NaN and infinities never turn
 * finite. The kit has their values, bit for bit (kit_ref, kit_cpu, test_cpu_values). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/blockshock.h"
#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static bs_context *context;
static const bs_rank_api *api;

static void open_all(void) {
  bs_error err = BS_ERROR_INIT;
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")};
  bs_context_options o = {.struct_size = sizeof o, .trust = BS_TRUST_ANY, .plugin_dirs = dirs};
  o.n_plugin_dirs = dirs[0] != NULL;
  ck_assert_msg(bs_context_open(&o, &context, &err) == BS_OK, "%s", err.message);
  api = bs_rank_get_api();
}
static void close_all(void) {
  bs_context_close(context);
}

typedef struct job {
  int64_t rows, cols, group, terms, stride; /* stride: of the floats; 0: dense */
  uint32_t out_dtype;
  float *in; /* [rows, terms x cols], each term a matrix for quantize */
  int8_t *q;
  float *scales;
  void *out;
  int32_t want; /* of prepare */
} job;

static bs_tensor matrix(void *data, uint32_t dtype, int64_t rows, int64_t cols, int64_t stride) {
  bs_tensor t = {.struct_size = sizeof t,
                 .dtype = dtype,
                 .rank = 2,
                 .dims = {rows, cols},
                 .strides = {stride, 1},
                 .data = data,
                 .bytes = (uint64_t)(rows * stride) * BS_DTYPE_BYTES(dtype)};
  return t;
}

static int32_t call(bs_rank *rank, const char *op, int64_t group, int64_t terms, bs_tensor *t,
                    bs_error *err) {
  bs_tensor_desc d[3];
  const bs_tensor_desc *args[3];
  bs_tensor *tensors[3];
  bs_plan *plan = NULL;
  for (int i = 0; i < 3; ++i) {
    d[i] = bs_desc_2d(t[i].dtype, t[i].dims[0], t[i].dims[1]);
    d[i].strides[0] = t[i].strides[0];
    d[i].strides[1] = 1;
    args[i] = &d[i];
    tensors[i] = &t[i];
  }
  bs_op_query q = {.struct_size = sizeof q, .op = op, .nargs = 3, .args = args, .attrs = {group, terms}};
  int32_t rc = api->op_prepare(rank, &q, NULL, &plan, err);
  if (rc == BS_OK) rc = api->op_run(plan, tensors, 3, NULL, err);
  if (plan != NULL) api->op_release(plan);
  return rc;
}

/* Quantise each term into its columns, then add them. */
static int32_t both_main(bs_rank *rank, void *arg, bs_error *err) {
  job *j = arg;
  const int64_t groups = (j->cols + j->group - 1) / j->group, stride = j->stride ? j->stride : j->cols;
  int32_t rc = BS_OK;
  for (int64_t t = 0; rc == BS_OK && t < j->terms; ++t) {
    bs_tensor a[3] = {
        matrix(j->in + t * j->rows * stride, BS_F32, j->rows, j->cols, stride),
        matrix(j->q + t * j->cols, BS_I8, j->rows, j->cols, j->terms * j->cols),
        matrix(j->scales + t * groups, BS_F32, j->rows, groups, j->terms * groups),
    };
    rc = call(rank, "quantize_groups", j->group, 0, a, err);
  }
  bs_tensor b[3] = {
      matrix(j->q, BS_I8, j->rows, j->terms * j->cols, j->terms * j->cols),
      matrix(j->scales, BS_F32, j->rows, j->terms * groups, j->terms * groups),
      matrix(j->out, j->out_dtype, j->rows, j->cols, stride),
  };
  return rc == BS_OK ? call(rank, "dequantize_sum", j->group, j->terms, b, err) : rc;
}

static void run(const char *backend, int32_t (*body)(bs_rank *, void *, bs_error *), job *j) {
  bs_error err = BS_ERROR_INIT;
  bs_world *world = NULL;
  bs_world_options o = {.struct_size = sizeof o, .world_size = 1, .backend = backend, .threads_per_rank = 2};
  ck_assert_msg(bs_world_create(context, &o, &world, &err) == BS_OK, "%s", err.message);
  const int32_t rc = bs_world_run(world, body, j, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s %s", backend, err.id, err.message);
  bs_world_destroy(world);
}

static uint64_t state = 1;
static float normal(void) {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    sum += (double)(state >> 11) * 0x1p-53;
  }
  return (float)sum;
}

static job make(int64_t rows, int64_t cols, int64_t group, int64_t terms, int64_t stride, uint32_t dtype) {
  job j = {rows, cols, group, terms, stride, dtype, NULL, NULL, NULL, NULL, BS_OK};
  const size_t wide = (size_t)(rows * (stride ? stride : cols));
  j.in = calloc(wide * (size_t)terms, sizeof *j.in);
  j.q = calloc((size_t)(rows * terms * cols), 1);
  j.scales = calloc((size_t)(rows * terms * ((cols + group - 1) / group)), sizeof *j.scales);
  j.out = calloc(wide, 8);
  for (size_t i = 0; i < wide * (size_t)terms; ++i) j.in[i] = normal();
  return j;
}
static void drop(job *j) {
  free(j->in);
  free(j->q);
  free(j->scales);
  free(j->out);
}

/* A group with a NaN or an infinity is NaN as a whole, its neighbours are not touched; zeros stay zero. */
START_TEST(nothing_turns_finite) {
  static const char *const backends[] = {"ref", "cpu"};
  const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
  for (int b = 0; b < 2; ++b)
    for (int64_t at = 0; at < 64; at += 21)
      for (size_t i = 0; i < 4; ++i) {
        job j = make(2, 192, 64, 1, 0, BS_F32);
        j.in[64 + at] = bad[i];
        memset(j.in + 192, 0, 64 * sizeof *j.in);
        j.in[192 + 64] = 1e-42f; /* subnormal: a scale that is zero or coarse */
        run(backends[b], both_main, &j);
        const float *y = j.out;
        for (int c = 0; c < 192; ++c) ck_assert_int_eq(isnan(y[c]) != 0, c >= 64 && c < 128);
        for (int c = 0; c < 64; ++c) ck_assert(y[192 + c] == 0.0f);
        for (int c = 64; c < 192; ++c) ck_assert(isfinite(y[192 + c]));
        drop(&j);
      }
}
END_TEST

int main(void) {
  const test_case tests[] = {{nothing_turns_finite}, {0}};
  return run_tests("op_quantize", tests, (test_setup){open_all, close_all});
}
