/* SPDX-License-Identifier: MIT
 * spawn.h - the one spawner of tests: it runs bsrun as a user would, or another program, and keeps how it
 * ended and what it said. The output of a program lies in .stdout and .stderr of its folder. Each function
 * ends the test when the machinery itself fails; none judges the program. */
#ifndef BS_TESTS_SPAWN_H
#define BS_TESTS_SPAWN_H
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/lab/lab_test.h"

extern char **environ;

typedef struct ran {
  int code;       /* exit code, or 128 + signal */
  int killed;     /* ended by a signal that the program did not turn into an exit */
  double seconds; /* wall time, by run_spawn and what calls it */
  char *out, *err;
} ran;

typedef struct spawn_order {
  const char *cwd, *program;
  const char *const *words; /* of the command line with the program's name, NULL at the end */
  const char *const *env;   /* "NAME=value", NULL at the end; or NULL */
  int together;             /* stderr goes where stdout goes */
} spawn_order;

/* The folder of the test that runs; dir_make and dir_remove are its fixture. */
extern const char *dir;
void dir_make(void);
void dir_remove(void);

const char *bsrun_path(void);
/* An environment variable that ctest sets (tests/CMakeLists.txt). */
const char *run_env(const char *name);

pid_t start_spawn(const spawn_order *order);
/* Waits for its end, for 600 s at most. */
ran finish_spawn(const char *cwd, pid_t pid);
ran run_spawn(const spawn_order *order);
void ran_free(ran *r);

/* bsrun with the words of argv, of which the first is its name. */
pid_t start_bsrun(const char *cwd, char *const argv[]);
/* bsrun with the given words, NULL at the end. */
ran bsrun(const char *cwd, ...);
/* bsrun with `args`, without the program's name. */
void run_bsrun(ran *out, const char *cwd, const char *const *env, const char *const *args);
/* The words of a command line, ended by NULL: those of `line`, with the next argument as it is for each %s; a
 * NULL among these ends the list. Words may be added, to 96 in all. Valid until the fourth call after this
 * one. */
const char **run_words(const char *line, ...);

/* It ended with `code`, by no signal; otherwise the test ends and shows what it said. */
void run_expect(const ran *r, int code, const char *what);
static inline void must_be(const ran *r, int code) {
  run_expect(r, code, "bsrun");
}
/* A line that stderr may have beside an error: a note, a warning, or one of AddressSanitizer. */
int is_aside(const char *line);
/* stderr has exactly one "bsrun: error[BS-...] " line, and besides it only asides; stdout is empty when
 * `no_stdout`. Returns the id of the line. */
void run_expect_error(const ran *r, int no_stdout, char out_id[64], const char *what);

/* A command of a shell in `dir`, written as for printf; it must succeed. */
void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The bytes of a file; NULL when there is none. The caller frees. */
char *run_read(const char *folder, const char *name, size_t *out_size);
void run_write(const char *folder, const char *name, const void *data, size_t size);
/* The number of files below `folder` whose name matches `name`, as of a shell; NULL: of all files. The output
 * of the spawner is not counted. */
size_t run_count_files(const char *folder, const char *name);
/* Files below `in`/results, hidden ones too. */
int result_files(const char *in);
int run_exists(const char *folder, const char *name);
/* The path after "run: " number `index` in a table's last lines, in a static buffer. */
const char *run_folder(const ran *r, const char *cwd, int index);
/* Rows of `-o jsonl` (one object a line). The caller releases it. */
json_t *run_rows(const char *text);
/* The only record of a run folder. The caller releases it. */
json_t *run_record(const char *cwd, const char *run_dir);
const char *run_str(const json_t *object, const char *key);
double run_num(const json_t *object, const char *key);

#define SMALL                                                                                            \
  "--set", "model.N=64", "--set", "model.B=8", "--set", "phase.timed_iters=2", "--set",                  \
      "phase.warmup_iters=1", "--set", "phase.pairs_seconds=0.2", "--set", "phase.pairs_min=5", "--set", \
      "phase.pairs_max=10"
#endif
