/* SPDX-License-Identifier: MIT
 * test_cuda_numbers.c - the kernels' numbers (plugins/cuda/ops/numbers.h) have the bits of the host's
 * convert: every code of 8 and 16 bits, every border of rounding, integers about every power of two, the
 * specials; and division by a launch's constant is division. */
#include <math.h>

#include "plain.h"
#include "plugins/cuda/ops/walk.h"
#include "tests/run_tests.h"

enum { MOST = 1 << 20 };

static const uint32_t dtypes[11] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                    BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};

static uint64_t bits_at(uint32_t dtype, const void *base, int64_t i) {
  uint64_t bits = 0;
  memcpy(&bits, (const char *)base + i * (int64_t)BS_DTYPE_BYTES(dtype), BS_DTYPE_BYTES(dtype));
  return bits;
}

/* By the path that the convert kernel takes for this pair, in registers and through memory. */
static uint64_t by_ours(uint32_t to, uint32_t from, const void *base, int64_t i) {
  const uint64_t bits = bits_at(from, base, i);
  uint64_t in_memory = 0, got;
  if (!bs_dtype_is_float(from)) {
    got = cuda_bits_of_i64(to, cuda_i64_of_bits(from, bits));
    cuda_store_i64(to, &in_memory, 0, cuda_load_i64(from, base, i));
  } else if (from == BS_F64) {
    got = cuda_bits_of_f64(to, cuda_f64_of_bits(from, bits));
    cuda_store_f64(to, &in_memory, 0, cuda_load_f64(from, base, i));
  } else {
    got = cuda_bits_of_f32(to, cuda_f32_of_bits(from, bits));
    cuda_store_f32(to, &in_memory, 0, cuda_load_f32(from, base, i));
    /* Through double there is still one rounding. */
    if (cuda_bits_of_f64(to, cuda_f64_of_bits(from, bits)) != got)
      ck_abort_msg("through double: not the same");
  }
  if (got != in_memory) ck_abort_msg("in memory: 0x%llx", (unsigned long long)in_memory);
  return got;
}

static void check_all(uint32_t from, const void *in, int64_t count) {
  unsigned char *want = malloc((size_t)count * 8);
  for (int d = 0; d < 11; d++) {
    const uint32_t to = dtypes[d];
    if (to == from) continue;
    ck_assert_int_eq(bs_convert(to, want, from, in, (uint64_t)count), BS_OK);
    for (int64_t i = 0; i < count; i++) {
      const uint64_t w = bits_at(to, want, i), g = by_ours(to, from, in, i);
      if (w != g)
        ck_abort_msg("%s 0x%llx to %s: 0x%llx, want 0x%llx", bs_dtype_name(from),
                     (unsigned long long)bits_at(from, in, i), bs_dtype_name(to), (unsigned long long)g,
                     (unsigned long long)w);
    }
  }
  free(want);
}

START_TEST(every_short_code) {
  uint16_t *two = malloc(65536 * sizeof *two);
  uint8_t *one = malloc(256);
  for (uint32_t i = 0; i < 65536; i++) two[i] = (uint16_t)i;
  for (uint32_t i = 0; i < 256; i++) one[i] = (uint8_t)i;
  check_all(BS_F16, two, 65536);
  check_all(BS_BF16, two, 65536);
  check_all(BS_F8E4M3, one, 256);
  check_all(BS_F8E5M2, one, 256);
  check_all(BS_I8, one, 256);
  check_all(BS_U8, one, 256);
  check_all(BS_BOOL, one, 256);
  free(two);
  free(one);
}
END_TEST

/* Halves of every narrow format's last place lie at one of the low 24 bits with nothing below: the upper half
 * goes through every pattern, the lower one is nothing, a bit of it, or a step beside it. */
static const uint32_t low16[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x1fff,
                                 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
enum { LOWS = sizeof low16 / sizeof *low16 };

START_TEST(every_border_of_f32) {
  uint32_t *in = malloc(65536 * LOWS * sizeof *in);
  int64_t n = 0;
  for (uint32_t high = 0; high < 65536; high++)
    for (int i = 0; i < LOWS; i++) in[n++] = high << 16 | low16[i];
  check_all(BS_F32, in, n);
  free(in);
}
END_TEST

/* Each f32 of the borders of bf16 (and coarser), as it is and a little to both sides; the whole range of
 * exponents; halves of f32's own last place. */
START_TEST(every_border_of_f64) {
  static const uint64_t low[] = {0, 1, 0x0fffffff, 0x10000000, 0x10000001, 0x1fffffff};
  uint64_t *in = malloc(MOST * sizeof *in), seed = 5;
  int64_t n = 0;
  for (uint32_t high = 0; high < 65536; high++)
    for (int i = 0; i < 2; i++) {
      const float f =
          cuda_f32_bits(high << 16 | (i != 0 ? 0x8000u : 0x1000u * (uint32_t)fx_below(&seed, 16)));
      if (f != f) continue;
      const uint64_t bits = cuda_bits_f64((double)f);
      in[n++] = bits + low[1 + fx_below(&seed, 5)];
      in[n++] = bits;
      in[n++] = (bits & UINT64_C(0x7fffffffffffffff)) == 0 ? bits | 1u : bits - 1;
    }
  for (uint64_t exponent = 0; exponent < 4096; exponent++)
    for (int i = 0; i < 24; i++)
      in[n++] = exponent << 52 | (i < 6 ? low[i] : i < 12 ? ~low[i - 6] >> 12 : fx_next(&seed) >> 12);
  for (uint64_t i = 0; i < 64; i++)
    in[n++] = UINT64_C(0x7ff0000000000000) | UINT64_C(1) << (i % 52) | i << 63;
  ck_assert_int_le(n, MOST);
  check_all(BS_F64, in, n);
  free(in);
}
END_TEST

START_TEST(integers_about_every_power) {
  int64_t *in = malloc(MOST * sizeof *in), n = 0;
  int32_t *small = malloc(MOST * sizeof *small), few = 0;
  uint64_t seed = 11;
  for (int bit = 0; bit < 64; bit++)
    for (int low = 0; low <= bit; low++)
      for (int64_t beside = -2; beside <= 2; beside++)
        for (int sign = 0; sign < 2; sign++) {
          const uint64_t v = (UINT64_C(1) << bit | UINT64_C(1) << low) + (uint64_t)beside;
          in[n++] = (int64_t)(sign != 0 ? 0 - v : v);
          if (bit < 32) small[few++] = (int32_t)(uint32_t)(sign != 0 ? 0 - v : v);
        }
  for (int i = 0; i < 20000; i++) in[n++] = (int64_t)(fx_next(&seed) >> fx_below(&seed, 64));
  check_all(BS_I64, in, n);
  check_all(BS_I32, small, few);
  free(in);
  free(small);
}
END_TEST

/* Several at once are each one alone. */
START_TEST(pieces_are_their_elements) {
  uint64_t seed = 3;
  for (int d = 0; d < 11; d++)
    for (int times = 0; times < 200; times++) {
      const uint32_t dtype = dtypes[d], size = BS_DTYPE_BYTES(dtype);
      uint64_t memory[2] = {fx_next(&seed), fx_next(&seed)}, back[2] = {0, 0};
      const int count = size == 8 ? 2 : size == 4 ? 4 : 8;
      const cuda_raw raw = count == 2   ? cuda_get(memory, size, 2)
                           : count == 4 ? cuda_get(memory, size, 4)
                                        : cuda_get(memory, size, 8);
      float f[8];
      double wide[8];
      int64_t whole[8];
      if (count == 2) {
        cuda_widen_f32(dtype, &raw, f, 2);
        cuda_widen_f64(dtype, &raw, wide, 2);
        cuda_widen_i64(dtype, &raw, whole, 2);
        cuda_put(back, &raw, size, 2);
      } else if (count == 4) {
        cuda_widen_f32(dtype, &raw, f, 4);
        cuda_widen_f64(dtype, &raw, wide, 4);
        cuda_widen_i64(dtype, &raw, whole, 4);
        cuda_put(back, &raw, size, 4);
      } else {
        cuda_widen_f32(dtype, &raw, f, 8);
        cuda_widen_f64(dtype, &raw, wide, 8);
        cuda_widen_i64(dtype, &raw, whole, 8);
        cuda_put(back, &raw, size, 8);
      }
      ck_assert_int_eq(memcmp(back, memory, (size_t)count * size), 0);
      for (int i = 0; i < count; i++) {
        ck_assert_uint_eq(cuda_bits_f32(f[i]), cuda_bits_f32(cuda_load_f32(dtype, memory, i)));
        ck_assert_uint_eq(cuda_bits_f64(wide[i]), cuda_bits_f64(cuda_load_f64(dtype, memory, i)));
        ck_assert_int_eq(whole[i], cuda_load_i64(dtype, memory, i));
      }
    }
}
END_TEST

static void divide(const cuda_divisor *d, int64_t n) {
  if (cuda_divide(d, n) != n / d->by) ck_abort_msg("%lld / %lld", (long long)n, (long long)d->by);
}

START_TEST(division) {
  uint64_t seed = 17;
  for (int64_t by = 1; by < 3000; by++) {
    const cuda_divisor d = cuda_divisor_make(by);
    for (int64_t n = 0; n < 300; n++) divide(&d, n);
    for (int64_t q = 1; q < 40; q++)
      for (int64_t beside = -1; beside <= 1; beside++) {
        const int64_t n = (INT64_C(0x7fffffff) / by - q) * by + beside;
        if (n >= 0) divide(&d, n);
      }
  }
  for (int i = 0; i < 200000; i++) {
    const int64_t by = 1 + (int64_t)(fx_next(&seed) >> (1 + fx_below(&seed, 63)));
    const int64_t n = (int64_t)(fx_next(&seed) >> (1 + fx_below(&seed, 63)));
    if (by <= 0) continue;
    const cuda_divisor d = cuda_divisor_make(by);
    divide(&d, n);
    divide(&d, INT32_MAX);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_short_code},
                             {every_border_of_f32},
                             {every_border_of_f64},
                             {integers_about_every_power},
                             {pieces_are_their_elements},
                             {division},
                             {0}};
  return run_tests("cuda numbers", tests, (test_setup){0});
}
