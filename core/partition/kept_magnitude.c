/* SPDX-License-Identifier: MIT
 *
 * kept_magnitude.c - magnitude: of each group of each row the two weights largest by absolute value. The
 * order is total: 0 = -0 < ... < infinity < NaN, and of equals the lower index is the larger.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/partition/kept.h"

/* Weights looked at in one piece. */
#define PIECE_ROWS 4
#define PIECE_GROUPS 1024

/* Non-negative doubles are ordered as their bits are. */
static uint64_t key_of(double w) {
  const double magnitude = isnan(w) ? (double)NAN : fabs(w);
  uint64_t bits;
  memcpy(&bits, &magnitude, sizeof bits);
  return bits & ~(UINT64_C(1) << 63);
}

static uint8_t largest_two(const double w[4]) {
  uint64_t key[4];
  unsigned kept = 0;
  for (int j = 0; j < 4; j++) key[j] = key_of(w[j]);
  for (int j = 0; j < 4; j++) {
    int beaten = 0;
    for (int i = 0; i < 4; i++) beaten += i < j ? key[i] >= key[j] : key[i] > key[j];
    kept |= (unsigned)(beaten < 2) << j;
  }
  return (uint8_t)kept;
}

int32_t bs_kept_fill_magnitude(const bs_kept_maker *m, int64_t row, int64_t nrows, int64_t group,
                               int64_t ngroups, uint8_t *out, int64_t out_stride, bs_error *err) {
  const int64_t width = ngroups < PIECE_GROUPS ? ngroups : PIECE_GROUPS;
  double *w = malloc((size_t)(PIECE_ROWS * width * 4) * sizeof *w);
  if (w == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MASK-MEMORY",
                        "no memory for the weights that a mask looks at");
  int32_t rc = BS_OK;
  for (int64_t r = 0; rc == BS_OK && r < nrows; r += PIECE_ROWS)
    for (int64_t g = 0; rc == BS_OK && g < ngroups; g += width) {
      const int64_t rows = nrows - r < PIECE_ROWS ? nrows - r : PIECE_ROWS;
      const int64_t groups = ngroups - g < width ? ngroups - g : width;
      rc = bs_kept_weights(&m->weights, row + r, rows, group + g, groups, w, err);
      for (int64_t i = 0; rc == BS_OK && i < rows; i++)
        for (int64_t j = 0; j < groups; j++)
          out[(r + i) * out_stride + g + j] = largest_two(w + (i * groups + j) * 4);
    }
  free(w);
  return rc;
}
