/* SPDX-License-Identifier: MIT
 * activation.h - activations as the gates see them: the value in fp64, the largest growth of an error in the
 * input, and the rounding error that the evaluation adds. Only the oracle uses this; it shares no code with
 * any op. */
#ifndef BS_LAB_ACTIVATION_H
#define BS_LAB_ACTIVATION_H
#include "blockshock/blockshock.h"

double bs_activation_value(uint32_t activation, double z);
/* The largest |f'| on [low, high]: |f(a) - f(b)| <= that * |a - b| there. Over all of the line it is 1 for
 * relu, 1.129 for gelu and 1.0999 for silu. */
double bs_activation_slope(uint32_t activation, double low, double high);
/* f'(z); that of relu is 0 at 0. NaN for gelu and silu if z is not finite and their formulas have no
 * value. */
double bs_activation_slope_at(uint32_t activation, double z);
/* The largest |f''| on [low, high], so |f'(a) - f'(b)| <= bend * |a - b| there. The result is 0 for none. It
 * is also 0 for relu, whose slope is constant except for the step at 0. */
double bs_activation_bend(uint32_t activation, double low, double high);
/* An upper bound of the error from evaluating f' and multiplying by it, for a gradient of 1: docs/ops.md. */
double bs_activation_slope_error(uint32_t activation, double slope, double u);
/* An upper bound of the error from evaluating f in a format of unit round-off u: the four units in the last
 * place (8 u) that docs/ops.md allows an implementation of gelu and silu. 0 for none and relu. */
double bs_activation_error(uint32_t activation, double z, double u);
/* An upper bound of what the usual formulas add to that for z < 0, in a format of unit round-off u. gelu is
 * the sum of z/2 and z/2 erf (or tanh), which cancel: four units in the last place of each term are 8 u |z|.
 * Below -9 erf is -1 and gelu may be 0. silu by 1 / (1 + e^-z) loses results below the least normal
 * number. */
double bs_activation_tail_error(uint32_t activation, double z, double u);
#endif
