/* SPDX-License-Identifier: MIT
 * slope.h - the gradient dZ = dY act'(Z) that reaches a layer's products through its activation. It computes
 * dZ in fp64 at the reference's Z, and a bound of the layer's error. The layer evaluates the slope at its own
 * Z, which has round-off, and rounds dZ to Y's dtype. If all possible values round to one value, the
 * reference is that value. Only relu is exact, except at its kink. If the reference's Z is nearer to the kink
 * than the round-off of Z, the layer's Y shows which side the layer took. */
#ifndef BS_LAB_GATE_SLOPE_H
#define BS_LAB_GATE_SLOPE_H
#include "lab/case/case.h"

/* The output of forward and the gradient given to backward, [B,N] of a dtype. */
typedef struct bs_slopes_given {
  const void *y, *dy;
  uint32_t dtype;
  const double *bias_error; /* [N] how far the bias may be from c's; NULL: not at all */
  int gaps;                 /* as in bs_verdict_within */
  int moved;                /* 1: weights may have been other ranks' then: terms of Z are not known */
} bs_slopes_given;

/* [B,N] each. */
typedef struct bs_slopes {
  double *dz;
  double *bound2; /* the square of the layer's error at most */
} bs_slopes;

/* c: the layer, with the x, w and bias of forward. The caller frees the slopes. */
int32_t bs_slopes_make(const bs_case *c, const bs_case_result *result, const bs_slopes_given *given,
                       bs_slopes *out, bs_error *err);
void bs_slopes_free(bs_slopes *slopes);
#endif
