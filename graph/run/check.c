/* SPDX-License-Identifier: MIT
 * check.c - a run node by node: every output is poisoned first and stands between guard bytes, and every node
 * is computed once more in f64 on `ref`, from the same inputs. What comes out must have the bits of
 * bs_session_run. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/deviation.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/world/executor.h"
#include "graph/run/args.h"
#include "graph/run/check_inside.h"
#include "graph/run/session.h"
#include "graph/run/verify.h"
#include "graph/split/front.h"
#include "graph/split/gates.h"
#include "graph/split/method.h"

enum { GUARD = 64, POISON = 0xff, GUARD_BYTE = 0xa5 };

typedef struct checking {
  bs_session *s;
  gbinding *b;
  unsigned char **memory; /* of each TEMP root: GUARD bytes, its elements, GUARD bytes */
  bs_tensor whole_x;      /* of a layer S; data NULL: the node is no layer S */
  double terms;           /* of the longest sum of the graph */
  const char *id;         /* of the error that the step that was checked last is */
  bs_error *err;
} checking;

/* Memory of the rank for a value, and what it begins with. */
static int32_t guarded(checking *c, uint64_t bytes, unsigned char **out_memory) {
  const uint64_t all = bytes + 2u * GUARD;
  unsigned char *host = aligned_alloc(64, (size_t)((all + 63u) & ~UINT64_C(63)));
  void *device = NULL;
  if (host == NULL) return bs_error_set(c->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
  memset(host, GUARD_BYTE, GUARD);
  memset(host + GUARD, POISON, bytes);
  memset(host + GUARD + bytes, GUARD_BYTE, GUARD);
  *out_memory = host;
  if (!c->s->rank->apart) return BS_OK;
  *out_memory = NULL;
  pthread_mutex_lock(&c->s->core->lock);
  int32_t rc = gdevice_take(c->s->core, c->s->rank, "a value of a check", all, c, &device, c->err);
  pthread_mutex_unlock(&c->s->core->lock);
  if (rc == BS_OK) rc = bs_rank_copy(c->s->rank->rank, device, host, all, BS_COPY_HOST_TO_DEVICE, c->err);
  if (rc == BS_OK) rc = bs_rank_sync(c->s->rank->rank, c->err);
  free(host);
  *out_memory = device;
  return rc;
}

/* Gives every TEMP separate memory, so that a node which writes too much is found. The rank is entered. */
static int32_t spread_out(checking *c) {
  const graph *g = c->b->g;
  uint64_t all = 0;
  for (uint32_t i = 0; i < g->n_values; i++)
    if (g->values[i].kind == GV_TEMP) all += graph_bytes(&g->values[i]) + 2u * GUARD;
  int32_t rc = gdevice_fits(c->s->rank, all, "all values of the model, each by itself,", c->err);
  for (uint32_t i = 0; i < g->n_values && rc == BS_OK; i++) {
    if (g->values[i].kind != GV_TEMP) continue;
    rc = guarded(c, graph_bytes(&g->values[i]), &c->memory[i]);
    if (rc == BS_OK) gbinding_set_root(c->b, i, c->memory[i] + GUARD);
  }
  return rc;
}

static void drop_spread(checking *c) {
  for (uint32_t i = 0; i < c->b->g->n_values && c->memory != NULL && !c->s->rank->apart; i++)
    free(c->memory[i]);
  free(c->memory);
  pthread_mutex_lock(&c->s->core->lock);
  gdevice_drop(c->s->core, c);
  pthread_mutex_unlock(&c->s->core->lock);
}

static int32_t guards_whole(const checking *c, uint32_t root, int *out_whole) {
  bs_rank *rank = c->s->rank->rank;
  const unsigned char *m = c->memory[root];
  unsigned char before[GUARD], behind[GUARD];
  *out_whole = 1;
  if (m == NULL) return BS_OK;
  int32_t rc = bs_rank_copy(rank, before, m, GUARD, BS_COPY_DEVICE_TO_HOST, c->err);
  if (rc == BS_OK)
    rc = bs_rank_copy(rank, behind, m + GUARD + graph_bytes(&c->b->g->values[root]), GUARD,
                      BS_COPY_DEVICE_TO_HOST, c->err);
  if (rc == BS_OK) rc = bs_rank_sync(rank, c->err);
  for (uint32_t i = 0; i < GUARD && rc == BS_OK; i++)
    if (before[i] != GUARD_BYTE || behind[i] != GUARD_BYTE) *out_whole = 0;
  return rc;
}

/* ---- one node -------------------------------------------------------------------------------- */

double gstep_terms(const gbinding *b, const gstep *s) {
  const gnode *n = &b->g->nodes[s->node];
  const bs_tensor *x = s->args[0], *out = s->args[n->n_in];
  double terms = 1;
  switch (n->op) {
    case GOP_MATMUL:
    case GOP_MATMUL_Q:
    case GOP_CONTRACT:
    case GOP_NORMALIZE:
      return x->rank > 0 ? (double)x->dims[x->rank - 1] : 1;
    case GOP_ATTENTION:
      return (double)x->dims[3] + (double)s->args[1]->dims[2];
    case GOP_REDUCE:
      for (uint32_t d = 0; d < x->rank; d++) terms *= (double)(x->dims[d] > out->dims[d] ? x->dims[d] : 1);
      return terms;
    case GOP_PUT: /* as many updates may meet one element */
      return n->attrs[3] == BS_PUT_SET ? 1 : 1 + (double)tensor_elements(s->args[1]);
    default:
      return 1;
  }
}

/* Round-off of a node relative to its largest output: a few units of the outputs' dtype for what is one
 * operation an element, and of sums over k terms sqrt(k) of f32's besides; functions are within 4 ulp of each
 * step. */
static double bound_of(const gbinding *b, const gstep *s) {
  const gnode *n = &b->g->nodes[s->node];
  const bs_tensor *out = s->args[n->n_in];
  const double unit = bs_dtype_is_float(out->dtype) ? bs_dtype_unit_roundoff(out->dtype) : 0;
  const double f32 = out->dtype == BS_F64 ? DBL_EPSILON : FLT_EPSILON;
  double steps = 0;
  switch (n->op) {
    case GOP_MAP:
      steps = 8 + 8.0 * b->g->exprs[n->expr].n_steps;
      break;
    case GOP_MATMUL:
    case GOP_MATMUL_Q:
    case GOP_CONTRACT:
    case GOP_NORMALIZE:
      steps = 32;
      break;
    case GOP_ATTENTION:
      steps = 64;
      break;
    case GOP_REDUCE:
      steps = 8;
      break;
    case GOP_PUT: /* rounds once for each update that meets an element */
      return unit * fmin(gstep_terms(b, s), 16);
    default:
      return unit;
  }
  return unit + f32 * (steps + 8 * sqrt(gstep_terms(b, s)));
}

/* Sums cancel, so the scale of the deviation is at least the size of the terms. Fills of masks do not count:
 * relative to -1e9 no wrong number would be found. */
static int32_t least_scale(const checking *c, const gstep *s, double *out_scale) {
  const gnode *n = &c->b->g->nodes[s->node];
  *out_scale = 0;
  for (uint32_t i = 0; (n->op == GOP_MAP || n->op == GOP_REDUCE) && i < n->n_in; i++) {
    const bs_tensor *t = s->args[i];
    double *values = NULL;
    if (t == NULL || !bs_dtype_is_float(t->dtype)) continue;
    const int32_t rc = gcheck_copy(t, &values, c->err);
    if (rc != BS_OK) return rc;
    for (uint64_t k = 0; k < tensor_elements(t); k++)
      if (isfinite(values[k]) && !bs_is_fill(t->dtype, values[k]))
        *out_scale = fmax(*out_scale, fabs(values[k]));
    free(values);
  }
  return BS_OK;
}

/* A value that a program rounds is known to some units of f32 only. Near a tie, the number on the other side
 * is as right. So a node that rounds is computed three times: as it is, and with the value moved to either
 * side. */
enum { SIDES = 3 };
static const double MOVES = 4; /* roundings of a term: the product, the sum, their tail, the output */
static const double side_factors[SIDES] = {1, 1 + 0x1p-21, 1 - 0x1p-21};

static int rounds(const gexpr *e) {
  for (uint32_t i = 0; i < e->n_steps; i++)
    if (e->steps[i].op == BS_EXPR_TO && bs_dtype_is_float((uint32_t)e->steps[i].b << 8 | e->steps[i].c))
      return 1;
  return 0;
}

/* The expected results of a node, in f64, for each side of the ties. */
typedef struct wanted {
  double *sides[SIDES][GNODE_OUT];
  double *struck[GNODE_OUT]; /* with NaN for each input that is too large; NULL: no input is too large */
  int n_sides;
} wanted;

static double nearest(const wanted *w, uint32_t output, uint64_t k, double got) {
  double best = w->sides[0][output][k];
  for (int i = 1; i < w->n_sides; i++)
    if (fabs(w->sides[i][output][k] - got) < fabs(best - got)) best = w->sides[i][output][k];
  return best;
}

/* A number that is too large for the dtype overflows; its partial sums may overflow with either sign. */
static int overflows(uint32_t dtype, double got, double want) {
  return !isfinite(got) && isfinite(want) && isinf(bs_rounded(dtype, want));
}

/* 1: the number is not compared, because it depends on one whose square overflows. The comparison with the
 * graph as written has the same rule: no right result exists where the terms of a sum overflow. */
static int is_beyond(const checking *c, const wanted *w, uint32_t output, uint64_t k, uint32_t dtype,
                     double got) {
  const double right = w->sides[0][output][k];
  const double *struck = w->struck[output];
  if (struck != NULL && isfinite(right) && struck[k] != right) return 1;
  return !isfinite(got) && gnumber_too_large(dtype, right, c->terms);
}

static const bs_tensor *whole_x(const checking *c) {
  return c->whole_x.data != NULL ? &c->whole_x : NULL;
}

static int32_t compute_sides(checking *c, const gstep *s, wanted *out) {
  const gnode *n = &c->b->g->nodes[s->node];
  int32_t rc = BS_OK;
  *out = (wanted){.n_sides = n->op == GOP_MAP && rounds(&c->b->g->exprs[n->expr]) ? SIDES : 1};
  for (int i = 0; i < SIDES && i < out->n_sides && rc == BS_OK; i++) {
    const gcheck_change change = {.x = whole_x(c), .factor = side_factors[i]};
    rc = gcheck_wide(c->s, s, &change, out->sides[i], c->err);
  }
  return rc;
}

/* Fills out->struck, where an input is too large. */
static int32_t compute_struck(checking *c, const gstep *s, wanted *out) {
  const gnode *n = &c->b->g->nodes[s->node];
  int any = 0;
  for (uint32_t i = 0; i < n->n_in && !any; i++) {
    const bs_tensor *t = i == 0 && whole_x(c) != NULL ? whole_x(c) : s->args[i];
    double *values = NULL;
    if (n->in[i] == GNONE || !bs_dtype_is_float(t->dtype) || graph_is_const(c->b->g, n->in[i])) continue;
    const int32_t rc = gcheck_copy(t, &values, c->err);
    if (rc != BS_OK) return rc;
    for (uint64_t k = 0; k < tensor_elements(t) && !any; k++)
      any = gnumber_too_large(t->dtype, values[k], c->terms);
    free(values);
  }
  const gcheck_change change = {.x = whole_x(c), .factor = 1, .terms = c->terms};
  return any ? gcheck_wide(c->s, s, &change, out->struck, c->err) : BS_OK;
}

/* Fills row->deviation: the largest of the outputs. */
static int32_t compare_outputs(checking *c, const gstep *s, const wanted *want, double least,
                               bs_node_check *row) {
  const gnode *n = &c->b->g->nodes[s->node];
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (n->out[i] == GNONE || want->sides[0][i] == NULL) continue;
    const bs_tensor *t = s->args[n->n_in + i];
    bs_deviation d = {.scale = least};
    double *got = NULL;
    const int32_t rc = gcheck_copy(t, &got, c->err);
    if (rc != BS_OK) return rc;
    for (uint64_t k = 0; k < tensor_elements(t); k++) {
      const double right = nearest(want, i, k, got[k]);
      if (!overflows(t->dtype, got[k], right) && !is_beyond(c, want, i, k, t->dtype, got[k]))
        bs_deviation_add(&d, t->dtype, got[k], right);
    }
    free(got);
    row->deviation = fmax(row->deviation, bs_deviation_of(&d));
  }
  return BS_OK;
}

/* The mean of a row is rounded, too, relative to the row's largest number. For a layer normalisation, returns
 * that number over the standard deviation: the largest of all rows, times the largest factor. */
static int32_t mean_part(const checking *c, const gstep *s, double *out_part) {
  const gnode *n = &c->b->g->nodes[s->node];
  const int64_t row = s->args[0]->rank > 0 ? s->args[0]->dims[s->args[0]->rank - 1] : 1;
  double *values[3] = {NULL}, part = 0, gamma = n->in[2] == GNONE; /* x, what is added, factors */
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < 3 && rc == BS_OK; i++)
    if (n->in[i] != GNONE) rc = gcheck_copy(s->args[i], &values[i], c->err);
  for (int64_t k = 0; rc == BS_OK && values[2] != NULL && k < row; k++)
    gamma = fmax(gamma, fabs(values[2][k]));
  const int64_t count = rc == BS_OK && values[0] != NULL ? (int64_t)tensor_elements(s->args[0]) : 0;
  /* The addend may be broadcast. Its elements are then taken again, in order: enough for a size. */
  const int64_t added = values[1] != NULL ? (int64_t)tensor_elements(s->args[1]) : 0;
  for (int64_t at = 0; at + row <= count && row > 0; at += row) {
    double mean = 0, squares = 0, most = 0;
    for (int64_t k = at; k < at + row; k++) {
      values[0][k] += added > 0 ? values[1][k % added] : 0;
      mean += values[0][k] / (double)row;
      most = fmax(most, fabs(values[0][k]));
    }
    for (int64_t k = at; k < at + row; k++)
      squares += (values[0][k] - mean) * (values[0][k] - mean) / (double)row;
    if (isfinite(squares)) part = fmax(part, most / sqrt(squares + n->numbers[0]));
  }
  for (int i = 0; i < 3; i++) free(values[i]);
  *out_part = part * gamma;
  return rc;
}

/* Attention may round its weights to 16 bits as V has: V's largest number then takes part, over the largest
 * output, which is smaller where V cancels. */
static int32_t weights_part(const checking *c, const gstep *s, const wanted *want, double *out_part) {
  const bs_tensor *v = s->args[2], *out = s->args[c->b->g->nodes[s->node].n_in];
  double largest = 0, most = 0, *values = NULL;
  *out_part = 0;
  if (BS_DTYPE_BYTES(v->dtype) > 2 || want->sides[0][0] == NULL) return BS_OK;
  const int32_t rc = gcheck_copy(v, &values, c->err);
  for (uint64_t k = 0; rc == BS_OK && k < tensor_elements(v); k++)
    if (isfinite(values[k])) most = fmax(most, fabs(values[k]));
  for (uint64_t k = 0; rc == BS_OK && k < tensor_elements(out); k++)
    if (isfinite(want->sides[0][0][k])) largest = fmax(largest, fabs(want->sides[0][0][k]));
  free(values);
  if (largest > 0) *out_part = bs_dtype_unit_roundoff(v->dtype) * most / largest;
  return rc;
}

/* Sums cancel: where a product or a normalisation is beyond its bound, its bound is at least what moving each
 * of its inputs by the round-off of its arithmetic does. */
static int32_t widen_bound(checking *c, const gstep *s, const wanted *want, double least,
                           bs_node_check *row) {
  const gnode *n = &c->b->g->nodes[s->node];
  const int sums =
      graph_is_product(n->op) || n->op == GOP_CONTRACT || n->op == GOP_NORMALIZE || n->op == GOP_ATTENTION;
  double *moved[GNODE_OUT] = {NULL};
  if (!sums || row->deviation <= row->bound || !isfinite(row->deviation)) return BS_OK;
  const double unit = s->args[n->n_in]->dtype == BS_F64 ? DBL_EPSILON : FLT_EPSILON;
  const gcheck_change change = {.x = whole_x(c), .factor = 1, .moved = unit};
  double mean = 0, rounded = 0;
  int32_t rc = gcheck_wide(c->s, s, &change, moved, c->err);
  if (rc == BS_OK && n->op == GOP_ATTENTION) rc = weights_part(c, s, want, &rounded);
  row->bound += rounded;
  if (rc == BS_OK && n->op == GOP_NORMALIZE && n->attrs[0] == BS_NORMALIZE_LAYER) rc = mean_part(c, s, &mean);
  for (uint32_t i = 0; rc == BS_OK && i < n->n_out; i++) {
    if (n->out[i] == GNONE || want->sides[0][i] == NULL) continue;
    const bs_tensor *t = s->args[n->n_in + i];
    bs_deviation d = {.scale = least};
    for (uint64_t k = 0; k < tensor_elements(t); k++)
      bs_deviation_add(&d, t->dtype, moved[i][k], want->sides[0][i][k]);
    const double off = bs_deviation_of(&d) + (d.scale > 0 ? unit * mean / d.scale : 0);
    if (isfinite(off)) row->bound = fmax(row->bound, MOVES * off);
  }
  for (uint32_t i = 0; i < GNODE_OUT; i++) free(moved[i]);
  return rc;
}

/* A layer S sums over the columns of all ranks. */
static int32_t gather_x(checking *c, const gstep *s) {
  const gnode *n = &c->b->g->nodes[s->node];
  if (n->layer == 0 || c->b->g->splits[n->layer - 1].role != GNODE_S) return BS_OK;
  return glayer_gather(c->s->rank, s->args[0], &c->whole_x, c->err);
}

static int32_t guards_of(const checking *c, const gnode *n, bs_node_check *row) {
  int whole = 1;
  for (uint32_t i = 0; i < n->n_out; i++) {
    if (n->out[i] == GNONE) continue;
    const int32_t rc = guards_whole(c, c->b->g->values[n->out[i]].base, &whole);
    if (rc != BS_OK) return rc;
    if (whole) continue;
    row->ok = 0;
    row->reason = "it writes beyond its output";
  }
  return BS_OK;
}

static int32_t check_step(checking *c, uint32_t index, bs_node_check *row) {
  gstep *s = &c->b->steps[index];
  const gnode *n = &c->b->g->nodes[s->node];
  gshadow shadow;
  wanted want;
  row->ok = 1;
  row->reason = "";
  row->bound = bound_of(c->b, s);
  double least = 0;
  memset(&want, 0, sizeof want);
  int32_t rc = gshadow_take(c->b, s, 0, &shadow, c->err);
  if (rc != BS_OK) return rc;
  rc = gather_x(c, s);
  if (rc == BS_OK) rc = compute_sides(c, s, &want); /* before the run: it may overwrite its input */
  if (rc == BS_OK) rc = compute_struck(c, s, &want);
  if (rc == BS_OK) rc = least_scale(c, s, &least);
  const ggates_counts counts = n->layer != 0 ? ggates_now(c->b) : (ggates_counts){0};
  if (rc == BS_OK) rc = gshadow_run(c->b, s, &shadow, c->err);
  ggates_finding found = {0};
  if (rc == BS_OK && n->layer != 0) rc = ggates_layer(c->b, s, s->args[n->n_in], counts, &found, c->err);
  if (rc == BS_OK) rc = compare_outputs(c, s, &want, least, row);
  if (rc == BS_OK) rc = widen_bound(c, s, &want, least, row);
  if (rc == BS_OK && !(row->deviation <= row->bound)) {
    row->ok = 0;
    row->reason = "it differs from f64 by more than its round-off";
  }
  c->id = "BS-GRAPH-CHECK";
  if (rc == BS_OK && found.id != NULL) {
    row->ok = 0;
    row->reason = found.reason;
    c->id = found.id;
  }
  if (rc == BS_OK) rc = guards_of(c, n, row);
  gshadow_give(s, &shadow);
  for (uint32_t k = 0; k < GNODE_OUT; k++) {
    for (int i = 0; i < SIDES; i++) free(want.sides[i][k]);
    free(want.struck[k]);
  }
  free(c->whole_x.data);
  c->whole_x.data = NULL;
  return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Zeros, which take no memory before they are written. */
static unsigned char *new_bytes(const checking *c, uint64_t size) {
  unsigned char *bytes = calloc(1, size + 1u);
  if (bytes == NULL) bs_error_set(c->err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
  return bytes;
}

/* The outputs of a run, and the states after it, as bytes in a row. */
static int32_t copy_results(const checking *c, unsigned char **out_bytes, uint64_t *out_size) {
  const graph *g = c->b->g;
  uint64_t size = 0, at = 0;
  for (uint32_t i = 0; i < g->n_outputs; i++) size += graph_bytes(&g->values[g->outputs[i].value]);
  *out_size = size + gstates_bytes(c->s->core);
  *out_bytes = new_bytes(c, *out_size);
  if (*out_bytes == NULL) return BS_NO_MEMORY;
  for (uint32_t i = 0; i < g->n_outputs; i++) {
    const int32_t rc = gports_read(c->b, g->outputs[i].value, *out_bytes + at, c->err);
    if (rc != BS_OK) return rc;
    at += graph_bytes(&g->values[g->outputs[i].value]);
  }
  return gstates_get(c->s->core, c->s->rank, *out_bytes + size, c->err);
}

static int32_t run_steps(checking *c, void (*each)(void *user, const bs_node_check *row), void *user,
                         uint32_t *out_wrong) {
  char serves[128];
  bs_error first = BS_ERROR_INIT;
  c->terms = 1;
  for (uint32_t i = 0; i < c->b->n_steps; i++) c->terms = fmax(c->terms, gstep_terms(c->b, &c->b->steps[i]));
  for (uint32_t i = 0; i < c->b->n_steps; i++) {
    const gnode *n = &c->b->g->nodes[c->b->steps[i].node];
    bs_node_check row = {.struct_size = (uint32_t)sizeof row, .index = i, .op = graph_op_name(n->op)};
    gstep_serves(&c->b->steps[i], serves, sizeof serves);
    row.serves = serves;
    row.origin = n->origin != GNONE ? graph_text_of(c->b->g, c->b->g->origins[n->origin].text) : "";
    const int32_t rc = check_step(c, i, &row);
    if (rc != BS_OK) return rc;
    if (!row.ok && (*out_wrong)++ == 0) {
      bs_error_set(&first, BS_NUMERIC, c->id, "%s by %s: %s (%.3g, at most %.3g)", row.op, row.serves,
                   row.reason, row.deviation, row.bound);
      bs_error_where(&first, "node %s", row.origin);
    }
    if (each != NULL) each(user, &row);
  }
  if (*out_wrong > 0 && c->err != NULL) *c->err = first;
  return *out_wrong > 0 ? BS_NUMERIC : BS_OK;
}

/* The planned run, then node by node, from the same states. Returns what stops the check. *out_found: what is
 * wrong with the numbers, and *out_why; other ranks may have found nothing, and go on. */
static int32_t compare_nodes(checking *c, void (*each)(void *user, const bs_node_check *row), void *user,
                             const unsigned char *before, int32_t *out_found, bs_error *out_why) {
  unsigned char *flat = NULL, *mine = NULL;
  uint64_t flat_size = 0, mine_size = 0;
  uint32_t wrong = 0;
  int32_t rc = gflat_run(c->b, 0, c->err);
  if (rc == BS_OK) rc = copy_results(c, &flat, &flat_size);
  if (rc == BS_OK) rc = gstates_put(c->s->core, c->s->rank, before, c->err);
  if (rc == BS_OK) rc = grank_enter(c->s->rank, c->err);
  if (rc == BS_OK) {
    rc = spread_out(c);
    if (rc == BS_OK) rc = run_steps(c, each, user, &wrong);
    rc = grank_leave(c->s->rank, rc, c->err);
  }
  *out_found = rc == BS_NUMERIC ? rc : BS_OK;
  if (rc == BS_NUMERIC && c->err != NULL) *out_why = *c->err;
  if (rc == BS_NUMERIC) rc = BS_OK;
  if (rc == BS_OK) rc = copy_results(c, &mine, &mine_size);
  const int differ = rc == BS_OK && mine != NULL && flat != NULL &&
                     (mine_size != flat_size || memcmp(mine, flat, flat_size) != 0);
  if (differ && *out_found == BS_OK)
    *out_found = bs_error_set(out_why, BS_NUMERIC, "BS-GRAPH-CHECK",
                              "a run with planned memory and a run node by node give different bits");
  free(flat);
  free(mine);
  return rc;
}

/* A run over many ranks: its counters, and its outputs on all ranks. */
static int32_t run_judged(const checking *c, int32_t *io_found, bs_error *io_why) {
  bs_error why = BS_ERROR_INIT;
  const ggates_counts counts = ggates_now(c->b);
  int32_t rc = gflat_run(c->b, 0, c->err);
  if (rc != BS_OK) return rc;
  int32_t judged = ggates_counters(c->b, counts, &why);
  rc = ggates_outputs(c->b, BS_OK, judged == BS_OK ? &why : c->err);
  if (judged == BS_OK && rc == BS_NUMERIC) judged = rc;
  if (judged == BS_NUMERIC && *io_found == BS_OK) *io_why = why;
  if (judged == BS_NUMERIC) *io_found = judged;
  if (rc == BS_NUMERIC) rc = BS_OK;
  if (rc == BS_OK && judged != BS_NUMERIC) rc = judged;
  if (rc != BS_OK && c->err != NULL && why.code == rc) *c->err = why;
  return rc;
}

static int32_t check_session(bs_session *s, void (*each)(void *user, const bs_node_check *row), void *user,
                             bs_error *err) {
  checking c = {.s = s, .b = s->bound, .err = err};
  bs_error why = BS_ERROR_INIT;
  unsigned char *before = NULL;
  int32_t found = BS_OK;
  int64_t tokens = 0;
  int32_t rc = gsession_verify_bucket(s, err);
  if (rc == BS_OK) rc = gsession_ready(s, &tokens, err);
  c.memory = calloc(c.b->g->n_values + 1u, sizeof *c.memory);
  if (rc == BS_OK && c.memory == NULL)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a check");
  if (rc == BS_OK) rc = gstates_keep(s->core, s->rank, &before, err);
  if (rc == BS_OK) rc = gbinding_check(c.b, err);
  if (rc == BS_OK) rc = compare_nodes(&c, each, user, before, &found, &why);
  gsession_place(s, s->workspace != NULL ? s->workspace : c.b->own_arena);
  if (rc == BS_OK) rc = gstates_put(s->core, s->rank, before, err);
  if (rc == BS_OK) { /* the outputs are where a run leaves them */
    rc = s->core->method != NULL ? run_judged(&c, &found, &why) : gflat_run(c.b, 0, err);
    if (rc == BS_OK && tokens > 0) s->core->length += tokens;
  }
  drop_spread(&c);
  free(before);
  if (rc != BS_OK || found == BS_OK) return rc;
  if (err != NULL) *err = why;
  return found;
}

BS_API int32_t bs_session_check(bs_session *s, void (*each)(void *user, const bs_node_check *row), void *user,
                                bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_check", "session", err);
  if (s->front != NULL) return gfront_check(s->front, each, user, err);
  int32_t rc = gdevice_has_values(s->rank, "a check of the model", err);
  if (rc == BS_OK) rc = gcore_take_states(s->core, s->graph->model, err);
  if (rc != BS_OK) return rc;
  rc = check_session(s, each, user, err);
  gcore_give_states(s->core, s->graph->model);
  return rc;
}
