/* SPDX-License-Identifier: MIT
 * philox.h - random numbers as docs/numbers.md has them, with the bits of the host's: Philox4x32-10 (Salmon
 * et al., SC11), uniforms, and normals by single IEEE operations in a written order. The source of the
 * numbers is core/base/rng_kernel.h, which a plugin cannot include. */
#ifndef BS_PLUGIN_CUDA_PHILOX_H
#define BS_PLUGIN_CUDA_PHILOX_H
#include "walk.h"

/* Always one rounding, unlike cuda_fma_f32. */
CUDA_FN float philox_fma(float a, float b, float c) {
  return fmaf(a, b, c);
}

/* The upper half of the product of two words. */
CUDA_FN uint32_t philox_high(uint32_t a, uint32_t b) {
#if defined(__CUDACC__)
  return __umulhi(a, b);
#else
  return (uint32_t)((uint64_t)a * b >> 32);
#endif
}

typedef struct philox_words {
  uint32_t w[4];
} philox_words;

/* Elements 4 block .. 4 block + 3 of (seed, stream). */
CUDA_FN philox_words philox_block(uint64_t seed, uint32_t stream, uint64_t block) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  philox_words c = {{(uint32_t)block, (uint32_t)(block >> 32), stream, 0}};
  CUDA_UNROLL
  for (int round = 0; round < 10; round++) {
    const uint32_t low0 = c.w[0] * 0xD2511F53u, high0 = philox_high(c.w[0], 0xD2511F53u);
    const uint32_t low2 = c.w[2] * 0xCD9E8D57u, high2 = philox_high(c.w[2], 0xCD9E8D57u);
    c.w[0] = high2 ^ c.w[1] ^ k0;
    c.w[1] = low2;
    c.w[2] = high0 ^ c.w[3] ^ k1;
    c.w[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

CUDA_FN float philox_uniform(uint32_t word) {
  return (float)(int32_t)(word >> 8) * 0x1p-24f;
}

/* log(u), u in [2^-32, 1]: u = 2^e (1 + f), log(1 + f) = f - f^2/2 + f^3 P(f). */
CUDA_FN float philox_log(float u) {
  const uint32_t bits = cuda_bits_f32(u);
  const int32_t e = (int32_t)(bits - 0x3f3504f3u) >> 23;
  const float f = cuda_f32_bits(bits - ((uint32_t)e << 23)) - 1.0f, n = (float)e;
  float p = -0x1.45645ap-4f;
  p = philox_fma(p, f, 0x1.06e76ap-3f);
  p = philox_fma(p, f, -0x1.0bcdf0p-3f);
  p = philox_fma(p, f, 0x1.22893ap-3f);
  p = philox_fma(p, f, -0x1.549972p-3f);
  p = philox_fma(p, f, 0x1.99a49ap-3f);
  p = philox_fma(p, f, -0x1.000196p-2f);
  p = philox_fma(p, f, 0x1.55554cp-2f);
  const float square = f * f;
  float rest = p * (f * square);
  rest = philox_fma(n, -0x1.05c610p-29f, rest); /* ln 2 in two parts */
  rest = philox_fma(-0.5f, square, rest);
  return philox_fma(n, 0x1.62e430p-1f, f + rest);
}

/* Sine and cosine of w / 2^32 turns: the quadrant in integers, then polynomials of the rest. */
CUDA_FN void philox_sincos(uint32_t w, float *out_sin, float *out_cos) {
  const uint32_t quadrant = (w + 0x20000000u) >> 30;
  const int32_t remainder = (int32_t)(w - (quadrant << 30));
  const float t = (float)remainder * 0x1p-29f, s = t * t;
  float sine = -0x1.2d9302p-15f;
  sine = philox_fma(sine, s, 0x1.465e92p-9f);
  sine = philox_fma(sine, s, -0x1.4abbbap-4f);
  sine = philox_fma(sine, s, 0x1.921fb6p-1f);
  sine = sine * t;
  float cosine = 0x1.d99f54p-19f;
  cosine = philox_fma(cosine, s, -0x1.55c4eap-12f);
  cosine = philox_fma(cosine, s, 0x1.03c1dap-6f);
  cosine = philox_fma(cosine, s, -0x1.3bd3ccp-2f);
  cosine = philox_fma(cosine, s, 1.0f);
  const uint32_t a = cuda_bits_f32(sine), b = cuda_bits_f32(cosine);
  const uint32_t mixed = (a ^ b) & (0u - (quadrant & 1u)); /* an odd quadrant swaps them */
  *out_sin = cuda_f32_bits((a ^ mixed) ^ ((quadrant & 2u) << 30));
  *out_cos = cuda_f32_bits((b ^ mixed) ^ (((quadrant + 1u) & 2u) << 30));
}

/* Box-Muller: the radius from the first word, the angle from the second. */
CUDA_FN void philox_normals(uint32_t w0, uint32_t w1, float *out_z0, float *out_z1) {
  const float u = philox_fma((float)(int32_t)(w0 >> 1), 0x1p-31f, 0x1p-32f);
  const float radius = sqrtf(-2.0f * philox_log(u));
  float sine, cosine;
  philox_sincos(w1, &sine, &cosine);
  *out_z0 = radius * cosine;
  *out_z1 = radius * sine;
}
#endif
