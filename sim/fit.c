/* SPDX-License-Identifier: MIT
 * fit.c - weighted least squares in pieces (docs/dev/latency-model.md). */
#include "sim/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct line {
  double alpha, beta, cost; /* cost: the sum of e^2 */
} line;

/* Weights 1/t^2 make the squares those of relative errors. A negative share is held at 0. */
static line line_of(const sim_fit_point *p, uint32_t n) {
  double s0 = 0, s1 = 0, s2 = 0, t0 = 0, t1 = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const double w = 1.0 / (p[i].seconds * p[i].seconds), wn = w * p[i].bytes;
    s0 += w;
    s1 += wn;
    s2 += wn * p[i].bytes;
    t0 += w * p[i].seconds;
    t1 += wn * p[i].seconds;
  }
  const double d = s0 * s2 - s1 * s1;
  line l = {t0 / s0, 0, 0};
  if (d > 1e-12 * s0 * s2) l = (line){(t0 * s2 - t1 * s1) / d, (s0 * t1 - s1 * t0) / d, 0};
  if (l.beta < 0) l = (line){t0 / s0, 0, 0};
  if (l.alpha < 0) l = (line){0, t1 / s2, 0};
  for (uint32_t i = 0; i < n; ++i) {
    const double e = (l.alpha + l.beta * p[i].bytes - p[i].seconds) / p[i].seconds;
    l.cost += e * e;
  }
  return l;
}

static int32_t check(const sim_fit_point *p, uint32_t n, uint32_t segments, bs_error *err) {
  if (segments < 1 || segments > SIM_FIT_SEGMENTS || n < 2 * segments || n > SIM_FIT_POINTS)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-FIT-POINTS",
                        "%u points for %u segments: a fit takes two to %d points, two or more a segment", n,
                        segments, SIM_FIT_POINTS);
  for (uint32_t i = 0; i < n; ++i) {
    const int good = p[i].bytes >= 0 && isfinite(p[i].bytes) && p[i].seconds > 0 && isfinite(p[i].seconds);
    if (good && (i == 0 || p[i].bytes > p[i - 1].bytes)) continue;
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-FIT-POINT",
                        "point %u, %g bytes in %g s: sizes ascend, and times are above 0", i, p[i].bytes,
                        p[i].seconds);
  }
  return BS_OK;
}

static void keep(const sim_fit_point *p, uint32_t first, uint32_t end, sim_fit_segment *out) {
  const line l = line_of(p + first, end - first);
  *out = (sim_fit_segment){first == 0 ? 0 : p[first].bytes, l.alpha, l.beta, end - first};
}

/* least[s][i]: of the first i points in s + 1 pieces; cut[s][i]: where the last of them begins. */
int32_t sim_fit_make(const sim_fit_point *points, uint32_t n, uint32_t segments, sim_fit *out,
                     bs_error *err) {
  const int32_t rc = check(points, n, segments, err);
  if (rc != BS_OK) return rc;
  double least[SIM_FIT_SEGMENTS][SIM_FIT_POINTS + 1];
  uint16_t cut[SIM_FIT_SEGMENTS][SIM_FIT_POINTS + 1];
  for (uint32_t i = 0; i <= n; ++i) {
    least[0][i] = i < 2 ? INFINITY : line_of(points, i).cost;
    cut[0][i] = 0;
  }
  for (uint32_t s = 1; s < segments; ++s) {
    for (uint32_t i = 0; i <= n; ++i) {
      least[s][i] = INFINITY;
      cut[s][i] = 0;
      for (uint32_t k = 2 * s; k + 2 <= i; ++k) {
        const double cost = least[s - 1][k] + line_of(points + k, i - k).cost;
        if (cost < least[s][i]) {
          least[s][i] = cost;
          cut[s][i] = (uint16_t)k;
        }
      }
    }
  }
  *out = (sim_fit){.segments = segments, .least_bytes = points[0].bytes, .most_bytes = points[n - 1].bytes};
  for (uint32_t s = segments, end = n; s-- > 0;) {
    const uint32_t first = cut[s][end];
    keep(points, first, end, &out->segment[s]);
    end = first;
  }
  return BS_OK;
}

double sim_fit_seconds(const sim_fit *fit, double bytes) {
  uint32_t s = fit->segments - 1;
  while (s > 0 && bytes < fit->segment[s].from_bytes) --s;
  return fit->segment[s].alpha_s + bytes * fit->segment[s].s_per_byte;
}

void sim_fit_judge(const sim_fit *fit, const sim_fit_point *points, uint32_t n, sim_fit_error *out) {
  double absolute = 0, logs = 0, sum = 0;
  *out = (sim_fit_error){.cells = n};
  for (uint32_t i = 0; i < n; ++i) {
    const double e = (sim_fit_seconds(fit, points[i].bytes) - points[i].seconds) / points[i].seconds;
    absolute += fabs(e);
    logs += log(fmax(fabs(e), 1e-9));
    sum += e;
    if (i > 0 && fabs(e) <= fabs(out->worst)) continue;
    out->worst = e;
    out->worst_bytes = points[i].bytes;
  }
  if (n == 0) return;
  out->mape = absolute / n;
  out->geomean = exp(logs / n);
  out->bias = sum / n;
}

int32_t sim_fit_choose(const sim_fit_point *points, uint32_t n, sim_fit *out, sim_fit_error *out_held_out,
                       bs_error *err) {
  sim_fit_point half[2][SIM_FIT_POINTS / 2 + 1];
  uint32_t segments = 1, count[2] = {0, 0};
  int32_t rc = check(points, n, 1, err);
  *out_held_out = (sim_fit_error){0};
  for (uint32_t i = 0; rc == BS_OK && i < n; ++i) half[i % 2][count[i % 2]++] = points[i];
  for (uint32_t s = 1; rc == BS_OK && n >= 4 && s <= SIM_FIT_SEGMENTS && 2 * s <= count[0]; ++s) {
    sim_fit fit;
    sim_fit_error error;
    rc = sim_fit_make(half[0], count[0], s, &fit, err);
    if (rc != BS_OK) break;
    sim_fit_judge(&fit, half[1], count[1], &error);
    if (s > 1 && error.mape >= out_held_out->mape) break;
    *out_held_out = error;
    segments = s;
  }
  return rc == BS_OK ? sim_fit_make(points, n, segments, out, err) : rc;
}
