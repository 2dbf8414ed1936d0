/* SPDX-License-Identifier: MIT
 *
 * matmul_amx.c - the matmul "amx": bf16 by the processor's tiles (isa/amx_product.h), on the weights of
 * "packed": a bf16 panel is a sequence of tiles as it lies. X of a block is copied into the order of tiles,
 * [step of 32 columns][group][row][32].
 *
 * Tokens of a chunk are divided into groups of at most 16 that differ as little as possible: every group has
 * the rows of the largest one, and nothing reads the sums of rows beyond the last token. The last columns of
 * K are a shorter step: no value beyond them is multiplied. plugin.c registers this where the kernels have
 * tiles. */
#include "matmul_plan.h"

#define TOKENS 64          /* of a chunk */
#define TOKENS_OF_MANY 128 /* of a chunk, from so many tokens on: */
#define MANY 256
#define C_FLOATS (32 << 10) /* of a chunk's C: 128 KiB: 128 panels of 16 tokens, 32 of 64 */
#define MOST_PANELS 128     /* of a chunk */
#define NARROW 64           /* outputs or columns below which "packed" is to serve */
#define ROW_BYTES 64        /* of a token in a step */
#define ROW (ROW_BYTES / (int64_t)sizeof(uint16_t))

static const bs_knob
    tokens_knob = {sizeof(bs_knob),
                   0,
                   "tokens",
                   "16:256*2",
                   "auto",
                   "most tokens of a chunk, whose X and sums stay in cache; auto: 64, 128 "
                   "from 256 tokens on"},
    panels_knob = {sizeof(bs_knob),
                   0,
                   "panels",
                   "8:512*2",
                   "auto",
                   "most panels of 16 outputs of a chunk; auto: sums of 128 KiB, 32 at least, 128 at most"},
    beside_knob = {sizeof(bs_knob), 0,      "beside",
                   "1,2",           "auto", "panels that are multiplied together; auto: 1"},
    ahead_knob = {sizeof(bs_knob), 0,      "ahead",
                  "off,on",        "auto", "ask for the next panels while these are multiplied; auto: on"};
static const bs_knob *const knobs[] = {&tokens_knob, &panels_knob,   &beside_knob,
                                       &ahead_knob,  &cpu_knob_keep, &cpu_knob_threads};

/* The tile unit of a processor was seen in two states, which software does not choose. For 64 tokens and more
 * two panels together took 1.1 to 1.3 times as long as one in the slow state, and 0.85 to 1.0 times in the
 * fast one. So one is the default. */
typedef struct amx_plan {
  cpu_dense_plan all;
  int32_t beside; /* panels together */
  int ahead;
} amx_plan;

static const amx_plan *plan_of(const cpu_dense_plan *all) {
  return (const amx_plan *)(const void *)all;
}

static int64_t groups_of(int64_t tokens) {
  return (tokens + 15) / 16;
}

/* Rows of each group. */
static int64_t rows_of(int64_t tokens) {
  const int64_t groups = groups_of(tokens);
  return (tokens + groups - 1) / groups;
}

/* Rows of X and C of up to so many tokens. */
static int64_t all_rows(int64_t tokens) {
  return tokens <= 16 ? tokens : groups_of(tokens) * 16;
}

static int64_t most_tokens(const cpu_matmul *shape) {
  return shape->B < MANY ? TOKENS : TOKENS_OF_MANY;
}

/* The columns with the second of each pair first, as the panels have them. */
static const uint16_t *swapped(const cpu_kernels *kernels, const uint16_t *from, int64_t count,
                               uint16_t *room) {
  cpu_bf16_range unused;
  cpu_range_begin(&unused);
  kernels->bf16_swap(room, from, count, &unused);
  return room;
}

static void pack_x(const cpu_dense_call *call, const cpu_dense_chunk *c, int64_t first, int64_t count,
                   float *x) {
  const int64_t step = groups_of(c->tokens) * rows_of(c->tokens) * ROW;
  const int second_first = call->plan->w->second_first;
  const int64_t have = second_first ? count + count % 2 : count; /* a zero in the last pair */
  uint16_t picked[CPU_K_BLOCK];
  for (int64_t t = 0; t < c->tokens; t++) { /* groups follow one another, as their tokens do */
    uint16_t *to = (uint16_t *)(void *)x + t * ROW;
    const uint16_t *from = cpu_dense_row(call, c, t, first, count, picked);
    if (second_first) from = swapped(call->plan->kernels, from, count, picked);
    int64_t k = 0;
    for (; k + ROW <= count; k += ROW, to += step) memcpy(to, from + k, ROW_BYTES);
    if (k == count) continue;
    memcpy(to, from + k, (size_t)(have - k) * sizeof *to);
    if (have % 2 != 0) to[count - k] = 0; /* the other half of the last pair */
  }
}

/* One product of all panels. Each prefetches those after it, the last ones what comes after this block. */
static void multiply_steps(const amx_plan *plan, const cpu_dense_chunk *c, int64_t first, cpu_amx_block b) {
  const cpu_amx *amx = plan->all.kernels->amx;
  const char *w = b.w;
  const int64_t last = (c->panels - 1) / b.together * b.together;
  const char *next = cpu_dense_next(plan->all.w, c, c->panels, first);
  b.panels = (int32_t)last;
  b.ahead = plan->ahead ? b.together * b.w_panel : 0;
  if (last > 0) amx->product(c->s->own, &b);
  b.panels = (int32_t)(c->panels - last);
  b.w = w + last * b.w_panel;
  b.c += last * CPU_PANEL;
  b.ahead = plan->ahead ? next - (const char *)b.w : 0;
  amx->product(c->s->own, &b);
}

static void multiply(const cpu_dense_plan *all, const cpu_dense_chunk *c, int64_t first, int64_t count,
                     const float *x) {
  const amx_plan *plan = plan_of(all);
  const cpu_packed *w = all->w;
  const int64_t groups = groups_of(c->tokens), rows = rows_of(c->tokens);
  const int64_t whole = count / CPU_AMX_COLUMNS, rest = count % CPU_AMX_COLUMNS;
  cpu_amx_block b = {.x = x,
                     .x_row = ROW_BYTES,
                     .x_step = groups * rows * ROW_BYTES,
                     .x_group = rows * ROW_BYTES,
                     .w = cpu_dense_at(w->data, cpu_packed_at(w, c->panel, first), w->dtype),
                     .w_panel = cpu_packed_length(w, first) * CPU_PANEL * w->size,
                     .c = c->s->c,
                     .ldc = all->s.c_ld,
                     .steps = whole,
                     .groups = (int32_t)groups,
                     .add = first > 0,
                     .together = plan->beside,
                     .c_group = rows * all->s.c_ld};
  if (first == 0 && whole > 0) all->kernels->amx->begin(c->s->own, (int32_t)rows, CPU_AMX_COLUMNS);
  if (whole > 0) multiply_steps(plan, c, first, b);
  if (rest == 0) return;
  all->kernels->amx->begin(c->s->own, (int32_t)rows, (int32_t)rest);
  b.x = (const char *)b.x + whole * b.x_step;
  b.w = (const char *)b.w + whole * CPU_AMX_STEP;
  b.steps = 1;
  b.add = first > 0 || whole > 0;
  multiply_steps(plan, c, first, b);
}

static void done(const cpu_dense_plan *all, const cpu_dense_scratch *s) {
  all->kernels->amx->end(s->own);
}

static int fits(const cpu_state *state, const bs_op_query *query, const cpu_matmul *shape,
                bs_op_answer *answer) {
  (void)state;
  (void)query;
  if (shape->weight_type == BS_BF16) return 1;
  return cpu_answer_no(answer, BS_REASON_DTYPE, "tiles of AMX multiply bf16, not dtype 0x%04x",
                       shape->weight_type);
}

static const cpu_dense_kind kind = {.name = "amx",
                                    .size = sizeof(amx_plan),
                                    .x_row = CPU_K_BLOCK * (int64_t)sizeof(uint16_t) / (int64_t)sizeof(float),
                                    .c_floats = C_FLOATS,
                                    .most_panels = MOST_PANELS,
                                    .own = sizeof(cpu_amx_room) / sizeof(float),
                                    .tokens = most_tokens,
                                    .rows = all_rows,
                                    .fits = fits,
                                    .pack = pack_x,
                                    .multiply = multiply,
                                    .done = done};

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  cpu_dense_plan *all = NULL;
  const int32_t rc = cpu_dense_prepare(&kind, state, exec, query, packed, &all, err);
  if (rc != BS_OK) return rc;
  amx_plan *plan = (amx_plan *)(void *)all;
  plan->beside = (int32_t)bs_knob_int(query->knobs, "beside", 1);
  plan->ahead = cpu_knob_switch(query, "ahead", 1);
  *out_plan = plan;
  return BS_OK;
}

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const amx_plan *plan = opaque;
  bs_op_echo told;
  bs_echo_begin(&told);
  bs_echo_int(&told, "tokens", plan->all.s.told_tokens);
  bs_echo_int(&told, "panels", plan->all.s.told_panels);
  bs_echo_int(&told, "beside", plan->beside);
  bs_echo_word(&told, "ahead", plan->ahead ? "on" : "off");
  bs_echo_word(&told, "keep", plan->all.s.keep ? "on" : "off");
  bs_echo_int(&told, "threads", plan->all.width);
  bs_out_copy(out_echo, &told, sizeof told);
  return BS_OK;
}

/* Above oneDNN's 800 for every number of tokens, by timings of sketches of these loops. Narrow layers are
 * left to "packed", as they are without tiles. Token by token it serves every shape, and "packed" none: a
 * part of a layer has the bits of the whole. */
static int32_t supports(void *opaque, const bs_op_query *query, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  cpu_matmul shape;
  cpu_dense_sizes s = {0};
  char algo[48];
  if (!cpu_dense_judge(&kind, state, query, &shape, &s, answer)) return BS_OK;
  const int narrow = (shape.N < NARROW || shape.K < NARROW) && (query->flags & BS_QUERY_TOKENWISE) == 0;
  snprintf(algo, sizeof algo, "tiles-%s", state->kernels.name);
  cpu_answer_yes(answer, narrow ? 500 : 850, BS_TOL_ACC_F32, algo,
                 narrow ? "own kernels on tiles of AMX; of little use below 64 outputs or columns"
                        : "own kernels on tiles of AMX");
  return BS_OK;
}

const bs_src_loc cpu_matmul_amx_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul_amx = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul",
    .backend = "cpu",
    .name = "amx",
    .summary = "own kernels on tiles of AMX: bf16, on the panels of packed",
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
