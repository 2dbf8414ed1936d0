/* SPDX-License-Identifier: MIT
 * schema_grad.c - the rules of matmul's derivatives: matmul_dx, matmul_dw and matmul_update. Rows of the
 * table in schema.c point here. */
#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/op/schema.h"

static int is_integer(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8 || dtype == BS_I32 || dtype == BS_I64;
}

static int32_t check_attrs(const bs_op_query *q, bs_error *err) {
  if (q->accumulate > BS_ACC_F64)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown accumulate %u", q->accumulate);
  if (q->activation != BS_ACT_NONE)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "takes no activation (%s)",
                        bs_name_of(BS_NAMES_ACTIVATION, q->activation));
  return BS_OK;
}

/* `matrix` is X or dX: K columns with X_FULL, else the partition's. */
static int32_t check_columns(const bs_op_query *q, const char *name, const bs_tensor_desc *matrix,
                             bs_error *err) {
  const int64_t cols = matrix->dims[1];
  if (q->partition == NULL) {
    if (cols <= (int64_t)UINT32_MAX) return BS_OK;
    return bs_op_refuse(err, "BS-OP-SIZE", q->op, "%s has %lld columns, at most 2^32-1", name,
                        (long long)cols);
  }
  const int full = (q->flags & BS_QUERY_X_FULL) != 0;
  const int64_t want = full ? q->partition->total : q->partition->count;
  if (cols == want) return BS_OK;
  return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "%s has %lld columns, the partition asks for %lld%s", name,
                      (long long)cols, (long long)want, full ? " (X full)" : "");
}

static int32_t check_rows(const bs_op_query *q, const char *name, const bs_tensor_desc *a,
                          const bs_tensor_desc *dy, bs_error *err) {
  if (a->dims[0] == dy->dims[0]) return BS_OK;
  return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "%s has %lld rows, dY %lld", name, (long long)a->dims[0],
                      (long long)dy->dims[0]);
}

/* Two operands and the result: all float, or all integer with a sum of 32 or 64 bits. */
static int32_t check_dtypes(const bs_op_query *q, const char *names, uint32_t a, uint32_t b, uint32_t out,
                            bs_error *err) {
  if (!bs_dtype_known(a) || !bs_dtype_known(b))
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "unknown weight_dtype 0x%04x", bs_dtype_known(a) ? b : a);
  const int integers = is_integer(a);
  const int fit = integers ? is_integer(b) && (out == BS_I32 || out == BS_I64)
                           : bs_dtype_is_float(a) && bs_dtype_is_float(b) && bs_dtype_is_float(out);
  if (fit) return BS_OK;
  return bs_op_refuse(err, "BS-OP-DTYPE", q->op,
                      "%s are %s, %s, %s: all float, or all integer with a result of i32 or i64", names,
                      bs_dtype_name(a), bs_dtype_name(b), bs_dtype_name(out));
}

int32_t bs_op_check_dx(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *dy = q->args[0], *dx = q->args[1];
  int32_t rc = check_attrs(q, err);
  if (rc == BS_OK) rc = check_dtypes(q, "dY, weight and dX", dy->dtype, q->weight_dtype, dx->dtype, err);
  if (rc == BS_OK) rc = check_columns(q, "dX", dx, err);
  return rc == BS_OK ? check_rows(q, "dX", dx, dy, err) : rc;
}

int32_t bs_op_check_dw(const bs_op_query *q, bs_error *err) {
  return bs_op_check_dw_of(q, q->partition != NULL ? q->partition->count : q->args[0]->dims[1], err);
}

int32_t bs_op_check_dw_of(const bs_op_query *q, int64_t kept, bs_error *err) {
  const bs_tensor_desc *x = q->args[0], *dy = q->args[1], *dw = q->args[2];
  int32_t rc = check_attrs(q, err);
  if (rc == BS_OK) rc = check_dtypes(q, "X, dY and dW", x->dtype, dy->dtype, dw->dtype, err);
  if (rc == BS_OK && !is_integer(dw->dtype) && dw->dtype != BS_F32 && dw->dtype != BS_F64)
    rc = bs_op_refuse(err, "BS-OP-DTYPE", q->op, "dW of floats is f32 or f64, not %s",
                      bs_dtype_name(dw->dtype));
  if (rc == BS_OK) rc = check_columns(q, "X", x, err);
  if (rc == BS_OK) rc = check_rows(q, "X", x, dy, err);
  if (rc != BS_OK) return rc;
  if (dw->dims[0] == dy->dims[1] && dw->dims[1] == kept) return BS_OK;
  return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "dW is [%lld,%lld], dY^T X [%lld,%lld]",
                      (long long)dw->dims[0], (long long)dw->dims[1], (long long)dy->dims[1],
                      (long long)kept);
}

int32_t bs_op_check_update(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *x = q->args[0], *dy = q->args[1], *alpha = q->args[2];
  int32_t rc = check_attrs(q, err);
  if (rc == BS_OK) rc = check_dtypes(q, "X, dY and weight", x->dtype, dy->dtype, q->weight_dtype, err);
  if (rc == BS_OK && is_integer(x->dtype))
    rc = bs_op_refuse(err, "BS-OP-DTYPE", q->op, "integer weights are not updated (%s)",
                      bs_dtype_name(x->dtype));
  if (rc == BS_OK && (alpha->dtype != BS_F32 || alpha->dims[0] != 1))
    rc = bs_op_refuse(err, "BS-OP-SHAPE", q->op, "alpha is %s[%lld], must be f32[1]",
                      bs_dtype_name(alpha->dtype), (long long)alpha->dims[0]);
  if (rc == BS_OK) rc = check_columns(q, "X", x, err);
  return rc == BS_OK ? check_rows(q, "X", x, dy, err) : rc;
}

/* ---- costs ---------------------------------------------------------------------------------- */

/* 2 N K_r multiply-adds a row, its dY and its part of X or dX; `bytes` of each weight once. */
static void rate(const bs_op_query *q, const bs_tensor_desc *x, const bs_tensor_desc *dy, uint64_t bytes,
                 bs_op_rate *out) {
  const uint64_t n = (uint64_t)dy->dims[1];
  const uint64_t k = (uint64_t)(q->partition != NULL ? q->partition->count : x->dims[1]);
  const uint64_t nk = bs_mul_sat(n, k);
  out->flops_row = bs_mul_sat(2, nk);
  out->bytes_row =
      bs_add_sat(bs_mul_sat(n, BS_DTYPE_BYTES(dy->dtype)), bs_mul_sat(k, BS_DTYPE_BYTES(x->dtype)));
  out->bytes_fixed = bs_mul_sat(nk, bytes);
}

void bs_op_rate_dx(const bs_op_query *q, bs_op_rate *out) {
  rate(q, q->args[1], q->args[0], BS_DTYPE_BYTES(q->weight_dtype), out);
}

void bs_op_rate_dw(const bs_op_query *q, bs_op_rate *out) {
  rate(q, q->args[0], q->args[1], BS_DTYPE_BYTES(q->args[2]->dtype), out);
}

void bs_op_rate_update(const bs_op_query *q, bs_op_rate *out) {
  rate(q, q->args[0], q->args[1], 2 * BS_DTYPE_BYTES(q->weight_dtype), out); /* read and written */
}
