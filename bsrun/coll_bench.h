/* SPDX-License-Identifier: MIT
 * coll_bench.h - what both forms of `bsrun coll bench` share: the collectives of a communicator
 * (coll_comm.c), and algorithms on it, each with its simulation (coll_algorithms.c). */
#ifndef BSRUN_COLL_BENCH_H
#define BSRUN_COLL_BENCH_H
#include "bsrun/coll.h"
#include "lab/coll/comm_bench.h"

typedef struct coll_bench {
  bs_comm_bench bench;
  const args *a;
  bs_node *config;
  json_t *rows;
  const char *algorithm; /* hardware.algorithm; "native" */
  const char **kinds;    /* of --coll; bench.kinds are these or all */
  char comm[64];         /* of a plugin */
  int how, format, quiet, simulated;
  uint64_t wrong; /* elements */
} coll_bench;

/* Measures, and adds the rows. */
int32_t coll_bench_comm(coll_bench *b, bs_context *context, bs_error *err);
int32_t coll_bench_algorithms(coll_bench *b, bs_context *context, bs_error *err);
/* Prints the rows. */
int32_t coll_print_comm(const coll_bench *b, bs_error *err);
int32_t coll_print_algorithms(const coll_bench *b, bs_error *err);
#endif
