/* SPDX-License-Identifier: MIT
 * test_rng.c - Philox against Random123's known answers, golden vectors of the three ranges, any split
 * into calls and both code paths against each other, accuracy of the normal transform against long
 * double, and the distribution of a million normals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/base/rng_paths.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

/* kat_vectors of Random123: philox4x32 10. */
START_TEST(known_answers) {
  static const struct {
    uint32_t counter[4], key[2], want[4];
  } rows[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    uint32_t out[4];
    bs_philox4x32_10(rows[i].counter, rows[i].key, out);
    ck_assert_mem_eq(out, rows[i].want, sizeof out);
  }
}
END_TEST

/* Element i is word i mod 4 of counter (i/4, stream, 0) under the seed: rng.h's definition, carry of the
 * block number into its upper half included. */
START_TEST(bits_by_definition) {
  static const uint64_t firsts[] = {0, 1, 1023, (UINT64_C(1) << 34) - 7, (UINT64_C(1) << 40) + 2};
  const uint64_t seed = UINT64_C(0x0123456789abcdef);
  enum { N = 600 };
  uint32_t got[N];
  for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
    bs_rng_bits(seed, 9, firsts[f], N, got);
    for (uint64_t i = 0; i < N; i++) {
      uint64_t block = (firsts[f] + i) / 4;
      uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 9, 0};
      uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
      bs_philox4x32_10(counter, key, out);
      if (got[i] != out[(firsts[f] + i) % 4]) ck_abort_msg("first %zu, element %d", f, (int)i);
    }
  }
}
END_TEST

static void check_words(const float *got, const uint32_t *want, int n) {
  for (int i = 0; i < n; i++) {
    uint32_t word;
    memcpy(&word, &got[i], sizeof word);
    ck_assert_msg(word == want[i], "element %d: 0x%08x (%a), not 0x%08x", i, word, (double)got[i], want[i]);
  }
}

static uint64_t fold(const float *x, int n) {
  uint64_t h = UINT64_C(14695981039346656037);
  for (int i = 0; i < n; i++) {
    uint32_t word;
    memcpy(&word, &x[i], sizeof word);
    h = (h ^ word) * UINT64_C(1099511628211);
  }
  return h;
}

/* These may never change: stored runs are repeated from their seeds. */
START_TEST(golden) {
  static const uint32_t normals[] = {0xbf3e3f17, 0x3f155a22, 0x3f558169, 0xbf18059a, 0x3e279e43, 0xbf823ad4,
                                     0x3fb1fa4a, 0xbed96870, 0xbcccc989, 0xbf7acd18, 0xbfaf26c5, 0x3fdb629b,
                                     0xbf915f0b, 0x3e3a6d3e, 0x3bc327ac, 0xbf66c971};
  static const uint32_t far_normals[] = {0x3e939aab, 0xbf2a18ee, 0x3f98466c,
                                         0x3db4f02e, 0xbfd9b8fa, 0xbf25b100};
  static const uint32_t uniforms[] = {0x3e31bccc, 0x3ea8fb86, 0x3f042518, 0x3f6da6ac};
  float x[16];
  bs_rng_normal(725, 2, 0, 16, x);
  check_words(x, normals, 16);
  bs_rng_normal(UINT64_C(0x123456789abcdef0), 4, (UINT64_C(1) << 34) - 3, 6, x);
  check_words(x, far_normals, 6);
  bs_rng_uniform(725, 1, 5, 4, x);
  check_words(x, uniforms, 4);
  enum { N = 1 << 20 };
  float *many = malloc(N * sizeof *many);
  ck_assert_ptr_nonnull(many);
  bs_rng_normal(1, 1, 0, N, many);
  ck_assert_msg(fold(many, N) == UINT64_C(0x5dd22f43a3e40670), "normals: 0x%llx",
                (unsigned long long)fold(many, N));
  bs_rng_uniform(1, 1, 0, N, many);
  ck_assert_msg(fold(many, N) == UINT64_C(0x5caf0dcc760bf719), "uniforms: 0x%llx",
                (unsigned long long)fold(many, N));
  free(many);
}
END_TEST

/* Any split of a range into calls gives the same bits, for each of the three ranges. */
START_TEST(any_chunking) {
  enum { N = 5000, OFFSET = 13 };
  static float whole[N + OFFSET], parts[N];
  static uint32_t whole_bits[N + OFFSET], parts_bits[N];
  bs_rng_normal(42, 3, 0, N + OFFSET, whole);
  bs_rng_bits(42, 3, 0, N + OFFSET, whole_bits);
  for (uint32_t trial = 0; trial < 60; trial++) {
    uint64_t at = 0;
    uint32_t first = trial % (OFFSET + 1), step = 0;
    while (at < N) {
      uint32_t word;
      bs_rng_bits(trial, 77, step++, 1, &word);
      uint64_t n = trial < 20 ? 1 + trial % 7 : 1 + word % (trial < 40 ? 300 : 2000);
      if (n > N - at) n = N - at;
      bs_rng_normal(42, 3, first + at, n, parts + at);
      bs_rng_bits(42, 3, first + at, n, parts_bits + at);
      at += n;
    }
    ck_assert_mem_eq(parts, whole + first, sizeof parts);
    ck_assert_mem_eq(parts_bits, whole_bits + first, sizeof parts_bits);
  }
  /* nothing beyond the range is written */
  float guard[6] = {7, 7, 7, 7, 7, 7};
  bs_rng_uniform(1, 1, 3, 2, guard + 2);
  ck_assert(guard[1] == 7 && guard[4] == 7 && guard[2] != 7 && guard[3] != 7);
  bs_rng_normal(1, 1, 3, 0, guard);
  ck_assert(guard[0] == 7);
}
END_TEST

START_TEST(paths_agree) {
  const bs_rng_kernels *p = bs_rng_portable(), *v = bs_rng_avx2();
#if defined(__x86_64__)
  if (v == NULL) {
    ck_assert_msg(!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")),
                  "AVX2 found but not used");
  }
#endif
  if (v == NULL) return;
  float a[256], b[256];
  uint32_t c[256], d[256];
  for (uint32_t i = 0; i < 4000; i++) {
    uint32_t lanes = i % 4 == 0 ? 64 : 1 + i % 64;
    uint64_t block = (uint64_t)i * 64 + (i % 2 == 0 ? 0 : UINT64_C(0xffffffe0));
    p->normal(i, i % 5, block, lanes, a);
    v->normal(i, i % 5, block, lanes, b);
    if (memcmp(a, b, lanes * 16) != 0) ck_abort_msg("normals of block %d", (int)i);
    p->uniform(i, i % 5, block, lanes, a);
    v->uniform(i, i % 5, block, lanes, b);
    if (memcmp(a, b, lanes * 16) != 0) ck_abort_msg("uniforms of block %d", (int)i);
    p->bits(i, i % 5, block, lanes, c);
    v->bits(i, i % 5, block, lanes, d);
    if (memcmp(c, d, lanes * 16) != 0) ck_abort_msg("bits of block %d", (int)i);
  }
}
END_TEST

/* Against Box-Muller in long double from the same words. u is rounded to f32 first, as defined. */
START_TEST(accuracy) {
  enum { N = 400000 };
  float *z = malloc(N * sizeof *z);
  uint32_t *w = malloc(N * sizeof *w);
  ck_assert(z != NULL && w != NULL);
  bs_rng_normal(5, 6, 0, N, z);
  bs_rng_bits(5, 6, 0, N, w);
  const long double two_pi = 6.283185307179586476925286766559L;
  double worst = 0;
  for (int i = 0; i < N; i += 2) {
    float u = fmaf((float)(int32_t)(w[i] >> 1), 0x1p-31f, 0x1p-32f);
    if (!(u > 0.0f && u <= 1.0f)) ck_abort_msg("u = %a", (double)u);
    long double radius = sqrtl(-2.0L * logl((long double)u)),
                angle = two_pi * (long double)w[i + 1] * 0x1p-32L;
    long double want[2] = {radius * cosl(angle), radius * sinl(angle)};
    for (int j = 0; j < 2; j++) {
      double error =
          (double)fabsl((long double)z[i + j] - want[j]) / fmax(fabs((double)want[j]), 1e-30) * 0x1p24;
      if (error > worst) worst = error;
    }
  }
  free(z);
  free(w);
  /* 2^-24 relative is between half an ulp and one */
  ck_assert_msg(worst < 6.0, "relative error %.2f x 2^-24", worst);
}
END_TEST

static int ascending(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Moments and tails within 5 standard errors, Kolmogorov-Smirnov at the 0.1 % level, no correlation at
 * small lags (the pair, the counter) and between streams. */
START_TEST(distribution) {
  enum { N = 1000000 };
  static const uint32_t lags[] = {1, 2, 3, 4, 8, 256};
  float *z = malloc(N * sizeof *z), *other = malloc(N * sizeof *other);
  ck_assert(z != NULL && other != NULL);
  bs_rng_normal(2024, 1, 0, N, z);
  bs_rng_normal(2024, 2, 0, N, other);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, cross = 0, root = sqrt((double)N);
  int beyond2 = 0, beyond4 = 0;
  for (int i = 0; i < N; i++) {
    double x = (double)z[i];
    m1 += x;
    m2 += x * x;
    m3 += x * x * x;
    m4 += x * x * x * x;
    cross += x * (double)other[i];
    beyond2 += fabs(x) > 2.0;
    beyond4 += fabs(x) > 4.0;
  }
  ck_assert_double_lt(fabs(m1 / N), 5.0 / root);
  ck_assert_double_lt(fabs(m2 / N - 1.0), 5.0 * sqrt(2.0) / root);
  ck_assert_double_lt(fabs(m3 / N), 5.0 * sqrt(15.0) / root);
  ck_assert_double_lt(fabs(m4 / N - 3.0), 5.0 * sqrt(96.0) / root);
  ck_assert_double_lt(fabs(cross / N), 5.0 / root);
  double p2 = erfc(2.0 / sqrt(2.0)), p4 = erfc(4.0 / sqrt(2.0));
  ck_assert_double_lt(fabs(beyond2 - N * p2), 5.0 * sqrt(N * p2));
  ck_assert_double_lt(fabs(beyond4 - N * p4), 5.0 * sqrt(N * p4));
  for (size_t l = 0; l < sizeof lags / sizeof lags[0]; l++) {
    double sum = 0;
    for (uint32_t i = lags[l]; i < N; i++) sum += (double)z[i] * (double)z[i - lags[l]];
    ck_assert_double_lt(fabs(sum / N), 5.0 / root);
  }
  qsort(z, N, sizeof *z, ascending);
  double d = 0;
  for (int i = 0; i < N; i++) {
    double p = 0.5 * erfc(-(double)z[i] / sqrt(2.0));
    d = fmax(d, fmax(fabs(p - (double)i / N), fabs(p - (double)(i + 1) / N)));
  }
  ck_assert_double_lt(d * root, 1.95);
  free(z);
  free(other);
}
END_TEST

START_TEST(uniform_range) {
  enum { N = 1000000, BINS = 64 };
  float *x = malloc(N * sizeof *x);
  ck_assert_ptr_nonnull(x);
  bs_rng_uniform(11, 3, 0, N, x);
  double chi = 0;
  int bins[BINS] = {0};
  for (int i = 0; i < N; i++) {
    if (!(x[i] >= 0.0f && x[i] < 1.0f)) ck_abort_msg("element %d: %a", i, (double)x[i]);
    bins[(int)(x[i] * BINS)]++;
  }
  for (int i = 0; i < BINS; i++)
    chi += (bins[i] - N / (double)BINS) * (bins[i] - N / (double)BINS) * BINS / N;
  free(x);
  ck_assert_double_lt(chi, 63 + 5 * sqrt(2.0 * 63));
  ck_assert_double_gt(chi, 63 - 5 * sqrt(2.0 * 63));
}
END_TEST

START_TEST(streams_and_seeds_differ) {
  float a[64], b[64];
  for (uint32_t s = 1; s < 6; s++) {
    bs_rng_normal(725, 0, 0, 64, a);
    bs_rng_normal(725, s, 0, 64, b);
    ck_assert_mem_ne(a, b, sizeof a);
    bs_rng_normal(725 + s, 0, 0, 64, b);
    ck_assert_mem_ne(a, b, sizeof a);
    bs_rng_normal(725 + ((uint64_t)s << 32), 0, 0, 64, b);
    ck_assert_mem_ne(a, b, sizeof a);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{known_answers},
                             {bits_by_definition},
                             {golden},
                             {any_chunking},
                             {paths_agree},
                             {accuracy},
                             {distribution},
                             {uniform_range},
                             {streams_and_seeds_differ},
                             {0}};
  return run_tests("rng", tests, (test_setup){0});
}
