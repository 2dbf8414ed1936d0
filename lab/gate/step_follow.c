/* SPDX-License-Identifier: MIT
 * step_follow.c - see step_judging.h. Formulas of docs/methods.md; errors to first order, each rounding u of
 * its result. */
#include "lab/gate/step_judging.h"

#include <math.h>

static const double U_STATE = 0x1p-24; /* the optimiser's state is f32 */

/* M^2 / V at most, of M = c1 sum a_i g_i and V = c2 sum b_i g_i^2: sum (c1 a_i)^2 / (c2 b_i). */
static double longest(const bs_train_options *o, int64_t t) {
  if (!(o->beta2 > 0.0)) return t == 1 || o->beta1 == 0.0 ? 1.0 : INFINITY; /* V forgets what M remembers */
  const double a = 1.0 - o->beta1, b = 1.0 - o->beta2, ratio = o->beta1 * o->beta1 / o->beta2;
  const double c1 = 1.0 / (1.0 - pow(o->beta1, (double)t)), c2 = 1.0 / (1.0 - pow(o->beta2, (double)t));
  const double sum = ratio == 1.0 ? (double)t : (1.0 - pow(ratio, (double)t)) / (1.0 - ratio);
  return sqrt(c1 * c1 * a * a / (c2 * b) * sum);
}

/* Rounds through memory: gcc 12 optimises (double)(float) of two adjacent values away. */
static double as_f32(double x) {
  const volatile float f = (float)x;
  return (double)f;
}

bs_stepper bs_stepper_make(const bs_train_options *o, int64_t t, int of_bias, int wide) {
  const double count = (double)t;
  return (bs_stepper){.optimizer = o->optimizer,
                      .lr = as_f32(o->lr),
                      .momentum = as_f32(o->momentum),
                      .beta1 = o->beta1,
                      .beta2 = o->beta2,
                      .eps = as_f32(o->eps),
                      .decay = of_bias ? 0.0 : as_f32(o->weight_decay),
                      .c1 = as_f32(1.0 / (1.0 - pow(o->beta1, count))),
                      .c2 = as_f32(1.0 / (1.0 - pow(o->beta2, count))),
                      .u = wide ? 0x1p-53 : 0x1p-24,
                      .most = o->optimizer == BS_OPT_ADAMW ? longest(o, t) : INFINITY};
}

static double follow_sgd(const bs_stepper *s, bs_followed *f, double w, bs_slope slope, double *bound) {
  const double decayed = s->decay != 0.0 ? s->decay * w : 0.0; /* not 0 Inf */
  double g = slope.g + decayed;
  double e = slope.bound + 2 * s->u * (fabs(slope.g) + fabs(decayed));
  if (s->momentum != 0.0) {
    const double kept = s->momentum * f->m;
    g += kept;
    f->m_bound = s->momentum * f->m_bound + e + 2 * s->u * (fabs(kept) + fabs(g)) + U_STATE * fabs(g);
    f->m = g;
    e = f->m_bound;
  }
  *bound = fabs(s->lr) * (e + 2 * s->u * fabs(g));
  return w - s->lr * g;
}

/* The error from the number 1 - beta, which the op gets in f32, and from its products. */
static double number_bound(const bs_stepper *s, double a, double kept, double added) {
  return (s->u + U_STATE) * a * (kept + added);
}

static double follow_adamw(const bs_stepper *s, bs_followed *f, double w, bs_slope slope, double *bound) {
  const double g = slope.g, a = 1.0 - s->beta1, b = 1.0 - s->beta2;
  const double m = s->beta1 * f->m + a * g, v = s->beta2 * f->v + b * g * g;
  const double size = s->beta1 * fabs(f->m) + a * fabs(g);
  f->m_bound = s->beta1 * f->m_bound + a * slope.bound + (3 * s->u + U_STATE) * size +
               number_bound(s, a, fabs(f->m), fabs(g));
  f->v_bound = s->beta2 * f->v_bound + b * (2 * fabs(g) + slope.bound) * slope.bound +
               (5 * s->u + U_STATE) * v + number_bound(s, b, f->v, g * g) + 0x1p-149;
  f->m = m;
  f->v = v;
  const double mean = s->c1 * m, under = sqrt(s->c2 * v) + s->eps;
  const double low = sqrt(fmax(s->c2 * (v - f->v_bound), 0.0)) + s->eps,
               high = sqrt(s->c2 * (v + f->v_bound)) + s->eps;
  const double decayed = s->decay != 0.0 ? s->decay * w : 0.0; /* not 0 Inf */
  const double change = mean / under + decayed, most = (fabs(mean) + s->c1 * f->m_bound) / low;
  /* If g may be 0, V may be 0 too. Then the length of the step is the limit (twice: M and V are rounded). */
  const double moved = fmin(s->c1 * f->m_bound / low + fabs(mean) * (1 / low - 1 / high) + 6 * s->u * most,
                            fabs(mean) / under + 2 * s->most);
  const double e = moved + 2 * s->u * (fabs(decayed) + fmin(most, 2 * s->most));
  *bound = fabs(s->lr) * (e + 2 * s->u * fabs(change));
  return w - s->lr * change;
}

double bs_follow(const bs_stepper *s, bs_followed *f, double w, bs_slope slope, double *bound) {
  return s->optimizer == BS_OPT_ADAMW ? follow_adamw(s, f, w, slope, bound)
                                      : follow_sgd(s, f, w, slope, bound);
}
