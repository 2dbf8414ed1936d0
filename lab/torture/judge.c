/* SPDX-License-Identifier: MIT
 * judge.c - compares the behaviour of a child with its specification: exit code, time, the one error line
 * with the culprit, the op and the site, and no leftovers. One sentence names the first difference. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/torture/torture.h"

static char *read_all(const char *path) {
  FILE *f = fopen(path, "re");
  char *text = calloc(1, 262144);
  if (f != NULL && text != NULL) text[fread(text, 1, 262143, f)] = '\0';
  if (f != NULL) fclose(f);
  return text;
}

void bs_torture_wanted(const bs_torture_case *c, int codes[2]) {
  static const int by_fault[BS_TORTURE_FAULTS] = {7, 8, 0, 8, 6, 6, 9, 7, 8};
  codes[0] = c->fault == BS_TORTURE_NONE ? 0 : by_fault[c->fault];
  codes[1] = -1;
  if (c->subject->kind != BS_TORTURE_BACKEND) return;
  if (c->fault == BS_TORTURE_TRUNCATE)
    codes[0] = 6; /* a row that one rank did not compute is a wrong number */
  /* Kernels take memory by a call that returns no reason: their error is out of memory. */
  if (c->fault == BS_TORTURE_ERR && strcmp(c->op, "alloc") == 0) codes[1] = 10;
}

double bs_torture_grace(const bs_torture_case *c) {
  return c->subject->launch == BS_TORTURE_MPI ? 3.0 : 1.0;
}

/* "rank 3" as whole words. */
static int names_rank(const char *text, uint32_t rank) {
  char word[24];
  const size_t n = (size_t)snprintf(word, sizeof word, "rank %u", rank);
  for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
    if (!isdigit((unsigned char)p[n])) return 1;
  return 0;
}

/* Removes the speaker: the message names the culprit, and "; rank N" after it only names the rank that
 * reports. */
static void without_speaker(char *line) {
  char *hint = strstr(line, "; hint: ");
  if (hint != NULL) *hint = '\0';
  for (char *last = line + strlen(line); last > line; last--) {
    if (strncmp(last, "; rank ", 7) != 0) continue;
    if (last[7 + strspn(last + 7, "0123456789")] == '\0') *last = '\0';
    return;
  }
}

/* The error lines of the child: how many, and the first one. */
static size_t error_lines(const char *text, char *out, size_t size) {
  size_t n = 0;
  out[0] = '\0';
  for (const char *p = text; (p = strstr(p, "bsrun: error[")) != NULL; p += 13)
    if (n++ == 0) snprintf(out, size, "%.*s", (int)strcspn(p, "\n"), p);
  return n;
}

static int is_pairwise(const char *op) {
  return strcmp(op, "send") == 0 || strcmp(op, "recv") == 0 || strcmp(op, "exchange") == 0;
}

/* Checks the op and the site: in a collective that all ranks enter, the others know both. */
static void check_place(const bs_torture_case *c, const char *line, char *why, size_t size) {
  const int comm = c->subject->kind != BS_TORTURE_BACKEND;
  if (!comm || is_pairwise(c->op) || c->fault == BS_TORTURE_FLIP || c->fault == BS_TORTURE_NAN) return;
  /* All ranks notice the end of a process immediately, also those in the messages before a barrier. Then the
   * line has the last call that the dead rank completed. */
  const int done = strstr(line, " has ended after ") != NULL ||
                   (strstr(line, " has ended; its last call: ") != NULL && strstr(line, ", done") != NULL);
  if (c->fault == BS_TORTURE_KILL && strcmp(c->op, "barrier") == 0 && done) return;
  if (strstr(line, c->op) == NULL)
    snprintf(why, size, "the error line does not name %s: %.220s", c->op, line);
  else if (c->subject->kind == BS_TORTURE_COMM && strstr(line, "torture.") == NULL)
    snprintf(why, size, "the error line does not name the call site: %.220s", line);
}

/* A wrong partial sum of one rank is in every rank's result: the gates cannot name the rank. */
static int is_summed(const bs_torture_case *c) {
  return c->subject->kind == BS_TORTURE_BACKEND && c->fault >= BS_TORTURE_FLIP &&
         c->fault <= BS_TORTURE_TRUNCATE;
}

/* The messages of an algorithm pass a wrong value, or a wait, on: another rank may be blamed. */
static int is_passed_on(const bs_torture_case *c) {
  if (strcmp(c->op, "exchange") != 0 || c->fault == BS_TORTURE_ERR) return 0;
  return c->world_size > 2 || c->fault == BS_TORTURE_FLIP || c->fault == BS_TORTURE_NAN;
}

static void check_line(const bs_torture_case *c, const char *errors, char *why, size_t size) {
  char line[1400];
  const size_t n = error_lines(errors, line, sizeof line);
  if (n != 1) {
    snprintf(why, size, "%zu error lines, one is specified%s%.200s", n, n > 0 ? ": " : "", line);
    return;
  }
  const int told_by_others =
      c->fault == BS_TORTURE_HANG || c->fault == BS_TORTURE_LATE || c->fault >= BS_TORTURE_TRUNCATE;
  char full[sizeof line];
  memcpy(full, line, sizeof full);
  if (told_by_others) without_speaker(line);
  if (is_summed(c) || is_passed_on(c)) return;
  if (!names_rank(line, c->rank))
    snprintf(why, size, "the error line does not blame rank %u: %.250s", c->rank, full);
  else
    check_place(c, full, why, size);
}

/* ---- leftovers ------------------------------------------------------------------------------ */

static const char *left_file; /* the callback of nftw has no user argument */
static char left_name[160];

static int on_file(const char *path, const struct stat *st, int type, struct FTW *f) {
  (void)st;
  if (type == FTW_F && left_file == NULL) {
    snprintf(left_name, sizeof left_name, "%s", path + f->base);
    left_file = left_name;
  }
  return 0;
}

static int on_remove(const char *path, const struct stat *st, int type, struct FTW *f) {
  (void)st, (void)type, (void)f;
  return remove(path);
}

void bs_torture_remove(const char *folder) {
  nftw(folder, on_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* Checks that a run folder with any content is finished, and reports the end of its run. */
static void check_run(const bs_torture_case *c, const char *folder, char *why, size_t size) {
  char path[400];
  const char *method = c->subject->kind == BS_TORTURE_BACKEND ? "row_parallel" : c->subject->name;
  snprintf(path, sizeof path, "%s/out/phase0_correctness/%s/it", folder, method);
  if (access(path, F_OK) != 0) {
    if (c->code == 0) snprintf(why, size, "exit 0, and no run is kept");
    return;
  }
  snprintf(path, sizeof path, "%s/out/phase0_correctness/%s/it/DONE", folder, method);
  char *done = read_all(path);
  const int writer_gone = c->rank == 0 && (c->fault >= BS_TORTURE_KILL || c->code == 8);
  if (done == NULL || done[0] == '\0') {
    if (writer_gone &&
        c->subject->launch !=
            BS_TORTURE_THREADS) { /* no process is left to finish it, and without DONE it never counts */
      free(done);
      return;
    }
    snprintf(why, size, "a run folder without DONE is left");
  } else if (c->code != 0 && strstr(done, "\"failed\"") == NULL && strstr(done, "\"not passed\"") == NULL)
    snprintf(why, size, "the record of a run with a fault is acknowledged: %.100s", done);
  free(done);
}

/* Checks shared memory whose name holds the child's number. */
static void check_memory(pid_t pid, char *why, size_t size) {
  char number[24];
  DIR *dir = opendir("/dev/shm");
  snprintf(number, sizeof number, "%ld", (long)pid);
  for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
    const char *p = strstr(e->d_name, number);
    if (p == NULL || isdigit((unsigned char)p[strlen(number)])) continue;
    if (p > e->d_name && isdigit((unsigned char)p[-1])) continue;
    snprintf(why, size, "shared memory is left: /dev/shm/%.100s", e->d_name);
  }
  if (dir != NULL) closedir(dir);
}

static void check_left(const bs_torture_case *c, const char *folder, pid_t group, char *why, size_t size) {
  char cache[200];
  if (bs_torture_end_left(folder) > 0 || kill(-group, 0) == 0 || errno != ESRCH) {
    snprintf(why, size, "a process is left running");
    return;
  }
  check_memory(group, why, size);
  if (why[0] != '\0') return;
  if (c->subject->kind != BS_TORTURE_COMM) check_run(c, folder, why, size);
  if (why[0] != '\0' || c->subject->kind != BS_TORTURE_COMM) return;
  snprintf(cache, sizeof cache, "%s", folder);
  left_file = NULL;
  nftw(cache, on_file, 8, FTW_PHYS);
  if (left_file != NULL) snprintf(why, size, "a file is left: %.120s", left_file);
}

static void check_code(const bs_torture *t, const bs_torture_case *c, const char *errors, char *why,
                       size_t size) {
  const double grace = bs_torture_grace(c);
  char line[1400];
  int codes[2];
  bs_torture_wanted(c, codes);
  error_lines(errors, line, sizeof line);
  const char *died = strstr(errors, "bsrun: error[BS-RUN-DIED]");
  if (c->code == -2)
    snprintf(why, size, "it did not end within %.1f s and had to be killed", c->seconds);
  else if (c->code == -1)
    snprintf(why, size, "it died of signal %d (%s)", c->signal, strsignal(c->signal));
  else if (died != NULL)
    snprintf(why, size, "it died: %.*s", (int)strcspn(died, "\n"), died);
  else if (c->code != codes[0] && c->code != codes[1])
    snprintf(why, size, "exit %d, specified is %d%s%.250s", c->code, codes[0], line[0] != '\0' ? ": " : "",
             line);
  else if (c->fault != BS_TORTURE_NONE && c->seconds > t->deadline + grace + t->clean_seconds)
    snprintf(why, size,
             "it took %.2f s; the deadline is %g s, and %g s and the %.2f s of clean runs are allowed",
             c->seconds, t->deadline, grace, t->clean_seconds);
}

void bs_torture_judge(const bs_torture *t, bs_torture_case *c, const char *folder, const bs_process *child,
                      pid_t pid) {
  const char *text = child->err.data != NULL ? child->err.data : "";
  c->why[0] = '\0';
  check_code(t, c, text, c->why, sizeof c->why);
  if (c->why[0] == '\0' && c->code != 0) check_line(c, text, c->why, sizeof c->why);
  if (c->why[0] == '\0') check_left(c, folder, pid, c->why, sizeof c->why);
  bs_torture_remove(folder);
}
