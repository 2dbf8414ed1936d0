/* SPDX-License-Identifier: MIT
 *
 * convert.c - rounds [B,N] to another dtype. f32, bf16 and f16 go through the vector kernels; every
 * other pair through the host's own conversion, which defines the rounding. */
#include <stdlib.h>

#include "elementwise.h"

#define PIECE 2048
#define ALONE (1 << 15) /* elements below which the team is not woken */

/* Both kinds of 16 bits go through f32 in a piece on the stack: exact, as f32 holds either. */
static void convert_piece(const cpu_elementwise *plan, bs_tensor *const *args, int64_t row, int64_t first,
                          int64_t count) {
  const cpu_kernels *kernels = &plan->state->kernels;
  const uint32_t from_type = args[0]->dtype, to_type = args[1]->dtype;
  const int from = cpu_type_index(from_type), to = cpu_type_index(to_type);
  const void *src = cpu_row_at(args[0], row, first);
  void *dst = cpu_row_at(args[1], row, first);
  if (from_type == to_type) {
    memcpy(dst, src, (size_t)count * BS_DTYPE_BYTES(to_type));
  } else if (from > 0 && to == 0) {
    kernels->load[from](dst, src, count);
  } else if (from == 0 && to > 0) {
    kernels->store[to](dst, src, count);
  } else if (from > 0 && to > 0) {
    float wide[PIECE];
    kernels->load[from](wide, src, count);
    kernels->store[to](dst, wide, count);
  } else {
    (void)plan->state->host->convert(to_type, dst, from_type, src, (uint64_t)count);
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
  static const cpu_elementwise like = {.most = PIECE, .alone = ALONE, .piece = convert_piece};
  (void)packed;
  return cpu_elementwise_make(&like, sizeof like, supports, state, exec, query, out_plan, err);
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
    .plan_free = free,
};
