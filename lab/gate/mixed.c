/* SPDX-License-Identifier: MIT
 * mixed.c - see mixed.h: finds which columns of a layer in two precisions are rounded together, and to which
 * dtype. It follows the documents (docs/methods.md, docs/ops.md), not the method: an oracle that shares its
 * code would share its faults. */
#include "lab/gate/mixed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/config/experiment.h"
#include "lab/error.h"

/* Reads the format; the method refuses unknown ones itself. */
static void read_format(const bs_layer_spec *spec, bs_mixed *m) {
  const char *dtype = bs_case_option(spec, "mixed_dtype"), *scales = bs_case_option(spec, "mixed_scales");
  m->dtype = strcmp(dtype, "f8e4m3") == 0 ? BS_F8E4M3 : strcmp(dtype, "f8e5m2") == 0 ? BS_F8E5M2 : BS_I8;
  m->scales = strcmp(scales, "tensor") == 0  ? BS_MIXED_BY_TENSOR
              : strcmp(scales, "block") == 0 ? BS_MIXED_BY_BLOCK
                                             : BS_MIXED_BY_ROW;
}

const char *bs_mixed_low_name(const bs_mixed *m) {
  return m->dtype == BS_I8 ? "int8" : bs_dtype_name(m->dtype);
}

int64_t bs_mixed_of(const bs_layer_spec *spec) {
  return bs_mixed_wanted(spec->n_options, spec->option_keys, spec->option_values);
}

void bs_mixed_close(bs_mixed *m) {
  free(m->is_high);
  free(m->group);
  free(m->shared[BS_MIXED_X]);
  free(m->shared[BS_MIXED_W]);
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
  for (uint32_t r = 0; r < m->ranks; ++r) {
    const bs_partition *p = NULL;
    const int32_t rc = bs_partition_make(&mask, n, r, m->ranks, &p, err);
    if (rc != BS_OK) return rc;
    memset(mine, 0, (size_t)n + 1);
    for (int64_t i = 0; i < p->count; ++i) mine[bs_view_column(p, i)] = 1;
    for (int64_t k = 0; k < m->K; ++k)
      if (m->is_high[k] == high && mine[place[k]]) m->group[k] = r;
    bs_partition_free(p);
  }
  return BS_OK;
}

/* The others of each rank, in their order, in blocks of 128. block: [K], overwritten. */
static void divide(bs_mixed *m, uint32_t *block) {
  enum { COLUMNS = 128 };
  m->groups = 0;
  for (uint32_t r = 0; r < m->ranks; ++r) {
    uint32_t n = 0;
    for (int64_t k = 0; k < m->K; ++k)
      if (!m->is_high[k] && m->group[k] == r) block[k] = m->groups + n++ / COLUMNS;
    m->groups += (n + COLUMNS - 1) / COLUMNS;
  }
  for (int64_t k = 0; k < m->K; ++k) m->group[k] = m->is_high[k] ? 0 : block[k];
  if (m->groups == 0) m->groups = 1;
}

int32_t bs_mixed_open(const bs_case *c, uint32_t split, bs_mixed *m, bs_error *err) {
  const bs_mask *mask = c->spec.mask;
  memset(m, 0, sizeof *m);
  if (bs_mixed_of(&c->spec) < 0) return BS_OK;
  m->K = c->spec.K;
  m->high = bs_mixed_of(&c->spec);
  read_format(&c->spec, m);
  m->groups = m->ranks = split == BS_SPLIT_K ? c->world_size : 1;
  m->owners = split == BS_SPLIT_N ? c->world_size : 1;
  const size_t K = (size_t)m->K + 1;
  m->is_high = calloc(K, 1);
  m->group = calloc(K, sizeof *m->group);
  uint32_t *place = calloc(K, sizeof *place), *order = calloc(K, sizeof *order);
  uint8_t *mine = calloc(K, 1);
  int32_t rc =
      m->is_high && m->group && place && order && mine ? BS_OK : bs_no_memory(err, "the segments of a layer");
  for (int64_t i = 0; rc == BS_OK && i < m->high; ++i)
    m->is_high[mask && mask->order ? (int64_t)mask->order[i] : i] = 1;
  for (int high = 0; rc == BS_OK && m->ranks > 1 && mask && high < 2; ++high)
    rc = share(m, mask, high, place, order, mine, err);
  if (rc == BS_OK && m->scales == BS_MIXED_BY_BLOCK) divide(m, place);
  free(place);
  free(order);
  free(mine);
  if (rc != BS_OK) bs_mixed_close(m);
  return rc;
}

/* ---- scales ------------------------------------------------------------------------------------- */

static double largest(uint32_t dtype) {
  return dtype == BS_F8E4M3 ? 448.0 : dtype == BS_F8E5M2 ? 57344.0 : 127.0;
}

/* most[g]: the largest magnitude of a group so far; NaN stays. */
static void widen(const bs_mixed *m, const double *row, double *most) {
  for (int64_t k = 0; k < m->K; ++k)
    if (!m->is_high[k] && !(fabs(row[k]) <= most[m->group[k]]) && !isnan(most[m->group[k]]))
      most[m->group[k]] = fabs(row[k]);
}

/* Turns the largest magnitudes into scales. */
static void finish(const bs_mixed *m, double *scales) {
  for (uint32_t g = 0; g < m->groups; ++g)
    scales[g] = isfinite(scales[g]) ? (double)((float)scales[g] / (float)largest(m->dtype)) : NAN;
}

static double nearest(uint32_t dtype, float v) {
  const float most = (float)largest(dtype), in = fminf(fmaxf(v, -most), most);
  if (dtype == BS_I8) return (double)rintf(in);
  return (double)(dtype == BS_F8E4M3 ? bs_f8e4m3_to_f32(bs_f32_to_f8e4m3(in))
                                     : bs_f8e5m2_to_f32(bs_f32_to_f8e5m2(in)));
}

/* Quantizes as quantize_groups does: scale = max / L in f32, to the nearest value, ties to even. */
void bs_mixed_round(const bs_mixed *m, const double *shared, double *row, double *scales, double *error2) {
  for (uint32_t g = 0; g < m->groups; ++g) scales[g] = shared ? shared[g] : 0.0;
  if (!shared) {
    widen(m, row, scales);
    finish(m, scales);
  }
  for (int64_t k = 0; k < m->K; ++k) {
    if (m->is_high[k]) continue;
    const float scale = (float)scales[m->group[k]];
    const double q = scale > 0.0f ? nearest(m->dtype, (float)row[k] / scale) : 0.0;
    const double rounded = isnan(scale) ? NAN : q * (double)scale;
    if (error2) error2[k] += (rounded - row[k]) * (rounded - row[k]);
    row[k] = rounded;
  }
}

int64_t bs_mixed_sampled(int64_t i, int64_t n, int64_t N) {
  return n == N ? i : n > 1 ? (int64_t)((double)i * (double)(N - 1) / (double)(n - 1)) : 0;
}

/* The owner of a row of W: owners have consecutive rows, whose counts differ by at most one; the first have
 * more. */
static int64_t owner_of(const bs_mixed *m, int64_t row, int64_t rows) {
  const int64_t least = rows / m->owners, longer = rows % m->owners, end = longer * (least + 1);
  return row < end ? row / (least + 1) : longer + (row - end) / (least > 0 ? least : 1);
}

const double *bs_mixed_shared_of(const bs_mixed *m, int part, int64_t row, int64_t rows) {
  if (!m->shared[part]) return NULL;
  return m->shared[part] + (part == BS_MIXED_W ? owner_of(m, row, rows) * m->groups : 0);
}

int32_t bs_mixed_share(bs_mixed *m, int part, const bs_source *inner, int64_t rows, bs_error *err) {
  const uint32_t sets = part == BS_MIXED_W ? m->owners : 1;
  if (m->K == 0 || m->scales != BS_MIXED_BY_TENSOR) return BS_OK;
  double *row = malloc((size_t)m->K * sizeof *row), *most = calloc((size_t)sets * m->groups, sizeof *most);
  int32_t rc = row && most ? BS_OK : bs_no_memory(err, "the segments of a layer");
  for (int64_t i = 0; rc == BS_OK && i < rows; ++i) {
    const int64_t n = bs_mixed_sampled(i, rows, inner->rows);
    rc = inner->read(inner->ctx, n, 1, NULL, BS_F64, row, m->K, err);
    if (rc == BS_OK) widen(m, row, most + (sets > 1 ? owner_of(m, n, inner->rows) * m->groups : 0));
  }
  for (uint32_t i = 0; rc == BS_OK && i < sets; ++i) finish(m, most + (size_t)i * m->groups);
  free(row);
  if (rc != BS_OK) {
    free(most);
    return rc;
  }
  free(m->shared[part]);
  m->shared[part] = most;
  return BS_OK;
}

static void round_row(void *user, int64_t row, double *values) {
  const bs_mixed_view *view = user;
  const bs_mixed *m = view->mixed;
  bs_mixed_round(m, bs_mixed_shared_of(m, view->part, row, view->inner->rows), values, values + m->K, NULL);
}

static int32_t read_rounded(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  const bs_mixed_view *view = ctx;
  return bs_case_read_changed(view->inner, view->mixed->groups, round_row, ctx, row, nrows, cols, dtype, out,
                              out_stride, err);
}

int32_t bs_mixed_source(bs_mixed_view *view, bs_mixed *m, int part, const bs_source *inner, bs_source *out,
                        bs_error *err) {
  *out = *inner;
  if (m->K == 0) return BS_OK; /* one precision */
  *view = (bs_mixed_view){m, part, inner};
  out->dtype = BS_F64;
  out->ctx = view;
  out->read = read_rounded;
  return bs_mixed_share(m, part, inner, inner->rows, err);
}
