/* SPDX-License-Identifier: MIT
 * judge.c - predictions and bounds from round-off (docs/gates.md), and the comparison of outputs with the
 * reference. Sources: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 3-4 for the
 * bounds. */
#include "lab/gate/judge.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/activation.h"

typedef struct format_range {
  uint32_t dtype;
  int precision;    /* significand bits, the hidden one included */
  int min_exponent; /* of the smallest normal number */
  double max;
} format_range;

static const format_range ranges[] = {
    {BS_F64, 53, -1022, DBL_MAX},   {BS_F32, 24, -126, FLT_MAX}, {BS_F16, 11, -14, 65504.0},
    {BS_BF16, 8, -126, 0x1.fep127}, {BS_F8E4M3, 4, -6, 448.0},   {BS_F8E5M2, 3, -14, 57344.0},
};

static const format_range *range_of(uint32_t dtype) {
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; ++i) {
    if (ranges[i].dtype == dtype) return &ranges[i];
  }
  return NULL;
}

double bs_ulp(uint32_t dtype, double value) {
  const format_range *range = range_of(dtype);
  if (!range) return 0.0; /* integers are exact */
  int exponent = range->min_exponent;
  if (value != 0.0 && isfinite(value)) {
    const int e = ilogb(value);
    if (e > exponent) exponent = e;
  }
  return ldexp(1.0, exponent - range->precision + 1);
}

/* Sums over the judged outputs of one feature, of one token, of all: the errors' squares, their predictions,
 * and slopes^2 and slopes^4. */
typedef struct sums {
  double error2, want, s2, s4;
} sums;

typedef struct running {
  const bs_reference *ref;
  const bs_arithmetic *a;
  bs_metrics metrics;
  const bs_prediction *prediction;
  sums *feature, *token, all;
} running;

static void add(sums *s, double error, double want, double slope2) {
  s->error2 += error * error;
  s->want += want;
  s->s2 += slope2;
  s->s4 += slope2 * slope2;
}

/* The error as a share of its bound. An error or a bound that is not finite gives infinity. */
static double share_of_bound(double error, double bound) {
  if (error == 0.0) return 0.0;
  return isfinite(error) && isfinite(bound) ? error / bound : INFINITY;
}

static double stored(uint32_t dtype, double value) {
  uint64_t room = 0;
  bs_store_f64(dtype, &room, 0, value);
  return bs_load_f64(dtype, &room, 0);
}

/* 1: the sum is infinite in fp64, but IEEE arithmetic inside the layer may give NaN. This can happen in three
 * ways. Zeros of the split met NaN or Inf in X; sums are sent in int8 steps, which have no infinity; or the
 * finite terms may overflow to an infinity of the other sign. */
static int may_be_nan(const running *run, int64_t b, int64_t at) {
  const bs_arithmetic *a = run->a;
  const bs_reference *ref = run->ref;
  const int summed = ref->partial && ref->world_size > 1;
  if (a->zero_products && ref->token_nonfinite[b]) return 1;
  if (summed && a->reduce_dtype == BS_I8) return 1;
  const format_range *way = range_of(summed ? a->reduce_dtype : BS_F32);
  const double most = a->accumulate == BS_ACC_F64 || a->y_dtype == BS_F64 ? DBL_MAX : FLT_MAX;
  return ref->magnitude[at] >= fmin(most, way ? way->max : most);
}

/* Checks an output whose sum in the reference is not finite. NaN must be NaN. An infinity must be the same
 * infinity after conversion to the dtypes in use (f8e4m3: its largest value), or NaN if may_be_nan allows it.
 * PyTorch's gelu, with a polynomial for erf, gives NaN at infinities. */
static int keeps_nonfinite(const running *run, int64_t b, int64_t at, double got) {
  const bs_reference *ref = run->ref;
  const bs_arithmetic *a = run->a;
  double sum = bs_reference_sum(ref, at);
  if (isnan(got) && (isnan(sum) || may_be_nan(run, b, at))) return 1;
  if (isnan(sum)) return 0;
  if (a->usual_tail && ref->pre && a->activation == BS_ACT_GELU && isinf(sum) && isnan(got)) return 1;
  if (ref->partial && ref->world_size > 1 && a->reduce_dtype != BS_I8) sum = stored(a->reduce_dtype, sum);
  if (ref->pre && sum < 0.0 && a->activation != BS_ACT_RELU) /* gelu and silu: the limit, or -Inf times 0 */
    return got == 0.0 || isnan(got);
  return got == stored(a->y_dtype, bs_activation_value(a->activation, sum));
}

static void judge_element(running *run, bs_judgement *out, int64_t b, int64_t f, double got) {
  const bs_reference *ref = run->ref;
  const int64_t at = b * ref->features + f;
  const double want = ref->y[at];
  const format_range *range = range_of(run->a->y_dtype);
  const double bound = run->prediction->bound[at];
  if (!isfinite(bs_reference_sum(ref, at))) { /* from the inputs: no error to measure */
    if (keeps_nonfinite(run, b, at, got)) {
      out->propagated += !isfinite(want) || !isfinite(got);
      return;
    }
    ++out->wrong;
    ++out->misplaced;
    out->worst_ratio = INFINITY;
    out->at_token = b;
    out->at_feature = ref->feature[f];
    return;
  }
  /* Past max + half an ulp the dtype's own rounding gives infinity (e4m3 saturates). */
  if (range && isfinite(bound) && fabs(want) + bound >= range->max && isinf(got) &&
      signbit(got) == signbit(want)) {
    ++out->overflow;
    return;
  }
  double error = fabs(got - want);
  if (!isfinite(got)) {
    ++out->nonfinite;
    error = INFINITY;
  } else {
    bs_metrics_add(&run->metrics, want, got, BS_REL_EPS);
  }
  const double expected = run->prediction->variance[at], seen = isfinite(error) ? error : 0.0;
  const double slope2 = run->prediction->slope2 ? run->prediction->slope2[at] : 1.0;
  add(&run->feature[f], seen, expected, slope2);
  add(&run->token[b], seen, expected, slope2);
  add(&run->all, seen, expected, slope2);
  const double ratio = share_of_bound(error, bound);
  if (!(ratio <= 1.0)) ++out->wrong;
  if (ratio > out->worst_ratio) {
    out->worst_ratio = ratio;
    out->at_token = b;
    out->at_feature = ref->feature[f];
  }
}

static double t2_limit(double n) {
  return 1.0 + 9.0 / sqrt(n);
}

/* The number of outputs that carry errors: with an activation that is flat in places this is fewer than
 * all. */
static double carriers(const sums *s) {
  return s->s4 > 0 ? s->s2 * s->s2 / s->s4 : 0.0;
}

/* Error in units of the prediction. If few of the n carry errors its spread is larger: the ratio is converted
 * to the limit of n. */
static double worst_beyond(const sums *s, int64_t count, double n) {
  double worst = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    if (s[i].error2 == 0.0) continue;
    const double ratio = s[i].want > 0 ? sqrt(s[i].error2 / s[i].want) : INFINITY;
    worst = fmax(worst, ratio * t2_limit(n) / t2_limit(fmax(carriers(&s[i]), 1.0)));
  }
  return worst;
}

static void judge_sums(const running *run, bs_judgement *out) {
  const double norm2 = run->metrics.norm2 > 0 ? run->metrics.norm2 : 1.0; /* all zeros: by the error itself */
  out->outputs = carriers(&run->all);
  out->predicted = sqrt(run->all.want / norm2);
  out->measured = out->nonfinite ? INFINITY : sqrt(run->all.error2 / norm2);
  out->worst_feature = worst_beyond(run->feature, run->ref->features, (double)run->ref->B);
  out->worst_token = worst_beyond(run->token, run->ref->B, (double)out->features);
}

void bs_judge(const bs_reference *ref, const bs_arithmetic *a, const bs_prediction *prediction, const void *y,
              int64_t stride, int64_t column_offset, int64_t columns, bs_judgement *out) {
  memset(out, 0, sizeof *out);
  const size_t features = (size_t)(ref->features > 0 ? ref->features : 1);
  const size_t tokens = (size_t)(ref->B > 0 ? ref->B : 1);
  sums *all = calloc(features + tokens, sizeof *all);
  if (!all) { /* judged as wrong rather than passed unseen */
    out->relative = out->measured = out->worst_ratio = out->worst_feature = out->worst_token = INFINITY;
    return;
  }
  running run = {.ref = ref, .a = a, .prediction = prediction, .feature = all, .token = all + features};
  for (int64_t f = 0; f < ref->features; ++f) {
    const int64_t column = ref->feature[f] - column_offset;
    if (column < 0 || column >= columns) continue;
    ++out->features;
    for (int64_t b = 0; b < ref->B; ++b)
      judge_element(&run, out, b, f, bs_load_f64(a->y_dtype, y, b * stride + column));
  }
  out->relative = out->nonfinite ? INFINITY : bs_metrics_frobenius(&run.metrics);
  out->max_abs = run.metrics.max_abs;
  out->max_rel = run.metrics.max_rel;
  out->mean_abs = bs_metrics_mean_abs(&run.metrics);
  judge_sums(&run, out);
  free(all);
}

void bs_gate_set(bs_gate *gate, const char *name, int32_t rank, double value, double limit, const char *text,
                 ...) {
  va_list args;
  memset(gate, 0, sizeof *gate);
  snprintf(gate->name, sizeof gate->name, "%s", name);
  gate->rank = rank;
  gate->value = value;
  gate->limit = limit;
  /* NaN fails, and Inf on either side: an infinite limit lets everything through. */
  gate->state = isfinite(value) && isfinite(limit) && value <= limit ? BS_GATE_PASS : BS_GATE_FAIL;
  va_start(args, text);
  vsnprintf(gate->text, sizeof gate->text, text, args);
  va_end(args);
}

void bs_gate_skip(bs_gate *gate, const char *why) {
  gate->value = gate->limit = 0.0;
  gate->state = BS_GATE_SKIPPED;
  snprintf(gate->text, sizeof gate->text, "%s", why);
}

/* The reason why T1 and T2 do not judge; NULL: they do. Outputs share errors of inputs, which follow no
 * spread. */
static const char *skips_spreads(const bs_reference *ref, double outputs) {
  if (ref->carried_bound2) return "inputs known to a bound only: T3 judges alone";
  return outputs < BS_T1_MIN_OUTPUTS ? "fewer than 128 outputs: T3 and T5 judge alone" : NULL;
}

static double all_of(const bs_judgement *j) {
  return j->features > 0 ? (double)j->features : 1.0;
}

/* The number of different features among the judged ones; equal rows of W have equal errors. */
static double different_features(const bs_reference *ref, const bs_judgement *j) {
  return ref->distinct_features > 0 && ref->features > 0
             ? (double)j->features * (double)ref->distinct_features / (double)ref->features
             : (double)j->features;
}

uint32_t bs_gates_from_judgement(const bs_reference *ref, const bs_judgement *j, int32_t rank, bs_gate *gates,
                                 uint32_t max) {
  if (max < 4) return 0;
  const double differ = ref->B > 0 ? (double)ref->distinct / (double)ref->B : 0.0;
  const double features = different_features(ref, j), outputs = j->outputs * differ * features / all_of(j);
  const char *const why = skips_spreads(ref, outputs);
  const int many[3] = {1, ref->distinct >= BS_T2_MIN, features >= BS_T2_MIN};
  static const char *const few[3] = {"", "fewer than 8 different tokens", "fewer than 8 different features"};
  bs_gate_set(&gates[0], "T1", rank, j->measured, j->predicted * (1.3 + BS_T1_C / sqrt(fmax(outputs, 1.0))),
              "relative Frobenius error; predicted %.3g", j->predicted);
  bs_gate_set(&gates[1], "T2.feature", rank, j->worst_feature, t2_limit((double)ref->distinct),
              "worst output feature, in units of its own prediction");
  bs_gate_set(&gates[2], "T2.token", rank, j->worst_token, t2_limit(features),
              "worst token, in units of its own prediction");
  for (int i = 0; i < 3; ++i)
    if (why || !many[i]) bs_gate_skip(&gates[i], why ? why : few[i]);
  bs_gate_set(&gates[3], "T3", rank, j->worst_ratio, 1.0,
              "worst |error|/bound, at token %lld feature %lld; %llu over, %llu not finite",
              (long long)j->at_token, (long long)j->at_feature, (unsigned long long)j->wrong,
              (unsigned long long)j->nonfinite);
  return 4;
}
