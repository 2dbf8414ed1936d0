/* SPDX-License-Identifier: MIT
 * launch.c - the launcher of --launch processes. It starts one copy of this command a rank, hands them an
 * open file to share memory through, passes signals to rank 0, which leads, and leaves no rank running:
 * every rank ends with the launcher, and those that outlive a failure are killed. Rank 0 reports the outcome.
 * If it cannot, the launcher prints the errors that the other ranks left on the board. */
#include "bsrun/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bsrun/board.h"
#include "bsrun/bsrun.h"
#include "bsrun/launch_mpi.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/process/child.h"

#define TURN_NS 50000000
#define MAX_PROCESSES 1024u
static const double FOLLOW_S = 5.0; /* what the others have to end once rank 0 has, in good order */
static const double FAILED_S = 0.3; /* and where it failed: nothing that they do counts any more */
static const double LEAD_S = 5.0;   /* what rank 0 has to tell of it once another rank was killed */
static const double WAITED_S = 0.8; /* and once another has given up: it has waited for long enough */

typedef struct rank_process {
  pid_t pid;
  int ended, status; /* of waitpid */
  int killed;        /* by the launcher */
  double stopped_at; /* 0: it runs */
} rank_process;

typedef struct launch {
  uint32_t n;
  double timeout_s;
  pid_t group;
  bsrun_board *board;
  int shm_fd, board_fd;
  rank_process *ranks;
  uint32_t running;
  double deadline; /* when those that are left are killed; 0: not set */
  int interrupted; /* the first signal; SIGHUP counts as SIGTERM */
  int asked;       /* how many came */
} launch;

/* ---- in a rank ------------------------------------------------------------------------------ */

static int number(const char *name, int64_t *out) {
  const char *text = getenv(name);
  return text != NULL && bs_parse_i64(text, out) && *out >= 0;
}

int bsrun_rank_launched(void) {
  int64_t n;
  return number("BLOCKSHOCK_RANK", &n) && number("BLOCKSHOCK_SHM_FD", &n);
}

const char *bsrun_rank_how(void) {
  int64_t n;
  if (bsrun_rank_launched()) return "processes";
  if (bsrun_mpi_found(NULL)) return "mpi";
  return number("RANK", &n) && number("LOCAL_RANK", &n) && number("WORLD_SIZE", &n) &&
                 getenv("MASTER_ADDR") != NULL && getenv("MASTER_PORT") != NULL
             ? "processes"
             : NULL;
}

int bsrun_rank_found(void) {
  return bsrun_rank_how() != NULL;
}

int64_t bsrun_rank_count(void) {
  int64_t n = 0;
  bsrun_mpi mpi;
  if (!bsrun_rank_launched() && bsrun_mpi_found(&mpi)) return mpi.size;
  return number(bsrun_rank_launched() ? "BLOCKSHOCK_WORLD_SIZE" : "WORLD_SIZE", &n) ? n : 0;
}

int bsrun_rank_follows(void) {
  int64_t rank = 0;
  bsrun_mpi mpi;
  if (!bsrun_rank_launched() && bsrun_mpi_found(&mpi)) return mpi.rank > 0;
  return bsrun_rank_found() && number(bsrun_rank_launched() ? "BLOCKSHOCK_RANK" : "RANK", &rank) && rank > 0;
}

static int following;

int bsrun_following(void) {
  return following;
}

void bsrun_follow(void) {
  if (following) return;
  following = 1;
  fflush(stdout);
  if (freopen("/dev/null", "w", stdout) == NULL) fclose(stdout);
  signal(SIGINT, SIG_IGN); /* rank 0 hears it, and tells */
  signal(SIGTERM, SIG_IGN);
}

static int put_on_board(const bs_error *err) {
  int64_t fd, rank, ranks;
  if (!bsrun_rank_launched() || !number("BLOCKSHOCK_BOARD_FD", &fd) || fd > INT32_MAX ||
      !number("BLOCKSHOCK_RANK", &rank) || !number("BLOCKSHOCK_WORLD_SIZE", &ranks))
    return 0;
  bsrun_board *board = bsrun_board_at((int)fd, ranks);
  if (board == NULL) return 0;
  bsrun_board_put(board, rank, err);
  bsrun_board_close(board);
  return 1;
}

int bsrun_rank_error(const bs_error *err) {
  return put_on_board(err);
}

void bsrun_rank_begin(void) {
  put_on_board(NULL);
  bsrun_mpi_error(NULL);
}

/* ---- starting ------------------------------------------------------------------------------- */

static int32_t open_board(launch *l, bs_error *err) {
  l->shm_fd = (int)syscall(SYS_memfd_create, "blockshock", 0u); /* the ranks inherit both */
  l->board = bsrun_board_make(l->n, 0u, &l->board_fd);
  l->ranks = calloc(l->n, sizeof *l->ranks);
  if (l->shm_fd >= 0 && l->board != NULL && l->ranks != NULL) return BS_OK;
  return bs_error_errno(err, BS_NO_MEMORY, "BS-LAUNCH-MEMORY", errno, "no shared memory for %u ranks", l->n);
}

static void set_number(const char *name, long long value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", value);
  setenv(name, text, 1);
}

typedef struct rank_start {
  const launch *l;
  uint32_t rank;
} rank_start;

/* In the new process: its environment is a rank's. */
static void become(void *user) {
  const rank_start *s = user;
  set_number("BLOCKSHOCK_RANK", s->rank);
  set_number("BLOCKSHOCK_WORLD_SIZE", s->l->n);
  set_number("BLOCKSHOCK_SHM_FD", s->l->shm_fd);
  set_number("BLOCKSHOCK_BOARD_FD", s->l->board_fd);
}

static int32_t start(launch *l, const sigset_t *signals, bs_error *err) {
  rank_start s = {.l = l};
  bs_child child = {.program = "/proc/self/exe",
                    .words = bsrun_command_words(),
                    .run = become,
                    .user = &s,
                    .stdio = {BS_CHILD_KEEP, BS_CHILD_KEEP, BS_CHILD_KEEP},
                    .death = SIGKILL,
                    .mask = signals,
                    .not_run = 70};
  for (; s.rank < l->n; ++s.rank) {
    const pid_t pid = bs_child_start(&child);
    if (pid < 0)
      return bs_error_errno(err, BS_NO_MEMORY, "BS-LAUNCH-FORK", errno, "cannot start rank %u", s.rank);
    if (s.rank == 0) l->group = child.group = pid;
    l->ranks[s.rank].pid = pid;
    l->running++;
  }
  return BS_OK;
}

/* ---- watching ------------------------------------------------------------------------------- */

static int orderly(const rank_process *p) {
  return p->ended && WIFEXITED(p->status) && WEXITSTATUS(p->status) == 0;
}

/* Limits the time of the remaining ranks to `seconds` from now, if they have more. */
static void limit(launch *l, double seconds) {
  const double at = bs_process_now() + seconds;
  if (l->deadline == 0.0 || at < l->deadline) l->deadline = at;
}

static void note_end(launch *l, uint32_t r, int status) {
  rank_process *p = &l->ranks[r];
  p->ended = 1;
  p->status = status;
  l->running--;
  if (r == 0)
    limit(l, orderly(p) ? FOLLOW_S : FAILED_S);
  else if (!orderly(p))
    limit(l, l->ranks[0].stopped_at > 0.0 ? FAILED_S : WIFSIGNALED(status) ? LEAD_S : WAITED_S);
}

static void reap(launch *l) {
  int status = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
    for (uint32_t r = 0; r < l->n; ++r) {
      rank_process *p = &l->ranks[r];
      if (p->pid != pid || p->ended) continue;
      if (WIFSTOPPED(status))
        p->stopped_at = bs_process_now();
      else if (WIFCONTINUED(status))
        p->stopped_at = 0.0;
      else
        note_end(l, r, status);
    }
  }
}

static void kill_left(launch *l) {
  for (uint32_t r = 0; r < l->n; ++r) {
    if (l->ranks[r].pid <= 0 || l->ranks[r].ended || l->ranks[r].killed) continue; /* 0: never started */
    l->ranks[r].killed = 1;
    kill(l->ranks[r].pid, SIGKILL);
  }
  if (l->group > 0) kill(-l->group, SIGKILL); /* what they have started, too */
}

/* A rank that is stopped longer than any wait may take is not coming back in time. */
static void look_for_stopped(launch *l) {
  for (uint32_t r = 0; r < l->n; ++r) {
    const rank_process *p = &l->ranks[r];
    if (!p->ended && p->stopped_at > 0.0 && bs_process_now() - p->stopped_at > l->timeout_s + LEAD_S)
      limit(l, 0.0);
  }
}

/* The first signal is rank 0's, who ends its run in good order; the second ends all. SIGCONT wakes a rank 0
 * that is stopped, and takes back a stop that it has not reached yet. */
static void interrupt(launch *l, int number_of) {
  const rank_process *lead = &l->ranks[0];
  if (number_of == SIGHUP) number_of = SIGTERM;
  if (l->asked++ == 0) l->interrupted = number_of;
  if (!lead->ended) kill(lead->pid, number_of);
  if (!lead->ended) kill(lead->pid, SIGCONT);
  if (l->asked > 1) limit(l, FAILED_S);
}

static void watch(launch *l, const sigset_t *signals) {
  const struct timespec turn = {0, TURN_NS};
  while (l->running > 0) {
    const int number_of = sigtimedwait(signals, NULL, &turn);
    reap(l);
    if (number_of == SIGINT || number_of == SIGTERM || number_of == SIGHUP) interrupt(l, number_of);
    look_for_stopped(l);
    if (l->running > 0 && l->deadline > 0.0 && bs_process_now() > l->deadline) kill_left(l);
  }
}

/* ---- the outcome ---------------------------------------------------------------------------- */

static int fail_dead(const launch *l, uint32_t r) {
  bs_error err = BS_ERROR_INIT;
  const rank_process *p = &l->ranks[r];
  if (p->stopped_at > 0.0) {
    bs_error_set(&err, BS_DEADLINE, "BS-RANK-STOPPED", "rank %u (process %d) was stopped, and did not go on",
                 r, (int)p->pid);
  } else if (WIFSIGNALED(p->status)) {
    bs_error_set(&err, BS_RANK_FAILED, "BS-RANK-DEAD", "rank %u (process %d) was %s signal %d", r,
                 (int)p->pid, p->killed ? "left over and ended by" : "killed by", WTERMSIG(p->status));
  } else {
    bs_error_set(&err, BS_RANK_FAILED, "BS-RANK-DEAD", "rank %u (process %d) ended with %d", r, (int)p->pid,
                 WEXITSTATUS(p->status));
  }
  err.rank = (int32_t)r;
  return bsrun_fail(&err);
}

/* Rank 0's word is the last; where it had none, what the others left, then what the system says. */
static int outcome(const launch *l) {
  const rank_process *lead = &l->ranks[0];
  if (WIFEXITED(lead->status) && (WEXITSTATUS(lead->status) != 0 || l->interrupted))
    return WEXITSTATUS(lead->status);
  const int by_it =
      WIFSIGNALED(lead->status) && WTERMSIG(lead->status) == l->interrupted; /* no handler yet */
  if (l->interrupted != 0 && (lead->killed || by_it)) return 128 + l->interrupted;
  const bs_error *left = bsrun_board_error(l->board, 0);
  if (!WIFEXITED(lead->status) && left != NULL) return bsrun_fail(left);
  for (uint32_t r = 0; r < l->n; ++r)
    if (!l->ranks[r].killed && !orderly(&l->ranks[r])) return fail_dead(l, r);
  for (uint32_t r = 0; r < l->n; ++r)
    if (!orderly(&l->ranks[r])) return fail_dead(l, r);
  return 0;
}

int bsrun_launch(uint32_t ranks, double timeout_s) {
  launch l = {.n = ranks, .timeout_s = timeout_s, .shm_fd = -1, .board_fd = -1};
  bs_error err = BS_ERROR_INIT;
  sigset_t signals, before;
  int code;
  if (ranks > MAX_PROCESSES) {
    bs_error_set(&err, BS_CONFIG, "BS-LAUNCH-WORLD", "bsrun starts at most %u processes, not %u",
                 MAX_PROCESSES, ranks);
    return bsrun_fail(&err);
  }
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, &before);
  int32_t rc = open_board(&l, &err);
  if (rc == BS_OK) rc = start(&l, &before, &err);
  if (rc != BS_OK && l.ranks != NULL) kill_left(&l);
  if (l.ranks != NULL) watch(&l, &signals);
  code = rc == BS_OK && l.ranks != NULL ? outcome(&l) : bsrun_fail(&err);
  bsrun_board_close(l.board);
  if (l.shm_fd >= 0) close(l.shm_fd);
  if (l.board_fd >= 0) close(l.board_fd);
  free(l.ranks);
  return code;
}
