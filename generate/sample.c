/* SPDX-License-Identifier: MIT
 * sample.c - a token from the logits of one place, in the order of steps that generate.h says. Of a heap only
 * so many tokens are taken as are needed. */
#include <math.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/rng.h"
#include "generate/generator.h"

/* ---- logits ---------------------------------------------------------------------------------- */

static void read_logits(const bs_tensor *t, int64_t row, int64_t words, double *out) {
  if (t->dtype == BS_F32 && t->strides[1] == 1) {
    const float *from = (const float *)t->data + row * t->strides[0];
    for (int64_t i = 0; i < words; i++) out[i] = (double)from[i];
    return;
  }
  for (int64_t i = 0; i < words; i++)
    out[i] = bs_load_f64(t->dtype, t->data, row * t->strides[0] + i * t->strides[1]);
}

static void repeat_less(const gen_slot *s, gen_room *room) {
  const double by = s->sampling.repetition;
  const int64_t window = s->sampling.repetition_tokens,
                first = window > 0 && window < s->n ? s->n - window : 0;
  if (by == 0 || by == 1) return;
  for (int64_t i = first; i < s->n; i++) {
    const int64_t id = s->ids[i];
    if (room->seen[id]) continue;
    room->seen[id] = 1;
    room->p[id] = room->p[id] > 0 ? room->p[id] / by : room->p[id] * by;
  }
  for (int64_t i = first; i < s->n; i++) room->seen[s->ids[i]] = 0;
}

/* The place of the largest of `words` numbers, of equal ones the first. */
static int32_t find_largest(const double *p, int64_t words, int64_t *out, bs_error *err) {
  *out = 0;
  for (int64_t i = 0; i < words; i++) {
    if (isnan(p[i]))
      return bs_error_set(err, BS_NUMERIC, "BS-MODEL-NAN", "logit %lld is no number", (long long)i);
    if (p[i] > p[*out]) *out = i;
  }
  if (isfinite(p[*out])) return BS_OK;
  return bs_error_set(err, BS_NUMERIC, "BS-MODEL-NAN", "the largest logit, of token %lld, is not finite",
                      (long long)*out);
}

/* ---- order ----------------------------------------------------------------------------------- */

static int before(const double *p, int64_t a, int64_t b) {
  return p[a] > p[b] || (p[a] == p[b] && a < b);
}

static void sink(const double *p, int64_t *heap, int64_t n, int64_t at) {
  const int64_t id = heap[at];
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && before(p, heap[child + 1], heap[child])) child++;
    if (!before(p, heap[child], id)) break;
    heap[at] = heap[child];
  }
  heap[at] = id;
}

/* A heap of tokens; those that were taken lie behind it, the first one last. */
typedef struct falling {
  const double *p;
  int64_t *heap, words, left;
} falling;

static falling falling_of(const double *p, int64_t words, int64_t *heap) {
  for (int64_t i = 0; i < words; i++) heap[i] = i;
  for (int64_t i = words / 2; i-- > 0;) sink(p, heap, words, i);
  return (falling){p, heap, words, words};
}

static int64_t take(falling *f) {
  const int64_t id = f->heap[0];
  f->heap[0] = f->heap[--f->left];
  if (f->left > 0) sink(f->p, f->heap, f->left, 0);
  f->heap[f->left] = id;
  return id;
}

static int64_t taken(const falling *f, int64_t i) {
  return f->heap[f->words - 1 - i];
}

/* ---- a choice -------------------------------------------------------------------------------- */

static double uniform(uint64_t seed, uint32_t slot, int64_t place) {
  uint32_t words[2];
  bs_rng_bits(seed, GEN_STREAM + slot, 2 * (uint64_t)place, 2, words);
  return (double)(((uint64_t)words[0] << 32 | words[1]) >> 11) * 0x1p-53;
}

/* How many of the first tokens stay, by top_k, top_p and min_p; *out_sum: of their probabilities. */
static int64_t cut(falling *f, const bs_sampling *s, double all, double *out_sum) {
  const double share = s->top_p > 0 && s->top_p < 1 ? s->top_p : 2;
  int64_t n = 0;
  double sum = 0;
  if (s->top_k > 0 && s->top_k < (uint64_t)f->words) {
    for (all = 0; n < (int64_t)s->top_k; n++) all += f->p[take(f)];
  }
  const int64_t most = n > 0 ? n : f->words;
  const double least = s->min_p * f->p[n > 0 ? taken(f, 0) : f->heap[0]];
  for (n = 0; n < most && sum < share * all; n++) {
    const int64_t id = n < f->words - f->left ? taken(f, n) : take(f);
    if (n > 0 && f->p[id] < least) break;
    sum += f->p[id];
  }
  *out_sum = sum;
  return n;
}

static int64_t draw(gen_room *room, int64_t words, const bs_sampling *s, double all, double u) {
  falling f = falling_of(room->p, words, room->order);
  const int cuts = s->top_k > 0 || s->min_p > 0 || (s->top_p > 0 && s->top_p < 1);
  double sum = 0, kept = all;
  const int64_t n = cuts ? cut(&f, s, all, &kept) : words;
  int64_t id = f.heap[0];
  for (int64_t i = 0; i < n; i++) {
    const int64_t next = i < f.words - f.left ? taken(&f, i) : take(&f);
    if (room->p[next] == 0) break; /* sums that were rounded down end at the last token that has a chance */
    id = next;
    sum += room->p[id];
    if (sum > u * kept) break;
  }
  return id;
}

int32_t gen_choose(bs_token_generator *g, gen_slot *slot, int64_t row, bs_error *err) {
  const bs_sampling *s = &slot->sampling;
  double *p = g->room.p, all = 0;
  int64_t id = 0;
  read_logits(&g->logits, row, g->words, p);
  repeat_less(slot, &g->room);
  const int32_t rc = find_largest(p, g->words, &id, err);
  if (rc != BS_OK) return rc;
  slot->logprob = 0;
  if (s->temperature > 0) {
    const double most = p[id];
    for (int64_t i = 0; i < g->words; i++) {
      p[i] = bs_exp((p[i] - most) / s->temperature);
      all += p[i];
    }
    id = draw(&g->room, g->words, s, all, uniform(s->seed, (uint32_t)(slot - g->slots), slot->n));
    slot->logprob = log(p[id] / all);
  }
  slot->ids[slot->n++] = id;
  return BS_OK;
}
