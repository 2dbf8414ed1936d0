/* SPDX-License-Identifier: MIT
 * op_loss.c - loss_gradient as the kit asks and judges it: in fp64, dY within a few roundings of f64 and one
 * to its dtype, the loss within those of its sum. */
#include <math.h>

#include "kit/op.h"

enum { Y, TARGET, DY, LOSS, ARGS };
enum { SUM = 0, SQUARES = 1 }; /* attrs[0] */
static const double u64 = 0x1p-53;

int kit_is_loss(const char *op) {
  return strcmp(op, "loss_gradient") == 0;
}

int64_t kit_loss_kind(const kit_data *d) {
  return d->shape.seed / 5 % 3 == 1 ? SUM : SQUARES;
}

int64_t kit_loss_count(const kit_data *d) {
  return 1 + (int64_t)(d->shape.seed / 30 % 1000);
}

void kit_loss_fit(const char *op, kit_shape *s) {
  if (!kit_is_loss(op)) return;
  if (!bs_dtype_is_float(s->x)) s->x = BS_F32;
  if (!bs_dtype_is_float(s->w)) s->w = BS_F32;
  if (!bs_dtype_is_float(s->y)) s->y = BS_F32;
}

void kit_loss_args(kit_data *d) {
  const kit_shape *s = &d->shape;
  const int aimed = kit_loss_kind(d) == SQUARES && s->seed / 15 % 2 == 1;
  const uint32_t dtypes[ARGS] = {s->x, aimed ? s->w : 0, s->y, BS_F64};
  d->nargs = ARGS;
  for (uint32_t i = 0; i < ARGS; i++)
    if (dtypes[i] != 0) kit_tensor_make(&d->a[i], dtypes[i], 2, s->B, i == LOSS ? 1 : s->N, s->spread);
}

void kit_loss_judge(const kit_data *d, int special) {
  const kit_shape *s = &d->shape;
  const int sum = kit_loss_kind(d) == SUM;
  for (int64_t b = 0; b < s->B; b++) {
    double loss = 0.0, size = 0.0;
    for (int64_t n = 0; n < s->N; n++) {
      const double y = kit_get(&d->a[Y], b, n);
      const double t = d->a[TARGET].block != NULL ? kit_get(&d->a[TARGET], b, n) : 0.0;
      const double term = sum ? y : (y - t) * (y - t);
      const double want = sum ? 1.0 : (y - t) * (2.0 / (double)kit_loss_count(d));
      loss += term;
      size += fabs(term);
      kit_check_value(d, s->y, special, b, n, kit_get(&d->a[DY], b, n), want,
                      4 * u64 * fabs(want) + 0x1p-1074);
    }
    kit_check_value(d, BS_F64, special, b, 0, kit_get(&d->a[LOSS], b, 0), loss,
                    2 * (double)(s->N + 2) * u64 * size + 0x1p-1074);
  }
}
