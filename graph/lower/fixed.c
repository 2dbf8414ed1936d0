/* SPDX-License-Identifier: MIT
 * fixed.c - numbers of rows that a model's shapes fix. An exporter writes the sizes that it saw: a Reshape of
 * the rows that NonZero finds to known dims, say, allows one number of rows alone. When a model cannot be
 * lowered because of such rows, it is lowered again with these numbers; the run fails where they do not hold.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/lower/counted.h"

void lower_fix(build *b, uint32_t given, int64_t n) {
  lower_fixes *f = b->c->fixes;
  for (uint32_t i = 0; i < f->n; ++i) {
    if (f->list[i].mask == given) return;
  }
  if (b->rc != BS_OK || (given & LOWER_DIRECT) || b->c->guard != NULL) return; /* a branch may not be taken */
  if (!ARRAY_GROW(f->list, f->n, f->cap)) {
    build_no_memory(b);
    return;
  }
  f->list[f->n++] = (lower_fixed){given, n, 0, GNONE};
}

lower_fixed *lower_fixed_of(const build *b, uint32_t mask) {
  lower_fixes *f = b->c->fixes;
  for (uint32_t i = 0; i < f->n && b->rc == BS_OK; ++i) {
    const uint32_t value = b->c->value_of[f->list[i].mask];
    if (f->list[i].known && value != GNONE && count_same_view(b, mask, value)) return &f->list[i];
  }
  return NULL;
}

/* The value, or a failure of the run where `holds` is 0. */
static uint32_t guarded(build *b, uint32_t value, uint32_t holds) {
  const build_shape shape = build_shape_of(b, value), one = {1, {1}};
  if (b->rc != BS_OK || build_elements(&shape) == 0) return value;
  const uint32_t line = shape.rank == 0 ? build_reshape(b, value, &one) : value;
  return build_reshape(b, count_where(b, line, 0, shape.rank == 0 ? 1 : shape.dims[0], holds), &shape);
}

void lower_check(build *b, uint32_t holds) {
  const build_shape one = {1, {1}};
  const int64_t is = 1;
  lower_ctx *c = b->c;
  if (b->rc == BS_OK && c->guard != NULL)
    holds = count_where(b, build_const(b, BS_I64, &one, &is), 0, 1, holds);
  if (b->rc != BS_OK) return;
  if (!ARRAY_GROW(c->checks, c->n_checks, c->cap_checks)) {
    build_no_memory(b);
    return;
  }
  c->checks[c->n_checks++] = holds;
}

/* GNONE: there are none. */
static uint32_t all_hold(build *b) {
  const lower_ctx *c = b->c;
  uint32_t holds = GNONE;
  for (uint32_t k = 0; k < c->fixes->n + c->n_checks && b->rc == BS_OK; ++k) {
    const lower_fixed *f = k < c->fixes->n ? &c->fixes->list[k] : NULL;
    if (f != NULL && f->rows == GNONE) continue;
    const uint32_t is =
        f == NULL ? c->checks[k - c->fixes->n]
                  : build_binary(b, BS_EXPR_EQ, f->rows, build_real(b, BS_I64, (double)f->n), BS_I64);
    holds = holds == GNONE ? is : build_binary(b, BS_EXPR_AND, holds, is, BS_I64);
  }
  return holds;
}

int32_t lower_fixed_outputs(lower_ctx *c, bs_error *err) {
  uint32_t holds = GNONE;
  for (uint32_t i = 0; i < c->model->n_outputs; ++i) {
    const gmodel_port *p = &c->model->outputs[i];
    const gmodel_node port = {.op = "output", .domain = "", .name = p->name, .opset = c->model->opset};
    build b = build_begin(c, &port, err);
    if (i == 0) holds = all_hold(&b);
    if (holds == GNONE) return b.rc;
    const uint32_t result = c->value_of[p->value];
    if (result == GNONE || lower_is_compound(result) || c->model->values[p->value].kind != GMODEL_COMPUTED)
      continue;
    const uint32_t value = guarded(&b, result, holds);
    if (b.rc != BS_OK) return b.rc;
    c->value_of[p->value] = value;
  }
  return BS_OK;
}

/* ---- the whole --------------------------------------------------------------------------------- */

static void not_told(void *user, const bs_graph_issue *issue) {
  (void)user;
  (void)issue;
}

/* 1: NonZero is in it, and no state: a failing run would have changed it. */
static int may_be_fixed(const gmodel *model) {
  int found = 0;
  for (uint32_t i = 0; i < model->n_values; ++i) {
    if (model->values[i].kind == GMODEL_STATE) return 0;
  }
  for (uint32_t i = 0; i < model->n_nodes; ++i) found |= strcmp(model->nodes[i].op, "NonZero") == 0;
  return found;
}

/* Lowers again as long as that brings more numbers. */
static int32_t with_fixes(const gmodel *model, const lower_options *options, lower_fixes *fixes,
                          graph **out_graph) {
  lower_options quiet = *options;
  uint32_t known = 0;
  int32_t rc;
  quiet.issue = not_told;
  quiet.not_judged = NULL;
  for (;;) {
    bs_error own = BS_ERROR_INIT;
    rc = lower_once(model, &quiet, fixes, out_graph, &own);
    if (rc != BS_UNSUPPORTED || fixes->n == known) return rc;
    known = fixes->n;
    for (uint32_t i = 0; i < known; ++i) {
      fixes->list[i].known = 1;
      fixes->list[i].rows = GNONE;
    }
  }
}

int32_t lower_model(const gmodel *model, const lower_options *options, graph **out_graph, bs_error *err) {
  lower_fixes fixes = {0}, none = {0};
  int32_t rc = may_be_fixed(model) ? with_fixes(model, options, &fixes, out_graph) : BS_UNSUPPORTED;
  if (rc != BS_OK) rc = lower_once(model, options, &none, out_graph, err);
  free(fixes.list);
  free(none.list);
  return rc;
}
