/* SPDX-License-Identifier: MIT
 * branch.c - the branches of an If whose condition is not known before the run. Both are computed, so that an
 * index of the branch that is not taken must not end the run: under a condition that does not hold, indices
 * are 0. */
#include <stdlib.h>

#include "graph/lower/frame.h"

static const gmodel_node select_node = {.op = "If", .domain = "", .name = ""};

int32_t lower_branch(lower_ctx *c, const gmodel_node *node, uint32_t block, uint32_t condition, int when,
                     const uint32_t *in, uint32_t n_in, uint32_t *outs, uint32_t n_out, bs_error *err) {
  lower_guard guard = {.condition = condition, .when = when, .holds = GNONE, .up = c->guard};
  c->guard = &guard;
  const int32_t rc = lower_block(c, node, block, in, n_in, outs, n_out, err);
  c->guard = guard.up;
  return rc;
}

/* One bool: the branch is taken, and those around it are. Computed once a branch. */
static int32_t guard_holds(lower_ctx *c, lower_guard *guard, uint32_t *out_value, bs_error *err) {
  uint32_t up = GNONE;
  *out_value = guard->holds;
  if (guard->holds != GNONE) return BS_OK;
  int32_t rc = guard->up != NULL ? guard_holds(c, guard->up, &up, err) : BS_OK;
  if (rc != BS_OK) return rc;
  lower_map m;
  lower_map_begin(&m, c, BS_I64);
  uint8_t v = lower_map_in(&m, guard->condition);
  if (!guard->when) v = lower_map_step(&m, BS_EXPR_NOT, v, 0, 0);
  if (up != GNONE) v = lower_map_step(&m, BS_EXPR_AND, v, lower_map_in(&m, up), 0);
  guard->holds = guard->condition;
  if (m.expr.n_steps > 0) rc = lower_map_one(&m, &select_node, v, BS_BOOL, &guard->holds, err);
  *out_value = guard->holds;
  return rc;
}

/* 1: a constant whose indices are all within the dims: lists of `width` coordinates, of dims[0..width). */
static int is_within(lower_ctx *c, uint32_t index, const int64_t *dims, uint32_t width, bs_error *err) {
  enum { MOST = 1 << 22 };
  const int64_t n = graph_count(lower_value(c, index));
  uint32_t read = 0;
  if (!lower_is_const(c, index) || n > MOST) return 0;
  int64_t *places = malloc(((size_t)n + 1) * sizeof *places);
  int all = places != NULL &&
            lower_read_ints(c, &select_node, index, "its indices", places, MOST, &read, err) == BS_OK;
  for (uint32_t i = 0; i < read && all; i++) {
    const int64_t dim = dims[i % width];
    all = places[i] >= -dim && places[i] < dim;
  }
  free(places);
  return all;
}

int32_t lower_guard_index(lower_ctx *c, uint32_t kind, uint32_t data, uint32_t first, uint32_t *io_index,
                          bs_error *err) {
  const gvalue index = *lower_value(c, *io_index), from = *lower_value(c, data);
  uint32_t holds = GNONE, width = 1;
  if (c->guard == NULL) return BS_OK;
  if (kind == BS_INDEX_TUPLES) width = (uint32_t)index.dims[index.rank - 1];
  if (first + width > from.rank || is_within(c, *io_index, &from.dims[first], width, err)) return BS_OK;
  const int32_t rc = guard_holds(c, c->guard, &holds, err);
  if (rc != BS_OK) return rc;
  lower_map m;
  lower_map_begin(&m, c, BS_I64);
  const uint8_t condition = lower_map_in(&m, holds), place = lower_map_in(&m, *io_index);
  const uint8_t safe = lower_map_step(&m, BS_EXPR_SELECT, condition, place, lower_map_const_int(&m, 0));
  return lower_map_one(&m, &select_node, safe, index.dtype, io_index, err);
}
