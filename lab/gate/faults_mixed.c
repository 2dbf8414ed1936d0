/* SPDX-License-Identifier: MIT
 * faults_mixed.c - see faults_mixed.h. */
#include "lab/gate/faults_mixed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/gate/mixed.h"

int bs_fault_is_mixed(uint32_t kind) {
  return kind == BS_FAULT_SCALE_OTHER || kind == BS_FAULT_SEGMENT_EDGE || kind == BS_FAULT_SEGMENT_SWAPPED ||
         kind == BS_FAULT_SCALE_BLOCK;
}

const char *bs_fault_mixed_skip(uint32_t kind, const bs_case *c) {
  const int64_t high = bs_mixed_of(&c->spec);
  if (high < 0) return "columns in one precision";
  if (c->spec.K < 2 || c->spec.n_options > BS_SMALL_OPTIONS) return "too few columns";
  if (kind == BS_FAULT_SCALE_OTHER) return high < c->spec.K && c->spec.N > 1 ? NULL : "no two rows of 8 bits";
  if (kind == BS_FAULT_SCALE_BLOCK && strcmp(bs_case_option(&c->spec, "mixed_scales"), "block") != 0)
    return "no scales of blocks";
  if (kind == BS_FAULT_SCALE_BLOCK) return c->spec.K - high > 128 ? NULL : "no two blocks";
  if (c->spec.mask == NULL || c->spec.mask->order == NULL) return "no order of columns";
  if (c->spec.reduce_dtype == BS_I8) return "sums in int8 steps are coarser than one column of 8 bits";
  if (kind == BS_FAULT_SEGMENT_EDGE) return NULL;
  return high > 0 && high < c->spec.K ? NULL : "one segment";
}

/* The largest weight of a row that becomes 8 bits. */
static int32_t largest(const bs_case *c, const uint8_t *high, int64_t row, double *values, double *out,
                       bs_error *err) {
  const int32_t rc = c->w->read(c->w->ctx, row, 1, NULL, BS_F64, values, c->spec.K, err);
  *out = 0.0;
  for (int64_t k = 0; rc == BS_OK && k < c->spec.K; ++k)
    if (!high[k] && fabs(values[k]) > *out) *out = fabs(values[k]);
  return rc;
}

/* Finds the row whose scale differs most from the row's own one. */
static int32_t choose_ratio(const bs_case *c, int64_t row, bs_fault_mixed *f, bs_error *err) {
  double *values = malloc((size_t)c->spec.K * sizeof *values), own = 0.0, other = 0.0;
  int32_t rc = values ? largest(c, f->high, row, values, &own, err) : bs_no_memory(err, "a row of W");
  f->row = row;
  f->ratio = 1.0;
  for (int64_t k = 0; k < c->spec.K; ++k) f->hit[k] = !f->high[k];
  for (int64_t n = 0; rc == BS_OK && n < c->spec.N; ++n) {
    rc = largest(c, f->high, n, values, &other, err);
    if (!(own > 0.0) || !(other > 0.0) || fabs(log(other / own)) <= fabs(log(f->ratio))) continue;
    f->ratio = other / own;
  }
  free(values);
  return rc;
}

/* Finds two adjacent blocks, over all rows, whose scales differ most. */
static int32_t search_blocks(const bs_case *c, const bs_mixed *m, double *values, bs_fault_mixed *f,
                             bs_error *err) {
  double *scales = values + m->K;
  uint32_t block = 0;
  int32_t rc = BS_OK;
  f->ratio = 1.0;
  for (int64_t n = 0; rc == BS_OK && n < c->spec.N; ++n) {
    rc = c->w->read(c->w->ctx, n, 1, NULL, BS_F64, values, m->K, err);
    if (rc == BS_OK) bs_mixed_round(m, NULL, values, scales, NULL);
    for (uint32_t g = 0; rc == BS_OK && g + 1 < m->groups; ++g) {
      const double ratio = scales[g + 1] / scales[g];
      if (!(scales[g] > 0.0) || !(ratio > 0.0) || fabs(log(ratio)) <= fabs(log(f->ratio))) continue;
      f->ratio = ratio;
      f->row = n;
      block = g;
    }
  }
  for (int64_t k = 0; k < m->K; ++k) f->hit[k] = !f->high[k] && m->group[k] == block;
  return rc;
}

static int32_t choose_block(const bs_case *c, bs_fault_mixed *f, bs_error *err) {
  bs_proposal p;
  bs_mixed m = {0};
  int32_t rc = bs_case_propose(c, 0, &p, err);
  if (rc == BS_OK) rc = bs_mixed_open(c, p.split, &m, err);
  if (rc != BS_OK) return rc;
  double *values = malloc(((size_t)m.K + m.groups + 1) * sizeof *values);
  rc = values ? search_blocks(c, &m, values, f, err) : bs_no_memory(err, "a row of W");
  free(values);
  bs_mixed_close(&m);
  return rc;
}

int32_t bs_fault_mixed_make(uint32_t kind, const bs_case *c, int64_t row, bs_fault_mixed *f, bs_error *err) {
  const int64_t high = bs_mixed_of(&c->spec), K = c->spec.K;
  const bs_mask *mask = c->spec.mask;
  memset(f, 0, sizeof *f);
  f->high = calloc((size_t)K + 1, 1);
  f->order = calloc((size_t)K + 1, sizeof *f->order);
  f->hit = calloc((size_t)K + 1, 1);
  if (!f->high || !f->order || !f->hit) return bs_no_memory(err, "a segment");
  for (int64_t i = 0; i < K; ++i) f->order[i] = mask && mask->order ? mask->order[i] : (uint32_t)i;
  for (int64_t i = 0; i < high; ++i) f->high[f->order[i]] = 1;
  if (high > 0 && high < K) {
    const uint32_t keep = f->order[high - 1];
    f->order[high - 1] = f->order[high];
    f->order[high] = keep;
  }
  if (mask) f->mask = *mask;
  f->mask.order = f->order;
  f->edge = high > 0 ? high - 1 : 1;
  for (uint32_t i = 0; i < c->spec.n_options; ++i)
    f->values[i] = strcmp(c->spec.option_keys[i], "mixed") == 0 ? f->count : c->spec.option_values[i];
  snprintf(f->count, sizeof f->count, "%lld", (long long)f->edge);
  return kind == BS_FAULT_SCALE_BLOCK ? choose_block(c, f, err) : choose_ratio(c, row, f, err);
}

void bs_fault_mixed_free(bs_fault_mixed *f) {
  free(f->high);
  free(f->order);
  free(f->hit);
  memset(f, 0, sizeof *f);
}

void bs_fault_mixed_layer(uint32_t kind, const bs_fault_mixed *f, bs_layer_spec *spec) {
  if (kind == BS_FAULT_SEGMENT_EDGE) spec->option_values = f->values;
  if (kind == BS_FAULT_SEGMENT_SWAPPED) spec->mask = &f->mask;
}

void bs_fault_mixed_scale(const bs_fault_mixed *f, double *row, int64_t K) {
  for (int64_t k = 0; k < K; ++k)
    if (f->hit[k]) row[k] *= f->ratio;
}
