/* SPDX-License-Identifier: MIT
 * patterns_rows.c - attention, rope, views, merged products, rows of products, constants. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "tests/graph/fuzz_passes/changes.h"
#include "tests/graph/fuzz_passes/data.h"
#include "tests/graph/fuzz_passes/patterns.h"

typedef struct sizes {
  int64_t b, h, g, s, t, d, e; /* batch, heads, heads of K and V, queries, keys, widths */
} sizes;

/* [B,H,S,D], from the source itself, or from rows of heads. */
static int heads(spec *s, int64_t b, int64_t h, int64_t rows, int64_t width, uint32_t role) {
  const int64_t whole[4] = {b, h, rows, width}, joined[3] = {b, rows, h * width},
                split[4] = {b, rows, h, width};
  if (draw(s, 3) > 0) return draw_source(s, role, 4, whole);
  return turned_by(s, seen_as(s, draw_source(s, role, 3, joined), 4, split), "0,2,1,3");
}

/* [B,G,T,D] for all H heads. */
static int repeated(spec *s, int v, const sizes *z, int64_t width) {
  if (z->g == z->h) return v;
  const int64_t one[5] = {z->b, z->g, 1, z->t, width}, all[5] = {z->b, z->g, z->h / z->g, z->t, width};
  const int64_t joined[4] = {z->b, z->h, z->t, width};
  if (z->g == 1 && draw(s, 2) == 0) return v; /* broadcast by the product */
  const int wide = op2(s, "Expand", seen_as(s, v, 5, one), add_ints(s, 5, all));
  return seen_as(s, wide, 4, joined);
}

static int scale(spec *s, int v) {
  static const double numbers[] = {0.5, 0.35355339059327373, 1, 8, -1, 1e-3};
  const double x = numbers[draw(s, 6)];
  return draw(s, 3) > 0 ? op2(s, "Mul", v, change_number(s, x)) : op2(s, "Div", v, change_number(s, 1 / x));
}

/* A mask's source: of the scores' shape, broadcast, wider than they are, or of higher rank. */
static int mask_source(spec *s, int scores, uint32_t role, uint32_t dtype) {
  const value of = s->values[scores];
  int64_t dims[SPEC_RANK];
  uint32_t rank = of.rank;
  for (uint32_t i = 0; i < rank; i++) dims[i] = of.dims[i];
  const uint32_t form = draw(s, 6);
  if (form == 4 && rank < SPEC_RANK) { /* rank 5 and more: windows */
    for (uint32_t i = rank++; i > 0; i--) dims[i] = dims[i - 1];
    dims[0] = draw(s, 2) == 0 ? 1 : 2;
  }
  if (form == 5) /* what is 1 in the scores is not in the mask */
    for (uint32_t i = 0; i < rank; i++)
      if (dims[i] == 1) dims[i] = 3;
  if (form == 0) return add_source(s, VALUE_INPUT, role, dtype, rank, dims);
  return draw_broadcast(s, role, dtype, rank, dims);
}

/* The finite number that masks hide keys by. */
static double smallest(const spec *s) {
  return s->dtype == BS_F16 ? -65504 : -3.4028234663852886e38;
}

/* v + mask. A key that the mask hides by -inf is not seen by attention, whatever its score is. What is below
 * the lowest number of the dtype is -inf there, while the scores may be wider (docs/models.md). */
static int with_mask(spec *s, int v, int mask) {
  const double none = -INFINITY, lowest = s->dtype == BS_BF16  ? -0x1.fep127
                                          : s->dtype == BS_F64 ? -DBL_MAX
                                                               : smallest(s);
  const int in[2] = {v, mask};
  int sum = raw_op(s, "Add", "", in, 2);
  if (s->stable && !s->bad) {
    const int hidden = add_data(s, s->dtype, 0, NULL, &none);
    const int less[2] = {mask, add_data(s, s->dtype, 0, NULL, &lowest)};
    const int where[3] = {raw_op(s, "Less", "", less, 2), hidden, sum};
    sum = raw_op(s, "Where", "", where, 3);
  }
  return change_here(s, sum);
}

static int masked(spec *s, int v) {
  static const double lost[] = {-INFINITY, -1e9, -3.4028234663852886e38, -1e4, 0};
  switch (draw(s, 6)) {
    case 0:
    case 1:
      return with_mask(s, v, mask_source(s, v, ROLE_ADDED, s->dtype));
    case 2: {
      const int mask = mask_source(s, v, ROLE_MASK, BS_BOOL), c = add_number(s, lost[draw(s, 5)]);
      return draw(s, 2) == 0 ? op(s, "Where", "", mask, v, c) : op(s, "Where", "", mask, c, v);
    }
    case 3: { /* (1 - m) times the smallest number */
      const int yes = mask_source(s, v, ROLE_ANGLE, s->dtype), no = op2(s, "Sub", add_number(s, 1), yes);
      return with_mask(s, v, op2(s, "Mul", no, add_number(s, smallest(s))));
    }
    case 4: /* a cap */
      return op2(s, "Mul", op1(s, "Tanh", op2(s, "Div", v, add_number(s, 5))), add_number(s, 5));
    default: /* what the smallest number keeps finite */
      return op2(s, "Max", op2(s, "Add", v, mask_source(s, v, ROLE_ADDED, s->dtype)),
                 add_number(s, smallest(s)));
  }
}

/* Rows of -inf alone: attention gives 0 (docs/models.md), softmax NaN. y, but 0 where the scores are such. */
static int without_lost_rows(spec *s, int scores, int y) {
  const int64_t axis[1] = {-1};
  const double lowest = -INFINITY, zero = 0;
  const int reduce[2] = {scores, add_ints(s, 1, axis)}, top = raw_op(s, "ReduceMax", "keepdims=1", reduce, 2);
  const int equal[2] = {top, add_data(s, s->dtype, 0, NULL, &lowest)};
  const int where[3] = {raw_op(s, "Equal", "", equal, 2), add_data(s, s->dtype, 0, NULL, &zero), y};
  return raw_op(s, "Where", "", where, 3);
}

static int as_number(spec *s, int v) {
  const int in[1] = {v};
  return raw_op(s, "Cast",
                s->dtype == BS_F64    ? "to=11"
                : s->dtype == BS_F16  ? "to=10"
                : s->dtype == BS_BF16 ? "to=16"
                                      : "to=1",
                in, 1);
}

/* `number` where a weight that is not 0 meets a value of which `odd` is true, else 0. */
static int met(spec *s, int seen, int odd, double number) {
  const double zero = 0;
  const int none = add_data(s, s->dtype, 0, NULL, &zero), pair[2] = {seen, as_number(s, odd)};
  const int greater[2] = {raw_op(s, "MatMul", "", pair, 2), none};
  const int where[3] = {raw_op(s, "Greater", "", greater, 2), add_data(s, s->dtype, 0, NULL, &number), none};
  return raw_op(s, "Where", "", where, 3);
}

static int is_equal(spec *s, int v, double number) {
  const int in[2] = {v, add_data(s, s->dtype, 0, NULL, &number)};
  return raw_op(s, "Equal", "", in, 2);
}

/* p v, without values whose weight is 0, even if they are no finite numbers: the sum over the finite ones,
 * and what the others add to it. */
static int without_hidden_values(spec *s, int p, int v) {
  const double zero = 0;
  const int none = add_data(s, s->dtype, 0, NULL, &zero), minus[2] = {v, v}, weight[2] = {p, none};
  const int difference[1] = {raw_op(s, "Sub", "", minus, 2)}, value_in[1] = {v};
  const int clean_in[3] = {raw_op(s, "IsNaN", "", difference, 1), none, v};
  const int clean[2] = {p, raw_op(s, "Where", "", clean_in, 3)};
  const int seen = as_number(s, raw_op(s, "Greater", "", weight, 2));
  const int more[3] = {met(s, seen, is_equal(s, v, INFINITY), INFINITY),
                       met(s, seen, is_equal(s, v, -INFINITY), -INFINITY),
                       met(s, seen, raw_op(s, "IsNaN", "", value_in, 1), NAN)};
  int sum = raw_op(s, "MatMul", "", clean, 2);
  for (uint32_t i = 0; i < 3; i++) {
    const int in[2] = {sum, more[i]};
    sum = raw_op(s, "Add", "", in, 2);
  }
  return sum;
}

/* p v, where `beside`: nothing has changed p since it was the softmax of the scores. */
static int attended(spec *s, int scores, int p, int v, int beside) {
  const int in[2] = {p, v};
  int y = raw_op(s, "MatMul", "", in, 2);
  if (s->stable && !s->bad && beside) y = without_lost_rows(s, scores, without_hidden_values(s, p, v));
  return change_here(s, y);
}

/* softmax(scores) v. */
static int weighted(spec *s, int scores, int v) {
  const value of = s->values[scores];
  uint32_t before = s->n_changes;
  double repair = 0;
  int p;
  if (change_view(s)) { /* over other rows than those of the scores */
    const int other = reshaped(s, scores);
    const value seen = s->values[other];
    if (other == scores) change_undone(s);
    /* Rows as long as those of the scores are these, and attention may be made of them. */
    if (!s->bad && seen.rank > 0 && seen.dims[seen.rank - 1u] == of.dims[of.rank - 1u]) before = s->n_changes;
    p = softmax(s, other);
    if (other != scores && !s->bad) p = seen_as(s, p, of.rank, of.dims);
  } else {
    p = softmax(s, scores);
  }
  if (seldom(s, 5)) { /* what some exports put behind a softmax */
    const int in[1] = {p};
    repair = draw(s, 3) < 2 ? 0 : 7;
    p = op(s, "Where", "", raw_op(s, "IsNaN", "", in, 1), add_number(s, repair), p);
  }
  return attended(s, scores, p, v, only_beside(s, before) && repair == 0);
}

static int scores_of(spec *s, int q, int kt) {
  int v = op2(s, "MatMul", draw(s, 4) > 2 ? scale(s, q) : q, draw(s, 4) > 2 ? scale(s, kt) : kt);
  if (draw(s, 2) == 0 && !s->bad) v = scale(s, v);
  return v;
}

/* Products over [B*H,S,D], whose scores are seen as [B,H,S,T] for the mask. */
static int attention_of_batches(spec *s, const sizes *z) {
  const int64_t qd[3] = {z->b * z->h, z->s, z->d}, kd[3] = {z->b * z->h, z->t, z->d};
  const int64_t vd[3] = {z->b * z->h, z->t, z->e};
  const int64_t split[4] = {z->b, z->h, z->s, z->t}, joined[3] = {z->b * z->h, z->s, z->t};
  const int q = draw_source(s, ROLE_X, 3, qd), k = draw_source(s, ROLE_X, 3, kd);
  int v = scores_of(s, q, turned_by(s, k, "0,2,1"));
  if (draw(s, 3) > 0 && !s->bad) {
    v = seen_as(s, v, 4, split);
    v = draw(s, 4) > 0 && !s->bad ? masked(s, v) : v;
    if (s->bad) return v;
    if (draw(s, 4) == 0) { /* softmax before the scores are joined again */
      const uint32_t before = s->n_changes;
      const int p = seen_as(s, softmax(s, v), 3, joined), in[2] = {v, add_ints(s, 3, joined)};
      const int values = draw_source(s, ROLE_VALUE, 3, vd);
      const int scores = s->stable && !s->bad ? raw_op(s, "Reshape", "", in, 2) : v;
      return s->bad ? v : attended(s, scores, p, values, only_beside(s, before));
    }
    v = seen_as(s, v, 3, joined);
  }
  return s->bad ? v : weighted(s, v, draw_source(s, ROLE_VALUE, 3, vd));
}

int pattern_attention(spec *s, int x) {
  (void)x;
  static const int64_t few[] = {1, 2, 4}, widths[] = {2, 4, 8, 3, 1};
  sizes z = {few[draw(s, 2)], few[draw(s, 3)], 0, draw_dim(s), draw_dim(s), widths[draw(s, 5)], 0};
  z.e = draw(s, 2) == 0 ? z.d : widths[draw(s, 5)];
  if (draw(s, 3) == 0) z.t = z.s;
  z.g = z.h > 1 && seldom(s, 3) ? draw(s, 2) == 0 ? 1 : 2 : z.h;
  if (seldom(s, 4)) return attention_of_batches(s, &z);
  const int q = heads(s, z.b, z.h, z.s, z.d, ROLE_X);
  const int k = repeated(s, heads(s, z.b, z.g, z.t, z.d, ROLE_X), &z, z.d);
  const int v = repeated(s, heads(s, z.b, z.g, z.t, z.e, ROLE_VALUE), &z, z.e);
  if (s->bad) return q;
  int scores = scores_of(s, q, turned_by(s, k, "0,1,3,2"));
  if (draw(s, 3) > 0 && !s->bad) scores = masked(s, scores);
  if (s->bad) return scores;
  int y = weighted(s, scores, v);
  if (s->bad || draw(s, 2) == 0 || s->values[y].rank != 4) return y;
  const value of = s->values[y];
  const int64_t rows[3] = {of.dims[0], of.dims[2], of.dims[1] * of.dims[3]};
  return seen_as(s, turned_by(s, y, "0,2,1,3"), 3, rows);
}

/* ---- rope -------------------------------------------------------------------------------------- */

static int angles(spec *s, int64_t rows, int64_t width) {
  const int64_t half[2] = {rows, width / 2}, whole[2] = {rows, width};
  int v;
  if (draw(s, 2) == 0) {
    const int part = draw_source(s, ROLE_ANGLE, 2, half), in[2] = {part, part};
    v = raw_op(s, "Concat", "axis=-1", in, 2);
  } else {
    v = draw_source(s, ROLE_ANGLE, 2, whole);
  }
  const int64_t wide[4] = {1, 1, rows, width};
  return draw(s, 2) == 0 ? v : seen_as(s, v, 4, wide);
}

int pattern_rope(spec *s, int x) {
  static const int64_t few[] = {1, 2, 3}, widths[] = {4, 2, 6, 8};
  const int64_t dims[4] = {few[draw(s, 2)], few[draw(s, 3)], draw_dim(s), widths[draw(s, 4)]};
  (void)x;
  x = heads(s, dims[0], dims[1], dims[2], dims[3], ROLE_X);
  const int64_t n = dims[3];
  const int first = sliced(s, x, 3, 0, n / 2, 1), second = sliced(s, x, 3, n / 2, n, 1);
  const int negative = op1(s, "Neg", seldom(s, 6) ? first : second);
  const int in[2] = {seldom(s, 8) ? first : negative, seldom(s, 8) ? second : first};
  const int turn = change_here(s, raw_op(s, "Concat", "axis=-1", in, 2));
  const int c = angles(s, dims[2], n), sine = angles(s, dims[2], n);
  int v = op2(s, "Add", op2(s, "Mul", x, c), op2(s, "Mul", turn, sine));
  return draw(s, 3) > 0 ? v : scale(s, v);
}

/* ---- views, concatenation ------------------------------------------------------------------------ */

static int piece(spec *s, int x) {
  static const char *const steps[] = {"Exp", "Neg", "Tanh", "Relu"};
  int v = op1(s, steps[draw(s, 4)], x);
  if (!s->bad && s->values[v].rank == 2 && draw(s, 2) == 0) v = turned_by(s, v, "1,0");
  if (!s->bad && s->values[v].rank == 3 && draw(s, 2) == 0)
    v = turned_by(s, v, draw(s, 2) == 0 ? "0,2,1" : "1,0,2");
  if (!s->bad && s->values[v].rank == 4 && draw(s, 2) == 0)
    v = turned_by(s, v, draw(s, 2) == 0 ? "0,2,1,3" : "0,1,3,2");
  return v;
}

int pattern_views(spec *s, int x) {
  x = or_source(s, x, 2);
  const int a = piece(s, x), b = draw(s, 2) == 0 ? piece(s, x) : draw(s, 2) == 0 ? a : x;
  if (s->bad) return a;
  char attrs[48];
  const int in[3] = {a, b, a};
  const uint32_t axis = draw(s, s->values[a].rank);
  snprintf(attrs, sizeof attrs, "axis=%u", axis);
  int v = change_here(s, raw_op(s, "Concat", attrs, in, 2 + draw(s, 2)));
  if (s->bad) return v;
  if (draw(s, 2) == 0) {
    const uint32_t of = draw(s, s->values[v].rank);
    const int64_t n = s->values[v].dims[of];
    v = sliced(s, v, of, n > 1 ? draw(s, 2) : 0, n, n > 2 ? 1 + draw(s, 2) : 1);
  }
  if (draw(s, 2) == 0 && !s->bad) v = piece(s, v);
  const int64_t flat[1] = {spec_count(&s->values[v])};
  return draw(s, 4) == 0 && !s->bad ? seen_as(s, v, 1, flat) : v;
}

/* ---- products of the same rows -------------------------------------------------------------------- */

static int reader(spec *s, int v) {
  const value of = s->values[v];
  const int64_t n = of.rank > 0 ? of.dims[of.rank - 1] : 1;
  switch (draw(s, 5)) {
    case 1:
      return activated(s, v);
    case 2: {
      const int64_t split[4] = {of.dims[0], of.dims[1], 2, n / 2};
      if (of.rank != 3 || n % 2 != 0) return v;
      return turned_by(s, seen_as(s, v, 4, split), draw(s, 2) == 0 ? "0,2,1,3" : "0,2,3,1");
    }
    case 3:
      return n > 1 ? sliced(s, v, of.rank - 1u, 1, n, 1) : v;
    case 4:
      return of.rank == 2 ? turned_by(s, v, "1,0") : v;
    default:
      return v;
  }
}

int pattern_merge(spec *s, int x) {
  x = or_source(s, x, 2);
  if (s->bad) return x;
  const value of = s->values[x];
  const uint32_t n = 2 + draw(s, 2);
  const int64_t common = draw_dim(s);
  const int bias = (int)draw(s, 2);
  int last = x, all = SPEC_NONE;
  for (uint32_t i = 0; i < n && !s->bad; i++) {
    const int64_t w[2] = {of.dims[of.rank - 1], draw(s, 2) == 0 ? common : draw_dim(s)};
    last = op2(s, "MatMul", x, draw_source(s, ROLE_WEIGHT, 2, w));
    if (bias) last = op2(s, "Add", last, draw_source(s, ROLE_ROW, 1, &w[1]));
    if (s->bad) return last;
    last = reader(s, last);
    if (s->bad) return last;
    if (i + 1 < n && draw(s, 2) == 0) add_output(s, op1(s, "Neg", last));
    const value *a = all != SPEC_NONE ? &s->values[all] : NULL, *b = &s->values[last];
    const int same =
        a != NULL && a->rank == b->rank && spec_count(a) == spec_count(b) && a->dims[0] == b->dims[0];
    all = same ? op2(s, draw(s, 2) == 0 ? "Mul" : "Add", all, last) : last;
  }
  return all;
}

int pattern_last_token(spec *s, int x) {
  x = or_source(s, x, 2);
  if (s->bad) return x;
  const value of = s->values[x];
  const int64_t w[2] = {of.dims[of.rank - 1], draw_dim(s)};
  int v = op2(s, "MatMul", x, draw_source(s, ROLE_WEIGHT, 2, w));
  if (draw(s, 2) == 0 && !s->bad) v = op2(s, "Add", v, draw_source(s, ROLE_ROW, 1, &w[1]));
  if (draw(s, 2) == 0 && !s->bad) v = activated(s, v);
  if (s->bad) return v;
  const uint32_t axis = draw(s, s->values[v].rank);
  const int64_t n = s->values[v].dims[axis], from = n > 1 ? draw(s, (uint32_t)n) : 0;
  v = sliced(s, v, axis, from, draw(s, 2) == 0 ? n : from + 1, n > 2 ? 1 + draw(s, 2) : 1);
  return draw(s, 2) == 0 && !s->bad ? op1(s, "Neg", v) : v;
}

/* ---- constants ------------------------------------------------------------------------------------ */

int pattern_fold(spec *s, int x) {
  x = or_source(s, x, 1);
  if (s->bad) return x;
  const value of = s->values[x];
  const int a = add_source(s, VALUE_CONST, ROLE_X, s->dtype, of.rank, of.dims);
  int c = piece(s, a);
  if (draw(s, 2) == 0 && !s->bad) c = activated(s, c);
  if (draw(s, 2) == 0 && !s->bad) c = reduced(s, draw(s, 2) == 0 ? "ReduceMax" : "ReduceSum", c, -1);
  if (draw(s, 3) == 0 && !s->bad)
    c = op(s, "Where", "", add_source(s, VALUE_CONST, ROLE_MASK, BS_BOOL, 1, &of.dims[of.rank - 1]), c,
           add_number(s, -1e9));
  return s->bad ? c : op2(s, draw(s, 2) == 0 ? "Add" : "Mul", x, c);
}
