/* SPDX-License-Identifier: MIT
 *
 * kept_transposable.c - transposable: of each aligned 4 x 4 block the pattern with two in each row and
 * column (there are 90) that keeps the largest sum of squares, which is the smallest error of the half alone;
 * of equals the first in the order of bs_kept_tiles. Both halves of it are 2:4 along rows and along columns.
 */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/partition/kept.h"

#define PIECE_GROUPS 1024 /* blocks looked at in one piece */

/* Infinities and NaN count as this, so that sums can be compared. */
#define MOST (DBL_MAX / 16)

/* The patterns as places in bs_pattern_bits, a row each, and as nibbles. */
static struct {
  uint8_t rows[BS_TILES][4];
  uint16_t bits[BS_TILES];
} tiles;
static pthread_once_t tiles_once = PTHREAD_ONCE_INIT;

static int two_a_column(const uint8_t rows[4]) {
  for (int j = 0; j < 4; j++) {
    int ones = 0;
    for (int i = 0; i < 4; i++) ones += bs_pattern_bits[rows[i]] >> j & 1;
    if (ones != 2) return 0;
  }
  return 1;
}

static void make_tiles(void) {
  int n = 0;
  for (unsigned t = 0; t < BS_PATTERNS * BS_PATTERNS * BS_PATTERNS * BS_PATTERNS; t++) {
    const uint8_t rows[4] = {(uint8_t)(t / 216), (uint8_t)(t / 36 % 6), (uint8_t)(t / 6 % 6),
                             (uint8_t)(t % 6)};
    if (!two_a_column(rows) || n == BS_TILES) continue;
    for (int i = 0; i < 4; i++) {
      tiles.rows[n][i] = rows[i];
      tiles.bits[n] = (uint16_t)(tiles.bits[n] | bs_pattern_bits[rows[i]] << 4 * i);
    }
    n++;
  }
}

const uint16_t *bs_kept_tiles(void) {
  pthread_once(&tiles_once, make_tiles);
  return tiles.bits;
}

/* The squares of a block's weights, scaled by a power of two so that the largest lies in [1/4, 1]: nothing
 * that counts overflows or vanishes. w: 4 rows, `stride` apart. */
static void squares_of(const double *w, int64_t stride, double out[4][4]) {
  double largest = 0.0;
  int exponent;
  for (int i = 0; i < 16; i++) {
    const double v = fabs(w[i / 4 * stride + i % 4]);
    out[i / 4][i % 4] = v < MOST ? v : MOST; /* NaN too */
    largest = fmax(largest, out[i / 4][i % 4]);
  }
  frexp(largest, &exponent);
  for (int i = 0; i < 16; i++) {
    const double v = ldexp(out[i / 4][i % 4], -exponent);
    out[i / 4][i % 4] = v * v;
  }
}

/* The sum of a pattern is that of its rows' sums, (0 + 1) + (2 + 3). */
static uint16_t best_tile(const double *w, int64_t stride) {
  static const uint8_t pairs[BS_PATTERNS][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  double squares[4][4], sums[4][BS_PATTERNS], best = -1.0;
  int found = 0;
  squares_of(w, stride, squares);
  for (int i = 0; i < 4; i++)
    for (int p = 0; p < BS_PATTERNS; p++) sums[i][p] = squares[i][pairs[p][0]] + squares[i][pairs[p][1]];
  for (int t = 0; t < BS_TILES; t++) {
    const uint8_t *r = tiles.rows[t];
    const double sum = (sums[0][r[0]] + sums[1][r[1]]) + (sums[2][r[2]] + sums[3][r[3]]);
    if (sum <= best) continue;
    best = sum;
    found = t;
  }
  return tiles.bits[found];
}

/* One row of blocks, 4 block .. 4 block+3: the rows of it that are asked for. */
static int32_t fill_blocks(const bs_kept_maker *m, int64_t block, int64_t row, int64_t nrows, int64_t group,
                           int64_t ngroups, uint8_t *out, int64_t out_stride, double *w, bs_error *err) {
  const int32_t rc = bs_kept_weights(&m->weights, 4 * block, 4, group, ngroups, w, err);
  for (int64_t g = 0; rc == BS_OK && g < ngroups; g++) {
    const unsigned bits = best_tile(w + 4 * g, 4 * ngroups);
    for (int64_t i = 0; i < 4; i++) {
      const int64_t at = 4 * block + i - row;
      if (at >= 0 && at < nrows) out[at * out_stride + g] = (uint8_t)(bits >> 4 * i & 0xFu);
    }
  }
  return rc;
}

int32_t bs_kept_fill_transposable(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group,
                                  int64_t ngroups, uint8_t *out, int64_t out_stride, bs_error *err) {
  const int64_t width = ngroups < PIECE_GROUPS ? ngroups : PIECE_GROUPS;
  double *w = malloc((size_t)(4 * width * 4) * sizeof *w);
  if (w == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MASK-MEMORY",
                        "no memory for the weights that a mask looks at");
  bs_kept_tiles();
  int32_t rc = BS_OK;
  for (int64_t block = row / 4; rc == BS_OK && block <= (row + nrows - 1) / 4; block++)
    for (int64_t g = 0; rc == BS_OK && g < ngroups; g += width)
      rc = fill_blocks(m, block, row, nrows, group + g, ngroups - g < width ? ngroups - g : width, out + g,
                       out_stride, w, err);
  free(w);
  return rc;
}
