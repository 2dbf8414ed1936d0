/* SPDX-License-Identifier: MIT
 * common.c - helpers of ref's ops: answers, views, columns, and the two loops that move a piece of a row
 * between a strided matrix of any dtype and a dense buffer of another. All numbers go through
 * host->convert, so rounding is the host's. */
#include "../ref.h"

int32_t ref_answer_no(bs_op_answer *out_answer, uint32_t reason, const char *fmt, ...) {
  va_list ap;
  out_answer->level = BS_LEVEL_NO;
  out_answer->reason = reason;
  va_start(ap, fmt);
  vsnprintf(out_answer->text, sizeof out_answer->text, fmt, ap);
  va_end(ap);
  return BS_OK;
}

int32_t ref_answer_native(bs_op_answer *out_answer, uint32_t tolerance, uint64_t workspace,
                          const char *text) {
  out_answer->level = BS_LEVEL_NATIVE;
  out_answer->score = 100;
  out_answer->reason = BS_REASON_NONE;
  out_answer->tolerance = tolerance;
  out_answer->workspace = workspace;
  snprintf(out_answer->algo, sizeof out_answer->algo, "portable");
  snprintf(out_answer->text, sizeof out_answer->text, "%s", text);
  return BS_OK;
}

int32_t ref_require(const bs_op_impl *impl, void *state, const bs_op_query *query, bs_error *err) {
  bs_op_answer answer;
  memset(&answer, 0, sizeof answer);
  answer.struct_size = (uint32_t)sizeof answer;
  const int32_t rc = impl->supports(state, query, &answer);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-REF-QUERY", "%s: the query cannot be read", impl->op);
  if (answer.level != BS_LEVEL_NO) return BS_OK;
  return bs_fail(err, BS_UNSUPPORTED, "BS-REF-UNSUPPORTED", "%s@ref: %s", impl->op, answer.text);
}

int ref_is_float(uint32_t dtype) {
  return dtype == BS_F64 || dtype == BS_F32 || dtype == BS_F16 || dtype == BS_BF16 || dtype == BS_F8E4M3 ||
         dtype == BS_F8E5M2;
}

int ref_is_integer(uint32_t dtype) {
  return dtype == BS_I64 || dtype == BS_I32 || dtype == BS_I8 || dtype == BS_U8;
}

int ref_arg_ok(const bs_op_query *query, uint32_t i, uint32_t rank) {
  if (query->args == NULL || i >= query->nargs || query->args[i] == NULL) return 0;
  const bs_tensor_desc *d = query->args[i];
  if (d->rank != rank || !(ref_is_float(d->dtype) || ref_is_integer(d->dtype) || d->dtype == BS_BOOL))
    return 0;
  for (uint32_t j = 0; j < rank; j++)
    if (d->dims[j] < 0 || d->strides[j] < 0) return 0;
  return 1;
}

ref_view ref_view_of(const bs_tensor *tensor) {
  const int matrix = tensor->rank == 2;
  ref_view v = {.data = tensor->data,
                .dtype = tensor->dtype,
                .size = BS_DTYPE_BYTES(tensor->dtype),
                .rows = matrix ? tensor->dims[0] : 1,
                .cols = matrix ? tensor->dims[1] : tensor->dims[0],
                .row = matrix ? tensor->strides[0] : 0,
                .col = matrix ? tensor->strides[1] : tensor->strides[0]};
  return v;
}

int32_t ref_columns_copy(const bs_host *host, const bs_partition *partition, int64_t total,
                         ref_columns *out_columns, bs_error *err) {
  memset(out_columns, 0, sizeof *out_columns);
  out_columns->count = out_columns->total = total;
  if (partition == NULL) return BS_OK;
  out_columns->total = partition->total;
  out_columns->count = partition->count;
  out_columns->begin = partition->begin;
  if (partition->kind != BS_PARTITION_GATHER || partition->count == 0) return BS_OK;
  const uint64_t bytes = (uint64_t)partition->count * sizeof *partition->columns;
  out_columns->begin = 0;
  out_columns->columns = host->alloc(host->ctx, bytes, 64);
  if (out_columns->columns == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a list of %lld columns",
                   (long long)partition->count);
  memcpy(out_columns->columns, partition->columns, bytes);
  return BS_OK;
}

void ref_columns_free(const bs_host *host, ref_columns *columns) {
  if (columns->columns != NULL) host->free(host->ctx, columns->columns);
  columns->columns = NULL;
}

int64_t ref_column(const ref_columns *columns, int64_t i) {
  return columns->columns != NULL ? (int64_t)columns->columns[i] : columns->begin + i;
}

void ref_share(int64_t total, uint32_t member, uint32_t width, int64_t *out_begin, int64_t *out_end) {
  const int64_t each = total / width, rest = total % width;
  *out_begin = (int64_t)member * each + (member < rest ? (int64_t)member : rest);
  *out_end = *out_begin + each + (member < rest ? 1 : 0);
}

/* Elements are moved by size, never by type: a NaN's payload survives a copy. */
static void copy_element(unsigned char *dst, const unsigned char *src, uint32_t size) {
  switch (size) {
    case 1:
      *dst = *src;
      break;
    case 2:
      memcpy(dst, src, 2);
      break;
    case 4:
      memcpy(dst, src, 4);
      break;
    default:
      memcpy(dst, src, 8);
      break;
  }
}

static int32_t move(const bs_host *host, uint32_t dst_dtype, void *dst, uint32_t src_dtype, const void *src,
                    int64_t count) {
  if (dst_dtype != src_dtype) return host->convert(dst_dtype, dst, src_dtype, src, (uint64_t)count);
  memcpy(dst, src, (uint64_t)count * BS_DTYPE_BYTES(src_dtype));
  return BS_OK;
}

enum { CHUNK = 128 };

int32_t ref_load(const bs_host *host, const ref_view *v, int64_t r, const ref_columns *columns, int64_t first,
                 int64_t count, uint32_t out_dtype, void *out) {
  if (count <= 0) return BS_OK;
  const unsigned char *row = v->data + (uint64_t)(r * v->row) * v->size;
  if (columns == NULL || columns->columns == NULL) {
    const int64_t begin = (columns != NULL ? columns->begin : 0) + first;
    if (v->col == 1 || count == 1)
      return move(host, out_dtype, out, v->dtype, row + (uint64_t)(begin * v->col) * v->size, count);
  }
  _Alignas(64) unsigned char packed[CHUNK * 8];
  for (int64_t done = 0; done < count;) {
    const int64_t n = count - done < CHUNK ? count - done : CHUNK;
    for (int64_t i = 0; i < n; i++) {
      const int64_t c = columns != NULL ? ref_column(columns, first + done + i) : first + done + i;
      copy_element(packed + (uint64_t)i * v->size, row + (uint64_t)(c * v->col) * v->size, v->size);
    }
    const int32_t rc =
        move(host, out_dtype, (unsigned char *)out + (uint64_t)done * BS_DTYPE_BYTES(out_dtype), v->dtype,
             packed, n);
    if (rc != BS_OK) return rc;
    done += n;
  }
  return BS_OK;
}

int32_t ref_store(const bs_host *host, const ref_view *v, int64_t r, int64_t first, int64_t count,
                  uint32_t in_dtype, const void *in) {
  if (count <= 0) return BS_OK;
  unsigned char *row = v->data + (uint64_t)(r * v->row) * v->size;
  if (v->col == 1 || count == 1)
    return move(host, v->dtype, row + (uint64_t)(first * v->col) * v->size, in_dtype, in, count);
  _Alignas(64) unsigned char packed[CHUNK * 8];
  for (int64_t done = 0; done < count;) {
    const int64_t n = count - done < CHUNK ? count - done : CHUNK;
    const unsigned char *from = (const unsigned char *)in + (uint64_t)done * BS_DTYPE_BYTES(in_dtype);
    const int32_t rc = move(host, v->dtype, packed, in_dtype, from, n);
    if (rc != BS_OK) return rc;
    for (int64_t i = 0; i < n; i++)
      copy_element(row + (uint64_t)((first + done + i) * v->col) * v->size, packed + (uint64_t)i * v->size,
                   v->size);
    done += n;
  }
  return BS_OK;
}

static void rows_share(void *arg, uint32_t member, uint32_t width) {
  ref_rows *rows = arg;
  const int by_rows = rows->in.rows >= (int64_t)width;
  int64_t begin, end;
  ref_share(by_rows ? rows->in.rows : rows->in.cols, member, width, &begin, &end);
  if (begin == end) return;
  const int64_t first = by_rows ? begin : 0, last = by_rows ? end : rows->in.rows;
  for (int64_t r = first; r < last; r++) {
    const int32_t rc = rows->part(rows, r, by_rows ? 0 : begin, by_rows ? rows->in.cols : end);
    if (rc != BS_OK) __atomic_store_n(&rows->failed, rc, __ATOMIC_RELAXED);
  }
}

int32_t ref_rows_run(ref_rows *rows, const bs_exec *exec, bs_error *err) {
  if (rows->in.rows == 0 || rows->in.cols == 0) return BS_OK;
  const int32_t rc = exec->parallel_for(exec->ctx, rows_share, rows);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-REF-TEAM", "the rank's thread team failed");
  if (rows->failed != BS_OK)
    return bs_fail(err, rows->failed, "BS-REF-CONVERT", "the host does not convert dtype 0x%04x to 0x%04x",
                   rows->in.dtype, rows->out.dtype);
  return BS_OK;
}

int32_t ref_team_run(const bs_exec *exec, void (*body)(void *, uint32_t, uint32_t), void *job,
                     const int32_t *failed, bs_error *err) {
  const int32_t rc = exec->parallel_for(exec->ctx, body, job);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-REF-TEAM", "the rank's thread team failed");
  if (failed != NULL && *failed != BS_OK)
    return bs_fail(err, *failed, "BS-REF-CONVERT", "the host does not convert one of the dtypes");
  return BS_OK;
}

int32_t ref_team_errors(const bs_host *host, const bs_exec *exec, void (*body)(void *, uint32_t, uint32_t),
                        void *job, bs_error **job_errors, bs_error *err) {
  const uint32_t width = exec->width > 0 ? exec->width : 1;
  bs_error *errors = host->alloc(host->ctx, width * sizeof *errors, 64);
  if (errors == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for %u error records", width);
  for (uint32_t i = 0; i < width; i++) {
    errors[i].struct_size = (uint32_t)sizeof *errors;
    errors[i].rank = -1;
  }
  *job_errors = errors;
  int32_t rc = ref_team_run(exec, body, job, NULL, err);
  for (uint32_t i = 0; i < width && rc == BS_OK; i++) {
    rc = errors[i].code;
    if (rc != BS_OK && err != NULL) *err = errors[i];
  }
  host->free(host->ctx, errors);
  return rc;
}

int ref_workspace_fits(const bs_op_query *query, uint64_t bytes, bs_op_answer *out_answer) {
  if (query->workspace_limit == 0 || query->workspace_limit >= bytes) return 1;
  ref_answer_no(out_answer, BS_REASON_WORKSPACE, "needs %llu bytes of workspace, the limit is %llu",
                (unsigned long long)bytes, (unsigned long long)query->workspace_limit);
  return 0;
}

uint32_t ref_workspace_members(const bs_op_query *query, const bs_exec *exec, uint64_t bytes) {
  const uint32_t width = exec->width > 0 ? exec->width : 1;
  if (query->workspace_limit == 0 || width <= query->workspace_limit / bytes) return width;
  return (uint32_t)(query->workspace_limit / bytes);
}
