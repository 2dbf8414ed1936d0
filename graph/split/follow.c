/* SPDX-License-Identifier: MIT
 * follow.c - bs_session_follow: a rank of another process than rank 0's serves the calls that rank 0 tells.
 */
#include <stdlib.h>

#include "core/base/error.h"
#include "graph/run/args.h"
#include "graph/split/tell.h"

static int32_t bind_told(const gfront *f, bs_session *s, bs_error *err) {
  const gmodel *m = s->graph->model;
  bs_dim *dims = calloc(m->n_symbols + 1u, sizeof *dims);
  const bs_dim **list = calloc(m->n_symbols + 1u, sizeof *list);
  uint32_t n = 0;
  int32_t rc = dims == NULL || list == NULL
                   ? bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for sizes")
                   : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < m->n_symbols; i++) {
    if (f->sizes[i] == GTOLD_SAME) continue;
    dims[n] = (bs_dim){.struct_size = (uint32_t)sizeof *dims, .name = m->symbols[i], .size = f->sizes[i]};
    list[n] = &dims[n];
    n++;
  }
  if (rc == BS_OK) rc = bs_session_bind(s, list, n, err);
  free(dims);
  free(list);
  return rc;
}

static int32_t serve(const gfront *f, bs_session *s, bs_error *err) {
  switch (f->told.call) {
    case GTOLD_BIND:
      return bind_told(f, s, err);
    case GTOLD_RUN:
      return gfront_run_member(s, f->told.compares, err);
    case GTOLD_TRACE:
      return bs_session_run(s, err);
    case GTOLD_CHECK:
      return bs_session_check(s, NULL, NULL, err);
    case GTOLD_COPY:
      return bs_session_slot_copy(s, f->told.from, f->told.to, f->told.tokens, err);
    default:
      return bs_error_set(err, BS_INTERNAL, "BS-GRAPH-FOLLOW", "rank 0 tells the unknown call %u",
                          f->told.call);
  }
}

static int32_t follow_main(bs_rank *rank, void *arg, bs_error *err) {
  gfront *f = arg;
  bs_error *mine = &f->errors[f->first];
  int32_t *code = &f->codes[f->first];
  for (;;) {
    int32_t rc = gtell_call(f, rank, err);
    if (rc != BS_OK) return rc;
    if (f->told.call == GTOLD_CLOSE) break;
    *mine = (bs_error)BS_ERROR_INIT;
    *code = serve(f, gfront_lead(f), mine);
    if (!gfront_goes_on(rank, *code)) {
      if (err != NULL) *err = *mine;
      return *code;
    }
    rc = gtell_outcome(f, rank, err);
    if (rc != BS_OK) return rc;
  }
  bs_session_close(f->members[f->first]);
  f->members[f->first] = NULL;
  return BS_OK;
}

BS_API int32_t bs_session_follow(bs_session *s, bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_follow", "session", err);
  gfront *f = s->front;
  if (f != NULL && f->processes && f->first > 0 && gfront_lead(f) != NULL)
    return bs_world_run(f->world, follow_main, f, err);
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-FOLLOW", "%s",
               f == NULL || !f->processes ? "the session's ranks are no processes"
               : f->first == 0            ? "rank 0 makes the session's calls, and follows none"
                                          : "rank 0 has closed the session");
  bs_error_hint(err, "ranks above 0 of a world that bs_context_attach joins follow rank 0");
  return BS_INVALID_ARGUMENT;
}
