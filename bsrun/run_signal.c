/* SPDX-License-Identifier: MIT
 * run_signal.c - SIGINT and SIGTERM end bsrun at once; an open run is marked INTERRUPTED and, lacking DONE,
 * never counts. Only async-signal-safe calls in the handler. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/run.h"

static volatile sig_atomic_t watched_fd = -1;

static void on_signal(int number) {
  static const char text[] = "bsrun: interrupted\n";
  if (watched_fd >= 0) bs_store_mark_interrupted((int)watched_fd, number);
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(128 + number);
  _exit(128 + number);
}

void run_signals_watch(int run_fd) {
  watched_fd = run_fd;
}

void run_signals_install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}
