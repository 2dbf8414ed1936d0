/* SPDX-License-Identifier: MIT
 * owners.h - which rank of a run holds which weight, for masks whose halves differ by row, where columns are
 * not enough. Positions are copied from the layer, because it is freed before a run is judged. */
#ifndef BS_LAB_CASE_OWNERS_H
#define BS_LAB_CASE_OWNERS_H
#include "lab/case/case.h"

#define BS_OWNER_NONE UINT32_MAX

/* Copies the positions of a layer's own weights: out->owns.kept then reads the copy. Does nothing if the rank
 * has all weights. */
int32_t bs_owners_copy(bs_case_rank *rank, bs_error *err);
/* rank->kept holds positions of the sizes of `sizes` (its own kept_storage may be it): owns.kept reads them.
 */
void bs_owners_take(bs_case_rank *rank, const bs_kept *sizes);
uint64_t bs_owners_kept_bytes(const bs_kept *kept); /* Bytes of such a copy. */
void bs_owners_free(bs_case_rank *rank);

/* Checks that one rank owns every weight of W (or none, for a pruned half): else BS-LAYER-OWNS with the
 * column, the ranks and the rows (an injected fault may break this). Parts with positions by row are checked
 * in some rows. Sets result->zero_products. Call it after a run has been collected. */
int32_t bs_owners_check(const bs_case *c, bs_case_result *result, bs_error *err);

/* 1: some rank holds weights row by row. */
int bs_owners_by_row(const bs_case_result *result);
/* 1: the method leaves weights out and declares it (bs_proposal.prune_error). */
int bs_owners_pruned(const bs_case_result *result);

/* Columns of the weights that a rank holds, packed or not: 2 ceil(K_r / 4) or K_r. */
int64_t bs_owners_width(const bs_ownership *owns, int64_t K);
/* Writes the columns of W that packed row `row` (from 0 in the rank's part) holds into out[bs_owners_width];
 * -1 for padding after the last column. */
int32_t bs_owners_row_columns(const bs_ownership *owns, int64_t K, int64_t row, int64_t *out, bs_error *err);

/* A map of the result's owners: of row `index` of W by columns, or transposed: of column `index` by rows.
 * out_first: the first rank that has a part in the row (transposed: 0), which adds its bias. Weights without
 * an owner are NONE if the method may leave some out, else the first rank's. */
typedef struct bs_owners {
  const bs_case_result *result;
  const int64_t *rows; /* index i means this row of W; NULL: row i */
  int64_t N, K;
  uint32_t turned;
} bs_owners;
bs_owners bs_owners_of(const bs_case *c, const bs_case_result *result);
/* 1: the ranks' products are terms of sums over ranks. */
uint32_t bs_owners_terms(const bs_case_result *result);
int32_t bs_owners_read(void *owners, int64_t index, uint32_t *out, uint32_t *out_first, bs_error *err);
#endif
