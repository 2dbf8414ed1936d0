/* SPDX-License-Identifier: MIT
 * together.c - group threads, for methods and communicators: two worlds at the same time in one process. One
 * stops in the middle of its work, the other does all of its work, then the first continues. So shared state
 * shows in every run, not only sometimes. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kit/layer.h"
#include "kit/shim.h"
#include "tests/comm/ranks.h"

/* ---- methods -------------------------------------------------------------------------------- */

typedef struct side {
  bs_context *context;
  mf_case c;
  mf_result result;
  float *x, *w, *bias;
  kit_shim shim;
  kit_stop stop;
  int over;
} side;

static void side_make(side *s, bs_context *context, const bs_method *m, void *state, uint64_t seed) {
  const int64_t B = 6, N = 10, K = 24;
  memset(s, 0, sizeof *s);
  s->context = context;
  s->x = mf_integers(seed, B * K);
  s->w = mf_integers(seed + 1, N * K);
  s->bias = mf_integers(seed + 2, N);
  kit_shim_make(&s->shim, m, state, NULL);
  pthread_mutex_init(&s->stop.lock, NULL);
  pthread_cond_init(&s->stop.change, NULL);
  s->c = (mf_case){.method = m->name,
                   .backend = kit_method_backend(),
                   .world = kit_method_world(m),
                   .x = s->x,
                   .w = s->w,
                   .bias = s->bias,
                   .table = &s->shim.table,
                   .table_state = &s->shim};
  s->c.spec = mf_spec(B, N, K, BS_F32);
  s->c.spec.has_bias = 1;
  kit_method_options(&s->c.spec);
}

static void side_free(side *s) {
  free(s->x);
  free(s->w);
  free(s->bias);
}

static void *side_main(void *opaque) {
  side *s = opaque;
  mf_run_ok(s->context, &s->c, &s->result);
  pthread_mutex_lock(&s->stop.lock);
  s->over = 1;
  pthread_cond_broadcast(&s->stop.change);
  pthread_mutex_unlock(&s->stop.lock);
  return NULL;
}

static void side_check(const side *s, const char *which, int64_t at, const mf_result *alone) {
  for (uint32_t r = 0; r < s->c.world; r++)
    kit_assert(
        memcmp(s->result.rank[r].y_bits, alone->rank[r].y_bits, alone->rank[r].y_bytes) == 0,
        "%s: two worlds at once, one of them stopped at call %lld of its forward: rank %u of the %s gets "
        "other values than alone: layers share memory that is not theirs",
        s->c.method, (long long)at, r, which);
}

/* Waits until the other ranks have come as far as the one that stopped: a late one would undo the work of the
 * second world. The wait is short, because a rank may have fewer calls, or may wait for the stopped one. */
static void await_others(side *s, int64_t n) {
  struct timespec until;
  int late = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += 500 * 1000 * 1000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  for (uint32_t r = 1; r < s->c.world && r < KIT_SHIM_RANKS; r++)
    while (!late && !s->over && s->stop.calls[r] < n)
      late = pthread_cond_timedwait(&s->stop.change, &s->stop.lock, &until) != 0;
}

/* The first stops at its n-th op or collective; the second runs from build to end meanwhile. */
static void meet(side *first, side *second, int64_t n, const mf_result *alone) {
  pthread_t thread;
  first->stop.at = n;
  memset(first->stop.calls, 0, sizeof first->stop.calls);
  first->stop.stopped = first->stop.go = first->over = 0;
  first->shim.stop = &first->stop;
  kit_assert(pthread_create(&thread, NULL, side_main, first) == 0, "no threads");
  pthread_mutex_lock(&first->stop.lock);
  while (!first->stop.stopped && !first->over) pthread_cond_wait(&first->stop.change, &first->stop.lock);
  await_others(first, n);
  pthread_mutex_unlock(&first->stop.lock);
  mf_run_ok(second->context, &second->c, &second->result);
  pthread_mutex_lock(&first->stop.lock);
  first->stop.go = 1;
  pthread_cond_broadcast(&first->stop.change);
  pthread_mutex_unlock(&first->stop.lock);
  pthread_join(thread, NULL);
  side_check(first, "stopped one", n, &alone[0]);
  side_check(second, "other one", n, &alone[1]);
  mf_free(&first->result);
  mf_free(&second->result);
}

void kit_method_together(const kit_case *c) {
  static side first, second;
  bs_context *context = kit_method_context();
  bs_error why = BS_ERROR_INIT;
  const bs_method *m = NULL;
  void *state = NULL;
  mf_result alone[2];
  const char *name = kit.survey->things[c->thing].name;
  kit_assert(bs_find_method(context, name, &m, &state, &why) == BS_OK, "%s: %s", why.id, why.message);
  side_make(&first, context, m, state, 11);
  side_make(&second, context, m, state, 71);
  first.shim.stop = &first.stop; /* counts */
  if (mf_run(context, &first.c, &alone[0], &why) != BS_OK) {
    kit_unsupported("%u ranks: %s", first.c.world, why.message);
    return;
  }
  mf_run_ok(context, &second.c, &alone[1]);
  const int64_t calls = first.stop.calls[0];
  for (int64_t n = 1; n <= calls && n <= 16; n++) meet(&first, &second, n, alone);
  mf_free(&alone[0]);
  mf_free(&alone[1]);
  side_free(&first);
  side_free(&second);
  bs_context_close(context);
}

/* ---- communicators -------------------------------------------------------------------------- */

enum { COUNT = 300, RANKS = 2 };

typedef struct meeting {
  _Atomic int entered, go;
  float scale;
  pthread_t thread; /* of rank 0 */
  pid_t task;
} meeting;

/* An all-reduce of scale * (index + rank); rank 1 comes when it may. */
static void sum_body(test_rank *t) {
  meeting *m = t->arg;
  float in[COUNT], out[COUNT];
  bs_coll_call call = make_call(BS_COLL_ALL_REDUCE, BS_F32, 1, COUNT, "together");
  for (int i = 0; i < COUNT; i++) in[i] = m->scale * (float)(i + (int)t->rank);
  call.in = in;
  call.out = out;
  if (t->rank == 0) {
    m->thread = pthread_self();
    m->task = (pid_t)syscall(SYS_gettid);
    m->entered = 1;
  }
  while (t->rank == 1 && !m->go) usleep(1000);
  must(t, t->comm->all_reduce(t->handle, &call, &t->err));
  for (int i = 0; i < COUNT; i++)
    kit_assert(
        out[i] == m->scale * (float)(2 * i + 1),
        "two worlds at once: element %d of an all_reduce is %g on rank %u, it must be %g: worlds share "
        "memory",
        i, (double)out[i], t->rank, (double)(m->scale * (float)(2 * i + 1)));
}

static char task_state(pid_t task) {
  char path[64], line[256] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)task);
  FILE *f = fopen(path, "re");
  if (f == NULL) return '?';
  if (fgets(line, sizeof line, f) == NULL) line[0] = '\0';
  fclose(f);
  const char *end = strrchr(line, ')');
  return end != NULL && end[1] == ' ' ? end[2] : '?';
}

/* Waits until the rank sleeps in its wait, or has used 20 ms of processor time in it: the load of the machine
 * does not matter. */
static void await_wait(const meeting *m) {
  clockid_t clock;
  struct timespec used = {0, 0}, begin = {0, 0};
  while (!m->entered) usleep(1000);
  kit_assert(pthread_getcpuclockid(m->thread, &clock) == 0, "a thread has no clock");
  clock_gettime(clock, &begin);
  do {
    usleep(2000);
    clock_gettime(clock, &used);
  } while (task_state(m->task) != 'S' &&
           (double)(used.tv_sec - begin.tv_sec) + 1e-9 * (double)(used.tv_nsec - begin.tv_nsec) < 0.02);
}

static void *first_world(void *opaque) {
  test_rank ranks[16];
  run_ranks(RANKS, sum_body, opaque, ranks);
  return NULL;
}

/* Rank 0 of the first world waits in its all_reduce while the second world does all of its work. */
void kit_comm_together(const kit_case *c) {
  static kit_plugin p;
  static meeting first = {.scale = 1.0f}, second = {.go = 1, .scale = 100.0f};
  test_rank ranks[16];
  pthread_t thread;
  kit_plugin_open(&p);
  test_comm = kit_comm_of(&p.host.things[c->thing], &test_state);
  if (test_comm->launch != BS_LAUNCH_THREADS || test_comm->all_reduce == NULL) {
    kit_unsupported("the kit starts worlds of threads that have an all_reduce");
    return;
  }
  kit_assert(pthread_create(&thread, NULL, first_world, &first) == 0, "no threads");
  await_wait(&first);
  for (int i = 0; i < 10; i++) run_ranks(RANKS, sum_body, &second, ranks);
  first.go = 1;
  pthread_join(thread, NULL);
  kit_unwrap();
  kit_plugin_deactivate(&p);
}
