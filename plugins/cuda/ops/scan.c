/* SPDX-License-Identifier: MIT
 * scan.c - running sums along one dim, of every dtype but bool and any layout: floats in f64, integers in 64
 * bits. */
#include "scan.h"

typedef struct scan_plan {
  cuda_plan plan;
  uint32_t axis, flags, kernel, reserved;
} scan_plan;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out) {
  (void)state;
  if (q->nargs != 2 || q->args[0] == NULL || q->args[1] == NULL || q->args[0]->rank > CUDA_SPACE_DIMS ||
      q->args[1]->rank != q->args[0]->rank)
    return cuda_answer_no(out, BS_REASON_RANK, "needs an input and an output of one rank");
  const uint32_t rank = q->args[0]->rank, dtype = q->args[0]->dtype;
  if (q->attrs[0] != BS_FOLD_CUMSUM)
    return cuda_answer_no(out, BS_REASON_NOT_BUILT, "running sums alone, not fold %lld",
                          (long long)q->attrs[0]);
  if (q->attrs[1] < 0 || q->attrs[1] >= (int64_t)rank)
    return cuda_answer_no(out, BS_REASON_RANK, "no dim %lld", (long long)q->attrs[1]);
  for (uint32_t i = 0; i < 2; i++)
    if (!cuda_arg_ok(q, i, rank))
      return cuda_answer_no(out, BS_REASON_DTYPE, "an unknown dtype, or dims or strides below 0");
  if (dtype == BS_BOOL || q->args[1]->dtype != dtype)
    return cuda_answer_no(out, BS_REASON_DTYPE, "needs two alike, not of bool");
  return cuda_answer(out, BS_LEVEL_NATIVE, 700, cuda_is_float(dtype) ? BS_TOL_ACC_F64 : BS_TOL_EXACT, 0,
                     "teams", cuda_is_float(dtype) ? "summed in f64" : "summed in i64");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_scan, state, exec, q, sizeof(scan_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  scan_plan *plan = *out_plan;
  plan->axis = (uint32_t)q->attrs[1];
  plan->flags = (uint32_t)q->attrs[2];
  plan->kernel = cuda_is_float(q->args[0]->dtype) ? CUDA_SCAN_F64 : CUDA_SCAN_I64;
  return BS_OK;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const scan_plan *plan = opaque;
  const bs_tensor *in = tensors[0], *out = tensors[1];
  int64_t to[BS_MAX_DIMS];
  scan_args args = {.lines = {.fold = BS_FOLD_CUMSUM, .factor = 1.0},
                    .out_step = out->strides[plan->axis],
                    .without = plan->flags & 1u,
                    .back = plan->flags >> 1 & 1u};
  if (in->dims[plan->axis] == 0) return BS_OK;
  memcpy(to, out->dims, sizeof to);
  to[plan->axis] = 1;
  cuda_reduce_lay(in, out, to, &args.lines);
  return cuda_reduce_launch(plan->plan.device, plan->kernel, &args.lines, &args,
                            cuda_stream(plan->plan.device, stream), err);
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const scan_plan *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  cuda_echo_kernel(plan->plan.device, plan->kernel, 0, &mine);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

const bs_op_impl cuda_scan = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "reduce",
    .backend = "cuda",
    .name = "scan",
    .summary = "running sums",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = echo,
};
