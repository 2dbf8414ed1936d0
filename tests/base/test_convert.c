/* SPDX-License-Identifier: MIT
 * test_convert.c - bs_convert: the portable and the AVX2 loops against the scalar conversions (which
 * test_dtype.c checks), every pair of dtypes, integers with ties, saturation and single rounding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/convert_paths.h"
#include "core/base/dtype.h"
#include "core/base/rng.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

/* libcheck writes to a pipe at each of its assertions: too slow for loops over millions of values. */
#define EXPECT(condition, ...)                   \
  do {                                           \
    if (!(condition)) ck_abort_msg(__VA_ARGS__); \
  } while (0)

/* ---- arrays ------------------------------------------------------------------------------------- */

/* f32 patterns around all that matters: each upper half with low halves at and beside the rounding points
 * of bf16 (0x8000) and f16 (0x1000), then random bits. */
static uint32_t *f32_patterns(uint64_t *out_count) {
  static const uint32_t low[] = {0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001,
                                 0x5000, 0x7000, 0x7fff, 0x8000, 0x8001, 0x9000, 0xb000, 0xffff};
  enum { LOW = sizeof low / sizeof low[0], RANDOM = 1 << 20 };
  uint64_t count = (uint64_t)65536 * LOW + RANDOM;
  uint32_t *bits = malloc(count * sizeof *bits);
  ck_assert_ptr_nonnull(bits);
  for (uint32_t upper = 0; upper < 65536; upper++) {
    for (uint32_t j = 0; j < LOW; j++) bits[upper * LOW + j] = (upper << 16) | low[j];
  }
  bs_rng_bits(1, 1, 0, RANDOM, bits + (size_t)65536 * LOW);
  *out_count = count;
  return bits;
}

static void check_kernels(const bs_convert_kernels *k) {
  uint64_t count;
  uint32_t *bits = f32_patterns(&count);
  uint16_t *h = malloc(count * sizeof *h), *b = malloc(count * sizeof *b);
  float *in = malloc(count * sizeof *in);
  ck_assert(h != NULL && b != NULL && in != NULL);
  memcpy(in, bits, count * sizeof *in);
  k->f32_to_f16(in, h, count);
  k->f32_to_bf16(in, b, count);
  for (uint64_t i = 0; i < count; i++) {
    float v;
    memcpy(&v, &bits[i], sizeof v);
    EXPECT(h[i] == bs_f32_to_f16(v), "f16 of %08x: %04x, not %04x", bits[i], h[i], bs_f32_to_f16(v));
    EXPECT(b[i] == bs_f32_to_bf16(v), "bf16 of %08x: %04x, not %04x", bits[i], b[i], bs_f32_to_bf16(v));
    if (isnan(v)) continue; /* payloads go through other bits of a f64 */
    EXPECT(h[i] == bs_f64_to_f16((double)v), "f16 of %08x", bits[i]);
    EXPECT(b[i] == bs_f64_to_bf16((double)v), "bf16 of %08x", bits[i]);
  }
  for (uint32_t i = 0; i < 65536; i++) h[i] = (uint16_t)i;
  float *out = in;
  k->f16_to_f32(h, out, 65536);
  for (uint32_t i = 0; i < 65536; i++) {
    float v = bs_f16_to_f32((uint16_t)i);
    EXPECT(memcmp(&out[i], &v, sizeof v) == 0, "f16 %04x: %a, not %a", i, (double)out[i], (double)v);
  }
  k->bf16_to_f32(h, out, 65536);
  for (uint32_t i = 0; i < 65536; i++) {
    float v = bs_bf16_to_f32((uint16_t)i);
    EXPECT(memcmp(&out[i], &v, sizeof v) == 0, "bf16 %04x: %a, not %a", i, (double)out[i], (double)v);
  }
  free(bits);
  free(h);
  free(b);
  free(in);
}

START_TEST(portable_arrays) {
  check_kernels(bs_convert_portable());
}
END_TEST

START_TEST(avx2_arrays) {
  const bs_convert_kernels *k = bs_convert_avx2();
#if defined(__x86_64__)
  if (k == NULL) ck_assert_msg(!__builtin_cpu_supports("avx2"), "AVX2 found, but no AVX2 path");
#endif
  if (k != NULL) check_kernels(k);
}
END_TEST

/* Nothing outside [0, count) is read as a result or written, for any length and alignment. */
START_TEST(array_edges) {
  enum { MAX = 80 };
  float src[MAX + 8];
  uint16_t dst[MAX + 8];
  float back[MAX + 8];
  for (int i = 0; i < MAX + 8; i++) src[i] = (float)(i - 30) * 0.37f;
  for (uint64_t offset = 0; offset < 8; offset++) {
    for (uint64_t n = 0; n <= MAX; n++) {
      memset(dst, 0xa5, sizeof dst);
      memset(back, 0xa5, sizeof back);
      ck_assert_int_eq(bs_convert(BS_BF16, dst + offset, BS_F32, src + offset, n), BS_OK);
      ck_assert_int_eq(bs_convert(BS_F32, back + offset, BS_BF16, dst + offset, n), BS_OK);
      for (uint64_t i = 0; i < MAX + 8; i++) {
        int inside = i >= offset && i < offset + n;
        uint32_t word;
        memcpy(&word, &back[i], sizeof word);
        EXPECT(dst[i] == (inside ? bs_f32_to_bf16(src[i]) : 0xa5a5), "%d of %d at %d", (int)i, (int)n,
               (int)offset);
        EXPECT(inside ? back[i] == bs_bf16_to_f32(dst[i]) : word == 0xa5a5a5a5u, "%d of %d", (int)i, (int)n);
      }
    }
  }
}
END_TEST

static const uint32_t all_dtypes[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                      BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};
enum { DTYPES = 11 };

START_TEST(every_pair) {
  static const double small[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  enum { N = 9 };
  for (int a = 0; a < DTYPES; a++) {
    for (int b = 0; b < DTYPES; b++) {
      unsigned char x[8 * N], y[8 * N];
      ck_assert_int_eq(bs_convert(all_dtypes[a], x, BS_F64, small, N), BS_OK);
      ck_assert_int_eq(bs_convert(all_dtypes[b], y, all_dtypes[a], x, N), BS_OK);
      for (int i = 0; i < N; i++) {
        double want = small[i];
        if (all_dtypes[a] == BS_BOOL || all_dtypes[b] == BS_BOOL) want = want != 0;
        ck_assert_msg(bs_load_f64(all_dtypes[b], y, i) == want, "%s -> %s of %g: %g",
                      bs_dtype_name(all_dtypes[a]), bs_dtype_name(all_dtypes[b]), small[i],
                      bs_load_f64(all_dtypes[b], y, i));
      }
    }
  }
  double d = 1;
  ck_assert_int_eq(bs_convert(0x9999, &d, BS_F64, &d, 1), BS_UNSUPPORTED);
  ck_assert_int_eq(bs_convert(BS_F64, &d, 0, &d, 1), BS_UNSUPPORTED);
  ck_assert_int_eq(bs_convert(BS_F64, &d, BS_F32, &d, UINT64_MAX), BS_OVERFLOW);
}
END_TEST

START_TEST(floats_to_integers) {
  static const double in[] = {0.5,       1.5,   2.5,    -0.5,  -1.5,  -2.5,   NAN,   INFINITY,
                              -INFINITY, 1e300, -1e300, 127.4, 127.5, -128.6, 255.5, 2147483646.5};
  static const int32_t want32[] = {0,         2,         2,         0,   -2,  -2,   0,   INT32_MAX,
                                   INT32_MIN, INT32_MAX, INT32_MIN, 127, 128, -129, 256, 2147483646};
  static const int8_t want8[] = {0, 2, 2, 0, -2, -2, 0, 127, -128, 127, -128, 127, 127, -128, 127, 127};
  static const uint8_t wantu[] = {0, 2, 2, 0, 0, 0, 0, 255, 0, 255, 0, 127, 128, 0, 255, 255};
  static const uint8_t wantb[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  enum { N = sizeof in / sizeof in[0] };
  int32_t got32[N];
  int8_t got8[N];
  uint8_t gotu[N], gotb[N];
  int64_t got64[N];
  bs_convert(BS_I32, got32, BS_F64, in, N);
  bs_convert(BS_I8, got8, BS_F64, in, N);
  bs_convert(BS_U8, gotu, BS_F64, in, N);
  bs_convert(BS_BOOL, gotb, BS_F64, in, N);
  bs_convert(BS_I64, got64, BS_F64, in, N);
  for (int i = 0; i < N; i++) {
    ck_assert_int_eq(got32[i], want32[i]);
    ck_assert_int_eq(got8[i], want8[i]);
    ck_assert_uint_eq(gotu[i], wantu[i]);
    ck_assert_uint_eq(gotb[i], wantb[i]);
  }
  ck_assert_int_eq(got64[7], INT64_MAX);
  ck_assert_int_eq(got64[10], INT64_MIN);
  double edge[] = {0x1p63, -0x1p63, nextafter(0x1p63, 0.0), -0.0};
  bs_convert(BS_I64, got64, BS_F64, edge, 4);
  ck_assert_int_eq(got64[0], INT64_MAX);
  ck_assert_int_eq(got64[1], INT64_MIN);
  ck_assert_int_eq(got64[2], INT64_C(0x7ffffffffffffc00));
  bs_convert(BS_BOOL, gotb, BS_F64, edge + 3, 1);
  ck_assert_uint_eq(gotb[0], 0);
}
END_TEST

START_TEST(integers_to_floats) {
  /* 2^62 + 2^54 is a bf16 midpoint; the 1 more is lost in f64, and a second rounding would tie to even. */
  int64_t v = (INT64_C(1) << 62) + (INT64_C(1) << 54) + 1, w = v - 1, x = v - 2, n = -v;
  uint16_t h;
  bs_convert(BS_BF16, &h, BS_I64, &v, 1);
  ck_assert_uint_eq(h, 0x5e81);
  bs_convert(BS_BF16, &h, BS_I64, &w, 1);
  ck_assert_uint_eq(h, 0x5e80);
  bs_convert(BS_BF16, &h, BS_I64, &x, 1);
  ck_assert_uint_eq(h, 0x5e80);
  bs_convert(BS_BF16, &h, BS_I64, &n, 1);
  ck_assert_uint_eq(h, 0xde81);
  enum { N = 100000 };
  int64_t *in = malloc(N * sizeof *in);
  float *f = malloc(N * sizeof *f);
  double *d = malloc(N * sizeof *d);
  ck_assert(in != NULL && f != NULL && d != NULL);
  bs_rng_bits(3, 3, 0, 2 * N, (uint32_t *)(void *)in);
  for (int i = 0; i < N; i++) in[i] >>= i % 63;
  in[0] = INT64_MAX;
  in[1] = INT64_MIN;
  in[2] = INT64_MIN + 1;
  bs_convert(BS_F32, f, BS_I64, in, N);
  bs_convert(BS_F64, d, BS_I64, in, N);
  for (int i = 0; i < N; i++) {
    EXPECT(f[i] == (float)in[i], "%lld", (long long)in[i]); /* the machine's conversion rounds once */
    EXPECT(d[i] == (double)in[i], "%lld", (long long)in[i]);
  }
  int64_t wide[] = {INT64_MAX, -70000, 300, -1};
  int8_t i8[4];
  uint8_t u8[4];
  bs_convert(BS_I8, i8, BS_I64, wide, 4);
  bs_convert(BS_U8, u8, BS_I64, wide, 4);
  ck_assert_int_eq(i8[0], 127);
  ck_assert_int_eq(i8[1], -128);
  ck_assert_uint_eq(u8[2], 255);
  ck_assert_uint_eq(u8[3], 0);
  free(in);
  free(f);
  free(d);
}
END_TEST

int main(void) {
  const test_case tests[] = {{portable_arrays},
                             {avx2_arrays},
                             {array_edges},
                             {every_pair},
                             {floats_to_integers},
                             {integers_to_floats},
                             {0}};
  return run_tests("convert", tests, (test_setup){0});
}
