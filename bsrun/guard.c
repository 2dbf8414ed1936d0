/* SPDX-License-Identifier: MIT
 * guard.c - see guard.h. */
#include "bsrun/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bsrun/died.h"
#include "core/base/error.h"

enum { TELL_MS = 500, NAP_MS = 5 }; /* for the ranks of this machine to tell more of it: they know the call */

static void await_others(const bsrun_board *board) {
  for (int ms = 0; ms < TELL_MS && bsrun_board_error(board, 0) == NULL; ms += NAP_MS) usleep(NAP_MS * 1000);
}

static int tell(bsrun_board *board, int64_t rank, pid_t pid, int number) {
  bs_error err = BS_ERROR_INIT;
  char line[1400];
  bs_error_set(&err, BS_RANK_FAILED, "BS-RANK-DEAD", "rank %lld (process %d) was killed by signal %d (%s)",
               (long long)rank, (int)pid, number, strsignal(number));
  err.rank = (int32_t)rank;
  if (board != NULL) {
    bsrun_board_put_death(board, rank, &err);
    await_others(board);
  } else {
    bs_error_format(&err, "bsrun", line, sizeof line);
    fprintf(stderr, "%s\n", line);
  }
  return (int)bs_status_exit_code(BS_RANK_FAILED);
}

void bsrun_guard(bsrun_board *board, int64_t rank) {
  const pid_t guard = getpid();
  int status = 0;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid < 0) return; /* the rank goes on without one */
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard) _exit(70);
    return;
  }
  signal(SIGINT, SIG_IGN); /* they go to the whole group: the rank decides */
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  for (;;) {
    const pid_t got = waitpid(pid, &status, WUNTRACED | WCONTINUED);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || WIFEXITED(status) || WIFSIGNALED(status)) break;
    if (board != NULL) (WIFSTOPPED(status) ? bsrun_board_hold : bsrun_board_release)(board, rank);
  }
  bsrun_leave(WIFSIGNALED(status) ? tell(board, rank, pid, WTERMSIG(status)) : WEXITSTATUS(status));
}
