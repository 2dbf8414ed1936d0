/* SPDX-License-Identifier: MIT
 *
 * map.c - a small program for each element (blockshock/expr.h). prepare gives each value of the program a
 * place; map_run.c runs it over chunks of 512 elements, one vector loop a step (isa/map.h). */
#include "map.h"

#include <stdlib.h>

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  const bs_expr *e = query->expr;
  char algo[48];
  if (e->max_op >= BS_EXPR_OP_COUNT_) {
    cpu_answer_no(answer, BS_REASON_NOT_BUILT, "step %u of a program: known up to %d", e->max_op,
                  BS_EXPR_OP_COUNT_ - 1);
    return BS_OK;
  }
  answer->workspace = (uint64_t)(e->n_in + e->n_const + e->n_steps) * CPU_MAP_CHUNK * 8;
  if (query->workspace_limit != 0 && answer->workspace > query->workspace_limit) {
    cpu_answer_no(answer, BS_REASON_WORKSPACE, "needs up to %llu bytes of workspace, the limit is %llu",
                  (unsigned long long)answer->workspace, (unsigned long long)query->workspace_limit);
    return BS_OK;
  }
  snprintf(algo, sizeof algo, "chunks-%s", e->compute == BS_F32 ? state->kernels.name : "wide");
  cpu_answer_yes(answer, 700, BS_TOL_EXACT, algo, "a loop for each step, chunks of 512 elements");
  return BS_OK;
}

/* ---- places of values ------------------------------------------------------------------------- */

static int is_three(uint32_t op) {
  return op == BS_EXPR_FMA || op == BS_EXPR_SELECT;
}

static int is_two(uint32_t op) {
  return (op >= BS_EXPR_ADD && op <= BS_EXPR_XOR) || is_three(op);
}

/* The values that a step reads; *out_count of them. */
static void reads_of(const bs_expr_step *s, uint8_t out[3], uint32_t *out_count) {
  out[0] = s->a;
  out[1] = s->b;
  out[2] = s->c;
  *out_count = s->op == BS_EXPR_INDEX ? 0 : is_three(s->op) ? 3 : is_two(s->op) ? 2 : 1;
}

/* last[v]: the step that reads value v last; n_steps where it is an output, -1 where nothing reads it. */
static void find_last(const cpu_map_plan *plan, int32_t *last) {
  for (uint32_t v = 0; v < CPU_MAP_VALUES; v++) last[v] = -1;
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    uint8_t of[3];
    uint32_t count;
    reads_of(&plan->steps[s], of, &count);
    for (uint32_t i = 0; i < count; i++) last[of[i]] = (int32_t)s;
  }
  for (uint32_t i = 0; i < plan->n_out; i++) last[plan->outs[i]] = (int32_t)plan->n_steps;
}

/* Inputs and constants have slots of their own, steps those that are free: also one of an operand that they
 * read last, as loops go upwards. */
static void place_values(cpu_map_plan *plan) {
  int32_t last[CPU_MAP_VALUES];
  uint8_t free_slots[CPU_MAP_VALUES];
  uint32_t n_free = 0;
  const uint32_t first = plan->n_in + plan->n_const;
  find_last(plan, last);
  for (uint32_t v = 0; v < first; v++) plan->slot[v] = (uint8_t)v;
  plan->slots = first;
  for (uint32_t s = 0; s < plan->n_steps; s++) {
    uint8_t of[3];
    uint32_t count;
    reads_of(&plan->steps[s], of, &count);
    for (uint32_t i = 0; i < count; i++) {
      int again = 0; /* the same operand twice is one slot */
      for (uint32_t j = 0; j < i; j++) again |= of[j] == of[i];
      if (!again && of[i] >= first && last[of[i]] == (int32_t)s) free_slots[n_free++] = plan->slot[of[i]];
    }
    plan->slot[first + s] = n_free > 0 ? free_slots[--n_free] : (uint8_t)plan->slots++;
    if (last[first + s] < 0) free_slots[n_free++] = plan->slot[first + s]; /* no step reads it */
  }
}

static void find_direct(cpu_map_plan *plan) {
  const uint32_t first = plan->n_in + plan->n_const;
  for (uint32_t i = 0; i < plan->n_out; i++) {
    int alone = plan->outs[i] >= first;
    for (uint32_t j = 0; j < plan->n_out; j++) alone &= j == i || plan->outs[j] != plan->outs[i];
    plan->direct[i] = (uint8_t)alone;
    for (uint32_t s = alone ? plan->outs[i] - first + 1u : 0u; s < plan->n_steps; s++) {
      uint8_t of[3];
      uint32_t count;
      reads_of(&plan->steps[s], of, &count);
      for (uint32_t k = 0; k < count; k++)
        if (of[k] < plan->n_in) plan->read_later[i] |= 1u << of[k];
    }
    for (uint32_t j = 0; j < plan->n_out; j++)
      if (plan->outs[j] < plan->n_in) plan->read_later[i] |= 1u << plan->outs[j];
  }
}

/* Is every value of the dtype one of `compute`, so that a copy need not look at it? */
static int is_exact(uint32_t dtype, uint32_t compute) {
  const uint32_t bytes = BS_DTYPE_BYTES(dtype);
  const int real = dtype >> 8 == 2 || dtype >> 8 == 4 || dtype >> 8 == 10 || dtype >> 8 == 12;
  if (compute == BS_I64) return !real && dtype != BS_BOOL;
  if (compute == BS_F64) return dtype != BS_I64 && dtype != BS_BOOL;
  return dtype != BS_BOOL && (real ? bytes <= 4 : bytes == 1);
}

static cpu_form_fn form_of(const cpu_state *state, const bs_op_query *query) {
  const bs_expr *e = query->expr;
  if (e->compute != BS_F32 || e->form >= BS_MAP_COUNT_) return NULL;
  for (uint32_t i = 0; i < e->n_in + e->n_out; i++)
    if (query->args[i]->dtype != BS_F32) return NULL;
  return state->kernels.forms[e->form];
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const bs_expr *e = query->expr;
  (void)packed;
  int32_t rc = cpu_require(supports, opaque, query, err);
  if (rc != BS_OK) return rc;
  cpu_map_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->state = opaque;
  plan->compute = e->compute;
  plan->size = BS_DTYPE_BYTES(e->compute);
  plan->steps_of = e->compute == BS_F32 ? plan->state->kernels.map : NULL;
  plan->n_in = e->n_in;
  plan->n_const = e->n_const;
  plan->n_steps = e->n_steps;
  plan->n_out = e->n_out;
  for (uint32_t i = 0; i < e->n_const; i++) plan->consts[i] = e->consts[i];
  for (uint32_t i = 0; i < e->n_steps; i++) {
    plan->steps[i] = e->steps[i];
    plan->places |= e->steps[i].op == BS_EXPR_INDEX;
  }
  for (uint32_t i = 0; i < e->n_out; i++) plan->outs[i] = e->outs[i];
  plan->copies = e->n_in == 1 && e->n_out == 1 && e->n_steps == 0 && e->outs[0] == 0 &&
                 query->args[0]->dtype == query->args[1]->dtype &&
                 is_exact(query->args[0]->dtype, e->compute);
  plan->form = form_of(plan->state, query);
  place_values(plan);
  find_direct(plan);
  plan->each = (uint64_t)plan->slots * CPU_MAP_CHUNK * plan->size;
  rc = cpu_reserve(exec, plan->each * (exec->width > 0 ? exec->width : 1), err);
  if (rc != BS_OK) {
    free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

const bs_src_loc cpu_map_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_map = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 10,
    .op = "map",
    .backend = "cpu",
    .name = "cpu",
    .summary = "programs in chunks of 512 elements, a vector loop for each step",
    .supports = supports,
    .prepare = prepare,
    .run = cpu_map_run,
    .plan_free = free,
};
