/* SPDX-License-Identifier: MIT
 * quant_round.h - rounds rows of floats to quantised forms. Pure and thread-safe. */
#ifndef BS_GRAPH_LOWER_QUANT_ROUND_H
#define BS_GRAPH_LOWER_QUANT_ROUND_H
#include "blockshock/blockshock.h"

/* The arrays of one row, as bs_quant_rows has them. */
typedef struct quant_row {
  uint8_t *codes, *zeros, *low_steps;
  float *scales, *lows;
  int8_t *steps;
} quant_row;

/* Rounds x[0..cols) by the form of a scheme (bs_quant_scheme). A scale is rounded to f16 first, where f16 has
 * it as a normal number; then the codes are made by division, to the nearest, ties to even. A group with an
 * infinity or NaN gets the scale NaN. w4k and w6k take one least-squares step. */
void quant_round_row(const bs_quant *form, const float *x, const quant_row *out);
#endif
