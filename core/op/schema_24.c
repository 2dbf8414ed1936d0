/* SPDX-License-Identifier: MIT
 * schema_24.c - the rules of the ops over 2:4 weights: matmul24 and its derivatives, which are those of
 * matmul with positions, and expand24. Rows of the table in schema.c point here. */
#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/op/schema.h"

enum { HASHED_ROWS = 8 }; /* two masks, or a mask and its complement, differ in nearly every row */
enum { HASHED_GROUPS = 256 };

int64_t bs_op_kept_length(int64_t cols) {
  return 2 * (cols / 4 + (cols % 4 != 0));
}

/* The positions are those of a weight [rows,cols], and the columns are a run of whole groups. */
static int32_t check_kept(const bs_op_query *q, int64_t rows, int64_t cols, bs_error *err) {
  const bs_kept *k = q->kept;
  const bs_partition *p = q->partition;
  if (k == NULL) return bs_op_refuse(err, "BS-OP-KEPT", q->op, "needs the positions of its weights (kept)");
  if (k->struct_size < sizeof *k || k->read == NULL)
    return bs_op_refuse(err, "BS-OP-KEPT", q->op, "positions of struct_size %u, need %zu and read",
                        k->struct_size, sizeof *k);
  if (k->rows != rows || k->cols != cols)
    return bs_op_refuse(err, "BS-OP-KEPT", q->op, "positions of [%lld,%lld], the weight is [%lld,%lld]",
                        (long long)k->rows, (long long)k->cols, (long long)rows, (long long)cols);
  if (p == NULL) return BS_OK;
  if (p->kind != BS_PARTITION_CONTIGUOUS)
    return bs_op_refuse(err, "BS-OP-PARTITION", q->op, "the partition is a list of columns, need a run");
  if (p->begin % 4 != 0 || (p->count % 4 != 0 && p->begin + p->count != p->total))
    return bs_op_refuse(err, "BS-OP-PARTITION", q->op,
                        "the partition has columns %lld..+%lld of %lld, need whole groups of four",
                        (long long)p->begin, (long long)p->count, (long long)p->total);
  return BS_OK;
}

static int64_t columns_of(const bs_op_query *q, const bs_tensor_desc *x) {
  return q->partition != NULL ? q->partition->count : x->dims[1];
}

int32_t bs_op_check_24(const bs_op_query *q, bs_error *err) {
  const int32_t rc = bs_op_check_matmul(q, err);
  return rc == BS_OK ? check_kept(q, q->args[3]->dims[1], columns_of(q, q->args[0]), err) : rc;
}

int32_t bs_op_check_24_dx(const bs_op_query *q, bs_error *err) {
  const int32_t rc = bs_op_check_dx(q, err);
  return rc == BS_OK ? check_kept(q, q->args[0]->dims[1], columns_of(q, q->args[1]), err) : rc;
}

int32_t bs_op_check_24_dw(const bs_op_query *q, bs_error *err) {
  const int64_t cols = columns_of(q, q->args[0]);
  const int32_t rc = bs_op_check_dw_of(q, bs_op_kept_length(cols), err);
  return rc == BS_OK ? check_kept(q, q->args[1]->dims[1], cols, err) : rc;
}

int32_t bs_op_check_24_update(const bs_op_query *q, bs_error *err) {
  const int32_t rc = bs_op_check_update(q, err);
  return rc == BS_OK ? check_kept(q, q->args[1]->dims[1], columns_of(q, q->args[0]), err) : rc;
}

int32_t bs_op_check_expand24(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *values = q->args[0], *dense = q->args[1];
  if (q->partition != NULL) return bs_op_refuse(err, "BS-OP-PARTITION", q->op, "takes no partition");
  if (values->dtype != dense->dtype)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "input %s, output %s: must be equal",
                        bs_dtype_name(values->dtype), bs_dtype_name(dense->dtype));
  if (values->dims[0] != dense->dims[0] || values->dims[1] != bs_op_kept_length(dense->dims[1]))
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "kept values [%lld,%lld] of a matrix [%lld,%lld]",
                        (long long)values->dims[0], (long long)values->dims[1], (long long)dense->dims[0],
                        (long long)dense->dims[1]);
  return check_kept(q, dense->dims[0], dense->dims[1], err);
}

/* ---- the same positions? -------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t h, const uint8_t *bytes, int64_t n) {
  for (int64_t i = 0; i < n; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
  return h;
}

static int32_t hash_row(const bs_kept *k, int64_t row, uint64_t *h, bs_error *err) {
  uint8_t groups[HASHED_GROUPS];
  const int64_t all = bs_op_kept_length(k->cols) / 2;
  for (int64_t g = 0; g < all; g += HASHED_GROUPS) {
    const int64_t n = all - g < HASHED_GROUPS ? all - g : HASHED_GROUPS;
    const int32_t rc = k->read(k->ctx, row, 1, g, n, groups, n, err);
    if (rc != BS_OK) return rc;
    *h = hash_bytes(*h, groups, n);
  }
  return BS_OK;
}

int32_t bs_op_kept_hash(const bs_kept *kept, uint64_t *out_hash, bs_error *err) {
  int32_t rc = BS_OK;
  *out_hash = UINT64_C(0xcbf29ce484222325);
  if (kept == NULL) {
    *out_hash = 0;
    return BS_OK;
  }
  const int64_t rows = kept->rows < HASHED_ROWS ? kept->rows : HASHED_ROWS;
  for (int64_t i = 0; i < rows && rc == BS_OK; i++)
    rc = hash_row(kept, rows > 1 ? (kept->rows - 1) / (rows - 1) * i : 0, out_hash, err);
  return rc;
}

/* ---- costs ---------------------------------------------------------------------------------- */

/* The dense rate with the kept weights alone: two of each group, and two bits for the place of each. */
static void rate(int64_t n, int64_t cols, uint64_t bytes, uint64_t others, bs_op_rate *out) {
  const uint64_t kept = bs_mul_sat((uint64_t)n, (uint64_t)bs_op_kept_length(cols));
  out->flops_row = bs_mul_sat(2, kept);
  out->bytes_fixed = bs_add_sat(bs_add_sat(bs_mul_sat(kept, bytes), kept / 4 + (kept % 4 != 0)), others);
}

void bs_op_rate_24(const bs_op_query *q, bs_op_rate *out) {
  const bs_tensor_desc *bias = q->args[1];
  bs_op_rate_matmul(q, out);
  rate(q->args[3]->dims[1], columns_of(q, q->args[0]), BS_DTYPE_BYTES(q->weight_dtype),
       bias == NULL ? 0 : bs_mul_sat((uint64_t)bias->dims[0], BS_DTYPE_BYTES(bias->dtype)), out);
}

void bs_op_rate_24_dx(const bs_op_query *q, bs_op_rate *out) {
  bs_op_rate_dx(q, out);
  rate(q->args[0]->dims[1], columns_of(q, q->args[1]), BS_DTYPE_BYTES(q->weight_dtype), 0, out);
}

void bs_op_rate_24_dw(const bs_op_query *q, bs_op_rate *out) {
  bs_op_rate_dw(q, out);
  rate(q->args[1]->dims[1], columns_of(q, q->args[0]), BS_DTYPE_BYTES(q->args[2]->dtype), 0, out);
}

void bs_op_rate_24_update(const bs_op_query *q, bs_op_rate *out) {
  bs_op_rate_update(q, out);
  rate(q->args[1]->dims[1], columns_of(q, q->args[0]), 2 * BS_DTYPE_BYTES(q->weight_dtype), 0, out);
}

/* A row of values and its positions in, a dense row out. */
void bs_op_rate_expand24(const bs_op_query *q, bs_op_rate *out) {
  const uint64_t kept = (uint64_t)q->args[0]->dims[1], size = BS_DTYPE_BYTES(q->args[0]->dtype);
  out->bytes_row = bs_add_sat(bs_mul_sat(bs_add_sat(kept, (uint64_t)q->args[1]->dims[1]), size),
                              kept / 4 + (kept % 4 != 0));
}
