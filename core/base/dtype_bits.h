/* SPDX-License-Identifier: MIT
 * dtype_bits.h - branch-free 16-bit float conversions on bit patterns, inlined into the scalar functions
 * (dtype.c) and the array loops (convert.c), where the compiler vectorises them. Private to core/base. */
#ifndef BS_CORE_BASE_DTYPE_BITS_H
#define BS_CORE_BASE_DTYPE_BITS_H
#include <stdint.h>
#include <string.h>

/* Integers element by element: exact, saturating. Other dtypes than i64 i32 i8 u8 bool: 0 / no effect. */
int64_t bs_load_i64(uint32_t dtype, const void *base, int64_t index);
void bs_store_i64(uint32_t dtype, void *base, int64_t index, int64_t value);

static inline uint32_t bs_bits_of_f32(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}
static inline float bs_f32_of_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}
static inline uint64_t bs_bits_of_f64(double d) {
  uint64_t u;
  memcpy(&u, &d, sizeof u);
  return u;
}

/* Normal results: rebias the exponent and add half an ulp (less one when even) before the shift.
 * Subnormal results: adding 0.5 puts the f16 subnormal unit 2^-24 at f32's last bit, so that the f32
 * adder rounds. NaN: quiet, upper payload kept, as VCVTPS2PH. */
static inline uint16_t bs_f16_of_f32_bits(uint32_t bits) {
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  uint32_t small = bs_bits_of_f32(bs_f32_of_bits(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  uint32_t code = magnitude < (113u << 23) ? small : normal;
  code = magnitude >= (143u << 23) ? 0x7c00u : code;
  code = magnitude > 0x7f800000u ? nan : code;
  return (uint16_t)(code | ((bits >> 16) & 0x8000u));
}

static inline uint16_t bs_bf16_of_f32_bits(uint32_t bits) {
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  uint32_t nan = (bits >> 16) | 0x40u;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

/* Subnormals: 2^-14 * (1 + m) - 2^-14 is exact in f32. */
static inline uint32_t bs_f32_bits_of_f16(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
  uint32_t normal = magnitude + (112u << 23);
  uint32_t small = bs_bits_of_f32(bs_f32_of_bits(magnitude + (113u << 23)) - 0x1p-14f);
  uint32_t special = magnitude + (224u << 23);
  uint32_t bits = magnitude < (1u << 23) ? small : normal;
  bits = magnitude >= (31u << 23) ? special : bits;
  bits |= magnitude > (31u << 23) ? 0x400000u : 0u;
  return bits | ((uint32_t)(h & 0x8000u) << 16);
}

static inline uint32_t bs_f32_bits_of_bf16(uint16_t h) {
  uint32_t quiet = (h & 0x7fffu) > 0x7f80u ? 0x400000u : 0u;
  return ((uint32_t)h << 16) | quiet;
}
#endif
