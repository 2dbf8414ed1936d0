/* SPDX-License-Identifier: MIT
 * leftover.c - finds what a killed child leaves: processes in separate groups, and named segments of shared
 * memory (Block-Shock's own have no names). process.h. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/process/process.h"

void bs_leftover_adopt(void) {
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static int is_kept(pid_t pid, const pid_t *keep, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (keep[i] == pid) return 1;
  return 0;
}

/* Kills and reaps it; one that the kernel does not end is left after two seconds. */
static int end_one(pid_t pid) {
  int status;
  kill(pid, SIGKILL);
  return bs_child_ended(pid, 2.0, &status) > 0;
}

/* Ends the children of this thread, which is the only one. If the kernel has no such list, they are left. */
static size_t end_round(const pid_t *keep, size_t n) {
  char path[64], text[4096];
  size_t ended = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  FILE *f = fopen(path, "re");
  if (f == NULL) return 0;
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  for (char *at = text, *next;; at = next) {
    const long pid = strtol(at, &next, 10);
    if (next == at || *next == '\0') return ended; /* the last one ends with a blank, too */
    if (!is_kept((pid_t)pid, keep, n)) ended += end_one((pid_t)pid) != 0;
  }
}

/* A process that is ended here leaves its own children to the next round. */
size_t bs_leftover_end(const pid_t *keep, size_t n) {
  size_t all = 0, ended;
  do {
    ended = end_round(keep, n);
    all += ended;
  } while (ended > 0);
  return all;
}

static int is_segment(const char *name) {
  static const char *const begins[] = {"vader_segment.", "sm_segment.", "mpich_shar_tmp",
                                       "mpich-",         "psm2_shm.",   "psm_shm.",
                                       "ucx_shm_posix_", "nccl-",       "openmpi-sessions"};
  for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
    if (strncmp(name, begins[i], strlen(begins[i])) == 0) return 1;
  return 0;
}

static int maps_name(const char *pid, const char *name) {
  char path[300], line[4400], wanted[300];
  int found = 0;
  snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
  snprintf(wanted, sizeof wanted, "/dev/shm/%.255s", name);
  FILE *f = fopen(path, "re");
  if (f == NULL) return 0;
  while (!found && fgets(line, sizeof line, f) != NULL) found = strstr(line, wanted) != NULL;
  fclose(f);
  return found;
}

static int is_mapped(const char *name) {
  int found = 0;
  DIR *dir = opendir("/proc");
  if (dir == NULL) return 1; /* unknown, so treat it as mapped */
  for (const struct dirent *e; !found && (e = readdir(dir)) != NULL;)
    if (isdigit((unsigned char)e->d_name[0])) found = maps_name(e->d_name, name);
  closedir(dir);
  return found;
}

size_t bs_leftover_segments(double since) {
  size_t removed = 0;
  struct stat st;
  DIR *dir = opendir("/dev/shm");
  if (dir == NULL) return 0;
  for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
    if (!is_segment(e->d_name)) continue;
    if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) continue;
    if (st.st_uid != geteuid() || (double)st.st_mtim.tv_sec + 1.0 < since || is_mapped(e->d_name)) continue;
    removed += unlinkat(dirfd(dir), e->d_name, 0) == 0;
  }
  closedir(dir);
  return removed;
}
