/* SPDX-License-Identifier: MIT
 * views.h - sources made of other sources: for gradients, which are layers of transposed operands. What a
 * source is made of must outlive it. */
#ifndef BS_LAB_GATE_VIEWS_H
#define BS_LAB_GATE_VIEWS_H
#include "lab/lab.h"

bs_source bs_view_transposed(const bs_source *inner);
/* Each value squared, in fp64. */
bs_source bs_view_squared(const bs_source *inner);
/* Column j of a partition; NULL: all columns. */
int64_t bs_view_column(const bs_partition *p, int64_t j);
#endif
