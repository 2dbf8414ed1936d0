/* SPDX-License-Identifier: MIT
 * machine.h - the machine's limits, measured: multiply-add rate, read bandwidth, times of an all-reduce by
 * size, and the host's cost of one forward. Short runs, best of several: limits, not averages. */
#ifndef BS_LAB_MEASURE_MACHINE_H
#define BS_LAB_MEASURE_MACHINE_H
#include "lab/case/case.h"

enum { BS_EXCHANGES = 4 };
extern const double bs_exchange_bytes[BS_EXCHANGES];     /* 4 bytes, 64 KiB, 1 MiB, 4 MiB */
extern const char *const bs_exchange_keys[BS_EXCHANGES]; /* "all_reduce_4B_s", ... */

#define BS_SAME_PASSES 0.1 /* two passes of one constant count as equal up to this difference */

/* Passes of one constant, in seconds, of which the shortest counts. A constant is repeated until its two
 * shortest passes are equal: disturbances only make passes longer. */
typedef struct bs_passes {
  uint32_t n;
  double best, second;
} bs_passes;
void bs_passes_add(bs_passes *passes, double seconds);
/* 0 as long as another pass is needed: fewer than 2, or the two shortest differ and there are not yet 6. */
int bs_passes_enough(const bs_passes *passes);
double bs_passes_spread(const bs_passes *passes); /* second / best - 1 */

typedef struct bs_machine {
  uint32_t cores;    /* usable by this process */
  uint32_t threads;  /* used together for the *_all figures */
  char loop[24];     /* the fastest multiply-add loop for the run's dtype (peak.h) */
  double flops_core; /* FLOP/s of one core: products of the run's dtype summed in fp32 */
  double flops_all;  /* of all threads together */
  double read_core;  /* bytes/s read by one core */
  double read_all;
  double copy_core; /* bytes/s read and written by one core copying */
  double copy_all;
  uint32_t avx2_only;            /* set by the caller: use nothing wider than AVX2 */
  double footprint;              /* bytes walked for read_* and copy_*: chosen like the run's weights */
  double exchange[BS_EXCHANGES]; /* s, all_reduce of bs_exchange_bytes over the run's ranks; 0 for one rank */
  double host;                   /* s, one forward of an 8 x 8 layer on one rank */
  double spread; /* by how much passes of one constant differed, as a part; below 0.1 it counts as 0.1 */
  double faster; /* read rate of the faster of the two nearest footprints, over these; 0: measured there */
  double others; /* of stored ones: part of the processors' time that others took meanwhile; below 0: not
                    known */
  const char *source;   /* "measured" in this run, or "stored" (constants.h); static */
  char measured_at[16]; /* of stored ones: UTC YYYYMMDD_HHMMSS */
} bs_machine;

/* About a second. like: gives backend, comm and world size. footprint: bytes of all ranks' weights. */
int32_t bs_machine_measure(const bs_case *like, double footprint, bs_machine *out, bs_error *err);
/* The parts of it, for constants.c. Each raises `spread` to that of its passes. Fills *_core and *_all:
 * `words` 8-byte words of data (touched, overwritten) are shared by the threads; NULL: no memory rates; dtype
 * 0: no multiply-adds. */
int32_t bs_machine_rates(uint32_t threads, uint32_t dtype, uint64_t *data, size_t words, bs_machine *out,
                         bs_error *err);
int32_t bs_machine_exchange(const bs_case *like, bs_machine *out, bs_error *err);
int32_t bs_machine_host(const bs_case *like, bs_machine *out, bs_error *err);
/* Memory to read, touched, on large pages if available, as packed weights are. free() it. */
uint64_t *bs_machine_words(size_t words);
/* Threads used together for the *_all figures. */
uint32_t bs_machine_threads(void);
/* The footprint that a machine is measured at for weights of so many bytes: 1 to 256 MiB. */
double bs_machine_footprint(double bytes);
/* Seconds of one all_reduce: linear between the measured sizes, and on as between the last two. */
double bs_machine_wire(const bs_machine *machine, double payload);
json_t *bs_machine_json(const bs_machine *machine);
#endif
