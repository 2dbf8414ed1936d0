/* SPDX-License-Identifier: MIT
 * matmul_grad.c - see matmul_grad.h. Every product and every sum is rounded to the compute dtype, r ascending
 * from +0: the same bits for any team width. */
#include "matmul_grad.h"

uint32_t ref_grad_compute(const bs_op_query *q, uint32_t a, uint32_t b, uint32_t c) {
  if (ref_is_integer(a)) return BS_I64;
  if (q->accumulate != BS_ACC_DEFAULT) return q->accumulate == BS_ACC_F64 ? BS_F64 : BS_F32;
  return a == BS_F64 || b == BS_F64 || c == BS_F64 ? BS_F64 : BS_F32;
}

int ref_grad_shapes(const bs_op_query *q, uint32_t x, uint32_t dy) {
  const bs_partition *p = q->partition;
  if (!ref_arg_ok(q, x, 2) || !ref_arg_ok(q, dy, 2)) return 0;
  const bs_tensor_desc *d = q->args[x];
  const int64_t columns = p == NULL ? d->dims[1] : q->flags & BS_QUERY_X_FULL ? p->total : p->count;
  return d->dims[0] == q->args[dy]->dims[0] && d->dims[1] == columns && q->activation == BS_ACT_NONE &&
         q->accumulate <= BS_ACC_F64;
}

int32_t ref_grad_answer(const bs_op_query *q, uint32_t a, uint32_t b, uint32_t c, bs_op_answer *out) {
  const uint32_t compute = ref_grad_compute(q, a, b, c);
  const int fit = compute == BS_I64 ? ref_is_integer(b) && ref_is_integer(c)
                                    : ref_is_float(a) && ref_is_float(b) && ref_is_float(c);
  if (!fit)
    return ref_answer_no(out, BS_REASON_DTYPE, "0x%04x, 0x%04x, 0x%04x: all float or all integer", a, b, c);
  if (compute == BS_F32 && (a == BS_F64 || b == BS_F64))
    return ref_answer_no(out, BS_REASON_DTYPE, "f64 operands are not summed in f32");
  if (!ref_workspace_fits(q, REF_GRAD_BYTES, out)) return BS_OK;
  if (compute == BS_I64)
    return ref_answer_native(out, BS_TOL_EXACT, REF_GRAD_BYTES, "portable C, 64-bit integer sums");
  if (compute == BS_F64)
    return ref_answer_native(out, BS_TOL_ACC_F64, REF_GRAD_BYTES, "portable C, f64 sums in order");
  return ref_answer_native(out, BS_TOL_ACC_F32, REF_GRAD_BYTES, "portable C, f32 sums in order");
}

void ref_grad_plan_free(void *opaque) {
  ref_grad_plan *plan = opaque;
  if (plan == NULL) return;
  const bs_host *host = plan->host;
  if (plan->workspace != NULL) plan->exec->free(plan->exec->ctx, plan->workspace);
  ref_columns_free(host, &plan->columns);
  host->free(host->ctx, plan);
}

int32_t ref_grad_prepare(const bs_op_impl *impl, ref_state *state, const bs_exec *exec, const bs_op_query *q,
                         uint32_t compute, uint32_t x, uint32_t dy, ref_packed *weight,
                         ref_grad_plan **out_plan, bs_error *err) {
  const bs_host *host = state->host;
  int32_t rc = ref_require(impl, state, q, err);
  if (rc != BS_OK) return rc;
  const int64_t k = q->partition != NULL ? q->partition->count : q->args[x]->dims[1];
  if (weight != NULL) rc = ref_weight_check(q, weight, weight->cols, q->args[dy]->dims[1], k, err);
  if (rc != BS_OK) return rc;
  ref_grad_plan *plan = host->alloc(host->ctx, sizeof *plan, 64);
  if (plan == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a plan of %s", impl->op);
  plan->host = host;
  plan->exec = exec;
  plan->weight = weight;
  plan->compute = compute;
  plan->members = ref_workspace_members(q, exec, REF_GRAD_BYTES);
  plan->full = q->partition != NULL && (q->flags & BS_QUERY_X_FULL) != 0;
  rc = ref_columns_copy(host, plan->full ? q->partition : NULL, k, &plan->columns, err);
  if (rc == BS_OK) {
    plan->workspace = exec->alloc(exec->ctx, plan->members * REF_GRAD_BYTES);
    if (plan->workspace == NULL)
      rc = bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for %u workspaces of %llu bytes",
                   plan->members, (unsigned long long)REF_GRAD_BYTES);
  }
  if (rc != BS_OK) {
    ref_grad_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

/* sums[i][j] += left[i] * right[j]: one product, one sum, each rounded (no contraction). */
static void add_f32(const float *left, int64_t step, const float *right, float *sums, int64_t rows,
                    int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      const float product = left[i * step] * right[j];
      sums[i * REF_GRAD_COLS + j] = sums[i * REF_GRAD_COLS + j] + product;
    }
}

static void add_f64(const double *left, int64_t step, const double *right, double *sums, int64_t rows,
                    int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      const double product = left[i * step] * right[j];
      sums[i * REF_GRAD_COLS + j] = sums[i * REF_GRAD_COLS + j] + product;
    }
}

static void add_i64(const uint64_t *left, int64_t step, const uint64_t *right, uint64_t *sums, int64_t rows,
                    int64_t cols) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) sums[i * REF_GRAD_COLS + j] += left[i * step] * right[j];
}

/* left[i,r] for i0.., r0..: [i][r], or [r][i] when turned; REF_GRAD_DEPTH or REF_GRAD_ROWS a row. */
static int32_t load_left(const ref_grad_job *job, int64_t i0, int64_t rows, int64_t r0, int64_t depth,
                         unsigned char *to) {
  const ref_grad_plan *plan = job->plan;
  const int64_t size = BS_DTYPE_BYTES(plan->compute);
  const int64_t lines = job->turned ? depth : rows, count = job->turned ? rows : depth;
  const int64_t line = job->turned ? REF_GRAD_ROWS : REF_GRAD_DEPTH;
  int32_t rc = BS_OK;
  for (int64_t l = 0; l < lines && rc == BS_OK; l++)
    rc = ref_load(plan->host, &job->left, (job->turned ? r0 : i0) + l, NULL, job->turned ? i0 : r0, count,
                  plan->compute, to + l * line * size);
  return rc;
}

static int32_t tile(const ref_grad_job *job, unsigned char *workspace, int64_t i0, int64_t rows, int64_t j0,
                    int64_t cols) {
  const ref_grad_plan *plan = job->plan;
  const int64_t size = BS_DTYPE_BYTES(plan->compute);
  unsigned char *left = workspace, *right = left + (int64_t)8 * REF_GRAD_ROWS * REF_GRAD_DEPTH,
                *sums = right + (int64_t)8 * REF_GRAD_COLS;
  const ref_columns *columns = job->pick ? &plan->columns : NULL;
  const int64_t across = job->turned ? REF_GRAD_ROWS : 1, step = job->turned ? 1 : REF_GRAD_DEPTH;
  int32_t rc = BS_OK;
  memset(sums, 0, (size_t)(rows * REF_GRAD_COLS * size));
  for (int64_t r0 = 0; r0 < job->depth; r0 += REF_GRAD_DEPTH) {
    const int64_t depth = job->depth - r0 < REF_GRAD_DEPTH ? job->depth - r0 : REF_GRAD_DEPTH;
    rc = load_left(job, i0, rows, r0, depth, left);
    for (int64_t r = 0; r < depth && rc == BS_OK; r++) {
      rc = ref_load(plan->host, &job->right, r0 + r, columns, j0, cols, plan->compute, right);
      const unsigned char *l = left + r * across * size;
      if (plan->compute == BS_F32)
        add_f32((const float *)(const void *)l, step, (const float *)(void *)right, (float *)(void *)sums,
                rows, cols);
      else if (plan->compute == BS_F64)
        add_f64((const double *)(const void *)l, step, (const double *)(void *)right, (double *)(void *)sums,
                rows, cols);
      else
        add_i64((const uint64_t *)(const void *)l, step, (const uint64_t *)(void *)right,
                (uint64_t *)(void *)sums, rows, cols);
    }
    if (rc != BS_OK) return rc;
  }
  for (int64_t i = 0; i < rows && rc == BS_OK; i++)
    rc = job->finish(job, i0 + i, j0, cols, sums + i * REF_GRAD_COLS * size);
  return rc;
}

static void body(void *arg, uint32_t member, uint32_t width) {
  ref_grad_job *job = arg;
  const ref_grad_plan *plan = job->plan;
  const uint32_t members = width < plan->members ? width : plan->members;
  if (member >= members) return;
  const int64_t down = (job->rows + REF_GRAD_ROWS - 1) / REF_GRAD_ROWS;
  const int64_t across = (job->cols + REF_GRAD_COLS - 1) / REF_GRAD_COLS;
  int64_t begin, end;
  ref_share(down * across, member, members, &begin, &end);
  for (int64_t t = begin; t < end; t++) {
    const int64_t i = t % down * REF_GRAD_ROWS, j = t / down * REF_GRAD_COLS;
    const int64_t rows = job->rows - i < REF_GRAD_ROWS ? job->rows - i : REF_GRAD_ROWS;
    const int64_t cols = job->cols - j < REF_GRAD_COLS ? job->cols - j : REF_GRAD_COLS;
    const int32_t rc = tile(job, plan->workspace + member * REF_GRAD_BYTES, i, rows, j, cols);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

int32_t ref_grad_run(ref_grad_job *job, bs_error *err) {
  const bs_exec *exec = job->plan->exec;
  if (job->rows == 0 || job->cols == 0) return BS_OK;
  return ref_team_run(exec, body, job, &job->failed, err);
}

int32_t ref_store_sums(const bs_host *host, const ref_view *out, int64_t i, int64_t j, int64_t n,
                       uint32_t compute, const unsigned char *sums) {
  if (out->dtype != BS_I32 || compute != BS_I64) return ref_store(host, out, i, j, n, compute, sums);
  uint32_t low[REF_GRAD_COLS];
  for (int64_t c = 0; c < n; c++) low[c] = (uint32_t)((const uint64_t *)(const void *)sums)[c];
  return ref_store(host, out, i, j, n, BS_I32, low);
}

int32_t ref_grad_store(const ref_grad_job *job, int64_t i, int64_t j, int64_t n, unsigned char *sums) {
  return ref_store_sums(job->plan->host, &job->out, i, j, n, job->plan->compute, sums);
}
