/* SPDX-License-Identifier: MIT
 * graph_attention.c - queries and oracles of attention and its gradients: scores, masks and sums in long
 * double, and the effect on the output of errors in scores of the answer's class. Keys beyond kv_len hold NaN
 * and must not be read. */
#include <math.h>

#include "kit/graph.h"

enum { Q, K, V, MASK, LENGTHS, DESCALE, Y, LSE, DY, DQ, DK, DV };

static void fill_mask(kit_data *d) {
  kit_tensor *m = &d->a[MASK];
  uint64_t own = kit_graph_seed(d, MASK), *seed = &own;
  const int64_t n = kit_elements(m);
  for (int64_t i = 0; i < n; i++) {
    const int64_t drawn = kit_below(seed, 10);
    if (m->t.dtype == BS_BOOL)
      kit_set_at(m, i, drawn > 2);
    else
      kit_set_at(m, i, drawn < 2 ? -INFINITY : (double)drawn * 0.25 - 1.0);
  }
}

/* Whole rows without a key, and lengths of 0, T and between. Elsewhere NaN: the rubbish of a cache. */
static void fill_lengths(kit_data *d) {
  uint64_t own = kit_graph_seed(d, LENGTHS), *seed = &own;
  const int64_t *k = d->a[K].t.dims;
  for (int64_t b = 0; b < k[0]; b++) {
    const int64_t length = kit_below(seed, 4) == 0 ? k[2] : kit_below(seed, k[2] + 1);
    kit_set_at(&d->a[LENGTHS], b, (double)length);
    for (uint32_t which = K; which <= V; which++)
      for (int64_t i = 0; i < kit_elements(&d->a[which]) && bs_dtype_is_float(d->a[which].t.dtype); i++) {
        int64_t at[4];
        kit_graph_at(i, 4, d->a[which].t.dims, at);
        if (at[0] == b && at[2] >= length) kit_set_at(&d->a[which], i, NAN);
      }
  }
}

/* Q, K, V and Y alone, dense: the least that an implementation must do. */
static void make_plain(kit_data *d) {
  const kit_shape *s = &d->shape;
  const int64_t q[4] = {1, 2, s->B, s->K}, k[4] = {1, 2, s->N, s->K};
  kit_graph_arg(d, Q, s->x, 4, q, 0);
  kit_graph_arg(d, K, s->x, 4, k, 0);
  kit_graph_arg(d, V, s->w, 4, k, 0);
  for (uint32_t i = Q; i <= V; i++) kit_graph_fill(d, i);
  kit_graph_arg(d, Y, s->y, 4, q, 0);
  d->outs = 1u << Y;
  d->nargs = LSE + 1;
  d->query.numbers[0] = 0.25;
}

/* Now and then as tensor cores have it: one dtype, rows of eights. */
static int64_t eights(kit_data *d, int64_t width) {
  const uint32_t x = d->shape.x;
  if (d->shape.seed % 3 != 0 || x == BS_F64) return width;
  d->shape.w = x;
  d->shape.y = BS_DTYPE_BYTES(x) == 2 ? x : BS_F32;
  return (width / 8 + 1) * 8;
}

/* Makes for both ops the inputs of attention, Y and LSE, and the attributes. */
static void make_common(kit_data *d, uint64_t *seed, int backward) {
  static const int64_t groups[] = {1, 1, 2, 3}, times[] = {1, 1, 2, 4};
  const kit_shape *s = &d->shape;
  const int one = s->B == 1 && s->N > 1000; /* a step of decoding with a long cache */
  const int64_t B = one ? 1 : 1 + kit_below(seed, 3), G = one ? 1 : groups[kit_below(seed, 4)];
  const int64_t H = G * times[kit_below(seed, 4)];
  const int64_t S = kit_graph_size(d, s->B), T = kit_graph_size(d, s->N), D = one ? 64 : eights(d, s->K % 67);
  const int64_t E = kit_below(seed, 2) == 0 ? D : eights(d, 1 + kit_below(seed, 40));
  const int64_t batch = kit_graph_size(d, B), with = kit_below(seed, 8);
  const int64_t q[4] = {batch, H, S, D}, k[4] = {batch, G, T, D}, v[4] = {batch, G, T, E},
                y[4] = {batch, H, S, E}, scores[4] = {batch, H, S, T}, three[1] = {3};
  const int is_f8 = s->x == BS_F8E4M3 || s->x == BS_F8E5M2;
  int64_t mask[4];
  uint32_t repeats = 0;
  kit_graph_arg(d, Q, s->x, 4, q, 0);
  kit_graph_arg(d, K, s->x, 4, k, 0);
  kit_graph_arg(d, V, s->w, 4, v, 0);
  kit_graph_broadcast(d, seed, 4, scores, mask, &repeats);
  if ((with & 3) != 0) {
    for (uint32_t i = 0; i < 2; i++) /* masks are seldom of a head or a batch alone */
      if (kit_below(seed, 2) == 0) mask[i] = 1;
    kit_graph_arg(d, MASK, (with & 1) != 0 ? BS_BOOL : s->index % 2 == 0 ? s->x : BS_F32, 4, mask, repeats);
    fill_mask(d);
  }
  for (uint32_t i = Q; i <= V; i++) kit_graph_fill(d, i);
  if (kit_below(seed, 3) == 0) {
    kit_graph_arg(d, LENGTHS, BS_I32, 1, &batch, 0);
    fill_lengths(d);
  }
  if (is_f8 && !backward) {
    kit_graph_arg(d, DESCALE, BS_F32, 1, three, 0);
    for (int64_t i = 0; i < 3; i++) kit_set_at(&d->a[DESCALE], i, 0.5 + 0.25 * (double)i);
  }
  kit_graph_arg(d, Y, s->y, 4, y, 0);
  d->outs = 1u << Y;
  if (kit_below(seed, 2) == 0 || backward) {
    kit_graph_arg(d, LSE, BS_F32, 3, y, 0);
    d->outs |= 1u << LSE;
  }
  d->nargs = LSE + 1;
  d->query.attrs[0] = kit_below(seed, 3);
  if (kit_below(seed, 3) == 0) d->query.attrs[1] = 1 + kit_below(seed, 9);
  if (kit_below(seed, 4) == 0) d->query.attrs[2] = 1 + kit_below(seed, 9);
  if (!backward && kit_below(seed, 3) == 0) d->query.attrs[3] = 1;
  d->query.numbers[0] = D > 0 ? 1.0 / sqrt((double)D) : 1.0;
  if (kit_below(seed, 3) == 0) d->query.numbers[0] *= 3.0;
  if (kit_below(seed, 4) == 0) d->query.numbers[1] = 1.5;
}

static void make(kit_data *d, uint64_t *seed) {
  if (d->shape.plain)
    make_plain(d);
  else
    make_common(d, seed, 0);
}

typedef struct seen {
  long double score, error;       /* absolute */
  long double slope, slope_error; /* of the softcap */
} seen;

static double by(const kit_data *d, int64_t i) {
  return d->a[DESCALE].block != NULL ? kit_get_at(&d->a[DESCALE], i) : 1.0;
}

/* Does query at[2] of batch at[0] see key j, by position and length? */
static int sees(const kit_data *d, const int64_t *at, int64_t j) {
  const int64_t *attrs = d->query.attrs, S = d->a[Q].t.dims[2];
  int64_t length = d->a[K].t.dims[2];
  if (d->a[LENGTHS].block != NULL) length = (int64_t)kit_get_at(&d->a[LENGTHS], at[0]);
  const int64_t p = at[2] + (attrs[0] == BS_CAUSAL_LOWER_RIGHT ? length - S : 0);
  if (j >= length || (attrs[0] != BS_CAUSAL_NONE && j > p)) return 0;
  if (attrs[1] > 0 && j < p - attrs[1] + 1) return 0;
  return attrs[2] == 0 || j <= p + attrs[2] - 1;
}

/* The score of key j, and what it may be off by. -INFINITY: not seen. */
static seen score(const kit_data *d, uint32_t tolerance, const int64_t *at, int64_t j) {
  const double u = kit_graph_unit(d, tolerance), cap = d->query.numbers[1];
  const int64_t D = d->a[Q].t.dims[3], group = at[1] / (d->a[Q].t.dims[1] / d->a[K].t.dims[1]);
  const double scale = d->query.numbers[0] * by(d, 0) * by(d, 1);
  int64_t q[4] = {at[0], at[1], at[2], 0}, k[4] = {at[0], group, j, 0};
  const int64_t m[4] = {at[0], at[1], at[2], j};
  seen r = {-INFINITY, 0, 1, 0};
  long double size = 0;
  if (!sees(d, at, j)) return r;
  const double mask = d->a[MASK].block != NULL ? kit_graph_value(&d->a[MASK], 4, m) : 0.0;
  const int is_bool = d->a[MASK].block != NULL && d->a[MASK].t.dtype == BS_BOOL;
  if (is_bool ? mask == 0 : mask == -INFINITY) return r;
  r.score = 0;
  for (; q[3] < D; q[3]++) {
    k[3] = q[3];
    const long double term = (long double)kit_graph_value(&d->a[Q], 4, q) * kit_graph_value(&d->a[K], 4, k);
    r.score += term;
    size += fabsl(term);
  }
  r.score *= scale;
  r.error = kit_slack(d, tolerance, D + 2, (double)(size * fabs(scale))) + 2 * u * fabsl(r.score);
  if (cap > 0) {
    const long double t = tanhl(r.score / cap);
    r.slope = 1 - t * t;
    r.slope_error = 2 * fabsl(t) * (r.error / cap + 6 * u) + 4 * u;
    r.score = cap * t;
    r.error += 6 * u * fabsl(r.score);
  }
  if (!is_bool) {
    r.score += mask;
    r.error += u * (fabs(mask) + fabsl(r.score));
  }
  return r;
}

/* 1: the class of a sum of special values is known. A NaN stays a NaN, and to add more terms is slow:
 * processors take long for a NaN of long double. */
static int settled(int special, long double sum) {
  return special && isnan((double)sum);
}

/* Query at[0..2]: all of Y's row, and LSE. */
static void judge_query(const kit_data *d, uint32_t tolerance, int special, int64_t *at, seen *of) {
  const double u = kit_graph_unit(d, tolerance);
  const int64_t T = d->a[K].t.dims[2], E = d->a[V].t.dims[3];
  const int64_t group = at[1] / (d->a[Q].t.dims[1] / d->a[K].t.dims[1]);
  long double most = -INFINITY, total = 0, off = 0;
  for (int64_t j = 0; j < T; j++) {
    of[j] = score(d, tolerance, at, j);
    if (of[j].score > most || isnan((double)of[j].score)) most = isnan((double)most) ? most : of[j].score;
  }
  for (int64_t j = 0; j < T; j++) {
    if (of[j].score == -INFINITY) continue;
    const long double far = fabsl(of[j].score - most);
    of[j].score = expl(of[j].score - most);
    of[j].error += (far + 10) * u;
    total += of[j].score;
    off += of[j].score * of[j].error;
  }
  const int none = most == -INFINITY, zeros = isnan((double)total) && d->query.attrs[3] != 0;
  off = none || zeros ? 0 : off / total;
  const double c = kit_slack(d, tolerance, T + 2, 1.0);
  for (at[3] = 0; at[3] < E; at[3]++) {
    long double sum = 0, size = 0;
    for (int64_t j = 0; !none && j < T && !settled(special, sum); j++) {
      const int64_t v[4] = {at[0], group, j, at[3]};
      if (of[j].score == -INFINITY) continue;
      const long double power = zeros ? 0 : of[j].score / total;
      const long double term = power * kit_graph_value(&d->a[V], 4, v) * by(d, 2);
      sum += term;
      if (!zeros) size += fabsl(term) * (of[j].error + off + 2 * c + 6 * u);
    }
    kit_graph_check(d, Y, kit_graph_number(&d->a[Y], 4, at), (double)sum, (double)size + 0x1p-126, special);
  }
  if (d->a[LSE].block == NULL) return;
  const double lse = most == -INFINITY ? -INFINITY : (double)(most + logl(total));
  const double slack = none || zeros ? 0.0 : (double)off + c + 8 * u * (1 + fabs(lse) + fabs((double)most));
  kit_graph_check(d, LSE, kit_graph_number(&d->a[LSE], 3, at), lse, slack, special);
}

static void judge(const kit_data *d, uint32_t tolerance, int special) {
  const int64_t *q = d->a[Q].t.dims, T = d->a[K].t.dims[2];
  const int64_t n = q[0] * q[1] * q[2];
  seen *of = calloc((size_t)T + 1, sizeof *of);
  kit_assert(of != NULL, "no memory");
  for (int64_t i = 0; i < n; i++) {
    int64_t at[4] = {0};
    kit_graph_at(i, 3, q, at);
    judge_query(d, tolerance, special, at, of);
  }
  free(of);
}

const kit_graph_op kit_graph_attention = {"attention", 1, 0, 0, 1, make, judge, NULL};

/* ---- gradients -------------------------------------------------------------------------------- */

/* Any Y, dY and LSE will do: the op is what it makes of them. Now and then a query that has seen no key. */
static void make_dx(kit_data *d, uint64_t *seed) {
  make_common(d, seed, 1);
  uint64_t own = kit_graph_seed(d, LSE), *drawn = &own;
  const int64_t *q = d->a[Q].t.dims;
  for (int64_t i = 0; i < kit_elements(&d->a[LSE]); i++)
    kit_set_at(&d->a[LSE], i,
               kit_below(drawn, 9) == 0 ? -INFINITY : 1.0 + (double)kit_below(drawn, 64) / 16.0);
  kit_graph_fill(d, Y);
  kit_graph_arg(d, DY, d->shape.y, 4, d->a[Y].t.dims, 0);
  kit_graph_fill(d, DY);
  kit_graph_arg(d, DQ, d->shape.x, 4, q, 0);
  kit_graph_arg(d, DK, d->shape.x, 4, d->a[K].t.dims, 0);
  kit_graph_arg(d, DV, d->shape.w, 4, d->a[V].t.dims, 0);
  d->outs = 1u << DQ | 1u << DK | 1u << DV;
  d->nargs = DV + 1;
}

/* P and dS of a query and a key, and their largest errors. */
typedef struct weight {
  long double p, p_error, ds, ds_error;
} weight;

static weight weigh(const kit_data *d, uint32_t tolerance, const int64_t *at, int64_t j) {
  const double u = kit_graph_unit(d, tolerance), smallest = u < 0x1p-50 ? 0.0 : 0x1p-126;
  const int64_t E = d->a[V].t.dims[3], group = at[1] / (d->a[Q].t.dims[1] / d->a[K].t.dims[1]);
  const double lse = kit_graph_value(&d->a[LSE], 3, at);
  long double dp = 0, size = 0, delta = 0, delta_size = 0;
  weight w = {0};
  if (lse == -INFINITY) return w;
  const seen s = score(d, tolerance, at, j);
  if (s.score == -INFINITY) return w;
  for (int64_t e = 0; e < E; e++) {
    const int64_t y[4] = {at[0], at[1], at[2], e}, v[4] = {at[0], group, j, e};
    const long double dy = kit_graph_value(&d->a[DY], 4, y);
    const long double one = dy * kit_graph_value(&d->a[V], 4, v), two = dy * kit_graph_value(&d->a[Y], 4, y);
    dp += one;
    size += fabsl(one);
    delta += two;
    delta_size += fabsl(two);
  }
  w.p = expl(s.score - lse);
  w.p_error = w.p * (s.error + (fabsl(s.score) + fabs(lse) + 12) * u) + smallest;
  const long double g = dp - delta;
  const long double g_error =
      kit_slack(d, tolerance, E + 2, (double)(size + delta_size)) + 4 * u * (fabsl(dp) + fabsl(delta));
  w.ds = w.p * g * s.slope;
  w.ds_error = w.p_error * fabsl(g) * s.slope + w.p * g_error * s.slope + w.p * fabsl(g) * s.slope_error +
               6 * u * fabsl(w.ds) + smallest;
  return w;
}

/* A sum of weights times rows of `arg`, an element of the output `out`. */
typedef struct sum {
  long double value, size, error;
  int64_t terms;
} sum;

static void add(sum *s, long double w, long double w_error, double by) {
  s->value += w * by;
  s->size += fabsl(w * by);
  s->error += w_error * fabs(by);
  s->terms++;
}

static void check_sum(const kit_data *d, uint32_t tolerance, uint32_t out, const int64_t *at, const sum *s,
                      double scale, int special) {
  const double u = kit_graph_unit(d, tolerance), value = (double)s->value * scale;
  const double slack = kit_slack(d, tolerance, s->terms + 2, (double)s->size) + (double)s->error;
  kit_graph_check(d, out, kit_graph_number(&d->a[out], 4, at), value,
                  slack * fabs(scale) + 4 * u * fabs(value) + 0x1p-126, special);
}

/* Weights of all pairs of a head: [S][T]. */
static void weigh_head(const kit_data *d, uint32_t tolerance, int64_t b, int64_t h, weight *w) {
  const int64_t S = d->a[Q].t.dims[2], T = d->a[K].t.dims[2];
  for (int64_t i = 0; i < S * T; i++) {
    const int64_t at[4] = {b, h, i / T, 0};
    w[i] = weigh(d, tolerance, at, i % T);
  }
}

static void judge_queries(const kit_data *d, uint32_t tolerance, int special, int64_t b, int64_t h,
                          const weight *w) {
  const int64_t S = d->a[Q].t.dims[2], T = d->a[K].t.dims[2], D = d->a[Q].t.dims[3];
  const int64_t group = h / (d->a[Q].t.dims[1] / d->a[K].t.dims[1]);
  for (int64_t n = 0; n < S * D; n++) {
    const int64_t at[4] = {b, h, n / D, n % D};
    sum s = {0};
    for (int64_t j = 0; j < T && !settled(special, s.value); j++) {
      const weight *one = &w[at[2] * T + j];
      const int64_t k[4] = {b, group, j, at[3]};
      if (one->p != 0 || one->p_error != 0) add(&s, one->ds, one->ds_error, kit_graph_value(&d->a[K], 4, k));
    }
    check_sum(d, tolerance, DQ, at, &s, d->query.numbers[0], special);
  }
}

/* dK by dS and Q, dV by P and dY; w: weights of the group's heads. */
static void judge_keys(const kit_data *d, uint32_t tolerance, int special, int64_t b, int64_t g, uint32_t out,
                       const weight *w) {
  const int64_t S = d->a[Q].t.dims[2], T = d->a[K].t.dims[2], repeat = d->a[Q].t.dims[1] / d->a[K].t.dims[1];
  const int64_t width = d->a[out].t.dims[3];
  for (int64_t n = 0; n < T * width; n++) {
    const int64_t at[4] = {b, g, n / width, n % width};
    sum s = {0};
    for (int64_t i = 0; i < repeat * S && !settled(special, s.value); i++) {
      const weight *one = &w[i * T + at[2]];
      const int64_t row[4] = {b, g * repeat + i / S, i % S, at[3]};
      if (one->p == 0 && one->p_error == 0) continue;
      if (out == DK)
        add(&s, one->ds, one->ds_error, kit_graph_value(&d->a[Q], 4, row));
      else
        add(&s, one->p, one->p_error, kit_graph_value(&d->a[DY], 4, row));
    }
    check_sum(d, tolerance, out, at, &s, out == DK ? d->query.numbers[0] : 1.0, special);
  }
}

static void judge_dx(const kit_data *d, uint32_t tolerance, int special) {
  const int64_t *q = d->a[Q].t.dims, G = d->a[K].t.dims[1], T = d->a[K].t.dims[2];
  const int64_t repeat = G > 0 ? q[1] / G : 0;
  weight *w = calloc((size_t)(repeat * q[2] * T) + 1, sizeof *w);
  kit_assert(w != NULL, "no memory");
  for (int64_t n = 0; n < q[0] * G; n++) {
    const int64_t b = n / G, g = n % G;
    for (int64_t h = 0; h < repeat; h++) {
      weigh_head(d, tolerance, b, g * repeat + h, w + h * q[2] * T);
      judge_queries(d, tolerance, special, b, g * repeat + h, w + h * q[2] * T);
    }
    judge_keys(d, tolerance, special, b, g, DK, w);
    judge_keys(d, tolerance, special, b, g, DV, w);
  }
  free(w);
}

const kit_graph_op kit_graph_attention_dx = {"attention_dx", 1, 0, 0, 1, make_dx, judge_dx, NULL};
