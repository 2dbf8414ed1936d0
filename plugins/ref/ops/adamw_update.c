/* SPDX-License-Identifier: MIT
 * adamw_update.c - one step of AdamW on a packed weight, in place: M = (1 - a1) M + a1 dW,
 * V = (1 - a2) V + a2 dW^2, W -= lr (c1 M / (sqrt(c2 V) + eps) + weight_decay W), M and V as stored. In f64,
 * each value rounded once to its dtype. */
#include <math.h>

#include "step.h"

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 4 || !ref_arg_ok(q, 0, 2) || !ref_step_fits(q, 1) || !ref_step_fits(q, 2) ||
      q->args[1] == NULL || q->args[2] == NULL || !ref_arg_ok(q, 3, 1))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs dW, M and V [N,K], hyper [8]");
  if (!ref_is_float(q->weight_dtype) || !ref_is_float(q->args[0]->dtype))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "integer weights are not trained");
  return ref_answer_native(out_answer, BS_TOL_ACC_F64, 0, "portable C, f64 sums");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  if (packed == NULL)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT", "adamw_update needs a packed weight");
  return ref_step_prepare(&ref_adamw_update, state, exec, q, packed, out_plan, err);
}

static void change(const ref_step_job *job, double *const *v, int64_t n) {
  const double lr = (double)job->hyper[0], a1 = (double)job->hyper[1], a2 = (double)job->hyper[2];
  const double eps = (double)job->hyper[3], decay = (double)job->hyper[4];
  const double c1 = (double)job->hyper[5], c2 = (double)job->hyper[6];
  for (int64_t i = 0; i < n; i++) {
    const double g = v[1][i];
    v[2][i] = (double)(float)((1.0 - a1) * v[2][i] + a1 * g);
    v[3][i] = (double)(float)((1.0 - a2) * v[3][i] + a2 * g * g);
    v[0][i] -= lr * (c1 * v[2][i] / (sqrt(c2 * v[3][i]) + eps) + decay * v[0][i]);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const ref_step_plan *plan = opaque;
  ref_step_job job = {.plan = plan, .written = 13u, .change = change};
  memcpy(job.hyper, args[3]->data, sizeof job.hyper);
  job.m[0] = ref_step_weight(plan);
  for (int i = 0; i < 3; i++) job.m[1 + i] = ref_view_of(args[i]);
  return ref_step_run(&job, err);
}

const bs_src_loc ref_adamw_update_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_adamw_update = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "adamw_update",
    .backend = "ref",
    .name = "portable",
    .summary = "portable C, one rounding of each value",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
