/* SPDX-License-Identifier: MIT
 * mixed.c - see mixed.h: which columns of a layer in two precisions are rounded together, and to what. By the
 * documents (docs/methods.md, docs/ops.md), not by the method: an oracle that shares its code would share its
 * faults. */
#include "lab/gate/mixed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"

int64_t bs_mixed_wanted(uint32_t n, const char *const *keys, const char *const *values) {
  for (uint32_t i = 0; i < n; ++i)
    if (strcmp(keys[i], "mixed") == 0 && values[i][0] != '\0') return strtoll(values[i], NULL, 10);
  return -1;
}

int64_t bs_mixed_of(const bs_layer_spec *spec) {
  return bs_mixed_wanted(spec->n_options, spec->option_keys, spec->option_values);
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MIXED-MEMORY", "no memory for the segments of a layer");
}

void bs_mixed_close(bs_mixed *m) {
  free(m->is_high);
  free(m->group);
  memset(m, 0, sizeof *m);
}

/* The mask's order of all columns as one of those in the segment: their places in it. */
static int64_t places_of(const bs_mixed *m, const bs_mask *mask, int high, uint32_t *place, uint32_t *order) {
  uint32_t n = 0;
  int64_t ordered = 0;
  for (int64_t k = 0; k < m->K; ++k)
    if (m->is_high[k] == high) place[k] = n++;
  for (int64_t i = 0; mask->order && i < m->K; ++i)
    if (m->is_high[mask->order[i]] == high) order[ordered++] = place[mask->order[i]];
  return n;
}

/* The mask is applied to each segment as if its columns were all there are. */
static int32_t share(bs_mixed *m, const bs_mask *given, int high, uint32_t *place, uint32_t *order,
                     uint8_t *mine, bs_error *err) {
  bs_mask mask = *given;
  const int64_t n = places_of(m, given, high, place, order);
  mask.order = order;
  mask.n_order = n;
  for (uint32_t r = 0; r < m->groups; ++r) {
    const bs_partition *p = NULL;
    const int32_t rc = bs_partition_make(&mask, n, r, m->groups, &p, err);
    if (rc != BS_OK) return rc;
    memset(mine, 0, (size_t)n + 1);
    for (int64_t i = 0; i < p->count; ++i)
      mine[p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[i] : p->begin + i] = 1;
    for (int64_t k = 0; k < m->K; ++k)
      if (m->is_high[k] == high && mine[place[k]]) m->group[k] = r;
    bs_partition_free(p);
  }
  return BS_OK;
}

int32_t bs_mixed_open(const bs_case *c, uint32_t split, bs_mixed *m, bs_error *err) {
  const bs_mask *mask = c->spec.mask;
  memset(m, 0, sizeof *m);
  if (bs_mixed_of(&c->spec) < 0) return BS_OK;
  m->K = c->spec.K;
  m->high = bs_mixed_of(&c->spec);
  m->groups = split == BS_SPLIT_K ? c->world_size : 1;
  const size_t K = (size_t)m->K + 1;
  m->is_high = calloc(K, 1);
  m->group = calloc(K, sizeof *m->group);
  uint32_t *place = calloc(K, sizeof *place), *order = calloc(K, sizeof *order);
  uint8_t *mine = calloc(K, 1);
  int32_t rc = m->is_high && m->group && place && order && mine ? BS_OK : no_memory(err);
  for (int64_t i = 0; rc == BS_OK && i < m->high; ++i)
    m->is_high[mask && mask->order ? (int64_t)mask->order[i] : i] = 1;
  for (int high = 0; rc == BS_OK && m->groups > 1 && mask && high < 2; ++high)
    rc = share(m, mask, high, place, order, mine, err);
  free(place);
  free(order);
  free(mine);
  if (rc != BS_OK) bs_mixed_close(m);
  return rc;
}

/* As quantize_groups: scale = max / 127 in f32, to the nearest integer, ties to even. */
void bs_mixed_round(const bs_mixed *m, double *row, double *scales, double *error2) {
  for (uint32_t g = 0; g < m->groups; ++g) scales[g] = 0.0;
  for (int64_t k = 0; k < m->K; ++k)
    if (!m->is_high[k] && !(fabs(row[k]) <= scales[m->group[k]]) && !isnan(scales[m->group[k]]))
      scales[m->group[k]] = fabs(row[k]);
  for (uint32_t g = 0; g < m->groups; ++g)
    scales[g] = isfinite(scales[g]) ? (double)((float)scales[g] / 127.0f) : NAN;
  for (int64_t k = 0; k < m->K; ++k) {
    if (m->is_high[k]) continue;
    const float scale = (float)scales[m->group[k]];
    const float q = scale > 0.0f ? rintf((float)row[k] / scale) : 0.0f;
    const double rounded = isnan(scale) ? NAN : (double)fminf(fmaxf(q, -127.0f), 127.0f) * (double)scale;
    if (error2) error2[k] += (rounded - row[k]) * (rounded - row[k]);
    row[k] = rounded;
  }
}

static int32_t read_rounded(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  const bs_mixed_view *view = ctx;
  const bs_mixed *m = view->mixed;
  double *values = malloc(((size_t)m->K + m->groups) * sizeof *values);
  int32_t rc = values ? BS_OK : no_memory(err);
  for (int64_t i = 0; rc == BS_OK && i < nrows; ++i) {
    rc = view->inner->read(view->inner->ctx, row + i, 1, NULL, BS_F64, values, m->K, err);
    if (rc != BS_OK) break;
    bs_mixed_round(m, values, values + m->K, NULL);
    const int64_t count = cols ? cols->count : m->K;
    for (int64_t j = 0; j < count; ++j) {
      const int64_t k = !cols                               ? j
                        : cols->kind == BS_PARTITION_GATHER ? (int64_t)cols->columns[j]
                                                            : cols->begin + j;
      bs_store_f64(dtype, out, i * out_stride + j, values[k]);
    }
  }
  free(values);
  return rc;
}

void bs_mixed_source(bs_mixed_view *view, const bs_mixed *m, const bs_source *inner, bs_source *out) {
  *out = *inner;
  if (m->K == 0) return; /* one precision */
  *view = (bs_mixed_view){m, inner};
  out->dtype = BS_F64;
  out->ctx = view;
  out->read = read_rounded;
}
