/* SPDX-License-Identifier: MIT
 * fit.h - a machine from measured times: straight pieces of time over size, fitted by relative error, judged
 * by sizes that the fit has not seen. Sizes are bytes, times are seconds. Pure functions, any thread. */
#ifndef BS_SIM_FIT_H
#define BS_SIM_FIT_H
#include "core/base/error.h"

enum { SIM_FIT_SEGMENTS = 4, SIM_FIT_POINTS = 512 };

typedef struct sim_fit_point {
  double bytes;   /* >= 0 */
  double seconds; /* > 0 */
} sim_fit_point;

/* From from_bytes on, up to the next segment: alpha_s + bytes * s_per_byte; neither is negative. */
typedef struct sim_fit_segment {
  double from_bytes, alpha_s, s_per_byte;
  uint32_t points;
} sim_fit_segment;

typedef struct sim_fit {
  uint32_t segments;
  sim_fit_segment segment[SIM_FIT_SEGMENTS];
  double least_bytes, most_bytes; /* the domain: the smallest and the largest size that was measured */
} sim_fit;

/* Statistics of e = (fitted - measured) / measured over `cells` points. */
typedef struct sim_fit_error {
  uint32_t cells;
  double mape, geomean; /* mean and geometric mean of |e| */
  double bias;          /* mean of e */
  double worst;         /* the e with the largest |e| */
  double worst_bytes;
} sim_fit_error;

/* Exactly `segments` pieces with two points or more each, cut where the sum of e^2 is least. `points` ascend
 * by bytes. BS_INVALID_ARGUMENT: too few or too many points, or one that is out of its range or order. */
int32_t sim_fit_make(const sim_fit_point *points, uint32_t n, uint32_t segments, sim_fit *out, bs_error *err);
/* Fits the points of even index and judges by the others, with one segment more as long as that lowers the
 * mean |e| of the others; then fits all points with as many segments. out_held_out: the error of the fit of
 * the even ones on the others (cells 0: fewer than four points, nothing was held out). */
int32_t sim_fit_choose(const sim_fit_point *points, uint32_t n, sim_fit *out, sim_fit_error *out_held_out,
                       bs_error *err);
double sim_fit_seconds(const sim_fit *fit, double bytes);
void sim_fit_judge(const sim_fit *fit, const sim_fit_point *points, uint32_t n, sim_fit_error *out);
#endif
