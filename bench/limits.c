/* SPDX-License-Identifier: MIT
 *
 * limits.c - the machine's limits as arms of bench_matmul: all threads at once multiply and add, or read W.
 * They are timed between the other arms, so that a neighbour's load is in the limit as well. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arms.h"
#include "core/base/error.h"
#include "lab/measure/peak.h"
#include "support.h"

enum { MAX_THREADS = 64, TRIALS = 3 };
#define MOST_SECONDS 0.01 /* of one batch: a limit of a long product need not be measured for as long */

typedef struct pool pool;
typedef struct member {
  pool *pool;
  pthread_t thread;
  uint32_t index;
  double rate; /* FLOP/s or bytes/s of the newest turn */
  volatile double sink;
} member;

struct pool {
  uint32_t threads, users;
  member members[MAX_THREADS];
  pthread_mutex_t lock;
  pthread_cond_t changed;
  uint64_t turn;
  int stop;
  _Atomic uint32_t arrived, finished;
  /* of the turn */
  const bs_peak *loop; /* NULL: read */
  const bs_reader *reader;
  const char *data;
  size_t bytes, step; /* of all threads */
  uint64_t times;
};

typedef struct limit_arm {
  pool *pool;
  int avx2_only;
  bs_peak loop;
  const bs_reader *reader;
  size_t step, bytes;
  const char *data;
  double flops, rate; /* rate: of the newest turn, all threads */
} limit_arm;

/* ---- threads ------------------------------------------------------------------------------------- */

/* Begins when all have come: spinning, so that they begin together. */
static void work(member *m) {
  pool *p = m->pool;
  atomic_fetch_add(&p->arrived, 1);
  while (atomic_load(&p->arrived) < p->threads) {
  }
  const double start = bench_now();
  if (p->loop != NULL) {
    m->sink = (double)p->loop->run(p->times);
    m->rate = (double)p->times * p->loop->flops_per_iteration / (bench_now() - start);
    return;
  }
  const size_t each = p->bytes / p->threads / BS_READ_UNIT * BS_READ_UNIT;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < p->times; ++i) sum += p->reader->run(p->data + m->index * each, each, p->step);
  m->sink = (double)sum;
  m->rate = (double)p->times * (double)each / (bench_now() - start);
}

static void *member_main(void *arg) {
  member *m = arg;
  pool *p = m->pool;
  bench_on_core(m->index);
  for (uint64_t seen = 0;; ++seen) {
    pthread_mutex_lock(&p->lock);
    while (p->turn == seen && !p->stop) pthread_cond_wait(&p->changed, &p->lock);
    const int stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    if (stop) return NULL;
    work(m);
    atomic_fetch_add(&p->finished, 1);
  }
}

/* The rate of all threads together, this one is the first. */
static double run_turn(pool *p, uint64_t times) {
  double rate = 0.0;
  p->times = times;
  atomic_store(&p->arrived, 0);
  atomic_store(&p->finished, 0);
  pthread_mutex_lock(&p->lock);
  ++p->turn;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  work(&p->members[0]);
  while (atomic_load(&p->finished) + 1 < p->threads) sched_yield();
  for (uint32_t i = 0; i < p->threads; ++i) rate += p->members[i].rate;
  return rate;
}

static void close_pool(pool *p) {
  if (--p->users > 0) return;
  pthread_mutex_lock(&p->lock);
  p->stop = 1;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  for (uint32_t i = 1; i < p->threads; ++i) pthread_join(p->members[i].thread, NULL);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->changed);
  free(p);
}

static pool *open_pool(uint32_t threads) {
  pool *p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->changed, NULL);
  p->users = 1;
  p->members[0].pool = p;
  for (p->threads = 1; p->threads < threads; ++p->threads) {
    member *m = &p->members[p->threads];
    m->pool = p;
    m->index = p->threads;
    if (pthread_create(&m->thread, NULL, member_main, m) != 0) break;
  }
  if (p->threads == threads) return p;
  close_pool(p);
  return NULL;
}

/* ---- multiply-adds ------------------------------------------------------------------------------- */

static double fma_turn(limit_arm *l, uint64_t times) {
  l->pool->loop = &l->loop;
  return run_turn(l->pool, times);
}

/* The fastest loop that the arms may use. */
static int32_t fma_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  limit_arm *l = arm->self;
  bs_peak loops[BS_PEAKS];
  const uint32_t count = bs_peak_loops(m->dtype, loops, BS_PEAKS);
  double best = 0.0;
  (void)err;
  l->flops = 2.0 * (double)m->n * (double)m->k * (double)m->b;
  for (uint32_t i = 0; i < count; ++i) {
    if (l->avx2_only && strncmp(loops[i].name, "avx2", 4) != 0 && i + 1 < count) continue;
    const bs_peak before = l->loop;
    l->loop = loops[i];
    fma_turn(l, 20000);
    const double rate = fma_turn(l, 100000);
    if (rate > best)
      best = rate;
    else
      l->loop = before;
  }
  l->rate = best;
  snprintf(arm->way, sizeof arm->way, "%s", l->loop.name);
  return BS_OK;
}

static int32_t fma_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  limit_arm *l = arm->self;
  const double wanted = (double)calls * l->flops / l->rate;
  const double seconds = wanted < MOST_SECONDS ? wanted : MOST_SECONDS;
  const double times = seconds * l->rate / l->pool->threads / l->loop.flops_per_iteration;
  (void)err;
  l->rate = fma_turn(l, times < 1000 ? 1000 : (uint64_t)times);
  *out_seconds = l->flops / l->rate;
  return BS_OK;
}

/* ---- reading W ----------------------------------------------------------------------------------- */

static double read_turn(limit_arm *l, uint64_t times) {
  pool *p = l->pool;
  p->loop = NULL;
  p->reader = l->reader;
  p->data = l->data;
  p->bytes = l->bytes;
  p->step = l->step;
  return run_turn(p, times);
}

/* Of a few turns of a millisecond. */
static double best_read(limit_arm *l) {
  const double times = 1e-3 * read_turn(l, 1) / (double)l->bytes;
  double best = 0.0;
  for (int i = 0; i < TRIALS; ++i) {
    const double rate = read_turn(l, times < 1 ? 1 : (uint64_t)times);
    if (rate > best) best = rate;
  }
  return best;
}

/* The fastest way of reading these bytes: loop, and one run or four at a time. */
static int32_t read_ready(bench_arm *arm, const bench_numbers *m, bs_error *err) {
  static const size_t steps[2] = {4096, 0};
  limit_arm *l = arm->self;
  double best = 0.0;
  const bs_reader *chosen = NULL;
  size_t step = 0;
  l->data = m->w;
  l->bytes = (size_t)(m->n * m->k) * BS_DTYPE_BYTES(m->dtype);
  if (l->bytes / l->pool->threads < BS_READ_UNIT)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-LIMITS", "W is too small to time its reading");
  for (uint32_t i = 0; i < 2 * BS_READERS; ++i) {
    l->reader = bs_reader_at(i / 2, l->avx2_only);
    l->step = steps[i % 2];
    if (l->reader == NULL) continue;
    const double rate = best_read(l);
    if (rate <= best) continue;
    best = rate;
    chosen = l->reader;
    step = l->step;
  }
  l->reader = chosen;
  l->step = step;
  l->rate = best;
  snprintf(arm->way, sizeof arm->way, "%s, %s", chosen->name, step == 0 ? "four runs" : "one run");
  return BS_OK;
}

static int32_t read_batch(bench_arm *arm, uint64_t calls, double *out_seconds, bs_error *err) {
  limit_arm *l = arm->self;
  const double most = MOST_SECONDS * l->rate / (double)l->bytes;
  const double times = (double)calls < most ? (double)calls : most;
  (void)err;
  l->rate = read_turn(l, times < 1 ? 1 : (uint64_t)times);
  *out_seconds = (double)l->bytes / l->rate;
  return BS_OK;
}

/* ---- both ---------------------------------------------------------------------------------------- */

static void limit_release(bench_arm *arm) {
  (void)arm;
}

static void limit_close(bench_arm *arm) {
  limit_arm *l = arm->self;
  close_pool(l->pool);
  free(l);
}

int32_t bench_open_limits(const bench_arm_options *o, bench_arm limits[2], bs_error *err) {
  static const bench_arm_ops fma = {fma_ready, fma_batch, NULL, limit_release, limit_close};
  static const bench_arm_ops read = {read_ready, read_batch, NULL, limit_release, limit_close};
  limit_arm *l[2] = {calloc(1, sizeof **l), calloc(1, sizeof **l)};
  pool *p = o->threads <= MAX_THREADS ? open_pool(o->threads) : NULL;
  if (l[0] == NULL || l[1] == NULL || p == NULL) {
    free(l[0]);
    free(l[1]);
    if (p != NULL) close_pool(p);
    return bs_error_set(err, BS_NO_MEMORY, "BS-BENCH-LIMITS", "cannot start %u threads (%d at most)",
                        o->threads, MAX_THREADS);
  }
  p->users = 2;
  for (int i = 0; i < 2; ++i) {
    l[i]->pool = p;
    l[i]->avx2_only = strcmp(o->isa, "all") != 0;
    limits[i].self = l[i];
    limits[i].is_limit = 1;
    limits[i].ops = i == 0 ? &fma : &read;
    snprintf(limits[i].name, sizeof limits[i].name, "%s", i == 0 ? "fma" : "read");
  }
  return BS_OK;
}
