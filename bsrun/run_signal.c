/* SPDX-License-Identifier: MIT
 * run_signal.c - SIGINT and SIGTERM. While a run is open the first one lets it finish the sample in progress
 * (lab/stop.h), then it is marked INTERRUPTED and, lacking DONE, never counts. The second, and one while no
 * run is open, ends bsrun at once. Only async-signal-safe calls in the handler. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/died.h"
#include "bsrun/launch_mpi.h"
#include "bsrun/run.h"
#include "lab/run/run.h"
#include "lab/stop.h"

static volatile sig_atomic_t watched_fd = -1;
static _Atomic uint32_t *told; /* where the launcher of an MPI job looks; NULL: nowhere */

static void say(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return; /* nobody is there to be told */
}

void run_signals_mark(int number) {
  if (watched_fd >= 0) lab_run_interrupted((int)watched_fd, number);
}

static void on_signal(int number) {
  if (watched_fd >= 0 && bs_stop_ask(number)) {
    say("\nbsrun: interrupted: the sample in progress is finished; once more to end at once\n");
    return;
  }
  run_signals_mark(number);
  if (told != NULL) *told = (uint32_t)number;
  say("bsrun: interrupted\n");
  bsrun_leave(128 + number);
}

void run_signals_watch(int run_fd) {
  watched_fd = run_fd;
}

void run_signals_install(void) {
  struct sigaction action;
  told = bsrun_mpi_stopped();
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}
