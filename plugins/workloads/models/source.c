/* SPDX-License-Identifier: MIT
 * source.c - X of the model-like workloads (models.h): panels are put together from cached units. */
#include <inttypes.h>

#include "models.h"

void models_draw(const models_workload *w, uint32_t stream, int64_t first, int64_t n, float *out) {
  w->layer.host->rng_normal(w->layer.parts[BS_PART_X].by.seed, stream, (uint64_t)first, (uint64_t)n, out);
}

int32_t models_store(const models_workload *w, void *out, const double *values, int64_t n, bs_error *err) {
  const uint32_t model = w->layer.parts[BS_PART_X].dtype;
  for (int64_t i = 0; i < n; i += BS_WL_BLOCK) {
    int64_t m = n - i < BS_WL_BLOCK ? n - i : BS_WL_BLOCK;
    int32_t rc = bs_wl_round(w->layer.host, model, model, (char *)out + (size_t)i * BS_DTYPE_BYTES(model),
                             BS_F64, values + i, m, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

void *models_scratch(const models_workload *w, int64_t count, size_t element, bs_error *err) {
  const bs_host *h = w->layer.host;
  int64_t bytes;
  void *p = NULL;
  if (!__builtin_mul_overflow(count, (int64_t)element, &bytes)) p = h->alloc(h->ctx, (uint64_t)bytes, 0);
  if (p == NULL)
    bs_fail(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate %" PRId64 " values of %zu bytes to make X", count,
            element);
  return p;
}

void models_scratch_free(const models_workload *w, void *scratch) {
  w->layer.host->free(w->layer.host->ctx, scratch);
}

/* The first index in the wanted columns whose column is `column` or later. */
static int64_t index_of(const bs_wl_columns *c, int64_t column) {
  int64_t low = 0, high = c->count;
  if (c->columns == NULL) {
    int64_t i = column - c->begin;
    return i < 0 ? 0 : i > c->count ? c->count : i;
  }
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if ((int64_t)c->columns[middle] < column)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* One row of a unit: the wanted columns i .. end-1, which lie in it, into out. `row` points at the unit's
 * row, whose first column is `column`. */
static int32_t copy_columns(const bs_generated *x, const bs_wl_columns *c, int64_t i, int64_t end,
                            const char *row, int64_t column, uint32_t dtype, char *out, bs_error *err) {
  const size_t size = BS_DTYPE_BYTES(x->dtype);
  uint64_t block[BS_WL_BLOCK];
  while (i < end) {
    int64_t n = end - i < BS_WL_BLOCK ? end - i : BS_WL_BLOCK;
    const char *from = (const char *)block;
    if (c->columns == NULL) {
      from = row + (size_t)(c->begin + i - column) * size;
    } else {
      for (int64_t j = 0; j < n; j++)
        memcpy((char *)block + (size_t)j * size, row + (size_t)((int64_t)c->columns[i + j] - column) * size,
               size);
    }
    int32_t rc = bs_wl_round(x->host, x->dtype, dtype, out, x->dtype, from, n, err);
    if (rc != BS_OK) return rc;
    out += (size_t)n * BS_DTYPE_BYTES(dtype);
    i += n;
  }
  return BS_OK;
}

typedef struct panel {
  models_workload *w;
  bs_wl_columns columns;
  int64_t row, nrows, stride;
  uint32_t dtype;
  char *out;
} panel;

/* Reads the part of the panel that is in unit (band, across). */
static int32_t read_unit(const panel *p, int64_t band, int64_t across, bs_error *err) {
  models_workload *w = p->w;
  const bs_generated *x = &w->layer.parts[BS_PART_X];
  const int64_t column = across * w->unit_cols, top = band * w->unit_rows;
  const int64_t i = index_of(&p->columns, column), end = index_of(&p->columns, column + w->unit_cols);
  int64_t from = p->row > top ? p->row : top, to = p->row + p->nrows;
  const void *data = NULL;
  int64_t slot = 0;
  if (i >= end) return BS_OK;
  if (to > top + w->unit_rows) to = top + w->unit_rows;
  int32_t rc = models_cache_get(w->cache, band * w->across + across, &data, &slot, err);
  if (rc != BS_OK) return rc;
  for (int64_t r = from; r < to && rc == BS_OK; r++) {
    const char *unit_row = (const char *)data + (size_t)((r - top) * w->unit_cols) * BS_DTYPE_BYTES(x->dtype);
    char *out = p->out + ((size_t)(r - p->row) * (size_t)p->stride + (size_t)i) * BS_DTYPE_BYTES(p->dtype);
    rc = copy_columns(x, &p->columns, i, end, unit_row, column, p->dtype, out, err);
  }
  models_cache_release(w->cache, slot);
  return rc;
}

static int32_t read_panel(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  models_workload *w = ctx;
  const bs_generated *x = &w->layer.parts[BS_PART_X];
  panel p = {w, {0, 0, NULL}, row, nrows, out_stride, dtype, out};
  int32_t rc = bs_wl_check_read(x->rows, x->cols, row, nrows, cols, out_stride, &p.columns, err);
  if (rc != BS_OK || nrows == 0 || p.columns.count == 0) return rc;
  const bs_wl_columns *c = &p.columns;
  const int64_t left = c->columns == NULL ? c->begin : (int64_t)c->columns[0];
  const int64_t right = c->columns == NULL ? left + c->count - 1 : (int64_t)c->columns[c->count - 1];
  const int64_t first = row / w->unit_rows, last = (row + nrows - 1) / w->unit_rows;
  const int64_t begin = left / w->unit_cols, end = right / w->unit_cols + 1;
  for (int64_t band = first; band <= last && rc == BS_OK; band++)
    rc = models_cache_share(w->cache, band * w->across + begin, end - begin, err);
  for (int64_t band = first; band <= last && rc == BS_OK; band++)
    for (int64_t a = begin; a < end && rc == BS_OK; a++) rc = read_unit(&p, band, a, err);
  return rc;
}

int32_t models_start(models_workload *w, models_build_fn build, bs_error *err) {
  const bs_generated *x = &w->layer.parts[BS_PART_X];
  const models_cache_spec spec = {
      .host = w->layer.host,
      .n_units = x->rows / w->unit_rows * w->across,
      .unit_bytes = (uint64_t)w->unit_rows * (uint64_t)w->unit_cols * BS_DTYPE_BYTES(x->dtype),
      .max_bytes = w->state->cache_bytes,
      .min_kept = w->across,
      .build = build,
      .ctx = w};
  return models_cache_make(&spec, &w->cache, err);
}

int32_t models_source(void *workload, uint32_t part, bs_source *out_source, bs_error *err) {
  models_workload *w = workload;
  int32_t rc = bs_wl_layer_source(&w->layer, part, out_source, err);
  if (rc != BS_OK || part != BS_PART_X) return rc;
  out_source->ctx = w;
  out_source->read = read_panel;
  return BS_OK;
}

void models_close(void *workload) {
  models_workload *w = workload;
  const bs_host *host = w->layer.host;
  models_cache_free(w->cache);
  host->free(host->ctx, w);
}
