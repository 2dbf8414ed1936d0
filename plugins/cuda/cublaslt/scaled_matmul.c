/* SPDX-License-Identifier: MIT
 * scaled_matmul.c - a product of fp8 matrices with one scale a row of each, by cuBLASLt. The library sums
 * without scales into f32; a kernel of this plugin multiplies by the scales of rows and columns and adds the
 * other terms. So it only needs the library's products of fp8. Scales of blocks use this plugin's own kernel:
 * the library has them only on Hopper and since CUDA 12.9, and the layout of their tensors could not be
 * tested. */
#include "../ops/dequantize_product_body.h"
#include "product.h"

enum { X, X_SCALES, W, W_SCALES, BIAS, BASE, OUT };

static int one_scale(const bs_op_query *q, bs_op_answer *out) {
  const int64_t K = q->args[X]->dims[1];
  if (q->attrs[0] >= K && K > 0) return 1;
  (void)cuda_answer_no(out, BS_REASON_NOT_BUILT, "groups of %lld columns of %lld: one scale a row only",
                       (long long)q->attrs[0], (long long)K);
  return 0;
}

static int ask_of(cuda_state *state, const bs_op_query *q, cuda_lt_ask *ask, bs_op_answer *out) {
  enum { LINE = 4 }; /* 16 bytes of sums */
  cuda_lt_shape *s = &ask->shape;
  cuda_lt_matrix x, w;
  int list = 0;
  memset(ask, 0, sizeof *ask);
  if (!cuda_lt_ready(state, q, out) || !one_scale(q, out) ||
      !cuda_lt_types(state, q->args[W]->dtype, q->args[X]->dtype, BS_F32, 1, q->accumulate, s, out) ||
      !cuda_lt_matrix_of(q, X, 0, &x, &list, out) || !cuda_lt_matrix_of(q, W, 0, &w, &list, out))
    return 0;
  s->m = w.rows;
  s->n = x.rows;
  s->k = x.cols;
  s->turn_a = 1;
  s->lda = w.line;
  s->ldb = x.line;
  s->ldd = s->ldc = (s->m + LINE - 1) / LINE * LINE;
  s->align_a = cuda_lt_align((uint64_t)w.line, 0);
  s->align_b = cuda_lt_align((uint64_t)x.line, 0);
  s->align_c = s->align_d = 16;
  s->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  s->workspace = cuda_lt_workspace(state, q);
  s->fixed = (q->flags & BS_QUERY_DETERMINISTIC) != 0;
  ask->finished = 1;
  return cuda_lt_sizes(s, out) && cuda_lt_aligned(s, out) && cuda_lt_sums_fit(q, s, out);
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  cuda_lt_ask ask;
  const int32_t rc = cuda_scaled_supports(state, q, out_answer);
  const bs_op_answer own = *out_answer;
  if (rc != BS_OK || own.level == BS_LEVEL_NO) return rc;
  if (!ask_of(state, q, &ask, out_answer)) return cuda_lt_emulated(state, &own, out_answer);
  (void)cuda_lt_yes(q, &ask.shape, out_answer);
  out_answer->workspace += cuda_lt_sums_bytes(&ask.shape);
  snprintf(out_answer->text, sizeof out_answer->text, "f32 sums, scaled by a kernel behind them");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  bs_op_answer answer;
  cuda_lt_ask ask;
  cuda_lt_plan *plan = NULL;
  (void)packed;
  int32_t rc = cuda_require(&cuda_lt_scaled_matmul, state, q, err);
  if (rc != BS_OK) return rc;
  const int by_lt = ask_of(state, q, &ask, &answer);
  rc = cuda_lt_prepare(&cuda_lt_scaled_matmul, &cuda_scaled_matmul, NULL, 0, state, exec, q, NULL,
                       by_lt ? &ask : NULL, &plan, err);
  if (rc == BS_OK && by_lt) rc = cuda_lt_take_sums(plan, err);
  if (rc != BS_OK) {
    cuda_lt_plan_free(plan);
    return rc;
  }
  plan->activation = q->activation;
  *out_plan = plan;
  return rc;
}

/* A column of scales as a row of them. */
static cuda_view turned(const bs_tensor *scales) {
  cuda_view v = cuda_view_of(scales);
  v.cols = v.rows;
  v.col = v.row;
  v.rows = 1;
  v.row = 0;
  return v;
}

static int32_t finish(const cuda_lt_plan *plan, bs_tensor *const *args, bs_stream *stream, bs_error *err) {
  const bs_tensor sums = cuda_lt_sums_of(plan, args[OUT]->dims[0]);
  cuda_view views[5] = {cuda_view_of(&sums), turned(args[W_SCALES]), cuda_view_of(args[BIAS]),
                        cuda_view_of(args[BASE]), cuda_view_of(args[OUT])};
  dequantize_product_args a = {.rows = cuda_view_of(args[X_SCALES]), .activation = plan->activation};
  cuda_walk_make(views, 5, 0, 4, 0, &a.walk);
  a.sums = views[0];
  a.columns = views[1];
  a.bias = views[2];
  a.base = views[3];
  a.out = views[4];
  return cuda_launch_items(plan->plan.device, CUDA_DEQUANTIZE_PRODUCT, cuda_walk_threads(&a.walk),
                           cuda_stream(plan->plan.device, stream), &a, err);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cuda_lt_plan *plan = opaque;
  cuda_lt_shape shape = plan->ask.shape;
  int refused = 0;
  shape.n = args[X]->dims[0];
  if (shape.n == 0) return BS_OK;
  if (plan->own_only) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  cuda_lt_operands o = {.a = args[W]->data, .b = args[X]->data, .d = plan->sums};
  if (!cuda_lt_fits(&shape, &o)) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  const int32_t rc = cuda_lt_run(plan, &shape, &o, cuda_stream(plan->plan.device, stream), &refused, err);
  if (refused) return plan->own_impl->run(plan->own, args, nargs, stream, err);
  return rc == BS_OK ? finish(plan, args, stream, err) : rc;
}

const bs_op_impl cuda_lt_scaled_matmul = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "scaled_matmul",
    .backend = "cuda",
    .name = CUDA_LT,
    .summary = "cuBLASLt's product of fp8 with one scale a row, scaled behind it",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_lt_plan_free,
};
