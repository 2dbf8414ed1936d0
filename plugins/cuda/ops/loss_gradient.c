/* SPDX-License-Identifier: MIT
 * loss_gradient.c - a loss of outputs and its gradient, any strides; the arithmetic is in
 * loss_gradient_body.h. dY may be in Y. */
#include "loss_gradient_body.h"

#include "ops.h"

enum { Y, TARGET, DY, LOSS, ARGS };
enum { SUM = 0, SQUARES = 1 };

typedef struct loss_plan {
  cuda_plan plan;
  double factor;
  uint32_t sum;
  uint32_t reserved;
} loss_plan;

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != ARGS) return cuda_answer_no(out_answer, BS_REASON_RANK, "needs Y, target, dY and loss");
  for (uint32_t i = 0; i < ARGS; i++) {
    if (i == TARGET && q->args[i] == NULL) continue;
    if (!cuda_arg_ok(q, i, 2))
      return cuda_answer_no(out_answer, BS_REASON_RANK, "arg %u: two dimensions of a known dtype", i);
    const uint32_t dtype = q->args[i]->dtype;
    if (i == LOSS ? dtype != BS_F64 : !cuda_is_float(dtype))
      return cuda_answer_no(out_answer, BS_REASON_DTYPE, "arg %u: dtype 0x%04x", i, dtype);
  }
  return cuda_answer(out_answer, BS_LEVEL_NATIVE, 700, BS_TOL_ACC_F64, 0, "rows", "a kernel of its own");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  const int32_t rc = cuda_plan_new(&cuda_loss_gradient, state, exec, q, sizeof(loss_plan), out_plan, err);
  if (rc != BS_OK) return rc;
  ((loss_plan *)*out_plan)->factor = 2.0 / (double)q->attrs[1];
  ((loss_plan *)*out_plan)->sum = q->attrs[0] == SUM;
  return BS_OK;
}

static int32_t run(void *opaque, bs_tensor *const *tensors, uint32_t nargs, bs_stream *stream,
                   bs_error *err) {
  (void)nargs;
  const loss_plan *plan = opaque;
  const loss_gradient_args args = {.y = cuda_view_of(tensors[Y]),
                                   .target = cuda_view_of(tensors[TARGET]),
                                   .dy = cuda_view_of(tensors[DY]),
                                   .loss = cuda_view_of(tensors[LOSS]),
                                   .factor = plan->factor,
                                   .sum = plan->sum};
  if (args.y.rows == 0) return BS_OK;
  if (args.y.rows > INT32_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "loss_gradient: %lld rows", (long long)args.y.rows);
  const cuda_shape shape = {(uint32_t)args.y.rows, 1, 1, CUDA_BLOCK, 0};
  return cuda_launch(plan->plan.device, CUDA_LOSS_GRADIENT, &shape, cuda_stream(plan->plan.device, stream),
                     &args, err);
}

const bs_op_impl cuda_loss_gradient = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "loss_gradient",
    .backend = "cuda",
    .name = "kernels",
    .summary = "a loss of outputs, token by token, and its gradient, in f64",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cuda_plan_free,
    .echo = cuda_echo_op,
};
