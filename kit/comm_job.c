/* SPDX-License-Identifier: MIT
 * comm_job.c - starts the processes of a check and waits for their end. They are forked, with an open file
 * for shared memory, as `bsrun --launch processes` starts its ranks; or started by mpirun, if the
 * communicator reports that nothing has started it. No process outlives the check. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kit/comm.h"
#include "lab/peers/mpirun.h"

enum { NAP_US = 2000, END_MS = 3000 }; /* of mpirun, once its ranks are gone */

typedef struct process {
  pid_t pid;
  int ended, status;
  int killed; /* here */
} process;

static struct {
  kit_job *job;
  int fd;
  int by_mpirun; /* 1: forked processes were no ranks to it */
  char why[400]; /* it said so */
  int64_t until_ms;
} run = {.fd = -1};

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void make_job(uint32_t thing, uint32_t body, uint32_t kind, uint32_t size) {
  if (run.job == NULL) {
    const int seconds = kit_full() ? KIT_FULL_LIMIT_S : KIT_LIMIT_S;
    run.until_ms = now_ms() + 1000 * (int64_t)seconds * 5 / 6; /* libcheck's limit is a little later */
    run.fd = memfd_create("kit", MFD_CLOEXEC);
    kit_assert(run.fd >= 0 && ftruncate(run.fd, sizeof(kit_job)) == 0, "no shared memory: %s",
               strerror(errno));
    void *base = mmap(NULL, sizeof(kit_job), PROT_READ | PROT_WRITE, MAP_SHARED, run.fd, 0);
    kit_assert(base != MAP_FAILED, "no shared memory: %s", strerror(errno));
    run.job = base;
  }
  kit_job *job = run.job;
  memset(job, 0, sizeof *job);
  *job = (kit_job){.magic = KIT_JOB_MAGIC,
                   .bytes = sizeof *job,
                   .size = size,
                   .body = body,
                   .kind = kind,
                   .thing = thing,
                   .full = (uint32_t)kit_full(),
                   .n_params = kit.options->n_params};
  snprintf(job->plugin, sizeof job->plugin, "%s", kit.options->plugin);
  for (uint32_t i = 0; i < job->n_params; i++)
    snprintf(job->params[i], sizeof job->params[i], "%s", kit.options->params[i]);
}

static int said(const kit_job *job) {
  for (uint32_t i = 0; i < job->size; i++)
    if (job->of[i].said[0] != '\0') return 1;
  return 0;
}

/* ---- forked --------------------------------------------------------------------------------- */

static void set_number(const char *name, long long value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", value);
  setenv(name, text, 1);
}

static void fork_ranks(process *all, uint32_t size, int shm) {
  for (uint32_t r = 0; r < size; r++) {
    all[r].pid = fork();
    kit_assert(all[r].pid >= 0, "no process: %s", strerror(errno));
    if (all[r].pid > 0) continue;
    set_number("BLOCKSHOCK_RANK", r);
    set_number("BLOCKSHOCK_WORLD_SIZE", size);
    set_number("BLOCKSHOCK_SHM_FD", shm);
    kit_rank_live(run.job);
  }
}

/* Waits until all have ended. If one fails, or the time is over, the others are ended. 0: the time was
 * over. */
static int await_ranks(process *all, uint32_t size) {
  int in_time = 1;
  for (uint32_t left = size; left > 0;) {
    if (now_ms() > run.until_ms) in_time = 0;
    const int end = !in_time || said(run.job);
    for (uint32_t r = 0; r < size; r++) {
      if (all[r].ended) continue;
      all[r].ended = waitpid(all[r].pid, &all[r].status, WNOHANG) == all[r].pid;
      if (!all[r].ended && end) {
        all[r].killed = 1;
        kill(all[r].pid, SIGKILL);
        all[r].ended = waitpid(all[r].pid, &all[r].status, 0) == all[r].pid;
      }
      left -= (uint32_t)all[r].ended;
    }
    if (left > 0) usleep(NAP_US);
  }
  return in_time;
}

/* ---- by mpirun ------------------------------------------------------------------------------ */

static void become_mpirun(const bs_mpirun *m, int output) {
  const char *words[BS_MPIRUN_WORDS + 4];
  char path[64];
  size_t n = 0;
  for (; n < m->n; n++) words[n] = m->words[n];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getppid(), run.fd);
  words[n++] = kit.options->rank_program;
  words[n++] = "--rank";
  words[n++] = path;
  words[n] = NULL;
  prctl(PR_SET_PDEATHSIG, SIGTERM); /* on which it ends its ranks */
  const int none = open("/dev/null", O_RDONLY);
  if (none >= 0) dup2(none, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execvp(words[0], (char *const *)(uintptr_t)words);
  _exit(127);
}

static void kill_ranks(const kit_job *job) {
  for (uint32_t i = 0; i < job->size; i++)
    if (job->of[i].pid > 0 && job->of[i].stage != KIT_GONE) kill(job->of[i].pid, SIGKILL);
}

static int await_mpirun(process *mpirun) {
  int64_t ending = 0; /* since when */
  int in_time = 1;
  while (waitpid(mpirun->pid, &mpirun->status, WNOHANG) != mpirun->pid) {
    const int64_t now = now_ms();
    if (now > run.until_ms) in_time = 0;
    if (ending == 0 && (!in_time || said(run.job))) {
      ending = now;
      kill_ranks(run.job);
      kill(mpirun->pid, SIGTERM);
    }
    if (ending != 0 && now > ending + END_MS) kill(mpirun->pid, SIGKILL);
    usleep(NAP_US);
  }
  kill_ranks(run.job);
  return in_time;
}

/* The first line of mpirun's output that is not empty. */
static void first_line(int fd, char *out, size_t size) {
  char text[2048];
  const ssize_t n = pread(fd, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = '\0';
  const char *from = text + strspn(text, "-\n \t");
  snprintf(out, size, "%.*s", (int)strcspn(from, "\n"), from);
}

/* 0: nothing here starts such ranks; `why` has the reason. */
static int run_mpirun(uint32_t size, int *out_in_time, char *why, size_t room) {
  bs_error err = BS_ERROR_INIT;
  bs_mpirun m;
  process mpirun = {0};
  if (kit.options->rank_program == NULL) {
    snprintf(why, room, "the kit is given no program that mpirun could start");
    return 0;
  }
  const int32_t rc = bs_mpirun_find(&m, size, 1, kit.options->mpirun, &err);
  const int output = rc == BS_OK ? memfd_create("said", MFD_CLOEXEC) : -1;
  if (rc != BS_OK) {
    snprintf(why, room, "%.390s", err.message);
    bs_mpirun_free(&m);
    return 0;
  }
  mpirun.pid = fork();
  kit_assert(mpirun.pid >= 0 && output >= 0, "no process: %s", strerror(errno));
  if (mpirun.pid == 0) become_mpirun(&m, output);
  *out_in_time = await_mpirun(&mpirun);
  if (run.job->arrived == 0) { /* none has touched the plugin */
    char line[200];
    first_line(output, line, sizeof line);
    snprintf(why, room, "%s started no process (%s %d): %s", m.words[0],
             WIFEXITED(mpirun.status) ? "exit" : "signal",
             WIFEXITED(mpirun.status) ? WEXITSTATUS(mpirun.status) : WTERMSIG(mpirun.status), line);
  }
  close(output);
  bs_mpirun_free(&m);
  return run.job->arrived > 0;
}

/* ---- what they have left -------------------------------------------------------------------- */

/* 1, and its words: no process was a rank to the communicator. */
static int nobody_started(const kit_job *job, char *why, size_t size) {
  for (uint32_t i = 0; i < job->size; i++)
    if (job->of[i].stage != KIT_ATTACHING || job->of[i].rc != BS_UNAVAILABLE) return 0;
  snprintf(why, size, "%.390s", job->of[0].err.message);
  return 1;
}

static const char *const doing[] = {"coming",       "attaching", "opening its world",
                                    "at its calls", "closing",   ""};

static int is_victim(const kit_job *job, const kit_outcome *o) {
  return job->body == KIT_KILLED && o->stage == KIT_AT_WORK && o->rank == KIT_CULPRIT;
}

/* Checks for ranks that a signal has ended: such a rank reports nothing, and the others' errors follow from
 * its end. */
static void check_signals(const kit_job *job, const process *all) {
  for (uint32_t i = 0; i < job->size; i++)
    for (uint32_t r = 0; r < job->size; r++)
      kit_assert(all[r].pid != job->of[i].pid || !WIFSIGNALED(all[r].status) || all[r].killed ||
                     is_victim(job, &job->of[i]),
                 "%u processes: rank %u dies of signal %d while it is %s", job->size, job->of[i].rank,
                 WTERMSIG(all[r].status), doing[job->of[i].stage]);
}

static void check_end(const kit_job *job, const kit_outcome *o, int forked, int in_time) {
  if (o->stage == KIT_GONE || is_victim(job, o)) return;
  /* After a fault MPI is not finalised, and mpirun ends the job with the first that leaves. */
  if (!forked && job->body != KIT_VALUES && job->body != KIT_EXCHANGE && o->stage == KIT_CLOSING) return;
  kit_assert(o->stage != KIT_ATTACHING || o->rc == BS_OK, "%u processes: attach fails: %s: %s", job->size,
             o->err.id, o->err.message);
  kit_assert(in_time, "%u processes: rank %u does not come to an end, it is %s", job->size, o->rank,
             doing[o->stage]);
  kit_fail("%u processes: rank %u ends while it is %s", job->size, o->rank, doing[o->stage]);
}

/* all: those that were forked, or NULL. */
static const kit_outcome *by_rank(const kit_job *job, const process *all, int in_time) {
  static kit_outcome out[KIT_RANKS];
  memset(out, 0, sizeof out);
  if (all != NULL) check_signals(job, all);
  for (uint32_t i = 0; i < job->size; i++)
    kit_assert(job->of[i].said[0] == '\0', "%u processes: %s", job->size, job->of[i].said);
  for (uint32_t i = 0; i < job->size; i++) check_end(job, &job->of[i], all != NULL, in_time);
  for (uint32_t i = 0; i < job->size; i++) {
    const kit_outcome *o = &job->of[i];
    kit_assert(out[o->rank].stage == KIT_ABSENT, "two of %u processes became rank %u", job->size, o->rank);
    memcpy(&out[o->rank], o, sizeof *o);
  }
  return out;
}

const kit_outcome *kit_job_run(uint32_t thing, uint32_t body, uint32_t kind, uint32_t size) {
  process all[KIT_RANKS];
  char why[400] = "";
  int in_time = 1;
  make_job(thing, body, kind, size);
  if (!run.by_mpirun) {
    const int shm = memfd_create("blockshock", 0u);
    kit_assert(shm >= 0, "no shared memory: %s", strerror(errno));
    memset(all, 0, sizeof all);
    fork_ranks(all, size, shm);
    in_time = await_ranks(all, size);
    close(shm);
    if (!nobody_started(run.job, run.why, sizeof run.why)) return by_rank(run.job, all, in_time);
    run.by_mpirun = 1;
    make_job(thing, body, kind, size);
  }
  if (!run_mpirun(size, &in_time, why, sizeof why)) {
    kit_unsupported("processes are no ranks to it (%s), and there is no mpirun for them: %s", run.why, why);
    return NULL;
  }
  if (!nobody_started(run.job, why, sizeof why)) return by_rank(run.job, NULL, in_time);
  kit_unsupported("neither forked processes nor those of mpirun are ranks to it: %s; %s", run.why, why);
  return NULL;
}
