/* SPDX-License-Identifier: MIT
 * bucket_fits.c - what must follow the sizes in a plan of the largest ones, and whether it holds for all. */
#include "graph/run/bucket_make.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

int gmaking_varies(const gmaking *m, uint32_t value) {
  if (m->offsets[value] != 0) return 1;
  for (uint32_t d = 0; d < BS_MAX_DIMS; d++)
    if (m->dims[value * BS_MAX_DIMS + d] != 0 || m->strides[value * BS_MAX_DIMS + d] != 0) return 1;
  return 0;
}

static int32_t add_u32(uint32_t **list, uint32_t *n, uint32_t room, uint32_t what, bs_error *err) {
  if (*list == NULL) *list = calloc(room + 1u, sizeof **list);
  if (*list == NULL) return gmaking_no_memory(err);
  (*list)[(*n)++] = what;
  return BS_OK;
}

/* Roots with a number that varies, in themselves or in a view. */
static int32_t add_roots(gmaking *m, gbinding *b, bs_error *err) {
  const graph *g = b->g;
  gbucket *k = m->bucket;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < g->n_values && rc == BS_OK; i++) {
    const gvalue *v = &g->values[i];
    int any = 0;
    if (v->kind == GV_VIEW || v->kind == GV_FREE) continue;
    for (uint32_t at = i; at != GNONE && !any; at = g->values[at].next_view) any = gmaking_varies(m, at);
    if (any) rc = add_u32(&k->roots, &k->n_roots, g->n_values, i, err);
  }
  return rc;
}

/* *io_any becomes 1 where the numbers or the contents of a weight, or of a part of one, vary. */
static int32_t weight_varies(const gmaking *m, uint32_t weight, int *io_any, bs_error *err) {
  const graph *g = m->graphs[0];
  const uint32_t base = g->values[weight].base;
  const gvalue *of[GBUCKET_GRAPHS];
  int same, leading;
  *io_any |= gmaking_varies(m, weight) || gmaking_varies(m, base);
  if (*io_any || g->values[base].flags & (GV_QUANT | GV_JOINED)) return BS_OK;
  const int32_t rc = gmaking_compare(m, base, of, &same, &leading, err);
  *io_any |= rc == BS_OK && !same && !leading;
  return rc;
}

/* A weight is packed once for all sizes. */
int32_t gmaking_weights(const gmaking *m, bs_error *err) {
  const graph *g = m->graphs[0];
  int any = 0;
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
    const uint32_t w = g->nodes[id].weight;
    if (w == GNONE) continue;
    const gjoin *join = g->values[w].flags & GV_JOINED ? g->values[w].data : NULL;
    int32_t rc = weight_varies(m, w, &any, err);
    for (uint32_t i = 0; join != NULL && i < join->n && rc == BS_OK; i++)
      rc = weight_varies(m, join->parts[i], &any, err);
    if (rc != BS_OK) return rc;
    if (any) return gmaking_refuse(err, "the sizes change a weight");
  }
  return BS_OK;
}

static int same_number(const gmaking *m, uint32_t a, uint32_t b) {
  const gbucket_number *numbers = m->bucket->numbers;
  return a == b ||
         (a != 0 && b != 0 && memcmp(numbers[a - 1].c, numbers[b - 1].c, sizeof numbers[a - 1].c) == 0);
}

/* May a plan that was prepared for the largest sizes take the args of every size (core/op/run.c,
 * core/op/dynamic.c)? */
static int plan_shrinks(const gmaking *m, const bs_plan *plan, const uint32_t *values, uint32_t nargs) {
  uint32_t tied[BS_MAX_OP_ARGS * BS_MAX_DIMS + 1], batch = GNONE;
  memset(tied, 0xff, sizeof tied);
  for (uint32_t i = 0; i < nargs; i++) {
    if (values[i] == GNONE) continue;
    const uint32_t rank = plan->args[i].rank, *dims = &m->dims[values[i] * BS_MAX_DIMS],
                   *strides = &m->strides[values[i] * BS_MAX_DIMS];
    for (uint32_t d = 0; d < rank; d++) {
      const uint32_t tie = plan->links.links[i][d];
      const int free_dim = plan->dynamic ? tie != 0 : d == 0 && plan->args[i].shrinks;
      if (dims[d] != 0 && !free_dim) return 0;
      if (strides[d] != 0 && (!plan->dynamic || d + 1 == rank)) return 0;
      uint32_t *same = plan->dynamic && tie != 0                                ? &tied[tie]
                       : !plan->dynamic && d == 0 && plan->batch_args >> i & 1u ? &batch
                                                                                : NULL;
      if (same != NULL && *same == GNONE) *same = dims[d];
      if (same != NULL && !same_number(m, *same, dims[d])) return 0;
    }
  }
  return 1;
}

static int lies_in(const void *at, const void *memory, size_t bytes) {
  return (uintptr_t)at >= (uintptr_t)memory && (uintptr_t)at < (uintptr_t)memory + bytes;
}

/* Attributes, numbers and programs are prepared. */
static int query_varies(const gmaking *m, const gnode *n) {
  const gexpr *e = n->op == GOP_MAP ? &m->graphs[0]->exprs[n->expr] : NULL;
  for (uint32_t i = 0; i < m->bucket->n_numbers; i++) {
    const void *at = m->bucket->numbers[i].at;
    if (lies_in(at, n, sizeof *n) || (e != NULL && lies_in(at, e, sizeof *e))) return 1;
  }
  return 0;
}

/* Attention of few queries is asked with another flag than that of many (graph_query). */
static int asks_otherwise(const gmaking *m, const gnode *n) {
  const uint32_t slot = n->op == GOP_ATTENTION && m->graphs[0]->tokenwise == BS_BITS_BATCH
                            ? m->dims[n->in[0] * BS_MAX_DIMS + 2]
                            : 0;
  if (slot == 0) return 0;
  const gbucket_number *number = &m->bucket->numbers[slot - 1];
  const gbucket_range *r = &m->bucket->range;
  const int64_t u = r->sizes[r->symbol[0]] - r->least[0],
                v = r->n > 1 ? r->sizes[r->symbol[1]] - r->least[1] : 0;
  return number->c[0] > GRAPH_TOKENWISE_QUERIES &&
         (gbucket_number_at(number, u, 0) <= GRAPH_TOKENWISE_QUERIES ||
          gbucket_number_at(number, 0, v) <= GRAPH_TOKENWISE_QUERIES ||
          gbucket_number_at(number, u, v) <= GRAPH_TOKENWISE_QUERIES);
}

static int32_t add_again(gmaking *m, const gbinding *b, bs_error *err) {
  gbucket *k = m->bucket;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < b->n_steps && rc == BS_OK; i++) {
    uint32_t values[BS_MAX_OP_ARGS];
    const gnode *n = &b->g->nodes[b->steps[i].node];
    const uint32_t nargs = graph_arguments(n, values);
    if (b->steps[i].layer != NULL) continue; /* a layer takes fewer rows than it was built for */
    if (asks_otherwise(m, n) || query_varies(m, n) || !plan_shrinks(m, b->steps[i].plan, values, nargs))
      rc = add_u32(&k->again, &k->n_again, b->n_steps, i, err);
  }
  return rc;
}

/* ---- every corner of the range --------------------------------------------------------------- */

static int32_t check_numbers(const gmaking *m, bs_error *err) {
  const graph *g = m->graphs[0];
  for (uint32_t i = 0; i < g->n_values; i++)
    for (uint32_t d = 0; d < g->values[i].rank && gmaking_is_live(m, i); d++) {
      const uint32_t slot = m->dims[i * BS_MAX_DIMS + d];
      if (slot == 0) continue;
      const gbucket_number *n = &m->bucket->numbers[slot - 1];
      const int64_t dim = g->values[i].dims[d];
      if (dim < 0 || dim > n->c[0]) return gmaking_refuse(err, "a dim is largest where the sizes are not");
    }
  return BS_OK;
}

/* Sizes at the ends of the range: a multilinear number has its extremes there. */
static int32_t check_ends(gmaking *m, gbinding *b, bs_error *err) {
  const gbucket_range *r = &m->bucket->range;
  int32_t rc = BS_OK;
  for (uint32_t c = 1; c < m->corners && rc == BS_OK; c++) {
    memcpy(m->sizes, r->sizes, r->n_sizes * sizeof *m->sizes);
    for (uint32_t k = 0; k < r->n; k++)
      if (c >> k & 1u) m->sizes[r->symbol[k]] = r->least[k];
    gbucket_write(m->bucket, b->g, m->sizes);
    rc = check_numbers(m, err);
    if (rc == BS_OK && graph_validate(b->g, "at the smallest sizes", NULL) != BS_OK)
      rc = gmaking_refuse(err, "with the numbers of the smallest sizes the graph is not valid");
    if (rc == BS_OK) rc = gbinding_same_life(b, err);
  }
  gbucket_write(m->bucket, b->g, r->sizes);
  return rc;
}

/* Roots in others' memory, in the order of the steps, so that the other's place is known. */
static int32_t add_over(gmaking *m, const gbinding *b, bs_error *err) {
  const graph *g = b->g;
  gbucket *k = m->bucket;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < b->n_steps && rc == BS_OK; i++) {
    const gnode *n = &g->nodes[b->steps[i].node];
    for (uint32_t o = 0; o < n->n_out && rc == BS_OK; o++)
      if (n->out[o] != GNONE && b->life.over[n->out[o]] != GPLAN_NONE)
        rc = add_u32(&k->over, &k->n_over, g->n_values, n->out[o], err);
  }
  return rc;
}

int32_t gmaking_fits(gmaking *m, gbinding *b, bs_error *err) {
  int32_t rc = add_roots(m, b, err);
  if (rc == BS_OK) rc = add_over(m, b, err);
  if (rc == BS_OK) rc = add_again(m, b, err);
  return rc == BS_OK ? check_ends(m, b, err) : rc;
}
