/* SPDX-License-Identifier: MIT
 *
 * quantize.c - quantize_groups and dequantize_sum (docs/ops.md): rows of int8 with an f32 scale a group, made
 * of f32, and terms of such added in f32. Work is divided over the team by groups, so that few long rows
 * occupy it too. */
#include <stdlib.h>

#include "../cpu.h"

#define ALONE (1 << 14) /* elements below which the team is not woken */
#define PIECE 2048      /* of a group, at a time, while terms are added */

typedef struct quant_plan {
  const bs_exec *exec;
  const cpu_state *state;
  int64_t group, terms;
  uint32_t to;
} quant_plan;

typedef struct call {
  const quant_plan *plan;
  bs_tensor *const *args;
} call;

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  for (uint32_t i = 0; i < 3; i++)
    if (!cpu_rows_dense(query->args[i]))
      return cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has element stride %lld, need 1", i,
                           (long long)query->args[i]->strides[1]);
  const int sums = strcmp(query->op, "dequantize_sum") == 0;
  if (query->args[sums ? 0 : 1]->dtype != BS_I8 || (!sums && query->attrs[1] != 0))
    return cpu_answer_no(answer, BS_REASON_NOT_BUILT, "fp8, or scales that rows share");
  if (query->args[2]->dtype != BS_F64 && cpu_type_index(query->args[2]->dtype) < 0)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "sums go to f32, bf16, f16 or f64");
  cpu_answer_yes(answer, 700, BS_TOL_EXACT, state->kernels.name, "");
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  const int32_t rc = cpu_require(supports, state, query, err);
  if (rc != BS_OK) return rc;
  quant_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = (quant_plan){exec, state, query->attrs[0], query->attrs[1], query->args[2]->dtype};
  *out_plan = plan;
  return BS_OK;
}

static void quantize_share(void *arg, uint32_t member, uint32_t width) {
  const call *c = arg;
  const bs_tensor *in = c->args[0], *q = c->args[1], *scales = c->args[2];
  const int64_t group = c->plan->group, groups = scales->dims[1];
  int64_t begin, end;
  cpu_share(in->dims[0] * groups, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t row = i / groups, g = i % groups, first = g * group, rest = in->dims[1] - first;
    c->plan->state->kernels.quantize(
        (int8_t *)q->data + row * q->strides[0] + first, (float *)scales->data + row * scales->strides[0] + g,
        (const float *)in->data + row * in->strides[0] + first, rest < group ? rest : group);
  }
}

static void store(const quant_plan *plan, const bs_tensor *out, int64_t at, const float *sum, int64_t n) {
  if (plan->to == BS_F64) {
    double *to = (double *)out->data + at;
    for (int64_t i = 0; i < n; i++) to[i] = sum[i];
    return;
  }
  plan->state->kernels.store[cpu_type_index(plan->to)](
      (uint8_t *)out->data + (size_t)at * BS_DTYPE_BYTES(plan->to), sum, n);
}

/* Columns first .. first+n-1 of one row, within a group. */
static void sum_piece(const call *c, int64_t row, int64_t group, int64_t first, int64_t n) {
  const bs_tensor *q = c->args[0], *scales = c->args[1], *out = c->args[2];
  const int64_t groups = scales->dims[1] / c->plan->terms;
  float sum[PIECE];
  int64_t t = 0;
  do {
    c->plan->state->kernels.dequantize(
        sum, (const int8_t *)q->data + row * q->strides[0] + t * out->dims[1] + first,
        ((const float *)scales->data)[row * scales->strides[0] + t * groups + group], n, t == 0);
  } while (++t < c->plan->terms);
  store(c->plan, out, row * out->strides[0] + first, sum, n);
}

static void dequantize_share(void *arg, uint32_t member, uint32_t width) {
  const call *c = arg;
  const bs_tensor *out = c->args[2];
  const int64_t group = c->plan->group, groups = c->args[1]->dims[1] / c->plan->terms;
  int64_t begin, end;
  cpu_share(out->dims[0] * groups, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t g = i % groups, first = g * group;
    const int64_t last = first + group < out->dims[1] ? first + group : out->dims[1];
    for (int64_t at = first; at < last; at += PIECE)
      sum_piece(c, i / groups, g, at, last - at < PIECE ? last - at : PIECE);
  }
}

static int32_t run(const quant_plan *plan, bs_tensor *const *args, const bs_tensor *floats,
                   void (*share)(void *, uint32_t, uint32_t), bs_error *err) {
  call c = {plan, args};
  if (floats->dims[0] <= 0 || floats->dims[1] <= 0) return BS_OK;
  if (floats->dims[0] * floats->dims[1] < ALONE) {
    share(&c, 0, 1);
    return BS_OK;
  }
  const int32_t rc = cpu_parallel(plan->exec, share, &c);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-CPU-TEAM", "the rank's team did not run (%d)", rc);
  return BS_OK;
}

static int32_t run_quantize(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                            bs_error *err) {
  (void)nargs;
  (void)stream;
  return run(plan, args, args[0], quantize_share, err);
}

static int32_t run_dequantize(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                              bs_error *err) {
  (void)nargs;
  (void)stream;
  return run(plan, args, args[2], dequantize_share, err);
}

const bs_op_impl cpu_quantize_groups = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "quantize_groups",
    .backend = "cpu",
    .name = "cpu",
    .summary = "f32 to int8 with a scale a group, by whole vectors",
    .supports = supports,
    .prepare = prepare,
    .run = run_quantize,
    .plan_free = free,
};

const bs_op_impl cpu_dequantize_sum = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "dequantize_sum",
    .backend = "cpu",
    .name = "cpu",
    .summary = "sums int8 terms with a scale a group, by whole vectors",
    .supports = supports,
    .prepare = prepare,
    .run = run_dequantize,
    .plan_free = free,
};
