/* SPDX-License-Identifier: MIT
 * graph_reduce.c - reduce as the kit asks and judges it: folds in long double with the bound of sums of the
 * answer's class; integers modulo 2^64, largest and smallest values and their places exactly. */
#include <math.h>

#include "kit/graph.h"

enum { IN, OUT };

static int of_integers(const kit_data *d) {
  return !bs_dtype_is_float(d->shape.x);
}
static int is_place(int64_t fold) {
  return fold == BS_FOLD_ARGMAX || fold == BS_FOLD_ARGMIN;
}

static void make(kit_data *d, uint64_t *seed) {
  static const double factors[] = {1.0, 1.0, 0.25, -3.0};
  const kit_shape *s = &d->shape;
  int64_t in[BS_MAX_DIMS], out[BS_MAX_DIMS];
  const int64_t fold = BS_FOLD_SUM + s->index % BS_FOLD_CUMSUM;
  const int one = is_place(fold) || fold == BS_FOLD_CUMSUM;
  kit_graph_one_dtype(d, is_place(fold) || fold == BS_FOLD_MAX || fold == BS_FOLD_MIN);
  const uint32_t rank = kit_graph_dims(d, seed, one ? 1 : 0, BS_MAX_DIMS, s->B, s->N, in);
  const uint32_t axis = rank > 0 ? (uint32_t)kit_below(seed, rank) : 0;
  const uint32_t over = (uint32_t)kit_next(seed);
  for (uint32_t k = 0; k < rank; k++) {
    const int reduced = one ? k == axis && fold != BS_FOLD_CUMSUM : (over >> k & 1u) != 0;
    if (is_place(fold) && k == axis && in[k] == 0) in[k] = 3; /* there is no place in nothing */
    out[k] = reduced ? 1 : in[k];
  }
  kit_graph_arg(d, IN, s->x, rank, in, 0);
  kit_graph_fill_wide(d, IN);
  kit_graph_arg(d, OUT, is_place(fold) ? (s->seed % 2 ? BS_I64 : BS_I32) : s->x, rank, out, 0);
  d->outs = 1u << OUT;
  d->query.attrs[0] = fold;
  d->query.attrs[1] = one ? axis : 0;
  d->query.attrs[2] = fold == BS_FOLD_CUMSUM ? kit_below(seed, 4) : is_place(fold) ? kit_below(seed, 2) : 0;
  d->query.numbers[0] =
      !of_integers(d) && (fold == BS_FOLD_SUM || fold == BS_FOLD_SUMSQ) ? factors[kit_below(seed, 4)] : 1.0;
}

/* The state of a fold: the value, the sum of the terms' sizes, their number, and for integers the exact
 * value. */
typedef struct fold {
  int64_t kind, terms;
  long double v, size;
  int64_t whole, place;
  double best;
} fold;

static fold begin(const kit_data *d) {
  fold f = {.kind = d->query.attrs[0]};
  const uint32_t dtype = d->shape.x;
  f.v = f.kind == BS_FOLD_PROD ? 1 : f.kind == BS_FOLD_MAX ? -INFINITY : f.kind == BS_FOLD_MIN ? INFINITY : 0;
  f.whole = f.kind == BS_FOLD_PROD;
  if (of_integers(d) && (f.kind == BS_FOLD_MAX || f.kind == BS_FOLD_MIN)) { /* the dtype's ends */
    unsigned char end[8] = {0};
    const double far = f.kind == BS_FOLD_MAX ? -1e30 : 1e30;
    bs_store_f64(dtype, end, 0, dtype == BS_BOOL ? far > 0 : far);
    bs_convert(BS_I64, &f.whole, dtype, end, 1);
  }
  return f;
}

static void add(const kit_data *d, fold *f, double v, int64_t whole, int64_t index) {
  const int least = f->kind == BS_FOLD_MIN || f->kind == BS_FOLD_ARGMIN;
  f->terms++;
  if (is_place(f->kind)) {
    const int ahead = isnan(v) ? !isnan(f->best) : !isnan(f->best) && (least ? v < f->best : v > f->best);
    const int equal = v == f->best || (isnan(v) && isnan(f->best));
    if (f->terms == 1 || ahead || (equal && d->query.attrs[2] != 0)) f->best = v, f->place = index;
  } else if (f->kind == BS_FOLD_MAX || f->kind == BS_FOLD_MIN) {
    if (isnan(v) || (least ? v < f->v : v > f->v)) f->v = isnan((double)f->v) ? f->v : v;
    if (least ? whole < f->whole : whole > f->whole) f->whole = whole;
  } else if (f->kind == BS_FOLD_PROD) {
    f->v *= v;
    f->whole = (int64_t)((uint64_t)f->whole * (uint64_t)whole);
    f->size = fabsl(f->v);
  } else {
    const long double term = f->kind == BS_FOLD_SUMSQ ? (long double)v * v : (long double)v;
    f->v += term;
    f->size += fabsl(term);
    f->whole =
        (int64_t)((uint64_t)f->whole + (uint64_t)whole * (uint64_t)(f->kind == BS_FOLD_SUMSQ ? whole : 1));
  }
}

static void check(const kit_data *d, uint32_t tolerance, int special, int64_t i, const fold *f) {
  const uint32_t dtype = d->a[OUT].t.dtype;
  if (is_place(f->kind)) {
    kit_graph_check(d, OUT, i, (double)f->place, 0.0, 0);
    return;
  }
  if (of_integers(d)) {
    int64_t got = 0, want = f->whole;
    bs_convert(BS_I64, &got, dtype, kit_place_at(&d->a[OUT], i), 1);
    if (dtype == BS_I32) want = (int64_t)(int32_t)(uint32_t)(uint64_t)want;
    if (dtype == BS_I8) want = (int64_t)(int8_t)(uint8_t)(uint64_t)want;
    if (dtype == BS_U8) want = (int64_t)(uint8_t)(uint64_t)want;
    if (got != want) kit_graph_check(d, OUT, i, (double)want, 0.0, 0);
    return;
  }
  const int exact = f->kind == BS_FOLD_MAX || f->kind == BS_FOLD_MIN;
  const double factor = d->query.numbers[0], u = kit_graph_unit(d, tolerance);
  double slack = exact ? 0.0 : kit_slack(d, tolerance, f->terms + 1, (double)f->size * fabs(factor));
  if (!exact && factor != 1.0) slack += 2 * u * (double)fabsl(f->v * factor) + 0x1p-149;
  if (f->kind == BS_FOLD_PROD) slack += (double)f->terms * u * (double)f->size + 0x1p-126;
  kit_graph_check(d, OUT, i, (double)(f->v * factor), slack, special);
}

static void take(const kit_data *d, const int64_t *at, int64_t index, fold *f) {
  const kit_tensor *in = &d->a[IN];
  const int64_t number = kit_graph_number(in, in->t.rank, at);
  int64_t whole = 0;
  if (of_integers(d)) bs_convert(BS_I64, &whole, in->t.dtype, kit_place_at(in, number), 1);
  add(d, f, kit_get_at(in, number), whole, index);
}

/* Output element i at `at`: its own running sum. */
static fold running(const kit_data *d, const int64_t *at) {
  const uint32_t axis = (uint32_t)d->query.attrs[1];
  const int without = (d->query.attrs[2] & 1) != 0, back = (d->query.attrs[2] & 2) != 0;
  const int64_t n = d->a[IN].t.dims[axis], self = at[axis];
  int64_t from[BS_MAX_DIMS];
  fold f = begin(d);
  memcpy(from, at, sizeof from);
  for (int64_t k = 0; k < n; k++) {
    const int counts = back ? k > self : k < self;
    from[axis] = k;
    if (counts || (k == self && !without)) take(d, from, k, &f);
  }
  return f;
}

static fold whole_fold(const kit_data *d, const int64_t *at) {
  const kit_tensor *in = &d->a[IN], *out = &d->a[OUT];
  const uint32_t rank = in->t.rank, axis = (uint32_t)d->query.attrs[1];
  int64_t over[BS_MAX_DIMS];
  fold f = begin(d);
  for (uint32_t k = 0; k < rank; k++) over[k] = out->t.dims[k] == 1 ? in->t.dims[k] : 1;
  const int64_t n = kit_graph_count(rank, over);
  for (int64_t i = 0; i < n; i++) {
    int64_t from[BS_MAX_DIMS];
    kit_graph_at(i, rank, over, from);
    const int64_t index = rank > 0 ? from[axis] : 0;
    for (uint32_t k = 0; k < rank; k++) from[k] += over[k] == 1 ? at[k] : 0;
    take(d, from, index, &f);
  }
  return f;
}

static void judge(const kit_data *d, uint32_t tolerance, int special) {
  const kit_tensor *out = &d->a[OUT];
  const int64_t n = kit_elements(out);
  for (int64_t i = 0; i < n; i++) {
    int64_t at[BS_MAX_DIMS] = {0};
    kit_graph_at(i, out->t.rank, out->t.dims, at);
    const fold f = d->query.attrs[0] == BS_FOLD_CUMSUM ? running(d, at) : whole_fold(d, at);
    check(d, tolerance, special, i, &f);
  }
}

const kit_graph_op kit_graph_reduce = {"reduce", 1, 1, 0, 1, make, judge, NULL};
