/* SPDX-License-Identifier: MIT
 * rope.c - x cos + turned(x) sin, where turned(x) joins the negated second half of x with its first, becomes
 * one map over the halves, which writes both halves of the result; where both halves have the same angles, it
 * is the form that backends know. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/pass/form.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

typedef struct turn {
  uint32_t x, turned, cosine, sine; /* slots of the map */
  double scale;
} turn;

static double rotated(const double *in, const void *arg) {
  const turn *t = arg;
  return t->scale * (in[t->x] * in[t->cosine] + in[t->turned] * in[t->sine]);
}

/* Half of a value's last dimension; one that is broadcast there is its own half. */
static int32_t half_of(graph *g, uint32_t value, int second, uint32_t *out_value, bs_error *err) {
  const gvalue v = g->values[value];
  gvalue h = v;
  const uint32_t last = v.rank - 1u;
  *out_value = value;
  if (v.dims[last] == 1) return BS_OK;
  h.dims[last] /= 2;
  return graph_add_view(g, v.base, v.dtype, v.rank, h.dims, h.strides,
                        v.offset + (second ? h.dims[last] * v.strides[last] : 0), out_value, err);
}

/* The maps that write the halves of the join: the first from the second half of x, negated, the second from
 * the first, both into nothing else. Two parts that begin at 0 and at half and are all of the join
 * (validate.c) are its halves. The join has the dims of x. */
static int is_turned(graph *g, uint32_t join, uint32_t x, uint32_t writers[2]) {
  const gvalue *j = &g->values[join], *of = &g->values[x];
  uint32_t n = 0;
  const int64_t half = j->dims[j->rank - 1] / 2;
  for (uint32_t i = join; i != GNONE; i = g->values[i].next_view) {
    const gvalue *part = &g->values[i];
    if (part->producer == GNONE) continue;
    const gnode *w = &g->nodes[part->producer];
    if (n == 2 || w->op != GOP_MAP || (part->offset != 0 && part->offset != half)) return 0;
    const gvalue *in = &g->values[w->in[0]];
    const int64_t from = part->offset == 0 ? half * of->strides[of->rank - 1] : 0;
    if (in->base != of->base || in->offset != of->offset + from) return 0;
    for (uint32_t d = 0; d < in->rank; d++)
      if (in->dims[d] != part->dims[d] || (in->dims[d] > 1 && in->strides[d] != of->strides[d]) ||
          (part->dims[d] > 1 && part->strides[d] != j->strides[d]))
        return 0;
    const form f = form_of(g, w);
    double factor = 1;
    const int is_half = part->offset == 0 ? form_is_scaled(&f, f.e->outs[0], GX_IN, &factor) && factor == -1
                                          : form_operand(&f, f.e->outs[0]) == GX_IN;
    if (!is_half) return 0;
    writers[n++] = part->producer;
  }
  return n == 2;
}

/* scale (x cos + turned sin): which input is which, as the form of the program says. */
static int find_roles(const form *f, uint32_t x, uint32_t t, turn *out) {
  form_sum s;
  uint32_t other[4] = {x, x, x, x};
  if (!form_sum_of(f, f->e->outs[0], &s) || s.n != 2 || s.has_constant || s.factor[0] != s.factor[1])
    return 0;
  for (uint32_t i = 0; i < 2; i++) {
    form_product p;
    if (!form_product_of(f, s.operand[i], &p) || p.n != 2 || p.factor != 1) return 0;
    for (uint32_t k = 0; k < 2; k++) {
      if (p.operand[k] > 3 || p.power[k] != 1) return 0;
      other[p.operand[k]] = p.operand[1 - k];
    }
  }
  *out = (turn){x, t, other[x], other[t], s.factor[0]};
  const uint32_t slots = 1u << x | 1u << t | 1u << out->cosine | 1u << out->sine;
  return slots == 15 && program_is(f->e, rotated, out);
}

static int find_turn(graph *g, const gpass_ctx *ctx, uint32_t id, turn *out, uint32_t writers[2]) {
  const gnode *map = &g->nodes[id];
  if (map->n_in != 4 || map->n_out != 1) return 0;
  const form f = form_of(g, map);
  for (uint32_t t = 0; t < 4; t++)
    for (uint32_t x = 0; x < 4; x++)
      if (g->values[map->in[t]].base == map->in[t] && match_dims(g, map->in[t], map->out[0]) &&
          match_dims(g, map->in[x], map->out[0]) && is_turned(g, map->in[t], map->in[x], writers)) {
        const int keeps = match_keeps(g, map->in[t], map->out[0]);
        if (keeps && find_roles(&f, x, t, out)) return 1;
        gpass_miss(ctx, id,
                   keeps ? "it is not a number times (x cos + turned x sin)"
                         : "the turned halves are rounded to a narrower dtype");
      }
  return 0;
}

/* Both halves of a constant are the same numbers. */
static int same_halves(const graph *g, uint32_t first, uint32_t second) {
  if (first == second) return 1;
  const size_t bytes = (size_t)graph_count(&g->values[first]) * BS_DTYPE_BYTES(g->values[first].dtype);
  unsigned char *a = malloc(bytes + 1u), *b = malloc(bytes + 1u);
  const int same = a != NULL && b != NULL && graph_read_const(g, first, a, NULL) == BS_OK &&
                   graph_read_const(g, second, b, NULL) == BS_OK && memcmp(a, b, bytes) == 0;
  free(a);
  free(b);
  return same;
}

static uint8_t step(gexpr *e, uint8_t op, uint8_t a, uint8_t b) {
  e->steps[e->n_steps].op = op;
  e->steps[e->n_steps].a = a;
  e->steps[e->n_steps].b = b;
  return (uint8_t)(GX_STEP + e->n_steps++);
}

/* x, y, cos, sin (and of the second half, where they differ): both halves of the result. */
static void write_program(gexpr *e, uint32_t compute, int same, double scale) {
  const uint8_t c2 = same ? 2 : 4, s2 = same ? 3 : 5;
  memset(e, 0, sizeof *e);
  e->compute = compute;
  e->n_in = same ? 4 : 6;
  const uint8_t a = step(e, BS_EXPR_MUL, 0, 2), b = step(e, BS_EXPR_MUL, 1, 3),
                first = step(e, BS_EXPR_SUB, a, b);
  const uint8_t c = step(e, BS_EXPR_MUL, 1, c2), d = step(e, BS_EXPR_MUL, 0, s2),
                second = step(e, BS_EXPR_ADD, c, d);
  e->n_out = 2;
  e->outs[0] = first;
  e->outs[1] = second;
  if (scale == 1) return;
  memcpy(&e->consts[0], &scale, sizeof scale);
  e->n_const = 1;
  e->outs[0] = step(e, BS_EXPR_MUL, first, GX_CONST);
  e->outs[1] = step(e, BS_EXPR_MUL, second, GX_CONST);
}

static int32_t try_turn(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t *out_changes, bs_error *err) {
  const gnode map = g->nodes[id];
  turn t;
  uint32_t writers[2];
  const gvalue out = g->values[map.out[0]];
  if (out.rank == 0 || out.dims[out.rank - 1] % 2 != 0 || !find_turn(g, ctx, id, &t, writers)) return BS_OK;
  if (graph_sole_user(g, map.in[t.turned]) != id) {
    gpass_miss(ctx, id, "the turned halves are read by another node too");
    return BS_OK;
  }
  gnode n = match_node(GOP_MAP, 6, 2);
  int32_t rc = BS_OK;
  const uint32_t from[6] = {t.x, t.x, t.cosine, t.sine, t.cosine, t.sine};
  static const int second[6] = {0, 1, 0, 0, 1, 1};
  for (uint32_t i = 0; i < 6 && rc == BS_OK; i++) rc = half_of(g, map.in[from[i]], second[i], &n.in[i], err);
  for (uint32_t i = 0; i < 2 && rc == BS_OK; i++) rc = half_of(g, map.out[0], (int)i, &n.out[i], err);
  if (rc != BS_OK) return rc;
  gexpr e;
  const int same = same_halves(g, n.in[2], n.in[4]) && same_halves(g, n.in[3], n.in[5]);
  write_program(&e, g->exprs[map.expr].compute, same, t.scale);
  n.n_in = e.n_in;
  n.expr = graph_expr(g, &e);
  if (n.expr == GNONE) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a program");
  n.origin = graph_origin_join(g, map.origin, g->nodes[writers[0]].origin);
  const uint32_t old[3] = {id, writers[0], writers[1]};
  return gpass_replace(g, ctx, &n, old, 3, out_changes, err);
}

int32_t gpass_rope(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first; id != GNONE;) {
    const uint32_t next = g->nodes[id].next;
    if (g->nodes[id].op == GOP_MAP) {
      const int32_t rc = try_turn(g, ctx, id, out_changes, err);
      if (rc != BS_OK) return rc;
    }
    id = next;
  }
  return BS_OK;
}
