/* SPDX-License-Identifier: MIT
 * clock.h - seconds of the clock that only goes forward: for differences. */
#ifndef BS_CORE_BASE_CLOCK_H
#define BS_CORE_BASE_CLOCK_H
#include <time.h>

static inline double bs_clock_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
#endif
