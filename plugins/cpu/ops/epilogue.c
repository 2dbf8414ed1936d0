/* SPDX-License-Identifier: MIT
 *
 * epilogue.c - see epilogue.h. */
#include "epilogue.h"

static const void *at(const bs_tensor *tensor, int64_t index, uint32_t dtype) {
  return (const uint8_t *)tensor->data + (size_t)index * BS_DTYPE_BYTES(dtype);
}

/* n elements from `index` on as f32: where they lie, or widened into the buffer. */
static const float *as_f32(const cpu_kernels *kernels, float *buffer, const bs_tensor *from, int64_t index,
                           uint32_t dtype, int64_t n) {
  const void *data = at(from, index, dtype);
  if (dtype == BS_F32) return data;
  kernels->load[cpu_type_index(dtype)](buffer, data, n);
  return buffer;
}

/* Whole vectors of sums modulo 2^32; returns how many. The copies tell compilers that nothing overlaps. */
static int64_t add_vectors(int32_t *to, const int32_t *sums, const int32_t *bias, const int32_t *residual,
                           int64_t n) {
  enum { TOGETHER = 16 };
  int64_t i = 0;
  for (; i + TOGETHER <= n; i += TOGETHER) {
    uint32_t v[TOGETHER], more[TOGETHER];
    memcpy(v, sums + i, sizeof v);
    if (bias != NULL) {
      memcpy(more, bias + i, sizeof more);
      for (int j = 0; j < TOGETHER; j++) v[j] += more[j];
    }
    if (residual != NULL) {
      memcpy(more, residual + i, sizeof more);
      for (int j = 0; j < TOGETHER; j++) v[j] += more[j];
    }
    memcpy(to + i, v, sizeof v);
  }
  return i;
}

/* Adds in 64 bits and stores the low half in Y: the order of sums that wrap does not matter. */
static void finish_i32(const cpu_epilogue *e, int64_t token, int64_t n0, int64_t n, const int32_t *sums) {
  const int32_t *bias = e->bias != NULL ? at(e->bias, n0, BS_I32) : NULL, *residual = NULL;
  int32_t *to = (int32_t *)e->y->data + token * e->y->strides[0] + n0;
  if (e->residual != NULL) residual = at(e->residual, token * e->residual->strides[0] + n0, BS_I32);
  const int64_t done = e->shape->activation == BS_ACT_NONE ? add_vectors(to, sums, bias, residual, n) : 0;
  for (int64_t i = done; i < n; i++) {
    int64_t v = sums[i];
    if (bias != NULL) v += bias[i];
    if (e->shape->activation == BS_ACT_RELU && v < 0) v = 0;
    if (residual != NULL) v += residual[i];
    const uint32_t low = (uint32_t)(uint64_t)v;
    memcpy(to + i, &low, sizeof low);
  }
}

void cpu_finish(const cpu_epilogue *e, int64_t token, int64_t tokens, int64_t n0, int64_t n, float *c,
                int64_t ld, float *buffer) {
  const cpu_kernels *kernels = e->kernels;
  const cpu_matmul *shape = e->shape;
  if (shape->y_type == BS_I32) {
    for (int64_t t = 0; t < tokens; t++)
      finish_i32(e, token + t, n0, n, (const int32_t *)(const void *)(c + t * ld));
    return;
  }
  const float *bias = e->bias != NULL ? as_f32(kernels, buffer, e->bias, n0, shape->bias_type, n) : NULL;
  for (int64_t t = 0; t < tokens; t++) {
    float *v = c + t * ld;
    if (bias != NULL) kernels->add(v, bias, n);
    if (shape->activation != BS_ACT_NONE) kernels->activate[shape->activation](v, n);
    if (e->residual != NULL) {
      const int64_t from = (token + t) * e->residual->strides[0] + n0;
      kernels->add(v, as_f32(kernels, buffer + ld, e->residual, from, shape->r_type, n), n);
    }
    uint8_t *to =
        (uint8_t *)e->y->data + (size_t)((token + t) * e->y->strides[0] + n0) * BS_DTYPE_BYTES(shape->y_type);
    kernels->store[cpu_type_index(shape->y_type)](to, v, n);
  }
}
