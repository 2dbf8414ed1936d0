/* SPDX-License-Identifier: MIT
 * size.h - checked size arithmetic: every size that comes from outside goes through these.
 * Return 1 on success, 0 on overflow (out untouched). */
#ifndef BS_CORE_BASE_SIZE_H
#define BS_CORE_BASE_SIZE_H
#include <stdint.h>
static inline int bs_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return 0;
  *out = r;
  return 1;
}
static inline int bs_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return 0;
  *out = r;
  return 1;
}
static inline int bs_mul_i64(int64_t a, int64_t b, int64_t *out) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return 0;
  *out = r;
  return 1;
}
static inline int bs_add_i64(int64_t a, int64_t b, int64_t *out) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) return 0;
  *out = r;
  return 1;
}
/* The largest number in place of an overflow. */
static inline uint64_t bs_mul_sat(uint64_t a, uint64_t b) {
  uint64_t r;
  return bs_mul_u64(a, b, &r) ? r : UINT64_MAX;
}
static inline uint64_t bs_add_sat(uint64_t a, uint64_t b) {
  uint64_t r;
  return bs_add_u64(a, b, &r) ? r : UINT64_MAX;
}
#endif
