/* SPDX-License-Identifier: MIT
 *
 * matmul_plan.c - see matmul_plan.h. */
#include "matmul_plan.h"

#include <stdlib.h>

#include "epilogue.h"

#define MIN_PANELS 32         /* of a chunk, however many tokens */
#define KEEP_FLOATS (1 << 20) /* X of a chunk of tokens that is packed once for all its panels: 4 MiB */
#define KEEP_SHARE 32         /* and it is at most this part of the weight */
#define ALONE (1 << 16)       /* multiplications below which the team is not woken */

const void *cpu_dense_row(const cpu_dense_call *call, const cpu_dense_chunk *c, int64_t t, int64_t first,
                          int64_t count, void *room) {
  const cpu_dense_plan *plan = call->plan;
  const uint32_t dtype = plan->shape.x_type;
  const void *row = cpu_dense_at(call->x->data, (c->token + t) * call->x->strides[0], dtype);
  if (plan->partition == NULL) return cpu_dense_at(row, first, dtype);
  cpu_columns_gather(&plan->columns, first, count, room, row);
  return room;
}

const void *cpu_dense_next(const cpu_packed *w, const cpu_dense_chunk *c, int64_t p, int64_t first) {
  if (p >= c->panels) {
    first += CPU_K_BLOCK;
    p = 0;
    if (first >= w->K) {
      first = 0;
      p = c->panel + c->panels < w->panels ? c->panels : 0;
    }
  }
  return cpu_dense_at(w->data, cpu_packed_at(w, c->panel + p, first), w->dtype);
}

/* C to Y. */
static void finish(const cpu_dense_call *call, const cpu_dense_chunk *c) {
  const cpu_dense_plan *plan = call->plan;
  const cpu_epilogue e = {plan->kernels, &plan->shape, call->bias, call->residual, call->y};
  const int64_t n0 = c->panel * CPU_PANEL, left = plan->shape.N - n0;
  const int64_t n = left < c->panels * CPU_PANEL ? left : c->panels * CPU_PANEL;
  cpu_finish(&e, c->token, c->tokens, n0, n, c->s->c, plan->s.c_ld, c->s->row);
}

static void run_chunk(const cpu_dense_call *call, const cpu_dense_chunk *c) {
  const cpu_dense_plan *plan = call->plan;
  const int64_t K = plan->shape.K;
  for (int64_t first = 0; first < K; first += CPU_K_BLOCK) {
    const int64_t count = K - first < CPU_K_BLOCK ? K - first : CPU_K_BLOCK;
    float *x = c->s->x + (plan->s.keep ? first / CPU_K_BLOCK * plan->s.rows * plan->kind->x_row : 0);
    if (!c->packed) plan->kind->pack(call, c, first, count, x);
    plan->kind->multiply(plan, c, first, count, x);
  }
  if (K == 0)
    for (int64_t t = 0; t < c->tokens; t++)
      memset(c->s->c + t * plan->s.c_ld, 0, (size_t)(c->panels * CPU_PANEL) * sizeof(float));
  finish(call, c);
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const cpu_dense_call *call = arg;
  const cpu_dense_plan *plan = call->plan;
  const uint32_t members = width < plan->width ? width : plan->width; /* as many as have scratch */
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(plan->w->panels, member, members, &begin, &end);
  cpu_dense_scratch s = {.x = plan->memory + plan->s.each * member};
  s.c = s.x + plan->s.x;
  s.panel = s.c + plan->s.c;
  s.row = s.panel + plan->s.panel;
  s.own = s.row + 2 * plan->s.c_ld;
  const int64_t chunks = (call->tokens + plan->s.tokens - 1) / plan->s.tokens;
  for (int64_t i = 0; i < chunks; i++) {
    int64_t first, last;
    cpu_share(call->tokens, (uint32_t)i, (uint32_t)chunks, &first, &last);
    const int64_t parts = (end - begin + plan->s.panels - 1) / plan->s.panels;
    for (int64_t part = 0; part < parts; part++) {
      int64_t p, stop;
      cpu_share(end - begin, (uint32_t)part, (uint32_t)parts, &p, &stop);
      const cpu_dense_chunk c = {first, last - first, begin + p, stop - p, &s, plan->s.keep && part > 0};
      run_chunk(call, &c);
    }
  }
  if (plan->kind->done != NULL) plan->kind->done(plan, &s);
}

int32_t cpu_dense_run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                      bs_error *err) {
  cpu_dense_plan *plan = opaque;
  cpu_dense_call call = {plan, args[0], args[1], args[2], args[3], args[3]->dims[0]};
  (void)nargs;
  (void)stream;
  if (call.tokens <= 0 || plan->shape.N == 0) return BS_OK;
  const int32_t rc = cpu_batch_fits(call.tokens, plan->shape.B, err);
  if (rc != BS_OK) return rc;
  plan->memory = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(
      plan->exec,
      plan->width == 1 || (double)call.tokens * (double)plan->shape.N * (double)plan->shape.K < ALONE,
      run_share, &call, err);
}

void cpu_dense_free(void *opaque) {
  cpu_dense_plan *plan = opaque;
  if (plan == NULL) return;
  free(plan->partition);
  free(plan);
}

static cpu_dense_sizes choose_sizes(const cpu_dense_kind *kind, const cpu_matmul *shape,
                                    const bs_op_query *query) {
  cpu_dense_sizes s;
  const int64_t all = (shape->N + CPU_PANEL - 1) / CPU_PANEL;
  s.told_tokens = bs_knob_int(query->knobs, "tokens", kind->tokens(shape));
  s.tokens = shape->B < s.told_tokens ? shape->B : s.told_tokens;
  if (s.tokens < 1) s.tokens = 1;
  s.rows = kind->rows != NULL ? kind->rows(s.tokens) : s.tokens;
  s.panels = kind->c_floats / (s.tokens * CPU_PANEL);
  if (s.panels < MIN_PANELS) s.panels = MIN_PANELS;
  if (kind->most_panels > 0 && s.panels > kind->most_panels) s.panels = kind->most_panels;
  s.told_panels = s.panels = bs_knob_int(query->knobs, "panels", s.panels);
  if (s.panels > all) s.panels = all;
  s.c_ld = s.panels * CPU_PANEL + 16; /* not a power of two */
  const int64_t blocks = (shape->K + CPU_K_BLOCK - 1) / CPU_K_BLOCK;
  const int64_t kept = s.rows * blocks * kind->x_row;
  const uint32_t size = BS_DTYPE_BYTES(shape->weight_type);
  s.keep = s.panels < all && blocks > 1 && kept <= KEEP_FLOATS &&
           (double)kept * sizeof(float) * KEEP_SHARE <= (double)shape->N * (double)shape->K * size;
  s.keep = cpu_knob_switch(query, "keep", s.keep);
  s.x = (uint64_t)(s.keep ? kept : s.rows * kind->x_row);
  s.c = (uint64_t)(s.rows * s.c_ld);
  s.panel = kind->widens && shape->weight_type != BS_F32 ? (uint64_t)CPU_K_BLOCK * CPU_PANEL : 0;
  s.each = (s.x + s.c + s.panel + 2 * (uint64_t)s.c_ld + (uint64_t)kind->own + 15) / 16 * 16;
  return s;
}

int cpu_dense_judge(const cpu_dense_kind *kind, const cpu_state *state, const bs_op_query *query,
                    cpu_matmul *out_shape, cpu_dense_sizes *out_sizes, bs_op_answer *answer) {
  if (!cpu_matmul_allowed(state, kind->name, answer) || !cpu_matmul_read(query, out_shape, answer) ||
      !kind->fits(state, query, out_shape, answer))
    return 0;
  *out_sizes = choose_sizes(kind, out_shape, query);
  return cpu_workspace_fits(query, out_sizes->each * sizeof(float), answer);
}

int32_t cpu_dense_prepare(const cpu_dense_kind *kind, const cpu_state *state, const bs_exec *exec,
                          const bs_op_query *query, void *packed, cpu_dense_plan **out_plan, bs_error *err) {
  bs_op_answer answer;
  cpu_dense_sizes s = {0};
  cpu_matmul shape;
  memset(&answer, 0, sizeof answer);
  if (!cpu_dense_judge(kind, state, query, &shape, &s, &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  int32_t rc = cpu_packed_check(packed, shape.N, shape.K, shape.weight_type, err);
  if (rc != BS_OK) return rc;
  cpu_dense_plan *plan = calloc(1, kind->size);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->kind = kind;
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->w = packed;
  plan->shape = shape;
  plan->s = s;
  plan->width = cpu_workspace_members(query, s.each * sizeof(float), exec->width > 0 ? exec->width : 1);
  if (shape.x_full) {
    rc = cpu_columns_copy(query->partition, &plan->partition, err);
    if (rc == BS_OK)
      cpu_columns_make(plan->kernels, plan->partition, BS_DTYPE_BYTES(shape.x_type), &plan->columns);
  }
  if (rc == BS_OK) rc = cpu_knob_members(query, plan->width, &plan->width, err);
  if (rc == BS_OK) rc = cpu_reserve(exec, s.each * plan->width * sizeof(float), err);
  if (rc != BS_OK) {
    cpu_dense_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}
