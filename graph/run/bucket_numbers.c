/* SPDX-License-Identifier: MIT
 * bucket_numbers.c - the numbers of a graph as functions of the sizes. */
#include "graph/run/bucket_make.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/ir/arena.h"

void gmaking_coefficients(const gmaking *m, const int64_t *f, gbucket_number *out) {
  out->c[0] = f[0];
  out->c[1] = f[1] - f[0];
  if (m->corners > 2) {
    out->c[2] = f[2] - f[0];
    out->c[3] = f[3] - f[2] - f[1] + f[0];
  }
}

int gmaking_multilinear(const gmaking *m, const int64_t *f, gbucket_number *out) {
  for (uint32_t i = 0; i < m->n; i++)
    if (f[i] < -GBUCKET_LARGEST || f[i] > GBUCKET_LARGEST) return 0;
  gmaking_coefficients(m, f, out);
  for (uint32_t i = m->corners; i < m->n; i++)
    if (gbucket_number_at(out, m->below[i][0], m->below[i][1]) != f[i]) return 0;
  return 1;
}

static int all_equal(const gmaking *m, const int64_t *f) {
  for (uint32_t i = 1; i < m->n; i++)
    if (f[i] != f[0]) return 0;
  return 1;
}

/* *io_slot becomes the number of the new entry + 1. */
static int32_t keep_number(gmaking *m, const gbucket_number *n, uint32_t *out_slot, bs_error *err) {
  gbucket *b = m->bucket;
  if (!ARRAY_GROW(b->numbers, b->n_numbers, m->cap)) return gmaking_no_memory(err);
  b->numbers[b->n_numbers++] = *n;
  if (out_slot != NULL) *out_slot = b->n_numbers;
  return BS_OK;
}

/* An integer at graph 0's `at` that is f[c] in graph c. *out_slot stays where it does not vary. */
static int32_t add_int(gmaking *m, int64_t *at, const int64_t *f, const char *what, uint32_t *out_slot,
                       bs_error *err) {
  gbucket_number n = {.at = at};
  if (all_equal(m, f)) return BS_OK;
  if (!gmaking_multilinear(m, f, &n)) return gmaking_refuse(err, what);
  return keep_number(m, &n, out_slot, err);
}

/* A double: a whole number, or one over a whole number, as means of a dim have it. */
static int32_t add_double(gmaking *m, void *at, const double *x, bs_error *err) {
  gbucket_number n = {.at = at};
  int same = 1, whole = 1, inverse = 1;
  int64_t f[GBUCKET_GRAPHS] = {0}, over[GBUCKET_GRAPHS] = {0};
  for (uint32_t i = 0; i < m->n; i++) {
    const int small = fabs(x[i]) <= (double)GBUCKET_LARGEST,
              large = fabs(x[i]) >= 1 / (double)GBUCKET_LARGEST;
    same &= gbucket_same_bits(x[i], x[0]);
    f[i] = small ? (int64_t)x[i] : 0;
    over[i] = large ? (int64_t)nearbyint(1 / x[i]) : 0;
    const double back[2] = {(double)f[i], over[i] != 0 ? 1 / (double)over[i] : 0};
    whole &= gbucket_same_bits(back[0], x[i]);
    inverse &= gbucket_same_bits(back[1], x[i]);
  }
  if (same) return BS_OK;
  n.kind = whole ? GNUMBER_DOUBLE : GNUMBER_INVERSE;
  if (!(whole || inverse) || !gmaking_multilinear(m, whole ? f : over, &n))
    return gmaking_refuse(err,
                          "a number of a node is neither a multilinear function of the sizes nor 1 over one");
  return keep_number(m, &n, NULL, err);
}

/* ---- the numbers of values ------------------------------------------------------------------- */

static int32_t add_dense(gmaking *m, uint32_t i, bs_error *err) {
  gbucket *b = m->bucket;
  if (!ARRAY_GROW(b->dense, b->n_dense, m->cap_dense)) return gmaking_no_memory(err);
  b->dense[b->n_dense++] = i;
  return BS_OK;
}

/* Adds a stride of a view as a multiple of a stride of its root. *out_found 0: it is no such multiple. */
static int32_t add_scaled(gmaking *m, uint32_t i, uint32_t d, int *out_found, bs_error *err) {
  gbucket *b = m->bucket;
  gvalue *v = &m->graphs[0]->values[i];
  gvalue *root = &m->graphs[0]->values[v->base];
  *out_found = 0;
  for (uint32_t j = 0; j < root->rank && v->base != i; j++) {
    const int64_t times = root->strides[j] > 0 ? v->strides[d] / root->strides[j] : 0;
    int fits = times > 0;
    for (uint32_t c = 0; c < m->n && fits; c++)
      fits = gmaking_value(m, c, i)->strides[d] == times * gmaking_value(m, c, v->base)->strides[j];
    if (!fits) continue;
    if (!ARRAY_GROW(b->strides, b->n_strides, m->cap_strides)) return gmaking_no_memory(err);
    b->strides[b->n_strides++] = (gbucket_stride){&v->strides[d], &root->strides[j], times};
    *out_found = 1;
    return BS_OK;
  }
  return BS_OK;
}

/* The stride of a dim that is not in its dense place. That of a dim which is 1 at every size counts for
 * nothing. */
static int32_t add_stride(gmaking *m, uint32_t i, uint32_t d, const int64_t *f, bs_error *err) {
  gbucket_number n = {.at = &m->graphs[0]->values[i].strides[d]};
  int found = 0;
  if (gmaking_multilinear(m, f, &n)) return keep_number(m, &n, NULL, err);
  const int32_t rc = add_scaled(m, i, d, &found, err);
  return rc != BS_OK || found || m->strides[i * BS_MAX_DIMS + d] == 0
             ? rc
             : gmaking_refuse(err, "a stride is no multilinear function of the sizes");
}

/* Strides of what is dense follow the dims, others are numbers of their own. */
static int32_t add_strides(gmaking *m, uint32_t i, bs_error *err) {
  gvalue *v = &m->graphs[0]->values[i];
  int dense = 1, any = 0;
  int32_t rc = BS_OK;
  for (uint32_t c = 0; c < m->n; c++) dense &= graph_is_dense(gmaking_value(m, c, i));
  for (uint32_t d = 0; d < v->rank && rc == BS_OK; d++) {
    int64_t f[GBUCKET_GRAPHS] = {0};
    int one = 1;
    for (uint32_t c = 0; c < m->n; c++) {
      f[c] = gmaking_value(m, c, i)->strides[d];
      one &= gmaking_value(m, c, i)->dims[d] == 1;
    }
    if (all_equal(m, f)) continue;
    any = 1;
    m->strides[i * BS_MAX_DIMS + d] = one ? 0 : GNONE;
    if (!dense) rc = add_stride(m, i, d, f, err);
  }
  return rc == BS_OK && dense && any ? add_dense(m, i, err) : rc;
}

/* A dim of 1 is spread, or left out. If it is 1 at some sizes only, these sizes have another graph. */
static int stays_wide(const gmaking *m, const int64_t *f) {
  int wide = 1;
  for (uint32_t c = 0; c < m->n; c++) wide &= f[c] > 1;
  return wide || all_equal(m, f);
}

static int32_t add_value(gmaking *m, uint32_t i, bs_error *err) {
  gvalue *v = &m->graphs[0]->values[i];
  int64_t f[GBUCKET_GRAPHS] = {0};
  int32_t rc = BS_OK;
  for (uint32_t d = 0; d < v->rank && rc == BS_OK; d++) {
    for (uint32_t c = 0; c < m->n; c++) f[c] = gmaking_value(m, c, i)->dims[d];
    if (!stays_wide(m, f)) return gmaking_refuse(err, "a dim is 1 at some sizes only");
    rc = add_int(m, &v->dims[d], f, "a dim is no multilinear function of the sizes",
                 &m->dims[i * BS_MAX_DIMS + d], err);
  }
  if (rc == BS_OK) rc = add_strides(m, i, err);
  for (uint32_t c = 0; c < m->n; c++) f[c] = gmaking_value(m, c, i)->offset;
  return rc == BS_OK ? add_int(m, &v->offset, f, "an offset is no multilinear function of the sizes",
                               &m->offsets[i], err)
                     : rc;
}

/* ---- the numbers of nodes -------------------------------------------------------------------- */

/* The constants of a program, once for all nodes that have it. */
static int32_t add_program(gmaking *m, uint32_t expr, bs_error *err) {
  gexpr *e = &m->graphs[0]->exprs[expr];
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < e->n_const && rc == BS_OK; i++) {
    int64_t f[GBUCKET_GRAPHS] = {0};
    double x[GBUCKET_GRAPHS] = {0};
    for (uint32_t c = 0; c < m->n; c++) {
      const gexpr *other = &m->graphs[c]->exprs[c == 0 ? expr : m->pairs[c].expr[expr]];
      memcpy(&f[c], &other->consts[i], sizeof f[c]);
      memcpy(&x[c], &other->consts[i], sizeof x[c]);
    }
    rc = e->compute == BS_I64 ? add_int(m, (int64_t *)&e->consts[i], f,
                                        "a constant of a program is no multilinear function", NULL, err)
                              : add_double(m, &e->consts[i], x, err);
  }
  return rc;
}

static int32_t add_node(gmaking *m, uint32_t id, bs_error *err) {
  gnode *n = &m->graphs[0]->nodes[id];
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < sizeof n->attrs / sizeof n->attrs[0] && rc == BS_OK; i++) {
    int64_t f[GBUCKET_GRAPHS] = {0};
    for (uint32_t c = 0; c < m->n; c++) f[c] = gmaking_node(m, c, id)->attrs[i];
    rc = add_int(m, &n->attrs[i], f, "an attribute is no multilinear function of the sizes", NULL, err);
  }
  for (uint32_t i = 0; i < sizeof n->numbers / sizeof n->numbers[0] && rc == BS_OK; i++) {
    double x[GBUCKET_GRAPHS] = {0};
    for (uint32_t c = 0; c < m->n; c++) x[c] = gmaking_node(m, c, id)->numbers[i];
    rc = add_double(m, &n->numbers[i], x, err);
  }
  return rc;
}

/* Two sizes may have one graph where a remainder of another one, or its comparison, makes another graph. */
static int32_t check_kept(gmaking *m, bs_error *err) {
  static const char why[] = "numbers that the model computes of the sizes are no linear functions of them";
  const uint32_t count = m->graphs[0]->n_kept;
  for (uint32_t c = 0; c < m->n; c++)
    if (m->graphs[c]->n_kept != count) return gmaking_refuse(err, why);
  for (uint32_t i = 0; i < count; i++) {
    int64_t f[GBUCKET_GRAPHS] = {0};
    gbucket_number n = {0};
    uint32_t kind = GKEPT_LINEAR;
    for (uint32_t c = 0; c < m->n; c++) {
      f[c] = m->graphs[c]->kept[i].number;
      if (m->graphs[c]->kept[i].kind > kind) kind = m->graphs[c]->kept[i].kind;
    }
    int above = 0, below = 0;
    for (uint32_t c = 0; c < m->n; c++) {
      above |= f[c] > 0;
      below |= f[c] < 0;
    }
    if (kind == GKEPT_UNKNOWN || (kind == GKEPT_FIXED && !all_equal(m, f))) m->looks = 1;
    if ((kind == GKEPT_LINEAR && !all_equal(m, f) && !gmaking_multilinear(m, f, &n)) ||
        (kind == GKEPT_SIDE && above && below))
      return gmaking_refuse(err, why);
  }
  return BS_OK;
}

/* Makes views that no node reads empty, so that they lie inside of their roots at every size. */
static void empty_dead(gmaking *m) {
  graph *g = m->graphs[0];
  for (uint32_t i = 0; i < g->n_values; i++) {
    gvalue *v = &g->values[i];
    if (v->kind != GV_VIEW || gmaking_is_live(m, i)) continue;
    v->offset = 0;
    if (v->rank > 0) v->dims[0] = 0;
    memset(v->strides, 0, sizeof v->strides);
  }
}

int32_t gmaking_table(gmaking *m, bs_error *err) {
  graph *g = m->graphs[0];
  const size_t slots = ((size_t)g->n_values + 1u) * BS_MAX_DIMS;
  m->dims = calloc(slots, sizeof *m->dims);
  m->strides = calloc(slots, sizeof *m->strides);
  m->offsets = calloc(slots / BS_MAX_DIMS, sizeof *m->offsets);
  int32_t rc = m->dims == NULL || m->strides == NULL || m->offsets == NULL ? gmaking_no_memory(err)
                                                                           : check_kept(m, err);
  for (uint32_t i = 0; i < g->n_values && rc == BS_OK; i++)
    if (gmaking_is_live(m, i)) rc = add_value(m, i, err);
  for (uint32_t id = g->first; id != GNONE && rc == BS_OK; id = g->nodes[id].next) rc = add_node(m, id, err);
  for (uint32_t i = 0; i < g->n_exprs && rc == BS_OK; i++)
    if (m->pairs[1].expr[i] != GNONE) rc = add_program(m, i, err);
  if (rc == BS_OK) empty_dead(m);
  return rc;
}
