/* SPDX-License-Identifier: MIT
 * activate.c - out[b,n] = act(in[b,n]) rounded to out's dtype: the activation of a layer whose outputs are
 * sums over ranks, where it cannot be part of the product. Computed in f64 when either side is f64, in i64
 * for integers, else rounded to f32 first, as matmul's epilogue does. Any strides; out may be in itself.
 * Rows are divided over the team, or columns when there are fewer rows than members. */
#include <math.h>

#include "../ref.h"

typedef struct activate_plan {
  const bs_host *host;
  const bs_exec *exec;
  uint32_t activation;
} activate_plan;

typedef struct activate_job {
  const activate_plan *plan;
  ref_view in, out;
  uint32_t compute; /* BS_F32, BS_F64 or BS_I64 */
  int32_t failed;   /* any member's failure; written with relaxed atomics */
} activate_job;

double ref_activation(uint32_t activation, double v) {
  switch (activation) {
    case BS_ACT_RELU:
      return v < 0.0 ? 0.0 : v; /* NaN stays */
    case BS_ACT_GELU:
      return 0.5 * v * erfc(-v * 0.70710678118654752440); /* erfc: no cancellation for v << 0 */
    case BS_ACT_SILU:
      return v / (1.0 + exp(-v));
    default:
      return v;
  }
}

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  if (query->nargs != 2 || !ref_arg_ok(query, 0, 2) || !ref_arg_ok(query, 1, 2))
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs two matrices of known dtypes");
  const bs_tensor_desc *in = query->args[0], *out = query->args[1];
  const int integers = in->dtype == out->dtype && (in->dtype == BS_I32 || in->dtype == BS_I64);
  if (in->dims[0] != out->dims[0] || in->dims[1] != out->dims[1])
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "input and output differ in shape");
  if (!integers && !(ref_is_float(in->dtype) && ref_is_float(out->dtype)))
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "two floats, or i32 or i64 twice");
  if (query->activation > BS_ACT_SILU)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", query->activation);
  if (integers && query->activation > BS_ACT_RELU)
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "gelu and silu need float dtypes");
  return ref_answer_native(out_answer, BS_TOL_EXACT, 0, "portable C");
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  ref_state *state = opaque;
  const int32_t rc = ref_require(&ref_activate, state, query, err);
  if (rc != BS_OK) return rc;
  activate_plan *plan = state->host->alloc(state->host->ctx, sizeof *plan, 64);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a plan of activate");
  plan->host = state->host;
  plan->exec = exec;
  plan->activation = query->activation;
  *out_plan = plan;
  return BS_OK;
}

enum { CHUNK = 256 };

static void apply(uint32_t activation, uint32_t compute, void *piece, int64_t n) {
  if (compute == BS_I64) {
    int64_t *v = piece;
    for (int64_t i = 0; activation == BS_ACT_RELU && i < n; i++) v[i] = v[i] < 0 ? 0 : v[i];
  } else if (compute == BS_F64) {
    double *v = piece;
    for (int64_t i = 0; i < n; i++) v[i] = ref_activation(activation, v[i]);
  } else {
    float *v = piece;
    for (int64_t i = 0; i < n; i++) v[i] = (float)ref_activation(activation, (double)v[i]);
  }
}

static int32_t activate_part(const activate_job *job, int64_t row, int64_t begin, int64_t end) {
  const bs_host *host = job->plan->host;
  _Alignas(64) unsigned char piece[CHUNK * 8];
  for (int64_t c = begin; c < end; c += CHUNK) {
    const int64_t n = end - c < CHUNK ? end - c : CHUNK;
    int32_t rc = ref_load(host, &job->in, row, NULL, c, n, job->compute, piece);
    if (rc == BS_OK) apply(job->plan->activation, job->compute, piece, n);
    if (rc == BS_OK) rc = ref_store(host, &job->out, row, c, n, job->compute, piece);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static void body(void *arg, uint32_t member, uint32_t width) {
  activate_job *job = arg;
  const int by_rows = job->in.rows >= (int64_t)width;
  int64_t begin, end;
  ref_share(by_rows ? job->in.rows : job->in.cols, member, width, &begin, &end);
  if (begin == end) return;
  const int64_t first = by_rows ? begin : 0, last = by_rows ? end : job->in.rows;
  for (int64_t r = first; r < last; r++) {
    const int32_t rc = activate_part(job, r, by_rows ? 0 : begin, by_rows ? job->in.cols : end);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const activate_plan *plan = opaque;
  activate_job job = {plan, ref_view_of(args[0]), ref_view_of(args[1]), BS_F32, BS_OK};
  if (job.in.rows == 0 || job.in.cols == 0) return BS_OK;
  if (ref_is_integer(job.in.dtype)) {
    job.compute = BS_I64;
  } else if (job.in.dtype == BS_F64 || job.out.dtype == BS_F64) {
    job.compute = BS_F64;
  }
  const int32_t rc = plan->exec->parallel_for(plan->exec->ctx, body, &job);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-REF-TEAM", "the rank's thread team failed");
  if (job.failed != BS_OK)
    return bs_fail(err, job.failed, "BS-REF-CONVERT", "the host does not convert dtype 0x%04x to 0x%04x",
                   job.in.dtype, job.out.dtype);
  return BS_OK;
}

static void plan_free(void *opaque) {
  activate_plan *plan = opaque;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
}

const bs_op_impl ref_activate = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "activate",
    .backend = "ref",
    .name = "portable",
    .summary = "applies an activation",
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .plan_free = plan_free,
};
