/* SPDX-License-Identifier: MIT
 * matmul24_pack.c - the packed weight of matmul24: of each group of four columns the two that are kept, and a
 * code that says which. Positions come from the query's, never from the values: zeros, -0 and NaN are values
 * like others. Pulled by the members of the team, some rows at a time. */
#include "matmul24.h"

enum { PANEL_ROWS = 16 }; /* rows a source and the positions are asked for at a time */

typedef struct pack_job {
  const ref_positions *at;
  const bs_kept *kept;
  const bs_source *weights; /* NULL: positions alone */
  const bs_partition *partition;
  ref_packed *values;
  unsigned char *scratch; /* of all members */
  int64_t each, dense;    /* bytes of one member's; of its rows of weights, kept bytes follow */
  bs_error *errors;
} pack_job;

/* Two of four: bit pattern to code, 0xff for any other. */
static unsigned code_of(unsigned pattern) {
  static const unsigned char codes[16] = {0xff, 0xff, 0xff, 4,    0xff, 8,    9,    0xff,
                                          0xff, 12,   13,   0xff, 14,   0xff, 0xff, 0xff};
  return pattern < 16 ? codes[pattern] : 0xffu;
}

static int32_t put_codes(const pack_job *job, int64_t row, const unsigned char *kept, bs_error *err) {
  const ref_positions *at = job->at;
  unsigned char *codes = at->codes + row * at->stride;
  for (int64_t g = 0; g < at->groups; g++) {
    const unsigned code = code_of(kept[g]);
    if (code == 0xff)
      return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-KEPT",
                     "row %lld, columns %lld..: the positions keep 0x%02x, not two of four", (long long)row,
                     (long long)(4 * g), kept[g]);
    codes[g / 2] = (unsigned char)(g % 2 != 0 ? codes[g / 2] | code << 4 : code);
  }
  return BS_OK;
}

static void put_values(const pack_job *job, int64_t row, const unsigned char *dense) {
  const ref_packed *p = job->values;
  const int64_t size = p->size;
  unsigned char *to = p->data + row * p->cols * size;
  for (int64_t j = 0; j < p->cols; j++) {
    const int64_t k = ref_position(job->at, row, j);
    if (k < job->at->cols)
      memcpy(to + j * size, dense + k * size, (size_t)size);
    else
      memset(to + j * size, 0, (size_t)size);
  }
}

static int32_t pack_rows(const pack_job *job, int64_t row, int64_t n, unsigned char *scratch, bs_error *err) {
  const ref_positions *at = job->at;
  unsigned char *kept = scratch + job->dense;
  int32_t rc = job->kept->read(job->kept->ctx, row, n, 0, at->groups, kept, at->groups, err);
  if (rc == BS_OK && job->weights != NULL)
    rc = job->weights->read(job->weights->ctx, row, n, job->partition, job->values->dtype, scratch, at->cols,
                            err);
  for (int64_t i = 0; i < n && rc == BS_OK; i++) {
    rc = put_codes(job, row + i, kept + i * at->groups, err);
    if (rc == BS_OK && job->weights != NULL)
      put_values(job, row + i, scratch + i * at->cols * job->values->size);
  }
  return rc;
}

static void pack_body(void *arg, uint32_t member, uint32_t width) {
  const pack_job *job = arg;
  int64_t begin, end;
  ref_share(job->at->rows, member, width, &begin, &end);
  for (int64_t row = begin; row < end; row += PANEL_ROWS) {
    const int64_t n = end - row < PANEL_ROWS ? end - row : PANEL_ROWS;
    const int32_t rc = pack_rows(job, row, n, job->scratch + member * job->each, &job->errors[member]);
    if (rc == BS_OK) continue;
    job->errors[member].code = rc;
    return;
  }
}

static int32_t pull(const bs_host *host, const bs_exec *exec, pack_job *job, bs_error *err) {
  const uint32_t width = exec->width > 0 ? exec->width : 1;
  const ref_positions *at = job->at;
  job->dense = job->weights != NULL ? PANEL_ROWS * at->cols * (int64_t)job->values->size : 0;
  job->each = job->dense + PANEL_ROWS * at->groups;
  job->scratch = host->alloc(host->ctx, (uint64_t)(job->each * width + 1), 64);
  if (job->scratch == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for %d rows of %lld weights a thread",
                   PANEL_ROWS, (long long)at->cols);
  const int32_t rc = ref_team_errors(host, exec, pack_body, job, &job->errors, err);
  host->free(host->ctx, job->scratch);
  return rc;
}

static int32_t alloc_codes(const bs_host *host, const bs_kept *kept, ref_positions *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->host = host;
  out->rows = kept->rows;
  out->cols = kept->cols;
  out->groups = kept->cols / 4 + (kept->cols % 4 != 0);
  out->stride = (out->groups + 1) / 2;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow((uint64_t)out->rows, (uint64_t)out->stride, &bytes))
    return bs_fail(err, BS_OVERFLOW, "BS-REF-SIZE", "positions of [%lld,%lld] overflow", (long long)out->rows,
                   (long long)out->cols);
  out->codes = host->alloc(host->ctx, bytes + 1, 64);
  if (out->codes == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for %llu bytes of positions",
                   (unsigned long long)bytes);
  return BS_OK;
}

int32_t ref_positions_make(const bs_host *host, const bs_exec *exec, const bs_kept *kept,
                           ref_positions *out_positions, bs_error *err) {
  int32_t rc = alloc_codes(host, kept, out_positions, err);
  pack_job job = {.at = out_positions, .kept = kept};
  if (rc == BS_OK) rc = pull(host, exec, &job, err);
  if (rc != BS_OK) ref_positions_free(out_positions);
  return rc;
}

void ref_positions_free(ref_positions *positions) {
  if (positions->codes != NULL) positions->host->free(positions->host->ctx, positions->codes);
  positions->codes = NULL;
}

int ref_kept_ok(const bs_op_query *q, int64_t rows, int64_t cols, bs_op_answer *out_answer) {
  const bs_kept *k = q->kept;
  const bs_partition *p = q->partition;
  const int fits = k != NULL && k->rows == rows && k->cols == cols &&
                   (p == NULL || (p->kind == BS_PARTITION_CONTIGUOUS && p->begin % 4 == 0));
  if (!fits)
    ref_answer_no(out_answer, BS_REASON_SPARSITY, "needs positions of [%lld,%lld] and a run of whole groups",
                  (long long)rows, (long long)cols);
  return fits;
}

void ref_matmul24_packed_free(void *opaque) {
  ref_packed24 *p = opaque;
  if (p == NULL) return;
  ref_positions_free(&p->at);
  ref_matmul_packed_free(p); /* values are its first member, and free it */
}

static int32_t alloc_values(ref_packed24 *p, const bs_exec *exec, uint32_t dtype, uint64_t *out_bytes,
                            bs_error *err) {
  ref_packed *v = &p->values;
  uint64_t bytes = 0;
  v->exec = exec;
  v->dtype = dtype;
  v->size = BS_DTYPE_BYTES(dtype);
  v->rows = p->at.rows;
  v->cols = 2 * p->at.groups;
  if (__builtin_mul_overflow((uint64_t)v->rows, (uint64_t)v->cols, &bytes) ||
      __builtin_mul_overflow(bytes, (uint64_t)v->size, &bytes))
    return bs_fail(err, BS_OVERFLOW, "BS-REF-SIZE", "a weight of [%lld,%lld] overflows", (long long)v->rows,
                   (long long)v->cols);
  *out_bytes = bytes + (uint64_t)(p->at.rows * p->at.stride);
  if (bytes == 0) return BS_OK;
  v->data = exec->alloc(exec->ctx, bytes);
  if (v->data != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for %llu bytes of weights",
                 (unsigned long long)bytes);
}

int32_t ref_matmul24_pack(void *opaque, const bs_exec *exec, const bs_op_query *query,
                          const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err) {
  ref_state *state = opaque;
  const bs_host *host = state->host;
  int32_t rc = ref_require(&ref_matmul24, state, query, err);
  if (rc != BS_OK) return rc;
  const int64_t total = query->partition != NULL ? query->partition->total : query->args[0]->dims[1];
  if (weights->rows != query->kept->rows || weights->cols != total)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-WEIGHT",
                   "the weight is [%lld,%lld], the query needs [%lld,%lld]", (long long)weights->rows,
                   (long long)weights->cols, (long long)query->kept->rows, (long long)total);
  ref_packed24 *p = host->alloc(host->ctx, sizeof *p, 64);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a packed weight's record");
  p->values.host = host;
  p->values.at = &p->at;
  rc = alloc_codes(host, query->kept, &p->at, err);
  if (rc == BS_OK) rc = alloc_values(p, exec, query->weight_dtype, out_bytes, err);
  pack_job job = {.at = &p->at,
                  .kept = query->kept,
                  .weights = weights,
                  .partition = query->partition,
                  .values = &p->values};
  if (rc == BS_OK) rc = pull(host, exec, &job, err);
  if (rc != BS_OK) {
    ref_matmul24_packed_free(p);
    return rc;
  }
  *out_packed = p;
  return BS_OK;
}

/* Like matmul's, but the places beyond the last column stay zero. */
int32_t ref_matmul24_packed_update(void *opaque, const bs_tensor *delta, bs_error *err) {
  ref_packed24 *p = opaque;
  const int32_t rc = ref_matmul_packed_update(&p->values, delta, err);
  if (rc == BS_OK) ref_packed24_clear(&p->values);
  return rc;
}

void ref_packed24_clear(const ref_packed *v) {
  if (v->at->cols % 4 == 0) return;
  for (int64_t r = 0; r < v->rows && v->cols > 0; r++)
    for (int64_t j = v->cols - 2; j < v->cols; j++)
      if (ref_position(v->at, r, j) >= v->at->cols)
        memset(v->data + (r * v->cols + j) * (int64_t)v->size, 0, v->size);
}
