/* SPDX-License-Identifier: MIT
 *
 * direct.h - a matmul by oneDNN called directly, as its user writes it: the peer of bench_matmul. */
#ifndef BS_BENCH_DIRECT_H
#define BS_BENCH_DIRECT_H
#include <stdint.h>

typedef struct bench_direct bench_direct;

/* Y [b,n] = X [b,k] times W [n,k] transposed, all dense and row-major, of one dtype. */
typedef struct bench_direct_job {
  int64_t n, k, b;
  uint32_t dtype, threads;
  int any; /* 1: W is reordered once to the layout that oneDNN chooses; 0: it stays [n,k] */
  void *w, *x, *y;
} bench_direct_job;

/* NULL when there is no oneDNN or it cannot. The memory stays the caller's while the result is used; what is
 * returned lives until the program ends. */
bench_direct *bench_direct_open(const bench_direct_job *job);
/* One product; 0 when it failed. */
int bench_direct_run(const bench_direct *direct);

/* Zeroed memory on 2 MiB boundaries that asks for huge pages, as the cpu plugin's own is; NULL when out of
 * memory. free() frees it. */
void *bench_huge_alloc(uint64_t bytes);

#endif
