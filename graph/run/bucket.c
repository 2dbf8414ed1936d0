/* SPDX-License-Identifier: MIT
 * bucket.c - makes the plan of a range of sizes: graphs at its corners, the table of numbers that depend on
 * the sizes, and what of the plan must follow them. All that a smaller size could break is asked here, at
 * every corner of the range, so that setting numbers cannot fail. */
#include "graph/run/bucket_make.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/memory.h"

enum { LAST_DOUBLING = 512 };

int64_t gbucket_end(int64_t size) {
  int64_t end = 1;
  while (end < size && end < LAST_DOUBLING) end *= 2;
  return end >= size ? end : (size + LAST_DOUBLING - 1) / LAST_DOUBLING * LAST_DOUBLING;
}

int64_t gbucket_least(int64_t end) {
  return end > LAST_DOUBLING ? end - LAST_DOUBLING + 1 : end / 2 + 1;
}

int gbucket_has(const gbucket_range *range, const int64_t *sizes) {
  for (uint32_t i = 0; i < range->n_sizes; i++) {
    uint32_t k = 0;
    while (k < range->n && range->symbol[k] != i) k++;
    const int64_t least = k < range->n ? range->least[k] : range->sizes[i];
    if (sizes[i] < least || sizes[i] > range->sizes[i]) return 0;
  }
  return 1;
}

int32_t gmaking_no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the plan of a range of sizes");
}

int32_t gmaking_refuse(bs_error *err, const char *what) {
  return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-BUCKET", "%s", what);
}

/* ---- lowering at the corners ----------------------------------------------------------------- */

static int32_t lower_at(gmaking *m, uint32_t index, gpass_trace *traces, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  graph **g = &m->graphs[index];
  int32_t rc = m->lower->make(m->lower->user, m->sizes, g, traces, &why);
  if (rc == BS_OK && index > 0) rc = gpairs_make(m->graphs[0], *g, &m->pairs[index], &why);
  if (rc == BS_OK || rc == BS_NO_MEMORY) return rc;
  return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-BUCKET", "%s%.160s",
                      index == 0 ? "not at the largest size: " : "", why.message);
}

/* The next graph: of the largest sizes, less `below`. */
static int32_t lower_below(gmaking *m, const int64_t *below, bs_error *err) {
  const gbucket_range *r = &m->bucket->range;
  gpass_trace other[GPASS_MAX];
  const uint32_t index = m->n++;
  for (uint32_t i = 0; i < r->n_sizes; i++) m->sizes[i] = r->sizes[i];
  memcpy(m->below[index], below, sizeof m->below[index]);
  for (uint32_t k = 0; k < r->n && k < GBUCKET_SYMBOLS; k++)
    m->sizes[r->symbol[k]] = r->sizes[r->symbol[k]] - below[k];
  return lower_at(m, index, index == 0 ? m->traces : other, err);
}

/* Lowers the corners, then every other end of the range as a test. A number may depend on one symbol in a way
 * that is not linear. With two symbols this may show only at an end where the other symbol is large, or only
 * where it is one less. */
static int32_t lower_all(gmaking *m, bs_error *err) {
  const gbucket_range *r = &m->bucket->range;
  int32_t rc = BS_OK;
  for (uint32_t c = 0; c < m->corners && rc == BS_OK; c++)
    rc = lower_below(m, (const int64_t[GBUCKET_SYMBOLS]){c & 1u, c >> 1u}, err);
  for (uint32_t c = 1; c < m->corners && rc == BS_OK; c++) {
    int64_t below[GBUCKET_SYMBOLS] = {0};
    int at_a_corner = 1;
    for (uint32_t k = 0; k < r->n; k++) {
      if (c >> k & 1u) below[k] = r->sizes[r->symbol[k]] - r->least[k];
      at_a_corner &= below[k] <= 1;
    }
    if (!at_a_corner) rc = lower_below(m, below, err);
  }
  for (uint32_t k = 0; k < 2 && r->n == 2 && rc == BS_OK; k++) {
    int64_t below[GBUCKET_SYMBOLS] = {1, 1};
    below[k] = r->sizes[r->symbol[k]] - r->least[k];
    if (below[k] > 1 && r->least[1 - k] < r->sizes[r->symbol[1 - k]]) rc = lower_below(m, below, err);
  }
  return rc;
}

static size_t widths(const gbucket_range *r, uint32_t k) {
  return k < r->n ? (size_t)(r->sizes[r->symbol[k]] - r->least[k] + 1) : 1;
}

static int32_t make_looked(gbucket *b, bs_error *err) {
  b->looked = calloc(widths(&b->range, 0) * widths(&b->range, 1), 1);
  return b->looked != NULL ? BS_OK : gmaking_no_memory(err);
}

uint8_t *gbucket_looked(const gbucket *b, const int64_t *sizes) {
  if (b->looked == NULL) return NULL;
  const size_t u = (size_t)gbucket_below(&b->range, 0, sizes), v = (size_t)gbucket_below(&b->range, 1, sizes);
  return &b->looked[u + v * widths(&b->range, 0)];
}

static int32_t make_all(gmaking *m, gcore *core, grank *rank, gbinding **out_binding, bs_error *err) {
  gbinding *b = NULL;
  int32_t rc = lower_all(m, err);
  if (rc == BS_OK) rc = gmaking_table(m, err);
  if (rc == BS_OK) rc = gmaking_weights(m, err);
  if (rc != BS_OK) return rc;
  rc = gbinding_make(core, rank, m->graphs[0], &b, err);
  if (rc != BS_OK) { /* it has freed the graph */
    m->graphs[0] = NULL;
    return rc;
  }
  m->graphs[0] = NULL;
  graph *g = b->g;
  m->graphs[0] = g;
  rc = gmaking_constants(m, b, err);
  if (rc == BS_OK) rc = gmaking_fits(m, b, err);
  if (rc == BS_OK && m->looks) rc = make_looked(m->bucket, err);
  if (rc == BS_OK) rc = bs_memory_fits(b->arena_bytes, "BS-GRAPH-MEMORY", "the largest size", err);
  m->graphs[0] = NULL;
  if (rc != BS_OK) {
    gbinding_free(b);
    return rc;
  }
  memcpy(b->traces, m->traces, sizeof b->traces);
  *out_binding = b;
  return BS_OK;
}

int32_t gbucket_make(gcore *core, grank *rank, const gbucket_range *range, const gbucket_lower *lower,
                     gbinding **out_binding, bs_error *err) {
  gmaking m = {.lower = lower, .corners = 1u << range->n};
  m.bucket = calloc(1, sizeof *m.bucket);
  m.sizes = calloc(range->n_sizes + 1u, sizeof *m.sizes);
  int32_t rc = m.bucket == NULL || m.sizes == NULL ? gmaking_no_memory(err) : BS_OK;
  if (rc == BS_OK) {
    m.bucket->range = *range;
    rc = make_all(&m, core, rank, out_binding, err);
  }
  for (uint32_t i = 0; i < GBUCKET_GRAPHS; i++) {
    gpairs_free(&m.pairs[i]);
    graph_free(m.graphs[i]);
  }
  free(m.sizes);
  free(m.dims);
  free(m.strides);
  free(m.offsets);
  if (rc == BS_OK) {
    (*out_binding)->bucket = m.bucket;
    return rc;
  }
  if (m.bucket != NULL) m.bucket->range.sizes = NULL; /* the caller's */
  gbucket_free(m.bucket);
  return rc;
}

void gbucket_free(gbucket *b) {
  if (b == NULL) return;
  for (uint32_t i = 0; i < b->n_constants; i++) {
    free(b->constants[i].packed);
    for (uint32_t k = 0; k < GBUCKET_CORNERS; k++) free(b->constants[i].c[k]);
  }
  free(b->range.sizes);
  free(b->looked);
  free(b->numbers);
  free(b->strides);
  free(b->dense);
  free(b->constants);
  free(b->roots);
  free(b->over);
  free(b->again);
  free(b);
}
