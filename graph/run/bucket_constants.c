/* SPDX-License-Identifier: MIT
 * bucket_constants.c - constants that depend on the sizes: leading parts of the largest one, or integers each
 * of which is a multilinear function of the sizes (a range of places, a size itself). */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/run/bucket_make.h"

static int64_t element(const gvalue *v, int64_t at) {
  int32_t narrow;
  int64_t wide;
  if (v->dtype == BS_I64) {
    memcpy(&wide, (const unsigned char *)v->data + (uint64_t)at * sizeof wide, sizeof wide);
    return wide;
  }
  memcpy(&narrow, (const unsigned char *)v->data + (uint64_t)at * sizeof narrow, sizeof narrow);
  return narrow;
}

/* The place in v of the element `index` of the largest constant; -1: v does not have that element. */
static int64_t place_in(const gvalue *v, const int64_t *index) {
  int64_t at = 0;
  for (uint32_t d = 0; d < v->rank; d++) {
    if (index[d] >= v->dims[d]) return -1;
    at = at * v->dims[d] + index[d];
  }
  return at;
}

static void next_index(const gvalue *v, int64_t *index) {
  for (uint32_t d = v->rank; d-- > 0;) {
    if (++index[d] < v->dims[d]) break;
    index[d] = 0;
  }
}

/* The coefficients of an element from those graphs that have it. One that a corner lacks is there at no size
 * for which that corner counts. 0: one that tests has another number. */
static int add_element(const gmaking *m, const gvalue *const *of, const int64_t *index, int64_t at,
                       gbucket_constant *k) {
  int64_t f[GBUCKET_GRAPHS] = {element(of[0], at)};
  gbucket_number n = {.c = {f[0]}};
  int has[GBUCKET_GRAPHS] = {1}, equal = 1, small = 1;
  for (uint32_t c = 1; c < m->n; c++) {
    const int64_t place = place_in(of[c], index);
    has[c] = place >= 0;
    f[c] = has[c] ? element(of[c], place) : f[0];
    equal &= f[c] == f[0];
  }
  for (uint32_t c = 0; c < m->n; c++) small &= f[c] >= -GBUCKET_LARGEST && f[c] <= GBUCKET_LARGEST;
  if (!equal && !small) return 0;
  if (!equal) gmaking_coefficients(m, f, &n);
  for (uint32_t c = m->corners; c < m->n && !equal; c++)
    if (has[c] && gbucket_number_at(&n, m->below[c][0], m->below[c][1]) != f[c]) return 0;
  for (uint32_t i = 0; i < GBUCKET_CORNERS; i++) k->c[i][at] = n.c[i];
  return 1;
}

static int32_t add_integers(gmaking *m, const gvalue *const *of, gbucket_constant *k, const char *name,
                            bs_error *err) {
  int64_t index[BS_MAX_DIMS] = {0};
  const int64_t count = graph_count(of[0]);
  for (uint32_t i = 0; i < GBUCKET_CORNERS; i++) {
    k->c[i] = calloc((size_t)count + 1u, sizeof *k->c[i]);
    if (k->c[i] == NULL) return gmaking_no_memory(err);
  }
  for (int64_t at = 0; at < count; at++, next_index(of[0], index))
    if (!add_element(m, of, index, at, k))
      return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-BUCKET",
                          "the integers of the constant %.60s are no multilinear functions of the sizes",
                          name);
  return BS_OK;
}

/* The leading part of every size lies in a row. */
static int in_a_row(const gmaking *m, const gvalue *v, uint32_t value) {
  const uint32_t *dims = &m->dims[value * BS_MAX_DIMS];
  uint32_t first = 0;
  while (first < v->rank && v->dims[first] == 1 && dims[first] == 0) first++;
  for (uint32_t d = first + 1; d < v->rank; d++)
    if (dims[d] != 0) return 0;
  return 1;
}

static int same_dims(const gvalue *x, const gvalue *y) {
  return memcmp(x->dims, y->dims, x->rank * sizeof x->dims[0]) == 0;
}

int32_t gmaking_compare(const gmaking *m, uint32_t i, const gvalue **of, int *out_same, int *out_leading,
                        bs_error *err) {
  int32_t rc = BS_OK;
  *out_same = *out_leading = 1;
  for (uint32_t c = 0; c < m->n; c++) {
    of[c] = gmaking_value(m, c, i);
    *out_same &= of[c]->data == of[0]->data && same_dims(of[c], of[0]);
  }
  for (uint32_t c = 0; c < m->n && rc == BS_OK && !*out_same; c++)
    rc = graph_ask(m->graphs[c], c == 0 ? i : m->pairs[c].value[i], err);
  for (uint32_t c = 1; c < m->n && rc == BS_OK && !*out_same; c++)
    *out_leading &= gpairs_is_leading(of[0], of[c]);
  return rc;
}

static int32_t add_constant(gmaking *m, const gbinding *b, uint32_t i, bs_error *err) {
  const gvalue *of[GBUCKET_GRAPHS], *v = &b->g->values[i];
  gbucket *k = m->bucket;
  int same, leading;
  char name[32];
  int32_t rc = gmaking_compare(m, i, of, &same, &leading, err);
  if (rc != BS_OK || same || (leading && !gmaking_varies(m, i)) || b->tensors[i].data == NULL) return rc;
  m->looks |= !(v->flags & GV_FOLLOWS);
  uint32_t cap = k->n_constants;
  if (!ARRAY_GROW(k->constants, k->n_constants, cap)) return gmaking_no_memory(err);
  gbucket_constant *c = &k->constants[k->n_constants++];
  *c = (gbucket_constant){.value = i, .data = b->tensors[i].data};
  graph_dense_strides(v->rank, v->dims, c->strides);
  if (!leading && v->dtype != BS_I64 && v->dtype != BS_I32)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-BUCKET",
                        "the sizes change the constant %.60s, and the smaller constant is not a part of it",
                        graph_value_name(b->g, i, name));
  if (!leading) rc = add_integers(m, of, c, graph_value_name(b->g, i, name), err);
  if (rc != BS_OK || (leading && in_a_row(m, v, i))) return rc;
  c->packed = aligned_alloc(64, (size_t)(graph_bytes(v) + 64u) & ~(size_t)63u);
  return c->packed != NULL ? BS_OK : gmaking_no_memory(err);
}

int32_t gmaking_constants(gmaking *m, const gbinding *b, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < b->g->n_values && rc == BS_OK; i++) {
    const gvalue *v = &b->g->values[i];
    if (v->kind == GV_CONST && gmaking_is_live(m, i) && !(v->flags & (GV_QUANT | GV_JOINED)))
      rc = add_constant(m, b, i, err);
  }
  return rc;
}
