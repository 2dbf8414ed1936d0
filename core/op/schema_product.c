/* SPDX-License-Identifier: MIT
 * schema_product.c - the core ops contract, attention and attention_dx: products of activations. Used by
 * schema_table.c. */
#include <math.h>

#include "core/base/dtype.h"
#include "core/op/schema.h"

/* ---- contract: A [z..,M,K], B [z..,K,N], bias, Y [z..,M,N] ---------------------------------- */

static int32_t check_contract_dtypes(const bs_op_query *q, bs_error *err) {
  const int integers = bs_op_is_integer(q->args[0]->dtype);
  for (uint32_t i = 0; i < q->nargs; i++) {
    if (q->args[i] == NULL) continue;
    const uint32_t dtype = q->args[i]->dtype;
    const int fits =
        integers ? i == 3 ? bs_op_is_index(dtype) : bs_op_is_integer(dtype) : bs_dtype_is_float(dtype);
    if (!fits)
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op,
                          "arg %u is %s beside A %s: all float, or integers and Y %s", i,
                          bs_dtype_name(dtype), bs_dtype_name(q->args[0]->dtype), "i32 or i64");
  }
  if (integers && (q->numbers[0] != 1.0 || q->activation > BS_ACT_RELU))
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "integers take alpha 1 and no activation but relu");
  return BS_OK;
}

int32_t bs_op_check_contract(const bs_op_query *q, bs_error *err) {
  const bs_tensor_desc *a = q->args[0], *b = q->args[1], *y = q->args[3];
  const uint32_t rank = y->rank;
  if (q->accumulate > BS_ACC_F64 || q->activation > BS_ACT_GELU_TANH)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown accumulate %u or activation %u", q->accumulate,
                        q->activation);
  if (rank < 2) return bs_op_refuse(err, "BS-OP-RANK", q->op, "Y has %u dimensions, need 2 to 6", rank);
  int32_t rc = bs_op_check_rank(q, 0, rank, err);
  if (rc == BS_OK) rc = bs_op_check_rank(q, 1, rank, err);
  if (rc == BS_OK) rc = bs_op_check_dims(q, 2, 3, 1, err);
  for (uint32_t d = 0; rc == BS_OK && d + 2 < rank; d++) {
    if (a->dims[d] != 1) rc = bs_op_check_dim(q, 0, d, 3, d, err);
    if (rc == BS_OK && b->dims[d] != 1) rc = bs_op_check_dim(q, 1, d, 3, d, err);
  }
  if (rc == BS_OK) rc = bs_op_check_dim(q, 0, rank - 2, 3, rank - 2, err);
  if (rc == BS_OK) rc = bs_op_check_dim(q, 1, rank - 1, 3, rank - 1, err);
  if (rc == BS_OK) rc = bs_op_check_dim(q, 1, rank - 2, 0, rank - 1, err);
  if (rc == BS_OK) rc = bs_op_check_number(q, 0, "alpha", err);
  return rc == BS_OK ? check_contract_dtypes(q, err) : rc;
}

void bs_op_link_contract(const bs_op_query *q, bs_op_links *links) {
  const uint32_t rank = q->args[3]->rank;
  bs_op_link_all(q, links, 3, 3);
  bs_op_link_all(q, links, 2, 3);
  for (uint32_t d = 0; d + 2 < rank; d++) {
    bs_op_link(q, links, 0, d, 3, d);
    bs_op_link(q, links, 1, d, 3, d);
  }
  bs_op_link(q, links, 0, rank - 2, 3, rank - 2);
  bs_op_link(q, links, 1, rank - 1, 3, rank - 1);
  bs_op_link(q, links, 0, rank - 1, 0, rank - 1);
  bs_op_link(q, links, 1, rank - 2, 0, rank - 1);
  for (uint32_t i = 0; i < q->nargs; i++) links->touched[i] = 1;
  links->nterms = 1;
  links->terms[0] = (bs_op_term){2, 3, 0, (uint8_t)(rank - 1)};
}

/* ---- attention: Q, K, V, mask, kv_len, descale, Y, LSE -------------------------------------- */

static int32_t check_attention_dtypes(const bs_op_query *q, bs_error *err) {
  for (uint32_t i = 0; i < q->nargs; i++) {
    if (q->args[i] == NULL) continue;
    const uint32_t dtype = q->args[i]->dtype;
    const int fits = i == 4             ? dtype == BS_I32
                     : i == 5 || i == 7 ? dtype == BS_F32
                     : i == 3           ? dtype == BS_BOOL || bs_dtype_is_float(dtype)
                                        : bs_dtype_is_float(dtype);
    if (!fits)
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op,
                          "arg %u is %s: floats, mask also bool, kv_len i32, descale and LSE f32", i,
                          bs_dtype_name(dtype));
  }
  return BS_OK;
}

static int32_t check_attention_numbers(const bs_op_query *q, bs_error *err) {
  if (q->accumulate > BS_ACC_F64)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "unknown accumulate %u", q->accumulate);
  int32_t rc = bs_op_check_number(q, 0, "scale", err);
  if (rc == BS_OK && !(isfinite(q->numbers[1]) && q->numbers[1] >= 0.0))
    rc = bs_op_refuse(err, "BS-OP-ATTR", q->op, "softcap, numbers[1], is %g", q->numbers[1]);
  if (rc == BS_OK) rc = bs_op_check_attr(q, 0, BS_CAUSAL_NONE, BS_CAUSAL_LOWER_RIGHT, "causal", err);
  if (rc == BS_OK) rc = bs_op_check_attr(q, 1, 0, INT64_MAX, "left window", err);
  if (rc == BS_OK) rc = bs_op_check_attr(q, 2, 0, INT64_MAX, "right window", err);
  if (rc == BS_OK) rc = bs_op_check_attr(q, 3, 0, 1, "zeros for NaN", err);
  return rc;
}

int32_t bs_op_check_attention(const bs_op_query *q, bs_error *err) {
  static const uint32_t ranks[8] = {4, 4, 4, 4, 1, 1, 4, 3};
  const bs_tensor_desc *x = q->args[0], *k = q->args[1], *mask = q->args[3], *descale = q->args[5];
  int32_t rc = check_attention_dtypes(q, err);
  for (uint32_t i = 0; rc == BS_OK && i < q->nargs; i++) rc = bs_op_check_rank(q, i, ranks[i], err);
  if (rc == BS_OK) rc = bs_op_check_dim(q, 1, 0, 0, 0, err); /* B */
  if (rc == BS_OK) rc = bs_op_check_dim(q, 1, 3, 0, 3, err); /* D */
  for (uint32_t d = 0; rc == BS_OK && d < 3; d++) {
    rc = bs_op_check_dim(q, 2, d, 1, d, err); /* V: B, G, T of K */
    if (rc == BS_OK) rc = bs_op_check_dim(q, 6, d, 0, d, err);
    if (rc == BS_OK) rc = bs_op_check_dim(q, 7, d, 0, d, err);
    if (rc == BS_OK && mask != NULL && mask->dims[d] != 1) rc = bs_op_check_dim(q, 3, d, 0, d, err);
  }
  if (rc == BS_OK) rc = bs_op_check_dim(q, 6, 3, 2, 3, err); /* E */
  if (rc == BS_OK && mask != NULL && mask->dims[3] != 1) rc = bs_op_check_dim(q, 3, 3, 1, 2, err);
  if (rc == BS_OK) rc = bs_op_check_dim(q, 4, 0, 0, 0, err);
  if (rc != BS_OK) return rc;
  if (k->dims[1] < 1 ? x->dims[1] != 0 : x->dims[1] % k->dims[1] != 0)
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "%lld heads of Q, %lld of K: a multiple",
                        (long long)x->dims[1], (long long)k->dims[1]);
  if (descale != NULL && descale->dims[0] != 3)
    return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "descale has %lld values, need 3",
                        (long long)descale->dims[0]);
  return check_attention_numbers(q, err);
}

/* H, G, D and E stay as prepared; B, S and T may be smaller. */
void bs_op_link_attention(const bs_op_query *q, bs_op_links *links) {
  static const uint8_t of_q[] = {0, 1, 2, 3, 4, 6, 7};
  for (uint32_t j = 0; j < sizeof of_q; j++) bs_op_link(q, links, of_q[j], 0, 0, 0); /* B */
  bs_op_link(q, links, 0, 2, 0, 2);                                                  /* S */
  bs_op_link(q, links, 3, 2, 0, 2);
  bs_op_link(q, links, 6, 2, 0, 2);
  bs_op_link(q, links, 7, 2, 0, 2);
  bs_op_link(q, links, 1, 2, 1, 2); /* T */
  bs_op_link(q, links, 2, 2, 1, 2);
  bs_op_link(q, links, 3, 3, 1, 2);
  for (uint32_t i = 0; i < q->nargs; i++) links->touched[i] = 1;
  links->nterms = 2;
  links->terms[0] = (bs_op_term){2, 0, 1, 2}; /* of the pairs that are seen, whatever the mask says */
  links->terms[1] = (bs_op_term){2, 6, 1, 2};
  links->sight = (bs_op_sight){1, (uint32_t)q->attrs[0], q->attrs[1], q->attrs[2]};
}

/* ---- attention_dx: attention's, without descale; then dY, dQ, dK, dV ------------------------- */

static int32_t check_as(const bs_op_query *q, uint32_t i, uint32_t of, bs_error *err) {
  if (!bs_dtype_is_float(q->args[i]->dtype))
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "arg %u is %s: gradients are floats", i,
                        bs_dtype_name(q->args[i]->dtype));
  return bs_op_check_dims(q, i, of, 0, err);
}

int32_t bs_op_check_attention_dx(const bs_op_query *q, bs_error *err) {
  bs_op_query forward = *q;
  forward.nargs = 8;
  if (q->args[5] != NULL)
    return bs_op_refuse(err, "BS-OP-ARITY", q->op, "arg 5, descale, has no gradient: none may be given");
  if (q->attrs[3] != 0)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "attrs[3], zeros for NaN, has no gradient");
  int32_t rc = bs_op_check_attention(&forward, err);
  if (rc == BS_OK) rc = check_as(q, 8, 6, err);
  for (uint32_t i = 0; i < 3 && rc == BS_OK; i++) rc = check_as(q, 9 + i, i, err);
  return rc;
}

void bs_op_link_attention_dx(const bs_op_query *q, bs_op_links *links) {
  bs_op_link_attention(q, links);
  bs_op_link(q, links, 8, 0, 0, 0);
  bs_op_link(q, links, 8, 2, 0, 2);
  for (uint32_t i = 0; i < 3; i++) {
    bs_op_link(q, links, 9 + i, 0, 0, 0);
    bs_op_link(q, links, 9 + i, 2, i == 0 ? 0 : 1, 2);
  }
  links->terms[0] = (bs_op_term){6, 0, 1, 2}; /* scores, dQ and dK */
  links->terms[1] = (bs_op_term){4, 8, 1, 2}; /* dP and dV */
}
