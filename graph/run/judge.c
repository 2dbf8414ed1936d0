/* SPDX-License-Identifier: MIT
 * judge.c - compares the numbers of an output with those of the graph as written. The bound of a number is
 * SPREADS times the largest difference between right runs in its row, and the round-off of one node
 * (docs/dev/graph.md derives it). */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/deviation.h"
#include "core/base/error.h"
#include "graph/run/verify.h"

/* The kind of a number; STRUCK: it depends on one that overflows. */
enum { FINITE = 1, NOT_A_NUMBER = 2, ABOVE = 4, BELOW = 8, STRUCK = 16 };
static const double SPREADS = 16;

static unsigned char kind_of(double v) {
  return isnan(v) ? NOT_A_NUMBER : !isinf(v) ? FINITE : v > 0 ? ABOVE : BELOW;
}

static int is_fill(const goutput *o, double want) {
  return bs_is_fill(o->dtype, want);
}

int gnumber_too_large(uint32_t dtype, double x, double terms) {
  const double most = dtype == BS_F64 ? DBL_MAX : dtype == BS_F16 ? 65504 : (double)FLT_MAX;
  const double limit = dtype == BS_F16 ? most : sqrt(most / terms);
  return isfinite(x) && fabs(x) > limit && !(x >= -most && x <= -0.97 * most);
}

int32_t gnumbers_read(const bs_tensor *t, gnumber **out_numbers, bs_error *err) {
  uint64_t count = 1;
  for (uint32_t d = 0; d < t->rank; d++) count *= (uint64_t)t->dims[d];
  *out_numbers = calloc(count + 1u, sizeof **out_numbers);
  if (*out_numbers == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the numbers of an output");
  if (count > 0) bs_read_dense(bs_dtype_is_float(t->dtype) ? BS_F64 : BS_I64, *out_numbers, t);
  return BS_OK;
}

int32_t goutput_init(goutput *o, const bs_tensor *t, uint32_t dtype, bs_error *err) {
  *o = (goutput){.dtype = dtype, .is_float = (uint32_t)bs_dtype_is_float(dtype), .count = 1, .row = 1};
  for (uint32_t d = 0; d < t->rank; d++) o->count *= (uint64_t)t->dims[d];
  if (t->rank > 0 && t->dims[t->rank - 1] > 0) o->row = (uint64_t)t->dims[t->rank - 1];
  o->rows = o->count / o->row;
  const int32_t rc = gnumbers_read(t, &o->want, err);
  o->kinds = calloc(o->count + 1u, 1);
  o->spread = calloc(2u * (size_t)o->rows + 1u, sizeof *o->spread);
  o->scale = calloc(2u * (size_t)o->rows + 1u, sizeof *o->scale);
  if (rc != BS_OK) return rc;
  if (o->kinds == NULL || o->spread == NULL || o->scale == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the numbers of an output");
  for (uint64_t i = 0; o->is_float && i < o->count; i++) {
    const double w = o->want[i].f;
    o->kinds[i] = (unsigned char)(kind_of(w) | kind_of(bs_rounded(dtype, w)));
    double *scale = &o->scale[2u * (i / o->row) + (uint64_t)is_fill(o, w)];
    if (isfinite(w)) *scale = fmax(*scale, fabs(w));
  }
  return BS_OK;
}

void goutput_free(goutput *o) {
  free(o->want);
  free(o->kinds);
  free(o->spread);
  free(o->scale);
  *o = (goutput){0};
}

void goutput_learn(goutput *o, const gnumber *seen) {
  for (uint64_t i = 0; i < o->count; i++) {
    const double w = o->want[i].f, v = seen[i].f;
    double *spread = &o->spread[2u * (i / o->row)];
    if (!o->is_float) {
      if (seen[i].i != o->want[i].i) *spread = INFINITY; /* a place, a comparison: it may be any other */
      continue;
    }
    o->kinds[i] |= kind_of(v);
    spread += is_fill(o, w);
    if (isfinite(v) && isfinite(w)) *spread = fmax(*spread, fabs(v - w));
  }
}

void goutput_strike(goutput *o, const gnumber *seen) {
  for (uint64_t i = 0; i < o->count; i++) {
    double *spread = &o->spread[2u * (i / o->row)];
    if (!o->is_float) {
      if (seen[i].i != o->want[i].i) *spread = INFINITY;
    } else if (kind_of(seen[i].f) != kind_of(o->want[i].f)) {
      o->kinds[i] |= STRUCK;
    } else if (isfinite(seen[i].f) && isfinite(o->want[i].f)) { /* NaN became a number again */
      spread += is_fill(o, o->want[i].f);
      *spread = fmax(*spread, fabs(seen[i].f - o->want[i].f));
    }
  }
}

static void raise_worst(gworst *worst, uint32_t output, uint64_t index, gnumber value, double off,
                        double bound) {
  const double ratio = off <= bound ? off / fmax(bound, DBL_MIN) : bound > 0 ? off / bound : INFINITY;
  if (!(ratio > worst->ratio)) return;
  *worst = (gworst){ratio, output, index, value, bound};
}

/* 1: a number was compared. Whole numbers are equal, or right runs differ in the row too. */
static int judge_whole(const goutput *o, uint32_t index, uint64_t i, gnumber seen, gworst *worst) {
  if (o->spread[2u * (i / o->row)] > 0) return 0;
  const double off = fabs((double)seen.i - (double)o->want[i].i);
  raise_worst(worst, index, i, seen, seen.i == o->want[i].i ? 0 : fmax(off, 1), 0);
  return 1;
}

static int judge_float(const goutput *o, uint32_t index, uint64_t i, gnumber seen, const gjudging *io,
                       gworst *worst) {
  const double w = o->want[i].f, v = seen.f;
  const unsigned char kind = kind_of(v);
  if (o->kinds[i] & STRUCK) return 0;
  if (!isfinite(v) || !isfinite(w)) {
    if (kind == kind_of(w) || kind == kind_of(bs_rounded(o->dtype, w))) return 1;
    if (o->kinds[i] & kind || (io->infinite && !isfinite(w))) return 0;
    raise_worst(worst, index, i, seen, INFINITY, 0);
    return 1;
  }
  const uint64_t at = 2u * (i / o->row) + (uint64_t)is_fill(o, w);
  const double least = o->dtype == BS_F64 ? DBL_MIN : o->dtype == BS_F16 ? 0x1p-24 : (double)FLT_MIN;
  const double bound =
      SPREADS * o->spread[at] + (io->part + 4 * bs_dtype_unit_roundoff(o->dtype)) * o->scale[at];
  raise_worst(worst, index, i, seen, fabs(v - w), bound + least);
  return 1;
}

void goutput_judge(const goutput *o, uint32_t index, const gnumber *seen, gjudging *io, gworst *io_worst) {
  for (uint64_t i = 0; i < o->count; i++) {
    const int compared = o->is_float ? judge_float(o, index, i, seen[i], io, io_worst)
                                     : judge_whole(o, index, i, seen[i], io_worst);
    io->compared += (uint64_t)compared;
    io->skipped += (uint64_t)!compared;
  }
}
