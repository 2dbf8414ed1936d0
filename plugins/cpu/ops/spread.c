/* SPDX-License-Identifier: MIT
 *
 * spread.c - see spread.h. */
#include "spread.h"

#include <math.h>

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
  if (keep == 0 && outer > 0) outer--; /* the line */
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
  } else {
    return state->host->convert(compute, out, dtype, in, (uint64_t)n);
  }
  return BS_OK;
}

static int is_integer(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8 || dtype == BS_I32 || dtype == BS_I64;
}

/* The low bits of 64-bit integers; towards zero what the host then rounds. */
static int32_t to_integers(const cpu_state *state, uint32_t dtype, void *out, uint32_t compute,
                           const void *in, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    if (compute == BS_I64) {
      const uint32_t word = (uint32_t)(uint64_t)((const int64_t *)in)[i];
      if (dtype == BS_I32)
        ((uint32_t *)out)[i] = word;
      else
        ((uint8_t *)out)[i] = (uint8_t)word;
      continue;
    }
    double whole;
    if (compute == BS_F32)
      whole = (double)truncf(((const float *)in)[i]);
    else
      whole = trunc(((const double *)in)[i]);
    const int32_t rc =
        state->host->convert(dtype, (uint8_t *)out + (size_t)i * BS_DTYPE_BYTES(dtype), BS_F64, &whole, 1);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

int32_t cpu_run_store(const cpu_state *state, uint32_t dtype, void *out, int64_t stride, uint32_t compute,
                      const void *in, int64_t n, void *buffer) {
  void *to = stride == 1 ? out : buffer;
  int32_t rc = BS_OK;
  if (dtype == compute)
    memcpy(to, in, (size_t)n * BS_DTYPE_BYTES(dtype));
  else if (compute == BS_F32 && cpu_type_index(dtype) > 0)
    state->kernels.store[cpu_type_index(dtype)](to, in, n);
  else if (is_integer(dtype))
    rc = to_integers(state, dtype, to, compute, in, n);
  else
    rc = state->host->convert(dtype, to, compute, in, (uint64_t)n);
  if (rc == BS_OK && stride != 1) scatter(BS_DTYPE_BYTES(dtype), out, stride, buffer, n);
  return rc;
}
