/* SPDX-License-Identifier: MIT
 *
 * pool.h - memory of blocks that are smaller than two huge pages, in regions of huge pages. A model's packed
 * weights are mostly such blocks: on pages of 4 KiB one thread reads them 15 to 25 % slower. */
#ifndef BS_PLUGINS_CPU_POOL_H
#define BS_PLUGINS_CPU_POOL_H

#include <stdint.h>

#define HUGE_PAGE ((uint64_t)2 << 20)

enum { CPU_POOL_REGION = 32 << 20, CPU_POOL_LEAST = 64 << 10, CPU_POOL_MOST = 4 << 20 };

/* A block of CPU_POOL_LEAST to CPU_POOL_MOST bytes, at a multiple of 64, from a region of the memory node of
 * the processor that runs this thread: its pages lie near the thread that writes first. The bytes are not
 * zeroed. NULL: no memory. Any thread may call each of these functions at any time. */
void *cpu_pool_alloc(uint64_t bytes);

/* Frees a block; 0: the pointer is of no region. Regions without blocks are returned to the system, but for
 * one. */
int cpu_pool_free(void *ptr);

/* Returns that one too. */
void cpu_pool_trim(void);

/* How many regions there are. */
uint64_t cpu_pool_regions(void);

#endif
