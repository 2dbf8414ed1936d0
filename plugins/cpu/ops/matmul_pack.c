/* SPDX-License-Identifier: MIT
 *
 * matmul_pack.c - makes, updates and reads the packed weight of the "packed" matmul. Panels are pulled from
 * the source by the whole team: beside the packed weight there are 16 rows a member, never a dense
 * copy. */
#include <stdlib.h>

#include "../half.h"
#include "packed.h"
#include "pull.h"

/* Rows of a panel, each `K` elements, to column-major blocks. */
static void place_panel(const void *packed, int64_t panel, int64_t rows, const uint8_t *from) {
  const cpu_packed *w = packed;
  for (int64_t first = 0; first < w->K; first += CPU_K_BLOCK) {
    const int64_t length = w->K - first < CPU_K_BLOCK ? w->K - first : CPU_K_BLOCK;
    const int64_t all = cpu_packed_length(w, first);
    uint8_t *to = (uint8_t *)w->data + (size_t)cpu_packed_at(w, panel, first) * w->size;
    if (rows < CPU_PANEL || all != length) memset(to, 0, (size_t)(all * CPU_PANEL) * w->size);
    for (int64_t j = 0; j < rows; j++) {
      const int64_t row = j * w->K + first;
      if (w->size == 4)
        for (int64_t k = 0; k < length; k++)
          ((uint32_t *)(void *)to)[k * CPU_PANEL + j] = ((const uint32_t *)(const void *)from)[row + k];
      else
        for (int64_t k = 0; k < length; k++)
          ((uint16_t *)(void *)to)[cpu_packed_place(w, k, j)] =
              ((const uint16_t *)(const void *)from)[row + k];
    }
  }
}

static int32_t pack_all(cpu_packed *w, const bs_source *source, const bs_partition *partition,
                        bs_error *err) {
  const cpu_pull pull = {w->exec, source, partition, w->N, w->K, w->panels, w->dtype, place_panel, w};
  return cpu_pull_panels(&pull, err);
}

int32_t cpu_packed_make(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                        void **out_packed, uint64_t *out_bytes, bs_error *err) {
  uint64_t elements = 0, bytes = 0;
  if (!cpu_is_matmul_type(query->weight_dtype))
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-PACK", "no packed weights of dtype 0x%04x",
                   query->weight_dtype);
  cpu_packed *w = calloc(1, sizeof *w);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight");
  w->exec = exec;
  w->state = state;
  w->N = weights->rows;
  w->K = query->partition != NULL ? query->partition->count : weights->cols;
  w->panels = w->N / CPU_PANEL + (w->N % CPU_PANEL != 0);
  w->dtype = query->weight_dtype;
  w->size = BS_DTYPE_BYTES(w->dtype);
  if (w->panels > INT64_MAX / CPU_PANEL ||
      __builtin_mul_overflow((uint64_t)w->panels * CPU_PANEL, (uint64_t)w->K + 1, &elements) ||
      __builtin_mul_overflow(elements, (uint64_t)w->size, &bytes) || bytes > INT64_MAX) {
    free(w);
    return bs_fail(err, BS_OVERFLOW, "BS-CPU-SIZE", "a weight of %lld x %lld is more than can be addressed",
                   (long long)weights->rows, (long long)weights->cols);
  }
  const int64_t last = w->K - w->K % CPU_K_BLOCK;
  bytes = (uint64_t)((last + cpu_packed_length(w, last)) * w->panels * CPU_PANEL) * w->size;
  int32_t rc = BS_OK;
  if (bytes > 0) {
    w->data = exec->alloc(exec->ctx, bytes);
    if (w->data == NULL)
      rc = bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight of %llu bytes",
                   (unsigned long long)bytes);
    if (rc == BS_OK) rc = pack_all(w, weights, query->partition, err);
  }
  if (rc != BS_OK) {
    cpu_packed_free(w);
    return rc;
  }
  *out_packed = w;
  *out_bytes = bytes;
  return BS_OK;
}

void cpu_panel_narrow(const cpu_kernels *kernels, const cpu_packed *w, int64_t first, const float *wide,
                      uint16_t *narrow, void *to) {
  const int64_t length = cpu_packed_length(w, first);
  uint16_t *out = to;
  if (w->dtype == BS_F16) {
    kernels->store[cpu_type_index(w->dtype)](to, wide, length * CPU_PANEL);
    return;
  }
  kernels->store[cpu_type_index(w->dtype)](narrow, wide, length * CPU_PANEL);
  for (int64_t k = 0; k < length; k += 2)
    for (int64_t lane = 0; lane < CPU_PANEL; lane++) {
      out[(k * CPU_PANEL) + 2 * lane] = narrow[k * CPU_PANEL + lane];
      out[(k * CPU_PANEL) + 2 * lane + 1] = narrow[(k + 1) * CPU_PANEL + lane];
    }
}

void cpu_packed_free(void *packed) {
  cpu_packed *w = packed;
  if (w == NULL) return;
  if (w->data != NULL) w->exec->free(w->exec->ctx, w->data);
  free(w);
}

static void add_one(const cpu_packed *w, int64_t at, float delta) {
  if (w->dtype == BS_F32) {
    ((float *)w->data)[at] += delta;
    return;
  }
  uint16_t *p = (uint16_t *)w->data + at;
  *p = w->dtype == BS_BF16 ? cpu_bf16_store(cpu_bf16_load(*p) + delta)
                           : cpu_f16_store(cpu_f16_load(*p) + delta);
}

typedef struct update_job {
  const cpu_packed *packed;
  const bs_tensor *delta;
} update_job;

static void update_share(void *arg, uint32_t member, uint32_t width) {
  const update_job *job = arg;
  const cpu_packed *w = job->packed;
  const bs_tensor *delta = job->delta;
  const int64_t step = w->K > 1 ? delta->strides[1] : 1;
  int64_t begin, end;
  cpu_share(w->panels, member, width, &begin, &end);
  for (int64_t n = begin * CPU_PANEL; n < end * CPU_PANEL && n < w->N; n++) {
    const float *row = (const float *)delta->data + n * delta->strides[0];
    for (int64_t first = 0; first < w->K; first += CPU_K_BLOCK) {
      const int64_t at = cpu_packed_at(w, n / CPU_PANEL, first);
      for (int64_t k = first; k < w->K && k < first + CPU_K_BLOCK; k++)
        add_one(w, at + cpu_packed_place(w, k - first, n % CPU_PANEL), row[k * step]);
    }
  }
}

int32_t cpu_packed_update(void *packed, const bs_tensor *delta, bs_error *err) {
  const cpu_packed *w = packed;
  update_job job = {w, delta};
  if (delta->dtype != BS_F32 || delta->rank != 2 || delta->dims[0] != w->N || delta->dims[1] != w->K)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-UPDATE", "delta must be f32 [%lld,%lld]",
                   (long long)w->N, (long long)w->K);
  if (w->data == NULL) return BS_OK;
  return cpu_team(w->exec, 0, update_share, &job, err);
}

/* One row's part of a block, picked out of its panel and converted by the host's rule. */
static int32_t read_block(const cpu_packed *w, int64_t row, int64_t first, int64_t count, uint32_t dtype,
                          void *out) {
  union {
    uint32_t four[CPU_K_BLOCK];
    uint16_t two[CPU_K_BLOCK];
  } line;
  const int64_t at = cpu_packed_at(w, row / CPU_PANEL, first), lane = row % CPU_PANEL;
  for (int64_t k = 0; k < count; k++) {
    const int64_t place = at + cpu_packed_place(w, k, lane);
    if (w->size == 4)
      line.four[k] = ((const uint32_t *)w->data)[place];
    else
      line.two[k] = ((const uint16_t *)w->data)[place];
  }
  return w->state->host->convert(dtype, out, w->dtype, &line, (uint64_t)count);
}

int32_t cpu_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  const cpu_packed *w = packed;
  if (out->rank != 2 || out->dims[1] != w->K || row < 0 || out->dims[0] < 0 || row > w->N - out->dims[0] ||
      (w->K > 1 && out->strides[1] != 1))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-READ",
                   "rows %lld.. of a packed weight [%lld,%lld] need an out of as many columns, side by side",
                   (long long)row, (long long)w->N, (long long)w->K);
  const size_t size = BS_DTYPE_BYTES(out->dtype);
  for (int64_t i = 0; i < out->dims[0]; i++)
    for (int64_t first = 0; first < w->K; first += CPU_K_BLOCK) {
      const int64_t count = w->K - first < CPU_K_BLOCK ? w->K - first : CPU_K_BLOCK;
      uint8_t *to = (uint8_t *)out->data + (size_t)(i * out->strides[0] + first) * size;
      if (read_block(w, row + i, first, count, out->dtype, to) != BS_OK)
        return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-READ", "cannot read weights as dtype 0x%04x", out->dtype);
    }
  return BS_OK;
}
