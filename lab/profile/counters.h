/* SPDX-License-Identifier: MIT
 * counters.h - the processor's counters by perf_event, of this process and the threads that it starts while
 * they are open. If the system lacks or forbids them, the reason is reported. */
#ifndef BS_LAB_PROFILE_COUNTERS_H
#define BS_LAB_PROFILE_COUNTERS_H
#include <jansson.h>

#include "blockshock/blockshock.h"

enum bs_perf_event {
  BS_PERF_CYCLES = 0,
  BS_PERF_INSTRUCTIONS = 1,
  BS_PERF_LLC_MISSES = 2,
  BS_PERF_BRANCH_MISSES = 3,
  BS_PERF_EVENTS_ = 4
};

typedef struct bs_counters {
  int fd[BS_PERF_EVENTS_];       /* -1: not there */
  double count[BS_PERF_EVENTS_]; /* of the last stop; NAN: not known */
  char reason[200];              /* why some are not known; "" */
} bs_counters;

/* Opens the counters. Existing threads are not counted. wanted 0: none are opened, as if they were forbidden.
 * It is not an error if they are forbidden. */
void bs_counters_open(int wanted, bs_counters *out);
void bs_counters_start(bs_counters *c);
/* Adds what has been counted since start, scaled where the counters were shared with others. */
void bs_counters_stop(bs_counters *c);
void bs_counters_close(bs_counters *c);
/* {known, reason, cycles, instructions, llc_misses, branch_misses, ipc, branch_misses_per_1000, llc_share}:
 * of one of `calls` calls that take `seconds` each; read_bytes_s: the memory's read rate (0: unknown).
 * Unknown fields are left out. */
json_t *bs_counters_json(const bs_counters *c, double calls, double seconds, double read_bytes_s);
/* The reason for an errno and the value of perf_event_paranoid (INT32_MIN: it cannot be read). */
void bs_counters_reason(int error, int32_t paranoid, char *out, size_t size);
#endif
