/* SPDX-License-Identifier: MIT
 *
 * method_gradient.h - runs and checks one backward pass of one layer of any method. On small integers dX, dW
 * and db must be the exact products, dX on every rank. The host's counts must equal the proposal, and nothing
 * may be allocated during the pass. With an activation (forward runs first, the values are not integers) the
 * gradients are those of finite differences, within the roundings of the dtypes. On request two steps of an
 * optimiser follow. For the tests of this folder and the conformance kit. */
#ifndef BS_KIT_METHOD_GRADIENT_H
#define BS_KIT_METHOD_GRADIENT_H

#include "kit/method_fixture.h"

/* The work after a backward pass: none, or two steps of an optimiser. */
enum mg_step { MG_NONE, MG_FUSED, MG_SGD, MG_MOMENTUM, MG_ADAMW, MG_STEPS_ };

typedef struct mg_case {
  const char *method, *backend;
  uint32_t world;
  int64_t rows; /* tokens of the pass; 0: spec.B */
  bs_layer_spec spec;
  const float *x, *w, *dy; /* [B,K], [N,K], [B,N], small integers; the bias is dy's first row */
  uint32_t step;           /* enum mg_step */
} mg_case;

/* method_step.c: the flags of a layer that takes these steps. The steps themselves: two of them, after a
 * backward of x and dy that gave dw and db. They are checked: weights read back, the bias from forward's
 * output for an x of zeros. `want` are the exact gradients [N,K] and [N]. */
uint32_t mg_step_flags(uint32_t step);
typedef struct mg_stepping {
  const mg_case *c;
  bs_rank *rank;
  bs_layer *layer;
  const bs_ownership *own;
  const bs_tensor *x, *dy, *dw, *db;
  const double *want_dw, *dw_size, *want_db;
  int64_t y_begin, y_cols;
} mg_stepping;
/* The largest error of a sum whose terms have absolute values that add up to size; 0 without an
 * activation. */
double mg_slack(const bs_layer_spec *spec, double size);
int32_t mg_steps(const mg_stepping *s, bs_error *err);

/* Fails the test (ck_abort) with the values that it found; returns the status of the first call that
 * failed. */
int32_t mg_run(bs_context *context, const mg_case *c, bs_error *err);

#endif
