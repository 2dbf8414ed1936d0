/* SPDX-License-Identifier: MIT
 * importance.c - how much each column counts, and the columns in that order: by the norms of W's or X's
 * columns or the largest value of X's, read in blocks, or by numbers from a .npy file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/npy.h"
#include "lab/error.h"
#include "lab/lab.h"

#define BLOCK_ELEMENTS (INT64_C(1) << 18)

typedef struct weighed {
  double importance;
  uint32_t column;
} weighed;

/* Adds the squares of rows row .. row+nrows-1, or keeps the largest magnitude; in the order of the rows, so
 * that blocks make no difference. */
static int32_t add_rows(const bs_source *source, int ranges, int64_t row, int64_t nrows, void *raw,
                        double *values, weighed *columns, bs_error *err) {
  const int64_t K = source->cols;
  int32_t rc = source->read(source->ctx, row, nrows, NULL, source->dtype, raw, K, err);
  if (rc == BS_OK && bs_convert(BS_F64, values, source->dtype, raw, (uint64_t)(nrows * K)) != BS_OK)
    rc = bs_error_set(err, BS_UNSUPPORTED, "BS-CFG-IMPORTANCE", "no norms of columns of dtype %s",
                      bs_dtype_name(source->dtype));
  for (int64_t r = 0; rc == BS_OK && r < nrows; r++)
    for (int64_t k = 0; k < K; k++) {
      const double v = values[r * K + k];
      if (!ranges)
        columns[k].importance += v * v;
      else if (!(fabs(v) <= columns[k].importance)) /* NaN stays */
        columns[k].importance = fabs(v);
    }
  return rc;
}

static int32_t by_values(const bs_source *source, int ranges, weighed *columns, bs_error *err) {
  const int64_t K = source->cols;
  if (K == 0) return BS_OK;
  const int64_t block = BLOCK_ELEMENTS / K > 0 ? BLOCK_ELEMENTS / K : 1;
  void *raw = malloc((size_t)(block * K) * BS_DTYPE_BYTES(source->dtype));
  double *values = malloc((size_t)(block * K) * sizeof *values);
  int32_t rc = raw != NULL && values != NULL ? BS_OK : bs_no_memory(err, "ordering columns by importance");
  for (int64_t r = 0; rc == BS_OK && r < source->rows; r += block)
    rc = add_rows(source, ranges, r, source->rows - r < block ? source->rows - r : block, raw, values,
                  columns, err);
  free(raw);
  free(values);
  return rc;
}

static int32_t by_file(const char *path, int64_t K, weighed *columns, bs_error *err) {
  bs_npy npy = {0};
  int32_t rc = bs_npy_open(path, &npy, err);
  if (rc != BS_OK) return rc;
  void *raw = NULL;
  double *values = NULL;
  if (npy.rank != 1 || npy.dims[0] != K) {
    rc = bs_error_set(
        err, BS_INPUT, "BS-CFG-IMPORTANCE",
        "mask.importance: the file holds %llu numbers in %u dimension%s, the layer has %lld columns",
        (unsigned long long)npy.count, npy.rank, npy.rank == 1 ? "" : "s", (long long)K);
    bs_error_where(err, "%.150s", path);
    bs_error_hint(err, "one number a column, the more important the larger");
  } else if (K > 0) {
    const uint64_t bytes = npy.count * BS_DTYPE_BYTES(npy.dtype);
    raw = malloc(bytes);
    values = malloc((size_t)K * sizeof *values);
    rc = raw != NULL && values != NULL ? BS_OK : bs_no_memory(err, "ordering columns by importance");
    if (rc == BS_OK) rc = bs_npy_read(&npy, path, 0, raw, bytes, err);
    if (rc == BS_OK) rc = bs_convert(BS_F64, values, npy.dtype, raw, npy.count);
    for (int64_t k = 0; rc == BS_OK && k < K; k++) columns[k].importance = values[k];
  }
  free(raw);
  free(values);
  bs_npy_close(&npy);
  return rc;
}

static int more_important(const void *a, const void *b) {
  const weighed *x = a, *y = b;
  if (x->importance != y->importance) return x->importance > y->importance ? -1 : 1;
  return x->column < y->column ? -1 : x->column > y->column;
}

int32_t bs_importance_order(const bs_subject *s, const char *by, uint32_t **out_order, bs_error *err) {
  const int64_t K = s->info.K;
  *out_order = NULL;
  weighed *columns = calloc((size_t)K + 1, sizeof *columns);
  uint32_t *order = malloc(((size_t)K + 1) * sizeof *order);
  int32_t rc = columns != NULL && order != NULL ? BS_OK : bs_no_memory(err, "ordering columns by importance");
  for (int64_t k = 0; rc == BS_OK && k < K; k++) columns[k].column = (uint32_t)k;
  if (rc == BS_OK)
    rc = strcmp(by, "weights") == 0  ? by_values(&s->w, 0, columns, err)
         : strcmp(by, "inputs") == 0 ? by_values(&s->x, 0, columns, err)
         : strcmp(by, "ranges") == 0 ? by_values(&s->x, 1, columns, err)
                                     : by_file(by, K, columns, err);
  for (int64_t k = 0; rc == BS_OK && k < K; k++) {
    if (isfinite(columns[k].importance)) continue;
    rc = bs_error_set(err, BS_INPUT, "BS-CFG-IMPORTANCE", "mask.importance %.60s: that of column %lld is %g",
                      by, (long long)k, columns[k].importance);
    bs_error_hint(err, "finite numbers can be ordered");
  }
  if (rc == BS_OK) {
    qsort(columns, (size_t)K, sizeof *columns, more_important);
    for (int64_t k = 0; k < K; k++) order[k] = columns[k].column;
    *out_order = order;
    order = NULL;
  }
  free(order);
  free(columns);
  return rc;
}
