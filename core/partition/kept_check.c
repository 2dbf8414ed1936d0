/* SPDX-License-Identifier: MIT
 *
 * kept_check.c - checks of kept sets: two of each four, two of each four rows of a block where that is said,
 * each weight in one of both halves. A set that passes a check of every byte can lose no weight and add none
 * twice.
 */
#include <stdlib.h>

#include "core/base/error.h"
#include "core/partition/kept.h"

static void bits_text(unsigned bits, char out[9]) {
  const int n = bits > 0xFu ? 8 : 4;
  for (int j = 0; j < n; j++) out[j] = (bits >> j & 1u) ? '1' : '0';
  out[n] = '\0';
}

int32_t bs_kept_check_bytes(const uint8_t *bytes, int64_t row, int64_t group, int64_t ngroups,
                            bs_error *err) {
  for (int64_t g = 0; g < ngroups; g++) {
    if (bytes[g] <= 0xFu && __builtin_popcount(bytes[g]) == 2) continue;
    char text[9];
    bits_text(bytes[g], text);
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-2OF4",
                 "row %lld, columns %lld to %lld keep %s: a 2:4 weight keeps exactly two of each four",
                 (long long)row, (long long)(4 * (group + g)), (long long)(4 * (group + g) + 3), text);
    bs_error_hint(err, "bs_kept.read sets two of the bits 0 to 3 of every byte");
    return BS_INVALID_ARGUMENT;
  }
  return BS_OK;
}

static int32_t read_guarded(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups,
                            uint8_t *out, int64_t out_stride, bs_error *err) {
  const bs_kept *inner = ((const bs_kept_guard *)ctx)->inner;
  int32_t rc = inner->read(inner->ctx, row, nrows, group, ngroups, out, out_stride, err);
  for (int64_t r = 0; rc == BS_OK && r < nrows; r++)
    rc = bs_kept_check_bytes(out + r * out_stride, row + r, group, ngroups, err);
  return rc;
}

void bs_kept_guard_init(bs_kept_guard *guard, const bs_kept *inner) {
  guard->kept = *inner;
  guard->kept.struct_size = (uint32_t)sizeof guard->kept;
  guard->kept.ctx = guard;
  guard->kept.read = read_guarded;
  guard->inner = inner;
}

static int32_t check_halves(const uint8_t *a, const uint8_t *b, int64_t row, int64_t ngroups, bs_error *err) {
  for (int64_t g = 0; g < ngroups; g++) {
    if ((a[g] ^ b[g]) == 0xF) continue;
    const unsigned twice = a[g] & b[g];
    const unsigned odd = twice != 0 ? twice : ~(unsigned)(a[g] | b[g]) & 0xFu;
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-COMPLEMENT",
                        "row %lld, column %lld is in %s half of the mask", (long long)row,
                        (long long)(4 * g + __builtin_ctz(odd)), twice != 0 ? "each" : "no");
  }
  return BS_OK;
}

/* Four rows of one row of blocks. */
static int32_t check_tiles(const uint8_t *bytes, int64_t row, int64_t ngroups, bs_error *err) {
  for (int64_t g = 0; g < ngroups; g++)
    for (int j = 0; j < 4; j++) {
      int ones = 0;
      for (int i = 0; i < 4; i++) ones += bytes[i * ngroups + g] >> j & 1;
      if (ones != 2)
        return bs_error_set(
            err, BS_INVALID_ARGUMENT, "BS-MASK-TILE",
            "column %lld keeps %d of the rows %lld to %lld: a transposable mask keeps two of each four",
            (long long)(4 * g + j), ones, (long long)row, (long long)(row + 3));
    }
  return BS_OK;
}

/* Up to four rows. */
static int32_t check_rows(const bs_kept *k, const bs_kept *other, int64_t row, int64_t nrows, int64_t groups,
                          uint8_t *bytes, bs_error *err) {
  uint8_t *second = bytes + 4 * groups;
  int32_t rc = k->read(k->ctx, row, nrows, 0, groups, bytes, groups, err);
  if (rc == BS_OK && other != NULL) rc = other->read(other->ctx, row, nrows, 0, groups, second, groups, err);
  for (int64_t r = 0; rc == BS_OK && r < nrows; r++) {
    rc = bs_kept_check_bytes(bytes + r * groups, row + r, 0, groups, err);
    if (rc == BS_OK && other != NULL) rc = bs_kept_check_bytes(second + r * groups, row + r, 0, groups, err);
    if (rc == BS_OK && other != NULL)
      rc = check_halves(bytes + r * groups, second + r * groups, row + r, groups, err);
  }
  if (rc == BS_OK && k->transposable && nrows == 4) rc = check_tiles(bytes, row, groups, err);
  if (rc == BS_OK && other != NULL && other->transposable && nrows == 4)
    rc = check_tiles(second, row, groups, err);
  return rc;
}

int32_t bs_kept_check(const bs_kept *kept, const bs_kept *other, bs_error *err) {
  const int64_t groups = kept->cols / 4 + (kept->cols % 4 != 0);
  if (other != NULL && (other->rows != kept->rows || other->cols != kept->cols))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-MASK-COMPLEMENT",
                        "one half of the mask is %lld x %lld, the other %lld x %lld", (long long)kept->rows,
                        (long long)kept->cols, (long long)other->rows, (long long)other->cols);
  if (groups == 0) return BS_OK;
  uint8_t *bytes = malloc((size_t)(8 * groups));
  if (bytes == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MASK-MEMORY", "no memory for the check of a mask");
  int32_t rc = BS_OK;
  for (int64_t r = 0; rc == BS_OK && r < kept->rows; r += 4)
    rc = check_rows(kept, other, r, kept->rows - r < 4 ? kept->rows - r : 4, groups, bytes, err);
  free(bytes);
  return rc;
}
