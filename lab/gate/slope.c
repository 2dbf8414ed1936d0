/* SPDX-License-Identifier: MIT
 * slope.c - see slope.h. */
#include "lab/gate/slope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/case/owners.h"
#include "lab/error.h"
#include "lab/gate/verdict.h"

/* Z is kept as wide as its sum was made: in the dtype of sums over ranks, else in f32 or f64. */
static bs_arithmetic arithmetic_of_z(const bs_layer_spec *s, const bs_case_result *run, int summed) {
  bs_arithmetic a = bs_arithmetic_of_run(s, run);
  a.activation = BS_ACT_NONE;
  a.y_dtype = bs_case_wide(s);
  if (summed) a.y_dtype = a.reduce_dtype == BS_I8 ? (uint32_t)BS_F32 : a.reduce_dtype;
  return a;
}

/* The kink of relu: the side is Y's, but for a Z that is positive and too small for Y's dtype. */
static double at_the_kink(const bs_case *c, uint32_t z_dtype, double z, double reach, double y, double dy,
                          double *error) {
  const double lost = z_dtype == c->spec.y_dtype ? 0.0 : 0.5 * bs_ulp(c->spec.y_dtype, 0.0);
  if (y > 0.0) return 1.0;
  if (lost > 0x1p-40 * reach && z + reach > 0.0) *error = fabs(dy);
  return 0.0;
}

static double rounded(uint32_t dtype, double value) {
  uint64_t room = 0;
  bs_store_f64(dtype, &room, 0, value);
  return bs_load_f64(dtype, &room, 0);
}

/* One element: z as the reference has it, `reach` at most from the layer's. */
static void one(const bs_case *c, uint32_t z_dtype, double z, double reach, double y, double dy, double *dz,
                double *bound2) {
  const uint32_t f = c->spec.activation;
  double slope = bs_activation_slope_at(f, z), error = 0.0;
  if (f == BS_ACT_RELU && fabs(z) <= reach) slope = at_the_kink(c, z_dtype, z, reach, y, dy, &error);
  *bound2 = error * error;
  *dz = dy * slope;
  if (f == BS_ACT_NONE || f == BS_ACT_RELU || !isfinite(*dz)) return;
  const double u = c->spec.y_dtype == BS_F64 ? 0x1p-53 : 0x1p-24;
  const double moved = reach * bs_activation_bend(f, z - reach, z + reach);
  const double evaluated = bs_activation_slope_error(f, slope, u);
  const double most = fabs(dy) * (fmin(moved, 2.0 * bs_activation_slope(f, -INFINITY, INFINITY)) + evaluated);
  const double low = rounded(c->spec.y_dtype, *dz - most);
  if (isfinite(low) &&
      low == rounded(c->spec.y_dtype, *dz + most)) { /* rounding keeps the order: the layer's is this one */
    *dz = low;
    return;
  }
  error = most + 0.5 * bs_ulp(c->spec.y_dtype, fabs(*dz) + most);
  *bound2 = error * error;
}

/* Any division of the sum: no term, and no sum of some, is larger than the sum of all sizes. Of int8 steps,
 * which are those of the largest terms of many, others are alike. */
static double reach_of_any(const bs_reference *ref, const bs_arithmetic *a, double reach, int64_t at) {
  if (a->reduce_dtype == BS_I8) return 4.0 * reach;
  return reach + bs_dtype_unit_roundoff(a->reduce_dtype) * 2.0 * ref->world_size * ref->magnitude[at];
}

static int32_t reference_of_z(const bs_case *c, const bs_case_result *result, bs_reference *out,
                              bs_error *err) {
  uint32_t *column_rank = NULL;
  bs_case teller = *c;
  bs_owners owners = bs_owners_of(c, result);
  int32_t rc = bs_case_column_ranks(c, result, &column_rank, err);
  const bs_reference_request request = bs_verdict_request(c, result, column_rank, &owners, &teller);
  if (rc == BS_OK) rc = bs_reference_compute(&request, out, err);
  free(column_rank);
  return rc;
}

int32_t bs_slopes_make(const bs_case *c, const bs_case_result *result, const bs_slopes_given *given,
                       bs_slopes *out, bs_error *err) {
  const int64_t n = c->spec.B * c->spec.N;
  memset(out, 0, sizeof *out);
  out->dz = calloc((size_t)n + 1, sizeof(double));
  out->bound2 = calloc((size_t)n + 1, sizeof(double));
  if (!out->dz || !out->bound2) {
    bs_slopes_free(out);
    return bs_no_memory(err, "%lld x %lld slopes", (long long)c->spec.B, (long long)c->spec.N);
  }
  bs_reference ref = {0};
  int32_t rc = reference_of_z(c, result, &ref, err);
  ref.bias_error = given->bias_error;
  ref.gaps = given->gaps;
  const bs_arithmetic a = arithmetic_of_z(&c->spec, result, ref.partial != NULL && result->world_size > 1);
  if (rc == BS_OK) rc = bs_bound_sums(&ref, &a, out->bound2, err);
  for (int64_t i = 0; rc == BS_OK && i < n; ++i) {
    double reach = out->bound2[i];
    if (given->moved && ref.partial) reach = reach_of_any(&ref, &a, reach, i);
    one(c, a.y_dtype, ref.y[i], reach, bs_load_f64(given->dtype, given->y, i),
        bs_load_f64(given->dtype, given->dy, i), &out->dz[i], &out->bound2[i]);
  }
  bs_reference_free(&ref);
  if (rc != BS_OK) bs_slopes_free(out);
  return rc;
}

void bs_slopes_free(bs_slopes *s) {
  free(s->dz);
  free(s->bound2);
  memset(s, 0, sizeof *s);
}
