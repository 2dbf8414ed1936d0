/* SPDX-License-Identifier: MIT
 * bench.c - the table of `bsrun bench`. */
#include "bsrun/bench.h"

static const bsrun_subverb *const verbs[] = {&bench_comm, &bench_matmul, &bench_sdpa};
const bsrun_subverbs bench_subverbs = {"bench", verbs, sizeof verbs / sizeof verbs[0]};

void help_bench(void) {
  bsrun_subverbs_help(&bench_subverbs);
}

int verb_bench(int argc, char **argv) {
  return bsrun_subverbs_run(&bench_subverbs, argc, argv);
}
