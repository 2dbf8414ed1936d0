/* SPDX-License-Identifier: MIT
 * attention.c - the workload attention_like: softmax(q k^T scale) v for every head of every batch element,
 * the heads put side by side in a token's row. One unit is one head of one batch element. Opened through
 * plugin.c. */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "core/base/math.h"
#include "models.h"

typedef struct attention {
  models_workload base; /* unit_rows = tokens, unit_cols = head_dim, across = heads */
  double scale;
} attention;

/* Buffers of one head; q, scores and sums are for one token at a time. */
typedef struct head {
  float *keys;   /* [head_dim, tokens]: transposed */
  float *values; /* [tokens, head_dim] */
  double *q, *scores, *sums;
} head;

static void free_head(const attention *a, head *h) {
  models_scratch_free(&a->base, h->keys);
  models_scratch_free(&a->base, h->values);
  models_scratch_free(&a->base, h->q);
}

static int32_t make_head(const attention *a, head *h, bs_error *err) {
  const int64_t tokens = a->base.unit_rows, dim = a->base.unit_cols;
  memset(h, 0, sizeof *h);
  h->keys = models_scratch(&a->base, tokens * dim, sizeof *h->keys, err);
  if (h->keys != NULL) h->values = models_scratch(&a->base, tokens * dim, sizeof *h->values, err);
  if (h->values != NULL) h->q = models_scratch(&a->base, 2 * dim + tokens, sizeof *h->q, err);
  if (h->q == NULL) {
    free_head(a, h);
    return BS_NO_MEMORY;
  }
  h->sums = h->q + dim;
  h->scores = h->sums + dim;
  return BS_OK;
}

/* Elements of q, k and v are numbered [batch, heads, tokens, head_dim]: unit u's begin at u * tokens *
 * head_dim. */
static void draw_keys(const attention *a, int64_t first, float *keys) {
  const int64_t tokens = a->base.unit_rows, dim = a->base.unit_cols;
  float z[BS_WL_BLOCK];
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t i = 0; i < dim; i += BS_WL_BLOCK) {
      int64_t n = dim - i < BS_WL_BLOCK ? dim - i : BS_WL_BLOCK;
      models_draw(&a->base, MODELS_STREAM_K, first + t * dim + i, n, z);
      for (int64_t j = 0; j < n; j++) keys[(i + j) * tokens + t] = z[j];
    }
}

static void draw_query(const attention *a, int64_t first, double *q) {
  const int64_t dim = a->base.unit_cols;
  float z[BS_WL_BLOCK];
  for (int64_t i = 0; i < dim; i += BS_WL_BLOCK) {
    int64_t n = dim - i < BS_WL_BLOCK ? dim - i : BS_WL_BLOCK;
    models_draw(&a->base, MODELS_STREAM_Q, first + i, n, z);
    for (int64_t j = 0; j < n; j++) q[i + j] = (double)z[j];
  }
}

/* scores = exp(scale * score - their largest), which is 1 where it is reached; returns their sum. */
static double soften(double *scores, int64_t n, double scale) {
  double most = -DBL_MAX, sum = 0.0;
  for (int64_t i = 0; i < n; i++) {
    scores[i] *= scale;
    if (scores[i] > most) most = scores[i];
  }
  for (int64_t i = 0; i < n; i++) {
    scores[i] = bs_exp(scores[i] - most);
    sum += scores[i];
  }
  return sum;
}

static int32_t build_head(void *ctx, int64_t unit, void *out, bs_error *err) {
  const attention *a = ctx;
  const models_kernels *kernels = a->base.state->kernels;
  const int64_t tokens = a->base.unit_rows, dim = a->base.unit_cols, first = unit * tokens * dim;
  const size_t row_bytes = (size_t)dim * BS_DTYPE_BYTES(a->base.layer.parts[BS_PART_X].dtype);
  head h;
  int32_t rc = make_head(a, &h, err);
  if (rc != BS_OK) return rc;
  draw_keys(a, first, h.keys);
  models_draw(&a->base, MODELS_STREAM_V, first, tokens * dim, h.values);
  for (int64_t t = 0; t < tokens && rc == BS_OK; t++) {
    draw_query(a, first + t * dim, h.q);
    memset(h.scores, 0, (size_t)tokens * sizeof *h.scores);
    kernels->add_rows(h.scores, h.q, h.keys, tokens, dim, tokens);
    double sum = soften(h.scores, tokens, a->scale);
    for (int64_t i = 0; i < tokens; i++) h.scores[i] /= sum;
    memset(h.sums, 0, (size_t)dim * sizeof *h.sums);
    kernels->add_rows(h.sums, h.scores, h.values, dim, tokens, dim);
    rc = models_store(&a->base, (char *)out + (size_t)t * row_bytes, h.sums, dim, err);
  }
  free_head(a, &h);
  return rc;
}

static int32_t bad_split(const bs_workload_request *r, int64_t batch, int64_t tokens, int64_t heads,
                         bs_error *err) {
  if (r->B % batch != 0 || tokens != r->B / batch) {
    bs_fail(err, BS_CONFIG, "BS-WL-SHAPE",
            "attn_batch=%" PRId64 " times tokens=%" PRId64 " is not B=%" PRId64, batch, tokens, r->B);
    if (r->B % batch == 0)
      bs_fail_hint(err, "workload.tokens=%" PRId64, r->B / batch);
    else
      bs_fail_hint(err, "an attn_batch that divides model.B");
    return bs_wl_at(err, BS_CONFIG, "tokens");
  }
  if (r->K % heads != 0) {
    bs_fail(err, BS_CONFIG, "BS-WL-SHAPE",
            "K=%" PRId64 " is not a multiple of heads=%" PRId64 " (rest %" PRId64 ")", r->K, heads,
            r->K % heads);
    bs_fail_hint(err, "model.K=%" PRId64 ", or a number of heads that divides it",
                 (r->K / heads + 1) * heads);
    return bs_wl_at(err, BS_CONFIG, "heads");
  }
  return BS_OK;
}

/* Sets unit_rows, unit_cols, across and scale. */
static int32_t read_options(const bs_workload_request *r, attention *a, bs_error *err) {
  static const char *const keys[] = {"attn_batch", "tokens", "heads", "attn_scale", BS_WL_LAYER_KEYS};
  int64_t batch = 1, tokens = r->B, heads = 8;
  int32_t rc = bs_wl_check_keys(r, "attention_like", keys, 4 + BS_WL_LAYER_N_KEYS, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "attn_batch", 1, 1, INT32_MAX, &batch, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "tokens", r->B, 1, INT64_MAX - 1, &tokens, err);
  if (rc == BS_OK) rc = bs_wl_i64(r, "heads", 8, 1, INT32_MAX, &heads, err);
  if (rc == BS_OK) rc = bad_split(r, batch, tokens, heads, err);
  if (rc != BS_OK) return rc;
  a->base.unit_rows = tokens;
  a->base.unit_cols = r->K / heads;
  a->base.across = heads;
  return bs_wl_f64(r, "attn_scale", 1.0 / sqrt((double)a->base.unit_cols), -FLT_MAX, FLT_MAX, &a->scale, err);
}

int32_t models_attention_open(void *state, const bs_workload_request *request, void **out, bs_error *err) {
  const models_state *s = state;
  bs_wl_layer *layer = NULL;
  char x[96];
  int32_t rc = bs_wl_layer_make(s->host, request, "attention_like", sizeof(attention), &layer, err);
  if (rc != BS_OK) return rc;
  attention *a = (attention *)layer;
  a->base.state = s;
  rc = read_options(request, a, err);
  if (rc == BS_OK) {
    snprintf(x, sizeof x,
             "attention %" PRId64 "x%" PRId64 " tokens, %" PRId64 " heads of %" PRId64 ", scale %g",
             request->B / a->base.unit_rows, a->base.unit_rows, a->base.across, a->base.unit_cols, a->scale);
    rc = bs_wl_layer_rest(layer, request, x, err);
  }
  if (rc == BS_OK) rc = models_start(&a->base, build_head, err);
  if (rc != BS_OK)
    models_close(a);
  else
    *out = a;
  return rc;
}
