/* SPDX-License-Identifier: MIT
 *
 * coll_reduce.c - one reduction of two vectors in host memory, for the algorithms that the host runs
 * (coll_algorithm.c). As the communicators reduce (comm.h): floats of 16 and 8 bits as f32, rounded back;
 * sums of integers wrap; max and min keep a NaN.
 */
#include "core/world/coll_rounds.h"

enum { BLOCK = 64, CHUNK = 512 }; /* blocks of a fixed size vectorise at -O2 */

static inline void add_f32(float *restrict acc, const float *restrict src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) acc[i] += src[i];
}
static void sum_f32(float *acc, const float *src, uint64_t n) {
  uint64_t i = 0;
  for (; n - i >= BLOCK; i += BLOCK) add_f32(acc + i, src + i, BLOCK);
  add_f32(acc + i, src + i, n - i);
}
static inline void add_f64(double *restrict acc, const double *restrict src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) acc[i] += src[i];
}
static void sum_f64(double *acc, const double *src, uint64_t n) {
  uint64_t i = 0;
  for (; n - i >= BLOCK; i += BLOCK) add_f64(acc + i, src + i, BLOCK);
  add_f64(acc + i, src + i, n - i);
}

static void reduce_f32(uint32_t op, float *acc, const float *src, uint64_t n) {
  if (op == BS_REDUCE_SUM) {
    sum_f32(acc, src, n);
    return;
  }
  for (uint64_t i = 0; i < n; ++i) {
    const float a = acc[i], b = src[i];
    const int first = a != a || (op == BS_REDUCE_MAX ? a > b : a < b);
    acc[i] = first ? a : b;
  }
}

static void reduce_f64(uint32_t op, double *acc, const double *src, uint64_t n) {
  if (op == BS_REDUCE_SUM) {
    sum_f64(acc, src, n);
    return;
  }
  for (uint64_t i = 0; i < n; ++i) {
    const double a = acc[i], b = src[i];
    const int first = a != a || (op == BS_REDUCE_MAX ? a > b : a < b);
    acc[i] = first ? a : b;
  }
}

static int64_t reduced(uint32_t op, int64_t a, int64_t b) {
  if (op == BS_REDUCE_SUM) return (int64_t)((uint64_t)a + (uint64_t)b);
  return (op == BS_REDUCE_MAX ? a > b : a < b) ? a : b;
}

static void reduce_i64(uint32_t op, int64_t *acc, const int64_t *src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) acc[i] = reduced(op, acc[i], src[i]);
}
static void reduce_i32(uint32_t op, int32_t *acc, const int32_t *src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) acc[i] = (int32_t)(uint32_t)reduced(op, acc[i], src[i]);
}
static void reduce_i8(uint32_t op, int8_t *acc, const int8_t *src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) acc[i] = (int8_t)(uint8_t)reduced(op, acc[i], src[i]);
}
static void reduce_u8(uint32_t op, uint8_t *acc, const uint8_t *src, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) acc[i] = (uint8_t)reduced(op, acc[i], src[i]);
}

/* Floats of 16 and 8 bits. */
static int32_t reduce_narrow(uint32_t dtype, uint32_t op, char *acc, const char *src, uint64_t n) {
  const uint64_t size = BS_DTYPE_BYTES(dtype);
  float a[CHUNK], b[CHUNK];
  int32_t rc = BS_OK;
  for (uint64_t at = 0; at < n && rc == BS_OK; at += CHUNK) {
    const uint64_t part = n - at < CHUNK ? n - at : CHUNK;
    rc = bs_convert(BS_F32, a, dtype, acc + at * size, part);
    if (rc == BS_OK) rc = bs_convert(BS_F32, b, dtype, src + at * size, part);
    if (rc != BS_OK) break;
    reduce_f32(op, a, b, part);
    rc = bs_convert(dtype, acc + at * size, BS_F32, a, part);
  }
  return rc;
}

int32_t bs_coll_reduce(uint32_t dtype, uint32_t op, void *acc, const void *src, uint64_t n) {
  switch (dtype) {
    case BS_F32:
      reduce_f32(op, acc, src, n);
      return BS_OK;
    case BS_F64:
      reduce_f64(op, acc, src, n);
      return BS_OK;
    case BS_I64:
      reduce_i64(op, acc, src, n);
      return BS_OK;
    case BS_I32:
      reduce_i32(op, acc, src, n);
      return BS_OK;
    case BS_I8:
      reduce_i8(op, acc, src, n);
      return BS_OK;
    case BS_U8:
    case BS_BOOL:
      reduce_u8(op, acc, src, n);
      return BS_OK;
    default:
      return reduce_narrow(dtype, op, acc, src, n);
  }
}
