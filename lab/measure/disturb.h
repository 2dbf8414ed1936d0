/* SPDX-License-Identifier: MIT
 * disturb.h - what took the processor from a measurement: other programs, time stolen by the hypervisor,
 * involuntary context switches, cgroup throttling. Counts are cumulative, read before and after a pair. A
 * table provides the source, so that tests can replace it. */
#ifndef BS_LAB_MEASURE_DISTURB_H
#define BS_LAB_MEASURE_DISTURB_H
#include <stddef.h>
#include <stdint.h>

#include "lab/measure/load.h"

enum bs_disturb_kind {
  BS_DISTURB_STEAL = 0, /* clock ticks of all processors: /proc/stat */
  BS_DISTURB_SWITCH =
      1, /* involuntary switches of the threads that worked, while timed: bs_sample.switches */
  BS_DISTURB_THROTTLE = 2, /* periods in which the cgroup's quota ran out: cpu.stat */
  BS_DISTURB_COUNT_ = 3
};

typedef struct bs_disturb {
  uint64_t count[BS_DISTURB_COUNT_];
  uint32_t known[BS_DISTURB_COUNT_]; /* 0: this machine does not report it */
  bs_load load;                      /* clock 0: this machine does not report it */
  double waited; /* seconds that threads of this process could run and had no processor; below 0: not known */
} bs_disturb;

enum { BS_STAT_TEXT = 65536 }; /* of /proc/stat: a line a processor, then lines that are not read */

/* Reads this machine, without switches, which samples report. user is not used. It fits
 * bs_sampler_host.disturb. */
void bs_disturb_host(void *user, bs_disturb *out);

/* The files that bs_disturb_host reads, so that tests can replace them. */
typedef struct bs_disturb_source {
  void *user;
  /* The text of a file, NUL-terminated, cut to size; 0 when it cannot be read. */
  int (*read)(void *user, const char *path, char *text, size_t size);
} bs_disturb_source;
int bs_disturb_file(void *user, const char *path, char *text, size_t size); /* this machine's; no user */
void bs_disturb_read(const bs_disturb_source *source, bs_disturb *out);
/* "stolen time", "involuntary switches", "throttling". */
const char *bs_disturb_name(uint32_t kind);
#endif
