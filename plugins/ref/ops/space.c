/* SPDX-License-Identifier: MIT
 * space.c - helpers of the ops of graphs, whose tensors have any rank: scratch, tensors laid over a space of
 * dims, lines of them, and independent items divided over the team. */
#include <math.h>

#include "../ref.h"

int32_t ref_scratch_reserve(ref_plan *plan, uint64_t bytes, bs_error *err) {
  const bs_exec *exec = plan->exec;
  int32_t rc = bytes >> 44 != 0 ? BS_NO_MEMORY : BS_OK; /* not even counted */
  if (rc == BS_OK) rc = exec->reserve(exec->ctx, bytes * exec->width);
  if (rc == BS_OK) return rc;
  return bs_fail(err, rc, "BS-REF-MEMORY", "no scratch of %llu bytes for each of %u threads",
                 (unsigned long long)bytes, exec->width);
}

void *ref_scratch(const ref_plan *plan) {
  return plan->exec->scratch(plan->exec->ctx);
}

int ref_args_known(const bs_op_query *query) {
  for (uint32_t i = 0; i < query->nargs; i++) {
    if (query->args[i] == NULL) continue;
    const uint32_t dtype = query->args[i]->dtype;
    if (!ref_is_float(dtype) && !ref_is_integer(dtype) && dtype != BS_BOOL) return 0;
  }
  return 1;
}

ref_spread ref_spread_of(const bs_tensor *tensor, uint32_t rank, const int64_t *dims) {
  ref_spread s = {.rank = rank};
  if (tensor == NULL) return s;
  s.data = tensor->data;
  s.dtype = tensor->dtype;
  s.size = BS_DTYPE_BYTES(tensor->dtype);
  const uint32_t missing = rank - tensor->rank;
  for (uint32_t i = 0; i < rank; i++) {
    s.dims[i] = dims[i];
    s.strides[i] = i < missing || tensor->dims[i - missing] == 1 ? 0 : tensor->strides[i - missing];
  }
  return s;
}

int64_t ref_elements(uint32_t rank, const int64_t *dims) {
  int64_t n = 1;
  for (uint32_t i = 0; i < rank; i++) n *= dims[i];
  return n;
}

int64_t ref_lines(uint32_t rank, const int64_t *dims) {
  return ref_elements(rank > 0 ? rank - 1 : 0, dims);
}

void ref_coordinates(int64_t i, uint32_t rank, const int64_t *dims, int64_t *out_at) {
  for (uint32_t d = rank; d-- > 0;) {
    out_at[d] = i % dims[d];
    i /= dims[d];
  }
}

unsigned char *ref_at(const ref_spread *s, const int64_t *at) {
  int64_t offset = 0;
  for (uint32_t d = 0; d < s->rank; d++) offset += at[d] * s->strides[d];
  return s->data + offset * (int64_t)s->size;
}

ref_view ref_line_along(const ref_spread *s, uint32_t axis, const int64_t *at) {
  ref_view v = {.dtype = s->dtype, .size = s->size, .rows = 1, .cols = 1};
  v.data = ref_at(s, at);
  if (s->rank > 0) {
    v.cols = s->dims[axis];
    v.col = s->strides[axis];
  }
  return v;
}

ref_view ref_line(const ref_spread *s, int64_t i) {
  int64_t at[BS_MAX_DIMS] = {0};
  const uint32_t last = s->rank > 0 ? s->rank - 1 : 0;
  ref_coordinates(i, last, s->dims, at);
  return ref_line_along(s, last, at);
}

/* ---- values of outputs ------------------------------------------------------------------------ */

enum { PIECE = 32 };

static void truncate_piece(uint32_t compute, int64_t n, const void *in, void *out) {
  if (compute == BS_F32) {
    const float *x = in;
    float *y = out;
    for (int64_t i = 0; i < n; i++) y[i] = truncf(x[i]);
  } else {
    const double *x = in;
    double *y = out;
    for (int64_t i = 0; i < n; i++) y[i] = trunc(x[i]);
  }
}

/* The low bits of 64-bit integers, as elements of `size` bytes. */
static void low_piece(uint32_t size, int64_t n, const int64_t *in, unsigned char *out) {
  for (int64_t i = 0; i < n; i++) {
    const uint32_t word = (uint32_t)(uint64_t)in[i];
    if (size == 1) {
      out[i] = (unsigned char)word;
    } else {
      memcpy(out + (size_t)i * size, &word, sizeof word);
    }
  }
}

int32_t ref_store_value(const bs_host *host, const ref_view *v, int64_t first, int64_t n, uint32_t compute,
                        const void *in) {
  if (!ref_is_integer(v->dtype) || compute == v->dtype) return ref_store(host, v, 0, first, n, compute, in);
  const unsigned char *from = in;
  int32_t rc = BS_OK;
  for (int64_t i = 0; rc == BS_OK && i < n; i += PIECE) {
    _Alignas(8) unsigned char piece[PIECE * 8];
    const int64_t m = n - i < PIECE ? n - i : PIECE;
    const void *values = from + (size_t)i * BS_DTYPE_BYTES(compute);
    if (compute == BS_I64)
      low_piece(v->size, m, values, piece);
    else
      truncate_piece(compute, m, values, piece);
    rc = ref_store(host, v, 0, first + i, m, compute == BS_I64 ? v->dtype : compute, piece);
  }
  return rc;
}

/* ---- items over the team ---------------------------------------------------------------------- */

static void items_share(void *arg, uint32_t member, uint32_t width) {
  ref_items *items = arg;
  int64_t begin, end;
  bs_error err;
  ref_share(items->count, member, width, &begin, &end);
  if (begin == end) return;
  memset(&err, 0, sizeof err);
  err.struct_size = (uint32_t)sizeof err;
  const int32_t rc = items->part(items, begin, end, member, &err);
  if (rc == BS_OK) return;
  __atomic_store_n(&items->failed, rc, __ATOMIC_RELAXED);
  if (err.message[0] == '\0' || items->err == NULL || __atomic_exchange_n(&items->told, 1, __ATOMIC_RELAXED))
    return;
  *items->err = err;
}

int32_t ref_items_run(ref_items *items, bs_error *err) {
  const bs_exec *exec = items->plan->exec;
  if (items->count == 0) return BS_OK;
  items->err = err;
  const int32_t rc = exec->parallel_for(exec->ctx, items_share, items);
  if (rc != BS_OK) return bs_fail(err, rc, "BS-REF-TEAM", "the rank's thread team failed");
  if (items->failed != BS_OK && !items->told)
    return bs_fail(err, items->failed, "BS-REF-CONVERT", "the host does not convert these dtypes");
  return items->failed;
}
