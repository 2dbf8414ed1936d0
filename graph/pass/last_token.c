/* SPDX-License-Identifier: MIT
 * last_token.c - a product of which only some rows are read, at equal distances, is made of these rows alone:
 * the head of a language model, whose last token is what the next one comes from. */
#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"

/* The rows of a [B,N] value that a view of it with whole rows shows: first, how many, and the step between
 * them. */
static int rows_of(const gvalue *v, int64_t n, int64_t *out_first, int64_t *out_count, int64_t *out_step) {
  int64_t count = 1, step = 0;
  if (v->rank == 0 || v->dims[v->rank - 1] != n || v->strides[v->rank - 1] != 1 || v->offset % n != 0)
    return 0;
  for (uint32_t i = v->rank - 1u; i-- > 0;) {
    if (v->dims[i] == 1) continue;
    if (v->strides[i] % n != 0 || v->strides[i] == 0) return 0;
    const int64_t s = v->strides[i] / n;
    if (count == 1)
      step = s;
    else if (s != step * count)
      return 0;
    count *= v->dims[i];
  }
  *out_first = v->offset / n;
  *out_count = count;
  *out_step = step;
  return count > 0;
}

/* The root, or the only view of it, where nothing else of it is read; GNONE. */
static uint32_t sole_view(const graph *g, uint32_t root) {
  uint32_t found = GNONE;
  for (uint32_t i = root; i != GNONE; i = g->values[i].next_view) {
    if (g->values[i].first_use == GNONE) continue;
    if (found != GNONE) return GNONE;
    found = i;
  }
  return found;
}

/* No reader sees all of it. */
static int reads_parts(const graph *g, uint32_t root) {
  uint32_t readers = 0;
  for (uint32_t i = root; i != GNONE; i = g->values[i].next_view) {
    if (g->values[i].first_use == GNONE) continue;
    if (graph_count(&g->values[i]) >= graph_count(&g->values[root])) return 0;
    readers++;
  }
  return readers > 0;
}

static int32_t try_rows(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t *out_changes, bs_error *err) {
  const gnode product = g->nodes[id];
  const gvalue y = g->values[product.out[0]], x = g->values[product.in[0]];
  const uint32_t root = y.base;
  int64_t first = 0, count = 0, step = 0;
  if (g->values[root].flags & GV_OUTPUT || match_producer(g, product.out[0]) != id) return BS_OK;
  const uint32_t seen = sole_view(g, root);
  if (seen == GNONE && reads_parts(g, root)) gpass_miss(ctx, id, "several parts of the product are read");
  if (seen == GNONE || graph_count(&g->values[seen]) >= graph_count(&y)) return BS_OK;
  const gvalue v = g->values[seen];
  if (!rows_of(&v, y.dims[1], &first, &count, &step)) {
    gpass_miss(ctx, id, "what is read of the product are no whole rows at equal distances");
    return BS_OK;
  }
  const int64_t in_dims[2] = {count, x.dims[1]},
                in_strides[2] = {(step > 0 ? step : 1) * x.strides[0], x.strides[1]};
  const int64_t out_dims[2] = {count, y.dims[1]};
  gnode n = product;
  uint32_t rows, again;
  int32_t rc = graph_add_view(g, x.base, x.dtype, 2, in_dims, in_strides, x.offset + first * x.strides[0],
                              &n.in[0], err);
  if (rc == BS_OK) rc = graph_add_root(g, GV_TEMP, y.dtype, 2, out_dims, NULL, NULL, &rows, err);
  if (rc != BS_OK) return rc;
  n.out[0] = rows;
  rc = match_reshape(g, rows, v.rank, v.dims, &again, err);
  if (rc != BS_OK) return rc;
  if (again == GNONE || !match_accepts(g, &n)) {
    gpass_miss(ctx, id, "the product does not take the rows that are read");
    return BS_OK;
  }
  rc = graph_replace(g, seen, again, err);
  if (rc != BS_OK) return rc;
  const uint32_t at = g->nodes[id].next;
  graph_remove_node(g, id);
  ++*out_changes;
  return graph_add_node(g, &n, at, NULL, err);
}

int32_t gpass_last_token(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (!graph_is_product(g->nodes[id].op)) continue;
    const int32_t rc = try_rows(g, ctx, id, out_changes, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}
