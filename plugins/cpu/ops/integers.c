/* SPDX-License-Identifier: MIT
 *
 * integers.c - see integers.h. */
#include "integers.h"

void cpu_integers_load(uint32_t dtype, const void *from, int64_t stride, int64_t n, int64_t *out) {
  switch (dtype) {
    case BS_I64:
      for (int64_t i = 0; i < n; i++) out[i] = ((const int64_t *)from)[i * stride];
      return;
    case BS_I32:
      for (int64_t i = 0; i < n; i++) out[i] = ((const int32_t *)from)[i * stride];
      return;
    case BS_I8:
      for (int64_t i = 0; i < n; i++)
        out[i] = (int64_t)(((const uint8_t *)from)[i * stride] ^ 128u) - 128; /* the sign */
      return;
    case BS_U8:
      for (int64_t i = 0; i < n; i++) out[i] = ((const uint8_t *)from)[i * stride];
      return;
    default:
      for (int64_t i = 0; i < n; i++) out[i] = ((const uint8_t *)from)[i * stride] != 0;
      return;
  }
}

void cpu_integers_store(uint32_t dtype, void *to, int64_t stride, int64_t n, const int64_t *in) {
  if (dtype == BS_I64) {
    for (int64_t i = 0; i < n; i++) ((int64_t *)to)[i * stride] = in[i];
  } else if (dtype == BS_I32) {
    for (int64_t i = 0; i < n; i++) ((uint32_t *)to)[i * stride] = (uint32_t)(uint64_t)in[i];
  } else {
    for (int64_t i = 0; i < n; i++) ((uint8_t *)to)[i * stride] = (uint8_t)(uint64_t)in[i];
  }
}
