/* SPDX-License-Identifier: MIT
 *
 * matmul24_update.c - W += alpha dY^T X in the packed weight of matmul24: gradient24.c sums over tokens, in
 * the storage order of the values; alpha times the sums is added and rounded once. Places beyond the last
 * column stay zero. */
#include "gradient24.h"

/* Lanes and values whose column does not exist get nothing. */
static void drop_places(const cpu_grad_plan *plan, int64_t panel, int64_t unit, float *sums) {
  const int64_t last = cpu_kept_length(plan->shape.K) - unit * CPU_UNIT_VALUES;
  for (int64_t lane = 0; lane < CPU_PANEL; lane++) {
    const int64_t n = panel * CPU_PANEL + lane;
    for (int64_t j = last - 2 < 0 ? 0 : last - 2; j < CPU_UNIT_VALUES; j++)
      if (n >= plan->shape.N || j >= last ||
          cpu_kept_column(plan->codes, plan->other, n, unit * CPU_UNIT_VALUES + j) >= plan->shape.K)
        sums[j * CPU_PANEL + lane] = 0.0f;
  }
}

static void finish(const cpu_sums24_call *call, int64_t panel, int64_t unit, float *sums) {
  const cpu_grad_plan *plan = call->plan;
  const cpu_packed *w = plan->w;
  const int64_t count = (int64_t)CPU_UNIT_VALUES * CPU_PANEL;
  uint8_t *values = cpu_unit_at(w, panel, unit);
  _Alignas(64) float wide[CPU_UNIT_VALUES * CPU_PANEL];
  for (int64_t i = 0; i < count; i++) sums[i] *= call->alpha;
  if (unit == w->units - 1 || panel == w->panels - 1) drop_places(plan, panel, unit, sums);
  if (w->dtype == BS_F32) {
    plan->kernels->add((float *)(void *)values, sums, count);
    return;
  }
  plan->kernels->values24(wide, values, w->type);
  plan->kernels->add(wide, sums, count);
  plan->kernels->store[w->type](values, wide, count);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  cpu_grad_plan *plan = opaque;
  cpu_sums24_call call = cpu_sums24_of(plan, args);
  (void)nargs;
  (void)stream;
  call.finish = finish;
  memcpy(&call.alpha, args[2]->data, sizeof call.alpha);
  if (call.tokens <= 0 || plan->w->data == NULL) return BS_OK;
  return cpu_sums24_go(plan, &call, err);
}

static const cpu_grad_kind kind = {.x = 0,
                                   .dy = 1,
                                   .weight = 1,
                                   .of24 = 1,
                                   .size = sizeof(cpu_grad_plan),
                                   .algo = "kept24",
                                   .text = "own kernels, in place on the kept values",
                                   .floats = cpu_sums24_floats};

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  return cpu_grad_supports(&kind, state, query, answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  return cpu_grad_prepare(&kind, state, exec, query, packed, out_plan, err);
}

const bs_src_loc cpu_matmul24_update_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul24_update = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul24_update",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels that add to the kept values in place",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cpu_grad_plan_free,
};
