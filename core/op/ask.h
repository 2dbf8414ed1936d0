/* SPDX-License-Identifier: MIT
 * ask.h - the query that a layer of given sizes makes of a core op, by the roles that the op's row of the
 * schema table gives its arguments. Pure. */
#ifndef BS_CORE_OP_ASK_H
#define BS_CORE_OP_ASK_H
#include "core/op/schema.h"

/* The layer: Y [B,N] = act(X [B,K] W^T + bias) + residual. */
typedef struct bs_op_sizes {
  int64_t B, N, K;
  uint32_t dtype, out_dtype, weight_dtype;
  uint32_t activation, accumulate, flags; /* those of bs_op_query */
  uint32_t bias, residual;                /* 1: optional arguments of these names are given */
  const bs_partition *partition;          /* NULL: all K columns are the rank's own */
  const bs_kept *kept;                    /* of ops of 2:4 weights */
  const bs_quant *quant;                  /* of ops of quantised weights; NULL: w8g32 */
} bs_op_sizes;

/* A query and what it points to; not to be moved. */
typedef struct bs_op_question {
  bs_tensor_desc desc[BS_MAX_OP_ARGS];
  const bs_tensor_desc *args[BS_MAX_OP_ARGS];
  bs_expr expr;
  bs_expr_step step;
  uint64_t zero; /* the constant of relu */
  bs_quant quant;
  uint8_t out;
  bs_op_query query;
} bs_op_question;

/* Makes the query of a core op for the sizes. It points into out_question and to partition and kept, which
 * the caller keeps alive. Attributes have usual values: groups of 64 columns, a sum of two blocks, the 8
 * largest. The caller asks bs_op_check, and who can serve it. BS_INVALID_ARGUMENT: the core has no such op,
 * or a partition or kept is missing. */
BS_API int32_t bs_op_ask(const char *op, const bs_op_sizes *sizes, bs_op_question *out_question,
                         bs_error *err);
/* Does a core op take what a layer's option of this name gives: "activation", "bias", "residual"? */
BS_API int bs_op_takes(const char *op, const char *option);
/* Does the op's query need a partition, or the kept places of a 2:4 weight? */
BS_API int bs_op_needs_partition(const char *op);
BS_API int bs_op_needs_kept(const char *op);
#endif
