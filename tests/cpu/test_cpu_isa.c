/* SPDX-License-Identifier: MIT
 *
 * test_cpu_isa.c - the kernel tables of the "packed" matmul, forced one by one: that the parameter is obeyed,
 * every tile, the order of large weights, and which tables give equal bits. */
#include <stdio.h>
#include <string.h>

#include "cpu_matmul_case.h"
#include "tests/run_tests.h"

static const char *const isas[] = {"portable", "avx2", "avx512", "avx512_bf16", "auto"};
enum { ISAS = 4 };
static const uint32_t types[3] = {BS_F32, BS_BF16, BS_F16};

static int open_isa(const char *isa, cx *out) {
  if (!cx_has_isa(isa)) return 0;
  memset(out, 0, sizeof *out);
  cx_open(out, isa, "off", 1);
  return 1;
}

static mc plain(uint32_t dtype, int64_t B, int64_t N, int64_t K) {
  const mc s = {.dtype = dtype, .y_type = dtype, .B = B, .N = N, .K = K, .seed = 11};
  return s;
}

START_TEST(isa_is_forced) {
  mc_data d;
  const mc s = plain(BS_F32, 4, 5, 6);
  mc_make(&d, &s);
  for (int i = 0; i <= ISAS; i++) {
    char algo[64];
    bs_op_answer a;
    bs_error err = {.struct_size = sizeof err};
    cx c = {0};
    const int32_t rc = cx_try_open(&c, isas[i], "off", 1, &err);
    if (!cx_has_isa(isas[i])) {
      ck_assert_int_eq(rc, BS_UNAVAILABLE);
      ck_assert_str_eq(err.id, "BS-CPU-ISA");
      continue;
    }
    ck_assert_int_eq(rc, BS_OK);
    mc_ask(&c, "packed", &d, &a);
    snprintf(algo, sizeof algo, "packed-%s", strcmp(isas[i], "auto") == 0 ? cx_best_isa() : isas[i]);
    ck_assert_str_eq(a.algo, algo);
    cx_close(&c);
  }
  mc_free(&d);
}
END_TEST

/* Every count of tokens of a tile and every count of panels beside it. */
START_TEST(every_tile_is_within_the_bound) {
  for (int i = 0; i < ISAS; i++) {
    cx c;
    if (!open_isa(isas[i], &c)) continue;
    for (int64_t B = 1; B <= 26; B++)
      for (int64_t N = 16; N <= 112; N += 16)
        for (int t = 0; t < 3; t++) {
          const mc s = plain(types[t], B, N, 5 + B % 4);
          mc_data d;
          mc_make(&d, &s);
          mc_run(&c, "packed", &d);
          mc_free(&d);
        }
    cx_close(&c);
  }
}
END_TEST

/* A weight too large for the caches is read in another order, with prefetching: same bits as in parts that
 * are small. */
START_TEST(streamed_weights_give_the_same_bits) {
  enum { B = 13, K = 1031, N = 2300, PART = 700 };
  const mc s = plain(BS_F32, B, N, K), few = plain(BS_F32, B, PART, K);
  mc_data all, part; /* the same X and the same first rows of W */
  mc_make(&all, &s);
  mc_make(&part, &few);
  for (int i = 0; i < ISAS; i++) {
    cx c;
    if (!open_isa(isas[i], &c)) continue;
    mc_run(&c, "packed", &all);
    mc_run(&c, "packed", &part);
    for (int64_t t = 0; t < B; t++)
      ck_assert_msg(memcmp((const float *)all.y.t.data + t * N, (const float *)part.y.t.data + t * PART,
                           sizeof(float) * PART) == 0,
                    "%s, token %lld", isas[i], (long long)t);
    cx_close(&c);
  }
  mc_free(&all);
  mc_free(&part);
}
END_TEST

/* One chain of fused multiply-adds an output on both: the width of a vector does not show. */
START_TEST(avx2_and_avx512_give_the_same_bits) {
  if (!cx_has_isa("avx512")) return;
  for (int t = 0; t < 3; t++) {
    const mc s = plain(types[t], 29, 203, 600);
    mc_data d[2];
    for (int i = 0; i < 2; i++) {
      cx c = {0};
      mc_make(&d[i], &s);
      cx_open(&c, i == 0 ? "avx2" : "avx512", "off", 1);
      mc_run(&c, "packed", &d[i]);
      cx_close(&c);
    }
    ck_assert_mem_eq(d[0].y.t.data, d[1].y.t.data, (size_t)(29 * 203) * BS_DTYPE_BYTES(types[t]));
    mc_free(&d[0]);
    mc_free(&d[1]);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{isa_is_forced},
                             {every_tile_is_within_the_bound},
                             {streamed_weights_give_the_same_bits},
                             {avx2_and_avx512_give_the_same_bits},
                             {0}};
  return run_tests("cpu_isa", tests, (test_setup){.timeout = 60});
}
