/* SPDX-License-Identifier: MIT
 *
 * spread.c - see spread.h. */
#include "spread.h"

#include <math.h>

#include "integers.h"

#define SHORT 16 /* elements of which no line is made where the last dim does */

/* ---- the space ------------------------------------------------------------------------------ */

/* Can dimension d be merged with the next one, which is the last of the result so far? */
static int joins(const cpu_spread *s, uint32_t d, const bs_tensor *like, bs_tensor *const *args,
                 uint32_t nargs) {
  for (uint32_t i = 0; i < nargs; i++) {
    if (args[i] == NULL) continue;
    const uint32_t missing = like->rank - args[i]->rank;
    const int64_t stride = d < missing || args[i]->dims[d - missing] == 1 ? 0 : args[i]->strides[d - missing];
    if (stride != s->args[i].strides[0] * s->dims[0]) return 0;
  }
  return 1;
}

static void put_first(cpu_spread *s, uint32_t d, const bs_tensor *like, bs_tensor *const *args,
                      uint32_t nargs) {
  memmove(s->dims + 1, s->dims, s->rank * sizeof *s->dims);
  s->dims[0] = like->dims[d];
  for (uint32_t i = 0; i < nargs; i++) {
    cpu_view_of_space *v = &s->args[i];
    if (args[i] == NULL) continue;
    const uint32_t missing = like->rank - args[i]->rank;
    memmove(v->strides + 1, v->strides, s->rank * sizeof *v->strides);
    v->strides[0] = d < missing || args[i]->dims[d - missing] == 1 ? 0 : args[i]->strides[d - missing];
  }
  s->rank++;
}

/* The dims of `like` that are larger than 1 or kept, in the order of the loops. Dims outside the line are
 * sorted by the strides of `like`, so that successive lines are adjacent in memory if the tensor is a
 * transposed view. */
static uint32_t walk_order(const bs_tensor *like, uint32_t keep, uint32_t *out_order) {
  uint32_t n = 0, outer = 0;
  for (uint32_t d = 0; d < like->rank; d++) {
    if (like->rank - d > keep && like->dims[d] == 1) continue;
    out_order[n++] = d;
    if (like->rank - d > keep) outer = n;
  }
  if (keep == 0 && outer > 0) outer--; /* the line: the last dim, or a longer one whose elements adjoin */
  for (uint32_t i = 0; keep == 0 && i < outer && like->strides[out_order[outer]] != 1; i++) {
    const uint32_t d = out_order[i];
    if (like->strides[d] != 1 || like->dims[d] < SHORT) continue;
    out_order[i] = out_order[outer];
    out_order[outer] = d;
  }
  for (uint32_t i = 1; i < outer; i++)
    for (uint32_t k = i; k > 0 && like->strides[out_order[k - 1]] < like->strides[out_order[k]]; k--) {
      const uint32_t d = out_order[k];
      out_order[k] = out_order[k - 1];
      out_order[k - 1] = d;
    }
  return n;
}

void cpu_spread_make(cpu_spread *s, bs_tensor *const *args, uint32_t nargs, const bs_tensor *like,
                     uint32_t keep) {
  uint32_t order[BS_MAX_DIMS];
  s->rank = 0;
  s->nargs = nargs;
  for (uint32_t i = 0; i < nargs; i++) {
    s->args[i].data = args[i] != NULL ? args[i]->data : NULL;
    s->args[i].dtype = args[i] != NULL ? args[i]->dtype : 0;
    s->args[i].size = BS_DTYPE_BYTES(s->args[i].dtype);
    memset(s->args[i].strides, 0, sizeof s->args[i].strides);
  }
  for (uint32_t k = walk_order(like, keep, order); k-- > 0;) {
    const uint32_t d = order[k];
    if (like->rank - d > keep && s->rank > keep && joins(s, d, like, args, nargs))
      s->dims[0] *= like->dims[d];
    else
      put_first(s, d, like, args, nargs);
  }
  if (s->rank == 0) {
    s->rank = 1;
    s->dims[0] = 1;
  }
  s->lines = 1;
  for (uint32_t d = 0; d + 1 < s->rank; d++) s->lines *= s->dims[d];
}

uint8_t *cpu_spread_line(const cpu_spread *s, uint32_t i, int64_t line) {
  const cpu_view_of_space *v = &s->args[i];
  int64_t offset = 0;
  for (uint32_t d = s->rank - 1; d-- > 0 && line > 0;) {
    offset += line % s->dims[d] * v->strides[d];
    line /= s->dims[d];
  }
  return v->data + offset * (int64_t)v->size;
}

/* ---- runs ----------------------------------------------------------------------------------- */

static void gather(uint32_t size, void *out, const void *in, int64_t stride, int64_t n) {
  const uint8_t *from = in;
  uint8_t *to = out;
  for (int64_t i = 0; i < n; i++, to += size, from += stride * (int64_t)size) {
    if (size == 4) {
      memcpy(to, from, 4);
    } else if (size == 8) {
      memcpy(to, from, 8);
    } else if (size == 2) {
      memcpy(to, from, 2);
    } else {
      *to = *from;
    }
  }
}

static void scatter(uint32_t size, void *out, int64_t stride, const void *in, int64_t n) {
  const uint8_t *from = in;
  uint8_t *to = out;
  for (int64_t i = 0; i < n; i++, from += size, to += stride * (int64_t)size) {
    if (size == 4) {
      memcpy(to, from, 4);
    } else if (size == 8) {
      memcpy(to, from, 8);
    } else if (size == 2) {
      memcpy(to, from, 2);
    } else {
      *to = *from;
    }
  }
}

/* Integers of at most 32 bits as doubles. */
static void from_integers(double *out, uint32_t dtype, const void *in, int64_t n) {
  enum { PIECE = 64 };
  for (int64_t i = 0; i < n; i += PIECE) {
    int64_t whole[PIECE];
    const int64_t m = n - i < PIECE ? n - i : PIECE;
    cpu_integers_load(dtype, (const uint8_t *)in + (size_t)i * BS_DTYPE_BYTES(dtype), 1, m, whole);
    for (int64_t k = 0; k < m; k++) out[i + k] = (double)(int32_t)whole[k];
  }
}

int32_t cpu_run_load(const cpu_state *state, uint32_t compute, void *out, uint32_t dtype, const void *in,
                     int64_t stride, int64_t n, void *buffer) {
  if (stride != 1) {
    gather(BS_DTYPE_BYTES(dtype), dtype == compute ? out : buffer, in, stride, n);
    if (dtype == compute) return BS_OK;
    in = buffer;
  }
  if (dtype == compute) {
    memcpy(out, in, (size_t)n * BS_DTYPE_BYTES(dtype));
  } else if (compute == BS_F32 && cpu_type_index(dtype) > 0) {
    state->kernels.load[cpu_type_index(dtype)](out, in, n);
  } else if (compute == BS_I64 && cpu_whole_index(dtype) >= 0) {
    state->kernels.i64_load[cpu_whole_index(dtype)](out, in, n);
  } else if (cpu_is_integer(dtype) && compute == BS_I64) {
    cpu_integers_load(dtype, in, 1, n, out);
  } else if (compute == BS_F32 && cpu_whole_index(dtype) >= 0) {
    state->kernels.load_whole[cpu_whole_index(dtype)](out, in, n);
  } else if (compute == BS_F64 && dtype == BS_F32) {
    state->kernels.f64_of_f32(out, in, n);
  } else if (compute == BS_F64 && dtype == BS_I32) {
    state->kernels.f64_of_i32(out, in, n);
  } else if (cpu_is_integer(dtype) && dtype != BS_I64) {
    from_integers(out, dtype, in, n);
  } else {
    return state->host->convert(compute, out, dtype, in, (uint64_t)n);
  }
  return BS_OK;
}

/* Whole numbers towards zero, not beyond the ends of the dtype (of i64 the host does that); NaN becomes 0. */
static int32_t to_integers(const cpu_state *state, uint32_t dtype, void *out, uint32_t compute,
                           const void *in, int64_t n) {
  enum { PIECE = 64 };
  const double least = dtype == BS_I32 ? INT32_MIN : dtype == BS_I8 ? INT8_MIN : 0;
  const double most = dtype == BS_I32 ? INT32_MAX : dtype == BS_I8 ? INT8_MAX : UINT8_MAX;
  int32_t rc = BS_OK;
  for (int64_t i = 0; i < n && rc == BS_OK; i += PIECE) {
    double v[PIECE];
    int64_t whole[PIECE];
    const int64_t m = n - i < PIECE ? n - i : PIECE;
    if (compute == BS_F64)
      memcpy(v, (const double *)in + i, (size_t)m * sizeof *v);
    else
      for (int64_t k = 0; k < m; k++) v[k] = (double)((const float *)in)[i + k];
    uint8_t *to = (uint8_t *)out + (size_t)i * BS_DTYPE_BYTES(dtype);
    if (dtype == BS_I64) {
      for (int64_t k = 0; k < m; k++) v[k] = trunc(v[k]);
      rc = state->host->convert(dtype, to, BS_F64, v, (uint64_t)m);
      continue;
    }
    for (int64_t k = 0; k < m; k++) {
      const double low = v[k] > least ? v[k] : least, held = low < most ? low : most;
      whole[k] = v[k] == v[k] ? (int64_t)held : 0;
    }
    cpu_integers_store(dtype, to, 1, m, whole);
  }
  return rc;
}

int32_t cpu_run_store(const cpu_state *state, uint32_t dtype, void *out, int64_t stride, uint32_t compute,
                      const void *in, int64_t n, void *buffer) {
  void *to = stride == 1 ? out : buffer;
  int32_t rc = BS_OK;
  if (dtype == compute)
    memcpy(to, in, (size_t)n * BS_DTYPE_BYTES(dtype));
  else if (compute == BS_F32 && cpu_type_index(dtype) > 0)
    state->kernels.store[cpu_type_index(dtype)](to, in, n);
  else if (compute == BS_F64 && dtype == BS_F32)
    state->kernels.f32_of_f64(to, in, n);
  else if (compute == BS_F32 && cpu_whole_index(dtype) >= 0)
    state->kernels.store_whole[cpu_whole_index(dtype)](to, in, n);
  else if (compute == BS_I64 && cpu_whole_index(dtype) >= 0)
    state->kernels.i64_store[cpu_whole_index(dtype)](to, in, n);
  else if (cpu_is_integer(dtype) && compute == BS_I64)
    cpu_integers_store(dtype, to, 1, n, in);
  else if (cpu_is_integer(dtype))
    rc = to_integers(state, dtype, to, compute, in, n);
  else
    rc = state->host->convert(dtype, to, compute, in, (uint64_t)n);
  if (rc == BS_OK && stride != 1) scatter(BS_DTYPE_BYTES(dtype), out, stride, buffer, n);
  return rc;
}
