/* SPDX-License-Identifier: MIT
 *
 * hand_loops.c - see hand_loops.h. */
#include "hand_loops.h"

#include <string.h>

void hand_add(float *restrict y, const float *restrict a, const float *restrict b, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

/* e^x for |x| <= 87, by a polynomial of six terms over |r| <= ln 2 / 2. */
static inline float power_of_e(float x) {
  const float low = x < -87.0f ? -87.0f : x, in = low > 87.0f ? 87.0f : low;
  const float t = in * 1.44269504f + 0x1.8p23f, n = t - 0x1.8p23f;
  const float r = (in - n * 0.693145752f) - n * 1.42860677e-06f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  uint32_t bits, shift;
  memcpy(&bits, &p, sizeof bits);
  memcpy(&shift, &t, sizeof shift);
  bits += shift << 23;
  memcpy(&p, &bits, sizeof p);
  return p;
}

void hand_silu_mul(float *restrict y, const float *restrict gate, const float *restrict up, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + power_of_e(-gate[i])) * up[i];
}

void hand_rope(float *restrict y, const float *restrict x, const float *restrict cosine,
               const float *restrict sine, int64_t heads, int64_t rows, int64_t half) {
  for (int64_t h = 0; h < heads; h++)
    for (int64_t r = 0; r < rows; r++) {
      const float *from = x + (h * rows + r) * 2 * half, *c = cosine + r * half, *s = sine + r * half;
      float *to = y + (h * rows + r) * 2 * half;
      for (int64_t i = 0; i < half; i++) to[i] = from[i] * c[i] - from[half + i] * s[i];
      for (int64_t i = 0; i < half; i++) to[half + i] = from[half + i] * c[i] + from[i] * s[i];
    }
}
