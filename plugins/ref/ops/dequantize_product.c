/* SPDX-License-Identifier: MIT
 * dequantize_product.c - converts the i32 sums of a product of two int8 matrices, with the terms added to it:
 *   out[b,n] = act(sums[b,n] rows[b] columns[n] + base[b,n] + bias[n])
 * in f32, each step rounded in that order, rounded to out's dtype. base may be out itself if both are f32.
 * Any strides; rows are divided over the team. */
#include "../ref.h"

enum { PIECE = 128 };
enum { SUMS, ROWS, COLUMNS, BIAS, BASE, OUT, ARGS };

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  static const uint32_t ranks[ARGS] = {2, 2, 1, 1, 2, 2};
  if (query->nargs != ARGS)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs sums, two scales, bias, base and output");
  if (!ref_args_fit(query, ARGS, ranks, 1u << BIAS | 1u << BASE, out_answer)) return BS_OK;
  if (query->activation > BS_ACT_GELU_TANH)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", query->activation);
  return ref_answer_native(out_answer, BS_TOL_ACC_F32, 0, "portable C");
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_dequantize_product, state, exec, query, sizeof(ref_plan), out_plan, err);
}

static int32_t piece(const ref_job *job, int64_t row, float scale, int64_t first, int64_t n) {
  const bs_host *host = job->plan->host;
  const int has_base = job->v[BASE].data != NULL, has_bias = job->v[BIAS].data != NULL;
  int32_t sums[PIECE] = {0};
  float columns[PIECE] = {0}, base[PIECE] = {0}, bias[PIECE] = {0}, out[PIECE];
  int32_t rc = ref_load(host, &job->v[SUMS], row, NULL, first, n, BS_I32, sums);
  if (rc == BS_OK) rc = ref_load(host, &job->v[COLUMNS], 0, NULL, first, n, BS_F32, columns);
  if (rc == BS_OK && has_base) rc = ref_load(host, &job->v[BASE], row, NULL, first, n, BS_F32, base);
  if (rc == BS_OK && has_bias) rc = ref_load(host, &job->v[BIAS], 0, NULL, first, n, BS_F32, bias);
  for (int64_t i = 0; rc == BS_OK && i < n; i++) {
    const float by_row = (float)sums[i] * scale;
    float v = by_row * columns[i];
    if (has_base) v += base[i];
    if (has_bias) v += bias[i];
    out[i] = (float)ref_activation(job->plan->activation, (double)v);
  }
  return rc == BS_OK ? ref_store(host, &job->v[OUT], row, first, n, BS_F32, out) : rc;
}

static int32_t one_row(const ref_job *job, int64_t row) {
  const int64_t cols = job->v[OUT].cols;
  float scale = 0.0f;
  int32_t rc = ref_load(job->plan->host, &job->v[ROWS], row, NULL, 0, 1, BS_F32, &scale);
  for (int64_t c = 0; rc == BS_OK && c < cols; c += PIECE)
    rc = piece(job, row, scale, c, cols - c < PIECE ? cols - c : PIECE);
  return rc;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  ref_job *job = arg;
  ref_job_items(job, job->v[OUT].rows, member, width, one_row);
}

static int32_t run(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)stream;
  return ref_job_run(plan, args, nargs, share, "BS-REF-QUANTIZE", "sums or scales could not be converted",
                     err);
}

const bs_src_loc ref_dequantize_product_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_dequantize_product = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "dequantize_product",
    .backend = "ref",
    .name = "portable",
    .summary = "i32 sums of int8 products by the scales of rows and columns",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = ref_plan_free,
};
