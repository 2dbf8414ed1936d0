/* SPDX-License-Identifier: MIT
 * counted.c - marks of values whose rows do not all count: from the inputs of a node to its outputs. */
#include "graph/lower/counted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

void lower_mark_rows(build *b, uint32_t i, uint32_t axis, uint32_t count) {
  if (b->rc != BS_OK || !lower_wants(b->node, i)) return;
  b->c->marks[b->node->out[i]] = (lower_mark){MARK_ROWS, count, axis, GNONE, GNONE};
}

static int32_t refuse(lower_ctx *c, const gmodel_node *node, const lower_mark *mark, const char *why,
                      bs_error *err) {
  return lower_unsupported(c, node, 0, err, "%s; how many it has depends on values (NonZero '%.80s')", why,
                           c->counts[mark->count].name);
}

int32_t lower_unmarked(lower_ctx *c, const gmodel_node *node, uint32_t model_value, bs_error *err) {
  const lower_mark *mark = &c->marks[model_value];
  if (mark->kind == MARK_SEQUENCE)
    return lower_unsupported(c, node, 0, err, "it takes a sequence as a whole");
  return mark->kind != MARK_ROWS ? BS_OK : refuse(c, node, mark, "it takes all rows of a value", err);
}

const lower_mark *count_mark(const count_walk *w, uint32_t i, uint32_t kind) {
  if (!lower_has(w->node, i) || (w->node->in[i] & LOWER_DIRECT)) return NULL;
  const lower_mark *mark = &w->b.c->marks[w->node->in[i]];
  return mark->kind == kind ? mark : NULL;
}

void count_refuse(count_walk *w, const char *why) {
  if (w->b.rc == BS_OK) w->b.rc = refuse(w->b.c, w->node, w->first, why, w->b.err);
}

int count_read(count_walk *w, uint32_t i, int64_t *out, int64_t *out_shadow) {
  const lower_mark *mark = count_mark(w, i, MARK_NUMBERS);
  if (!lower_has(w->node, i) || w->b.rc != BS_OK) return -1;
  if (mark != NULL) w->in[i] = mark->bound;
  const uint32_t value = mark != NULL ? mark->bound : lower_in(w->b.c, w->node, i);
  const uint32_t n = build_read_ints(&w->b, value, "its shape", out, BS_MAX_DIMS);
  memcpy(out_shadow, out, sizeof *out * BS_MAX_DIMS);
  if (mark != NULL) build_read_ints(&w->b, mark->shadow, "its shape", out_shadow, BS_MAX_DIMS);
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
    if (strcmp(w->node->op, by_first[i]) == 0) return w->at == 0;
  if (strcmp(w->node->op, "ReduceMax") == 0)
    return w->at == 0 && graph_count(lower_value(w->b.c, w->first->bound)) == 1;
  return strcmp(w->node->op, "Where") == 0 ? w->at > 0 : strcmp(w->node->op, "Concat") == 0;
}

/* A number of rows is never below 0: Equal with other numbers is known. */
static int never_equal(count_walk *w) {
  const uint32_t other = lower_has(w->node, 1) ? lower_in(w->b.c, w->node, 1) : GNONE;
  int64_t numbers[BS_MAX_DIMS];
  if (strcmp(w->node->op, "Equal") != 0 || w->at != 0 || other == GNONE || !lower_is_const(w->b.c, other) ||
      graph_count(lower_value(w->b.c, other)) > BS_MAX_DIMS)
    return 0;
  const uint32_t n = build_read_ints(&w->b, other, "its input", numbers, BS_MAX_DIMS);
  for (uint32_t i = 0; i < n; i++)
    if (numbers[i] >= 0) return 0;
  w->in[0] = w->first->bound;
  return w->b.rc == BS_OK;
}

/* 1: both are the same constant. */
static int same_numbers(count_walk *w, uint32_t x, uint32_t y) {
  int64_t xs[BS_MAX_DIMS], ys[BS_MAX_DIMS];
  const uint32_t n = build_read_ints(&w->b, x, "its shape", xs, BS_MAX_DIMS);
  build_read_ints(&w->b, y, "its shape", ys, BS_MAX_DIMS);
  for (uint32_t i = 0; i < n && w->b.rc == BS_OK; i++)
    if (xs[i] != ys[i]) return 0;
  return w->b.rc == BS_OK;
}

/* The node's output 0 with the bounds, or the shadows, in the place of numbers; GNONE: not lowered. */
static uint32_t moved(count_walk *w, int shadow) {
  uint32_t *in = malloc((w->node->n_in + 1u) * sizeof *in);
  if (in == NULL) build_no_memory(&w->b);
  for (uint32_t i = 0; i < w->node->n_in && in != NULL; i++) {
    const lower_mark *mark = count_mark(w, i, MARK_NUMBERS);
    in[i] = mark == NULL ? GNONE : shadow ? mark->shadow : mark->bound;
  }
  if (w->b.rc == BS_OK) w->b.rc = lower_replaced(w->b.c, w->node, in, w->node->n_in, w->b.err);
  free(in);
  return w->b.rc == BS_OK ? w->b.c->value_of[w->node->out[0]] : GNONE;
}

/* What is moved is data, and a constant for those that read shapes. Without a number it is a constant alone.
 */
static void move_numbers(count_walk *w) {
  lower_ctx *c = w->b.c;
  if (w->b.rc == BS_OK) w->b.rc = lower_node(c, w->node, w->b.err);
  if (w->b.rc != BS_OK || !lower_wants(w->node, 0)) return;
  const uint32_t out = w->node->out[0], value = c->value_of[out], dtype = lower_dtype(c, value);
  for (uint32_t i = 0; i < w->node->n_in; i++) {
    const lower_mark *mark = count_mark(w, i, MARK_NUMBERS);
    if (mark != NULL && mark->count != w->first->count) return;
  }
  if ((dtype != BS_I64 && dtype != BS_I32) || graph_count(lower_value(c, value)) > BS_MAX_DIMS) return;
  const uint32_t bound = moved(w, 0), shadow = moved(w, 1);
  if (w->b.rc != BS_OK) return;
  c->value_of[out] = value;
  if (!lower_is_const(c, bound) || !lower_is_const(c, shadow)) return;
  if (same_numbers(w, bound, shadow)) {
    c->value_of[out] = bound;
  } else {
    c->marks[out] = (lower_mark){MARK_NUMBERS, w->first->count, 0, bound, shadow};
  }
}

/* Integers with the number of rows at `at`. */
static void numbers_at(count_walk *w, uint32_t count, uint32_t bound, uint32_t at) {
  lower_ctx *c = w->b.c;
  int64_t numbers[BS_MAX_DIMS] = {0}, where[BS_MAX_DIMS] = {0};
  const build_shape shape = build_shape_of(&w->b, bound);
  lower_map m;
  build_read_ints(&w->b, bound, "its shape", numbers, BS_MAX_DIMS);
  numbers[at] = MARK_SHADOW;
  where[at] = 1;
  const uint32_t shadow = build_const(&w->b, BS_I64, &shape, numbers);
  const uint32_t places = build_const(&w->b, BS_I64, &shape, where);
  if (w->b.rc != BS_OK) return;
  lower_map_begin(&m, c, BS_I64);
  const uint8_t is = lower_map_in(&m, places), rows = lower_map_in(&m, c->counts[count].rows);
  const uint8_t n = lower_map_step(&m, BS_EXPR_SELECT, is, rows, lower_map_in(&m, bound));
  build_out(&w->b, 0, build_map(&w->b, &m, n, BS_I64));
  c->marks[w->node->out[0]] = (lower_mark){MARK_NUMBERS, count, 0, bound, shadow};
}

static void shape(count_walk *w) {
  lower_ctx *c = w->b.c;
  int64_t start = lower_int(w->node, "start", 0);
  if (w->b.rc == BS_OK) w->b.rc = lower_node(c, w->node, w->b.err);
  if (w->b.rc != BS_OK || !lower_wants(w->node, 0)) return;
  const uint32_t dims = c->value_of[w->node->out[0]];
  const int64_t rank = lower_rank(c, lower_in(c, w->node, 0));
  if (start < 0) start = start < -rank ? 0 : start + rank;
  const int64_t at = (int64_t)w->first->axis - start;
  if (at >= 0 && at < build_dim(&w->b, dims, 0)) numbers_at(w, w->first->count, dims, (uint32_t)at);
}

/* The sum of bools is the number of rows that NonZero finds in them: exporters write it so. */
static void sum_of_bools(count_walk *w, const lower_mark *bools) {
  lower_ctx *c = w->b.c;
  if (w->b.rc == BS_OK) w->b.rc = lower_node(c, w->node, w->b.err);
  lower_fixed *fixed = lower_fixed_of(&w->b, bools->bound);
  uint32_t count = count_found(&w->b, bools->bound);
  int64_t mul = 1;
  if (fixed != NULL && count == GNONE) count = count_of_mask(&w->b, bools->bound, fixed->mask, "", &mul);
  if (w->b.rc != BS_OK || count == GNONE || !lower_wants(w->node, 0)) return;
  const gvalue v = *lower_value(c, c->value_of[w->node->out[0]]);
  const build_shape shape = build_shape_of(&w->b, c->value_of[w->node->out[0]]);
  if (graph_count(&v) != 1 || v.dtype != BS_I64 || mul != 1) return;
  if (fixed != NULL) {
    fixed->rows = c->counts[count].rows;
    build_out(&w->b, 0, build_const(&w->b, BS_I64, &shape, &fixed->n));
  } else {
    numbers_at(w, count, build_const(&w->b, BS_I64, &shape, &c->counts[count].bound), 0);
  }
}

static void note_bools(lower_ctx *c, const gmodel_node *node) {
  if (strcmp(node->op, "Cast") != 0 || !lower_has(node, 0) || !lower_wants(node, 0)) return;
  const uint32_t from = lower_in(c, node, 0);
  if (lower_is_compound(from) || lower_is_compound(c->value_of[node->out[0]])) return;
  if ((c->n_counts > 0 || c->fixes->n > 0) && lower_dtype(c, from) == BS_BOOL &&
      lower_dtype(c, c->value_of[node->out[0]]) == BS_I64)
    c->marks[node->out[0]] = (lower_mark){MARK_BOOLS, 0, 0, from, GNONE};
}

/* ---- nodes ------------------------------------------------------------------------------------- */

static void mark_outputs(count_walk *w) {
  lower_ctx *c = w->b.c;
  for (uint32_t i = 0; i < w->node->n_out && w->b.rc == BS_OK && w->keeps; i++) {
    if (!lower_wants(w->node, i)) continue;
    if (lower_is_compound(c->value_of[w->node->out[i]])) count_refuse(w, "a sequence, or more than 6 dims");
    if (w->b.rc != BS_OK) return;
    const gvalue *v = lower_value(c, c->value_of[w->node->out[i]]);
    if (w->axis >= v->rank || v->dims[w->axis] != c->counts[w->count].bound)
      count_refuse(w, "its output has no dim of such rows");
    lower_mark_rows(&w->b, i, w->axis, w->count);
  }
}

static void walk(count_walk *w, count_rule rule, int guess) {
  lower_ctx *c = w->b.c;
  /* What the rules decide by sizes is not followed: each size of a range is looked at. */
  if (w->b.rc == BS_OK) w->b.rc = lower_keep(c, 0, GKEPT_UNKNOWN, w->b.err);
  if (rule == NULL)
    count_refuse(w, "it mixes the rows of its input, or what it does with them is not known");
  else
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

/* 1: input `at` says what shape the output has. */
static int reads_shape(const gmodel_node *node, uint32_t at) {
  if (strcmp(node->op, "ConstantOfShape") == 0) return at == 0;
  if (strcmp(node->op, "Reshape") == 0 || strcmp(node->op, "Expand") == 0 || strcmp(node->op, "Range") == 0)
    return at == 1;
  return strcmp(node->op, "Slice") == 0 && at > 0;
}

static void find_marks(count_walk *w) {
  for (uint32_t i = 0; i < w->node->n_in; i++) {
    const lower_mark *rows = count_mark(w, i, MARK_ROWS), *numbers = count_mark(w, i, MARK_NUMBERS);
    if (rows != NULL ? w->n_rows++ == 0 : numbers != NULL && w->first == NULL) {
      w->first = rows != NULL ? rows : numbers;
      w->at = i;
    }
  }
}

int32_t lower_counted(lower_ctx *c, const gmodel_node *node, int guess, bs_error *err) {
  count_walk w = {.b = build_begin(c, node, err), .node = node};
  memset(w.in, 0xff, sizeof w.in);
  for (uint32_t i = 0; i < node->n_out; i++)
    if (node->out[i] != GMODEL_NONE) c->marks[node->out[i]] = (lower_mark){0};
  if (strcmp(node->op, "SplitToSequence") == 0 || strcmp(node->op, "SequenceAt") == 0)
    return lower_node(c, node, err);
  for (uint32_t i = 0; i < node->n_in && w.b.rc == BS_OK; i++)
    if (count_mark(&w, i, MARK_SEQUENCE) != NULL) w.b.rc = lower_unmarked(c, node, node->in[i], err);
  if (w.b.rc != BS_OK) return w.b.rc;
  find_marks(&w);
  const lower_mark *bools = count_mark(&w, 0, MARK_BOOLS);
  int ready = w.first != NULL || bools != NULL;
  if (ready) w.b.rc = lower_ready(c, node, &ready, err);
  if (w.b.rc != BS_OK) return w.b.rc;
  if (!ready || (w.first == NULL && strcmp(node->op, "ReduceSum") != 0)) {
    w.b.rc = lower_node(c, node, err);
    if (w.b.rc == BS_OK) note_bools(c, node);
  } else if (w.first == NULL) {
    sum_of_bools(&w, bools);
  } else if (strcmp(node->op, "Shape") == 0 && w.n_rows > 0) {
    shape(&w);
  } else if (w.n_rows == 0 && moves(&w)) {
    move_numbers(&w);
  } else if (w.n_rows > 0 || reads_shape(node, w.at)) {
    walk(&w, count_rule_of(node), guess);
  } else if (never_equal(&w)) {
    w.b.rc = lower_replaced(c, node, w.in, 1, err);
  } else if (w.b.rc == BS_OK) {
    w.b.rc = lower_node(c, node, err);
  }
  return w.b.rc;
}
