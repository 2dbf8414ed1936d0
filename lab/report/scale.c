/* SPDX-License-Identifier: MIT
 * scale.c - see svg.h. Ticks of a linear scale are 1, 2 or 5 times a power of ten apart; those of log2 are
 * powers of two; those of log10 powers of ten, with 2 and 5 between them where there is room. */
#include <math.h>
#include <stdio.h>

#include "lab/report/svg.h"

bs_scale bs_scale_of(enum bs_scale_kind kind) {
  return (bs_scale){.kind = kind, .low = INFINITY, .high = -INFINITY};
}

static int shows(const bs_scale *scale, double value) {
  return isfinite(value) && (scale->kind == BS_SCALE_LINEAR || value > 0);
}

void bs_scale_fit(bs_scale *scale, double value) {
  if (!shows(scale, value)) return;
  if (value < scale->low) scale->low = value;
  if (value > scale->high) scale->high = value;
}

/* Distance of ticks so that about five lie between low and high. */
static double linear_step(const bs_scale *scale) {
  const double raw = (scale->high - scale->low) / 5, power = pow(10, floor(log10(raw))), part = raw / power;
  return (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10) * power;
}

static void round_log(bs_scale *scale, double base) {
  double low = floor(log(scale->low) / log(base) + 1e-9), high = ceil(log(scale->high) / log(base) - 1e-9);
  if (low == high) {
    low -= 1;
    high += 1;
  }
  scale->low = pow(base, low);
  scale->high = pow(base, high);
}

/* Within a decade or so a power of ten at each end would leave most of the frame empty. */
static void round_log10(bs_scale *scale) {
  static const double steps[] = {1, 2, 5, 10};
  const double low = pow(10, floor(log10(scale->low) + 1e-9)),
               high = pow(10, floor(log10(scale->high) + 1e-9));
  double first = low, last = high * 10;
  for (int i = 0; i < 4; i++)
    if (low * steps[i] <= scale->low * (1 + 1e-9)) first = low * steps[i];
  for (int i = 3; i >= 0; i--)
    if (high * steps[i] >= scale->high * (1 - 1e-9)) last = high * steps[i];
  if (!(last > first)) {
    first /= 2;
    last *= 2;
  }
  scale->low = first;
  scale->high = last;
}

void bs_scale_round(bs_scale *scale) {
  if (!(scale->low <= scale->high)) {
    scale->low = scale->kind == BS_SCALE_LINEAR ? 0 : 1;
    scale->high = scale->kind == BS_SCALE_LINEAR ? 1 : 10;
  }
  if (scale->kind == BS_SCALE_LOG2) {
    round_log(scale, 2);
  } else if (scale->kind == BS_SCALE_LOG10) {
    round_log10(scale);
  } else {
    if (!(scale->high - scale->low > 1e-12 * fabs(scale->high))) {
      const double room = scale->high == 0 ? 1 : fabs(scale->high) / 2;
      scale->low -= room;
      scale->high += room;
    }
    const double step = linear_step(scale);
    scale->low = floor(scale->low / step + 1e-9) * step;
    scale->high = ceil(scale->high / step - 1e-9) * step;
  }
}

static double along(const bs_scale *scale, double value) {
  return scale->kind == BS_SCALE_LINEAR ? value : log2(value);
}

double bs_scale_at(const bs_scale *scale, double value) {
  if (!shows(scale, value)) return NAN;
  const double low = along(scale, scale->low), high = along(scale, scale->high);
  double part = (along(scale, value) - low) / (high - low);
  part = part < 0 ? 0 : part > 1 ? 1 : part;
  return scale->from + part * (scale->to - scale->from);
}

static size_t linear_ticks(const bs_scale *scale, double *out) {
  const double step = linear_step(scale), first = ceil(scale->low / step - 1e-9);
  size_t n = 0;
  while (n < BS_SVG_TICKS && (first + (double)n) * step <= scale->high + step * 1e-9) {
    out[n] = (first + (double)n) * step + 0.0; /* no -0 */
    ++n;
  }
  return n;
}

static size_t log2_ticks(const bs_scale *scale, double *out) {
  const int low = (int)ceil(log2(scale->low) - 1e-9), high = (int)floor(log2(scale->high) + 1e-9);
  const int step = (high - low) / 9 + 1;
  size_t n = 0;
  for (int i = low; i <= high && n < BS_SVG_TICKS; i += step) out[n++] = exp2(i);
  return n;
}

static size_t log10_ticks(const bs_scale *scale, double *out) {
  static const double parts[] = {1, 2, 5};
  const int low = (int)floor(log10(scale->low) + 1e-9), high = (int)ceil(log10(scale->high) - 1e-9);
  const int fine = high - low <= 3, step = (high - low) / 9 + 1;
  size_t n = 0;
  for (int i = low; i <= high; i += step) {
    for (int p = 0; p < (fine ? 3 : 1) && n < BS_SVG_TICKS; p++) {
      const double tick = pow(10, i) * parts[p];
      if (tick >= scale->low * (1 - 1e-9) && tick <= scale->high * (1 + 1e-9)) out[n++] = tick;
    }
  }
  return n;
}

size_t bs_scale_ticks(const bs_scale *scale, double out_ticks[BS_SVG_TICKS]) {
  return scale->kind == BS_SCALE_LINEAR ? linear_ticks(scale, out_ticks)
         : scale->kind == BS_SCALE_LOG2 ? log2_ticks(scale, out_ticks)
                                        : log10_ticks(scale, out_ticks);
}

void bs_svg_number(char out_text[32], double value) {
  const double size = fabs(value);
  if (size >= 1e15 || (size < 1e-3 && size > 0))
    snprintf(out_text, 32, "%.3g", value);
  else if (size >= 1e12)
    snprintf(out_text, 32, "%.4gT", value / 1e12);
  else if (size >= 1e9)
    snprintf(out_text, 32, "%.4gG", value / 1e9);
  else if (size >= 1e6)
    snprintf(out_text, 32, "%.4gM", value / 1e6);
  else if (size >= 1e5)
    snprintf(out_text, 32, "%.4gk", value / 1e3);
  else
    snprintf(out_text, 32, "%.5g", value);
}
