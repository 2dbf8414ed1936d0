/* SPDX-License-Identifier: MIT
 * sample.c - programs of map at points, in f64. */
#include <math.h>
#include <string.h>

#include "blockshock/expr_value.h"
#include "core/base/dtype.h"
#include "graph/ir/query.h"
#include "graph/pass/program.h"

double program_const(const gexpr *e, uint32_t i) {
  double value;
  memcpy(&value, &e->consts[i], sizeof value);
  return e->compute == BS_I64 ? (double)(int64_t)e->consts[i] : value;
}

/* Conversions to bool matter. Rounding to a float is smaller than the tolerance of the callers. */
static double converted(double x, uint32_t dtype) {
  if (dtype == BS_BOOL) return x != 0;
  return bs_dtype_is_float(dtype) ? x : trunc(x);
}

static int all_values(const gexpr *e, const double *in, double values[GX_STEP + GX_MAX_STEPS]) {
  for (uint32_t i = 0; i < e->n_in; i++) values[GX_IN + i] = in[i];
  for (uint32_t i = 0; i < e->n_const; i++) values[GX_CONST + i] = program_const(e, i);
  for (uint32_t i = 0; i < e->n_steps; i++) {
    const uint8_t op = e->steps[i].op, a = e->steps[i].a, b = e->steps[i].b, c = e->steps[i].c;
    if (op == BS_EXPR_INDEX) return 0;
    if (op == BS_EXPR_TO)
      values[GX_STEP + i] = converted(values[a], (uint32_t)b << 8 | c);
    else
      values[GX_STEP + i] = bs_expr_value(op, values[a], values[b], values[c]);
  }
  return 1;
}

int program_value(const gexpr *e, const double *in, double out[GX_MAX_OUT]) {
  double values[GX_STEP + GX_MAX_STEPS] = {0};
  if (e->compute == BS_I64 || !all_values(e, in, values)) return 0;
  for (uint32_t i = 0; i < e->n_out; i++) out[i] = values[e->outs[i]];
  return 1;
}

int program_between(const gexpr *e, uint8_t from, uint8_t to, double x, double *out_value) {
  double values[GX_STEP + GX_MAX_STEPS] = {0};
  uint8_t known[GX_STEP + GX_MAX_STEPS] = {0};
  if (e->compute == BS_I64) return 0;
  for (uint32_t i = 0; i < e->n_const; i++) {
    values[GX_CONST + i] = program_const(e, i);
    known[GX_CONST + i] = 1;
  }
  values[from] = x;
  known[from] = 1;
  for (uint32_t i = 0; i < e->n_steps; i++) {
    const uint8_t op = e->steps[i].op, a = e->steps[i].a, b = e->steps[i].b, c = e->steps[i].c;
    const uint32_t arity = gexpr_arity(op);
    if (GX_STEP + i == from || arity == 0) continue;
    if (!known[a] || (arity > 1 && !known[b]) || (arity > 2 && !known[c])) continue;
    known[GX_STEP + i] = 1;
    values[GX_STEP + i] = op == BS_EXPR_TO ? converted(values[a], (uint32_t)b << 8 | c)
                                           : bs_expr_value(op, values[a], values[b], values[c]);
  }
  *out_value = values[to];
  return known[to];
}

/* ---- the same function? ---------------------------------------------------------------------- */

enum { SPECIAL = 31, POINTS = SPECIAL + 5 * GX_MAX_CONST };

/* Numbers at which clamps, selects, repairs and sums show, and those around the program's constants. */
static uint32_t points_of(const gexpr *e, double limit, double out[POINTS]) {
  static const double sizes[] = {1e-40, 1e-20, 1e-8, 1e-4, 0.1, 1, 3, 8, 12.5, 30, 88, 700, 7e4, 1e20, 1e38};
  uint32_t n = 0;
  out[n++] = 0;
  for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (int sign = -1; sign <= 1; sign += 2)
      if (sizes[i] <= limit) out[n++] = sign * sizes[i];
  for (uint32_t i = 0; i < e->n_const; i++) {
    static const double near[] = {1, -1, 0.999, 1.001, 0.5};
    const double c = program_const(e, i);
    for (uint32_t k = 0; k < 5; k++)
      if (fabs(c * near[k]) <= limit) out[n++] = c * near[k];
  }
  return n;
}

/* Within the roundings of f64 and of constants, which a function at its tail makes larger. */
static int agrees(double got, double want, double largest) {
  if (isnan(want)) return isnan(got);
  if (isinf(want)) return want == got;
  return fabs(got - want) <= 2e-5 * fabs(want) + 1e-13 * largest;
}

static double largest_of(const gexpr *e, const double *in) {
  double largest = 0;
  for (uint32_t i = 0; i < e->n_in; i++)
    if (isfinite(in[i])) largest = fmax(largest, fabs(in[i]));
  return largest;
}

static int agree_at(const gexpr *e, program_function want, const void *arg, const double in[GX_MAX_IN]) {
  double out[GX_MAX_OUT] = {0};
  return program_value(e, in, out) && agrees(out[0], want(in, arg), largest_of(e, in));
}

/* Small numbers of a fixed sequence for the inputs that are not looked at. */
static void usual(uint32_t *io_state, double in[GX_MAX_IN]) {
  for (uint32_t i = 0; i < GX_MAX_IN; i++) {
    *io_state = *io_state * 1664525u + 1013904223u;
    in[i] = 6 * ((double)(*io_state >> 8) / 8388608.0 - 1);
  }
}

int program_is(const gexpr *e, program_function want, const void *arg) {
  double points[POINTS], in[GX_MAX_IN];
  const double ends[] = {-0.0, INFINITY, -INFINITY, NAN};
  const uint32_t n = points_of(e, INFINITY, points);
  uint32_t state = 12345;
  if (e->n_out != 1) return 0;
  for (uint32_t i = 0; i < e->n_in; i++)
    for (uint32_t p = 0; p < n + 4u; p++) {
      usual(&state, in);
      in[i] = p < n ? points[p] : ends[p - n];
      if (!agree_at(e, want, arg, in)) return 0;
    }
  return 1;
}

int program_is_between(const gexpr *e, uint8_t from, uint8_t to, double (*want)(double x), double limit) {
  double points[POINTS + 4], got;
  uint32_t n = points_of(e, limit, points);
  points[n++] = -0.0;
  points[n++] = NAN;
  points[n++] = INFINITY;
  points[n++] = -INFINITY;
  for (uint32_t p = 0; p < n; p++) {
    if (!program_between(e, from, to, points[p], &got)) return 0;
    if (!agrees(got, want(points[p]), isfinite(points[p]) ? fabs(points[p]) : 0)) return 0;
  }
  return 1;
}
