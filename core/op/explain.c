/* SPDX-License-Identifier: MIT
 * explain.c - bs_op_explain: the whole ladder of one query, the refused included, by the ranking that pack
 * and prepare use (select.c). Called by `bsrun explain`; slow path only. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/op/dispatch.h"
#include "core/op/schema.h"
#include "core/op/select.h"

const char *bs_reason_name(uint32_t reason) {
  return bs_candidate_reason(reason);
}

const char *bs_level_name(uint32_t level) {
  static const char *const names[] = {"no", "emulated", "native", "unknown"};
  return level < sizeof names / sizeof names[0] ? names[level] : "?";
}

/* The first that is not NO: what pack and prepare would take. An UNKNOWN one may still turn out not to run.
 */
static void tell(const bs_candidates *of, uint32_t place, void (*each)(void *, const bs_op_candidate *),
                 void *user) {
  char name[192];
  const bs_candidate *c = &of->rows[place];
  snprintf(name, sizeof name, "%s@%s/%s", c->impl->op, c->impl->backend, c->impl->name);
  const bs_op_candidate candidate = {
      .struct_size = sizeof candidate,
      .place = place,
      .chosen = place == 0 && c->answer.level != BS_LEVEL_NO,
      .priority = c->impl->priority,
      .name = name,
      .plugin = c->thing->plugin,
      .summary = c->impl->summary,
      .answer = &c->answer,
      .key = of->key,
      .wanted = of->wanted != NULL && bs_choice_names(of->wanted, c->thing, c->impl),
      .n_knobs = c->impl->n_knobs,
      .knobs = c->impl->knobs,
      .given = c->knobs != NULL ? c->knobs : ""};
  each(user, &candidate);
}

int32_t bs_op_explain(bs_context *context, const char *backend, const bs_op_query *query,
                      void (*each)(void *user, const bs_op_candidate *candidate), void *user, bs_error *err) {
  return bs_op_explain_at(context, backend, NULL, query, each, user, err);
}

int32_t bs_op_explain_at(bs_context *context, const char *backend, const bs_op_site *site,
                         const bs_op_query *query, void (*each)(void *user, const bs_op_candidate *candidate),
                         void *user, bs_error *err) {
  if (context == NULL || backend == NULL || each == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-OP-ARG",
                        "explaining an op needs a context, a backend and a callback");
  int32_t rc = bs_op_check(query, err);
  if (rc != BS_OK) return rc;
  bs_op_site at = {0};
  if (site != NULL) memcpy(&at, site, site->struct_size < sizeof at ? site->struct_size : sizeof at);
  const bs_exec exec = {.struct_size = sizeof exec, .width = at.threads > 0 ? at.threads : 1};
  bs_op_host host = {.context = context,
                     .backend = backend,
                     .exec = &exec,
                     .world_size = at.world_size,
                     .fallback = at.fallback && strcmp(backend, "ref") != 0 ? "ref" : NULL};
  bs_candidates candidates;
  rc = bs_choice_book_new(at.choices, at.n_choices, &host.choices, err);
  if (rc == BS_OK) {
    rc = bs_candidates_ask(&host, query, &candidates, err);
    if (rc != BS_OK) bs_choice_book_free(host.choices);
  }
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < candidates.count; i++) tell(&candidates, i, each, user);
  if (candidates.count == 0 || candidates.rows[0].answer.level == BS_LEVEL_NO)
    rc = bs_candidates_none(&host, query, &candidates, err);
  bs_candidates_free(&candidates);
  bs_choice_book_free(host.choices);
  return rc;
}
