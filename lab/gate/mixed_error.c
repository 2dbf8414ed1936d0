/* SPDX-License-Identifier: MIT
 * mixed_error.c - see mixed.h: the error of a layer in two precisions, predicted from X and W before the run,
 * and measured after it.
 *
 * With the errors of rounding as independent of what they meet, the energy of Y's error is
 *   sum_k  dX2[k] W2[k] + X2[k] dW2[k] + dX2[k] dW2[k]      over the low columns k,
 * where X2, W2 are the squared norms of the columns and dX2, dW2 those of what rounding changes in them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "lab/case/arms.h"
#include "lab/error.h"
#include "lab/gate/half.h"
#include "lab/gate/judge.h"
#include "lab/gate/mixed.h"

#define SAMPLE (INT64_C(1) << 22) /* weights looked at, about */
#define ROUNDED 0.425             /* in units of u: one rounding of values of all sizes (docs/gates.md) */

/* norm2[k], error2[k] over `rows` rows of source, spread evenly: a scale of all rows is that of those. */
static int32_t weigh(bs_mixed *m, int part, const bs_source *source, int64_t rows, double *norm2,
                     double *error2, bs_error *err) {
  const int64_t K = m->K, N = source->rows;
  double *row = malloc(((size_t)K + m->groups) * sizeof *row);
  int32_t rc = row ? bs_mixed_share(m, part, source, rows, err) : bs_no_memory(err, "the norms of columns");
  for (int64_t i = 0; rc == BS_OK && i < rows; ++i) {
    const int64_t n = bs_mixed_sampled(i, rows, N);
    rc = source->read(source->ctx, n, 1, NULL, BS_F64, row, K, err);
    for (int64_t k = 0; rc == BS_OK && k < K; ++k) norm2[k] += row[k] * row[k];
    if (rc == BS_OK) bs_mixed_round(m, bs_mixed_shared_of(m, part, n, N), row, row + K, error2);
  }
  free(row);
  return rc;
}

static int32_t bias_energy(const bs_case *c, double *out, bs_error *err) {
  *out = 0.0;
  if (!c->spec.has_bias || !c->bias) return BS_OK;
  double *bias = malloc((size_t)c->spec.N * sizeof *bias);
  int32_t rc = bias ? c->bias->read(c->bias->ctx, 0, 1, NULL, BS_F64, bias, c->spec.N, err)
                    : bs_no_memory(err, "the norms of columns");
  for (int64_t n = 0; rc == BS_OK && n < c->spec.N; ++n) *out += bias[n] * bias[n] * (double)c->spec.B;
  free(bias);
  return rc;
}

/* Energy of the round-off of sums of n products and of an output, relative to that of the sums. Partial sums
 * in y's dtype are rounded one by one, and so are their sums. */
static double round_off(const bs_case *c, const bs_proposal *p, int64_t n) {
  const double P = c->world_size, partial = c->spec.y_placement == BS_PARTIAL && p->split == BS_SPLIT_K;
  const double roundings = 1.0 + partial * (P * (P + 1.0) / 2.0 - 1.0) / P;
  const double u = c->spec.y_dtype == BS_F32 ? 0.0 : bs_dtype_unit_roundoff(c->spec.y_dtype);
  const double sums = sqrt((double)(n + 6) / 6.0) * 0x1p-24; /* and the scales of them */
  return roundings * ROUNDED * u * ROUNDED * u + sums * sums + p->wire_error * p->wire_error;
}

typedef struct energies {
  double x, w, both; /* of the errors */
  double signal[BS_MIXED_PARTS];
} energies;

static void add_up(const bs_mixed *m, const double *column, double scale, energies *out) {
  const int64_t K = m->K;
  const double *x2 = column, *dx2 = column + K, *w2 = column + 2 * K, *dw2 = column + 3 * K;
  for (int64_t k = 0; k < K; ++k) {
    out->signal[m->is_high[k] ? BS_MIXED_HIGH : BS_MIXED_LOW] += x2[k] * w2[k] * scale;
    if (m->is_high[k]) continue;
    out->x += dx2[k] * w2[k] * scale;
    out->w += x2[k] * dw2[k] * scale;
    out->both += dx2[k] * dw2[k] * scale;
  }
  out->signal[BS_MIXED_WHOLE] = out->signal[BS_MIXED_HIGH] + out->signal[BS_MIXED_LOW];
}

static void settle(const bs_case *c, const bs_mixed *m, const bs_proposal *p, const energies *e,
                   bs_mixed_error *out) {
  const double all = e->signal[BS_MIXED_WHOLE] > 0.0 ? e->signal[BS_MIXED_WHOLE] : 1.0;
  const int64_t columns[BS_MIXED_PARTS] = {m->high, m->K - m->high, m->K};
  out->high = m->high;
  out->low_name = bs_mixed_low_name(m);
  out->low = m->K - m->high;
  out->x_rounding = sqrt(e->x / all);
  out->w_rounding = sqrt(e->w / all);
  out->rounding = sqrt((e->x + e->w + e->both) / all);
  for (int i = 0; i < BS_MIXED_PARTS; ++i) {
    const double rounding = i == BS_MIXED_HIGH ? 0.0 : e->x + e->w + e->both;
    out->signal[i] = e->signal[i] / all;
    out->expected[i] = sqrt((rounding + round_off(c, p, columns[i]) * e->signal[i]) / all);
  }
  snprintf(
      out->text, sizeof out->text,
      "in two precisions: a relative error of %.4g in Y is expected, %s %.4g (X %.4g, W %.4g), high %.2g",
      out->expected[BS_MIXED_WHOLE], out->low_name, out->expected[BS_MIXED_LOW], out->x_rounding,
      out->w_rounding, out->expected[BS_MIXED_HIGH]);
}

int32_t bs_mixed_expect(const bs_case *c, bs_mixed_error *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  if (bs_mixed_of(&c->spec) < 0) return BS_OK;
  bs_proposal p;
  bs_mixed m = {0};
  energies e = {0};
  double bias = 0.0;
  int32_t rc = bs_case_propose(c, 0, &p, err);
  if (rc == BS_OK) rc = bs_mixed_open(c, p.split, &m, err);
  if (rc != BS_OK) return rc;
  const int64_t fit = SAMPLE / (m.K > 0 ? m.K : 1) + 64;
  out->asked = 1;
  out->rows = fit < c->spec.N ? fit : c->spec.N;
  double *column = calloc(4 * (size_t)m.K + 1, sizeof *column);
  if (!column) rc = bs_no_memory(err, "the norms of columns");
  if (rc == BS_OK) rc = weigh(&m, BS_MIXED_X, c->x, c->spec.B, column, column + m.K, err);
  if (rc == BS_OK) rc = weigh(&m, BS_MIXED_W, c->w, out->rows, column + 2 * m.K, column + 3 * m.K, err);
  if (rc == BS_OK) rc = bias_energy(c, &bias, err);
  if (rc == BS_OK) {
    add_up(&m, column, (double)c->spec.N / (double)out->rows, &e);
    e.signal[BS_MIXED_WHOLE] += bias;
    settle(c, &m, &p, &e, out);
  }
  free(column);
  bs_mixed_close(&m);
  return rc;
}

int32_t bs_errors_expected(bs_context *context, const bs_experiment *e, double *out_half, bs_mixed_error *out,
                           bs_error *err) {
  bs_subject subject;
  bs_arm_case arms[BS_ARMS_MAX];
  int32_t rc = bs_subject_open(context, e, &subject, err);
  if (rc != BS_OK) return rc;
  (void)bs_arms_of(context, e, &subject, arms);
  rc = bs_half_figure(&arms[0].c, out_half, err);
  if (rc == BS_OK) rc = bs_mixed_expect(&arms[0].c, out, err);
  bs_subject_close(&subject);
  return rc;
}

/* ---- measured ----------------------------------------------------------------------------------- */

/* The distance of the error from its prediction, as a share of the limit. Upwards it uses the whole
 * prediction. Downwards it uses only the rounding to 8 bits: blocked sums have less round-off than the random
 * walk that predicts it. T1 has the upward limit for that. */
static double off(const bs_mixed_error *e, double outputs) {
  const double chance = 1.0 / sqrt(outputs > 1.0 ? outputs : 1.0);
  const double limit = e->rounding > 0.0 ? BS_MIXED_LIMIT + BS_MIXED_CHANCE * chance : 0.3 + BS_T1_C * chance;
  const double above = e->measured / e->expected[BS_MIXED_WHOLE] - 1.0;
  const double below = e->rounding > 0.0 ? 1.0 - e->measured / e->rounding : 0.0;
  return (below > above ? below : above) / limit;
}

int32_t bs_mixed_gate(const bs_case *c, const bs_case_result *result, bs_mixed_error *e, int64_t max_features,
                      bs_gate *gate, bs_error *err) {
  double outputs = 0.0;
  *gate = (bs_gate){.name = "MIXED", .rank = -1, .state = BS_GATE_SKIPPED};
  snprintf(gate->text, sizeof gate->text, "no error is expected behind an activation");
  e->measured = NAN;
  if (c->spec.activation != BS_ACT_NONE || !bs_case_judged(c)) return BS_OK;
  const int32_t rc = bs_half_measure(c, result, max_features, &e->measured, &outputs, err);
  if (rc != BS_OK) return rc;
  bs_gate_set(gate, "MIXED", -1, off(e, outputs), 1.0,
              "relative error %.4g of the full product, %.4g expected", e->measured,
              e->expected[BS_MIXED_WHOLE]);
  return BS_OK;
}
