/* SPDX-License-Identifier: MIT
 * run_help.h - runs the bsrun binary as a user would and keeps what it said. Used by the test_run_*.c
 * programs. Every function ends the test (ck_abort_msg) when the machinery itself fails; nothing here judges
 * bsrun. */
#ifndef BS_TEST_E2E_RUN_HELP_H
#define BS_TEST_E2E_RUN_HELP_H
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>

#include "tests/marks.h"

typedef struct run_result {
  int code;       /* exit status; -1: ended by a signal */
  int signal;     /* 0: none */
  double seconds; /* wall time */
  char *out, *err;
} run_result;

/* A new folder below /tmp, removed with all it holds by run_remove. */
void run_make_folder(char out_path[64]);
void run_remove(const char *path);

/* The words of a command line, ended by NULL: those of `line`, with the next argument as it is for each %s; a
 * NULL among these ends the list. Words may be added, to 96 in all. Valid until the fourth call after this
 * one. */
const char **run_words(const char *line, ...);
/* Runs bsrun with `args` (NULL-terminated, without the program) in folder `cwd`. env: "NAME=value" settings,
 * NULL-terminated, or NULL. Ends the test when bsrun takes more than 600 s. The caller frees the result. */
void run_bsrun(run_result *out, const char *cwd, const char *const *env, const char *const *args);
void run_free(run_result *result);

/* bsrun ended with `code`, by no signal; otherwise the test ends and shows what it said. */
void run_expect(const run_result *result, int code, const char *what);
/* stderr has exactly one "bsrun: error[BS-...] " line, and besides it only notes, warnings and gate lines;
 * stdout is empty when `no_stdout`. Returns the id of the line. */
void run_expect_error(const run_result *result, int no_stdout, char out_id[64], const char *what);

/* Bad input: `bsrun common... args...` ends with `code` and one error line of `id`, says nothing on stdout
 * and leaves no file below cwd/out. */
typedef struct run_bad {
  const char *what;
  int code;
  const char *id;
  const char *says;     /* part of the error line; NULL: not looked at */
  const char *args[16]; /* NULL-terminated */
} run_bad;
void run_check_bad(const char *cwd, const char *const *env, const char *const *common, const run_bad *row);
/* The control: the same command without the bad part ends with 0. */
void run_check_good(const char *cwd, const char *const *env, const char *const *common,
                    const char *const *args);

/* Text of a file; NULL when there is none. The caller frees. */
char *run_read(const char *folder, const char *name, size_t *out_size);
void run_write(const char *folder, const char *name, const void *data, size_t size);
int run_exists(const char *folder, const char *name);
/* The number of files below `folder` whose name is `name`; NULL: of all files. */
size_t run_count_files(const char *folder, const char *name);
/* Every file of cwd/a is in cwd/b, byte for byte; returns how many there are. */
size_t run_same_files(const char *cwd, const char *a, const char *b);
/* The only record of a run folder. The caller releases it. */
json_t *run_record(const char *cwd, const char *run_dir);
/* Rows of `-o jsonl` (one object a line). The caller releases it. */
json_t *run_rows(const char *text);

const char *run_str(const json_t *object, const char *key);
double run_num(const json_t *object, const char *key);
/* Environment variable that ctest sets (tests/CMakeLists.txt). */
const char *run_env(const char *name);
#endif
