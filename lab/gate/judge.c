/* SPDX-License-Identifier: MIT
 * judge.c - predictions and bounds from round-off (docs/gates.md), and the comparison of outputs with the
 * reference. Sources: N. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 3-4 for the
 * bounds. */
#include "lab/gate/judge.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/gate/metrics.h"

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

static double accumulate_roundoff(const bs_arithmetic *arithmetic) {
  return arithmetic->accumulate == BS_ACC_F64 || arithmetic->y_dtype == BS_F64 ? 0x1p-53 : 0x1p-24;
}

static double rounding_variance(uint32_t dtype, double value) {
  const double ulp = bs_ulp(dtype, value);
  return ulp * ulp / 12.0;
}

/* Variance of the stored roundings of one output: each partial, each partial sum after the first, the output.
 * The last sum and the output are one rounding where the dtypes are equal. */
static double element_variance(const bs_reference *ref, const bs_arithmetic *a, int64_t at) {
  double variance = 0.0;
  if (ref->partial) {
    double sum = 0.0;
    for (uint32_t r = 0; r < ref->world_size; ++r) {
      const double part = ref->partial[r][at];
      variance += rounding_variance(a->reduce_dtype, part);
      sum += part;
      if (r > 0) variance += rounding_variance(a->reduce_dtype, sum);
    }
    if (a->reduce_dtype == a->y_dtype && ref->world_size > 1) return variance;
    if (a->reduce_dtype == a->y_dtype) return rounding_variance(a->y_dtype, ref->y[at]);
  }
  return variance + rounding_variance(a->y_dtype, ref->y[at]);
}

int32_t bs_predict(const bs_reference *ref, const bs_arithmetic *a, bs_prediction *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  const size_t features = (size_t)(ref->features > 0 ? ref->features : 1);
  const size_t tokens = (size_t)(ref->B > 0 ? ref->B : 1);
  out->feature = calloc(features, sizeof(double));
  out->token = calloc(tokens, sizeof(double));
  double *norm_feature = calloc(features, sizeof(double));
  double *norm_token = calloc(tokens, sizeof(double));
  if (!out->feature || !out->token || !norm_feature || !norm_token) {
    free(norm_feature);
    free(norm_token);
    bs_prediction_free(out);
    return bs_error_set(err, BS_NO_MEMORY, "BS-GATE-MEMORY",
                        "no memory for a prediction of %lld x %lld outputs", (long long)ref->B,
                        (long long)ref->features);
  }
  double variance = 0.0;
  double norm = 0.0;
  for (int64_t b = 0; b < ref->B; ++b) {
    for (int64_t f = 0; f < ref->features; ++f) {
      const int64_t at = b * ref->features + f;
      if (!isfinite(ref->y[at])) continue; /* NaN or Inf among the inputs: nothing to round */
      const double v = element_variance(ref, a, at);
      const double y2 = ref->y[at] * ref->y[at];
      out->feature[f] += v;
      norm_feature[f] += y2;
      out->token[b] += v;
      norm_token[b] += y2;
    }
  }
  /* Accumulation: sqrt(K/6) u relative to the products' energy, or to the result where that is larger (sums
   * of one sign). */
  const double u = accumulate_roundoff(a);
  const double factor = (double)ref->K / 6.0 * u * u;
  for (int64_t f = 0; f < ref->features; ++f) {
    const double energy = isfinite(ref->energy[f]) ? ref->energy[f] : 0.0;
    const double accumulation = factor * fmax(norm_feature[f], energy);
    variance += out->feature[f] + accumulation;
    norm += norm_feature[f];
    out->feature[f] = norm_feature[f] > 0 ? sqrt((out->feature[f] + accumulation) / norm_feature[f]) : 0.0;
    for (int64_t b = 0; b < ref->B; ++b) out->token[b] += accumulation / (double)ref->B;
  }
  for (int64_t b = 0; b < ref->B; ++b)
    out->token[b] = norm_token[b] > 0 ? sqrt(out->token[b] / norm_token[b]) : 0.0;
  out->relative = norm > 0 ? sqrt(variance / norm) : 0.0;
  free(norm_feature);
  free(norm_token);
  return BS_OK;
}

void bs_prediction_free(bs_prediction *prediction) {
  free(prediction->feature);
  free(prediction->token);
  memset(prediction, 0, sizeof *prediction);
}

/* Rigorous for the roundings; the accumulation term is 4 sqrt(K) u (|X| |W|^T), far above its spread and far
 * below a lost weight. */
static double element_bound(const bs_reference *ref, const bs_arithmetic *a, int64_t at) {
  const double u_out = bs_dtype_unit_roundoff(a->y_dtype);
  const double u_acc = accumulate_roundoff(a);
  double bound = u_out * fabs(ref->y[at]) + 0.5 * bs_ulp(a->y_dtype, 0.0) +
                 4.0 * sqrt((double)ref->K + 1.0) * u_acc * ref->magnitude[at];
  if (ref->partial && ref->world_size > 1) {
    const double u_part = bs_dtype_unit_roundoff(a->reduce_dtype);
    double roundings = 0.0;
    double sum = 0.0;
    for (uint32_t r = 0; r < ref->world_size; ++r) {
      const double part = ref->partial[r][at];
      roundings += fabs(part);
      sum += part;
      if (r > 0 && (r + 1 < ref->world_size || a->reduce_dtype != a->y_dtype)) roundings += fabs(sum);
    }
    const double each = 0.5 * bs_ulp(a->reduce_dtype, 0.0) * (2.0 * ref->world_size);
    bound += (1.0 + u_out) * (u_part * roundings * (1.0 + ref->world_size * u_part) + each);
  }
  return bound;
}

typedef struct running {
  const bs_reference *ref;
  const bs_arithmetic *a;
  bs_metrics metrics;
  double *error_feature, *norm_feature, *error_token, *norm_token;
} running;

static void judge_element(running *run, bs_judgement *out, int64_t b, int64_t f, double got) {
  const bs_reference *ref = run->ref;
  const int64_t at = b * ref->features + f;
  const double want = ref->y[at];
  const format_range *range = range_of(run->a->y_dtype);
  const double bound = element_bound(ref, run->a, at);
  if (!isfinite(want)) { /* from the inputs: it must not be lost on the way, and there is no error to take */
    if (!isfinite(got)) {
      ++out->propagated;
      return;
    }
    ++out->wrong;
    out->worst_ratio = INFINITY;
    out->at_token = b;
    out->at_feature = ref->feature[f];
    return;
  }
  /* Past max + half an ulp the dtype's own rounding gives infinity (e4m3 saturates). */
  if (range && fabs(want) + bound >= range->max && isinf(got) && signbit(got) == signbit(want)) {
    ++out->overflow;
    return;
  }
  double error = fabs(got - want);
  if (!isfinite(got)) {
    ++out->nonfinite;
    error = INFINITY;
  } else {
    bs_metrics_add(&run->metrics, want, got, BS_REL_EPS);
    run->error_feature[f] += error * error;
    run->error_token[b] += error * error;
  }
  run->norm_feature[f] += want * want;
  run->norm_token[b] += want * want;
  const double ratio = error == 0.0 ? 0.0 : error / bound;
  if (ratio > 1.0) ++out->wrong;
  if (ratio > out->worst_ratio) {
    out->worst_ratio = ratio;
    out->at_token = b;
    out->at_feature = ref->feature[f];
  }
}

static double worst_against(const double *error2, const double *norm2, const double *predicted,
                            int64_t count) {
  double worst = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    if (error2[i] == 0.0) continue;
    const double expected = predicted[i] * sqrt(norm2[i]);
    const double ratio = expected > 0 ? sqrt(error2[i]) / expected : INFINITY;
    if (ratio > worst) worst = ratio;
  }
  return worst;
}

/* The prediction of some features alone: theirs, weighted by their norms. norm2 is 0 where none was judged.
 */
static double predicted_share(const double *norm2, const double *prediction, int64_t count) {
  double error2 = 0.0, all2 = 0.0;
  for (int64_t f = 0; f < count; ++f) {
    if (!(norm2[f] > 0)) continue;
    error2 += prediction[f] * prediction[f] * norm2[f];
    all2 += norm2[f];
  }
  return all2 > 0 ? sqrt(error2 / all2) : 0.0;
}

void bs_judge(const bs_reference *ref, const bs_arithmetic *a, const bs_prediction *prediction, const void *y,
              int64_t stride, int64_t column_offset, int64_t columns, bs_judgement *out) {
  memset(out, 0, sizeof *out);
  const size_t features = (size_t)(ref->features > 0 ? ref->features : 1);
  const size_t tokens = (size_t)(ref->B > 0 ? ref->B : 1);
  double *sums = calloc(2 * (features + tokens), sizeof(double));
  if (!sums) { /* judged as wrong rather than passed unseen */
    out->relative = out->worst_ratio = out->worst_feature = out->worst_token = INFINITY;
    return;
  }
  running run = {.ref = ref,
                 .a = a,
                 .error_feature = sums,
                 .norm_feature = sums + features,
                 .error_token = sums + 2 * features,
                 .norm_token = sums + 2 * features + tokens};
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
  out->worst_feature = worst_against(run.error_feature, run.norm_feature, prediction->feature, ref->features);
  out->worst_token = worst_against(run.error_token, run.norm_token, prediction->token, ref->B);
  out->predicted = out->features == ref->features
                       ? prediction->relative
                       : predicted_share(run.norm_feature, prediction->feature, ref->features);
  free(sums);
}

static void set_gate(bs_gate *gate, const char *name, int32_t rank, double value, double limit) {
  memset(gate, 0, sizeof *gate);
  snprintf(gate->name, sizeof gate->name, "%s", name);
  gate->rank = rank;
  gate->value = value;
  gate->limit = limit;
  gate->state = value <= limit ? BS_GATE_PASS : BS_GATE_FAIL; /* NaN fails */
}

static void skip_gate(bs_gate *gate, const char *name, int32_t rank, const char *why) {
  set_gate(gate, name, rank, 0.0, 0.0);
  gate->state = BS_GATE_SKIPPED;
  snprintf(gate->text, sizeof gate->text, "%s", why);
}

uint32_t bs_gates_from_judgement(const bs_reference *ref, const bs_judgement *j, int32_t rank, bs_gate *gates,
                                 uint32_t max) {
  if (max < 4) return 0;
  const double outputs = (double)ref->B * (double)j->features;
  if (outputs >= BS_T1_MIN_OUTPUTS) {
    set_gate(&gates[0], "T1", rank, j->relative, j->predicted * (1.3 + BS_T1_C / sqrt(outputs)));
    snprintf(gates[0].text, sizeof gates[0].text, "relative Frobenius error; predicted %.3g", j->predicted);
  } else {
    skip_gate(&gates[0], "T1", rank, "fewer than 128 outputs: T3 and T5 judge alone");
  }
  if (ref->B >= BS_T2_MIN && outputs >= BS_T1_MIN_OUTPUTS) {
    set_gate(&gates[1], "T2.feature", rank, j->worst_feature, 1.0 + 9.0 / sqrt((double)ref->B));
    snprintf(gates[1].text, sizeof gates[1].text, "worst output feature, in units of its own prediction");
  } else {
    skip_gate(&gates[1], "T2.feature", rank, "fewer than 8 tokens or 128 outputs");
  }
  if (j->features >= BS_T2_MIN && outputs >= BS_T1_MIN_OUTPUTS) {
    set_gate(&gates[2], "T2.token", rank, j->worst_token, 1.0 + 9.0 / sqrt((double)j->features));
    snprintf(gates[2].text, sizeof gates[2].text, "worst token, in units of its own prediction");
  } else {
    skip_gate(&gates[2], "T2.token", rank, "fewer than 8 features or 128 outputs");
  }
  set_gate(&gates[3], "T3", rank, j->worst_ratio, 1.0);
  snprintf(gates[3].text, sizeof gates[3].text,
           "worst |error|/bound, at token %lld feature %lld; %llu over, %llu not finite",
           (long long)j->at_token, (long long)j->at_feature, (unsigned long long)j->wrong,
           (unsigned long long)j->nonfinite);
  return 4;
}
