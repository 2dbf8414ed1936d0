/* SPDX-License-Identifier: MIT
 * marked.c - see marked.h. */
#include "lab/process/marked.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t read_environment(pid_t pid, char *out, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
  FILE *f = fopen(path, "re");
  const size_t n = f != NULL ? fread(out, 1, size - 1, f) : 0;
  if (f != NULL) fclose(f);
  out[n] = '\0';
  return n;
}

static int has(const char *environment, size_t size, const char *setting) {
  for (const char *at = environment; at < environment + size; at += strlen(at) + 1)
    if (strcmp(at, setting) == 0) return 1;
  return 0;
}

void bs_marked_each(const char *setting, bs_marked_fn call, void *user) {
  static char environment[1 << 17];
  DIR *dir = opendir("/proc");
  for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
    const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
    if (pid <= 0 || pid == getpid()) continue;
    const size_t size = read_environment(pid, environment, sizeof environment);
    if (has(environment, size, setting)) call(user, pid, environment, size);
  }
  if (dir != NULL) closedir(dir);
}
