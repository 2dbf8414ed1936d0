/* SPDX-License-Identifier: MIT
 * load.h - the use of the processors that this process may use, from /proc; and the use by one process. */
#ifndef BS_LAB_MEASURE_LOAD_H
#define BS_LAB_MEASURE_LOAD_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Counts since the machine's start: only differences of two of them mean something. */
typedef struct bs_load {
  double clock;   /* seconds, of the monotonic clock; 0: not read */
  uint32_t cores; /* that are counted */
  double average; /* over a minute; below 0: not known */
  double total, busy,
      own;       /* processor seconds: all; in use by any program; by this process. total 0: not known */
  double idle;   /* unused, including waits for a disk */
  double stolen; /* by the hypervisor */
} bs_load;
void bs_load_now(bs_load *out);
/* Parses the texts of /proc/stat and /proc/loadavg; cores: flags of the `n` cores to count. own and clock
 * stay unchanged. */
void bs_load_read(const char *stat, const char *loadavg, const uint8_t *cores, size_t n, bs_load *out);
/* Sets clock and own, which are of now. */
void bs_load_own(bs_load *out);
/* The flags of bs_load_read for this process: which of `n` processors it may use. */
void bs_load_cores(uint8_t *out_cores, size_t n);
/* {load_before, load_after, others, stolen}: the last two are parts of the processors' time between the two;
 * null: not known. */
json_t *bs_load_json(const bs_load *before, const bs_load *after);
/* Processors that others had between two readings, on average; below 0: not known. *out_doubt: by how much
 * that may be wrong because /proc/stat counts whole ticks. */
double bs_load_others(const bs_load *before, const bs_load *after, double *out_doubt);

/* The processor time of a process so far. */
typedef struct bs_process_use {
  double cpu_s;
  double waited_s; /* its threads could run and had no processor; below 0: not known */
} bs_process_use;
/* pid 0: this process. All zero for a process that has ended. */
void bs_process_use_read(pid_t pid, bs_process_use *out);
#endif
