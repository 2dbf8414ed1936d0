/* SPDX-License-Identifier: MIT
 *
 * tree_sum.c - out[b,n] = act(p0 + p1 + ..) rounded to out's dtype, over L blocks of N columns of the input
 * in the order of attrs: neighbours are added until one sum is left. f32, bf16 and f16 in f32, f64 in f64.
 * Rows are cut into pieces, so that few long rows occupy a whole team; a piece's blocks stay in L1. */
#include <math.h>
#include <stdlib.h>

#include "../cpu.h"

#define PIECE 256                /* columns: eight blocks of them are 8 KiB, 16 of f64 */
#define MAX_BLOCKS 8             /* of an input */
#define ALONE (INT64_C(1) << 13) /* elements below which the team is not woken */

typedef struct tree_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  uint32_t from, to, activation;
  int64_t blocks;
  int64_t order[MAX_BLOCKS];
} tree_plan;

typedef struct call {
  const tree_plan *plan;
  const bs_tensor *in, *out;
} call;

/* One piece of a row: src is its first element in block 0, the blocks are n_all elements apart. */
static void piece_f32(const tree_plan *plan, void *dst, const uint8_t *src, int64_t n_all, int64_t count) {
  const cpu_kernels *kernels = plan->kernels;
  float block[MAX_BLOCKS][PIECE];
  for (int64_t i = 0; i < plan->blocks; i++)
    kernels->load[cpu_type_index(plan->from)](
        block[i], src + (size_t)(plan->order[i] * n_all) * BS_DTYPE_BYTES(plan->from), count);
  for (int64_t apart = 1; apart < plan->blocks; apart *= 2)
    for (int64_t i = 0; i < plan->blocks; i += 2 * apart) kernels->add(block[i], block[i + apart], count);
  if (plan->activation != BS_ACT_NONE) kernels->activate[plan->activation](block[0], count);
  kernels->store[cpu_type_index(plan->to)](dst, block[0], count);
}

static void piece_f64(const tree_plan *plan, double *dst, const double *src, int64_t n_all, int64_t count) {
  for (int64_t n = 0; n < count; n++) {
    double sum[MAX_BLOCKS] = {0};
    for (int64_t i = 0; i < plan->blocks; i++) sum[i] = src[plan->order[i] * n_all + n];
    for (int64_t apart = 1; apart < plan->blocks; apart *= 2)
      for (int64_t i = 0; i < plan->blocks; i += 2 * apart) sum[i] += sum[i + apart];
    dst[n] = cpu_activation_f64(plan->activation, sum[0]);
  }
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const call *c = arg;
  const tree_plan *plan = c->plan;
  const int64_t n = c->out->dims[1], pieces = (n + PIECE - 1) / PIECE;
  int64_t begin, end;
  cpu_share(c->out->dims[0] * pieces, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = i / pieces, first = i % pieces * PIECE, count = n - first < PIECE ? n - first : PIECE;
    const uint8_t *src =
        (const uint8_t *)c->in->data + (size_t)(row * c->in->strides[0] + first) * BS_DTYPE_BYTES(plan->from);
    uint8_t *dst =
        (uint8_t *)c->out->data + (size_t)(row * c->out->strides[0] + first) * BS_DTYPE_BYTES(plan->to);
    if (plan->from == BS_F64)
      piece_f64(plan, (double *)(void *)dst, (const double *)(const void *)src, n, count);
    else
      piece_f32(plan, dst, src, n, count);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const tree_plan *plan = opaque;
  call c = {plan, args[0], args[1]};
  (void)nargs;
  (void)stream;
  if (c.out->dims[0] <= 0 || c.out->dims[1] <= 0) return BS_OK;
  return cpu_team(plan->exec, c.out->dims[0] * c.in->dims[1] < ALONE, run_share, &c, err);
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
  if (query->activation > BS_ACT_GELU_TANH)
    cpu_answer_no(answer, BS_REASON_DISABLED, "unknown activation %u", query->activation);
  else if ((from == BS_F64 && to == BS_F64) || (cpu_type_index(from) >= 0 && cpu_type_index(to) >= 0))
    cpu_answer_yes(answer, 700, BS_TOL_ACC_F32, from == BS_F64 ? "libm" : state->kernels.name, "");
  else
    cpu_answer_no(answer, BS_REASON_DTYPE, "f32, bf16 and f16 in any pair, or f64 twice");
  return BS_OK;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  (void)packed;
  const int32_t rc = cpu_require(supports, opaque, query, err);
  if (rc != BS_OK) return rc;
  tree_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->from = query->args[0]->dtype;
  plan->to = query->args[1]->dtype;
  plan->activation = query->activation;
  const int64_t n = query->args[1]->dims[1];
  plan->blocks = n > 0 ? query->args[0]->dims[1] / n : 1;
  int given = 0;
  for (int64_t i = 0; i < plan->blocks; i++) given |= query->attrs[i] != 0;
  for (int64_t i = 0; i < plan->blocks; i++) plan->order[i] = given ? query->attrs[i] : i;
  *out_plan = plan;
  return BS_OK;
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_src_loc cpu_tree_sum_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_tree_sum = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "tree_sum",
    .backend = "cpu",
    .name = "cpu",
    .summary = "adds a few blocks in the order of a binary tree, a piece of a row at a time",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
