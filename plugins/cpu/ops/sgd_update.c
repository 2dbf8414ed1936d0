/* SPDX-License-Identifier: MIT
 *
 * sgd_update.c - one step of SGD, with or without a velocity, on the panels that matmul has packed. */
#include "step.h"

static void row(const cpu_step_plan *plan, float *w, const float *dw, float *const *state, const float *hyper,
                int64_t n) {
  plan->kernels->sgd(w, dw, state[0], hyper, n);
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  cpu_step_supports(state, query, 1, answer);
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const int32_t rc = cpu_step_prepare(state, exec, query, 1, packed, out_plan, err);
  if (rc == BS_OK) ((cpu_step_plan *)*out_plan)->row = row;
  return rc;
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  return cpu_step_run(plan, args, 1, 4, err);
}

const bs_src_loc cpu_sgd_update_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_sgd_update = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "sgd_update",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels that change the panels that matmul has packed",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cpu_step_free,
};
