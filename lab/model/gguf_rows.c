/* SPDX-License-Identifier: MIT
 * gguf_rows.c - see gguf_rows.h. Blocks are the reverse of formats/gguf_quant.c. */
#include "lab/model/gguf_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/op/quant.h"

enum { SPAN = 256, GROUP = 32, SIXTEEN = 16 };

static const struct row {
  const char *scheme;
  uint32_t type;
} rows[] = {{"w8g32", BS_GGUF_Q8_0}, {"w4g32", BS_GGUF_Q4_0}, {"w4k", BS_GGUF_Q4_K}, {"w6k", BS_GGUF_Q6_K}};

uint32_t bs_gguf_type_of_scheme(const char *scheme) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (strcmp(rows[i].scheme, scheme) == 0) return rows[i].type;
  return 0;
}

static const char *scheme_of(uint32_t type) {
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (rows[i].type == type) return rows[i].scheme;
  return "w8g32";
}

static void put_half(unsigned char *p, float value) {
  uint16_t half;
  bs_convert(BS_F16, &half, BS_F32, &value, 1);
  p[0] = (unsigned char)(half & 255u);
  p[1] = (unsigned char)(half >> 8);
}

/* Numbers of `n` columns each in the low and in the high half of a byte. */
static void put_nibbles(unsigned char *p, int n, const uint8_t *low, const uint8_t *high) {
  for (int i = 0; i < n; i++) p[i] = (unsigned char)((low[i] & 15u) | high[i] << 4);
}

/* 8 steps and 8 low steps of 6 bits in 12 bytes. */
static void put_steps(unsigned char *p, const int8_t *steps, const uint8_t *lows) {
  for (int i = 0; i < 4; i++) {
    const uint32_t s = (uint8_t)steps[i], l = lows[i], s4 = (uint8_t)steps[i + 4], l4 = lows[i + 4];
    p[i] = (unsigned char)(s | (s4 >> 4) << 6);
    p[i + 4] = (unsigned char)(l | (l4 >> 4) << 6);
    p[i + 8] = (unsigned char)((s4 & 15u) | (l4 & 15u) << 4);
  }
}

/* The result of bs_quant_round for a row. */
typedef struct rounded {
  uint8_t *codes, *low_steps;
  float *scales, *lows;
  int8_t *steps;
} rounded;

static float as_half(float value) {
  uint16_t half;
  bs_convert(BS_F16, &half, BS_F32, &value, 1);
  bs_convert(BS_F32, &value, BS_F16, &half, 1);
  return value;
}

static int32_t nearest(double value, int32_t least, int32_t most) {
  const double near = nearbyint(value);
  return near < least ? least : near > most ? most : (int32_t)near;
}

/* The codes of a group for a scale and a low. */
static void fit_codes(const bs_quant *f, const float *row, int64_t n, double scale, double low,
                      uint8_t *codes) {
  const int symmetric = f->bits == 8 && (f->flags & BS_QUANT_LOWS) == 0;
  const int32_t least = symmetric ? -127 : -f->zero, most = (1 << f->bits) - 1 - f->zero;
  const int empty = !(scale < 0.0) && !(scale > 0.0);
  for (int64_t k = 0; k < n; k++)
    codes[k] = (uint8_t)((empty ? 0 : nearest(((double)row[k] + low) / scale, least, most)) + f->zero);
}

/* Rounds a scale that is not an f16 to the nearest f16, and makes steps and codes for the new scale. */
static void refit_span(const bs_quant *f, const float *row, int64_t span, const rounded *r) {
  const int steps = (f->flags & BS_QUANT_STEPS) != 0, lows = (f->flags & BS_QUANT_LOWS) != 0;
  const float scale = as_half(r->scales[span]), low = lows ? as_half(r->lows[span]) : 0.0F;
  const int same = !(scale < r->scales[span]) && !(scale > r->scales[span]) && !(low < r->lows[span]) &&
                   !(low > r->lows[span]);
  if (same || !isfinite(scale) || !isfinite(low)) return;
  const int64_t groups = f->span / f->group;
  for (int64_t g = span * groups; g < (span + 1) * groups; g++) {
    double own = (double)scale, own_low = (double)low;
    if (steps) {
      const double was = (double)r->scales[span] * (double)r->steps[g];
      r->steps[g] =
          (int8_t)(own < 0.0 || own > 0.0 ? nearest(was / own, lows ? 0 : -128, lows ? 63 : 127) : 0);
      own *= (double)r->steps[g];
    }
    if (steps && lows) {
      const double was = (double)r->lows[span] * (double)r->low_steps[g];
      r->low_steps[g] = (uint8_t)(own_low > 0.0 ? nearest(was / own_low, 0, 63) : 0);
      own_low *= (double)r->low_steps[g];
    }
    fit_codes(f, row + g * f->group, f->group, own, own_low, r->codes + g * f->group);
  }
  r->scales[span] = scale;
  if (lows) r->lows[span] = low;
}

static void pack_block(uint32_t type, const rounded *r, int64_t block, unsigned char *p) {
  const uint8_t *codes = r->codes + block * (type == BS_GGUF_Q8_0 || type == BS_GGUF_Q4_0 ? GROUP : SPAN);
  if (type == BS_GGUF_Q8_0) {
    put_half(p, r->scales[block]);
    for (int i = 0; i < GROUP; i++) p[2 + i] = codes[i] ^ 128;
  } else if (type == BS_GGUF_Q4_0) {
    put_half(p, r->scales[block]);
    put_nibbles(p + 2, 16, codes, codes + 16);
  } else if (type == BS_GGUF_Q4_K) {
    put_half(p, r->scales[block]);
    put_half(p + 2, r->lows[block]);
    put_steps(p + 4, r->steps + block * 8, r->low_steps + block * 8);
    for (int g = 0; g < 8; g += 2)
      put_nibbles(p + 16 + 16 * g, GROUP, codes + GROUP * g, codes + GROUP * g + GROUP);
  } else {
    for (int half = 0; half < 2; half++) {
      const uint8_t *q = codes + 128 * half;
      put_nibbles(p + 64 * half, 64, q, q + 64);
      for (int i = 0; i < GROUP; i++)
        p[128 + 32 * half + i] =
            (unsigned char)(q[i] >> 4 | q[i + 32] >> 4 << 2 | q[i + 64] >> 4 << 4 | q[i + 96] >> 4 << 6);
    }
    for (int g = 0; g < SIXTEEN; g++) p[192 + g] = (unsigned char)r->steps[block * SIXTEEN + g];
    put_half(p + 208, r->scales[block]);
  }
}

int32_t bs_gguf_pack_row(uint32_t type, const float *row, int64_t cols, void *out, double *change,
                         double *size, bs_error *err) {
  const bs_gguf_type *t = bs_gguf_type_of(type);
  bs_quant form;
  int32_t rc = bs_quant_scheme(scheme_of(type), 1, cols, &form, err);
  if (rc != BS_OK) return rc;
  const size_t n = (size_t)cols, groups = (size_t)bs_quant_groups(&form) + 1;
  float *numbers = calloc(n + 2 * groups, sizeof *numbers); /* the row again, scales, lows */
  uint8_t *bytes = calloc(n + 2 * groups, 1);
  if (numbers == NULL || bytes == NULL) {
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for a row of %zu numbers", n);
  } else {
    const rounded r = {.codes = bytes,
                       .low_steps = bytes + n,
                       .steps = (int8_t *)bytes + n + groups,
                       .scales = numbers + n,
                       .lows = numbers + n + groups};
    const bs_quant_rows to = {.struct_size = (uint32_t)sizeof to,
                              .codes = r.codes,
                              .codes_stride = cols,
                              .scales = r.scales,
                              .lows = form.flags & BS_QUANT_LOWS ? r.lows : NULL,
                              .steps = form.flags & BS_QUANT_STEPS ? r.steps : NULL,
                              .low_steps = form.flags & BS_QUANT_LOWS ? r.low_steps : NULL};
    bs_quant_round(&form, row, cols, 1, &to);
    for (int64_t span = 0; span < cols / form.span; span++) refit_span(&form, row, span, &r);
    for (int64_t b = 0; b < cols / t->block; b++)
      pack_block(type, &r, b, (unsigned char *)out + b * t->bytes);
    bs_gguf_dequantize(type, out, (uint64_t)cols, numbers);
    for (size_t i = 0; i < n; i++) {
      const double was = (double)row[i], d = (double)numbers[i] - was;
      *change += d * d;
      *size += was * was;
    }
  }
  free(numbers);
  free(bytes);
  return rc;
}
