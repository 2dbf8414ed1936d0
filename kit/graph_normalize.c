/* SPDX-License-Identifier: MIT
 * graph_normalize.c - normalize as the kit asks and judges it: against its definition in long double, with
 * the error that sums of the answer's class may have. */
#include <math.h>

#include "kit/graph.h"

enum { X, ADD, GAMMA, BETA, Y, SUM };

static void make(kit_data *d, uint64_t *seed) {
  static const double eps[] = {1e-5, 1e-6, 1e-12, 0.0};
  int64_t dims[BS_MAX_DIMS], add[BS_MAX_DIMS];
  uint32_t repeats = 0;
  const kit_shape *s = &d->shape;
  const uint32_t rank = kit_graph_dims(d, seed, 1, BS_MAX_DIMS, s->B, s->N, dims);
  const int64_t kind = 1 + s->index % 4, drawn = kit_below(seed, 16);
  const int affine = kind <= BS_NORMALIZE_RMS;
  const int64_t with = kit_below(seed, 2) == 0 ? 2 : drawn; /* half of them have gamma alone */
  kit_graph_arg(d, X, s->x, rank, dims, 0);
  if ((with & 1) != 0 || s->in_place > 1) {
    kit_graph_broadcast(d, seed, rank, dims, add, &repeats);
    add[rank - 1] = dims[rank - 1];
    kit_graph_arg(d, ADD, s->x, rank, add, repeats & ~(1u << (rank - 1)));
  }
  if (affine && (with & 2) != 0) kit_graph_arg(d, GAMMA, s->w, 1, dims + rank - 1, 0);
  if (affine && (with & 4) != 0) kit_graph_arg(d, BETA, s->w, 1, dims + rank - 1, 0);
  kit_graph_arg(d, Y, s->y, rank, dims, 0);
  d->outs = 1u << Y;
  if ((with & 8) != 0 || s->in_place > 1) {
    kit_graph_arg(d, SUM, s->x, rank, dims, 0);
    d->outs |= 1u << SUM;
  }
  d->nargs = SUM + 1;
  for (uint32_t i = X; i < Y; i++)
    if (d->a[i].block != NULL) kit_graph_fill(d, i);
  d->query.attrs[0] = kind;
  /* Squares of subnormals are 0, and so is their mean without eps. */
  d->query.numbers[0] = affine ? eps[s->values == KIT_SMALL ? 0 : kit_below(seed, 4)] : 0.0;
}

static int is_wide(const kit_data *d) {
  for (uint32_t i = 0; i <= SUM; i++)
    if (d->a[i].block != NULL && d->a[i].t.dtype == BS_F64) return 1;
  return 0;
}

/* State of a row. */
typedef struct row {
  const kit_data *d;
  uint32_t rank;
  int64_t at[BS_MAX_DIMS], n;
  double u;                 /* the class's unit */
  long double shift, scale; /* y = (v - shift) / scale, or e^(v - shift) / scale, or v - shift - log scale */
  long double shift_error, scale_error; /* absolute; relative */
} row;

static double value(row *r, int64_t i) {
  r->at[r->rank - 1] = i;
  const double v = kit_graph_value(&r->d->a[X], r->rank, r->at);
  return r->d->a[ADD].block != NULL ? v + kit_graph_value(&r->d->a[ADD], r->rank, r->at) : v;
}

/* The largest error of the sum of X and add, which may be rounded to the type in which the class adds. */
static double value_error(const row *r, double v) {
  return r->d->a[ADD].block != NULL ? r->u * fabs(v) : 0.0;
}

/* Sums of n terms: in any order. */
static double growth(int64_t n) {
  const double c = 4 * sqrt((double)n) + 2;
  return c < (double)n + 2 ? c : (double)n + 2;
}

static void measure_moments(row *r) {
  const double c = growth(r->n);
  long double sum = 0, size = 0, squares = 0;
  r->shift = r->shift_error = 0;
  if (r->d->query.attrs[0] == BS_NORMALIZE_LAYER) {
    for (int64_t i = 0; i < r->n; i++) {
      sum += value(r, i);
      size += fabs(value(r, i));
    }
    r->shift = sum / r->n;
    r->shift_error = (c + 1) * r->u * size / r->n + r->u * fabsl(r->shift);
  }
  long double off = 0; /* of the squares, by what their values are off */
  for (int64_t i = 0; i < r->n; i++) {
    const long double of = value(r, i) - r->shift;
    squares += of * of;
    off += 2 * fabsl(of) * value_error(r, value(r, i));
  }
  const long double mean = squares / r->n + (long double)r->d->query.numbers[0];
  r->scale = sqrtl(mean);
  /* A shift that is off by e adds e^2 to the mean of squares, and each difference is rounded. */
  r->scale_error = (c + 6) * r->u + (mean > 0 ? (r->shift_error * r->shift_error + off / r->n) / mean : 0);
}

static void measure_powers(row *r) {
  long double sum = 0, far = 0;
  r->shift = -INFINITY;
  for (int64_t i = 0; i < r->n; i++) {
    const double v = value(r, i);
    if (v > r->shift || isnan(v)) r->shift = isnan((double)r->shift) ? r->shift : v;
  }
  for (int64_t i = 0; i < r->n; i++) {
    const long double p = expl(value(r, i) - r->shift);
    sum += p;
    if (p > 0) far += p * (r->shift - value(r, i) + fabs(value(r, i)));
  }
  r->scale = sum;
  r->shift_error = value_error(r, (double)r->shift);
  r->scale_error = r->shift_error + (growth(r->n) + 6 + far / sum) * r->u;
}

static void judge_element(row *r, int64_t i, int special) {
  const kit_data *d = r->d;
  const int64_t kind = d->query.attrs[0];
  const double v = value(r, i), u = r->u;
  const double tiny = is_wide(d) && u < 0x1p-50 ? 0x1p-1022 : 0x1p-126;
  const long double of = v - r->shift;
  long double want, slack;
  if (kind == BS_NORMALIZE_SOFTMAX) {
    want = expl(of) / r->scale;
    slack = want * (r->scale_error + value_error(r, v) + (fabsl(of) + 8) * u) + tiny;
  } else if (kind == BS_NORMALIZE_LOG_SOFTMAX) {
    want = of - logl(r->scale);
    slack = r->scale_error + value_error(r, v) + 6 * u * (fabsl(of) + fabsl(logl(r->scale)) + 1);
  } else {
    want = of / r->scale;
    slack = (r->shift_error + value_error(r, v)) / r->scale + fabsl(want) * (r->scale_error + 6 * u) + tiny;
    if (d->a[GAMMA].block != NULL) {
      const double gamma = kit_graph_value(&d->a[GAMMA], r->rank, r->at);
      want *= gamma;
      slack = slack * fabs(gamma) + 2 * u * fabsl(want);
    }
    if (d->a[BETA].block != NULL) {
      want += kit_graph_value(&d->a[BETA], r->rank, r->at);
      slack += 2 * u * (fabsl(want) + fabs(kit_graph_value(&d->a[BETA], r->rank, r->at)));
    }
  }
  const int64_t number = kit_graph_number(&d->a[Y], r->rank, r->at);
  kit_graph_check(d, Y, number, (double)want, (double)slack, special);
  if (d->a[SUM].block != NULL) kit_graph_check(d, SUM, number, v, value_error(r, v), special);
}

static void judge(const kit_data *d, uint32_t tolerance, int special) {
  const kit_tensor *y = &d->a[Y];
  row r = {.d = d, .rank = y->t.rank, .u = kit_graph_unit(d, tolerance)};
  r.n = y->t.dims[r.rank - 1];
  const int64_t lines = r.n > 0 ? kit_elements(y) / r.n : 0;
  for (int64_t l = 0; l < lines; l++) {
    kit_graph_at(l, r.rank - 1, y->t.dims, r.at);
    if (d->query.attrs[0] <= BS_NORMALIZE_RMS)
      measure_moments(&r);
    else
      measure_powers(&r);
    for (int64_t i = 0; i < r.n; i++) judge_element(&r, i, special);
  }
}

/* Y in X; or Y in add while sum is in X, which the kit tries as sum in X. */
static void in_place(const kit_data *d, uint32_t way, uint32_t *out_output, uint32_t *out_input) {
  (void)d;
  *out_output = way == 2 ? SUM : Y;
  *out_input = way == 1 ? ADD : X;
}

const kit_graph_op kit_graph_normalize = {"normalize", 1, 0, 3, 1, make, judge, in_place};
