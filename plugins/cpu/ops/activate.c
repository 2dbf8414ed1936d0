/* SPDX-License-Identifier: MIT
 *
 * activate.c - out[b,n] = act(in[b,n]) rounded to out's dtype, for layers whose outputs are sums over ranks.
 * f32, bf16 and f16 in f32 by the epilogue of the matmuls, f64 in f64; out may be in itself. */
#include <math.h>
#include <stdlib.h>

#include "../cpu.h"

#define PIECE 2048      /* elements of a piece of work */
#define ALONE (1 << 13) /* elements below which the team is not woken */

typedef struct activate_plan {
  const bs_exec *exec;
  const cpu_state *state;
  uint32_t from, to, activation;
} activate_plan;

typedef struct activate_call {
  const activate_plan *plan;
  const bs_tensor *in;
  const bs_tensor *out;
} activate_call;

static void activate_f64(uint32_t activation, double *dst, const double *src, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const double v = src[i];
    dst[i] = activation == BS_ACT_RELU   ? (v < 0.0 ? 0.0 : v)
             : activation == BS_ACT_GELU ? 0.5 * v * erfc(-v * 0.70710678118654752440)
             : activation == BS_ACT_SILU ? v / (1.0 + exp(-v))
                                         : v;
  }
}

static void activate_piece(const activate_plan *plan, void *dst, const void *src, int64_t count) {
  const cpu_kernels *kernels = &plan->state->kernels;
  float wide[PIECE];
  if (plan->from == BS_F64) {
    activate_f64(plan->activation, dst, src, count);
    return;
  }
  kernels->load[cpu_type_index(plan->from)](wide, src, count);
  if (plan->activation != BS_ACT_NONE) kernels->activate[plan->activation](wide, count);
  kernels->store[cpu_type_index(plan->to)](dst, wide, count);
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
  if (query->activation > BS_ACT_SILU) {
    cpu_answer_no(answer, BS_REASON_DISABLED, "unknown activation %u", query->activation);
  } else if ((from == BS_F64 && to == BS_F64) || (cpu_type_index(from) >= 0 && cpu_type_index(to) >= 0)) {
    cpu_answer_yes(answer, 700, BS_TOL_ACC_F32, from == BS_F64 ? "libm" : state->kernels.name, "");
  } else {
    cpu_answer_no(answer, BS_REASON_DTYPE, "f32, bf16 and f16 in any pair, or f64 twice");
  }
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  activate_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->state = state;
  plan->from = query->args[0]->dtype;
  plan->to = query->args[1]->dtype;
  plan->activation = query->activation;
  *out_plan = plan;
  return BS_OK;
}

static void activate_share(void *arg, uint32_t member, uint32_t width) {
  const activate_call *call = arg;
  const activate_plan *plan = call->plan;
  const int64_t n = call->in->dims[1], pieces = (n + PIECE - 1) / PIECE;
  int64_t begin, end;
  cpu_share(call->in->dims[0] * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = i / pieces, first = i % pieces * PIECE;
    const int64_t from = row * call->in->strides[0] + first, to = row * call->out->strides[0] + first;
    activate_piece(plan, (uint8_t *)call->out->data + (size_t)to * BS_DTYPE_BYTES(plan->to),
                   (const uint8_t *)call->in->data + (size_t)from * BS_DTYPE_BYTES(plan->from),
                   n - first < PIECE ? n - first : PIECE);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const activate_plan *plan = opaque;
  activate_call call = {plan, args[0], args[1]};
  (void)nargs;
  (void)stream;
  if (args[0]->dims[0] <= 0 || args[0]->dims[1] <= 0) return BS_OK;
  if (args[0]->dims[0] * args[0]->dims[1] < ALONE) {
    activate_share(&call, 0, 1);
    return BS_OK;
  }
  const int32_t rc = cpu_parallel(plan->exec, activate_share, &call);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-CPU-TEAM", "the rank's team did not run (%d)", rc);
  return BS_OK;
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_op_impl cpu_activate_op = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "activate",
    .backend = "cpu",
    .name = "cpu",
    .summary = "vector loads and stores around the matmuls' own epilogue",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
