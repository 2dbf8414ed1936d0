/* SPDX-License-Identifier: MIT
 * quantize.c - quantize_groups and dequantize_sum: values of int8 or fp8 with an f32 scale for each group of
 * columns, of a row or of all rows.
 *   scale = max |in| / L over the group, L = 127, 448 (f8e4m3) or 57344 (f8e5m2), the dtype's largest value
 *   q = in / scale, limited to L, to the nearest value (ties to even)
 *   out = sum over terms, in their order, of q scale, in f32, rounded to out's dtype
 * A group with a NaN or an infinity has the scale NaN, so that all of it is NaN after dequantizing. Any
 * strides; rows, or groups that all rows share, are divided over the team. */
#include <math.h>

#include "../ref.h"

enum { PIECE = 256 };
/* attrs[0]: columns of a group. attrs[1] of quantize_groups: 1 when all rows share the scale of a group; of
 * dequantize_sum: terms. Arguments: in, q, scales and terms, scales, out. */
enum { IN, BESIDE, LAST };

/* The largest value of a dtype. */
static float largest_of(uint32_t dtype) {
  return dtype == BS_F8E4M3 ? 448.0f : dtype == BS_F8E5M2 ? 57344.0f : 127.0f;
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  if (query->nargs != 3 || !ref_arg_ok(query, 0, 2) || !ref_arg_ok(query, 1, 2) || !ref_arg_ok(query, 2, 2))
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs three matrices of known dtypes");
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare_quantize(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                                void **out_plan, bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_quantize_groups, state, exec, query, sizeof(ref_plan), out_plan, err);
}

static int32_t prepare_dequantize(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                                  void **out_plan, bs_error *err) {
  (void)packed;
  return ref_plan_make(&ref_dequantize_sum, state, exec, query, sizeof(ref_plan), out_plan, err);
}

/* Columns of a group. */
static void group_columns(const ref_job *job, int64_t group, int64_t *out_begin, int64_t *out_end) {
  *out_begin = group * job->plan->attrs[0];
  *out_end =
      job->v[IN].cols - *out_begin < job->plan->attrs[0] ? job->v[IN].cols : *out_begin + job->plan->attrs[0];
}

/* The larger of *most and the magnitudes of a group of one row. */
static int32_t measure(const ref_job *job, int64_t row, int64_t group, float *most) {
  int64_t begin, end;
  float in[PIECE];
  int32_t rc = BS_OK;
  group_columns(job, group, &begin, &end);
  for (int64_t c = begin; rc == BS_OK && c < end; c += PIECE) {
    const int64_t n = end - c < PIECE ? end - c : PIECE;
    rc = ref_load(job->plan->host, &job->v[IN], row, NULL, c, n, BS_F32, in);
    for (int64_t i = 0; rc == BS_OK && i < n; i++)
      if (!(fabsf(in[i]) <= *most) && !isnan(*most)) *most = fabsf(in[i]); /* NaN stays */
  }
  return rc;
}

/* A group of one row by what was measured. */
static int32_t narrow(const ref_job *job, int64_t row, int64_t group, float most) {
  const bs_host *host = job->plan->host;
  const float largest = largest_of(job->v[BESIDE].dtype), scale = isfinite(most) ? most / largest : NAN;
  int64_t begin, end;
  float v[PIECE];
  int32_t rc = ref_store(host, &job->v[LAST], row, group, 1, BS_F32, &scale);
  group_columns(job, group, &begin, &end);
  for (int64_t c = begin; rc == BS_OK && c < end; c += PIECE) {
    const int64_t n = end - c < PIECE ? end - c : PIECE;
    rc = ref_load(host, &job->v[IN], row, NULL, c, n, BS_F32, v);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      const float of = scale > 0.0f ? v[i] / scale : 0.0f; /* of a NaN scale nothing */
      v[i] = of > largest ? largest : of < -largest ? -largest : of;
    }
    if (rc == BS_OK)
      rc = ref_store(host, &job->v[BESIDE], row, c, n, BS_F32, v); /* to the nearest, ties to even */
  }
  return rc;
}

static int32_t quantize_row(const ref_job *job, int64_t row) {
  int32_t rc = BS_OK;
  for (int64_t g = 0; rc == BS_OK && g < job->v[LAST].cols; g++) {
    float most = 0.0f;
    rc = measure(job, row, g, &most);
    if (rc == BS_OK) rc = narrow(job, row, g, most);
  }
  return rc;
}

/* One group of all rows. */
static int32_t quantize_together(const ref_job *job, int64_t group) {
  float most = 0.0f;
  int32_t rc = BS_OK;
  for (int64_t r = 0; rc == BS_OK && r < job->v[IN].rows; r++) rc = measure(job, r, group, &most);
  for (int64_t r = 0; rc == BS_OK && r < job->v[IN].rows; r++) rc = narrow(job, r, group, most);
  return rc;
}

static int32_t dequantize_piece(const ref_job *job, int64_t row, int64_t group, int64_t c, int64_t n) {
  const bs_host *host = job->plan->host;
  const int64_t groups = job->v[BESIDE].cols / job->plan->attrs[1];
  float sum[PIECE], q[PIECE], scale;
  int32_t rc = BS_OK;
  for (int64_t t = 0; rc == BS_OK && t < job->plan->attrs[1]; t++) {
    rc = ref_load(host, &job->v[IN], row, NULL, t * job->v[LAST].cols + c, n, BS_F32, q);
    if (rc == BS_OK) rc = ref_load(host, &job->v[BESIDE], row, NULL, t * groups + group, 1, BS_F32, &scale);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      const float term = q[i] * scale;
      sum[i] = t == 0 ? term : sum[i] + term;
    }
  }
  return rc == BS_OK ? ref_store(host, &job->v[LAST], row, c, n, BS_F32, sum) : rc;
}

static int32_t dequantize_row(const ref_job *job, int64_t row) {
  const int64_t group = job->plan->attrs[0];
  int32_t rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < job->v[LAST].cols;) {
    const int64_t left = (c / group + 1) * group - c, rest = job->v[LAST].cols - c;
    int64_t n = left < rest ? left : rest;
    if (n > PIECE) n = PIECE;
    rc = dequantize_piece(job, row, c / group, c, n);
    c += n;
  }
  return rc;
}

static void quantize_share(void *arg, uint32_t member, uint32_t width) {
  ref_job *job = arg;
  if (job->plan->attrs[1])
    ref_job_items(job, job->v[LAST].cols, member, width, quantize_together);
  else
    ref_job_items(job, job->v[IN].rows, member, width, quantize_row);
}
static void dequantize_share(void *arg, uint32_t member, uint32_t width) {
  ref_job *job = arg;
  ref_job_items(job, job->v[IN].rows, member, width, dequantize_row);
}

static const char unconverted[] = "values or scales could not be converted";

static int32_t run_quantize(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                            bs_error *err) {
  (void)stream;
  return ref_job_run(plan, args, nargs, quantize_share, "BS-REF-QUANTIZE", unconverted, err);
}

static int32_t run_dequantize(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                              bs_error *err) {
  (void)stream;
  return ref_job_run(plan, args, nargs, dequantize_share, "BS-REF-QUANTIZE", unconverted, err);
}

const bs_src_loc ref_quantize_groups_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_quantize_groups = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "quantize_groups",
    .backend = "ref",
    .name = "portable",
    .summary = "f32 to int8 or fp8 with a scale a group",
    .supports = supports,
    .prepare = prepare_quantize,
    .run = run_quantize,
    .plan_free = ref_plan_free,
};

const bs_src_loc ref_dequantize_sum_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_dequantize_sum = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "dequantize_sum",
    .backend = "ref",
    .name = "portable",
    .summary = "sums int8 or fp8 terms with a scale a group",
    .supports = supports,
    .prepare = prepare_dequantize,
    .run = run_dequantize,
    .plan_free = ref_plan_free,
};
