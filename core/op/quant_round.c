/* SPDX-License-Identifier: MIT
 * quant_round.c - rounds floats to the forms of quantised weights. Sums are made in f64. A group is fitted by
 * the distance of its largest and smallest value (with lows or zeros), else by its largest magnitude. */
#include <math.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/op/quant.h"

enum { GROUPS = 16 }; /* of a span: 256 / 16 */

/* A group's scale, and what its codes begin at: w = scale q - low. */
typedef struct fit {
  double scale, low;
  int32_t zero;
} fit;

/* The f16 next to a scale where that is near enough, else the f32. */
static float stored(double value) {
  const float wide = (float)value;
  uint16_t half;
  float back;
  bs_convert(BS_F16, &half, BS_F32, &wide, 1);
  bs_convert(BS_F32, &back, BS_F16, &half, 1);
  return fabs((double)back - value) <= fabs(value) / 256 ? back : wide;
}

static int32_t clamp(double value, int32_t low, int32_t high) {
  const double near = nearbyint(value);
  return near < low ? low : near > high ? high : (int32_t)near;
}

/* Codes without their zero: symmetric ones of 8 bits end at +-127, others at the ends of their bits. */
static int32_t lowest(const bs_quant *f, int32_t zero) {
  return f->bits == 8 && (f->flags & (BS_QUANT_ZEROS | BS_QUANT_LOWS)) == 0 && zero == 128 ? -127 : -zero;
}
static int32_t highest(const bs_quant *f, int32_t zero) {
  return (1 << f->bits) - 1 - zero;
}

static int32_t code_of(const bs_quant *f, const fit *g, double w) {
  if (g->scale == 0.0 || isnan(g->scale)) return 0;
  return clamp((w + g->low) / g->scale, lowest(f, g->zero), highest(f, g->zero));
}

/* The range of a group, 0 in it, and the value of the largest magnitude. Returns 0 for a NaN or infinity. */
static int measure(const float *w, int64_t n, double *out_min, double *out_max, double *out_peak) {
  double least = 0.0, most = 0.0, peak = 0.0;
  for (int64_t i = 0; i < n; i++) {
    const double v = (double)w[i];
    if (!isfinite(v)) return 0;
    if (v < least) least = v;
    if (v > most) most = v;
    if (fabs(v) > fabs(peak)) peak = v;
  }
  *out_min = least;
  *out_max = most;
  *out_peak = peak;
  return 1;
}

static fit fit_group(const bs_quant *f, const float *w, int64_t n) {
  const double top = (double)((1 << f->bits) - 1);
  fit g = {.zero = f->zero};
  double least, most, peak;
  if (!measure(w, n, &least, &most, &peak)) {
    g.scale = (double)NAN;
  } else if ((f->flags & BS_QUANT_LOWS) != 0) {
    g.scale = (most - least) / top;
    g.low = -least;
  } else if ((f->flags & BS_QUANT_ZEROS) != 0) {
    g.scale = (double)stored((most - least) / top);
    g.zero = g.scale > 0.0 ? clamp(-least / g.scale, 0, (int32_t)top) : f->zero;
  } else {
    g.scale = f->bits == 8 ? fabs(peak) / 127.0 : -peak / (double)f->zero;
  }
  return g;
}

/* The scale and the low of least squares for the codes that the fit gives; a worse kind is not taken. */
static void refine(const bs_quant *f, const float *w, int64_t n, fit *g) {
  double q1 = 0.0, q2 = 0.0, w1 = 0.0, wq = 0.0;
  for (int64_t i = 0; i < n; i++) {
    const double q = code_of(f, g, (double)w[i]), v = (double)w[i];
    q1 += q;
    q2 += q * q;
    w1 += v;
    wq += v * q;
  }
  const double count = (double)n, both = count * q2 - q1 * q1;
  if ((f->flags & BS_QUANT_LOWS) == 0) {
    if (q2 > 0.0) g->scale = wq / q2;
    return;
  }
  if (!(both > 0.0)) return;
  const double scale = (count * wq - q1 * w1) / both, low = (q1 * scale - w1) / count;
  if (scale > 0.0 && low >= 0.0) *g = (fit){scale, low, g->zero};
}

static void put_codes(const bs_quant *f, const float *w, int64_t n, const fit *g, uint8_t *codes) {
  for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)(code_of(f, g, (double)w[i]) + g->zero);
}

/* A group that has a scale, without steps. */
static void round_group(const bs_quant *f, const float *w, int64_t n, int64_t group, const bs_quant_rows *out,
                        uint8_t *codes) {
  fit g = fit_group(f, w, n);
  g.scale = (double)stored(g.scale);
  g.low = (double)stored(g.low);
  out->scales[group] = (float)g.scale;
  if (out->lows != NULL) out->lows[group] = (float)g.low;
  if (out->zeros != NULL) out->zeros[group] = (uint8_t)g.zero;
  put_codes(f, w, n, &g, codes);
}

/* The number by which whole steps of it reach every value, the largest in magnitude at `top` steps. */
static float step_size(const double *values, int n, double top) {
  double peak = 0.0;
  for (int i = 0; i < n; i++)
    if (isnan(values[i]) || fabs(values[i]) > fabs(peak)) peak = values[i];
  return stored(peak / top);
}

static int32_t steps_of(double value, float size, int32_t least, int32_t most) {
  return size == 0.0f || isnan(size) || isnan(value) ? 0 : clamp(value / (double)size, least, most);
}

/* A span: groups whose scales, and lows, are whole numbers of steps. */
static void round_span(const bs_quant *f, const float *w, int64_t n, int64_t span, int64_t first,
                       const bs_quant_rows *out, uint8_t *codes) {
  const int lows = (f->flags & BS_QUANT_LOWS) != 0, groups = (int)((n + f->group - 1) / f->group);
  fit fits[GROUPS];
  double scales[GROUPS], low[GROUPS];
  for (int g = 0; g < groups; g++) {
    const int64_t at = g * f->group, count = n - at < f->group ? n - at : f->group;
    fits[g] = fit_group(f, w + at, count);
    if (!isnan(fits[g].scale)) refine(f, w + at, count, &fits[g]);
    scales[g] = fits[g].scale;
    low[g] = fits[g].low;
  }
  const float size = step_size(scales, groups, lows ? 63.0 : -128.0);
  const float low_size = lows ? step_size(low, groups, 63.0) : 0.0f;
  out->scales[span] = size;
  if (lows) out->lows[span] = low_size;
  for (int g = 0; g < groups; g++) {
    const int64_t at = g * f->group, count = n - at < f->group ? n - at : f->group;
    const int32_t step = steps_of(scales[g], size, lows ? 0 : -128, lows ? 63 : 127);
    const int32_t low_step = lows ? steps_of(low[g], low_size, 0, 63) : 0;
    out->steps[first + g] = (int8_t)step;
    if (lows) out->low_steps[first + g] = (uint8_t)low_step;
    fits[g].scale = (double)(size * (float)step);
    fits[g].low = (double)(low_size * (float)low_step);
    put_codes(f, w + at, count, &fits[g], codes + at);
  }
}

void bs_quant_round(const bs_quant *f, const float *rows, int64_t stride, int64_t nrows,
                    const bs_quant_rows *out) {
  const int64_t groups = bs_quant_groups(f), spans = bs_quant_spans(f);
  const int steps = (f->flags & BS_QUANT_STEPS) != 0;
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t s = 0; s < spans; s++) {
      const int64_t at = s * f->span, n = f->cols - at < f->span ? f->cols - at : f->span;
      uint8_t *codes = out->codes + r * out->codes_stride + at;
      if (steps)
        round_span(f, rows + r * stride + at, n, r * spans + s, r * groups + at / f->group, out, codes);
      else
        round_group(f, rows + r * stride + at, n, r * groups + s, out, codes);
    }
}
