/* SPDX-License-Identifier: MIT
 * normalize.c - layer and rms normalisation, softmax and log_softmax over the last dim, of floats in any
 * mixture and layout: in f64 where one of them is f64, else in f32. */
#include "normalize.h"

#include "ops.h"

typedef struct normalize_plan {
  cuda_plan plan;
  uint32_t kind, wide;
  uint32_t kernel; /* of rows as long as the query's */
  uint32_t reserved;
  double eps;
} normalize_plan;

static const char *const names[NORMALIZE_ARGS] = {"X", "add", "gamma", "beta", "Y", "sum"};

static int is_wide(const bs_op_query *q) {
  int wide = q->accumulate == BS_ACC_F64;
  for (uint32_t i = 0; i < q->nargs; i++) wide |= q->args[i] != NULL && q->args[i]->dtype == BS_F64;
  return wide;
}

static uint32_t kernel_of(uint32_t wide, int64_t n) {
  return wide != 0 ? CUDA_NORMALIZE_F64 : n <= NORMALIZE_SHORT ? CUDA_NORMALIZE_WARP : CUDA_NORMALIZE_F32;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out) {
  (void)state;
  if (q->nargs != NORMALIZE_ARGS || q->args[NORMALIZE_X] == NULL || q->args[NORMALIZE_Y] == NULL)
    return cuda_answer_no(out, BS_REASON_RANK, "needs X and Y of six arguments");
  if (q->args[NORMALIZE_X]->rank < 1) return cuda_answer_no(out, BS_REASON_RANK, "X has no dimension");
  for (uint32_t i = 0; i < q->nargs; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL) continue;
    if (!cuda_is_float(d->dtype))
      return cuda_answer_no(out, BS_REASON_DTYPE, "%s is not of floats", names[i]);
    if (d->rank > CUDA_SPACE_DIMS || !cuda_arg_ok(q, i, d->rank))
      return cuda_answer_no(out, BS_REASON_RANK, "%s has dims or strides below 0", names[i]);
  }
  if (q->attrs[0] < BS_NORMALIZE_LAYER || q->attrs[0] > BS_NORMALIZE_LOG_SOFTMAX)
    return cuda_answer_no(out, BS_REASON_NOT_BUILT, "kind %lld", (long long)q->attrs[0]);
  const int wide = is_wide(q);
  return cuda_answer(out, BS_LEVEL_NATIVE, 700, wide ? BS_TOL_ACC_F64 : BS_TOL_ACC_F32, 0, "rows",
                     wide ? "a block a row, in f64" : "a warp or a block a row, in f32");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_normalize, state, exec, q, sizeof(normalize_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  normalize_plan *plan = *out_plan;
  const bs_tensor_desc *x = q->args[NORMALIZE_X];
  plan->kind = (uint32_t)q->attrs[0];
  plan->eps = q->numbers[0];
  plan->wide = (uint32_t)is_wide(q);
  plan->kernel = kernel_of(plan->wide, x->dims[x->rank - 1]);
  return BS_OK;
}

/* Rows begin on pieces of `width` elements, and have no gaps. */
static int has_pieces(const cuda_spread *s, uint32_t width) {
  int64_t all = 0;
  if (s->data == NULL || s->strides[NORMALIZE_STEP] != 1) return 0;
  for (uint32_t d = 0; d < NORMALIZE_STEP; d++) all |= s->strides[d];
  return all % width == 0 && (uintptr_t)s->data % (width * (uintptr_t)s->size) == 0;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  const normalize_plan *plan = opaque;
  const bs_tensor *y = tensors[NORMALIZE_Y];
  normalize_args args = {.n = y->dims[y->rank - 1], .eps = plan->eps, .kind = plan->kind};
  for (uint32_t i = 0; i < nargs; i++) args.args[i] = cuda_spread_of(tensors[i], y->rank, y->dims);
  cuda_space_make(y->rank, y->dims, 1, args.args, NORMALIZE_ARGS, &args.space);
  if (args.space.count == 0) return BS_OK;
  args.rows = args.space.count / args.n;
  for (uint32_t i = 0; i < NORMALIZE_ARGS; i++)
    args.pieces |= (uint32_t)has_pieces(&args.args[i], plan->wide != 0 ? 2 : 4) << i;
  const uint32_t kernel = kernel_of(plan->wide, args.n);
  const int64_t each = kernel == CUDA_NORMALIZE_WARP ? NORMALIZE_WARPS : 1;
  const int64_t blocks = (args.rows - 1) / each + 1;
  if (blocks > INT32_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "normalize: %lld rows", (long long)args.rows);
  const cuda_shape shape = {(uint32_t)blocks, 1, 1, CUDA_BLOCK, 0};
  return cuda_launch(plan->plan.device, kernel, &shape, cuda_stream(plan->plan.device, stream), &args, err);
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const normalize_plan *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  cuda_echo_kernel(plan->plan.device, plan->kernel, 0, &mine);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

const bs_op_impl cuda_normalize = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "normalize",
    .backend = "cuda",
    .name = "kernels",
    .summary = "layer, rms, softmax and log_softmax of rows",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = echo,
};
