/* SPDX-License-Identifier: MIT
 *
 * matmul24_pack.c - makes, updates and reads the packed weight of matmul24. Positions come first (codes24.c);
 * then the whole team pulls panels from the source and keeps what they tell: beside the packed weight there
 * are 16 rows a member, never a dense copy. A value is moved by its size: zeros of both signs and NaN stay.
 */
#include <stdlib.h>

#include "../half.h"
#include "packed24.h"
#include "pull.h"

/* Where value j of output n lies. */
static uint8_t *value_at(const cpu_packed24 *w, int64_t n, int64_t j) {
  return cpu_unit_at(w, n / CPU_PANEL, j / CPU_UNIT_VALUES) +
         (j % CPU_UNIT_VALUES * CPU_PANEL + n % CPU_PANEL) * w->size;
}

static void place_row(const cpu_packed24 *w, int64_t n, const uint8_t *from) {
  for (int64_t j = 0; j < cpu_kept_length(w->K); j++) {
    const int64_t k = cpu_kept_column(w->codes, w->other, n, j);
    if (k < w->K) memcpy(value_at(w, n, j), from + k * w->size, w->size);
  }
}

static void place_panel(const void *packed, int64_t panel, int64_t rows, const uint8_t *from) {
  const cpu_packed24 *w = packed;
  for (int64_t u = 0; u < w->units; u++) memset(cpu_unit_at(w, panel, u), 0, (size_t)cpu_unit_bytes(w));
  for (int64_t i = 0; i < rows; i++) place_row(w, panel * CPU_PANEL + i, from + i * w->K * w->size);
}

static int32_t pack_all(cpu_packed24 *w, const bs_source *source, const bs_partition *partition,
                        bs_error *err) {
  const cpu_pull pull = {w->exec, source, partition, w->N, w->K, w->panels, w->dtype, place_panel, w};
  return cpu_pull_panels(&pull, err);
}

/* Its own bytes: those of the codes only where no other weight has them already. */
static int32_t make_values(cpu_packed24 *w, const bs_source *weights, const bs_partition *partition,
                           uint64_t *out_bytes, bs_error *err) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(w->codes->bytes / sizeof *w->codes->words, (uint64_t)CPU_UNIT_VALUES * w->size,
                             &bytes) ||
      bytes > INT64_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CPU-SIZE", "a weight of %lld x %lld is more than can be addressed",
                   (long long)w->N, (long long)w->K);
  *out_bytes = bytes + (w->codes->refs == 1 ? w->codes->bytes : 0);
  if (bytes == 0) return BS_OK;
  w->data = w->exec->alloc(w->exec->ctx, bytes);
  if (w->data != NULL) return pack_all(w, weights, partition, err);
  return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight of %llu bytes",
                 (unsigned long long)bytes);
}

int32_t cpu_packed24_make(void *opaque, const bs_exec *exec, const bs_op_query *query,
                          const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err) {
  if (cpu_type24(query->weight_dtype) < 0)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-PACK", "no packed weights of dtype 0x%04x",
                   query->weight_dtype);
  if (query->kept == NULL || query->kept->rows != weights->rows)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-KEPT",
                   "positions are not those of a weight of %lld rows", (long long)weights->rows);
  cpu_packed24 *w = calloc(1, sizeof *w);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight");
  w->weight.of24 = 1;
  w->exec = exec;
  w->state = opaque;
  w->N = weights->rows;
  w->K = query->kept->cols;
  w->dtype = query->weight_dtype;
  w->size = BS_DTYPE_BYTES(w->dtype);
  w->type = cpu_type24(w->dtype);
  int32_t rc = cpu_codes_take(w->state, exec, query->kept, &w->codes, &w->other, err);
  if (rc == BS_OK) {
    w->panels = w->codes->panels;
    w->units = w->codes->units;
    rc = make_values(w, weights, query->partition, out_bytes, err);
  }
  if (rc != BS_OK) {
    cpu_packed24_free(w);
    return rc;
  }
  *out_packed = w;
  return BS_OK;
}

void cpu_packed24_free(void *packed) {
  cpu_packed24 *w = packed;
  if (w == NULL) return;
  if (w->data != NULL) w->exec->free(w->exec->ctx, w->data);
  cpu_codes_drop(w->state, w->codes);
  free(w);
}

static void add_one(const cpu_packed24 *w, uint8_t *at, float delta) {
  if (w->dtype == BS_F32) {
    *(float *)(void *)at += delta;
    return;
  }
  uint16_t *p = (uint16_t *)(void *)at;
  *p = w->dtype == BS_BF16 ? cpu_bf16_store(cpu_bf16_load(*p) + delta)
                           : cpu_f16_store(cpu_f16_load(*p) + delta);
}

typedef struct update_job {
  const cpu_packed24 *packed;
  const bs_tensor *delta;
} update_job;

static void update_share(void *arg, uint32_t member, uint32_t width) {
  const update_job *job = arg;
  const cpu_packed24 *w = job->packed;
  const bs_tensor *delta = job->delta;
  int64_t begin, end;
  cpu_share(w->panels, member, width, &begin, &end);
  for (int64_t n = begin * CPU_PANEL; n < end * CPU_PANEL && n < w->N; n++) {
    const float *row = (const float *)delta->data + n * delta->strides[0];
    for (int64_t j = 0; j < cpu_kept_length(w->K); j++)
      if (cpu_kept_column(w->codes, w->other, n, j) < w->K)
        add_one(w, value_at(w, n, j), row[j * delta->strides[1]]);
  }
}

int32_t cpu_packed24_update(void *packed, const bs_tensor *delta, bs_error *err) {
  const cpu_packed24 *w = packed;
  update_job job = {w, delta};
  if (w->dtype == BS_I8)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-UPDATE", "integer weights are not updated");
  if (delta->dtype != BS_F32 || delta->rank != 2 || delta->dims[0] != w->N ||
      delta->dims[1] != cpu_kept_length(w->K))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-UPDATE", "delta must be f32 [%lld,%lld]",
                   (long long)w->N, (long long)cpu_kept_length(w->K));
  if (w->data == NULL) return BS_OK;
  return cpu_team(w->exec, 0, update_share, &job, err);
}

enum { LINE = 256 };

int32_t cpu_packed24_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  const cpu_packed24 *w = packed;
  const int64_t length = cpu_kept_length(w->K);
  _Alignas(8) uint8_t line[LINE * 4];
  if (out->rank != 2 || out->dims[1] != length || row < 0 || out->dims[0] < 0 || row > w->N - out->dims[0] ||
      (length > 1 && out->strides[1] != 1))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-READ",
                   "rows %lld.. of a packed weight [%lld,%lld] need an out of as many columns, side by side",
                   (long long)row, (long long)w->N, (long long)length);
  const size_t size = BS_DTYPE_BYTES(out->dtype);
  for (int64_t i = 0; i < out->dims[0]; i++)
    for (int64_t first = 0; first < length; first += LINE) {
      const int64_t count = length - first < LINE ? length - first : LINE;
      for (int64_t j = 0; j < count; j++)
        memcpy(line + j * w->size, value_at(w, row + i, first + j), w->size);
      uint8_t *to = (uint8_t *)out->data + (size_t)(i * out->strides[0] + first) * size;
      if (w->state->host->convert(out->dtype, to, w->dtype, line, (uint64_t)count) != BS_OK)
        return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-READ", "cannot read weights as dtype 0x%04x", out->dtype);
    }
  return BS_OK;
}
