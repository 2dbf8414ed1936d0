/* SPDX-License-Identifier: MIT
 * dynamic.h - ops whose dims and outer strides are those of the call (op.h, "Ops of graphs"): what a run must
 * keep of what was prepared, and what it costs. Used by schema.c and run.c. */
#ifndef BS_CORE_OP_DYNAMIC_H
#define BS_CORE_OP_DYNAMIC_H
#include "core/op/plan.h"
#include "core/op/schema.h"

/* Cost of a checked query of an op with schema->link; saturates. */
void bs_op_cost_dynamic(const bs_op_schema *schema, const bs_op_query *query, uint64_t *out_flops,
                        uint64_t *out_bytes);
/* Cost of a run with these args, which have passed bs_op_check_call. */
void bs_op_cost_call(const bs_plan *plan, bs_tensor *const *args, uint64_t *out_flops, uint64_t *out_bytes);
/* Do the args of a run suit a plan of a dynamic op: dtypes, ranks, dims not above the prepared ones and alike
 * where the op ties them together, the last stride, all elements within the bytes, no output that overlaps
 * itself. BS_INVALID_ARGUMENT names the arg. Formats text only when it fails. */
int32_t bs_op_check_call(const bs_plan *plan, bs_tensor *const *args, bs_error *err);
#endif
