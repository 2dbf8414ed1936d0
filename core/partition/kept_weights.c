/* SPDX-License-Identifier: MIT
 *
 * kept_weights.c - whole groups of a weight source as f64, zeros beyond the matrix: what the masks that are
 * chosen by the weights look at.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/partition/kept.h"

/* Rows and columns that exist; in the source's own dtype, which holds them exactly. */
static int32_t read_part(const bs_source *w, int64_t row, int64_t nrows, int64_t begin, int64_t count,
                         double *out, int64_t stride, void *raw, bs_error *err) {
  const bs_partition part = {.struct_size = (uint32_t)sizeof part,
                             .kind = BS_PARTITION_CONTIGUOUS,
                             .total = w->cols,
                             .begin = begin,
                             .count = count};
  const int32_t rc = w->read(w->ctx, row, nrows, count == w->cols ? NULL : &part, w->dtype, raw, count, err);
  if (rc != BS_OK) return rc;
  const size_t bytes = BS_DTYPE_BYTES(w->dtype);
  for (int64_t r = 0; r < nrows; r++)
    if (bs_convert(BS_F64, out + r * stride, w->dtype, (const char *)raw + (size_t)(r * count) * bytes,
                   (uint64_t)count) != BS_OK)
      return bs_error_set(err, BS_UNSUPPORTED, "BS-MASK-WEIGHTS", "no mask is chosen by weights of dtype %s",
                          bs_dtype_name(w->dtype));
  return BS_OK;
}

int32_t bs_kept_weights(const bs_source *w, int64_t row, int64_t nrows, int64_t group, int64_t ngroups,
                        double *out, bs_error *err) {
  const int64_t stride = 4 * ngroups, begin = 4 * group;
  const int64_t have_rows = row >= w->rows ? 0 : nrows < w->rows - row ? nrows : w->rows - row;
  const int64_t have_cols = begin >= w->cols ? 0 : stride < w->cols - begin ? stride : w->cols - begin;
  memset(out, 0, (size_t)(nrows * stride) * sizeof *out);
  if (have_rows <= 0 || have_cols <= 0) return BS_OK;
  void *raw = malloc((size_t)(have_rows * have_cols) * BS_DTYPE_BYTES(w->dtype));
  if (raw == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MASK-MEMORY",
                        "no memory for the weights that a mask looks at");
  const int32_t rc = read_part(w, row, have_rows, begin, have_cols, out, stride, raw, err);
  free(raw);
  return rc;
}
