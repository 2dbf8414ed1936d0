/* SPDX-License-Identifier: MIT
 * schema_rows.c - the core ops normalize, reduce and topk: what looks at whole rows of a tensor. Used by
 * schema_table.c. */
#include <math.h>

#include "core/base/dtype.h"
#include "core/op/schema.h"

/* ---- normalize: X, add, gamma, beta, Y, sum ------------------------------------------------- */

int32_t bs_op_check_normalize(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *x = q->args[0];
  int32_t rc = bs_op_check_attr(q, 0, BS_NORMALIZE_LAYER, BS_NORMALIZE_LOG_SOFTMAX, "kind", err);
  if (rc != BS_OK) return rc;
  if (x->rank < 1) return bs_op_refuse(err, "BS-OP-RANK", q->op, "X has no dimension");
  for (uint32_t i = 0; i < q->nargs; i++)
    if (q->args[i] != NULL && !bs_dtype_is_float(q->args[i]->dtype))
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "arg %u is %s: a float", i,
                          bs_dtype_name(q->args[i]->dtype));
  rc = bs_op_check_dims(q, 1, 0, 1, err);
  for (uint32_t i = 2; rc == BS_OK && i <= 3; i++) {
    rc = bs_op_check_rank(q, i, 1, err);
    if (rc == BS_OK) rc = bs_op_check_dim(q, i, 0, 0, x->rank - 1, err);
    if (rc == BS_OK && q->args[i] != NULL && q->attrs[0] >= BS_NORMALIZE_SOFTMAX)
      rc = bs_op_refuse(err, "BS-OP-ARITY", q->op, "softmax takes no gamma or beta (arg %u)", i);
  }
  for (uint32_t i = 4; rc == BS_OK && i <= 5; i++) rc = bs_op_check_dims(q, i, 0, 0, err);
  if (rc == BS_OK && !(isfinite(q->numbers[0]) && q->numbers[0] >= 0.0))
    rc = bs_op_refuse(err, "BS-OP-ATTR", q->op, "eps, numbers[0], is %g", q->numbers[0]);
  return rc;
}

void bs_op_link_normalize(const bs_op_query *q, bs_op_links *links) {
  bs_op_link_all(q, links, 0, 0);
  bs_op_link_all(q, links, 1, 0);
  bs_op_link_all(q, links, 4, 0);
  bs_op_link_all(q, links, 5, 0);
  bs_op_link(q, links, 2, 0, 0, q->args[0]->rank - 1);
  bs_op_link(q, links, 3, 0, 0, q->args[0]->rank - 1);
  for (uint32_t i = 0; i < q->nargs; i++) links->touched[i] = 1;
  links->nterms = 1;
  links->terms[0] = (bs_op_term){q->attrs[0] == BS_NORMALIZE_RMS ? 4 : 7, 0, 0, 0};
}

/* ---- reduce: in, out ------------------------------------------------------------------------ */

static int is_arg(int64_t kind) {
  return kind == BS_FOLD_ARGMAX || kind == BS_FOLD_ARGMIN;
}

static int32_t check_reduce_dtypes(const bs_op_query *q, bs_error *err) {
  const uint32_t in = q->args[0]->dtype, out = q->args[1]->dtype;
  const int64_t kind = q->attrs[0];
  int fits = in == out; /* max, min */
  if (is_arg(kind))
    fits = bs_op_is_index(out);
  else if (kind == BS_FOLD_CUMSUM)
    fits = in == out && in != BS_BOOL;
  else if (kind == BS_FOLD_SUM || kind == BS_FOLD_PROD || kind == BS_FOLD_SUMSQ)
    fits = bs_dtype_is_float(in) ? bs_dtype_is_float(out) : in != BS_BOOL && bs_op_is_integer(out);
  if (fits) return BS_OK;
  return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "in %s, out %s with kind %lld", bs_dtype_name(in),
                      bs_dtype_name(out), (long long)kind);
}

int32_t bs_op_check_reduce(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *in = q->args[0], *out = q->args[1];
  const int64_t kind = q->attrs[0];
  int32_t rc = bs_op_check_attr(q, 0, BS_FOLD_SUM, BS_FOLD_CUMSUM, "kind", err);
  if (rc == BS_OK) rc = bs_op_check_dims(q, 1, 0, 1, err);
  if (rc == BS_OK) rc = check_reduce_dtypes(q, err);
  if (rc != BS_OK) return rc;
  if (kind == BS_FOLD_SUM || kind == BS_FOLD_SUMSQ) {
    rc = bs_op_check_number(q, 0, "factor", err);
    if (rc == BS_OK && q->numbers[0] != 1.0 && !bs_dtype_is_float(out->dtype))
      rc = bs_op_refuse(err, "BS-OP-ATTR", q->op, "factor %g of integers: 1", q->numbers[0]);
    return rc;
  }
  if (kind < BS_FOLD_ARGMAX) return BS_OK;
  if (in->rank < 1) return bs_op_refuse(err, "BS-OP-RANK", q->op, "in has no dimension");
  rc = bs_op_check_attr(q, 1, 0, (int64_t)in->rank - 1, "axis", err);
  if (rc == BS_OK) rc = bs_op_check_attr(q, 2, 0, kind == BS_FOLD_CUMSUM ? 3 : 1, "flags", err);
  for (uint32_t d = 0; rc == BS_OK && d < in->rank; d++) {
    const int folded = is_arg(kind) && (int64_t)d == q->attrs[1];
    if (out->dims[d] != (folded ? 1 : in->dims[d]))
      rc = bs_op_refuse(err, "BS-OP-SHAPE", q->op, "out has %lld in dimension %u, in has %lld, axis is %lld",
                        (long long)out->dims[d], d, (long long)in->dims[d], (long long)q->attrs[1]);
  }
  return rc;
}

void bs_op_link_reduce(const bs_op_query *q, bs_op_links *links) {
  bs_op_link_all(q, links, 0, 0);
  bs_op_link_all(q, links, 1, 0);
  if (is_arg(q->attrs[0])) links->links[1][q->attrs[1]] = 0;
  links->touched[0] = links->touched[1] = 1;
  links->nterms = 1;
  links->terms[0] = (bs_op_term){q->attrs[0] == BS_FOLD_SUMSQ ? 2 : 1, 0, 0, 0};
}

/* ---- topk: in, values, indices -------------------------------------------------------------- */

int32_t bs_op_check_topk(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *in = q->args[0], *values = q->args[1], *indices = q->args[2];
  if (in->rank < 1) return bs_op_refuse(err, "BS-OP-RANK", q->op, "in has no dimension");
  int32_t rc = bs_op_check_attr(q, 0, 0, (int64_t)in->rank - 1, "axis", err);
  if (rc == BS_OK) rc = bs_op_check_attr(q, 1, 0, 1, "order", err);
  if (rc == BS_OK) rc = bs_op_check_rank(q, 1, in->rank, err);
  if (rc == BS_OK) rc = bs_op_check_dims(q, 2, 1, 0, err);
  for (uint32_t d = 0; rc == BS_OK && d < in->rank; d++)
    if ((int64_t)d != q->attrs[0]) rc = bs_op_check_dim(q, 1, d, 0, d, err);
  if (rc == BS_OK && values->dims[q->attrs[0]] > in->dims[q->attrs[0]])
    rc = bs_op_refuse(err, "BS-OP-SHAPE", q->op, "k is %lld of %lld", (long long)values->dims[q->attrs[0]],
                      (long long)in->dims[q->attrs[0]]);
  if (rc == BS_OK && (values->dtype != in->dtype || !bs_op_is_index(indices->dtype)))
    rc = bs_op_refuse(err, "BS-OP-DTYPE", q->op, "in %s, values %s, indices %s: alike, and i64 or i32",
                      bs_dtype_name(in->dtype), bs_dtype_name(values->dtype), bs_dtype_name(indices->dtype));
  return rc;
}

/* The axis stays as prepared: k values of it must be there. */
void bs_op_link_topk(const bs_op_query *q, bs_op_links *links) {
  for (uint32_t i = 0; i < q->nargs; i++) {
    bs_op_link_all(q, links, i, 0);
    links->links[i][q->attrs[0]] = 0;
    links->touched[i] = 1;
  }
  links->nterms = 1;
  links->terms[0] = (bs_op_term){1, 0, 0, 0};
}
