/* SPDX-License-Identifier: MIT
 * matmul.c - Y = act(X W^T + bias) + residual, the meaning of it: every product of floats (or of integers,
 * modulo 2^64) is summed one after the other in ascending order of the columns, in f32 or f64, each step
 * rounded; bias, activation and residual follow in the same dtype; Y is rounded once. The same bits for any
 * team width. Tiles of the output are divided over the team; the arithmetic is in matmul_tile.c. */
#include "matmul.h"

static uint32_t compute_dtype(const bs_op_query *q) {
  if (ref_is_integer(q->args[0]->dtype)) return BS_I64;
  int wide = q->weight_dtype == BS_F64;
  for (uint32_t i = 0; i < 4; i++) wide |= q->args[i] != NULL && q->args[i]->dtype == BS_F64;
  if (q->accumulate == BS_ACC_DEFAULT) return wide ? BS_F64 : BS_F32;
  return q->accumulate == BS_ACC_F64 ? BS_F64 : BS_F32;
}

/* The fault of the query's dtypes; NULL: none. */
static const char *dtype_problem(const bs_op_query *q) {
  const uint32_t x = q->args[0]->dtype, w = q->weight_dtype, y = q->args[3]->dtype;
  const int integers = ref_is_integer(x);
  int wide_input = w == BS_F64;
  if (integers ? !ref_is_integer(w) : !ref_is_float(x) || !ref_is_float(w))
    return "X and weight must be all float or all integer";
  if (integers ? y != BS_I32 && y != BS_I64 : !ref_is_float(y))
    return "Y must be float for floats, i32 or i64 for integers";
  for (uint32_t i = 0; i < 3; i++) {
    if (q->args[i] == NULL) continue;
    wide_input |= q->args[i]->dtype == BS_F64;
    if (integers ? !ref_is_integer(q->args[i]->dtype) : !ref_is_float(q->args[i]->dtype))
      return "bias and residual must be float or integer as X is";
  }
  if (wide_input && q->accumulate == BS_ACC_F32) return "f64 operands are not summed in f32";
  if (integers && q->activation != BS_ACT_NONE && q->activation != BS_ACT_RELU)
    return "gelu and silu need floats";
  return NULL;
}

int32_t ref_matmul_supports(void *state, const bs_op_query *q, bs_op_answer *out_answer) {
  (void)state;
  const bs_partition *p = q->partition;
  if (q->nargs != 4 || !ref_arg_ok(q, 0, 2) || !ref_arg_ok(q, 3, 2) ||
      (q->args[1] != NULL && !ref_arg_ok(q, 1, 1)) || (q->args[2] != NULL && !ref_arg_ok(q, 2, 2)))
    return ref_answer_no(out_answer, BS_REASON_RANK, "needs X [B,K], bias [N], residual [B,N], Y [B,N]");
  const bs_tensor_desc *x = q->args[0], *bias = q->args[1], *residual = q->args[2], *y = q->args[3];
  const int64_t columns = p == NULL ? x->dims[1] : q->flags & BS_QUERY_X_FULL ? p->total : p->count;
  if (x->dims[0] != y->dims[0] || x->dims[1] != columns || (bias != NULL && bias->dims[0] != y->dims[1]) ||
      (residual != NULL && (residual->dims[0] != y->dims[0] || residual->dims[1] != y->dims[1])))
    return ref_answer_no(out_answer, BS_REASON_SHAPE, "shapes of X, bias, residual and Y do not fit");
  if (q->activation > BS_ACT_GELU_TANH || q->accumulate > BS_ACC_F64)
    return ref_answer_no(out_answer, BS_REASON_NOT_BUILT, "activation %u, accumulate %u", q->activation,
                         q->accumulate);
  const char *problem = dtype_problem(q);
  if (problem != NULL)
    return ref_answer_no(out_answer, BS_REASON_DTYPE, "X 0x%04x, weight 0x%04x, Y 0x%04x: %s", x->dtype,
                         q->weight_dtype, y->dtype, problem);
  if (!ref_workspace_fits(q, REF_TILE_BYTES, out_answer)) return BS_OK;
  const uint32_t compute = compute_dtype(q);
  if (compute == BS_I64)
    return ref_answer_native(out_answer, BS_TOL_EXACT, REF_TILE_BYTES, "portable C, 64-bit integer sums");
  if (compute == BS_F64)
    return ref_answer_native(out_answer, BS_TOL_ACC_F64, REF_TILE_BYTES, "portable C, f64 sums in order");
  return ref_answer_native(out_answer, BS_TOL_ACC_F32, REF_TILE_BYTES, "portable C, f32 sums in order");
}

void ref_matmul_plan_free(void *opaque) {
  ref_matmul_plan *plan = opaque;
  if (plan == NULL) return;
  const bs_host *host = plan->host;
  ref_columns_free(host, &plan->columns);
  host->free(host->ctx, plan);
}

int32_t ref_weight_check(const bs_op_query *q, const ref_packed *w, int64_t cols, int64_t n, int64_t k,
                         bs_error *err) {
  if (w->dtype == q->weight_dtype && w->rows == n && cols == k) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT",
                 "the packed weight is [%lld,%lld] of 0x%04x, the plan needs [%lld,%lld] of 0x%04x",
                 (long long)w->rows, (long long)cols, w->dtype, (long long)n, (long long)k, q->weight_dtype);
}

int32_t ref_matmul_prepare(const bs_op_impl *impl, ref_state *state, const bs_exec *exec,
                           const bs_op_query *q, const ref_packed *weight, int64_t length, ref_tile_fn tile,
                           void **out_plan, bs_error *err) {
  const bs_host *host = state->host;
  int32_t rc = ref_require(impl, state, q, err);
  if (rc == BS_OK)
    rc = weight != NULL ? ref_weight_check(q, weight, weight->cols, q->args[3]->dims[1], length, err)
                        : bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT", "matmul needs a packed weight");
  if (rc != BS_OK) return rc;
  ref_matmul_plan *plan = host->alloc(host->ctx, sizeof *plan, 64);
  if (plan == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a plan of matmul");
  plan->host = host;
  plan->exec = exec;
  plan->weight = weight;
  plan->tile = tile;
  plan->compute = compute_dtype(q);
  plan->activation = q->activation;
  plan->members = ref_workspace_members(q, exec, REF_TILE_BYTES);
  if (q->partition != NULL && (q->flags & BS_QUERY_X_FULL)) {
    plan->gathers = 1;
    rc = ref_columns_copy(host, q->partition, q->partition->total, &plan->columns, err);
  }
  if (rc == BS_OK) {
    rc = exec->reserve(exec->ctx, plan->members * REF_TILE_BYTES);
    if (rc != BS_OK)
      bs_fail(err, rc, "BS-REF-MEMORY", "no memory for %u workspaces of %llu bytes", plan->members,
              (unsigned long long)REF_TILE_BYTES);
  }
  if (rc != BS_OK) {
    ref_matmul_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static int32_t prepare(void *state, const bs_exec *exec, const bs_op_query *q, void *packed, void **out_plan,
                       bs_error *err) {
  const int64_t k = q->partition != NULL ? q->partition->count : q->args[0]->dims[1];
  return ref_matmul_prepare(&ref_matmul, state, exec, q, packed, k, ref_matmul_tile, out_plan, err);
}

static int64_t tiles(int64_t size, int64_t tile) {
  return (size + tile - 1) / tile;
}

/* Tiles are numbered with the tokens inside, so that a member's share reuses a panel of W. */
static void body(void *arg, uint32_t member, uint32_t width) {
  ref_matmul_job *job = arg;
  const ref_matmul_plan *plan = job->plan;
  const uint32_t members = width < plan->members ? width : plan->members;
  if (member >= members) return;
  const int64_t down = tiles(job->y.rows, REF_TOKENS), all = down * tiles(job->y.cols, REF_OUTPUTS);
  int64_t begin, end;
  ref_share(all, member, members, &begin, &end);
  for (int64_t i = begin; i < end; i++) {
    const int64_t t0 = i % down * REF_TOKENS, n0 = i / down * REF_OUTPUTS;
    const int64_t tokens = job->y.rows - t0 < REF_TOKENS ? job->y.rows - t0 : REF_TOKENS;
    const int64_t outputs = job->y.cols - n0 < REF_OUTPUTS ? job->y.cols - n0 : REF_OUTPUTS;
    const int32_t rc = plan->tile(job, plan->workspace + member * REF_TILE_BYTES, t0, tokens, n0, outputs);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

int32_t ref_matmul_run(void *opaque, bs_tensor *const *args, uint32_t nargs, bs_stream *stream,
                       bs_error *err) {
  (void)nargs;
  (void)stream;
  ref_matmul_plan *plan = opaque;
  ref_matmul_job job;
  memset(&job, 0, sizeof job);
  job.plan = plan;
  job.x = ref_view_of(args[0]);
  if (args[1] != NULL) job.bias = ref_view_of(args[1]);
  if (args[2] != NULL) job.residual = ref_view_of(args[2]);
  job.y = ref_view_of(args[3]);
  if (job.y.rows == 0 || job.y.cols == 0) return BS_OK;
  plan->workspace = plan->exec->scratch(plan->exec->ctx);
  return ref_team_run(plan->exec, body, &job, &job.failed, err);
}

const bs_src_loc ref_matmul_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_op_impl ref_matmul = {
    .struct_size = (uint32_t)sizeof(bs_op_impl),
    .op = "matmul",
    .backend = "ref",
    .name = "portable",
    .summary = "tiles in portable C, sums in order of the columns",
    .supports = ref_matmul_supports,
    .pack = ref_matmul_pack,
    .packed_update = ref_matmul_packed_update,
    .packed_read = ref_matmul_packed_read,
    .packed_free = ref_matmul_packed_free,
    .prepare = prepare,
    .run = ref_matmul_run,
    .plan_free = ref_matmul_plan_free,
};
