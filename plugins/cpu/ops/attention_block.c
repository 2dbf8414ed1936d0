/* SPDX-License-Identifier: MIT
 *
 * attention_block.c - a block of queries over a range of keys, a tile of keys at a time: scores, masks,
 * powers relative to the largest score so far, and the sum of the rows of V (online softmax). Many queries
 * use the tiles of matmul: K is transposed into panels, V copied to strips; a member keeps them for the next
 * blocks of the group. Few queries read K and V in place. */
#include <math.h>

#include "attention.h"

typedef struct tile {
  int64_t first, keys, wide; /* wide: keys rounded up to 16 */
  int64_t made;              /* keys that the panels were made of: an earlier block may see more of them */
  uint8_t *k, *v;            /* panels */
} tile;

/* The rows first..first+count of a block, and what of a tile they see: whole panels, and steps of AMX, from
 * its begin. */
typedef struct chunk {
  int64_t row, count, skip;
  tile t;
} chunk;

static const cpu_kernels *kernels_of(const cpu_block *b) {
  return b->call->plan->kernels;
}

/* n elements of a row as f32, zeros up to `wide`. */
static void load_row(const cpu_kernels *kernels, const cpu_rows4 *t, const uint8_t *src, int64_t n,
                     int64_t wide, float *out) {
  kernels->load[t->type](out, src, n);
  for (int64_t i = n; i < wide; i++) out[i] = 0.0f;
}

/* ---- scores ----------------------------------------------------------------------------------- */

/* K or V of the block's batch and group, from key `first` on. */
static cpu_lines keys_of(const cpu_block *b, const cpu_rows4 *t, int64_t first) {
  return (cpu_lines){cpu_row_at(t, b->batch, b->group, first), t->type, t->size, t->strides[2], 1};
}

/* Scores of few queries: rows of K as they lie where they can be read so, else copies of 16. */
static void scores_of_few(const cpu_block *b, const tile *t) {
  const cpu_attend *call = b->call;
  const cpu_kernels *kernels = kernels_of(b);
  const int64_t D = call->plan->D, wide = cpu_up16(D);
  const int as_is = call->k.type < CPU_HALF_TYPES && wide == D;
  const int64_t step = as_is ? t->keys : 16;
  cpu_dots d = {
      .x = (const float *)(const void *)b->q, .count = b->count, .rows = b->row, .ld = wide, .n = wide};
  if (as_is) d.ld = call->k.strides[2];
  for (int64_t j = 0; j < t->keys; j += step) {
    d.keys = t->keys - j < step ? t->keys - j : step;
    d.s = b->s + j;
    if (as_is) d.rows = cpu_row_at(&call->k, b->batch, b->group, t->first);
    for (int64_t i = 0; i < d.keys && !as_is; i++)
      load_row(kernels, &call->k, cpu_row_at(&call->k, b->batch, b->group, t->first + j + i), D, wide,
               b->row + i * wide);
    kernels->attend_dots[as_is ? call->k.type : 0](&d);
  }
}

/* ---- masks ------------------------------------------------------------------------------------ */

static void mask_row(const cpu_block *b, const tile *t, int64_t i, float *s) {
  const cpu_rows4 *m = &b->call->mask;
  const uint8_t *src =
      cpu_row_at(m, b->batch, cpu_head_of(b, i), cpu_query_of(b, i)) + t->first * m->strides[3] * m->size;
  if (m->type == CPU_BOOL) {
    for (int64_t j = 0; j < t->keys && m->strides[3] == 1; j++) s[j] = src[j] != 0 ? s[j] : -INFINITY;
    for (int64_t j = 0; j < t->keys && m->strides[3] != 1; j++)
      if (src[j * m->strides[3]] == 0) s[j] = -INFINITY;
    return;
  }
  if (m->strides[3] == 0) { /* one value for all keys */
    float one;
    kernels_of(b)->load[m->type](&one, src, 1);
    for (int64_t j = 0; j < t->keys; j++) s[j] += one;
    return;
  }
  kernels_of(b)->load[m->type](b->row, src, t->keys);
  for (int64_t j = 0; j < t->keys; j++) s[j] += b->row[j];
}

/* Scale, softcap, mask, and -INFINITY where row i does not see a key. */
static void finish_scores(const cpu_block *b, const tile *t, int64_t i, float *s) {
  const float cap = b->call->plan->softcap, scale = b->call->size;
  for (int64_t j = 0; b->call->finish && j < t->keys; j++) s[j] *= scale;
  for (int64_t j = 0; cap > 0.0f && j < t->keys; j++) s[j] = cap * tanhf(s[j] / cap);
  if (b->call->mask.data != NULL) mask_row(b, t, i, s);
  const int64_t first = b->first[i] - t->first, end = b->end[i] - t->first;
  for (int64_t j = 0; j < t->wide && j < first; j++) s[j] = -INFINITY;
  for (int64_t j = end > 0 ? end : 0; j < t->wide; j++) s[j] = -INFINITY;
}

/* The powers of `count` rows of scores from block row `row` on, in s or, for products of pairs, in p. */
static void powers(cpu_block *b, const tile *t, int64_t row, int64_t count, int pairs) {
  const cpu_attention *plan = b->call->plan;
  const cpu_kernels *kernels = plan->kernels;
  const int64_t wide = cpu_up16(plan->E), end = pairs ? cpu_up(t->keys, plan->unit) : 0;
  for (int64_t i = 0; i < count; i++) {
    float *s = b->s + i * CPU_X_LD;
    void *p = pairs ? (void *)(b->p + i * plan->x_ld) : (void *)s;
    finish_scores(b, t, row + i, s);
    const float scale = (pairs ? kernels->attend_bf16 : kernels->attend)[plan->fast](
        s, p, t->wide, b->call->by, &b->most[row + i], b->totals + (row + i) * CPU_ATTEND_LANES);
    for (int64_t j = t->wide; j < end; j++) b->p[i * plan->x_ld + j] = 0;
    if (scale != 1.0f) kernels->attend_scale(b->sums + (row + i) * wide, scale, wide);
  }
}

/* ---- sums ------------------------------------------------------------------------------------- */

static void gather_for_few(const cpu_block *b, const tile *t) {
  const cpu_attend *call = b->call;
  const int64_t E = call->plan->E, wide = cpu_up16(E);
  const void *rows = cpu_row_at(&call->v, b->batch, b->group, t->first);
  const int as_is = call->v.type < CPU_HALF_TYPES && wide == E;
  const int64_t ld = as_is ? call->v.strides[2] : wide;
  float *copy = (float *)(void *)b->v;
  for (int64_t j = 0; j < t->keys && !as_is; j++)
    load_row(kernels_of(b), &call->v, cpu_row_at(&call->v, b->batch, b->group, t->first + j), E, wide,
             copy + j * wide);
  for (int64_t i = 0; i < b->count; i++)
    kernels_of(b)->attend_gather[as_is ? call->v.type : 0](b->sums + i * wide, b->s + i * CPU_X_LD,
                                                           as_is ? rows : copy, ld, t->keys, wide);
}

/* ---- many queries ----------------------------------------------------------------------------- */

/* A panel of bf16 has zeros from the last pair of its depth on. */
static void end_panel(const cpu_attention *plan, uint8_t *panel, int64_t depth) {
  const int64_t made = cpu_up(depth, 2) * 32;
  memset(panel + made, 0, (size_t)(cpu_panel_bytes(plan, depth) - made));
}

/* K turned into panels, V copied to them. */
static void make_panels(const cpu_block *b, const tile *t) {
  const cpu_attention *plan = b->call->plan;
  const cpu_kernels *kernels = plan->kernels;
  const cpu_lines keys = keys_of(b, &b->call->k, t->first), values = keys_of(b, &b->call->v, t->first);
  if (!plan->pairs) {
    cpu_panels_turn(kernels, &keys, 0, plan->D, 0, t->keys, b->row, (float *)(void *)t->k);
    cpu_panels_copy(kernels, &values, 0, t->keys, 0, plan->E, b->row, (float *)(void *)t->v);
    return;
  }
  const int64_t key = keys.row * 2, value = values.row * 2, step = cpu_panel_bytes(plan, t->keys);
  uint8_t *panel = t->k;
  for (int64_t j = 0; j < t->keys; j += 16, panel += cpu_panel_bytes(plan, plan->D)) {
    kernels->bf16_turn(panel, keys.data + j * key, key, t->keys - j < 16 ? t->keys - j : 16, plan->D);
    end_panel(plan, panel, plan->D);
  }
  for (int64_t j = 0; j < t->keys; j += 2)
    kernels->bf16_zip(t->v + j / 2 * 64, step, values.data + j * value,
                      j + 1 < t->keys ? values.data + (j + 1) * value : NULL, plan->E);
  for (int64_t e = 0; e < plan->E; e += 16) end_panel(plan, t->v + e / 16 * step, t->keys);
}

/* Makes the panels of a tile, or finds them where an earlier block of the group has made them. */
static void ready_panels(const cpu_block *b, tile *t) {
  const cpu_attention *plan = b->call->plan;
  const int64_t group = b->batch * b->call->G + b->group;
  const int64_t n = plan->kept > 0 ? (t->first - b->from) / plan->keys : 0;
  cpu_kept *kept = b->kept;
  if (kept->group != group || kept->from != b->from) *kept = (cpu_kept){group, b->from, 0};
  t->k = b->k + n * cpu_k_bytes(plan);
  t->v = b->v + n * cpu_v_bytes(plan);
  t->made = n < kept->tiles ? plan->keys : t->keys;
  if (n < kept->tiles) return;
  make_panels(b, t);
  if (plan->kept > 0 && t->keys == plan->keys) kept->tiles = n + 1;
}

/* The keys of a tile that chunk `row` of a block sees; 0: none. */
static int see(const cpu_block *b, const tile *t, int64_t row, chunk *out) {
  const cpu_attention *plan = b->call->plan;
  const int64_t count = b->count - row < plan->chunk ? b->count - row : plan->chunk;
  const int64_t whole = plan->unit > 16 ? plan->unit : 16; /* keys: of K a panel, of V a step */
  int64_t from = t->first + t->keys, to = t->first;
  for (int64_t i = row; i < row + count; i++) {
    if (b->first[i] == b->end[i]) continue;
    from = b->first[i] < from ? b->first[i] : from;
    to = b->end[i] > to ? b->end[i] : to;
  }
  from = from > t->first ? (from - t->first) / whole * whole : 0;
  to = to < t->first + t->keys ? to - t->first : t->keys;
  *out = (chunk){row, count, from, {t->first + from, to - from, cpu_up16(to - from), t->made, NULL, NULL}};
  return to > from;
}

/* Prefetches part `part` of `parts` of the rows of K and V after a tile, if they become panels next. */
static void ask_ahead(const cpu_block *b, const tile *t, int64_t part, int64_t parts) {
  const cpu_attention *plan = b->call->plan;
  const int64_t next = t->first + t->keys, left = b->to - next < plan->keys ? b->to - next : plan->keys;
  const cpu_rows4 *const of[] = {&b->call->k, &b->call->v};
  const int64_t wide[] = {plan->D, plan->E};
  if ((next - b->from) / plan->keys < b->kept->tiles) return;
  for (int64_t j = part * left / parts; j < (part + 1) * left / parts; j++)
    for (int i = 0; i < 2; i++) {
      const uint8_t *row = cpu_row_at(of[i], b->batch, b->group, next + j);
      for (int64_t at = 0; at < wide[i] * of[i]->size; at += 64) __builtin_prefetch(row + at, 0, 2);
    }
}

static void one_tile(cpu_block *b, tile *t, cpu_amx_room *room) {
  const cpu_attention *plan = b->call->plan;
  const int pairs = plan->pairs != 0;
  const int64_t wide = cpu_up16(plan->E), size = pairs ? 2 : 4;
  cpu_product scores = {.tile = pairs ? plan->kernels->dot : plan->kernels->tile[0], .amx = plan->amx};
  scores.room = room;
  scores.x_size = size;
  scores.x_ld = plan->x_ld;
  scores.step = cpu_panel_bytes(plan, plan->D);
  scores.depth = plan->D;
  scores.c = b->s;
  scores.ldc = CPU_X_LD;
  cpu_product values = scores;
  values.x = pairs ? (const void *)b->p : (const void *)b->s;
  values.columns = values.ldc = wide;
  values.add = 1;
  ready_panels(b, t);
  values.step = cpu_panel_bytes(plan, t->made);
  for (int64_t row = 0; row < b->count; row += plan->chunk) {
    chunk c;
    ask_ahead(b, t, row / plan->chunk, (b->count + plan->chunk - 1) / plan->chunk);
    if (!see(b, t, row, &c)) continue;
    scores.x = b->q + row * plan->x_ld * size;
    scores.panels = t->k + c.skip / 16 * scores.step;
    scores.columns = c.t.wide;
    scores.count = values.count = c.count;
    cpu_panels_product(plan->kernels, &scores);
    powers(b, &c.t, row, c.count, pairs);
    values.panels = t->v + c.skip * 16 * size;
    values.depth = c.t.keys;
    values.c = b->sums + row * wide;
    cpu_panels_product(plan->kernels, &values);
  }
}

void cpu_attend_keys(cpu_block *b, int64_t from, int64_t to) {
  const int64_t wide = cpu_up16(b->call->plan->E), keys = b->call->plan->keys;
  const cpu_amx *amx = cpu_block_few(b) ? NULL : b->call->plan->amx;
  memset(b->sums, 0, (size_t)(b->count * wide) * sizeof *b->sums);
  memset(b->totals, 0, (size_t)(b->count * CPU_ATTEND_LANES) * sizeof *b->totals);
  for (int64_t i = 0; i < b->count; i++) b->most[i] = -INFINITY;
  cpu_amx_room room;
  if (amx != NULL) amx->begin(&room, 16, CPU_AMX_COLUMNS);
  for (int64_t first = from; first < to; first += keys) {
    tile t = {.first = first, .keys = to - first < keys ? to - first : keys};
    t.wide = cpu_up16(t.keys);
    if (!cpu_block_few(b)) {
      one_tile(b, &t, &room);
      continue;
    }
    scores_of_few(b, &t);
    powers(b, &t, 0, b->count, 0);
    gather_for_few(b, &t);
  }
  if (amx != NULL) amx->end(&room);
}

/* ---- one row, exactly ------------------------------------------------------------------------- */

/* The score of key j for the query `q`; -INFINITY: not seen. */
static double exact_score(const cpu_block *b, int64_t i, int64_t j, const float *q) {
  const cpu_attend *call = b->call;
  const cpu_kernels *kernels = kernels_of(b);
  const cpu_attention *plan = call->plan;
  double dot = 0.0;
  float mask = 0.0f;
  if (call->mask.data != NULL) {
    const cpu_rows4 *m = &call->mask;
    const uint8_t *at =
        cpu_row_at(m, b->batch, cpu_head_of(b, i), cpu_query_of(b, i)) + j * m->strides[3] * m->size;
    if (m->type == CPU_BOOL)
      mask = *at != 0 ? 0.0f : -INFINITY;
    else
      kernels->load[m->type](&mask, at, 1);
    if (mask == -INFINITY) return -INFINITY;
  }
  kernels->load[call->k.type](b->row, cpu_row_at(&call->k, b->batch, b->group, j), plan->D);
  for (int64_t d = 0; d < plan->D; d++) dot += (double)q[d] * (double)b->row[d];
  dot *= call->scale;
  if (plan->softcap > 0.0f) dot = (double)plan->softcap * tanh(dot / (double)plan->softcap);
  return dot + (double)mask;
}

/* Powers are divided by their sum before they meet V, so that no partial sum exceeds the largest magnitude of
 * V. With nan_gives_0 the powers are zeros if their sum is NaN; a V that is not finite turns these zeros into
 * NaN. */
void cpu_attend_exact(const cpu_block *b, int64_t i, float *out, float *out_lse) {
  const cpu_attend *call = b->call;
  const int64_t E = call->plan->E;
  double most = -INFINITY, total = 0.0;
  float *q = b->row + CPU_ATTEND_WIDTH;
  const uint8_t *query = cpu_row_at(&call->q, b->batch, cpu_head_of(b, i), cpu_query_of(b, i));
  kernels_of(b)->load[call->q.type](q, query, call->plan->D);
  for (int64_t j = b->first[i]; j < b->end[i]; j++) {
    const double s = exact_score(b, i, j, q);
    if (s > most || isnan(s)) most = isnan(most) ? most : s;
  }
  for (int64_t j = b->first[i]; j < b->end[i]; j++) {
    const double s = exact_score(b, i, j, q);
    if (s != -INFINITY) total += exp(s - most);
  }
  memset(out, 0, (size_t)E * sizeof *out);
  *out_lse = most == -INFINITY ? -INFINITY : (float)(most + log(total));
  const int zeros = isnan(total) && call->plan->nan_gives_0;
  for (int64_t j = b->first[i]; j < b->end[i]; j++) {
    const double s = exact_score(b, i, j, q), p = zeros ? 0.0 : exp(s - most) / total;
    if (s == -INFINITY) continue;
    kernels_of(b)->load[call->v.type](b->row, cpu_row_at(&call->v, b->batch, b->group, j), E);
    for (int64_t e = 0; e < E; e++) out[e] = (float)((double)out[e] + p * (double)b->row[e]);
  }
  for (int64_t e = 0; e < E; e++) out[e] = (float)((double)out[e] * (double)call->out_scale);
}
