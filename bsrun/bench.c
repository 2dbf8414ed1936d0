/* SPDX-License-Identifier: MIT
 * bench.c - the table of `bsrun bench`. */
#include "bsrun/bench.h"

static const bsrun_subverb *const verbs[] = {&bench_comm, &bench_matmul, &bench_sdpa, NULL};
const bsrun_verb verb_bench = {
    .name = "bench",
    .summary = "attention (sdpa) or a product of each implementation, or collectives: checked, timed",
    .subverbs = verbs,
};
