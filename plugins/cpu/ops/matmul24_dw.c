/* SPDX-License-Identifier: MIT
 *
 * matmul24_dw.c - the kept part of dW = dY^T X, [N,2 ceil(K/4)]: sums over tokens by gradient24.c, turned to
 * rows of dW here. Zero at places beyond the last column, whatever X and dY hold. */
#include "gradient24.h"

/* Rows or places at the edge of dW. */
static void finish_edge(const cpu_sums24_call *call, int64_t n0, int64_t first, const float *sums) {
  const cpu_grad24_plan *plan = call->plan;
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
  cpu_grad24_plan *plan = opaque;
  cpu_sums24_call call = {.plan = plan,
                          .x = cpu_rows24_of(plan->kernels, args[0], plan->begin, plan->shape.K),
                          .dy = cpu_rows24_of(plan->kernels, args[1], 0, plan->shape.N),
                          .tokens = args[1]->dims[0],
                          .finish = finish,
                          .dw = args[2]};
  (void)nargs;
  (void)stream;
  if (plan->shape.N == 0 || plan->shape.K == 0) return BS_OK;
  return cpu_grad24_go(plan, call.tokens, cpu_sums24_share, &call, err);
}

static int read_query(const bs_op_query *query, cpu_grad *out, bs_op_answer *answer) {
  if (query->args[0]->dtype == BS_I8)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "no steps of i8 weights: they are quantised again instead");
  if (!cpu_grad24_read(query, 0, 1, out, answer)) return 0;
  if (query->args[2]->dtype != BS_F32)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "dW of dtype 0x%04x: f32 only", query->args[2]->dtype);
  if (cpu_rows_dense(query->args[2])) return 1;
  return cpu_answer_no(answer, BS_REASON_LAYOUT, "dW has element stride %lld, need 1",
                       (long long)query->args[2]->strides[1]);
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  cpu_grad shape;
  if (read_query(query, &shape, answer))
    cpu_grad24_yes(state, query, cpu_sums24_floats(&shape), "own kernels, kept weights alone", answer);
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  cpu_grad shape;
  bs_op_answer answer;
  (void)packed;
  memset(&answer, 0, sizeof answer);
  if (!read_query(query, &shape, &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  return cpu_grad24_plan_make(state, exec, query, &shape, NULL, 0, cpu_sums24_floats(&shape), out_plan, err);
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
    .plan_free = cpu_grad24_plan_free,
};
