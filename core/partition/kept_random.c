/* SPDX-License-Identifier: MIT
 *
 * kept_random.c - random_2of4: every group of every row draws one of the six patterns. A draw is a pure
 * function of (seed, row, group), so that ranks, slices and the order of reading make no difference
 * (docs/methods.md gives the counters).
 */
#include "core/base/rng.h"
#include "core/partition/kept.h"

/* The last word of the counter, which is 0 for all numbers of workloads: masks share none with them. */
#define MASK_STREAM 0x324F4634u /* "2OF4" */

int32_t bs_kept_fill_random(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group,
                            int64_t ngroups, uint8_t *out, int64_t out_stride, bs_error *err) {
  const uint32_t key[2] = {(uint32_t)m->seed, (uint32_t)(m->seed >> 32)};
  (void)err;
  for (int64_t r = 0; r < nrows; r++) {
    const uint64_t at = (uint64_t)(row + r);
    uint32_t words[4] = {0};
    for (int64_t g = 0; g < ngroups; g++) {
      const uint64_t i = (uint64_t)(group + g);
      if (g == 0 || i % 4 == 0) { /* one call serves four groups */
        const uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)at, (uint32_t)(at >> 32), MASK_STREAM};
        bs_philox4x32_10(counter, key, words);
      }
      /* word * 6 / 2^32: each pattern gets 715827882 or 715827883 of the 2^32 words. */
      out[r * out_stride + g] = bs_pattern_bits[(uint64_t)words[i % 4] * BS_PATTERNS >> 32];
    }
  }
  return BS_OK;
}
