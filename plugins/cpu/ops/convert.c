/* SPDX-License-Identifier: MIT
 *
 * convert.c - rounds [B,N] to another dtype. f32, bf16 and f16 go through the vector kernels; every
 * other pair through the host's own conversion, which defines the rounding. */
#include <stdlib.h>

#include "../cpu.h"

#define PIECE 2048      /* elements of a piece of work */
#define ALONE (1 << 15) /* elements below which the team is not woken */

typedef struct convert_plan {
  const bs_exec *exec;
  const cpu_state *state;
  uint32_t from, to;
} convert_plan;

typedef struct convert_call {
  const convert_plan *plan;
  const bs_tensor *in;
  const bs_tensor *out;
} convert_call;

/* Both kinds of 16 bits go through f32 in a piece on the stack: exact, as f32 holds either. */
static void convert_piece(const convert_plan *plan, void *dst, const void *src, int64_t count) {
  const cpu_kernels *kernels = &plan->state->kernels;
  const int from = cpu_type_index(plan->from), to = cpu_type_index(plan->to);
  if (plan->from == plan->to) {
    memcpy(dst, src, (size_t)count * BS_DTYPE_BYTES(plan->to));
  } else if (from > 0 && to == 0) {
    kernels->load[from](dst, src, count);
  } else if (from == 0 && to > 0) {
    kernels->store[to](dst, src, count);
  } else if (from > 0 && to > 0) {
    float wide[PIECE];
    kernels->load[from](wide, src, count);
    kernels->store[to](dst, wide, count);
  } else {
    (void)plan->state->host->convert(plan->to, dst, plan->from, src, (uint64_t)count);
  }
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  const uint32_t from = query->args[0]->dtype, to = query->args[1]->dtype;
  for (uint32_t i = 0; i < 2; i++)
    if (!cpu_rows_dense(query->args[i])) {
      cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has element stride %lld, need 1", i,
                    (long long)query->args[i]->strides[1]);
      return BS_OK;
    }
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
  convert_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->state = state;
  plan->from = query->args[0]->dtype;
  plan->to = query->args[1]->dtype;
  *out_plan = plan;
  return BS_OK;
}

static void convert_share(void *arg, uint32_t member, uint32_t width) {
  const convert_call *call = arg;
  const convert_plan *plan = call->plan;
  const int64_t n = call->in->dims[1], pieces = (n + PIECE - 1) / PIECE;
  int64_t begin, end;
  cpu_share(call->in->dims[0] * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = i / pieces, first = i % pieces * PIECE;
    const int64_t from = row * call->in->strides[0] + first, to = row * call->out->strides[0] + first;
    convert_piece(plan, (uint8_t *)call->out->data + (size_t)to * BS_DTYPE_BYTES(plan->to),
                  (const uint8_t *)call->in->data + (size_t)from * BS_DTYPE_BYTES(plan->from),
                  n - first < PIECE ? n - first : PIECE);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const convert_plan *plan = opaque;
  convert_call call = {plan, args[0], args[1]};
  (void)nargs;
  (void)stream;
  if (args[0]->dims[0] <= 0 || args[0]->dims[1] <= 0) return BS_OK;
  if (args[0]->dims[0] * args[0]->dims[1] < ALONE) {
    convert_share(&call, 0, 1);
    return BS_OK;
  }
  const int32_t rc = cpu_parallel(plan->exec, convert_share, &call);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-CPU-TEAM", "the rank's team did not run (%d)", rc);
  return BS_OK;
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_op_impl cpu_convert = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "convert",
    .backend = "cpu",
    .name = "cpu",
    .summary = "vector kernels for f32, bf16 and f16, the host's conversion for the rest",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
