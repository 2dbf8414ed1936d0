/* SPDX-License-Identifier: MIT
 * metrics.h - error metrics of a test against a reference, accumulated in fp64. max_rel is
 * kept for older records (docs/original.md): it divides by outputs near zero (1e9 for a reference of 0 and an
 * error of 0.001), so no gate uses it. */
#ifndef BS_LAB_GATE_METRICS_H
#define BS_LAB_GATE_METRICS_H
#include <math.h>
#include <stdint.h>

typedef struct bs_metrics {
  uint64_t count;
  double max_abs, sum_abs, max_rel; /* max_rel: |error| / (|reference| + eps) */
  double error2, norm2;
} bs_metrics;

static inline void bs_metrics_add(bs_metrics *m, double want, double got, double eps) {
  const double error = fabs(got - want);
  const double relative = error / (fabs(want) + eps);
  ++m->count;
  m->sum_abs += error;
  m->error2 += error * error;
  m->norm2 += want * want;
  if (error > m->max_abs) m->max_abs = error;
  if (relative > m->max_rel) m->max_rel = relative;
}
static inline double bs_metrics_mean_abs(const bs_metrics *m) {
  return m->count ? m->sum_abs / (double)m->count : 0.0;
}
static inline double bs_metrics_frobenius(const bs_metrics *m) {
  return m->norm2 > 0 ? sqrt(m->error2 / m->norm2) : (m->error2 > 0 ? INFINITY : 0.0);
}
#endif
