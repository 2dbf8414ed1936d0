/* SPDX-License-Identifier: MIT
 * op_judge24.c - outputs of the ops over 2:4 weights against fp64 sums over the kept weights alone: what is
 * not kept does not count, whatever X or dY hold there. Bounds are those of op_judge.c. */
#include <math.h>

#include "kit/op.h"
#include "lab/activation.h"

/* A sum, and that of the sizes of its terms. steps: as docs/ops.md says it is rounded. */
typedef struct sum {
  double value, size, steps;
  int64_t terms;
  int wide;
} sum;

static void add(sum *s, double a, double b) {
  s->value += a * b;
  s->steps = kit_step(s->wide, s->steps, a, b);
  s->size += fabs(a * b);
  s->terms++;
}

static double unit(const kit_data *d, uint32_t tolerance) {
  return kit_slack(d, tolerance, 1, 1.0) > 0 ? (kit_wide(d)                   ? 0x1p-53
                                                : tolerance == BS_TOL_ACC_LOW ? 0x1p-11
                                                                              : 0x1p-24)
                                             : 0.0;
}

static int64_t x_column(const kit_data *d, int64_t k) {
  return d->shape.x_full ? kit_column(d, k) : k;
}

static void judge_forward(const kit_data *d, uint32_t tolerance, int special, int64_t b, int64_t n) {
  const kit_shape *s = &d->shape;
  const double u = unit(d, tolerance);
  sum y = {.wide = kit_wide(d)};
  for (int64_t j = 0, k; j < d->length; j++)
    if (kit_place(d, n, j, &k))
      add(&y, kit_get(&d->a[0], b, x_column(d, k)), kit_get(&d->w, n, kit_column(d, k)));
  const double steps = y.steps;
  if (s->bias != 0) add(&y, kit_get(&d->a[1], 0, n), 1.0);
  double want = s->activation != BS_ACT_NONE ? bs_activation_value(s->activation, y.value) : y.value;
  double slack = kit_slack(d, tolerance, y.terms, y.size) + 2 * u * fabs(y.value);
  if (!special && s->activation != BS_ACT_NONE)
    slack = slack * bs_activation_slope(s->activation, y.value - slack, y.value + slack) +
            bs_activation_error(s->activation, y.value, u) + 2 * u * fabs(want);
  if (s->residual != 0) want += kit_get(&d->a[2], b, n);
  slack += 2 * u * (fabs(want) + slack);
  if (kit_in_steps(d, tolerance, special)) want = kit_finish_steps(d, b, n, steps, &slack);
  kit_check_value(d, s->y, special, b, n, kit_get(&d->a[3], b, n), kit_wrapped(s->y, want), slack);
}

/* Is column k of row n kept? */
static int keeps(const kit_data *d, int64_t n, int64_t k) {
  return d->groups[n * (d->length / 2) + k / 4] >> k % 4 & 1;
}

static void judge_dx(const kit_data *d, uint32_t tolerance, int special, int64_t b, int64_t k) {
  const kit_shape *s = &d->shape;
  sum x = {.wide = kit_wide(d)};
  for (int64_t n = 0; n < s->N; n++)
    if (keeps(d, n, k)) add(&x, kit_get(&d->a[0], b, n), kit_get(&d->w, n, kit_column(d, k)));
  const int steps = kit_in_steps(d, tolerance, special);
  kit_check_value(d, s->x, special, b, x_column(d, k), kit_get(&d->a[1], b, x_column(d, k)),
                  steps ? x.steps : kit_wrapped(s->x, x.value),
                  steps ? 0.0 : kit_slack(d, tolerance, x.terms, x.size));
}

/* Places beyond the last column are zero. */
static void judge_dw(const kit_data *d, uint32_t tolerance, int special, int64_t n, int64_t j) {
  const kit_shape *s = &d->shape;
  const double u = unit(d, tolerance),
               got = d->out >= 0 ? kit_get(&d->a[2], n, j) : d->after[n * d->length + j];
  sum w = {.wide = kit_wide(d)};
  int64_t k;
  if (!kit_place(d, n, j, &k)) {
    kit_check_value(d, s->w, special, n, j, got, 0.0, 0.0);
    return;
  }
  for (int64_t b = 0; b < s->B; b++) add(&w, kit_get(&d->a[1], b, n), kit_get(&d->a[0], b, x_column(d, k)));
  double slack = kit_slack(d, tolerance, w.terms, w.size) + 2 * u * fabs(w.value), want = w.value;
  if (d->out < 0) {
    const double alpha = kit_get(&d->a[2], 0, 0);
    slack = fabs(alpha) * slack + 2 * u * fabs(alpha * want);
    want = kit_get(&d->w, n, kit_column(d, k)) + alpha * want;
    slack += 2 * u * (fabs(want) + slack);
  }
  if (kit_in_steps(d, tolerance, special)) {
    want = d->out >= 0 ? w.steps : kit_updated(d, kit_get(&d->w, n, kit_column(d, k)), w.steps);
    slack = 0.0;
  }
  if (d->out >= 0) want = kit_wrapped(s->w, want);
  kit_check_value(d, s->w, special, n, j, got, want, slack);
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

void kit_judge24(const kit_data *d, uint32_t tolerance, int special) {
  const kit_shape *s = &d->shape;
  const int forward = kit_op_is(d->op, "matmul"), dx = kit_op_is(d->op, "matmul_dx"),
            expand = strcmp(d->op, "expand24") == 0;
  for (int64_t b = 0; b < s->B && (forward || dx || expand); b++) {
    for (int64_t n = 0; forward && n < s->N; n++) judge_forward(d, tolerance, special, b, n);
    for (int64_t k = 0; dx && k < d->kept; k++) judge_dx(d, tolerance, special, b, k);
    if (expand) judge_expand(d, b);
  }
  for (int64_t n = 0; !forward && !dx && !expand && n < s->N; n++)
    for (int64_t j = 0; j < d->length; j++) judge_dw(d, tolerance, special, n, j);
}
