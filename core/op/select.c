/* SPDX-License-Identifier: MIT
 * select.c - which implementation serves a query: NATIVE before EMULATED before UNKNOWN, then the higher
 * score, the higher priority, the name in byte order (so that two runs and all ranks choose alike): the table
 * of defaults. A choice (choice.h) goes before it. Answers of NO are kept: a failed selection lists each
 * candidate with its reason. Slow path only. */
#include "core/op/select.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/op/knob.h"
#include "core/op/schema.h"
#include "core/op/sibling.h"

const char *bs_candidate_reason(uint32_t reason) {
  static const char *const names[] = {"no reason",  "dtype",  "rank",     "shape",     "alignment",
                                      "layout",     "mask",   "arch",     "library",   "workspace",
                                      "world size", "memory", "disabled", "not built", "no device"};
  return reason < sizeof names / sizeof names[0] ? names[reason] : "unknown reason";
}

void bs_candidate_ask(bs_candidate *candidate, const bs_op_query *query) {
  bs_op_answer *out_answer = &candidate->answer;
  bs_op_query told = *query;
  told.knobs = candidate->knobs;
  memset(out_answer, 0, sizeof *out_answer);
  out_answer->struct_size = (uint32_t)sizeof *out_answer;
  const int32_t rc = candidate->impl->supports(candidate->thing->state, &told, out_answer);
  out_answer->algo[sizeof out_answer->algo - 1] = '\0';
  out_answer->text[sizeof out_answer->text - 1] = '\0';
  bs_dtype_name_codes(out_answer->text);
  if (rc != BS_OK) {
    out_answer->level = BS_LEVEL_NO;
    snprintf(out_answer->text, sizeof out_answer->text, "supports failed: %s", bs_status_name(rc));
  } else if (out_answer->level > BS_LEVEL_UNKNOWN) {
    const uint32_t level = out_answer->level;
    out_answer->level = BS_LEVEL_NO;
    snprintf(out_answer->text, sizeof out_answer->text, "answered the unknown level %u", level);
  } else if (out_answer->level == BS_LEVEL_NO && out_answer->text[0] == '\0') {
    snprintf(out_answer->text, sizeof out_answer->text, "gave no text");
  }
  if (out_answer->score > 1000) out_answer->score = 1000;
  if ((query->flags & BS_QUERY_BITS) == 0 || out_answer->level == BS_LEVEL_NO || out_answer->bits == 1 ||
      out_answer->tolerance == BS_TOL_EXACT)
    return;
  out_answer->level = BS_LEVEL_NO;
  out_answer->reason = BS_REASON_DISABLED;
  snprintf(out_answer->text, sizeof out_answer->text, "keeps no definition of bits for this query");
}

void bs_candidate_reject(bs_candidate *candidate, const bs_error *why) {
  candidate->answer.level = BS_LEVEL_NO;
  snprintf(candidate->answer.text, sizeof candidate->answer.text, "tried: %.140s", why->message);
}

/* NATIVE, EMULATED, UNKNOWN, the fallback, NO. */
static int level_rank(const bs_candidate *c) {
  if (c->answer.level == BS_LEVEL_NO) return 4;
  if (c->fallback) return 3;
  return c->answer.level == BS_LEVEL_NATIVE ? 0 : c->answer.level == BS_LEVEL_EMULATED ? 1 : 2;
}

static int compare(const void *left, const void *right) {
  const bs_candidate *a = left, *b = right;
  const int la = level_rank(a), lb = level_rank(b);
  if (la != lb) return la < lb ? -1 : 1;
  if (a->answer.score != b->answer.score) return a->answer.score > b->answer.score ? -1 : 1;
  if (a->impl->priority != b->impl->priority) return a->impl->priority > b->impl->priority ? -1 : 1;
  const int names = strcmp(a->impl->name, b->impl->name);
  return names != 0 ? names : strcmp(a->thing->plugin, b->thing->plugin);
}

/* Move the wanted one to the front, unless it says NO. */
static void prefer(bs_candidates *c) {
  for (uint32_t i = 0; i < c->count && c->rows[i].answer.level != BS_LEVEL_NO; i++) {
    if (!bs_choice_names(c->wanted, c->rows[i].thing, c->rows[i].impl)) continue;
    const bs_candidate first = c->rows[i];
    memmove(&c->rows[1], &c->rows[0], i * sizeof first);
    c->rows[0] = first;
    c->measured = 1;
    return;
  }
}

int32_t bs_candidate_knobs(const bs_op_host *host, const char *key, const bs_thing *thing,
                           const char **out_knobs, bs_error *err) {
  const char *wanted = bs_choice_wanted(host->choices, key), *knobs = bs_choice_knobs(host->choices, key);
  const bs_op_impl *impl = thing->vtable;
  char what[200];
  *out_knobs = NULL;
  if (knobs == NULL || !bs_choice_names(wanted, thing, impl)) return BS_OK;
  snprintf(what, sizeof what, "%s@%s/%s", impl->op, impl->backend, impl->name);
  const int32_t rc = bs_knobs_check(impl->knobs, impl->n_knobs, what, knobs, err);
  if (rc == BS_OK)
    *out_knobs = knobs;
  else
    bs_error_where(err, "choice %.100s{%.200s}", wanted, knobs);
  return rc;
}

/* Ask those of one backend, at most `count`, into rows; *out_count grows by as many as there are. */
static int32_t ask_backend(const bs_op_host *host, const bs_op_query *query, const char *key,
                           const char *backend, int fallback, uint32_t count, bs_candidate *rows,
                           uint32_t *out_count, bs_error *err) {
  if (count == 0) return BS_OK;
  const bs_thing **things = calloc(count, sizeof *things);
  if (things == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-OP-MEMORY", "no memory for %u candidates of op %s", count,
                        query->op);
  /* Another thread may have opened a plugin in between: never more than was asked for. */
  const uint32_t filled = bs_registry_ops(host->context, query->op, backend, things, count);
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < filled && i < count; i++) {
    rows[i].thing = things[i];
    rows[i].impl = things[i]->vtable;
    rows[i].fallback = (uint32_t)fallback;
    rc = bs_candidate_knobs(host, key, things[i], &rows[i].knobs, err);
    if (rc != BS_OK) break;
    bs_candidate_ask(&rows[i], query);
    rc = bs_sibling_require(host, query, &rows[i], err);
    if (fallback && rows[i].answer.level != BS_LEVEL_NO) {
      rows[i].answer.level = BS_LEVEL_EMULATED;
      rows[i].answer.score = 0;
    }
    ++*out_count;
  }
  free(things);
  return rc;
}

int32_t bs_candidates_ask(const bs_op_host *host, const bs_op_query *query, bs_candidates *out_candidates,
                          bs_error *err) {
  memset(out_candidates, 0, sizeof *out_candidates);
  if (host->choices != NULL) {
    bs_choice_key(host, query, out_candidates->key, sizeof out_candidates->key);
    out_candidates->wanted = bs_choice_wanted(host->choices, out_candidates->key);
  }
  const char *const backends[2] = {host->backend, host->fallback};
  uint32_t counts[2] = {0, 0};
  for (int b = 0; b < 2 && backends[b] != NULL; b++)
    counts[b] = bs_registry_ops(host->context, query->op, backends[b], NULL, 0);
  const uint32_t count = counts[0] + counts[1];
  if (count == 0) return BS_OK;
  bs_candidate *rows = calloc(count, sizeof *rows);
  if (rows == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-OP-MEMORY", "no memory for %u candidates of op %s", count,
                        query->op);
  for (int b = 0; b < 2 && backends[b] != NULL; b++) {
    bs_candidate *from = rows + out_candidates->count;
    const int32_t rc = ask_backend(host, query, out_candidates->key, backends[b], b, counts[b], from,
                                   &out_candidates->count, err);
    if (rc == BS_OK) continue;
    free(rows);
    out_candidates->count = 0;
    return rc;
  }
  qsort(rows, out_candidates->count, sizeof *rows, compare);
  out_candidates->rows = rows;
  if (out_candidates->wanted != NULL) prefer(out_candidates);
  return BS_OK;
}

static void refused(const bs_op_host *host, const bs_candidates *c, const bs_candidate *took) {
  char why[320], text[1024];
  const bs_candidate *named = NULL;
  for (uint32_t i = 0; i < c->count && named == NULL; i++)
    if (bs_choice_names(c->wanted, c->rows[i].thing, c->rows[i].impl)) named = &c->rows[i];
  if (named != NULL)
    snprintf(why, sizeof why, "%s: %s", bs_candidate_reason(named->answer.reason), named->answer.text);
  else
    snprintf(why, sizeof why, "no plugin here offers it");
  if (!bs_choice_refuse(host->choices, c->key, why) || host->warn == NULL) return;
  snprintf(text, sizeof text, "the choice %.80s for %.400s cannot be followed (%.300s); %s:%s serves",
           c->wanted, c->key, why, took->thing->plugin, took->impl->name);
  host->warn(host->user, text);
}

void bs_candidates_report(const bs_op_host *host, const bs_candidates *c, int64_t took) {
  bs_choice_row rows[16];
  bs_choice_row used = {0};
  uint32_t count = 0;
  if (host->choices == NULL) return;
  for (uint32_t i = 0; i < c->count && count < 16; i++)
    if (c->rows[i].answer.level != BS_LEVEL_NO)
      rows[count++] = (bs_choice_row){c->rows[i].thing, c->rows[i].impl, &c->rows[i].answer};
  if (took >= 0) used = (bs_choice_row){c->rows[took].thing, c->rows[took].impl, &c->rows[took].answer};
  bs_choice_report(host->choices, c->key, rows, count, took >= 0 ? &used : NULL);
  if (took >= 0 && c->wanted != NULL && !bs_choice_names(c->wanted, used.thing, used.impl))
    refused(host, c, &c->rows[took]);
}

void bs_candidates_free(bs_candidates *candidates) {
  free(candidates->rows);
  candidates->rows = NULL;
  candidates->count = 0;
}

void bs_candidates_reasons(const bs_candidates *candidates, int fallback, char *out, size_t size) {
  size_t used = 0;
  if (size > 0) out[0] = '\0';
  for (uint32_t i = 0; i < candidates->count && used < size; i++) {
    const bs_candidate *c = &candidates->rows[i];
    if (c->fallback && !fallback) continue;
    const int n = snprintf(out + used, size - used, "%s%s (%s): %s: %s", used > 0 ? "; " : "", c->impl->name,
                           c->thing->plugin, bs_candidate_reason(c->answer.reason), c->answer.text);
    if (n > 0) used += (size_t)n;
  }
}

int32_t bs_candidates_none(const bs_op_host *host, const bs_op_query *query, const bs_candidates *candidates,
                           bs_error *err) {
  char what[160], reasons[384];
  bs_op_describe(query, what, sizeof what);
  if (candidates->count == 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-OP-NONE", "no plugin offers op %s on backend %s", query->op,
                 host->backend);
    bs_error_hint(err, "bsrun plugins list shows what each plugin offers");
  } else {
    uint32_t of_dtype = 0;
    for (uint32_t i = 0; i < candidates->count; i++)
      of_dtype += candidates->rows[i].answer.reason == BS_REASON_DTYPE;
    /* The same reason of many implementations is told once; `bsrun explain` lists each. */
    if (of_dtype == candidates->count && of_dtype > 2)
      snprintf(reasons, sizeof reasons, "no implementation has this dtype");
    else
      bs_candidates_reasons(candidates, 1, reasons, sizeof reasons);
    bs_error_set(err, BS_UNSUPPORTED, "BS-OP-NONE", "%s@%s does not serve %s: %s", query->op, host->backend,
                 what, reasons);
    bs_error_hint(err, "%s",
                  (query->flags & BS_QUERY_BITS) != 0
                      ? "without the promise of bits (--with repro=runs) it is served"
                      : "the ref backend (--plugin ref) serves every dtype and shape; "
                        "share/doc/blockshock/ops.md has a table");
  }
  bs_error_where(err, "op %s@%s", query->op, host->backend);
  return BS_UNSUPPORTED;
}
