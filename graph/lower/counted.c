/* SPDX-License-Identifier: MIT
 * counted.c - marks of values whose rows do not all count: from the inputs of a node to its outputs. */
#include "graph/lower/counted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

void lower_mark_rows(build *b, uint32_t i, uint32_t axis, uint32_t count) {
  if (b->rc != BS_OK || !lower_wants(b->node, i)) return;
  b->c->marks[b->node->out[i]] = (lower_mark){MARK_ROWS, count, axis, GNONE};
}

static int32_t refuse(lower_ctx *c, const gmodel_node *node, const lower_mark *mark, const char *why,
                      bs_error *err) {
  return lower_unsupported(c, node, 0, err, "%s; how many it has depends on values (NonZero '%.80s')", why,
                           c->counts[mark->count].name);
}

int32_t lower_unmarked(lower_ctx *c, const gmodel_node *node, uint32_t model_value, bs_error *err) {
  const lower_mark *mark = &c->marks[model_value];
  return mark->kind == MARK_NONE ? BS_OK : refuse(c, node, mark, "it takes all rows of a value", err);
}

const lower_mark *count_mark(const count_walk *w, uint32_t i) {
  if (!lower_has(w->node, i) || (w->node->in[i] & LOWER_DIRECT)) return NULL;
  const lower_mark *mark = &w->b.c->marks[w->node->in[i]];
  return mark->kind != MARK_NONE ? mark : NULL;
}

void count_refuse(count_walk *w, const char *why) {
  if (w->b.rc == BS_OK) w->b.rc = refuse(w->b.c, w->node, w->first, why, w->b.err);
}

int count_read(count_walk *w, uint32_t i, int64_t *out, int64_t *out_shadow) {
  const lower_mark *mark = count_mark(w, i);
  if (!lower_has(w->node, i) || w->b.rc != BS_OK) return -1;
  const uint32_t n = build_read_ints(&w->b, lower_in(w->b.c, w->node, i), "its shape", out, BS_MAX_DIMS);
  memcpy(out_shadow, out, sizeof *out * BS_MAX_DIMS);
  if (mark != NULL && mark->kind == MARK_ROWS) count_refuse(w, "its shape is made of such rows");
  if (mark != NULL && w->b.rc == BS_OK)
    build_read_ints(&w->b, mark->shadow, "its shape", out_shadow, BS_MAX_DIMS);
  return w->b.rc == BS_OK ? (int)n : -1;
}

/* Lowers the node with values in the place of some inputs. */
static int32_t lower_replaced(lower_ctx *c, const gmodel_node *node, const uint32_t *values, uint32_t n,
                              bs_error *err) {
  gmodel_node with = *node;
  uint32_t *in = malloc((node->n_in + 1u) * sizeof *in);
  if (in == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory to lower the model");
  for (uint32_t i = 0; i < node->n_in; i++)
    in[i] = i < n && values[i] != GNONE ? values[i] | LOWER_DIRECT : node->in[i];
  with.in = in;
  const int32_t rc = lower_node(c, &with, err);
  free(in);
  return rc;
}

/* ---- numbers of rows --------------------------------------------------------------------------- */

/* Operators that move or choose elements, and change none. */
static int moves(const count_walk *w) {
  static const char *const by_first[] = {"Gather", "Slice",    "Unsqueeze", "Squeeze",
                                         "Cast",   "Identity", "Reshape"};
  for (uint32_t i = 0; i < sizeof by_first / sizeof by_first[0]; i++)
    if (strcmp(w->node->op, by_first[i]) == 0) return w->at == 0 && w->n_marked == 1;
  if (strcmp(w->node->op, "Where") == 0) return w->at > 0;
  return strcmp(w->node->op, "Concat") == 0;
}

/* A number of rows is never below 0. */
static int never_equal(count_walk *w) {
  int64_t other[BS_MAX_DIMS], same[BS_MAX_DIMS];
  if (strcmp(w->node->op, "Equal") != 0 || w->n_marked != 1) return 0;
  const int n = count_read(w, 1 - w->at, other, same);
  for (int i = 0; i < n; i++)
    if (other[i] >= 0) return 0;
  return n >= 0;
}

/* 1: no number is left in what was moved. */
static int same_numbers(count_walk *w, uint32_t value, uint32_t shadow) {
  int64_t x[BS_MAX_DIMS], y[BS_MAX_DIMS];
  if (graph_count(lower_value(w->b.c, value)) > BS_MAX_DIMS) return 0;
  const uint32_t n = build_read_ints(&w->b, value, "its shape", x, BS_MAX_DIMS);
  build_read_ints(&w->b, shadow, "its shape", y, BS_MAX_DIMS);
  for (uint32_t i = 0; i < n && w->b.rc == BS_OK; i++)
    if (x[i] != y[i]) return 0;
  return w->b.rc == BS_OK;
}

/* The same for the numbers and for their shadow. */
static void move_numbers(count_walk *w) {
  lower_ctx *c = w->b.c;
  const uint32_t out = w->node->n_out > 0 ? w->node->out[0] : GMODEL_NONE;
  uint32_t *shadows = malloc((w->node->n_in + 1u) * sizeof *shadows);
  if (shadows == NULL) build_no_memory(&w->b);
  for (uint32_t i = 0; i < w->node->n_in && w->b.rc == BS_OK; i++) {
    const lower_mark *mark = count_mark(w, i);
    shadows[i] = mark != NULL ? mark->shadow : GNONE;
    if (mark != NULL && (mark->kind != MARK_NUMBERS || mark->count != w->first->count))
      count_refuse(w, "its inputs have other such numbers or rows");
  }
  if (w->b.rc == BS_OK) w->b.rc = lower_replaced(c, w->node, shadows, w->node->n_in, w->b.err);
  const uint32_t shadow = w->b.rc == BS_OK && out != GMODEL_NONE ? c->value_of[out] : GNONE;
  if (w->b.rc == BS_OK) w->b.rc = lower_node(c, w->node, w->b.err);
  if (shadow != GNONE && w->b.rc == BS_OK) {
    const uint32_t dtype = lower_dtype(c, c->value_of[out]);
    if (!lower_is_const(c, shadow) || (dtype != BS_I64 && dtype != BS_I32))
      count_refuse(w, "a number of rows becomes data");
    if (w->b.rc == BS_OK && !same_numbers(w, c->value_of[out], shadow))
      c->marks[out] = (lower_mark){MARK_NUMBERS, w->first->count, 0, shadow};
  }
  free(shadows);
}

/* Shape: of rows a constant in which a number is marked. */
static void shape(count_walk *w) {
  lower_ctx *c = w->b.c;
  if (w->b.rc == BS_OK) w->b.rc = lower_node(c, w->node, w->b.err);
  if (w->b.rc != BS_OK || w->first->kind != MARK_ROWS || !lower_wants(w->node, 0)) return;
  int64_t dims[BS_MAX_DIMS] = {0}, start = lower_int(w->node, "start", 0);
  const int64_t rank = lower_rank(c, lower_in(c, w->node, 0));
  const uint32_t n = build_read_ints(&w->b, c->value_of[w->node->out[0]], "its shape", dims, BS_MAX_DIMS);
  if (start < 0) start = start < -rank ? 0 : start + rank;
  const int64_t at = (int64_t)w->first->axis - start;
  if (at < 0 || at >= (int64_t)n) return;
  dims[at] = MARK_SHADOW;
  c->marks[w->node->out[0]] =
      (lower_mark){MARK_NUMBERS, w->first->count, 0, build_ints(&w->b, dims, (int64_t)n)};
}

/* ---- nodes ------------------------------------------------------------------------------------- */

static void mark_outputs(count_walk *w) {
  lower_ctx *c = w->b.c;
  for (uint32_t i = 0; i < w->node->n_out && w->b.rc == BS_OK && w->keeps; i++) {
    if (!lower_wants(w->node, i)) continue;
    const gvalue *v = lower_value(c, c->value_of[w->node->out[i]]);
    if (w->axis >= v->rank || v->dims[w->axis] != c->counts[w->count].bound)
      count_refuse(w, "its output has no dim of such rows");
    lower_mark_rows(&w->b, i, w->axis, w->count);
  }
}

static void walk(count_walk *w, int guess) {
  lower_ctx *c = w->b.c;
  const count_rule rule = count_rule_of(w->node);
  if (rule == NULL) {
    count_refuse(w, "it mixes the rows of its input, or what it does with them is not known");
    return;
  }
  rule(w);
  if (w->b.rc != BS_OK) return;
  w->b.rc = lower_replaced(c, w->node, w->in, sizeof w->in / sizeof w->in[0], w->b.err);
  if (w->b.rc == BS_INPUT && !guess) {
    char why[300];
    snprintf(why, sizeof why, "with room for all rows: %.200s", w->b.err != NULL ? w->b.err->message : "");
    w->b.rc = refuse(c, w->node, w->first, why, w->b.err);
  }
  if (w->b.rc == BS_OK && w->cut > 0 && lower_wants(w->node, 0))
    build_out(&w->b, 0, build_slice(&w->b, c->value_of[w->node->out[0]], w->cut_axis, 0, w->cut, 1));
  mark_outputs(w);
}

int32_t lower_counted(lower_ctx *c, const gmodel_node *node, int guess, bs_error *err) {
  count_walk w = {.b = build_begin(c, node, err), .node = node};
  memset(w.in, 0xff, sizeof w.in);
  for (uint32_t i = 0; i < node->n_out; i++)
    if (node->out[i] != GMODEL_NONE) c->marks[node->out[i]] = (lower_mark){0};
  for (uint32_t i = 0; i < node->n_in; i++) {
    const lower_mark *mark = count_mark(&w, i);
    if (mark == NULL) continue;
    if (w.n_marked++ > 0) continue;
    w.first = mark;
    w.at = i;
  }
  if (w.n_marked == 0) return lower_node(c, node, err);
  int ready = 1;
  w.b.rc = lower_ready(c, node, &ready, err);
  if (w.b.rc == BS_OK && !ready) w.b.rc = BS_UNSUPPORTED; /* a node that it needs was reported */
  if (w.b.rc != BS_OK) return w.b.rc;
  if (strcmp(node->op, "Shape") == 0) {
    shape(&w);
  } else if (w.first->kind == MARK_NUMBERS && moves(&w)) {
    move_numbers(&w);
  } else if (w.first->kind == MARK_NUMBERS && never_equal(&w)) {
    w.b.rc = lower_node(c, node, err);
  } else if (w.b.rc == BS_OK) {
    walk(&w, guess);
  }
  return w.b.rc;
}
