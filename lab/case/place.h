/* SPDX-License-Identifier: MIT
 * place.h - the placement of x and y of a case: a rank's tokens, a partial x, and the output that the next
 * layer would compute from the ranks' parts. */
#ifndef BS_LAB_CASE_PLACE_H
#define BS_LAB_CASE_PLACE_H
#include "lab/case/case.h"

/* The tokens of a rank's x or y. */
void bs_place_tokens(const bs_case *c, uint32_t placement, uint32_t rank, int64_t *out_begin,
                     int64_t *out_count);
/* Rows `first`.. of the source into x; of a partial x the rank's share of the columns, the others stay 0. */
int32_t bs_place_read(const bs_case *c, bs_rank *rank, const bs_source *source, const bs_partition *cols,
                      int64_t first, bs_tensor *x, bs_error *err);
/* Turns y of split tokens or partial sums into the whole y on every rank: tokens are joined, partial sums
 * added in rank order, each sum rounded to y's dtype. Otherwise does nothing. */
int32_t bs_place_assemble(const bs_case *c, bs_case_result *result, bs_error *err);
/* 1 when y on a rank is not all that is judged (see assemble). */
int bs_place_assembles(const bs_case *c);
/* 1: the layer sums in leaves (method.repro=R3 or R4): they are exchanged without reduction. */
int bs_place_leaves(const bs_case *c);
/* 1: the case allows sums in an order that may differ by rank (hardware.algorithm), so ranks may hold
 * different bits. */
int bs_place_unordered(const bs_case *c);
#endif
