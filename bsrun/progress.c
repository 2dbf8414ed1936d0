/* SPDX-License-Identifier: MIT
 * progress.c - one line on the terminal for work that takes long; nothing into files and pipes. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "bsrun/bsrun.h"

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void show(void *user, const char *what, uint64_t done, uint64_t total) {
  bsrun_progress *p = user;
  const double now = seconds_now();
  if (now - p->last < 0.1) return;
  p->last = now;
  p->shown = 1;
  fprintf(stderr, "\r\033[K%s: %s", p->of, what);
  if (total > 0) fprintf(stderr, " %llu/%llu", (unsigned long long)done, (unsigned long long)total);
  fflush(stderr);
}

bs_progress_fn bsrun_progress_to(int quiet) {
  return !quiet && isatty(STDERR_FILENO) ? show : NULL;
}

void bsrun_progress_end(bsrun_progress *progress) {
  if (progress->shown) fputs("\r\033[K", stderr);
  progress->shown = 0;
}
