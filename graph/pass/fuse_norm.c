/* SPDX-License-Identifier: MIT
 * fuse_norm.c - softmax, RMS and layer normalisation that an exporter wrote as reductions and maps become one
 * node. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/pass/form.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"

/* A reduction of that kind over the last dimension alone, that gives `value`; its node, GNONE. */
static uint32_t row_fold(const graph *g, uint32_t value, uint32_t kind) {
  const uint32_t id = match_producer(g, value);
  if (id == GNONE || g->nodes[id].op != GOP_REDUCE || g->nodes[id].attrs[0] != kind) return GNONE;
  const gvalue *in = &g->values[g->nodes[id].in[0]], *out = &g->values[g->nodes[id].out[0]];
  if (in->rank == 0 || out->dims[in->rank - 1] != 1) return GNONE;
  for (uint32_t i = 0; i + 1 < in->rank; i++)
    if (in->dims[i] != out->dims[i]) return GNONE;
  return id;
}

/* Says that what is reduced into a value, perhaps by a map behind it, is reduced over another dimension. */
static void miss_dimension(const gpass_ctx *ctx, const graph *g, uint32_t value, uint32_t anchor) {
  uint32_t id = match_producer(g, value);
  if (id != GNONE && g->nodes[id].op == GOP_MAP && g->nodes[id].n_in == 1)
    id = match_producer(g, g->nodes[id].in[0]);
  if (id == GNONE || g->nodes[id].op != GOP_REDUCE) return;
  const gvalue *in = &g->values[g->nodes[id].in[0]], *out = &g->values[g->nodes[id].out[0]];
  const int64_t kind = g->nodes[id].attrs[0];
  if ((kind != BS_FOLD_SUM && kind != BS_FOLD_SUMSQ) || in->rank != out->rank) return;
  for (uint32_t d = 0; d + 1u < in->rank; d++) {
    if (in->dims[d] == out->dims[d]) continue;
    const char *what = g->nodes[id].numbers[0] != 1 ? "mean" : "sum";
    gpass_miss(ctx, id, "the %s is over dim %u, not the last", what, d);
    gpass_miss(ctx, anchor, "the %s is over dim %u, not the last", what, d);
    return;
  }
}

static int is_any_map(const graph *g, uint32_t id) {
  return id != GNONE && g->nodes[id].op == GOP_MAP && g->nodes[id].n_out == 1;
}
static int is_map(const graph *g, uint32_t id, uint32_t n_in) {
  return is_any_map(g, id) && g->nodes[id].n_in == n_in;
}

/* The slot of a map that reads these elements. */
static uint32_t slot_of(const graph *g, const gnode *n, uint32_t value) {
  uint32_t i = 0;
  while (i < n->n_in && !match_same(g, n->in[i], value)) i++;
  return i;
}

/* 1: the rows of the value have no gaps. */
static int dense_rows(const graph *g, uint32_t value) {
  const gvalue *v = &g->values[value];
  return v->dims[v->rank - 1] == 1 || v->strides[v->rank - 1] == 1;
}

/* The map reads `rows` with its own dims, and `number` as one number for each row of them. */
static int reads_rows(const graph *g, const gnode *map, uint32_t rows, uint32_t number) {
  return match_dims(g, rows, map->out[0]) && match_row_number(g, number, map->out[0]);
}

/* ---- softmax: e / sum(e), e = exp(x - max(x)) -------------------------------------------------- */

static double quotient(const double *in, const void *arg) {
  const uint32_t *slots = arg;
  return in[slots[0]] / in[slots[1]];
}
static int is_quotient(const form *f, const uint32_t slots[2]) {
  static const double powers[2] = {1, -1};
  const uint8_t factors[2] = {(uint8_t)slots[0], (uint8_t)slots[1]};
  return form_is_product(f, f->e->outs[0], factors, powers, 2) && program_is(f->e, quotient, slots);
}

static double exponential(const double *in, const void *arg) {
  const uint32_t *slots = arg;
  return exp(in[slots[0]] - in[slots[1]]);
}
static int is_exponential(const form *f, const uint32_t slots[2]) {
  static const double factors[2] = {1, -1};
  const uint8_t terms[2] = {(uint8_t)slots[0], (uint8_t)slots[1]};
  uint32_t step;
  return form_op(f, form_operand(f, f->e->outs[0]), &step) == BS_EXPR_EXP &&
         form_is_sum(f, f->e->steps[step].a, terms, factors, 2) && program_is(f->e, exponential, slots);
}

/* Which input of the map exp(x - max(x)) is x; n_in: it is another map. Without the largest one, exp(inf)
 * over the sum is 0 for the other numbers of a row, where softmax gives NaN for all. */
static uint32_t find_exponent(const graph *g, const gnode *map, uint32_t *out_most) {
  const form f = form_of(g, map);
  for (uint32_t x = 0; map->n_in == 2 && x < 2; x++) {
    const uint32_t slots[2] = {x, 1 - x};
    *out_most = row_fold(g, map->in[1 - x], BS_FOLD_MAX);
    if (*out_most != GNONE && match_same(g, g->nodes[*out_most].in[0], map->in[x]) &&
        reads_rows(g, map, map->in[x], map->in[1 - x]) && is_exponential(&f, slots))
      return x;
  }
  return map->n_in;
}

/* Rows of the exponentials that are seen with other dims are other rows than those of x: the op refuses it,
 * whose result has the dims of x. */
static int32_t try_softmax(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t *out_changes,
                           bs_error *err) {
  const gnode last = g->nodes[id];
  const form f = form_of(g, &last);
  for (uint32_t e = 0; e < 2; e++) {
    const uint32_t slots[2] = {e, 1 - e};
    const uint32_t sum = row_fold(g, last.in[1 - e], BS_FOLD_SUM), exp_id = match_producer(g, last.in[e]);
    if (sum == GNONE || !is_any_map(g, exp_id) || !match_same(g, g->nodes[sum].in[0], last.in[e])) continue;
    if (g->nodes[sum].numbers[0] != 1 || !reads_rows(g, &last, last.in[e], last.in[1 - e])) {
      gpass_miss(ctx, id, "softmax: the sum is multiplied, or is no number for each row");
      continue;
    }
    if (!match_keeps(g, last.in[e], last.out[0]) || !match_keeps(g, last.in[1 - e], last.out[0])) {
      gpass_miss(ctx, id, "softmax: the powers or their sum are rounded to a narrower dtype");
      continue;
    }
    if (!is_quotient(&f, slots)) {
      gpass_miss(ctx, id, "softmax: the powers are not divided by their sum alone");
      continue;
    }
    const gnode map = g->nodes[exp_id];
    uint32_t most = GNONE;
    const uint32_t x = find_exponent(g, &map, &most);
    if (x == map.n_in || !dense_rows(g, map.in[x])) {
      gpass_miss(ctx, id,
                 x == map.n_in ? "softmax: the powers are not exp(x - max of the row)"
                               : "softmax: rows of x have gaps");
      continue;
    }
    gnode n = match_node(GOP_NORMALIZE, 4, 2);
    n.attrs[0] = BS_NORMALIZE_SOFTMAX;
    n.in[0] = map.in[x];
    n.out[0] = last.out[0];
    n.origin = last.origin;
    const uint32_t old[4] = {id, sum, exp_id, most};
    return gpass_replace(g, ctx, &n, old, 4, out_changes, err);
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

/* (r + eps)^(-1/2): eps stands inside the root. */
static int is_scale(const form *f, uint8_t operand, double power, scaled *io) {
  form_sum s;
  if (power != -0.5 || !form_sum_of(f, operand, &s) || s.n != 1 || s.operand[0] != io->r ||
      s.factor[0] != 1 || !(s.constant > 0))
    return 0;
  io->eps = s.constant;
  return 1;
}

/* x (r + eps)^(-1/2) gamma: x and the scale once each, gamma another input. */
static int find_factors(const form *f, uint8_t operand, scaled *io) {
  form_product p;
  uint32_t xs = 0, scales = 0;
  if (!form_product_of(f, operand, &p) || p.factor != 1) return 0;
  for (uint32_t i = 0; i < p.n; i++) {
    const uint8_t o = p.operand[i];
    if (o == io->x && p.power[i] == 1)
      xs++;
    else if (is_scale(f, o, p.power[i], io))
      scales++;
    else if (o < GX_CONST && p.power[i] == 1 && io->gamma == GNONE)
      io->gamma = o;
    else
      return 0;
  }
  return xs == 1 && scales == 1;
}

/* The roles of the inputs. gamma and beta may be the same one. */
static int find_scaled(const form *f, uint32_t x, uint32_t r, scaled *out) {
  form_sum s;
  *out = (scaled){x, r, GNONE, GNONE, 0};
  if (!form_sum_of(f, f->e->outs[0], &s) || s.has_constant || s.n > 2 || s.factor[0] != 1) return 0;
  const uint32_t main_term = s.n == 2 && s.operand[0] < GX_CONST ? 1 : 0;
  if (s.n == 2) {
    out->beta = s.operand[1 - main_term];
    if (out->beta >= GX_CONST || s.factor[1] != 1) return 0;
  }
  return find_factors(f, s.operand[main_term], out) && program_is(f->e, normalised, out);
}

/* A mean over the last dimension, of as many as it has. */
static int is_mean(const graph *g, const gnode *fold) {
  const gvalue *in = &g->values[fold->in[0]];
  return fabs(fold->numbers[0] * (double)in->dims[in->rank - 1] - 1) <= 1e-12;
}

/* A mean of squares over the last dimension: the value of which, GNONE. The squares may be seen with other
 * dims: as many rows of them, in order, are the same rows. */
static uint32_t squares_of(const graph *g, uint32_t value, uint32_t out, uint32_t *out_square) {
  static const double two[1] = {2};
  static const uint8_t first[1] = {GX_IN};
  const uint32_t direct = row_fold(g, value, BS_FOLD_SUMSQ);
  const uint32_t id = direct != GNONE ? direct : row_fold(g, value, BS_FOLD_SUM);
  *out_square = GNONE;
  if (id == GNONE || !is_mean(g, &g->nodes[id]) || !match_keeps(g, g->nodes[id].out[0], out)) return GNONE;
  const uint32_t of = g->nodes[id].in[0];
  if (direct != GNONE) return of;
  *out_square = match_producer(g, of);
  if (!is_map(g, *out_square, 1)) return GNONE;
  const gnode *square = &g->nodes[*out_square];
  const form f = form_of(g, square);
  if (!match_dims(g, square->in[0], square->out[0]) || !match_keeps(g, of, out) ||
      !form_is_product(&f, f.e->outs[0], first, two, 1))
    return GNONE;
  return square->in[0];
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
         match_keeps(g, last->in[slot], last->out[0]) &&
         program_join(out, (uint8_t)slot, &g->exprs[g->nodes[id].expr], maps, 0);
}

/* x - mean(x): x, GNONE. */
static double difference(const double *in, const void *arg) {
  const uint32_t *slots = arg;
  return in[slots[0]] - in[slots[1]];
}
static uint32_t centred(const graph *g, uint32_t value, uint32_t out) {
  static const double factors[2] = {1, -1};
  const uint32_t id = match_producer(g, value);
  if (!is_map(g, id, 2)) return GNONE;
  const gnode *n = &g->nodes[id];
  const form f = form_of(g, n);
  if (!match_dims(g, value, n->out[0]) || !match_keeps(g, value, out)) return GNONE;
  for (uint32_t x = 0; x < 2; x++) {
    const uint32_t slots[2] = {x, 1 - x};
    const uint8_t terms[2] = {(uint8_t)x, (uint8_t)(1 - x)};
    const uint32_t mean = row_fold(g, n->in[1 - x], BS_FOLD_SUM);
    if (mean == GNONE || !match_same(g, g->nodes[mean].in[0], n->in[x]) || !is_mean(g, &g->nodes[mean]) ||
        !reads_rows(g, n, n->in[x], n->in[1 - x]) || !match_keeps(g, n->in[1 - x], out))
      continue;
    if (form_is_sum(&f, f.e->outs[0], terms, factors, 2) && program_is(f.e, difference, slots))
      return n->in[x];
  }
  return GNONE;
}

/* gamma and beta as rows of n >= 2; 0: one has another shape. The number for each row, r, is neither. */
static int32_t rows_of(graph *g, const gnode *last, const scaled *s, int64_t n, gnode *io_norm, int *out_ok,
                       bs_error *err) {
  const uint32_t slots[2] = {s->gamma, s->beta};
  *out_ok = 1;
  for (uint32_t i = 0; i < 2 && *out_ok; i++) {
    if (slots[i] == GNONE) continue;
    const uint32_t row = last->in[slots[i]];
    const int32_t rc = match_row(g, row, n) ? match_reshape(g, row, 1, &n, &io_norm->in[2 + i], err) : BS_OK;
    if (rc != BS_OK) return rc;
    *out_ok = io_norm->in[2 + i] != GNONE;
  }
  return BS_OK;
}

/* The map `id`, of which input `slot` is one number a row, as a normalisation. The op sees to it that x has
 * the dims of the result. */
static int32_t try_slot(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t slot, uint32_t *out_changes,
                        bs_error *err) {
  const gnode last = g->nodes[id];
  const uint32_t out = last.out[0];
  const int64_t n = g->values[out].dims[g->values[out].rank - 1];
  gexpr e;
  uint32_t fold, square;
  scaled s;
  if (!match_row_number(g, last.in[slot], out)) {
    miss_dimension(ctx, g, last.in[slot], id);
    return BS_OK;
  }
  if (!with_scale(g, &last, slot, &e, &fold)) {
    if (row_fold(g, fold, BS_FOLD_SUM) != GNONE || row_fold(g, fold, BS_FOLD_SUMSQ) != GNONE)
      gpass_miss(ctx, id, "the root of the mean is computed or rounded in another dtype");
    return BS_OK;
  }
  const uint32_t x_value = squares_of(g, fold, out, &square);
  const uint32_t x = x_value != GNONE ? slot_of(g, &last, x_value) : last.n_in; /* n_in: no factor */
  const form f = {&e, form_of(g, &last).rounds};
  if (!find_scaled(&f, x, slot, &s)) {
    if (x_value != GNONE)
      gpass_miss(ctx, id,
                 x == last.n_in ? "what is divided is not what the mean of squares is of"
                                : "it is not x / sqrt(mean + eps), times and plus at most one value");
    return BS_OK;
  }
  const uint32_t whole = centred(g, last.in[x], out);
  gnode norm = match_node(GOP_NORMALIZE, 4, 2);
  int ok = 0;
  norm.attrs[0] = whole != GNONE ? BS_NORMALIZE_LAYER : BS_NORMALIZE_RMS;
  norm.numbers[0] = s.eps;
  norm.in[0] = whole != GNONE ? whole : last.in[x];
  norm.out[0] = out;
  norm.origin = last.origin;
  const int32_t rc = rows_of(g, &last, &s, n, &norm, &ok, err);
  if (rc != BS_OK) return rc;
  if (!ok || !dense_rows(g, norm.in[0])) {
    gpass_miss(ctx, id, ok ? "rows of x have gaps" : "gamma or beta is no row of %lld elements",
               (long long)n);
    return BS_OK;
  }
  const uint32_t old[3] = {id, square, whole != GNONE ? match_producer(g, last.in[x]) : GNONE};
  return gpass_replace(g, ctx, &norm, old, 3, out_changes, err);
}

static int32_t try_scaled(graph *g, const gpass_ctx *ctx, uint32_t id, uint32_t *out_changes, bs_error *err) {
  const uint32_t n_in = g->nodes[id].n_in, before = *out_changes;
  const gvalue *out = &g->values[g->nodes[id].out[0]];
  if (out->rank == 0 || out->dims[out->rank - 1] < 2) return BS_OK;
  int32_t rc = BS_OK;
  for (uint32_t slot = 0; slot < n_in && rc == BS_OK && *out_changes == before; slot++)
    rc = try_slot(g, ctx, id, slot, out_changes, err);
  return rc;
}

int32_t gpass_fuse_norm(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err) {
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    next = g->nodes[id].next;
    if (g->nodes[id].op != GOP_MAP) continue;
    const uint32_t before = *out_changes;
    int32_t rc = try_softmax(g, ctx, id, out_changes, err);
    if (rc == BS_OK && *out_changes == before) rc = try_scaled(g, ctx, id, out_changes, err);
    if (rc != BS_OK) return rc;
  }
  uint32_t dead = 0;
  return *out_changes > 0 ? gpass_dce(g, ctx, &dead, err) : BS_OK;
}
