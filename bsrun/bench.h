/* SPDX-License-Identifier: MIT
 * bench.h - the second words of `bsrun bench`: bench_comm.c, and bench_kernel.c. */
#ifndef BSRUN_BENCH_H
#define BSRUN_BENCH_H
#include "bsrun/bsrun.h"

extern const bsrun_subverb bench_comm, bench_matmul, bench_sdpa;
#endif
