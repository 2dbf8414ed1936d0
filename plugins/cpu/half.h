/* SPDX-License-Identifier: MIT
 *
 * half.h - one bf16 or f16 number to and from f32, without special instructions: nearest even,
 * subnormals kept, overflow to infinity, NaN stays a quiet NaN of the same sign. */
#ifndef BS_PLUGINS_CPU_HALF_H
#define BS_PLUGINS_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t cpu_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

static inline float cpu_float(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static inline float cpu_bf16_load(uint16_t h) {
  return cpu_float((uint32_t)h << 16);
}

static inline uint16_t cpu_bf16_store(float f) {
  const uint32_t u = cpu_bits(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float cpu_f16_load(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, fraction = h & 0x3ffu;
  if (exponent == 0x1fu)
    return cpu_float(sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0));
  if (exponent != 0) return cpu_float(sign | (exponent + 112u) << 23 | fraction << 13);
  const float tiny = (float)fraction * 0x1p-24f; /* exact */
  return cpu_float(sign | cpu_bits(tiny));
}

static inline uint16_t cpu_f16_store(float f) {
  const uint32_t u = cpu_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x1ffu));
  if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more: infinity */
  if (a < 0x38800000u) {                                   /* below 2^-14: the sum rounds at 2^-24 */
    const float s = cpu_float(a) + 0.5f;
    return (uint16_t)(sign | (cpu_bits(s) - 0x3f000000u));
  }
  return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13));
}

#endif
