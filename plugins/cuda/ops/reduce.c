/* SPDX-License-Identifier: MIT
 * reduce.c - folds over the dims where out has 1, of every dtype and layout: sums, products, largest and
 * smallest values and their places. Floats are folded in f64, integers in 64 bits. */
#include "scan.h"

#include <math.h>

typedef struct reduce_plan {
  cuda_plan plan;
  uint32_t fold, last, kernel, reserved;
  double factor;
} reduce_plan;

static int is_place(int64_t fold) {
  return fold == BS_FOLD_ARGMAX || fold == BS_FOLD_ARGMIN;
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out) {
  (void)state;
  if (q->nargs != 2 || q->args[0] == NULL || q->args[1] == NULL || q->args[0]->rank > CUDA_SPACE_DIMS ||
      q->args[1]->rank != q->args[0]->rank)
    return cuda_answer_no(out, BS_REASON_RANK, "needs an input and an output of one rank");
  for (uint32_t i = 0; i < 2; i++)
    if (!cuda_arg_ok(q, i, q->args[i]->rank))
      return cuda_answer_no(out, BS_REASON_DTYPE, "an unknown dtype, or dims or strides below 0");
  if (q->attrs[0] == BS_FOLD_CUMSUM)
    return cuda_answer_no(out, BS_REASON_NOT_BUILT, "running sums are another implementation's");
  if (q->attrs[0] < BS_FOLD_SUM || q->attrs[0] > BS_FOLD_CUMSUM)
    return cuda_answer_no(out, BS_REASON_NOT_BUILT, "fold %lld", (long long)q->attrs[0]);
  const int in_float = cuda_is_float(q->args[0]->dtype), place = is_place(q->attrs[0]);
  if (!place && in_float != cuda_is_float(q->args[1]->dtype))
    return cuda_answer_no(out, BS_REASON_DTYPE, "one side is of floats, one is not");
  return cuda_answer(out, BS_LEVEL_NATIVE, 700, in_float && !place ? BS_TOL_ACC_F64 : BS_TOL_EXACT, 0,
                     "teams", in_float ? "folded in f64" : "folded in i64");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_reduce_op, state, exec, q, sizeof(reduce_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  reduce_plan *plan = *out_plan;
  plan->fold = (uint32_t)q->attrs[0];
  plan->last = is_place(q->attrs[0]) && q->attrs[2] != 0;
  plan->kernel = cuda_is_float(q->args[0]->dtype) ? CUDA_REDUCE_F64 : CUDA_REDUCE_I64;
  plan->factor = q->numbers[0];
  return BS_OK;
}

/* ---- a run --------------------------------------------------------------------------------------- */

static int64_t lowest(uint32_t dtype) {
  return dtype == BS_I64 ? INT64_MIN : dtype == BS_I32 ? INT32_MIN : dtype == BS_I8 ? INT8_MIN : 0;
}
static int64_t highest(uint32_t dtype) {
  if (dtype == BS_I64) return INT64_MAX;
  return dtype == BS_I32 ? INT32_MAX : dtype == BS_I8 ? INT8_MAX : dtype == BS_U8 ? UINT8_MAX : 1;
}

static void set_nothing(reduce_args *a) {
  if (a->fold == BS_FOLD_PROD) {
    a->begin_float = 1.0;
    a->begin_whole = 1;
  } else if (a->fold == BS_FOLD_MAX) {
    a->begin_float = -INFINITY;
    a->begin_whole = lowest(a->in.dtype);
  } else if (a->fold == BS_FOLD_MIN) {
    a->begin_float = INFINITY;
    a->begin_whole = highest(a->in.dtype);
  }
}

/* As many threads as leave each some pieces, by the shape alone. Where the last dim stays, neighbours read
 * neighbours of out. */
static void set_team(reduce_args *a) {
  const uint32_t most = a->beside != 0 ? CUDA_BLOCK : 32;
  a->team = 1;
  while (a->team < most && (int64_t)a->team * 4 * REDUCE_PIECE < a->inner.count) a->team *= 2;
  a->columns = CUDA_BLOCK / a->team;
}

static void set_inside(reduce_args *a) {
  const uint32_t whole = a->in.size == 8 ? 2 : REDUCE_PIECE; /* elements of one access */
  int64_t all = 0;
  for (uint32_t d = 0; d < CUDA_SPACE_DIMS; d++) all |= a->in.strides[d];
  a->line = a->inner.first == REDUCE_LAST;
  a->pieces = a->line != 0 && a->inside.strides[REDUCE_LAST] == 1 && all % whole == 0 &&
              (uintptr_t)a->in.data % (whole * (uintptr_t)a->in.size) == 0;
}

void cuda_reduce_lay(const bs_tensor *in, const bs_tensor *out, const int64_t *to, reduce_args *args) {
  cuda_spread outer[2] = {cuda_spread_of(in, out->rank, to), cuda_spread_of(out, out->rank, to)};
  int64_t dims[BS_MAX_DIMS];
  args->beside = 0;
  for (uint32_t d = 0; d < in->rank; d++) {
    dims[d] = to[d] == 1 ? in->dims[d] : 1;
    if (in->dims[d] != 1) args->beside = to[d] == 1;
  }
  cuda_space_make(out->rank, to, 0, outer, 2, &args->outer);
  args->in = outer[0];
  args->out = outer[1];
  args->inside = cuda_spread_of(in, in->rank, dims);
  cuda_space_make(in->rank, dims, 0, &args->inside, 1, &args->inner);
  if (args->inner.count == 0) memset(args->in.strides, 0, sizeof args->in.strides); /* nothing is read */
  set_team(args);
  set_inside(args);
}

int32_t cuda_reduce_launch(const cuda_device *device, uint32_t kernel, const reduce_args *args,
                           const void *all, CUstream stream, bs_error *err) {
  if (args->outer.count == 0) return BS_OK;
  const int64_t blocks = (args->outer.count - 1) / args->columns + 1;
  if (blocks > INT32_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "reduce: %lld elements", (long long)args->outer.count);
  const cuda_shape shape = {(uint32_t)blocks, 1, 1, CUDA_BLOCK, 0};
  return cuda_launch(device, kernel, &shape, stream, all, err);
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const reduce_plan *plan = opaque;
  reduce_args args = {.fold = plan->fold, .last = plan->last, .factor = 1.0};
  if (plan->fold == BS_FOLD_SUM || plan->fold == BS_FOLD_SUMSQ) args.factor = plan->factor;
  cuda_reduce_lay(tensors[0], tensors[1], tensors[1]->dims, &args);
  set_nothing(&args);
  return cuda_reduce_launch(plan->plan.device, plan->kernel, &args, &args,
                            cuda_stream(plan->plan.device, stream), err);
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const reduce_plan *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  cuda_echo_kernel(plan->plan.device, plan->kernel, 0, &mine);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

const bs_op_impl cuda_reduce_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "reduce",
    .backend = "cuda",
    .name = "kernels",
    .summary = "sums, products, largest and smallest values and places",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = echo,
};
