/* SPDX-License-Identifier: MIT
 *
 * activate.c - out[b,n] = act(in[b,n]) rounded to out's dtype, for layers whose outputs are sums over ranks.
 * f32, bf16 and f16 in f32 by the epilogue of the matmuls, f64 in f64; out may be in itself. */
#include <stdlib.h>

#include "elementwise.h"

#define PIECE 2048
#define ALONE (1 << 13) /* elements below which the team is not woken */

static void activate_f64(uint32_t activation, double *dst, const double *src, int64_t n) {
  for (int64_t i = 0; i < n; i++) dst[i] = cpu_activation_f64(activation, src[i]);
}

static void activate_piece(const cpu_elementwise *plan, bs_tensor *const *args, int64_t row, int64_t first,
                           int64_t count) {
  const cpu_kernels *kernels = &plan->state->kernels;
  const void *src = cpu_row_at(args[0], row, first);
  void *dst = cpu_row_at(args[1], row, first);
  float wide[PIECE];
  if (args[0]->dtype == BS_F64) {
    activate_f64(plan->activation, dst, src, count);
    return;
  }
  kernels->load[cpu_type_index(args[0]->dtype)](wide, src, count);
  if (plan->activation != BS_ACT_NONE) kernels->activate[plan->activation](wide, count);
  kernels->store[cpu_type_index(args[1]->dtype)](dst, wide, count);
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  const uint32_t from = query->args[0]->dtype, to = query->args[1]->dtype;
  if (!cpu_args_dense(query, 2, answer)) return BS_OK;
  if (query->activation > BS_ACT_GELU_TANH) {
    cpu_answer_no(answer, BS_REASON_DISABLED, "unknown activation %u", query->activation);
  } else if ((from == BS_F64 && to == BS_F64) || (cpu_type_index(from) >= 0 && cpu_type_index(to) >= 0)) {
    cpu_answer_yes(answer, 700, BS_TOL_ACC_F32, from == BS_F64 ? "libm" : state->kernels.name, "");
    answer->bits = 1;
  } else {
    cpu_answer_no(answer, BS_REASON_DTYPE, "f32, bf16 and f16 in any pair, or f64 twice");
  }
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  static const cpu_elementwise like = {.most = PIECE, .alone = ALONE, .piece = activate_piece};
  (void)packed;
  return cpu_elementwise_make(&like, sizeof like, supports, state, exec, query, out_plan, err);
}

const bs_src_loc cpu_activate_op_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_activate_op = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "activate",
    .backend = "cpu",
    .name = "cpu",
    .summary = "vector loads and stores around the matmuls' own epilogue",
    .supports = supports,
    .prepare = prepare,
    .run = cpu_elementwise_run,
    .plan_free = free,
};
