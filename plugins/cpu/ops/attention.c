/* SPDX-License-Identifier: MIT
 *
 * attention.c - attention of f32, bf16, f16 and fp8, sums in fp32. Work is cut into blocks of queries of all
 * heads that share a K and V; members take one block after the other. If there are fewer blocks of few
 * queries than members (a decoding step), the keys of a block are cut too, and the parts are merged in their
 * order. bf16 uses the tiles of AMX or the processor's own products of pairs if available; then powers are
 * rounded to bf16. A row whose result is NaN is computed again, key by key: a masked key must not affect the
 * result, for any K and V. */
#include "attention.h"

#include <math.h>
#include <stdlib.h>

#define LOG2E 1.44269504088896340736
#define LN2 0.69314718055994530942
#define CPU_INFINITY_BITS 0x7f800000 /* NaN lies above it (kernels->largest) */

/* ---- queries ---------------------------------------------------------------------------------- */

static int last_adjacent(const bs_tensor_desc *d) {
  int given = 0;
  for (uint32_t i = 0; i < d->rank; i++) given |= d->strides[i] != 0;
  return !given || d->dims[d->rank - 1] <= 1 || d->strides[d->rank - 1] == 1;
}

static int read_query(const bs_op_query *q, bs_op_answer *answer) {
  static const char *const names[] = {"Q", "K", "V", "mask", "kv_len", "descale", "Y", "LSE"};
  for (uint32_t i = 0; i < CPU_ATTENTION_ARGS; i++) {
    const bs_tensor_desc *d = q->args[i];
    if (d == NULL || i == CPU_LENGTHS || i == CPU_DESCALE || i == CPU_LSE) continue;
    if (cpu_wide_index(d->dtype) < 0 && !(i == CPU_MASK && d->dtype == BS_BOOL))
      return cpu_answer_no(answer, BS_REASON_DTYPE, "%s of dtype 0x%04x: f32, bf16, f16 and fp8 only",
                           names[i], d->dtype);
    if (!last_adjacent(d) && !(i == CPU_MASK && d->strides[3] == 0))
      return cpu_answer_no(answer, BS_REASON_LAYOUT, "%s has element stride %lld, need 1", names[i],
                           (long long)d->strides[3]);
  }
  const int64_t D = q->args[CPU_Q]->dims[3], E = q->args[CPU_V]->dims[3];
  if (D < 1 || E < 1 || D > CPU_ATTEND_WIDTH || E > CPU_ATTEND_WIDTH)
    return cpu_answer_no(answer, BS_REASON_SHAPE, "rows of %lld and %lld elements: 1 to %d", (long long)D,
                         (long long)E, CPU_ATTEND_WIDTH);
  if (q->accumulate == BS_ACC_F64)
    return cpu_answer_no(answer, BS_REASON_DTYPE, "accumulates in f32; the ref backend has f64");
  return 1;
}

/* ---- knobs ------------------------------------------------------------------------------------ */

static const bs_knob rows_knob = {
    .struct_size = sizeof(bs_knob),
    .name = "rows",
    .values = "48:384*2",
    .standard = "auto",
    .summary =
        "queries of a block, whose keys are made panels once; auto: up to 192, 96 behind a causal mask, "
        "and fewer where members would have none; more than one block of all is refused",
};
static const bs_knob keys_knob = {
    .struct_size = sizeof(bs_knob),
    .name = "keys",
    .values = "64:256*2",
    .standard = "auto",
    .summary = "keys of a tile; auto: 128; more than one tile of all is refused",
};
static const bs_knob split_knob = {
    .struct_size = sizeof(bs_knob),
    .name = "split",
    .values = "1:64*2",
    .standard = "auto",
    .summary =
        "parts of the keys of up to 8 queries; auto: one a member that would have none; refused where "
        "members or tiles are fewer, and 2 and more of more queries",
};
static const bs_knob exp_knob = {
    .struct_size = sizeof(bs_knob),
    .name = "exp",
    .values = "exact,fast",
    .standard = "auto",
    .summary =
        "powers within 2 ulp, or within 1.1e-4 of their value; auto: fast where they are rounded to bf16",
};
static const bs_knob *const knobs[] = {&rows_knob, &keys_knob, &split_knob, &exp_knob, &cpu_knob_threads};

static void read_knobs(const bs_op_query *q, cpu_attention *plan) {
  char word[8];
  plan->rows = bs_knob_int(q->knobs, "rows", 0);
  plan->keys = bs_knob_int(q->knobs, "keys", CPU_ATTEND_KEYS);
  plan->split = bs_knob_int(q->knobs, "split", 0);
  plan->woken = bs_knob_int(q->knobs, "threads", 0) != 0;
  plan->fast = plan->pairs;
  if (bs_knob_find(q->knobs, "exp", word, sizeof word)) plan->fast = strcmp(word, "fast") == 0;
}

/* Reports the values that "auto" took for the plan's query. */
static int32_t echo(const void *opaque, bs_op_echo *out_echo) {
  const cpu_attention *plan = opaque;
  bs_op_echo mine;
  bs_echo_begin(&mine);
  bs_echo_int(&mine, "rows", plan->told_rows);
  bs_echo_int(&mine, "keys", plan->told_keys);
  bs_echo_int(&mine, "split", plan->told_split);
  bs_echo_word(&mine, "exp", plan->fast ? "fast" : "exact");
  bs_echo_int(&mine, "threads", plan->told_threads);
  bs_out_copy(out_echo, &mine, sizeof mine);
  return BS_OK;
}

/* Groups of heads that share a K and V, queries of one, and the most keys from the first to the last that
 * they see; `alone`: too little work to wake the team for, unless threads were given. */
typedef struct extent {
  int64_t groups, rows, keys;
  int alone;
} extent;

static extent extent_of(const cpu_attention *plan, const int64_t *q, const int64_t *k) {
  const int64_t B = q[0], H = q[1], S = q[2], T = k[2];
  const double products = (double)(B * H * S) * (double)T * (double)(plan->D + plan->E);
  extent e = {B * k[1], k[1] > 0 ? H / k[1] * S : 0, T, !plan->woken && products < CPU_ATTEND_ALONE};
  if (plan->causal == BS_CAUSAL_UPPER_LEFT && S < e.keys) e.keys = S;
  const int64_t right = plan->causal != BS_CAUSAL_NONE ? 1 : plan->right; /* 0: to the end */
  if (plan->left > 0 && right > 0 && plan->left - 1 < T && right - 1 < T &&
      plan->left + right + S - 2 < e.keys)
    e.keys = plan->left + right + S - 2;
  return e;
}

/* All tiles of a group of more than one block, as far as there is room for them. */
static int64_t tiles_to_keep(const cpu_attention *plan, const bs_op_query *q) {
  const extent e = extent_of(plan, q->args[CPU_Q]->dims, q->args[CPU_K]->dims);
  if (q->workspace_limit != 0 || e.rows <= CPU_ATTEND_LEAST || plan->keys <= 0) return 0;
  const int64_t tiles = (q->args[CPU_K]->dims[2] + plan->keys - 1) / plan->keys;
  return tiles <= CPU_ATTEND_KEPT / (cpu_k_bytes(plan) + cpu_v_bytes(plan)) ? tiles : 0;
}

/* The most queries of a block, whole groups of 16 for the tiles of AMX: no more than a group has. */
static int64_t room_of(const cpu_attention *plan, const bs_op_query *q) {
  const int64_t most = plan->rows != 0 ? plan->rows : CPU_ATTEND_ROWS;
  const int64_t rows = cpu_up16(extent_of(plan, q->args[CPU_Q]->dims, q->args[CPU_K]->dims).rows);
  return rows < 16 ? 16 : rows < most ? rows : most;
}

/* Reads a query into a plan without its team. */
static void read_plan(const cpu_state *state, const bs_op_query *q, cpu_attention *plan) {
  const int bf16 = q->args[CPU_Q]->dtype == BS_BF16 && q->args[CPU_K]->dtype == BS_BF16 &&
                   q->args[CPU_V]->dtype == BS_BF16;
  plan->kernels = &state->kernels;
  plan->scale = q->numbers[0];
  plan->softcap = (float)q->numbers[1];
  plan->causal = q->attrs[0];
  plan->left = q->attrs[1];
  plan->right = q->attrs[2];
  plan->nan_gives_0 = q->attrs[3] != 0;
  plan->D = q->args[CPU_Q]->dims[3];
  plan->E = q->args[CPU_V]->dims[3];
  plan->tokenwise = (q->flags & BS_QUERY_TOKENWISE) != 0;
  plan->pairs = bf16 && q->accumulate != BS_ACC_F32 && !plan->tokenwise &&
                (state->kernels.dot != NULL || state->kernels.amx != NULL);
  plan->amx = plan->pairs ? state->kernels.amx : NULL;
  plan->unit = plan->amx != NULL ? CPU_AMX_COLUMNS : plan->pairs ? 2 : 1;
  plan->chunk = plan->amx != NULL ? CPU_ATTEND_CHUNK_AMX : CPU_ATTEND_CHUNK;
  plan->x_ld = plan->amx != NULL ? CPU_ATTEND_LD_AMX : CPU_X_LD;
  read_knobs(q, plan);
  plan->room = room_of(plan, q);
  plan->kept = tiles_to_keep(plan, q);
}

/* Floats of each piece of a member's scratch, in their order (place_scratch). */
enum { PIECE_Q, PIECE_S, PIECE_P, PIECE_K, PIECE_V, PIECE_SUMS, PIECE_MOST, PIECE_TOTALS, PIECE_ROW, PIECES };
static uint64_t pieces_of(const cpu_attention *plan, int64_t floats[PIECES]) {
  const int64_t wide_e = cpu_up16(plan->E), rows = plan->room, tiles = plan->kept > 0 ? plan->kept : 1;
  int64_t all = 0;
  floats[PIECE_Q] = rows * CPU_X_LD;
  floats[PIECE_S] = plan->chunk * CPU_X_LD;
  floats[PIECE_P] = plan->pairs ? plan->chunk * plan->x_ld / 2 : 0;
  floats[PIECE_K] = tiles * cpu_k_bytes(plan) / 4;
  floats[PIECE_V] = tiles * cpu_v_bytes(plan) / 4;
  if (floats[PIECE_V] < plan->keys * wide_e) floats[PIECE_V] = plan->keys * wide_e; /* rows of f32, of few */
  floats[PIECE_SUMS] = rows * wide_e;
  floats[PIECE_MOST] = rows;
  floats[PIECE_TOTALS] = rows * CPU_ATTEND_LANES;
  floats[PIECE_ROW] = (int64_t)16 * CPU_ATTEND_WIDTH;
  for (int i = 0; i < PIECES; i++) {
    floats[i] = cpu_up16(floats[i]);
    all += floats[i];
  }
  return (uint64_t)all * sizeof(float);
}

/* ---- how the work is cut ---------------------------------------------------------------------- */

/* The least of value, value / 2, ... least that is at least n if value is: they all cut n alike. */
static int64_t least_alike(int64_t value, int64_t least, int64_t n) {
  while (value / 2 >= least && value / 2 >= n) value /= 2;
  return value;
}
static int64_t rows_alike(int64_t each, const extent *e) {
  return least_alike(each, CPU_ATTEND_LEAST, e->rows);
}
static int64_t keys_alike(int64_t keys, const extent *e) {
  return least_alike(keys, CPU_ATTEND_LEAST_KEYS, e->keys);
}

/* Parts that the keys can be cut into by whole tiles. */
static int64_t most_parts(const cpu_attention *plan, const extent *e) {
  const int64_t tiles = (e->keys + plan->keys - 1) / plan->keys;
  return e->rows > CPU_ATTEND_FEW || tiles < 1 ? 1 : tiles;
}

/* Parts of the keys of few queries, which are one block a group: as many as have a member. */
static int64_t parts_of_keys(const cpu_attention *plan, const extent *e) {
  int64_t parts = plan->split, most = most_parts(plan, e);
  if (e->groups < 1) return 1;
  if (plan->tokenwise) return 1; /* not by the members */
  if (plan->split == 0) {
    parts = plan->width / e->groups;
    most = e->alone || e->rows > CPU_ATTEND_FEW ? 1 : e->keys / CPU_ATTEND_SPLIT;
  }
  if (parts > most) parts = most;
  if (parts > plan->width / e->groups) parts = plan->width / e->groups;
  return parts < 1 ? 1 : parts;
}

/* Queries of a block: as the plan says, or so few that every member has a block. With a causal mask whole
 * blocks and tiles of keys are skipped: smaller ones skip more. */
static int64_t rows_of_block(const cpu_attention *plan, const extent *e) {
  if (plan->rows != 0) return plan->rows;
  int64_t each = plan->causal != BS_CAUSAL_NONE ? CPU_ATTEND_ROWS / 2 : CPU_ATTEND_ROWS;
  while (each > CPU_ATTEND_LEAST && e->groups * ((e->rows + each - 1) / each) < plan->width) each /= 2;
  return each;
}

/* Values of knobs that change bits: tiles of other keys, fast powers, parts of the keys. */
static int bits_are_kept(const cpu_attention *plan, bs_op_answer *answer) {
  if (!plan->tokenwise || (plan->keys == CPU_ATTEND_KEYS && !plan->fast && plan->split <= 1)) return 1;
  return cpu_answer_no(answer, BS_REASON_DISABLED, "token by token keys=%d, exp=exact and split=1 only",
                       CPU_ATTEND_KEYS);
}

/* Values that would cut these queries and keys as smaller ones do are refused: they are no plans of their
 * own. */
static int knobs_are_kept(const cpu_attention *plan, const bs_op_query *q, bs_op_answer *answer) {
  const extent e = extent_of(plan, q->args[CPU_Q]->dims, q->args[CPU_K]->dims);
  const int64_t rows = rows_alike(plan->rows, &e), keys = keys_alike(plan->keys, &e),
                parts = most_parts(plan, &e);
  if (rows != plan->rows)
    return cpu_answer_no(answer, BS_REASON_SHAPE,
                         "rows=%lld: the %lld queries that share a K are one block of rows=%lld",
                         (long long)plan->rows, (long long)e.rows, (long long)rows);
  if (keys != plan->keys && bs_knob_int(q->knobs, "keys", 0) != 0)
    return cpu_answer_no(answer, BS_REASON_SHAPE,
                         "keys=%lld: the %lld keys that are seen are one tile of keys=%lld",
                         (long long)plan->keys, (long long)e.keys, (long long)keys);
  if (plan->split > parts && e.rows > CPU_ATTEND_FEW)
    return cpu_answer_no(answer, BS_REASON_SHAPE,
                         "split=%lld: keys of up to %d queries are cut, here are %lld",
                         (long long)plan->split, CPU_ATTEND_FEW, (long long)e.rows);
  if (plan->split > parts)
    return cpu_answer_no(answer, BS_REASON_SHAPE,
                         "split=%lld: the %lld keys that are seen have %lld tiles of %lld",
                         (long long)plan->split, (long long)e.keys, (long long)parts, (long long)plan->keys);
  return 1;
}

static int32_t supports(void *opaque, const bs_op_query *q, bs_op_answer *answer) {
  const cpu_state *state = opaque;
  int64_t floats[PIECES];
  cpu_attention plan = {.kernels = NULL};
  if (!read_query(q, answer)) return BS_OK;
  read_plan(state, q, &plan);
  if (!bits_are_kept(&plan, answer) || !knobs_are_kept(&plan, q, answer)) return BS_OK;
  if (!cpu_workspace_fits(q, pieces_of(&plan, floats), answer)) return BS_OK;
  const int tiles =
      plan.amx != NULL && extent_of(&plan, q->args[CPU_Q]->dims, q->args[CPU_K]->dims).rows > CPU_ATTEND_FEW;
  const char *algo = tiles ? "tiles-amx" : plan.pairs ? "online-bf16" : "online";
  char text[80] = "online softmax over tiles of keys";
  if (tiles)
    snprintf(text, sizeof text, "online softmax over tiles of keys, products by isa=%s", state->kernels.name);
  cpu_answer_yes(answer, tiles ? 850 : 800, plan.pairs || plan.fast ? BS_TOL_ACC_LOW : BS_TOL_ACC_F32, algo,
                 text);
  answer->bits = plan.tokenwise;
  return BS_OK;
}

/* The floats of the result of a block of few queries for a part of the keys. */
static int64_t part_floats(const cpu_attention *plan) {
  return CPU_ATTEND_FEW * (cpu_up16(plan->E) + 1 + CPU_ATTEND_LANES);
}

/* The members, and what of the knobs depends on them. */
static int32_t divide(cpu_attention *plan, const bs_op_query *q, bs_error *err) {
  const extent e = extent_of(plan, q->args[CPU_Q]->dims, q->args[CPU_K]->dims);
  plan->width = cpu_workspace_members(q, plan->member_bytes, plan->exec->width);
  if (plan->width == 0) plan->width = 1;
  int32_t rc = cpu_knob_members(q, plan->width, &plan->width, err);
  if (rc != BS_OK) return rc;
  const int64_t each = rows_of_block(plan, &e), parts = parts_of_keys(plan, &e);
  plan->told_rows = rows_alike(each, &e);
  plan->told_keys = keys_alike(plan->keys, &e);
  plan->told_split = parts;
  if (plan->split > parts) {
    bs_fail(err, BS_UNSUPPORTED, "BS-CPU-KNOB",
            "attention: split=%lld asked, %u members and %lld groups of heads", (long long)plan->split,
            plan->width, (long long)e.groups);
    bs_fail_hint(err, "split=%lld at most, or more threads a rank", (long long)parts);
    return BS_UNSUPPORTED;
  }
  return cpu_knob_busy(q, e.groups * ((e.rows + each - 1) / each) * parts, e.alone, plan->width,
                       &plan->told_threads, err);
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  int64_t floats[PIECES];
  (void)packed;
  int32_t rc = cpu_require(supports, opaque, q, err);
  if (rc != BS_OK) return rc;
  cpu_attention *plan = calloc(1, sizeof *plan);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a plan");
  read_plan(opaque, q, plan);
  plan->exec = exec;
  plan->member_bytes = pieces_of(plan, floats);
  rc = divide(plan, q, err);
  if (rc == BS_OK)
    rc = cpu_reserve(exec, (plan->member_bytes + (uint64_t)part_floats(plan) * sizeof(float)) * plan->width,
                     err);
  if (rc != BS_OK)
    free(plan);
  else
    *out_plan = plan;
  return rc;
}

/* ---- a call ----------------------------------------------------------------------------------- */

/* Scores are scaled when powers are made from them, except for code that needs scaled scores. */
static void read_scales(const cpu_attention *plan, const bs_tensor *descale, cpu_attend *call) {
  const float *of = descale != NULL ? descale->data : NULL;
  const int64_t step = descale != NULL ? descale->strides[0] : 0;
  call->scale = plan->scale;
  if (of != NULL) call->scale *= (double)of[0] * (double)of[step];
  call->out_scale = of != NULL ? of[2 * step] : 1.0f;
  call->size = (float)fabs(call->scale);
  call->finish = plan->softcap > 0.0f || call->mask.data != NULL;
  call->by = (float)(call->finish ? LOG2E : LOG2E * fabs(call->scale));
}

static void read_call(const cpu_attention *plan, bs_tensor *const *args, cpu_attend *call) {
  const int64_t *q = args[CPU_Q]->dims, *k = args[CPU_K]->dims;
  *call = (cpu_attend){.plan = plan, .B = q[0], .H = q[1], .G = k[1], .S = q[2], .T = k[2], .splits = 1};
  call->q = cpu_rows4_of(args[CPU_Q]);
  call->k = cpu_rows4_of(args[CPU_K]);
  call->v = cpu_rows4_of(args[CPU_V]);
  call->mask = cpu_rows4_of(args[CPU_MASK]);
  call->y = cpu_rows4_of(args[CPU_Y]);
  read_scales(plan, args[CPU_DESCALE], call);
  if (args[CPU_LENGTHS] != NULL) {
    call->lengths = args[CPU_LENGTHS]->data;
    call->lengths_step = args[CPU_LENGTHS]->dims[0] == 1 ? 0 : args[CPU_LENGTHS]->strides[0];
  }
  if (args[CPU_LSE] != NULL) {
    call->lse = args[CPU_LSE]->data;
    memcpy(call->lse_strides, args[CPU_LSE]->strides, sizeof call->lse_strides);
  }
  if (call->B * call->H * call->S == 0) return;
  call->repeat = call->H / call->G;
  call->rows = call->repeat * call->S;
  call->few = call->rows <= CPU_ATTEND_FEW;
  const extent e = extent_of(plan, q, k);
  call->alone = e.alone || plan->width == 1;
  call->each = rows_of_block(plan, &e);
  call->blocks = (call->rows + call->each - 1) / call->each;
  call->splits = parts_of_keys(plan, &e);
}

/* Head and query of a block's rows, one after the other: no division a row. */
typedef struct place {
  int64_t head, query;
} place;
static place first_place(const cpu_block *b) {
  return (place){cpu_head_of(b, 0), cpu_query_of(b, 0)};
}
static void next_place(const cpu_block *b, place *at) {
  if (++at->query < b->call->S) return;
  at->query = 0;
  at->head++;
}

/* The keys that row i, query s, sees by its position, its windows and the length. */
static void bound_row(cpu_block *b, int64_t i, int64_t s, int64_t length) {
  const cpu_attend *call = b->call;
  const cpu_attention *plan = call->plan;
  const int64_t at = s + (plan->causal == BS_CAUSAL_LOWER_RIGHT ? length - call->S : 0);
  int64_t end = length;
  if (plan->causal != BS_CAUSAL_NONE && at + 1 < end) end = at + 1;
  if (plan->right > 0 && plan->right < end - at) end = at + plan->right;
  b->first[i] = plan->left > 0 && plan->left <= at ? at - plan->left + 1 : 0;
  b->end[i] = end > b->first[i] ? end : b->first[i];
  if (b->first[i] == b->end[i]) return;
  if (b->first[i] < b->from) b->from = b->first[i];
  if (b->end[i] > b->to) b->to = b->end[i];
}

static void place_scratch(cpu_block *b, const cpu_attention *plan, uint8_t *scratch) {
  int64_t floats[PIECES];
  uint8_t *at[PIECES];
  (void)pieces_of(plan, floats);
  for (int i = 0; i < PIECES; i++) {
    at[i] = scratch;
    scratch += floats[i] * (int64_t)sizeof(float);
  }
  b->q = at[PIECE_Q];
  b->s = (float *)(void *)at[PIECE_S];
  b->p = (uint16_t *)(void *)at[PIECE_P];
  b->k = at[PIECE_K];
  b->v = at[PIECE_V];
  b->sums = (float *)(void *)at[PIECE_SUMS];
  b->most = (float *)(void *)at[PIECE_MOST];
  b->totals = (float *)(void *)at[PIECE_TOTALS];
  b->row = (float *)(void *)at[PIECE_ROW];
}

/* Loads query i with the sign of the scale, followed by zeros, so that rows are whole vectors or pairs. */
static void load_query(const cpu_block *b, int64_t i, const place *at) {
  const cpu_attend *call = b->call;
  const cpu_attention *plan = call->plan;
  const int64_t D = plan->D, wide = cpu_up16(D);
  const uint8_t *from = cpu_row_at(&call->q, b->batch, at->head, at->query);
  if (plan->pairs && !cpu_block_few(b)) {
    uint16_t *q = (uint16_t *)(void *)b->q + i * plan->x_ld;
    memcpy(q, from, (size_t)D * sizeof *q);
    for (int64_t d = 0; call->scale < 0.0 && d < D; d++) q[d] ^= 0x8000u;
    for (int64_t d = D; d < cpu_up(D, plan->unit); d++) q[d] = 0;
    return;
  }
  float *q = (float *)(void *)b->q + i * CPU_X_LD;
  plan->kernels->load[call->q.type](q, from, D);
  for (int64_t d = 0; call->scale < 0.0 && d < D; d++) q[d] = -q[d];
  for (int64_t d = D; d < wide; d++) q[d] = 0.0f;
}

/* Rows, bounds and queries of item `item`. */
static void begin_block(const cpu_attend *call, int64_t item, uint8_t *scratch, cpu_kept *kept,
                        cpu_block *b) {
  const int64_t group = item / call->blocks;
  b->call = call;
  b->batch = group / call->G;
  b->group = group % call->G;
  b->first_row = item % call->blocks * call->each;
  b->count = call->rows - b->first_row < call->each ? call->rows - b->first_row : call->each;
  b->kept = kept;
  place_scratch(b, call->plan, scratch);
  b->from = INT64_MAX;
  b->to = 0;
  int64_t length = call->lengths != NULL ? call->lengths[b->batch * call->lengths_step] : call->T;
  length = length < 0 ? 0 : length > call->T ? call->T : length;
  place at = first_place(b);
  for (int64_t i = 0; i < b->count; i++, next_place(b, &at)) {
    bound_row(b, i, at.query, length);
    load_query(b, i, &at);
  }
  if (b->to == 0) b->from = 0;
  b->from -= b->from % call->plan->keys; /* tiles begin at the same keys for every block and query */
}

/* Adds by halves: lane i and i + 8, then i + 4, i + 2, i + 1. */
static float total_of(const float *lanes) {
  float four[4];
  for (int i = 0; i < 4; i++) four[i] = (lanes[i] + lanes[i + 8]) + (lanes[i + 4] + lanes[i + 12]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/* The power that takes sums from the largest score of a part to that of all: the shifts that the powers were
 * made with, or the scores themselves where these are far from 0 (attend_rise). */
static float fall_of(float before, float now, float by) {
  return fabsf(now * by) > CPU_ATTEND_FAR ? (before - now) * by : before * by - now * by;
}

/* by * most, as the shift of the powers was rounded. */
static double height_of(float most, float by) {
  return fabsf(most * by) > CPU_ATTEND_FAR ? (double)most * (double)by : (double)(most * by);
}

static void write_block(cpu_block *b) {
  const cpu_attend *call = b->call;
  const cpu_attention *plan = call->plan;
  const int64_t wide = cpu_up16(plan->E);
  place at = first_place(b);
  for (int64_t i = 0; i < b->count; i++, next_place(b, &at)) {
    const float total = total_of(b->totals + i * CPU_ATTEND_LANES);
    float *y = b->sums + i * wide, lse = -INFINITY;
    if (total > 0.0f) {
      plan->kernels->attend_scale(y, call->out_scale / total, wide); /* total: about 1 at least */
      if (call->lse != NULL) lse = (float)(height_of(b->most[i], call->by) * LN2 + log((double)total));
    }
    if (total != total || plan->kernels->largest(y, plan->E) >= CPU_INFINITY_BITS)
      cpu_attend_exact(b, i, y, &lse);
    uint8_t *to = (uint8_t *)(uintptr_t)cpu_row_at(&call->y, b->batch, at.head, at.query);
    plan->kernels->store[call->y.type](to, y, plan->E);
    if (call->lse != NULL)
      call->lse[b->batch * call->lse_strides[0] + at.head * call->lse_strides[1] +
                at.query * call->lse_strides[2]] = lse;
  }
}

/* ---- the team --------------------------------------------------------------------------------- */

static float *part_at(const cpu_attend *call, int64_t index) {
  const cpu_attention *plan = call->plan;
  float *parts = (float *)(void *)(call->scratch + plan->member_bytes * plan->width);
  return parts + index * part_floats(plan);
}

/* Part `part` of a block's keys, whole tiles; what it leaves is kept for merge_parts: sums, most, totals. */
static void one_part(cpu_block *b, int64_t part, float *out) {
  const cpu_attend *call = b->call;
  const int64_t wide = cpu_up16(call->plan->E), keys = call->plan->keys,
                tiles = (b->to - b->from + keys - 1) / keys;
  int64_t begin, end;
  cpu_share(tiles, (uint32_t)part, (uint32_t)call->splits, &begin, &end);
  const int64_t from = b->from + begin * keys, to = b->from + end * keys;
  cpu_attend_keys(b, from, to < b->to ? to : b->to);
  memcpy(out, b->sums, (size_t)(b->count * wide) * sizeof *out);
  memcpy(out + CPU_ATTEND_FEW * wide, b->most, (size_t)b->count * sizeof *out);
  memcpy(out + CPU_ATTEND_FEW * (wide + 1), b->totals, (size_t)(b->count * CPU_ATTEND_LANES) * sizeof *out);
}

static void merge_row(cpu_block *b, int64_t item, int64_t i) {
  const cpu_attend *call = b->call;
  const int64_t wide = cpu_up16(call->plan->E);
  float *totals = b->totals + i * CPU_ATTEND_LANES;
  b->most[i] = -INFINITY;
  for (int64_t p = 0; p < call->splits; p++) {
    const float most = part_at(call, item * call->splits + p)[CPU_ATTEND_FEW * wide + i];
    if (most > b->most[i]) b->most[i] = most;
  }
  for (int64_t p = 0; p < call->splits; p++) {
    const float *part = part_at(call, item * call->splits + p);
    const float most = part[CPU_ATTEND_FEW * wide + i];
    const float *lanes = part + CPU_ATTEND_FEW * (wide + 1) + i * CPU_ATTEND_LANES;
    const float scale = most == b->most[i] ? 1.0f : exp2f(fall_of(most, b->most[i], call->by));
    for (int64_t e = 0; e < CPU_ATTEND_LANES; e++) totals[e] += scale * lanes[e];
    for (int64_t e = 0; e < wide; e++) b->sums[i * wide + e] += scale * part[i * wide + e];
  }
}

static void merge_parts(cpu_block *b, int64_t item) {
  const int64_t wide = cpu_up16(b->call->plan->E);
  memset(b->sums, 0, (size_t)(b->count * wide) * sizeof *b->sums);
  memset(b->totals, 0, (size_t)(b->count * CPU_ATTEND_LANES) * sizeof *b->totals);
  for (int64_t i = 0; i < b->count; i++) merge_row(b, item, i);
}

static void one_item(const cpu_attend *call, int64_t item, uint8_t *scratch, cpu_kept *kept) {
  cpu_block b;
  begin_block(call, item / call->splits, scratch, kept, &b);
  if (call->splits > 1) {
    one_part(&b, item % call->splits, part_at(call, item));
  } else {
    cpu_attend_keys(&b, b.from, b.to);
    write_block(&b);
  }
}

/* Whole groups, where all members have as many: panels that are kept serve all blocks of a group. */
static void attend_share(void *arg, uint32_t member, uint32_t width) {
  const cpu_attend *call = arg;
  const int64_t items = call->B * call->G * call->blocks * call->splits;
  const uint32_t members = width < call->plan->width ? width : call->plan->width;
  const int64_t each = call->B * call->G % members == 0 ? call->blocks * call->splits : 1;
  cpu_kept kept = {-1, 0, 0};
  if (member >= members) return;
  for (int64_t first = member * each; first < items; first += members * each)
    for (int64_t i = first; i < first + each; i++)
      one_item(call, i, call->scratch + call->plan->member_bytes * member, &kept);
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  const cpu_attention *plan = opaque;
  cpu_attend call;
  (void)nargs;
  (void)stream;
  read_call(plan, args, &call);
  if (call.rows == 0) return BS_OK;
  call.scratch = plan->exec->scratch(plan->exec->ctx);
  const int32_t rc = cpu_team(plan->exec, call.alone, attend_share, &call, err);
  if (rc != BS_OK) return rc;
  for (int64_t item = 0; call.splits > 1 && item < call.B * call.G * call.blocks; item++) {
    cpu_block b;
    begin_block(&call, item, call.scratch, NULL, &b);
    merge_parts(&b, item);
    write_block(&b);
  }
  return BS_OK;
}

static void plan_free(void *plan) {
  free(plan);
}

const bs_src_loc cpu_attention_op_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl cpu_attention_op = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "attention",
    .backend = "cpu",
    .name = "online",
    .summary = "softmax(Q K^T) V by tiles of keys",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
    .n_knobs = sizeof knobs / sizeof knobs[0],
    .knobs = knobs,
    .echo = echo,
};
