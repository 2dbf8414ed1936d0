/* SPDX-License-Identifier: MIT
 * mlp.c - the workload transformer_mlp: normal values, layer normalisation over the row, an activation. One
 * unit is one row. Opened through plugin.c. */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "models.h"
#include "row.h"

enum mlp_variant { MLP_GELU, MLP_SILU, MLP_RELU, MLP_SWIGLU };

typedef struct mlp {
  models_workload base;
  uint32_t variant; /* enum mlp_variant */
  int layernorm;
  double scale_in, scale_out, eps;
} mlp;

/* One normalised draw of a row. */
static void draw_row(const mlp *m, uint32_t stream, int64_t row, double *out) {
  const int64_t n = m->base.unit_cols;
  float z[BS_WL_BLOCK];
  for (int64_t i = 0; i < n; i += BS_WL_BLOCK) {
    int64_t count = n - i < BS_WL_BLOCK ? n - i : BS_WL_BLOCK;
    models_draw(&m->base, stream, row * n + i, count, z);
    for (int64_t j = 0; j < count; j++) out[i + j] = (double)z[j] * m->scale_in;
  }
  if (m->layernorm) models_normalise(out, n, m->eps);
}

static int32_t build_row(void *ctx, int64_t row, void *out, bs_error *err) {
  static const uint32_t activations[] = {MODELS_GELU, MODELS_SILU, MODELS_RELU};
  const mlp *m = ctx;
  const int64_t n = m->base.unit_cols;
  double *x = models_scratch(&m->base, n, (m->variant == MLP_SWIGLU ? 2 : 1) * sizeof *x, err);
  if (x == NULL) return BS_NO_MEMORY;
  draw_row(m, BS_STREAM_X, row, x);
  if (m->variant == MLP_SWIGLU) {
    draw_row(m, MODELS_STREAM_SECOND, row, x + n);
    models_swiglu(x, x + n, n);
  } else {
    models_activate(activations[m->variant], x, n);
  }
  for (int64_t i = 0; i < n; i++) x[i] *= m->scale_out;
  int32_t rc = models_store(&m->base, out, x, n, err);
  models_scratch_free(&m->base, x);
  return rc;
}

/* A bound of |X|: a normalised value is at most (n-1)/sqrt(n), and beyond some 250 columns the deviation is
 * so close to one that 16 is never reached; no activation here exceeds its argument, swiglu the product of
 * two. */
static double largest(const mlp *m, int64_t n) {
  double x = BS_WL_MAX_NORMAL * fabs(m->scale_in);
  if (m->layernorm) x = fmin(16.0, (double)(n - 1) / sqrt((double)n));
  return fabs(m->scale_out) * (m->variant == MLP_SWIGLU ? x * x : x);
}

static int32_t read_options(const bs_workload_request *r, mlp *m, bs_error *err) {
  static const char *const keys[] = {"mlp_variant", "scale_in", "scale_out",
                                     "layernorm",   "ln_eps",   BS_WL_LAYER_KEYS};
  static const bs_wl_choice variants[] = {{"gelu", MLP_GELU},
                                          {"silu", MLP_SILU},
                                          {"swish", MLP_SILU},
                                          {"relu", MLP_RELU},
                                          {"swiglu", MLP_SWIGLU}};
  int32_t rc = bs_wl_check_keys(r, "transformer_mlp", keys, 5 + BS_WL_LAYER_N_KEYS, err);
  if (rc == BS_OK) rc = bs_wl_choose(r, "mlp_variant", variants, 5, MLP_GELU, &m->variant, err);
  if (rc == BS_OK) rc = bs_wl_f64(r, "scale_in", 1.0, -FLT_MAX, FLT_MAX, &m->scale_in, err);
  if (rc == BS_OK) rc = bs_wl_f64(r, "scale_out", 1.0, -FLT_MAX, FLT_MAX, &m->scale_out, err);
  if (rc == BS_OK) rc = bs_wl_bool(r, "layernorm", 1, &m->layernorm, err);
  if (rc == BS_OK) rc = bs_wl_f64(r, "ln_eps", 1e-5, 0.0, FLT_MAX, &m->eps, err);
  if (rc != BS_OK) return rc;
  if (m->layernorm && r->K == 1) {
    bs_fail(err, BS_CONFIG, "BS-WL-SHAPE", "layernorm over K=%" PRId64 ": one value has no deviation", r->K);
    bs_fail_hint(err, "model.K of 2 or more, or workload.layernorm=false");
    return bs_wl_at(err, BS_CONFIG, "layernorm");
  }
  return bs_wl_check_range(r->dtype, "X", largest(m, r->K), err);
}

static void describe(const mlp *m, char *out_text, size_t size) {
  static const char *const names[] = {"gelu", "silu", "relu", "swiglu"};
  char norm[40] = "";
  if (m->layernorm) snprintf(norm, sizeof norm, " layernorm(%g)", m->eps);
  snprintf(out_text, size, "%s%s in %g out %g", names[m->variant], norm, m->scale_in, m->scale_out);
}

int32_t models_mlp_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  const models_state *s = state;
  bs_wl_layer *layer = NULL;
  mlp options = {.variant = MLP_GELU};
  char x[96];
  int32_t rc = read_options(request, &options, err);
  if (rc == BS_OK) rc = bs_wl_layer_make(s->host, request, "transformer_mlp", sizeof(mlp), &layer, err);
  if (rc != BS_OK) return rc;
  mlp *m = (mlp *)layer;
  options.base = m->base;
  *m = options;
  m->base.state = s;
  m->base.unit_rows = 1;
  m->base.unit_cols = request->K;
  m->base.across = 1;
  describe(m, x, sizeof x);
  rc = bs_wl_layer_rest(layer, request, x, err);
  if (rc == BS_OK) rc = models_start(&m->base, build_row, err);
  if (rc != BS_OK)
    models_close(m);
  else
    *out = m;
  return rc;
}
