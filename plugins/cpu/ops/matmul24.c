/* SPDX-License-Identifier: MIT
 *
 * matmul24.c - matmul of a 2:4 weight on the panels of packed24.h, fp32 arithmetic for f32, bf16 and f16, or
 * for bf16 the processor's own products of pairs; i8 goes through fp32 too, block by block, where 32 products
 * of bytes are exact, and is summed in i32.
 *
 * Each member of the team owns a range of panels. A call of few tokens has the outputs in the lanes of the
 * kernels, one of many the tokens (isa/sparse.h): X is turned once for a tile of 64 tokens, and for a chunk
 * of panels every block of 64 columns is multiplied with all its tokens out of L1. Both forms make the same
 * sums in the same order: a token's bits depend on its own row alone. Products of pairs have the outputs in
 * the lanes for any number of tokens: a pair of X is picked by one permutation of bytes, which a table gives
 * once for all tokens. */
#include <stdlib.h>

#include "epilogue.h"
#include "packed24.h"
#include "turn24.h"

#define KEEP_FLOATS (1 << 20) /* X of a tile of tokens that is turned once for all panels: 4 MiB */
#define ALONE (1 << 16)       /* multiplications below which the team is not woken */
#define BLOCK_FLOATS (CPU_WIDE_COLUMNS * CPU_WIDE_TOKENS)
#define AT_LD (2 * CPU_UNIT_VALUES)
#define TILE_VALUES (2 * CPU_UNIT_VALUES * CPU_PANEL) /* of a panel's block */

static const bs_knob
    form_knob = {sizeof(bs_knob),
                 0,
                 "form",
                 "narrow,wide",
                 "auto",
                 "outputs (narrow) or tokens (wide) in the lanes; auto: by the tokens of a call"},
    tokens_knob = {sizeof(bs_knob), 0,      "tokens",
                   "16:64+16",      "auto", "most tokens of a tile, whose X stays in cache; auto: 64"},
    panels_knob = {sizeof(bs_knob), 0,
                   "panels",        "4:32*2",
                   "auto",          "panels of 16 outputs of a chunk, whose sums stay in cache; auto: 32"};
static const bs_knob *const knobs[] = {&form_knob, &tokens_knob, &panels_knob, &cpu_knob_keep,
                                       &cpu_knob_threads};

/* The scratch memory of one member. */
typedef struct scratch {
  float *x;      /* rows, or [block][64][64] */
  float *c;      /* [16 panels][64], or [tokens][c_ld] */
  float *rows;   /* [16][c_ld]: some tokens of C as rows */
  float *buffer; /* of the epilogue, 2 c_ld */
  float *values; /* a panel's block as f32 */
  float *lines;
  uint16_t *at; /* [16][AT_LD] */
} scratch;

/* The partition of the work, and the floats of a member's scratch: parts, each on a separate cache line. */
typedef struct sizes {
  int64_t blocks; /* of 64 columns */
  int64_t x_ld, c_ld, chunk;
  int64_t tile;        /* tokens of one */
  int64_t told_panels; /* of a chunk, however few there are */
  int64_t narrow_most; /* tokens of a call up to which outputs are in the lanes */
  int keep;            /* X of a tile is turned once */
  int dot;             /* bf16 products of pairs: outputs in the lanes for any number of tokens */
  uint64_t each, x, c; /* floats of a member, and of its parts */
} sizes;

typedef struct matmul_plan {
  const bs_exec *exec;
  const cpu_kernels *kernels;
  const cpu_packed *w;
  cpu_matmul shape;
  int64_t begin; /* of the columns in X */
  sizes s;
  float *memory; /* of all members, while it runs */
  uint32_t width;
} matmul_plan;

typedef struct matmul_call {
  const matmul_plan *plan;
  cpu_rows24 x;
  cpu_epilogue end;
  int64_t tokens;
} matmul_call;

/* A chunk of the work of one member. */
typedef struct chunk {
  int64_t token, tokens;
  int64_t panel, panels;
  const scratch *s;
  int turned; /* X lies in scratch from the chunk before */
} chunk;

static int64_t outputs_of(const matmul_plan *plan, const chunk *c) {
  const int64_t left = plan->shape.N - c->panel * CPU_PANEL;
  return left < c->panels * CPU_PANEL ? left : c->panels * CPU_PANEL;
}

/* ---- few tokens ----------------------------------------------------------------------------- */

/* A block of some panels with tokens begin .. end of the chunk. */
static void narrow_block(const matmul_call *call, const chunk *c, int64_t block, int64_t panel,
                         int64_t panels, int64_t begin, int64_t end) {
  const matmul_plan *plan = call->plan;
  const cpu_packed *w = plan->w;
  const int64_t unit = 2 * block;
  const uint16_t *halves =
      (const uint16_t *)(const void *)c->s->x + (block * c->tokens + begin) * CPU_WIDE_COLUMNS;
  const float *rows = c->s->x + begin * plan->s.x_ld + block * CPU_WIDE_COLUMNS;
  const cpu_narrow24 tile = {.x = plan->s.dot ? (const void *)halves : (const void *)rows,
                             .x_ld = plan->s.x_ld,
                             .w = cpu_unit_at(w, c->panel + panel, unit),
                             .codes = cpu_codes_at(w->codes, c->panel + panel, unit),
                             .c = c->s->c + begin * plan->s.c_ld + panel * CPU_PANEL,
                             .ldc = plan->s.c_ld,
                             .units = w->units - unit < 2 ? 1 : 2,
                             .tokens = (int32_t)(end - begin),
                             .panels = (int32_t)panels,
                             .type = w->type,
                             .add = block > 0,
                             .other = w->other};
  if (plan->s.dot)
    plan->kernels->narrow24_dot(&tile);
  else
    plan->kernels->narrow24(&tile);
}

/* Tokens that one tile does not hold take turns at a panel while it is in L1. */
static void narrow_chunk(const matmul_call *call, const chunk *c) {
  const matmul_plan *plan = call->plan;
  const int64_t most = plan->s.dot ? plan->kernels->narrow_dot_tokens : plan->kernels->narrow_tokens,
                groups = (c->tokens + most - 1) / most;
  const int64_t step = groups == 1 ? c->panels : 1;
  for (int64_t block = 0; block < plan->s.blocks; block++)
    for (int64_t p = 0; p < c->panels; p += step)
      for (int64_t g = 0; g < groups; g++) {
        int64_t begin, end;
        cpu_share(c->tokens, (uint32_t)g, (uint32_t)groups, &begin, &end);
        narrow_block(call, c, block, p, step, begin, end);
      }
  cpu_finish(&call->end, c->token, c->tokens, c->panel * CPU_PANEL, outputs_of(plan, c), c->s->c,
             plan->s.c_ld, c->s->buffer);
}

/* ---- many tokens ---------------------------------------------------------------------------- */

/* Prepares a block of a panel: values as f32, one after the other, and the places of their rows of X. */
static const float *open_block(const matmul_plan *plan, const scratch *s, int64_t panel, int64_t unit,
                               int64_t units) {
  const cpu_packed *w = plan->w;
  for (int64_t u = 0; u < units; u++) {
    if (w->type != 0)
      plan->kernels->values24(s->values + u * CPU_UNIT_VALUES * CPU_PANEL, cpu_unit_at(w, panel, unit + u),
                              w->type);
    plan->kernels->places24(s->at + u * CPU_UNIT_VALUES, AT_LD, cpu_codes_at(w->codes, panel, unit + u),
                            (uint32_t)(u * CPU_UNIT_COLUMNS), w->other);
  }
  return w->type != 0 ? s->values : (const float *)(const void *)cpu_unit_at(w, panel, unit);
}

static void multiply_block(const matmul_plan *plan, const chunk *c, int64_t block, const float *x) {
  const cpu_packed *w = plan->w;
  const int64_t unit = 2 * block, units = w->units - unit < 2 ? 1 : 2;
  const scratch *s = c->s;
  for (int64_t p = 0; p < c->panels; p++) {
    const cpu_wide24 tile = {.x = x,
                             .w = open_block(plan, s, c->panel + p, unit, units),
                             .at = s->at,
                             .at_ld = AT_LD,
                             .c = s->c + p * CPU_PANEL * CPU_WIDE_TOKENS,
                             .count = (int32_t)(units * CPU_UNIT_VALUES),
                             .tokens = (int32_t)c->tokens,
                             .add = block > 0,
                             .integers = w->type == 3,
                             .ahead_lines = (int32_t)(units * cpu_unit_bytes(w) / 64),
                             .ahead = cpu_unit_at(w, c->panel + p, unit) + units * cpu_unit_bytes(w)};
    /* Prefetches the next panel's part of the block, which follows in memory, during work on this one. */
    for (int64_t u = 0; u < units; u++)
      __builtin_prefetch(cpu_codes_at(w->codes, c->panel + p, unit) + (units + u) * CPU_PANEL, 0, 3);
    plan->kernels->wide24(&tile);
  }
}

/* C, tokens in the lanes, to rows and on to Y, sixteen tokens at a time. */
static void finish(const matmul_call *call, const chunk *c) {
  const matmul_plan *plan = call->plan;
  for (int64_t t = 0; t < c->tokens; t += 16) {
    for (int64_t p = 0; p < c->panels; p++)
      plan->kernels->transpose(c->s->rows + p * CPU_PANEL, plan->s.c_ld,
                               c->s->c + p * CPU_PANEL * CPU_WIDE_TOKENS + t, CPU_WIDE_TOKENS);
    cpu_finish(&call->end, c->token + t, c->tokens - t < 16 ? c->tokens - t : 16, c->panel * CPU_PANEL,
               outputs_of(plan, c), c->s->rows, plan->s.c_ld, c->s->buffer);
  }
}

static void wide_chunk(const matmul_call *call, const chunk *c) {
  const matmul_plan *plan = call->plan;
  for (int64_t block = 0; block < plan->s.blocks; block++) {
    float *x = c->s->x + (plan->s.keep ? block * BLOCK_FLOATS : 0);
    if (!c->turned) cpu_rows24_turn(&call->x, c->token, c->tokens, block * CPU_WIDE_COLUMNS, c->s->lines, x);
    multiply_block(plan, c, block, x);
  }
  finish(call, c);
}

/* ---- the call ------------------------------------------------------------------------------- */

/* X of few tokens: rows of f32, or for products of pairs the rows of each block, side by side. */
static void load_rows(const matmul_call *call, const scratch *s, int64_t token, int64_t tokens) {
  const matmul_plan *plan = call->plan;
  if (!plan->s.dot) {
    for (int64_t t = 0; t < tokens; t++)
      cpu_rows24_load(&call->x, token + t, 0, plan->w->units * CPU_UNIT_COLUMNS, s->x + t * plan->s.x_ld);
    return;
  }
  uint16_t *to = (uint16_t *)(void *)s->x;
  for (int64_t b = 0; b < plan->s.blocks; b++)
    for (int64_t t = 0; t < tokens; t++, to += CPU_WIDE_COLUMNS)
      cpu_rows24_copy(&call->x, token + t, b * CPU_WIDE_COLUMNS, CPU_WIDE_COLUMNS, to);
}

static void run_tile(const matmul_call *call, const scratch *s, int64_t begin, int64_t end, int64_t token,
                     int64_t tokens) {
  const matmul_plan *plan = call->plan;
  const int narrow = plan->s.dot || call->tokens <= plan->s.narrow_most;
  if (narrow) load_rows(call, s, token, tokens);
  for (int64_t p = begin, stop; p < end; p = stop) {
    stop = (p / plan->s.told_panels + 1) * plan->s.told_panels; /* never across CPU_CHUNK24 */
    if (stop > end) stop = end;
    const chunk c = {token, tokens, p, stop - p, s, plan->s.keep && p > begin};
    const int64_t sums = narrow ? tokens * plan->s.c_ld : plan->s.chunk * CPU_PANEL * CPU_WIDE_TOKENS;
    if (plan->s.blocks == 0) memset(s->c, 0, (size_t)sums * sizeof *s->c);
    if (narrow)
      narrow_chunk(call, &c);
    else
      wide_chunk(call, &c);
  }
}

static scratch scratch_of(const matmul_plan *plan, uint32_t member) {
  scratch s = {.x = plan->memory + plan->s.each * member};
  s.c = s.x + plan->s.x;
  s.rows = s.c + plan->s.c;
  s.buffer = s.rows + 16 * plan->s.c_ld;
  s.values = s.buffer + 2 * plan->s.c_ld;
  s.at = (uint16_t *)(void *)(s.values + TILE_VALUES);
  s.lines = s.values + 2 * TILE_VALUES;
  return s;
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const matmul_call *call = arg;
  const matmul_plan *plan = call->plan;
  const uint32_t members = width < plan->width ? width : plan->width; /* as many as have scratch */
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(plan->w->panels, member, members, &begin, &end);
  if (begin == end) return;
  const scratch s = scratch_of(plan, member);
  const int64_t tiles = (call->tokens + plan->s.tile - 1) / plan->s.tile;
  for (int64_t i = 0; i < tiles; i++) {
    int64_t first, last;
    cpu_share(call->tokens, (uint32_t)i, (uint32_t)tiles, &first, &last);
    run_tile(call, &s, begin, end, first, last - first);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  matmul_plan *plan = opaque;
  const matmul_call call = {plan,
                            cpu_rows24_of(plan->kernels, args[0], plan->begin, plan->shape.K),
                            {plan->kernels, &plan->shape, args[1], args[2], args[3]},
                            args[3]->dims[0]};
  (void)nargs;
  (void)stream;
  if (call.tokens <= 0 || plan->shape.N == 0) return BS_OK;
  const int32_t rc = cpu_batch_fits(call.tokens, plan->shape.B, err);
  if (rc != BS_OK) return rc;
  plan->memory = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(
      plan->exec,
      plan->width == 1 || (double)call.tokens * (double)plan->shape.N * (double)plan->shape.K < ALONE,
      run_share, (void *)&call, err);
}

/* ---- plans ---------------------------------------------------------------------------------- */

static sizes choose_sizes(const cpu_kernels *kernels, const cpu_matmul *shape, const bs_op_query *query) {
  sizes s;
  char form[8];
  const int64_t all = (shape->N + CPU_PANEL - 1) / CPU_PANEL;
  const int told = bs_knob_find(query->knobs, "form", form, sizeof form), wide = told && form[0] == 'w';
  s.tile = bs_knob_int(query->knobs, "tokens", CPU_WIDE_TOKENS);
  s.told_panels = bs_knob_int(query->knobs, "panels", CPU_CHUNK24);
  s.narrow_most = wide ? 0 : told ? INT64_MAX : kernels->narrow_most;
  s.dot = shape->weight_type == BS_BF16 && kernels->narrow24_dot != NULL && !wide;
  const int64_t most = s.dot || s.narrow_most > s.tile ? s.tile : s.narrow_most,
                narrow = shape->B < most ? shape->B : most;
  s.blocks = (shape->K + CPU_WIDE_COLUMNS - 1) / CPU_WIDE_COLUMNS;
  s.x_ld = s.blocks * CPU_WIDE_COLUMNS + 16; /* not a power of two */
  s.chunk = all < s.told_panels ? (all > 0 ? all : 1) : s.told_panels;
  s.c_ld = s.chunk * CPU_PANEL + 16;
  s.keep = cpu_knob_switch(query, "keep", s.blocks * BLOCK_FLOATS <= KEEP_FLOATS);
  s.x = (uint64_t)(narrow * s.x_ld / (s.dot ? 2 : 1));
  if (!s.dot && shape->B > s.narrow_most) {
    const uint64_t turned = (uint64_t)((s.keep ? s.blocks : 1) * BLOCK_FLOATS);
    if (turned > s.x) s.x = turned;
  }
  s.x = (s.x + 15) / 16 * 16;
  s.c = (uint64_t)(s.chunk * CPU_PANEL * CPU_WIDE_TOKENS > narrow * s.c_ld
                       ? s.chunk * CPU_PANEL * CPU_WIDE_TOKENS
                       : narrow * s.c_ld);
  s.c = (s.c + 15) / 16 * 16;
  s.each = s.x + s.c + (uint64_t)(18 * s.c_ld) + 2 * TILE_VALUES + CPU_LINES24;
  return s;
}

/* Checks shared by supports and prepare. */
static int judge(const cpu_state *state, const bs_op_query *query, cpu_matmul *shape, sizes *out_sizes,
                 bs_op_answer *answer) {
  const int read = query->args[0]->dtype == BS_I8 ? cpu_matmul_read_bytes(query, 0, shape, answer)
                                                  : cpu_matmul_read(query, shape, answer);
  if (!read || !cpu_kept_fits(query, shape->N, shape->K, answer)) return 0;
  *out_sizes = choose_sizes(&state->kernels, shape, query);
  return cpu_workspace_fits(query, out_sizes->each * sizeof(float), answer);
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  const cpu_state *state = opaque;
  bs_op_answer answer;
  sizes s = {0};
  cpu_matmul shape;
  memset(&answer, 0, sizeof answer);
  if (!judge(state, query, &shape, &s, &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  int32_t rc = cpu_packed_check(packed, shape.N, shape.K, shape.weight_type, err);
  if (rc != BS_OK) return rc;
  matmul_plan *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->w = packed;
  plan->shape = shape;
  plan->width = cpu_workspace_members(query, s.each * sizeof(float), exec->width > 0 ? exec->width : 1);
  if (query->partition != NULL && (query->flags & BS_QUERY_X_FULL) != 0)
    plan->begin = query->partition->begin;
  rc = cpu_knob_members(query, plan->width, &plan->width, err);
  plan->s = s;
  if (rc == BS_OK) rc = cpu_reserve(exec, s.each * plan->width * sizeof(float), err);
  if (rc != BS_OK) {
    free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const matmul_plan *plan = opaque;
  const int narrow = plan->s.dot || plan->shape.B <= plan->s.narrow_most;
  bs_op_echo told;
  bs_echo_begin(&told);
  bs_echo_word(&told, "form", narrow ? "narrow" : "wide"); /* of a call with all tokens */
  bs_echo_int(&told, "tokens", plan->s.tile);
  bs_echo_int(&told, "panels", plan->s.told_panels);
  bs_echo_word(&told, "keep", plan->s.keep ? "on" : "off");
  bs_echo_int(&told, "threads", plan->width);
  bs_out_copy(out_echo, &told, sizeof told);
  return BS_OK;
}

static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  cpu_matmul shape;
  sizes s = {0};
  char algo[48];
  if (!judge(state, query, &shape, &s, answer)) return BS_OK;
  snprintf(algo, sizeof algo, "packed24-%s", state->kernels.name);
  cpu_answer_yes(answer, 600, shape.weight_type == BS_I8 ? BS_TOL_EXACT : BS_TOL_ACC_F32, algo,
                 "own kernels on kept values and 2-bit positions");
  return BS_OK;
}

const bs_src_loc cpu_matmul24_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul24 = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul24",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels on kept values and 2-bit positions: f32, bf16, f16, i8",
    .supports = supports,
    .pack = cpu_packed24_make,
    .packed_update = cpu_packed_update,
    .packed_read = cpu_packed_read,
    .packed_free = cpu_packed_free,
    .prepare = prepare,
    .run = run,
    .plan_free = free,
    .n_knobs = sizeof knobs / sizeof knobs[0],
    .knobs = knobs,
    .echo = echo,
};
