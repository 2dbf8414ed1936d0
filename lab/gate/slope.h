/* SPDX-License-Identifier: MIT
 * slope.h - the gradient that reaches a layer's products through its activation, dZ = dY act'(Z): in fp64 at
 * the reference's Z, and how far the layer's may be from that. It takes the slope at its own Z, which
 * round-off has moved, evaluates it, and rounds dZ to Y's dtype: where all that these leave possible rounds
 * to one value, that is the reference's too. relu alone is exact beside its kink; where the reference's Z is
 * nearer to the kink than round-off may have moved it, the layer's side of it is the one that its Y shows. */
#ifndef BS_LAB_GATE_SLOPE_H
#define BS_LAB_GATE_SLOPE_H
#include "lab/case/case.h"

/* What forward gave and backward was given, [B,N] of a dtype. */
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

/* c: the layer, whose x, w and bias are what forward had. The caller frees the slopes. */
int32_t bs_slopes_make(const bs_case *c, const bs_case_result *result, const bs_slopes_given *given,
                       bs_slopes *out, bs_error *err);
void bs_slopes_free(bs_slopes *slopes);
#endif
