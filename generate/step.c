/* SPDX-License-Identifier: MIT
 * step.c - the next tokens of all live slots: what each fed last, and its draft, in one run. */
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "generate/generator.h"

/* The tokens that an array of any version of bs_token takes. */
typedef struct gen_out {
  unsigned char *at;
  size_t size;
  uint32_t n;
} gen_out;

static void put(bs_token_generator *g, gen_out *out, gen_slot *s, uint32_t flags) {
  const int last = s->n > g->limit;
  const bs_token token = {.struct_size = (uint32_t)out->size,
                          .slot = (uint32_t)(s - g->slots),
                          .id = s->ids[s->n - 1],
                          .flags = flags | (last ? (uint32_t)BS_TOKEN_LAST : 0u),
                          .logprob = s->logprob};
  memcpy(out->at, &token, out->size < sizeof token ? out->size : sizeof token);
  out->at += out->size;
  out->n++;
  g->stats.tokens++;
  if (last) s->live = 0;
}

/* The tokens that followed the last `few` ones, where these stand for the last time before. */
static int64_t look_up(const gen_slot *s, int64_t few, int64_t most, int64_t *out) {
  const int64_t *tail = s->ids + s->n - few;
  for (int64_t at = s->n - few - 1; at >= 0; at--) {
    if (memcmp(s->ids + at, tail, (size_t)few * sizeof *tail) != 0) continue;
    const int64_t first = at + few, there = s->n - first, count = there < most ? there : most;
    memcpy(out, s->ids + first, (size_t)count * sizeof *out);
    return count;
  }
  return 0;
}

static void make_draft(const bs_token_generator *g, gen_slot *s) {
  int64_t most = s->sampling.draft;
  if (most > g->limit - s->n) most = g->limit - s->n; /* all of a run must fit into the cache */
  s->drafts = 0;
  if (most < 1) return;
  s->drafts = look_up(s, 3, most, s->draft);
  if (s->drafts == 0) s->drafts = look_up(s, 2, most, s->draft);
}

/* The slots from the first to the last that run, and the tokens of each: a plan is made for 1, and for the
 * most that drafts need. */
typedef struct span {
  int64_t first, count, sequence;
} span;

static span find_span(bs_token_generator *g) {
  span r = {0, 0, 1};
  for (int64_t i = 0; i < g->n_slots; i++) {
    gen_slot *s = &g->slots[i];
    if (!s->live || s->ready) continue;
    if (r.count == 0) r.first = i;
    r.count = i - r.first + 1;
    make_draft(g, s);
    if (s->drafts > 0) r.sequence = 1 + BS_DRAFT_MOST;
  }
  for (int64_t i = r.first; i < r.first + r.count; i++) {
    const gen_slot *s = &g->slots[i];
    if (s->live && !s->ready && s->held + r.sequence > g->limit) r.sequence = 1;
  }
  return r;
}

/* The inputs of a run. A slot between that does not run gets a token whose row of the cache nothing reads. */
static void fill(bs_token_generator *g, const span *r) {
  for (int64_t i = 0; i < r->count; i++) {
    gen_slot *s = &g->slots[r->first + i];
    int64_t *ids = g->ids + i * r->sequence;
    const int runs = s->live && !s->ready;
    memset(ids, 0, (size_t)r->sequence * sizeof *ids);
    if (!runs) s->drafts = 0;
    if (runs) {
      ids[0] = s->ids[s->n - 1];
      if (s->drafts > r->sequence - 1) s->drafts = r->sequence - 1;
      memcpy(ids + 1, s->draft, (size_t)s->drafts * sizeof *ids);
    } else if (s->held > g->limit - r->sequence) {
      s->held = g->limit - r->sequence;
      if (s->kept > s->held) s->kept = s->held;
    }
    g->lengths[i] = s->held;
  }
  for (int64_t i = 0; i < r->count * r->sequence; i++) g->rows[i] = i;
}

/* The tokens of one slot after a run: a drafted token stays while it is what is chosen at its place. */
static int32_t read_slot(bs_token_generator *g, gen_slot *s, int64_t row, gen_out *out, bs_error *err) {
  g->stats.drafted += (uint64_t)s->drafts;
  for (int64_t i = 0;; i++) {
    s->held++;
    const int32_t rc = gen_choose(g, s, row + i, err);
    if (rc != BS_OK) return rc;
    const int right = i < s->drafts && s->draft[i] == s->ids[s->n - 1];
    g->stats.accepted += (uint64_t)right;
    put(g, out, s, right ? BS_TOKEN_DRAFTED : 0);
    if (!right || !s->live) return BS_OK;
  }
}

static int32_t run_live(bs_token_generator *g, const span *r, gen_out *out, bs_error *err) {
  fill(g, r);
  int32_t rc = gen_run(g, r->first, r->count, r->sequence, r->count * r->sequence, err);
  g->stats.runs++;
  for (int64_t i = 0; rc == BS_OK && i < r->count; i++) {
    gen_slot *s = &g->slots[r->first + i];
    if (s->live && !s->ready) rc = read_slot(g, s, i * r->sequence, out, err);
  }
  return rc;
}

static int32_t check_room(const bs_token_generator *g, uint32_t room, bs_error *err) {
  uint64_t need = 0;
  for (int64_t i = 0; i < g->n_slots; i++)
    if (g->slots[i].live) need += 1u + g->slots[i].sampling.draft;
  if (need <= room) return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GEN-ROOM", "room for %u tokens: a step may give %llu",
                      room, (unsigned long long)need);
}

BS_API int32_t bs_generator_step(bs_token_generator *g, bs_token *out, uint32_t room, uint32_t *out_n,
                                 bs_error *err) {
  if (g == NULL || out == NULL || out_n == NULL || (room > 0 && out->struct_size == 0))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GEN-NULL",
                        "bs_generator_step was given NULL, or a struct_size of 0");
  *out_n = 0;
  int32_t rc = check_room(g, room, err);
  if (rc != BS_OK) return rc;
  gen_out put_at = {(unsigned char *)out, room > 0 ? out->struct_size : sizeof *out, 0};
  const double began = bs_clock_s();
  const span r = find_span(g);
  /* In the order of slots: those before, between and after the ones that run have their first token. */
  if (r.count > 0) rc = run_live(g, &r, &put_at, err);
  for (int64_t i = 0; rc == BS_OK && i < g->n_slots; i++) {
    gen_slot *s = &g->slots[i];
    if (s->ready) put(g, &put_at, s, 0);
    s->ready = 0;
  }
  g->stats.step_seconds += bs_clock_s() - began;
  *out_n = put_at.n;
  for (uint32_t i = 0; rc != BS_OK && i < g->n_slots; i++) bs_generator_end(g, i);
  return rc;
}
