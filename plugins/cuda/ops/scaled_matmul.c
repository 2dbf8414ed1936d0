/* SPDX-License-Identifier: MIT
 * scaled_matmul.c - a product of two fp8 matrices with scales, any strides; the arithmetic is in
 * scaled_matmul_body.h. base may be out. */
#include "scaled_matmul_body.h"

#include "ops.h"

enum { X, X_SCALES, W, W_SCALES, BIAS, BASE, OUT, ARGS };

typedef struct scaled_plan {
  cuda_plan plan;
  int64_t group;
  uint32_t activation;
  uint32_t reserved;
} scaled_plan;

static int is_f8(uint32_t dtype) {
  return dtype == BS_F8E4M3 || dtype == BS_F8E5M2;
}

int32_t cuda_scaled_supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  static const uint32_t ranks[ARGS] = {2, 2, 2, 2, 1, 2, 2};
  if (q->nargs != ARGS)
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs two matrices, their scales, bias, base, output");
  for (uint32_t i = 0; i < ARGS; i++) {
    if ((i == BIAS || i == BASE) && q->args[i] == NULL) continue;
    if (!cuda_arg_ok(q, i, ranks[i]))
      return cuda_answer_no(out_answer, BS_REASON_RANK, "arg %u: %u dimensions of a known dtype", i,
                            ranks[i]);
    const uint32_t dtype = q->args[i]->dtype;
    const int fits = i == X || i == W ? is_f8(dtype) : i == OUT ? cuda_is_float(dtype) : dtype == BS_F32;
    if (!fits) return cuda_answer_no(out_answer, BS_REASON_DTYPE, "arg %u: dtype 0x%04x", i, dtype);
  }
  if (q->activation > BS_ACT_GELU_TANH)
    return cuda_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", q->activation);
  if (q->attrs[0] < 1) return cuda_answer_no(out_answer, BS_REASON_SHAPE, "groups are at least 1 column");
  /* Before cuBLASLt's 800 for as many tokens as a warp takes: a guess by what has to be read. */
  const uint32_t score = q->args[OUT]->dims[0] <= CUDA_SCALED_TOKENS ? 850 : 700;
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, score, BS_TOL_ACC_F32, 0, "rows",
                     "a kernel of its own, made for few tokens");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_scaled_matmul, state, exec, q, sizeof(scaled_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  ((scaled_plan *)*out_plan)->group = q->attrs[0];
  ((scaled_plan *)*out_plan)->activation = q->activation;
  return BS_OK;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const scaled_plan *plan = opaque;
  scaled_matmul_args args = {.x = cuda_view_of(tensors[X]),
                             .x_scales = cuda_view_of(tensors[X_SCALES]),
                             .w = cuda_view_of(tensors[W]),
                             .w_scales = cuda_view_of(tensors[W_SCALES]),
                             .bias = cuda_view_of(tensors[BIAS]),
                             .base = cuda_view_of(tensors[BASE]),
                             .out = cuda_view_of(tensors[OUT]),
                             .activation = plan->activation};
  if (args.out.rows == 0 || args.out.cols == 0) return BS_OK;
  const int64_t tiles = (args.out.rows - 1) / CUDA_SCALED_TOKENS + 1;
  args.by_blocks = cuda_divisor_make((args.out.cols - 1) / CUDA_SCALED_OUTPUTS + 1);
  args.by_group = cuda_divisor_make(plan->group);
  const int inside = plan->group % CUDA_SCALED_PIECE == 0 || plan->group >= args.x.cols;
  if (inside && cuda_view_fits(&args.x, CUDA_SCALED_PIECE) && cuda_view_fits(&args.w, CUDA_SCALED_PIECE))
    args.pieces = args.x.cols / CUDA_SCALED_PIECE;
  int64_t blocks = 0;
  if (__builtin_mul_overflow(tiles, args.by_blocks.by, &blocks) || blocks > INT32_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "scaled_matmul: %lld times four tokens of %lld blocks",
                   (long long)tiles, (long long)args.by_blocks.by);
  const cuda_shape shape = {(uint32_t)blocks, 1, 1, CUDA_BLOCK, 0};
  return cuda_launch(plan->plan.device, CUDA_SCALED_MATMUL, &shape, cuda_stream(plan->plan.device, stream),
                     &args, err);
}

const bs_op_impl cuda_scaled_matmul = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "scaled_matmul",
    .backend = "cuda",
    .name = "kernels",
    .summary = "a product of fp8 matrices with scales of rows or blocks",
    .supports = cuda_scaled_supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
