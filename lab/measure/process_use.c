/* SPDX-License-Identifier: MIT
 * process_use.c - processor time of a process, and how long its threads waited for a processor. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lab/measure/disturb.h"
#include "lab/measure/load.h"

/* "on_cpu_ns waited_ns slices" of one thread. */
static int waited_of(const char *folder, const char *thread, double *sum) {
  char path[96], text[96], *at = NULL;
  snprintf(path, sizeof path, "%.40s/%.20s/schedstat", folder, thread);
  if (!bs_disturb_file(NULL, path, text, sizeof text)) return 0;
  strtoull(text, &at, 10);
  *sum += 1e-9 * (double)strtoull(at, NULL, 10);
  return 1;
}

/* The waiting time of all live threads; -1: the kernel does not report it. */
static double waited_of_all(const char *folder) {
  double sum = 0.0;
  int known = 0;
  DIR *threads = opendir(folder);
  if (threads == NULL) return -1.0;
  for (const struct dirent *e = readdir(threads); e != NULL; e = readdir(threads))
    if (e->d_name[0] != '.') known |= waited_of(folder, e->d_name, &sum);
  closedir(threads);
  return known ? sum : -1.0;
}

void bs_process_use_read(pid_t pid, bs_process_use *out) {
  char folder[40];
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  struct timespec t = {0};
  if (pid != 0 && clock_getcpuclockid(pid, &clock) != 0) clock = -1;
  if (clock == -1 || clock_gettime(clock, &t) != 0) t = (struct timespec){0};
  out->cpu_s = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
  if (pid == 0)
    snprintf(folder, sizeof folder, "/proc/self/task");
  else
    snprintf(folder, sizeof folder, "/proc/%ld/task", (long)pid);
  out->waited_s = waited_of_all(folder);
}
