/* SPDX-License-Identifier: MIT
 * rank.c - the rank that a session runs on: of a world of one, on the thread of the caller. */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/world/executor.h"
#include "graph/run/run.h"

static int32_t check_backend(bs_context *context, const char *name, grank *io_rank, bs_error *err) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  const int32_t rc = bs_find_backend(context, name, &backend, &state, err);
  if (rc != BS_OK) return rc;
  io_rank->apart = (backend->flags & BS_BACKEND_HOST_MEMORY) == 0;
  io_rank->phantom = (backend->flags & BS_BACKEND_PHANTOM) != 0;
  if (!io_rank->phantom || io_rank->inside) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-BACKEND", "backend %.64s holds no values", name);
  bs_error_hint(err, "bsrun model bench with --hardware simulates the model on a machine");
  return BS_UNSUPPORTED;
}

/* The rank of the world that runs the caller. */
static int32_t open_inside(bs_context *context, const bs_session_options *options, grank *out_rank,
                           bs_error *err) {
  *out_rank = (grank){.context = context,
                      .world = bs_rank_world(options->rank),
                      .rank = options->rank,
                      .inside = 1,
                      .fallback = 1,
                      .threads = bs_world_threads_per_rank(bs_rank_world(options->rank)),
                      .api = bs_rank_get_api()};
  return check_backend(context, bs_rank_backend(options->rank), out_rank, err);
}

int32_t grank_open(bs_context *context, const bs_session_options *options, int fallback, grank *out_rank,
                   bs_error *err) {
  if (options->rank != NULL) return open_inside(context, options, out_rank, err);
  const char *backend = options->backend != NULL ? options->backend : "cpu";
  const bs_world_options world = {.struct_size = (uint32_t)sizeof world,
                                  .world_size = 1,
                                  .backend = backend,
                                  .threads_per_rank = options->threads,
                                  .bind = options->bind,
                                  .choices = options->choices,
                                  .n_choices = options->n_choices,
                                  .fallback = (uint32_t)fallback};
  *out_rank = (grank){.context = context,
                      .api = bs_rank_get_api(),
                      .fallback = (uint32_t)fallback,
                      .threads = options->threads};
  int32_t rc = check_backend(context, backend, out_rank, err);
  if (rc == BS_OK) rc = bs_world_create(context, &world, &out_rank->world, err);
  if (rc != BS_OK) grank_close(out_rank);
  return rc;
}

/* The world is the thread's only during a call: the next call may come from another thread. */
int32_t grank_enter(grank *r, bs_error *err) {
  const int32_t rc = r->depth == 0 && !r->inside ? bs_world_enter(r->world, &r->rank, err) : BS_OK;
  if (rc != BS_OK) return rc;
  r->depth++;
  r->known = r->rank;
  return rc;
}

int grank_enter_to_free(grank *r) {
  if (grank_enter(r, NULL) == BS_OK) return 1;
  if (r->known == NULL) return 0;
  r->rank = r->known;
  r->freeing++;
  return 1;
}

void grank_leave_freed(grank *r) {
  if (r->freeing > 0)
    r->freeing--;
  else
    grank_leave(r, BS_OK, NULL);
}

int32_t grank_leave(grank *r, int32_t rc, bs_error *err) {
  if (--r->depth > 0 || r->inside) return rc;
  const int32_t left = bs_world_leave(r->world, rc == BS_OK ? err : NULL);
  return rc != BS_OK ? rc : left;
}

uint64_t grank_scratch(const grank *r) {
  return r->rank != NULL ? bs_rank_scratch_bytes(r->rank) : 0;
}

void grank_drop(grank *r) {
  if (--r->refs > 0) return;
  grank_close(r);
  free(r);
}

void grank_close(grank *r) {
  if (r->host != NULL) grank_drop(r->host);
  if (!r->inside) bs_world_destroy(r->world);
  *r = (grank){0};
}
