/* SPDX-License-Identifier: MIT
 * run_signal.c - SIGINT and SIGTERM: see bsrun.h. While a run is open the first one lets it finish the sample
 * in progress, then it is marked INTERRUPTED and, lacking DONE, never counts. Only async-signal-safe calls in
 * the handler. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/died.h"
#include "bsrun/launch.h"
#include "bsrun/launch_mpi.h"
#include "bsrun/run.h"
#include "lab/run/run.h"
#include "lab/stop.h"

enum { GRACE_S = 5 };
static volatile sig_atomic_t watched_fd = -1;
static const char *volatile go_on;
static _Atomic uint32_t *told; /* where the launcher of an MPI job looks; NULL: nowhere */

static void say(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return; /* stderr is closed */
}

void run_signals_mark(int number) {
  if (watched_fd >= 0) lab_run_interrupted((int)watched_fd, number);
}

static void on_signal(int number) {
  const char *how = go_on;
  const int late = number == SIGALRM;
  if (late) number = bs_stop_asked();
  if (!late && (watched_fd >= 0 || how != NULL) && bs_stop_ask(number)) {
    say("\nbsrun: interrupted: the sample in progress is finished; once more to end at once\n");
    if (how != NULL) alarm(GRACE_S);
    return;
  }
  run_signals_mark(number);
  if (told != NULL) *told = (uint32_t)number;
  say("bsrun: interrupted");
  say(how != NULL ? ": " : "\nbsrun: note: ");
  say(how != NULL ? how : "what was open is not kept; the same command begins it again");
  say("\n");
  bsrun_leave(128 + number);
}

void run_signals_watch(int run_fd) {
  watched_fd = run_fd;
}

void bsrun_interruptible(const char *how) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGALRM};
  struct sigaction action;
  if (bsrun_following()) return; /* rank 0 decides */
  go_on = how;
  told = bsrun_mpi_stopped();
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < 3; i++) sigaddset(&action.sa_mask, numbers[i]);
  for (size_t i = 0; i < 3; i++) sigaction(numbers[i], &action, NULL);
}

void run_signals_tell(void) {
  bs_print(stderr,
           "bsrun: interrupted: the phase in progress is not kept; the same command runs it again, and "
           "--phase NAME runs one phase\n");
}

int bsrun_interrupted(void) {
  static int once;
  if (go_on == NULL || bs_stop_asked() == 0) return 0;
  fflush(stdout);
  if (once++ == 0) bs_print(stderr, "bsrun: interrupted: %s\n", go_on);
  return 128 + bs_stop_asked();
}
