/* SPDX-License-Identifier: MIT
 * bench.h - the second words of `bsrun bench`: one file each (bench_comm.c, bench_sdpa.c). */
#ifndef BSRUN_BENCH_H
#define BSRUN_BENCH_H
#include "bsrun/bsrun.h"
#include "bsrun/subverb.h"

extern const bsrun_subverb bench_comm, bench_sdpa;
extern const bsrun_subverbs bench_subverbs;
#endif
