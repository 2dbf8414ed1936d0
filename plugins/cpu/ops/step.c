/* SPDX-License-Identifier: MIT
 *
 * step.c - sgd_update and adamw_update, see step.h. Each member of the team owns a range of panels; a
 * weight's bits depend on nothing but its own numbers. */
#include "step.h"

#include <stdlib.h>

#define ALONE (1 << 13) /* weights below which the team is not woken */

static const float *row_of(const bs_tensor *t, int64_t n, int64_t first) {
  return (const float *)t->data + n * t->strides[0] + first;
}

void cpu_step_rows(const cpu_step_call *c, int64_t panel, int64_t first, int64_t count, float *lines) {
  for (int64_t lane = 0; lane < CPU_PANEL && panel * CPU_PANEL + lane < c->plan->w->N; lane++) {
    const int64_t n = panel * CPU_PANEL + lane;
    float *state[CPU_STEP_STATES];
    for (int i = 0; i < CPU_STEP_STATES; i++)
      state[i] = c->state[i] != NULL ? (float *)(uintptr_t)row_of(c->state[i], n, first) : NULL;
    c->plan->row(c->plan, lines + lane * CPU_X_LD, row_of(c->dw, n, first), state, c->hyper, count);
  }
}

/* The block of one panel: to f32, to rows, and back. Columns up to the next 16 are zeros. */
static void step_block(const cpu_step_call *c, int64_t panel, int64_t first, int64_t count, float *memory) {
  const cpu_kernels *kernels = c->plan->kernels;
  const cpu_packed *w = c->plan->w;
  float *lines = memory, *wide = memory + CPU_STEP_LINES;
  uint16_t *narrow = (uint16_t *)(void *)(wide + CPU_STEP_WIDE);
  void *packed = (uint8_t *)w->data + (size_t)cpu_packed_at(w, panel, first) * w->size;
  const int64_t whole = (count + CPU_PANEL - 1) / CPU_PANEL * CPU_PANEL;
  const int in_place = w->dtype == BS_F32 && whole == count;
  if (in_place) {
    wide = packed;
  } else {
    memset(wide + count / CPU_PANEL * CPU_PANEL * CPU_PANEL, 0,
           (size_t)(whole - count / CPU_PANEL * CPU_PANEL) * CPU_PANEL * sizeof *wide);
    if (w->dtype == BS_F32)
      memcpy(wide, packed, (size_t)count * CPU_PANEL * sizeof *wide);
    else
      kernels->widen[cpu_type_index(w->dtype)](wide, packed, count);
  }
  for (int64_t k = 0; k < whole; k += CPU_PANEL)
    kernels->transpose(lines + k, CPU_X_LD, wide + k * CPU_PANEL, CPU_PANEL);
  cpu_step_rows(c, panel, first, count, lines);
  for (int64_t k = 0; k < whole; k += CPU_PANEL)
    kernels->transpose(wide + k * CPU_PANEL, CPU_PANEL, lines + k, CPU_X_LD);
  if (in_place) return;
  if (w->dtype == BS_F32)
    memcpy(packed, wide, (size_t)count * CPU_PANEL * sizeof *wide);
  else
    cpu_panel_narrow(kernels, w, first, wide, narrow, packed);
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const cpu_step_call *c = arg;
  const cpu_step_plan *plan = c->plan;
  const uint32_t members = width < plan->width ? width : plan->width;
  float *memory = plan->memory + (size_t)CPU_STEP_EACH * member;
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(plan->w->panels, member, members, &begin, &end);
  for (int64_t panel = begin; panel < end; panel++)
    for (int64_t first = 0; first < plan->w->length; first += CPU_K_BLOCK) {
      const int64_t left = plan->w->length - first, count = left < CPU_K_BLOCK ? left : CPU_K_BLOCK;
      if (plan->w->codes != NULL)
        cpu_step_block24(c, panel, first, count, memory);
      else
        step_block(c, panel, first, count, memory);
    }
}

static int32_t step_run(cpu_step_plan *plan, bs_tensor *const *args, uint32_t states, uint32_t count,
                        bs_error *err) {
  cpu_step_call c = {.plan = plan, .dw = args[0]};
  for (uint32_t i = 0; i < states; i++) c.state[i] = args[1 + i];
  memcpy(c.hyper, args[1 + states]->data, count * sizeof(float));
  if (plan->w->N == 0 || plan->w->length == 0) return BS_OK;
  plan->memory = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(plan->exec, (double)plan->w->N * (double)plan->w->length < ALONE, run_share, &c, err);
}

static int read_query(const bs_op_query *query, uint32_t states, bs_op_answer *answer) {
  for (uint32_t i = 0; i <= states; i++) {
    const bs_tensor_desc *d = query->args[i];
    if (d == NULL) continue;
    if (d->dtype != BS_F32)
      return cpu_answer_no(answer, BS_REASON_DTYPE, "arg %u of dtype 0x%04x: f32 only", i, d->dtype);
  }
  if (!cpu_args_dense(query, states + 1, answer)) return 0;
  if (!cpu_is_matmul_type(query->weight_dtype))
    return cpu_answer_no(answer, BS_REASON_DTYPE, "weight of dtype 0x%04x: f32, bf16 and f16 only",
                         query->weight_dtype);
  if (query->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "computes in f32; the ref backend has f64");
  return cpu_workspace_fits(query, (uint64_t)CPU_STEP_EACH * sizeof(float), answer);
}

static void step_supports(const cpu_state *state, const bs_op_query *query, uint32_t states,
                          bs_op_answer *answer) {
  if (!read_query(query, states, answer)) return;
  cpu_answer_yes(answer, 600, BS_TOL_ACC_F32, state->kernels.name, "own kernels, in place on the panels");
}

static int32_t step_prepare(const cpu_state *state, const bs_exec *exec, const bs_op_query *query,
                            uint32_t states, cpu_step_row row, void *packed, void **out_plan, bs_error *err) {
  bs_op_answer answer;
  const cpu_packed *w = packed;
  memset(&answer, 0, sizeof answer);
  if (!read_query(query, states, &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-STEP", "%s", answer.text);
  if (w == NULL || w->dtype != query->weight_dtype || w->N != query->args[0]->dims[0] ||
      w->length != query->args[0]->dims[1])
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-PACKED", "dW [%lld,%lld] is not of the packed weight",
                   (long long)query->args[0]->dims[0], (long long)query->args[0]->dims[1]);
  cpu_step_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->w = packed;
  cpu_packed_changes(packed);
  plan->row = row;
  plan->width = cpu_workspace_members(query, (uint64_t)CPU_STEP_EACH * sizeof(float),
                                      exec->width > 0 ? exec->width : 1);
  const int32_t rc = cpu_reserve(exec, (uint64_t)CPU_STEP_EACH * plan->width * sizeof(float), err);
  if (rc != BS_OK) {
    free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* ---- one step of SGD, with or without a velocity, and of AdamW ------------------------------- */

static void sgd_row(const cpu_step_plan *plan, float *w, const float *dw, float *const *state,
                    const float *hyper, int64_t n) {
  plan->kernels->sgd(w, dw, state[0], hyper, n);
}

static int32_t sgd_supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  step_supports(state, query, 1, answer);
  return BS_OK;
}

static int32_t sgd_prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                           void **out_plan, bs_error *err) {
  return step_prepare(state, exec, query, 1, sgd_row, packed, out_plan, err);
}

static int32_t sgd_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  return step_run(plan, args, 1, 4, err);
}

const bs_src_loc cpu_sgd_update_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_sgd_update = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "sgd_update",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels that change the panels that matmul has packed",
    .supports = sgd_supports,
    .prepare = sgd_prepare,
    .run = sgd_run,
    .plan_free = free,
};

static void adamw_row(const cpu_step_plan *plan, float *w, const float *dw, float *const *state,
                      const float *hyper, int64_t n) {
  plan->kernels->adamw(w, dw, state[0], state[1], hyper, n);
}

static int32_t adamw_supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  step_supports(state, query, 2, answer);
  return BS_OK;
}

static int32_t adamw_prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                             void **out_plan, bs_error *err) {
  return step_prepare(state, exec, query, 2, adamw_row, packed, out_plan, err);
}

static int32_t adamw_run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                         bs_error *err) {
  (void)nargs;
  (void)stream;
  return step_run(plan, args, 2, 8, err);
}

const bs_src_loc cpu_adamw_update_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_adamw_update = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "adamw_update",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels that change the panels that matmul has packed",
    .supports = adamw_supports,
    .prepare = adamw_prepare,
    .run = adamw_run,
    .plan_free = free,
};
