/* SPDX-License-Identifier: MIT
 *
 * matrix.c - see matrix.h.
 */
#include "matrix.h"

comm_matrix comm_in(const bs_coll_call *call, uint64_t first, uint64_t cols) {
  const char *data = (const char *)call->in + (call->in != NULL ? first * BS_DTYPE_BYTES(call->dtype_in) : 0);
  return (comm_matrix){(char *)(uintptr_t)data, call->in_stride, cols, call->dtype_in};
}

comm_matrix comm_out(const bs_coll_call *call, uint64_t first, uint64_t cols) {
  char *data = (char *)call->out + (call->out != NULL ? first * BS_DTYPE_BYTES(call->dtype_out) : 0);
  return (comm_matrix){data, call->out_stride, cols, call->dtype_out};
}

/* The address of element `at`; *out_run: how many of the n elements from there on lie without a gap. */
static char *run_at(const comm_matrix *m, uint64_t at, uint64_t n, uint64_t *out_run) {
  const uint64_t size = BS_DTYPE_BYTES(m->dtype);
  *out_run = n;
  if (m->stride == (int64_t)m->cols) return m->data + at * size;
  const uint64_t row = at / m->cols, col = at % m->cols;
  *out_run = comm_min(m->cols - col, n);
  return m->data + ((int64_t)row * m->stride + (int64_t)col) * (int64_t)size;
}

void comm_pack(const thr_world *math, const comm_matrix *from, uint64_t begin, uint64_t end, void *dense) {
  const uint64_t size = BS_DTYPE_BYTES(from->dtype);
  char *to = dense;
  for (uint64_t at = begin, n; at < end; at += n, to += n * size) {
    const char *run = run_at(from, at, end - at, &n);
    math->kernels.copy(to, run, n * size);
  }
}

int32_t comm_unpack(const thr_world *math, const comm_matrix *to, uint64_t begin, uint64_t end,
                    uint32_t src_dtype, const void *dense) {
  const char *from = dense;
  for (uint64_t at = begin, n; at < end; at += n, from += n * BS_DTYPE_BYTES(src_dtype)) {
    char *run = run_at(to, at, end - at, &n);
    const int32_t rc = thr_convert(math, to->dtype, run, src_dtype, from, n);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}
