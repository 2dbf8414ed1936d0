/* SPDX-License-Identifier: MIT
 * convert.c - bs_convert: arrays from any dtype to any other, each element rounded once. The pairs of
 * f32 with f16 and bf16 (weights and activations on their way to a rank) have loops of their own, with
 * an AVX2 form chosen at run time. Thread-safe. */
#include <string.h>

#include "core/base/convert_paths.h"
#include "core/base/dtype.h"
#include "core/base/dtype_bits.h"

/* Blocks of a fixed size vectorise at -O2, too, where loops of unknown length do not. */
enum { BLOCK = 64 };

static inline void block_f32_to_f16(const float *restrict src, uint16_t *restrict dst, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) dst[i] = bs_f16_of_f32_bits(bs_bits_of_f32(src[i]));
}
static inline void block_f32_to_bf16(const float *restrict src, uint16_t *restrict dst, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) dst[i] = bs_bf16_of_f32_bits(bs_bits_of_f32(src[i]));
}
static inline void block_f16_to_f32(const uint16_t *restrict src, float *restrict dst, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) dst[i] = bs_f32_of_bits(bs_f32_bits_of_f16(src[i]));
}
static inline void block_bf16_to_f32(const uint16_t *restrict src, float *restrict dst, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) dst[i] = bs_f32_of_bits(bs_f32_bits_of_bf16(src[i]));
}

static void f32_to_f16(const float *src, uint16_t *dst, uint64_t count) {
  uint64_t i = 0;
  for (; count - i >= BLOCK; i += BLOCK) block_f32_to_f16(src + i, dst + i, BLOCK);
  block_f32_to_f16(src + i, dst + i, count - i);
}
static void f32_to_bf16(const float *src, uint16_t *dst, uint64_t count) {
  uint64_t i = 0;
  for (; count - i >= BLOCK; i += BLOCK) block_f32_to_bf16(src + i, dst + i, BLOCK);
  block_f32_to_bf16(src + i, dst + i, count - i);
}
static void f16_to_f32(const uint16_t *src, float *dst, uint64_t count) {
  uint64_t i = 0;
  for (; count - i >= BLOCK; i += BLOCK) block_f16_to_f32(src + i, dst + i, BLOCK);
  block_f16_to_f32(src + i, dst + i, count - i);
}
static void bf16_to_f32(const uint16_t *src, float *dst, uint64_t count) {
  uint64_t i = 0;
  for (; count - i >= BLOCK; i += BLOCK) block_bf16_to_f32(src + i, dst + i, BLOCK);
  block_bf16_to_f32(src + i, dst + i, count - i);
}

const bs_convert_kernels *bs_convert_portable(void) {
  static const bs_convert_kernels kernels = {f32_to_f16, f32_to_bf16, f16_to_f32, bf16_to_f32};
  return &kernels;
}

/* A double that rounds to any narrower format as the integer itself would: inexact values get an odd last
 * bit (53 bits are more than twice those of f32). */
static double round_to_odd(int64_t value) {
  double d = (double)value;
  if (d == 0x1p63) return 0x1.fffffffffffffp62;
  int64_t back = (int64_t)d;
  uint64_t bits = bs_bits_of_f64(d);
  if (back == value || (bits & 1u) != 0) return d;
  int away = (value >= 0) == (back > value); /* magnitude was rounded up */
  bits = away ? bits - 1 : bits + 1;
  memcpy(&d, &bits, sizeof d);
  return d;
}

static void from_integers(uint32_t dst_dtype, void *dst, uint32_t src_dtype, const void *src, int64_t count) {
  int to_float = bs_dtype_is_float(dst_dtype);
  for (int64_t i = 0; i < count; i++) {
    int64_t v = bs_load_i64(src_dtype, src, i);
    if (!to_float) {
      bs_store_i64(dst_dtype, dst, i, v);
    } else {
      bs_store_f64(dst_dtype, dst, i, dst_dtype == BS_F64 ? (double)v : round_to_odd(v));
    }
  }
}

static void f32_to_f64(const unsigned char *src, unsigned char *dst, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    float narrow;
    memcpy(&narrow, src + i * sizeof narrow, sizeof narrow);
    const double wide = (double)narrow;
    memcpy(dst + i * sizeof wide, &wide, sizeof wide);
  }
}

static void f64_to_f32(const unsigned char *src, unsigned char *dst, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    double wide;
    memcpy(&wide, src + i * sizeof wide, sizeof wide);
    const float narrow = (float)wide;
    memcpy(dst + i * sizeof narrow, &narrow, sizeof narrow);
  }
}

static int fast_pair(uint32_t dst_dtype, void *dst, uint32_t src_dtype, const void *src, uint64_t count) {
  const bs_convert_kernels *k = bs_convert_avx2();
  if (k == NULL) k = bs_convert_portable();
  if (src_dtype == BS_F32 && dst_dtype == BS_F16) {
    k->f32_to_f16(src, dst, count);
  } else if (src_dtype == BS_F32 && dst_dtype == BS_BF16) {
    k->f32_to_bf16(src, dst, count);
  } else if (src_dtype == BS_F16 && dst_dtype == BS_F32) {
    k->f16_to_f32(src, dst, count);
  } else if (src_dtype == BS_BF16 && dst_dtype == BS_F32) {
    k->bf16_to_f32(src, dst, count);
  } else if (src_dtype == BS_F32 && dst_dtype == BS_F64) {
    f32_to_f64(src, dst, count);
  } else if (src_dtype == BS_F64 && dst_dtype == BS_F32) {
    f64_to_f32(src, dst, count);
  } else {
    return 0;
  }
  return 1;
}

int32_t bs_convert(uint32_t dst_dtype, void *dst, uint32_t src_dtype, const void *src, uint64_t count) {
  if (!bs_dtype_known(dst_dtype) || !bs_dtype_known(src_dtype)) return BS_UNSUPPORTED;
  if (count == 0) return BS_OK;
  if (count > (uint64_t)(INT64_MAX / 8)) return BS_OVERFLOW;
  if (dst_dtype == src_dtype) {
    memmove(dst, src, (size_t)count * BS_DTYPE_BYTES(src_dtype));
  } else if (fast_pair(dst_dtype, dst, src_dtype, src, count)) {
    return BS_OK;
  } else if (!bs_dtype_is_float(src_dtype)) {
    from_integers(dst_dtype, dst, src_dtype, src, (int64_t)count);
  } else {
    for (int64_t i = 0; i < (int64_t)count; i++) {
      bs_store_f64(dst_dtype, dst, i, bs_load_f64(src_dtype, src, i));
    }
  }
  return BS_OK;
}

void bs_read_dense(uint32_t dtype, void *out, const bs_tensor *t) {
  const uint64_t size = BS_DTYPE_BYTES(dtype), from_size = BS_DTYPE_BYTES(t->dtype);
  const uint32_t last = t->rank > 0 ? t->rank - 1 : 0;
  const uint64_t run = t->rank > 0 && t->strides[last] == 1 ? (uint64_t)t->dims[last] : 1;
  int64_t index[BS_MAX_DIMS] = {0}, at = 0;
  uint64_t count = 1;
  for (uint32_t d = 0; d < t->rank; d++) count *= (uint64_t)t->dims[d];
  for (uint64_t i = 0; i < count; i += run) {
    const unsigned char *from = (const unsigned char *)t->data + at * (int64_t)from_size;
    bs_convert(dtype, (unsigned char *)out + i * size, t->dtype, from, run);
    for (uint32_t d = t->rank; d-- > 0;) {
      const int64_t step = d == last ? (int64_t)run : 1;
      at += step * t->strides[d];
      index[d] += step;
      if (index[d] < t->dims[d]) break;
      at -= t->dims[d] * t->strides[d];
      index[d] = 0;
    }
  }
}
