/* SPDX-License-Identifier: MIT
 * launch_mpi.c - --launch mpi: one mpirun (or srun) that starts the ranks. What rank 0 says is the outcome;
 * where it cannot, the errors that the others of this machine left on the board are. Ctrl-C goes to rank 0,
 * which ends its run in good order; asked again, to mpirun, which ends all. */
#include "bsrun/launch_mpi.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bsrun/board.h"
#include "bsrun/bsrun.h"
#include "bsrun/guard.h"
#include "bsrun/late.h"
#include "bsrun/launch.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/peers/mpirun.h"
#include "lab/process/child.h"

#define TURN_NS 100000000
static const double MPIRUN_S = 5.0; /* for mpirun to end once its ranks are gone */
static const double FAILED_S = 0.5; /* from the first rank that has ended to the last, after a failure */
static const double ORDERLY_S = 20.0;
#define BOARD "BLOCKSHOCK_MPI_BOARD" /* path of the board's file, for ranks of this machine */
#define BOARD_RANKS "BLOCKSHOCK_MPI_RANKS"
#define SESSION "OMPI_MCA_orte_tmpdir_base"

typedef struct mpi_launch {
  uint32_t n;
  pid_t pid; /* of mpirun */
  bsrun_board *board;
  int board_fd;
  int asked;       /* signals received */
  int signal;      /* the first of them */
  double ended_at; /* when the first rank was seen to have ended; 0: none has */
  bsrun_late late;
  char mark[96];     /* of the ranks' environment */
  char session[256]; /* the folder of mpirun's own files; "": where mpirun has them */
  bs_error missed;   /* a rank that has not come; code BS_OK: none */
  double over_at;    /* when the job was ended for that */
  int status;
  bs_mpirun mpirun;
  char **words; /* of the whole command */
} mpi_launch;

/* ---- in a rank ------------------------------------------------------------------------------ */

static int number(const char *name, int64_t *out) {
  const char *text = getenv(name);
  return text != NULL && bs_parse_i64(text, out) && *out >= 0;
}

int bsrun_mpi_found(bsrun_mpi *out) {
  bsrun_mpi found = {0};
  if (number("OMPI_COMM_WORLD_RANK", &found.rank) && number("OMPI_COMM_WORLD_SIZE", &found.size)) {
    found.starter = "mpirun of Open MPI";
  } else if (number("SLURM_STEP_NUM_TASKS", &found.size) && number("SLURM_PROCID", &found.rank)) {
    found.starter = "srun"; /* with or without PMI: attaching says what is missing */
    if (found.size == 1 && getenv("PMI_RANK") == NULL && getenv("PMIX_RANK") == NULL) return 0;
  } else if (number("PMI_RANK", &found.rank) && number("PMI_SIZE", &found.size)) {
    found.starter = "mpirun of MPICH";
  }
  if (out != NULL) *out = found;
  return found.starter != NULL && found.rank < found.size;
}

/* NULL on other machines: they have no board. */
static bsrun_board *open_board(void) {
  int64_t ranks;
  const char *path = getenv(BOARD);
  return path != NULL && number(BOARD_RANKS, &ranks) ? bsrun_board_open(path, ranks) : NULL;
}

static int put_on_board(const bs_error *err) {
  bsrun_mpi here;
  bsrun_board *board = open_board();
  if (board == NULL) return 0;
  if (bsrun_mpi_found(&here)) bsrun_board_put(board, here.rank, err);
  bsrun_board_close(board);
  return 1;
}

int bsrun_mpi_error(const bs_error *err) {
  return put_on_board(err);
}

/* 1: the text names rank r, as a whole word. */
static int names(const char *text, uint32_t r) {
  char word[24];
  const size_t n = (size_t)snprintf(word, sizeof word, "rank %u", r);
  for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
    if (p[n] < '0' || p[n] > '9') return 1;
  return 0;
}

/* The rank that stands still, where who has missed it blames another one that waits for it, too. */
static int held(const bsrun_board *board, const bs_error *err, bs_error *out) {
  const uint32_t r = board->held - 1u;
  if (board->held == 0 || names(err->message, r)) return 0;
  *out = (bs_error)BS_ERROR_INIT;
  bs_error_set(out, BS_DEADLINE, "BS-RANK-STOPPED",
               "rank %u (process %d) stands still: a signal has stopped it", r, (int)board->rows[r].pid);
  out->rank = (int32_t)r;
  return 1;
}

int bsrun_mpi_cause(const bs_error *err, bs_error *out) {
  bsrun_board *board = err->code == BS_DEADLINE ? open_board() : NULL;
  const bs_error *death = board != NULL ? bsrun_board_death(board) : NULL;
  int found = death != NULL;
  if (death != NULL)
    *out = *death;
  else if (board != NULL)
    found = held(board, err, out);
  if (found) memcpy(out->where, err->where, sizeof out->where); /* the call that it is missed in */
  bsrun_board_close(board);
  return found;
}

int bsrun_mpi_was_missed(void) {
  bsrun_mpi here;
  bsrun_board *board = bsrun_mpi_found(&here) ? open_board() : NULL;
  const int missed =
      board != NULL && board->held == (uint32_t)here.rank + 1u && bsrun_board_error(board, 0) != NULL;
  bsrun_board_close(board);
  return missed;
}

_Atomic uint32_t *bsrun_mpi_stopped(void) {
  bsrun_mpi here;
  bsrun_board *board = bsrun_mpi_found(&here) && here.rank == 0 ? open_board() : NULL;
  return board != NULL ? &board->stopped : NULL; /* mapped until the process ends */
}

void bsrun_mpi_stage(uint32_t stage) {
  bsrun_mpi here;
  bsrun_board *board = bsrun_mpi_found(&here) ? open_board() : NULL;
  if (board != NULL) board->rows[here.rank].stage = stage;
  bsrun_board_close(board);
}

void bsrun_mpi_enter(void) {
  bsrun_mpi here;
  if (getppid() > 1) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getenv(BOARD) != NULL && bsrun_mpi_found(&here)) { /* else mpirun says what has ended a rank */
    bsrun_board *board = open_board();
    bsrun_guard(board, here.rank);
    bsrun_board_close(board);
  }
  put_on_board(NULL);
}

/* ---- starting ------------------------------------------------------------------------------- */

/* The command of mpirun, then this program and its words. */
static char **whole_command(const mpi_launch *l) {
  static char self[4096];
  char **own = bsrun_command_words();
  size_t n = 0;
  while (own[n] != NULL) ++n;
  char **all = calloc(l->mpirun.n + n + 1, sizeof *all);
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (all == NULL || length <= 0) {
    free(all);
    return NULL;
  }
  self[length] = '\0';
  for (size_t i = 0; i < l->mpirun.n; ++i) all[i] = (char *)(uintptr_t)l->mpirun.words[i];
  all[l->mpirun.n] = self;
  for (size_t i = 1; i < n; ++i) all[l->mpirun.n + i] = own[i];
  return all;
}

static int32_t make_board(mpi_launch *l, bs_error *err) {
  l->board = bsrun_board_make(l->n, MFD_CLOEXEC, &l->board_fd);
  if (l->board != NULL) return BS_OK;
  return bs_error_errno(err, BS_NO_MEMORY, "BS-LAUNCH-MEMORY", errno, "no shared memory for %u ranks", l->n);
}

/* Open MPI 4 has one folder for all jobs of a user. mpirun fails to start, now and then, while another job
 * removes it. So each job of this machine gets its own. Without one mpirun works as it would alone. */
static void make_session(mpi_launch *l) {
  const char *folder = getenv(SESSION);
  if (folder == NULL || folder[0] == '\0') folder = getenv("TMPDIR");
  if (folder == NULL || folder[0] == '\0') folder = "/tmp";
  if (!l->mpirun.alone || strlen(folder) > 100) return; /* names of sockets are short */
  snprintf(l->session, sizeof l->session, "%s/bs-mpi-XXXXXX", folder);
  if (mkdtemp(l->session) == NULL) l->session[0] = '\0';
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where) {
  (void)status, (void)type, (void)where;
  (void)remove(path);
  return 0;
}

/* In the new process, which becomes mpirun or the program in its place. */
static void become(void *user) {
  const mpi_launch *l = user;
  setenv(BOARD, l->mark + sizeof BOARD, 1);
  setenv(BOARD_RANKS, l->mpirun.number, 1);
  if (l->session[0] != '\0') setenv(SESSION, l->session, 1);
  execvp(l->words[0], l->words);
  bs_print(stderr, "bsrun: cannot start %s: %s\n", l->words[0], strerror(errno));
  _exit(BS_CHILD_NOT_RUN);
}

/* mpirun ends when bsrun does. It has a separate process group and no input from the terminal. */
static int32_t start(mpi_launch *l, const sigset_t *signals, bs_error *err) {
  const bs_child child = {.run = become,
                          .user = l,
                          .stdio = {BS_CHILD_NULL, BS_CHILD_KEEP, BS_CHILD_KEEP},
                          .death = SIGTERM, /* on which it ends its ranks */
                          .mask = signals};
  l->words = whole_command(l);
  if (l->words == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  l->pid = bs_child_start(&child);
  if (l->pid > 0) return BS_OK;
  return bs_error_errno(err, BS_NO_MEMORY, "BS-LAUNCH-FORK", errno, "cannot start %s", l->words[0]);
}

/* ---- watching ------------------------------------------------------------------------------- */

static void pass_on(mpi_launch *l, int signal_number) {
  const pid_t lead = l->board->rows[0].pid;
  if (signal_number == SIGHUP) signal_number = SIGTERM;
  if (l->asked == 0) l->signal = signal_number;
  if (l->asked++ == 0 && lead > 0 && kill(lead, signal_number) == 0) return;
  kill(l->pid, SIGTERM);
}

/* Ranks of this machine that have ended, of those that have come. */
static uint32_t ended(const mpi_launch *l, int *out_failed) {
  uint32_t n = 0;
  *out_failed = 0;
  for (uint32_t r = 0; r < l->n; ++r) {
    n += l->board->rows[r].pid > 0 && kill(l->board->rows[r].pid, 0) != 0;
    *out_failed |= l->board->rows[r].written != 0;
  }
  return n;
}

/* Kills the remaining ranks after one has ended. mpirun ends them, too, but late if one of them is stopped.
 */
static void kill_late(mpi_launch *l) {
  int failed;
  if (ended(l, &failed) == 0) return;
  if (l->ended_at == 0.0) l->ended_at = bs_process_now();
  if (bs_process_now() - l->ended_at < (failed ? FAILED_S : ORDERLY_S)) return;
  l->board->ending = 1;
  for (uint32_t r = 0; r < l->n; ++r)
    if (l->board->rows[r].pid > 0) kill(l->board->rows[r].pid, SIGKILL);
}

/* A rank that has not come: those that wait for it in MPI cannot give up, so the job is ended from here. */
static void end_late(mpi_launch *l) {
  if (l->missed.code == BS_OK) {
    if (!bsrun_late_look(&l->late, l->board, bs_process_now(), &l->missed)) return;
    l->over_at = bs_process_now();
    l->board->ending = 1;
    kill(l->pid, SIGTERM);
    bsrun_late_kill(&l->late);
  }
  if (bs_process_now() - l->over_at > MPIRUN_S) kill(l->pid, SIGKILL);
}

static void watch(mpi_launch *l, const sigset_t *signals) {
  const struct timespec turn = {0, TURN_NS};
  for (;;) {
    kill_late(l);
    end_late(l);
    const int got = sigtimedwait(signals, NULL, &turn);
    if (got == SIGINT || got == SIGTERM || got == SIGHUP) pass_on(l, got);
    if (waitpid(l->pid, &l->status, WNOHANG) == l->pid) break;
  }
  l->board->ending = 1;
  for (uint32_t r = 0; r < l->n; ++r) /* of this machine: none may be left */
    if (l->board->rows[r].pid > 0 && getpgid(l->board->rows[r].pid) >= 0)
      kill(l->board->rows[r].pid, SIGKILL);
}

/* ---- the outcome ---------------------------------------------------------------------------- */

static int fail_unknown(const mpi_launch *l) {
  bs_error err = BS_ERROR_INIT;
  const int signalled = WIFSIGNALED(l->status);
  bs_error_set(&err, BS_RANK_FAILED, "BS-LAUNCH-MPIRUN", "%s ended with %s%d, and no rank has said why",
               l->mpirun.words[0], signalled ? "signal " : "",
               signalled ? WTERMSIG(l->status) : WEXITSTATUS(l->status));
  bs_error_hint(&err, "run it by hand: %s -n %u bsrun ...", l->mpirun.words[0], l->n);
  return bsrun_fail(&err);
}

/* 1: bsrun ends with this code after it has printed results and no error. */
static int said_without_error(int code) {
  static const int codes[] = {0, 6, 12, 14, 15, 130, 143};
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; ++i)
    if (codes[i] == code) return 1;
  return 0;
}

/* It was asked to end, and ended for that: rank 0 says so, or could not say anything. */
static int interrupted(const mpi_launch *l) {
  if (l->asked == 0) return 0;
  if (l->board->stopped != 0) return 1;
  if (l->board->rows[0].written) return strcmp(l->board->rows[0].err.id, "BS-STOPPED") == 0;
  return l->asked > 1 || l->board->rows[0].pid == 0;
}

/* Some rank is on another machine: it says on stderr what it ended with. */
static int is_elsewhere(const mpi_launch *l) {
  for (uint32_t r = 0; r < l->n; ++r)
    if (l->board->rows[r].pid == 0) return 1;
  return 0;
}

/* late: what another rank missed it with, if any did before mpirun ended it. */
static int fail_dead(const bs_error *death, const bs_error *late) {
  bs_error err = *death;
  if (late != NULL) memcpy(err.where, late->where, sizeof err.where);
  return bsrun_fail(&err);
}

/* Rank 0's word is the last; then what the others left, who know the call in which one died; then what its
 * guard has seen; then what mpirun ended with. */
static int outcome(const mpi_launch *l) {
  if (interrupted(l)) return 128 + l->signal;
  if (l->missed.code != BS_OK) return bsrun_fail(&l->missed);
  if (l->board->rows[0].written)
    return (int)bs_status_exit_code(l->board->rows[0].err.code); /* it has printed it */
  const int code = WIFEXITED(l->status) ? WEXITSTATUS(l->status) : 128 + WTERMSIG(l->status);
  const bs_error *left = code != 0 ? bsrun_board_error(l->board, 1) : NULL;
  const bs_error *death = code != 0 ? bsrun_board_death(l->board) : NULL;
  if (left != NULL && (death == NULL || left->code == BS_RANK_FAILED)) return bsrun_fail(left);
  if (death != NULL) return fail_dead(death, left);
  if (code == (int)bs_status_exit_code(BS_RANK_FAILED) && is_elsewhere(l)) return code;
  return said_without_error(code) || l->asked ? code : fail_unknown(l);
}

int bsrun_launch_mpi(uint32_t ranks, double timeout_s, const char *command) {
  mpi_launch l = {.n = ranks, .board_fd = -1, .missed = BS_ERROR_INIT};
  bs_error err = BS_ERROR_INIT;
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  int32_t rc = bs_mpirun_find(&l.mpirun, ranks, 0, command, &err);
  if (rc == BS_OK) rc = make_board(&l, &err);
  snprintf(l.mark, sizeof l.mark, BOARD "=/proc/%d/fd/%d", (int)getpid(), l.board_fd);
  l.late = (bsrun_late){.mark = l.mark, .timeout_s = timeout_s};
  sigprocmask(SIG_BLOCK, &signals, &before);
  if (rc == BS_OK) make_session(&l);
  if (rc == BS_OK) rc = start(&l, &before, &err);
  if (rc == BS_OK) watch(&l, &signals);
  const int code = rc == BS_OK ? outcome(&l) : bsrun_fail(&err);
  if (l.session[0] != '\0') (void)nftw(l.session, remove_one, 8, FTW_DEPTH | FTW_PHYS);
  bsrun_board_close(l.board);
  if (l.board_fd >= 0) close(l.board_fd);
  free(l.words);
  bs_mpirun_free(&l.mpirun);
  return code;
}
