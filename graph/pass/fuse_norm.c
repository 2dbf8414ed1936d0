/* SPDX-License-Identifier: MIT
 * fuse_norm.c - softmax, RMS and layer normalisation that an exporter wrote as reductions and maps become one
 * node. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

/* A reduction of that kind over the last dimension alone, that gives `value`; its node, GNONE. */
static uint32_t row_fold(const graph *g, uint32_t value, uint32_t kind) {
  const uint32_t id = match_producer(g, value);
  if (id == GNONE || g->nodes[id].op != GOP_REDUCE || g->nodes[id].attrs[0] != kind) return GNONE;
  const gvalue *in = &g->values[g->nodes[id].in[0]], *out = &g->values[g->nodes[id].out[0]];
  if (in->rank == 0 || out->rank != in->rank || out->dims[in->rank - 1] != 1) return GNONE;
  for (uint32_t i = 0; i + 1 < in->rank; i++)
    if (in->dims[i] != out->dims[i]) return GNONE;
  return id;
}

static int is_map(const graph *g, uint32_t id, uint32_t n_in) {
  return id != GNONE && g->nodes[id].op == GOP_MAP && g->nodes[id].n_in == n_in && g->nodes[id].n_out == 1;
}

/* The slot of a map that reads these elements. */
static uint32_t slot_of(const graph *g, const gnode *n, uint32_t value) {
  uint32_t i = 0;
  while (i < n->n_in && !match_same(g, n->in[i], value)) i++;
  return i;
}

/* Writes the node in place of the map `last`, whose output it gives. */
static int32_t put_norm(graph *g, uint32_t last, gnode *n, uint32_t *out_changes, bs_error *err) {
  const uint32_t out = g->nodes[last].out[0], at = g->nodes[last].next;
  n->origin = g->nodes[last].origin;
  graph_remove_node(g, last);
  n->out[0] = out;
  ++*out_changes;
  return graph_add_node(g, n, at, NULL, err);
}

static int dense_rows(const graph *g, uint32_t value) {
  const gvalue *v = &g->values[value];
  return v->rank > 0 && (v->dims[v->rank - 1] == 1 || v->strides[v->rank - 1] == 1);
}

/* ---- softmax: e / sum(e), e = exp(x - max(x)) or exp(x) --------------------------------------- */

static double quotient(const double *in, const void *arg) {
  const uint32_t *slots = arg;
  return in[slots[0]] / in[slots[1]];
}
static double exponential(const double *in, const void *arg) {
  const uint32_t *slots = arg;
  return exp(slots[1] != GNONE ? in[slots[0]] - in[slots[1]] : in[slots[0]]);
}

static int32_t try_softmax(graph *g, uint32_t id, uint32_t *out_changes, bs_error *err) {
  const gnode last = g->nodes[id];
  if (!is_map(g, id, 2)) return BS_OK;
  for (uint32_t e = 0; e < 2; e++) {
    const uint32_t slots[2] = {e, 1 - e};
    const uint32_t sum = row_fold(g, last.in[1 - e], BS_FOLD_SUM), exp_id = match_producer(g, last.in[e]);
    if (sum == GNONE || exp_id == GNONE || g->nodes[sum].numbers[0] != 1 ||
        !match_same(g, g->nodes[sum].in[0], last.in[e]) || !program_is(&g->exprs[last.expr], quotient, slots))
      continue;
    const gnode map = g->nodes[exp_id];
    if (map.op != GOP_MAP || map.n_out != 1 || map.n_in > 2) continue;
    for (uint32_t x = 0; x < map.n_in; x++) {
      const uint32_t most = map.n_in == 2 ? row_fold(g, map.in[1 - x], BS_FOLD_MAX) : GNONE;
      const uint32_t roles[2] = {x, map.n_in == 2 ? 1 - x : GNONE};
      if (map.n_in == 2 && (most == GNONE || !match_same(g, g->nodes[most].in[0], map.in[x]))) continue;
      if (!program_is(&g->exprs[map.expr], exponential, roles) || !dense_rows(g, map.in[x])) continue;
      gnode n = match_node(GOP_NORMALIZE, 4, 2);
      const gvalue out = g->values[last.out[0]];
      n.attrs[0] = BS_NORMALIZE_SOFTMAX;
      int32_t rc = match_reshape(g, map.in[x], out.rank, out.dims, &n.in[0], err);
      return rc != BS_OK || n.in[0] == GNONE ? rc : put_norm(g, id, &n, out_changes, err);
    }
  }
  return BS_OK;
}

/* ---- RMS and layer: x q(r) g + b -------------------------------------------------------------- */

/* Which inputs of the joined program are which, and eps. */
typedef struct scaled {
  uint32_t x, r, gamma, beta;
  double eps;
} scaled;

static double normalised(const double *in, const void *arg) {
  const scaled *s = arg;
  double y = in[s->x] / sqrt(in[s->r] + s->eps);
  if (s->gamma != GNONE) y *= in[s->gamma];
  return s->beta != GNONE ? y + in[s->beta] : y;
}

/* A mean of squares over the last dimension: the value of which, GNONE. */
static uint32_t squares_of(const graph *g, uint32_t value) {
  uint32_t id = row_fold(g, value, BS_FOLD_SUMSQ);
  const int plain = id == GNONE;
  if (plain) id = row_fold(g, value, BS_FOLD_SUM);
  if (id == GNONE) return GNONE;
  const gnode *fold = &g->nodes[id];
  const gvalue *in = &g->values[fold->in[0]];
  if (fabs(fold->numbers[0] * (double)in->dims[in->rank - 1] - 1) > 1e-6) return GNONE;
  if (!plain) return fold->in[0];
  const uint32_t square = match_producer(g, fold->in[0]);
  if (!is_map(g, square, 1)) return GNONE;
  const gexpr *e = &g->exprs[g->nodes[square].expr];
  for (int i = -3; i <= 3; i++) {
    const double in1[GX_MAX_IN] = {1.37 * i};
    double out[GX_MAX_OUT];
    if (!program_value(e, in1, out) || fabs(out[0] - in1[0] * in1[0]) > 1e-9 * in1[0] * in1[0]) return GNONE;
  }
  return g->nodes[square].in[0];
}

/* The map's program with the map that gives its input `slot` in it: r, the mean of squares, in its place. */
static int with_scale(const graph *g, const gnode *last, uint32_t slot, gexpr *out, uint32_t *out_fold) {
  *out = g->exprs[last->expr];
  *out_fold = last->in[slot];
  const uint32_t id = match_producer(g, last->in[slot]);
  if (!is_map(g, id, 1)) return 1;
  const uint8_t maps[1] = {(uint8_t)slot};
  *out_fold = g->nodes[id].in[0];
  return g->exprs[g->nodes[id].expr].compute == out->compute &&
         program_join(out, (uint8_t)slot, &g->exprs[g->nodes[id].expr], maps, 0);
}

static int find_eps(const gexpr *e, scaled *s) {
  double in[GX_MAX_IN] = {0}, out[GX_MAX_OUT];
  in[s->x] = 1;
  if (s->gamma != GNONE) in[s->gamma] = 1;
  if (!program_value(e, in, out) || !(out[0] > 0) || isinf(out[0])) return 0;
  s->eps = 1 / (out[0] * out[0]);
  return program_is(e, normalised, s);
}

/* x - mean(x): x, GNONE. */
static double difference(const double *in, const void *arg) {
  const uint32_t *slots = arg;
  return in[slots[0]] - in[slots[1]];
}
static uint32_t centred(const graph *g, uint32_t value) {
  const uint32_t id = match_producer(g, value);
  if (!is_map(g, id, 2)) return GNONE;
  for (uint32_t x = 0; x < 2; x++) {
    const uint32_t slots[2] = {x, 1 - x};
    const uint32_t mean = row_fold(g, g->nodes[id].in[1 - x], BS_FOLD_SUM);
    if (mean == GNONE || !match_same(g, g->nodes[mean].in[0], g->nodes[id].in[x])) continue;
    const gvalue *in = &g->values[g->nodes[mean].in[0]];
    if (fabs(g->nodes[mean].numbers[0] * (double)in->dims[in->rank - 1] - 1) > 1e-6) continue;
    if (program_is(&g->exprs[g->nodes[id].expr], difference, slots)) return g->nodes[id].in[x];
  }
  return GNONE;
}

/* Rows among the other inputs: gamma and beta, in either order. */
static int find_rows(const graph *g, const gnode *last, uint32_t slot, uint32_t x, int64_t n, const gexpr *e,
                     scaled *out) {
  uint32_t rows[2] = {GNONE, GNONE}, count = 0;
  for (uint32_t i = 0; i < last->n_in; i++) {
    if (i == slot || i == x) continue;
    if (count == 2 || !match_row(g, last->in[i], n)) return 0;
    rows[count++] = i;
  }
  *out = (scaled){x, slot, rows[0], rows[1], 0};
  if (find_eps(e, out)) return 1;
  if (count == 0) return 0;
  *out = (scaled){x, slot, rows[1], rows[0], 0};
  return find_eps(e, out);
}

static int32_t rows_of(graph *g, const gnode *last, const scaled *s, int64_t n, gnode *io_norm, int *out_ok,
                       bs_error *err) {
  int32_t rc = BS_OK;
  if (s->gamma != GNONE) rc = match_reshape(g, last->in[s->gamma], 1, &n, &io_norm->in[2], err);
  if (rc == BS_OK && s->beta != GNONE) rc = match_reshape(g, last->in[s->beta], 1, &n, &io_norm->in[3], err);
  *out_ok = (s->gamma == GNONE || io_norm->in[2] != GNONE) && (s->beta == GNONE || io_norm->in[3] != GNONE);
  return rc;
}

static int32_t try_scaled(graph *g, uint32_t id, uint32_t *out_changes, bs_error *err) {
  const gnode last = g->nodes[id];
  const gvalue out = g->values[last.out[0]];
  if (last.n_out != 1 || last.n_in < 2 || last.n_in > 4 || out.rank == 0) return BS_OK;
  const int64_t n = out.dims[out.rank - 1];
  for (uint32_t slot = 0; slot < last.n_in; slot++) {
    gexpr e;
    uint32_t fold;
    scaled s;
    if (graph_count(&g->values[last.in[slot]]) * n != graph_count(&out) || n < 2) continue;
    if (!with_scale(g, &last, slot, &e, &fold)) continue;
    const uint32_t x_value = squares_of(g, fold);
    const uint32_t x = x_value != GNONE ? slot_of(g, &last, x_value) : last.n_in;
    if (x == last.n_in || !find_rows(g, &last, slot, x, n, &e, &s)) continue;
    const uint32_t whole = centred(g, last.in[x]), source = whole != GNONE ? whole : last.in[x];
    gnode norm = match_node(GOP_NORMALIZE, 4, 2);
    int ok = 0;
    norm.attrs[0] = whole != GNONE ? BS_NORMALIZE_LAYER : BS_NORMALIZE_RMS;
    norm.numbers[0] = s.eps;
    int32_t rc = match_reshape(g, source, out.rank, out.dims, &norm.in[0], err);
    if (rc == BS_OK) rc = rows_of(g, &last, &s, n, &norm, &ok, err);
    if (rc != BS_OK) return rc;
    if (!ok || norm.in[0] == GNONE || !dense_rows(g, norm.in[0])) continue;
    return put_norm(g, id, &norm, out_changes, err);
  }
  return BS_OK;
}

int32_t gpass_fuse_norm(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (g->nodes[id].op != GOP_MAP || g->exprs[g->nodes[id].expr].compute == BS_I64) continue;
    const uint32_t before = *out_changes;
    int32_t rc = try_softmax(g, id, out_changes, err);
    if (rc == BS_OK && *out_changes == before) rc = try_scaled(g, id, out_changes, err);
    if (rc != BS_OK) return rc;
  }
  uint32_t dead = 0;
  return *out_changes > 0 ? gpass_dce(g, ctx, &dead, err) : BS_OK;
}
