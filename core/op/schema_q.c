/* SPDX-License-Identifier: MIT
 * schema_q.c - rules and costs of matmul_q and take_q: products with, and rows of, a packed weight that stays
 * quantised (bs_op_query.quant). docs/ops.md has their meaning. Called through the table in schema_table.c.
 */
#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/op/quant.h"
#include "core/op/schema.h"

/* The sums of one scale a row over X in bytes fit in 32 bits: 255 * 127 * 65,536 < 2^31. */
enum { BYTES_COLUMNS = 65536, X_GROUP_MIN = 32 };

static int is_byte(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8;
}

/* The rules of both ops for the weight; `cols`: columns of X or of out. */
static int32_t check_weight(const bs_op_query *q, int64_t cols, bs_error *err) {
  if (q->quant == NULL)
    return bs_op_refuse(err, "BS-OP-QUANT", q->op, "needs the form of its weight (quant)");
  const int32_t rc = bs_quant_check(q->quant, q->op, err);
  if (rc != BS_OK) return rc;
  if (q->partition != NULL)
    return bs_op_refuse(err, "BS-OP-QUANT", q->op, "takes all columns of its weight: no partition");
  if (q->weight_dtype != BS_F32)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "weight_dtype %s: a quantised weight stands for f32",
                        bs_dtype_name(q->weight_dtype));
  if (cols != q->quant->cols)
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "%lld columns beside a weight of %lld", (long long)cols,
                        (long long)q->quant->cols);
  return BS_OK;
}

/* attrs[0]: 1 for X in bytes; attrs[1]: columns of one scale of X. */
static int32_t check_bytes(const bs_op_query *q, bs_error *err) {
  const bs_quant *w = q->quant;
  const int64_t bytes = q->attrs[0], group = q->attrs[1];
  if (bytes != 0 && bytes != 1)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "attrs[0] is %lld: 1 for X in bytes, else 0",
                        (long long)bytes);
  if (is_byte(q->args[0]->dtype)) {
    if (bytes != 0 || group != 0 || w->group != w->cols || (w->flags & BS_QUANT_LOWS) != 0)
      return bs_op_refuse(err, "BS-OP-QUANT", q->op,
                          "X %s needs a weight of one scale a row without lows, and no attributes",
                          bs_dtype_name(q->args[0]->dtype));
    return BS_OK;
  }
  if (bytes == 0 && group != 0)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "attrs[1] is %lld without X in bytes", (long long)group);
  const int power = group >= X_GROUP_MIN && (group & (group - 1)) == 0;
  if (group != 0 && group != w->cols && !power)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op,
                        "attrs[1] is %lld: 0, a power of two from 32 on, or all %lld columns",
                        (long long)group, (long long)w->cols);
  if ((w->flags & BS_QUANT_STEPS) != 0 && group != 0 && group != w->span)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "attrs[1] is %lld: a weight with steps has X in its spans",
                        (long long)group);
  if (bytes != 0 && w->group == w->cols && (group == 0 || group > BYTES_COLUMNS) && w->cols > BYTES_COLUMNS)
    return bs_op_refuse(err, "BS-OP-QUANT", q->op,
                        "one scale of X and of the weight for %lld columns: at most 65536",
                        (long long)w->cols);
  return BS_OK;
}

static int32_t check_dtypes(const bs_op_query *q, bs_error *err) {
  static const char *const names[4] = {"X", "bias", "residual", "Y"};
  const int bytes = is_byte(q->args[0]->dtype);
  for (uint32_t i = 0; i < 4; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL || (bytes && i == 0)) continue;
    if (bytes ? d->dtype != BS_I32 || i != 3 : !bs_dtype_is_float(d->dtype))
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "%s is %s: %s", names[i], bs_dtype_name(d->dtype),
                          bytes ? "X of bytes gives Y i32, without bias and residual"
                                : "all arguments are floats, or X i8 or u8 and Y i32");
  }
  if (bytes && q->activation != BS_ACT_NONE)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "X of bytes takes no activation");
  return BS_OK;
}

int32_t bs_op_check_matmul_q(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *x = q->args[0], *bias = q->args[1], *residual = q->args[2], *y = q->args[3];
  if (q->accumulate > BS_ACC_F64 || q->activation > BS_ACT_GELU_TANH)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown accumulate %u or activation %u", q->accumulate,
                        q->activation);
  int32_t rc = check_weight(q, x->dims[1], err);
  if (rc == BS_OK) rc = check_dtypes(q, err);
  if (rc == BS_OK) rc = check_bytes(q, err);
  if (rc != BS_OK) return rc;
  if (x->dims[0] != y->dims[0] || y->dims[1] != q->quant->rows ||
      (bias != NULL && bias->dims[0] != y->dims[1]) ||
      (residual != NULL && (residual->dims[0] != y->dims[0] || residual->dims[1] != y->dims[1])))
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op,
                        "X [%lld,%lld], weight [%lld,%lld], Y [%lld,%lld], or bias or residual do not fit",
                        (long long)x->dims[0], (long long)x->dims[1], (long long)q->quant->rows,
                        (long long)q->quant->cols, (long long)y->dims[0], (long long)y->dims[1]);
  return BS_OK;
}

int32_t bs_op_check_take_q(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *index = q->args[0], *out = q->args[1];
  const int32_t rc = check_weight(q, out->dims[1], err);
  if (rc != BS_OK) return rc;
  if ((index->dtype != BS_I32 && index->dtype != BS_I64) || !bs_dtype_is_float(out->dtype))
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "index %s, out %s: i32 or i64, and a float",
                        bs_dtype_name(index->dtype), bs_dtype_name(out->dtype));
  if (index->dims[0] != out->dims[0])
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "%lld indices, %lld rows of out",
                        (long long)index->dims[0], (long long)out->dims[0]);
  return BS_OK;
}

static uint64_t row_bytes(const bs_tensor_desc *d) {
  return d == NULL ? 0 : bs_mul_sat((uint64_t)d->dims[d->rank - 1], BS_DTYPE_BYTES(d->dtype));
}

/* X, residual and Y once a row; the weight and the bias once. */
void bs_op_rate_matmul_q(const bs_op_query *q, bs_op_rate *out) {
  const uint64_t nk = bs_mul_sat((uint64_t)q->quant->rows, (uint64_t)q->quant->cols);
  out->flops_row = bs_mul_sat(2, nk);
  out->bytes_row =
      bs_add_sat(row_bytes(q->args[0]), bs_add_sat(row_bytes(q->args[2]), row_bytes(q->args[3])));
  out->bytes_fixed = bs_add_sat(bs_quant_bytes(q->quant), row_bytes(q->args[1]));
}

/* A row of the weight, and of out, for each index. */
void bs_op_rate_take_q(const bs_op_query *q, bs_op_rate *out) {
  const bs_quant *w = q->quant;
  const uint64_t rows = w->rows > 0 ? (uint64_t)w->rows : 1u;
  out->bytes_row = bs_add_sat(bs_quant_bytes(w) / rows,
                              bs_add_sat(row_bytes(q->args[1]), BS_DTYPE_BYTES(q->args[0]->dtype)));
}
