/* SPDX-License-Identifier: MIT
 * prompt.c - begins a sequence: takes over what a cache has of it, and runs the rest in chunks. */
#include <math.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "generate/generator.h"

static int32_t bad_value(bs_error *err, const char *name, double value, const char *range) {
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GEN-SAMPLING", "%s is %g", name, value);
  bs_error_hint(err, "%s: %s", name, range);
  return BS_INVALID_ARGUMENT;
}

static int32_t check_sampling(const bs_sampling *s, bs_error *err) {
  if (!(s->temperature >= 0) || isinf(s->temperature))
    return bad_value(err, "temperature", s->temperature, "0 or more");
  if (!(s->top_p >= 0 && s->top_p <= 1)) return bad_value(err, "top_p", s->top_p, "0 to 1");
  if (!(s->min_p >= 0 && s->min_p <= 1)) return bad_value(err, "min_p", s->min_p, "0 to 1");
  if (!(s->repetition >= 0) || isinf(s->repetition))
    return bad_value(err, "repetition", s->repetition, "above 0; 1 changes nothing");
  if (s->draft > BS_DRAFT_MOST) return bad_value(err, "draft", s->draft, "0 to 7 tokens");
  return BS_OK;
}

static int32_t check_ids(const bs_token_generator *g, const int64_t *ids, uint64_t n, bs_error *err) {
  if (n == 0) return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MODEL-IDS", "a prompt needs a token");
  for (uint64_t i = 0; i < n; i++) {
    if (ids[i] >= 0 && ids[i] < g->words) continue;
    bs_error_set(err, BS_INPUT, "BS-MODEL-IDS",
                 "token %llu of %llu is %lld, and the vocabulary has %lld tokens", (unsigned long long)i + 1,
                 (unsigned long long)n, (long long)ids[i], (long long)g->words);
    bs_error_hint(err, "give ids from 0 to %lld", (long long)g->words - 1);
    return BS_INPUT;
  }
  if (n <= (uint64_t)g->limit) return BS_OK;
  bs_error_set(err, BS_OVERFLOW, "BS-GEN-CACHE", "a prompt of %llu tokens: the cache holds %lld",
               (unsigned long long)n, (long long)g->limit);
  bs_error_hint(err, "a shorter prompt, or open the graph with a larger cache");
  return BS_OVERFLOW;
}

/* A step of drafts asks every node for bits that depend on one token alone: a node of `ref` in the place of
 * the backend is one that could not promise it. */
static int32_t check_draft(bs_token_generator *g, uint32_t draft, bs_error *err) {
  if (draft == 0 || g->draft_checked) return BS_OK;
  const bs_dim dims[3] = {{sizeof(bs_dim), 0, "batch", 1},
                          {sizeof(bs_dim), 0, "sequence", 1 + BS_DRAFT_MOST},
                          {sizeof(bs_dim), 0, "rows", 1 + BS_DRAFT_MOST}};
  const bs_dim *const list[3] = {&dims[0], &dims[1], &dims[2]};
  if (g->limit <= (int64_t)BS_DRAFT_MOST) return BS_OK; /* no draft has room */
  g->batch = 0;
  int32_t rc = bs_session_bind(g->session, list, 3, err);
  const uint32_t n = bs_session_node_count(g->session);
  for (uint32_t i = 0; rc == BS_OK && i < n; i++) {
    bs_node_info node = {.struct_size = sizeof node};
    rc = bs_session_node(g->session, i, &node, err);
    if (rc != BS_OK || node.reason[0] == '\0' || strncmp(node.serves, "ref:", 4) != 0) continue;
    bs_error_set(err, BS_UNSUPPORTED, "BS-GEN-DRAFT", "%s of '%.100s' does not serve drafts: %.200s", node.op,
                 node.origin, node.reason);
    bs_error_hint(err, "generate without drafts");
    return BS_UNSUPPORTED;
  }
  g->draft_checked = rc == BS_OK;
  return rc;
}

/* The slot whose first rows serve most of the prompt, and how many. */
static int64_t longest_prefix(const bs_token_generator *g, int64_t slot, const int64_t *ids, int64_t n,
                              int64_t *out_slot) {
  int64_t best = 0;
  *out_slot = slot;
  for (int64_t k = 0; k < g->n_slots; k++) {
    const int64_t i = (slot + k) % g->n_slots; /* its own rows need no copy */
    const gen_slot *s = &g->slots[i];
    int64_t same = 0;
    while (same < s->kept && same < n && s->ids[same] == ids[same]) same++;
    if (same <= best) continue;
    best = same;
    *out_slot = i;
  }
  return best;
}

/* Tokens begin..n, in runs of GEN_PROMPT_LEAST to g->chunk of them: the last run is filled up with tokens
 * that nothing sees, where there is room for them. */
static int32_t run_prompt(bs_token_generator *g, int64_t slot, const int64_t *ids, int64_t begin, int64_t n,
                          bs_error *err) {
  int32_t rc = BS_OK;
  for (int64_t at = begin; rc == BS_OK && at < n;) {
    int64_t count = n - at < g->chunk ? n - at : g->chunk, run = count;
    if (at + count < n && n - at - count < GEN_PROMPT_LEAST && count > 2 * GEN_PROMPT_LEAST)
      run = count -= GEN_PROMPT_LEAST;
    if (run < GEN_PROMPT_LEAST && at + GEN_PROMPT_LEAST <= g->limit) run = GEN_PROMPT_LEAST;
    memset(g->ids, 0, (size_t)run * sizeof *g->ids);
    memcpy(g->ids, ids + at, (size_t)count * sizeof *g->ids);
    g->lengths[0] = at;
    g->rows[0] = count - 1;
    if (g->stop != NULL && g->stop(g->stop_user) != 0)
      return bs_error_set(err, BS_ABORTED, "BS-STOPPED", "stopped after %lld of %lld tokens of a prompt",
                          (long long)at, (long long)n);
    rc = gen_run(g, slot, 1, run, 1, err);
    if (rc == BS_OK) at += count;
  }
  return rc;
}

static int32_t begin(bs_token_generator *g, int64_t slot, const int64_t *ids, int64_t n, bs_error *err) {
  gen_slot *s = &g->slots[slot];
  int64_t from = slot;
  int64_t keep = longest_prefix(g, slot, ids, n, &from);
  if (keep > n - 1) keep = n - 1; /* the last token's logits are wanted */
  if (keep > g->limit - GEN_PROMPT_LEAST)
    keep = g->limit > GEN_PROMPT_LEAST ? g->limit - GEN_PROMPT_LEAST : 0;
  int32_t rc = from != slot ? bs_session_slot_copy(g->session, from, slot, keep, err) : BS_OK;
  s->n = s->held = s->kept = 0;
  if (rc == BS_OK) rc = run_prompt(g, slot, ids, keep, n, err);
  if (rc != BS_OK) return rc;
  memcpy(s->ids, ids, (size_t)n * sizeof *ids);
  s->n = s->held = n;
  s->kept = g->limit >= GEN_PROMPT_LEAST ? n : 0;
  g->stats.prompt_tokens += (uint64_t)n;
  g->stats.kept_tokens += (uint64_t)keep;
  return gen_choose(g, s, 0, err);
}

BS_API int32_t bs_generator_prompt(bs_token_generator *g, uint32_t slot, const int64_t *ids, uint64_t n,
                                   const bs_sampling *sampling, bs_error *err) {
  bs_sampling how = {0};
  if (g == NULL || ids == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GEN-NULL", "bs_generator_prompt was given NULL");
  if (slot >= g->n_slots)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GEN-SLOT", "there is no slot %u, the graph has %lld",
                        slot, (long long)g->n_slots);
  if (sampling != NULL)
    memcpy(&how, sampling, sampling->struct_size < sizeof how ? sampling->struct_size : sizeof how);
  int32_t rc = check_sampling(&how, err);
  if (rc == BS_OK) rc = check_ids(g, ids, n, err);
  if (rc == BS_OK) rc = check_draft(g, how.draft, err);
  if (rc != BS_OK) return rc;
  gen_slot *s = &g->slots[slot];
  const double began = bs_clock_s();
  s->live = s->ready = 0;
  s->sampling = how;
  rc = begin(g, slot, ids, (int64_t)n, err);
  g->stats.prompt_seconds += bs_clock_s() - began;
  if (rc == BS_OK) s->live = s->ready = 1;
  return rc;
}
