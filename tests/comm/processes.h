/* SPDX-License-Identifier: MIT
 * processes.h - runs a function on P forked processes, each a rank of the communicator "shm". What a rank
 * thinks lies in shared memory, and the test judges. Used by test_shm*.c. */
#ifndef BS_TESTS_COMM_PROCESSES_H
#define BS_TESTS_COMM_PROCESSES_H
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

#define LATE_NS INT64_C(200000000)
#define MOST 8u

/* What a rank leaves: its outcome, and a hash of all bits that it got. */
typedef struct outcome {
  int32_t rc;
  uint32_t finished;
  uint64_t bits;
  int64_t begun_ns; /* of the body, or of what it puts here */
  double seconds;
  bs_error err;
} outcome;

static outcome *outcomes; /* shared, [MOST] */

static atomic_uint *ready; /* shared: ranks that are about to open their world */

static inline double seconds_now(void) {
  return 1e-9 * (double)clock_ns();
}

static inline void die(const char *what, const bs_error *err) {
  fprintf(stderr, "a rank: %s: %s %s\n", what, err->id, err->message);
  _exit(3);
}

typedef struct test_job {
  uint32_t size;
  void (*body)(test_rank *t);
  void *arg;
  int64_t timeout_ns;
  uint64_t hash[MOST];
  uint32_t absent; /* a rank that never comes; MOST: none */
} test_job;

static inline void set(const char *name, uint32_t value) {
  char text[16];
  snprintf(text, sizeof text, "%u", value);
  setenv(name, text, 1);
}

static inline void rank_process(const test_job *j, uint32_t rank, int fd) {
  extern char **environ;
  outcome *out = &outcomes[rank];
  test_rank t = {.rank = rank, .size = j->size, .body = j->body, .err = BS_ERROR_INIT};
  bs_attachment here = {.struct_size = sizeof here};
  void *state = NULL;
  bs_error err = BS_ERROR_INIT;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  set("BLOCKSHOCK_RANK", rank);
  set("BLOCKSHOCK_WORLD_SIZE", j->size);
  set("BLOCKSHOCK_SHM_FD", (uint32_t)fd);
  const bs_context_options o = {.struct_size = sizeof o, .trust = BS_TRUST_ANY};
  if (bs_context_open(&o, &test_context, &err) != BS_OK) die("context", &err);
  if (bs_find_comm(test_context, "shm", &t.comm, &state, &err) != BS_OK) die("comm", &err);
  if (t.comm->attach(state, (const char *const *)environ, &here, &err) != BS_OK) die("attach", &err);
  if (here.rank != rank || here.world_size != j->size || here.local_size != j->size) die("place", &err);
  const bs_world_request q = {.struct_size = sizeof q,
                              .world_size = j->size,
                              .rank = rank,
                              .config_hash = j->hash[rank],
                              .timeout_ns = j->timeout_ns > 0 ? j->timeout_ns : INT64_C(60000000000)};
  /* Contexts are opened at their own pace: the deadline of the world's begins where all have one. */
  atomic_fetch_add(ready, 1u);
  for (int i = 0; i < 600000 && atomic_load(ready) < j->size - (j->absent < MOST); ++i) usleep(100);
  out->begun_ns = clock_ns();
  t.rc = t.comm->world_open(state, &q, &t.world, &t.err);
  if (t.rc == BS_OK) t.rc = t.comm->rank_open(t.world, rank, &t.handle, &t.err);
  t.arg = j->arg != NULL ? j->arg : &out->bits;
  const double start = seconds_now();
  if (t.rc == BS_OK) j->body(&t);
  out->seconds = seconds_now() - start;
  out->rc = t.rc;
  out->err = t.err;
  out->finished = 1;
  if (t.handle != NULL) t.comm->rank_close(t.handle);
  if (t.world != NULL) t.comm->world_close(t.world);
  bs_context_close(test_context);
}

/* How each ended is in `status`. */
static inline void run_job(const test_job *j, int status[MOST]) {
  pid_t pids[MOST];
  const int fd = (int)syscall(SYS_memfd_create, "test", 0u);
  ck_assert_int_ge(fd, 0);
  memset(outcomes, 0, MOST * sizeof *outcomes);
  atomic_store(ready, 0u);
  fflush(NULL);
  for (uint32_t r = 0; r < j->size; ++r) {
    pids[r] = -1;
    if (j->absent == r && j->absent < MOST) continue;
    pids[r] = fork();
    ck_assert_int_ge(pids[r], 0);
    if (pids[r] != 0) continue;
    rank_process(j, r, fd);
    _exit(0);
  }
  for (uint32_t r = 0; r < j->size; ++r) {
    status[r] = -1;
    if (pids[r] <= 0) continue;
    for (;;) { /* one that was stopped is ended once the others are done with it */
      ck_assert_int_eq(waitpid(pids[r], &status[r], WUNTRACED), pids[r]);
      if (!WIFSTOPPED(status[r])) break;
      for (uint32_t k = 0; k < j->size; ++k)
        while (k != r && outcomes[k].finished == 0) usleep(1000);
      kill(pids[r], SIGKILL);
    }
  }
  close(fd);
}

static inline test_job job(uint32_t size, void (*body)(test_rank *t)) {
  return (test_job){.size = size, .body = body, .absent = MOST};
}

#define SHARED_BYTES (MOST * sizeof *outcomes + sizeof *ready)
static inline void setup(void) {
  outcomes = mmap(NULL, SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(outcomes, MAP_FAILED);
  ready = (atomic_uint *)(void *)(outcomes + MOST);
}
static inline void teardown(void) {
  munmap(outcomes, SHARED_BYTES);
}

static inline void says(uint32_t rank, int32_t code, const char *id, const char *a, const char *b) {
  const outcome *o = &outcomes[rank];
  ck_assert_msg(o->finished && o->rc == code, "rank %u: status %d, not %d: %s", rank, o->rc, code,
                o->err.message);
  ck_assert_str_eq(o->err.id, id);
  ck_assert_msg(strstr(o->err.message, a) != NULL, "rank %u: '%s' lacks '%s'", rank, o->err.message, a);
  ck_assert_msg(strstr(o->err.message, b) != NULL, "rank %u: '%s' lacks '%s'", rank, o->err.message, b);
}

#endif
