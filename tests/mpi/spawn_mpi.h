/* SPDX-License-Identifier: MIT
 *
 * spawn_mpi.h - runs a command with mpirun as a user would, in a folder of its own: what it says, how it
 * ends, and whether it leaves a process behind. Every process of a command carries a mark in its environment.
 */
#ifndef BS_TESTS_MPI_SPAWN_H
#define BS_TESTS_MPI_SPAWN_H
#include <glob.h>

#include "lab/process/child.h"
#include "lab/process/marked.h"
#include "tests/spawn.h"

/* An MPI that is installed: the plugin made with it and its mpirun. BS_TEST_MPI has them,
 * "id=mpirun=name;...". */
typedef struct mpi_kind {
  char id[32], mpirun[256], name[32];
} mpi_kind;

static mpi_kind kinds[4];
static int n_kinds;

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

static inline void count_one(void *user, pid_t pid, const char *environment, size_t size) {
  (void)pid, (void)environment, (void)size;
  ++*(int *)user;
}

static inline void nap(double seconds) {
  struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&t, NULL);
}

/* Processes whose environment has the mark: 0, or how many. */
static inline int left_behind(const char *mark) {
  int n = 0;
  bs_marked_each(mark, count_one, &n);
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
  snprintf(path, sizeof path, "%s/%s", dir, pattern);
  const int rc = glob(path, 0, NULL, &found);
  if (rc == 0) globfree(&found);
  return rc == 0;
}

/* The words of a text, NULL behind them. */
static inline void cut(char *copy, size_t size, const char *text, const char **out_words, size_t most) {
  char *rest = NULL;
  size_t n = 0;
  snprintf(copy, size, "%s", text);
  for (char *w = strtok_r(copy, " ", &rest); w != NULL && n < most; w = strtok_r(NULL, " ", &rest))
    out_words[n++] = w;
  out_words[n] = NULL;
}

/* Runs the words of a line (no quoting) in the folder; env: "A=b C=d". Its text is in out->out. */
static inline void spawn(ran *out, const char *env, const char *line) {
  static int serial;
  char copy[4096], settings[1024], mark[64], session[600];
  /* MPI keeps what it has. Two mpiruns that begin together may both make one session folder: each has its
   * own. */
  const char *words[128] = {NULL}, *all[32] = {mark, "ASAN_OPTIONS=detect_leaks=0", session};
  cut(copy, sizeof copy, line, words, 127);
  cut(settings, sizeof settings, env, all + 3, 28);
  snprintf(session, sizeof session, "OMPI_MCA_orte_tmpdir_base=%s", dir);
  snprintf(mark, sizeof mark, "BS_TEST_MARK=%d.%d", (int)getpid(), ++serial);
  ran_free(out);
  const double start = bs_process_now();
  const pid_t pid = start_spawn(&(spawn_order){dir, words[0], words, all, 1});
  while (spawn_signal.number != 0 &&
         waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT | WNOHANG) == 0) {
    if (is_there(spawn_signal.pattern)) {
      nap(spawn_signal.after);
      kill(pid, spawn_signal.number);
      spawn_signal.number = 0;
    }
    nap(0.01);
  }
  *out = finish_spawn(dir, pid);
  out->seconds = bs_process_now() - start;
  for (int turn = 0; turn < 40 && left_behind(mark) > 0; turn++) nap(0.05); /* 2 s */
  ck_assert_msg(left_behind(mark) == 0, "%s: processes are left after 2 s\n%s", line, out->out);
}

static inline void must_end(const ran *s, int code, const char *says, const char *what) {
  run_expect(s, code, what);
  ck_assert_msg(says == NULL || strstr(s->out, says) != NULL, "%s: does not say '%s':\n%s", what, says,
                s->out);
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
