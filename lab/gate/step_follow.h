/* SPDX-License-Identifier: MIT
 * step_follow.h - one value under an optimiser, in fp64: where each step must take it, and how far rounding
 * may take it from there. */
#ifndef BS_LAB_GATE_STEP_FOLLOW_H
#define BS_LAB_GATE_STEP_FOLLOW_H
#include "lab/phase/train.h"

/* What the optimiser remembers of a value, and its bound. All zero at first. */
typedef struct bs_followed {
  double m, v;
  double m_bound, v_bound;
} bs_followed;

/* A gradient and its error. */
typedef struct bs_slope {
  double g, bound;
} bs_slope;

/* The numbers as the ops get them, in f32. */
typedef struct bs_stepper {
  uint32_t optimizer;
  double lr, momentum, beta1, beta2, eps, decay, c1, c2;
  double u;    /* unit round-off of the arithmetic */
  double most; /* of AdamW: no gradients make a step of t steps longer than lr times this (Cauchy, Schwarz) */
} bs_stepper;

bs_stepper bs_stepper_make(const bs_train_options *options, int64_t t, int of_bias, int wide);
/* Where the value w goes: the returned value, its error before the last rounding in *out_bound. */
double bs_follow(const bs_stepper *stepper, bs_followed *state, double w, bs_slope slope, double *out_bound);
#endif
