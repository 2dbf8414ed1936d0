/* SPDX-License-Identifier: MIT
 * partition.h - masks to K-partitions (public functions: blockshock.h). */
#ifndef BS_CORE_PARTITION_PARTITION_H
#define BS_CORE_PARTITION_PARTITION_H
#include "blockshock/blockshock.h"
/* Checks a mask by itself: patterns 4 long with two ones, a and b complementary. */
BS_API int32_t bs_mask_check(const bs_mask *mask, bs_error *err);
/* "1100", "1-1-0-0", "[1,1,0,0]" -> bits (bit j = character j); BS_CONFIG otherwise. */
BS_API int32_t bs_pattern_parse(const char *text, uint32_t *out_bits, bs_error *err);
/* Contiguous share [begin, begin+count) of `total` for rank of world: sizes differ by at most one,
 * the first total mod world ranks have the larger. Used for N as well as K. */
BS_API void bs_share(int64_t total, uint32_t rank, uint32_t world, int64_t *out_begin, int64_t *out_count);
#endif
