/* SPDX-License-Identifier: MIT
 *
 * matmul.c - the matmul "packed": Y = act(X W^T + bias) + residual on weights packed once in panels
 * (matmul_pack.c), fp32 arithmetic for f32, bf16 and f16. The way through its chunks is in matmul_plan.c;
 * this file multiplies them tile by tile. */
#include "matmul_plan.h"

#include <string.h>

#define MAX_TOKENS 96       /* tokens of a chunk: X block and C stay in L2 */
#define C_FLOATS (40 << 10) /* of a chunk's C: 160 KiB */
#define WIDEN 7             /* groups of tokens from which a 16-bit panel is widened beforehand */
#define BESIDE 4            /* the most panels that a tile takes together */

static const bs_knob
    tokens_knob = {sizeof(bs_knob), 0,
                   "tokens",        "12:384*2",
                   "auto",          "most tokens of a chunk, whose X and sums stay in cache; auto: 96"},
    panels_knob = {sizeof(bs_knob),
                   0,
                   "panels",
                   "8:512*2",
                   "auto",
                   "most panels of 16 outputs of a chunk; auto: sums of 160 KiB, 32 at least"},
    beside_knob = {sizeof(bs_knob),
                   0,
                   "beside",
                   "1,2,4",
                   "auto",
                   "most panels that a tile of few tokens takes at once; auto: 1 of f32 weights "
                   "that come from memory and one unit for 512 bits, else 4"},
    ahead_knob = {sizeof(bs_knob),
                  0,
                  "ahead",
                  "off,1,2,4,6,8,12",
                  "auto",
                  "tokens of a chunk from which weights are asked for ahead; auto: 1 of 16-bit "
                  "weights, 4 of pairs of bf16, 6 of f32"};
static const bs_knob *const knobs[] = {&tokens_knob, &panels_knob,   &beside_knob,
                                       &ahead_knob,  &cpu_knob_keep, &cpu_knob_threads};

typedef struct matmul_plan {
  cpu_dense_plan all;
  int x_index, w_index;
  cpu_tile_fn tile;                   /* on the weights as they are; NULL: they are widened first */
  int dot;                            /* all blocks of bf16 X by products of pairs */
  int up;                             /* those blocks where the bits are the ones of tile */
  int32_t panels[CPU_MAX_TOKENS + 1]; /* together, by tokens */
  int64_t ahead;                      /* tokens from which weights are asked for ahead */
  int64_t beside;                     /* as the echo tells it: 0: by tokens */
} matmul_plan;

static const matmul_plan *plan_of(const cpu_dense_plan *all) {
  return (const matmul_plan *)(const void *)all;
}

/* How a block of X lies, in a place behind its first row that no form of it uses. */
enum { FORM_AT = CPU_X_LD - 1 };
static int is_pairs(const float *x) {
  uint32_t form;
  memcpy(&form, x + FORM_AT, sizeof form);
  return form != 0;
}

/* Packs the block for products of pairs. 0: a product or a sum could be subnormal. */
static int pack_pairs(const cpu_dense_call *call, const cpu_dense_chunk *c, int64_t first, int64_t count,
                      float *x) {
  const cpu_dense_plan *all = call->plan;
  uint16_t picked[CPU_K_BLOCK];
  cpu_bf16_range seen;
  cpu_range_begin(&seen);
  for (int64_t t = 0; t < c->tokens; t++)
    all->kernels->bf16_swap((uint16_t *)x + t * CPU_X_LD, cpu_dense_row(call, c, t, first, count, picked),
                            count, &seen);
  return cpu_ranges_exact(cpu_range_of(&seen), cpu_packed_range_now(all->w));
}

/* Columns first..first+count of the chunk's tokens, as f32, or for products of pairs. */
static void pack_x(const cpu_dense_call *call, const cpu_dense_chunk *c, int64_t first, int64_t count,
                   float *x) {
  const matmul_plan *plan = plan_of(call->plan);
  uint16_t picked[CPU_K_BLOCK];
  if (plan->dot || plan->up) {
    const uint32_t form = (uint32_t)(pack_pairs(call, c, first, count, x) || plan->dot);
    memcpy(x + FORM_AT, &form, sizeof form);
    if (form != 0) return;
  }
  for (int64_t t = 0; t < c->tokens; t++) {
    float *to = x + t * CPU_X_LD;
    const void *row =
        cpu_dense_row(call, c, t, first, count, plan->x_index == 0 ? (void *)to : (void *)picked);
    if (row != to) plan->all.kernels->load[plan->x_index](to, row, count);
  }
}

/* Chooses how many panels are read together, and whether to prefetch. A weight from memory is read fastest as
 * one stream that the hardware prefetches, one panel after the other, if the arithmetic is fast enough.
 * 16-bit panels need several together for that, and then prefetching. Measured (docs/performance.md). */
static void choose_order(matmul_plan *plan, const char *told) {
  char ahead[8];
  const uint64_t bytes =
      (uint64_t)plan->all.w->panels * CPU_PANEL * (uint64_t)plan->all.w->K * plan->all.w->size;
  const int streamed = bytes >= cpu_streamed_bytes();
  const int dot = plan->dot || plan->up, half = plan->w_index != 0 && !dot;
  const cpu_kernels *kernels = plan->all.kernels;
  const int32_t *panels = half ? kernels->panels_half : dot ? kernels->panels_dot : kernels->panels;
  int beside = BESIDE;
  if (streamed && dot)
    beside = 0;
  else if (streamed && !half && kernels->units < 2)
    beside = 1;
  memcpy(plan->panels, panels, sizeof plan->panels);
  plan->ahead = half ? 1 : dot ? 4 : 6;
  if (bs_knob_find(told, "ahead", ahead, sizeof ahead))
    plan->ahead = bs_knob_int(told, "ahead", INT64_MAX); /* off */
  plan->beside = bs_knob_int(told, "beside", beside);
  for (int64_t t = 1; t <= kernels->tokens; t++) {
    const int32_t most = plan->beside > 0 ? (int32_t)plan->beside : t >= 4 && t < 8 ? 2 : 1;
    if (plan->panels[t] > most || plan->beside == 0) plan->panels[t] = most;
  }
}

/* Multiplies every group of tokens with the panels of `t`. The groups differ by at most one token, so that
 * none has a slow tile. Each prefetches its part of the lines at `next`. */
static void multiply_panels(const matmul_plan *plan, const cpu_dense_chunk *c, int64_t groups, cpu_tile t,
                            cpu_tile_fn tile, int64_t x_size, const char *next) {
  const int64_t each = c->tokens / groups, more = c->tokens % groups, quads = t.k / 4;
  int64_t lines = next != NULL && quads > 0 ? (t.panels * t.w_step + 63) / 64 : 0;
  const int32_t at_once = lines > 0 ? (int32_t)((lines + quads * groups - 1) / (quads * groups)) : 0;
  for (int64_t g = 0; g < groups; g++) {
    t.tokens = (int32_t)(each + (g < more));
    t.ahead_lines = lines > 0 ? at_once : 0;
    t.ahead = lines > 0 ? next : NULL;
    tile(&t);
    t.x = (const char *)t.x + t.tokens * CPU_X_LD * x_size;
    t.c += t.tokens * plan->all.s.c_ld;
    lines -= quads * at_once;
    if (lines > 0) next += quads * at_once * 64;
  }
}

/* Multiplies one K block of a chunk: one panel after the other, or several together. */
static void multiply_block(const cpu_dense_plan *all, const cpu_dense_chunk *c, int64_t first, int64_t count,
                           const float *x) {
  const matmul_plan *plan = plan_of(all);
  const cpu_kernels *kernels = all->kernels;
  const cpu_packed *w = all->w;
  const int64_t groups = (c->tokens + kernels->tokens - 1) / kernels->tokens;
  const int64_t most = (c->tokens + groups - 1) / groups;
  const int pairs = (plan->dot || plan->up) && is_pairs(x);
  const int widen = !pairs && (plan->tile == NULL || (plan->w_index != 0 && groups >= WIDEN));
  const cpu_tile_fn tile = pairs ? kernels->dot : widen ? kernels->tile[0] : plan->tile;
  const int64_t x_size = pairs ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
  for (int64_t p = 0; p < c->panels;) {
    int32_t panels = widen ? 1 : plan->panels[most];
    while (panels > c->panels - p) panels /= 2;
    cpu_tile t = {.x = x,
                  .w = cpu_dense_at(w->data, cpu_packed_at(w, c->panel + p, first), w->dtype),
                  .w_step = cpu_packed_length(w, first) * CPU_PANEL * w->size,
                  .c = c->s->c + p * CPU_PANEL,
                  .ldc = plan->all.s.c_ld,
                  .k = count,
                  .panels = panels,
                  .add = first > 0};
    if (widen) {
      kernels->widen[plan->w_index](c->s->panel, t.w, count);
      t.w = c->s->panel;
    }
    multiply_panels(plan, c, groups, t, tile, x_size,
                    c->tokens < plan->ahead ? NULL : cpu_dense_next(w, c, p + panels, first));
    p += panels;
  }
}

static int64_t most_tokens(const cpu_matmul *shape) {
  (void)shape;
  return MAX_TOKENS;
}

/* Token by token one of the two must serve all shapes: a rank's narrow part of a layer has the bits of the
 * whole layer, and measured choices may not mix the two (matmul_amx.c). */
static int fits(const cpu_state *state, const bs_op_query *query, const cpu_matmul *shape,
                bs_op_answer *answer) {
  const uint32_t asked = query->flags & (BS_QUERY_TOKENWISE | BS_QUERY_TRAIN | BS_QUERY_BITS);
  if (state->kernels.amx == NULL || strcmp(state->matmul, "auto") != 0 || shape->weight_type != BS_BF16 ||
      asked != BS_QUERY_TOKENWISE)
    return 1;
  return cpu_answer_no(answer, BS_REASON_DISABLED, "bf16 token by token is for tiles of AMX: other bits");
}

static const cpu_dense_kind kind = {.name = "packed",
                                    .size = sizeof(matmul_plan),
                                    .x_row = CPU_X_LD,
                                    .c_floats = C_FLOATS,
                                    .widens = 1,
                                    .tokens = most_tokens,
                                    .fits = fits,
                                    .pack = pack_x,
                                    .multiply = multiply_block};

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  cpu_dense_plan *all = NULL;
  const int32_t rc = cpu_dense_prepare(&kind, state, exec, query, packed, &all, err);
  if (rc != BS_OK) return rc;
  matmul_plan *plan = (matmul_plan *)(void *)all;
  plan->x_index = cpu_type_index(all->shape.x_type);
  plan->w_index = cpu_type_index(all->shape.weight_type);
  plan->dot = plan->w_index == 1 && all->kernels->dot != NULL && (query->flags & BS_QUERY_BITS) == 0;
  plan->tile = all->kernels->tile[plan->w_index];
  /* A weight that is trained has no range. */
  plan->up = plan->w_index == 1 && !plan->dot && all->kernels->dot != NULL && cpu_packed_range(packed) != 0;
  choose_order(plan, query->knobs);
  *out_plan = plan;
  return BS_OK;
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const matmul_plan *plan = opaque;
  bs_op_echo told;
  bs_echo_begin(&told);
  bs_echo_int(&told, "tokens", plan->all.s.told_tokens);
  bs_echo_int(&told, "panels", plan->all.s.told_panels);
  if (plan->beside > 0)
    bs_echo_int(&told, "beside", plan->beside);
  else
    bs_echo_word(&told, "beside", "auto"); /* 2 of four to seven tokens, else 1 */
  if (plan->ahead < INT64_MAX)
    bs_echo_int(&told, "ahead", plan->ahead);
  else
    bs_echo_word(&told, "ahead", "off");
  bs_echo_word(&told, "keep", plan->all.s.keep ? "on" : "off");
  bs_echo_int(&told, "threads", plan->all.width);
  bs_out_copy(out_echo, &told, sizeof told);
  return BS_OK;
}

/* 600 for every shape: dnnl/describe.c says where oneDNN scores above or below. */
static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  cpu_matmul shape;
  cpu_dense_sizes s = {0};
  char algo[48];
  if (!cpu_dense_judge(&kind, state, query, &shape, &s, answer)) return BS_OK;
  snprintf(algo, sizeof algo, "packed-%s", state->kernels.name);
  cpu_answer_yes(answer, 600, BS_TOL_ACC_F32, algo, "");
  answer->bits = (query->flags & BS_QUERY_BITS) != 0; /* by products of pairs they are others */
  /* "dnnl" is registered, and so asked, before: when its library is missing that is known by now. */
#ifdef BS_CPU_DNNL
  char library[144] = "";
  if (cpu_dnnl_missing(state->dnnl)) cpu_dnnl_text(state->dnnl, library, sizeof library);
  snprintf(answer->text, sizeof answer->text, "own kernels of class %s%s%s", cpu_class(&state->kernels),
           library[0] != '\0' ? "; " : "", library);
#else
  snprintf(answer->text, sizeof answer->text, "own kernels of class %s; built without oneDNN",
           cpu_class(&state->kernels));
#endif
  return BS_OK;
}

const bs_src_loc cpu_matmul_packed_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_packed = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels on packed panels: f32, bf16, f16 with fp32 arithmetic on every processor",
    .supports = supports,
    .pack = cpu_packed_make,
    .packed_update = cpu_packed_update,
    .packed_read = cpu_packed_read,
    .packed_free = cpu_packed_free,
    .prepare = prepare,
    .run = cpu_dense_run,
    .plan_free = cpu_dense_free,
    .n_knobs = sizeof knobs / sizeof knobs[0],
    .knobs = knobs,
    .echo = echo,
};
