/* SPDX-License-Identifier: MIT
 *
 * method_step.c - the steps of method_gradient.h. SGD with numbers that are powers of two is exact on small
 * integers and compared bit for bit; AdamW divides and is compared within the rounding of f32 and of W.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "kit/method_gradient.h"
#include "tests/marks.h"

static const double LR = 0.5, DECAY = 0.5, MOMENTUM = 0.5, BETA1 = 0.75, BETA2 = 0.875, EPS = 1.0 / 1024;

uint32_t mg_step_flags(uint32_t step) {
  static const uint32_t flags[MG_STEPS_] = {0, BS_LAYER_SGD, BS_LAYER_SGD, BS_LAYER_SGD | BS_LAYER_MOMENTUM,
                                            BS_LAYER_ADAMW};
  return flags[step];
}

/* The value after conversion to the weights' dtype. */
static double stored(uint32_t dtype, double value) {
  unsigned char bytes[8];
  bs_store_f64(dtype, bytes, 0, value);
  return bs_load_f64(dtype, bytes, 0);
}

/* Two steps of one value with the same gradient. The steps of SGD are exact but for the one rounding to the
 * dtype of the weight (a bias is f32, or wider). */
static double expected(uint32_t step, uint32_t dtype, double w, double g, int is_bias) {
  double m = 0, v = 0;
  const double decay = is_bias || step == MG_FUSED ? 0 : DECAY;
  for (int t = 1; t <= 2; t++) {
    if (step == MG_ADAMW) {
      m = BETA1 * m + (1 - BETA1) * g;
      v = BETA2 * v + (1 - BETA2) * g * g;
      w -= LR * (m / (1 - pow(BETA1, t)) / (sqrt(v / (1 - pow(BETA2, t))) + EPS) + decay * w);
    } else {
      const double all = g + decay * w;
      m = step == MG_MOMENTUM ? MOMENTUM * m + all : all;
      w -= LR * m;
      if (!is_bias) w = stored(dtype, w);
    }
  }
  return w;
}

static double slack(uint32_t step, uint32_t dtype, double value) {
  const double u = dtype == BS_BF16 ? 0x1p-8 : dtype == BS_F16 ? 0x1p-11 : 0x1p-24;
  return step == MG_ADAMW ? 3 * u * (fabs(value) + 1) + 0x1p-20 : 0.0;
}

static void expect(const mg_stepping *s, const char *what, int64_t i, int64_t j, double got, double want,
                   double within) {
  if (fabs(got - want) <= within) return;
  ck_abort_msg("%s on %s P=%u B=%lld N=%lld K=%lld %s, rank %u, step %u: %s[%lld,%lld] is %g, not %g",
               s->c->method, s->c->backend, s->c->world, (long long)s->c->spec.B, (long long)s->c->spec.N,
               (long long)s->c->spec.K, bs_dtype_name(s->c->spec.w_dtype), bs_rank_get_api()->rank(s->rank),
               s->c->step, what, (long long)i, (long long)j, got, want);
}

static bs_tensor take(const mg_stepping *s, uint32_t dtype, int64_t rows, int64_t cols) {
  bs_tensor t;
  bs_error err = BS_ERROR_INIT;
  const bs_tensor_desc d = {.struct_size = sizeof d, .dtype = dtype, .rank = 2, .dims = {rows, cols}};
  ck_assert_msg(bs_rank_get_api()->tensor_alloc(s->rank, &d, BS_LIFE_ACTIVATION, &t, &err) == BS_OK, "%s",
                err.message);
  return t;
}

static int32_t check_weights(const mg_stepping *s, bs_error *err) {
  const int64_t K = s->c->spec.K;
  int64_t own;
  int64_t *places = mf_places(s->own, K, &own);
  bs_tensor w = take(s, BS_F64, s->own->row_count, own);
  const int32_t rc = bs_layer_read_weights(s->layer, 0, &w, err);
  for (int64_t n = 0; rc == BS_OK && n < s->own->row_count; n++)
    for (int64_t j = 0; j < own; j++) {
      const int64_t col = places[n * own + j], at = (s->own->row_begin + n) * K + col;
      const double want =
          col >= 0 ? expected(s->c->step, s->c->spec.w_dtype, (double)s->c->w[at], s->want_dw[at], 0)
                   : 0.0; /* of no column */
      const double size = col >= 0 ? 2 * s->dw_size[at] + fabs((double)s->c->w[at]) : 0.0;
      expect(s, "W", n, j, ((const double *)w.data)[n * own + j], want,
             slack(s->c->step, s->c->spec.w_dtype, want) + mg_slack(&s->c->spec, size));
    }
  bs_rank_get_api()->tensor_free(s->rank, &w);
  free(places);
  return rc;
}

/* Forward of zeros gives the bias. It would not show masked columns that had changed, so forward of ones
 * follows: its y is the sum of each row of the new W and the bias. */
static int32_t check_outputs(const mg_stepping *s, double fill, bs_error *err) {
  const bs_layer_spec *spec = &s->c->spec;
  const int64_t rows = s->x->dims[0];
  if (spec->y_placement == BS_PARTIAL || spec->activation != BS_ACT_NONE || rows == 0) return BS_OK;
  bs_tensor x = take(s, spec->x_dtype, rows, s->x->dims[1]), y = take(s, spec->y_dtype, rows, s->y_cols);
  for (int64_t i = 0; i < rows * x.dims[1]; i++) bs_store_f64(spec->x_dtype, x.data, i, fill);
  const int32_t rc = bs_layer_forward(s->layer, &x, &y, NULL, err);
  for (int64_t j = 0; rc == BS_OK && j < s->y_cols; j++) {
    const int64_t n = s->y_begin + j;
    double want = spec->has_bias ? expected(s->c->step, 0, (double)s->c->dy[n], s->want_db[n], 1) : 0.0;
    double within = slack(s->c->step, spec->y_dtype, want);
    for (int64_t k = 0; fill != 0.0 && k < spec->K; k++) {
      const double w = expected(s->c->step, spec->w_dtype, (double)s->c->w[n * spec->K + k],
                                s->want_dw[n * spec->K + k], 0);
      want += w;
      within += slack(s->c->step, spec->w_dtype, w);
    }
    if (fill != 0.0) within += ldexp(fabs(want) + 64, spec->y_dtype == BS_BF16 ? -8 : -11);
    expect(s, fill != 0.0 ? "y of ones" : "bias", rows - 1, j,
           bs_load_f64(spec->y_dtype, y.data, (rows - 1) * s->y_cols + j), want, within);
  }
  bs_rank_get_api()->tensor_free(s->rank, &x);
  bs_rank_get_api()->tensor_free(s->rank, &y);
  return rc;
}

int32_t mg_steps(const mg_stepping *s, bs_error *err) {
  const int adamw = s->c->step == MG_ADAMW, fused = s->c->step == MG_FUSED;
  bs_step step = {.struct_size = sizeof step,
                  .optimizer = adamw ? BS_OPT_ADAMW : BS_OPT_SGD,
                  .lr = LR,
                  .momentum = s->c->step == MG_MOMENTUM ? MOMENTUM : 0.0,
                  .beta1 = BETA1,
                  .beta2 = BETA2,
                  .eps = EPS,
                  .weight_decay = fused ? 0.0 : DECAY,
                  .dw = fused ? NULL : s->dw,
                  .db = s->db,
                  .x = s->x,
                  .dy = s->dy};
  int32_t rc = BS_OK;
  bs_rank_counters_reset(s->rank);
  for (step.t = 1; rc == BS_OK && step.t <= 2; step.t++) rc = bs_layer_step(s->layer, &step, NULL, err);
  ck_assert_uint_eq(bs_rank_counter(s->rank, BS_COUNT_COLLECTIVES), 0);
  if (rc == BS_OK) rc = check_weights(s, err);
  if (rc == BS_OK) rc = check_outputs(s, 0.0, err);
  return rc == BS_OK ? check_outputs(s, 1.0, err) : rc;
}
