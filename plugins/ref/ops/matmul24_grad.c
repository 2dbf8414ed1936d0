/* SPDX-License-Identifier: MIT
 * matmul24_grad.c - the products of the backward pass over a 2:4 weight, for the kept weights alone: their
 * plan, and tiles of 64 by 64. Sums run upwards in n (dX) or b (dW) from +0, each product and each sum
 * rounded to the compute dtype: the same bits for any team width. */
#include "matmul24.h"

static void axpy_f32(float *sum, const float *v, float value, int64_t n) {
  for (int64_t t = 0; t < n; t++) {
    const float product = value * v[t];
    sum[t] = sum[t] + product;
  }
}

static void axpy_f64(double *sum, const double *v, double value, int64_t n) {
  for (int64_t t = 0; t < n; t++) {
    const double product = value * v[t];
    sum[t] = sum[t] + product;
  }
}

void ref_axpy24(uint32_t compute, unsigned char *sum, const unsigned char *v, const unsigned char *value,
                int64_t n) {
  if (compute == BS_F32) {
    axpy_f32((float *)(void *)sum, (const float *)(const void *)v, *(const float *)(const void *)value, n);
  } else if (compute == BS_F64) {
    axpy_f64((double *)(void *)sum, (const double *)(const void *)v, *(const double *)(const void *)value, n);
  } else {
    uint64_t *s = (uint64_t *)(void *)sum;
    const uint64_t *from = (const uint64_t *)(const void *)v, w = *(const uint64_t *)(const void *)value;
    for (int64_t t = 0; t < n; t++) s[t] += w * from[t];
  }
}

/* The sum continued over n products, one after the other. */
static void dot(uint32_t compute, unsigned char *sum, const unsigned char *a, const unsigned char *b,
                int64_t n) {
  if (compute == BS_F32) {
    const float *left = (const float *)(const void *)a, *right = (const float *)(const void *)b;
    float s = *(float *)(void *)sum;
    for (int64_t t = 0; t < n; t++) {
      const float product = left[t] * right[t];
      s = s + product;
    }
    *(float *)(void *)sum = s;
  } else if (compute == BS_F64) {
    const double *left = (const double *)(const void *)a, *right = (const double *)(const void *)b;
    double s = *(double *)(void *)sum;
    for (int64_t t = 0; t < n; t++) {
      const double product = left[t] * right[t];
      s = s + product;
    }
    *(double *)(void *)sum = s;
  } else {
    const uint64_t *left = (const uint64_t *)(const void *)a, *right = (const uint64_t *)(const void *)b;
    uint64_t *s = (uint64_t *)(void *)sum;
    for (int64_t t = 0; t < n; t++) *s += left[t] * right[t];
  }
}

int32_t ref_turn24(const bs_host *host, const ref_view *v, int64_t r0, int64_t rows, int64_t c0, int64_t cols,
                   uint32_t compute, unsigned char *line, unsigned char *to) {
  for (int64_t r = 0; r < rows; r++) {
    const int32_t rc = ref_load(host, v, r0 + r, NULL, c0, cols, compute, line);
    if (rc != BS_OK) return rc;
    if (compute == BS_F32)
      for (int64_t c = 0; c < cols; c++) memcpy(to + (c * REF_24 + r) * 4, line + c * 4, 4);
    else
      for (int64_t c = 0; c < cols; c++) memcpy(to + (c * REF_24 + r) * 8, line + c * 8, 8);
  }
  return BS_OK;
}

int32_t ref_values24(const ref_packed24 *w, int64_t r, int64_t first, int64_t count, uint32_t compute,
                     unsigned char *out) {
  const ref_packed *v = &w->values;
  const ref_view view = {v->data, v->dtype, v->size, v->rows, v->cols, v->cols, 1};
  return ref_load(v->host, &view, r, NULL, first, count, compute, out);
}

/* Output n's part of a tile of dX: sums[k][t] += w dY. */
static int32_t add_output(const ref_grad24_job *job, int64_t n, const unsigned char *dy, int64_t tokens,
                          int64_t k0, int64_t count, unsigned char *sums) {
  const ref_grad24_plan *plan = job->plan;
  const int64_t size = BS_DTYPE_BYTES(plan->compute);
  _Alignas(64) unsigned char values[REF_24 / 2 * 8];
  const int32_t rc = ref_values24(plan->weight, n, k0 / 2, count, plan->compute, values);
  for (int64_t j = 0; j < count && rc == BS_OK; j++) {
    const int64_t k = ref_position(plan->at, n, k0 / 2 + j);
    if (k < plan->at->cols)
      ref_axpy24(plan->compute, sums + (k - k0) * REF_24 * size, dy, values + j * size, tokens);
  }
  return rc;
}

int32_t ref_grad24_dx_tile(const ref_grad24_job *job, unsigned char *workspace, int64_t t0, int64_t tokens,
                           int64_t k0, int64_t cols) {
  const ref_grad24_plan *plan = job->plan;
  const int64_t size = BS_DTYPE_BYTES(plan->compute), N = plan->at->rows;
  const int64_t count = 2 * ((cols + 3) / 4);
  unsigned char *dy = workspace, *sums = dy + (int64_t)8 * REF_24 * REF_24;
  unsigned char *line = sums + (int64_t)8 * REF_24 * REF_24;
  int32_t rc = BS_OK;
  memset(sums, 0, (size_t)(REF_24 * REF_24 * size));
  for (int64_t n0 = 0; n0 < N && rc == BS_OK; n0 += REF_24) {
    const int64_t outputs = N - n0 < REF_24 ? N - n0 : REF_24;
    rc = ref_turn24(plan->host, &job->dy, t0, tokens, n0, outputs, plan->compute, line, dy);
    for (int64_t n = 0; n < outputs && rc == BS_OK; n++)
      rc = add_output(job, n0 + n, dy + n * REF_24 * size, tokens, k0, count, sums);
  }
  for (int64_t t = 0; t < tokens && rc == BS_OK; t++) {
    for (int64_t k = 0; k < cols; k++) memcpy(line + k * size, sums + (k * REF_24 + t) * size, (size_t)size);
    rc = ref_store_sums(plan->host, &job->x, t0 + t, plan->begin + k0, cols, plan->compute, line);
  }
  return rc;
}

int32_t ref_grad24_dw_tile(const ref_grad24_job *job, unsigned char *workspace, int64_t n0, int64_t rows,
                           int64_t k0, int64_t cols) {
  const ref_grad24_plan *plan = job->plan;
  const int64_t size = BS_DTYPE_BYTES(plan->compute), half = REF_24 / 2;
  const int64_t count = 2 * ((cols + 3) / 4);
  unsigned char *dy = workspace, *x = dy + (int64_t)8 * REF_24 * REF_24;
  unsigned char *sums = x + (int64_t)8 * REF_24 * REF_24, *line = sums + (int64_t)8 * REF_24 * half;
  int32_t rc = BS_OK;
  memset(sums, 0, (size_t)(REF_24 * half * size));
  for (int64_t t = 0; t < job->dy.rows && rc == BS_OK; t += REF_24) {
    const int64_t tokens = job->dy.rows - t < REF_24 ? job->dy.rows - t : REF_24;
    rc = ref_turn24(plan->host, &job->dy, t, tokens, n0, rows, plan->compute, line, dy);
    if (rc == BS_OK)
      rc = ref_turn24(plan->host, &job->x, t, tokens, plan->begin + k0, cols, plan->compute, line, x);
    for (int64_t n = 0; n < rows && rc == BS_OK; n++)
      for (int64_t j = 0; j < count; j++) {
        const int64_t k = ref_position(plan->at, n0 + n, k0 / 2 + j);
        if (k < plan->at->cols)
          dot(plan->compute, sums + (n * half + j) * size, dy + n * REF_24 * size,
              x + (k - k0) * REF_24 * size, tokens);
      }
  }
  for (int64_t n = 0; n < rows && rc == BS_OK; n++)
    rc = job->finish != NULL ? job->finish(job, n0 + n, k0 / 2, count, sums + n * half * size)
                             : ref_store_sums(plan->host, &job->out, n0 + n, k0 / 2, count, plan->compute,
                                              sums + n * half * size);
  return rc;
}

/* ---- plan and run --------------------------------------------------------------------------- */

int32_t ref_grad24_answer(const bs_op_query *q, uint32_t x, uint32_t dy, uint32_t a, uint32_t b, uint32_t c,
                          bs_op_answer *out) {
  const int64_t k = q->partition != NULL ? q->partition->count : q->args[x]->dims[1];
  if (!ref_kept_ok(q, q->args[dy]->dims[1], k, out)) return BS_OK;
  ref_grad_answer(q, a, b, c, out);
  if (out->level == BS_LEVEL_NO) return BS_OK;
  if (!ref_workspace_fits(q, REF_24_BYTES, out)) return BS_OK;
  out->workspace = REF_24_BYTES;
  return BS_OK;
}

void ref_grad24_plan_free(void *opaque) {
  ref_grad24_plan *plan = opaque;
  if (plan == NULL) return;
  if (plan->workspace != NULL) plan->exec->free(plan->exec->ctx, plan->workspace);
  ref_positions_free(&plan->own);
  plan->host->free(plan->host->ctx, plan);
}

int32_t ref_grad24_prepare(const bs_op_impl *impl, ref_state *state, const bs_exec *exec,
                           const bs_op_query *q, uint32_t compute, ref_packed24 *weight, void **out_plan,
                           bs_error *err) {
  const bs_host *host = state->host;
  int32_t rc = ref_require(impl, state, q, err);
  if (rc != BS_OK) return rc;
  if (weight != NULL)
    rc = ref_weight_check(q, &weight->values, weight->at.cols, q->kept->rows, q->kept->cols, err);
  if (rc != BS_OK) return rc;
  ref_grad24_plan *plan = host->alloc(host->ctx, sizeof *plan, 64);
  if (plan == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a plan of %s", impl->op);
  plan->host = host;
  plan->exec = exec;
  plan->weight = weight;
  plan->at = weight != NULL ? &weight->at : &plan->own;
  plan->compute = compute;
  plan->members = ref_workspace_members(q, exec, REF_24_BYTES);
  if (q->partition != NULL && (q->flags & BS_QUERY_X_FULL) != 0) plan->begin = q->partition->begin;
  if (weight == NULL) rc = ref_positions_make(host, exec, q->kept, &plan->own, err);
  if (rc == BS_OK) {
    plan->workspace = exec->alloc(exec->ctx, plan->members * REF_24_BYTES);
    if (plan->workspace == NULL)
      rc = bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for %u workspaces of %llu bytes",
                   plan->members, (unsigned long long)REF_24_BYTES);
  }
  if (rc != BS_OK) {
    ref_grad24_plan_free(plan);
    return rc;
  }
  *out_plan = plan;
  return BS_OK;
}

static void body(void *arg, uint32_t member, uint32_t width) {
  ref_grad24_job *job = arg;
  const ref_grad24_plan *plan = job->plan;
  const uint32_t members = width < plan->members ? width : plan->members;
  if (member >= members) return;
  const int64_t down = (job->rows + REF_24 - 1) / REF_24, across = (plan->at->cols + REF_24 - 1) / REF_24;
  int64_t begin, end;
  ref_share(down * across, member, members, &begin, &end);
  for (int64_t t = begin; t < end; t++) {
    const int64_t i = t % down * REF_24, k = t / down * REF_24;
    const int64_t rows = job->rows - i < REF_24 ? job->rows - i : REF_24;
    const int64_t cols = plan->at->cols - k < REF_24 ? plan->at->cols - k : REF_24;
    const int32_t rc = job->tile(job, plan->workspace + member * REF_24_BYTES, i, rows, k, cols);
    if (rc != BS_OK) __atomic_store_n(&job->failed, rc, __ATOMIC_RELAXED);
  }
}

int32_t ref_grad24_run(ref_grad24_job *job, bs_error *err) {
  const bs_exec *exec = job->plan->exec;
  if (job->rows == 0 || job->plan->at->cols == 0) return BS_OK;
  return ref_team_run(exec, body, job, &job->failed, err);
}
