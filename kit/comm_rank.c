/* SPDX-License-Identifier: MIT
 * comm_rank.c - a process that is a rank of a check: joins, opens its world, does its body, and leaves what
 * it got where the check reads it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/text.h"
#include "kit/comm.h"

#define OPEN_NS INT64_C(20000000000)
enum { LINGER_MS = 20000 };

extern char **environ;

static kit_outcome *self; /* NULL: this process is no rank */

void kit_rank_fails(const char *fmt, ...) {
  va_list ap;
  if (self == NULL) return;
  va_start(ap, fmt);
  vsnprintf(self->said, sizeof self->said, fmt, ap);
  va_end(ap);
  _exit(1);
}

/* The place that the communicator gives this process. */
static void check_place(const kit_job *job, const bs_attachment *here) {
  const char *text = getenv("BLOCKSHOCK_RANK");
  int64_t started_as;
  kit_assert(here->world_size == job->size && here->rank < job->size,
             "attach tells rank %u of %u: %u processes were started", here->rank, here->world_size,
             job->size);
  kit_assert(here->local_size == job->size && here->local_rank < job->size,
             "attach tells local rank %u of %u: all %u processes are on this machine", here->local_rank,
             here->local_size, job->size);
  if (text != NULL && bs_parse_i64(text, &started_as))
    kit_assert(here->rank == (uint64_t)started_as,
               "attach tells rank %u, this process was started as rank %s", here->rank, text);
}

static int32_t join(const kit_job *job, const bs_comm *comm, void *state, bs_error *err) {
  bs_attachment here = {.struct_size = sizeof here};
  kit_assert(comm->attach != NULL, "is ATTACHED, and has no attach");
  const int32_t rc = comm->attach(state, (const char *const *)environ, &here, err);
  if (rc != BS_OK) return rc;
  check_place(job, &here);
  self->here = here;
  self->rank = here.rank;
  return BS_OK;
}

static int32_t open_world(const kit_job *job, void *state, test_rank *t) {
  const int otherwise = job->body == KIT_CONFIG && t->rank == KIT_CULPRIT;
  const bs_world_request request = {.struct_size = sizeof request,
                                    .world_size = job->size,
                                    .rank = t->rank,
                                    .config_hash = otherwise ? 7 : 3,
                                    .timeout_ns = OPEN_NS};
  const int32_t rc = t->comm->world_open(state, &request, &t->world, &t->err);
  if (rc != BS_OK || job->body == KIT_CONFIG) return rc;
  const int32_t opened = t->comm->rank_open(t->world, t->rank, &t->handle, &t->err);
  kit_assert(opened == BS_OK, "rank %u of %u: rank_open fails: %s: %s", t->rank, t->size, t->err.id,
             t->err.message);
  return BS_OK;
}

static int at_work(const kit_job *job, const kit_outcome *o) {
  const uint32_t stage = o->stage;
  if (o == self || stage == KIT_ABSENT || stage >= KIT_CLOSING) return 0;
  if (job->body == KIT_KILLED && o->rank == KIT_CULPRIT) return 0;
  return kill(o->pid, 0) == 0 || errno != ESRCH;
}

/* One who leaves is a fault to the others: all stay until all have done their work. */
static void linger(const kit_job *job) {
  for (int ms = 0; ms < LINGER_MS; ms += 2) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->size; i++) n += (uint32_t)at_work(job, &job->of[i]);
    if (n == 0) return;
    usleep(2000);
  }
}

static void work(const kit_job *job, kit_plugin *p) {
  bs_error *err = &self->err;
  void *state = NULL;
  kit_assert(job->thing < p->host.n_things, "registers fewer things than before");
  const bs_comm *comm = kit_comm_of(&p->host.things[job->thing], &state);
  kit_work own = {.body = job->body, .kind = job->kind, .alone = self};
  self->rc = join(job, comm, state, err);
  if (self->rc != BS_OK) _exit(0);
  test_rank t = {.comm = comm, .rank = self->rank, .size = job->size, .arg = &own, .err = BS_ERROR_INIT};
  self->stage = KIT_OPENING;
  t.rc = open_world(job, state, &t);
  kit_assert(t.rc == BS_OK || job->body == KIT_CONFIG, "rank %u of %u: world_open fails: %s: %s", t.rank,
             t.size, t.err.id, t.err.message);
  self->stage = KIT_AT_WORK;
  if (t.rc == BS_OK) kit_body_run(&t);
  self->rc = t.rc;
  self->err = t.err;
  self->stage = KIT_CLOSING;
  linger(job);
  if (t.handle != NULL) comm->rank_close(t.handle);
  if (t.world != NULL) comm->world_close(t.world);
}

void kit_rank_live(kit_job *job) {
  static kit_plugin p;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGTERM, SIG_IGN); /* mpirun, where a rank has died: the others have to tell of it first */
  const uint32_t slot = job->arrived++;
  if (slot >= job->size) _exit(1);
  self = &job->of[slot];
  self->pid = (int32_t)getpid();
  self->stage = KIT_ATTACHING;
  kit_plugin_open(&p);
  work(job, &p);
  kit_plugin_deactivate(&p);
  if (job->body == KIT_VALUES) /* after a fault a communicator may have to keep what others still write to */
    kit_assert(p.host.blocks == 0, "a world that is closed leaves %lld blocks of host memory",
               (long long)p.host.blocks);
  self->stage = KIT_GONE;
  _exit(0); /* without handlers of exit: what libraries of the plugin keep is theirs */
}

/* ---- a rank that mpirun has started ----------------------------------------------------------- */

static kit_job *job_at(const char *path) {
  struct stat st;
  uint64_t head[2] = {0, 0};
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return NULL;
  const int ours = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == sizeof(kit_job) &&
                   pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head && head[0] == KIT_JOB_MAGIC &&
                   head[1] == sizeof(kit_job);
  kit_job *job =
      ours ? mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : (kit_job *)MAP_FAILED;
  close(fd);
  return job != (kit_job *)MAP_FAILED ? job : NULL;
}

int kit_rank_main(const char *path) {
  static const char *params[KIT_MAX_PARAMS];
  static bs_kit_options options;
  kit_job *job = job_at(path);
  if (job == NULL) {
    fputs("bs-conformance: --rank is for ranks that a check starts\n", stderr);
    return 2;
  }
  for (uint32_t i = 0; i < job->n_params && i < KIT_MAX_PARAMS; i++) params[i] = job->params[i];
  options = (bs_kit_options){
      .plugin = job->plugin, .full = (int)job->full, .params = params, .n_params = job->n_params};
  kit.options = &options;
  kit_rank_live(job);
}
