/* SPDX-License-Identifier: MIT
 * tree_sum.c - out[b,n] = act(p0 + p1 + ..) rounded to out's dtype, over L blocks of N columns of the input,
 * taken in the order of attrs: neighbours are added, then the sums of neighbours, until one is left. Any
 * strides; the arithmetic is in tree_sum_body.h. */
#include "tree_sum_body.h"

#include "ops.h"

typedef struct tree_sum_plan {
  cuda_plan plan;
  uint32_t activation;
  int32_t blocks;
  int64_t order[CUDA_TREE_BLOCKS];
} tree_sum_plan;

/* The number of blocks of the query's input; 0: not a valid input. */
static int64_t blocks_of(const bs_op_query *q) {
  const int64_t n = q->args[1]->dims[1], blocks = n > 0 ? q->args[0]->dims[1] / n : 1;
  if (blocks < 1 || blocks > CUDA_TREE_BLOCKS || (blocks & (blocks - 1)) != 0) return 0;
  return q->args[0]->dims[1] == blocks * n ? blocks : 0;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 2 || !cuda_arg_ok(q, 0, 2) || !cuda_arg_ok(q, 1, 2))
    return cuda_answer_no(out_answer, BS_REASON_RANK, "needs two matrices of known dtypes");
  const bs_tensor_desc *in = q->args[0], *out = q->args[1];
  const int integers = in->dtype == out->dtype && (in->dtype == BS_I32 || in->dtype == BS_I64);
  if (in->dims[0] != out->dims[0] || blocks_of(q) == 0)
    return cuda_answer_no(out_answer, BS_REASON_SHAPE, "the input is 1, 2, 4 or 8 times the output");
  if (!integers && !(cuda_is_float(in->dtype) && cuda_is_float(out->dtype)))
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "two floats, or i32 or i64 twice");
  if (q->activation > (integers ? (uint32_t)BS_ACT_RELU : (uint32_t)BS_ACT_GELU_TANH))
    return cuda_answer_no(out_answer, BS_REASON_DTYPE, "activation %u of these dtypes", q->activation);
  const uint32_t tolerance = q->activation > BS_ACT_RELU ? BS_TOL_ACC_F32 : BS_TOL_EXACT;
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, tolerance, 0, "vectors", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_tree_sum, state, exec, q, sizeof(tree_sum_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  tree_sum_plan *plan = *out_plan;
  plan->activation = q->activation;
  plan->blocks = (int32_t)blocks_of(q);
  int given = 0;
  for (int32_t i = 0; i < plan->blocks; i++) given |= q->attrs[i] != 0;
  for (int32_t i = 0; i < plan->blocks; i++) plan->order[i] = given ? q->attrs[i] : i;
  return BS_OK;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const tree_sum_plan *plan = opaque;
  cuda_view views[2] = {cuda_view_of(tensors[0]), cuda_view_of(tensors[1])};
  const int64_t cols = views[1].cols;
  tree_sum_args args = {.activation = plan->activation, .by = CUDA_BY_F32, .blocks = plan->blocks};
  uint32_t limit = CUDA_TREE_WIDTH;
  if (cuda_is_integer(views[0].dtype)) {
    args.by = CUDA_BY_I64;
    limit = 2;
  } else if (views[0].dtype == BS_F64 || views[1].dtype == BS_F64) {
    args.by = CUDA_BY_F64;
  }
  for (int32_t i = 0; i < plan->blocks; i++) args.begin[i] = plan->order[i] * cols;
  /* Blocks of a row lie side by side: only one block can be folded, and pieces keep to one. */
  cuda_walk_make(views, 2, plan->blocks == 1, limit, plan->blocks == 1 ? 0 : cols, &args.walk);
  args.in = views[0];
  args.out = views[1];
  return cuda_launch_items(plan->plan.device, CUDA_TREE_SUM, cuda_walk_threads(&args.walk),
                           cuda_stream(plan->plan.device, stream), &args, err);
}

const bs_op_impl cuda_tree_sum = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "tree_sum",
    .backend = "cuda",
    .name = "kernels",
    .summary = "adds a few blocks in the order of a binary tree",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
