/* SPDX-License-Identifier: MIT
 * usage.h - what a thread did with its time: it ran, it was ready without a processor, or it slept. */
#ifndef BS_CORE_BASE_USAGE_H
#define BS_CORE_BASE_USAGE_H
#include <stdint.h>

typedef struct bs_usage {
  double seconds;  /* of the clock: clock.h */
  double cpu_s;    /* on a processor */
  double queued_s; /* ready, without a processor; 0 where the system does not tell */
  uint64_t sleeps; /* how often it gave the processor up */
} bs_usage;

/* Of the calling thread so far. before 1: work that is measured follows; 0: it is done. The clock is read
 * next to that work. */
bs_usage bs_usage_now(int before);
#endif
