/* SPDX-License-Identifier: MIT
 *
 * gradient24.c - see gradient24.h. The sums over tokens: outputs in the lanes, each picks the columns that it
 * keeps out of a token's X by a permutation of four, as the forward pass of few tokens does; what is not kept
 * is not computed. Sums run upwards in b, in blocks of tokens that depend on nothing but b: the bits do not
 * depend on the team. */
#include "gradient24.h"

#include <stdlib.h>

#define ALONE (1 << 16) /* multiplications below which the team is not woken */
#define UNITS 8  /* of a block: X of 128 tokens is 128 KiB, a unit's part in L1 while all panels go by */
#define CHUNK 16 /* panels whose sums are kept while all tokens go by */
#define SUMS (CPU_UNIT_VALUES * CPU_PANEL)

int cpu_grad24_read(const bs_op_query *query, uint32_t x, uint32_t dy, cpu_grad *out, bs_op_answer *answer) {
  return cpu_grad_read(query, x, dy, out, answer) && cpu_kept_fits(query, out->N, out->K, answer);
}

static uint64_t whole_lines(uint64_t floats) {
  return (floats + 15) / 16 * 16;
}

void cpu_grad24_yes(const cpu_state *state, const bs_op_query *query, uint64_t each, const char *text,
                    bs_op_answer *answer) {
  char algo[48];
  if (!cpu_workspace_fits(query, whole_lines(each) * sizeof(float), answer)) return;
  snprintf(algo, sizeof algo, "kept24-%s", state->kernels.name);
  cpu_answer_yes(answer, 600, BS_TOL_ACC_F32, algo, text);
}

static int32_t check_weight(const bs_op_query *query, const cpu_grad *shape, const cpu_packed24 *w,
                            bs_error *err) {
  if (w != NULL && w->N == shape->N && w->K == shape->K && w->dtype == query->weight_dtype) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-PACKED", "[%lld,%lld] asked of another packed weight",
                 (long long)shape->N, (long long)shape->K);
}

int32_t cpu_grad24_plan_make(cpu_state *state, const bs_exec *exec, const bs_op_query *query,
                             const cpu_grad *shape, cpu_packed24 *packed, int needs_packed, uint64_t each,
                             void **out_plan, bs_error *err) {
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  if (!cpu_workspace_fits(query, whole_lines(each) * sizeof(float), &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  int32_t rc = needs_packed ? check_weight(query, shape, packed, err) : BS_OK;
  if (rc != BS_OK) return rc;
  cpu_grad24_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->state = state;
  plan->kernels = &state->kernels;
  plan->shape = *shape;
  plan->each = whole_lines(each);
  plan->width = cpu_workspace_members(query, plan->each * sizeof(float), exec->width > 0 ? exec->width : 1);
  if (shape->full) plan->begin = query->partition->begin;
  if (needs_packed) {
    plan->w = packed;
    plan->codes = packed->codes;
    plan->other = packed->other;
  } else {
    rc = cpu_codes_take(state, exec, query->kept, &plan->codes, &plan->other, err);
  }
  if (rc == BS_OK) rc = cpu_reserve(exec, plan->each * plan->width * sizeof(float), err);
  if (rc != BS_OK) {
    cpu_grad24_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

void cpu_grad24_plan_free(void *opaque) {
  cpu_grad24_plan *plan = opaque;
  if (plan == NULL) return;
  if (plan->w == NULL) cpu_codes_drop(plan->state, plan->codes);
  free(plan);
}

int32_t cpu_grad24_go(cpu_grad24_plan *plan, int64_t tokens,
                      void (*body)(void *arg, uint32_t member, uint32_t width), void *arg, bs_error *err) {
  const cpu_grad *shape = &plan->shape;
  if (tokens > shape->B)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-BATCH", "%lld tokens, prepared for %lld",
                   (long long)tokens, (long long)shape->B);
  plan->memory = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(plan->exec, (double)(tokens + 1) * (double)shape->N * (double)shape->K < ALONE, body, arg,
                  err);
}

/* ---- sums over tokens ----------------------------------------------------------------------- */

static int64_t tokens_of(int64_t B) {
  return B < 1 ? 1 : B < CPU_GRAD_TOKENS ? B : CPU_GRAD_TOKENS;
}

uint64_t cpu_sums24_floats(const cpu_grad *shape) {
  return (uint64_t)(tokens_of(shape->B) * (UNITS * CPU_UNIT_COLUMNS + CHUNK * CPU_PANEL) +
                    CHUNK * UNITS * SUMS);
}

/* Some panels and units of one member. */
typedef struct part {
  int64_t panel, panels; /* at most CHUNK */
  int64_t unit, units;   /* at most UNITS */
  float *x;              /* [unit][tokens][32] */
  float *dy;             /* [panel][tokens][16] */
  float *sums;           /* [panel][unit][16][16] */
} part;

static void load_x(const cpu_sums24_call *call, const part *p, int64_t token, int64_t tokens) {
  for (int64_t u = 0; u < p->units; u++)
    for (int64_t t = 0; t < tokens; t++)
      cpu_rows24_load(&call->x, token + t, (p->unit + u) * CPU_UNIT_COLUMNS, CPU_UNIT_COLUMNS,
                      p->x + (u * tokens + t) * CPU_UNIT_COLUMNS);
}

static void load_dy(const cpu_sums24_call *call, const part *p, int64_t token, int64_t tokens) {
  for (int64_t i = 0; i < p->panels; i++)
    for (int64_t t = 0; t < tokens; t++)
      cpu_rows24_load(&call->dy, token + t, (p->panel + i) * CPU_PANEL, CPU_PANEL,
                      p->dy + (i * tokens + t) * CPU_PANEL);
}

static void add_tokens(const cpu_sums24_call *call, const part *p, int64_t token, int64_t tokens) {
  const cpu_grad24_plan *plan = call->plan;
  for (int64_t u = 0; u < p->units; u++)
    for (int64_t i = 0; i < p->panels; i++) {
      const cpu_sums24 sums = {.x = p->x + u * tokens * CPU_UNIT_COLUMNS,
                               .x_ld = CPU_UNIT_COLUMNS,
                               .dy = p->dy + i * tokens * CPU_PANEL,
                               .codes = cpu_codes_at(plan->codes, p->panel + i, p->unit + u),
                               .c = p->sums + (i * UNITS + u) * SUMS,
                               .tokens = tokens,
                               .add = token > 0,
                               .other = plan->other};
      plan->kernels->sums24(&sums);
    }
}

/* All tokens of a part; `loaded` is the first panel whose dY lies in scratch as a whole, -1: none. */
static void run_part(const cpu_sums24_call *call, const part *p, int64_t *loaded) {
  if (call->tokens == 0) memset(p->sums, 0, CHUNK * UNITS * SUMS * sizeof *p->sums);
  for (int64_t t = 0; t < call->tokens; t += CPU_GRAD_TOKENS) {
    const int64_t tokens = call->tokens - t < CPU_GRAD_TOKENS ? call->tokens - t : CPU_GRAD_TOKENS;
    load_x(call, p, t, tokens);
    if (call->tokens > CPU_GRAD_TOKENS || *loaded != p->panel) load_dy(call, p, t, tokens);
    *loaded = p->panel;
    add_tokens(call, p, t, tokens);
  }
  for (int64_t i = 0; i < p->panels; i++)
    for (int64_t u = 0; u < p->units; u++)
      call->finish(call, p->panel + i, p->unit + u, p->sums + (i * UNITS + u) * SUMS);
}

void cpu_sums24_share(void *arg, uint32_t member, uint32_t width) {
  const cpu_sums24_call *call = arg;
  const cpu_grad24_plan *plan = call->plan;
  const uint32_t members = width < plan->width ? width : plan->width;
  int64_t begin, end, loaded = -1;
  if (member >= members) return;
  cpu_share(plan->codes->panels, member, members, &begin, &end);
  part p = {.x = plan->memory + plan->each * member};
  p.dy = p.x + tokens_of(plan->shape.B) * UNITS * CPU_UNIT_COLUMNS;
  p.sums = p.dy + tokens_of(plan->shape.B) * CHUNK * CPU_PANEL;
  for (p.panel = begin; p.panel < end; p.panel += CHUNK) {
    p.panels = end - p.panel < CHUNK ? end - p.panel : CHUNK;
    for (p.unit = 0; p.unit < plan->codes->units; p.unit += UNITS) {
      p.units = plan->codes->units - p.unit < UNITS ? plan->codes->units - p.unit : UNITS;
      run_part(call, &p, &loaded);
    }
  }
}
