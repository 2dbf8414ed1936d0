/* SPDX-License-Identifier: MIT
 * usage.h - what a thread did with its time: it ran, it was ready without a processor, or it slept. */
#ifndef BS_CORE_BASE_USAGE_H
#define BS_CORE_BASE_USAGE_H
#include <stdint.h>

typedef struct bs_usage {
  double seconds;  /* of the clock: clock.h */
  double cpu_s;    /* on a processor */
  double queued_s; /* ready, without a processor; 0 where the system does not report it */
  uint64_t sleeps; /* how often it gave the processor up */
} bs_usage;

/* The usage of the calling thread so far. before 1: the measured work follows; 0: it is done. The clock is
 * read last before the work, and first after it. */
bs_usage bs_usage_now(int before);
#endif
