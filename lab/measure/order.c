/* SPDX-License-Identifier: MIT
 * order.c - reduces the effect of an arm on the next one (clock, caches, sleeping threads): orders that
 * spread it evenly, and untimed leads that let it end. */
#include <math.h>

#include "lab/measure/sampler_arm.h"

enum { LOOKS = 6 };
static const double NOTABLE = 0.0025;    /* share of a sample's time */
static const double CHANCE = 0.05;       /* the probability that noise alone makes one of all arms look
                                          * different */
static const double FIRST_LEAD = 1e-3;   /* seconds, when one call was not enough; then twice as long ... */
static const double LONGEST_LEAD = 0.05; /* ... at most */
static const double LONG_SAMPLE = 0.05;  /* samples this long hardly depend on how they begin */

uint32_t bs_design_rows(uint32_t n_arms) {
  return n_arms % 2 == 0 || n_arms == 1 ? n_arms : 2 * n_arms;
}

/* 0, 1, n-1, 2, n-2, ... plus the row's number, mod n; with odd n each row also backwards. */
void bs_design_row(uint32_t n, uint32_t row, uint32_t *out_order) {
  for (uint32_t j = 0; j < n; ++j) {
    const uint32_t at = row < n ? j : n - 1 - j;
    const uint32_t base = at % 2 == 1 ? (at + 1) / 2 : (n - at / 2) % n;
    out_order[j] = (base + row) % n;
  }
}

/* One look: each arm twice in a row. after[i]: log of (first / second sample) of arm i. */
static int32_t look(const bs_sampler_arm *arms, bs_sampled *s, double *after, bs_error *err) {
  for (uint32_t i = 0; i < s->n_arms; ++i) {
    bs_sample sample[2];
    for (int twice = 0; twice < 2; ++twice) {
      bs_warm *w = &s->arm[i].warm;
      const int32_t rc = bs_sampler_batch(&arms[i], w->lead, w->calls, &sample[twice], err);
      if (rc != BS_OK) return rc;
      w->warm.count += w->lead + w->calls;
      w->warm.seconds += sample[twice].seconds * (double)(w->lead + w->calls);
    }
    after[i] = log(sample[0].seconds / sample[1].seconds);
  }
  return BS_OK;
}

/* Does some arm take longer, or shorter, after another one than after itself? */
static int32_t looks(const bs_sampler_arm *arms, bs_sampled *s, int *out_tells, bs_error *err) {
  double after[LOOKS][BS_SAMPLER_ARMS];
  int32_t rc = look(arms, s, after[0], err); /* not stored: the arm that ran before this one is unknown */
  for (int k = 0; rc == BS_OK && k < LOOKS; ++k) rc = look(arms, s, after[k], err);
  *out_tells = 0;
  for (uint32_t i = 0; rc == BS_OK && i < s->n_arms; ++i) {
    double values[LOOKS];
    for (int k = 0; k < LOOKS; ++k) values[k] = after[k][i];
    double middle = 0.0, square = 0.0;
    for (int k = 0; k < LOOKS; ++k) middle += values[k] / LOOKS;
    for (int k = 0; k < LOOKS; ++k) square += (values[k] - middle) * (values[k] - middle);
    const double t = bs_student_quantile(CHANCE / s->n_arms, LOOKS - 1);
    const double error = t * sqrt(square / (LOOKS - 1) / LOOKS);
    s->arm[i].carry = fabs(middle) > fmax(NOTABLE, error) ? middle : 0.0;
    *out_tells |= s->arm[i].carry != 0;
  }
  return rc;
}

static double longest_sample(const bs_sampled *s) {
  double most = 0.0;
  for (uint32_t i = 0; i < s->n_arms; ++i) {
    const bs_warm *w = &s->arm[i].warm;
    if (w->warm.count > 0) most = fmax(most, bs_span_each(&w->warm) * (double)w->calls);
    if (w->lead == 0) return INFINITY; /* a call that is too long for a lead */
  }
  return most;
}

int32_t bs_sampler_find_lead(const bs_sampler_options *o, const bs_sampler_arm *arms, bs_sampled *s,
                             bs_error *err) {
  if (s->n_arms < 2 || o->phase == BS_TIME_COLD || longest_sample(s) > LONG_SAMPLE) return BS_OK;
  for (;;) {
    int tells = 0;
    const int32_t rc = looks(arms, s, &tells, err);
    const double next = s->lead_seconds > 0 ? 2 * s->lead_seconds : FIRST_LEAD;
    if (rc != BS_OK || !tells || next > LONGEST_LEAD) return rc;
    s->lead_seconds = next;
    for (uint32_t i = 0; i < s->n_arms; ++i) {
      bs_warm *w = &s->arm[i].warm;
      w->lead = 1 + (uint64_t)(next / bs_span_each(&w->warm));
    }
  }
}
