/* SPDX-License-Identifier: MIT
 * progress.c - one line on the terminal for work that takes long; nothing into files and pipes. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bsrun/bsrun.h"
#include "lab/process/child.h"

static void write_line(const bsrun_progress *p, uint64_t done, uint64_t total) {
  char point[48] = "", count[48] = "";
  if (p->points > 1) snprintf(point, sizeof point, "point %zu/%zu, ", p->point, p->points);
  if (total > 0)
    snprintf(count, sizeof count, " %llu/%llu", (unsigned long long)done, (unsigned long long)total);
  bs_print(stderr, "\r\033[K%s%s: %s%s", point, p->of, p->step, count);
  fflush(stderr);
}

static void show(void *user, const char *what, uint64_t done, uint64_t total) {
  bsrun_progress *p = user;
  if (atomic_flag_test_and_set(&p->busy)) return;
  const double now = bs_process_now();
  if (now - p->last >= 0.1 || strncmp(p->step, what, sizeof p->step - 1) != 0) {
    p->last = now;
    p->shown = 1;
    snprintf(p->step, sizeof p->step, "%s", what);
    write_line(p, done, total);
  }
  atomic_flag_clear(&p->busy);
}

bs_progress_fn bsrun_progress_to(int quiet) {
  return !quiet && isatty(STDERR_FILENO) ? show : NULL;
}

void bsrun_progress_end(bsrun_progress *progress) {
  if (progress->shown) fputs("\r\033[K", stderr);
  progress->shown = 0;
}
