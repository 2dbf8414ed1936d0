/* SPDX-License-Identifier: MIT
 * activate_dx.c - dZ = dY act'(Z), Z what the activation was applied to; in f64, rounded once to dZ's dtype.
 * relu has slope 0 at 0. dZ may be in dY or in Z. */
#include <math.h>

#include "step.h"

static double slope(uint32_t activation, double z) {
  switch (activation) {
    case BS_ACT_RELU:
      return z > 0.0 ? 1.0 : z <= 0.0 ? 0.0 : z; /* NaN stays */
    case BS_ACT_GELU:
      return 0.5 * erfc(-z * 0.70710678118654752440) + z * 0.39894228040143267794 * exp(-0.5 * z * z);
    default: {
      const double s = 1.0 / (1.0 + exp(-z));
      return s + z * (s * (1.0 - s));
    }
  }
}

static int32_t supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  if (q->nargs != 3 || !ref_arg_ok(q, 0, 2) || !ref_step_fits(q, 1) || !ref_step_fits(q, 2) ||
      q->args[1] == NULL || q->args[2] == NULL)
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "needs dY, Z and dZ of one shape, floats");
  if (!ref_is_float(q->args[0]->dtype))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "needs float dtypes");
  if (q->activation == BS_ACT_NONE || q->activation > BS_ACT_SILU)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", q->activation);
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  (void)packed;
  return ref_step_prepare(&ref_activate_dx, state, exec, q, NULL, out_plan, err);
}

static void change(const ref_step_job *job, double *const *v, int64_t n) {
  for (int64_t i = 0; i < n; i++) v[2][i] = v[0][i] * slope(job->plan->base.activation, v[1][i]);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  ref_step_job job = {.plan = opaque, .written = 4u, .change = change};
  for (int i = 0; i < 3; i++) job.m[i] = ref_view_of(args[i]);
  return ref_step_run(&job, err);
}

const bs_src_loc ref_activate_dx_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_activate_dx = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "activate_dx",
    .backend = "ref",
    .name = "portable",
    .summary = "portable C, the exact slopes in f64",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
