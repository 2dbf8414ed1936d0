/* SPDX-License-Identifier: MIT
 * test_ref_matmul.c - what the kit does not ask of ref's matmul: sums of integers modulo 2^64, and that it is
 * fast enough to be an oracle. Its bits are those of tests/kit/test_kit_steps.c. */
#include <string.h>
#include <time.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

/* Pack, prepare and run once over given tensors; the query's args are those of the tensors. */
static void run_once(fx *f, bs_op_query *q, fx_tensor *w, bs_tensor *const args[4]) {
  const bs_source source = fx_source(w);
  bs_packed *packed = NULL;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  q->weight_dtype = w->d.dtype;
  ck_assert_msg(bs_dispatch_pack(&f->ops, q, &source, &packed, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_prepare(&f->ops, q, packed, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_run(plan, args, 4, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
  bs_dispatch_packed_release(packed);
}

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
  tcase_add_test(tc, integers);
  tcase_add_test(tc, fast_enough_to_be_the_oracle);
  suite_add_tcase(suite, tc);
  return run_suite(suite);
}
