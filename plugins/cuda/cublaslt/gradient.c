/* SPDX-License-Identifier: MIT
 * gradient.c - see gradient.h. */
#include "gradient.h"

int cuda_lt_gradient(cuda_state *state, const bs_op_query *q, uint32_t dtype, cuda_lt_ask *ask,
                     bs_op_answer *out) {
  cuda_lt_shape *s = &ask->shape;
  cuda_lt_matrix x, dy;
  int list = 0, none = 0;
  memset(ask, 0, sizeof *ask);
  if (!cuda_lt_ready(state, q, out) ||
      !cuda_lt_types(state, q->args[0]->dtype, q->args[1]->dtype, dtype, 0, q->accumulate, s, out) ||
      !cuda_lt_matrix_of(q, 0, 1, &x, &list, out) || !cuda_lt_matrix_of(q, 1, 0, &dy, &none, out))
    return 0;
  s->m = x.cols;
  s->n = dy.cols;
  s->k = x.rows;
  s->turn_b = 1;
  s->lda = x.line;
  s->ldb = dy.line;
  s->align_a = cuda_lt_align((uint64_t)x.line * BS_DTYPE_BYTES(x.dtype), x.offset);
  s->align_b = cuda_lt_align((uint64_t)dy.line * BS_DTYPE_BYTES(dy.dtype), 0);
  s->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  s->workspace = cuda_lt_workspace(state, q);
  s->fixed = (q->flags & BS_QUERY_DETERMINISTIC) != 0;
  ask->offset_a = x.offset;
  ask->gathered = list ? x.cols : 0;
  return cuda_lt_sizes(s, out);
}

int32_t cuda_lt_gradient_begin(const cuda_lt_plan *plan, bs_tensor *const *args, bs_stream *stream,
                               cuda_lt_shape *shape, cuda_lt_operands *o, bs_error *err) {
  bs_tensor x = cuda_lt_moved(plan, args[0]);
  *shape = plan->ask.shape;
  shape->k = x.dims[0];
  memset(o, 0, sizeof *o);
  o->a = (const char *)x.data + plan->ask.offset_a;
  o->b = args[1]->data;
  if (plan->move_impl == NULL || shape->k == 0) return BS_OK;
  bs_tensor *const move[2] = {args[0], &x};
  return plan->move_impl->run(plan->move, move, 2, stream, err);
}
