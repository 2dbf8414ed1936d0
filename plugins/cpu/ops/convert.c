/* SPDX-License-Identifier: MIT
 *
 * convert.c - rounds [B,N] to another dtype. f32, bf16 and f16 go through the vector kernels; every
 * other pair through the host's own conversion, which defines the rounding. */
#include "elementwise.h"

#define ALONE (1 << 15) /* elements below which the team is not woken */

/* Both kinds of 16 bits go through f32 in a piece on the stack: exact, as f32 holds either. */
static void convert_piece(const cpu_elementwise *plan, void *dst, const void *src, int64_t count) {
  const cpu_kernels *kernels = &plan->state->kernels;
  const int from = cpu_type_index(plan->from), to = cpu_type_index(plan->to);
  if (plan->from == plan->to) {
    memcpy(dst, src, (size_t)count * BS_DTYPE_BYTES(plan->to));
  } else if (from > 0 && to == 0) {
    kernels->load[from](dst, src, count);
  } else if (from == 0 && to > 0) {
    kernels->store[to](dst, src, count);
  } else if (from > 0 && to > 0) {
    float wide[CPU_PIECE];
    kernels->load[from](wide, src, count);
    kernels->store[to](dst, wide, count);
  } else {
    (void)plan->state->host->convert(plan->to, dst, plan->from, src, (uint64_t)count);
  }
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  const uint32_t from = query->args[0]->dtype, to = query->args[1]->dtype;
  if (!cpu_args_dense(query, 2, answer)) return BS_OK;
  if (from == to || (cpu_type_index(from) >= 0 && cpu_type_index(to) >= 0)) {
    cpu_answer_yes(answer, 700, BS_TOL_EXACT, state->kernels.name, "");
    return BS_OK;
  }
  uint64_t in = 0, out = 0;
  if (!BS_HOST_HAS(state->host, convert) || state->host->convert(to, &out, from, &in, 1) != BS_OK) {
    cpu_answer_no(answer, BS_REASON_DTYPE, "no conversion from dtype 0x%04x to 0x%04x", from, to);
    return BS_OK;
  }
  cpu_answer_yes(answer, 600, BS_TOL_EXACT, "host", "the host's conversion, shared over the team");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  const int32_t rc = cpu_require(supports, state, query, err);
  return rc == BS_OK ? cpu_elementwise_make(state, exec, query, ALONE, convert_piece, out_plan, err) : rc;
}

const bs_src_loc cpu_convert_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_convert = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "convert",
    .backend = "cpu",
    .name = "cpu",
    .summary = "vector kernels for f32, bf16 and f16, the host's conversion for the rest",
    .supports = supports,
    .prepare = prepare,
    .run = cpu_elementwise_run,
    .plan_free = cpu_elementwise_free,
};
