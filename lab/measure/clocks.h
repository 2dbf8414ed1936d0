/* SPDX-License-Identifier: MIT
 * clocks.h - the clock of a device, read after each batch, and the reasons that limited it. */
#ifndef BS_LAB_MEASURE_CLOCKS_H
#define BS_LAB_MEASURE_CLOCKS_H
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { BS_CLOCKS_KEPT = 4096, BS_CLOCKS_REASONS = 8 };

typedef struct bs_clocks {
  uint64_t count;
  uint32_t min, max;
  double mhz[BS_CLOCKS_KEPT]; /* the newest */
  char reason[BS_CLOCKS_REASONS][32];
  uint64_t seen[BS_CLOCKS_REASONS];
  uint32_t n_reasons;
} bs_clocks;

void bs_clocks_reset(bs_clocks *clocks);
/* Adds a reading. mhz 0: unknown, and nothing is added. held_back: as in bs_device_state. */
void bs_clocks_add(bs_clocks *clocks, uint32_t mhz, const char *held_back);
/* Adds clock_mhz {min, median, max, looks}, or null if it is not known, and held_back, a list of {reason,
 * looks}. 0; -1: no memory. */
int bs_clocks_json(json_t *into, const bs_clocks *clocks);
/* 1 and a sentence if something limited the clock. */
int bs_clocks_sentence(const bs_clocks *clocks, const char *arm, char *out_text, size_t size);
#endif
