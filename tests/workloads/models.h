/* SPDX-License-Identifier: MIT
 * models.h - the model-like workloads computed a second time, in long double with the C library, straight
 * from their definitions (docs/workloads.md). Used by test_models_values.c and
 * test_models_reads.c. */
#ifndef BS_TESTS_WORKLOADS_MODELS_H
#define BS_TESTS_WORKLOADS_MODELS_H
#include <math.h>

#include "core/base/rng.h"
#include "plugins/workloads/models/models.h"
#include "tests/workloads/workload.h"

/* X in f64, freed by the caller. */
static inline double *read_x(const ask *a) {
  opened w;
  workload_must_open(a, &w);
  bs_source s = workload_source(&w, BS_PART_X);
  double *x = workload_read(&s, BS_F64);
  workload_close(&w);
  return x;
}

typedef struct expect_mlp {
  const char *variant;
  int layernorm;
  double scale_in, scale_out, eps;
} expect_mlp;

static inline long double expect_act(const char *name, long double x) {
  if (strcmp(name, "gelu") == 0) return x * (1.0L + erfl(x / sqrtl(2.0L))) / 2.0L;
  if (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0) return x / (1.0L + expl(-x));
  if (strcmp(name, "relu") == 0) return x > 0 ? x : 0;
  return x;
}

static inline long double *expect_normals(uint64_t seed, uint32_t stream, int64_t n) {
  float *z = calloc((size_t)n, sizeof *z);
  long double *out = calloc((size_t)n, sizeof *out);
  ck_assert(z != NULL && out != NULL);
  bs_rng_normal(seed, stream, 0, (uint64_t)n, z);
  for (int64_t i = 0; i < n; i++) out[i] = z[i];
  free(z);
  return out;
}

static inline void expect_norm(const expect_mlp *m, long double *x, int64_t n) {
  long double mean = 0, squares = 0;
  for (int64_t i = 0; i < n; i++) x[i] *= m->scale_in;
  if (!m->layernorm) return;
  for (int64_t i = 0; i < n; i++) mean += x[i] / n;
  for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
  for (int64_t i = 0; i < n; i++) x[i] = (x[i] - mean) / (sqrtl(squares / (n - 1)) + m->eps);
}

/* X [B,K], freed by the caller, as of the others below. */
static inline long double *expect_mlp_x(const expect_mlp *m, uint64_t seed, int64_t B, int64_t K) {
  int glu = strcmp(m->variant, "swiglu") == 0;
  long double *x = expect_normals(seed, BS_STREAM_X, B * K);
  long double *second = expect_normals(seed, MODELS_STREAM_SECOND, B * K);
  for (int64_t b = 0; b < B; b++) {
    expect_norm(m, x + b * K, K);
    expect_norm(m, second + b * K, K);
    for (int64_t i = b * K; i < b * K + K; i++)
      x[i] = m->scale_out * (glu ? expect_act("silu", x[i]) * second[i] : expect_act(m->variant, x[i]));
  }
  free(second);
  return x;
}

/* Of head outputs o[batch][head][token][dim], the columns of token t's row are heads, then dims. */
static inline long double *expect_attention_x(uint64_t seed, int64_t batch, int64_t tokens, int64_t heads,
                                              int64_t dim, double scale) {
  int64_t n = batch * heads * tokens * dim;
  long double *q = expect_normals(seed, MODELS_STREAM_Q, n), *k = expect_normals(seed, MODELS_STREAM_K, n);
  long double *v = expect_normals(seed, MODELS_STREAM_V, n), *x = calloc((size_t)n, sizeof *x);
  long double *p = calloc((size_t)tokens, sizeof *p);
  for (int64_t u = 0; u < batch * heads; u++)
    for (int64_t t = 0; t < tokens; t++) {
      const long double *base = q + (u * tokens + t) * dim;
      long double sum = 0;
      for (int64_t j = 0; j < tokens; j++) {
        long double dot = 0;
        for (int64_t d = 0; d < dim; d++) dot += base[d] * k[(u * tokens + j) * dim + d];
        p[j] = expl(dot * scale);
        sum += p[j];
      }
      for (int64_t d = 0; d < dim; d++) {
        long double o = 0;
        for (int64_t j = 0; j < tokens; j++) o += p[j] / sum * v[(u * tokens + j) * dim + d];
        x[((u / heads) * tokens + t) * heads * dim + (u % heads) * dim + d] = o;
      }
    }
  free(q);
  free(k);
  free(v);
  free(p);
  return x;
}

typedef struct expect_conv {
  int64_t C, H, W, out, kernel, stride, padding;
  const char *activation;
} expect_conv;

static inline int64_t expect_conv_side(const expect_conv *c, int64_t side) {
  return (side + 2 * c->padding - c->kernel) / c->stride + 1;
}

static inline long double *expect_conv_x(const expect_conv *c, uint64_t seed, int64_t B) {
  int64_t oh = expect_conv_side(c, c->H), ow = expect_conv_side(c, c->W), fan = c->C * c->kernel * c->kernel;
  long double *image = expect_normals(seed, BS_STREAM_X, B * c->C * c->H * c->W);
  long double *filter = expect_normals(seed, MODELS_STREAM_FILTER, c->out * fan);
  long double *x = calloc((size_t)(B * c->out * oh * ow), sizeof *x);
  for (int64_t i = 0; i < B * c->out * oh * ow; i++) {
    int64_t ox = i % ow, oy = i / ow % oh, oc = i / ow / oh % c->out, b = i / ow / oh / c->out;
    long double sum = 0;
    for (int64_t j = 0; j < fan; j++) {
      int64_t kx = j % c->kernel, ky = j / c->kernel % c->kernel, ch = j / c->kernel / c->kernel;
      int64_t y = oy * c->stride + ky - c->padding, xx = ox * c->stride + kx - c->padding;
      if (y < 0 || y >= c->H || xx < 0 || xx >= c->W) continue;
      sum += image[((b * c->C + ch) * c->H + y) * c->W + xx] * filter[oc * fan + j] / sqrtl(fan);
    }
    x[i] = expect_act(c->activation, sum);
  }
  free(image);
  free(filter);
  return x;
}
#endif
