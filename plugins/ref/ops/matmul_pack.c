/* SPDX-License-Identifier: MIT
 * matmul_pack.c - the packed weight of matmul: a row-major copy of the partition's columns in the weight
 * dtype, read straight from the source by the members of the team, each its own rows, so that no second
 * copy ever exists. Updating and reading back are row loops. */
#include "matmul.h"

enum { PANEL_ROWS = 64 }; /* rows a source is asked for at a time */
enum { CHUNK = 256 };

typedef struct pack_job {
  ref_packed *packed;
  const bs_source *weights;
  const bs_partition *partition;
  bs_error *errors; /* one a member */
} pack_job;

static void pack_body(void *arg, uint32_t member, uint32_t width) {
  pack_job *job = arg;
  ref_packed *p = job->packed;
  int64_t begin, end;
  ref_share(p->rows, member, width, &begin, &end);
  for (int64_t row = begin; row < end; row += PANEL_ROWS) {
    const int64_t n = end - row < PANEL_ROWS ? end - row : PANEL_ROWS;
    unsigned char *out = p->data + (uint64_t)(row * p->cols) * p->size;
    const int32_t rc = job->weights->read(job->weights->ctx, row, n, job->partition, p->dtype, out, p->cols,
                                          &job->errors[member]);
    if (rc == BS_OK) continue;
    job->errors[member].code = rc;
    return;
  }
}

static int32_t check_source(const bs_op_query *q, const bs_source *w, bs_error *err) {
  const int64_t total = q->partition != NULL ? q->partition->total : q->args[0]->dims[1];
  if (w->rows == q->args[3]->dims[1] && w->cols == total) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT",
                 "the weight is [%lld,%lld], the query needs [%lld,%lld]", (long long)w->rows,
                 (long long)w->cols, (long long)q->args[3]->dims[1], (long long)total);
}

static int32_t pull(ref_packed *p, const bs_source *weights, const bs_partition *partition, bs_error *err) {
  pack_job job = {.packed = p, .weights = weights, .partition = partition};
  return ref_team_errors(p->host, p->exec, pack_body, &job, &job.errors, err);
}

int32_t ref_matmul_pack(void *opaque, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                        void **out_packed, uint64_t *out_bytes, bs_error *err) {
  ref_state *state = opaque;
  const bs_host *host = state->host;
  int32_t rc = ref_require(&ref_matmul, state, query, err);
  if (rc == BS_OK) rc = check_source(query, weights, err);
  if (rc != BS_OK) return rc;
  ref_packed *p = host->alloc(host->ctx, sizeof *p, 64);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a packed weight's record");
  p->host = host;
  p->exec = exec;
  p->dtype = query->weight_dtype;
  p->size = BS_DTYPE_BYTES(p->dtype);
  p->rows = weights->rows;
  p->cols = query->partition != NULL ? query->partition->count : weights->cols;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)p->rows, (uint64_t)p->cols, &bytes) ||
      __builtin_mul_overflow(bytes, (uint64_t)p->size, &bytes)) {
    rc = bs_fail(err, BS_OVERFLOW, "BS-REF-SIZE", "a weight of [%lld,%lld] overflows", (long long)p->rows,
                 (long long)p->cols);
  } else if (bytes > 0) {
    p->data = exec->alloc(exec->ctx, bytes);
    rc = p->data != NULL ? pull(p, weights, query->partition, err)
                         : bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for %llu bytes of weights",
                                   (unsigned long long)bytes);
  }
  if (rc != BS_OK) {
    ref_matmul_packed_free(p);
    return rc;
  }
  *out_packed = p;
  *out_bytes = bytes;
  return BS_OK;
}

static ref_view view_of(const ref_packed *p) {
  const ref_view v = {p->data, p->dtype, p->size, p->rows, p->cols, p->cols, 1};
  return v;
}

/* Added in f64 and rounded once to the weight dtype. */
int32_t ref_matmul_packed_update(void *opaque, const bs_tensor *delta, bs_error *err) {
  ref_packed *p = opaque;
  if (!ref_is_float(p->dtype))
    return bs_fail(err, BS_UNSUPPORTED, "BS-REF-UPDATE", "integer weights are not updated");
  if (delta->dtype != BS_F32 || delta->rank != 2 || delta->dims[0] != p->rows || delta->dims[1] != p->cols)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-UPDATE", "delta must be f32 [%lld,%lld]",
                   (long long)p->rows, (long long)p->cols);
  const ref_view weight = view_of(p), change = ref_view_of(delta);
  double w[CHUNK], d[CHUNK];
  for (int64_t r = 0; r < p->rows; r++)
    for (int64_t c = 0; c < p->cols; c += CHUNK) {
      const int64_t n = p->cols - c < CHUNK ? p->cols - c : CHUNK;
      int32_t rc = ref_load(p->host, &weight, r, NULL, c, n, BS_F64, w);
      if (rc == BS_OK) rc = ref_load(p->host, &change, r, NULL, c, n, BS_F64, d);
      for (int64_t i = 0; i < n && rc == BS_OK; i++) w[i] += d[i];
      if (rc == BS_OK) rc = ref_store(p->host, &weight, r, c, n, BS_F64, w);
      if (rc != BS_OK)
        return bs_fail(err, rc, "BS-REF-CONVERT", "the host does not convert the weight dtype");
    }
  return BS_OK;
}

int32_t ref_matmul_packed_read(void *opaque, int64_t row, bs_tensor *out, bs_error *err) {
  const ref_packed *p = opaque;
  if (out->rank != 2 || row < 0 || row > p->rows || out->dims[0] > p->rows - row || out->dims[1] != p->cols)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-READ", "rows %lld.. are not in [%lld,%lld]",
                   (long long)row, (long long)p->rows, (long long)p->cols);
  const ref_view weight = view_of(p), to = ref_view_of(out);
  _Alignas(64) unsigned char piece[CHUNK * 8];
  for (int64_t r = 0; r < to.rows; r++)
    for (int64_t c = 0; c < to.cols; c += CHUNK) {
      const int64_t n = to.cols - c < CHUNK ? to.cols - c : CHUNK;
      int32_t rc = ref_load(p->host, &weight, row + r, NULL, c, n, to.dtype, piece);
      if (rc == BS_OK) rc = ref_store(p->host, &to, r, c, n, to.dtype, piece);
      if (rc != BS_OK)
        return bs_fail(err, rc, "BS-REF-CONVERT", "the host does not convert 0x%04x", to.dtype);
    }
  return BS_OK;
}

void ref_matmul_packed_free(void *opaque) {
  ref_packed *p = opaque;
  if (p == NULL) return;
  if (p->data != NULL) p->exec->free(p->exec->ctx, p->data);
  p->host->free(p->host->ctx, p);
}
