/* SPDX-License-Identifier: MIT
 *
 * amx_model_attention.c - what attention in bf16 needs beside its products, in plain C for isa=amx_model. The
 * bits are those of avx512_bf16.c, but for the payload of NaN; powers are never subnormal. */
#include "vec_portable.h"

#define ATTEND_ROW_ALONE
#include "attention.h"

INLINE void put_bf16(void *p, int64_t at, vec power) {
  vec_store_bf16((uint16_t *)p + at, power);
}

float cpu_amx_model_attend(const float *s, void *p, int64_t n, float by, float *most, float *totals) {
  return attend_row(0, put_bf16, s, p, n, by, most, totals);
}
float cpu_amx_model_attend_fast(const float *s, void *p, int64_t n, float by, float *most, float *totals) {
  return attend_row(1, put_bf16, s, p, n, by, most, totals);
}

void cpu_amx_model_turn(void *panel, const void *rows, int64_t row_bytes, int64_t count, int64_t depth) {
  uint16_t *to = panel;
  for (int64_t d = 0; d < depth; d += 2)
    for (int64_t i = 0; i < 16; i++)
      for (int64_t k = d; k < d + 2; k++) {
        const uint16_t *row = (const void *)((const char *)rows + i * row_bytes);
        *to++ = i < count && k < depth ? row[k] : 0;
      }
}

void cpu_amx_model_zip(void *panels, int64_t step, const void *first, const void *second, int64_t columns) {
  const uint16_t *a = first, *b = second;
  for (int64_t n = 0; n < columns; n += 16) {
    uint16_t *to = (void *)((char *)panels + n / 16 * step);
    for (int64_t i = n; i < n + 16; i++) {
      *to++ = i < columns ? a[i] : 0;
      *to++ = i < columns && b != NULL ? b[i] : 0;
    }
  }
}
