/* SPDX-License-Identifier: MIT
 *
 * attention_block.c - a block of queries over a range of keys, a tile of keys at a time: scores, masks,
 * powers beside the largest score so far, and the sum of the rows of V (online softmax). Many queries take
 * the tiles of matmul: K is turned into panels, V copied to strips. Few ones read K and V as they lie. */
#include <math.h>

#include "attention.h"

typedef struct tile {
  int64_t first, keys, wide; /* wide: keys rounded up to 16 */
} tile;

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

/* Scores of few queries: rows of K as they lie where they can be read so, else copies of eight. */
static void scores_of_few(const cpu_block *b, const tile *t) {
  const cpu_attend *call = b->call;
  const cpu_kernels *kernels = kernels_of(b);
  const int64_t D = call->plan->D, wide = cpu_up16(D);
  const int as_is = call->k.type == 0 && wide == D;
  for (int64_t j = 0; j < t->wide; j += CPU_F8_ROWS) {
    const float *rows = (const float *)(const void *)cpu_row_at(&call->k, b->batch, b->group, t->first + j);
    int64_t ld = call->k.strides[2];
    if (!as_is || j + CPU_F8_ROWS > t->keys) {
      for (int64_t i = 0; i < CPU_F8_ROWS; i++) {
        if (j + i < t->keys)
          load_row(kernels, &call->k, cpu_row_at(&call->k, b->batch, b->group, t->first + j + i), D, wide,
                   b->row + i * wide);
        else
          memset(b->row + i * wide, 0, (size_t)wide * sizeof *b->row);
      }
      rows = b->row;
      ld = wide;
    }
    for (int64_t r = 0; r < b->count; r++) {
      float *s = b->s + r * CPU_X_LD + j;
      memset(s, 0, CPU_F8_ROWS * sizeof *s);
      kernels->dot_rows(s, b->q + r * CPU_X_LD, rows, ld, wide);
    }
  }
}

/* ---- masks ------------------------------------------------------------------------------------ */

static void mask_row(const cpu_block *b, const tile *t, int64_t i, float *s) {
  const cpu_attend *call = b->call;
  const cpu_rows4 *m = &call->mask;
  const int64_t row = b->first_row + i, head = b->group * call->repeat + row / call->S;
  const uint8_t *src = cpu_row_at(m, b->batch, head, row % call->S) + t->first * m->strides[3] * m->size;
  if (m->type == 3) {
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

/* Softcap, mask, and -INFINITY where row i does not see a key. */
static void finish_scores(const cpu_block *b, const tile *t, int64_t i) {
  const float cap = b->call->plan->softcap;
  float *s = b->s + i * CPU_X_LD;
  for (int64_t j = 0; cap > 0.0f && j < t->keys; j++) s[j] = cap * tanhf(s[j] / cap);
  if (b->call->mask.data != NULL) mask_row(b, t, i, s);
  const int64_t first = b->first[i] - t->first, end = b->end[i] - t->first;
  for (int64_t j = 0; j < t->wide && j < first; j++) s[j] = -INFINITY;
  for (int64_t j = end > 0 ? end : 0; j < t->wide; j++) s[j] = -INFINITY;
}

/* ---- sums ------------------------------------------------------------------------------------- */

static void gather_for_few(const cpu_block *b, const tile *t) {
  const cpu_attend *call = b->call;
  const int64_t E = call->plan->E, wide = cpu_up16(E);
  const float *rows = (const float *)(const void *)cpu_row_at(&call->v, b->batch, b->group, t->first);
  int64_t ld = call->v.strides[2];
  if (call->v.type != 0 || wide != E) {
    for (int64_t j = 0; j < t->keys; j++)
      load_row(kernels_of(b), &call->v, cpu_row_at(&call->v, b->batch, b->group, t->first + j), E, wide,
               b->v + j * wide);
    rows = b->v;
    ld = wide;
  }
  for (int64_t i = 0; i < b->count; i++)
    kernels_of(b)->attend_gather(b->sums + i * wide, b->s + i * CPU_X_LD, rows, ld, t->keys, wide);
}

static void one_tile(cpu_block *b, const tile *t) {
  const cpu_kernels *kernels = kernels_of(b);
  const int64_t D = b->call->plan->D, wide = cpu_up16(b->call->plan->E);
  const int few = b->count <= CPU_ATTEND_FEW;
  if (few) {
    scores_of_few(b, t);
  } else {
    const cpu_lines keys = keys_of(b, &b->call->k, t->first);
    cpu_panels_turn(kernels, &keys, 0, D, 0, t->keys, b->row, b->k);
    cpu_panels_multiply(kernels, b->q, b->k, D, t->wide, b->s, CPU_X_LD, b->count, 0);
  }
  for (int64_t i = 0; i < b->count; i++) {
    finish_scores(b, t, i);
    const float scale = kernels->attend(b->s + i * CPU_X_LD, t->wide, &b->most[i], &b->total[i]);
    if (scale != 1.0f) kernels->attend_scale(b->sums + i * wide, scale, wide);
  }
  if (few) {
    gather_for_few(b, t);
    return;
  }
  const cpu_lines values = keys_of(b, &b->call->v, t->first);
  cpu_panels_copy(kernels, &values, 0, t->keys, 0, b->call->plan->E, b->row, b->v);
  cpu_panels_multiply(kernels, b->s, b->v, t->keys, wide, b->sums, wide, b->count, 1);
}

void cpu_attend_keys(cpu_block *b, int64_t from, int64_t to) {
  const int64_t wide = cpu_up16(b->call->plan->E);
  memset(b->sums, 0, (size_t)(b->count * wide) * sizeof *b->sums);
  for (int64_t i = 0; i < b->count; i++) {
    b->most[i] = -INFINITY;
    b->total[i] = 0.0f;
  }
  for (int64_t first = from; first < to; first += CPU_ATTEND_KEYS) {
    tile t = {first, to - first < CPU_ATTEND_KEYS ? to - first : CPU_ATTEND_KEYS, 0};
    t.wide = cpu_up16(t.keys);
    one_tile(b, &t);
  }
}

/* ---- one row, exactly ------------------------------------------------------------------------- */

/* The score of key j; -INFINITY: not seen. */
static double exact_score(const cpu_block *b, int64_t i, int64_t j) {
  const cpu_attend *call = b->call;
  const cpu_kernels *kernels = kernels_of(b);
  const cpu_attention *plan = call->plan;
  const int64_t row = b->first_row + i, head = b->group * call->repeat + row / call->S;
  double dot = 0.0;
  float mask = 0.0f;
  if (call->mask.data != NULL) {
    const cpu_rows4 *m = &call->mask;
    const uint8_t *at = cpu_row_at(m, b->batch, head, row % call->S) + j * m->strides[3] * m->size;
    if (m->type == 3)
      mask = *at != 0 ? 0.0f : -INFINITY;
    else
      kernels->load[m->type](&mask, at, 1);
    if (mask == -INFINITY) return -INFINITY;
  }
  kernels->load[call->k.type](b->row, cpu_row_at(&call->k, b->batch, b->group, j), plan->D);
  for (int64_t d = 0; d < plan->D; d++) dot += (double)b->q[i * CPU_X_LD + d] * (double)b->row[d];
  if (plan->softcap > 0.0f) dot = (double)plan->softcap * tanh(dot / (double)plan->softcap);
  return dot + (double)mask;
}

void cpu_attend_exact(const cpu_block *b, int64_t i, float *out, float *out_lse) {
  const cpu_attend *call = b->call;
  const int64_t E = call->plan->E;
  double most = -INFINITY, total = 0.0;
  for (int64_t j = b->first[i]; j < b->end[i]; j++) {
    const double s = exact_score(b, i, j);
    if (s > most || isnan(s)) most = isnan(most) ? most : s;
  }
  for (int64_t e = 0; e < E; e++) out[e] = 0.0f;
  for (int64_t j = b->first[i]; j < b->end[i]; j++) {
    const double s = exact_score(b, i, j), p = exp(s - most);
    if (s == -INFINITY) continue;
    total += p;
    kernels_of(b)->load[call->v.type](b->row, cpu_row_at(&call->v, b->batch, b->group, j), E);
    for (int64_t e = 0; e < E; e++) out[e] = (float)((double)out[e] + p * (double)b->row[e]);
  }
  for (int64_t e = 0; e < E && most != -INFINITY; e++) out[e] = (float)((double)out[e] / total);
  *out_lse = most == -INFINITY ? -INFINITY : (float)(most + log(total));
}
