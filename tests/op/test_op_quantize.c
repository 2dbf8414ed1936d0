/* SPDX-License-Identifier: MIT
 * test_op_quantize.c - quantize_groups and dequantize_sum on ref and cpu: by hand, bit for bit alike, half a
 * step at most off, NaN and infinities never finite, strides, groups that do not divide, what is refused. */
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

static const int64_t shapes[][5] = {{1, 1, 128, 1, 0},     {3, 5, 2, 2, 0},      {4, 128, 128, 3, 0},
                                    {2, 300, 128, 4, 333}, {5, 257, 64, 1, 260}, {64, 1000, 128, 2, 0},
                                    {2, 9000, 5000, 2, 0}};

/* The values by the definition, and the same bits on both. */
START_TEST(as_defined) {
  const int64_t *s = shapes[_i];
  job j = make(s[0], s[1], s[2], s[3], s[4], BS_F32), k = j;
  const int64_t groups = (j.cols + j.group - 1) / j.group, stride = j.stride ? j.stride : j.cols;
  const size_t nq = (size_t)(j.rows * j.terms * j.cols), ns = (size_t)(j.rows * j.terms * groups);
  k.q = calloc(nq, 1);
  k.scales = calloc(ns, sizeof *k.scales);
  k.out = calloc((size_t)(j.rows * stride), sizeof(float));
  if (j.cols > 4) j.in[0] = j.in[1] = j.in[2] = 0.0f; /* and a zero or three */
  run("ref", both_main, &j);
  run("cpu", both_main, &k);
  ck_assert_mem_eq(j.q, k.q, nq);
  ck_assert_mem_eq(j.scales, k.scales, ns * sizeof(float));
  ck_assert_mem_eq(j.out, k.out, (size_t)(j.rows * stride) * sizeof(float));
  int64_t wrong = 0;
  for (int64_t r = 0; r < j.rows; ++r)
    for (int64_t c = 0; c < j.cols; ++c) {
      float sum = 0.0f;
      for (int64_t t = 0; t < j.terms; ++t) {
        const float *row = j.in + (t * j.rows + r) * stride, x = row[c];
        const int64_t g = c / j.group, end = (g + 1) * j.group < j.cols ? (g + 1) * j.group : j.cols;
        float most = 0.0f;
        for (int64_t i = g * j.group; i < end; ++i) most = fmaxf(most, fabsf(row[i]));
        const float scale = j.scales[(r * j.terms + t) * groups + g];
        const float back = (float)j.q[(r * j.terms + t) * j.cols + c] * scale;
        wrong += scale != most / 127.0f || fabsf(back - x) > 0.5001f * scale;
        sum = t == 0 ? back : sum + back;
      }
      wrong += ((float *)j.out)[r * stride + c] != sum;
    }
  ck_assert_int_eq(wrong, 0);
  free(k.q);
  free(k.scales);
  free(k.out);
  drop(&j);
}
END_TEST

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

static const uint32_t outs[] = {BS_F32, BS_BF16, BS_F16, BS_F64};
START_TEST(sums_are_rounded_once) {
  job j = make(3, 200, 128, 2, 0, BS_F32), k = make(3, 200, 128, 2, 0, outs[_i]);
  memcpy(k.in, j.in, 2 * 600 * sizeof *j.in);
  run("cpu", both_main, &j);
  for (int b = 0; b < 2; ++b) {
    run(b ? "ref" : "cpu", both_main, &k);
    for (int i = 0; i < 600; ++i) {
      double want = ((float *)j.out)[i], got = 0;
      float narrow = (float)want;
      unsigned char cell[8] = {0};
      ck_assert_int_eq(bs_convert(outs[_i], cell, BS_F32, &narrow, 1), BS_OK);
      ck_assert_int_eq(bs_convert(BS_F64, &want, outs[_i], cell, 1), BS_OK);
      ck_assert_int_eq(bs_convert(BS_F64, &got, outs[_i], (char *)k.out + i * BS_DTYPE_BYTES(outs[_i]), 1),
                       BS_OK);
      ck_assert_double_eq(got, want);
    }
  }
  drop(&j);
  drop(&k);
}
END_TEST

static int32_t refused_main(bs_rank *rank, void *arg, bs_error *err) {
  static float f[64];
  static int8_t q[64];
  (void)arg;
  const struct {
    bs_tensor t[3];
    int64_t group, terms;
    const char *op, *id;
  } cases[] = {
      {{matrix(f, BS_F32, 2, 8, 8), matrix(q, BS_I8, 2, 8, 8), matrix(f, BS_F32, 2, 2, 2)},
       0,
       0,
       "quantize_groups",
       "BS-OP-ATTR"},
      {{matrix(f, BS_F32, 2, 8, 8), matrix(q, BS_I8, 2, 8, 8), matrix(f, BS_F32, 2, 3, 3)},
       4,
       0,
       "quantize_groups",
       "BS-OP-SHAPE"},
      {{matrix(f, BS_F32, 2, 8, 8), matrix(q, BS_U8, 2, 8, 8), matrix(f, BS_F32, 2, 2, 2)},
       4,
       0,
       "quantize_groups",
       "BS-OP-DTYPE"},
      {{matrix(f, BS_F16, 2, 8, 8), matrix(q, BS_I8, 2, 8, 8), matrix(f, BS_F32, 2, 2, 2)},
       4,
       0,
       "quantize_groups",
       "BS-OP-DTYPE"},
      {{matrix(q, BS_I8, 2, 16, 16), matrix(f, BS_F32, 2, 4, 4), matrix(f, BS_F32, 2, 8, 8)},
       4,
       0,
       "dequantize_sum",
       "BS-OP-ATTR"},
      {{matrix(q, BS_I8, 2, 16, 16), matrix(f, BS_F32, 2, 4, 4), matrix(f, BS_F32, 2, 8, 8)},
       4,
       3,
       "dequantize_sum",
       "BS-OP-SHAPE"},
      {{matrix(q, BS_I8, 2, 16, 16), matrix(f, BS_F32, 2, 4, 4), matrix(f, BS_I32, 2, 8, 8)},
       4,
       2,
       "dequantize_sum",
       "BS-OP-DTYPE"},
      {{matrix(q, BS_I8, 2, 16, 16), matrix(f, BS_F32, 1, 4, 4), matrix(f, BS_F32, 2, 8, 8)},
       4,
       2,
       "dequantize_sum",
       "BS-OP-SHAPE"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bs_tensor t[3] = {cases[i].t[0], cases[i].t[1], cases[i].t[2]};
    ck_assert_int_eq(call(rank, cases[i].op, cases[i].group, cases[i].terms, t, err), BS_INVALID_ARGUMENT);
    ck_assert_msg(strcmp(err->id, cases[i].id) == 0, "case %zu: %s %s", i, err->id, err->message);
  }
  return BS_OK;
}
START_TEST(refused) {
  run("ref", refused_main, NULL);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {as_defined, TEST_COUNT(shapes)}, {nothing_turns_finite}, {sums_are_rounded_once, 4}, {refused}, {0}};
  return run_tests("op_quantize", tests, (test_setup){open_all, close_all});
}
