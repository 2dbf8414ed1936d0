/* SPDX-License-Identifier: MIT
 * verdict.c - evaluates a sampling: the comparisons, their words, and the messages to the reader. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "lab/error.h"
#include "lab/measure/sampler_arm.h"

enum { MIN_GROUPS = 3 };
static const double NOTABLE_ORDER = 0.0025; /* share of a sample's time */
static const double ORDER_TAIL = 0.01;

/* ---- comparisons -------------------------------------------------------------------------------- */

/* Mean over the groups of log(time after another arm / time after itself), or 0 within noise. */
static double order_of(const bs_sampled *s, uint32_t arm) {
  const double *echo = s->arm[arm].echo;
  double mean = 0.0, square = 0.0;
  uint32_t n = 0;
  for (uint32_t g = 0; g < s->groups; ++g) {
    if (isnan(echo[g])) continue;
    ++n;
    const double away = echo[g] - mean;
    mean += away / n;
    square += away * (echo[g] - mean);
  }
  const double error = n > 1 ? sqrt(square / (n - 1.0) / n) : INFINITY;
  const int told =
      n >= MIN_GROUPS &&
      fabs(mean) > fmax(NOTABLE_ORDER, bs_student_quantile(ORDER_TAIL / s->n_arms, n - 1) * error);
  return told ? mean : s->arm[arm].carry;
}

/* Groups of pairs, each from one build; an incomplete last group is merged with the one before. */
uint32_t bs_sampling_groups(const bs_sampled *s, size_t out_start[BS_GROUPS_MAX + 1]) {
  uint32_t n = s->groups;
  if (s->builds < MIN_GROUPS) return 0;
  for (uint32_t g = 0; g <= n; ++g) out_start[g] = s->start[g];
  if (n > 1 && 2 * (s->start[n] - s->start[n - 1]) < s->start[n - 1] - s->start[n - 2])
    out_start[--n] = s->pairs;
  return n;
}

static int32_t compare(bs_sampled *s, uint32_t other, double margin, bs_error *err) {
  const bs_series subject = bs_sampling_series(s, 0), series = bs_sampling_series(s, other);
  bs_comparison *c = &s->arm[other].comparison;
  size_t start[BS_GROUPS_MAX + 1];
  const uint32_t groups = bs_sampling_groups(s, start);
  if (groups == 0) return bs_compare_series(&subject, &series, margin, c, err);
  if (bs_compare_groups(subject.seconds, series.seconds, start, groups, margin, c)) return BS_OK;
  return bs_no_memory(err, "comparing %zu pairs", s->pairs);
}

int32_t bs_sampling_compare(bs_sampled *s, double margin, bs_error *err) {
  bs_comparison *table[BS_SAMPLER_ARMS];
  for (uint32_t i = 0; i < s->n_arms; ++i) s->arm[i].order = order_of(s, i);
  for (uint32_t i = 1; i < s->n_arms; ++i) {
    const int32_t rc = compare(s, i, margin, err);
    if (rc != BS_OK) return rc;
    const double order = s->arm[0].order - s->arm[i].order;
    table[i - 1] = &s->arm[i].comparison;
    table[i - 1]->builds = s->builds;
    if (order != 0) bs_comparison_widen(table[i - 1], order);
  }
  bs_comparisons_decide(table, s->n_arms - 1);
  return BS_OK;
}

/* ---- messages to the reader --------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void warn(bs_sampled *s, const char *format, ...) {
  va_list args;
  if (s->n_warnings == BS_SAMPLER_WARNINGS) {
    snprintf(s->warning[s->n_warnings - 1], sizeof s->warning[0], "and more of the kind");
    return;
  }
  va_start(args, format);
  vsnprintf(s->warning[s->n_warnings++], sizeof s->warning[0], format, args);
  va_end(args);
}

static void warn_of_disturbances(bs_sampled *s) {
  const size_t all = s->pairs + s->discarded;
  for (uint32_t k = 0; k < BS_DISTURB_COUNT_; ++k) {
    if (s->disturbed[k] == 0) continue;
    if (k == BS_DISTURB_SWITCH)
      warn(s, "%s in %zu of %zu pairs, all kept", bs_disturb_name(k), s->disturbed[k], all);
    else
      warn(s, "%s in %zu of %zu pairs; %zu disturbed pairs were discarded and taken again, %zu kept",
           bs_disturb_name(k), s->disturbed[k], all, s->discarded, s->disturbed_kept);
  }
  char cause[BS_LOOK_SENTENCE];
  if (bs_disturbance_decides(&s->disturbance))
    warn(s, "%s", bs_disturbance_cause(&s->disturbance, cause, sizeof cause));
}

void bs_sampling_settle(const bs_sampled *s, uint32_t subject, uint32_t other, bs_comparison *c) {
  const bs_word_facts facts = {
      .disturbance = &s->disturbance,
      .equal = s->arm[subject].kind == s->arm[other].kind,
      .oversubscribed = s->arm[subject].oversubscribed | s->arm[other].oversubscribed};
  bs_comparison_settle(c, &facts);
}

static void settle_all(bs_sampled *s) {
  for (uint32_t i = 1; i < s->n_arms; ++i) {
    bs_comparison *c = &s->arm[i].comparison;
    c->needs_seconds = s->pairs > 0 ? s->seconds * (double)c->needs / (double)s->pairs : 0.0;
    bs_sampling_settle(s, 0, i, c);
  }
}

int32_t bs_sampling_judge(bs_sampled *s, bs_error *err) {
  char sentence[BS_LOOK_SENTENCE];
  settle_all(s);
  for (uint32_t i = 0; i < s->n_arms; ++i) {
    bs_sampled_arm *a = &s->arm[i];
    if (!a->warm.settled) warn(s, "%s did not settle in %u blocks of warm-up", a->name, a->warm.blocks);
    if (!bs_look_at(a->seconds, s->pairs, &a->look))
      return bs_no_memory(err, "sorting %zu samples", s->pairs);
    if (bs_look_sentence(&a->look, a->name, sentence, sizeof sentence)) warn(s, "%s", sentence);
    if (a->order != 0)
      warn(s, "%s takes %.1f %% %s after another arm than after itself; its intervals hold both", a->name,
           100.0 * fabs(expm1(a->order)), a->order > 0 ? "longer" : "less");
  }
  warn_of_disturbances(s);
  return BS_OK;
}
