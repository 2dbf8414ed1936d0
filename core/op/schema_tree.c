/* SPDX-License-Identifier: MIT
 * schema_tree.c - the core op tree_sum: the sum of a few blocks that lie side by side, in an order that is
 * fixed by the query and by nothing else (reproducible sums of layers, docs/methods.md). Used by schema.c.
 */
#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/op/schema.h"

#define MAX_BLOCKS 8

static int is_sum_integer(uint32_t dtype) {
  return dtype == BS_I32 || dtype == BS_I64;
}

/* Either all zero (in order), or each block once. */
static int32_t check_order(const bs_op_query *q, int64_t blocks, bs_error *err) {
  uint32_t seen = 0;
  int given = 0;
  for (int64_t i = 0; i < blocks; i++) given |= q->attrs[i] != 0;
  if (!given) return BS_OK;
  for (int64_t i = 0; i < blocks; i++) {
    const int64_t block = q->attrs[i];
    if (block < 0 || block >= blocks || (seen >> block & 1u))
      return bs_op_refuse(err, "BS-OP-ATTR", q->op, "block %lld at place %lld of %lld: each once",
                          (long long)block, (long long)i, (long long)blocks);
    seen |= 1u << block;
  }
  return BS_OK;
}

int32_t bs_op_check_tree(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *in = q->args[0], *out = q->args[1];
  const int integers = in->dtype == out->dtype && is_sum_integer(in->dtype);
  if (q->activation > BS_ACT_GELU_TANH)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown activation %u", q->activation);
  if (!integers && !(bs_dtype_is_float(in->dtype) && bs_dtype_is_float(out->dtype)))
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "input %s, output %s: two floats, or i32 or i64 twice",
                        bs_dtype_name(in->dtype), bs_dtype_name(out->dtype));
  if (integers && q->activation > BS_ACT_RELU)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "gelu and silu need float dtypes");
  const int64_t n = out->dims[1], blocks = n > 0 ? in->dims[1] / n : 1;
  if (in->dims[0] != out->dims[0] || blocks < 1 || blocks > MAX_BLOCKS || (blocks & (blocks - 1)) != 0 ||
      in->dims[1] != blocks * n)
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op,
                        "input [%lld,%lld], output [%lld,%lld]: 1, 2, 4 or 8 blocks of the output's columns",
                        (long long)in->dims[0], (long long)in->dims[1], (long long)out->dims[0],
                        (long long)n);
  return check_order(q, blocks, err);
}

void bs_op_rate_tree(const bs_op_query *q, bs_op_rate *out_rate) {
  uint64_t in = 0, out = 0, all = 0;
  if (!bs_mul_u64((uint64_t)q->args[0]->dims[1], BS_DTYPE_BYTES(q->args[0]->dtype), &in) ||
      !bs_mul_u64((uint64_t)q->args[1]->dims[1], BS_DTYPE_BYTES(q->args[1]->dtype), &out) ||
      !bs_add_u64(in, out, &all))
    all = UINT64_MAX;
  out_rate->bytes_row = all;
}
