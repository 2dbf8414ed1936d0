/* SPDX-License-Identifier: MIT
 * op_scaled.c - queries and oracle of scaled_matmul: fp8 matrices x and w of the dtypes x and w, a scale for
 * each group of columns of a row, sums in fp64 within the bound that the answer promises. */
#include <math.h>

#include "kit/op.h"
#include "lab/activation.h"

enum { X, X_SCALES, W, W_SCALES, BIAS, BASE, OUT, ARGS };

int kit_is_scaled(const char *op) {
  return strcmp(op, "scaled_matmul") == 0;
}

int kit_scaled_weight(const kit_data *d, uint32_t i) {
  return kit_is_scaled(d->op) && (i == W || i == W_SCALES);
}

void kit_scaled_fit(kit_shape *s) {
  static const uint32_t f8[] = {BS_F8E4M3, BS_F8E5M2};
  s->x = f8[s->seed / 9 % 3 == 0];
  s->w = f8[s->seed / 27 % 3 == 0];
  if (!bs_dtype_is_float(s->y)) s->y = BS_F32;
  s->bias = s->bias != 0 ? BS_F32 : 0;
  s->residual = s->residual != 0 ? BS_F32 : 0;
}

static int64_t groups_of(const kit_data *d, int64_t K) {
  const int64_t group = kit_quant_group(d);
  return K / group + (K % group != 0);
}

/* Rows and columns of argument i. */
static void sizes(const kit_data *d, uint32_t i, int64_t B, int64_t N, int64_t K, int64_t out[2]) {
  const int64_t G = groups_of(d, K);
  const int64_t all[ARGS][2] = {{B, K}, {B, G}, {N, K}, {N, G}, {1, N}, {B, N}, {B, N}};
  out[0] = all[i][0];
  out[1] = all[i][1];
}

void kit_scaled_args(kit_data *d) {
  const kit_shape *s = &d->shape;
  const uint32_t dtypes[ARGS] = {s->x, BS_F32, s->w, BS_F32, s->bias, s->residual, s->y};
  d->nargs = ARGS;
  for (uint32_t i = 0; i < ARGS; i++) {
    int64_t size[2];
    sizes(d, i, s->B, s->N, s->K, size);
    if (dtypes[i] != 0) kit_tensor_make(&d->a[i], dtypes[i], i == BIAS ? 1 : 2, size[0], size[1], s->spread);
  }
}

void kit_scaled_huge(kit_data *d, int64_t B, int64_t N) {
  for (uint32_t i = 0; i < ARGS; i++) {
    bs_tensor_desc *desc = &d->a[i].d;
    int64_t size[2];
    if (d->a[i].block == NULL) continue;
    sizes(d, i, B, N, d->shape.K, size);
    desc->dims[0] = desc->rank == 1 ? size[1] : size[0];
    desc->dims[1] = desc->rank == 1 ? 0 : size[1];
  }
}

/* ---- judging -------------------------------------------------------------------------------- */

/* The sum before the activation; and the sum of magnitudes. */
static double sum_of(const kit_data *d, int64_t b, int64_t n, double *out_size) {
  const kit_shape *s = &d->shape;
  const int64_t group = kit_quant_group(d), G = groups_of(d, s->K);
  double v = 0.0, size = 0.0;
  for (int64_t g = 0; g < G; g++) {
    const double scale = kit_get(&d->a[X_SCALES], b, g) * kit_get(&d->a[W_SCALES], n, g);
    const int64_t end = s->K - g * group < group ? s->K : (g + 1) * group;
    double sum = 0.0;
    for (int64_t k = g * group; k < end; k++) {
      const double term = kit_get(&d->a[X], b, k) * kit_get(&d->a[W], n, k);
      sum += term;
      size += fabs(term * scale);
    }
    v += sum * scale;
  }
  if (s->residual != 0) v += kit_get(&d->a[BASE], b, n);
  if (s->bias != 0) v += kit_get(&d->a[BIAS], 0, n);
  if (s->residual != 0) size += fabs(kit_get(&d->a[BASE], b, n));
  if (s->bias != 0) size += fabs(kit_get(&d->a[BIAS], 0, n));
  *out_size = size;
  return v;
}

void kit_scaled_judge(const kit_data *d, uint32_t tolerance, int special) {
  const kit_shape *s = &d->shape;
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t n = 0; n < s->N; n++) {
      double size = 0.0;
      const double v = sum_of(d, b, n, &size), want = bs_activation_value(s->activation, v);
      double slack = kit_slack(d, tolerance, s->K + 6, size);
      if (!special && s->activation != BS_ACT_NONE)
        slack = slack * bs_activation_slope(s->activation, v - slack, v + slack) +
                bs_activation_error(s->activation, v, 0x1p-24) + 2 * 0x1p-24 * fabs(want);
      kit_check_value(d, s->y, special, b, n, kit_get(&d->a[OUT], b, n), want, slack);
    }
}
