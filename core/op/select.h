/* SPDX-License-Identifier: MIT
 * select.h - ranking the implementations of one query: every candidate with its answer, best first. Used by
 * core/op/dispatch.c. */
#ifndef BS_CORE_OP_SELECT_H
#define BS_CORE_OP_SELECT_H
#include "core/op/choice.h"
#include "core/op/dispatch.h"
#include "core/plugin/registry.h"

typedef struct bs_candidate {
  const bs_thing *thing;
  const bs_op_impl *impl;
  bs_op_answer answer;
  uint32_t fallback; /* 1: of host->fallback; it comes after all others that can serve */
  const char *knobs; /* the knobs that a choice sets; NULL: none. Owned by host->choices */
} bs_candidate;

typedef struct bs_candidates {
  bs_candidate *rows; /* NATIVE, EMULATED, UNKNOWN, then NO; within a level score, priority, name, plugin */
  uint32_t count;
  uint32_t measured;  /* 1: rows[0] is there because a choice names it */
  const char *wanted; /* the name that a choice gives for the key; NULL: none. Owned by host->choices */
  char key[BS_CHOICE_KEY];
} bs_candidates;

/* Ask every implementation of query->op on the host's backend; one that a choice names comes first where it
 * can serve. The query has passed bs_op_check.
 * BS_NO_MEMORY or BS_OK (also when nothing serves). Free with bs_candidates_free. */
int32_t bs_candidates_ask(const bs_op_host *host, const bs_op_query *query, bs_candidates *out_candidates,
                          bs_error *err);
/* Gets the knobs that a choice for the query's key sets for this implementation (NULL: none). BS_CONFIG
 * BS-OP-KNOB when the implementation does not declare them. */
int32_t bs_candidate_knobs(const bs_op_host *host, const char *key, const bs_thing *thing,
                           const char **out_knobs, bs_error *err);
void bs_candidates_free(bs_candidates *candidates);
/* Adds those that can serve to the host's book; took: index of the row that was used, -1: only asked. Warns
 * once about a choice that was not followed. */
void bs_candidates_report(const bs_op_host *host, const bs_candidates *candidates, int64_t took);
/* Ask one implementation, with its knobs; a broken answer (unknown level, failing call) becomes NO with a
 * text that says so.
 */
void bs_candidate_ask(bs_candidate *candidate, const bs_op_query *query);
/* Words of a reason code (enum bs_reason), static. */
const char *bs_candidate_reason(uint32_t reason);
/* Turn a candidate that failed after all into a NO with that reason. */
void bs_candidate_reject(bs_candidate *candidate, const bs_error *why);
/* BS-OP-NONE: each candidate with its reason. */
int32_t bs_candidates_none(const bs_op_host *host, const bs_op_query *query, const bs_candidates *candidates,
                           bs_error *err);
/* The reasons alone, "avx2: ...; dnnl: ...", truncated to size. fallback 0: those of the host's own backend
 * alone; "" when it has no candidate. */
void bs_candidates_reasons(const bs_candidates *candidates, int fallback, char *out, size_t size);
#endif
