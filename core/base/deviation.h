/* SPDX-License-Identifier: MIT
 * deviation.h - how far numbers are from those expected, relative to the largest expected one.
 * A number that fills a mask (-1e9, the lowest number of a dtype) would be the largest, and every other
 * relative difference would round to 0. So a fill is compared relative to itself only. */
#ifndef BS_CORE_BASE_DEVIATION_H
#define BS_CORE_BASE_DEVIATION_H
#include <math.h>

#include "core/base/dtype.h"

typedef struct bs_deviation {
  double scale; /* the largest |expected| that is not a fill; a caller may begin with more than 0 */
  double off;   /* the largest |got - expected| where no fill is expected */
  double fills; /* the largest |got - expected| / |expected| where a fill is expected */
  int differs;  /* 1: infinities or NaN are not where they are expected */
} bs_deviation;

/* 1: a number of that float dtype is as large as only fills of masks are. */
static inline int bs_is_fill(uint32_t dtype, double value) {
  return bs_dtype_is_float(dtype) && fabs(value) >= (dtype == BS_F16 ? 65504.0 : 1e8);
}

/* The number that `want` is in a dtype. */
static inline double bs_rounded(uint32_t dtype, double want) {
  unsigned char element[8];
  bs_store_f64(dtype, element, 0, want);
  return bs_load_f64(dtype, element, 0);
}

/* `want` may have more digits than the dtype of `got`, and a larger range. */
static inline void bs_deviation_add(bs_deviation *d, uint32_t dtype, double got, double want) {
  if (isinf(got)) want = bs_rounded(dtype, want);
  if (!isfinite(got) || !isfinite(want)) {
    if (got != want && !(isnan(got) && isnan(want))) d->differs = 1;
    return;
  }
  const double off = fabs(got - want);
  if (bs_is_fill(dtype, want)) {
    d->fills = fmax(d->fills, off / fabs(want));
  } else {
    d->off = fmax(d->off, off);
    d->scale = fmax(d->scale, fabs(want));
  }
}

/* INFINITY where `differs`. */
static inline double bs_deviation_of(const bs_deviation *d) {
  return d->differs ? INFINITY : fmax(d->fills, d->scale > 0 ? d->off / d->scale : d->off);
}
#endif
