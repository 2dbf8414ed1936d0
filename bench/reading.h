/* SPDX-License-Identifier: MIT
 *
 * reading.h - loops that do nothing but read memory: the most bytes a core can take in. */
#ifndef BS_BENCH_READING_H
#define BS_BENCH_READING_H
#include <stddef.h>
#include <stdint.h>

enum { BENCH_READERS = 3, BENCH_READ_UNIT = 256 }; /* a share is a whole number of units, of bytes */

typedef struct bench_reader {
  const char *name;
  /* Blocks of `step` bytes (a multiple of the unit; 0: all in one), of each four runs at a time. */
  uint64_t (*run)(const char *data, size_t bytes, size_t step);
} bench_reader;

/* Loop number `index` or NULL: this CPU cannot run it, or it may not. */
const bench_reader *bench_reader_at(uint32_t index, int avx2_only);

#endif
