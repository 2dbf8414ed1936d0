/* SPDX-License-Identifier: MIT
 * dequantize_product.c - what the i32 sums of a product of two int8 matrices stand for, with what there is
 * beside them:
 *   out[b,n] = act(sums[b,n] rows[b] columns[n] + base[b,n] + bias[n])
 * in f32, each step rounded in that order, rounded to out's dtype. base may be out itself where both are f32.
 * Any strides; rows are divided over the team. */
#include "../ref.h"

enum { PIECE = 128 };

typedef struct product_plan {
  const bs_host *host;
  const bs_exec *exec;
  uint32_t activation;
} product_plan;

typedef struct product_job {
  const product_plan *plan;
  ref_view sums, rows, columns, bias, base, out;
  int has_bias, has_base;
  int32_t failed; /* relaxed atomics */
} product_job;

static int32_t supports(void *state, const bs_op_query *query, bs_op_answer *out_answer) {
  (void)state;
  static const uint32_t ranks[6] = {2, 2, 1, 1, 2, 2};
  if (query->nargs != 6)
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs sums, two scales, bias, base and output");
  for (uint32_t i = 0; i < 6; i++) {
    const int optional = i == 3 || i == 4;
    if (!(optional && query->args[i] == NULL) && !ref_arg_ok(query, i, ranks[i]))
      return ref_answer_no(out_answer, BS_REASON_RANK, "arg %u: %u dimensions of a known dtype", i, ranks[i]);
  }
  if (query->activation > BS_ACT_GELU_TANH)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u", query->activation);
  return ref_answer_native(out_answer, BS_TOL_ACC_F32, 0, "portable C");
}

static int32_t prepare(void *opaque, const bs_exec *exec, const bs_op_query *query, void *packed,
                       void **out_plan, bs_error *err) {
  (void)packed;
  ref_state *state = opaque;
  const int32_t rc = ref_require(&ref_dequantize_product, state, query, err);
  if (rc != BS_OK) return rc;
  product_plan *plan = state->host->alloc(state->host->ctx, sizeof *plan, 64);
  if (plan == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a plan of dequantize_product");
  *plan = (product_plan){state->host, exec, query->activation};
  *out_plan = plan;
  return BS_OK;
}

static int32_t piece(const product_job *job, int64_t row, float scale, int64_t first, int64_t n) {
  const bs_host *host = job->plan->host;
  int32_t sums[PIECE] = {0};
  float columns[PIECE] = {0}, base[PIECE] = {0}, bias[PIECE] = {0}, out[PIECE];
  int32_t rc = ref_load(host, &job->sums, row, NULL, first, n, BS_I32, sums);
  if (rc == BS_OK) rc = ref_load(host, &job->columns, 0, NULL, first, n, BS_F32, columns);
  if (rc == BS_OK && job->has_base) rc = ref_load(host, &job->base, row, NULL, first, n, BS_F32, base);
  if (rc == BS_OK && job->has_bias) rc = ref_load(host, &job->bias, 0, NULL, first, n, BS_F32, bias);
  for (int64_t i = 0; rc == BS_OK && i < n; i++) {
    const float by_row = (float)sums[i] * scale;
    float v = by_row * columns[i];
    if (job->has_base) v += base[i];
    if (job->has_bias) v += bias[i];
    out[i] = (float)ref_activation(job->plan->activation, (double)v);
  }
  return rc == BS_OK ? ref_store(host, &job->out, row, first, n, BS_F32, out) : rc;
}

static void share(void *arg, uint32_t member, uint32_t width) {
  product_job *job = arg;
  int64_t begin, end;
  ref_share(job->out.rows, member, width, &begin, &end);
  for (int64_t r = begin; r < end; r++) {
    float scale = 0.0f;
    int32_t rc = ref_load(job->plan->host, &job->rows, r, NULL, 0, 1, BS_F32, &scale);
    for (int64_t c = 0; rc == BS_OK && c < job->out.cols; c += PIECE)
      rc = piece(job, r, scale, c, job->out.cols - c < PIECE ? job->out.cols - c : PIECE);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

static int32_t run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream, bs_error *err) {
  (void)nargs;
  (void)stream;
  const product_plan *plan = opaque;
  product_job job = {plan, ref_view_of(args[0]), ref_view_of(args[1]), ref_view_of(args[2]), {0},
                     {0},  ref_view_of(args[5]), args[3] != NULL,      args[4] != NULL,      BS_OK};
  if (job.has_bias) job.bias = ref_view_of(args[3]);
  if (job.has_base) job.base = ref_view_of(args[4]);
  int32_t rc = plan->exec->parallel_for(plan->exec->ctx, share, &job);
  if (rc == BS_OK) rc = job.failed;
  return rc == BS_OK ? rc : bs_fail(err, rc, "BS-REF-QUANTIZE", "sums or scales could not be converted");
}

static void plan_free(void *opaque) {
  product_plan *plan = opaque;
  if (plan != NULL) plan->host->free(plan->host->ctx, plan);
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
    .plan_free = plan_free,
};
