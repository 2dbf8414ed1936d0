/* SPDX-License-Identifier: MIT
 * stored.c - sums that were rounded to Y's dtype before gelu or silu, as PyTorch's F.linear does in 16 bits.
 * The sum is known to within a bound e, so that its stored value is known, or one of few neighbours. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/check/checking.h"
#include "lab/error.h"

typedef struct as_stored {
  double *y;
  bs_prediction prediction;
} as_stored;

static void drop(as_stored *s) {
  bs_prediction_free(&s->prediction);
  free(s->y);
}

static int make_room(const bs_checking *c, as_stored *out) {
  const size_t n = (size_t)(c->B * c->reference.features) + 1;
  out->y = calloc(n, sizeof(double));
  out->prediction.bound = calloc(n, sizeof(double));
  out->prediction.variance = calloc(n, sizeof(double));
  out->prediction.slope2 = calloc(n, sizeof(double));
  return out->y && out->prediction.bound && out->prediction.variance && out->prediction.slope2;
}

/* Predicts one output whose sum z is known to within e: it is evaluated from the stored sum, and rounded once
 * more. If the stored sum may be a neighbour, half of the distance to it is typical. */
static void one_output(const bs_checking *c, int64_t at, double e, as_stored *out) {
  const uint32_t dtype = c->options.y_dtype, f = c->options.activation;
  const double u = bs_dtype_unit_roundoff(dtype), z = bs_checking_sum(c, at);
  const double kept = bs_checking_stored(dtype, z), low = bs_checking_stored(dtype, z - e),
               high = bs_checking_stored(dtype, z + e), off = fmax(kept - low, high - kept);
  const double y = bs_activation_value(f, kept), slope = bs_activation_slope(f, low, high);
  const double near = bs_activation_error(f, kept, 0x1p-24),
               tail = bs_activation_tail_error(f, kept, 0x1p-24);
  const double ulp = bs_ulp(dtype, y), half = slope * off / 2.0;
  out->y[at] = y;
  out->prediction.slope2[at] = slope * slope;
  out->prediction.bound[at] =
      (1.0 + u) * (slope * off + near + tail) + u * fabs(y) + 0.5 * bs_ulp(dtype, 0.0);
  out->prediction.variance[at] = ulp * ulp / 12.0 + near * near / 64.0 + tail * tail / 16.0 + half * half;
}

static void predict(const bs_checking *c, const double *e, as_stored *out) {
  double variance = 0.0, norm = 0.0;
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    out->y[at] = c->reference.y[at];
    out->prediction.bound[at] = c->prediction.bound[at];
    const double z = bs_checking_sum(c, at);
    if (!isfinite(z) || !isfinite(bs_checking_stored(c->options.y_dtype, fabs(z) + e[at]))) continue;
    one_output(c, at, e[at], out);
    variance += out->prediction.variance[at];
    norm += out->y[at] * out->y[at];
  }
  out->prediction.relative = norm > 0 ? sqrt(variance / norm) : 0.0;
}

/* The largest error of each sum before it is stored, for sums in f32. */
static int32_t bound_sums(const bs_checking *c, double *e, bs_error *err) {
  bs_reference plain = c->reference; /* owns nothing */
  bs_arithmetic sums = c->arithmetic;
  plain.y = plain.pre;
  plain.pre = NULL;
  sums.activation = BS_ACT_NONE;
  sums.y_dtype = BS_F32;
  return bs_bound_sums(&plain, &sums, e, err);
}

/* Fewer outputs over their bound; of as many the smaller error, in units of the prediction. */
static int fits_better(const bs_judgement *a, const bs_judgement *b) {
  if (a->wrong != b->wrong) return a->wrong < b->wrong;
  return a->measured * b->predicted < b->measured * a->predicted;
}

static void take_over(bs_checking *c, as_stored *s) {
  double *y = c->reference.y;
  const bs_prediction prediction = c->prediction;
  c->reference.y = s->y;
  c->prediction = s->prediction;
  c->sum_stored = 1;
  s->y = y;
  s->prediction = prediction;
}

static int32_t judge_stored(bs_checking *c, as_stored *s, double *e, bs_judgement *inout, bs_error *err) {
  bs_judgement j;
  const int32_t rc = bound_sums(c, e, err);
  if (rc != BS_OK) return rc;
  predict(c, e, s);
  bs_reference as_read = c->reference; /* owns nothing */
  as_read.y = s->y;
  bs_judge(&as_read, &c->arithmetic, &s->prediction, c->y[c->worst_rank], c->N, 0, c->N, &j);
  if (!fits_better(&j, inout)) return BS_OK;
  take_over(c, s);
  *inout = j;
  return BS_OK;
}

/* 1: a rounding of the sum to Y's dtype is one more than that of its accumulator. */
static int applies(const bs_checking *c) {
  return c->options.activation > BS_ACT_RELU && bs_dtype_unit_roundoff(c->options.y_dtype) > 0x1p-24;
}

int32_t bs_checking_try_stored(bs_checking *c, bs_judgement *inout, bs_error *err) {
  as_stored s = {0};
  int32_t rc = BS_OK;
  if (!applies(c)) return BS_OK;
  double *e = calloc((size_t)(c->B * c->reference.features) + 1, sizeof *e);
  if (e == NULL || !make_room(c, &s)) {
    rc = bs_no_memory(err, "sums as they were stored");
  } else {
    rc = judge_stored(c, &s, e, inout, err);
  }
  drop(&s);
  free(e);
  return rc;
}
