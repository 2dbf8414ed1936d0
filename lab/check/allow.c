/* SPDX-License-Identifier: MIT
 * allow.c - widens bounds and predictions for layers that other programs ran: the bias may be added anywhere,
 * the columns of ranks may be unknown, partials and products may be equal. */
#include <math.h>
#include <stdlib.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/check/checking.h"
#include "lab/error.h"

/* Unknown columns may give larger partials than the guessed ones. Let S be the sum of K products and E their
 * energy. For most outputs the sum of a P-th part lies within S/P +- 4 sqrt(E/P). E is at most about 2
 * magnitude^2 / K for normally distributed products. P partials and P-1 partial sums are rounded. */
static void allow_other_columns(bs_checking *c) {
  const double P = c->ranks, u = bs_dtype_unit_roundoff(c->options.reduce_dtype);
  if (c->reference.partial == NULL || c->columns_known || c->ranks < 2) return;
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    const double spread = c->reference.magnitude[at] * sqrt(2.0 / (double)c->K);
    const double more = u * 4.0 * spread * (sqrt(P) + (P - 1.0) / 2.0);
    const double z = bs_checking_sum(c, at);
    if (!isfinite(more) || !isfinite(z)) continue;
    c->bound[at] += more;
    c->prediction.bound[at] += more * bs_activation_slope(c->options.activation, z - more, z + more);
  }
}

/* Places where the bias may be added: to rank 0's product, as in the reference; to the last rank's; a share
 * to each; or after the sum. */
enum place { FIRST, LAST, EACH, BEHIND, PLACES };

static double bias_at(const bs_checking *c, enum place place, uint32_t r, double bias) {
  if (place == FIRST) return r == 0 ? bias : 0.0;
  if (place == LAST) return r + 1 == c->ranks ? bias : 0.0;
  return place == EACH ? bias / c->ranks : 0.0;
}

/* One output: the known products of the ranks, and the number of ranks with an equal partial, which has an
 * equal error. */
typedef struct terms {
  double product[BS_CHECK_RANKS + 1], alike[BS_CHECK_RANKS + 1];
} terms;

enum { COMPARED = 32 }; /* ranks; of more, equal ones are not counted */

static void get_terms(const bs_checking *c, int64_t at, terms *out) {
  const int dumped = c->terms && !c->columns_known && c->set->partial.n == c->ranks;
  double partial[COMPARED];
  for (uint32_t r = 0; r < c->ranks; r++) {
    out->product[r] = bs_checking_product(c, r, at);
    out->alike[r] = 1.0;
    if (r < COMPARED) partial[r] = dumped ? bs_checking_partial(c, r, at) : out->product[r];
  }
  for (uint32_t r = 0; c->ranks <= COMPARED && r < c->ranks; r++)
    for (uint32_t q = 0; q < c->ranks; q++) out->alike[r] += q != r && partial[q] == partial[r];
}

/* Adds up sizes and variance of the values that one sum rounds: each partial, each partial sum. */
static void add_roundings(const bs_checking *c, enum place place, const terms *t, double bias, double *size,
                          double *variance) {
  double sum = 0;
  *size = *variance = 0;
  for (uint32_t r = 0; r < c->ranks; r++) {
    const double part = t->product[r] + bias_at(c, place, r, bias);
    const double ulp = part != 0.0 ? bs_ulp(c->options.reduce_dtype, part) : 0.0;
    sum += part;
    const double of_sum = r > 0 ? bs_ulp(c->options.reduce_dtype, sum) : 0.0;
    *size += fabs(part) + (r > 0 ? fabs(sum) : 0.0);
    /* A rank with only a share of the bias has the same error for every token, at most half an ulp. */
    const double same = t->product[r] == 0.0 ? 3.0 : 1.0;
    *variance += (ulp * ulp * t->alike[r] * same + of_sum * of_sum) / 12.0;
  }
}

/* Allows the largest difference between the reference's place of the bias and any other place. */
static void allow_places(bs_checking *c, int64_t at, const terms *t) {
  const double z = bs_checking_sum(c, at), bias = bs_checking_bias(c, at);
  double first = 0, size = 0, variance = 0;
  for (int place = FIRST; place < (bias != 0.0 ? PLACES : LAST); place++) {
    double sizes, variances;
    add_roundings(c, (enum place)place, t, bias, &sizes, &variances);
    if (place == FIRST) first = sizes;
    size = fmax(size, sizes);
    variance = fmax(variance, variances);
  }
  const double more = bs_dtype_unit_roundoff(c->options.reduce_dtype) * (size - first);
  const double slope = bs_activation_slope(c->options.activation, z - more, z + more);
  if (!isfinite(more) || !isfinite(z)) return;
  c->bound[at] += more;
  c->prediction.bound[at] += more * slope;
  c->prediction.variance[at] = fmax(c->prediction.variance[at], slope * slope * variance);
}

static void allow_all_places(bs_checking *c) {
  terms t;
  if (c->reference.partial == NULL || c->ranks < 2) return;
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    get_terms(c, at, &t);
    allow_places(c, at, &t);
  }
}

/* All values of a row that are not zero are one value. */
static int is_flat(const bs_source *s, int64_t row, double *room, bs_error *err) {
  double value = 0.0;
  if (s->read(s->ctx, row, 1, NULL, BS_F64, room, s->cols, err) != BS_OK) return 0;
  for (int64_t k = 0; k < s->cols; k++) {
    if (room[k] == 0.0) continue;
    if (value != 0.0 && room[k] != value) return 0;
    value = room[k];
  }
  return 1;
}

/* Equal products: the roundings of their sum are to one side, so that K of them count, and not their root. */
static void allow_equal_products(bs_checking *c, int64_t at) {
  const double u = c->options.y_dtype == BS_F64 ? 0x1p-53 : 0x1p-24, z = bs_checking_sum(c, at);
  const double more = ((double)c->K + 1.0) * u * c->reference.magnitude[at];
  const double slope = bs_activation_slope(c->options.activation, z - more, z + more);
  if (!isfinite(more) || !isfinite(z)) return;
  c->bound[at] += more;
  c->prediction.bound[at] += more * slope;
  c->prediction.variance[at] += slope * slope * more * more / 4.0;
}

static int32_t allow_all_equal_products(bs_checking *c, bs_error *err) {
  const int64_t F = c->reference.features;
  double *room = malloc((size_t)c->K * sizeof *room);
  uint8_t *flat = calloc((size_t)F, 1);
  if (room == NULL || flat == NULL) {
    free(room);
    free(flat);
    return bs_no_memory(err, "a row of W");
  }
  for (int64_t f = 0; f < F; f++) flat[f] = (uint8_t)is_flat(&c->w, c->reference.feature[f], room, err);
  for (int64_t b = 0; b < c->B; b++) {
    if (!is_flat(&c->x, b, room, err)) continue;
    for (int64_t f = 0; f < F; f++)
      if (flat[f]) allow_equal_products(c, b * F + f);
  }
  free(room);
  free(flat);
  return BS_OK;
}

int32_t bs_checking_allow(bs_checking *c, bs_error *err) {
  allow_all_places(c);
  allow_other_columns(c);
  return allow_all_equal_products(c, err);
}
