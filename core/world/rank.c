/* SPDX-License-Identifier: MIT
 *
 * rank.c - opening and closing a rank (device, communicator, team) and the public functions that speak
 * of one rank. Called by launch.c and, through blockshock.h, by the lab.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/text.h"
#include "core/world/executor.h"
#include "core/world/world.h"

bs_rank *bs_rank_new(bs_world *world, uint32_t index) {
  void *memory = NULL;
  if (posix_memalign(&memory, 64, sizeof(bs_rank)) != 0) return NULL;
  bs_rank *rank = memset(memory, 0, sizeof(bs_rank));
  rank->world = world;
  rank->index = index;
  if (bs_regions_init(rank) != BS_OK) {
    bs_regions_free(rank);
    free(rank);
    return NULL;
  }
  return rank;
}

static int32_t team_for(void *ctx, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg) {
  return bs_team_run(((bs_rank *)ctx)->team, body, arg);
}

/* Append a line to the world's list, once. */
static void note_algorithm(void *user, const char *text) {
  bs_world *world = ((bs_rank *)user)->world;
  size_t add = strlen(text);
  pthread_mutex_lock(&world->lock);
  const char *at = world->algorithms;
  int known = 0;
  while (at != NULL && !known) {
    const char *end = strchr(at, '\n');
    size_t length = end != NULL ? (size_t)(end - at) : strlen(at);
    known = length == add && memcmp(at, text, add) == 0;
    at = end != NULL ? end + 1 : NULL;
  }
  if (!known) {
    size_t used = world->algorithms != NULL ? strlen(world->algorithms) : 0;
    char *grown = realloc(world->algorithms, used + add + 2);
    if (grown != NULL) {
      if (used > 0) grown[used++] = '\n';
      memcpy(grown + used, text, add + 1);
      world->algorithms = grown;
    }
  }
  pthread_mutex_unlock(&world->lock);
}

static void warn(void *user, const char *text) {
  const bs_rank *rank = user;
  bs_log_write(rank->world->logger, BS_LOG_WARN, "", (int32_t)rank->index, "%s", text);
}

/* Let the communicator serve the device's memory, where there is such and it can. */
static int32_t bind_device(bs_rank *rank, bs_error *err) {
  const bs_world *world = rank->world;
  if (world->comm->device_bind == NULL || (world->backend->flags & BS_BACKEND_HOST_MEMORY) != 0) return BS_OK;
  const bs_comm_device device = {.struct_size = (uint32_t)sizeof device,
                                 .index = bs_world_place(world, rank->index) % world->devices,
                                 .backend = world->backend,
                                 .device = rank->device,
                                 .timeout_ns = world->timeout_ns};
  bs_error why = BS_ERROR_INIT;
  const int32_t rc = world->comm->device_bind(rank->comm, &device, &rank->bound, &why);
  if (rc == BS_UNSUPPORTED) {
    rank->bound = NULL;
    bs_log_write(world->logger, rank->index == 0 ? BS_LOG_WARN : BS_LOG_DEBUG, "", (int32_t)rank->index,
                 "collectives go through host memory: %s", why.message);
    return BS_OK;
  }
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
}

/* Opens the rank's device. A rank of a DRIVEN world has no thread, so the log's rank is set around the call
 * (rank_of_thread). */
static int32_t open_device(bs_rank *rank, bs_error *err) {
  const bs_world *world = rank->world;
  const int32_t before = bs_log_rank();
  if (rank->device != NULL) return BS_OK;
  bs_log_set_rank((int32_t)rank->index);
  const int32_t rc = world->backend->device_open(
      world->backend_state, bs_world_place(world, rank->index) % world->devices, &rank->device, err);
  bs_log_set_rank(before);
  return rc;
}

int32_t bs_rank_open(bs_rank *rank, bs_error *err) {
  bs_world *world = rank->world;
  if (rank->opened) return BS_OK;
  const int32_t opened = open_device(rank, err);
  if (opened != BS_OK) return opened;
  if (rank->team == NULL) {
    int32_t rc = bs_team_new(world->width, world->spin_ns,
                             world->pinned ? bs_world_cores(world, rank->index) : NULL, &rank->team, err);
    if (rc != BS_OK) return rc;
  }
  if (rank->comm == NULL && world->comm_world != NULL) {
    int32_t rc = world->comm->rank_open(world->comm_world, rank->index, &rank->comm, err);
    if (rc == BS_OK) rc = bind_device(rank, err);
    if (rc != BS_OK) return rc;
  }
  rank->exec.struct_size = (uint32_t)sizeof rank->exec;
  rank->exec.width = world->width;
  rank->exec.device = rank->device;
  rank->exec.ctx = rank;
  rank->exec.parallel_for = team_for;
  rank->exec.alloc = bs_memory_exec_alloc;
  rank->exec.free = bs_memory_exec_free;
  rank->exec.note = note_algorithm;
  rank->exec.reserve = bs_memory_reserve;
  rank->exec.scratch = bs_memory_scratch;
  rank->ops.context = world->context;
  rank->ops.backend = world->backend->name;
  rank->ops.exec = &rank->exec;
  rank->ops.counters = rank->counters;
  rank->ops.note_algorithm = note_algorithm;
  rank->ops.user = rank;
  rank->ops.unused = bs_memory_scratch_free;
  rank->ops.choices = world->choices;
  rank->ops.warn = warn;
  rank->ops.world_size = world->size;
  rank->ops.rehearse = world->rehearse;
  const uint32_t host_memory = BS_BACKEND_HOST_MEMORY | BS_BACKEND_SYNC;
  if (world->fallback && (world->backend->flags & host_memory) == host_memory &&
      strcmp(bs_innermost(world->backend->name), "ref") != 0)
    rank->ops.fallback = "ref";
  rank->use_events = world->sync_mode != BS_SYNC_NONE && (world->backend->flags & BS_BACKEND_SYNC) == 0 &&
                     world->backend->event_create != NULL && world->backend->event_destroy != NULL &&
                     world->backend->event_record != NULL && world->backend->event_elapsed != NULL;
  rank->opened = 1;
  return BS_OK;
}

void bs_rank_close(bs_rank *rank) {
  if (rank == NULL) return;
  bs_world *world = rank->world;
  bs_coll_line_free(rank);
  bs_coll_side_free(rank);
  bs_regions_free(rank);
  bs_rank_flush_free(rank);
  bs_memory_scratch_free(rank);
  if (rank->nblocks > 0)
    bs_log_write(world->logger, BS_LOG_DEBUG, "", (int32_t)rank->index,
                 "%llu device allocations were not freed", (unsigned long long)rank->nblocks);
  if (rank->comm != NULL) world->comm->rank_close(rank->comm);
  bs_team_free(rank->team);
  if (rank->device != NULL) world->backend->device_close(rank->device);
  bs_rank_notes_free(rank);
  free(rank->blocks);
  free(rank);
}

void bs_rank_misuse(bs_rank *rank, int32_t code, const char *id, const char *fmt, ...) {
  char text[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (rank->sticky.code == BS_OK) bs_error_set(&rank->sticky, code, id, "%s", text);
  bs_log_write(rank->world->logger, BS_LOG_ERROR, "", (int32_t)rank->index, "%s: %s", id, text);
}

/* ---- public --------------------------------------------------------------------------------- */

uint64_t bs_rank_counter(const bs_rank *rank, uint32_t counter) {
  return counter < BS_COUNT_COUNT_ ? rank->counters[counter] : 0;
}
void bs_rank_counters_reset(bs_rank *rank) {
  memset(rank->counters, 0, sizeof rank->counters);
}

int32_t bs_rank_barrier(bs_rank *rank, const char *site, bs_error *err) {
  const bs_world *world = rank->world;
  if (rank->comm == NULL) return BS_OK;
  if (world->comm->barrier == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-COLL-KIND", "communicator %s has no barrier",
                        world->comm->name);
  bs_coll_call call;
  memset(&call, 0, sizeof call);
  call.struct_size = (uint32_t)sizeof call;
  call.kind = BS_COLL_BARRIER;
  call.site = site != NULL ? site : "barrier";
  call.fingerprint = bs_coll_text_hash(call.site);
  call.timeout_ns = world->timeout_ns;
  if (rank->line != NULL) bs_coll_settle(rank);
  int32_t rc = world->comm->barrier(rank->comm, &call, err);
  if (rc != BS_OK && err != NULL && err->rank < 0) err->rank = (int32_t)rank->index;
  return rc;
}

int32_t bs_rank_sync(bs_rank *rank, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  if (backend->stream_sync == NULL) return BS_OK;
  const uint64_t began = bs_rank_wait_begins(rank);
  const int32_t rc = backend->stream_sync(rank->device, NULL, err);
  bs_rank_wait_ends(rank, began);
  return rc;
}

/* A wait within another is part of it. */
uint64_t bs_rank_wait_begins(bs_rank *rank) {
  return rank->use_events && rank->waiting++ == 0 ? bs_rank_clock_ns(rank) : 0;
}
void bs_rank_wait_ends(bs_rank *rank, uint64_t began_ns) {
  if (rank->use_events && --rank->waiting == 0) rank->waited_ns += bs_rank_clock_ns(rank) - began_ns;
}

int bs_rank_clock_is_virtual(const bs_rank *rank) {
  return rank->comm != NULL && rank->world->comm->clock_ns != NULL;
}

uint64_t bs_rank_clock_ns(const bs_rank *rank) {
  const bs_comm *comm = rank->world->comm;
  struct timespec t;
  if (rank->comm != NULL && comm->clock_ns != NULL) return comm->clock_ns(rank->comm);
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
