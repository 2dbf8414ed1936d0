/* SPDX-License-Identifier: MIT
 * half.c - see half.h. */
#include "lab/gate/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/gate/metrics.h"
#include "lab/gate/reference.h"
#include "lab/phase/arms.h"

#define SAMPLE (INT64_C(1) << 22) /* weights looked at, about */

static const char *option_of(const bs_layer_spec *spec, const char *key) {
  for (uint32_t i = 0; i < spec->n_options; ++i)
    if (strcmp(spec->option_keys[i], key) == 0) return spec->option_values[i];
  return NULL;
}

/* x2[k]: sum over tokens of x^2. */
static int32_t column_energy(const bs_case *c, double *row, double *x2, bs_error *err) {
  int32_t rc = BS_OK;
  for (int64_t b = 0; rc == BS_OK && b < c->spec.B; ++b) {
    rc = c->x->read(c->x->ctx, b, 1, NULL, BS_F64, row, c->spec.K, err);
    for (int64_t k = 0; rc == BS_OK && k < c->spec.K; ++k) x2[k] += row[k] * row[k];
  }
  return rc;
}

static int32_t bias_energy(const bs_case *c, double *out, bs_error *err) {
  *out = 0.0;
  if (!c->spec.has_bias || c->bias == NULL) return BS_OK;
  double *bias = malloc((size_t)c->spec.N * sizeof *bias);
  if (bias == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-HALF-MEMORY", "no memory for the bias");
  const int32_t rc = c->bias->read(c->bias->ctx, 0, 1, NULL, BS_F64, bias, c->spec.N, err);
  for (int64_t n = 0; rc == BS_OK && n < c->spec.N; ++n) *out += bias[n] * bias[n] * (double)c->spec.B;
  free(bias);
  return rc;
}

typedef struct energies {
  double all, left_out;
  int64_t rows;
} energies;

static int32_t sample_rows(const bs_case *c, const bs_kept *kept, const double *x2, double *row,
                           uint8_t *bits, energies *out, bs_error *err) {
  const int64_t N = c->spec.N, K = c->spec.K, groups = (K + 3) / 4, fit = SAMPLE / K + 64;
  const int64_t rows = fit < N ? fit : N;
  int32_t rc = BS_OK;
  for (int64_t i = 0; rc == BS_OK && i < rows; ++i) {
    const int64_t n = rows > 1 ? (int64_t)((double)i * (double)(N - 1) / (double)(rows - 1)) : 0;
    rc = c->w->read(c->w->ctx, n, 1, NULL, BS_F64, row, K, err);
    if (rc == BS_OK) rc = kept->read(kept->ctx, n, 1, 0, groups, bits, groups, err);
    for (int64_t k = 0; rc == BS_OK && k < K; ++k) {
      const double energy = row[k] * row[k] * x2[k];
      out->all += energy;
      if (!(bits[k / 4] >> (k % 4) & 1)) out->left_out += energy;
    }
  }
  out->rows = rows;
  return rc;
}

static int32_t weigh(const bs_case *c, const bs_mask *mask, uint32_t half, energies *out, bs_error *err) {
  const size_t K = (size_t)c->spec.K;
  const bs_kept *kept = NULL;
  double *row = malloc(K * sizeof *row), *x2 = calloc(K, sizeof *x2), bias = 0.0;
  uint8_t *bits = malloc(K / 4 + 1);
  int32_t rc = row && x2 && bits
                   ? bs_kept_make(mask, c->spec.N, c->spec.K, c->w, half, &kept, err)
                   : bs_error_set(err, BS_NO_MEMORY, "BS-HALF-MEMORY", "no memory for a row of W");
  if (rc == BS_OK) rc = column_energy(c, row, x2, err);
  if (rc == BS_OK) rc = sample_rows(c, kept, x2, row, bits, out, err);
  if (rc == BS_OK) rc = bias_energy(c, &bias, err);
  if (rc == BS_OK) out->all += bias * (double)out->rows / (double)c->spec.N;
  if (kept != NULL) bs_kept_free(kept);
  free(row);
  free(x2);
  free(bits);
  return rc;
}

static void say(const bs_case *c, bs_half *out) {
  char from[64];
  if (out->rows == 0)
    snprintf(from, sizeof from, "the method's figure for weights of equal variance");
  else if (out->rows == c->spec.N)
    snprintf(from, sizeof from, "from all rows of W and X");
  else
    snprintf(from, sizeof from, "from %lld rows of W, and X", (long long)out->rows);
  snprintf(out->text, sizeof out->text, "half alone: a relative error of %.4g in Y is expected, %s",
           out->expected, from);
}

int32_t bs_half_expect(const bs_case *c, bs_half *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  bs_proposal p = {.struct_size = sizeof p};
  int32_t rc = bs_method_propose(c->context, c->method, &c->spec, 0, c->world_size, &p, err);
  if (rc != BS_OK || !(p.prune_error > 0.0)) return rc;
  out->alone = 1;
  out->expected = p.prune_error;
  const char *half = option_of(&c->spec, "half");
  bs_mask fixed;
  const bs_mask *mask = c->spec.mask;
  if (mask == NULL) {
    rc = bs_mask_parse("complement_1100_0011", NULL, NULL, &fixed, err);
    mask = &fixed;
  }
  if (rc == BS_OK && half != NULL && (half[0] == '0' || half[0] == '1')) {
    energies e = {0};
    rc = weigh(c, mask, (uint32_t)(half[0] - '0'), &e, err);
    out->rows = e.rows;
    out->expected = e.all > 0.0 ? sqrt(e.left_out / e.all) : 0.0;
  }
  if (rc == BS_OK) say(c, out);
  return rc;
}

int32_t bs_half_expect_of(bs_context *context, const bs_experiment *e, bs_half *out, bs_error *err) {
  bs_subject subject;
  bs_arm_case arms[BS_ARMS_MAX];
  memset(out, 0, sizeof *out);
  int32_t rc = bs_subject_open(context, e, &subject, err);
  if (rc != BS_OK) return rc;
  (void)bs_arms_of(context, e, &subject, arms);
  rc = bs_half_expect(&arms[0].c, out, err);
  bs_subject_close(&subject);
  return rc;
}

int32_t bs_half_measure(const bs_case *c, const bs_case_result *result, int64_t max_features,
                        double *out_error, double *out_outputs, bs_error *err) {
  bs_metrics m = {0};
  bs_reference ref;
  const uint32_t ranks = c->spec.y_placement == BS_SPLIT ? result->world_size : 1;
  const bs_reference_request request = {.x = c->x,
                                        .w = c->w,
                                        .bias = c->spec.has_bias ? c->bias : NULL,
                                        .world_size = 1,
                                        .max_features = max_features};
  const int32_t rc = bs_reference_compute(&request, &ref, err);
  if (rc != BS_OK) return rc;
  for (uint32_t r = 0; r < ranks; ++r) {
    const bs_case_rank *rank = &result->ranks[r];
    for (int64_t f = 0; f < ref.features; ++f) {
      const int64_t n = ref.feature[f] - rank->y_begin;
      if (n < 0 || n >= rank->y_cols) continue;
      for (int64_t b = 0; b < ref.B; ++b)
        bs_metrics_add(&m, ref.y[b * ref.features + f],
                       bs_load_f64(c->spec.y_dtype, rank->y, b * rank->y_cols + n), BS_REL_EPS_HALF);
    }
  }
  *out_outputs = (double)m.count;
  *out_error = bs_metrics_frobenius(&m);
  bs_reference_free(&ref);
  return BS_OK;
}

int32_t bs_half_gate(const bs_case *c, const bs_case_result *result, const bs_half *half,
                     int64_t max_features, double *out_measured, bs_gate *gate, bs_error *err) {
  double outputs = 0.0;
  *out_measured = 0.0;
  *gate = (bs_gate){.name = "HALF", .rank = -1, .state = BS_GATE_SKIPPED};
  snprintf(gate->text, sizeof gate->text, "no error is expected behind an activation");
  if (c->spec.activation != BS_ACT_NONE) return BS_OK;
  const int32_t rc = bs_half_measure(c, result, max_features, out_measured, &outputs, err);
  if (rc != BS_OK) return rc;
  gate->value = half->expected > 0.0 ? fabs(*out_measured / half->expected - 1.0) : *out_measured;
  gate->limit = BS_HALF_LIMIT + 2.0 / sqrt(outputs > 1.0 ? outputs : 1.0);
  gate->state = gate->value <= gate->limit ? BS_GATE_PASS : BS_GATE_FAIL; /* NaN fails */
  snprintf(gate->text, sizeof gate->text,
           "half alone: relative error %.4g of the full product, %.4g expected", *out_measured,
           half->expected);
  return BS_OK;
}
