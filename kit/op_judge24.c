/* SPDX-License-Identifier: MIT
 * op_judge24.c - outputs of the ops over 2:4 weights against fp64 sums over only the kept weights: the others
 * do not count, for any X or dY. Bounds are those of op_judge.c. */
#include <math.h>

#include "kit/op.h"
#include "lab/activation.h"

/* A sum, and the sum of its terms' sizes. steps: rounded as docs/ops.md defines, if requested. */
typedef struct sum {
  double value, size, steps;
  int64_t terms;
} sum;

/* The operands as doubles, of the weight's part: X [B,kept], W [N,kept], dY [B,N]; and the terms of a sum. */
typedef struct operands {
  const kit_data *d;
  uint32_t tolerance;
  int special, wide, steps;
  double unit; /* of a rounding */
  double *x, *w, *dy;
  double *left, *right;
  int64_t *at;
} operands;

static double unit(const kit_data *d, uint32_t tolerance) {
  return kit_slack(d, tolerance, 1, 1.0) > 0 ? (kit_wide(d)                   ? 0x1p-53
                                                : tolerance == BS_TOL_ACC_LOW ? 0x1p-11
                                                                              : 0x1p-24)
                                             : 0.0;
}

static int64_t x_column(const kit_data *d, int64_t k) {
  return d->shape.x_full ? kit_column(d, k) : k;
}

static void *take(int64_t count, size_t size) {
  void *p = calloc((size_t)count + 1, size);
  kit_assert(p != NULL, "no memory for the oracle");
  return p;
}

static sum sum_of(const operands *o, int64_t terms) {
  sum s = {.terms = terms};
  for (int64_t i = 0; i < terms; i++) {
    const double product = o->left[i] * o->right[i];
    s.value += product;
    s.size += fabs(product);
  }
  for (int64_t i = 0; i < terms && o->steps; i++)
    s.steps = kit_step(o->wide, s.steps, o->left[i], o->right[i]);
  return s;
}

static void judge_forward(operands *o, int64_t b, int64_t n, int64_t terms) {
  const kit_data *d = o->d;
  const kit_shape *s = &d->shape;
  for (int64_t i = 0; i < terms; i++) o->left[i] = o->x[b * d->kept + o->at[i]];
  sum y = sum_of(o, terms);
  if (s->bias != 0) {
    y.value += kit_get(&d->a[1], 0, n);
    y.size += fabs(kit_get(&d->a[1], 0, n));
    y.terms++;
  }
  double want = s->activation != BS_ACT_NONE ? bs_activation_value(s->activation, y.value) : y.value;
  double slack = kit_slack(d, o->tolerance, y.terms, y.size) + 2 * o->unit * fabs(y.value);
  if (!o->special && s->activation != BS_ACT_NONE)
    slack = slack * bs_activation_slope(s->activation, y.value - slack, y.value + slack) +
            bs_activation_error(s->activation, y.value, o->unit) + 2 * o->unit * fabs(want);
  if (s->residual != 0) want += kit_get(&d->a[2], b, n);
  slack += 2 * o->unit * (fabs(want) + slack);
  if (o->steps) want = kit_finish_steps(d, b, n, y.steps, &slack);
  kit_check_value(d, s->y, o->special, b, n, kit_get(&d->a[3], b, n), kit_wrapped(s->y, want), slack);
}

/* Output n of all tokens. */
static void judge_output(operands *o, int64_t n) {
  const kit_data *d = o->d;
  int64_t terms = 0;
  for (int64_t j = 0; j < d->length; j++) {
    if (!kit_place(d, n, j, &o->at[terms])) continue;
    o->right[terms] = o->w[n * d->kept + o->at[terms]];
    terms++;
  }
  for (int64_t b = 0; b < d->shape.B; b++) judge_forward(o, b, n, terms);
}

/* Is column k of row n kept? */
static int keeps(const kit_data *d, int64_t n, int64_t k) {
  return d->groups[n * (d->length / 2) + k / 4] >> k % 4 & 1;
}

/* Column k of dX. */
static void judge_dx(operands *o, int64_t k) {
  const kit_data *d = o->d;
  const kit_shape *s = &d->shape;
  int64_t terms = 0;
  for (int64_t n = 0; n < s->N; n++) {
    if (!keeps(d, n, k)) continue;
    o->right[terms] = o->w[n * d->kept + k];
    o->at[terms++] = n;
  }
  for (int64_t b = 0; b < s->B; b++) {
    for (int64_t i = 0; i < terms; i++) o->left[i] = o->dy[b * s->N + o->at[i]];
    const sum x = sum_of(o, terms);
    kit_check_value(d, s->x, o->special, b, x_column(d, k), kit_get(&d->a[1], b, x_column(d, k)),
                    o->steps ? x.steps : kit_wrapped(s->x, x.value),
                    o->steps ? 0.0 : kit_slack(d, o->tolerance, x.terms, x.size));
  }
}

/* Places beyond the last column are zero. */
static void judge_dw(operands *o, int64_t n, int64_t j) {
  const kit_data *d = o->d;
  const kit_shape *s = &d->shape;
  const double got = d->out >= 0 ? kit_get(&d->a[2], n, j) : d->after[n * d->length + j];
  int64_t k;
  if (!kit_place(d, n, j, &k)) {
    kit_check_value(d, s->w, o->special, n, j, got, 0.0, 0.0);
    return;
  }
  for (int64_t b = 0; b < s->B; b++) {
    o->left[b] = o->dy[b * s->N + n];
    o->right[b] = o->x[b * d->kept + k];
  }
  const sum w = sum_of(o, s->B);
  double slack = kit_slack(d, o->tolerance, w.terms, w.size) + 2 * o->unit * fabs(w.value), want = w.value;
  if (d->out < 0) {
    const double alpha = kit_get(&d->a[2], 0, 0);
    slack = fabs(alpha) * slack + 2 * o->unit * fabs(alpha * want);
    want = o->w[n * d->kept + k] + alpha * want;
    slack += 2 * o->unit * (fabs(want) + slack);
  }
  if (o->steps) {
    want = d->out >= 0 ? w.steps : kit_updated(d, o->w[n * d->kept + k], w.steps);
    slack = 0.0;
  }
  if (d->out >= 0) want = kit_wrapped(s->w, want);
  kit_check_value(d, s->w, o->special, n, j, got, want, slack);
}

static uint64_t bits_at(const kit_tensor *m, int64_t row, int64_t col) {
  const uint64_t size = BS_DTYPE_BYTES(m->t.dtype);
  uint64_t bits = 0;
  memcpy(&bits, m->block + m->lead + (uint64_t)(row * m->t.strides[0] + col * m->t.strides[1]) * size, size);
  return bits;
}

/* Bits are moved: -0 and a NaN's payload too. */
static void judge_expand(const kit_data *d, int64_t n) {
  for (int64_t k = 0; k < d->shape.K; k++) {
    const uint64_t got = bits_at(&d->a[1], n, k);
    uint64_t want = 0;
    for (int64_t j = k / 4 * 2, at; j < k / 4 * 2 + 2; j++)
      if (kit_place(d, n, j, &at) && at == k) want = bits_at(&d->a[0], n, j);
    kit_assert(got == want, "%s: output [%lld,%lld] has the bits %llx, the mask puts %llx there",
               kit_data_text(d), (long long)n, (long long)k, (unsigned long long)got,
               (unsigned long long)want);
  }
}

static void operands_make(operands *o, const kit_tensor *x, const kit_tensor *dy) {
  const kit_data *d = o->d;
  const int64_t B = d->shape.B, N = d->shape.N, most = B > N ? B : N;
  o->x = take(B * d->kept, sizeof *o->x);
  o->w = take(N * d->kept, sizeof *o->w);
  o->dy = take(B * N, sizeof *o->dy);
  o->left = take(most + d->kept, sizeof *o->left);
  o->right = take(most + d->kept, sizeof *o->right);
  o->at = take(most + d->kept, sizeof *o->at);
  for (int64_t b = 0; x != NULL && b < B; b++)
    for (int64_t k = 0; k < d->kept; k++) o->x[b * d->kept + k] = kit_get(x, b, x_column(d, k));
  for (int64_t n = 0; d->w.block != NULL && n < N; n++)
    for (int64_t k = 0; k < d->kept; k++) o->w[n * d->kept + k] = kit_get(&d->w, n, kit_column(d, k));
  for (int64_t i = 0; dy != NULL && i < B * N; i++) o->dy[i] = kit_get(dy, i / N, i % N);
}

static void operands_free(operands *o) {
  free(o->x);
  free(o->w);
  free(o->dy);
  free(o->left);
  free(o->right);
  free(o->at);
}

void kit_judge24(const kit_data *d, uint32_t tolerance, int special) {
  const kit_shape *s = &d->shape;
  const int forward = kit_op_is(d->op, "matmul"), dx = kit_op_is(d->op, "matmul_dx");
  operands o = {.d = d, .tolerance = tolerance, .special = special};
  o.wide = kit_wide(d);
  o.steps = kit_in_steps(d, tolerance, special);
  o.unit = unit(d, tolerance);
  if (strcmp(d->op, "expand24") == 0) {
    for (int64_t b = 0; b < s->B; b++) judge_expand(d, b);
    return;
  }
  operands_make(&o, dx ? NULL : &d->a[0], forward ? NULL : &d->a[dx ? 0 : 1]);
  for (int64_t k = 0; dx && k < d->kept; k++) judge_dx(&o, k);
  for (int64_t n = 0; !dx && n < s->N; n++) {
    if (forward) judge_output(&o, n);
    for (int64_t j = 0; !forward && j < d->length; j++) judge_dw(&o, n, j);
  }
  operands_free(&o);
}
