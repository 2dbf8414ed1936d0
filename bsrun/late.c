/* SPDX-License-Identifier: MIT
 * late.c - see late.h. A rank is found by its environment, which has the launcher's mark and its number: one
 * that was stopped before its first line has reported its process to no one. */
#include "bsrun/late.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/process/marked.h"

static const double LOOK_S = 0.25;
static const double COME_S =
    10.0; /* beyond the timeout, for a rank that runs: machines start at their own pace */
static const double INIT_S = 60.0; /* and for MPI itself, where all have come */

/* 'R', 'S', 'T', ... of /proc; 0: no such process. */
static char state_of(long pid) {
  char path[64], text[512] = "";
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE *f = fopen(path, "re");
  if (f == NULL) return 0;
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  const char *after = strrchr(text, ')'); /* of the name, which may hold anything */
  return after != NULL && after[1] == ' ' ? after[2] : 0;
}

/* Its rank, by its environment; -1: it has none. */
static int64_t rank_of(const char *environment, size_t size) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "SLURM_PROCID="};
  int64_t rank = -1;
  for (const char *at = environment; at < environment + size; at += strlen(at) + 1) {
    for (size_t i = 0; i < sizeof names / sizeof names[0] && rank < 0; i++) {
      const size_t n = strlen(names[i]);
      if (strncmp(at, names[i], n) == 0 && !bs_parse_i64(at + n, &rank)) rank = -1;
    }
  }
  return rank;
}

typedef struct search {
  int64_t rank;
  long stopped; /* its process that stands still; 0: none does */
} search;

static void find_stopped(void *user, pid_t pid, const char *environment, size_t size) {
  search *s = user;
  if (rank_of(environment, size) == s->rank && state_of(pid) == 'T') s->stopped = pid;
}

/* The process of a rank that a signal has stopped; 0: it runs, or is not of this machine. */
static long stopped_process(const bsrun_late *late, const bsrun_board *board, uint32_t r) {
  search s = {.rank = r};
  const long pid = board->rows[r].pid;
  if (pid > 0) return state_of(pid) == 'T' ? pid : 0;
  bs_marked_each(late->mark, find_stopped, &s);
  return s.stopped;
}

/* "1, 3": ranks that have not come to wait with the others; how many. */
static uint32_t list_absent(const bsrun_board *board, char *out, size_t size, uint32_t *out_first) {
  uint32_t n = 0;
  size_t used = 0;
  out[0] = '\0';
  for (uint32_t r = 0; r < board->ranks; r++) {
    if (board->rows[r].stage != BSRUN_STARTED) continue;
    if (n++ == 0) *out_first = r;
    if (used + 16 < size) used += (size_t)snprintf(out + used, size - used, "%s%u", used > 0 ? ", " : "", r);
  }
  return n;
}

static int missed(const bsrun_late *late, const bsrun_board *board, double waited, bs_error *err) {
  char absent[200];
  uint32_t first = 0;
  for (uint32_t r = 0; r < board->ranks; r++) {
    const long pid = stopped_process(late, board, r);
    if (pid == 0) continue;
    bs_error_set(
        err, BS_DEADLINE, "BS-RANK-HELLO",
        "rank %u (process %ld) stands still: a signal has stopped it before it joined, and the others "
        "have waited for %.3g s",
        r, pid, waited);
    err->rank = (int32_t)r;
    return 1;
  }
  const uint32_t n = list_absent(board, absent, sizeof absent, &first);
  if (waited < late->timeout_s + (n > 0 ? COME_S : INIT_S)) return 0;
  if (n > 0) {
    bs_error_set(err, BS_DEADLINE, "BS-RANK-HELLO", "%.3g s passed and %s %s not joined the job", waited,
                 absent, n == 1 ? "has" : "have");
    err->rank = (int32_t)first;
  } else {
    bs_error_set(err, BS_DEADLINE, "BS-RANK-HELLO",
                 "%.3g s passed and MPI has not brought the %u ranks together, which all run", waited,
                 (unsigned)board->ranks);
  }
  bs_error_hint(err, "a rank is late, stopped or hangs before it joined (--timeout)");
  return 1;
}

int bsrun_late_look(bsrun_late *late, const bsrun_board *board, double now_s, bs_error *err) {
  int waits = 0, past = 0; /* a rank that has joined has met all; a rank reports its own error */
  for (uint32_t r = 0; r < board->ranks; r++) {
    waits |= board->rows[r].stage == BSRUN_WAITS;
    past |= board->rows[r].stage == BSRUN_JOINED || board->rows[r].written != 0;
  }
  if (late->timeout_s <= 0.0 || !waits || past) {
    late->since = 0.0;
    return 0;
  }
  if (late->since == 0.0) late->since = now_s;
  if (now_s - late->since < late->timeout_s || now_s < late->next_look) return 0;
  late->next_look = now_s + LOOK_S;
  return missed(late, board, now_s - late->since, err);
}

static void end_process(void *user, pid_t pid, const char *environment, size_t size) {
  (void)user;
  if (rank_of(environment, size) >= 0) kill(pid, SIGKILL);
}

void bsrun_late_kill(const bsrun_late *late) {
  bs_marked_each(late->mark, end_process, NULL);
}
