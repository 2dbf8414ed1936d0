/* SPDX-License-Identifier: MIT
 *
 * matmul_dx.c - dX = dY W over the packed weight of matmul. The columns k of dX are the outputs of the tiles
 * and the outputs n of the weight are what is summed over: for 256 outputs and 16 columns the weight's
 * squares of 16 x 16 are turned into a scratch panel, once for all tokens of a chunk, which is then
 * multiplied as matmul multiplies a panel.
 *
 * Each member of the team owns a range of columns. Sums run upwards in n, in the same order for every token,
 * tile and team. */
#include "gradient.h"

#define MAX_TOKENS 96       /* tokens of a chunk */
#define C_FLOATS (40 << 10) /* of a chunk's C: 160 KiB */
#define MIN_PANELS 32       /* of a chunk, however many tokens */
#define TURNED 4            /* scratch panels: as many as a tile takes together */
#define PANEL_FLOATS (CPU_K_BLOCK * CPU_PANEL)
#define SQUARE (CPU_PANEL * CPU_PANEL)

typedef struct dx_plan {
  cpu_grad_plan g;
  int64_t max_tokens, max_panels; /* of a chunk */
  int64_t c_ld;
  int64_t x_floats; /* of a member: a block of dY, or a row of dX before it is scattered */
} dx_plan;

typedef struct dx_call {
  const dx_plan *plan;
  cpu_view dy;
  const bs_tensor *dx;
  int64_t tokens;
} dx_call;

typedef struct chunk {
  int64_t token, tokens;
  int64_t panel, panels; /* of 16 columns of dX */
  float *x;              /* dY, [tokens][CPU_X_LD] */
  float *c;              /* [tokens][c_ld] */
  float *turned;         /* TURNED panels [256 outputs][16 columns] */
  float *square;         /* 16 columns of a weight panel, widened */
} chunk;

/* Columns k .. k+15 of weight panel p as f32 [16][16], where they lie or in s->square. */
static const float *square_of(const cpu_grad_plan *g, int64_t p, int64_t k, float *square) {
  const cpu_packed *w = g->w;
  const int64_t first = k - k % CPU_K_BLOCK, left = w->K - k;
  const int64_t at = cpu_packed_at(w, p, first) + (k - first) * CPU_PANEL;
  const void *from = (const uint8_t *)w->data + (size_t)at * w->size;
  const int64_t count = left < CPU_PANEL ? left : CPU_PANEL;
  if (w->dtype == BS_F32 && count == CPU_PANEL) return from;
  if (count < CPU_PANEL) memset(square, 0, SQUARE * sizeof *square);
  if (w->dtype == BS_F32)
    memcpy(square, from, (size_t)(count * CPU_PANEL) * sizeof *square);
  else
    g->kernels->widen[cpu_type_index(w->dtype)](square, from, count);
  return square;
}

/* Outputs n .. n+count of 16 columns from k on: to[output][column]. */
static void turn_panel(const cpu_grad_plan *g, int64_t n, int64_t count, int64_t k, float *square,
                       float *to) {
  for (int64_t i = 0; i < count; i += CPU_PANEL)
    g->kernels->transpose(to + i * CPU_PANEL, CPU_PANEL, square_of(g, (n + i) / CPU_PANEL, k, square),
                          CPU_PANEL);
}

/* Outputs n .. n+count, every panel of columns of the chunk with every group of its tokens. */
static void multiply_block(const dx_plan *plan, const chunk *c, int64_t n, int64_t count) {
  const cpu_kernels *kernels = plan->g.kernels;
  const int64_t groups = (c->tokens + kernels->tokens - 1) / kernels->tokens;
  const int64_t most = (c->tokens + groups - 1) / groups;
  for (int64_t p = 0; p < c->panels;) {
    int32_t panels = kernels->panels[most] < TURNED ? kernels->panels[most] : TURNED;
    while (panels > c->panels - p) panels /= 2;
    for (int32_t i = 0; i < panels; i++)
      turn_panel(&plan->g, n, count, (c->panel + p + i) * CPU_PANEL, c->square, c->turned + i * PANEL_FLOATS);
    cpu_tile t = {.w = c->turned,
                  .w_step = PANEL_FLOATS * sizeof(float),
                  .ldc = plan->c_ld,
                  .k = count,
                  .panels = panels,
                  .add = n > 0};
    for (int64_t group = 0; group < groups; group++) {
      int64_t begin, end;
      cpu_share(c->tokens, (uint32_t)group, (uint32_t)groups, &begin, &end);
      t.tokens = (int32_t)(end - begin);
      t.x = c->x + begin * CPU_X_LD;
      t.c = c->c + begin * plan->c_ld + p * CPU_PANEL;
      kernels->tile[0](&t);
    }
    p += panels;
  }
}

/* C to dX, rounded; of a whole dX only the partition's columns. */
static void finish(const dx_call *call, const chunk *c) {
  const cpu_grad_plan *g = &call->plan->g;
  const uint32_t type = g->shape.x_type;
  const int64_t k = c->panel * CPU_PANEL, left = g->shape.K - k;
  const int64_t count = left < c->panels * CPU_PANEL ? left : c->panels * CPU_PANEL;
  for (int64_t t = 0; t < c->tokens; t++) {
    float *from = c->c + t * call->plan->c_ld;
    uint8_t *row =
        (uint8_t *)call->dx->data + (size_t)((c->token + t) * call->dx->strides[0]) * BS_DTYPE_BYTES(type);
    if (!g->shape.full) {
      g->kernels->store[cpu_type_index(type)](row + (size_t)k * BS_DTYPE_BYTES(type), from, count);
      continue;
    }
    if (type != BS_F32) g->kernels->store[cpu_type_index(type)](c->x, from, count); /* dY is used up */
    cpu_columns_scatter(&g->columns, k, count, row, type == BS_F32 ? from : c->x);
  }
}

static void run_chunk(const dx_call *call, const chunk *c) {
  const dx_plan *plan = call->plan;
  const int64_t N = plan->g.shape.N;
  for (int64_t n = 0; n < N; n += CPU_K_BLOCK) {
    const int64_t count = N - n < CPU_K_BLOCK ? N - n : CPU_K_BLOCK;
    for (int64_t t = 0; t < c->tokens; t++)
      cpu_view_load(&call->dy, c->token + t, n, count, c->x + t * CPU_X_LD);
    multiply_block(plan, c, n, count);
  }
  if (N == 0)
    for (int64_t t = 0; t < c->tokens; t++)
      memset(c->c + t * plan->c_ld, 0, (size_t)(c->panels * CPU_PANEL) * sizeof(float));
  finish(call, c);
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const dx_call *call = arg;
  const dx_plan *plan = call->plan;
  const uint32_t members = cpu_grad_members(&plan->g, width);
  int64_t begin, end;
  if (member >= members) return;
  cpu_share((plan->g.shape.K + CPU_PANEL - 1) / CPU_PANEL, member, members, &begin, &end);
  chunk part = {.x = plan->g.memory + plan->g.each * member};
  part.c = part.x + plan->x_floats;
  part.turned = part.c + plan->max_tokens * plan->c_ld;
  part.square = part.turned + TURNED * PANEL_FLOATS;
  const int64_t chunks = (call->tokens + plan->max_tokens - 1) / plan->max_tokens;
  for (int64_t i = 0; i < chunks; i++) {
    int64_t last;
    cpu_share(call->tokens, (uint32_t)i, (uint32_t)chunks, &part.token, &last);
    part.tokens = last - part.token;
    for (part.panel = begin; part.panel < end; part.panel += plan->max_panels) {
      part.panels = end - part.panel < plan->max_panels ? end - part.panel : plan->max_panels;
      run_chunk(call, &part);
    }
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  dx_plan *plan = opaque;
  dx_call call = {plan, cpu_view_of(&plan->g, args[0], 0), args[1], args[0]->dims[0]};
  (void)nargs;
  (void)stream;
  if (call.tokens <= 0 || plan->g.shape.K == 0) return BS_OK;
  return cpu_grad_go(&plan->g, call.tokens, run_share, &call, err);
}

/* The partition of the work, and the floats of a member's scratch. */
typedef struct cut {
  int64_t tokens, panels, c_ld, x;
  uint64_t floats;
} cut;

static cut cut_of(const cpu_grad *shape) {
  cut c;
  const int64_t all = (shape->K + CPU_PANEL - 1) / CPU_PANEL;
  c.tokens = shape->B < 1 ? 1 : shape->B < MAX_TOKENS ? shape->B : MAX_TOKENS;
  c.panels = C_FLOATS / (c.tokens * CPU_PANEL);
  if (c.panels < MIN_PANELS) c.panels = MIN_PANELS;
  if (c.panels > all) c.panels = all > 0 ? all : 1;
  c.c_ld = c.panels * CPU_PANEL + 16; /* not a power of two */
  c.x = c.tokens * CPU_X_LD > c.c_ld ? c.tokens * CPU_X_LD : c.c_ld;
  c.floats = (uint64_t)(c.x + c.tokens * c.c_ld) + TURNED * PANEL_FLOATS + SQUARE;
  return c;
}

static uint64_t scratch_floats(const bs_op_query *query, const cpu_grad *shape) {
  (void)query;
  return cut_of(shape).floats;
}

static const cpu_grad_kind kind = {.x = 1,
                                   .dy = 0,
                                   .weight = 1,
                                   .bits = 1, /* docs/numbers.md: no sum depends on a cut or a table */
                                   .size = sizeof(dx_plan),
                                   .algo = "transposed",
                                   .text = "own kernels, the packed weight turned on the way",
                                   .floats = scratch_floats};

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  return cpu_grad_supports(&kind, state, query, answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const int32_t rc = cpu_grad_prepare(&kind, state, exec, query, packed, out_plan, err);
  if (rc != BS_OK) return rc;
  dx_plan *plan = *out_plan;
  const cut c = cut_of(&plan->g.shape);
  plan->max_tokens = c.tokens;
  plan->max_panels = c.panels;
  plan->c_ld = c.c_ld;
  plan->x_floats = c.x;
  return BS_OK;
}

const bs_src_loc cpu_matmul_dx_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_dx = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul_dx",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels over the panels that matmul has packed",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cpu_grad_plan_free,
};
