/* SPDX-License-Identifier: MIT
 * vision.c - the workload vision_conv: a random image a row, one convolution with random filters, an
 * activation, and the result flattened [out_channels, height, width]. One unit is one image. Opened through
 * plugin.c. */
#include <inttypes.h>
#include <math.h>

#include "models.h"
#include "row.h"

typedef struct vision {
  models_workload base;
  int64_t C, H, W, out_channels, kernel, stride, padding;
  int64_t out_h, out_w;
  uint32_t activation; /* enum models_activation */
  double *filter;      /* [out_channels, C, kernel, kernel], over sqrt(C kernel kernel) */
} vision;

enum { MAX_EXTENT = 1 << 20 };
static const int64_t MAX_COLUMNS = INT64_C(1) << 40;
/* An image and the filters are held as a whole: up to 1 GiB and 2 GiB. */
static const int64_t MAX_VALUES = INT64_C(1) << 28;

/* sums[ox] += filter row (kernel values from `f` on) against the image row. */
static void add_image_row(const vision *v, double *sums, const double *f, const float *image_row) {
  for (int64_t kx = 0; kx < v->kernel; kx++) {
    /* 0 <= ox stride + kx - padding < W */
    int64_t shift = kx - v->padding;
    int64_t from = shift < 0 ? (-shift + v->stride - 1) / v->stride : 0;
    int64_t to = v->W - 1 - shift < 0 ? 0 : (v->W - 1 - shift) / v->stride + 1;
    if (to > v->out_w) to = v->out_w;
    if (from >= to) continue;
    const float *x = image_row + from * v->stride + shift;
    if (v->stride == 1) {
      v->base.state->kernels->add_rows(sums + from, f + kx, x, 0, 1, to - from);
    } else {
      for (int64_t ox = from; ox < to; ox++, x += v->stride) sums[ox] += f[kx] * (double)*x;
    }
  }
}

/* Row oy of output channel oc: terms in the order channel, filter row, filter column. */
static void convolve_row(const vision *v, const float *image, int64_t oc, int64_t oy, double *sums) {
  memset(sums, 0, (size_t)v->out_w * sizeof *sums);
  for (int64_t c = 0; c < v->C; c++)
    for (int64_t ky = 0; ky < v->kernel; ky++) {
      int64_t y = oy * v->stride + ky - v->padding;
      const double *f = v->filter + ((oc * v->C + c) * v->kernel + ky) * v->kernel;
      if (y >= 0 && y < v->H) add_image_row(v, sums, f, image + (c * v->H + y) * v->W);
    }
}

static int32_t build_image(void *ctx, int64_t unit, void *out, bs_error *err) {
  const vision *v = ctx;
  const int64_t values = v->C * v->H * v->W;
  const size_t row_bytes = (size_t)v->out_w * BS_DTYPE_BYTES(v->base.layer.parts[BS_PART_X].dtype);
  int32_t rc = BS_OK;
  double *sums = NULL;
  float *image = models_scratch(&v->base, values, sizeof *image, err);
  if (image != NULL) sums = models_scratch(&v->base, v->out_w, sizeof *sums, err);
  if (sums == NULL) {
    models_scratch_free(&v->base, image);
    return BS_NO_MEMORY;
  }
  models_draw(&v->base, BS_STREAM_X, unit * values, values, image);
  for (int64_t oc = 0; oc < v->out_channels; oc++)
    for (int64_t oy = 0; oy < v->out_h && rc == BS_OK; oy++) {
      convolve_row(v, image, oc, oy, sums);
      models_activate(v->activation, sums, v->out_w);
      rc =
          models_store(&v->base, (char *)out + (size_t)(oc * v->out_h + oy) * row_bytes, sums, v->out_w, err);
    }
  models_scratch_free(&v->base, sums);
  models_scratch_free(&v->base, image);
  return rc;
}

static int32_t make_filter(vision *v, bs_error *err) {
  const int64_t fan_in = v->C * v->kernel * v->kernel, n = v->out_channels * fan_in;
  const double divisor = sqrt((double)fan_in);
  float z[BS_WL_BLOCK];
  v->filter = models_scratch(&v->base, n, sizeof *v->filter, err);
  if (v->filter == NULL) return BS_NO_MEMORY;
  for (int64_t i = 0; i < n; i += BS_WL_BLOCK) {
    int64_t count = n - i < BS_WL_BLOCK ? n - i : BS_WL_BLOCK;
    models_draw(&v->base, MODELS_STREAM_FILTER, i, count, z);
    for (int64_t j = 0; j < count; j++) v->filter[i + j] = (double)z[j] / divisor;
  }
  return BS_OK;
}

/* a * b * c, or -1 beyond MAX_COLUMNS; the factors are not negative. */
static int64_t product(int64_t a, int64_t b, int64_t c) {
  int64_t p;
  if (__builtin_mul_overflow(a, b, &p) || __builtin_mul_overflow(p, c, &p) || p > MAX_COLUMNS) return -1;
  return p;
}

static int32_t check_values(const vision *v, bs_error *err) {
  const int64_t image = product(v->C, v->H, v->W), window = product(v->C, v->kernel, v->kernel);
  const int64_t filters = window < 0 ? -1 : product(window, v->out_channels, 1);
  if (image >= 0 && image <= MAX_VALUES && filters >= 0 && filters <= MAX_VALUES) return BS_OK;
  bs_fail(err, BS_CONFIG, "BS-WL-SHAPE",
          "C=%" PRId64 " H=%" PRId64 " W=%" PRId64 " out_channels=%" PRId64 " kernel_size=%" PRId64
          " make an image or filters of more than 2^28 values",
          v->C, v->H, v->W, v->out_channels, v->kernel);
  return bs_wl_at(err, BS_CONFIG, "C");
}

/* The sizes of the result, which must be K values. */
static int32_t fit(const bs_workload_request *r, vision *v, bs_error *err) {
  const int64_t high = v->H + 2 * v->padding - v->kernel, wide = v->W + 2 * v->padding - v->kernel;
  if (high < 0 || wide < 0) {
    bs_fail(err, BS_CONFIG, "BS-WL-SHAPE",
            "kernel_size=%" PRId64 " is larger than the padded image, %" PRId64 " x %" PRId64, v->kernel,
            v->H + 2 * v->padding, v->W + 2 * v->padding);
    return bs_wl_at(err, BS_CONFIG, "kernel_size");
  }
  v->out_h = high / v->stride + 1;
  v->out_w = wide / v->stride + 1;
  const int64_t columns = product(v->out_channels, v->out_h, v->out_w);
  if (columns < 0) {
    bs_fail(err, BS_CONFIG, "BS-WL-SHAPE",
            "out_channels=%" PRId64 " x %" PRId64 " x %" PRId64 " make more than 2^40 columns, K is %" PRId64,
            v->out_channels, v->out_h, v->out_w, r->K);
    return bs_wl_at(err, BS_CONFIG, "out_channels");
  }
  if (columns != r->K) {
    bs_fail(err, BS_CONFIG, "BS-WL-SHAPE",
            "out_channels=%" PRId64 " x %" PRId64 " x %" PRId64 " make %" PRId64 " columns, K is %" PRId64,
            v->out_channels, v->out_h, v->out_w, columns, r->K);
    bs_fail_hint(err, "model.K=%" PRId64 ", or other out_channels, H, W, stride", columns);
    return bs_wl_at(err, BS_CONFIG, "out_channels");
  }
  return check_values(v, err);
}

static int32_t read_options(const bs_workload_request *r, vision *v, bs_error *err) {
  static const char *const keys[] = {"C",      "H",       "W",          "out_channels",  "kernel_size",
                                     "stride", "padding", "activation", BS_WL_LAYER_KEYS};
  static const bs_wl_choice activations[] = {{"relu", MODELS_RELU},   {"gelu", MODELS_GELU},
                                             {"silu", MODELS_SILU},   {"swish", MODELS_SILU},
                                             {"none", MODELS_LINEAR}, {"linear", MODELS_LINEAR}};
  int32_t rc = bs_wl_check_keys(r, "vision_conv", keys, 8 + BS_WL_LAYER_N_KEYS, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "C", 3, 1, MAX_EXTENT, &v->C, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "H", 32, 1, MAX_EXTENT, &v->H, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "W", 32, 1, MAX_EXTENT, &v->W, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "out_channels", v->C, 1, MAX_EXTENT, &v->out_channels, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "kernel_size", 3, 1, MAX_EXTENT, &v->kernel, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "stride", 1, 1, MAX_EXTENT, &v->stride, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "padding", v->kernel / 2, 0, MAX_EXTENT, &v->padding, err);
  if (rc == BS_OK) rc = bs_wl_choose(r, "activation", activations, 6, MODELS_RELU, &v->activation, err);
  return rc == BS_OK ? fit(r, v, err) : rc;
}

static void vision_text(const vision *v, char *out_text, size_t size) {
  static const char *const names[] = {"linear", "relu", "gelu", "silu"};
  snprintf(out_text, size,
           "conv %" PRId64 "x%" PRId64 "x%" PRId64 " to %" PRId64 "x%" PRId64 "x%" PRId64 ", kernel %" PRId64
           ", %s,",
           v->C, v->H, v->W, v->out_channels, v->out_h, v->out_w, v->kernel, names[v->activation]);
}

int32_t models_vision_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  const models_state *s = state;
  bs_wl_layer *layer = NULL;
  char x[128];
  int32_t rc = bs_wl_layer_make(s->host, request, "vision_conv", sizeof(vision), &layer, err);
  if (rc != BS_OK) return rc;
  vision *v = (vision *)layer;
  v->base.state = s;
  v->base.unit_rows = 1;
  v->base.unit_cols = request->K;
  v->base.across = 1;
  rc = read_options(request, v, err);
  if (rc == BS_OK) rc = make_filter(v, err);
  if (rc == BS_OK) {
    vision_text(v, x, sizeof x);
    rc = bs_wl_layer_rest(layer, request, x, err);
  }
  if (rc == BS_OK) rc = models_start(&v->base, build_image, err);
  if (rc != BS_OK)
    models_vision_close(v);
  else
    *out = v;
  return rc;
}

void models_vision_close(void *workload) {
  vision *v = workload;
  models_scratch_free(&v->base, v->filter);
  models_close(v);
}
