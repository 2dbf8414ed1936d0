/* SPDX-License-Identifier: MIT
 * kept.h - which weights of each four a half keeps, row by row (bs_kept): one file a kind of mask fills
 * groups, kept.c does what they have in common (public functions: blockshock.h). */
#ifndef BS_CORE_PARTITION_KEPT_H
#define BS_CORE_PARTITION_KEPT_H
#include "blockshock/blockshock.h"

/* The six 2-of-4 patterns in the order of their kept columns (01 02 03 12 13 23); bit j: column j. */
#define BS_PATTERNS 6
extern const uint8_t bs_pattern_bits[BS_PATTERNS];

/* A bs_kept and what its read needs. */
typedef struct bs_kept_maker bs_kept_maker;
struct bs_kept_maker {
  bs_kept kept; /* first: what is handed out */
  /* Half 0 of the groups, which lie inside the matrix; `out` has room for them. */
  int32_t (*fill)(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group, int64_t ngroups,
                  uint8_t *out, int64_t out_stride, bs_error *err);
  uint8_t flip;    /* 0: half 0; 0xF: its complement */
  uint8_t pattern; /* COMPLEMENT */
  uint64_t seed;   /* RANDOM_2OF4 */
  bs_source weights;
  const bs_kept *whole; /* a slice: of this, from row, group */
  int64_t row, group;
};

int32_t bs_kept_fill_fixed(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group, int64_t ngroups,
                           uint8_t *out, int64_t out_stride, bs_error *err);
int32_t bs_kept_fill_random(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group,
                            int64_t ngroups, uint8_t *out, int64_t out_stride, bs_error *err);
int32_t bs_kept_fill_magnitude(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group,
                               int64_t ngroups, uint8_t *out, int64_t out_stride, bs_error *err);
int32_t bs_kept_fill_transposable(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group,
                                  int64_t ngroups, uint8_t *out, int64_t out_stride, bs_error *err);

/* Weights of whole groups as f64 into out [nrows, 4 * ngroups], exactly as the source has them; zeros where
 * the matrix has no row or column. Any row and group from 0. */
int32_t bs_kept_weights(const bs_source *weights, int64_t row, int64_t nrows, int64_t group, int64_t ngroups,
                        double *out, bs_error *err);

/* Is the mask one of two halves that differ by row? */
BS_API int bs_mask_by_row(const bs_mask *mask);

/* Rows row .. row+rows-1 and columns 4 group .. 4 group+cols-1 of `whole`, which must live as long. */
BS_API int32_t bs_kept_slice(const bs_kept *whole, int64_t row, int64_t rows, int64_t group, int64_t cols,
                             const bs_kept **out_kept, bs_error *err);

/* Reads all: exactly two of each four, transposable where it says so, and, with `other` (may be NULL), each
 * weight in one of both halves. BS-MASK-2OF4, BS-MASK-TILE, BS-MASK-COMPLEMENT name the first that is wrong.
 */
BS_API int32_t bs_kept_check(const bs_kept *kept, const bs_kept *other, bs_error *err);
/* Checks bytes that were read: `ngroups` groups of row `row`, from `group` on. */
BS_API int32_t bs_kept_check_bytes(const uint8_t *bytes, int64_t row, int64_t group, int64_t ngroups,
                                   bs_error *err);

/* A kept set from outside, of which every read is checked: BS-MASK-2OF4. `inner` must outlive it. */
typedef struct bs_kept_guard {
  bs_kept kept;
  const bs_kept *inner;
} bs_kept_guard;
BS_API void bs_kept_guard_init(bs_kept_guard *guard, const bs_kept *inner);

/* The 90 patterns of 4 x 4 with two in each row and column, in order of their rows' place in bs_pattern_bits;
 * nibble i: row i. Built once a process; thread-safe. */
#define BS_TILES 90
BS_API const uint16_t *bs_kept_tiles(void);
#endif
