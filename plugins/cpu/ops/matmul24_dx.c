/* SPDX-License-Identifier: MIT
 *
 * matmul24_dx.c - dX = dY W over the packed weight of matmul24. dY is transposed, so that tokens are in the
 * lanes. For 64 outputs and 32 columns at a time the kernel (isa/turned.h) finds which outputs keep a column
 * while it multiplies. Few tokens do not fill the lanes: then the same part of the weight is expanded to a
 * dense one for the tiles of matmul, unless dY holds NaN or Inf, because zeros times these are not zero.
 * Weights are read in storage order: two units of all panels of a chunk, then the next two.
 *
 * Each member of the team owns a range of columns. Sums are in rising order of n, in blocks of 64 outputs,
 * and start from zeros, so that both forms give the same bits: they do not depend on the tokens or the team.
 * For i8 the 64 products are exact in fp32, and their sums are added in i32. */
#include "gradient24.h"

#define CHUNK 32           /* units of a chunk: its C is 256 KiB */
#define OUTPUTS CPU_TURNED /* of a block */
#define PANELS (OUTPUTS / CPU_PANEL)
#define ROWS (CPU_CHUNK24 * CPU_PANEL)           /* outputs whose weights lie side by side, block by block */
#define BLOCK_FLOATS (OUTPUTS * CPU_WIDE_TOKENS) /* of dY */
#define DY_FLOATS (ROWS / OUTPUTS * BLOCK_FLOATS)
#define C_FLOATS (CHUNK * CPU_UNIT_COLUMNS * CPU_WIDE_TOKENS)
#define ROWS_LD (CHUNK * CPU_UNIT_COLUMNS + 16)
#define SPREAD (OUTPUTS * CPU_PANEL) /* of a dense panel */
#define TWO_UNITS (2 * CPU_UNIT_COLUMNS)

typedef struct dx_call {
  const cpu_grad_plan *plan;
  cpu_rows24 dy;
  const bs_tensor *dx;
  int64_t tokens;
} dx_call;

/* The scratch memory of one member. */
typedef struct scratch {
  float *dy;   /* turned: blocks of [64 outputs][64 tokens] */
  float *c;    /* [column][64 tokens]; of few tokens [token][ROWS_LD] */
  float *rows; /* [16][ROWS_LD]; of few tokens four dense panels */
  float *lines;
} scratch;

#define SCRATCH_FLOATS (DY_FLOATS + C_FLOATS + 16 * ROWS_LD + CPU_LINES24)

/* ---- tokens in the lanes -------------------------------------------------------------------- */

static void multiply_unit(const cpu_grad_plan *plan, const scratch *s, int64_t n0, int64_t unit, float *c,
                          int64_t tokens) {
  const cpu_packed *w = plan->w;
  const int64_t panel = n0 / CPU_PANEL, left = w->panels - panel;
  const int64_t wide = w->units - unit / 2 * 2 < 2 ? 1 : 2; /* units of a block, side by side */
  /* The next data follow in memory: the block's other unit, then the next panels'. */
  const int64_t next = unit % 2 == 0 && wide == 2 ? 1 : PANELS * wide - (wide - 1);
  const cpu_turned24 tile = {.x = s->dy + n0 % ROWS / OUTPUTS * BLOCK_FLOATS,
                             .w = cpu_unit_at(w, panel, unit),
                             .codes = cpu_codes_at(w->codes, panel, unit),
                             .step = wide,
                             .ahead = next * cpu_unit_bytes(w),
                             .ahead_codes = next * CPU_PANEL,
                             .c = c,
                             .panels = (int32_t)(left < PANELS ? left : PANELS),
                             .type = w->type,
                             .tokens = (int32_t)tokens,
                             .add = 1,
                             .other = w->other};
  plan->kernels->turned24(&tile);
}

/* Columns k .. of a token to dX, rounded; sums of i32 as they are. */
static void store_row(const dx_call *call, int64_t token, int64_t k, const float *from, int64_t count) {
  const cpu_grad_plan *plan = call->plan;
  const uint32_t type = plan->shape.x_type;
  const int64_t at = token * call->dx->strides[0] + plan->begin + k;
  uint8_t *to = (uint8_t *)call->dx->data + (size_t)at * BS_DTYPE_BYTES(type);
  if (type == BS_I32)
    memcpy(to, from, (size_t)count * sizeof(int32_t));
  else
    plan->kernels->store[cpu_type_index(type)](to, from, count);
}

/* C to dX, sixteen tokens at a time. */
static void finish(const dx_call *call, const scratch *s, int64_t token, int64_t tokens, int64_t unit,
                   int64_t units) {
  const cpu_grad_plan *plan = call->plan;
  const int64_t k0 = unit * CPU_UNIT_COLUMNS, left = plan->shape.K - k0;
  const int64_t count = left < units * CPU_UNIT_COLUMNS ? left : units * CPU_UNIT_COLUMNS;
  for (int64_t t = 0; t < tokens; t += 16) {
    for (int64_t k = 0; k < units * CPU_UNIT_COLUMNS; k += CPU_PANEL)
      plan->kernels->transpose(s->rows + k, ROWS_LD, s->c + k * CPU_WIDE_TOKENS + t, CPU_WIDE_TOKENS);
    for (int64_t i = 0; i < 16 && t + i < tokens; i++)
      store_row(call, token + t + i, k0, s->rows + i * ROWS_LD, count);
  }
}

/* Outputs n0 .. n0+ROWS: the panels that lie side by side. */
static void multiply_rows(const cpu_grad_plan *plan, const scratch *s, int64_t n0, int64_t tokens,
                          int64_t unit, int64_t units) {
  const int64_t left = plan->shape.N - n0, end = n0 + (left < ROWS ? left : ROWS);
  for (int64_t u = 0; u < units; u += 2)
    for (int64_t n = n0; n < end; n += OUTPUTS)
      for (int64_t i = u; i < u + 2 && i < units; i++)
        multiply_unit(plan, s, n, unit + i, s->c + i * CPU_UNIT_COLUMNS * CPU_WIDE_TOKENS, tokens);
}

static void run_chunk(const dx_call *call, scratch *s, int64_t token, int64_t tokens, int64_t unit,
                      int64_t units) {
  const cpu_grad_plan *plan = call->plan;
  memset(s->c, 0, (size_t)(units * CPU_UNIT_COLUMNS * CPU_WIDE_TOKENS) * sizeof *s->c);
  for (int64_t n0 = 0; n0 < plan->shape.N; n0 += ROWS) {
    for (int64_t n = n0; n < n0 + ROWS && n < plan->shape.N; n += OUTPUTS)
      cpu_rows24_turn(&call->dy, token, tokens, n, s->lines, s->dy + (n - n0) / OUTPUTS * BLOCK_FLOATS);
    multiply_rows(plan, s, n0, tokens, unit, units);
  }
  finish(call, s, token, tokens, unit, units);
}

/* ---- few tokens ----------------------------------------------------------------------------- */

/* Without NaN and Inf, zeros in place of dropped weights add nothing. */
static int all_finite(const cpu_rows24 *dy, int64_t tokens, float *line) {
  if (dy->type == BS_I8) return 1;
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t n = 0; n < dy->columns; n += CPU_K_BLOCK) {
      uint32_t none = 0;
      cpu_rows24_load(dy, t, n, CPU_K_BLOCK, line);
      for (int64_t i = 0; i < CPU_K_BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, line + i, sizeof bits);
        none |= (bits & 0x7f800000u) == 0x7f800000u;
      }
      if (none) return 0;
    }
  return 1;
}

/* Whole numbers, of a block as floats, to the sums as i32: up to two units of some tokens. */
static void add_whole(float *c, const float *block, int64_t tokens, int64_t columns) {
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t k = 0; k < columns; k++) {
      int32_t sum;
      memcpy(&sum, c + t * ROWS_LD + k, sizeof sum);
      sum += (int32_t)block[t * TWO_UNITS + k];
      memcpy(c + t * ROWS_LD + k, &sum, sizeof sum);
    }
}

/* 64 outputs of up to two units, spread to dense panels and multiplied. */
static void multiply_spread(const cpu_grad_plan *plan, const scratch *s, int64_t n, int64_t tokens,
                            int64_t unit, int64_t units, float *c) {
  const cpu_packed *w = plan->w;
  const cpu_kernels *kernels = plan->kernels;
  const int64_t first = n / CPU_PANEL, left = w->panels - first, panels = left < PANELS ? left : PANELS;
  const int64_t wide = w->units - unit / 2 * 2 < 2 ? 1 : 2; /* units of a block, side by side */
  const int whole = w->dtype == BS_I8;
  for (int64_t p = 0; p < panels; p++)
    for (int64_t u = 0; u < units; u++) {
      const cpu_spread24 spread = {.w = cpu_unit_at(w, first + p, unit + u),
                                   .codes = cpu_codes_at(w->codes, first + p, unit + u),
                                   .ahead = PANELS * wide * cpu_unit_bytes(w),
                                   .ahead_codes = PANELS * wide * CPU_PANEL,
                                   .to = s->rows + 2 * u * SPREAD + p * CPU_PANEL * CPU_PANEL,
                                   .to_step = SPREAD,
                                   .type = w->type,
                                   .other = w->other};
      kernels->spread24(&spread);
    }
  cpu_tile tile = {.w_step = SPREAD * sizeof(float),
                   .ldc = whole ? TWO_UNITS : ROWS_LD,
                   .k = panels * CPU_PANEL,
                   .tokens = (int32_t)tokens,
                   .panels = kernels->panels[tokens],
                   .add = !whole,
                   .x = s->dy + n % ROWS / CPU_K_BLOCK * kernels->tokens * CPU_X_LD + n % CPU_K_BLOCK};
  for (int64_t p = 0; p < 2 * units; p += tile.panels) {
    while (tile.panels > 2 * units - p) tile.panels /= 2;
    tile.w = s->rows + p * SPREAD;
    tile.c = (whole ? s->lines : c) + p * CPU_PANEL;
    kernels->tile[0](&tile);
  }
  if (whole) add_whole(c, s->lines, tokens, units * CPU_UNIT_COLUMNS);
}

static void run_few(const dx_call *call, const scratch *s, int64_t unit, int64_t units) {
  const cpu_grad_plan *plan = call->plan;
  const int64_t N = plan->shape.N, tokens = call->tokens, left = plan->shape.K - unit * CPU_UNIT_COLUMNS;
  const int64_t count = left < units * CPU_UNIT_COLUMNS ? left : units * CPU_UNIT_COLUMNS;
  memset(s->c, 0, (size_t)(tokens * ROWS_LD) * sizeof *s->c);
  for (int64_t n0 = 0; n0 < N; n0 += ROWS) {
    for (int64_t n = n0; n < n0 + ROWS && n < N; n += CPU_K_BLOCK)
      for (int64_t t = 0; t < tokens; t++)
        cpu_rows24_load(&call->dy, t, n, CPU_K_BLOCK,
                        s->dy + ((n - n0) / CPU_K_BLOCK * plan->kernels->tokens + t) * CPU_X_LD);
    for (int64_t u = 0; u < units; u += 2)
      for (int64_t n = n0; n < n0 + ROWS && n < N; n += OUTPUTS)
        multiply_spread(plan, s, n, tokens, unit + u, units - u < 2 ? 1 : 2, s->c + u * CPU_UNIT_COLUMNS);
  }
  for (int64_t t = 0; t < tokens; t++) store_row(call, t, unit * CPU_UNIT_COLUMNS, s->c + t * ROWS_LD, count);
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const dx_call *call = arg;
  const cpu_grad_plan *plan = call->plan;
  const uint32_t members = cpu_grad_members(plan, width);
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(plan->w->units, member, members, &begin, &end);
  scratch s = {.dy = plan->memory + plan->each * member};
  s.c = s.dy + DY_FLOATS;
  s.rows = s.c + C_FLOATS;
  s.lines = s.rows + 16 * ROWS_LD;
  if (call->tokens <= plan->kernels->spread_most && all_finite(&call->dy, call->tokens, s.dy)) {
    for (int64_t u = begin; u < end; u += CHUNK) run_few(call, &s, u, end - u < CHUNK ? end - u : CHUNK);
    return;
  }
  const int64_t tiles = (call->tokens + CPU_WIDE_TOKENS - 1) / CPU_WIDE_TOKENS;
  for (int64_t i = 0; i < tiles; i++) {
    int64_t first, last;
    cpu_share(call->tokens, (uint32_t)i, (uint32_t)tiles, &first, &last);
    for (int64_t u = begin; u < end; u += CHUNK)
      run_chunk(call, &s, first, last - first, u, end - u < CHUNK ? end - u : CHUNK);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  cpu_grad_plan *plan = opaque;
  dx_call call = {plan, cpu_rows24_of(plan->kernels, args[0], 0, plan->shape.N), args[1], args[0]->dims[0]};
  (void)nargs;
  (void)stream;
  if (call.tokens <= 0 || plan->shape.K == 0) return BS_OK;
  return cpu_grad_go(plan, call.tokens, run_share, &call, err);
}

static uint64_t scratch_floats(const bs_op_query *query, const cpu_grad *shape) {
  (void)query;
  (void)shape;
  return SCRATCH_FLOATS;
}

static const cpu_grad_kind kind = {.x = 1,
                                   .dy = 0,
                                   .weight = 1,
                                   .of24 = 1,
                                   .integers = 1,
                                   .size = sizeof(cpu_grad_plan),
                                   .algo = "kept24",
                                   .text = "own kernels, who keeps a column is found on the way",
                                   .floats = scratch_floats};

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  return cpu_grad_supports(&kind, state, query, answer);
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  return cpu_grad_prepare(&kind, state, exec, query, packed, out_plan, err);
}

const bs_src_loc cpu_matmul24_dx_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_matmul24_dx = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul24_dx",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels over the kept values that matmul24 has packed: f32, bf16, f16, i8",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cpu_grad_plan_free,
};
