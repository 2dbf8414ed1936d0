/* SPDX-License-Identifier: MIT
 * fuse_attention.c - softmax(scale Q K^T + mask) V that an exporter wrote as products, maps and a softmax
 * becomes one node. Scales are taken out of maps over Q, K and the scores; K and V that were repeated for the
 * heads of a group are taken as they were before. A row of -inf alone gives 0 where the unfused nodes give
 * NaN. */
#include <math.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/pass/form.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

/* A map of one output. What it reads its form says. */
static int is_one_map(const graph *g, uint32_t id) {
  return id != GNONE && g->nodes[id].op == GOP_MAP && g->nodes[id].n_out == 1;
}

/* ---- programs -------------------------------------------------------------------------------- */

/* x, but 0 where x is NaN: some exports put this after a softmax, for queries that see no key. Attention has
 * an attribute for it. *out_zero 0: it is plain x. */
static int is_guard(const form *f, int *out_zero) {
  double zero = 1;
  uint32_t select, test;
  const uint8_t out = form_operand(f, f->e->outs[0]);
  *out_zero = out != GX_IN;
  if (out == GX_IN) return 1;
  if (form_op(f, out, &select) != BS_EXPR_SELECT) return 0;
  const uint8_t a = f->e->steps[select].a, b = f->e->steps[select].b, c = f->e->steps[select].c;
  return form_op(f, form_operand(f, a), &test) == BS_EXPR_ISNAN &&
         form_operand(f, f->e->steps[test].a) == GX_IN && form_is_const(f, b, &zero) && zero == 0 &&
         form_operand(f, c) == GX_IN;
}

static double times(const double *in, const void *arg) {
  return in[0] * *(const double *)arg;
}
static int is_times(const form *f, double *out_scale) {
  return form_is_scaled(f, f->e->outs[0], GX_IN, out_scale) && program_is(f->e, times, out_scale);
}

/* Inputs of a map: scores and what is added to them, or says where they count. */
typedef struct masked {
  uint32_t scores, mask;
  double scale;
} masked;

static double added(const double *in, const void *arg) {
  const masked *m = arg;
  return in[m->scores] * m->scale + in[m->mask];
}
static int is_added(const form *f, masked *io) {
  form_sum s;
  if (!form_sum_of(f, f->e->outs[0], &s) || s.n != 2 || s.has_constant) return 0;
  const uint32_t i = s.operand[0] == io->scores ? 0 : 1;
  if (s.operand[i] != io->scores || s.operand[1 - i] != io->mask || s.factor[1 - i] != 1) return 0;
  io->scale = s.factor[i];
  return program_is(f->e, added, io);
}

static double selected(const double *in, const void *arg) {
  const masked *m = arg;
  return in[m->mask] != 0 ? in[m->scores] * m->scale : -INFINITY;
}
/* The scores where the mask is true, -inf elsewhere. */
static int is_selected(const form *f, masked *io) {
  uint32_t select, test;
  double least = 0;
  if (form_op(f, form_operand(f, f->e->outs[0]), &select) != BS_EXPR_SELECT) return 0;
  uint8_t mask = form_operand(f, f->e->steps[select].a);
  const int turned = form_op(f, mask, &test) == BS_EXPR_NOT;
  if (turned) mask = form_operand(f, f->e->steps[test].a);
  const uint8_t b = f->e->steps[select].b, c = f->e->steps[select].c;
  return mask == io->mask && form_is_const(f, turned ? b : c, &least) && isinf(least) && least < 0 &&
         form_is_scaled(f, turned ? c : b, (uint8_t)io->scores, &io->scale) && program_is(f->e, selected, io);
}

static int find_mask(const graph *g, const gnode *map, uint32_t scores, masked *out) {
  const form f = form_of(g, map);
  if (map->n_in != 2) return 0;
  *out = (masked){scores, 1 - scores, 1};
  const uint32_t dtype = g->values[map->in[1 - scores]].dtype;
  return bs_dtype_is_float(dtype) ? is_added(&f, out) : dtype == BS_BOOL && is_selected(&f, out);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* x of a map scale * x, and the scale; else the value itself and 1. The result has the value's dims: where x
 * is broadcast, it has fewer elements, and match_reshape gives none. */
static int32_t without_scale(graph *g, uint32_t value, uint32_t *out_value, double *io_scale, bs_error *err) {
  const uint32_t id = match_producer(g, value);
  *out_value = value;
  if (!is_one_map(g, id)) return BS_OK;
  const gnode n = g->nodes[id];
  const form f = form_of(g, &n);
  double scale = 1;
  if (g->values[n.in[0]].dtype != g->values[value].dtype || f.e->n_steps == 0 || !is_times(&f, &scale))
    return BS_OK;
  const gvalue v = g->values[value];
  uint32_t seen = GNONE;
  const int32_t rc = match_reshape(g, n.in[0], v.rank, v.dims, &seen, err);
  if (rc != BS_OK || seen == GNONE) return rc;
  *out_value = seen;
  *io_scale *= scale;
  return BS_OK;
}

/* [B,G,r,T,D], copied from [B,G,1,T,D] or [B,1,1,T,D] and seen as [B,G r,T,D], is [B,G,T,D] or [B,1,T,D]
 * again. `value` has four dims. */
static int32_t without_repeat(graph *g, uint32_t value, uint32_t *io_value, bs_error *err) {
  const gvalue v = g->values[value];
  const uint32_t id = match_producer(g, value);
  if (!is_one_map(g, id)) return BS_OK;
  const gnode n = g->nodes[id];
  const gvalue in = g->values[n.in[0]], out = g->values[n.out[0]];
  if (g->exprs[n.expr].outs[0] != GX_IN || in.dtype != out.dtype || in.rank != 5 || in.dims[2] != 1 ||
      out.dims[1] * out.dims[2] != v.dims[1] || in.dims[0] != v.dims[0] || in.dims[3] != v.dims[2] ||
      in.dims[4] != v.dims[3])
    return BS_OK;
  const int64_t dims[4] = {in.dims[0], in.dims[1], in.dims[3], in.dims[4]};
  const int64_t strides[4] = {in.strides[0], in.strides[1], in.strides[3], in.strides[4]};
  return graph_add_view(g, in.base, in.dtype, 4, dims, strides, in.offset, io_value, err);
}

/* ---- the pattern ----------------------------------------------------------------------------- */

typedef struct pattern {
  uint32_t last, guard, soft, map, scores; /* nodes, from the last to the first; GNONE */
  uint32_t mask;                           /* a value; GNONE */
  double scale;
  int64_t batch, heads;
  int nan_gives_0; /* the guard */
} pattern;

typedef struct parts {
  uint32_t q, k, v, mask, y;
} parts;

/* The value's last two dims are those of the scores: rows of keys, one for each query. */
static int is_rows(const graph *g, uint32_t value, uint32_t scores) {
  const gvalue *v = &g->values[value], *s = &g->values[scores];
  return v->rank >= 2 && v->dims[v->rank - 1] == s->dims[s->rank - 1] &&
         v->dims[v->rank - 2] == s->dims[s->rank - 2];
}

/* The product of Q and K^T below the softmax, with or without a map for scale and mask between. */
static int find_scores(const graph *g, pattern *io) {
  const uint32_t in = g->nodes[io->soft].in[0];
  double scale = 1;
  io->scores = match_only(g, in, GOP_CONTRACT, io->soft);
  if (io->scores != GNONE) return 1;
  io->map = match_only(g, in, GOP_MAP, io->soft);
  if (io->map == GNONE || g->nodes[io->map].n_out != 1) return 0;
  const gnode *map = &g->nodes[io->map];
  const form f = form_of(g, map);
  for (uint32_t s = 0; s < map->n_in; s++) {
    masked m = {0};
    io->scores = match_only(g, map->in[s], GOP_CONTRACT, io->map);
    if (io->scores == GNONE) continue;
    if (map->n_in == 1 && is_times(&f, &scale)) {
      io->scale = scale;
      return 1;
    }
    if (!find_mask(g, map, s, &m)) continue;
    io->scale = m.scale;
    io->mask = map->in[m.mask];
    return 1;
  }
  return 0;
}

/* Each value between is rows of keys, and is rounded no coarser than the result. */
static int are_rows(const graph *g, const pattern *p) {
  const uint32_t scores = g->nodes[p->scores].out[0], y = g->nodes[p->last].out[0];
  const uint32_t values[6] = {g->nodes[p->last].in[0],
                              g->nodes[p->soft].out[0],
                              g->nodes[p->soft].in[0],
                              p->map != GNONE ? g->nodes[p->map].out[0] : scores,
                              p->guard != GNONE ? g->nodes[p->guard].out[0] : scores,
                              scores};
  for (uint32_t i = 0; i < 6; i++)
    if (!is_rows(g, values[i], scores) || !match_keeps(g, values[i], y)) return 0;
  return 1;
}

/* Batch and heads: the leading dims of the scores, or those with which a mask is added to them; 1 where there
 * are none. Nothing between Q and y was broadcast, where both have these dims (as_heads, bs_op_check): Q has
 * no more matrices than the scores, these no more than the weights, and these no more than y. */
static void find_heads(const graph *g, pattern *io) {
  const gvalue *s = &g->values[g->nodes[io->scores].out[0]];
  const gvalue *of = s->rank != 4 && io->mask != GNONE ? &g->values[g->nodes[io->map].out[0]] : s;
  io->batch = of->rank == 4 ? of->dims[0] : 1;
  io->heads = of->rank > 2 ? of->dims[of->rank - 3u] : 1;
}

static int find_pattern(const graph *g, const gpass_ctx *ctx, uint32_t id, pattern *out) {
  const gnode *last = &g->nodes[id];
  *out = (pattern){id, GNONE, GNONE, GNONE, GNONE, GNONE, 1, 1, 1, 0};
  if (last->in[2] != GNONE || last->numbers[0] != 1 || last->activation != 0) return 0;
  out->soft = match_only(g, last->in[0], GOP_NORMALIZE, id);
  const uint32_t guard = out->soft == GNONE ? match_only(g, last->in[0], GOP_MAP, id) : GNONE;
  if (is_one_map(g, guard)) {
    const form f = form_of(g, &g->nodes[guard]);
    if (!is_guard(&f, &out->nan_gives_0)) return 0;
    out->guard = guard;
    out->soft = match_only(g, g->nodes[guard].in[0], GOP_NORMALIZE, guard);
  }
  if (out->soft == GNONE || g->nodes[out->soft].attrs[0] != BS_NORMALIZE_SOFTMAX ||
      g->nodes[out->soft].in[1] != GNONE)
    return 0;
  if (!find_scores(g, out)) {
    gpass_miss(ctx, id, "the softmax is not of a product alone, times a number, plus a mask");
    return 0;
  }
  const gnode *product = &g->nodes[out->scores];
  if (product->in[2] != GNONE || product->activation != 0) {
    gpass_miss(ctx, id, "the product of Q and K has a bias or an activation");
    return 0;
  }
  out->scale *= product->numbers[0];
  if (!are_rows(g, out)) {
    gpass_miss(ctx, id,
               "the rows of the scores are seen otherwise on their way, or rounded to a narrower dtype");
    return 0;
  }
  find_heads(g, out);
  return 1;
}

/* ---- its operands ---------------------------------------------------------------------------- */

/* An operand as [batch,heads,.,.], its last two dims turned or not. GNONE: it cannot be seen so, since it has
 * another number of matrices. */
static int32_t as_heads(graph *g, uint32_t value, const pattern *p, int turn, uint32_t *out_value,
                        bs_error *err) {
  const gvalue v = g->values[value];
  *out_value = GNONE;
  const int one = v.rank == 3 && v.dims[0] == 1;
  const int64_t dims[4] = {one ? 1 : p->batch, one ? 1 : p->heads, v.dims[v.rank - 2], v.dims[v.rank - 1]};
  int32_t rc = match_reshape(g, value, 4, v.rank == 4 ? v.dims : dims, out_value, err);
  if (rc != BS_OK || *out_value == GNONE || !turn) return rc;
  const gvalue h = g->values[*out_value];
  const int64_t turned[4] = {h.dims[0], h.dims[1], h.dims[3], h.dims[2]};
  const int64_t strides[4] = {h.strides[0], h.strides[1], h.strides[3], h.strides[2]};
  return graph_add_view(g, h.base, h.dtype, 4, turned, strides, h.offset, out_value, err);
}

/* K without its scale (whose map wrote K^T), K and V without the copies for the heads of a group. */
static int32_t keys_and_values(graph *g, uint32_t kt, uint32_t v, pattern *p, parts *io, bs_error *err) {
  uint32_t plain = kt;
  double scale = 1;
  int32_t rc = without_scale(g, kt, &plain, &scale, err);
  if (rc == BS_OK) rc = as_heads(g, plain, p, 1, &io->k, err);
  if (rc == BS_OK) rc = as_heads(g, v, p, 0, &io->v, err);
  if (rc != BS_OK || io->k == GNONE || io->v == GNONE) return rc;
  p->scale *= scale;
  uint32_t k = io->k, values = io->v;
  rc = without_repeat(g, io->k, &k, err);
  if (rc == BS_OK) rc = without_repeat(g, io->v, &values, err);
  if (rc == BS_OK && g->values[k].dims[1] == g->values[values].dims[1]) {
    io->k = k;
    io->v = values;
  }
  return rc;
}

static int32_t operands(graph *g, pattern *p, parts *out, bs_error *err) {
  const gnode product = g->nodes[p->scores], last = g->nodes[p->last];
  uint32_t q = product.in[0];
  *out = (parts){GNONE, GNONE, GNONE, GNONE, GNONE};
  int32_t rc = without_scale(g, product.in[0], &q, &p->scale, err);
  if (rc == BS_OK) rc = as_heads(g, q, p, 0, &out->q, err);
  if (rc == BS_OK) rc = keys_and_values(g, product.in[1], last.in[1], p, out, err);
  if (rc == BS_OK && p->mask != GNONE) rc = as_heads(g, p->mask, p, 0, &out->mask, err);
  if (rc == BS_OK) rc = as_heads(g, last.out[0], p, 0, &out->y, err);
  return rc;
}

static int dense_last(const graph *g, uint32_t value) {
  const gvalue *v = &g->values[value];
  return v->dims[3] == 1 || v->strides[3] == 1;
}

/* All inputs are there, of one dtype, with rows without gaps. That there is a y, and what sizes all have,
 * bs_op_check asks. */
static int fits(const graph *g, const pattern *p, const parts *o) {
  if (o->q == GNONE || o->k == GNONE || o->v == GNONE || (p->mask != GNONE && o->mask == GNONE)) return 0;
  const uint32_t dtype = g->values[o->k].dtype;
  return g->values[o->q].dtype == dtype && g->values[o->v].dtype == dtype && dense_last(g, o->q) &&
         dense_last(g, o->k) && dense_last(g, o->v);
}

/* A mask whose keys lie apart (a transposed table of biases) is copied, without what is broadcast. */
static int32_t with_dense_mask(graph *g, uint32_t at, uint32_t *io_mask, bs_error *err) {
  if (*io_mask == GNONE) return BS_OK;
  const gvalue v = g->values[*io_mask];
  if (v.dims[3] == 1 || v.strides[3] == 0 || v.strides[3] == 1) return BS_OK;
  int64_t dims[4], strides[4], step = 1;
  for (uint32_t i = 4; i-- > 0;) {
    dims[i] = v.strides[i] == 0 ? 1 : v.dims[i];
    strides[i] = v.strides[i] == 0 ? 0 : step;
    step *= dims[i];
  }
  const gexpr same = {.compute = v.dtype == BS_BOOL  ? BS_I64
                                 : v.dtype == BS_F64 ? BS_F64
                                                     : BS_F32,
                      .n_in = 1,
                      .n_out = 1};
  gnode copy = match_node(GOP_MAP, 1, 1);
  copy.origin = g->nodes[at].origin;
  int32_t rc = graph_add_view(g, v.base, v.dtype, 4, dims, v.strides, v.offset, &copy.in[0], err);
  if (rc == BS_OK) rc = graph_add_root(g, GV_TEMP, v.dtype, 4, dims, NULL, NULL, &copy.out[0], err);
  if (rc == BS_OK) copy.expr = graph_expr(g, &same);
  if (rc == BS_OK && copy.expr == GNONE)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a program");
  if (rc == BS_OK) rc = graph_add_node(g, &copy, at, NULL, err);
  if (rc == BS_OK) rc = graph_add_view(g, copy.out[0], v.dtype, 4, v.dims, strides, 0, io_mask, err);
  return rc;
}

static int32_t try_attention(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t *out_changes,
                             bs_error *err) {
  pattern p;
  parts o;
  if (!find_pattern(g, ctx, id, &p)) return BS_OK;
  int32_t rc = operands(g, &p, &o, err);
  if (rc != BS_OK) return rc;
  if (!fits(g, &p, &o)) {
    gpass_miss(ctx, id,
               "Q, K, V or the mask have gaps in their rows, other dtypes or another number of heads");
    return BS_OK;
  }
  gnode n = match_node(GOP_ATTENTION, 6, 2);
  n.in[0] = o.q;
  n.in[1] = o.k;
  n.in[2] = o.v;
  n.in[3] = o.mask;
  n.attrs[3] = p.nan_gives_0;
  n.numbers[0] = p.scale;
  n.out[0] = o.y;
  n.origin = graph_origin_join(g, graph_origin_join(g, g->nodes[id].origin, g->nodes[p.soft].origin),
                               g->nodes[p.scores].origin);
  if (match_accepts(g, &n)) rc = with_dense_mask(g, id, &n.in[3], err);
  if (rc != BS_OK) return rc;
  const uint32_t old[5] = {id, p.guard, p.soft, p.map, p.scores};
  return gpass_replace(g, ctx, &n, old, 5, out_changes, err);
}

int32_t gpass_fuse_attention(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (g->nodes[id].op != GOP_CONTRACT) continue;
    const int32_t rc = try_attention(g, ctx, id, out_changes, err);
    if (rc != BS_OK) return rc;
  }
  uint32_t dead = 0;
  return *out_changes > 0 ? gpass_dce(g, ctx, &dead, err) : BS_OK;
}
