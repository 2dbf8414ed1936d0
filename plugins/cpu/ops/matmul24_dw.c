/* SPDX-License-Identifier: MIT
 *
 * matmul24_dw.c - the kept part of dW = dY^T X, [N,2 ceil(K/4)]: gradient24.c sums over tokens, and this file
 * transposes the sums to rows of dW. Places beyond the last column are zero for any X and dY. */
#include "gradient24.h"

/* Rows or places at the edge of dW. */
static void finish_edge(const cpu_sums24_call *call, int64_t n0, int64_t first, const float *sums) {
  const cpu_grad_plan *plan = call->plan;
  const int64_t length = cpu_kept_length(plan->shape.K), left = plan->shape.N - n0;
  const int64_t count = length - first < CPU_UNIT_VALUES ? length - first : CPU_UNIT_VALUES;
  _Alignas(64) float rows[CPU_PANEL * CPU_UNIT_VALUES];
  plan->kernels->transpose(rows, CPU_UNIT_VALUES, sums, CPU_PANEL);
  for (int64_t i = 0; i < CPU_PANEL && i < left; i++) {
    float *from = rows + i * CPU_UNIT_VALUES;
    for (int64_t j = count - 2; j < count; j++)
      if (cpu_kept_column(plan->codes, plan->other, n0 + i, first + j) >= plan->shape.K) from[j] = 0.0f;
    memcpy((float *)call->dw->data + (n0 + i) * call->dw->strides[0] + first, from,
           (size_t)count * sizeof *from);
  }
}

static void finish(const cpu_sums24_call *call, int64_t panel, int64_t unit, float *sums) {
  const cpu_grad *shape = &call->plan->shape;
  const int64_t n0 = panel * CPU_PANEL, first = unit * CPU_UNIT_VALUES, ld = call->dw->strides[0];
  if (n0 + CPU_PANEL > shape->N || (unit + 1) * CPU_UNIT_COLUMNS > shape->K)
    finish_edge(call, n0, first, sums);
  else
    call->plan->kernels->transpose((float *)call->dw->data + n0 * ld + first, ld, sums, CPU_PANEL);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  cpu_grad_plan *plan = opaque;
  cpu_sums24_call call = cpu_sums24_of(plan, args);
  (void)nargs;
  (void)stream;
  call.finish = finish;
  call.dw = args[2];
  if (plan->shape.N == 0 || plan->shape.K == 0) return BS_OK;
  return cpu_sums24_go(plan, &call, err);
}

static const cpu_grad_kind kind = {.x = 0,
                                   .dy = 1,
                                   .of24 = 1,
                                   .size = sizeof(cpu_grad_plan),
                                   .algo = "kept24",
                                   .text = "own kernels, kept weights alone",
                                   .floats = cpu_sums24_floats};

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  return cpu_grad_supports(&kind, state, query, answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  return cpu_grad_prepare(&kind, state, exec, query, packed, out_plan, err);
}

const bs_src_loc cpu_matmul24_dw_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul24_dw = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul24_dw",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels that compute what is kept and nothing else",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cpu_grad_plan_free,
};
