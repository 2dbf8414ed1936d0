/* SPDX-License-Identifier: MIT
 *
 * matmul24_dx.c - dX = dY W over the packed weight of matmul24. The lists of what an output keeps are turned
 * to lists of the outputs that keep a column: 64 outputs and 32 columns at a time, for all tokens of a tile,
 * so that the kernel is that of the forward pass, the columns in the place of the outputs. A column is kept
 * by half of the outputs in the mean (by exactly half under a transposable mask); lists are filled up with
 * zero weights on a row of zeros, which leave the bits alone.
 *
 * Each member of the team owns a range of columns. Sums run upwards in n, in blocks of 64 outputs: the bits
 * do not depend on the tokens or the team. */
#include "gradient24.h"

#define CHUNK 20   /* units of a chunk: its C is 160 KiB */
#define OUTPUTS 64 /* of a block */
#define GROUPS (CPU_UNIT_COLUMNS / CPU_PANEL)
#define LISTS (GROUPS * OUTPUTS * CPU_PANEL) /* of a unit */
#define DY_FLOATS ((OUTPUTS + 1) * CPU_WIDE_TOKENS)
#define C_FLOATS (CHUNK * CPU_UNIT_COLUMNS * CPU_WIDE_TOKENS)
#define ROWS_LD (CHUNK * CPU_UNIT_COLUMNS + 16)

typedef struct dx_call {
  const cpu_grad24_plan *plan;
  cpu_rows24 dy;
  const bs_tensor *dx;
  int64_t tokens;
} dx_call;

/* What one member works in. */
typedef struct scratch {
  float *dy;     /* a block turned, [64 outputs][64 tokens], and a row of zeros */
  float *c;      /* [column][64 tokens] */
  float *values; /* lists of a unit, [group][place][16 columns] */
  uint16_t *at;  /* [column][place] */
  float *wide;   /* a unit as f32 */
  float *rows;   /* [16][ROWS_LD] */
  float *lines;
  int32_t longest[GROUPS];
} scratch;

#define SCRATCH_FLOATS \
  (DY_FLOATS + C_FLOATS + 2 * LISTS + CPU_UNIT_VALUES * CPU_PANEL + 16 * ROWS_LD + CPU_LINES24)

/* What outputs n0 .. keep of a unit, to lists by column. */
static void turn_lists(const cpu_packed24 *w, const cpu_kernels *kernels, int64_t n0, int64_t unit,
                       scratch *s) {
  int32_t used[CPU_UNIT_COLUMNS] = {0};
  for (int64_t panel = n0 / CPU_PANEL; panel < w->panels && panel < (n0 + OUTPUTS) / CPU_PANEL; panel++) {
    const uint32_t *codes = cpu_codes_at(w->codes, panel, unit);
    const float *values = (const float *)(const void *)cpu_unit_at(w, panel, unit);
    if (w->type != 0) {
      kernels->values24(s->wide, values, w->type);
      values = s->wide;
    }
    for (uint32_t lane = 0; lane < CPU_PANEL; lane++) {
      const uint16_t at = (uint16_t)((panel * CPU_PANEL - n0 + lane) * CPU_WIDE_ROW);
      uint32_t word = codes[lane];
      for (uint32_t j = 0; j < CPU_UNIT_VALUES; j++) {
        if (j % 2 == 0 && w->other) word = (word & ~15u) | cpu_code_other(word & 15u);
        const uint32_t k = j / 2 * 4 + (word & 3u), group = k / CPU_PANEL;
        const uint32_t i = (uint32_t)used[k]++;
        s->values[(group * OUTPUTS + i) * CPU_PANEL + k % CPU_PANEL] = values[j * CPU_PANEL + lane];
        s->at[k * OUTPUTS + i] = at;
        word >>= 2;
      }
    }
  }
  for (uint32_t g = 0; g < GROUPS; g++) {
    int32_t most = 0;
    for (uint32_t k = 0; k < CPU_PANEL; k++)
      if (used[g * CPU_PANEL + k] > most) most = used[g * CPU_PANEL + k];
    most = (most + 3) / 4 * 4;
    s->longest[g] = most;
    for (uint32_t k = 0; k < CPU_PANEL; k++)
      for (int32_t i = used[g * CPU_PANEL + k]; i < most; i++) {
        s->values[(g * OUTPUTS + (uint32_t)i) * CPU_PANEL + k] = 0.0f;
        s->at[(g * CPU_PANEL + k) * OUTPUTS + (uint32_t)i] = OUTPUTS * CPU_WIDE_ROW;
      }
  }
}

static void multiply_unit(const cpu_grad24_plan *plan, scratch *s, int64_t n0, int64_t unit, float *c,
                          int64_t tokens) {
  turn_lists(plan->w, plan->kernels, n0, unit, s);
  for (int64_t g = 0; g < GROUPS; g++) {
    const cpu_wide24 tile = {.x = s->dy,
                             .w = s->values + g * OUTPUTS * CPU_PANEL,
                             .at = s->at + g * CPU_PANEL * OUTPUTS,
                             .at_ld = OUTPUTS,
                             .count = s->longest[g],
                             .c = c + g * CPU_PANEL * CPU_WIDE_TOKENS,
                             .tokens = (int32_t)tokens,
                             .add = n0 > 0};
    plan->kernels->wide24(&tile);
  }
}

/* C to dX, rounded, sixteen tokens at a time. */
static void finish(const dx_call *call, const scratch *s, int64_t token, int64_t tokens, int64_t unit,
                   int64_t units) {
  const cpu_grad24_plan *plan = call->plan;
  const uint32_t type = plan->shape.x_type;
  const int64_t k0 = unit * CPU_UNIT_COLUMNS, left = plan->shape.K - k0;
  const int64_t count = left < units * CPU_UNIT_COLUMNS ? left : units * CPU_UNIT_COLUMNS;
  for (int64_t t = 0; t < tokens; t += 16) {
    for (int64_t k = 0; k < units * CPU_UNIT_COLUMNS; k += CPU_PANEL)
      plan->kernels->transpose(s->rows + k, ROWS_LD, s->c + k * CPU_WIDE_TOKENS + t, CPU_WIDE_TOKENS);
    for (int64_t i = 0; i < 16 && t + i < tokens; i++) {
      const int64_t at = (token + t + i) * call->dx->strides[0] + plan->begin + k0;
      plan->kernels->store[cpu_type_index(type)](
          (uint8_t *)call->dx->data + (size_t)at * BS_DTYPE_BYTES(type), s->rows + i * ROWS_LD, count);
    }
  }
}

static void run_chunk(const dx_call *call, scratch *s, int64_t token, int64_t tokens, int64_t unit,
                      int64_t units) {
  const cpu_grad24_plan *plan = call->plan;
  if (plan->shape.N == 0) memset(s->c, 0, C_FLOATS * sizeof *s->c);
  for (int64_t n0 = 0; n0 < plan->shape.N; n0 += OUTPUTS) {
    cpu_rows24_turn(&call->dy, token, tokens, n0, s->lines, s->dy);
    for (int64_t u = 0; u < units; u++)
      multiply_unit(plan, s, n0, unit + u, s->c + u * CPU_UNIT_COLUMNS * CPU_WIDE_TOKENS, tokens);
  }
  finish(call, s, token, tokens, unit, units);
}

static void run_share(void *arg, uint32_t member, uint32_t width) {
  const dx_call *call = arg;
  const cpu_grad24_plan *plan = call->plan;
  const uint32_t members = width < plan->width ? width : plan->width;
  int64_t begin, end;
  if (member >= members) return;
  cpu_share(plan->w->units, member, members, &begin, &end);
  scratch s = {.dy = plan->memory + plan->each * member};
  s.c = s.dy + DY_FLOATS;
  s.values = s.c + C_FLOATS;
  s.at = (uint16_t *)(void *)(s.values + LISTS);
  s.wide = s.values + 2 * LISTS;
  s.rows = s.wide + CPU_UNIT_VALUES * CPU_PANEL;
  s.lines = s.rows + 16 * ROWS_LD;
  memset(s.dy + OUTPUTS * CPU_WIDE_TOKENS, 0, CPU_WIDE_TOKENS * sizeof *s.dy);
  const int64_t tiles = (call->tokens + CPU_WIDE_TOKENS - 1) / CPU_WIDE_TOKENS;
  for (int64_t i = 0; i < tiles; i++) {
    int64_t first, last;
    cpu_share(call->tokens, (uint32_t)i, (uint32_t)tiles, &first, &last);
    for (int64_t u = begin; u < end; u += CHUNK)
      run_chunk(call, &s, first, last - first, u, end - u < CHUNK ? end - u : CHUNK);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cpu_grad24_plan *plan = opaque;
  dx_call call = {plan, cpu_rows24_of(plan->kernels, args[0], 0, plan->shape.N), args[1], args[0]->dims[0]};
  (void)nargs;
  (void)stream;
  if (call.tokens <= 0 || plan->shape.K == 0) return BS_OK;
  return cpu_grad24_go(plan, call.tokens, run_share, &call, err);
}

static int read_query(const bs_op_query *query, cpu_grad *out, bs_op_answer *answer) {
  if (!cpu_grad24_read(query, 1, 0, out, answer)) return 0;
  if (cpu_is_matmul_type(query->weight_dtype)) return 1;
  return cpu_answer_no(answer, BS_REASON_DTYPE, "weight of dtype 0x%04x: f32, bf16 and f16 only",
                       query->weight_dtype);
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *answer) {
  cpu_grad shape;
  if (read_query(query, &shape, answer))
    cpu_grad24_yes(state, query, SCRATCH_FLOATS, "own kernels, kept weights listed by column on the way",
                   answer);
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  cpu_grad shape;
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  if (!read_query(query, &shape, &answer))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-MATMUL", "%s", answer.text);
  return cpu_grad24_plan_make(state, exec, query, &shape, packed, 1, SCRATCH_FLOATS, out_plan, err);
}

const bs_op_impl cpu_matmul24_dx = {
    .struct_size = sizeof(bs_op_impl),
    .priority = 20,
    .op = "matmul24_dx",
    .backend = "cpu",
    .name = "packed",
    .summary = "own kernels over the kept values that matmul24 has packed",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = cpu_grad24_plan_free,
};
