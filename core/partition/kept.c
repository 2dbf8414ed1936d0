/* SPDX-License-Identifier: MIT
 *
 * kept.c - which weights of each four a half of a mask keeps: makes the bs_kept of every kind, checks the
 * range of every read, turns half 0 into half 1, and checks kept sets that others made. Called by methods
 * (bs_rank_api.kept_make), explain and tests. What is made is read-only: thread-safe.
 */
#include "core/partition/kept.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/partition/partition.h"

#define ALL 0xFu

const uint8_t bs_pattern_bits[BS_PATTERNS] = {0x3, 0x5, 0x9, 0x6, 0xA, 0xC};

static int64_t groups_of(int64_t cols) {
  return cols / 4 + (cols % 4 != 0);
}

static int32_t check_range(const bs_kept *k, int64_t row, int64_t nrows, int64_t group, int64_t ngroups,
                           bs_error *err) {
  const int64_t groups = groups_of(k->cols);
  if (row >= 0 && nrows >= 0 && row <= k->rows && nrows <= k->rows - row && group >= 0 && ngroups >= 0 &&
      group <= groups && ngroups <= groups - group)
    return BS_OK;
  return bs_error_set(
      err, BS_INVALID_ARGUMENT, "BS-MASK-RANGE",
      "positions of %lld rows from %lld and %lld groups from %lld: there are %lld rows of %lld "
      "groups",
      (long long)nrows, (long long)row, (long long)ngroups, (long long)group, (long long)k->rows,
      (long long)groups);
}

static int32_t read_kept(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                         int64_t out_stride, bs_error *err) {
  const bs_kept_maker *m = ctx;
  int32_t rc = check_range(&m->kept, row, nrows, group, ngroups, err);
  if (rc == BS_OK && nrows > 0 && ngroups > 0)
    rc = m->fill(m, row, nrows, group, ngroups, out, out_stride, err);
  if (rc != BS_OK || m->flip == 0) return rc;
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t g = 0; g < ngroups; g++) out[r * out_stride + g] ^= m->flip;
  return BS_OK;
}

int32_t bs_kept_fill_fixed(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group, int64_t ngroups,
                           uint8_t *out, int64_t out_stride, bs_error *err) {
  (void)row, (void)group, (void)err;
  for (int64_t r = 0; r < nrows; r++) memset(out + r * out_stride, m->pattern, (size_t)ngroups);
  return BS_OK;
}

static int32_t fill_slice(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group, int64_t ngroups,
                          uint8_t *out, int64_t out_stride, bs_error *err) {
  return m->whole->read(m->whole->ctx, m->row + row, nrows, m->group + group, ngroups, out, out_stride, err);
}

int bs_mask_by_row(const bs_mask *mask) {
  return mask->kind == BS_MASK_RANDOM_2OF4 || mask->kind == BS_MASK_MAGNITUDE ||
         mask->kind == BS_MASK_TRANSPOSABLE;
}

/* MAGNITUDE and TRANSPOSABLE look at the weights. */
static int32_t take_weights(bs_kept_maker *m, const bs_mask *mask, const bs_source *weights, bs_error *err) {
  if (weights == NULL || weights->read == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-WEIGHTS",
                        "mask %s is chosen by the weights, and none are given",
                        mask->name != NULL ? mask->name : "?");
  if (weights->rows != m->kept.rows || weights->cols != m->kept.cols)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-WEIGHTS",
                        "mask %s of %lld x %lld weights is to be chosen by a matrix of %lld x %lld",
                        mask->name != NULL ? mask->name : "?", (long long)m->kept.rows,
                        (long long)m->kept.cols, (long long)weights->rows, (long long)weights->cols);
  m->weights = *weights;
  return BS_OK;
}

static int32_t set_kind(bs_kept_maker *m, const bs_mask *mask, const bs_source *weights, bs_error *err) {
  switch (mask->kind) {
    case BS_MASK_COMPLEMENT:
      m->pattern = (uint8_t)mask->pattern_a;
      m->fill = bs_kept_fill_fixed;
      return BS_OK;
    case BS_MASK_RANDOM_2OF4:
      m->seed = mask->seed;
      m->fill = bs_kept_fill_random;
      return BS_OK;
    case BS_MASK_MAGNITUDE:
      m->fill = bs_kept_fill_magnitude;
      return take_weights(m, mask, weights, err);
    case BS_MASK_TRANSPOSABLE:
      m->kept.transposable = 1;
      m->fill = bs_kept_fill_transposable;
      return take_weights(m, mask, weights, err);
    default:
      bs_error_set(err, BS_UNSUPPORTED, "BS-MASK-HALVES", "mask %s has no halves that keep two of each four",
                   mask->name != NULL ? mask->name : "?");
      bs_error_hint(err,
                    "complement_1100_0011 (and the other 2-of-4 patterns), random_2of4, magnitude and "
                    "transposable have");
      return BS_UNSUPPORTED;
  }
}

/* NULL: out of memory, said in err. */
static bs_kept_maker *maker(int64_t rows, int64_t cols, bs_error *err) {
  bs_kept_maker *m = calloc(1, sizeof *m);
  if (m == NULL) {
    bs_error_set(err, BS_NO_MEMORY, "BS-MASK-MEMORY", "no memory for the positions of a mask");
    return NULL;
  }
  m->kept = (bs_kept){
      .struct_size = (uint32_t)sizeof m->kept, .rows = rows, .cols = cols, .ctx = m, .read = read_kept};
  return m;
}

int32_t bs_kept_make(const bs_mask *mask, int64_t rows, int64_t cols, const bs_source *weights, uint32_t half,
                     const bs_kept **out_kept, bs_error *err) {
  if (out_kept == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-ARG", "no place for the positions");
  *out_kept = NULL;
  if (half > 1)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-ARG", "half %u of a mask that has 0 and 1", half);
  if (rows < 0 || cols < 0 || cols > (int64_t)UINT32_MAX)
    return bs_error_set(err, BS_CONFIG, "BS-MASK-SIZE", "a mask of %lld x %lld weights", (long long)rows,
                        (long long)cols);
  int32_t rc = bs_mask_check(mask, err);
  if (rc != BS_OK) return rc;
  bs_kept_maker *m = maker(rows, cols, err);
  if (m == NULL) return BS_NO_MEMORY;
  rc = set_kind(m, mask, weights, err);
  if (rc != BS_OK) {
    free(m);
    return rc;
  }
  m->flip = half == 0 ? 0 : ALL;
  *out_kept = &m->kept;
  return BS_OK;
}

void bs_kept_free(const bs_kept *kept) {
  /* The first member of its block, which calloc gave and no one else may free. */
  free((void *)(uintptr_t)kept);
}

int32_t bs_kept_slice(const bs_kept *whole, int64_t row, int64_t rows, int64_t group, int64_t cols,
                      const bs_kept **out_kept, bs_error *err) {
  *out_kept = NULL;
  /* Whole groups, but for the last of the matrix. */
  const int last = group >= 0 && group <= whole->cols / 4 && cols == whole->cols - 4 * group;
  int32_t rc = check_range(whole, row, rows, group, groups_of(cols), err);
  if (rc == BS_OK && (cols < 0 || (cols % 4 != 0 && !last)))
    rc = bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-RANGE",
                      "a slice of %lld columns from column %lld ends inside a group of four", (long long)cols,
                      (long long)(4 * group));
  if (rc != BS_OK) return rc;
  bs_kept_maker *m = maker(rows, cols, err);
  if (m == NULL) return BS_NO_MEMORY;
  m->kept.transposable = whole->transposable && row % 4 == 0;
  m->fill = fill_slice;
  m->whole = whole;
  m->row = row;
  m->group = group;
  *out_kept = &m->kept;
  return BS_OK;
}
