/* SPDX-License-Identifier: MIT
 * patterns_shared.c - what is computed twice, products by matrices that are computed from constants,
 * numbers before and behind products. */
#include "tests/graph/fuzz_passes/changes.h"
#include "tests/graph/fuzz_passes/data.h"
#include "tests/graph/fuzz_passes/patterns.h"

/* ---- the same again ------------------------------------------------------------------------------ */

/* One of a few nodes over x; `kind` and `other` are drawn before, so that two calls make the same node. */
static int node_of(spec *s, int x, uint32_t kind, int other) {
  static const char *const alone[] = {"Exp", "Tanh", "Relu", "Neg"};
  const int64_t last[1] = {-1};
  switch (kind) {
    case 4:
      return op2(s, "Add", x, other);
    case 5:
      return reduced(s, "ReduceSum", x, -1);
    case 6:
      return op1(s, "Softmax", x);
    case 7:
      return op2(s, "MatMul", x, other);
    case 8: {
      const int in[2] = {x, add_ints(s, 1, last)};
      return change_here(s, raw_op(s, "ReduceMax", "keepdims=1", in, 2));
    }
    default:
      return op1(s, alone[kind], x);
  }
}

/* The operand of node_of. */
static int operand_of(spec *s, int x, uint32_t kind) {
  const value of = s->values[x];
  const int64_t n = of.dims[of.rank - 1], w[2] = {n, draw_dim(s)};
  if (kind == 4) return draw_source(s, ROLE_ROW, 1, &n);
  return kind == 7 ? draw_source(s, ROLE_WEIGHT, 2, w) : SPEC_NONE;
}

/* x, or another view of its elements that is read as x is. */
static int seen_again(spec *s, int x) {
  const value of = s->values[x];
  if (draw(s, 3) > 0 || of.rank < 2) return x;
  const int64_t flat[1] = {spec_count(&of)};
  return seen_as(s, seen_as(s, x, 1, flat), of.rank, of.dims);
}

int pattern_twice(spec *s, int x) {
  x = or_source(s, x, 2);
  if (s->bad) return x;
  const uint32_t kind = draw(s, 9), n = 2 + draw(s, 2);
  const int other = operand_of(s, x, kind);
  int all = SPEC_NONE;
  for (uint32_t i = 0; i < n && !s->bad; i++) {
    int v = node_of(s, seen_again(s, x), seldom(s, 6) ? draw(s, 4) : kind, other);
    if (s->bad) return v;
    const int again = s->values[v].rank > 1 && draw(s, 3) == 0;
    if (again) v = node_of(s, v, 0, SPEC_NONE);
    if (draw(s, 4) == 0 && !s->bad) add_output(s, v);
    if (draw(s, 2) == 0 && !s->bad) v = activated(s, v);
    if (s->bad) return v;
    const value *a = all != SPEC_NONE ? &s->values[all] : NULL, *b = &s->values[v];
    int same = a != NULL && a->rank == b->rank;
    for (uint32_t k = 0; same && k < a->rank; k++) same = a->dims[k] == b->dims[k];
    all = same ? op2(s, draw(s, 2) == 0 ? "Mul" : "Add", all, v) : v;
  }
  return all;
}

/* ---- computed matrices ---------------------------------------------------------------------------- */

int pattern_weights(spec *s, int x) {
  x = or_source(s, x, 2);
  if (s->bad) return x;
  const value of = s->values[x];
  const int64_t k = of.dims[of.rank - 1], n = draw_dim(s);
  const int64_t w[4] = {draw(s, 3) == 0 && of.rank > 2 ? of.dims[0] : 1, 1, k, n}, turned[2] = {n, k};
  const uint32_t lead = draw(s, 3); /* outer dims of the matrix */
  int m = lead == 0 && draw(s, 2) == 0
              ? turned_by(s, add_source(s, VALUE_CONST, ROLE_WEIGHT, s->dtype, 2, turned), "1,0")
              : add_source(s, VALUE_CONST, ROLE_WEIGHT, s->dtype, 2 + lead, w + 2 - lead);
  if (draw(s, 2) == 0) m = op2(s, "Mul", m, change_number(s, 0.5));
  if (draw(s, 3) == 0 && !s->bad) m = op1(s, "Tanh", m);
  if (draw(s, 3) == 0 && !s->bad)
    m = op2(s, "Add", m, add_source(s, VALUE_CONST, ROLE_WEIGHT, s->dtype, 1, &n));
  if (s->bad) return m;
  int y = op2(s, "MatMul", x, m);
  if (draw(s, 2) == 0 && !s->bad) y = op2(s, "Add", y, draw_source(s, ROLE_ROW, 1, &n));
  return draw(s, 2) == 0 && !s->bad ? activated(s, y) : y;
}

/* ---- numbers beside products ------------------------------------------------------------------------ */

static int numbered(spec *s, int v) {
  static const double numbers[] = {0.5, 3, -1, 0.3, 8, 1e-3, 1e4, 0, 1e12};
  const double c = numbers[draw(s, 9)];
  switch (draw(s, 6)) {
    case 3:
      return c != 0 ? op2(s, "Div", v, change_number(s, 1 / c)) : v;
    case 4:
      return op1(s, "Neg", v);
    case 5:
      return v;
    default:
      return op2(s, "Mul", v, change_number(s, c));
  }
}

/* A view of a value of rank 3 for a product: itself, or its last dims turned. */
static int maybe_turned(spec *s, int v) {
  return s->bad || draw(s, 3) > 0 || s->values[v].rank != 3 ? v : turned_by(s, v, "0,2,1");
}

/* Of a source of its own: a product may overflow earlier by the number beside it. */
int pattern_alpha(spec *s, int x) {
  int64_t dims[SPEC_RANK];
  const uint32_t rank = 2 + draw(s, 3);
  draw_dims(s, rank, dims);
  x = add_source(s, VALUE_INPUT, ROLE_VALUE, s->dtype, rank, dims);
  x = maybe_turned(s, numbered(s, maybe_turned(s, x)));
  if (s->bad) return x;
  const value of = s->values[x];
  int64_t w[3] = {of.dims[0], of.dims[of.rank - 1], draw_dim(s)};
  const uint32_t lead = of.rank == 3 ? draw(s, 2) : 0;
  int m = add_source(s, draw(s, 2) == 0 ? VALUE_CONST : VALUE_INPUT, ROLE_WEIGHT, s->dtype, 2 + lead,
                     w + 1 - lead);
  if (draw(s, 3) == 0) m = op2(s, "Mul", m, change_number(s, 0.25));
  if (s->bad) return m;
  const int64_t n = w[2];
  int y = op2(s, "MatMul", x, m);
  if (!s->bad && s->values[y].rank == 2 && draw(s, 3) == 0) {
    const int in[3] = {x, m, draw_source(s, ROLE_ROW, 1, &n)};
    y = change_here(s, raw_op(s, "Gemm", draw(s, 2) == 0 ? "alpha=0.5" : "alpha=-3.0", in, 3));
  }
  if (draw(s, 3) == 0 && !s->bad) y = numbered(s, y);
  if (draw(s, 3) > 0 && !s->bad) y = op2(s, "Add", y, draw_source(s, ROLE_ROW, 1, &n));
  if (!s->bad) y = numbered(s, y);
  if (draw(s, 6) == 0 && !s->bad) add_output(s, y);
  if (draw(s, 3) == 0 && !s->bad) y = activated(s, y);
  return draw(s, 4) == 0 && !s->bad ? numbered(s, y) : y;
}
