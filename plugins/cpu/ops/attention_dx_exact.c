/* SPDX-License-Identifier: MIT
 *
 * attention_dx_exact.c - a row of attention's gradients in doubles, pair by pair: what NaN and infinities ask
 * for. */
#include <math.h>

#include "attention_dx.h"

/* A query of a head and a key: rows as f32 in the member's own memory. */
typedef struct rows {
  float *q, *k, *v, *y, *dy;
} rows;

static double dot(const float *a, const float *b, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
  return sum;
}

static void load(const dx_block *b, uint32_t arg, int64_t head, int64_t row, int64_t n, float *out) {
  const cpu_rows4 *t = &b->call->t[arg];
  b->call->plan->kernels->load[t->type](out, cpu_row_at(t, b->batch, head, row), n);
}

/* P and dS; 0: the query does not see the key. */
static int weigh(const dx_block *b, const rows *r, int64_t head, int64_t i, int64_t j, double *out_p,
                 double *out_ds) {
  const dx_call *call = b->call;
  const cpu_dx *plan = call->plan;
  const double lse = (double)cpu_dx_lse(call, b->batch, head, i);
  int64_t first, end;
  cpu_dx_bounds(call, i, b->length, &first, &end);
  if (j < first || j >= end || lse == -INFINITY) return 0;
  const double mask = (double)cpu_dx_mask(call, b->batch, head, i, j);
  double score = plan->scale * dot(r->q, r->k, plan->D), slope = 1.0;
  if (plan->softcap > 0.0) {
    const double t = tanh(score / plan->softcap);
    score = plan->softcap * t;
    slope = 1.0 - t * t;
  }
  score += mask;
  if (mask == -INFINITY || score == -INFINITY) return 0;
  *out_p = exp(score - lse);
  *out_ds = *out_p * (dot(r->dy, r->v, plan->E) - dot(r->dy, r->y, plan->E)) * slope;
  return 1;
}

static void add(double *sums, double by, const float *row, int64_t n) {
  for (int64_t x = 0; x < n; x++) sums[x] += by * (double)row[x];
}

void cpu_dx_exact(const dx_block *b, int64_t row, float *sums, float *grad) {
  const dx_call *call = b->call;
  const cpu_dx *plan = call->plan;
  const int64_t repeat = call->H / call->G, D = plan->D, E = plan->E;
  const int64_t group = b->keys ? b->head : b->head / repeat;
  double to[CPU_ATTEND_WIDTH] = {0}, to_grad[CPU_ATTEND_WIDTH] = {0}, p = 0.0, ds = 0.0;
  rows r = {.q = b->row};
  r.k = r.q + CPU_ATTEND_WIDTH;
  r.v = r.k + CPU_ATTEND_WIDTH;
  r.y = r.v + CPU_ATTEND_WIDTH;
  r.dy = r.y + CPU_ATTEND_WIDTH;
  const int64_t first_head = b->keys ? b->head * repeat : b->head, heads = b->keys ? repeat : 1;
  const int64_t others = b->keys ? call->S : b->length;
  for (int64_t n = 0; n < heads * others; n++) {
    const int64_t head = first_head + n / others, i = b->keys ? n % others : row,
                  j = b->keys ? row : n % others;
    load(b, DX_Q, head, i, D, r.q);
    load(b, DX_Y, head, i, E, r.y);
    load(b, DX_DY, head, i, E, r.dy);
    load(b, DX_K, group, j, D, r.k);
    load(b, DX_V, group, j, E, r.v);
    if (!weigh(b, &r, head, i, j, &p, &ds)) continue;
    add(to, ds, b->keys ? r.q : r.k, D);
    if (b->keys) add(to_grad, p, r.dy, E);
  }
  for (int64_t d = 0; d < D; d++) sums[d] = (float)(to[d] * plan->scale);
  for (int64_t e = 0; b->keys && e < E; e++) grad[e] = (float)to_grad[e];
}
