/* SPDX-License-Identifier: MIT
 *
 * support.h - what the bench programs share: options, errors, a source of numbers, JSON lines. Linked into
 * every bench_*.c. */
#ifndef BS_BENCH_SUPPORT_H
#define BS_BENCH_SUPPORT_H

#include "blockshock/blockshock.h"
#include "lab/measure/stats.h"

typedef struct bench_option {
  const char *name; /* "--pairs" */
  char kind;        /* 'i' int64_t, 'f' double, 's' const char *, 'd' dtype as uint32_t */
  void *out;
  double least, most; /* of 'i' and 'f' */
} bench_option;

/* Options are pairs "--name value". On a wrong one says so on stderr and returns 0. */
int bench_parse(const char *program, int argc, char **argv, const bench_option *options, size_t n_options);

/* Zeroed memory on 2 MiB boundaries that asks for huge pages, as the cpu plugin's own is; NULL when out of
 * memory. free() frees it. */
void *bench_huge_alloc(uint64_t bytes);

/* Prints err for `program`; returns the exit code. */
int bench_fail(const char *program, const bs_error *err);

/* Values in [-1, 1) by seed and position, rounded to dtype: they take no memory. `matrix` stays the
 * caller's while the source is read. */
typedef struct bench_matrix {
  uint64_t seed;
  int64_t rows, cols;
} bench_matrix;
bs_source bench_source(bench_matrix *matrix, uint32_t dtype);

/* With the plugin cpu selected. */
int32_t bench_context(bs_context **out_context, bs_error *err);

#endif
