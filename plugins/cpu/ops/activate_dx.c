/* SPDX-License-Identifier: MIT
 *
 * activate_dx.c - dZ[b,n] = dY[b,n] act'(Z[b,n]) rounded to dZ's dtype: f32, bf16 and f16 in f32 by the
 * slopes of the kernel table. dZ may be in dY or in Z. */
#include <stdlib.h>

#include "elementwise.h"

#define ALONE (1 << 12) /* elements below which the team is not woken */
#define PIECE 1024

static void slope_piece(const cpu_elementwise *plan, bs_tensor *const *args, int64_t row, int64_t first,
                        int64_t count) {
  const cpu_kernels *kernels = &plan->state->kernels;
  float dy[PIECE], z[PIECE];
  kernels->load[cpu_type_index(args[0]->dtype)](dy, cpu_row_at(args[0], row, first), count);
  kernels->load[cpu_type_index(args[1]->dtype)](z, cpu_row_at(args[1], row, first), count);
  kernels->slope[plan->activation](z, dy, count);
  kernels->store[cpu_type_index(args[2]->dtype)](cpu_row_at(args[2], row, first), z, count);
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  for (uint32_t i = 0; i < 3; i++) {
    const bs_tensor_desc *d = query->args[i];
    if (cpu_type_index(d->dtype) < 0)
      return cpu_answer_no(answer, BS_REASON_DTYPE, "arg %u of dtype 0x%04x: f32, bf16 and f16 only", i,
                           d->dtype),
             BS_OK;
  }
  if (!cpu_args_dense(query, 3, answer)) return BS_OK;
  if (query->activation == BS_ACT_NONE || query->activation > BS_ACT_SILU)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "unknown activation %u", query->activation), BS_OK;
  cpu_answer_yes(answer, 700, BS_TOL_ACC_F32, state->kernels.name, "");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  static const cpu_elementwise like = {.most = PIECE, .alone = ALONE, .piece = slope_piece};
  (void)packed;
  return cpu_elementwise_make(&like, sizeof like, supports, state, exec, query, out_plan, err);
}

const bs_src_loc cpu_activate_dx_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_activate_dx = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "activate_dx",
    .backend = "cpu",
    .name = "cpu",
    .summary = "vector loads and stores around the slope",
    .supports = supports,
    .prepare = prepare,
    .run = cpu_elementwise_run,
    .plan_free = free,
};
