/* SPDX-License-Identifier: MIT
 *
 * quantize.c - quantize_groups and dequantize_sum (docs/ops.md): rows of int8 or fp8 with an f32 scale a
 * group, made of f32, and terms of such added in f32. Work is divided over the team by groups, so that few
 * long rows occupy it too. Scales that rows share are found in two steps: the magnitudes of each row go where
 * its scales will be. */
#include <math.h>
#include <stdlib.h>

#include "../cpu.h"

#define ALONE (1 << 14) /* elements below which the team is not woken */
#define PIECE 2048      /* of a group, at a time, while terms are added */

typedef struct quant_plan {
  const bs_exec *exec;
  const cpu_state *state;
  int64_t group, terms;
  int64_t together; /* 1: rows share their scales */
  uint32_t to, of;  /* of: cpu_quant_index */
  float largest;
  uint32_t reserved;
} quant_plan;

enum { ALL = 0, MEASURE = 1, NARROW = 2 }; /* steps of quantize_groups */

typedef struct call {
  const quant_plan *plan;
  bs_tensor *const *args;
  int step;
} call;

static uint32_t values_of(const bs_op_query *query) {
  return query->args[strcmp(query->op, "dequantize_sum") == 0 ? 0 : 1]->dtype;
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  for (uint32_t i = 0; i < 3; i++)
    if (!cpu_rows_dense(query->args[i]))
      return cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has element stride %lld, need 1", i,
                           (long long)query->args[i]->strides[1]);
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
  *plan = (quant_plan){.exec = exec,
                       .state = state,
                       .group = query->attrs[0],
                       .terms = query->attrs[1],
                       .together = query->attrs[1],
                       .to = query->args[2]->dtype,
                       .of = (uint32_t)cpu_quant_index(values_of(query)),
                       .largest = cpu_quant_largest(values_of(query))};
  *out_plan = plan;
  return BS_OK;
}

static float magnitude(const cpu_kernels *kernels, const float *x, int64_t n) {
  const int32_t bits = kernels->largest(x, n);
  float most;
  memcpy(&most, &bits, sizeof most);
  return most;
}

static float scale_of(const quant_plan *plan, float most) {
  return isfinite(most) ? most / plan->largest : NAN;
}

static void quantize_group(const call *c, int64_t row, int64_t g) {
  const quant_plan *plan = c->plan;
  const bs_tensor *in = c->args[0], *q = c->args[1], *scales = c->args[2];
  const int64_t first = g * plan->group, rest = in->dims[1] - first;
  const int64_t n = rest < plan->group ? rest : plan->group;
  const float *x = (const float *)in->data + row * in->strides[0] + first;
  float *scale = (float *)scales->data + row * scales->strides[0] + g;
  uint8_t *to = (uint8_t *)q->data + row * q->strides[0] + first;
  if (c->step != NARROW) *scale = magnitude(&plan->state->kernels, x, n);
  if (c->step == MEASURE) return;
  if (c->step == ALL) *scale = scale_of(plan, *scale);
  if (*scale > 0.0f)
    plan->state->kernels.narrow[plan->of](to, x, *scale, n);
  else
    memset(to, 0, (size_t)n); /* of a NaN scale nothing */
}

static void quantize_share(void *arg, uint32_t member, uint32_t width) {
  const call *c = arg;
  const int64_t groups = c->args[2]->dims[1];
  int64_t begin, end;
  cpu_share(c->args[0]->dims[0] * groups, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) quantize_group(c, i / groups, i % groups);
}

/* The magnitudes of rows become the scales of all of them; NaN stays. */
static void share_scales(const call *c) {
  const bs_tensor *scales = c->args[2];
  float *at = scales->data;
  for (int64_t g = 0; g < scales->dims[1]; g++) {
    float most = 0.0f;
    for (int64_t r = 0; r < scales->dims[0]; r++) {
      const float of = at[r * scales->strides[0] + g];
      if (!(of <= most) && !isnan(most)) most = of;
    }
    for (int64_t r = 0; r < scales->dims[0]; r++) at[r * scales->strides[0] + g] = scale_of(c->plan, most);
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
  const cpu_kernels *kernels = &c->plan->state->kernels;
  float sum[PIECE], wide[PIECE];
  int64_t t = 0;
  do {
    const uint8_t *from = (const uint8_t *)q->data + row * q->strides[0] + t * out->dims[1] + first;
    const float scale = ((const float *)scales->data)[row * scales->strides[0] + t * groups + group];
    if (c->plan->of == 0) {
      kernels->dequantize(sum, (const int8_t *)(const void *)from, scale, n, t == 0);
      continue;
    }
    kernels->widen8[c->plan->of](wide, from, n);
    for (int64_t i = 0; i < n; i++) sum[i] = t == 0 ? wide[i] * scale : sum[i] + wide[i] * scale;
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

static int32_t run(const call *c, const bs_tensor *floats, void (*share)(void *, uint32_t, uint32_t),
                   bs_error *err) {
  call body = *c;
  if (floats->dims[0] <= 0 || floats->dims[1] <= 0) return BS_OK;
  return cpu_team(c->plan->exec, floats->dims[0] * floats->dims[1] < ALONE, share, &body, err);
}

static int32_t run_quantize(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                            bs_error *err) {
  call c = {plan, args, ALL};
  (void)nargs;
  (void)stream;
  if (!c.plan->together) return run(&c, args[0], quantize_share, err);
  c.step = MEASURE;
  const int32_t rc = run(&c, args[0], quantize_share, err);
  if (rc != BS_OK) return rc;
  share_scales(&c);
  c.step = NARROW;
  return run(&c, args[0], quantize_share, err);
}

static int32_t run_dequantize(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                              bs_error *err) {
  const call c = {plan, args, ALL};
  (void)nargs;
  (void)stream;
  return run(&c, args[2], dequantize_share, err);
}

const bs_src_loc cpu_quantize_groups_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_quantize_groups = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "quantize_groups",
    .backend = "cpu",
    .name = "cpu",
    .summary = "f32 to int8 or fp8 with a scale a group, by whole vectors",
    .supports = supports,
    .prepare = prepare,
    .run = run_quantize,
    .plan_free = free,
};

const bs_src_loc cpu_dequantize_sum_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_dequantize_sum = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "dequantize_sum",
    .backend = "cpu",
    .name = "cpu",
    .summary = "sums int8 or fp8 terms with a scale a group, by whole vectors",
    .supports = supports,
    .prepare = prepare,
    .run = run_dequantize,
    .plan_free = free,
};
