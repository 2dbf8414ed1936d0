/* SPDX-License-Identifier: MIT
 * follow_ops.c - what each operator needs, so that its results follow the sizes as its inputs do (follow.c).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "graph/lower/follow.h"

/* ---- operators ------------------------------------------------------------------------------- */

/* x = quotient y + remainder, where all of them are linear, holds within the range. */
static void divide(follow *f) {
  double x[MOST], y[MOST];
  const uint32_t out = follow_output(f, 0);
  follow_keep_numbers(f, out);
  if (bs_dtype_is_float(lower_dtype(f->c, out))) return;
  const uint32_t n = follow_read_pair(f, 0, 1, x, y);
  for (uint32_t i = 0; i < n; i++) {
    follow_keep(f, x[i] < 0, GKEPT_LINEAR);
    follow_keep_sign(f, y[i]);
    if (follow_input(f, 1) & NUMBERS && y[i] != 0) follow_keep(f, (int64_t)fmod(x[i], y[i]), GKEPT_LINEAR);
  }
}

/* Less of two linear numbers is the same where it is so at the ends; Equal may hold between. */
static void compare(follow *f) {
  const int most = strcmp(f->node->op, "Min") == 0 || strcmp(f->node->op, "Max") == 0;
  if (f->n_in > 2) follow_keep_all_fixed(f);
  if (f->n_in == 2 && most) follow_keep_order(f, 0, 1, GKEPT_SIDE);
  if (strcmp(f->node->op, "Equal") == 0) follow_keep_order(f, 0, 1, GKEPT_LINEAR);
  if (!most) follow_keep_numbers(f, follow_output(f, 0));
}

/* Numbers of sizes may leave these dtypes, and begin again. */
static int wraps(uint32_t dtype) {
  return dtype != BS_BOOL && dtype != BS_I32 && dtype != BS_I64 && !bs_dtype_is_float(dtype);
}

void follow_elements(follow *f, uint32_t kind) {
  const uint32_t out = follow_output(f, 0);
  if (!(f->all & NUMBERS)) return;
  if (wraps(lower_dtype(f->c, out))) follow_keep_all_fixed(f);
  switch (kind) {
    case SIGNED:
      follow_keep_signs(f, 0, 0, strcmp(f->node->op, "Sign") == 0 ? SIGN : SIDE);
      break;
    case COMPARE:
      compare(f);
      return;
    case CLIP:
      follow_keep_order(f, 0, 1, GKEPT_SIDE);
      follow_keep_order(f, 0, 2, GKEPT_SIDE);
      break;
    case KEPT:
      follow_keep_numbers(f, out);
      return;
    case DIVIDE:
      divide(f);
      return;
    case REMAINDER:
      follow_keep_numbers(f, out);
      follow_keep_signs(f, 0, 0, NEGATIVE);
      follow_keep_fixed(f, f->in[1]);
      return;
    case EACH:
      follow_keep_all_fixed(f);
      return;
    default: /* a cast to bool asks for 0 */
      if (strcmp(f->node->op, "Cast") == 0 && lower_dtype(f->c, out) == BS_BOOL)
        follow_keep_signs(f, 0, 0, SIGN);
      break;
  }
  if (bs_dtype_is_float(lower_dtype(f->c, out))) follow_keep_numbers(f, out);
}

/* Bounds are counted from the end where they are negative, and end at the dims. */
static void slice_bounds(follow *f) {
  const gvalue *data = lower_value(f->c, f->in[0]);
  double bounds[MOST], axes[MOST];
  const uint32_t given = f->n_in > 3 ? follow_read_few(f, f->in[3], axes) : 0;
  follow_keep_fixed(f, f->n_in > 3 ? f->in[3] : GNONE);
  follow_keep_fixed(f, f->n_in > 4 ? f->in[4] : GNONE);
  for (uint32_t k = 1; k < 3 && k < f->n_in; k++) {
    const uint32_t n = follow_read_few(f, f->in[k], bounds);
    for (uint32_t i = 0; i < n; i++) {
      const double axis = given > 0 ? axes[i] : i, at = axis < 0 ? axis + data->rank : axis;
      if (!(at >= 0) || at >= data->rank) continue;
      const double dim = (double)data->dims[(uint32_t)at], own = bounds[i] < 0 ? bounds[i] + dim : bounds[i];
      follow_keep(f, bounds[i] < 0, GKEPT_LINEAR);
      if (fabs(bounds[i]) > (double)(INT64_C(1) << 40)) continue; /* to the end */
      follow_keep(f, follow_sign(own), GKEPT_SIDE);
      follow_keep(f, follow_sign(own - dim), GKEPT_SIDE);
    }
    if (n == 0) follow_keep_fixed(f, f->in[k]);
  }
}

/* Elements of a constant with dims that follow the sizes stay where they are: from a start that is fixed. */
static void slice(follow *f) {
  double starts[MOST], steps[MOST];
  slice_bounds(f);
  if (!f->is_known) return;
  follow_keep_fixed(f, f->in[1]);
  if (follow_input(f, 0) & NUMBERS) follow_keep_fixed(f, f->in[2]);
  const uint32_t n = follow_read_few(f, f->in[1], starts),
                 m = f->n_in > 4 ? follow_read_few(f, f->in[4], steps) : 0;
  int forward = n > 0;
  for (uint32_t i = 0; i < n; i++) forward &= starts[i] >= 0 && (i >= m || steps[i] > 0);
  if (!forward && follow_input(f, 0) & DIMS) follow_keep_fixed(f, f->in[0]);
}

/* The dims that are not 1 are the same ones. */
static int same_but_ones(const gvalue *a, const gvalue *b) {
  uint32_t i = 0, k = 0;
  for (;;) {
    while (i < a->rank && a->dims[i] == 1) i++;
    while (k < b->rank && b->dims[k] == 1) k++;
    if (i == a->rank || k == b->rank) return i == a->rank && k == b->rank;
    if (a->dims[i++] != b->dims[k++]) return 0;
  }
}

static void moved(follow *f, uint32_t kind) {
  const gvalue *data = lower_value(f->c, f->in[0]), *out = lower_value(f->c, follow_output(f, 0));
  if (kind == RESHAPE) follow_keep_signs(f, 1, 0, SIGN);
  if (kind != RESHAPE) follow_keep_fixed(f, f->n_in > 1 ? f->in[1] : GNONE);
  if (kind == RESHAPE && follow_input(f, 0) & DIMS && !same_but_ones(data, out))
    follow_keep_fixed(f, f->in[0]);
  if (kind == CUMSUM && (follow_input(f, 0) & (DIMS | NUMBERS)) == (DIMS | NUMBERS))
    follow_keep_fixed(f, f->in[0]);
  if (kind == CUMSUM && lower_int(f->node, "reverse", 0) && f->all & DIMS) follow_keep_fixed(f, f->in[0]);
}

static void range(follow *f) {
  follow_keep_fixed(f, f->in[2]);
  if (bs_dtype_is_float(lower_dtype(f->c, f->in[0]))) follow_keep_all_fixed(f);
}

/* Indices that are counted from the end name other elements of other dims. */
static int is_from_start(follow *f, uint32_t value) {
  enum { INDICES = 1 << 20 };
  const gvalue *v = lower_value(f->c, value);
  const int64_t n = graph_count(v);
  if (f->rc != BS_OK || !lower_is_const(f->c, value) || n > INDICES) return 0;
  unsigned char *data = malloc((size_t)n * BS_DTYPE_BYTES(v->dtype) + 1u);
  int all = data != NULL && graph_read_const(f->c->g, value, data, f->err) == BS_OK;
  for (int64_t i = 0; i < n && all; i++) all = bs_load_f64(v->dtype, data, i) >= 0;
  free(data);
  return all;
}

/* The elements of the data that indices name. */
static void gather(follow *f) {
  const unsigned data = follow_input(f, 0), index = follow_input(f, 1);
  if (index & NUMBERS && index & KNOWN) {
    if (data & KNOWN || strcmp(f->node->op, "Gather") != 0)
      follow_keep_fixed(f, f->in[1]);
    else
      follow_keep_signs(f, 1, 0, NEGATIVE);
  }
  if (f->is_known && data & DIMS && !is_from_start(f, f->in[1])) follow_keep_fixed(f, f->in[0]);
}

/* Parts of one element along the axis lie at the same places for all sizes. */
static void concat(follow *f) {
  const int64_t axis = lower_int(f->node, "axis", 0);
  int ones = 1;
  for (uint32_t i = 0; i < f->n_in && f->is_known; i++) {
    const gvalue *v = lower_value(f->c, f->in[i]);
    const int64_t at = axis < 0 ? axis + v->rank : axis;
    ones &= at >= 0 && at < v->rank && v->dims[at] == 1;
  }
  for (uint32_t i = 0; i < f->n_in && f->is_known && !ones; i++)
    if (follow_input(f, i) & DIMS) follow_keep_fixed(f, f->in[i]);
}

unsigned follow_apply(follow *f, uint32_t kind) {
  const unsigned data = follow_input(f, 0) & (DIMS | NUMBERS), all = f->all & (DIMS | NUMBERS);
  switch (kind) {
    case SOURCE:
      follow_keep_numbers(f, follow_output(f, 0));
      return NUMBERS;
    case EXPAND:
      follow_keep_signs(f, 1, 1, SIGN);
      return data | (all != 0 ? DIMS : 0u);
    case FILL:
      return all != 0 ? DIMS : 0;
    case RANGE:
      range(f);
      return (all != 0 ? DIMS : 0u) | (follow_input(f, 0) & NUMBERS);
    case CONCAT:
      concat(f);
      return all;
    case GATHER:
      gather(f);
      return f->is_known ? all : 0;
    case SLICE:
      slice(f);
      return data | (all & ~data ? DIMS : 0u);
    case MOVED:
    case RESHAPE:
    case CUMSUM:
    case TRILU:
      moved(f, kind);
      return data;
    case SUM:
      if (f->all & DIMS) follow_keep_all_fixed(f);
      return all;
    case PRODUCT:
      if (f->all & DIMS) follow_keep_all_fixed(f);
      if (f->is_known && f->all & NUMBERS) follow_keep_numbers(f, follow_output(f, 0));
      return all;
    default:
      return all;
  }
}

void follow_run(follow *f, int kind) {
  switch (kind) {
    case TILE:
      follow_keep_signs(f, 1, 1, SIGN);
      break;
    case PAD:
      follow_keep_signs(f, 1, 0, SIDE);
      follow_keep_fixed(f, f->n_in > 3 ? f->in[3] : GNONE);
      break;
    case BRANCH:
    case DATA:
      break;
    default: /* a Loop of as many rounds, with that condition */
      for (uint32_t i = 0; i < 2 && i < f->n_in; i++) follow_keep_fixed(f, f->in[i]);
  }
}
