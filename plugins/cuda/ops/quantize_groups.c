/* SPDX-License-Identifier: MIT
 * quantize_groups.c - int8 or fp8 values with an f32 scale for each group of columns, of a row or of all
 * rows. Any strides; the arithmetic is in quantize_groups_body.h. */
#include "quantize_groups_body.h"

#include "ops.h"

typedef struct quantize_plan {
  cuda_plan plan;
  int64_t group;
  uint32_t together; /* 1: rows share scales */
  float largest;
} quantize_plan;

static int is_f8(uint32_t dtype) {
  return dtype == BS_F8E4M3 || dtype == BS_F8E5M2;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !cuda_arg_ok(q, 0, 2) || !cuda_arg_ok(q, 1, 2) || !cuda_arg_ok(q, 2, 2))
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs three matrices of known dtypes");
  const uint32_t to = q->args[1]->dtype;
  if (q->args[0]->dtype != BS_F32 || (to != BS_I8 && !is_f8(to)) || q->args[2]->dtype != BS_F32)
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "needs f32, i8 or fp8, and f32 scales");
  if (q->attrs[0] < 1) return cuda_answer_no(out_answer, BS_REASON_SHAPE, "groups are at least 1 column");
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_EXACT, 0, "groups", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc =
      cuda_plan_new(&cuda_quantize_groups, state, exec, q, sizeof(quantize_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  quantize_plan *plan = *out_plan;
  plan->group = q->attrs[0];
  plan->together = q->attrs[1] != 0;
  plan->largest = q->args[1]->dtype == BS_F8E4M3   ? 448.0f
                  : q->args[1]->dtype == BS_F8E5M2 ? 57344.0f
                                                   : 127.0f;
  return BS_OK;
}

static int32_t launch(const quantize_plan *plan, quantize_groups_args *args, uint32_t stage, int64_t blocks,
                      bs_stream *stream, bs_error *err) {
  const cuda_shape shape = {(uint32_t)blocks, 1, 1, CUDA_BLOCK, 0};
  args->stage = stage;
  return cuda_launch(plan->plan.device, CUDA_QUANTIZE_GROUPS, &shape, cuda_stream(plan->plan.device, stream),
                     args, err);
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const quantize_plan *plan = opaque;
  quantize_groups_args args = {.in = cuda_view_of(tensors[0]),
                               .q = cuda_view_of(tensors[1]),
                               .scales = cuda_view_of(tensors[2]),
                               .width = 1,
                               .largest = plan->largest};
  if (args.in.rows == 0 || args.in.cols == 0) return BS_OK;
  /* A group that is longer than a row is the row. */
  args.group = plan->group < args.in.cols ? plan->group : args.in.cols;
  args.groups = (args.in.cols - 1) / args.group + 1;
  args.block_groups = args.group < CUDA_QUANTIZE_SPAN ? CUDA_QUANTIZE_SPAN / args.group : 1;
  args.by_group = cuda_divisor_make(args.group);
  args.by_blocks = cuda_divisor_make((args.groups - 1) / args.block_groups + 1);
  if ((args.group % 4 == 0 || args.groups == 1) && cuda_view_fits(&args.in, 4) && cuda_view_fits(&args.q, 4))
    args.width = 4;
  args.together = args.block_groups == 1 || args.group % (32 * (int64_t)args.width) == 0;
  int64_t blocks = 0;
  if (__builtin_mul_overflow(args.in.rows, args.by_blocks.by, &blocks) || blocks > INT32_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "quantize_groups: %lld rows of %lld blocks",
                   (long long)args.in.rows, (long long)args.by_blocks.by);
  if (!plan->together || args.in.rows == 1)
    return launch(plan, &args, CUDA_QUANTIZE_ALL, blocks, stream, err);
  int32_t rc = launch(plan, &args, CUDA_QUANTIZE_CLEAR, args.by_blocks.by, stream, err);
  if (rc == BS_OK) rc = launch(plan, &args, CUDA_QUANTIZE_MEASURE, blocks, stream, err);
  if (rc == BS_OK) rc = launch(plan, &args, CUDA_QUANTIZE_ROUND, blocks, stream, err);
  if (rc == BS_OK) rc = launch(plan, &args, CUDA_QUANTIZE_END, args.by_blocks.by, stream, err);
  return rc;
}

const bs_op_impl cuda_quantize_groups = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "quantize_groups",
    .backend = "cuda",
    .name = "kernels",
    .summary = "f32 to int8 or fp8 with a scale a group",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
