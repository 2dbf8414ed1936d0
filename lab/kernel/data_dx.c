/* SPDX-License-Identifier: MIT
 * data_dx.c - the reference of attention's gradients: dQ, dK and dV of sampled rows in f64, from the Y and
 * LSE that the kernels get. The rows of the first group are also computed as a kernel with f32 sums does, in
 * tiles: their error is the one that the format explains. */
#include <math.h>
#include <stdlib.h>

#include "lab/error.h"
#include "lab/kernel/data_parts.h"
#include "lab/kernel/oracle.h"

enum { IN_Q, IN_K, IN_V, IN_DY, IN_Y, IN_LSE, TILE = 128 };

/* One group of a batch: its keys, and the queries of all its heads one after the other. */
typedef struct group {
  const bs_kernel_problem *p;
  int64_t index, each;                      /* each: heads */
  double *q, *k, *v, *dy, *y, *lse, *delta; /* delta: dY . Y of a query */
  double *sum[2], *tile[2];                 /* of D and of E values */
  int narrow;                               /* 1: everything is rounded to f32 */
} group;

static double rounded(const group *g, double x) {
  return g->narrow ? (double)(float)x : x;
}

/* For f32 one sum in order, as in kernels that vectorize over keys. */
static double dot(const group *g, const double *a, const double *b, int64_t n) {
  float sum = 0.0f;
  if (!g->narrow) return bs_kernel_data_dot(a, b, n);
  for (int64_t i = 0; i < n; i++) sum = fmaf((float)a[i], (float)b[i], sum);
  return (double)sum;
}

/* P of query `row` of the group and a key, and dS. */
static double weigh(const group *g, int64_t row, int64_t key, double *out_ds) {
  const int64_t D = g->p->D, E = g->p->E;
  const double score = rounded(g, dot(g, g->q + row * D, g->k + key * D, D) / sqrt((double)D));
  const double power = rounded(g, exp(rounded(g, score - g->lse[row])));
  const double slope = rounded(g, dot(g, g->dy + row * E, g->v + key * E, E) - g->delta[row]);
  *out_ds = rounded(g, power * slope);
  return power;
}

static void add(const group *g, int which, double factor, const double *row, int64_t n) {
  double *tile = g->tile[which];
  for (int64_t i = 0; i < n; i++) tile[i] = rounded(g, tile[i] + factor * row[i]);
}

static void end_tile(const group *g, int which, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    g->sum[which][i] = rounded(g, g->sum[which][i] + g->tile[which][i]);
    g->tile[which][i] = 0.0;
  }
}

static void begin(const group *g) {
  for (int64_t i = 0; i < g->p->D; i++) g->sum[0][i] = g->tile[0][i] = 0.0;
  for (int64_t i = 0; i < g->p->E; i++) g->sum[1][i] = g->tile[1][i] = 0.0;
}

/* dQ of a query of the group, into sum[0]. */
static void query_row(const group *g, int64_t row) {
  const bs_kernel_problem *p = g->p;
  int64_t first, end;
  double ds;
  begin(g);
  bs_kernel_keys(p, row % p->S, &first, &end);
  for (int64_t t = first; t < end; t++) {
    (void)weigh(g, row, t, &ds);
    add(g, 0, ds, g->k + t * p->D, p->D);
    if ((t - first) % TILE == TILE - 1) end_tile(g, 0, p->D);
  }
  end_tile(g, 0, p->D);
  for (int64_t i = 0; i < p->D; i++) g->sum[0][i] = rounded(g, g->sum[0][i] / sqrt((double)p->D));
}

/* dK and dV of a key, into sum[0] and sum[1]. */
static void key_row(const group *g, int64_t key) {
  const bs_kernel_problem *p = g->p;
  int64_t first, end;
  double ds;
  begin(g);
  for (int64_t row = 0; row < g->each * p->S; row++) {
    bs_kernel_keys(p, row % p->S, &first, &end);
    if (key >= first && key < end) {
      add(g, 1, weigh(g, row, key, &ds), g->dy + row * p->E, p->E);
      add(g, 0, ds, g->q + row * p->D, p->D);
    }
    if (row % TILE != TILE - 1) continue;
    end_tile(g, 0, p->D);
    end_tile(g, 1, p->E);
  }
  end_tile(g, 0, p->D);
  end_tile(g, 1, p->E);
  for (int64_t i = 0; i < p->D; i++) g->sum[0][i] = rounded(g, g->sum[0][i] / sqrt((double)p->D));
}

/* The next run of the reference. */
static void put(bs_kernel_data *d, const group *g, int which, int64_t count, int64_t at) {
  for (int64_t i = 0; i < count; i++) d->value[d->n * d->width + i] = g->sum[which][i];
  d->at[d->n] = at;
  d->count[d->n] = count;
  d->slice[d->n++] = g->index;
}

/* Compares sum[which] with the run that was computed in f64. */
static void compare(bs_kernel_data *d, const group *g, int which, int64_t run, double *inout_error,
                    double *inout_energy) {
  const uint32_t dtype = bs_kernel_y_dtype(&d->p);
  double squares = 0.0, fourths = 0.0;
  for (int64_t i = 0; i < d->count[run]; i++) {
    const double right = d->value[run * d->width + i];
    const float narrow = (float)g->sum[which][i];
    uint64_t stored = 0;
    double given = g->sum[which][i];
    if (dtype != BS_F64) {
      bs_convert(dtype, &stored, BS_F32, &narrow, 1);
      bs_convert(BS_F64, &given, dtype, &stored, 1);
    }
    const double square = (given - right) * (given - right) + BS_SDPA_SCALING * right * right;
    squares += square;
    fourths += square * square;
    *inout_energy += right * right;
  }
  *inout_error += squares;
  bs_tail_add(&d->tail, (double)d->count[run], squares, fourths);
}

/* Computes all judged rows of a group: dQ, then dK and dV. narrow: compares their f32 results instead. */
static void rows_of(bs_kernel_data *d, group *g, int64_t *rows, int64_t from, double *inout_error,
                    double *inout_energy) {
  const bs_kernel_problem *p = g->p;
  const int64_t tile = bs_kernel_data_tile(p), queries = p->B * p->H * p->S, keys = p->B * p->G * p->T;
  int64_t run = from;
  for (int64_t h = 0; h < g->each; h++) {
    const int64_t base = (g->index * g->each + h) * p->S;
    const int64_t n = bs_kernel_data_draw(d, base, p->S, tile, rows);
    for (int64_t i = 0; i < n; i++, run++) {
      query_row(g, h * p->S + rows[i]);
      if (g->narrow)
        compare(d, g, 0, run, inout_error, inout_energy);
      else
        put(d, g, 0, p->D, (base + rows[i]) * p->D);
    }
  }
  const int64_t n = bs_kernel_data_draw(d, queries + g->index * p->T, p->T, tile, rows);
  for (int64_t i = 0; i < n; i++, run += 2) {
    const int64_t key = g->index * p->T + rows[i];
    key_row(g, rows[i]);
    if (g->narrow) {
      compare(d, g, 0, run, inout_error, inout_energy);
      compare(d, g, 1, run + 1, inout_error, inout_energy);
    } else {
      put(d, g, 0, p->D, (queries + key) * p->D);
      put(d, g, 1, p->E, (queries + keys) * p->D + key * p->E);
    }
  }
}

static void free_group(group *g) {
  double *all[] = {g->q,     g->k,      g->v,      g->dy,      g->y,      g->lse,
                   g->delta, g->sum[0], g->sum[1], g->tile[0], g->tile[1]};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

/* For f32 sums from the last product to the first. Kernels make this sum and that of dY . V, from which it is
 * subtracted, in two orders. So the difference of equal sums is not exactly 0. */
static void sum_deltas(const group *g) {
  const int64_t E = g->p->E;
  for (int64_t row = 0; row < g->each * g->p->S; row++) {
    const double *dy = g->dy + row * E, *y = g->y + row * E;
    float sum = 0.0f;
    for (int64_t i = E; g->narrow && i-- > 0;) sum = fmaf((float)dy[i], (float)y[i], sum);
    g->delta[row] = g->narrow ? (double)sum : dot(g, dy, y, E);
  }
}

static int32_t open_group(const bs_kernel_data *d, int64_t index, group *g, bs_error *err) {
  const bs_kernel_problem *p = &d->p;
  const int64_t each = p->H / p->G, queries = each * p->S;
  *g = (group){.p = p, .index = index, .each = each};
  g->q = bs_kernel_data_widen(d, IN_Q, index * queries, queries, err);
  g->dy = bs_kernel_data_widen(d, IN_DY, index * queries, queries, err);
  g->y = bs_kernel_data_widen(d, IN_Y, index * queries, queries, err);
  g->lse = bs_kernel_data_widen(d, IN_LSE, index * queries, queries, err);
  g->k = bs_kernel_data_widen(d, IN_K, index * p->T, p->T, err);
  g->v = bs_kernel_data_widen(d, IN_V, index * p->T, p->T, err);
  g->delta = calloc((size_t)queries, sizeof *g->delta);
  for (int i = 0; i < 2; i++) {
    const size_t n = (size_t)(i == 0 ? p->D : p->E);
    g->sum[i] = calloc(n, sizeof(double));
    g->tile[i] = calloc(n, sizeof(double));
  }
  if (g->q == NULL || g->dy == NULL || g->y == NULL || g->lse == NULL || g->k == NULL || g->v == NULL ||
      g->delta == NULL || g->sum[0] == NULL || g->sum[1] == NULL || g->tile[0] == NULL ||
      g->tile[1] == NULL) {
    free_group(g);
    return bs_no_memory(err, "a group of heads");
  }
  sum_deltas(g);
  return BS_OK;
}

int32_t bs_kernel_data_refer_dx(bs_kernel_data *d, bs_error *err) {
  const bs_kernel_problem *p = &d->p;
  const int64_t tile = bs_kernel_data_tile(p), longest = (p->S > p->T ? p->S : p->T) / tile + 3;
  const int64_t runs = p->B * (p->H * (p->S / tile + 3) + 2 * p->G * (p->T / tile + 3));
  int64_t compared = 0; /* values that were made in f32 too */
  double error = 0.0, energy = 0.0;
  if (d->in[IN_LSE].data == NULL)
    return bs_error_set(err, BS_USAGE, "BS-KERNEL-FORWARD",
                        "gradients are judged of a Y and LSE: none is set");
  int64_t *rows = calloc((size_t)longest, sizeof *rows);
  int32_t rc = rows == NULL ? bs_no_memory(err, "a list of rows")
                            : bs_kernel_data_room(d, runs, p->D > p->E ? p->D : p->E, err);
  d->slices = p->B * p->G;
  for (int64_t i = 0; rc == BS_OK && i < p->B * p->G; i++) {
    group g;
    rc = open_group(d, i, &g, err);
    if (rc != BS_OK) break;
    const int64_t from = d->n;
    rows_of(d, &g, rows, from, &error, &energy);
    g.narrow = p->dtype != BS_F64;
    if (i == 0 && g.narrow) {
      sum_deltas(&g);
      rows_of(d, &g, rows, from, &error, &energy);
      for (int64_t run = from; run < d->n; run++) compared += d->count[run];
    }
    free_group(&g);
  }
  const double unit = ldexp(sqrt((double)(p->S + p->T)), -52); /* of f64 */
  d->predicted = p->dtype == BS_F64 ? unit : energy > 0.0 ? sqrt(error / energy) : 0.0;
  if (p->dtype == BS_F64) bs_tail_add(&d->tail, 1.0, unit * unit, 3.0 * unit * unit * unit * unit);
  if (energy > 0.0) bs_tail_divide(&d->tail, sqrt(energy / (double)compared));
  free(rows);
  return rc;
}
