/* SPDX-License-Identifier: MIT
 * child.h - the processes below one, for tests that kill them. */
#ifndef BS_TESTS_CHILD_H
#define BS_TESTS_CHILD_H
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

/* A child of a process; 0: none. The number of who is asked may be gone. */
static inline pid_t child_of(pid_t pid) {
  char path[64], text[64] = "";
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  FILE *f = fopen(path, "re");
  if (f == NULL) return 0;
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  return (pid_t)strtol(text, NULL, 10);
}
#endif
