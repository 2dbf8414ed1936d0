/* SPDX-License-Identifier: MIT
 * schema_quant.c - rules and costs of quantize_groups and dequantize_sum: int8 or fp8 values with an f32
 * scale for each group of attrs[0] neighbouring columns of a row; of dequantize_product: what a product of
 * two such matrices of int8 stands for; and of scaled_matmul: a product of two of fp8. Called through the
 * table in schema.c. */
#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/op/schema.h"

static int is_f8(uint32_t dtype) {
  return dtype == BS_F8E4M3 || dtype == BS_F8E5M2;
}

static int32_t check_pair(const bs_op_query *q, const bs_tensor_desc *values, const bs_tensor_desc *scales,
                          int64_t columns, int64_t terms, bs_error *err) {
  const int64_t group = q->attrs[0];
  int64_t wide, groups;
  if (group < 1 || terms < 1)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "groups of %lld columns, %lld terms: at least 1",
                        (long long)group, (long long)terms);
  if ((values->dtype != BS_I8 && !is_f8(values->dtype)) || scales->dtype != BS_F32)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op,
                        "values %s, scales %s: must be i8, f8e4m3 or f8e5m2, and f32",
                        bs_dtype_name(values->dtype), bs_dtype_name(scales->dtype));
  groups = columns / group + (columns % group != 0);
  if (!bs_mul_i64(columns, terms, &wide) || !bs_mul_i64(groups, terms, &groups) || values->dims[1] != wide ||
      scales->dims[1] != groups)
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op,
                        "%lld columns of values and %lld of scales for %lld x %lld columns in groups of %lld",
                        (long long)values->dims[1], (long long)scales->dims[1], (long long)terms,
                        (long long)columns, (long long)group);
  if (values->dims[0] != q->args[0]->dims[0] || scales->dims[0] != q->args[0]->dims[0] ||
      q->args[2]->dims[0] != q->args[0]->dims[0])
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "the arguments differ in rows");
  return BS_OK;
}

int32_t bs_op_check_quantize(const bs_op_query *q, bs_error *err) {
  if (q->args[0]->dtype != BS_F32)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "input %s, not f32", bs_dtype_name(q->args[0]->dtype));
  if (q->attrs[1] != 0 && q->attrs[1] != 1)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "attrs[1] is %lld: 1 where rows share scales, else 0",
                        (long long)q->attrs[1]);
  return check_pair(q, q->args[1], q->args[2], q->args[0]->dims[1], 1, err);
}

int32_t bs_op_check_dequantize(const bs_op_query *q, bs_error *err) {
  if (!bs_dtype_is_float(q->args[2]->dtype))
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "output %s, not a float",
                        bs_dtype_name(q->args[2]->dtype));
  return check_pair(q, q->args[0], q->args[1], q->args[2]->dims[1], q->attrs[1], err);
}

/* Every element of every argument once. */
void bs_op_rate_quant(const bs_op_query *q, bs_op_rate *out_rate) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < 3; i++) {
    uint64_t bytes;
    if (!bs_mul_u64((uint64_t)q->args[i]->dims[1], BS_DTYPE_BYTES(q->args[i]->dtype), &bytes) ||
        !bs_add_u64(sum, bytes, &sum))
      sum = UINT64_MAX;
  }
  out_rate->bytes_row = sum;
}

int32_t bs_op_check_dequantize_product(const bs_op_query *q, bs_error *err) {
  static const char *const names[6] = {"sums", "row scales", "column scales", "bias", "base", "out"};
  const bs_tensor_desc *out = q->args[5];
  const int64_t rows = out->dims[0], cols = out->dims[1];
  if (q->activation > BS_ACT_GELU_TANH)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown activation %u", q->activation);
  for (uint32_t i = 0; i < 6; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL) continue;
    const uint32_t want = i == 0 ? BS_I32 : BS_F32;
    if (i == 5 ? !bs_dtype_is_float(d->dtype) : d->dtype != want)
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "%s of dtype %s: must be %s", names[i],
                          bs_dtype_name(d->dtype), i == 5 ? "a float" : bs_dtype_name(want));
    const int fits =
        d->rank == 1 ? d->dims[0] == cols : d->dims[0] == rows && d->dims[1] == (i == 1 ? 1 : cols);
    if (!fits)
      return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "%s [%lld,%lld] beside an output [%lld,%lld]", names[i],
                          (long long)d->dims[0], d->rank == 1 ? 1LL : (long long)d->dims[1], (long long)rows,
                          (long long)cols);
  }
  return BS_OK;
}

/* Matrices once a row; the scales of columns and the bias once. */
void bs_op_rate_dequantize_product(const bs_op_query *q, bs_op_rate *out_rate) {
  uint64_t row = 0, fixed = 0;
  for (uint32_t i = 0; i < 6; i++) {
    const bs_tensor_desc *d = q->args[i];
    uint64_t bytes = 0;
    if (d == NULL) continue;
    uint64_t *sum = d->rank == 1 ? &fixed : &row;
    if (!bs_mul_u64((uint64_t)d->dims[d->rank - 1], BS_DTYPE_BYTES(d->dtype), &bytes) ||
        !bs_add_u64(*sum, bytes, sum))
      *sum = UINT64_MAX;
  }
  out_rate->bytes_row = row;
  out_rate->bytes_fixed = fixed;
}

/* ---- scaled_matmul ------------------------------------------------------------------------------ */

enum { X, X_SCALES, W, W_SCALES, BIAS, BASE, OUT, ARGS };
static const char *const scaled_names[ARGS] = {"x", "x's scales", "w", "w's scales", "bias", "base", "out"};

static int32_t check_scaled_dtypes(const bs_op_query *q, bs_error *err) {
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL) continue;
    const int bytes = i == X || i == W;
    const int fits = bytes ? is_f8(d->dtype) : i == OUT ? bs_dtype_is_float(d->dtype) : d->dtype == BS_F32;
    if (!fits)
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "%s of dtype %s: must be %s", scaled_names[i],
                          bs_dtype_name(d->dtype),
                          bytes      ? "f8e4m3 or f8e5m2"
                          : i == OUT ? "a float"
                                     : "f32");
  }
  return BS_OK;
}

int32_t bs_op_check_scaled_matmul(const bs_op_query *q, bs_error *err) {
  const int64_t B = q->args[X]->dims[0], K = q->args[X]->dims[1], N = q->args[W]->dims[0];
  const int64_t group = q->attrs[0];
  if (q->activation > BS_ACT_GELU_TANH)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown activation %u", q->activation);
  if (group < 1)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "groups of %lld columns: at least 1", (long long)group);
  if (q->accumulate == BS_ACC_F64)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "sums in f64 are asked for: they are f32");
  const int32_t rc = check_scaled_dtypes(q, err);
  if (rc != BS_OK) return rc;
  const int64_t groups = K / group + (K % group != 0);
  const int64_t want[ARGS][2] = {{B, K}, {B, groups}, {N, K}, {N, groups}, {N, 0}, {B, N}, {B, N}};
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL || (d->dims[0] == want[i][0] && (d->rank == 1 || d->dims[1] == want[i][1]))) continue;
    return bs_op_refuse(
        err, "BS-OP-SHAPE", q->op,
        "%s [%lld,%lld] beside x [%lld,%lld], %lld outputs and groups of %lld columns: must be [%lld,%lld]",
        scaled_names[i], (long long)d->dims[0], (long long)(d->rank == 1 ? 1 : d->dims[1]), (long long)B,
        (long long)K, (long long)N, (long long)group, (long long)want[i][0],
        (long long)(d->rank == 1 ? 1 : want[i][1]));
  }
  return BS_OK;
}

/* x, its scales, base and out once a row; w, its scales and the bias once. */
void bs_op_rate_scaled_matmul(const bs_op_query *q, bs_op_rate *out_rate) {
  uint64_t row = 0, fixed = 0, flops;
  for (uint32_t i = 0; i < ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    uint64_t bytes = 0;
    if (d == NULL) continue;
    const int once = i == W || i == W_SCALES || i == BIAS;
    uint64_t *sum = once ? &fixed : &row;
    if (!bs_mul_u64((uint64_t)(d->rank == 1 ? d->dims[0] : d->dims[1]), BS_DTYPE_BYTES(d->dtype), &bytes) ||
        (once && d->rank == 2 && !bs_mul_u64(bytes, (uint64_t)d->dims[0], &bytes)) ||
        !bs_add_u64(*sum, bytes, sum))
      *sum = UINT64_MAX;
  }
  if (!bs_mul_u64((uint64_t)q->args[W]->dims[0], (uint64_t)q->args[W]->dims[1], &flops) ||
      !bs_mul_u64(2, flops, &flops))
    flops = UINT64_MAX;
  out_rate->flops_row = flops;
  out_rate->bytes_row = row;
  out_rate->bytes_fixed = fixed;
}
