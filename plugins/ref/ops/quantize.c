/* SPDX-License-Identifier: MIT
 * quantize.c - quantize_groups and dequantize_sum: int8 values with an f32 scale for each group of columns.
 *   scale = max |in| / 127 over the group, q = in / scale to the nearest integer (ties to even)
 *   out = sum over terms, in their order, of q scale, in f32, rounded to out's dtype
 * A group with a NaN or an infinity has the scale NaN, so that all of it is NaN behind the wire. Any strides;
 * rows are divided over the team. */
#include <math.h>

#include "../ref.h"

enum { PIECE = 256 };

typedef struct quant_plan {
  const bs_host *host;
  const bs_exec *exec;
  int64_t group, terms;
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
  *plan = (quant_plan){state->host, exec, query->attrs[0], query->attrs[1]};
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

static int32_t quantize_group(const quant_job *job, int64_t row, int64_t group) {
  const bs_host *host = job->plan->host;
  const int64_t begin = group * job->plan->group;
  const int64_t end = begin + job->plan->group < job->a.cols ? begin + job->plan->group : job->a.cols;
  float in[PIECE], most = 0.0f;
  int8_t q[PIECE];
  int32_t rc = BS_OK;
  for (int64_t c = begin; rc == BS_OK && c < end; c += PIECE) {
    const int64_t n = end - c < PIECE ? end - c : PIECE;
    rc = ref_load(host, &job->a, row, NULL, c, n, BS_F32, in);
    for (int64_t i = 0; i < n; i++)
      if (!(fabsf(in[i]) <= most) && !isnan(most)) most = fabsf(in[i]); /* NaN stays */
  }
  const float scale = isfinite(most) ? most / 127.0f : NAN;
  if (rc == BS_OK) rc = ref_store(host, &job->c, row, group, 1, BS_F32, &scale);
  for (int64_t c = begin; rc == BS_OK && c < end; c += PIECE) {
    const int64_t n = end - c < PIECE ? end - c : PIECE;
    rc = ref_load(host, &job->a, row, NULL, c, n, BS_F32, in);
    for (int64_t i = 0; i < n; i++) {
      const float v = scale > 0.0f ? rintf(in[i] / scale) : 0.0f; /* of a NaN scale nothing */
      q[i] = (int8_t)(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v);
    }
    if (rc == BS_OK) rc = ref_store(host, &job->b, row, c, n, BS_I8, q);
  }
  return rc;
}

static int32_t quantize_row(const quant_job *job, int64_t row) {
  int32_t rc = BS_OK;
  for (int64_t g = 0; rc == BS_OK && g < job->c.cols; g++) rc = quantize_group(job, row, g);
  return rc;
}

static int32_t dequantize_piece(const quant_job *job, int64_t row, int64_t group, int64_t c, int64_t n) {
  const bs_host *host = job->plan->host;
  const int64_t groups = job->b.cols / job->plan->terms;
  float sum[PIECE], scale;
  int8_t q[PIECE];
  int32_t rc = BS_OK;
  for (int64_t t = 0; rc == BS_OK && t < job->plan->terms; t++) {
    rc = ref_load(host, &job->a, row, NULL, t * job->c.cols + c, n, BS_I8, q);
    if (rc == BS_OK) rc = ref_load(host, &job->b, row, NULL, t * groups + group, 1, BS_F32, &scale);
    for (int64_t i = 0; rc == BS_OK && i < n; i++) {
      const float term = (float)q[i] * scale;
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

static void share(quant_job *job, uint32_t member, uint32_t width,
                  int32_t (*row)(const quant_job *job, int64_t row)) {
  int64_t begin, end;
  ref_share(job->a.rows, member, width, &begin, &end);
  for (int64_t r = begin; r < end; r++) {
    const int32_t rc = row(job, r);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

static void quantize_share(void *arg, uint32_t member, uint32_t width) {
  share(arg, member, width, quantize_row);
}
static void dequantize_share(void *arg, uint32_t member, uint32_t width) {
  share(arg, member, width, dequantize_row);
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

const bs_op_impl ref_quantize_groups = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "quantize_groups",
    .backend = "ref",
    .name = "portable",
    .summary = "f32 to int8 with a scale a group",
    .supports = supports,
    .prepare = prepare_quantize,
    .run = run_quantize,
    .plan_free = plan_free,
};

const bs_op_impl ref_dequantize_sum = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "dequantize_sum",
    .backend = "ref",
    .name = "portable",
    .summary = "sums int8 terms with a scale a group",
    .supports = supports,
    .prepare = prepare_dequantize,
    .run = run_dequantize,
    .plan_free = plan_free,
};
