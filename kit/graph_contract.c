/* SPDX-License-Identifier: MIT
 * graph_contract.c - contract as the kit asks and judges it: sums in long double, the bound of matmul
 * (kit_slack); integers modulo 2^64. */
#include <math.h>

#include "kit/graph.h"
#include "lab/activation.h"

enum { A, B, BIAS, Y };

static int of_integers(const kit_data *d) {
  return !bs_dtype_is_float(d->shape.x);
}

static void make(kit_data *d, uint64_t *seed) {
  const kit_shape *s = &d->shape;
  int64_t y[BS_MAX_DIMS], in[BS_MAX_DIMS];
  uint32_t repeats = 0;
  const uint32_t rank = kit_graph_dims(d, seed, 2, BS_MAX_DIMS, s->B, s->N, y);
  const int64_t K = kit_graph_size(d, s->K % 600);
  for (uint32_t i = A; i <= BIAS; i++) {
    if (i == BIAS && s->bias == 0) continue;
    kit_graph_broadcast(d, seed, rank, y, in, &repeats);
    if (i != BIAS) { /* only outer dims repeat */
      in[rank - 2] = i == A ? y[rank - 2] : K;
      in[rank - 1] = i == A ? K : y[rank - 1];
      repeats &= (1u << (rank - 2)) - 1;
    }
    kit_graph_arg(d, i, i == A ? s->x : i == B ? s->w : s->bias, rank, in, repeats);
    kit_graph_fill_wide(d, i);
  }
  kit_graph_arg(d, Y, s->y, rank, y, 0);
  d->outs = 1u << Y;
  d->query.activation = s->activation;
  d->query.numbers[0] =
      of_integers(d) || kit_below(seed, 2) == 0 ? 1.0 : 0.125 * (double)(1 + kit_below(seed, 20));
}

static int64_t integer_at(const kit_tensor *m, uint32_t rank, const int64_t *at) {
  int64_t v = 0;
  bs_convert(BS_I64, &v, m->t.dtype, kit_place_at(m, kit_graph_number(m, rank, at)), 1);
  return v;
}

static void judge_integer(const kit_data *d, uint32_t rank, const int64_t *at, int64_t K, int64_t i) {
  int64_t a[BS_MAX_DIMS], b[BS_MAX_DIMS];
  uint64_t sum = 0;
  memcpy(a, at, sizeof a);
  memcpy(b, at, sizeof b);
  for (int64_t k = 0; k < K; k++) {
    a[rank - 1] = b[rank - 2] = k;
    sum += (uint64_t)integer_at(&d->a[A], rank, a) * (uint64_t)integer_at(&d->a[B], rank, b);
  }
  if (d->a[BIAS].block != NULL) sum += (uint64_t)integer_at(&d->a[BIAS], rank, at);
  int64_t want = (int64_t)sum;
  if (d->query.activation == BS_ACT_RELU && want < 0) want = 0;
  if (d->a[Y].t.dtype == BS_I32) want = (int64_t)(int32_t)(uint32_t)(uint64_t)want;
  if (integer_at(&d->a[Y], d->a[Y].t.rank, at) != want) kit_graph_check(d, Y, i, (double)want, 0.0, 0);
}

static void judge_float(const kit_data *d, uint32_t tolerance, int special, uint32_t rank, const int64_t *at,
                        int64_t K, int64_t i) {
  const uint32_t act = d->query.activation;
  const double u = kit_graph_unit(d, tolerance), alpha = d->query.numbers[0];
  int64_t a[BS_MAX_DIMS], b[BS_MAX_DIMS];
  long double sum = 0;
  double size = 0;
  memcpy(a, at, sizeof a);
  memcpy(b, at, sizeof b);
  for (int64_t k = 0; k < K; k++) {
    a[rank - 1] = b[rank - 2] = k;
    const long double term =
        (long double)kit_graph_value(&d->a[A], rank, a) * kit_graph_value(&d->a[B], rank, b);
    sum += term;
    size += (double)fabsl(term);
  }
  sum *= alpha;
  size *= fabs(alpha);
  double slack = kit_slack(d, tolerance, K + 1, size) + 2 * u * size + 0x1p-149 * (u > 0x1p-40);
  if (d->a[BIAS].block != NULL) {
    const double bias = kit_graph_value(&d->a[BIAS], rank, at);
    sum += bias;
    slack += 2 * u * (fabs(bias) + (double)fabsl(sum));
  }
  const double in = (double)sum, want = bs_activation_value(act, in);
  if (!special && act != BS_ACT_NONE) slack *= bs_activation_slope(act, in - slack, in + slack);
  if (!special && act > BS_ACT_RELU) slack += bs_activation_error(act, in, u) + 2 * u * fabs(want);
  kit_graph_check(d, Y, i, want, slack, special);
}

static void judge(const kit_data *d, uint32_t tolerance, int special) {
  const kit_tensor *y = &d->a[Y];
  const uint32_t rank = y->t.rank;
  const int64_t n = kit_elements(y), K = d->a[A].t.dims[rank - 1];
  for (int64_t i = 0; i < n; i++) {
    int64_t at[BS_MAX_DIMS];
    kit_graph_at(i, rank, y->t.dims, at);
    if (of_integers(d))
      judge_integer(d, rank, at, K, i);
    else
      judge_float(d, tolerance, special, rank, at, K, i);
  }
}

const kit_graph_op kit_graph_contract = {"contract", 1, 1, 0, 1, make, judge, NULL};
