/* SPDX-License-Identifier: MIT
 * matmul_dx.c - dX = dY W by cuBLASLt over matmul's packed weight: in column-major order dX^T [K,B] is W^T
 * [K,N], in place, times dY^T [N,B]. A kernel then scatters listed columns of a full dX. */
#include "../ops/products.h"
#include "product.h"

static int ask_of(cuda_state *state, const bs_op_query *q, cuda_lt_ask *ask, bs_op_answer *out) {
  cuda_lt_shape *s = &ask->shape;
  cuda_lt_matrix dy, dx;
  int list = 0, none = 0;
  memset(ask, 0, sizeof *ask);
  if (!cuda_lt_ready(state, q, out) ||
      !cuda_lt_types(state, q->weight_dtype, q->args[0]->dtype, q->args[1]->dtype, 0, q->accumulate, s,
                     out) ||
      !cuda_lt_matrix_of(q, 0, 0, &dy, &none, out) || !cuda_lt_matrix_of(q, 1, 1, &dx, &list, out))
    return 0;
  const uint64_t size = BS_DTYPE_BYTES(q->weight_dtype), line = ((uint64_t)dx.cols * size + 15) / 16 * 16;
  s->m = dx.cols;
  s->n = dy.rows;
  s->k = dy.cols;
  s->lda = (int64_t)(line / size);
  s->ldb = dy.line;
  s->ldc = s->ldd = dx.line;
  s->align_a = 16;
  s->align_b = cuda_lt_align((uint64_t)dy.line * BS_DTYPE_BYTES(dy.dtype), 0);
  s->align_c = s->align_d = cuda_lt_align((uint64_t)dx.line * BS_DTYPE_BYTES(dx.dtype), dx.offset);
  s->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  s->workspace = cuda_lt_workspace(state, q);
  s->fixed = (q->flags & BS_QUERY_DETERMINISTIC) != 0;
  ask->offset_d = dx.offset;
  ask->gathered = list ? dx.cols : 0;
  return cuda_lt_sizes(s, out);
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  cuda_lt_ask ask;
  const int32_t rc = cuda_matmul_dx.supports(state, q, out_answer);
  if (rc != BS_OK || out_answer->level == BS_LEVEL_NO) return rc;
  const bs_op_answer tiles = *out_answer;
  if (ask_of(state, q, &ask, out_answer)) return cuda_lt_yes(q, &ask.shape, out_answer);
  return cuda_lt_emulated(state, &tiles, out_answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  bs_op_answer answer;
  cuda_lt_ask ask;
  cuda_lt_plan *plan = NULL;
  int32_t rc = cuda_require(&cuda_lt_matmul_dx, state, q, err);
  if (rc != BS_OK) return rc;
  const int served = ask_of(state, q, &ask, &answer);
  rc = cuda_lt_prepare(&cuda_lt_matmul_dx, &cuda_matmul_dx, &cuda_scatter_columns, 1, state, exec, q, packed,
                       served ? &ask : NULL, &plan, err);
  *out_plan = plan;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_lt_plan *plan = opaque;
  bs_tensor dx = cuda_lt_moved(plan, args[1]);
  cuda_lt_shape shape = plan->ask.shape;
  int refused = 0;
  if (plan->own_only) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  shape.n = args[0]->dims[0];
  if (shape.n == 0) return BS_OK;
  cuda_lt_operands o = {
      .a = plan->weight->data, .b = args[0]->data, .d = (char *)dx.data + plan->ask.offset_d};
  if (!cuda_lt_fits(&shape, &o)) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  const int32_t rc = cuda_lt_run(plan, &shape, &o, cuda_stream(plan->plan.device, stream), &refused, err);
  if (refused) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  if (rc != BS_OK || plan->move_impl == NULL) return rc;
  bs_tensor *const move[2] = {&dx, args[1]};
  return plan->move_impl->run(plan->move, move, 2, stream, err);
}

const bs_op_impl cuda_lt_matmul_dx = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul_dx",
    .backend = "cuda",
    .name = CUDA_LT,
    .summary = "cuBLASLt over matmul's packed weight",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_lt_plan_free,
};
