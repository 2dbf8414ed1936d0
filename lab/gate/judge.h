/* SPDX-License-Identifier: MIT
 * judge.h - gates T1 to T4: the error that round-off predicts for one tensor, and whether a rank's output
 * stays within it.
 *
 * Prediction (docs/gates.md): the error of an output has two parts. One is the rounding of each stored value
 * (uniform over one unit in the last place, so ulp^2/12 each: partials, partial sums, output). The other is
 * the accumulation error of the products, sqrt(K/6) u of their energy. It is computed from the reference
 * itself, so it holds for any data. */
#ifndef BS_LAB_GATE_JUDGE_H
#define BS_LAB_GATE_JUDGE_H
#include <math.h>
#include <stdint.h>
#include "lab/gate/reference.h"
#include "lab/result.h"

/* The arithmetic of the outputs: the types in which values are rounded. */
typedef struct bs_arithmetic {
  uint32_t y_dtype;
  uint32_t reduce_dtype;  /* of partials and partial sums; used only with partials */
  uint32_t accumulate;    /* enum bs_accumulate */
  uint32_t activation;    /* enum bs_activation, as the reference's */
  uint32_t wire_steps;    /* reduce_dtype BS_I8: 2, or 1 if each rank keeps its share of the sum */
  uint32_t low_sums;      /* 1: a product's sums are kept in fewer bits than f32's (BS_LOW_SUMS) */
  uint32_t zero_products; /* 1: ranks multiply zeros in the place of others' weights with X */
  uint32_t usual_tail;    /* 1: gelu by 1 + erf or 1 + tanh, silu by 1 / (1 + e^-x): see lab/activation.h */
} bs_arithmetic;

typedef struct bs_prediction {
  double relative;  /* predicted ||Y' - Y||_F / ||Y||_F */
  double *bound;    /* [B, features] of T3: made once, as it walks over all ranks' partials */
  double *variance; /* [B, features] of each output's error: each rank's features are predicted by theirs */
  double *slope2;   /* With an activation, [B, features]: the square of the slope there. Else NULL. */
  /* For sums in int8 steps, [B, features]: the expected and the largest error of the steps. Else NULL. */
  double *step_variance, *step_bound;
} bs_prediction;

int32_t bs_predict(const bs_reference *reference, const bs_arithmetic *arithmetic, bs_prediction *out,
                   bs_error *err);
void bs_prediction_free(bs_prediction *prediction);
/* The largest possible error [B, features] of a reference without an activation. */
int32_t bs_bound_sums(const bs_reference *reference, const bs_arithmetic *arithmetic, double *out_bound,
                      bs_error *err);

#define BS_WIRE_LEVELS                                                                \
  127.0 /* steps of a scale of BS_WIRE_GROUP features, from zero to the largest value \
         */

/* Output `at` (token * features + feature) before the activation. */
double bs_reference_sum(const bs_reference *reference, int64_t at);

/* One unit in the last place of `dtype` at |value| (subnormal spacing below the normal range). */
double bs_ulp(uint32_t dtype, double value);

typedef struct bs_judgement {
  double relative;      /* relative Frobenius error */
  double measured;      /* the same, or for a reference of only zeros the error itself: T1 judges it */
  double predicted;     /* the prediction of round-off for it, over the judged features */
  int64_t features;     /* judged: this rank's among the reference's */
  double outputs;       /* outputs that carry errors: all judged, fewer if an activation is flat */
  double worst_feature; /* worst over features of relative error / its prediction */
  double worst_token;
  double worst_ratio; /* worst |error| / bound */
  double max_abs, mean_abs, max_rel;
  int64_t at_token, at_feature; /* of worst_ratio; the output column */
  uint64_t wrong;               /* elements over their bound */
  uint64_t propagated;          /* outputs that are NaN or Inf as in the reference, from such inputs */
  uint64_t nonfinite;           /* outputs that are NaN or Inf but finite in the reference */
  uint64_t misplaced;           /* outputs that should be NaN or Inf by the inputs, and are something else */
  uint64_t overflow;            /* outputs whose reference exceeds the dtype's range (then Inf is right) */
} bs_judgement;

/* y: [B, stride] of y_dtype; output column feature[f] is at feature[f] - column_offset; features outside
 * [column_offset, column_offset + columns) are not this rank's and are passed over. */
void bs_judge(const bs_reference *reference, const bs_arithmetic *arithmetic, const bs_prediction *prediction,
              const void *y, int64_t stride, int64_t column_offset, int64_t columns, bs_judgement *out);

/* T1's finite-sample constant: limit = prediction x (1.3 + BS_T1_C / sqrt(outputs)). From the simulation that
 * tests/gate/test_gate_simulation.c repeats. */
#define BS_T1_C 2.0
#define BS_T1_MIN_OUTPUTS 128
#define BS_REL_EPS 1e-12 /* of max_rel */
#define BS_T2_MIN 8

/* Sets a gate that passes if the value is within the limit; text: printf text of the measurement. */
void bs_gate_set(bs_gate *gate, const char *name, int32_t rank, double value, double limit, const char *text,
                 ...) __attribute__((format(printf, 6, 7)));
void bs_gate_skip(bs_gate *gate, const char *why);
/* Turns one rank's judgement into gates T1, T2 (features, tokens) and T3. */
uint32_t bs_gates_from_judgement(const bs_reference *reference, const bs_judgement *judgement, int32_t rank,
                                 bs_gate *out_gates, uint32_t max);

/* Error metrics against a reference, accumulated in fp64. max_rel is kept for older records
 * (docs/dev/original.md): it divides by outputs near zero (1e9 for a reference of 0 and an error of 0.001),
 * so no gate uses it. */
typedef struct bs_metrics {
  uint64_t count;
  double max_abs, sum_abs, max_rel; /* max_rel: |error| / (|reference| + eps) */
  double error2, norm2;
} bs_metrics;

static inline void bs_metrics_add(bs_metrics *m, double want, double got, double eps) {
  const double error = fabs(got - want);
  const double relative = error / (fabs(want) + eps);
  ++m->count;
  m->sum_abs += error;
  m->error2 += error * error;
  m->norm2 += want * want;
  if (error > m->max_abs) m->max_abs = error;
  if (relative > m->max_rel) m->max_rel = relative;
}
static inline double bs_metrics_mean_abs(const bs_metrics *m) {
  return m->count ? m->sum_abs / (double)m->count : 0.0;
}
static inline double bs_metrics_frobenius(const bs_metrics *m) {
  return m->norm2 > 0 ? sqrt(m->error2 / m->norm2) : (m->error2 > 0 ? INFINITY : 0.0);
}
#endif
