/* SPDX-License-Identifier: MIT
 * patterns_map.c - activations in their spellings, elementwise chains, products with what follows them. */
#include "tests/graph/fuzz_passes/changes.h"
#include "tests/graph/fuzz_passes/data.h"
#include "tests/graph/fuzz_passes/patterns.h"

static int times(spec *s, int x, double number) {
  return op2(s, "Mul", x, change_number(s, number));
}
static int plus(spec *s, int x, double number) {
  return op2(s, "Add", x, change_number(s, number));
}

static int relu(spec *s, int x) {
  return op1(s, "Relu", x);
}
static int clip(spec *s, int x) {
  static const double high[] = {6, 20, 31, 50, 100, 500};
  const double hi = high[draw(s, 6)];
  const int lo = add_number(s, draw(s, 2) == 0 ? 0 : -hi);
  return op(s, "Clip", "", x, lo, add_number(s, hi));
}
static int gelu(spec *s, int x) {
  const int e = draw(s, 2) == 0 ? op2(s, "Div", x, change_number(s, 1.4142135623730951))
                                : times(s, x, 0.7071067811865476);
  const int sum = plus(s, op1(s, "Erf", e), 1);
  switch (draw(s, 3)) {
    case 0:
      return op2(s, "Mul", times(s, x, 0.5), sum);
    case 1:
      return times(s, op2(s, "Mul", x, sum), 0.5);
    default:
      return op2(s, "Mul", x, times(s, sum, 0.5));
  }
}
static int gelu_tanh(spec *s, int x) {
  const int cube =
      draw(s, 2) == 0 ? op2(s, "Pow", x, change_number(s, 3)) : op2(s, "Mul", x, op2(s, "Mul", x, x));
  const int inner = times(s, op2(s, "Add", x, times(s, cube, 0.044715)), 0.7978845608028654);
  const int sum = plus(s, op1(s, "Tanh", inner), 1);
  return draw(s, 2) == 0 ? op2(s, "Mul", times(s, x, 0.5), sum) : op2(s, "Mul", x, times(s, sum, 0.5));
}
static int sigmoid(spec *s, int x) {
  if (draw(s, 2) == 0) return op1(s, "Sigmoid", x);
  const int sum = plus(s, op1(s, "Exp", op1(s, "Neg", x)), 1);
  return draw(s, 2) == 0 ? op2(s, "Div", change_number(s, 1), sum) : op1(s, "Reciprocal", sum);
}
static int silu(spec *s, int x) {
  if (draw(s, 2) == 0) return op2(s, "Mul", x, sigmoid(s, x));
  return op2(s, "Div", x, plus(s, op1(s, "Exp", op1(s, "Neg", x)), 1));
}
static int quick_gelu(spec *s, int x) {
  return op2(s, "Mul", x, op1(s, "Sigmoid", times(s, x, 1.702)));
}
/* The written form overflows where e^x does; Softplus does not. */
static int softplus(spec *s, int x) {
  if (draw(s, 3) == 0) return op1(s, "Softplus", x);
  const uint32_t before = s->n_changes;
  const int sum[1] = {plus(s, op1(s, "Exp", x), 1)}, in[1] = {x};
  const int written = raw_op(s, "Log", "", sum, 1);
  if (!s->stable || s->bad || !only_views(s, before)) return change_here(s, written);
  const value of = s->values[written];
  const int view[2] = {raw_op(s, "Softplus", "", in, 1), add_ints(s, of.rank, of.dims)};
  return change_here(s, raw_op(s, "Reshape", "", view, 2));
}
static int mish(spec *s, int x) {
  return op2(s, "Mul", x, op1(s, "Tanh", softplus(s, x)));
}
static int gelu_op(spec *s, int x) {
  return op(s, "Gelu", draw(s, 2) == 0 ? "approximate=tanh" : "", x, SPEC_NONE, SPEC_NONE);
}
static int hard_swish(spec *s, int x) {
  return op2(s, "Mul", x,
             times(s, op(s, "Clip", "", plus(s, x, 3), add_number(s, 0), add_number(s, 6)), 1 / 6.0));
}

int activated(spec *s, int x) {
  static int (*const all[])(spec *, int) = {relu,       clip,     gelu, gelu_tanh, silu,      sigmoid,
                                            quick_gelu, softplus, mish, gelu_op,   hard_swish};
  return all[draw(s, 11)](s, x);
}

/* An activation, and what losses do with it. */
int pattern_activation(spec *s, int x) {
  int v = activated(s, or_source(s, x, 1));
  switch (draw(s, 6)) {
    case 1:
      return op1(s, "Log", change_floor(s, v));
    case 2:
      return op1(s, "Log", op2(s, "Sub", add_number(s, 1), change_floor(s, v)));
    case 3:
      return op1(s, "Reciprocal", change_floor(s, v));
    case 4: /* gate and up */
      return op2(s, "Mul", v, draw_broadcast(s, ROLE_X, s->dtype, s->values[v].rank, s->values[v].dims));
    default:
      return v;
  }
}

static int step_of_chain(spec *s, int v, int other) {
  static const char *const one[] = {"Neg",        "Abs", "Exp", "Tanh",  "Sigmoid", "Sqrt",
                                    "Reciprocal", "Erf", "Log", "Floor", "Relu",    "Sin"};
  static const char *const two[] = {"Add", "Mul", "Sub", "Div", "Max", "Min", "Pow"};
  switch (draw(s, 5)) {
    case 0:
      return op1(s, one[draw(s, 12)], v);
    case 1:
      return op2(s, two[draw(s, 6)], v, other);
    case 2: {
      static const double numbers[] = {1, 0, 2, 0.5, -1, 3, 1e-5, 100};
      const int c = add_number(s, numbers[draw(s, 8)]);
      const char *name = two[draw(s, 7)];
      return draw(s, 2) == 0 ? op2(s, name, v, c) : op2(s, name, c, v);
    }
    case 3:
      return op2(s, two[draw(s, 6)], v,
                 draw_broadcast(s, ROLE_X, s->dtype, s->values[v].rank, s->values[v].dims));
    default:
      return activated(s, v);
  }
}

int pattern_chain(spec *s, int x) {
  int v = or_source(s, x, 1), before = v;
  const uint32_t n = 2 + draw(s, 5);
  for (uint32_t i = 0; i < n && !s->bad; i++) {
    const int next = step_of_chain(s, v, before);
    before = draw(s, 2) == 0 ? v : before;
    v = next;
  }
  return v;
}

/* ---- products --------------------------------------------------------------------------------- */

static int product(spec *s, int x) {
  const value of = s->values[x];
  const int64_t w[2] = {of.dims[of.rank - 1], draw_dim(s)}, wt[2] = {w[1], w[0]};
  if (of.rank == 2 && seldom(s, 4)) {
    const int turn = (int)draw(s, 2);
    const int weight = draw_source(s, ROLE_WEIGHT, 2, turn ? wt : w);
    const int bias = draw_source(s, ROLE_ROW, 1, &w[1]);
    return op(s, "Gemm", turn ? "transB=1" : "", x, weight, draw(s, 2) == 0 ? bias : SPEC_NONE);
  }
  if (seldom(s, 4)) return op2(s, "MatMul", x, turned_by(s, draw_source(s, ROLE_WEIGHT, 2, wt), "1,0"));
  return op2(s, "MatMul", x, draw_source(s, ROLE_WEIGHT, 2, w));
}

/* A row, a column, a full operand, or x itself. */
static int addend(spec *s, int v, int x) {
  const value of = s->values[v];
  switch (draw(s, 4)) {
    case 0:
      return draw_source(s, ROLE_ROW, 1, &of.dims[of.rank - 1]);
    case 1:
      return draw_source(s, ROLE_X, of.rank, of.dims);
    case 2:
      return spec_count(&s->values[x]) == spec_count(&of) && s->values[x].rank == of.rank
                 ? x
                 : draw_source(s, ROLE_X, of.rank, of.dims);
    default:
      return draw_broadcast(s, ROLE_ROW, s->dtype, of.rank, of.dims);
  }
}

int pattern_product(spec *s, int x) {
  x = or_source(s, x, 2);
  int v = product(s, x);
  if (s->bad) return v;
  if (draw(s, 3) > 0)
    v = draw(s, 2) == 0 ? op2(s, "Add", v, addend(s, v, x)) : op2(s, "Add", addend(s, v, x), v);
  if (draw(s, 3) > 0) v = activated(s, v);
  if (draw(s, 3) > 0 && !s->bad) v = op2(s, "Add", v, addend(s, v, x));
  return v;
}
