/* SPDX-License-Identifier: MIT
 * spacer.c - see spacer.h. */
#include "lab/measure/spacer.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "core/base/rng.h"

enum {
  CACHE_LINE = 64,
  SPACER_LINES = 1500, /* less than what malloc maps apart */
  SPACER_STREAM = 12
};

void *bs_spacer_take(void) {
  struct timespec now;
  uint32_t draw = 0;
  clock_gettime(CLOCK_MONOTONIC, &now);
  bs_rng_bits((uint64_t)now.tv_nsec, SPACER_STREAM, 0, 1, &draw);
  return malloc((size_t)CACHE_LINE * (1 + draw % SPACER_LINES));
}

void bs_spacer_return_pages(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}
