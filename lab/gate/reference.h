/* SPDX-License-Identifier: MIT
 * reference.h - the fp64 reference of one linear layer and the related numbers that gates need. It reads X, W
 * and bias from their sources (the same rounded values that the ranks get). It does not use ops, methods or
 * backends: an oracle that shares their code would share their faults. */
#ifndef BS_LAB_GATE_REFERENCE_H
#define BS_LAB_GATE_REFERENCE_H
#include "blockshock/blockshock.h"
#include "lab/progress.h"

/* The division of K over ranks: column_rank[k] for K-split methods. NULL: no rank holds partial sums, or
 * `owners` knows each weight. owners writes the ranks of the K weights of feature f of w into out, UINT32_MAX
 * for those that no rank has, which the reference leaves out; the bias belongs to *out_first. */
typedef struct bs_reference_request {
  const bs_source *x;    /* [B,K] */
  const bs_source *w;    /* [N,K] */
  const bs_source *bias; /* [1,N] or NULL; belongs to rank 0's partial */
  uint32_t world_size;
  const uint32_t *column_rank;
  int32_t (*owners)(void *ctx, int64_t feature, uint32_t *out, uint32_t *out_first, bs_error *err);
  void *owners_ctx;
  uint32_t terms;       /* with owners: 1: the ranks' products are terms of a sum over ranks */
  int64_t max_features; /* 0: all; otherwise this many, spread evenly, first and last included */
  uint32_t threads;     /* 0: all cores */
  uint32_t activation;  /* enum bs_activation, of the whole sum */
  bs_progress_fn tell;  /* NULL: none; called by the calling thread, between features */
  void *tell_user;
} bs_reference_request;

/* Arrays are [B, features] unless stated otherwise; `partial[r]` only if column_rank or terms were given. */
typedef struct bs_reference {
  int64_t B, N, K, features;
  int64_t *feature;  /* [features] the output column of each */
  double *y;         /* act(X W^T + bias) */
  double *pre;       /* X W^T + bias; NULL without an activation: y is that */
  double *magnitude; /* |X| |W|^T + |bias|; for a sum that is not finite only its finite terms */
  double **partial;  /* [world_size] each [B,features]; NULL without partial sums */
  double *energy;    /* [features]: sum over tokens and columns of (x w)^2 */
  uint32_t world_size;
  /* The number of different tokens, or fewer for groups of equal ones: only so many outputs of a feature
   * are independent (the gradient of a sum is the same for all tokens). */
  int64_t distinct;
  int64_t distinct_features; /* likewise of features, by their rows of w; 0: not counted */
  const double
      *bias_error; /* [features] how far the bias may be from the one used; NULL: not at all; not owned */
  int gaps;        /* 1: the features are not adjacent, although they are all rows of w */
  /* [B, features] if x (or w) is known only to within errors; not owned. The variance that an output would
   * get from them, with each largest error as one standard deviation. */
  const double *carried_bound2;
  uint64_t nonfinite_inputs; /* NaN or Inf among the inputs read */
  uint8_t *token_nonfinite;  /* [B] 1: the token's X holds NaN or Inf */
} bs_reference;

/* Starts `threads` workers and joins them before it returns. BS_NO_MEMORY: the arrays do not fit. */
int32_t bs_reference_compute(const bs_reference_request *request, bs_reference *out_reference, bs_error *err);
void bs_reference_free(bs_reference *reference);
#endif
