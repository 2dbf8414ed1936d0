/* SPDX-License-Identifier: MIT
 *
 * gradient24.c - see gradient24.h. The sums over tokens: outputs in the lanes, each picks the columns that it
 * keeps out of a token's X by a permutation of four, as the forward pass of few tokens does; what is not kept
 * is not computed. Sums run upwards in b, in blocks of tokens that depend on nothing but b: the bits do not
 * depend on the team. */
#include "gradient24.h"

#define UNITS 8  /* of a block: X of 128 tokens is 128 KiB, a unit's part in L1 while all panels go by */
#define CHUNK 16 /* panels whose sums are kept while all tokens go by */
#define SUMS (CPU_UNIT_VALUES * CPU_PANEL)

static int64_t tokens_of(int64_t B) {
  return B < 1 ? 1 : B < CPU_GRAD_TOKENS ? B : CPU_GRAD_TOKENS;
}

uint64_t cpu_sums24_floats(const bs_op_query *query, const cpu_grad *shape) {
  (void)query;
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
  const cpu_grad_plan *plan = call->plan;
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

/* Processes all tokens of a part; `loaded` is the first panel whose whole dY is in scratch, -1: none. */
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

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const cpu_sums24_call *call = arg;
  const cpu_grad_plan *plan = call->plan;
  const uint32_t members = cpu_grad_members(plan, width);
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

cpu_sums24_call cpu_sums24_of(const cpu_grad_plan *plan, bs_tensor *const *args) {
  const cpu_sums24_call call = {.plan = plan,
                                .x = cpu_rows24_of(plan->kernels, args[0], plan->begin, plan->shape.K),
                                .dy = cpu_rows24_of(plan->kernels, args[1], 0, plan->shape.N),
                                .tokens = args[1]->dims[0]};
  return call;
}

int32_t cpu_sums24_go(cpu_grad_plan *plan, cpu_sums24_call *call, bs_error *err) {
  return cpu_grad_go(plan, call->tokens, run_share, call, err);
}
