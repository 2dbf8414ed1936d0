/* SPDX-License-Identifier: MIT
 * launch_help.h - the processes of a bsrun that starts several: who is there and what is left. */
#ifndef BS_TEST_E2E_LAUNCH_HELP_H
#define BS_TEST_E2E_LAUNCH_HELP_H
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/spawn.h"

#define SMALL_RUN                                                                                    \
  "--out", "out", "--set", "model.dtype=f32", "--set", "model.N=48", "--set", "model.K=72", "--set", \
      "model.B=8", "--set", "phase.timed_iters=2", "--set", "phase.warmup_iters=1", "--run-id", "it", "-q"

static inline size_t shared_files(void) {
  size_t n = 0;
  DIR *entries = opendir("/dev/shm");
  for (const struct dirent *e; entries != NULL && (e = readdir(entries)) != NULL;)
    n += strstr(e->d_name, "blockshock") != NULL;
  if (entries != NULL) closedir(entries);
  return n;
}

/* Processes of the session that are bsrun: a killed launcher takes its ranks along. */
static inline size_t ranks_of(pid_t session) {
  size_t n = 0;
  DIR *entries = opendir("/proc");
  for (const struct dirent *e; entries != NULL && (e = readdir(entries)) != NULL;) {
    char path[300], text[512] = "";
    long pid = strtol(e->d_name, NULL, 10);
    if (pid <= 0) continue;
    snprintf(path, sizeof path, "/proc/%.200s/stat", e->d_name);
    FILE *f = fopen(path, "r");
    if (f == NULL) continue;
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    char state = 0;
    int parent = 0, group = 0, of = 0;
    const char *after = strrchr(text, ')');
    if (after != NULL && sscanf(after + 1, " %c %d %d %d", &state, &parent, &group, &of) == 4 &&
        of == (int)session && state != 'Z')
      n++;
  }
  if (entries != NULL) closedir(entries);
  return n;
}

static inline pid_t start(const char *in, const char *const *args) {
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid != 0) return pid;
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (chdir(in) != 0 || freopen("out.txt", "w", stdout) == NULL || freopen("err.txt", "w", stderr) == NULL)
    _exit(125);
  execv(args[0], (char *const *)(size_t)args);
  _exit(126);
}

static inline int wait_for(double limit, pid_t session, size_t wanted) {
  for (int i = 0; i < (int)(limit * 100.0); i++) {
    if (ranks_of(session) == wanted) return 1;
    usleep(10000);
  }
  return 0;
}

#endif
