/* SPDX-License-Identifier: MIT
 * gradient.c - see gradient.h. */
#include "lab/gate/gradient.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/case/owners.h"
#include "lab/error.h"
#include "lab/gate/faults.h"
#include "lab/gate/slope.h"
#include "lab/gate/small.h"

#define DW_VALUES (INT64_C(1) << 23) /* of the fp64 reference of dW */

/* ---- sources made from others, which must outlive them --------------------------------------------- */

/* Reads a transposed source. ctx: the source whose columns are the rows here. */
static int32_t read_transposed(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols,
                               uint32_t dtype, void *out, int64_t out_stride, bs_error *err) {
  const bs_source *inner = ctx;
  const bs_partition run = {.struct_size = sizeof run,
                            .kind = BS_PARTITION_CONTIGUOUS,
                            .total = inner->cols,
                            .begin = row,
                            .count = nrows};
  const int64_t count = cols ? cols->count : inner->rows;
  const size_t size = BS_DTYPE_BYTES(dtype);
  char *line = malloc((size_t)(nrows > 0 ? nrows : 1) * size);
  if (line == NULL) return bs_no_memory(err, "%lld values", (long long)nrows);
  int32_t rc = BS_OK;
  for (int64_t j = 0; rc == BS_OK && j < count; ++j) {
    rc = inner->read(inner->ctx, bs_view_column(cols, j), 1, &run, dtype, line, nrows, err);
    for (int64_t i = 0; rc == BS_OK && i < nrows; ++i)
      memcpy((char *)out + (size_t)(i * out_stride + j) * size, line + (size_t)i * size, size);
  }
  free(line);
  return rc;
}

static bs_source transposed(const bs_source *inner) {
  return (bs_source){.struct_size = sizeof(bs_source),
                     .dtype = inner->dtype,
                     .rows = inner->cols,
                     .cols = inner->rows,
                     .ctx = (void *)(uintptr_t)inner,
                     .read = read_transposed};
}

/* Each value squared, in fp64. */
static int32_t read_squared(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  const bs_source *inner = ctx;
  const int64_t count = cols ? cols->count : inner->cols;
  const int32_t rc = inner->read(inner->ctx, row, nrows, cols, dtype, out, out_stride, err);
  for (int64_t i = 0; rc == BS_OK && i < nrows; ++i)
    for (int64_t j = 0; j < count; ++j) {
      const double v = bs_load_f64(dtype, out, i * out_stride + j);
      bs_store_f64(dtype, out, i * out_stride + j, v * v);
    }
  return rc;
}

static bs_source squared(const bs_source *inner) {
  bs_source s = *inner;
  s.dtype = BS_F64;
  s.ctx = (void *)(uintptr_t)inner;
  s.read = read_squared;
  return s;
}

/* ---- the three layers ---------------------------------------------------------------------------- */

/* The layer whose output is the gradient. */
static bs_case layer_of(const bs_case *c, int64_t B, int64_t N, int64_t K, uint32_t dtype, const bs_source *x,
                        const bs_source *w) {
  bs_case g = *c;
  g.spec.B = B;
  g.spec.N = N;
  g.spec.K = K;
  g.spec.y_dtype = dtype;
  g.spec.has_bias = 0;
  g.spec.activation = BS_ACT_NONE;
  g.spec.y_placement = BS_REPLICATED;
  if (g.spec.reduce_dtype == BS_I8) g.spec.reduce_dtype = 0; /* sums of gradients are not made in steps */
  g.x = x;
  g.w = w;
  g.bias = NULL;
  return g;
}

static void add_gates(bs_gradient_verdict *out, const char *of, const bs_verdict *v) {
  for (uint32_t i = 0; i < v->n_gates; ++i) {
    if (out->n_gates == sizeof out->gates / sizeof out->gates[0]) return;
    bs_gate *gate = &out->gates[out->n_gates++];
    *gate = v->gates[i];
    snprintf(gate->name, sizeof gate->name, "%s.%.16s", of, v->gates[i].name);
  }
}

/* One tensor that is judged as the output of a single rank. */
static int32_t judge_one(const bs_case *g, void *values, const bs_case_result *run, int64_t max_features,
                         const bs_carried *carried, bs_verdict *out, bs_error *err) {
  const bs_verdict_within within = {.carried = carried};
  bs_case_rank rank = {.y = values, .y_cols = g->spec.N, .same_each_time = 1};
  const bs_case_result one = {
      .world_size = 1, .iterations = run->iterations, .ranks = &rank, .zero_products = run->zero_products};
  for (uint32_t r = 0; r < run->world_size; ++r) rank.same_each_time &= run->ranks[r].same_each_time;
  return bs_verdict_make_within(g, &one, max_features, &within, out, err);
}

/* The ranks' own columns of dX side by side, as they belong. */
static void *whole_dx(const bs_case *c, const bs_case_result *run) {
  const size_t size = BS_DTYPE_BYTES(c->spec.x_dtype);
  char *all = calloc((size_t)(c->spec.B * c->spec.K) + 1, size);
  for (uint32_t r = 0; all && r < run->world_size; ++r) {
    const bs_case_rank *rank = &run->ranks[r];
    for (int64_t b = 0; b < c->spec.B; ++b)
      for (int64_t j = 0; j < rank->y_cols; ++j)
        memcpy(all + (size_t)(b * c->spec.K + bs_view_column(rank->owns.columns, j)) * size,
               (const char *)rank->y + (size_t)(b * rank->y_cols + j) * size, size);
  }
  return all;
}

/* Judges dX of every rank. If W is split over its rows, each rank's product is a term of the sum over ranks:
 * the reference needs the owners of the rows of W (columns of W^T). If it is split over columns but summed,
 * every element is one rank's term, rounded as a term is, and zeros. */
static int32_t judge_dx(const bs_case *g, const bs_case_result *run, int64_t max_features,
                        const bs_carried *carried, bs_verdict *out, bs_error *err) {
  const bs_verdict_within within = {.carried = carried};
  bs_case_result result = *run;
  bs_partition *rows = calloc(run->world_size, sizeof *rows);
  result.ranks = calloc(run->world_size, sizeof *result.ranks);
  int32_t rc = rows && result.ranks ? BS_OK : bs_no_memory(err, "a verdict");
  for (uint32_t r = 0; rc == BS_OK && r < run->world_size; ++r) {
    const bs_case_rank *from = &run->ranks[r];
    const int terms = from->proposal.split == BS_SPLIT_N, kept = bs_owners_by_row(run);
    rows[r] = (bs_partition){.struct_size = sizeof rows[r],
                             .kind = BS_PARTITION_CONTIGUOUS,
                             .total = g->spec.K,
                             .begin = terms ? from->owns.row_begin : 0,
                             .count = terms    ? from->owns.row_count
                                      : r == 0 ? g->spec.K
                                               : 0};
    result.ranks[r] = *from;
    if (!kept) result.ranks[r].owns.columns = &rows[r]; /* else the owners of W are transposed */
    result.ranks[r].proposal.split = bs_fault_backward(&from->proposal, BS_COLL_ALL_REDUCE) > 0
                                         ? (uint32_t)BS_SPLIT_K
                                         : (uint32_t)BS_SPLIT_NONE;
  }
  result.turned = (uint32_t)bs_owners_by_row(run);
  result.algorithms = NULL; /* of dX no product has low sums */
  if (rc == BS_OK) rc = bs_verdict_make_within(g, &result, max_features, &within, out, err);
  free(result.ranks);
  free(rows);
  return rc;
}

/* Weights that are left out have no gradient to judge: fills in the right one. */
static int32_t fill_left_out(const bs_case *c, const bs_gradient_result *result, const bs_source *dy_t,
                             void *dw, bs_error *err) {
  const int64_t B = c->spec.B, N = c->spec.N, K = c->spec.K;
  bs_owners owners = bs_owners_of(c, &result->run);
  uint32_t *owner = malloc((size_t)(K > 0 ? K : 1) * sizeof *owner), first;
  double *x = malloc((size_t)(B * K + B + 1) * sizeof *x), *dy = x + B * K;
  int32_t rc = owner && x ? c->x->read(c->x->ctx, 0, B, NULL, BS_F64, x, K, err) : bs_no_memory(err, "X");
  for (int64_t n = 0; rc == BS_OK && n < N; ++n) {
    rc = bs_owners_read(&owners, n, owner, &first, err);
    if (rc == BS_OK) rc = dy_t->read(dy_t->ctx, n, 1, NULL, BS_F64, dy, B, err);
    for (int64_t k = 0; rc == BS_OK && k < K; ++k) {
      double sum = 0.0;
      if (owner[k] != BS_OWNER_NONE) continue;
      for (int64_t b = 0; b < B; ++b) sum += dy[b] * x[b * K + k];
      bs_store_f64(result->wide, dw, n * K + k, sum);
    }
  }
  free(owner);
  free(x);
  return rc;
}

static int64_t dw_features(int64_t N, int64_t max_features) {
  const int64_t fit = N > 0 && DW_VALUES / N > 0 ? DW_VALUES / N : 1;
  return max_features > 0 && max_features < fit ? max_features : fit;
}

/* The operands of the three layers. With an activation dy is dZ, and the layer's own dZ is known only to
 * within bound2. */
typedef struct operands {
  bs_slopes slopes;
  double *one;                /* [B] */
  bs_source dy, bound2, ones; /* [B,N]; [1,B] */
  bs_source dy_t, bound2_t;   /* [N,B] */
  bs_source w_t, x_t, w_t_squared, x_t_squared;
  bs_carried dx, dw, db;
  int carries; /* 1: dy has errors */
} operands;

static void make_views(const bs_case *c, operands *o) {
  o->dy_t = transposed(&o->dy);
  o->bound2_t = transposed(&o->bound2);
  o->w_t = transposed(c->w);
  o->x_t = transposed(c->x);
  o->w_t_squared = squared(&o->w_t);
  o->x_t_squared = squared(&o->x_t);
  o->dx = (bs_carried){&o->bound2, &o->w_t_squared};
  o->dw = (bs_carried){&o->bound2_t, &o->x_t_squared};
  o->db = (bs_carried){&o->ones, &o->bound2_t};
}

static int32_t open_operands(const bs_case *c, const bs_gradient_result *result, operands *o, bs_error *err) {
  const int64_t B = c->spec.B, N = c->spec.N;
  memset(o, 0, sizeof *o);
  o->one = malloc((size_t)(B > 0 ? B : 1) * sizeof *o->one);
  if (o->one == NULL) return bs_no_memory(err, "%lld ones", (long long)B);
  for (int64_t b = 0; b < B; ++b) o->one[b] = 1.0;
  int32_t rc = bs_source_from_memory(o->one, BS_F64, 1, B, B, &o->ones, err);
  if (rc == BS_OK && c->spec.activation != BS_ACT_NONE) {
    const bs_slopes_given given = {.y = result->y, .dy = result->dy, .dtype = c->spec.y_dtype};
    rc = bs_slopes_make(c, &result->run, &given, &o->slopes, err);
    if (rc == BS_OK) rc = bs_source_from_memory(o->slopes.dz, BS_F64, B, N, N, &o->dy, err);
    if (rc == BS_OK) rc = bs_source_from_memory(o->slopes.bound2, BS_F64, B, N, N, &o->bound2, err);
    for (int64_t i = 0; rc == BS_OK && !o->carries && i < B * N; ++i) o->carries = o->slopes.bound2[i] > 0.0;
  } else if (rc == BS_OK) {
    rc = bs_source_from_memory(result->dy, c->spec.y_dtype, B, N, N, &o->dy, err);
  }
  make_views(c, o);
  return rc;
}

static void close_operands(operands *o) {
  bs_source_release(&o->dy);
  bs_source_release(&o->bound2);
  bs_source_release(&o->ones);
  bs_slopes_free(&o->slopes);
  free(o->one);
}

int32_t bs_gradient_judge(const bs_case *c, const bs_gradient_result *result, int64_t max_features,
                          bs_gradient_verdict *out, bs_error *err) {
  const int64_t B = c->spec.B, N = c->spec.N, K = c->spec.K;
  const bs_case_result *run = &result->run;
  operands o;
  memset(out, 0, sizeof *out);
  if (!bs_case_judged(c)) return BS_OK;
  void *dw = NULL, *db = NULL, *dx = NULL;
  int32_t rc = open_operands(c, result, &o, err);
  bs_case g = layer_of(c, B, K, N, c->spec.x_dtype, &o.dy, &o.w_t);
  if (rc == BS_OK && c->spec.x_placement == BS_SPLIT && run->world_size > 1) {
    dx = whole_dx(c, run);
    rc = dx ? judge_one(&g, dx, run, max_features, o.carries ? &o.dx : NULL, &out->dx, err)
            : bs_no_memory(err, "dX");
  } else if (rc == BS_OK) {
    rc = judge_dx(&g, run, max_features, o.carries ? &o.dx : NULL, &out->dx, err);
  }
  if (rc == BS_OK) rc = bs_gradient_assemble(c, result, &dw, &db, err);
  if (rc == BS_OK && bs_owners_pruned(run)) rc = fill_left_out(c, result, &o.dy_t, dw, err);
  g = layer_of(c, N, K, B, result->wide, &o.dy_t, &o.x_t);
  if (rc == BS_OK)
    rc = judge_one(&g, dw, run, dw_features(N, max_features), o.carries ? &o.dw : NULL, &out->dw, err);
  g = layer_of(c, 1, N, B, result->wide, &o.ones, &o.dy_t);
  if (rc == BS_OK && db) rc = judge_one(&g, db, run, 0, o.carries ? &o.db : NULL, &out->db, err);
  add_gates(out, "dX", &out->dx);
  add_gates(out, "dW", &out->dw);
  if (db) add_gates(out, "db", &out->db);
  close_operands(&o);
  free(dx);
  free(dw);
  free(db);
  return rc;
}

/* ---- faults -------------------------------------------------------------------------------------- */

/* The result of a run with a fault, or without one. */
typedef struct injection {
  int met, caught;
  char gates[256]; /* that failed */
} injection;

static int32_t inject(const bs_case *base, uint32_t kind, uint32_t loss, injection *out, bs_error *err) {
  bs_case c = *base, run;
  bs_gradient_result result = {0};
  bs_gradient_verdict verdict;
  bs_case_fault hooks;
  bs_fault *fault = NULL;
  int32_t rc = bs_fault_into(kind, &c, &run, &fault, &hooks, err);
  if (rc == BS_OK) rc = bs_gradient_run(&run, loss, NULL, &result, err);
  if (rc == BS_OK) rc = bs_gradient_judge(&c, &result, 0, &verdict, err);
  if (rc == BS_OK) out->caught |= !bs_verdict_passed(verdict.gates, verdict.n_gates);
  if (rc == BS_OK) bs_fault_note_failed(out->gates, sizeof out->gates, verdict.gates, verdict.n_gates);
  out->met = fault && bs_fault_met(fault);
  bs_gradient_result_free(&result);
  bs_fault_free(fault);
  return rc;
}

/* Runs a fault with the loss that shows it. Where relu's slope is zero, so is the gradient of the mean of
 * squares; only the sum shows the slope's fault. The run without a fault must pass with both losses;
 * processes that do not judge run both too. */
static int32_t inject_with_its_loss(const bs_case *c, uint32_t kind, injection *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  int32_t rc = inject(c, kind, bs_fault_of_slope(kind) ? BS_LOSS_SUM : BS_LOSS_MSE_ZERO, out, err);
  if (rc == BS_OK && kind == BS_FAULT_COUNT_ && c->spec.activation != BS_ACT_NONE)
    rc = inject(c, kind, BS_LOSS_SUM, out, err);
  return rc;
}

/* The last run has no fault: gates that fail in it do not count as catching a fault. */
int32_t bs_gradient_fault_gate(const bs_case *like, bs_fault_tally *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  bs_layer_spec spec = bs_small_spec(like, BS_LAYER_BACKWARD);
  bs_proposal proposal;
  bs_small subject;
  bs_case c;
  int32_t rc = bs_small_open(like->context, "random_normal", &spec, &subject, err);
  if (rc != BS_OK) return rc;
  bs_small_case(like, &spec, &subject, &c);
  rc = bs_case_propose(&c, 0, &proposal, err);
  c.progress = NULL; /* small: the fault's name is enough */
  for (uint32_t kind = 0; kind <= BS_FAULT_COUNT_ && rc == BS_OK; ++kind) {
    injection i;
    bs_case_tell(like, "T6 fault", kind + 1, BS_FAULT_COUNT_ + 1);
    if (kind < BS_FAULT_COUNT_ && bs_fault_skip_backward(kind, &c, &proposal)) continue;
    rc = inject_with_its_loss(&c, kind, &i, err);
    if (rc != BS_OK || (!i.met && bs_fault_may_miss(kind, &c, &proposal))) continue;
    bs_fault_tally_add(out, kind < BS_FAULT_COUNT_ ? bs_fault_name(kind) : NULL, i.caught, i.gates);
  }
  bs_small_close(&subject);
  return rc;
}
