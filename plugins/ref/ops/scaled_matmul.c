/* SPDX-License-Identifier: MIT
 * scaled_matmul.c - a product of two fp8 matrices with scales:
 *   v[b,n] = sum over groups g of (sum over k in g of x[b,k] w[n,k]) (x_scales[b,g] w_scales[n,g])
 *   out[b,n] = act(v + base[b,n] + bias[n])
 * in f32, upwards in k and then in g, each step rounded in that order, rounded to out's dtype. base may be
 * out itself where both are f32. Any strides; rows are divided over the team, or outputs where rows are
 * fewer. */
#include "../ref.h"

enum { PIECE = 128 };
enum { X, X_SCALES, W, W_SCALES, BIAS, BASE, OUT, ARGS };

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  static const uint32_t ranks[ARGS] = {2, 2, 2, 2, 1, 2, 2};
  if (query->nargs != ARGS)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs two matrices, their scales, bias, base, output");
  if (!ref_args_fit(query, ARGS, ranks, 1u << BIAS | 1u << BASE, out_answer)) return BS_OK;
  if (query->activation > BS_ACT_GELU_TANH)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", query->activation);
  return ref_answer_native(out_answer, BS_TOL_ACC_F32, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_scaled_matmul, state, exec, query, sizeof(ref_plan), out_plan, err);
}

/* The products of columns begin .. end - 1, added one after the other from +0. */
static int32_t sum_group(const ref_job *job, int64_t b, int64_t n, int64_t begin, int64_t end,
                         float *out_sum) {
  const bs_host *host = job->plan->host;
  float x[PIECE], w[PIECE], sum = 0.0f;
  int32_t rc = BS_OK;
  for (int64_t k = begin; rc == BS_OK && k < end; k += PIECE) {
    const int64_t count = end - k < PIECE ? end - k : PIECE;
    rc = ref_load(host, &job->v[X], b, NULL, k, count, BS_F32, x);
    if (rc == BS_OK) rc = ref_load(host, &job->v[W], n, NULL, k, count, BS_F32, w);
    for (int64_t i = 0; rc == BS_OK && i < count; i++) {
      const float product = x[i] * w[i];
      sum += product;
    }
  }
  *out_sum = sum;
  return rc;
}

static int32_t element(const ref_job *job, int64_t b, int64_t n) {
  const bs_host *host = job->plan->host;
  const int64_t K = job->v[X].cols, group = job->plan->attrs[0];
  float v = 0.0f, more = 0.0f;
  int32_t rc = BS_OK;
  for (int64_t g = 0; rc == BS_OK && g < job->v[X_SCALES].cols; g++) {
    const int64_t begin = g * group, end = K - begin < group ? K : begin + group;
    float sum = 0.0f, x_scale = 0.0f, w_scale = 0.0f;
    rc = sum_group(job, b, n, begin, end, &sum);
    if (rc == BS_OK) rc = ref_load(host, &job->v[X_SCALES], b, NULL, g, 1, BS_F32, &x_scale);
    if (rc == BS_OK) rc = ref_load(host, &job->v[W_SCALES], n, NULL, g, 1, BS_F32, &w_scale);
    const float scale = x_scale * w_scale, term = sum * scale;
    v += term;
  }
  for (uint32_t i = BASE; rc == BS_OK && i >= BIAS; i--) { /* base, then bias */
    if (job->v[i].data == NULL) continue;
    rc = ref_load(host, &job->v[i], i == BASE ? b : 0, NULL, n, 1, BS_F32, &more);
    v += more;
  }
  const float out = (float)ref_activation(job->plan->activation, (double)v);
  return rc == BS_OK ? ref_store(host, &job->v[OUT], b, n, 1, BS_F32, &out) : rc;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  ref_job *job = arg;
  const int64_t rows = job->v[OUT].rows, cols = job->v[OUT].cols;
  int64_t b0 = 0, b1 = rows, n0 = 0, n1 = cols;
  if (rows >= (int64_t)width)
    ref_share(rows, member, width, &b0, &b1);
  else
    ref_share(cols, member, width, &n0, &n1);
  for (int64_t b = b0; b < b1; b++)
    for (int64_t n = n0; n < n1; n++) {
      const int32_t rc = element(job, b, n);
      if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
    }
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)stream;
  return ref_job_run(plan, args, nargs, share, "BS-REF-SCALED", "values or scales could not be converted",
                     err);
}

const bs_src_loc ref_scaled_matmul_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_scaled_matmul = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "scaled_matmul",
    .backend = "ref",
    .name = "portable",
    .summary = "a product of fp8 matrices with scales of rows or blocks",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
