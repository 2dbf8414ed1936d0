/* SPDX-License-Identifier: MIT
 * patterns_norm.c - softmax, RMS and layer normalisation as reductions and maps, and as operators. */
#include <stdio.h>

#include "tests/graph/fuzz_passes/changes.h"
#include "tests/graph/fuzz_passes/data.h"
#include "tests/graph/fuzz_passes/patterns.h"

static int softmax_op(spec *s, int x) {
  char attrs[48];
  int64_t axis = -1;
  const value of = s->values[x];
  change_axis(s, &of, &axis);
  snprintf(attrs, sizeof attrs, "axis=%d", (int)axis);
  return op(s, "Softmax", attrs, x, SPEC_NONE, SPEC_NONE);
}

/* The written form without the maximum overflows; Softmax does not. */
static int softmax_written(spec *s, int x) {
  const uint32_t before = s->n_changes;
  const int64_t axis = -1;
  const int top = (int)draw(s, 3);
  int shifted = x;
  if (top > 0) shifted = op2(s, "Sub", x, reduced(s, "ReduceMax", x, axis));
  int e = op1(s, "Exp", shifted), seen = e;
  if (change_view(s)) { /* the sums are of one view of e, and another one is divided */
    const int written = e;
    seen = reshaped(s, e);
    e = reshaped(s, e);
    if (seen == written && e == written) change_undone(s);
  }
  const int sum = reduced(s, "ReduceSum", seen, axis);
  const int by_product = (int)draw(s, 2), pair[2] = {e, by_product ? op1(s, "Reciprocal", sum) : sum};
  const int written = raw_op(s, by_product ? "Mul" : "Div", "", pair, 2), in[1] = {x};
  const int stable = s->stable && only_beside(s, before);
  return change_here(s, stable ? raw_op(s, "Softmax", "axis=-1", in, 1) : written);
}

int softmax(spec *s, int x) {
  return draw(s, 2) == 0 ? softmax_op(s, x) : softmax_written(s, x);
}

int pattern_softmax(spec *s, int x) {
  return softmax_written(s, or_source(s, x, 1));
}

/* ---- x / sqrt(mean(x^2) + eps) ----------------------------------------------------------------- */

static int mean_of_squares(spec *s, int x) {
  const value of = s->values[x];
  const double n = of.rank > 0 ? (double)of.dims[of.rank - 1] : 1;
  if (seldom(s, 4)) /* n - 1 is another variance */
    return op2(s, "Div", reduced(s, "ReduceSumSquare", x, -1), change_number(s, n));
  const int square = draw(s, 2) == 0 ? op2(s, "Mul", x, x) : op2(s, "Pow", x, change_number(s, 2));
  if (draw(s, 3) > 0) return reduced(s, "ReduceMean", square, -1);
  return op2(s, "Mul", reduced(s, "ReduceSum", square, -1), change_number(s, 1 / n));
}

/* The root with eps in one of its places; 0 is the one of norms. */
static int root_of(spec *s, int r, uint32_t place, double eps) {
  switch (place) {
    case 1:
      return op2(s, "Add", op1(s, "Sqrt", r), change_number(s, eps));
    case 2:
      return op1(s, "Sqrt", op2(s, "Max", r, change_number(s, eps)));
    case 3:
      return op2(s, "Max", op1(s, "Sqrt", r), change_number(s, eps));
    case 4:
      return op1(s, "Sqrt", r);
    default:
      return op1(s, "Sqrt", op2(s, "Add", r, change_number(s, eps)));
  }
}

static int divided(spec *s, int x, int r) {
  static const double sizes[] = {1e-5, 1e-6, 1e-12, 1e-8, 1e-9, 1e-3, 0.1, 1e-4};
  const double eps = sizes[draw(s, 8)];
  const uint32_t place = change_eps(s, 5);
  if (place == 0 && seldom(s, 4))
    return op2(s, "Mul", x, op2(s, "Pow", op2(s, "Add", r, change_number(s, eps)), change_number(s, -0.5)));
  const int root = root_of(s, r, place, eps);
  switch (draw(s, 3)) {
    case 0:
      return op2(s, "Div", x, root);
    case 1:
      return op2(s, "Mul", x, op1(s, "Reciprocal", root));
    default:
      return op2(s, "Mul", x, op2(s, "Div", change_number(s, 1), root));
  }
}

/* gamma and beta: rows, or something else that broadcasts. */
static int row_for(spec *s, int v) {
  const value of = s->values[v];
  if (draw(s, 4) > 0) return draw_source(s, ROLE_ROW, 1, &of.dims[of.rank - 1]);
  return draw_broadcast(s, ROLE_ROW, s->dtype, of.rank, of.dims);
}

/* x + r before a norm; the sum may have other readers. */
static int with_residual(spec *s, int x) {
  const value of = s->values[x];
  if (draw(s, 3) > 0) return x;
  const int sum =
      op2(s, "Add", x, draw(s, 2) == 0 ? draw_source(s, ROLE_X, of.rank, of.dims) : row_for(s, x));
  if (seldom(s, 3)) add_output(s, sum);
  return sum;
}

int pattern_norm(spec *s, int x) {
  x = with_residual(s, or_source(s, x, 1));
  const int center = (int)draw(s, 2);
  if (s->bad || s->values[x].rank == 0) {
    s->bad = 1;
    return x;
  }
  if (center) x = op2(s, "Sub", x, reduced(s, "ReduceMean", x, -1));
  if (s->bad) return x;
  int v = divided(s, x, mean_of_squares(s, x));
  if (draw(s, 2) == 0 && !s->bad && s->values[v].rank > 0)
    v = draw(s, 2) == 0 ? op2(s, "Mul", v, row_for(s, v)) : op2(s, "Mul", row_for(s, v), v);
  if (draw(s, 2) == 0 && !s->bad && s->values[v].rank > 0) v = op2(s, "Add", v, row_for(s, v));
  return v;
}

int pattern_norm_op(spec *s, int x) {
  x = with_residual(s, or_source(s, x, 1));
  if (s->bad || s->values[x].rank == 0) {
    s->bad = 1;
    return x;
  }
  const int64_t n = s->values[x].dims[s->values[x].rank - 1];
  const int gamma = draw_source(s, ROLE_ROW, 1, &n);
  if (draw(s, 2) == 0) return op(s, "RMSNormalization", "axis=-1 epsilon=1e-05", x, gamma, SPEC_NONE);
  return op(s, "LayerNormalization", "axis=-1 epsilon=1e-05", x, gamma,
            draw(s, 2) == 0 ? draw_source(s, ROLE_ROW, 1, &n) : SPEC_NONE);
}
