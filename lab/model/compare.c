/* SPDX-License-Identifier: MIT
 * compare.c - the numbers of an output against those expected: the deviation and the cosine distance. */
#include "lab/model/compare.h"

#include <math.h>
#include <string.h>

#include "core/base/deviation.h"

/* The largest 1 - cos of the rows (the last dimension); NaN if a row holds NaN. Two rows of zeros have the
 * distance 0. */
static double cosine_distance(uint32_t dtype, const void *got, const void *want, uint64_t count,
                              uint64_t row) {
  double worst = 0;
  for (uint64_t begin = 0; row > 0 && begin < count; begin += row) {
    double dot = 0, a2 = 0, b2 = 0;
    for (uint64_t i = begin; i < begin + row; i++) {
      const double a = bs_load_f64(dtype, got, (int64_t)i), b = bs_load_f64(dtype, want, (int64_t)i);
      if (bs_is_fill(dtype, b)) continue;
      dot += a * b;
      a2 += a * a;
      b2 += b * b;
    }
    const double distance = a2 == 0 && b2 == 0 ? 0 : a2 == 0 || b2 == 0 ? 1 : 1 - dot / sqrt(a2 * b2);
    if (!(distance <= worst) && !isnan(worst)) worst = distance;
  }
  return worst;
}

void bs_model_compare(uint32_t dtype, const void *got, const void *want, uint64_t count, uint64_t row,
                      const bs_model_limits *limits, bs_model_judged *out) {
  const int is_float = bs_dtype_is_float(dtype);
  bs_deviation d = {0};
  *out = (bs_model_judged){.limit = is_float ? limits->deviation : 0, .cosine = -1};
  for (uint64_t i = 0; i < count; i++)
    bs_deviation_add(&d, dtype, bs_load_f64(dtype, got, (int64_t)i), bs_load_f64(dtype, want, (int64_t)i));
  out->deviation = bs_deviation_of(&d);
  if (d.differs) {
    out->reason = "infinities or NaN are not where they are expected";
    return;
  }
  if (!is_float && memcmp(got, want, count * BS_DTYPE_BYTES(dtype)) != 0) {
    out->reason = "numbers differ";
  } else if (out->deviation > out->limit) {
    out->reason = "the deviation is over its limit";
  }
  if (!is_float || limits->cosine < 0) return;
  out->cosine = cosine_distance(dtype, got, want, count, row);
  if (!(out->cosine <= limits->cosine) && out->reason == NULL)
    out->reason = "the cosine distance is over its limit";
}
