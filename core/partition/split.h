/* SPDX-License-Identifier: MIT
 * split.h - shares of columns for partition.c (shares.c). */
#ifndef BS_CORE_PARTITION_SPLIT_H
#define BS_CORE_PARTITION_SPLIT_H
#include "blockshock/blockshock.h"
/* The rank's run by the mask's shares, of which there is one a rank. */
int32_t bs_split_by_shares(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world,
                           int64_t *out_begin, int64_t *out_count, bs_error *err);
/* The rank's run of the order, which is checked; by shares where the mask has some, else equal ones. */
int32_t bs_split_by_importance(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world,
                               int64_t *out_begin, int64_t *out_count, bs_error *err);
/* The columns of a run of the order, ascending. */
void bs_split_columns(const bs_mask *mask, int64_t begin, int64_t count, uint32_t *out_columns);
#endif
