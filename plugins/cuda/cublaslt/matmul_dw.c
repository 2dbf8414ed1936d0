/* SPDX-License-Identifier: MIT
 * matmul_dw.c - dW = dY^T X by cuBLASLt. Of no tokens our own tiles write the zeros. */
#include "../ops/products.h"
#include "gradient.h"

static int ask_of(cuda_state *state, const bs_op_query *q, cuda_lt_ask *ask, bs_op_answer *out) {
  cuda_lt_shape *s = &ask->shape;
  cuda_lt_matrix dw;
  int none = 0;
  if (!cuda_lt_gradient(state, q, q->args[2]->dtype, ask, out) ||
      !cuda_lt_matrix_of(q, 2, 0, &dw, &none, out))
    return 0;
  s->ldc = s->ldd = dw.line;
  s->align_c = s->align_d = cuda_lt_align((uint64_t)dw.line * BS_DTYPE_BYTES(dw.dtype), 0);
  if (dw.rows == s->n && dw.cols == s->m) return 1;
  (void)cuda_answer_no(out, BS_REASON_SHAPE, "dW is [%lld,%lld], not [%lld,%lld]", (long long)dw.rows,
                       (long long)dw.cols, (long long)s->n, (long long)s->m);
  return 0;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  cuda_lt_ask ask;
  const int32_t rc = cuda_matmul_dw.supports(state, q, out_answer);
  if (rc != BS_OK || out_answer->level == BS_LEVEL_NO) return rc;
  return ask_of(state, q, &ask, out_answer) ? cuda_lt_yes(q, &ask.shape, out_answer) : BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  bs_op_answer answer;
  cuda_lt_ask ask;
  cuda_lt_plan *plan = NULL;
  (void)packed;
  int32_t rc = cuda_require(&cuda_lt_matmul_dw, state, q, err);
  if (rc != BS_OK) return rc;
  (void)ask_of(state, q, &ask, &answer);
  rc = cuda_lt_prepare(&cuda_lt_matmul_dw, &cuda_matmul_dw, &cuda_gather_columns, 0, state, exec, q, NULL,
                       &ask, &plan, err);
  *out_plan = plan;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_lt_plan *plan = opaque;
  cuda_lt_shape shape;
  cuda_lt_operands o;
  int refused = 0;
  if (plan->own_only) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  int32_t rc = cuda_lt_gradient_begin(plan, args, stream, &shape, &o, err);
  if (rc != BS_OK) return rc;
  o.d = args[2]->data;
  if (shape.k == 0 || !cuda_lt_fits(&shape, &o))
    return plan->own_impl->run(plan->own, args, nargs, stream, err);
  rc = cuda_lt_run(plan, &shape, &o, cuda_stream(plan->plan.device, stream), &refused, err);
  return refused ? plan->own_impl->run(plan->own, args, nargs, stream, err) : rc;
}

const bs_op_impl cuda_lt_matmul_dw = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul_dw",
    .backend = "cuda",
    .name = CUDA_LT,
    .summary = "cuBLASLt",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_lt_plan_free,
};
