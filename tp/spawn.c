/* SPDX-License-Identifier: MIT
 *
 * spawn.c - runs a function once on each rank of a new world, at the same time as the caller or while it
 * waits. The world launches threads, processes or coroutines, and wakes the siblings of a rank that fails.
 * This file has the parallel state of each rank, its pending work, and the join.
 */
#include "tp/spawn.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "tp/state.h"

#define LONGEST_WAIT_S 1e9

struct bs_tp_job {
  bs_tp_spawn_options options;
  bs_world *world;
  bs_tp_rank_fn fn;
  void *user;
  uint32_t size;
  tp_seat *seats;
  bs_error world_error; /* code BS_OK: it did not fail */
  /* State of a job that runs at the same time as the caller. */
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  uint32_t done; /* under the lock */
  uint32_t told;
  bs_error error; /* what joins tell */
};

/* ---- a rank ---------------------------------------------------------------------------------- */

static int32_t rank_work(bs_rank *rank, bs_tp_job *job, bs_error *err) {
  int32_t rc = BS_OK;
  if (job->options.tensor_size != 0) rc = bs_tp_initialize(rank, job->options.tensor_size, err);
  if (rc == BS_OK) rc = job->fn(rank, job->user, err);
  if (rc == BS_OK && bs_tp_initialized(rank)) rc = bs_tp_drain(rank, err);
  if (rc == BS_OK) bs_tp_destroy(rank);
  return rc;
}

/* A rank that fails does not wait here for what it has started: its siblings learn of the failure when it
 * returns. settle_failed does the rest. */
static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  bs_tp_job *job = arg;
  const uint32_t index = bs_rank_get_api()->rank(rank);
  const int32_t rc = rank_work(rank, job, err);
  if (rc != BS_OK) tp_seat_fill(&job->seats[index], index, rc, err);
  return rc;
}

/* Destroys the state of all ranks after a failed run. Every thread has ended, so waits return immediately. */
static void settle_failed(bs_tp_job *job) {
  for (uint32_t r = 0; r < job->size; ++r) {
    bs_rank *rank = bs_world_rank(job->world, r);
    if (rank != NULL) bs_tp_destroy(rank);
  }
}

static void run_job(bs_tp_job *job) {
  const int32_t rc = bs_world_run(job->world, rank_main, job, &job->world_error);
  if (rc == BS_OK) return;
  job->world_error.code = rc;
  if (!bs_world_left_behind(job->world)) settle_failed(job);
}

/* ---- the job --------------------------------------------------------------------------------- */

static int32_t check(const bs_tp_spawn_options *options, bs_tp_rank_fn fn, bs_tp_spawn_options *out,
                     bs_world_options *out_world, bs_error *err) {
  const bs_tp_spawn_options *o = options;
  if (o == NULL || fn == NULL || o->struct_size < offsetof(bs_tp_spawn_options, failed) || o->world == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-SPAWN",
                        "a spawn needs a function, and options with struct_size and world");
  memset(out, 0, sizeof *out);
  memcpy(out, o, o->struct_size < sizeof *out ? o->struct_size : sizeof *out);
  memset(out_world, 0, sizeof *out_world);
  memcpy(out_world, o->world,
         o->world->struct_size < sizeof *out_world ? o->world->struct_size : sizeof *out_world);
  out_world->struct_size = (uint32_t)sizeof *out_world;
  return BS_OK;
}

/* World size 0: what the launcher has started. */
static int32_t find_size(bs_context *context, bs_world_options *world, bs_error *err) {
  bs_attachment here;
  if (world->world_size != 0) return BS_OK;
  const int32_t rc = bs_context_attach(context, world->comm, &here, err);
  if (rc != BS_OK) return rc;
  world->world_size = here.world_size;
  if (here.world_size != 0) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-SPAWN", "a spawn of 0 ranks");
  bs_error_hint(err, "set world_size: only where a launcher starts processes may it be 0");
  return BS_INVALID_ARGUMENT;
}

static void job_free(bs_tp_job *job) {
  if (bs_world_left_behind(job->world)) return; /* its thread still uses the job */
  bs_world_destroy(job->world);
  for (uint32_t r = 0; r < job->size && job->seats != NULL; ++r) free(job->seats[r].error);
  free(job->seats);
  free(job);
}

static int32_t job_make(bs_context *context, const bs_tp_spawn_options *options, bs_tp_rank_fn fn, void *user,
                        bs_tp_job **out_job, bs_error *err) {
  bs_tp_spawn_options o;
  bs_world_options world;
  if (context == NULL) return tp_null("a spawn", "context", err);
  int32_t rc = check(options, fn, &o, &world, err);
  if (rc == BS_OK) rc = find_size(context, &world, err);
  if (rc != BS_OK) return rc;
  bs_world *made = NULL;
  rc = bs_world_create(context, &world, &made, err);
  if (rc != BS_OK) return rc;
  bs_tp_job *job = calloc(1, sizeof *job);
  tp_seat *seats = calloc(world.world_size, sizeof *seats);
  if (job == NULL || seats == NULL) {
    free(job);
    free(seats);
    bs_world_destroy(made);
    return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for %u ranks", world.world_size);
  }
  job->options = o;
  job->world = made;
  job->fn = fn;
  job->user = user;
  job->size = world.world_size;
  job->seats = seats;
  job->world_error = job->error = (bs_error)BS_ERROR_INIT;
  *out_job = job;
  return BS_OK;
}

/* The result of a job whose ranks have ended. */
static int32_t job_result(bs_tp_job *job, bs_error *err) {
  if (!job->told && job->world_error.code != BS_OK)
    tp_report(job->seats, job->size, &job->world_error, &job->options, &job->error);
  job->told = 1;
  if (job->error.code != BS_OK && err != NULL) *err = job->error;
  return job->error.code;
}

int32_t bs_tp_spawn(bs_context *context, const bs_tp_spawn_options *options, bs_tp_rank_fn fn, void *user,
                    bs_error *err) {
  bs_tp_job *job;
  int32_t rc = job_make(context, options, fn, user, &job, err);
  if (rc != BS_OK) return rc;
  run_job(job);
  rc = job_result(job, err);
  job_free(job);
  return rc;
}

/* ---- at the same time as the caller ---------------------------------------------------------- */

static void *beside(void *arg) {
  bs_tp_job *job = arg;
  run_job(job);
  pthread_mutex_lock(&job->lock);
  job->done = 1;
  pthread_cond_broadcast(&job->ended);
  pthread_mutex_unlock(&job->lock);
  return NULL;
}

static int make_locks(bs_tp_job *job) {
  pthread_condattr_t monotonic;
  if (pthread_mutex_init(&job->lock, NULL) != 0) return 0;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  const int made = pthread_cond_init(&job->ended, &monotonic) == 0;
  pthread_condattr_destroy(&monotonic);
  if (!made) pthread_mutex_destroy(&job->lock);
  return made;
}

int32_t bs_tp_spawn_start(bs_context *context, const bs_tp_spawn_options *options, bs_tp_rank_fn fn,
                          void *user, bs_tp_job **out_job, bs_error *err) {
  bs_tp_job *job;
  if (out_job == NULL) return tp_null("bs_tp_spawn_start", "out_job", err);
  const int32_t rc = job_make(context, options, fn, user, &job, err);
  if (rc != BS_OK) return rc;
  if (!make_locks(job)) {
    job_free(job);
    return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no locks for a job");
  }
  const int failure = pthread_create(&job->thread, NULL, beside, job);
  if (failure != 0) {
    pthread_cond_destroy(&job->ended);
    pthread_mutex_destroy(&job->lock);
    job_free(job);
    return bs_error_errno(err, BS_NO_MEMORY, "BS-WORLD-THREAD", failure, "cannot start the thread of a job");
  }
  *out_job = job;
  return BS_OK;
}

/* 1: the ranks have ended. */
static uint32_t await(bs_tp_job *job, double timeout_s) {
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double whole = floor(timeout_s);
  end.tv_sec += (time_t)whole;
  end.tv_nsec += (long)((timeout_s - whole) * 1e9);
  if (end.tv_nsec >= 1000000000) {
    end.tv_sec += 1;
    end.tv_nsec -= 1000000000;
  }
  pthread_mutex_lock(&job->lock);
  for (int late = 0; !job->done && !late;)
    late = pthread_cond_timedwait(&job->ended, &job->lock, &end) == ETIMEDOUT;
  const uint32_t done = job->done;
  pthread_mutex_unlock(&job->lock);
  return done;
}

int32_t bs_tp_join(bs_tp_job *job, double timeout_s, uint32_t *out_done, bs_error *err) {
  if (job == NULL || out_done == NULL) return tp_null("bs_tp_join", "job and out_done", err);
  const int endless = !(timeout_s >= 0.0 && timeout_s < LONGEST_WAIT_S);
  uint32_t done = await(job, endless ? LONGEST_WAIT_S : timeout_s);
  while (endless && !done) done = await(job, LONGEST_WAIT_S);
  *out_done = done;
  return done ? job_result(job, err) : BS_OK;
}

void bs_tp_job_free(bs_tp_job *job) {
  if (job == NULL) return;
  pthread_join(job->thread, NULL);
  pthread_cond_destroy(&job->ended);
  pthread_mutex_destroy(&job->lock);
  job_free(job);
}
