/* SPDX-License-Identifier: MIT
 *
 * matmul_bytes_pack.c - makes and reads the packed weight of the "bytes" matmul, 16 rows a member of the team
 * at a time. */
#include <stdlib.h>

#include "packed_bytes.h"
#include "pull.h"

static void place_panel(const void *packed, int64_t panel, int64_t rows, const uint8_t *bytes) {
  const cpu_packed_bytes *w = packed;
  const int8_t *from = (const int8_t *)bytes;
  int8_t *to = w->data + cpu_bytes_at(w, panel, 0);
  memset(to, 0, (size_t)(w->pairs * 2 * CPU_PANEL));
  for (int64_t j = 0; j < rows; j++)
    for (int64_t k = 0; k < w->K; k++) to[(k / 2 * CPU_PANEL + j) * 2 + k % 2] = from[j * w->K + k];
}

static int32_t pack_all(cpu_packed_bytes *w, const bs_source *source, const bs_partition *partition,
                        bs_error *err) {
  const cpu_pull pull = {w->exec, source, partition, w->N, w->K, w->panels, BS_I8, place_panel, w};
  return cpu_pull_panels(&pull, err);
}

int32_t cpu_packed_bytes_make(void *state, const bs_exec *exec, const bs_op_query *query,
                              const bs_source *weights, void **out_packed, uint64_t *out_bytes,
                              bs_error *err) {
  uint64_t bytes = 0;
  if (query->weight_dtype != BS_I8)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-PACK", "packed bytes of dtype 0x%04x", query->weight_dtype);
  cpu_packed_bytes *w = calloc(1, sizeof *w);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight");
  w->exec = exec;
  w->state = state;
  w->N = weights->rows;
  w->K = query->partition != NULL ? query->partition->count : weights->cols;
  w->panels = w->N / CPU_PANEL + (w->N % CPU_PANEL != 0);
  w->pairs = w->K / 2 + w->K % 2;
  int32_t rc = BS_OK;
  if (__builtin_mul_overflow((uint64_t)w->panels * 2 * CPU_PANEL, (uint64_t)w->pairs, &bytes) ||
      bytes > INT64_MAX)
    rc = bs_fail(err, BS_OVERFLOW, "BS-CPU-SIZE", "a weight of %lld x %lld is more than can be addressed",
                 (long long)w->N, (long long)w->K);
  if (rc == BS_OK && bytes > 0) {
    w->data = exec->alloc(exec->ctx, bytes);
    if (w->data == NULL)
      rc = bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight of %llu bytes",
                   (unsigned long long)bytes);
    if (rc == BS_OK) rc = pack_all(w, weights, query->partition, err);
  }
  if (rc != BS_OK) {
    cpu_packed_bytes_free(w);
    return rc;
  }
  *out_packed = w;
  *out_bytes = bytes;
  return BS_OK;
}

void cpu_packed_bytes_free(void *packed) {
  cpu_packed_bytes *w = packed;
  if (w == NULL) return;
  if (w->data != NULL) w->exec->free(w->exec->ctx, w->data);
  free(w);
}

int32_t cpu_packed_bytes_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  const cpu_packed_bytes *w = packed;
  int8_t line[CPU_K_BLOCK];
  if (out->rank != 2 || out->dims[1] != w->K || row < 0 || out->dims[0] < 0 || row > w->N - out->dims[0] ||
      (w->K > 1 && out->strides[1] != 1))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-READ",
                   "rows %lld.. of a packed weight [%lld,%lld] need an out of as many columns, side by side",
                   (long long)row, (long long)w->N, (long long)w->K);
  const size_t size = BS_DTYPE_BYTES(out->dtype);
  for (int64_t i = 0; i < out->dims[0]; i++)
    for (int64_t first = 0; first < w->K; first += CPU_K_BLOCK) {
      const int64_t count = w->K - first < CPU_K_BLOCK ? w->K - first : CPU_K_BLOCK,
                    lane = (row + i) % CPU_PANEL;
      for (int64_t k = first; k < first + count; k++)
        line[k - first] = w->data[cpu_bytes_at(w, (row + i) / CPU_PANEL, k / 2) + lane * 2 + k % 2];
      uint8_t *to = (uint8_t *)out->data + (size_t)(i * out->strides[0] + first) * size;
      if (w->state->host->convert(out->dtype, to, BS_I8, line, (uint64_t)count) != BS_OK)
        return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-READ", "cannot read weights as dtype 0x%04x", out->dtype);
    }
  return BS_OK;
}
