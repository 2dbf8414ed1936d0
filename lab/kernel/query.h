/* SPDX-License-Identifier: MIT
 * query.h - a problem as the query of its op, without numbers: what an arm prepares and `bsrun explain`
 * asks. */
#ifndef BS_LAB_KERNEL_QUERY_H
#define BS_LAB_KERNEL_QUERY_H
#include "lab/kernel/problem.h"

/* It points into itself: it is not to be copied. */
typedef struct bs_kernel_query {
  bs_tensor_desc desc[BS_MAX_OP_ARGS]; /* dense */
  const bs_tensor_desc *args[BS_MAX_OP_ARGS];
  bs_op_query query;
} bs_kernel_query;

/* Positions of a random 2:4 weight of matmul24; the caller frees them by bs_kept_free. */
int32_t bs_kernel_kept_make(const bs_kernel_problem *problem, uint64_t seed, const bs_kept **out,
                            bs_error *err);
/* kept: the positions of matmul24, which the caller keeps alive; NULL of others. lse: attention gives its LSE
 * too. */
void bs_kernel_query_make(const bs_kernel_problem *problem, const bs_kept *kept, int lse,
                          bs_kernel_query *out);
#endif
