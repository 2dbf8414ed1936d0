/* SPDX-License-Identifier: MIT
 *
 * attention_dx.c - dQ, dK and dV of attention, sums in fp32. Work is cut into blocks of 96 queries of a head,
 * which give dQ, and blocks of 96 keys of a group, which give dK and dV. Each block computes the scores that
 * it needs again, in tiles of 128 of the other side, in order: the bits depend neither on the team nor on the
 * call. A row whose result is NaN is computed again in doubles, pair by pair (attention_dx_exact.c): a key
 * that is not seen must not affect the result, for any K and V. */
#include <math.h>
#include <stdlib.h>

#include "attention_dx.h"

enum { SIDE = 128 }; /* of the other side in a tile */

/* ---- queries ---------------------------------------------------------------------------------- */

static int last_adjacent(const bs_tensor_desc *d) {
  int given = 0;
  for (uint32_t i = 0; i < d->rank; i++) given |= d->strides[i] != 0;
  return !given || d->dims[d->rank - 1] <= 1 || d->strides[d->rank - 1] == 1;
}

static int read_query(const bs_op_query *q, bs_op_answer *answer) {
  for (uint32_t i = 0; i < DX_ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL || i == DX_LENGTHS || i == DX_LSE) continue;
    if (cpu_wide_index(d->dtype) < 0 && !(i == DX_MASK && d->dtype == BS_BOOL))
      return cpu_answer_no(answer, BS_REASON_DTYPE, "arg %u of dtype 0x%04x: f32, bf16, f16 and fp8 only", i,
                           d->dtype);
    if (i != DX_MASK && !last_adjacent(d))
      return cpu_answer_no(answer, BS_REASON_LAYOUT, "arg %u has element stride %lld, need 1", i,
                           (long long)d->strides[3]);
  }
  const int64_t D = q->args[DX_Q]->dims[3], E = q->args[DX_V]->dims[3];
  if (D < 1 || E < 1 || D > CPU_ATTEND_WIDTH || E > CPU_ATTEND_WIDTH)
    return cpu_answer_no(answer, BS_REASON_SHAPE, "rows of %lld and %lld elements: 1 to %d", (long long)D,
                         (long long)E, CPU_ATTEND_WIDTH);
  if (q->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "accumulates in f32; the ref backend has f64");
  return 1;
}

/* Floats of a member's scratch: rows of both inputs of a block and of its scores and slopes; panels of a
 * tile, turned and as they are; sums; a tile's vectors; rows to convert. */
static void pieces(int64_t D, int64_t E, int64_t floats[DX_PIECES]) {
  const int64_t d = cpu_up16(D), e = cpu_up16(E);
  for (int i = DX_LEFT; i <= DX_SLOPES; i++) floats[i] = CPU_PANEL_ROWS * CPU_X_LD;
  floats[DX_TURNED] = floats[DX_PLAIN] = SIDE * d;
  floats[DX_TURNED_GRAD] = floats[DX_PLAIN_GRAD] = SIDE * e;
  floats[DX_SUMS] = CPU_PANEL_ROWS * d;
  floats[DX_SUMS_GRAD] = CPU_PANEL_ROWS * e;
  floats[DX_VECTORS] = (int64_t)4 * SIDE;
  floats[DX_ROW] = (int64_t)16 * CPU_ATTEND_WIDTH;
}

static uint64_t member_bytes(int64_t D, int64_t E) {
  int64_t floats[DX_PIECES], all = 0;
  pieces(D, E, floats);
  for (int i = 0; i < DX_PIECES; i++) all += floats[i];
  return (uint64_t)all * sizeof(float);
}

static int32_t supports(void *opaque, const bs_op_query *q, bs_op_answer *answer) {
  (void)opaque;
  if (!read_query(q, answer)) return BS_OK;
  const uint64_t bytes = member_bytes(q->args[DX_Q]->dims[3], q->args[DX_V]->dims[3]);
  if (!cpu_workspace_fits(q, bytes, answer)) return BS_OK;
  cpu_answer_yes(answer, 800, BS_TOL_ACC_F32, "tiles", "scores made again in tiles");
  return BS_OK;
}

/* ---- knobs ------------------------------------------------------------------------------------ */

static const bs_knob *const knobs[] = {&cpu_knob_threads};

static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const cpu_dx *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  bs_echo_int(&mine, "threads", plan->told_threads);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

static dx_call cut(const cpu_dx *plan, const int64_t *q, const int64_t *k) {
  dx_call call = {.plan = plan, .B = q[0], .H = q[1], .G = k[1], .S = q[2], .T = k[2]};
  call.S_blocks = (call.S + CPU_PANEL_ROWS - 1) / CPU_PANEL_ROWS;
  call.T_blocks = (call.T + CPU_PANEL_ROWS - 1) / CPU_PANEL_ROWS;
  call.items = call.B * (call.H * call.S_blocks + call.G * call.T_blocks);
  const double products = (double)(call.B * call.H * call.S) * (double)call.T * (double)(plan->D + plan->E);
  call.alone = !plan->woken && products < CPU_ATTEND_ALONE;
  return call;
}

static int32_t count_members(cpu_dx *plan, const bs_op_query *q, bs_error *err) {
  plan->woken = bs_knob_int(q->knobs, "threads", 0) != 0;
  plan->width = cpu_workspace_members(q, plan->member_bytes, plan->exec->width);
  if (plan->width == 0) plan->width = 1;
  const int32_t rc = cpu_knob_members(q, plan->width, &plan->width, err);
  if (rc != BS_OK) return rc;
  const dx_call call = cut(plan, q->args[DX_Q]->dims, q->args[DX_K]->dims);
  return cpu_knob_busy(q, call.items, call.alone, plan->width, &plan->told_threads, err);
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  const cpu_state *state = opaque;
  (void)packed;
  int32_t rc = cpu_require(supports, opaque, q, err);
  if (rc != BS_OK) return rc;
  cpu_dx *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  plan->exec = exec;
  plan->kernels = &state->kernels;
  plan->scale = q->numbers[0];
  plan->softcap = q->numbers[1];
  plan->causal = q->attrs[0];
  plan->left = q->attrs[1];
  plan->right = q->attrs[2];
  plan->D = q->args[DX_Q]->dims[3];
  plan->E = q->args[DX_V]->dims[3];
  plan->member_bytes = member_bytes(plan->D, plan->E);
  rc = count_members(plan, q, err);
  if (rc == BS_OK) rc = cpu_reserve(exec, plan->member_bytes * plan->width, err);
  if (rc != BS_OK)
    free(plan);
  else
    *out_plan = plan;
  return rc;
}

/* ---- a block ---------------------------------------------------------------------------------- */

static const uint8_t *row_of(const dx_block *b, uint32_t arg, int64_t head, int64_t row) {
  return cpu_row_at(&b->call->t[arg], b->batch, head, row);
}

static float dot(const float *a, const float *b, int64_t n) {
  float sum = 0.0f;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

void cpu_dx_bounds(const dx_call *call, int64_t i, int64_t length, int64_t *out_first, int64_t *out_end) {
  const cpu_dx *plan = call->plan;
  const int64_t at = i + (plan->causal == BS_CAUSAL_LOWER_RIGHT ? length - call->S : 0);
  int64_t end = length;
  if (plan->causal != BS_CAUSAL_NONE && at + 1 < end) end = at + 1;
  if (plan->right > 0 && plan->right < end - at) end = at + plan->right;
  *out_first = plan->left > 0 && plan->left <= at ? at - plan->left + 1 : 0;
  *out_end = end > *out_first ? end : *out_first;
}

float cpu_dx_mask(const dx_call *call, int64_t b, int64_t h, int64_t i, int64_t j) {
  const cpu_rows4 *m = &call->t[DX_MASK];
  float value = 0.0f;
  if (m->data == NULL) return 0.0f;
  const uint8_t *at = cpu_row_at(m, b, h, i) + j * m->strides[3] * (int64_t)m->size;
  if (m->type == CPU_BOOL) return *at != 0 ? 0.0f : -INFINITY;
  call->plan->kernels->load[m->type](&value, at, 1);
  return value;
}

float cpu_dx_lse(const dx_call *call, int64_t b, int64_t h, int64_t i) {
  const bs_tensor *lse = call->lse;
  return ((const float *)lse->data)[b * lse->strides[0] + h * lse->strides[1] + i * lse->strides[2]];
}

/* LSE of query i and dY . Y. */
static void query_numbers(const dx_block *b, int64_t head, int64_t i, float *out_lse, float *out_delta) {
  const cpu_dx *plan = b->call->plan;
  const cpu_rows4 *t = b->call->t;
  float *y = b->row, *dy = b->row + CPU_ATTEND_WIDTH;
  plan->kernels->load[t[DX_Y].type](y, row_of(b, DX_Y, head, i), plan->E);
  plan->kernels->load[t[DX_DY].type](dy, row_of(b, DX_DY, head, i), plan->E);
  *out_lse = cpu_dx_lse(b->call, b->batch, head, i);
  *out_delta = dot(y, dy, plan->E);
}

/* Processes a row of a block with n of a tile: scores in s become powers, dY . V in ds becomes dS. lse, delta
 * and mask have one value a pair; mask -INFINITY: not seen. */
static void weigh_row(const cpu_dx *plan, float *s, float *ds, const float *lse, const float *delta,
                      const float *mask, int64_t n) {
  const float scale = (float)plan->scale, cap = (float)plan->softcap;
  for (int64_t j = 0; j < n; j++) {
    float x = s[j] * scale;
    ds[j] -= delta[j];
    if (cap > 0.0f) {
      const float t = tanhf(x / cap);
      x = cap * t;
      ds[j] *= 1.0f - t * t;
    }
    x += mask[j] - lse[j];
    s[j] = mask[j] == -INFINITY ? -INFINITY : x > 80.0f ? NAN : x; /* NaN: in doubles */
  }
  (void)plan->kernels->rows->powers(s, s, 0.0f, n);
  for (int64_t j = 0; j < n; j++) ds[j] = s[j] == 0.0f ? 0.0f : s[j] * ds[j];
}

/* The vectors of block row r for the tile first..first+n of the other side, for queries and for keys. */
static void query_vectors(const dx_block *b, int64_t r, int64_t first, int64_t n, float *v[3]) {
  const int64_t i = b->first + r;
  float lse, delta;
  int64_t from, end;
  query_numbers(b, b->head, i, &lse, &delta);
  cpu_dx_bounds(b->call, i, b->length, &from, &end);
  for (int64_t j = 0; j < n; j++) {
    const int seen = first + j >= from && first + j < end && lse != -INFINITY;
    v[0][j] = seen ? lse : 0.0f;
    v[1][j] = delta;
    v[2][j] = seen ? cpu_dx_mask(b->call, b->batch, b->head, i, first + j) : -INFINITY;
  }
}

static void key_vectors(const dx_block *b, int64_t r, int64_t head, int64_t first, int64_t n, float *v[3]) {
  const int64_t key = b->first + r;
  for (int64_t j = 0; j < n; j++) {
    int64_t from, end;
    cpu_dx_bounds(b->call, first + j, b->length, &from, &end);
    const int seen = key >= from && key < end && b->lse[j] != -INFINITY;
    v[0][j] = seen ? b->lse[j] : 0.0f;
    v[1][j] = b->delta[j];
    v[2][j] = seen ? cpu_dx_mask(b->call, b->batch, head, first + j, key) : -INFINITY;
  }
}

static void load_rows(const dx_block *b, uint32_t arg, int64_t head, int64_t n, float *out) {
  const cpu_kernels *kernels = b->call->plan->kernels;
  for (int64_t r = 0; r < b->count; r++) {
    kernels->load[b->call->t[arg].type](out + r * CPU_X_LD, row_of(b, arg, head, b->first + r), n);
    for (int64_t x = n; x < cpu_up16(n); x++) out[r * CPU_X_LD + x] = 0.0f;
  }
}

static cpu_lines lines_of(const dx_block *b, uint32_t arg, int64_t head, int64_t first) {
  const cpu_rows4 *t = &b->call->t[arg];
  return (cpu_lines){cpu_row_at(t, b->batch, head, first), t->type, t->size, t->strides[2], 1};
}

/* One tile of the other side: rows first..first+n of `turned` (D wide) and `grad` (E wide) of `head`. The
 * sums of its rows by dS and, of keys, of dY by P. */
static void one_tile(dx_block *b, uint32_t side, uint32_t grad, int64_t head, int64_t first, int64_t n) {
  const cpu_dx *plan = b->call->plan;
  const cpu_kernels *kernels = plan->kernels;
  const int64_t wide = cpu_up16(n), d = cpu_up16(plan->D), e = cpu_up16(plan->E);
  const cpu_lines left = lines_of(b, side, head, first), right = lines_of(b, grad, head, first);
  float *v[3] = {b->at[DX_VECTORS], b->at[DX_VECTORS] + SIDE, b->at[DX_VECTORS] + (size_t)2 * SIDE};
  cpu_panels_turn(kernels, &left, 0, plan->D, 0, n, b->row, b->at[DX_TURNED]);
  cpu_panels_turn(kernels, &right, 0, plan->E, 0, n, b->row, b->at[DX_TURNED_GRAD]);
  cpu_panels_copy(kernels, &left, 0, n, 0, plan->D, b->row, b->at[DX_PLAIN]);
  if (b->keys) cpu_panels_copy(kernels, &right, 0, n, 0, plan->E, b->row, b->at[DX_PLAIN_GRAD]);
  cpu_panels_multiply(kernels, b->at[DX_LEFT], b->at[DX_TURNED], plan->D, wide, b->at[DX_SCORES], CPU_X_LD,
                      b->count, 0);
  cpu_panels_multiply(kernels, b->at[DX_RIGHT], b->at[DX_TURNED_GRAD], plan->E, wide, b->at[DX_SLOPES],
                      CPU_X_LD, b->count, 0);
  for (int64_t j = 0; b->keys && j < n; j++) query_numbers(b, head, first + j, &b->lse[j], &b->delta[j]);
  for (int64_t r = 0; r < b->count; r++) {
    if (b->keys)
      key_vectors(b, r, head, first, n, v);
    else
      query_vectors(b, r, first, n, v);
    weigh_row(plan, b->at[DX_SCORES] + r * CPU_X_LD, b->at[DX_SLOPES] + r * CPU_X_LD, v[0], v[1], v[2], n);
  }
  cpu_panels_multiply(kernels, b->at[DX_SLOPES], b->at[DX_PLAIN], n, d, b->at[DX_SUMS], d, b->count, 1);
  if (b->keys)
    cpu_panels_multiply(kernels, b->at[DX_SCORES], b->at[DX_PLAIN_GRAD], n, e, b->at[DX_SUMS_GRAD], e,
                        b->count, 1);
}

static int has_nan(const float *v, int64_t n) {
  int found = 0;
  for (int64_t i = 0; i < n; i++) found |= v[i] != v[i];
  return found;
}

static void store_row(const dx_block *b, uint32_t arg, int64_t head, int64_t row, const float *from,
                      int64_t n) {
  b->call->plan->kernels->store[b->call->t[arg].type]((uint8_t *)(uintptr_t)row_of(b, arg, head, row), from,
                                                      n);
}

static void write_rows(const dx_block *b) {
  const cpu_dx *plan = b->call->plan;
  const int64_t d = cpu_up16(plan->D), e = cpu_up16(plan->E);
  for (int64_t r = 0; r < b->count; r++) {
    float *sums = b->at[DX_SUMS] + r * d, *grad = b->at[DX_SUMS_GRAD] + r * e;
    plan->kernels->attend_scale(sums, (float)plan->scale, d);
    if (has_nan(sums, plan->D) || (b->keys && has_nan(grad, plan->E)))
      cpu_dx_exact(b, b->first + r, sums, grad);
    store_row(b, b->keys ? DX_DK : DX_DQ, b->head, b->first + r, sums, plan->D);
    if (b->keys) store_row(b, DX_DV, b->head, b->first + r, grad, plan->E);
  }
}

/* Pairs a head's queries with its group's keys, or a group's keys with the queries of all its heads. */
static void one_block(dx_block *b) {
  const dx_call *call = b->call;
  const cpu_dx *plan = call->plan;
  const int64_t repeat = call->H / call->G;
  memset(b->at[DX_SUMS], 0, (size_t)(CPU_PANEL_ROWS * cpu_up16(plan->D)) * sizeof(float));
  memset(b->at[DX_SUMS_GRAD], 0, (size_t)(CPU_PANEL_ROWS * cpu_up16(plan->E)) * sizeof(float));
  if (!b->keys) {
    load_rows(b, DX_Q, b->head, plan->D, b->at[DX_LEFT]);
    load_rows(b, DX_DY, b->head, plan->E, b->at[DX_RIGHT]);
    int64_t from, to, ignored;
    cpu_dx_bounds(call, b->first, b->length, &from, &ignored);
    cpu_dx_bounds(call, b->first + b->count - 1, b->length, &ignored, &to);
    to = to < b->length ? to : b->length;
    for (int64_t j = from; j < to; j += SIDE)
      one_tile(b, DX_K, DX_V, b->head / repeat, j, to - j < SIDE ? to - j : SIDE);
  } else if (b->first < b->length) {
    load_rows(b, DX_K, b->head, plan->D, b->at[DX_LEFT]);
    load_rows(b, DX_V, b->head, plan->E, b->at[DX_RIGHT]);
    for (int64_t h = b->head * repeat; h < (b->head + 1) * repeat; h++)
      for (int64_t i = 0; i < call->S; i += SIDE) {
        const int64_t n = call->S - i < SIDE ? call->S - i : SIDE;
        int64_t from, to, ignored;
        cpu_dx_bounds(call, i, b->length, &from, &ignored);
        cpu_dx_bounds(call, i + n - 1, b->length, &ignored, &to);
        if (to > b->first && from < b->first + b->count) one_tile(b, DX_Q, DX_DY, h, i, n);
      }
  }
  write_rows(b);
}

/* ---- the team --------------------------------------------------------------------------------- */

static void begin_block(const dx_call *call, int64_t item, uint8_t *scratch, dx_block *b) {
  const int64_t blocks = call->S_blocks * call->H, all = call->B * blocks;
  int64_t floats[DX_PIECES];
  *b = (dx_block){.call = call, .keys = item >= all};
  const int64_t heads = b->keys ? call->G : call->H, each = b->keys ? call->T_blocks : call->S_blocks;
  const int64_t at = b->keys ? item - all : item, size = b->keys ? call->T : call->S;
  b->batch = at / each / heads;
  b->head = at / each % heads;
  b->first = at % each * CPU_PANEL_ROWS;
  b->count = size - b->first < CPU_PANEL_ROWS ? size - b->first : CPU_PANEL_ROWS;
  b->length = call->lengths != NULL ? call->lengths[b->batch * call->lengths_step] : call->T;
  b->length = b->length < 0 ? 0 : b->length > call->T ? call->T : b->length;
  pieces(call->plan->D, call->plan->E, floats);
  for (int i = 0; i < DX_PIECES; i++) {
    b->at[i] = (float *)(void *)scratch;
    scratch += floats[i] * (int64_t)sizeof(float);
  }
  b->row = b->at[DX_ROW];
}

static void share(void *arg, uint32_t member, uint32_t width) {
  const dx_call *call = arg;
  const uint32_t members = width < call->plan->width ? width : call->plan->width;
  if (member >= members) return;
  for (int64_t i = member; i < call->items; i += members) {
    dx_block b;
    begin_block(call, i, call->scratch + call->plan->member_bytes * member, &b);
    one_block(&b);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cpu_dx *plan = opaque;
  (void)nargs;
  (void)stream;
  dx_call call = cut(plan, args[DX_Q]->dims, args[DX_K]->dims);
  call.lse = args[DX_LSE];
  for (uint32_t i = 0; i < DX_ARGS; i++)
    if (i != DX_LENGTHS && i != DX_LSE) call.t[i] = cpu_rows4_of(args[i]);
  if (args[DX_LENGTHS] != NULL) {
    call.lengths = args[DX_LENGTHS]->data;
    call.lengths_step = args[DX_LENGTHS]->dims[0] == 1 ? 0 : args[DX_LENGTHS]->strides[0];
  }
  if (call.items == 0) return BS_OK;
  call.scratch = plan->exec->scratch(plan->exec->ctx);
  return cpu_team(plan->exec, call.alone || plan->width == 1, share, &call, err);
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_src_loc cpu_attention_dx_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_attention_dx = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "attention_dx",
    .backend = "cpu",
    .name = "tiles",
    .summary = "dQ, dK and dV of attention by tiles",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
    .n_knobs = sizeof knobs / sizeof knobs[0],
    .knobs = knobs,
    .echo = echo,
};
