/* SPDX-License-Identifier: MIT
 * op_step.c - queries and oracles of sgd_update, adamw_update and activate_dx. A step writes its weight and
 * the optimiser's state. Both are set again before each run, and compared with the formulas in fp64
 * (lab/gate/step_follow.h). */
#include <math.h>

#include "kit/op.h"
#include "lab/gate/step_judging.h"

static const double sgd_hyper[4] = {0.25, 0.5, 0.125, 0};
/* For beta 0.75 and 0.875; 1 / (1 - 0.75^3) and 1 / (1 - 0.875^3), rounded to f32 where they are set. */
static const double adamw_hyper[8] = {0.125, 0.25, 0.125, 1.0 / 1024, 0.125, 64.0 / 37, 512.0 / 169, 0};

int kit_is_step(const char *op) {
  return strcmp(op, "sgd_update") == 0 || strcmp(op, "adamw_update") == 0;
}

int kit_changes_weight(const char *op) {
  return kit_is_step(op) || kit_op_is(op, "matmul_update");
}

static int is_adamw(const kit_data *d) {
  return strcmp(d->op, "adamw_update") == 0;
}

static uint32_t states_of(const kit_data *d) {
  return is_adamw(d) ? 2 : 1;
}

/* The optimiser's state before a run: not negative, as a mean of squares is. */
static double remembered(int64_t n, int64_t k, uint32_t state) {
  return 0.0625 * (double)((7 * n + 3 * k + 5 * (int64_t)state) % 16);
}

/* Sets the dtypes and attributes that the schema requires, for any draw. */
void kit_step_fit(const char *op, kit_shape *s) {
  if (kit_is_step(op) && s->x != BS_F32 && s->x != BS_F64 && bs_dtype_is_float(s->x)) s->x = s->y = BS_F32;
  if (strcmp(op, "activate_dx") == 0 && s->activation == BS_ACT_NONE) s->activation = BS_ACT_RELU;
}

void kit_step_args(kit_data *d) {
  const kit_shape *s = &d->shape;
  const uint32_t states = states_of(d);
  kit_tensor_make(&d->a[0], s->x, 2, s->N, d->length, s->spread);
  for (uint32_t i = 1; i <= states; i++)
    if (is_adamw(d) || s->seed % 2 == 0) kit_tensor_make(&d->a[i], BS_F32, 2, s->N, d->length, s->spread);
  kit_tensor_make(&d->a[states + 1], BS_F32, 1, 1, is_adamw(d) ? 8 : 4, 0);
  d->nargs = states + 2;
}

void kit_step_reset(kit_data *d) {
  const uint32_t states = states_of(d);
  for (uint32_t i = 1; i <= states; i++)
    for (int64_t n = 0; d->a[i].block != NULL && n < d->shape.N; n++)
      for (int64_t k = 0; k < d->length; k++) kit_set(&d->a[i], n, k, remembered(n, k, i));
  for (int64_t i = 0; i < (is_adamw(d) ? 8 : 4); i++)
    kit_set(&d->a[states + 1], 0, i, (double)(float)(is_adamw(d) ? adamw_hyper[i] : sgd_hyper[i]));
}

static double roundoff(const kit_data *d, uint32_t tolerance) {
  const int wide = tolerance == BS_TOL_ACC_F64 || (tolerance == BS_TOL_EXACT && kit_wide(d));
  return wide ? 0x1p-53 : 0x1p-24;
}

static void check(const kit_data *d, const char *what, uint32_t dtype, int64_t n, int64_t k, double got,
                  double want, double slack) {
  if (!kit_within(dtype, got, want, slack))
    kit_fail("%s: %s [%lld,%lld] is %.9g, the formula gives %.9g, bound %.3g", kit_data_text(d), what,
             (long long)n, (long long)k, got, want, slack);
}

void kit_step_judge(const kit_data *d, uint32_t tolerance, int special) {
  const int adamw = is_adamw(d), has_state = d->a[1].block != NULL;
  const double *h = adamw ? adamw_hyper : sgd_hyper;
  bs_stepper s = {.optimizer = adamw ? BS_OPT_ADAMW : BS_OPT_SGD, .lr = h[0], .u = roundoff(d, tolerance)};
  s.momentum = !adamw && has_state ? h[1] : 0.0;
  s.decay = adamw ? h[4] : h[2];
  s.beta1 = 1.0 - adamw_hyper[1];
  s.beta2 = 1.0 - adamw_hyper[2];
  s.eps = adamw_hyper[3];
  s.c1 = (double)(float)adamw_hyper[5];
  s.c2 = (double)(float)adamw_hyper[6];
  for (int64_t n = 0; !special && n < d->shape.N; n++)
    for (int64_t k = 0; k < d->length; k++) {
      const double got = d->after[n * d->length + k];
      int64_t column = k;
      if (d->groups != NULL && !kit_place(d, n, k, &column)) { /* beyond the last: dW is any number there */
        check(d, "a place without a column", d->shape.w, n, k, got, 0.0, 0.0);
        continue;
      }
      bs_followed f = {.m = has_state ? remembered(n, k, 1) : 0.0, .v = remembered(n, k, 2)};
      const bs_slope slope = {.g = kit_get(&d->a[0], n, k)};
      double bound;
      const double want = bs_follow(&s, &f, kit_get(&d->w, n, column), slope, &bound);
      check(d, "W", d->shape.w, n, k, got, want, bound + 2 * s.u * fabs(want) + 0x1p-149);
      if (has_state)
        check(d, "the first memory", BS_F32, n, k, kit_get(&d->a[1], n, k), f.m, f.m_bound + 0x1p-149);
      if (adamw) check(d, "the second memory", BS_F32, n, k, kit_get(&d->a[2], n, k), f.v, f.v_bound);
    }
}

static double slope_at(uint32_t activation, double z) {
  if (activation == BS_ACT_RELU) return z > 0 ? 1.0 : z <= 0 ? 0.0 : z;
  if (activation == BS_ACT_GELU)
    return 0.5 * erfc(-z * 0.70710678118654752440) + z * 0.39894228040143267794 * exp(-0.5 * z * z);
  const double s = 1.0 / (1.0 + exp(-z));
  return s + z * s * (1.0 - s);
}

/* dZ = dY act'(Z); the two terms of a slope are 1.2 at most together. NaN stays. */
void kit_slope_judge(const kit_data *d, int special) {
  const kit_shape *s = &d->shape;
  const int wide = s->x == BS_F64 && s->w == BS_F64 && s->y == BS_F64;
  const double u = wide ? 0x1p-53 : 0x1p-24;
  for (int64_t b = 0; b < s->B; b++)
    for (int64_t n = 0; n < s->N; n++) {
      const double dy = kit_get(&d->a[0], b, n), want = dy * slope_at(s->activation, kit_get(&d->a[1], b, n));
      const double got = kit_get(&d->a[2], b, n);
      if (special && !isnan(want)) continue;
      check(d, "dZ", s->y, b, n, got, want, 16 * u * (1.2 * fabs(dy) + fabs(want)) + 0x1p-149);
    }
}
