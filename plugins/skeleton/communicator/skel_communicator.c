/* SPDX-License-Identifier: MIT
 * skel_communicator.c - the communicator skel_communicator: ranks are threads of this process and meet at one
 * lock. Each stores its call there and sleeps; the last one does the work for all. So every rank gets the
 * same bits, and no rank reads memory whose owner has continued. Every wait has a deadline, and an abort ends
 * it. */
#if !defined(_GNU_SOURCE) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* pthread_condattr_setclock */
#endif
#include "skel_communicator.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

typedef struct world world;

/* A rank's reference to its world. */
typedef struct rank {
  world *of;
  uint32_t me;
} rank;

struct world {
  const bs_host *host;
  uint32_t size;
  pthread_mutex_t lock; /* of all that follows */
  pthread_cond_t changed;
  uint32_t arrived;           /* at the meeting that is waited for */
  uint64_t meetings;          /* held so far */
  int32_t status;             /* of the last one */
  const bs_coll_call **calls; /* [size]: who has arrived with what; NULL: not yet */
  rank *ranks;                /* [size] */
  int32_t failed;             /* BS_OK, or the first failure: a failed world stays failed */
  char why[400];
};

/* ---- failures ------------------------------------------------------------------------------- */

static int64_t timeout_of(const bs_coll_call *call) {
  return call->timeout_ns > 0 ? call->timeout_ns : INT64_C(60000000000);
}

static const char *site_of(const bs_coll_call *call) {
  return call->site != NULL ? call->site : "";
}

/* The error of a rank that stands in `call` when its world has failed. */
static int32_t stopped(const world *w, int32_t code, const bs_coll_call *call, bs_error *err) {
  if (code == BS_DEADLINE) {
    bs_fail(err, code, "BS-SKEL-COMMUNICATOR-DEADLINE", "%s", w->why);
  } else if (code == BS_MISMATCH) {
    bs_fail(err, code, "BS-SKEL-COMMUNICATOR-MISMATCH", "ranks disagree: %s", w->why);
  } else {
    code = BS_ABORTED;
    bs_fail(err, code, "BS-SKEL-COMMUNICATOR-ABORTED", "stopped in %s: %s",
            bs_name_of(BS_NAMES_COLL, call->kind), w->why);
  }
  if (err != NULL) snprintf(err->where, sizeof err->where, "%s", site_of(call));
  return code;
}

static void fail(world *w, int32_t code) {
  w->failed = code;
  pthread_cond_broadcast(&w->changed);
}

/* Did all who have come come for the same? Else the world fails, and both call sites are named. */
static int agreed(world *w) {
  uint32_t first = 0;
  while (first < w->size && w->calls[first] == NULL) first++;
  for (uint32_t r = first + 1; r < w->size; r++) {
    const bs_coll_call *a = w->calls[first], *b = w->calls[r];
    if (b == NULL || (a->kind == b->kind && a->fingerprint == b->fingerprint && a->rows == b->rows &&
                      a->count == b->count))
      continue;
    snprintf(w->why, sizeof w->why, "rank %u called %s %llux%llu at '%.80s', rank %u %s %llux%llu at '%.80s'",
             first, bs_name_of(BS_NAMES_COLL, a->kind), (unsigned long long)a->rows,
             (unsigned long long)a->count, site_of(a), r, bs_name_of(BS_NAMES_COLL, b->kind),
             (unsigned long long)b->rows, (unsigned long long)b->count, site_of(b));
    fail(w, BS_MISMATCH);
    return 0;
  }
  return 1;
}

static void fail_deadline(world *w, const bs_coll_call *call) {
  if (!agreed(w)) return; /* the reason why the others are elsewhere */
  size_t used = (size_t)snprintf(w->why, sizeof w->why,
                                 "%.3g s passed in %s at '%.80s'; missing:", (double)timeout_of(call) * 1e-9,
                                 bs_name_of(BS_NAMES_COLL, call->kind), site_of(call));
  for (uint32_t r = 0; r < w->size && used + 16 < sizeof w->why; r++)
    if (w->calls[r] == NULL) used += (size_t)snprintf(w->why + used, sizeof w->why - used, " rank %u", r);
  fail(w, BS_DEADLINE);
}

/* Any thread: the host calls it when a rank has failed elsewhere. */
static void abort_world(void *ptr, uint32_t who, int32_t code, const char *why) {
  world *w = (world *)ptr;
  (void)code;
  pthread_mutex_lock(&w->lock);
  if (w->failed == BS_OK) {
    snprintf(w->why, sizeof w->why, "rank %u failed: %.256s", who, why != NULL ? why : "");
    fail(w, BS_ABORTED);
  }
  pthread_mutex_unlock(&w->lock);
}

/* ---- meetings ------------------------------------------------------------------------------- */

static struct timespec after(int64_t ns) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_sec += (time_t)(ns / 1000000000);
  t.tv_nsec += (long)(ns % 1000000000);
  if (t.tv_nsec >= 1000000000) {
    t.tv_sec++;
    t.tv_nsec -= 1000000000;
  }
  return t;
}

/* The last one to come: the work, and everybody is let go. The lock is held, so a deadline that passes
 * meanwhile finds the meeting done. */
static void hold_meeting(world *w) {
  if (!agreed(w)) return;
  w->status = skel_communicator_move(w->host, w->calls, w->size);
  memset((void *)w->calls, 0, w->size * sizeof *w->calls);
  w->arrived = 0;
  w->meetings++;
  pthread_cond_broadcast(&w->changed);
}

static void wait_for_all(world *w, uint64_t meeting, const bs_coll_call *call) {
  const struct timespec until = after(timeout_of(call));
  while (w->meetings == meeting && w->failed == BS_OK) {
    if (pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT) continue;
    if (w->meetings == meeting && w->failed == BS_OK) fail_deadline(w, call);
  }
}

/* Every collective slot: they differ in what the last one does. */
static int32_t collective(void *ptr, const bs_coll_call *call, bs_error *err) {
  rank *self = (rank *)ptr;
  world *w = self->of;
  int32_t rc = skel_communicator_check(w->host, call, err);
  if (rc != BS_OK) return rc;
  pthread_mutex_lock(&w->lock);
  if (w->failed != BS_OK) {
    rc = stopped(w, BS_ABORTED, call, err);
  } else {
    const uint64_t meeting = w->meetings;
    w->calls[self->me] = call;
    w->arrived++;
    if (w->arrived == w->size) {
      hold_meeting(w);
    } else {
      wait_for_all(w, meeting, call);
    }
    if (w->meetings == meeting) {
      rc = stopped(w, w->failed, call, err);
    } else if (w->status != BS_OK) {
      rc = bs_fail(err, w->status, "BS-SKEL-COMMUNICATOR-DTYPE", "a conversion failed");
    }
  }
  pthread_mutex_unlock(&w->lock);
  return rc;
}

/* ---- worlds and ranks ----------------------------------------------------------------------- */

static void world_free(world *w) {
  if (w->ranks != NULL) w->host->free(w->host->ctx, w->ranks);
  if (w->calls != NULL) w->host->free(w->host->ctx, (void *)w->calls);
  w->host->free(w->host->ctx, w);
}

/* The lock, and a condition whose deadlines no change of the calendar moves. */
static int make_lock(world *w) {
  pthread_condattr_t monotonic;
  if (pthread_mutex_init(&w->lock, NULL) != 0) return 0;
  int ok = pthread_condattr_init(&monotonic) == 0;
  if (ok) {
    ok = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
         pthread_cond_init(&w->changed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
  }
  if (!ok) pthread_mutex_destroy(&w->lock);
  return ok;
}

static int32_t world_open(void *state, const bs_world_request *request, void **out_world, bs_error *err) {
  const bs_host *host = (const bs_host *)state;
  const uint32_t size = request->world_size;
  if (size == 0) return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SKEL-COMMUNICATOR-SIZE", "a world of no rank");
  world *w = (world *)host->alloc(host->ctx, sizeof *w, 64); /* zero-filled */
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-COMMUNICATOR-MEMORY", "no memory for a world");
  w->host = host;
  w->size = size;
  w->calls = (const bs_coll_call **)host->alloc(host->ctx, size * sizeof *w->calls, 64);
  w->ranks = (rank *)host->alloc(host->ctx, size * sizeof *w->ranks, 64);
  if (w->calls == NULL || w->ranks == NULL || !make_lock(w)) {
    world_free(w);
    return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-COMMUNICATOR-MEMORY", "no memory for a world of %u ranks",
                   size);
  }
  *out_world = w;
  return BS_OK;
}

static void world_close(void *ptr) {
  world *w = (world *)ptr;
  pthread_cond_destroy(&w->changed);
  pthread_mutex_destroy(&w->lock);
  world_free(w);
}

static int32_t rank_open(void *ptr, uint32_t index, void **out_comm, bs_error *err) {
  world *w = (world *)ptr;
  if (index >= w->size)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SKEL-COMMUNICATOR-RANK", "rank %u of %u", index, w->size);
  w->ranks[index].of = w;
  w->ranks[index].me = index;
  *out_comm = &w->ranks[index];
  return BS_OK;
}

static void rank_close(void *comm) {
  (void)comm; /* the world owns it */
}

/* Slots that stay NULL - reduce_scatter, all_to_all, send, recv, group_open - are UNSUPPORTED: the host
 * returns that to the caller. */
void skel_communicator_table(bs_comm *comm) {
  memset(comm, 0, sizeof *comm);
  comm->struct_size = (uint32_t)sizeof *comm;
  comm->launch = BS_LAUNCH_THREADS;
  comm->name = "skel_communicator";
  comm->summary = "threads that meet at one lock; the last to come adds in rank order";
  comm->world_open = world_open;
  comm->world_close = world_close;
  comm->rank_open = rank_open;
  comm->rank_close = rank_close;
  comm->all_reduce = collective;
  comm->all_gather = collective;
  comm->broadcast = collective;
  comm->barrier = collective;
  comm->abort = abort_world;
}
