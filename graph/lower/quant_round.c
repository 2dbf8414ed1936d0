/* SPDX-License-Identifier: MIT
 * quant_round.c - see quant_round.h. */
#include "graph/lower/quant_round.h"

#include <math.h>

enum { SPAN_GROUPS = 16 }; /* 256 columns of groups of 16 */

/* To f16 and back; a number that f16 lacks or has with few bits stays. */
static float stored(float scale) {
  uint16_t half = 0;
  float back = 0;
  if (!(fabsf(scale) >= 0x1p-14f && fabsf(scale) <= 65504.0f)) return scale;
  bs_convert(BS_F16, &half, BS_F32, &scale, 1);
  bs_convert(BS_F32, &back, BS_F16, &half, 1);
  return back;
}

static float clamped(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

/* x / scale to the nearest; 0 where the scale is 0 or no number. */
static float code_of(float x, float scale) {
  return scale != 0.0f && isfinite(scale) ? nearbyintf(x / scale) : 0.0f;
}

/* The number of largest size, with its sign; NaN where one is not finite. */
static float largest(const float *x, int64_t n) {
  float most = 0.0f;
  for (int64_t i = 0; i < n; i++) {
    if (!isfinite(x[i])) return NAN;
    if (fabsf(x[i]) > fabsf(most)) most = x[i];
  }
  return most;
}

/* ---- one scale a group -------------------------------------------------------------------------- */

/* 8 bits: -127 .. 127 (Q8_0). 4 bits: the largest number is -8 (Q4_0). */
static void round_even(const bs_quant *q, const float *x, int64_t n, uint8_t *codes, float *out_scale) {
  const float most = largest(x, n), half = q->bits == 8 ? 127.0f : 8.0f;
  const float scale = stored(q->bits == 8 ? fabsf(most) / half : most / -half);
  for (int64_t k = 0; k < n; k++)
    codes[k] = (uint8_t)(q->zero + (int32_t)clamped(code_of(x[k], scale), q->bits == 8 ? -half : -8.0f,
                                                    half - (q->bits == 8 ? 0.0f : 1.0f)));
  *out_scale = scale;
}

/* From the least number, or 0, to the largest, or 0. */
static void round_zero(const bs_quant *q, const float *x, int64_t n, uint8_t *codes, float *out_scale,
                       uint8_t *out_zero) {
  const float last = (float)((1 << q->bits) - 1);
  float low = 0.0f, high = 0.0f;
  for (int64_t k = 0; k < n; k++) {
    low = fminf(low, x[k]);
    high = fmaxf(high, x[k]);
  }
  const float scale = isfinite(largest(x, n)) ? stored((high - low) / last) : NAN;
  const float zero = clamped(code_of(-low, scale), 0.0f, last);
  for (int64_t k = 0; k < n; k++) codes[k] = (uint8_t)clamped(code_of(x[k], scale) + zero, 0.0f, last);
  *out_scale = scale;
  *out_zero = (uint8_t)zero;
}

/* ---- steps -------------------------------------------------------------------------------------- */

/* One group of w4k as w = scale q - low, low at least 0: by its ends, then the least squares of its codes. */
static void fit_low(const float *x, int64_t n, float last, float *out_scale, float *out_low) {
  float least = 0.0f, most = x[0];
  double sum_q = 0, sum_qq = 0, sum_x = 0, sum_xq = 0;
  for (int64_t k = 0; k < n; k++) {
    least = fminf(least, x[k]);
    most = fmaxf(most, x[k]);
  }
  const float scale = (most - least) / last;
  *out_scale = scale > 0.0f ? scale : 0.0f;
  *out_low = -least;
  for (int64_t k = 0; k < n; k++) {
    const double q = (double)clamped(code_of(x[k] - least, scale), 0.0f, last);
    sum_q += q;
    sum_qq += q * q;
    sum_x += (double)x[k];
    sum_xq += q * (double)x[k];
  }
  const double det = (double)n * sum_qq - sum_q * sum_q;
  if (!(det > 0)) return;
  double by = ((double)n * sum_xq - sum_q * sum_x) / det, low = (sum_q * sum_xq - sum_qq * sum_x) / det;
  if (low < 0) { /* through 0 */
    low = 0;
    by = sum_xq / sum_qq;
  }
  if (!(by > 0)) return;
  *out_scale = (float)by;
  *out_low = (float)low;
}

/* One group of w6k as w = scale (q - zero). */
static float fit_even(const float *x, int64_t n, float half) {
  const float scale = largest(x, n) / -half;
  double sum_qq = 0, sum_xq = 0;
  for (int64_t k = 0; k < n; k++) {
    const double q = (double)clamped(code_of(x[k], scale), -half, half - 1.0f);
    sum_qq += q * q;
    sum_xq += q * (double)x[k];
  }
  return sum_qq > 0 ? (float)(sum_xq / sum_qq) : 0.0f;
}

/* A span: the scales of its groups become whole steps of one scale, then the codes are made. */
static void round_span(const bs_quant *q, const float *x, int64_t cols, int64_t group0, int64_t span,
                       const quant_row *out) {
  const int lows = (q->flags & BS_QUANT_LOWS) != 0;
  const float last = (float)((1 << q->bits) - 1), half = (float)(1 << (q->bits - 1));
  const int64_t groups = cols / q->group + (cols % q->group != 0);
  float scales[SPAN_GROUPS] = {0}, low[SPAN_GROUPS] = {0};
  const int bad = !isfinite(largest(x, cols));
  for (int64_t g = 0; g < groups && !bad; g++) {
    const int64_t n = cols - g * q->group < q->group ? cols - g * q->group : q->group;
    if (lows)
      fit_low(x + g * q->group, n, last, &scales[g], &low[g]);
    else
      scales[g] = fit_even(x + g * q->group, n, half);
  }
  const float scale =
      bad ? NAN : stored(lows ? largest(scales, groups) / 63.0f : largest(scales, groups) / -128.0f);
  const float least = lows && !bad ? stored(largest(low, groups) / 63.0f) : 0.0f;
  out->scales[span] = scale;
  if (lows) out->lows[span] = least;
  for (int64_t g = 0; g < groups; g++) {
    const int64_t n = cols - g * q->group < q->group ? cols - g * q->group : q->group;
    const float step = lows ? clamped(code_of(scales[g], scale), 0.0f, 63.0f)
                            : clamped(code_of(scales[g], scale), -128.0f, 127.0f);
    const float low_step = lows ? clamped(code_of(low[g], least), 0.0f, 63.0f) : 0.0f;
    out->steps[group0 + g] = (int8_t)step;
    if (lows) out->low_steps[group0 + g] = (uint8_t)low_step;
    for (int64_t k = g * q->group; k < g * q->group + n; k++) {
      const float code = code_of(x[k] + least * low_step, scale * step) + (float)q->zero;
      out->codes[k] = (uint8_t)clamped(bad ? 0.0f : code, 0.0f, last);
    }
  }
}

void quant_round_row(const bs_quant *q, const float *x, const quant_row *out) {
  if ((q->flags & BS_QUANT_STEPS) != 0) {
    for (int64_t k = 0; k < q->cols; k += q->span) {
      quant_row at = *out;
      at.codes += k;
      round_span(q, x + k, q->cols - k < q->span ? q->cols - k : q->span, k / q->group, k / q->span, &at);
    }
    return;
  }
  for (int64_t k = 0, g = 0; k < q->cols; k += q->group, g++) {
    const int64_t n = q->cols - k < q->group ? q->cols - k : q->group;
    if (out->zeros != NULL)
      round_zero(q, x + k, n, out->codes + k, &out->scales[g], &out->zeros[g]);
    else
      round_even(q, x + k, n, out->codes + k, &out->scales[g]);
  }
}
