/* SPDX-License-Identifier: MIT
 * partial.c - gates `partial` and `sum`: each rank's partial against the product of its columns, and Y
 * against the sum of the partials. NaN and Inf are right if the inputs cause them. */
#include <math.h>
#include <stdlib.h>

#include "core/base/dtype.h"
#include "lab/activation.h"
#include "lab/check/checking.h"

/* The part of the bias that a partial may hold. */
enum share { NONE, WHOLE, PART, SHARES };

/* Ways in which the ranks add the bias. EVERY is a mistake; if it fits, the text says so. */
enum way { AFTERWARDS, ON_ONE, DIVIDED, EVERY, WAYS };

/* Is got right for `want`, which is known to within `bound`? It must be the same NaN, the same infinity after
 * conversion to `dtype`, or beyond the range of dtype. Only for values that are not finite on one side. */
static int same_kind(uint32_t dtype, double want, double bound, double got) {
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
  return got == want || got == bs_checking_stored(dtype, want) ||
         got == bs_checking_stored(dtype, copysign(fabs(want) + bound, want));
}

/* The error in units of the bound. */
static double off_by(uint32_t dtype, double want, double got, double bound) {
  if (!isfinite(want) || !isfinite(got)) return same_kind(dtype, want, bound, got) ? 0.0 : INFINITY;
  return got == want ? 0.0 : bound > 0 && isfinite(bound) ? fabs(got - want) / bound : INFINITY;
}

/* The bound of one partial. NaN and Inf in another rank's partial remove the bound of the whole sum, but not
 * this one. */
static double bound_of(const bs_checking *c, int64_t at, double want) {
  const double u = c->options.y_dtype == BS_F64 ? 0x1p-53 : 0x1p-24;
  if (isfinite(c->bound[at])) return c->bound[at];
  return bs_dtype_unit_roundoff(c->options.reduce_dtype) * fabs(want) +
         4.0 * sqrt((double)c->K + 1.0) * u * c->reference.magnitude[at] +
         bs_ulp(c->options.reduce_dtype, 0.0);
}

/* The largest distance of rank r's partial from the product of its columns with each share of the bias. */
static void partial_off(const bs_checking *c, uint32_t r, double out_off[SHARES]) {
  const double of_bias[SHARES] = {0.0, 1.0, 1.0 / c->ranks};
  for (int s = 0; s < SHARES; s++) out_off[s] = 0.0;
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    const double product = bs_checking_product(c, r, at), bias = bs_checking_bias(c, at);
    const double got = bs_checking_partial(c, r, at);
    if (isnan(got) && c->arithmetic.zero_products && c->reference.token_nonfinite[at / c->reference.features])
      continue;
    for (int s = 0; s < SHARES; s++) {
      const double want = s == NONE ? product : product + of_bias[s] * bias;
      out_off[s] = fmax(out_off[s], off_by(c->options.reduce_dtype, want, got, bound_of(c, at, want)));
    }
  }
}

/* The worst of a way; whole: the rank with the bias of ON_ONE. */
static double worst_of(double (*off)[SHARES], uint32_t n, enum share share, uint32_t whole,
                       int32_t *out_rank) {
  double worst = -1.0;
  for (uint32_t r = 0; r < n; r++) {
    const double mine = off[r][r == whole ? WHOLE : share];
    if (mine > worst) *out_rank = (int32_t)r;
    worst = fmax(worst, mine);
  }
  return worst;
}

/* The way that fits best, its worst rank, and that rank's error in bounds. */
static enum way find_way(const bs_checking *c, double (*off)[SHARES], int32_t *out_rank, double *out_worst) {
  static const enum share shares[WAYS] = {NONE, NONE, PART, WHOLE};
  const uint32_t n = c->set->partial.n;
  enum way best = AFTERWARDS;
  *out_worst = worst_of(off, n, NONE, UINT32_MAX, out_rank);
  for (int way = ON_ONE; way < WAYS && c->set->bias.n > 0; way++) {
    for (uint32_t r = 0; r < (way == ON_ONE ? n : 1); r++) {
      int32_t rank = -1;
      const double worst = worst_of(off, n, shares[way], way == ON_ONE ? r : UINT32_MAX, &rank);
      if (worst >= *out_worst || (way == EVERY && (n < 2 || worst > 1.0))) continue;
      *out_worst = worst;
      *out_rank = rank;
      best = way;
    }
  }
  return best;
}

static void judge_products(const bs_checking *c, bs_gate *gate) {
  static const char *const words[WAYS] = {"", "", "; each holds the bias divided by the ranks",
                                          "; every one holds the whole bias"};
  double(*off)[SHARES] = calloc(c->set->partial.n, sizeof *off), worst = INFINITY;
  int32_t rank = 0;
  enum way way = AFTERWARDS;
  for (uint32_t r = 0; off != NULL && r < c->set->partial.n; r++) partial_off(c, r, off[r]);
  if (off != NULL) way = find_way(c, off, &rank, &worst);
  free(off);
  if (way == EVERY) worst = INFINITY;
  bs_gate_set(gate, "partial", rank, worst, 1.0, "worst |error|/bound of a rank's partial%s", words[way]);
}

static int is_zero(const bs_checking *c, uint32_t r) {
  for (int64_t at = 0; at < c->B * c->reference.features; at++)
    if (bs_checking_partial(c, r, at) != 0.0) return 0;
  return 1;
}

/* Do the partials add up to X W^T, with the bias or without it? Then a partial of zeros lacks nothing. */
static int add_up(const bs_checking *c) {
  int fits[2] = {1, 1};
  for (int64_t at = 0; at < c->B * c->reference.features && (fits[0] || fits[1]); at++) {
    double sum = 0;
    for (uint32_t r = 0; r < c->set->partial.n; r++) sum += bs_checking_partial(c, r, at);
    if (isnan(sum) && c->arithmetic.zero_products) continue;
    const double want = bs_checking_sum(c, at), bias = bs_checking_bias(c, at);
    fits[0] &= off_by(c->options.reduce_dtype, want, sum, 2.0 * c->bound[at]) <= 1.0;
    fits[1] &=
        !isfinite(bias) || off_by(c->options.reduce_dtype, want - bias, sum, 2.0 * c->bound[at]) <= 1.0;
  }
  return fits[0] || fits[1];
}

/* Judges without columns: then only a partial of zeros that lacks something is certainly wrong. */
static void judge_zeros(const bs_checking *c, bs_gate *gate) {
  for (uint32_t r = 0; c->ranks > 1 && r < c->set->partial.n; r++) {
    if (!is_zero(c, r) || add_up(c)) continue;
    bs_gate_set(gate, "partial", (int32_t)r, INFINITY, 1.0,
                "the partial is all zeros, and the others do not make X W^T");
    return;
  }
  bs_gate_skip(gate, c->columns_why);
}

void bs_check_partials(const bs_checking *c, bs_gate *gate) {
  if (!c->terms)
    bs_gate_skip(gate, "no partials of [B,N]");
  else if (c->columns_known)
    judge_products(c, gate);
  else
    judge_zeros(c, gate);
}

/* The distance of Y from act(sum), where the sum may have been stored in Y's dtype. */
static double sum_off(const bs_checking *c, int64_t at, double sum) {
  const uint32_t dtype = c->options.y_dtype;
  const double want =
      bs_activation_value(c->options.activation, c->sum_stored ? bs_checking_stored(dtype, sum) : sum);
  const double got = bs_checking_y(c, c->worst_rank, at);
  if (isinf(sum) && sum < 0 && c->options.activation > BS_ACT_RELU)
    return got == 0.0 || isnan(got) ? 0.0 : INFINITY; /* the limit, or -Inf times 0 */
  if (isnan(got) && isinf(sum) && (c->arithmetic.zero_products || c->options.activation == BS_ACT_GELU))
    return 0.0;
  return off_by(dtype, want, got, c->prediction.bound[at]);
}

/* Judges the sum of the partials, with the bias or without. Y and the sum may each be off by the bound. */
void bs_check_sum(const bs_checking *c, bs_gate *gate) {
  double off[2] = {0, 0};
  if (!c->terms || c->set->partial.n < c->ranks) {
    bs_gate_skip(gate, c->terms ? "partials of some ranks only" : "no partials of [B,N]");
    return;
  }
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    double sum = 0;
    for (uint32_t r = 0; r < c->set->partial.n; r++) sum += bs_checking_partial(c, r, at);
    off[0] = fmax(off[0], sum_off(c, at, sum));
    off[1] = fmax(off[1], sum_off(c, at, sum + bs_checking_bias(c, at)));
  }
  bs_gate_set(gate, "sum", (int32_t)c->worst_rank, fmin(off[0], off[1]), 2.0,
              "worst |Y - sum of partials|/bound; %u partials", c->set->partial.n);
}
