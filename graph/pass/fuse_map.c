/* SPDX-License-Identifier: MIT
 * fuse_map.c - a map whose result one other map alone reads, element by element, becomes part of that map. */
#include <string.h>

#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

/* A view of `value` with `dims`, a reshape of the iteration space (rank, space) of its map. Its dims of 1 are
 * broadcast where the space has larger ones. GNONE: there is no such view. */
static int32_t see_as(graph *g, uint32_t value, uint32_t rank, const int64_t *space, uint32_t new_rank,
                      const int64_t *dims, uint32_t *out_value, bs_error *err) {
  const gvalue v = g->values[value];
  int64_t strides[BS_MAX_DIMS] = {0}, seen[BS_MAX_DIMS] = {0}, shape[BS_MAX_DIMS] = {0};
  int same = rank == new_rank;
  for (uint32_t i = 0; i < rank; i++) strides[i] = v.dims[i] == space[i] ? v.strides[i] : 0;
  for (uint32_t i = 0; i < rank && same; i++) same = space[i] == dims[i];
  *out_value = value;
  if (same) return BS_OK;
  *out_value = GNONE;
  if (!graph_reshape_strides(rank, space, strides, new_rank, dims, seen)) return BS_OK;
  for (uint32_t i = 0; i < new_rank; i++) {
    shape[i] = dims[i] > 1 && seen[i] == 0 ? 1 : dims[i];
    if (shape[i] == 1) seen[i] = 1;
  }
  return graph_add_view(g, v.base, v.dtype, new_rank, shape, seen, v.offset, out_value, err);
}

typedef struct pair {
  uint32_t producer, consumer, slot; /* slot: the consumer's input that the producer gives */
} pair;

/* A map gives the input. *out_why: what keeps it from being fused, before the programs are compared; NULL. */
static int is_pair(const graph *g, uint32_t consumer, uint32_t slot, pair *found, const char **out_why) {
  const gnode *c = &g->nodes[consumer];
  const uint32_t value = c->in[slot];
  const gvalue *v = &g->values[value], *root = &g->values[v->base], *out = &g->values[c->out[0]];
  if (root->producer == GNONE || g->nodes[root->producer].op != GOP_MAP) return 0;
  const gnode *p = &g->nodes[root->producer];
  int twice = 0, wide = 0, state = 0;
  for (uint32_t i = 0; i < c->n_in; i++) twice |= i != slot && g->values[c->in[i]].base == v->base;
  for (uint32_t i = 0; i < v->rank; i++) wide |= v->dims[i] != out->dims[i];
  for (uint32_t i = 0; i < p->n_in; i++) state |= g->values[g->values[p->in[i]].base].kind == GV_STATE;
  *found = (pair){root->producer, consumer, slot};
  *out_why =
      p->n_out != 1                             ? "the map in front has several results"
      : graph_sole_user(g, v->base) != consumer ? "the map in front is read by another node or port too"
      : twice                                   ? "the map in front is read as two values"
      : !graph_is_dense(v) || graph_count(v) != graph_count(root) ? "a part of the map in front is read"
      : wide  ? "the map in front is broadcast: its elements would be computed many times"
      : state ? "the map in front reads a state, which may change in between"
              : NULL;
  return 1;
}

/* The inputs of the fused map: the consumer's, its slot given to the first new one of the producer's. 0: too
 * many. */
static int place_inputs(const uint32_t *seen, uint32_t n, uint32_t slot, uint32_t *in, uint32_t *io_n,
                        uint8_t *maps, int *out_slot_free) {
  *out_slot_free = 1;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t at = 0;
    while (at < *io_n && (in[at] != seen[i] || (at == slot && *out_slot_free))) at++;
    if (at == *io_n && *out_slot_free) {
      at = slot;
      *out_slot_free = 0;
    } else if (at == *io_n) {
      if (*io_n == GX_MAX_IN) return 0;
      ++*io_n;
    }
    in[at] = seen[i];
    maps[i] = (uint8_t)at;
  }
  return 1;
}

static uint32_t rounding(const graph *g, const gexpr *c, const gexpr *p, uint32_t value) {
  const uint32_t dtype = g->values[value].dtype;
  (void)c;
  return dtype == p->compute ? 0 : dtype;
}

static int32_t fuse(graph *g, const gpass_ctx *ctx, const pair *w, uint32_t *out_changes, bs_error *err) {
  gnode p = g->nodes[w->producer], c = g->nodes[w->consumer];
  const gvalue root = g->values[p.out[0]], out = g->values[c.out[0]];
  gexpr e = g->exprs[c.expr];
  const gexpr pe = g->exprs[p.expr];
  uint32_t seen[GX_MAX_IN], in[GX_MAX_IN], n_in = c.n_in;
  uint8_t maps[GX_MAX_IN];
  int slot_free = 1, reshaped = root.rank != out.rank;
  for (uint32_t i = 0; i < root.rank && !reshaped; i++) reshaped = root.dims[i] != out.dims[i];
  if (e.compute != pe.compute || (reshaped && program_has(&pe, BS_EXPR_INDEX))) {
    gpass_miss(ctx, w->consumer,
               "the map in front computes in another dtype, or reads the places of other dims");
    return BS_OK;
  }
  for (uint32_t i = 0; i < p.n_in; i++) {
    const int32_t rc = see_as(g, p.in[i], root.rank, root.dims, out.rank, out.dims, &seen[i], err);
    if (rc != BS_OK) return rc; /* one that cannot be seen so is GNONE, which no map accepts */
  }
  memcpy(in, c.in, sizeof in);
  if (!place_inputs(seen, p.n_in, w->slot, in, &n_in, maps, &slot_free)) {
    gpass_miss(ctx, w->consumer, "both maps have more inputs than one may have");
    return BS_OK;
  }
  if (!program_join(&e, (uint8_t)w->slot, &pe, maps, rounding(g, &e, &pe, p.out[0]))) {
    gpass_miss(ctx, w->consumer, "both programs have more steps or constants than one may have");
    return BS_OK;
  }
  e.n_in = (uint8_t)n_in;
  if (slot_free) {
    program_drop_input(&e, (uint8_t)w->slot);
    memmove(&in[w->slot], &in[w->slot + 1u], (n_in - w->slot - 1u) * sizeof in[0]);
    n_in--;
  }
  const uint32_t number = graph_expr(g, &e), origin = graph_origin_join(g, c.origin, p.origin);
  if (number == GNONE) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a program");
  gnode fused = c;
  fused.n_in = (uint8_t)n_in;
  fused.expr = number;
  memcpy(fused.in, in, sizeof in);
  if (!match_accepts(g, &fused)) {
    gpass_miss(ctx, w->consumer,
               "an input of the map in front cannot be seen with the dims of this one without a copy");
    return BS_OK;
  }
  for (uint32_t i = 0; i < c.n_in || i < n_in; i++) {
    const int32_t rc = graph_set_input(g, w->consumer, i, i < n_in ? in[i] : GNONE, err);
    if (rc != BS_OK) return rc;
  }
  gnode *n = &g->nodes[w->consumer];
  n->n_in = (uint8_t)n_in;
  n->expr = number;
  n->origin = origin;
  graph_remove_node(g, w->producer);
  ++*out_changes;
  return BS_OK;
}

int32_t gpass_fuse_map(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first; id != GNONE; id = g->nodes[id].next) {
    if (g->nodes[id].op != GOP_MAP) continue;
    for (uint32_t slot = 0; slot < g->nodes[id].n_in;) {
      pair w;
      const uint32_t before = *out_changes;
      const char *why = NULL;
      const int found = is_pair(g, id, slot, &w, &why);
      if (found && why != NULL) gpass_miss(ctx, id, "%s", why);
      const int32_t rc = found && why == NULL ? fuse(g, ctx, &w, out_changes, err) : BS_OK;
      if (rc != BS_OK) return rc;
      slot = *out_changes > before ? 0 : slot + 1u;
    }
  }
  return BS_OK;
}
