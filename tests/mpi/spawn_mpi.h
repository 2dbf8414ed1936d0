/* SPDX-License-Identifier: MIT
 *
 * spawn_mpi.h - runs a command with mpirun as a user would, in a folder of its own: what it says, how it
 * ends, and whether it leaves a process behind. Every process of a command carries a mark in its environment.
 */
#ifndef BS_TESTS_MPI_SPAWN_H
#define BS_TESTS_MPI_SPAWN_H
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/marks.h"

#define LIMIT_S 300.0 /* what hangs is ended; no test is about it */

/* An MPI that is installed: the plugin made with it and its mpirun. BS_TEST_MPI has them,
 * "id=mpirun=name;...". */
typedef struct mpi_kind {
  char id[32], mpirun[256], name[32];
} mpi_kind;
typedef struct spawned {
  int code; /* exit status; 128 + signal */
  double seconds;
  char text[65536]; /* stdout and stderr */
} spawned;

static mpi_kind kinds[4];
static int n_kinds;
static char folder[64];

static inline void find_kinds(void) {
  const char *all = getenv("BS_TEST_MPI");
  char copy[2048], *rest = NULL;
  snprintf(copy, sizeof copy, "%s", all != NULL ? all : "");
  for (char *one = strtok_r(copy, ";", &rest); one != NULL && n_kinds < 4; one = strtok_r(NULL, ";", &rest))
    if (sscanf(one, "%31[^=]=%255[^=]=%31[^=]", kinds[n_kinds].id, kinds[n_kinds].mpirun,
               kinds[n_kinds].name) == 3)
      n_kinds++;
}
static inline int is_open_mpi(const mpi_kind *k) {
  return strcmp(k->name, "Open MPI") == 0;
}

static inline void make_folder(void) {
  snprintf(folder, sizeof folder, "/tmp/bs_mpi_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}
static inline void remove_folder(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

static inline double clock_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static inline void nap(double seconds) {
  struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&t, NULL);
}

/* Processes whose environment has the mark: 0, or how many. */
static inline int left_behind(const char *mark) {
  DIR *d = opendir("/proc");
  int n = 0;
  for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
    char path[64], environment[16384];
    const long pid = strtol(e->d_name, NULL, 10);
    if (pid <= 0 || pid == (long)getpid()) continue;
    snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) continue;
    const size_t got = fread(environment, 1, sizeof environment - 1, f);
    fclose(f);
    environment[got] = '\0';
    for (const char *at = environment; at < environment + got; at += strlen(at) + 1)
      n += strcmp(at, mark) == 0;
  }
  if (d != NULL) closedir(d);
  return n;
}

/* A signal for the command that is run next, `after` seconds from when a path of the pattern is there. */
static struct {
  int number;
  const char *pattern; /* below the folder */
  double after;
} spawn_signal;

static inline int is_there(const char *pattern) {
  char path[256];
  glob_t found;
  snprintf(path, sizeof path, "%s/%s", folder, pattern);
  const int rc = glob(path, 0, NULL, &found);
  if (rc == 0) globfree(&found);
  return rc == 0;
}

/* Runs the words of a line (no quoting) in the folder; env: "A=b C=d". */
static inline void spawn(spawned *out, const char *env, const char *line) {
  static int serial;
  char copy[4096], settings[1024], mark[64], path[128], *words[128], *rest = NULL;
  int n = 0;
  memset(out, 0, sizeof *out);
  snprintf(mark, sizeof mark, "BS_TEST_MARK=%d.%d", (int)getpid(), ++serial);
  snprintf(path, sizeof path, "%s/.said", folder);
  snprintf(copy, sizeof copy, "%s", line);
  snprintf(settings, sizeof settings, "%s", env);
  for (char *w = strtok_r(copy, " ", &rest); w != NULL && n < 127; w = strtok_r(NULL, " ", &rest))
    words[n++] = w;
  words[n] = NULL;
  const double start = clock_s();
  const pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    const int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600),
              from = open("/dev/null", O_RDONLY);
    dup2(from, 0);
    dup2(to, 1);
    dup2(to, 2);
    for (char *w = strtok_r(settings, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest)) putenv(w);
    putenv(mark);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* MPI keeps what it has */
    if (words[0] != NULL && chdir(folder) == 0) execvp(words[0], words);
    _exit(99);
  }
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (spawn_signal.number != 0 && is_there(spawn_signal.pattern)) {
      nap(spawn_signal.after);
      kill(pid, spawn_signal.number);
      spawn_signal.number = 0;
    }
    if (clock_s() - start > LIMIT_S) kill(pid, SIGTERM);
    if (clock_s() - start > LIMIT_S + 5.0) kill(pid, SIGKILL);
    nap(0.01);
  }
  out->seconds = clock_s() - start;
  out->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  FILE *f = fopen(path, "r");
  if (f != NULL) {
    out->text[fread(out->text, 1, sizeof out->text - 1, f)] = '\0';
    fclose(f);
  }
  for (int turn = 0; turn < 40 && left_behind(mark) > 0; turn++) nap(0.05); /* 2 s */
  ck_assert_msg(left_behind(mark) == 0, "%s: processes are left after 2 s\n%s", line, out->text);
}

static inline void must_end(const spawned *s, int code, const char *says, const char *what) {
  ck_assert_msg(s->code == code, "%s: ended with %d, not %d:\n%s", what, s->code, code, s->text);
  ck_assert_msg(says == NULL || strstr(s->text, says) != NULL, "%s: does not say '%s':\n%s", what, says,
                s->text);
}

/* "mpirun ... -n P " of a kind, as a user on one machine types it. */
static inline const char *mpirun_of(const mpi_kind *k, int ranks) {
  static char line[512];
  snprintf(line, sizeof line, "%s %s-n %d ", k->mpirun,
           is_open_mpi(k) ? "--oversubscribe --allow-run-as-root " : "", ranks);
  return line;
}

static inline int no_mpi(void) {
  find_kinds();
  if (n_kinds == 0) printf("skipped: no MPI was found when this was configured (apt: libopenmpi-dev)\n");
  return n_kinds == 0;
}
#endif
