/* SPDX-License-Identifier: MIT
 * matmul.c - Y = act(X W^T + bias) + residual by cuBLASLt. In column-major order Y is Y^T [N,B], X is X^T
 * [K,B] and W is W^T [K,N], which is transposed: both are read along K. A bias is its epilogue, and a
 * residual is its C, unless an activation comes between them. If its table has no such form, it sums into
 * f32, and a kernel of this plugin finishes (finish.c): so for every activation. */
#include "product.h"

#include "../ops/products.h"

static int bias_ok(const bs_op_query *q, const cuda_lt_shape *s, bs_op_answer *out) {
  const bs_tensor_desc *bias = q->args[1];
  if (bias == NULL) return 1;
  const uint32_t want = s->bias == CUDA_R_64F    ? BS_F64
                        : s->bias == CUDA_R_32F  ? BS_F32
                        : s->bias == CUDA_R_16F  ? BS_F16
                        : s->bias == CUDA_R_16BF ? BS_BF16
                                                 : 0;
  if (bias->dtype != want) {
    (void)cuda_answer_no(out, BS_REASON_DTYPE, "the bias is 0x%04x, cuBLASLt adds 0x%04x here", bias->dtype,
                         want);
    return 0;
  }
  if (bias->dims[0] <= 1 || bias->strides[0] == 1 || bias->strides[0] == 0) return 1;
  (void)cuda_answer_no(out, BS_REASON_LAYOUT, "the bias has stride %lld", (long long)bias->strides[0]);
  return 0;
}

/* Seen on an H200 by cuBLASLt 13: its relu makes 0 of NaN, and a bias of 16 bits is added after the rounding
 * of the product to Y's dtype, at least if rows of Y are not aligned to 16 bytes. */
static int epilogue_ok(const bs_op_query *q, cuda_lt_shape *s, bs_op_answer *out) {
  const int integers = s->compute == CUBLAS_COMPUTE_32I;
  if (q->activation != BS_ACT_NONE) {
    (void)cuda_answer_no(out, BS_REASON_NOT_BUILT,
                         "cuBLASLt's relu makes 0 of NaN, and it has no exact gelu and no silu");
    return 0;
  }
  if (integers && (q->args[1] != NULL || q->args[2] != NULL)) {
    (void)cuda_answer_no(out, BS_REASON_NOT_BUILT, "cuBLASLt's products of integers have no epilogue");
    return 0;
  }
  if (q->args[1] != NULL && BS_DTYPE_BYTES(q->args[1]->dtype) < 4) {
    (void)cuda_answer_no(out, BS_REASON_NOT_BUILT,
                         "cuBLASLt adds a bias of 16 bits to a product that is rounded");
    return 0;
  }
  s->epilogue = q->args[1] != NULL ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  return bias_ok(q, s, out);
}

static int residual_ok(const bs_op_query *q, cuda_lt_shape *s, bs_op_answer *out) {
  cuda_lt_matrix c;
  int list = 0;
  s->ldc = s->ldd;
  s->align_c = s->align_d;
  if (q->args[2] == NULL) return 1;
  if (q->args[2]->dtype != q->args[3]->dtype) {
    (void)cuda_answer_no(out, BS_REASON_DTYPE, "the residual is 0x%04x, Y 0x%04x: cuBLASLt takes one type",
                         q->args[2]->dtype, q->args[3]->dtype);
    return 0;
  }
  if (!cuda_lt_matrix_of(q, 2, 0, &c, &list, out)) return 0;
  s->adds = 1;
  s->ldc = c.line;
  s->align_c = cuda_lt_align((uint64_t)c.line * BS_DTYPE_BYTES(c.dtype), 0);
  return 1;
}

/* All but the output: X and the weight, which is packed in lines of 16 bytes. */
static int inputs_ok(cuda_state *state, const bs_op_query *q, uint32_t out_dtype, cuda_lt_ask *ask,
                     bs_op_answer *out) {
  cuda_lt_shape *s = &ask->shape;
  cuda_lt_matrix x;
  int list = 0;
  memset(ask, 0, sizeof *ask);
  if (!cuda_lt_types(state, q->weight_dtype, q->args[0]->dtype, out_dtype, 1, q->accumulate, s, out) ||
      !cuda_lt_matrix_of(q, 0, 1, &x, &list, out))
    return 0;
  const uint64_t size = BS_DTYPE_BYTES(q->weight_dtype), line = ((uint64_t)x.cols * size + 15) / 16 * 16;
  s->n = x.rows;
  s->k = x.cols;
  s->turn_a = 1;
  s->lda = (int64_t)(line / size);
  s->ldb = x.line;
  s->align_a = 16;
  s->align_b = cuda_lt_align((uint64_t)x.line * BS_DTYPE_BYTES(x.dtype), x.offset);
  s->workspace = cuda_lt_workspace(state, q);
  s->fixed = (q->flags & BS_QUERY_DETERMINISTIC) != 0;
  ask->offset_b = x.offset;
  ask->gathered = list ? x.cols : 0;
  return 1;
}

/* All of it by cuBLASLt. */
static int whole_ok(cuda_state *state, const bs_op_query *q, cuda_lt_ask *ask, bs_op_answer *out) {
  cuda_lt_shape *s = &ask->shape;
  cuda_lt_matrix y;
  int none = 0;
  if (!inputs_ok(state, q, q->args[3]->dtype, ask, out) || !cuda_lt_matrix_of(q, 3, 0, &y, &none, out))
    return 0;
  s->m = y.cols;
  s->ldd = y.line;
  s->align_d = cuda_lt_align((uint64_t)y.line * BS_DTYPE_BYTES(y.dtype), 0);
  return cuda_lt_sizes(s, out) && epilogue_ok(q, s, out) && residual_ok(q, s, out) && cuda_lt_aligned(s, out);
}

/* Its sums in f32, which a kernel of ours finishes. */
static int sums_ok(cuda_state *state, const bs_op_query *q, cuda_lt_ask *ask) {
  enum { LINE = 4 }; /* 16 bytes */
  bs_op_answer why = {.struct_size = (uint32_t)sizeof why};
  cuda_lt_shape *s = &ask->shape;
  if (!cuda_lt_finishes(q) || !inputs_ok(state, q, BS_F32, ask, &why)) return 0;
  s->m = q->args[3]->dims[1];
  s->ldd = s->ldc = (s->m + LINE - 1) / LINE * LINE;
  s->align_d = s->align_c = 16;
  s->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  ask->finished = 1;
  return cuda_lt_sizes(s, &why) && cuda_lt_aligned(s, &why) && cuda_lt_sums_fit(q, s, &why);
}

/* 0: `out` has the reason, if this plugin's own sums do not serve either. */
static int ask_of(cuda_state *state, const bs_op_query *q, cuda_lt_ask *ask, bs_op_answer *out) {
  return cuda_lt_ready(state, q, out) && (whole_ok(state, q, ask, out) || sums_ok(state, q, ask));
}

static int32_t answer_finished(const bs_op_query *q, const cuda_lt_ask *ask, bs_op_answer *out) {
  enum { SCORE = 700 };
  const int32_t rc = cuda_lt_yes(q, &ask->shape, out);
  out->score = SCORE;
  out->workspace += cuda_lt_sums_bytes(&ask->shape);
  snprintf(out->text, sizeof out->text, "f32 sums, finished by a kernel behind them");
  return rc;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  cuda_lt_ask ask;
  const int32_t rc = cuda_matmul_supports(state, q, out_answer);
  if (rc != BS_OK || out_answer->level == BS_LEVEL_NO)
    return rc; /* shapes and dtypes that no implementation
                * serves */
  if (!ask_of(state, q, &ask, out_answer)) return BS_OK;
  return ask.finished ? answer_finished(q, &ask, out_answer) : cuda_lt_yes(q, &ask.shape, out_answer);
}

static int32_t pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                    void **out_packed, uint64_t *out_bytes, bs_error *err) {
  return cuda_packed_make(&cuda_lt_matmul, state, exec, query, weights, out_packed, out_bytes, err);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  bs_op_answer answer;
  cuda_lt_ask ask;
  cuda_lt_plan *plan = NULL;
  int32_t rc = cuda_require(&cuda_lt_matmul, state, q, err);
  if (rc != BS_OK) return rc;
  (void)ask_of(state, q, &ask, &answer);
  rc = cuda_lt_prepare(&cuda_lt_matmul, &cuda_matmul, &cuda_gather_columns, 0, state, exec, q, packed, &ask,
                       &plan, err);
  if (rc == BS_OK && ask.finished) rc = cuda_lt_take_sums(plan, err);
  if (rc != BS_OK) {
    cuda_lt_plan_free(plan);
    return rc;
  }
  plan->activation = q->activation;
  *out_plan = plan;
  return rc;
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_lt_plan *plan = opaque;
  bs_tensor x = cuda_lt_moved(plan, args[0]);
  cuda_lt_shape shape = plan->ask.shape;
  int refused = 0;
  shape.n = x.dims[0];
  if (shape.n == 0) return BS_OK;
  if (plan->own_only) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  cuda_lt_operands o = {.a = plan->weight->data,
                        .b = (const char *)x.data + plan->ask.offset_b,
                        .d = plan->ask.finished ? plan->sums : args[3]->data};
  if (!plan->ask.finished) {
    o.c = args[2] != NULL ? args[2]->data : NULL;
    o.bias = args[1] != NULL ? args[1]->data : NULL;
  }
  if (!cuda_lt_fits(&shape, &o)) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  if (plan->move_impl != NULL) {
    bs_tensor *const move[2] = {args[0], &x};
    const int32_t rc = plan->move_impl->run(plan->move, move, 2, stream, err);
    if (rc != BS_OK) return rc;
  }
  const int32_t rc = cuda_lt_run(plan, &shape, &o, cuda_stream(plan->plan.device, stream), &refused, err);
  if (refused) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  return rc == BS_OK && plan->ask.finished ? cuda_lt_finish(plan, args, stream, err) : rc;
}

const bs_op_impl cuda_lt_matmul = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul",
    .backend = "cuda",
    .name = CUDA_LT,
    .summary = "cuBLASLt, with bias and residual in its epilogue",
    .supports = supports,
    .pack = pack,
    .packed_update = cuda_packed_update,
    .packed_read = cuda_packed_read,
    .packed_free = cuda_packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_lt_plan_free,
};
