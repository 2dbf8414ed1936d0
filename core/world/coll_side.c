/* SPDX-License-Identifier: MIT
 *
 * coll_side.c - the stream of started collectives. They need a communicator that serves the device's memory,
 * and a backend that lets one stream wait for another. A rank then has a separate stream for them. That
 * stream waits for the collective's input, while the first stream goes on. The first stream waits for the
 * result in the collective's wait. The host waits for neither. Otherwise a started collective is queued on
 * the stream it was started from, and the device runs it after the earlier work of that stream.
 *
 * Streams and events are made by the first start of a rank, and of a plan.
 */
#include <stdio.h>

#include "core/world/coll_plan.h"

static int serves(const bs_coll_plan *p) {
  const bs_backend *b = p->rank->world->backend;
  return (p->call.flags & BS_COLL_DEVICE) != 0 && b->stream_wait != NULL && b->stream_create != NULL &&
         b->stream_destroy != NULL && b->event_create != NULL && b->event_destroy != NULL &&
         b->event_record != NULL;
}

static int32_t make(bs_coll_plan *p, bs_error *err) {
  bs_rank *rank = p->rank;
  const bs_backend *b = rank->world->backend;
  int32_t rc = BS_OK;
  if (rank->side == NULL) {
    char text[96];
    rc = b->stream_create(rank->device, &rank->side, err);
    snprintf(text, sizeof text, "overlap@%.60s/stream", b->name);
    if (rc == BS_OK) rank->ops.note_algorithm(rank->ops.user, text);
  }
  if (rc == BS_OK && p->ready == NULL) rc = b->event_create(rank->device, &p->ready, err);
  if (rc == BS_OK && p->done == NULL) rc = b->event_create(rank->device, &p->done, err);
  return rc;
}

/* Makes `stream` wait for the work before the event. */
static int32_t follow(const bs_coll_plan *p, bs_stream *stream, bs_event *event, bs_error *err) {
  const bs_rank *rank = p->rank;
  const int32_t rc = rank->world->backend->stream_wait(rank->device, stream, event, err);
  if (rc != BS_OK && err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", p->site);
  return rc;
}

int32_t bs_coll_side_enter(bs_coll_plan *p, bs_error *err) {
  bs_rank *rank = p->rank;
  p->aside = 0;
  if (!serves(p)) return BS_OK;
  int32_t rc = make(p, err);
  if (rc == BS_OK) rc = rank->world->backend->event_record(rank->device, p->ready, p->call.stream, err);
  if (rc == BS_OK) rc = follow(p, rank->side, p->ready, err);
  if (rc != BS_OK) return rc;
  p->started_from = p->call.stream;
  p->call.stream = rank->side;
  p->aside = 1;
  return BS_OK;
}

int32_t bs_coll_side_done(bs_coll_plan *p, bs_error *err) {
  const bs_rank *rank = p->rank;
  if (!p->aside) return BS_OK;
  return rank->world->backend->event_record(rank->device, p->done, rank->side, err);
}

int32_t bs_coll_side_leave(bs_coll_plan *p, bs_error *err) {
  return p->aside ? follow(p, p->started_from, p->done, err) : BS_OK;
}

void bs_coll_side_release(bs_coll_plan *p) {
  const bs_rank *rank = p->rank;
  if (p->ready != NULL) rank->world->backend->event_destroy(rank->device, p->ready);
  if (p->done != NULL) rank->world->backend->event_destroy(rank->device, p->done);
}

void bs_coll_side_free(bs_rank *rank) {
  if (rank->side != NULL) rank->world->backend->stream_destroy(rank->device, rank->side);
  rank->side = NULL;
}
