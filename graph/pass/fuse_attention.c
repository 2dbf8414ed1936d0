/* SPDX-License-Identifier: MIT
 * fuse_attention.c - softmax(scale Q K^T + mask) V that an exporter wrote as products, maps and a softmax
 * becomes one node. Scales are taken out of maps over Q, K and the scores; K and V that were repeated for the
 * heads of a group are taken as they were before. A row of -inf alone gives 0 where the unfused nodes give
 * NaN. */
#include <math.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

static int is_one_map(const graph *g, uint32_t id, uint32_t n_in) {
  return id != GNONE && g->nodes[id].op == GOP_MAP && g->nodes[id].n_in == n_in && g->nodes[id].n_out == 1;
}

/* x, but 0 where x is NaN: what some exports put behind a softmax. */
static double guarded(const double *in, const void *arg) {
  (void)arg;
  return in[0];
}
static double times(const double *in, const void *arg) {
  return in[0] * *(const double *)arg;
}

typedef struct masked {
  uint32_t scores, mask;
  double scale;
  int is_bool;
} masked;
static double added(const double *in, const void *arg) {
  const masked *m = arg;
  return in[m->scores] * m->scale + in[m->mask];
}

/* Two slots of one map: scale * scores + mask. */
static int find_mask(const graph *g, const gnode *map, uint32_t scores, masked *out) {
  const gexpr *e = &g->exprs[map->expr];
  double in[GX_MAX_IN] = {0}, value[GX_MAX_OUT];
  if (map->n_in != 2) return 0;
  *out = (masked){scores, 1 - scores, 0, 0};
  const uint32_t dtype = g->values[map->in[1 - scores]].dtype;
  if (!bs_dtype_is_float(dtype)) {
    /* select: the scores where the mask is true, -inf elsewhere */
    in[scores] = 1;
    in[1 - scores] = 0;
    if (!program_value(e, in, value) || !(isinf(value[0]) && value[0] < 0)) return 0;
    in[1 - scores] = 1;
    if (dtype != BS_BOOL || !program_value(e, in, value)) return 0;
    out->scale = value[0];
    out->is_bool = 1;
    for (int i = -4; i <= 4; i++) {
      in[scores] = 2.3 * i;
      if (!program_value(e, in, value) ||
          fabs(value[0] - 2.3 * i * out->scale) > 1e-6 * fabs(2.3 * i * out->scale))
        return 0;
    }
    return out->scale != 0;
  }
  in[scores] = 1;
  if (!program_value(e, in, value)) return 0;
  out->scale = value[0];
  return out->scale != 0 && program_is(e, added, out);
}

/* x of a map scale * x, and the scale; else the value itself and 1. The result has the value's dims. */
static int32_t without_scale(graph *g, uint32_t value, uint32_t *out_value, double *io_scale, bs_error *err) {
  const uint32_t id = match_producer(g, value);
  *out_value = value;
  if (!is_one_map(g, id, 1)) return BS_OK;
  const gnode n = g->nodes[id];
  const double one[GX_MAX_IN] = {1};
  double scale[GX_MAX_OUT];
  if (g->values[n.in[0]].dtype != g->values[value].dtype || g->exprs[n.expr].n_steps == 0 ||
      !program_value(&g->exprs[n.expr], one, scale) || scale[0] == 0 ||
      !program_is(&g->exprs[n.expr], times, scale))
    return BS_OK;
  const gvalue v = g->values[value], in = g->values[n.in[0]], out = g->values[n.out[0]];
  if (graph_count(&in) != graph_count(&out)) return BS_OK;
  uint32_t seen = GNONE;
  const int32_t rc = match_reshape(g, n.in[0], v.rank, v.dims, &seen, err);
  if (rc != BS_OK || seen == GNONE) return rc;
  *out_value = seen;
  *io_scale *= scale[0];
  return BS_OK;
}

/* [B,G,r,T,D], copied from [B,G,1,T,D] and seen as [B,G r,T,D], is [B,G,T,D] again. */
static int32_t without_repeat(graph *g, uint32_t value, uint32_t *io_value, bs_error *err) {
  const gvalue v = g->values[value];
  const uint32_t id = match_producer(g, value);
  if (!is_one_map(g, id, 1) || v.rank != 4) return BS_OK;
  const gnode n = g->nodes[id];
  const gvalue in = g->values[n.in[0]], out = g->values[n.out[0]];
  if (g->exprs[n.expr].n_steps != 0 || in.dtype != out.dtype || out.rank != 5 || in.dims[2] != 1 ||
      out.dims[1] * out.dims[2] != v.dims[1] || in.dims[0] != v.dims[0] || in.dims[1] != out.dims[1] ||
      in.dims[3] != v.dims[2] || in.dims[4] != v.dims[3])
    return BS_OK;
  const int64_t dims[4] = {in.dims[0], in.dims[1], in.dims[3], in.dims[4]};
  const int64_t strides[4] = {in.strides[0], in.strides[1], in.strides[3], in.strides[4]};
  return graph_add_view(g, in.base, in.dtype, 4, dims, strides, in.offset, io_value, err);
}

/* Operands as [B,H,.,.]: rank 3 gets a leading 1; the last two dims of K are turned. */
static int32_t as_heads(graph *g, uint32_t value, int turn, uint32_t *out_value, bs_error *err) {
  const gvalue v = g->values[value];
  int64_t dims[4] = {1, 0, 0, 0}, strides[4] = {1, 0, 0, 0};
  const uint32_t pad = 4 - v.rank;
  for (uint32_t i = 0; i < v.rank; i++) {
    dims[pad + i] = v.dims[i];
    strides[pad + i] = v.strides[i];
  }
  if (turn) {
    const int64_t d = dims[2], s = strides[2];
    dims[2] = dims[3];
    strides[2] = strides[3];
    dims[3] = d;
    strides[3] = s;
  }
  return graph_add_view(g, v.base, v.dtype, 4, dims, strides, v.offset, out_value, err);
}

static int dense_last(const graph *g, uint32_t value) {
  const gvalue *v = &g->values[value];
  return v->dims[3] == 1 || v->strides[3] == 1;
}

typedef struct parts {
  uint32_t q, k, v, mask, y;
  double scale;
} parts;

/* Q, K, V and the mask as attention wants them; k and v GNONE where one cannot be had. */
static int32_t operands(graph *g, uint32_t q, uint32_t kt, uint32_t v, parts *io, bs_error *err) {
  uint32_t plain = q;
  int32_t rc = without_scale(g, q, &plain, &io->scale, err);
  if (rc == BS_OK) rc = as_heads(g, plain, 0, &io->q, err);
  if (rc == BS_OK) rc = as_heads(g, v, 0, &io->v, err);
  if (rc == BS_OK) rc = as_heads(g, kt, 1, &io->k, err);
  if (rc != BS_OK) return rc;
  /* The scale of K: its map wrote K^T, so that its input is turned as well. */
  const uint32_t scaled_kt = match_producer(g, kt);
  double scale = 1;
  rc = without_scale(g, kt, &plain, &scale, err);
  if (rc == BS_OK && scaled_kt != GNONE && plain != kt) {
    rc = as_heads(g, plain, 1, &io->k, err);
    io->scale *= scale;
  }
  uint32_t before_k = io->k, before_v = io->v;
  if (rc == BS_OK) rc = without_repeat(g, io->k, &before_k, err);
  if (rc == BS_OK) rc = without_repeat(g, io->v, &before_v, err);
  if (rc == BS_OK && before_k != io->k && before_v != io->v &&
      g->values[before_k].dims[1] == g->values[before_v].dims[1]) {
    io->k = before_k;
    io->v = before_v;
  }
  return rc;
}

/* Sizes that attention asks for, and rows without gaps. */
static int fits(const graph *g, const parts *p) {
  const gvalue *q = &g->values[p->q], *k = &g->values[p->k], *v = &g->values[p->v];
  if (q->dtype != k->dtype || k->dtype != v->dtype || !bs_dtype_is_float(q->dtype)) return 0;
  return k->dims[0] == q->dims[0] && v->dims[0] == q->dims[0] && v->dims[1] == k->dims[1] && k->dims[1] > 0 &&
         q->dims[1] % k->dims[1] == 0 && k->dims[3] == q->dims[3] && v->dims[2] == k->dims[2] &&
         dense_last(g, p->q) && dense_last(g, p->k) && dense_last(g, p->v);
}

static int32_t try_attention(graph *g, uint32_t id, uint32_t *out_changes, bs_error *err) {
  const gnode last = g->nodes[id];
  if (last.in[2] != GNONE || last.numbers[0] != 1 || last.activation != 0) return BS_OK;
  uint32_t below = id, soft = match_only(g, last.in[0], GOP_NORMALIZE, id);
  const uint32_t guard = soft == GNONE ? match_only(g, last.in[0], GOP_MAP, id) : GNONE;
  if (is_one_map(g, guard, 1) && program_is(&g->exprs[g->nodes[guard].expr], guarded, NULL)) {
    below = guard;
    soft = match_only(g, g->nodes[guard].in[0], GOP_NORMALIZE, below);
  }
  if (soft == GNONE || g->nodes[soft].attrs[0] != BS_NORMALIZE_SOFTMAX || g->nodes[soft].in[1] != GNONE)
    return BS_OK;
  uint32_t scores = match_only(g, g->nodes[soft].in[0], GOP_CONTRACT, soft);
  parts p = {.mask = GNONE, .scale = 1};
  if (scores == GNONE) {
    const uint32_t map_id = match_only(g, g->nodes[soft].in[0], GOP_MAP, soft);
    if (map_id == GNONE || g->nodes[map_id].n_out != 1) return BS_OK;
    const gnode map = g->nodes[map_id];
    for (uint32_t s = 0; s < map.n_in && scores == GNONE; s++) {
      masked m = {0};
      const double one[GX_MAX_IN] = {1};
      double scale[GX_MAX_OUT] = {0};
      const uint32_t found = match_only(g, map.in[s], GOP_CONTRACT, map_id);
      if (found == GNONE) continue;
      if (map.n_in == 1 && program_value(&g->exprs[map.expr], one, scale) && scale[0] != 0 &&
          program_is(&g->exprs[map.expr], times, scale)) {
        scores = found;
        p.scale = scale[0];
      } else if (find_mask(g, &map, s, &m)) {
        scores = found;
        p.scale = m.scale;
        p.mask = map.in[m.mask];
      }
    }
  }
  if (scores == GNONE) return BS_OK;
  const gnode product = g->nodes[scores];
  const gvalue shape = g->values[product.out[0]];
  if (product.in[2] != GNONE || product.activation != 0 || shape.rank < 3 || shape.rank > 4 ||
      g->values[last.out[0]].rank != shape.rank || g->values[last.in[1]].rank != shape.rank)
    return BS_OK;
  p.scale *= product.numbers[0];
  int32_t rc = operands(g, product.in[0], product.in[1], last.in[1], &p, err);
  if (rc == BS_OK && p.mask != GNONE) rc = as_heads(g, p.mask, 0, &p.mask, err);
  if (rc == BS_OK) rc = as_heads(g, last.out[0], 0, &p.y, err);
  if (rc != BS_OK || !fits(g, &p) || !dense_last(g, p.y)) return rc;
  gnode n = match_node(GOP_ATTENTION, 6, 2);
  n.in[0] = p.q;
  n.in[1] = p.k;
  n.in[2] = p.v;
  n.in[3] = p.mask;
  n.numbers[0] = p.scale;
  n.out[0] = p.y;
  n.origin = graph_origin_join(g, graph_origin_join(g, last.origin, g->nodes[soft].origin), product.origin);
  const uint32_t at = g->nodes[id].next;
  if (g->values[last.out[0]].rank == 4) n.out[0] = last.out[0];
  graph_remove_node(g, id);
  ++*out_changes;
  return graph_add_node(g, &n, at, NULL, err);
}

int32_t gpass_fuse_attention(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (g->nodes[id].op != GOP_CONTRACT) continue;
    const int32_t rc = try_attention(g, id, out_changes, err);
    if (rc != BS_OK) return rc;
  }
  uint32_t dead = 0;
  return *out_changes > 0 ? gpass_dce(g, ctx, &dead, err) : BS_OK;
}
