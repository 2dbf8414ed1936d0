/* SPDX-License-Identifier: MIT
 * test_skeleton_workload.c - the skeleton of a workload: the same bits however they are asked for, the
 * outliers where they belong, parts that differ, and options that are checked. */
#include <math.h>

#include "skeleton_test.h"
#include "tests/run_tests.h"

static bs_context *context;
static const bs_workload *table;
static void *state;
static void setup(void) {
  bs_error err = BS_ERROR_INIT;
  context = skeleton_context();
  ck_assert_msg(bs_find_workload(context, "skel_workload", &table, &state, &err) == BS_OK, "%s", err.message);
}
static void teardown(void) {
  bs_context_close(context);
}

enum { B = 9, N = 120, K = 1100 };
static bs_workload_request request(void) {
  const bs_workload_request r = {.struct_size = sizeof r,
                                 .dtype = BS_F32,
                                 .B = B,
                                 .N = N,
                                 .K = K,
                                 .seed = 3,
                                 .weight_seed = 4,
                                 .has_bias = 1};
  return r;
}
static void *opened(const bs_workload_request *r) {
  bs_error err = BS_ERROR_INIT;
  void *w = NULL;
  ck_assert_msg(table->open(state, r, &w, &err) == BS_OK, "%s: %s", err.id, err.message);
  return w;
}
static bs_source part_of(void *w, uint32_t part) {
  bs_error err = BS_ERROR_INIT;
  bs_source s = {.struct_size = sizeof s};
  ck_assert_msg(table->source(w, part, &s, &err) == BS_OK, "%s", err.message);
  return s;
}
static float *whole(const bs_source *s) {
  float *v = malloc((size_t)(s->rows * s->cols) * sizeof *v);
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(s->read(s->ctx, 0, s->rows, NULL, BS_F32, v, s->cols, &err) == BS_OK, "%s", err.message);
  return v;
}

/* Some columns, one row at a time, a run and a list, with a stride: the bits of the whole. */
START_TEST(any_part_is_the_whole) {
  static const uint32_t parts[] = {BS_PART_X, BS_PART_W, BS_PART_BIAS};
  const bs_workload_request r = request();
  void *w = opened(&r);
  const bs_source s = part_of(w, parts[_i]);
  float *all = whole(&s), *some = malloc((size_t)(s.cols + 5) * sizeof *some);
  uint32_t *columns = malloc((size_t)s.cols * sizeof *columns);
  bs_partition list = {
      .struct_size = sizeof list, .kind = BS_PARTITION_GATHER, .total = s.cols, .columns = columns};
  bs_partition run = {.struct_size = sizeof run, .total = s.cols, .begin = 7, .count = s.cols - 20};
  for (int64_t k = 0; k < s.cols; k++)
    if (k % 5 != 1) columns[list.count++] = (uint32_t)k;
  for (int64_t row = s.rows; row-- > 0;) {
    ck_assert_int_eq(s.read(s.ctx, row, 1, &list, BS_F32, some, s.cols + 5, NULL), BS_OK);
    for (int64_t i = 0; i < list.count; i++) ck_assert_float_eq(some[i], all[row * s.cols + columns[i]]);
    ck_assert_int_eq(s.read(s.ctx, row, 1, &run, BS_F32, some, s.cols + 5, NULL), BS_OK);
    for (int64_t i = 0; i < run.count; i++) ck_assert_float_eq(some[i], all[row * s.cols + 7 + i]);
  }
  free(columns);
  free(some);
  free(all);
  table->close(w);
}
END_TEST

static double mean_square(const float *v, int64_t rows, int64_t cols, int64_t every, int outliers) {
  double sum = 0.0, n = 0.0;
  for (int64_t i = 0; i < rows * cols; i++)
    if ((i % cols % every == 0) == outliers) {
      sum += (double)v[i] * v[i];
      n += 1.0;
    }
  return sum / n;
}

START_TEST(outliers_are_where_they_belong) {
  static const char *const keys[] = {"every"};
  static const char *const values[] = {"10"};
  bs_workload_request r = request();
  r.n_options = 1;
  r.option_keys = keys;
  r.option_values = values;
  void *w = opened(&r);
  bs_source s = part_of(w, BS_PART_X);
  float *x = whole(&s);
  const double large = mean_square(x, B, K, 10, 1), small = mean_square(x, B, K, 10, 0);
  ck_assert_msg(large > 50.0 && large < 80.0 && small > 0.9 && small < 1.1, "%g and %g", large, small);
  free(x);
  s = part_of(w, BS_PART_W);
  x = whole(&s);
  const double weights = mean_square(x, N, K, 10, 1);
  ck_assert_msg(weights > 0.9 && weights < 1.1, "%g", weights);
  free(x);
  table->close(w);
}
END_TEST

/* Values are of the model's dtype, also when they are asked for wider. */
START_TEST(values_are_of_the_models_dtype) {
  bs_workload_request r = request();
  r.dtype = BS_BF16;
  void *w = opened(&r);
  const bs_source s = part_of(w, BS_PART_X);
  float *x = whole(&s);
  for (int i = 0; i < B * K; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    ck_assert_uint_eq(bits & 0xffffu, 0);
  }
  free(x);
  table->close(w);
}
END_TEST

static void refused(const bs_workload_request *r, int32_t code, const char *id) {
  bs_error err = BS_ERROR_INIT;
  void *w = NULL;
  ck_assert_int_eq(table->open(state, r, &w, &err), code);
  ck_assert_str_eq(err.id, id);
  ck_assert_ptr_null(w);
}

START_TEST(wrong_requests) {
  static const char *const rows[][3] = {{"evry", "3", "BS-SKEL-WORKLOAD-KEY"},
                                        {"every", "", "BS-SKEL-WORKLOAD-VALUE"},
                                        {"every", "-1", "BS-SKEL-WORKLOAD-VALUE"},
                                        {"every", "3x", "BS-SKEL-WORKLOAD-VALUE"},
                                        {"every", "99999999999999999999", "BS-SKEL-WORKLOAD-VALUE"}};
  bs_workload_request r = request();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    r.n_options = 1;
    r.option_keys = &rows[i][0];
    r.option_values = &rows[i][1];
    refused(&r, BS_CONFIG, rows[i][2]);
  }
  r = request();
  r.K = 0;
  refused(&r, BS_CONFIG, "BS-SKEL-WORKLOAD-SIZE");
  r.K = INT64_MAX;
  refused(&r, BS_CONFIG, "BS-SKEL-WORKLOAD-SIZE");
  r = request();
  r.has_bias = 0;
  void *w = opened(&r);
  bs_source s = {.struct_size = sizeof s};
  float out[4];
  ck_assert_int_eq(table->source(w, BS_PART_BIAS, &s, NULL), BS_NOT_FOUND);
  ck_assert_int_eq(table->source(w, BS_PART_TARGET, &s, NULL), BS_NOT_FOUND);
  s = part_of(w, BS_PART_X);
  ck_assert_int_eq(s.read(s.ctx, B, 1, NULL, BS_F32, out, 1, NULL), BS_INVALID_ARGUMENT);
  const bs_partition beyond = {.struct_size = sizeof beyond, .total = K, .begin = K - 1, .count = 2};
  ck_assert_int_eq(s.read(s.ctx, 0, 1, &beyond, BS_F32, out, 2, NULL), BS_INVALID_ARGUMENT);
  table->close(w);
}
END_TEST

int main(void) {
  const test_case tests[] = {{any_part_is_the_whole, 3},
                             {outliers_are_where_they_belong},
                             {values_are_of_the_models_dtype},
                             {wrong_requests},
                             {0}};
  return run_tests("skeleton_workload", tests, (test_setup){setup, teardown});
}
