/* SPDX-License-Identifier: MIT
 * sgd_update.c - one step of stochastic gradient descent on a packed weight, in place: g = dW + weight_decay
 * W; with V: V = momentum V + g, g = V as stored; W -= lr g. In f64, each value rounded once to its dtype. */
#include "step.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !ref_arg_ok(q, 0, 2) || !ref_step_fits(q, 1) || !ref_arg_ok(q, 2, 1))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs dW [N,K], V [N,K] or none, hyper [4]");
  if (!ref_is_float(q->weight_dtype) || !ref_is_float(q->args[0]->dtype))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "integer weights are not trained");
  return ref_answer_native(out_answer, BS_TOL_ACC_F64, 0, "portable C, f64 sums");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  if (packed == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT", "sgd_update needs a packed weight");
  return ref_step_prepare(&ref_sgd_update, state, exec, q, packed, out_plan, err);
}

static void change(const ref_step_job *job, double *const *v, int64_t n) {
  const double lr = (double)job->hyper[0], momentum = (double)job->hyper[1], decay = (double)job->hyper[2];
  for (int64_t i = 0; i < n; i++) {
    double g = v[1][i] + decay * v[0][i];
    if (v[2] != NULL) g = v[2][i] = (double)(float)(momentum * v[2][i] + g);
    v[0][i] -= lr * g;
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_step_plan *plan = opaque;
  ref_step_job job = {.plan = plan, .written = 5u, .change = change};
  memcpy(job.hyper, args[2]->data, 4 * sizeof *job.hyper);
  job.m[0] = ref_step_weight(plan);
  job.m[1] = ref_view_of(args[0]);
  if (args[1] != NULL) job.m[2] = ref_view_of(args[1]);
  return ref_step_run(&job, err);
}

const bs_src_loc ref_sgd_update_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_sgd_update = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "sgd_update",
    .backend = "ref",
    .name = "portable",
    .summary = "portable C, one rounding of the weight",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
