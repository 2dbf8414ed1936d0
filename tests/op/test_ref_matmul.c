/* SPDX-License-Identifier: MIT
 * test_ref_matmul.c - ref's matmul: known answers and their counters, integers modulo 2^64, NaN and
 * infinities, team widths; and fast enough to be an oracle. The kit has its values (kit_ref), and their bits
 * in the documented order of rounding (test_kit_steps). */
#include <math.h>
#include <string.h>
#include <time.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static const double known_w[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                                     {-1, 0, 2, 1, 3, -2, 0, 4},
                                     {2, -3, 1, 0, 0, 1, -1, 2},
                                     {0, 5, -4, 2, 1, 1, 1, -6}};
static const double known_x[2][8] = {{1, 0, 2, -1, 1, 1, 0, 2}, {0, 1, 1, 1, -1, 2, 3, 0}};

/* Pack, prepare and run once over given tensors; the query's args are those of the tensors. */
static void run_once(fx *f, bs_op_query *q, fx_tensor *w, bs_tensor *const args[4]) {
  const bs_source source = fx_source(w);
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  q->weight_dtype = w->d.dtype;
  ck_assert_msg(bs_dispatch_pack(&f->ops, q, &source, &packed, &err) == BS_OK, "%s", err.message);
  const int64_t kept = q->partition != NULL ? q->partition->count : w->d.dims[1];
  ck_assert_uint_eq(bs_dispatch_packed_bytes(packed),
                    (uint64_t)(w->d.dims[0] * kept) * BS_DTYPE_BYTES(w->d.dtype));
  ck_assert_msg(bs_dispatch_prepare(&f->ops, q, packed, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_run(plan, args, 4, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
  bs_dispatch_packed_release(packed);
}

static void known_answer(uint32_t dtype, uint32_t period, uint32_t bits, const double want[2][4]) {
  fx f;
  fx_tensor x, w, y;
  uint32_t columns[8];
  fx_open(&f, 1, 1);
  fx_matrix(&x, dtype, 2, 8);
  fx_matrix(&w, dtype, 4, 8);
  fx_matrix(&y, dtype, 2, 4);
  for (int k = 0; k < 8; k++) {
    for (int n = 0; n < 4; n++) fx_set(&w, n, k, known_w[n][k]);
    for (int b = 0; b < 2; b++) fx_set(&x, b, k, known_x[b][k]);
  }
  const bs_tensor_desc *descs[4] = {&x.d, NULL, NULL, &y.d};
  bs_tensor *args[4] = {&x.t, NULL, NULL, &y.t};
  bs_op_query q = fx_query("matmul", descs, 4);
  const bs_partition p = fx_gather(8, period, bits, columns);
  q.partition = &p;
  q.flags = BS_QUERY_X_FULL;
  run_once(&f, &q, &w, args);
  ck_assert_uint_eq(f.counters[BS_COUNT_FLOPS], (uint64_t)(2 * 2 * 4 * p.count));
  for (int b = 0; b < 2; b++)
    for (int n = 0; n < 4; n++)
      ck_assert_msg(fx_get(&y, b, n) == want[b][n], "%s bits %x: Y[%d,%d] = %g, want %g",
                    bs_dtype_name(dtype), bits, b, n, fx_get(&y, b, n), want[b][n]);
  fx_tensor_free(&x);
  fx_tensor_free(&w);
  fx_tensor_free(&y);
  fx_close(&f);
}

START_TEST(known_answers) {
  static const struct {
    uint32_t period, bits;
    double want[2][4];
  } rows[] = {
      {1, 1, {{30, 11, 9, -20}, {37, -4, -3, 7}}},   /* K1 */
      {4, 3, {{12, 0, 3, 2}, {9, -7, -1, 6}}},       /* K4: 1100 */
      {4, 12, {{18, 11, 6, -22}, {28, 3, -2, 1}}},   /* K4: 0011 */
      {4, 5, {{12, 6, 4, -7}, {19, -1, -2, -2}}},    /* K5: 1010 */
      {4, 10, {{18, 5, 5, -13}, {18, -3, -1, 9}}},   /* K5: 0101 */
      {4, 9, {{18, 9, 6, -13}, {-1, -2, 0, 1}}},     /* K6: 1001 */
      {4, 6, {{12, 2, 3, -7}, {38, -2, -3, 6}}},     /* K6: 0110 */
      {8, 0x0f, {{3, 2, 4, -10}, {9, 3, -2, 3}}},    /* K2: columns 0-3 */
      {8, 0xf0, {{27, 9, 5, -10}, {28, -7, -1, 4}}}, /* K2: columns 4-7 */
      {4, 1, {{6, 2, 2, 1}, {-5, -3, 0, -1}}},       /* K8 */
      {4, 2, {{6, -2, 1, 1}, {14, -4, -1, 7}}},      {4, 4, {{6, 4, 2, -8}, {24, 2, -2, -1}}},
      {4, 8, {{12, 7, 4, -14}, {4, 1, 0, 2}}},
  };
  static const uint32_t dtypes[4] = {BS_F64, BS_F32, BS_F16, BS_BF16};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (int d = 0; d < 4; d++) known_answer(dtypes[d], rows[i].period, rows[i].bits, rows[i].want);
}
END_TEST

START_TEST(no_columns_leave_the_bias) {
  fx f;
  fx_open(&f, 2, 1);
  fx_tensor x, w, bias, y;
  const int64_t n[1] = {3};
  fx_matrix(&x, BS_F16, 2, 0);
  fx_matrix(&w, BS_F16, 3, 0);
  fx_tensor_make(&bias, BS_F16, 1, n, NULL);
  fx_matrix(&y, BS_F16, 2, 3);
  for (int i = 0; i < 3; i++) fx_set(&bias, 0, i, i + 0.5);
  const bs_tensor_desc *descs[4] = {&x.d, &bias.d, NULL, &y.d};
  bs_tensor *args[4] = {&x.t, &bias.t, NULL, &y.t};
  bs_op_query q = fx_query("matmul", descs, 4);
  run_once(&f, &q, &w, args);
  for (int b = 0; b < 2; b++)
    for (int i = 0; i < 3; i++) ck_assert_double_eq(fx_get(&y, b, i), i + 0.5);
  fx_tensor_free(&x);
  fx_tensor_free(&w);
  fx_tensor_free(&bias);
  fx_tensor_free(&y);
  fx_close(&f);
}
END_TEST

/* Sums modulo 2^64, low 32 bits for i32: any order of the same products gives the same bits. */
START_TEST(integers) {
  static const uint32_t dtypes[4] = {BS_I8, BS_U8, BS_I32, BS_I64};
  uint64_t seed = 99;
  fx f;
  fx_open(&f, 2, 1);
  for (int xd = 0; xd < 4; xd++)
    for (int wd = 0; wd < 4; wd++)
      for (int wide = 0; wide < 2; wide++) {
        fx_tensor x, w, y, bias;
        const int64_t n[1] = {5};
        fx_matrix(&x, dtypes[xd], 3, 70);
        fx_matrix(&w, dtypes[wd], 5, 70);
        fx_matrix(&y, wide ? BS_I64 : BS_I32, 3, 5);
        fx_tensor_make(&bias, BS_I32, 1, n, NULL);
        for (uint64_t i = 0; i < x.t.bytes; i++)
          ((unsigned char *)x.t.data)[i] = (unsigned char)fx_next(&seed);
        for (uint64_t i = 0; i < w.t.bytes; i++)
          ((unsigned char *)w.t.data)[i] = (unsigned char)fx_next(&seed);
        fx_fill(&bias, &seed);
        const bs_tensor_desc *descs[4] = {&x.d, &bias.d, NULL, &y.d};
        bs_tensor *args[4] = {&x.t, &bias.t, NULL, &y.t};
        bs_op_query q = fx_query("matmul", descs, 4);
        run_once(&f, &q, &w, args);
        for (int64_t b = 0; b < 3; b++)
          for (int64_t j = 0; j < 5; j++) {
            uint64_t sum = (uint64_t)fx_get_i64(&bias, 0, j);
            for (int64_t k = 70; k-- > 0;)
              sum += (uint64_t)fx_get_i64(&x, b, k) * (uint64_t)fx_get_i64(&w, j, k);
            const int64_t got = fx_get_i64(&y, b, j);
            ck_assert_int_eq(got, wide ? (int64_t)sum : (int64_t)(int32_t)(uint32_t)sum);
          }
        fx_check_guards(&y, "Y");
        fx_tensor_free(&x);
        fx_tensor_free(&w);
        fx_tensor_free(&y);
        fx_tensor_free(&bias);
      }
  fx_close(&f);
}
END_TEST

START_TEST(nan_and_infinity_propagate) {
  fx f;
  fx_tensor x, w, y;
  uint64_t seed = 5;
  fx_open(&f, 2, 1);
  fx_matrix(&x, BS_F32, 4, 100);
  fx_matrix(&w, BS_F32, 3, 100);
  fx_matrix(&y, BS_F32, 4, 3);
  fx_fill(&x, &seed);
  fx_fill(&w, &seed);
  fx_set(&x, 1, 99, NAN);
  fx_set(&x, 2, 0, INFINITY);
  for (int n = 0; n < 3; n++) fx_set(&w, n, 0, n == 0 ? 1.0 : n == 1 ? -1.0 : 0.0);
  const bs_tensor_desc *descs[4] = {&x.d, NULL, NULL, &y.d};
  bs_tensor *args[4] = {&x.t, NULL, NULL, &y.t};
  for (uint32_t activation = BS_ACT_NONE; activation <= BS_ACT_RELU; activation++) {
    bs_op_query q = fx_query("matmul", descs, 4);
    q.activation = activation;
    run_once(&f, &q, &w, args);
    for (int n = 0; n < 3; n++) {
      ck_assert_msg(isnan(fx_get(&y, 1, n)), "row 1 has a NaN input, Y[1,%d] = %g", n, fx_get(&y, 1, n));
      ck_assert(isfinite(fx_get(&y, 0, n)) && isfinite(fx_get(&y, 3, n)));
    }
    ck_assert_double_eq(fx_get(&y, 2, 0), INFINITY);
    ck_assert_double_eq(fx_get(&y, 2, 1), activation == BS_ACT_RELU ? 0.0 : -INFINITY);
    ck_assert(isnan(fx_get(&y, 2, 2))); /* 0 * Inf */
  }
  fx_tensor_free(&x);
  fx_tensor_free(&w);
  fx_tensor_free(&y);
  fx_close(&f);
}
END_TEST

static void fill_y(uint32_t width, uint32_t threads, unsigned char *out, size_t size) {
  fx f;
  fx_tensor x, w, y;
  uint64_t seed = 11;
  fx_open(&f, width, 1);
  f.threads = threads;
  fx_matrix(&x, BS_BF16, 70, 130);
  fx_matrix(&w, BS_BF16, 200, 130);
  fx_matrix(&y, BS_F32, 70, 200);
  fx_fill(&x, &seed);
  fx_fill(&w, &seed);
  const bs_tensor_desc *descs[4] = {&x.d, NULL, NULL, &y.d};
  bs_tensor *args[4] = {&x.t, NULL, NULL, &y.t};
  bs_op_query q = fx_query("matmul", descs, 4);
  run_once(&f, &q, &w, args);
  ck_assert_uint_eq(y.t.bytes, size);
  memcpy(out, y.t.data, size);
  fx_tensor_free(&x);
  fx_tensor_free(&w);
  fx_tensor_free(&y);
  fx_close(&f);
}

START_TEST(same_bits_for_any_team) {
  enum { SIZE = 70 * 200 * 4 };
  unsigned char *one = malloc(SIZE), *many = malloc(SIZE);
  ck_assert(one != NULL && many != NULL);
  fill_y(1, 0, one, SIZE);
  for (uint32_t width = 2; width <= 12; width += 5) {
    fill_y(width, 1, many, SIZE);
    ck_assert_msg(memcmp(one, many, SIZE) == 0, "width %u gives other bits", width);
  }
  free(one);
  free(many);
}
END_TEST

START_TEST(fast_enough_to_be_the_oracle) {
  fx f;
  fx_tensor x, w, y;
  uint64_t seed = 1;
  struct timespec a, b;
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  /* A sanitized build checks the sum on fewer outputs, not the time. */
  const int plain_build = BS_THIS_SANITIZER == BS_SAN_NONE, repeats = plain_build ? 3 : 1;
  const int64_t outputs = plain_build ? 2048 : 128;
  fx_open(&f, 1, 1);
  fx_matrix(&x, BS_F32, 64, 2048);
  fx_matrix(&w, BS_F32, outputs, 2048);
  fx_matrix(&y, BS_F32, 64, outputs);
  fx_fill(&x, &seed);
  fx_fill(&w, &seed);
  const bs_tensor_desc *descs[4] = {&x.d, NULL, NULL, &y.d};
  bs_tensor *args[4] = {&x.t, NULL, NULL, &y.t};
  bs_op_query q = fx_query("matmul", descs, 4);
  q.weight_dtype = BS_F32;
  q.accumulate = BS_ACC_F64;
  const bs_source source = fx_source(&w);
  ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &source, &packed, &err), BS_OK);
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, packed, &plan, &err), BS_OK);
  double best = 1e9; /* CPU time of the best of three: other load on the machine must not fail this */
  for (int i = 0; i < repeats; i++) {
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    ck_assert_int_eq(bs_dispatch_run(plan, args, 4, NULL, &err), BS_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    const double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    best = s < best ? s : best;
  }
  double sum = 0.0;
  for (int64_t k = 0; k < 2048; k++) sum += fx_get(&x, 63, k) * fx_get(&w, outputs - 1, k);
  ck_assert_double_eq(fx_get(&y, 63, outputs - 1), (double)(float)sum);
#if defined(__OPTIMIZE__)
  ck_assert_msg(!plain_build || best < 5.0, "64x2048x2048 with f64 sums took %.2f s of CPU time", best);
#endif
  bs_dispatch_release(plan);
  bs_dispatch_packed_release(packed);
  fx_tensor_free(&x);
  fx_tensor_free(&w);
  fx_tensor_free(&y);
  fx_close(&f);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ref_matmul");
  TCase *tc = tcase_create("matmul");
  tcase_set_timeout(tc, 120); /* sanitizers slow the oracle's shape down */
  tcase_add_test(tc, known_answers);
  tcase_add_test(tc, no_columns_leave_the_bias);
  tcase_add_test(tc, integers);
  tcase_add_test(tc, nan_and_infinity_propagate);
  tcase_add_test(tc, same_bits_for_any_team);
  tcase_add_test(tc, fast_enough_to_be_the_oracle);
  suite_add_tcase(suite, tc);
  return run_suite(suite);
}
