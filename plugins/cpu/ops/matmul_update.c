/* SPDX-License-Identifier: MIT
 *
 * matmul_update.c - W += alpha dY^T X in the packed weight of matmul. The columns k of the weight are the
 * tokens of the tiles, its outputs n their outputs, and the sums run over the tokens b. alpha X is
 * transposed, dY packed in panels of 16 outputs, and the tiles add to the packed panels in place. A 16-bit
 * panel is widened into scratch, takes the sums of all tokens there and is rounded once.
 *
 * Each member of the team owns a range of panels. Sums are in rising order of b, in blocks that depend only
 * on b: the bits do not depend on the tile or the team. */
#include "gradient.h"

#define CHUNK 16 /* panels that take every block of tokens before the next are begun */
#define PANEL_FLOATS (CPU_K_BLOCK * CPU_PANEL)

typedef struct update_call {
  const cpu_grad_plan *plan;
  cpu_view x, dy;
  float alpha;
  int64_t tokens;
} update_call;

/* Some panels of one K block, and the tokens of one step. */
typedef struct step {
  int64_t first, count;  /* columns */
  int64_t panel, panels; /* at most CHUNK */
  int64_t token, tokens; /* at most CPU_GRAD_TOKENS */
  float *lines;          /* CPU_GRAD_LINES, also a line of dY */
  float *turned;         /* alpha X turned, [column][CPU_X_LD] */
  float *dy;             /* [panel][tokens][16] */
  float *wide;           /* wide_panels as f32 */
  uint16_t *narrow;      /* and one panel rounded, column by column */
} step;

/* Panels as f32 that a member may need together: of 16-bit weights, and of f32 ones with more than one block
 * of tokens, so that a weight is rounded once for any number of blocks. */
static int64_t wide_panels(int64_t N, int64_t B, uint32_t dtype) {
  const int64_t panels = (N + CPU_PANEL - 1) / CPU_PANEL;
  if (dtype == BS_F32 && B <= CPU_GRAD_TOKENS) return 0;
  return panels < CHUNK ? panels : CHUNK;
}

static void *panel_at(const cpu_packed *w, int64_t panel, int64_t first) {
  return (uint8_t *)w->data + (size_t)cpu_packed_at(w, panel, first) * w->size;
}

static void multiply_panel(const cpu_grad_plan *plan, const step *s, int64_t p, float *c) {
  const cpu_kernels *kernels = plan->kernels;
  const int64_t groups = (s->count + kernels->tokens - 1) / kernels->tokens;
  cpu_tile t = {
      .w = s->dy + p * s->tokens * CPU_PANEL, .ldc = CPU_PANEL, .k = s->tokens, .panels = 1, .add = 1};
  for (int64_t group = 0; group < groups; group++) {
    int64_t begin, end;
    cpu_share(s->count, (uint32_t)group, (uint32_t)groups, &begin, &end);
    t.tokens = (int32_t)(end - begin);
    t.x = s->turned + begin * CPU_X_LD;
    t.c = c + begin * CPU_PANEL;
    kernels->tile[0](&t);
  }
}

/* The tokens of a step into every panel of the chunk. */
static void add_tokens(const update_call *call, const step *s) {
  const cpu_grad_plan *plan = call->plan;
  const cpu_packed *w = plan->w;
  const int begins = s->token == 0, ends = s->token + s->tokens == call->tokens;
  const int64_t n = s->panel * CPU_PANEL, outputs = s->panels * CPU_PANEL;
  cpu_view_panels(&call->dy, s->token, s->tokens, n, w->N - n < outputs ? w->N - n : outputs, s->lines,
                  s->dy);
  for (int64_t p = 0; p < s->panels; p++) {
    void *packed = panel_at(w, s->panel + p, s->first);
    const int narrow = w->dtype != BS_F32;
    if (!narrow && begins && ends) {
      multiply_panel(plan, s, p, packed);
      continue;
    }
    float *wide = s->wide + (begins && ends ? 0 : p * PANEL_FLOATS);
    if (begins && narrow) plan->kernels->widen[cpu_type_index(w->dtype)](wide, packed, s->count);
    if (begins && !narrow) memset(wide, 0, PANEL_FLOATS * sizeof *wide);
    multiply_panel(plan, s, p, wide);
    if (ends && narrow) cpu_panel_narrow(plan->kernels, w, s->first, wide, s->narrow, packed);
    if (ends && !narrow) plan->kernels->add(packed, wide, s->count * CPU_PANEL);
  }
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const update_call *call = arg;
  const cpu_grad_plan *plan = call->plan;
  const cpu_packed *w = plan->w;
  const uint32_t members = cpu_grad_members(plan, width);
  const int once = call->tokens <= CPU_GRAD_TOKENS; /* X is turned for all chunks of a K block */
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(w->panels, member, members, &begin, &end);
  step s = {.lines = plan->memory + plan->each * member};
  s.turned = s.lines + CPU_GRAD_LINES;
  s.dy = s.turned + cpu_turned_floats(w->K);
  s.wide = s.dy + cpu_panels_floats(w->N, plan->shape.B);
  s.narrow = (uint16_t *)(void *)(s.wide + wide_panels(w->N, plan->shape.B, w->dtype) * PANEL_FLOATS);
  for (s.first = 0; s.first < w->K; s.first += CPU_K_BLOCK) {
    s.count = w->K - s.first < CPU_K_BLOCK ? w->K - s.first : CPU_K_BLOCK;
    for (s.panel = begin; s.panel < end; s.panel += CHUNK) {
      s.panels = end - s.panel < CHUNK ? end - s.panel : CHUNK;
      for (s.token = 0; s.token < call->tokens; s.token += CPU_GRAD_TOKENS) {
        s.tokens = call->tokens - s.token < CPU_GRAD_TOKENS ? call->tokens - s.token : CPU_GRAD_TOKENS;
        if (!once || s.panel == begin)
          cpu_view_turn(&call->x, s.token, s.tokens, s.first, s.count, call->alpha, s.lines, s.turned);
        add_tokens(call, &s);
      }
    }
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  cpu_grad_plan *plan = opaque;
  update_call call = {plan, cpu_view_of(plan, args[0], 1), cpu_view_of(plan, args[1], 0), 0.0f,
                      args[1]->dims[0]};
  (void)nargs;
  (void)stream;
  memcpy(&call.alpha, args[2]->data, sizeof call.alpha);
  if (call.tokens <= 0 || plan->w->data == NULL) return BS_OK;
  return cpu_grad_go(plan, call.tokens, run_share, &call, err);
}

/* Floats of one member's scratch. */
static uint64_t scratch_floats(const bs_op_query *query, const cpu_grad *s) {
  const int64_t wide = wide_panels(s->N, s->B, query->weight_dtype) * PANEL_FLOATS;
  const int64_t rounded = query->weight_dtype != BS_F32 ? PANEL_FLOATS / 2 : 0; /* one panel, 16 bits each */
  return (uint64_t)(CPU_GRAD_LINES + cpu_turned_floats(s->K) + cpu_panels_floats(s->N, s->B) + wide +
                    rounded);
}

static const cpu_grad_kind kind = {.x = 0,
                                   .dy = 1,
                                   .weight = 1,
                                   .bits = 1, /* docs/numbers.md: no sum depends on a cut or a table */
                                   .size = sizeof(cpu_grad_plan),
                                   .algo = "transposed",
                                   .text = "own kernels, in place on the panels",
                                   .floats = scratch_floats};

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  return cpu_grad_supports(&kind, state, query, answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const int32_t rc = cpu_grad_prepare(&kind, state, exec, query, packed, out_plan, err);
  if (rc == BS_OK) cpu_packed_changes(packed);
  return rc;
}

const bs_src_loc cpu_matmul_update_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_update = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul_update",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels that add to the panels that matmul has packed",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cpu_grad_plan_free,
};
