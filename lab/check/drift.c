/* SPDX-License-Identifier: MIT
 * drift.c - gate `drift`: errors to one side, of all outputs or away from zero, in units of the predicted
 * deviation. Outputs that were stored as the same value count once, by the mean of their errors: equal tokens
 * and equal features have equal errors, however many there are. */
#include <math.h>
#include <stdlib.h>

#include "lab/activation.h"
#include "lab/check/checking.h"

/* With fewer different values the limit is above the half ulp of truncated values. */
enum { FEWEST_VALUES = 24 };

/* One output: its stored value and its error. */
typedef struct drifting {
  double y, up, away, allowed;
} drifting;

/* Sums over groups of equal values. */
typedef struct drift {
  double up, away, up2, away2, allowed, n;
} drift;

static int by_value(const void *a, const void *b) {
  const double x = ((const drifting *)a)->y, y = ((const drifting *)b)->y;
  return (x > y) - (x < y);
}

/* The error that evaluating the activation may add to one side. */
static double allowed_at(const bs_checking *c, int64_t at) {
  const double u = c->options.y_dtype == BS_F64 ? 0x1p-53 : 0x1p-24, z = bs_checking_sum(c, at);
  return bs_activation_error(c->options.activation, z, u) +
         bs_activation_tail_error(c->options.activation, z, u);
}

static int64_t gather(const bs_checking *c, drifting *out) {
  int64_t n = 0;
  for (int64_t at = 0; at < c->B * c->reference.features; at++) {
    const double want = c->reference.y[at], got = bs_checking_y(c, c->worst_rank, at);
    const double deviation = sqrt(c->prediction.variance[at]), error = (got - want) / deviation;
    if (!isfinite(got - want) || !(deviation > 0)) continue;
    out[n++] = (drifting){got, error, want < 0 ? -error : error, allowed_at(c, at) / deviation};
  }
  return n;
}

static void add_group(drift *d, const drifting *of, int64_t n) {
  double up = 0, away = 0, allowed = 0;
  for (int64_t i = 0; i < n; i++) up += of[i].up, away += of[i].away, allowed += of[i].allowed;
  up /= (double)n, away /= (double)n;
  d->up += up, d->away += away, d->up2 += up * up, d->away2 += away * away;
  d->allowed += allowed / (double)n;
  d->n++;
}

static drift sum_up(drifting *all, int64_t n) {
  drift d = {0};
  qsort(all, (size_t)n, sizeof *all, by_value);
  for (int64_t first = 0, at = 0; first < n; first = at) {
    while (at < n && all[at].y == all[first].y) at++;
    add_group(&d, all + first, at - first);
  }
  return d;
}

void bs_check_drift(const bs_checking *c, bs_gate *gate) {
  drifting *all = malloc((size_t)(c->B * c->reference.features + 1) * sizeof *all);
  if (all == NULL) {
    bs_gate_skip(gate, "no memory to sort the outputs");
    return;
  }
  const drift d = sum_up(all, gather(c, all));
  free(all);
  if (d.n < FEWEST_VALUES || d.allowed > d.n) {
    bs_gate_skip(
        gate, d.n < FEWEST_VALUES
                  ? "fewer than 24 different values of Y"
                  : "gelu and silu may be off to one side within what share/doc/blockshock/check.md allows");
    return;
  }
  const double spread = fmax(1.0, sqrt(fmax(d.up2, d.away2) / d.n));
  bs_gate_set(
      gate, "drift", (int32_t)c->worst_rank, fmax(fabs(d.up), fabs(d.away)) / d.n,
      0.25 + 6.0 / sqrt(d.n) * spread + d.allowed / d.n,
      "mean signed error of %.0f different values, in units of the predicted deviation (half an ulp: 1.7)",
      d.n);
}
