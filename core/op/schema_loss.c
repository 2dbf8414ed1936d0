/* SPDX-License-Identifier: MIT
 * schema_loss.c - rule and cost of loss_gradient: a loss of outputs, token by token, and its gradient. Called
 * through the table in schema.c. */
#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/op/schema.h"

enum { Y, TARGET, DY, LOSS, ARGS };
enum { SUM = 0, SQUARES = 1 }; /* attrs[0] */

int32_t bs_op_check_loss(const bs_op_query *q, bs_error *err) {
  static const char *const names[ARGS] = {"Y", "target", "dY", "loss"};
  const int64_t rows = q->args[Y]->dims[0], cols = q->args[Y]->dims[1];
  if (q->attrs[0] != SUM && q->attrs[0] != SQUARES)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown loss %lld", (long long)q->attrs[0]);
  if (q->attrs[1] < 1 || q->attrs[1] > INT64_C(1) << 53)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "a mean of %lld outputs: 1 to 2^53",
                        (long long)q->attrs[1]);
  if (q->attrs[0] == SUM && q->args[TARGET] != NULL)
    return bs_op_refuse(err, "BS-OP-ARG", q->op, "a sum of Y has no target");
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL) continue;
    if (i == LOSS ? d->dtype != BS_F64 : !bs_dtype_is_float(d->dtype))
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "%s of dtype %s: must be %s", names[i],
                          bs_dtype_name(d->dtype), i == LOSS ? "f64" : "a float");
    if (d->dims[0] != rows || d->dims[1] != (i == LOSS ? 1 : cols))
      return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "%s [%lld,%lld] beside a Y of [%lld,%lld]", names[i],
                          (long long)d->dims[0], (long long)d->dims[1], (long long)rows, (long long)cols);
  }
  return BS_OK;
}

/* Every matrix once. */
void bs_op_rate_loss(const bs_op_query *q, bs_op_rate *out_rate) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    uint64_t bytes = 0;
    if (d == NULL) continue;
    if (!bs_mul_u64((uint64_t)d->dims[1], BS_DTYPE_BYTES(d->dtype), &bytes) || !bs_add_u64(sum, bytes, &sum))
      sum = UINT64_MAX;
  }
  out_rate->bytes_row = sum;
}
