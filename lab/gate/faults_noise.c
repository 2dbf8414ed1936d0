/* SPDX-License-Identifier: MIT
 * faults_noise.c - see faults_noise.h. */
#include "lab/gate/faults_noise.h"

#include <math.h>

#include "core/base/dtype.h"
#include "lab/gate/faults.h"

static double spread(const void *y, int64_t count, uint32_t dtype) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double v = bs_load_f64(dtype, y, i);
    sum += v * v;
  }
  return count > 0 ? sqrt(sum / (double)count) : 0.0;
}

/* The smallest |y| up to half the spread is the fairest place: its own rounding unit is small. */
static int64_t small_output(const void *y, int64_t count, uint32_t dtype, double limit) {
  for (int64_t i = 0; i < count; ++i) {
    const double v = fabs(bs_load_f64(dtype, y, i));
    if (v > 0.0 && v <= limit) return i;
  }
  return 0;
}

/* T3's bound for sums over ranks in a dtype, on a typical output. `rms` is the spread of the whole outputs;
 * that of the ranks' terms and partial sums follows from the number of their columns. */
static double bound_of_sums(uint32_t ranks, uint32_t reduce_dtype, double rms) {
  const double P = ranks;
  if (reduce_dtype == BS_I8) return 0.5 * 2.85 / 127.0 * rms * (sqrt(P) + 1.0);
  double sizes = sqrt(P); /* P terms of rms / sqrt(P) */
  for (uint32_t j = 2; j <= ranks; ++j) sizes += sqrt(j / P);
  return 0.8 * bs_dtype_unit_roundoff(reduce_dtype) * rms * sizes; /* E|v| = 0.8 rms */
}

/* The bound for dZ. It is rounded to Y's dtype, and its slope is off because Z is off: where the slope
 * changes, |Z| is about 1, and at T6's shape the spread of Z is 16. */
static double carried_bound(const bs_case *c, int summed) {
  if (c->spec.activation < BS_ACT_GELU) return 0.0;
  const double z = summed ? bound_of_sums(c->world_size, bs_arithmetic_of(&c->spec).reduce_dtype, 1.0) : 0.0;
  return 4.0 * (bs_dtype_unit_roundoff(c->spec.y_dtype) + 4.0 * z);
}

/* Outputs are sums over ranks if K is split; dX is one if backward reduces, never in int8 steps. */
bs_fault_noise bs_fault_noise_of(const bs_case *c, const bs_proposal *p) {
  const int backward = (c->spec.flags & BS_LAYER_BACKWARD) != 0, summed = p->split == BS_SPLIT_K;
  bs_fault_noise noise = {.ranks = c->world_size,
                          .sums = !backward && summed,
                          .arithmetic = bs_arithmetic_of(&c->spec),
                          .partial = !backward && c->spec.y_placement == BS_PARTIAL,
                          .carried = backward ? carried_bound(c, summed && c->world_size > 1) : 0.0};
  if (backward) noise.sums = bs_fault_backward(p, BS_COLL_ALL_REDUCE) > 0;
  if (backward && noise.arithmetic.reduce_dtype == BS_I8) noise.arithmetic.reduce_dtype = BS_F32;
  return noise;
}

/* The error to add: 0.044 of the spread, which most sums distinguish from round-off. If the wire or the dtype
 * hides that, a small multiple of their largest error. */
static double output_off(const bs_fault_noise *n, double rms, double value, uint32_t dtype) {
  const double whole = n->partial ? rms * sqrt((double)n->ranks) : rms;
  const double sums =
      n->ranks > 1 && n->sums ? bound_of_sums(n->ranks, n->arithmetic.reduce_dtype, whole) : 0.0;
  return fmax(0.044 * rms, 4.0 * (sums + n->carried * rms + 0.5 * bs_ulp(dtype, value)));
}

void bs_fault_put_off(const bs_fault_noise *n, void *y, int64_t count, uint32_t dtype) {
  const double rms = spread(y, count, dtype);
  const int64_t at = small_output(y, count, dtype, 0.5 * rms);
  const double value = bs_load_f64(dtype, y, at);
  bs_store_f64(dtype, y, at, value + output_off(n, rms, value, dtype));
}
