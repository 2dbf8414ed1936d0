/* SPDX-License-Identifier: MIT
 * numbers.h - numbers of every dtype in kernels: loads, stores and roundings with the bits of the host's
 * convert (docs/numbers.md), on both sides of the compiler.
 *
 * The code uses integers and single IEEE operations. If a processor has an instruction that rounds in the
 * same way, nvcc uses it, except for NaN, whose sign and payload the instructions do not keep. A narrow float
 * is rounded from f32. An f64 is first rounded to f32 by rounding to odd; f32 has at least two bits more than
 * twice the narrow ones, so the effect is one rounding. */
#ifndef BS_PLUGIN_CUDA_NUMBERS_H
#define BS_PLUGIN_CUDA_NUMBERS_H
#include "kernel.h"

/* ---- bits ------------------------------------------------------------------------------------- */

CUDA_FN uint32_t cuda_bits_f32(float v) {
#if defined(__CUDACC__)
  return __float_as_uint(v);
#else
  uint32_t bits;
  __builtin_memcpy(&bits, &v, sizeof bits);
  return bits;
#endif
}
CUDA_FN float cuda_f32_bits(uint32_t bits) {
#if defined(__CUDACC__)
  return __uint_as_float(bits);
#else
  float v;
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
#endif
}
CUDA_FN uint64_t cuda_bits_f64(double v) {
#if defined(__CUDACC__)
  return (uint64_t)__double_as_longlong(v);
#else
  uint64_t bits;
  __builtin_memcpy(&bits, &v, sizeof bits);
  return bits;
#endif
}
CUDA_FN double cuda_f64_bits(uint64_t bits) {
#if defined(__CUDACC__)
  return __longlong_as_double((int64_t)bits);
#else
  double v;
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
#endif
}

/* ---- narrow floats to f32: exact ---------------------------------------------------------------- */

/* Subnormals: 2^-14 (1 + m) - 2^-14 is exact. */
CUDA_FN float cuda_f32_of_f16(uint32_t code) {
  const uint32_t magnitude = (code & 0x7fffu) << 13;
  uint32_t bits = magnitude + (112u << 23);
  if (magnitude < (1u << 23)) bits = cuda_bits_f32(cuda_f32_bits(magnitude + (113u << 23)) - 0x1p-14f);
  if (magnitude >= (31u << 23)) bits = magnitude + (224u << 23);
  if (magnitude > (31u << 23)) bits |= 0x400000u;
  return cuda_f32_bits(bits | (code & 0x8000u) << 16);
}
CUDA_FN float cuda_f32_of_bf16(uint32_t code) {
  return cuda_f32_bits(code << 16 | ((code & 0x7fffu) > 0x7f80u ? 0x400000u : 0u));
}
/* e5m2 is the upper byte of f16. */
CUDA_FN float cuda_f32_of_f8e5m2(uint32_t code) {
  return cuda_f32_of_f16(code << 8);
}
CUDA_FN float cuda_f32_of_f8e4m3(uint32_t code) {
  const uint32_t sign = (code & 0x80u) << 24, magnitude = code & 0x7fu;
  uint32_t bits = (magnitude << 20) + (120u << 23);
  if (magnitude < 8u) bits = cuda_bits_f32((float)magnitude * 0x1p-9f);
  if (magnitude == 0x7fu) bits = 0x7fc00000u;
  return cuda_f32_bits(sign | bits);
}

/* ---- f32 to narrow floats: to nearest, ties to even ---------------------------------------------- */

/* Subnormal results: adding 0.5 puts the unit of f16's subnormals at the sum's last bit. */
CUDA_FN uint32_t cuda_f16_of_f32(float v) {
  const uint32_t bits = cuda_bits_f32(v), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | (magnitude >> 13 & 0x3ffu);
#if defined(__CUDACC__)
  unsigned short code;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(v));
  return code;
#else
  if (magnitude >= (143u << 23)) return sign | 0x7c00u;
  if (magnitude < (113u << 23)) return sign | (cuda_bits_f32(cuda_f32_bits(magnitude) + 0.5f) - 0x3f000000u);
  return sign | (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
#endif
}
CUDA_FN uint32_t cuda_bf16_of_f32(float v) {
  const uint32_t bits = cuda_bits_f32(v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
#if defined(__CUDACC__)
  unsigned short code;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(code) : "f"(v));
  return code;
#else
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
#endif
}

/* Rounds the magnitude of a finite f32 to `fraction` bits after the binary point, with the exponents that
 * `bias` gives; does not check for overflow. */
CUDA_FN uint32_t cuda_round_f8(uint32_t magnitude, int fraction, int bias) {
  const int exponent = (int)(magnitude >> 23) - 127, lowest = 1 - bias;
  const int shift = 23 - fraction + (exponent < lowest ? lowest - exponent : 0);
  if (magnitude < (1u << 23) || shift > 24) return 0; /* below half of the least subnormal */
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t rest = significand & ((1u << shift) - 1u), half = 1u << (shift - 1);
  uint32_t code = significand >> shift;
  if (rest > half || (rest == half && (code & 1u) != 0)) code++;
  /* The hidden bit adds one to the exponent field; a carry out of the significand does too. */
  return exponent > lowest ? code + ((uint32_t)(exponent - lowest) << fraction) : code;
}
CUDA_FN uint32_t cuda_f8e4m3_of_f32(float v) {
  const uint32_t bits = cuda_bits_f32(v), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return sign | 0x7fu;
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(v));
  return pair & 0xffu;
#else
  if (magnitude >= 0x43e80000u) return sign | 0x7eu; /* 464: half a step above 448 */
  return sign | cuda_round_f8(magnitude, 3, 7);
#endif
}
CUDA_FN uint32_t cuda_f8e5m2_of_f32(float v) {
  const uint32_t bits = cuda_bits_f32(v), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return sign | 0x7eu | (magnitude >> 21 & 1u);
  if (magnitude >= 0x47700000u) return sign | 0x7cu; /* 61440: half a step above 57344 */
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(v));
  return pair & 0xffu;
#else
  return sign | cuda_round_f8(magnitude, 2, 15);
#endif
}

/* ---- f64 and integers --------------------------------------------------------------------------- */

CUDA_FN double cuda_f64_of_f32(float v) {
  const uint32_t bits = cuda_bits_f32(v);
  if ((bits & 0x7fffffffu) <= 0x7f800000u) return (double)v;
  return cuda_f64_bits((uint64_t)(bits >> 31) << 63 | UINT64_C(0x7ff8) << 48 |
                       (uint64_t)(bits & 0x7fffffu) << 29);
}
CUDA_FN uint32_t cuda_nan_f32_of_f64(uint64_t bits) {
  return (uint32_t)(bits >> 63) << 31 | 0x7fc00000u | (uint32_t)(bits >> 29 & 0x7fffffu);
}
CUDA_FN float cuda_f32_of_f64(double v) {
  return v == v ? (float)v : cuda_f32_bits(cuda_nan_f32_of_f64(cuda_bits_f64(v)));
}
/* Rounds towards zero; an inexact result gets an odd last bit. */
CUDA_FN float cuda_odd_f32_of_f64(double v) {
  if (v != v) return cuda_f32_bits(cuda_nan_f32_of_f64(cuda_bits_f64(v)));
  const float near = (float)v;
  uint32_t bits = cuda_bits_f32(near);
  if ((double)near == v) return near;
  if (fabs((double)near) > fabs(v)) bits--;
  return cuda_f32_bits(bits | 1u);
}
/* A double that rounds to any narrower format as the integer itself would. */
CUDA_FN double cuda_odd_f64_of_i64(int64_t v) {
  const double near = (double)v;
  if (near == 0x1p63) return 0x1.fffffffffffffp62;
  const int64_t back = (int64_t)near;
  const uint64_t bits = cuda_bits_f64(near);
  if (back == v || (bits & 1u) != 0) return near;
  return cuda_f64_bits((v >= 0) == (back > v) ? bits - 1 : bits + 1);
}
CUDA_FN int64_t cuda_i64_of_f64(double v) {
  if (v != v) return 0;
  const double r = rint(v);
  if (r >= 0x1p63) return INT64_MAX;
  if (r <= -0x1p63) return INT64_MIN;
  return (int64_t)r;
}
CUDA_FN int64_t cuda_between(int64_t v, int64_t low, int64_t high) {
  return v > high ? high : v < low ? low : v;
}

/* ---- several adjacent elements ------------------------------------------------------------------
 * Up to 16 bytes of memory in registers; element i of `size` bytes is the i-th from the lowest byte on.
 * `count` (1, 2, 4, 8) is a constant in all calls, so that every index is one too. */

typedef struct cuda_raw {
  uint32_t word[4];
} cuda_raw;

CUDA_FN cuda_raw cuda_get_bytes(const void *from, const int bytes) {
  cuda_raw raw = {{0, 0, 0, 0}};
#if defined(__CUDACC__)
  if (bytes == 1) raw.word[0] = *(const unsigned char *)from;
  if (bytes == 2) raw.word[0] = *(const unsigned short *)from;
  if (bytes == 4) raw.word[0] = *(const unsigned int *)from;
  if (bytes == 8) {
    const uint2 pair = *(const uint2 *)from;
    raw.word[0] = pair.x;
    raw.word[1] = pair.y;
  }
  if (bytes == 16) {
    const uint4 four = *(const uint4 *)from;
    raw.word[0] = four.x;
    raw.word[1] = four.y;
    raw.word[2] = four.z;
    raw.word[3] = four.w;
  }
#else
  if ((uintptr_t)from % (uintptr_t)bytes != 0) __builtin_trap(); /* as the device does */
  __builtin_memcpy(raw.word, from, (unsigned)bytes);             /* little endian, as the device is */
#endif
  return raw;
}
CUDA_FN void cuda_put_bytes(void *to, const cuda_raw *raw, const int bytes) {
#if defined(__CUDACC__)
  if (bytes == 1) *(unsigned char *)to = (unsigned char)raw->word[0];
  if (bytes == 2) *(unsigned short *)to = (unsigned short)raw->word[0];
  if (bytes == 4) *(unsigned int *)to = raw->word[0];
  if (bytes == 8) *(uint2 *)to = make_uint2(raw->word[0], raw->word[1]);
  if (bytes == 16) *(uint4 *)to = make_uint4(raw->word[0], raw->word[1], raw->word[2], raw->word[3]);
#else
  if ((uintptr_t)to % (uintptr_t)bytes != 0) __builtin_trap();
  __builtin_memcpy(to, raw->word, (unsigned)bytes);
#endif
}
/* count * size is at most 16. */
CUDA_FN cuda_raw cuda_get(const void *from, uint32_t size, const int count) {
  if (size == 1) return cuda_get_bytes(from, count);
  if (size == 2) return cuda_get_bytes(from, 2 * count);
  if (size == 4 && count <= 4) return cuda_get_bytes(from, 4 * count);
  return cuda_get_bytes(from, count <= 2 ? 8 * count : 16);
}
CUDA_FN void cuda_put(void *to, const cuda_raw *raw, uint32_t size, const int count) {
  if (size == 1) {
    cuda_put_bytes(to, raw, count);
  } else if (size == 2) {
    cuda_put_bytes(to, raw, 2 * count);
  } else if (size == 4 && count <= 4) {
    cuda_put_bytes(to, raw, 4 * count);
  } else {
    cuda_put_bytes(to, raw, count <= 2 ? 8 * count : 16);
  }
}

/* Element i, which is constant, of 1, 2 and 8 bytes. */
CUDA_FN uint32_t cuda_raw8(const cuda_raw *raw, const int i) {
  return raw->word[i >> 2] >> (8 * (i & 3)) & 0xffu;
}
CUDA_FN uint32_t cuda_raw16(const cuda_raw *raw, const int i) {
  return raw->word[i >> 1] >> (16 * (i & 1)) & 0xffffu;
}
CUDA_FN uint64_t cuda_raw64(const cuda_raw *raw, const int i) {
  return (uint64_t)raw->word[2 * (i & 1) + 1] << 32 | raw->word[2 * (i & 1)];
}
CUDA_FN void cuda_set8(cuda_raw *raw, const int i, uint32_t v) {
  raw->word[i >> 2] |= (v & 0xffu) << (8 * (i & 3));
}
CUDA_FN void cuda_set16(cuda_raw *raw, const int i, uint32_t v) {
  raw->word[i >> 1] |= v << (16 * (i & 1));
}
CUDA_FN void cuda_set64(cuda_raw *raw, const int i, uint64_t v) {
  raw->word[2 * (i & 1)] = (uint32_t)v;
  raw->word[2 * (i & 1) + 1] = (uint32_t)(v >> 32);
}

/* Converts raw to f32: exact from the narrow floats; f64 and integers are rounded once. */
CUDA_FN void cuda_widen_i64(uint32_t dtype, const cuda_raw *raw, int64_t *v, const int count);
CUDA_FN void cuda_widen_f32(uint32_t dtype, const cuda_raw *raw, float *v, const int count) {
  int64_t whole[8];
  switch (dtype) {
    case BS_F32:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = cuda_f32_bits(raw->word[i & 3]);
      break;
    case BS_F16:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = cuda_f32_of_f16(cuda_raw16(raw, i));
      break;
    case BS_BF16:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = cuda_f32_of_bf16(cuda_raw16(raw, i));
      break;
    case BS_F8E4M3:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = cuda_f32_of_f8e4m3(cuda_raw8(raw, i));
      break;
    case BS_F8E5M2:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = cuda_f32_of_f8e5m2(cuda_raw8(raw, i));
      break;
    case BS_F64:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = cuda_f32_of_f64(cuda_f64_bits(cuda_raw64(raw, i)));
      break;
    default:
      cuda_widen_i64(dtype, raw, whole, count);
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = (float)whole[i];
      break;
  }
}
CUDA_FN void cuda_widen_f64(uint32_t dtype, const cuda_raw *raw, double *v, const int count) {
  float narrow[8];
  int64_t whole[8];
  switch (dtype) {
    case BS_F64:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = cuda_f64_bits(cuda_raw64(raw, i));
      break;
    case BS_F32:
    case BS_F16:
    case BS_BF16:
    case BS_F8E4M3:
    case BS_F8E5M2:
      cuda_widen_f32(dtype, raw, narrow, count);
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = cuda_f64_of_f32(narrow[i]);
      break;
    default:
      cuda_widen_i64(dtype, raw, whole, count);
      CUDA_UNROLL
      for (int i = 0; i < count; i++) v[i] = (double)whole[i];
      break;
  }
}
/* Only integers and bool; others give 0. */
CUDA_FN void cuda_widen_i64(uint32_t dtype, const cuda_raw *raw, int64_t *v, const int count) {
  CUDA_UNROLL
  for (int i = 0; i < count; i++) {
    switch (dtype) {
      case BS_I64:
        v[i] = (int64_t)cuda_raw64(raw, i);
        break;
      case BS_I32:
        v[i] = (int32_t)raw->word[i & 3];
        break;
      case BS_I8:
        v[i] = (int64_t)(cuda_raw8(raw, i) ^ 0x80u) - 0x80;
        break;
      case BS_U8:
        v[i] = (int64_t)cuda_raw8(raw, i);
        break;
      case BS_BOOL:
        v[i] = cuda_raw8(raw, i) != 0;
        break;
      default:
        v[i] = 0;
        break;
    }
  }
}

/* The integer dtypes, saturated, and bool. */
CUDA_FN cuda_raw cuda_narrow_whole(uint32_t dtype, const int64_t *v, const int count) {
  cuda_raw raw = {{0, 0, 0, 0}};
  CUDA_UNROLL
  for (int i = 0; i < count; i++) {
    switch (dtype) {
      case BS_I64:
        cuda_set64(&raw, i, (uint64_t)v[i]);
        break;
      case BS_I32:
        raw.word[i & 3] = (uint32_t)cuda_between(v[i], INT32_MIN, INT32_MAX);
        break;
      case BS_I8:
        cuda_set8(&raw, i, (uint32_t)cuda_between(v[i], INT8_MIN, INT8_MAX));
        break;
      case BS_U8:
        cuda_set8(&raw, i, (uint32_t)cuda_between(v[i], 0, UINT8_MAX));
        break;
      default: /* BS_BOOL */
        cuda_set8(&raw, i, v[i] != 0);
        break;
    }
  }
  return raw;
}
CUDA_FN cuda_raw cuda_narrow_f32(uint32_t dtype, const float *v, const int count) {
  cuda_raw raw = {{0, 0, 0, 0}};
  int64_t whole[8];
  switch (dtype) {
    case BS_F32:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) raw.word[i & 3] = cuda_bits_f32(v[i]);
      return raw;
    case BS_F16:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) cuda_set16(&raw, i, cuda_f16_of_f32(v[i]));
      return raw;
    case BS_BF16:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) cuda_set16(&raw, i, cuda_bf16_of_f32(v[i]));
      return raw;
    case BS_F8E4M3:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) cuda_set8(&raw, i, cuda_f8e4m3_of_f32(v[i]));
      return raw;
    case BS_F8E5M2:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) cuda_set8(&raw, i, cuda_f8e5m2_of_f32(v[i]));
      return raw;
    case BS_F64:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) cuda_set64(&raw, i, cuda_bits_f64(cuda_f64_of_f32(v[i])));
      return raw;
    case BS_BOOL: /* any value but zero is true, NaN too */
      CUDA_UNROLL
      for (int i = 0; i < count; i++) cuda_set8(&raw, i, v[i] != 0.0f);
      return raw;
    default:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) whole[i] = cuda_i64_of_f64((double)v[i]);
      return cuda_narrow_whole(dtype, whole, count);
  }
}
CUDA_FN cuda_raw cuda_narrow_f64(uint32_t dtype, const double *v, const int count) {
  cuda_raw raw = {{0, 0, 0, 0}};
  float odd[8];
  int64_t whole[8];
  switch (dtype) {
    case BS_F64:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) cuda_set64(&raw, i, cuda_bits_f64(v[i]));
      return raw;
    case BS_F32:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) raw.word[i & 3] = cuda_bits_f32(cuda_f32_of_f64(v[i]));
      return raw;
    case BS_F16:
    case BS_BF16:
    case BS_F8E4M3:
    case BS_F8E5M2:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) odd[i] = cuda_odd_f32_of_f64(v[i]);
      return cuda_narrow_f32(dtype, odd, count);
    case BS_BOOL:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) cuda_set8(&raw, i, v[i] != 0.0);
      return raw;
    default:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) whole[i] = cuda_i64_of_f64(v[i]);
      return cuda_narrow_whole(dtype, whole, count);
  }
}
CUDA_FN cuda_raw cuda_narrow_i64(uint32_t dtype, const int64_t *v, const int count) {
  cuda_raw raw = {{0, 0, 0, 0}};
  double odd[8];
  switch (dtype) {
    case BS_F64:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) cuda_set64(&raw, i, cuda_bits_f64((double)v[i]));
      return raw;
    case BS_F32:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) raw.word[i & 3] = cuda_bits_f32((float)v[i]);
      return raw;
    case BS_F16:
    case BS_BF16:
    case BS_F8E4M3:
    case BS_F8E5M2:
      CUDA_UNROLL
      for (int i = 0; i < count; i++) odd[i] = cuda_odd_f64_of_i64(v[i]);
      return cuda_narrow_f64(dtype, odd, count);
    default:
      return cuda_narrow_whole(dtype, v, count);
  }
}

/* ---- one element --------------------------------------------------------------------------------- */

/* Conversions in registers: the element's bits are the low ones. */
CUDA_FN float cuda_f32_of_bits(uint32_t dtype, uint64_t bits) {
  const cuda_raw raw = {{(uint32_t)bits, (uint32_t)(bits >> 32), 0, 0}};
  float v;
  cuda_widen_f32(dtype, &raw, &v, 1);
  return v;
}
CUDA_FN double cuda_f64_of_bits(uint32_t dtype, uint64_t bits) {
  const cuda_raw raw = {{(uint32_t)bits, (uint32_t)(bits >> 32), 0, 0}};
  double v;
  cuda_widen_f64(dtype, &raw, &v, 1);
  return v;
}
CUDA_FN int64_t cuda_i64_of_bits(uint32_t dtype, uint64_t bits) {
  const cuda_raw raw = {{(uint32_t)bits, (uint32_t)(bits >> 32), 0, 0}};
  int64_t v;
  cuda_widen_i64(dtype, &raw, &v, 1);
  return v;
}
CUDA_FN uint64_t cuda_bits_of_f32(uint32_t dtype, float v) {
  const cuda_raw raw = cuda_narrow_f32(dtype, &v, 1);
  return cuda_raw64(&raw, 0);
}
CUDA_FN uint64_t cuda_bits_of_f64(uint32_t dtype, double v) {
  const cuda_raw raw = cuda_narrow_f64(dtype, &v, 1);
  return cuda_raw64(&raw, 0);
}
CUDA_FN uint64_t cuda_bits_of_i64(uint32_t dtype, int64_t v) {
  const cuda_raw raw = cuda_narrow_i64(dtype, &v, 1);
  return cuda_raw64(&raw, 0);
}

/* Access to elements in memory. */
CUDA_FN uint32_t cuda_dtype_bytes(uint32_t dtype) {
  return BS_DTYPE_BYTES(dtype);
}
CUDA_FN const void *cuda_at_index(uint32_t dtype, const void *base, int64_t index) {
  return (const char *)base + index * (int64_t)BS_DTYPE_BYTES(dtype);
}
CUDA_FN float cuda_load_f32(uint32_t dtype, const void *base, int64_t index) {
  const cuda_raw raw = cuda_get(cuda_at_index(dtype, base, index), cuda_dtype_bytes(dtype), 1);
  float v;
  cuda_widen_f32(dtype, &raw, &v, 1);
  return v;
}
CUDA_FN double cuda_load_f64(uint32_t dtype, const void *base, int64_t index) {
  const cuda_raw raw = cuda_get(cuda_at_index(dtype, base, index), cuda_dtype_bytes(dtype), 1);
  double v;
  cuda_widen_f64(dtype, &raw, &v, 1);
  return v;
}
/* Loads integers and bool; floats give 0. */
CUDA_FN int64_t cuda_load_i64(uint32_t dtype, const void *base, int64_t index) {
  const cuda_raw raw = cuda_get(cuda_at_index(dtype, base, index), cuda_dtype_bytes(dtype), 1);
  int64_t v;
  cuda_widen_i64(dtype, &raw, &v, 1);
  return v;
}
CUDA_FN void cuda_store_f32(uint32_t dtype, void *base, int64_t index, float v) {
  const cuda_raw raw = cuda_narrow_f32(dtype, &v, 1);
  cuda_put((char *)base + index * (int64_t)BS_DTYPE_BYTES(dtype), &raw, cuda_dtype_bytes(dtype), 1);
}
CUDA_FN void cuda_store_f64(uint32_t dtype, void *base, int64_t index, double v) {
  const cuda_raw raw = cuda_narrow_f64(dtype, &v, 1);
  cuda_put((char *)base + index * (int64_t)BS_DTYPE_BYTES(dtype), &raw, cuda_dtype_bytes(dtype), 1);
}
CUDA_FN void cuda_store_i64(uint32_t dtype, void *base, int64_t index, int64_t v) {
  const cuda_raw raw = cuda_narrow_i64(dtype, &v, 1);
  cuda_put((char *)base + index * (int64_t)BS_DTYPE_BYTES(dtype), &raw, cuda_dtype_bytes(dtype), 1);
}
#endif
