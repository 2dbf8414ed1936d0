/* SPDX-License-Identifier: MIT
 * step_judging.h - shared parts of step.c and step_bias.c, used while a training is judged. */
#ifndef BS_LAB_GATE_STEP_JUDGING_H
#define BS_LAB_GATE_STEP_JUDGING_H
#include "lab/case/train.h"
#include "lab/gate/step.h"

/* step_follow.c: one value under an optimiser, in fp64: its right value after each step, and the bound of
 * rounding. */
/* The optimiser's state for one value, and its bound. All zero at first. */
typedef struct bs_followed {
  double m, v;
  double m_bound, v_bound;
} bs_followed;

/* A gradient and its error. */
typedef struct bs_slope {
  double g, bound;
} bs_slope;

/* The numbers as the ops get them, in f32; but beta1 and beta2 as the user gave them. */
typedef struct bs_stepper {
  uint32_t optimizer;
  double lr, momentum, beta1, beta2, eps, decay, c1, c2;
  double u;    /* unit round-off of the arithmetic */
  double most; /* of AdamW: no gradients make a step of t steps longer than lr times this (Cauchy, Schwarz) */
} bs_stepper;

bs_stepper bs_stepper_make(const bs_train_options *options, int64_t t, int of_bias, int wide);
/* Returns the value after the step from w; *out_bound is its error before the last rounding. */
double bs_follow(const bs_stepper *stepper, bs_followed *state, double w, bs_slope slope, double *out_bound);

/* Sums over the weights of one rank. */
typedef struct bs_step_sums {
  double error2, norm2;
} bs_step_sums;

typedef struct bs_judging {
  const bs_case *c;
  const bs_train_options *o;
  const bs_train_result *r;
  int wide;
  uint32_t b_dtype;
  double *x;                       /* [B][K] */
  double *dw, *magnitude, *bound2; /* [K] of one row; bound2: from errors of dZ */
  bs_followed *weights;            /* [K] of one row */
  const double *dz;                /* [steps][B][features]: dY through the activation */
  double *slopes;                  /* the memory of dz with an activation, followed by: */
  double *dz_bound2;               /* as in bs_slopes; NULL: dz is exact */
  double *bias, *bias_bound;       /* [steps + 1][features] the bias after each step, and its bound */
  double *shown, *shown_error;     /* [features] after the last step, from forward's output; and its error */
  uint32_t *rank_of;               /* [K] */
  uint32_t *owner;                 /* [K] of one row, if columns are not enough; NULL: they are */
  bs_step_sums *ranks;             /* [world] */
  int x_finite, brought; /* NaN or Inf in the row's operands, or in the row itself: from the inputs */
  double worst, worst_bias;
  int64_t worst_step, worst_feature, worst_column;
  uint64_t wrong, inexact, judged, propagated;
} bs_judging;

/* The round-off of n terms in units of their sum. */
double bs_step_accumulate(double n);
/* Is the row of sampled feature f finite, as read back after `step` steps? */
int bs_step_row_is_finite(const bs_judging *j, int64_t step, int64_t f);

/* step_bias.c: the biases of all rows through all steps, and dZ of each step, which needs them; called once,
 * first. */
int32_t bs_step_follow_biases(bs_judging *j, bs_error *err);
/* Judges the bias of a row after the last step by the output of forward for zeros. */
void bs_step_judge_bias(bs_judging *j, int64_t f);
/* Sets up the case that forward of the sampled rows computed after `step` steps: w and bias (if any), which
 * the caller releases, and the run (rows is set). */
int32_t bs_step_forward_case(const bs_judging *j, int64_t step, const double *bias, bs_source *w,
                             bs_source *b, bs_case *out_case, bs_case_result *out_run, bs_error *err);
#endif
