/* SPDX-License-Identifier: MIT
 * samples.h - samples.bin: every sample of a timed run with what disturbed it, as fixed records that each
 * have a sum. The file is not synced: its SHA-256 stands in DONE, and the medians stand in the record.
 *
 * Little-endian. Head, 64 bytes: "BSSAMPLE", u32 version (1), u32 bytes of a record, u32 ranks P, u32 arms,
 * 40 bytes of zeros. A record, 52 + 8 P bytes: f64 t (monotonic clock at its end, s), u16 arm, u16 flags, u32
 * pair, u32 rebuild, u32 calls, f64 seconds (of one call, the slowest rank), u64 cpu_ns (of all threads that
 * worked, while they were timed), u32 switches (involuntary, of the same), u32 steal (clock ticks that the
 * hypervisor took from all processors during the pair), f64 seconds of each rank (NaN: an arm of fewer
 * ranks), u32 CRC-32C of the record before it. */
#ifndef BS_LAB_STORE_SAMPLES_H
#define BS_LAB_STORE_SAMPLES_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "blockshock/abi.h"

enum { BS_SAMPLE_RANKS = 64 }; /* of an arm with more only the first so many are kept */
enum bs_sample_flags {
  BS_SAMPLE_HOT = 1u << 0,
  BS_SAMPLE_COLD = 1u << 1,
  BS_SAMPLE_DISCARDED = 1u << 2, /* its pair was taken again */
  BS_SAMPLE_AFTER_OWN = 1u << 3, /* the sample before was of the same arm; else of another */
  BS_SAMPLE_ECHO = 1u << 4 /* a second sample of its arm, for the effect of the order: in no comparison */
};

typedef struct bs_sample_row {
  double t, seconds;
  uint64_t cpu_ns;
  uint16_t arm, flags;
  uint32_t pair, rebuild, calls, switches, steal;
  uint32_t ranks;
  double rank_seconds[BS_SAMPLE_RANKS]; /* of the first `ranks` */
} bs_sample_row;

/* A list of rows that grows; zero-initialized. */
typedef struct bs_samples {
  bs_sample_row *row;
  size_t n, room;
} bs_samples;
/* 0: out of memory; the list is unchanged. */
int bs_samples_add(bs_samples *list, const bs_sample_row *row);
void bs_samples_free(bs_samples *list);

/* The bytes of samples.bin with the rows of all lists, one after the other; the caller frees.
 * BS_NO_MEMORY. */
int32_t bs_samples_encode(const bs_samples *const *lists, size_t n_lists, uint32_t arms, void **out_data,
                          size_t *out_size, bs_error *err);
/* Reads them back, appended to `out`. BS_CORRUPT: the head, the size or a record's sum is wrong. */
int32_t bs_samples_decode(const void *data, size_t size, bs_samples *out, bs_error *err);
#endif
