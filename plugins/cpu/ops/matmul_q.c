/* SPDX-License-Identifier: MIT
 *
 * matmul_q.c - Y = act(X W^T + bias) + residual over a quantised W, with the bits of docs/ops.md. X of a
 * chunk of tokens is laid out once (matmul_q_lay.c); then each member of the team multiplies the panels that
 * it owns. Of many tokens and few panels it owns a part of the tokens, too. */
#include "matmul_q.h"

#include <stdlib.h>

#include "epilogue.h"

enum { X, BIAS, RESIDUAL, Y };

#define ALONE (1 << 17)     /* multiplications below which the team is not woken */
#define FEW 8               /* tokens whose X the caller lays out */
#define X_BYTES (1 << 20)   /* of a chunk's X, which stays in L2 */
#define LEAST_TOKENS 48     /* of a chunk, if there are as many */
#define MOST_TOKENS 256     /* of a chunk */
#define SPLIT_TOKENS 64     /* of a chunk, above which tokens are divided too */
#define PART_TOKENS 24      /* of such a part */
#define PANELS 4            /* that a tile takes together */
#define MOST_WIDE 256       /* panels of C */
#define C_FLOATS (12 << 10) /* of C, if more than PANELS fit */

/* ---- sizes -------------------------------------------------------------------------------------- */

static int64_t up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

static int64_t count(int64_t cols, int64_t size) {
  return size > 0 ? cols / size + (cols % size != 0) : 0;
}

static int64_t panels_of(const q_plan *plan) {
  return count(plan->shape.N, CPU_PANEL);
}

/* The columns of links and pieces (kernels.h). */
static void plan_links(q_plan *plan, const bs_op_query *q) {
  enum { LEAST = 32 };
  const bs_quant *form = q->quant;
  const int64_t cols = form->cols, least = form->group < LEAST ? LEAST : form->group;
  const int steps = (form->flags & BS_QUANT_STEPS) != 0;
  plan->x_group = q->attrs[1] != 0 ? q->attrs[1] : steps ? form->span : least;
  if (plan->x_group > cols) plan->x_group = cols;
  plan->link = plan->x_group < form->span ? plan->x_group : form->span;
  plan->whole = !steps && form->group >= cols && (plan->link >= cols || plan->kind == BYTES);
  if (plan->whole) plan->link = cols;
  plan->piece = steps ? form->group : plan->link;
  plan->links = count(cols, plan->link);
  plan->pieces = count(cols, plan->piece);
}

static uint64_t room_of(uint64_t *end, int64_t tokens, int64_t row, uint64_t size) {
  const uint64_t here = *end;
  *end += ((uint64_t)(tokens * row) * size + 63) / 64 * 64;
  return here;
}

static void plan_room(q_plan *plan, int64_t tokens) {
  const cpu_matmul *s = &plan->shape;
  const int floats = plan->kind == AS_IT_IS, wide = floats && tokens > plan->fns->few,
            all = (int)panels_of(plan);
  q_room *r = &plan->room;
  plan->tokens = tokens;
  plan->x_ld = wide ? count(s->K, CPU_QUANT_BLOCK) * CPU_X_LD : up(s->K, 64) + 64; /* no power of two */
  plan->wide = C_FLOATS / tokens / CPU_PANEL / PANELS * PANELS;
  if (plan->wide > MOST_WIDE) plan->wide = MOST_WIDE;
  if (plan->wide > up(all, PANELS)) plan->wide = up(all, PANELS);
  if (plan->wide < PANELS) plan->wide = PANELS;
  plan->c_ld = plan->wide * CPU_PANEL + 16;
  memset(r, 0, sizeof *r);
  r->x = room_of(&r->all, floats && !wide && s->x_type == BS_F32 ? 0 : tokens, plan->x_ld,
                 floats ? sizeof(float) : 1);
  r->sums = room_of(&r->all, tokens, plan->pieces, sizeof(float));
  r->scales = room_of(&r->all, floats ? 0 : tokens, plan->links, sizeof(float));
  (void)room_of(&r->member, tokens + 2, plan->c_ld, sizeof(float));
  r->wide = room_of(&r->member, wide, CPU_QUANT_ROOM, sizeof(float));
}

/* ---- products ----------------------------------------------------------------------------------- */

/* Sums of whole numbers in C, of one panel: without the zeros; of X in bytes with its scale. */
static void finish_panel(const q_plan *plan, const uint8_t *panel, int32_t x_sum, float x_scale, void *c) {
  const cpu_quant_form *form = &plan->w->form;
  uint32_t sums[CPU_PANEL], of[CPU_PANEL];
  if (plan->kind != BYTES) {
    plan->fns->finish(form, panel, c, x_sum, x_scale, c);
    return;
  }
  memcpy(sums, c, sizeof sums);
  memcpy(of, panel + form->at_sums, sizeof of);
  const uint32_t less = (uint32_t)form->zero * (uint32_t)x_sum;
  for (int j = 0; !form->zeros && j < CPU_PANEL; j++) sums[j] -= less;
  for (int j = 0; form->zeros && j < CPU_PANEL; j++)
    sums[j] -= (uint32_t)panel[form->at_zeros + j] * (uint32_t)x_sum;
  for (int j = 0; plan->shape.x_type == BS_U8 && j < CPU_PANEL; j++) sums[j] += of[j] << 7;
  memcpy(c, sums, sizeof sums);
}

static void multiply_whole(const q_plan *plan, const cpu_quant_tile *d) {
  const cpu_quant_form *form = d->form;
  const cpu_quant_whole whole = {.w = d->w + form->at_codes,
                                 .w_step = form->panel,
                                 .x = d->x,
                                 .x_ld = d->x_ld,
                                 .c = (int32_t *)(void *)d->c,
                                 .ldc = d->ldc,
                                 .columns = up(form->cols, CPU_QUANT_UNIT),
                                 .tokens = d->tokens,
                                 .panels = d->panels,
                                 .bits = form->bits,
                                 .ahead = d->ahead};
  const cpu_amx *amx = plan->state->kernels.amx;
  if (amx != NULL && form->bits == 8 && d->tokens >= CPU_AMX_WHOLE)
    amx->whole(&whole);
  else
    plan->fns->whole(&whole);
  for (int64_t t = 0; t < d->tokens; t++)
    for (int64_t p = 0; p < d->panels; p++)
      finish_panel(plan, d->w + p * form->panel, d->sums[t], d->scales[t], d->c + t * d->ldc + p * CPU_PANEL);
}

/* Panels p .. p + panels of the chunk's tokens t .. t + tokens. */
static void multiply(const q_call *c, int64_t t, int64_t tokens, int64_t p, int64_t panels, float *room) {
  const q_plan *plan = c->plan;
  const cpu_matmul *s = &plan->shape;
  const cpu_epilogue e = {&plan->state->kernels, s, c->bias, c->residual, c->y};
  const int64_t n0 = p * CPU_PANEL, n = s->N - n0 < panels * CPU_PANEL ? s->N - n0 : panels * CPU_PANEL;
  const int given = plan->kind == AS_IT_IS && s->x_type == BS_F32 && !c->wide;
  const float *sums = (const float *)(const void *)(c->scratch + plan->room.sums) + t * plan->pieces;
  const float *laid = (const float *)(const void *)(c->scratch + plan->room.x) +
                      t * (c->wide ? (int64_t)CPU_X_LD : plan->x_ld);
  const cpu_quant_tile d = {
      .form = &plan->w->form,
      .w = plan->w->data + p * plan->w->form.panel,
      .x = (const int8_t *)(const void *)(c->scratch + plan->room.x) + t * plan->x_ld,
      .x_ld = plan->x_ld,
      .sums = (const int32_t *)(const void *)sums,
      .sums_ld = plan->pieces,
      .scales = (const float *)(const void *)(c->scratch + plan->room.scales) + t * plan->links,
      .scales_ld = plan->links,
      .floats = given ? (const float *)c->x->data + (c->token + t) * c->x->strides[0] : laid,
      .floats_ld = given ? c->x->strides[0] : plan->x_ld,
      .floats_block = c->tokens * CPU_X_LD,
      .room = room + plan->room.wide / sizeof *room,
      .float_sums = sums,
      .float_sums_ld = plan->pieces,
      .c = room,
      .ldc = plan->c_ld,
      .piece = plan->piece,
      .link = plan->link,
      .tokens = (int32_t)tokens,
      .panels = (int32_t)panels,
      .ahead = !plan->state->isa.avx512_halves};
  for (int64_t i = 0; s->K == 0 && i < tokens; i++)
    memset(room + i * plan->c_ld, 0, (size_t)n * sizeof *room);
  if (s->K > 0 && plan->kind == AS_IT_IS)
    (c->wide ? plan->fns->wide : plan->fns->floats)(&d);
  else if (s->K > 0 && plan->whole)
    multiply_whole(plan, &d);
  else if (s->K > 0)
    plan->fns->bytes(&d);
  cpu_finish(&e, c->token + t, tokens, n0, n, room, plan->c_ld, room + tokens * plan->c_ld);
}

/* Items: units of panels, each by parts of the tokens. */
static void run_share(void *arg, uint32_t member, uint32_t width) {
  const q_call *c = arg;
  const q_plan *plan = c->plan;
  const uint32_t members = width < plan->width ? width : plan->width; /* as many as have scratch */
  const int64_t all = panels_of(plan), units = count(all, c->unit);
  int64_t begin, end;
  if (member >= members) return;
  float *room = (float *)(void *)(c->scratch + plan->room.all + plan->room.member * member);
  cpu_share(units * c->parts, member, members, &begin, &end);
  for (int64_t i = begin; i < end;) {
    const int64_t first = i / c->parts, part = i % c->parts;
    int64_t together = c->parts > 1 ? 1 : end - i, t0, t1;
    if (together > plan->wide / c->unit) together = plan->wide / c->unit;
    const int64_t p = first * c->unit, left = all - p, panels = together * c->unit;
    cpu_share(c->tokens, (uint32_t)part, (uint32_t)c->parts, &t0, &t1);
    multiply(c, t0, t1 - t0, p, left < panels ? left : panels, room);
    i += together;
  }
}

/* ---- plan and run ------------------------------------------------------------------------------- */

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const q_plan *plan = opaque;
  const cpu_matmul *s = &plan->shape;
  q_call c = {.plan = plan, .x = args[X], .bias = args[BIAS], .residual = args[RESIDUAL], .y = args[Y]};
  const int64_t all = args[Y]->dims[0], panels = panels_of(plan);
  int32_t rc = BS_OK;
  (void)nargs;
  (void)stream;
  if (all <= 0 || s->N == 0) return BS_OK;
  c.scratch = plan->exec->scratch(plan->exec->ctx);
  for (; rc == BS_OK && c.token < all; c.token += c.tokens) {
    c.tokens = all - c.token < plan->tokens ? all - c.token : plan->tokens;
    const int alone = (double)c.tokens * (double)s->N * (double)s->K < ALONE;
    const int64_t width = plan->width;
    c.wide = plan->kind == AS_IT_IS && c.tokens > plan->fns->few;
    c.unit = panels >= PANELS * width ? PANELS : 1;
    c.parts = c.tokens > SPLIT_TOKENS && panels < 4 * PANELS * width ? count(c.tokens, PART_TOKENS) : 1;
    rc = cpu_team(plan->exec, alone || c.tokens <= FEW, cpu_q_lay, &c, err);
    if (rc == BS_OK) rc = cpu_team(plan->exec, alone, run_share, &c, err);
  }
  return rc;
}

static int read_args(const bs_op_query *q, q_plan *plan, bs_op_answer *answer) {
  const bs_tensor_desc *x = q->args[X], *bias = q->args[BIAS], *residual = q->args[RESIDUAL], *y = q->args[Y];
  cpu_matmul *s = &plan->shape;
  if (!cpu_args_dense(q, 4, answer)) return 0;
  s->x_type = x->dtype;
  s->y_type = y->dtype;
  plan->kind = x->dtype == BS_I8 || x->dtype == BS_U8 ? BYTES : q->attrs[0] != 0 ? QUANTISED : AS_IT_IS;
  if (plan->kind == BYTES) return 1;
  if (!cpu_read_matrix(x, "X", &s->x_type, &s->x_ld, answer)) return 0;
  if (!cpu_read_matrix(y, "Y", &s->y_type, &s->y_ld, answer)) return 0;
  if (residual != NULL && !cpu_read_matrix(residual, "residual", &s->r_type, &s->r_ld, answer)) return 0;
  if (bias != NULL && !cpu_is_matmul_type(bias->dtype))
    return cpu_answer_no(answer, BS_REASON_DTYPE, "bias of dtype 0x%04x: f32, bf16 and f16 only",
                         bias->dtype);
  if (bias != NULL) s->bias_type = bias->dtype;
  if (q->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "accumulates in f32; the ref backend has f64");
  return 1;
}

static int judge(const cpu_state *state, const bs_op_query *q, q_plan *plan, bs_op_answer *answer) {
  if (q->quant == NULL) return cpu_answer_no(answer, BS_REASON_RANK, "needs a quantised weight");
  if (q->activation > BS_ACT_GELU_TANH)
    return cpu_answer_no(answer, BS_REASON_DISABLED, "unknown activation %u", q->activation);
  plan->state = state;
  plan->fns = state->kernels.quant;
  if (!read_args(q, plan, answer)) return 0;
  cpu_matmul *s = &plan->shape;
  s->B = q->args[Y]->dims[0];
  s->N = q->quant->rows;
  s->K = q->quant->cols;
  s->activation = q->activation;
  plan_links(plan, q);
  const int64_t bytes = s->K * (plan->kind == AS_IT_IS ? 4 : 1), fit = X_BYTES / (bytes > 0 ? bytes : 1);
  int64_t tokens = fit < LEAST_TOKENS ? LEAST_TOKENS : fit > MOST_TOKENS ? MOST_TOKENS : fit;
  if (tokens > s->B) tokens = s->B > 0 ? s->B : 1;
  plan_room(plan, tokens);
  while (q->workspace_limit != 0 && plan->room.all + plan->room.member > q->workspace_limit && tokens > 1)
    plan_room(plan, tokens /= 2);
  return cpu_workspace_fits(q, plan->room.all + plan->room.member, answer);
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  q_plan plan;
  char algo[48];
  memset(&plan, 0, sizeof plan);
  if (!judge(state, query, &plan, answer)) return BS_OK;
  snprintf(algo, sizeof algo, "panels-%s", plan.fns->name);
  cpu_answer_yes(answer, 700, BS_TOL_EXACT, algo,
                 plan.kind == AS_IT_IS ? "own kernels, X as it is" : "own kernels, X in bytes");
  return BS_OK;
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  q_plan like;
  bs_op_answer answer;
  memset(&like, 0, sizeof like);
  memset(&answer, 0, sizeof answer);
  if (!judge(state, query, &like, &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  int32_t rc = cpu_packed_q_check(packed, query, err);
  if (rc != BS_OK) return rc;
  const uint32_t width = exec->width > 0 ? exec->width : 1;
  const uint64_t limit = query->workspace_limit, spare = limit == 0 ? 0 : limit - like.room.all;
  like.exec = exec;
  like.w = packed;
  const uint64_t room = like.room.member > 0 ? like.room.member : 1, most = spare / room;
  like.width = limit == 0 || most >= width ? width : (uint32_t)most;
  rc = cpu_reserve(exec, like.room.all + like.room.member * like.width, err);
  if (rc != BS_OK) return rc;
  q_plan *plan = malloc(sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  *plan = like;
  *out_plan = plan;
  return BS_OK;
}

const bs_src_loc cpu_matmul_q_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_q = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul_q",
    .backend = "cpu",
    .name = "panels",
    .summary = "own kernels on panels of codes of 4, 6 or 8 bits, with the bits of ref",
    .supports = supports,
    .pack = cpu_packed_q_make,
    .packed_read = cpu_packed_q_read,
    .packed_free = cpu_packed_q_free,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
};
