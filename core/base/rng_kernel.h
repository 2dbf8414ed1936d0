/* SPDX-License-Identifier: MIT
 * rng_kernel.h - the arithmetic of the random numbers, once: rng.c instantiates it for the baseline CPU,
 * rng_avx2.c inside functions built for AVX2 and FMA. Private to core/base.
 * Every float operation is an IEEE operation that rounds once (conversion, product, fmaf, sqrtf) in a
 * written order, and the build forbids contraction, so that both give the same bits (docs/numbers.md). */
#ifndef BS_CORE_BASE_RNG_KERNEL_H
#define BS_CORE_BASE_RNG_KERNEL_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#define BS_RNG_INLINE static inline __attribute__((always_inline))

/* Lanes of one call of a kernel: counters, so 4 words each. */
enum { BS_RNG_LANES = 64 };

/* Words of BS_RNG_LANES counters, one array a word, so that lanes sit side by side. */
typedef struct bs_rng_words {
  uint32_t w[4][BS_RNG_LANES] __attribute__((aligned(64)));
} bs_rng_words;

typedef struct bs_rng_floats {
  float z[4][BS_RNG_LANES] __attribute__((aligned(64)));
} bs_rng_floats;

BS_RNG_INLINE void bs_philox_round(uint32_t c[4], uint32_t k0, uint32_t k1) {
  uint64_t a = (uint64_t)c[0] * 0xD2511F53u, b = (uint64_t)c[2] * 0xCD9E8D57u;
  uint32_t c0 = (uint32_t)(b >> 32) ^ c[1] ^ k0, c2 = (uint32_t)(a >> 32) ^ c[3] ^ k1;
  c[0] = c0;
  c[1] = (uint32_t)b;
  c[2] = c2;
  c[3] = (uint32_t)a;
}

/* The ten rounds, written out: a loop here would keep the lane loop around it from being vectorised. */
BS_RNG_INLINE void bs_philox_rounds(uint32_t c[4], uint32_t k0, uint32_t k1) {
  const uint32_t w0 = 0x9E3779B9u, w1 = 0xBB67AE85u;
  bs_philox_round(c, k0, k1);
  bs_philox_round(c, k0 + 1 * w0, k1 + 1 * w1);
  bs_philox_round(c, k0 + 2 * w0, k1 + 2 * w1);
  bs_philox_round(c, k0 + 3 * w0, k1 + 3 * w1);
  bs_philox_round(c, k0 + 4 * w0, k1 + 4 * w1);
  bs_philox_round(c, k0 + 5 * w0, k1 + 5 * w1);
  bs_philox_round(c, k0 + 6 * w0, k1 + 6 * w1);
  bs_philox_round(c, k0 + 7 * w0, k1 + 7 * w1);
  bs_philox_round(c, k0 + 8 * w0, k1 + 8 * w1);
  bs_philox_round(c, k0 + 9 * w0, k1 + 9 * w1);
}

/* Lane j: the words of counter (block + j, stream, 0). */
BS_RNG_INLINE void bs_rng_fill_words(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes,
                                     bs_rng_words *restrict out) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  uint32_t low = (uint32_t)block, high = (uint32_t)(block >> 32);
  for (uint32_t j = 0; j < lanes; j++) {
    uint32_t c[4] = {low + j, high + (low + j < low), stream, 0};
    bs_philox_rounds(c, k0, k1);
    out->w[0][j] = c[0];
    out->w[1][j] = c[1];
    out->w[2][j] = c[2];
    out->w[3][j] = c[3];
  }
}

BS_RNG_INLINE float bs_rng_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
BS_RNG_INLINE uint32_t bs_rng_bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

/* log(u) for u in [2^-32, 1]: u = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)),
 * log(1 + f) = f - f^2/2 + f^3 P(f), P minimax of degree 7. */
BS_RNG_INLINE float bs_rng_log(float u) {
  uint32_t bits = bs_rng_bits_of(u);
  int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;
  float f = bs_rng_float(bits - ((uint32_t)e << 23)) - 1.0f, n = (float)e;
  float p = -0x1.45645ap-4f;
  p = fmaf(p, f, 0x1.06e76ap-3f);
  p = fmaf(p, f, -0x1.0bcdf0p-3f);
  p = fmaf(p, f, 0x1.22893ap-3f);
  p = fmaf(p, f, -0x1.549972p-3f);
  p = fmaf(p, f, 0x1.99a49ap-3f);
  p = fmaf(p, f, -0x1.000196p-2f);
  p = fmaf(p, f, 0x1.55554cp-2f);
  float square = f * f;
  float rest = p * (f * square);
  rest = fmaf(n, -0x1.05c610p-29f, rest); /* ln 2 in two parts */
  rest = fmaf(-0.5f, square, rest);
  return fmaf(n, 0x1.62e430p-1f, f + rest);
}

/* sin and cos of the angle w / 2^32 turns: the quadrant and the remainder in integers, then minimax
 * polynomials of t = remainder / (1/8 turn) in [-1, 1). */
BS_RNG_INLINE void bs_rng_sincos(uint32_t w, float *out_sin, float *out_cos) {
  uint32_t quadrant = (w + 0x20000000u) >> 30;
  int32_t remainder = (int32_t)(w - (quadrant << 30));
  float t = (float)remainder * 0x1p-29f, s = t * t;
  float sine = -0x1.2d9302p-15f;
  sine = fmaf(sine, s, 0x1.465e92p-9f);
  sine = fmaf(sine, s, -0x1.4abbbap-4f);
  sine = fmaf(sine, s, 0x1.921fb6p-1f);
  sine = sine * t;
  float cosine = 0x1.d99f54p-19f;
  cosine = fmaf(cosine, s, -0x1.55c4eap-12f);
  cosine = fmaf(cosine, s, 0x1.03c1dap-6f);
  cosine = fmaf(cosine, s, -0x1.3bd3ccp-2f);
  cosine = fmaf(cosine, s, 1.0f);
  /* An odd quadrant swaps them; signs by quadrant. Masks, not branches, for the vectoriser. */
  uint32_t a = bs_rng_bits_of(sine), b = bs_rng_bits_of(cosine), swap = 0u - (quadrant & 1u);
  uint32_t mixed = (a ^ b) & swap;
  *out_sin = bs_rng_float((a ^ mixed) ^ ((quadrant & 2u) << 30));
  *out_cos = bs_rng_float((b ^ mixed) ^ (((quadrant + 1u) & 2u) << 30));
}

/* Box-Muller: u in (0, 1] from the first word, the angle from the second. */
BS_RNG_INLINE void bs_rng_box_muller(uint32_t w0, uint32_t w1, float *out_z0, float *out_z1) {
  float u = fmaf((float)(int32_t)(w0 >> 1), 0x1p-31f, 0x1p-32f);
  float radius = sqrtf(-2.0f * bs_rng_log(u)), sine, cosine;
  bs_rng_sincos(w1, &sine, &cosine);
  *out_z0 = radius * cosine;
  *out_z1 = radius * sine;
}

BS_RNG_INLINE void bs_rng_fill_normal(const bs_rng_words *restrict in, uint32_t lanes,
                                      bs_rng_floats *restrict out) {
  for (uint32_t j = 0; j < lanes; j++) {
    bs_rng_box_muller(in->w[0][j], in->w[1][j], &out->z[0][j], &out->z[1][j]);
  }
  for (uint32_t j = 0; j < lanes; j++) {
    bs_rng_box_muller(in->w[2][j], in->w[3][j], &out->z[2][j], &out->z[3][j]);
  }
}

/* The three kernels write 4 * lanes elements from element 4 * block on. */
BS_RNG_INLINE void bs_rng_kernel_bits(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes,
                                      uint32_t *restrict out) {
  bs_rng_words words;
  bs_rng_fill_words(seed, stream, block, lanes, &words);
  for (uint32_t j = 0; j < lanes; j++) {
    for (uint32_t i = 0; i < 4; i++) out[4 * j + i] = words.w[i][j];
  }
}

BS_RNG_INLINE void bs_rng_kernel_uniform(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes,
                                         float *restrict out) {
  bs_rng_words words;
  bs_rng_fill_words(seed, stream, block, lanes, &words);
  for (uint32_t j = 0; j < lanes; j++) {
    for (uint32_t i = 0; i < 4; i++) out[4 * j + i] = (float)(int32_t)(words.w[i][j] >> 8) * 0x1p-24f;
  }
}

BS_RNG_INLINE void bs_rng_kernel_normal(uint64_t seed, uint32_t stream, uint64_t block, uint32_t lanes,
                                        float *restrict out) {
  bs_rng_words words;
  bs_rng_floats floats;
  bs_rng_fill_words(seed, stream, block, lanes, &words);
  bs_rng_fill_normal(&words, lanes, &floats);
  for (uint32_t j = 0; j < lanes; j++) {
    for (uint32_t i = 0; i < 4; i++) out[4 * j + i] = floats.z[i][j];
  }
}
#endif
