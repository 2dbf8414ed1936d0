/* SPDX-License-Identifier: MIT
 * scan_twin.h - runs the steps of scan_body.h for every thread of every block; include it after that. Shared
 * memory begins as NaN, so that nothing is read before it is written. */
#include <string.h>

#include "tools/standin/twins/spread_twin.h"

static void scan_twin_block(const scan_args *a, cuda_at at) {
  scan_shared s;
  scan_local l[CUDA_BLOCK];
  memset(&s, 0xff, sizeof s);
  for (at.thread = 0; at.thread < CUDA_BLOCK; at.thread++) scan_begin(a, &l[at.thread], &at);
  for (int64_t first = 0; first < a->lines.inner.count; first += scan_round(a)) {
    uint32_t from = 0;
    for (int t = 0; t < CUDA_BLOCK; t++) scan_load(a, &s, &l[t], first);
    for (uint32_t apart = 1; apart < a->lines.team; apart *= 2, from ^= 1u)
      for (int t = 0; t < CUDA_BLOCK; t++) scan_add(a, &s, &l[t], from, apart);
    for (int t = 0; t < CUDA_BLOCK; t++) scan_write(a, &s, &l[t], first, from);
  }
}

static void scan_twin(const void *args, const cuda_twin_grid *grid) {
  scan_args a = *(const scan_args *)args;
  const int64_t places = a.lines.inner.count - 1; /* after the first of a line */
  spread_lines_here(&a.lines.in, &a.lines.outer, places, a.lines.inside.strides[REDUCE_LAST]);
  spread_lines_here(&a.lines.out, &a.lines.outer, places, a.out_step);
  for (uint32_t x = 0; x < grid->x; x++)
    scan_twin_block(&a, (cuda_at){.threads = grid->threads, .block_x = x});
}
