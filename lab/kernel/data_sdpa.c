/* SPDX-License-Identifier: MIT
 * data_sdpa.c - the reference of attention: sampled queries of each batch and head in f64; and the error that
 * a format explains, of the same queries and the same numbers (oracle.h). */
#include <math.h>
#include <stdlib.h>

#include "lab/error.h"
#include "lab/kernel/data_parts.h"
#include "lab/kernel/oracle.h"

static const double MOST_EMULATED = 4e7; /* products, beyond which no further head is emulated */

/* ---- the reference ------------------------------------------------------------------------------ */

/* y = softmax(q K^T / sqrt(D)) V of query s in f64; zeros if the query sees no key. */
static void attend(const bs_kernel_problem *p, int64_t s, const double *q, const double *k, const double *v,
                   double *score, double *y) {
  int64_t first, end;
  double most = -INFINITY, total = 0.0;
  bs_kernel_keys(p, s, &first, &end);
  for (int64_t e = 0; e < p->E; e++) y[e] = 0.0;
  for (int64_t t = first; t < end; t++) {
    score[t] = bs_kernel_data_dot(q, k + t * p->D, p->D) / sqrt((double)p->D);
    if (score[t] > most) most = score[t];
  }
  for (int64_t t = first; t < end; t++) {
    const double power = exp(score[t] - most);
    total += power;
    for (int64_t e = 0; e < p->E; e++) y[e] += power * v[t * p->E + e];
  }
  for (int64_t e = 0; e < p->E && total > 0.0; e++) y[e] /= total;
}

/* All heads of a batch that share K and V. */
static int32_t refer_group(bs_kernel_data *d, int64_t group, int64_t tile, double *score, int64_t *rows,
                           bs_error *err) {
  const bs_kernel_problem *p = &d->p;
  const int64_t each = p->H / p->G;
  double *k = bs_kernel_data_widen(d, 1, group * p->T, p->T, err),
         *v = bs_kernel_data_widen(d, 2, group * p->T, p->T, err);
  int32_t rc = k != NULL && v != NULL ? BS_OK : BS_NO_MEMORY;
  for (int64_t h = 0; rc == BS_OK && h < each; h++) {
    const int64_t head = group * each + h, n = bs_kernel_data_draw(d, head * p->S, p->S, tile, rows);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      const int64_t row = head * p->S + rows[i];
      double *q = bs_kernel_data_widen(d, 0, row, 1, err);
      if (q == NULL) {
        rc = BS_NO_MEMORY;
        break;
      }
      attend(p, rows[i], q, k, v, score, d->value + d->n * d->width);
      d->at[d->n] = row * p->E;
      d->count[d->n] = p->E;
      d->slice[d->n++] = head;
      free(q);
    }
  }
  free(k);
  free(v);
  return rc;
}

int32_t bs_kernel_data_refer_sdpa(bs_kernel_data *d, bs_error *err) {
  const bs_kernel_problem *p = &d->p;
  const int64_t tile = bs_kernel_data_tile(p), heads = p->B * p->H,
                rows_of_head = (p->S + tile - 1) / tile + 2;
  double *score = calloc((size_t)p->T, sizeof *score);
  int64_t *rows = calloc((size_t)rows_of_head, sizeof *rows);
  int32_t rc = score != NULL && rows != NULL ? bs_kernel_data_room(d, heads * rows_of_head, p->E, err)
                                             : bs_no_memory(err, "a row of scores");
  d->slices = heads;
  for (int64_t group = 0; rc == BS_OK && group < p->B * p->G; group++)
    rc = refer_group(d, group, tile, score, rows, err);
  free(score);
  free(rows);
  return rc;
}

/* ---- the predicted error ------------------------------------------------------------------------ */

/* Judged rows of one head. */
typedef struct head {
  bs_sdpa_rows rows;
  int64_t *at, *first, *end;
} head;

static void free_head(head *h) {
  free(h->at);
  free(h->first);
  free(h->end);
  free(h->rows.q);
  free(h->rows.k);
  free(h->rows.v);
}

/* Opens head `index`; `run` is its first run of the reference. */
static int32_t open_head(const bs_kernel_data *d, int64_t index, int64_t run, head *h, bs_error *err) {
  const bs_kernel_problem *p = &d->p;
  const int64_t group = index / (p->H / p->G), base = index * p->S, tile = bs_kernel_data_tile(p);
  const size_t most = (size_t)((p->S + tile - 1) / tile + 2);
  *h = (head){0};
  h->at = calloc(most, sizeof *h->at);
  h->first = calloc(most, sizeof *h->first);
  h->end = calloc(most, sizeof *h->end);
  h->rows.q = calloc(most * (size_t)p->D, sizeof *h->rows.q);
  h->rows.k = bs_kernel_data_widen(d, 1, group * p->T, p->T, err);
  h->rows.v = bs_kernel_data_widen(d, 2, group * p->T, p->T, err);
  if (h->at == NULL || h->first == NULL || h->end == NULL || h->rows.q == NULL || h->rows.k == NULL ||
      h->rows.v == NULL) {
    free_head(h);
    return bs_no_memory(err, "the judged rows of a head");
  }
  h->rows.n = bs_kernel_data_draw(d, base, p->S, tile, h->at);
  for (int64_t i = 0; i < h->rows.n; i++) {
    double *q = bs_kernel_data_widen(d, 0, base + h->at[i], 1, err);
    if (q == NULL) {
      free_head(h);
      return BS_NO_MEMORY;
    }
    for (int64_t x = 0; x < p->D; x++) h->rows.q[i * p->D + x] = q[x];
    free(q);
    bs_kernel_keys(p, h->at[i], &h->first[i], &h->end[i]);
  }
  h->rows.first = h->first;
  h->rows.end = h->end;
  h->rows.right = d->value + run * d->width;
  return BS_OK;
}

/* The predicted error of f64 compared with the reference, which is f64 too (docs/gates.md): 0.425 units for
 * each rounding, twice. The roundings are those of the sums of a score, of a row and of its powers, and 16 of
 * the scaling, the difference, the exponential and the quotient. */
static double predict_f64(const bs_kernel_problem *p, bs_tail *out_tail) {
  const double roundings = (double)p->D / 2.0 + 5.0 * (double)p->T / 6.0 + 16.0;
  const double unit = sqrt(2.0) * 0.425 * 0x1p-53 * sqrt(roundings);
  bs_tail_add(out_tail, 1.0, unit * unit, 3.0 * unit * unit * unit * unit);
  return bs_tail_rmse(out_tail);
}

int32_t bs_kernel_data_predict_sdpa(const bs_kernel_data *d, uint32_t tolerance, double *out_relative,
                                    bs_tail *out_tail, bs_error *err) {
  const bs_kernel_problem *p = &d->p;
  const bs_sdpa_format f = {.S = p->S,
                            .T = p->T,
                            .D = p->D,
                            .E = p->E,
                            .dtype = p->dtype,
                            .out_dtype = bs_kernel_y_dtype(p),
                            .tolerance = tolerance};
  double right = 0.0, products = 0.0;
  int64_t run = 0;
  int32_t rc = BS_OK;
  if (p->dtype == BS_F64) {
    *out_relative = predict_f64(p, out_tail);
    return BS_OK;
  }
  for (int64_t i = 0; rc == BS_OK && i < p->B * p->H && products < MOST_EMULATED; i++) {
    head h;
    rc = open_head(d, i, run, &h, err);
    if (rc != BS_OK) break;
    rc = bs_sdpa_add_rows(&f, &h.rows, &right, out_tail, err);
    run += h.rows.n;
    products += (double)(h.rows.n * p->T) * (double)(p->D + p->E);
    free_head(&h);
  }
  if (rc == BS_OK && right > 0.0) bs_tail_divide(out_tail, sqrt(right / out_tail->values));
  *out_relative = bs_tail_rmse(out_tail);
  return rc;
}
