/* SPDX-License-Identifier: MIT
 *
 * matmul_dw.c - dW = dY^T X. The outputs n of dW are the tokens of the tiles, its columns k their outputs,
 * and what is summed over are the tokens b: dY is turned, X packed in panels of 16 columns, and the tiles
 * write the rows of dW themselves; the last columns, where a panel is not full, go through scratch.
 *
 * Each member of the team owns a range of rows of dW. Sums run upwards in b, in blocks that depend on nothing
 * but b: the bits do not depend on the tile or the team. */
#include "gradient.h"

#define BATCH 16                   /* panels of X that are packed together */
#define FLAT (CPU_GRAD_TOKENS * 2) /* panels * tokens of X that are read together: 16 KiB */
#define EDGE_LD CPU_PANEL

typedef struct dw_call {
  const cpu_grad_plan *plan;
  cpu_view x, dy;
  const bs_tensor *dw;
  int64_t tokens;
} dw_call;

/* Rows n.. of dW and tokens of one step. */
typedef struct step {
  int64_t n, rows;       /* at most CPU_K_BLOCK */
  int64_t token, tokens; /* at most CPU_GRAD_TOKENS */
  float *lines;          /* CPU_GRAD_LINES, also a line of X */
  float *turned;         /* dY turned, [rows][CPU_X_LD] */
  float *panels;         /* of X, [panel][tokens][16] */
  float *edge;           /* [CPU_MAX_TOKENS][16] */
} step;

static float *dw_at(const dw_call *call, int64_t n, int64_t k) {
  return (float *)call->dw->data + n * call->dw->strides[0] + k;
}

/* A tile whose panel has only `count` columns. */
static void multiply_edge(const dw_call *call, const step *s, cpu_tile t, int64_t n, int64_t k,
                          int64_t count) {
  const int add = t.add;
  t.c = s->edge;
  t.ldc = EDGE_LD;
  t.add = 0;
  call->plan->kernels->tile[0](&t);
  for (int32_t i = 0; i < t.tokens; i++) {
    float *to = dw_at(call, n + i, k);
    for (int64_t c = 0; c < count; c++) {
      const float sum = s->edge[i * EDGE_LD + c];
      to[c] = add ? to[c] + sum : sum;
    }
  }
}

/* One group of rows with panels p .. end of the batch that begins at column k. */
static void multiply_rows(const dw_call *call, const step *s, int64_t row, int64_t rows, int64_t k, int64_t p,
                          int64_t end) {
  const cpu_kernels *kernels = call->plan->kernels;
  const int64_t K = call->plan->shape.K;
  const int64_t full = (K - k) / CPU_PANEL < end ? (K - k) / CPU_PANEL : end;
  cpu_tile t = {.x = s->turned + row * CPU_X_LD,
                .w_step = s->tokens * CPU_PANEL * (int64_t)sizeof(float),
                .ldc = call->dw->strides[0],
                .k = s->tokens,
                .tokens = (int32_t)rows,
                .add = s->token > 0};
  while (p < end) {
    const int64_t column = k + p * CPU_PANEL;
    t.w = s->panels + p * s->tokens * CPU_PANEL;
    t.panels = p < full ? kernels->panels[rows] : 1;
    while (p < full && t.panels > full - p) t.panels /= 2;
    if (p < full) {
      t.c = dw_at(call, s->n + row, column);
      kernels->tile[0](&t);
    } else {
      multiply_edge(call, s, t, s->n + row, column, K - column);
    }
    p += t.panels;
  }
}

static void multiply_batch(const dw_call *call, const step *s, int64_t k, int64_t panels) {
  const int64_t most = call->plan->kernels->tokens, groups = (s->rows + most - 1) / most;
  const int64_t together = FLAT / s->tokens;
  for (int64_t p = 0; p < panels; p += together)
    for (int64_t group = 0; group < groups; group++) {
      int64_t begin, end;
      cpu_share(s->rows, (uint32_t)group, (uint32_t)groups, &begin, &end);
      multiply_rows(call, s, begin, end - begin, k, p, panels - p < together ? panels : p + together);
    }
}

static void run_step(const dw_call *call, const step *s) {
  const int64_t K = call->plan->shape.K, wide = (int64_t)BATCH * CPU_PANEL;
  cpu_view_turn(&call->dy, s->token, s->tokens, s->n, s->rows, 1.0f, s->lines, s->turned);
  for (int64_t k = 0; k < K; k += wide) {
    const int64_t count = K - k < wide ? K - k : wide;
    cpu_view_panels(&call->x, s->token, s->tokens, k, count, s->lines, s->panels);
    multiply_batch(call, s, k, (count + CPU_PANEL - 1) / CPU_PANEL);
  }
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const dw_call *call = arg;
  const cpu_grad_plan *plan = call->plan;
  const uint32_t members = cpu_grad_members(plan, width);
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(plan->shape.N, member, members, &begin, &end);
  step s = {.lines = plan->memory + plan->each * member};
  s.turned = s.lines + CPU_GRAD_LINES;
  s.panels = s.turned + cpu_turned_floats(plan->shape.N);
  s.edge = s.panels + cpu_panels_floats(plan->shape.K, plan->shape.B);
  for (s.n = begin; s.n < end; s.n += CPU_K_BLOCK) {
    s.rows = end - s.n < CPU_K_BLOCK ? end - s.n : CPU_K_BLOCK;
    for (s.token = 0; s.token < call->tokens; s.token += CPU_GRAD_TOKENS) {
      s.tokens = call->tokens - s.token < CPU_GRAD_TOKENS ? call->tokens - s.token : CPU_GRAD_TOKENS;
      run_step(call, &s);
    }
    for (int64_t r = 0; call->tokens == 0 && r < s.rows; r++)
      memset(dw_at(call, s.n + r, 0), 0, (size_t)plan->shape.K * sizeof(float));
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  cpu_grad_plan *plan = opaque;
  dw_call call = {plan, cpu_view_of(plan, args[0], 1), cpu_view_of(plan, args[1], 0), args[2],
                  args[1]->dims[0]};
  (void)nargs;
  (void)stream;
  if (plan->shape.N == 0 || plan->shape.K == 0) return BS_OK;
  return cpu_grad_go(plan, call.tokens, run_share, &call, err);
}

/* Floats of one member's scratch. */
static uint64_t scratch_floats(const bs_op_query *query, const cpu_grad *s) {
  (void)query;
  return (uint64_t)(CPU_GRAD_LINES + cpu_turned_floats(s->N) + cpu_panels_floats(s->K, s->B) +
                    CPU_MAX_TOKENS * EDGE_LD);
}

static const cpu_grad_kind kind = {.x = 0,
                                   .dy = 1,
                                   .bits = 1, /* docs/numbers.md: no sum depends on a cut or a table */
                                   .size = sizeof(cpu_grad_plan),
                                   .algo = "transposed",
                                   .text = "own kernels on the turned dY",
                                   .floats = scratch_floats};

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  return cpu_grad_supports(&kind, state, query, answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  return cpu_grad_prepare(&kind, state, exec, query, packed, out_plan, err);
}

const bs_src_loc cpu_matmul_dw_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_dw = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul_dw",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels: dY turned, X in panels, dW written by the tiles",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cpu_grad_plan_free,
};
