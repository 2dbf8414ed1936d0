/* SPDX-License-Identifier: MIT
 * schema_step.c - the rules of an optimiser's step over a packed weight, sgd_update and adamw_update, and of
 * activate_dx, the derivative of activate. Rows of the table in schema.c point here. */
#include "core/base/dtype.h"
#include "core/base/size.h"
#include "core/op/schema.h"

static int32_t refuse_state(const bs_op_query *q, uint32_t i, bs_error *err) {
  const bs_tensor_desc *dw = q->args[0], *s = q->args[i];
  if (s->dtype != BS_F32)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "arg %u is %s: what an optimiser remembers is f32", i,
                        bs_dtype_name(s->dtype));
  if (s->dims[0] == dw->dims[0] && s->dims[1] == dw->dims[1]) return BS_OK;
  return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "arg %u is [%lld,%lld], dW [%lld,%lld]", i,
                      (long long)s->dims[0], (long long)s->dims[1], (long long)dw->dims[0],
                      (long long)dw->dims[1]);
}

/* dW, `states` of its shape (which may be absent) and `hyper` numbers. */
static int32_t check_step(const bs_op_query *q, uint32_t states, int64_t hyper, bs_error *err) {
  const bs_tensor_desc *dw = q->args[0], *h = q->args[1 + states];
  if (q->partition != NULL || (q->flags & BS_QUERY_X_FULL) != 0)
    return bs_op_refuse(err, "BS-OP-PARTITION", q->op, "takes no partition: dW is what the weight holds");
  if (q->activation != BS_ACT_NONE || q->accumulate > BS_ACC_F64)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "takes no activation (%s) or unknown accumulate %u",
                        bs_name_of(BS_NAMES_ACTIVATION, q->activation), q->accumulate);
  if (!bs_dtype_known(q->weight_dtype) || !bs_dtype_is_float(q->weight_dtype))
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "weight of dtype 0x%04x: only floats are trained",
                        q->weight_dtype);
  if (dw->dtype != BS_F32 && dw->dtype != BS_F64)
    return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "dW is f32 or f64, not %s", bs_dtype_name(dw->dtype));
  for (uint32_t i = 1; i <= states; i++) {
    const int32_t rc = q->args[i] != NULL ? refuse_state(q, i, err) : BS_OK;
    if (rc != BS_OK) return rc;
  }
  if (h->dtype == BS_F32 && h->dims[0] == hyper) return BS_OK;
  return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "hyper is %s[%lld], must be f32[%lld]",
                      bs_dtype_name(h->dtype), (long long)h->dims[0], (long long)hyper);
}

int32_t bs_op_check_sgd(const bs_op_query *q, bs_error *err) {
  return check_step(q, 1, 4, err);
}

int32_t bs_op_check_adamw(const bs_op_query *q, bs_error *err) {
  return check_step(q, 2, 8, err);
}

int32_t bs_op_check_activate_dx(const bs_op_query *q, bs_error *err) {
  static const char *const names[3] = {"dY", "Z", "dZ"};
  const bs_tensor_desc *dy = q->args[0];
  if (q->activation == BS_ACT_NONE || q->activation > BS_ACT_SILU)
    return bs_op_refuse(err, "BS-OP-ATTR", q->op, "activation %s: relu, gelu or silu",
                        bs_name_of(BS_NAMES_ACTIVATION, q->activation));
  for (uint32_t i = 0; i < 3; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (!bs_dtype_is_float(d->dtype))
      return bs_op_refuse(err, "BS-OP-DTYPE", q->op, "%s is %s, must be a float", names[i],
                          bs_dtype_name(d->dtype));
    if (d->dims[0] != dy->dims[0] || d->dims[1] != dy->dims[1])
      return bs_op_refuse(err, "BS-OP-SHAPE", q->op, "%s is [%lld,%lld], dY [%lld,%lld]", names[i],
                          (long long)d->dims[0], (long long)d->dims[1], (long long)dy->dims[0],
                          (long long)dy->dims[1]);
  }
  return BS_OK;
}

/* ---- costs, a row of dW or of dY ------------------------------------------------------------- */

static uint64_t times(int64_t n, uint64_t each) {
  uint64_t r;
  return bs_mul_u64((uint64_t)n, each, &r) ? r : UINT64_MAX;
}

void bs_op_rate_sgd(const bs_op_query *q, bs_op_rate *out) {
  const int64_t k = q->args[0]->dims[1];
  const uint64_t state = q->args[1] != NULL ? 8 : 0; /* read and written */
  out->flops_row = times(k, state != 0 ? 6 : 4);
  out->bytes_row =
      times(k, state + BS_DTYPE_BYTES(q->args[0]->dtype) + 2ull * BS_DTYPE_BYTES(q->weight_dtype));
}

void bs_op_rate_adamw(const bs_op_query *q, bs_op_rate *out) {
  const int64_t k = q->args[0]->dims[1];
  out->flops_row = times(k, 15);
  out->bytes_row = times(k, 16 + BS_DTYPE_BYTES(q->args[0]->dtype) + 2ull * BS_DTYPE_BYTES(q->weight_dtype));
}

void bs_op_rate_activate_dx(const bs_op_query *q, bs_op_rate *out) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < 3; i++) bytes += BS_DTYPE_BYTES(q->args[i]->dtype);
  out->bytes_row = times(q->args[0]->dims[1], bytes);
}
