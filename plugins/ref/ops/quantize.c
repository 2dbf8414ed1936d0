/* SPDX-License-Identifier: MIT
 * quantize.c - quantize_groups and dequantize_sum: values of int8 or fp8 with an f32 scale for each group of
 * columns, of a row or of all rows.
 *   scale = max |in| / L over the group, L = 127, 448 (f8e4m3) or 57344 (f8e5m2), the largest value there is;
 *   q = in / scale, not beyond L, to the nearest value (ties to even)
 *   out = sum over terms, in their order, of q scale, in f32, rounded to out's dtype
 * A group with a NaN or an infinity has the scale NaN, so that all of it is NaN behind the wire. Any strides;
 * rows, or groups that all rows share, are divided over the team. */
#include <math.h>

#include "../ref.h"

enum { PIECE = 256 };

typedef struct quant_plan {
  const bs_host *host;
  const bs_exec *exec;
  int64_t group, terms;
  int64_t together; /* 1: all rows share the scale of a group */
  float largest;
  float reserved;
} quant_plan;

typedef struct quant_job {
  const quant_plan *plan;
  ref_view a, b, c; /* the three arguments */
  int32_t failed;   /* relaxed atomics */
} quant_job;

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  if (query->nargs != 3 || !ref_arg_ok(query, 0, 2) || !ref_arg_ok(query, 1, 2) || !ref_arg_ok(query, 2, 2))
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs three matrices of known dtypes");
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t make_plan(const bs_op_impl *impl, ref_state *state, const bs_exec *exec,
                         const bs_op_query *query, void **out_plan, bs_error *err) {
  const int32_t rc = ref_require(impl, state, query, err);
  if (rc != BS_OK) return rc;
  quant_plan *plan = state->host->alloc(state->host->ctx, sizeof *plan, 64);
  if (plan == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a plan of %s", impl->op);
  *plan = (quant_plan){state->host, exec, query->attrs[0], query->attrs[1], query->attrs[1], 127.0f, 0.0f};
  if (query->args[1]->dtype == BS_F8E4M3) plan->largest = 448.0f;
  if (query->args[1]->dtype == BS_F8E5M2) plan->largest = 57344.0f;
  *out_plan = plan;
  return BS_OK;
}

static int32_t prepare_quantize(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                                void **out_plan, bs_error *err) {
  (void)packed;
  return make_plan(&ref_quantize_groups, state, exec, query, out_plan, err);
}

static int32_t prepare_dequantize(void *state, const bs_exec *exec, const bs_op_query *query, void *packed,
                                  void **out_plan, bs_error *err) {
  (void)packed;
  return make_plan(&ref_dequantize_sum, state, exec, query, out_plan, err);
}

/* Columns of a group. */
static void group_columns(const quant_job *job, int64_t group, int64_t *out_begin, int64_t *out_end) {
  *out_begin = group * job->plan->group;
  *out_end = job->a.cols - *out_begin < job->plan->group ? job->a.cols : *out_begin + job->plan->group;
}

/* The larger of *most and the magnitudes of a group of one row. */
static int32_t measure(const quant_job *job, int64_t row, int64_t group, float *most) {
  int64_t begin, end;
  float in[PIECE];
  int32_t rc = BS_OK;
  group_columns(job, group, &begin, &end);
  for (int64_t c = begin; rc == BS_OK && c < end; c += PIECE) {
    const int64_t n = end - c < PIECE ? end - c : PIECE;
    rc = ref_load(job->plan->host, &job->a, row, NULL, c, n, BS_F32, in);
    for (int64_t i = 0; rc == BS_OK && i < n; i++)
      if (!(fabsf(in[i]) <= *most) && !isnan(*most)) *most = fabsf(in[i]); /* NaN stays */
  }
  return rc;
}

/* A group of one row by what was measured. */
static int32_t narrow(const quant_job *job, int64_t row, int64_t group, float most) {
  const bs_host *host = job->plan->host;
  const float largest = job->plan->largest, scale = isfinite(most) ? most / largest : NAN;
  int64_t begin, end;
  float v[PIECE];
  int32_t rc = ref_store(host, &job->c, row, group, 1, BS_F32, &scale);
  group_columns(job, group, &begin, &end);
  for (int64_t c = begin; rc == BS_OK && c < end; c += PIECE) {
    const int64_t n = end - c < PIECE ? end - c : PIECE;
    rc = ref_load(host, &job->a, row, NULL, c, n, BS_F32, v);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      const float of = scale > 0.0f ? v[i] / scale : 0.0f; /* of a NaN scale nothing */
      v[i] = of > largest ? largest : of < -largest ? -largest : of;
    }
    if (rc == BS_OK) rc = ref_store(host, &job->b, row, c, n, BS_F32, v); /* to the nearest, ties to even */
  }
  return rc;
}

static int32_t quantize_row(const quant_job *job, int64_t row) {
  int32_t rc = BS_OK;
  for (int64_t g = 0; rc == BS_OK && g < job->c.cols; g++) {
    float most = 0.0f;
    rc = measure(job, row, g, &most);
    if (rc == BS_OK) rc = narrow(job, row, g, most);
  }
  return rc;
}

/* One group of all rows. */
static int32_t quantize_together(const quant_job *job, int64_t group) {
  float most = 0.0f;
  int32_t rc = BS_OK;
  for (int64_t r = 0; rc == BS_OK && r < job->a.rows; r++) rc = measure(job, r, group, &most);
  for (int64_t r = 0; rc == BS_OK && r < job->a.rows; r++) rc = narrow(job, r, group, most);
  return rc;
}

static int32_t dequantize_piece(const quant_job *job, int64_t row, int64_t group, int64_t c, int64_t n) {
  const bs_host *host = job->plan->host;
  const int64_t groups = job->b.cols / job->plan->terms;
  float sum[PIECE], q[PIECE], scale;
  int32_t rc = BS_OK;
  for (int64_t t = 0; rc == BS_OK && t < job->plan->terms; t++) {
    rc = ref_load(host, &job->a, row, NULL, t * job->c.cols + c, n, BS_F32, q);
    if (rc == BS_OK) rc = ref_load(host, &job->b, row, NULL, t * groups + group, 1, BS_F32, &scale);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      const float term = q[i] * scale;
      sum[i] = t == 0 ? term : sum[i] + term;
    }
  }
  return rc == BS_OK ? ref_store(host, &job->c, row, c, n, BS_F32, sum) : rc;
}

static int32_t dequantize_row(const quant_job *job, int64_t row) {
  const int64_t group = job->plan->group;
  int32_t rc = BS_OK;
  for (int64_t c = 0; rc == BS_OK && c < job->c.cols;) {
    const int64_t left = (c / group + 1) * group - c, rest = job->c.cols - c;
    int64_t n = left < rest ? left : rest;
    if (n > PIECE) n = PIECE;
    rc = dequantize_piece(job, row, c / group, c, n);
    c += n;
  }
  return rc;
}

static void share(quant_job *job, int64_t items, uint32_t member, uint32_t width,
                  int32_t (*one)(const quant_job *job, int64_t item)) {
  int64_t begin, end;
  ref_share(items, member, width, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int32_t rc = one(job, i);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

static void quantize_share(void *arg, uint32_t member, uint32_t width) {
  quant_job *job = arg;
  if (job->plan->together)
    share(job, job->c.cols, member, width, quantize_together);
  else
    share(job, job->a.rows, member, width, quantize_row);
}
static void dequantize_share(void *arg, uint32_t member, uint32_t width) {
  quant_job *job = arg;
  share(job, job->a.rows, member, width, dequantize_row);
}

static int32_t run(const quant_plan *plan, bs_tensor *const *args, void (*body)(void *, uint32_t, uint32_t),
                   bs_error *err) {
  quant_job job = {plan, ref_view_of(args[0]), ref_view_of(args[1]), ref_view_of(args[2]), BS_OK};
  int32_t rc = plan->exec->parallel_for(plan->exec->ctx, body, &job);
  if (rc == BS_OK) rc = job.failed;
  return rc == BS_OK ? rc : bs_fail(err, rc, "BS-REF-QUANTIZE", "values or scales could not be converted");
}

static int32_t run_quantize(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                            bs_error *err) {
  (void)nargs;
  (void)stream;
  return run(plan, args, quantize_share, err);
}

static int32_t run_dequantize(void *plan, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                              bs_error *err) {
  (void)nargs;
  (void)stream;
  return run(plan, args, dequantize_share, err);
}

static void plan_free(void *opaque) {
  quant_plan *plan = opaque;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
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
    .plan_free = plan_free,
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
    .plan_free = plan_free,
};
