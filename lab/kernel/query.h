/* SPDX-License-Identifier: MIT
 * query.h - a problem as the query of its op, without numbers: for the preparation of an arm and for `bsrun
 * explain`. */
#ifndef BS_LAB_KERNEL_QUERY_H
#define BS_LAB_KERNEL_QUERY_H
#include "core/op/ask.h"
#include "lab/kernel/problem.h"

/* It points into itself: do not copy it. */
typedef bs_op_question bs_kernel_query;

/* Positions of a random 2:4 weight; the caller frees them by bs_kept_free. */
int32_t bs_kernel_kept_make(const bs_kernel_problem *problem, uint64_t seed, const bs_kept **out,
                            bs_error *err);
/* The half of the columns that a product takes; NULL: all. The caller frees it by bs_partition_free. */
int32_t bs_kernel_columns_make(const bs_kernel_problem *problem, const bs_partition **out, bs_error *err);
/* kept: the positions of a 2:4 product; columns: of one that takes half of them. The caller keeps both alive;
 * NULL of others. lse: attention gives its LSE too. */
void bs_kernel_query_make(const bs_kernel_problem *problem, const bs_kept *kept, const bs_partition *columns,
                          int lse, bs_kernel_query *out);
/* The query that packs the weight of a product: the forward one, also for a backward product. */
void bs_kernel_query_of_weight(const bs_kernel_problem *problem, const bs_kept *kept,
                               const bs_partition *columns, bs_kernel_query *out);
#endif
