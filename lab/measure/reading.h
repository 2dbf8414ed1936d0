/* SPDX-License-Identifier: MIT
 *
 * reading.h - loops that do nothing but read memory: the most bytes a core can take in. */
#ifndef BS_LAB_MEASURE_READING_H
#define BS_LAB_MEASURE_READING_H
#include <stddef.h>
#include <stdint.h>

enum { BS_READERS = 3, BS_READ_UNIT = 256 }; /* a share is a whole number of units, of bytes */

typedef struct bs_reader {
  const char *name;
  /* Blocks of `step` bytes (a multiple of the unit; 0: all in one), of each four runs at a time. */
  uint64_t (*run)(const char *data, size_t bytes, size_t step);
} bs_reader;

/* Loop number `index` or NULL: this CPU cannot run it, or it may not. */
const bs_reader *bs_reader_at(uint32_t index, int avx2_only);

#endif
