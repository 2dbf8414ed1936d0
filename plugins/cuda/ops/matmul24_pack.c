/* SPDX-License-Identifier: MIT
 * matmul24_pack.c - the packed weight of matmul24: of each group of four columns the two that are kept, and a
 * code that says which. Positions come from the query's, never from the values: zeros, -0 and NaN are values
 * like others. Both are made by the team some rows at a time and pulled through pinned memory (panels.h). */
#include "generate.h"
#include "panels.h"
#include "products24.h"

enum { PANEL_ROWS = 16 }; /* rows a source and the positions are asked for at a time */

/* ---- positions ------------------------------------------------------------------------------ */

/* Two of four: bit pattern to code, 0 for any other. */
static unsigned char code_of(unsigned pattern) {
  static const unsigned char codes[16] = {0, 0, 0, 4, 0, 8, 9, 0, 0, 12, 13, 0, 14, 0, 0, 0};
  return pattern < 16 ? codes[pattern] : 0;
}

/* Bit patterns of one row become codes where they lie. */
static int32_t encode(int64_t row, unsigned char *groups, int64_t count, bs_error *err) {
  for (int64_t g = 0; g < count; g++) {
    const unsigned char pattern = groups[g];
    groups[g] = code_of(pattern);
    if (groups[g] == 0)
      return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-KEPT",
                     "row %lld, columns %lld..: the positions keep 0x%02x, not two of four", (long long)row,
                     (long long)(4 * g), pattern);
  }
  return BS_OK;
}

static int32_t read_codes(const bs_kept *kept, int64_t row, int64_t n, int64_t groups, unsigned char *out,
                          bs_error *err) {
  int32_t rc = kept->read(kept->ctx, row, n, 0, groups, out, groups, err);
  for (int64_t i = 0; i < n && rc == BS_OK; i++) rc = encode(row + i, out + i * groups, groups, err);
  return rc;
}

static int32_t fill_codes(const void *ctx, int64_t row, int64_t n, unsigned char *out, unsigned char *scratch,
                          bs_error *err) {
  const bs_kept *kept = ctx;
  (void)scratch;
  return read_codes(kept, row, n, kept->cols / 4 + (kept->cols % 4 != 0), out, err);
}

int32_t cuda_places_make(const bs_exec *exec, const bs_host *host, const bs_kept *kept, cuda_places *out,
                         bs_error *err) {
  uint64_t bytes = 0;
  *out = (cuda_places){exec, NULL, kept->rows, kept->cols, kept->cols / 4 + (kept->cols % 4 != 0)};
  if (__builtin_mul_overflow((uint64_t)out->rows, (uint64_t)out->groups, &bytes) || bytes > INT64_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-SIZE", "positions of [%lld,%lld] overflow",
                   (long long)out->rows, (long long)out->cols);
  if (bytes == 0) return BS_OK;
  out->codes = exec->alloc(exec->ctx, bytes);
  if (out->codes == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no device memory for %llu bytes of positions",
                   (unsigned long long)bytes);
  const cuda_panels panels = {.device = exec->device,
                              .host = host,
                              .exec = exec,
                              .to = out->codes,
                              .rows = out->rows,
                              .line = (uint64_t)out->groups,
                              .fill = fill_codes,
                              .ctx = kept,
                              .most = PANEL_ROWS};
  const int32_t rc = cuda_panels_pull(&panels, err);
  if (rc != BS_OK) cuda_places_free(out);
  return rc;
}

void cuda_places_free(cuda_places *places) {
  if (places->codes != NULL) places->exec->free(places->exec->ctx, places->codes);
  places->codes = NULL;
}

int cuda_kept_ok(const bs_op_query *q, int64_t rows, int64_t cols, bs_op_answer *out_answer) {
  const bs_kept *k = q->kept;
  const bs_partition *p = q->partition;
  const int fits = k != NULL && k->rows == rows && k->cols == cols &&
                   (p == NULL || (p->kind == BS_PARTITION_CONTIGUOUS && p->begin % 4 == 0));
  if (!fits)
    cuda_answer_no(out_answer, BS_REASON_SPARSITY, "needs positions of [%lld,%lld] and a run of whole groups",
                   (long long)rows, (long long)cols);
  return fits;
}

/* ---- values --------------------------------------------------------------------------------- */

typedef struct pull_job {
  const cuda_packed24 *packed;
  const bs_source *weights;
  const bs_partition *partition;
  const bs_kept *kept;
} pull_job;

/* The kept values of one row; moved by size, so that zeros of both signs and a NaN's payload stay. */
static void keep_row(const cuda_packed24 *w, const unsigned char *codes, const unsigned char *dense,
                     unsigned char *out) {
  const int64_t size = w->values.size;
  for (int64_t j = 0; j < w->values.cols; j++) {
    const int64_t k = j / 2 * 4 + (codes[j / 2] >> (j % 2 * 2) & 3);
    if (k < w->places.cols)
      memcpy(out + j * size, dense + k * size, (size_t)size);
    else
      memset(out + j * size, 0, (size_t)size);
  }
}

/* scratch: rows of weights, then rows of codes. */
static int32_t fill_values(const void *ctx, int64_t row, int64_t n, unsigned char *out,
                           unsigned char *scratch, bs_error *err) {
  const pull_job *job = ctx;
  const cuda_packed24 *w = job->packed;
  const int64_t cols = w->places.cols, size = w->values.size;
  unsigned char *codes = scratch + PANEL_ROWS * cols * size;
  int32_t rc = read_codes(job->kept, row, n, w->places.groups, codes, err);
  if (rc == BS_OK)
    rc = job->weights->read(job->weights->ctx, row, n, job->partition, w->values.dtype, scratch, cols, err);
  for (int64_t i = 0; i < n && rc == BS_OK; i++)
    keep_row(w, codes + i * w->places.groups, scratch + i * cols * size, out + i * w->values.line * size);
  return rc;
}

static int32_t pull_values(const cuda_packed24 *w, const bs_host *host, const pull_job *job, bs_error *err) {
  const int32_t made = cuda_generate_packed(&w->values, job->weights, job->partition, err);
  if (made != BS_UNSUPPORTED) return made;
  const bs_exec *exec = w->values.exec;
  const cuda_panels panels = {.device = exec->device,
                              .host = host,
                              .exec = exec,
                              .to = w->values.data,
                              .rows = w->values.rows,
                              .line = (uint64_t)w->values.line * w->values.size,
                              .scratch = (uint64_t)PANEL_ROWS * ((uint64_t)w->places.cols * w->values.size +
                                                                 (uint64_t)w->places.groups),
                              .fill = fill_values,
                              .ctx = job,
                              .most = PANEL_ROWS};
  return cuda_panels_pull(&panels, err);
}

static int32_t check_source(const bs_op_query *q, const bs_source *w, bs_error *err) {
  const int64_t total = q->partition != NULL ? q->partition->total : q->args[0]->dims[1];
  if (w->rows == q->kept->rows && w->cols == total) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-WEIGHT",
                 "the weight is [%lld,%lld], the query needs [%lld,%lld]", (long long)w->rows,
                 (long long)w->cols, (long long)q->kept->rows, (long long)total);
}

int32_t cuda_packed24_make(const bs_op_impl *impl, void *opaque, const bs_exec *exec,
                           const bs_op_query *query, const bs_source *weights, void **out_packed,
                           uint64_t *out_bytes, bs_error *err) {
  cuda_state *state = opaque;
  const bs_host *host = state->host;
  int32_t rc = cuda_require(impl, state, query, err);
  if (rc == BS_OK) rc = check_source(query, weights, err);
  if (rc != BS_OK) return rc;
  cuda_packed24 *p = host->alloc(host->ctx, sizeof *p, 64);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a weight's record");
  p->values.state = state;
  p->values.exec = exec;
  p->values.dtype = query->weight_dtype;
  p->values.size = BS_DTYPE_BYTES(p->values.dtype);
  p->values.places = &p->places;
  const pull_job job = {p, weights, query->partition, query->kept};
  rc = cuda_places_make(exec, host, query->kept, &p->places, err);
  if (rc == BS_OK) {
    p->values.rows = p->places.rows;
    p->values.cols = 2 * p->places.groups;
    rc = cuda_packed_alloc(&p->values, out_bytes, err);
  }
  if (rc == BS_OK && p->values.data != NULL) rc = pull_values(p, host, &job, err);
  if (rc != BS_OK) {
    cuda_packed24_free(p);
    return rc;
  }
  *out_bytes += (uint64_t)(p->places.rows * p->places.groups);
  *out_packed = p;
  return BS_OK;
}

void cuda_packed24_free(void *opaque) {
  cuda_packed24 *p = opaque;
  if (p == NULL) return;
  cuda_places_free(&p->places);
  cuda_packed_free(&p->values); /* values are its first member, and free it */
}
