/* SPDX-License-Identifier: MIT
 *
 * activate_dx.c - dZ[b,n] = dY[b,n] act'(Z[b,n]) rounded to dZ's dtype: f32, bf16 and f16 in f32 by the
 * slopes of the kernel table. dZ may be in dY or in Z. */
#include <stdlib.h>

#include "../cpu.h"

#define ALONE (1 << 12) /* elements below which the team is not woken */
#define PIECE 1024

typedef struct slope_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  uint32_t activation;
} slope_plan;

typedef struct call {
  const slope_plan *plan;
  const bs_tensor *dy, *z, *dz;
} call;

static uint8_t *at(const bs_tensor *t, int64_t row, int64_t first) {
  return (uint8_t *)t->data + (size_t)(row * t->strides[0] + first) * BS_DTYPE_BYTES(t->dtype);
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const call *c = arg;
  const cpu_kernels *kernels = c->plan->kernels;
  const int64_t n = c->dy->dims[1], pieces = (n + PIECE - 1) / PIECE;
  float dy[PIECE], z[PIECE];
  int64_t begin, end;
  cpu_share(c->dy->dims[0] * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = i / pieces, first = i % pieces * PIECE, count = n - first < PIECE ? n - first : PIECE;
    kernels->load[cpu_type_index(c->dy->dtype)](dy, at(c->dy, row, first), count);
    kernels->load[cpu_type_index(c->z->dtype)](z, at(c->z, row, first), count);
    kernels->slope[c->plan->activation](z, dy, count);
    kernels->store[cpu_type_index(c->dz->dtype)](at(c->dz, row, first), z, count);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const slope_plan *plan = opaque;
  call c = {plan, args[0], args[1], args[2]};
  (void)nargs;
  (void)stream;
  if (args[0]->dims[0] <= 0 || args[0]->dims[1] <= 0) return BS_OK;
  return cpu_team(plan->exec, args[0]->dims[0] * args[0]->dims[1] < ALONE, run_share, &c, err);
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  for (uint32_t i = 0; i < 3; i++) {
    const bs_tensor_desc *d = query->args[i];
    if (cpu_type_index(d->dtype) < 0)
      return cpu_answer_no(answer, BS_REASON_DTYPE, "arg %u of dtype 0x%04x: f32, bf16 and f16 only", i,
                           d->dtype),
             BS_OK;
    if (!cpu_rows_dense(d))
      return cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has element stride %lld, need 1", i,
                           (long long)d->strides[1]),
             BS_OK;
  }
  if (query->activation == BS_ACT_NONE || query->activation > BS_ACT_SILU)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "unknown activation %u", query->activation), BS_OK;
  cpu_answer_yes(answer, 700, BS_TOL_ACC_F32, state->kernels.name, "");
  return BS_OK;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  (void)packed;
  const int32_t rc = cpu_require(supports, opaque, query, err);
  if (rc != BS_OK) return rc;
  slope_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = (slope_plan){exec, &state->kernels, query->activation};
  *out_plan = plan;
  return BS_OK;
}

static void plan_free(void *plan) {
  free(plan);
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
    .run = run,
    .plan_free = plan_free,
};
