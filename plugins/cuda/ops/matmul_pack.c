/* SPDX-License-Identifier: MIT
 * matmul_pack.c - the packed weight of matmul: a row-major copy of the partition's columns in the weight
 * dtype in device memory, pulled panel by panel through pinned memory (panels.h). matmul's epilogues and its
 * derivatives read it as it lies, so nothing else is packed for training. */
#include "convert.h"
#include "generate.h"
#include "panels.h"
#include "product.h"
#include "products.h"

enum { PANEL_ROWS = 64 }; /* rows a source is asked for at a time */

typedef struct pull_job {
  const cuda_packed *packed;
  const bs_source *weights;
  const bs_partition *partition;
} pull_job;

static int32_t fill(const void *ctx, int64_t row, int64_t n, unsigned char *out, unsigned char *scratch,
                    bs_error *err) {
  const pull_job *job = ctx;
  (void)scratch;
  return job->weights->read(job->weights->ctx, row, n, job->partition, job->packed->dtype, out,
                            job->packed->line, err);
}

static int32_t check_source(const bs_op_query *q, const bs_source *w, bs_error *err) {
  const int64_t total = q->partition != NULL ? q->partition->total : q->args[0]->dims[1];
  if (w->rows == q->args[3]->dims[1] && w->cols == total) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-WEIGHT",
                 "the weight is [%lld,%lld], the query needs [%lld,%lld]", (long long)w->rows,
                 (long long)w->cols, (long long)q->args[3]->dims[1], (long long)total);
}

int32_t cuda_packed_alloc(cuda_packed *p, uint64_t *out_bytes, bs_error *err) {
  uint64_t line = 0, bytes = 0;
  if (__builtin_mul_overflow((uint64_t)p->cols, (uint64_t)p->size, &line) || line > UINT64_MAX - 15 ||
      __builtin_mul_overflow((uint64_t)p->rows, (line + 15) / 16 * 16, &bytes) || bytes > INT64_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-SIZE", "a weight of [%lld,%lld] overflows", (long long)p->rows,
                   (long long)p->cols);
  p->line = (int64_t)((line + 15) / 16 * 16 / p->size);
  *out_bytes = bytes;
  if (bytes == 0) return BS_OK;
  p->data = p->exec->alloc(p->exec->ctx, bytes);
  if (p->data != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for %llu bytes of weights",
                 (unsigned long long)bytes);
}

/* A generated weight is made where it lies, any other one comes from the host. */
static int32_t pull(const cuda_packed *p, const pull_job *job, bs_error *err) {
  const int32_t made = cuda_generate_packed(p, job->weights, job->partition, err);
  if (made != BS_UNSUPPORTED) return made;
  const cuda_panels panels = {.device = p->exec->device,
                              .host = p->state->host,
                              .exec = p->exec,
                              .to = p->data,
                              .rows = p->rows,
                              .line = (uint64_t)p->line * p->size,
                              .fill = fill,
                              .ctx = job,
                              .most = PANEL_ROWS};
  return cuda_panels_pull(&panels, err);
}

int32_t cuda_packed_make(const bs_op_impl *impl, void *opaque, const bs_exec *exec, const bs_op_query *query,
                         const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err) {
  cuda_state *state = opaque;
  const bs_host *host = state->host;
  int32_t rc = cuda_require(impl, state, query, err);
  if (rc == BS_OK) rc = check_source(query, weights, err);
  if (rc != BS_OK) return rc;
  cuda_packed *p = host->alloc(host->ctx, sizeof *p, 64);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a weight's record");
  p->state = state;
  p->exec = exec;
  p->dtype = query->weight_dtype;
  p->size = BS_DTYPE_BYTES(p->dtype);
  p->rows = weights->rows;
  p->cols = query->partition != NULL ? query->partition->count : weights->cols;
  const pull_job job = {p, weights, query->partition};
  rc = cuda_packed_alloc(p, out_bytes, err);
  if (rc == BS_OK && p->data != NULL) rc = pull(p, &job, err);
  if (rc != BS_OK) {
    cuda_packed_free(p);
    return rc;
  }
  *out_packed = p;
  return BS_OK;
}

cuda_view cuda_packed_view(const cuda_packed *p) {
  return (cuda_view){p->data, p->rows, p->cols, p->line, 1, p->dtype, p->size};
}

/* Done when it returns: it has no stream, and the host may free delta. */
int32_t cuda_packed_update(void *opaque, const bs_tensor *delta, bs_error *err) {
  const cuda_packed *p = opaque;
  const cuda_device *device = p->exec->device;
  if (!cuda_is_float(p->dtype))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-UPDATE", "integer weights are not updated");
  if (delta->dtype != BS_F32 || delta->rank != 2 || delta->dims[0] != p->rows || delta->dims[1] != p->cols)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-UPDATE", "delta must be f32 [%lld,%lld]",
                   (long long)p->rows, (long long)p->cols);
  const int32_t rc = cuda_product_add(p, delta, err);
  return rc == BS_OK ? cuda_wait(device, device->stream, err) : rc;
}

/* Queued in the default stream, and not waited for. */
int32_t cuda_packed_read(void *opaque, int64_t row, bs_tensor *out, bs_error *err) {
  const cuda_packed *p = opaque;
  const cuda_device *device = p->exec->device;
  if (out->rank != 2 || row < 0 || row > p->rows || out->dims[0] > p->rows - row || out->dims[1] != p->cols)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-READ", "rows %lld.. are not in [%lld,%lld]",
                   (long long)row, (long long)p->rows, (long long)p->cols);
  if (out->dims[0] == 0 || p->cols == 0) return BS_OK;
  const cuda_view to = cuda_view_of(out);
  cuda_view from = cuda_packed_view(p);
  from.data = (unsigned char *)p->data + (uint64_t)(row * p->line) * p->size;
  from.rows = to.rows;
  return cuda_convert_views(device, &from, &to, device->stream, err);
}

void cuda_packed_free(void *opaque) {
  cuda_packed *p = opaque;
  if (p == NULL) return;
  const bs_host *host = p->state->host;
  if (p->data != NULL) p->exec->free(p->exec->ctx, p->data);
  host->free(host->ctx, p);
}
