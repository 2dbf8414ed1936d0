/* SPDX-License-Identifier: MIT
 * train.h - one layer trained for some steps on one world, as phase 3 judges it: forward, the loss's
 * gradient, backward, a step of the optimiser, each in its region. */
#ifndef BS_LAB_CASE_TRAIN_H
#define BS_LAB_CASE_TRAIN_H
#include "lab/case/case.h"

/* Deliberate faults (lab/gate/step.c), in the second step or after the last. */
enum bs_train_fault {
  BS_TRAIN_RIGHT = 0,
  BS_TRAIN_STEP_SKIPPED, /* the last rank takes no step */
  BS_TRAIN_LR_DOUBLED,   /* the last rank steps twice as far */
  BS_TRAIN_SIGN_TURNED,  /* every rank steps up the slope */
  BS_TRAIN_BIAS_DECAYED, /* the bias decays like a weight */
  BS_TRAIN_MOMENTS_LOST, /* the optimiser's state is set to zero */
  BS_TRAIN_COLUMN_MOVED, /* a weight that no rank owns is not zero any more */
  BS_TRAIN_OLD_WEIGHTS,  /* forward multiplies with the weights of before */
  BS_TRAIN_VALUE_MISSED, /* one weight keeps its value from before the step */
  BS_TRAIN_SLOPE_LOST,   /* each step: dY passes the activation unchanged */
  BS_TRAIN_SLOPE_AT_Y,   /* each step: the slope is evaluated at the activation's output, not at its input */
  BS_TRAIN_FAULTS_
};

typedef struct bs_train_options {
  uint32_t optimizer; /* enum bs_optimizer */
  double lr, momentum, beta1, beta2, eps, weight_decay;
  int64_t warmup, steps; /* all are steps; the first `warmup` of them are in no region */
  int64_t remask; /* the mask is computed again and the weights are packed again every so many steps; 0:
                   * never */
  uint32_t loss;  /* enum bs_loss */
  const bs_source *target;
  int64_t max_features; /* rows of W that are read back after each step; 0: as many as are kept */
  uint32_t fault;       /* enum bs_train_fault */
} bs_train_options;

typedef struct bs_train_rank {
  uint64_t counters[BS_COUNT_COUNT_]; /* of the last step */
  uint64_t moved;                     /* weights that it took over from other ranks, by all re-masks */
  uint64_t *hash;                     /* [steps + 1], of y before each step and after the last */
  double *loss;                       /* [steps] this rank's features' share of it */
} bs_train_rank;

typedef struct bs_train_result {
  /* The result of a case; ranks[r].y is the output after the last step. */
  bs_case_result run;
  bs_train_rank *ranks;
  int64_t steps, features; /* steps: with those of the warm-up */
  int64_t *feature;        /* [features] the rows of W that were read, evenly spread */
  double *w;               /* [steps + 1][features][K] as read back before the first step and after each */
  double *dy;              /* [steps][B][features] as backward was given it */
  double *y;               /* the same of the Y that the loss was taken of */
  double *zero; /* [steps + 1][features] y of zeros: after each re-mask, and at [steps] after the last step */
  double *zero_largest; /* the same of the largest of the group that shares its step; 0 without int8 sums */
  double *values;       /* the memory of w, dy, y, zero and zero_largest */
  uint64_t n_values;
  uint8_t *kept; /* a bit for each of them that this process has kept; NULL: all ranks keep theirs here */
  double *loss;  /* [steps] */
} bs_train_result;

/* The caller frees the result. */
int32_t bs_train_run(const bs_case *c, const bs_train_options *options, bs_train_result *out_result,
                     bs_error *err);
/* train_result.c: the memory of a result, and the losses of all ranks. */
int32_t bs_train_result_make(const bs_case *c, const bs_train_options *options, bs_train_result *out_result,
                             bs_error *err);
/* at: a place among the values. Every rank calls it, for its own places. */
void bs_train_keep(bs_train_result *result, double *at, double value);
/* Collects on rank 0, after bs_case_collect, the values that other processes kept. */
int32_t bs_train_collect(bs_world *world, bs_train_result *result, bs_error *err);
void bs_train_keep_largest(const bs_case *c, bs_train_result *result, uint32_t rank, const void *values,
                           int64_t step);
void bs_train_sum_losses(const bs_case *c, const bs_train_options *options, bs_train_result *result);
void bs_train_result_free(bs_train_result *result);
/* Flags of a layer that takes these steps. */
uint32_t bs_train_flags(const bs_train_options *options);
/* 1 when SGD adds to the weights without a dW. */
int bs_train_fused(const bs_train_options *options);
/* train_faults.c: applies faults. Those of the slope train a layer without its activation. The activation is
 * then applied to the y that is read, and its slope at y to dy. */
int bs_train_of_slope(uint32_t fault);
void bs_train_activate(uint32_t activation, void *values, int64_t count, uint32_t dtype);
void bs_train_slope_at_y(uint32_t activation, const void *y, void *dy, int64_t count, uint32_t dtype);
int32_t bs_train_decay_bias(bs_rank *rank, const bs_tensor *db, bs_error *err);
/* Is the layer built again after this step (counted from 1)? */
int bs_train_remasks(const bs_train_options *options, int64_t step, int64_t steps);
#endif
