/* SPDX-License-Identifier: MIT
 *
 * packed.c - see packed.h. */
#include "packed.h"

#include <stdlib.h>

#include "../half.h"
#include "pull.h"

/* ---- made ----------------------------------------------------------------------------------- */

static uint32_t members_of(const bs_exec *exec) {
  return exec->width > 0 ? exec->width : 1;
}

bs_error *cpu_errors_make(const bs_exec *exec) {
  const uint32_t width = members_of(exec);
  bs_error *errors = calloc(width, sizeof *errors);
  for (uint32_t i = 0; errors != NULL && i < width; i++) errors[i].struct_size = (uint32_t)sizeof *errors;
  return errors;
}

int32_t cpu_team_errors(const bs_exec *exec, void (*body)(void *, uint32_t, uint32_t), void *arg,
                        const bs_error *errors, bs_error *err) {
  const int32_t rc = cpu_team(exec, 0, body, arg, err);
  for (uint32_t i = 0; rc == BS_OK && i < members_of(exec); i++) {
    if (errors[i].code == BS_OK) continue;
    if (err != NULL) *err = errors[i];
    return errors[i].code;
  }
  return rc;
}

typedef struct pull_job {
  cpu_packed *w;
  const bs_source *source;
  const bs_partition *partition;
  uint8_t *rows;       /* CPU_PANEL rows a member; NULL: rows lie in the weight as in the source */
  uint64_t rows_bytes; /* of one member */
  bs_error *errors;    /* one a member */
} pull_job;

static void pull_share(void *arg, uint32_t member, uint32_t width) {
  const pull_job *job = arg;
  const cpu_packed *w = job->w;
  int64_t begin, end;
  cpu_share(w->panels, member, width, &begin, &end);
  for (int64_t panel = begin; panel < end; panel++) {
    const int64_t first = panel * CPU_PANEL, count = w->N - first < CPU_PANEL ? w->N - first : CPU_PANEL;
    uint8_t *rows = job->rows != NULL ? job->rows + member * job->rows_bytes
                                      : (uint8_t *)w->data + (size_t)(first * w->K) * w->size;
    const int32_t rc = job->source->read(job->source->ctx, first, count, job->partition, w->dtype, rows, w->K,
                                         &job->errors[member]);
    if (rc != BS_OK) {
      job->errors[member].code = rc;
      return;
    }
    if (job->rows != NULL) w->kind->place(w, panel, count, rows);
  }
}

static int32_t pull(cpu_packed *w, const bs_source *source, const bs_partition *partition, bs_error *err) {
  const bs_exec *exec = w->exec;
  const int in_place = w->kind->place == NULL;
  pull_job job = {w, source, partition, NULL, (uint64_t)w->K * CPU_PANEL * w->size, cpu_errors_make(exec)};
  int32_t rc = BS_NO_MEMORY;
  if (!in_place) job.rows = exec->alloc(exec->ctx, job.rows_bytes * members_of(exec));
  if (job.errors == NULL || (!in_place && job.rows == NULL))
    bs_fail(err, rc, "BS-CPU-MEMORY", "no memory for %d rows of %lld weights a thread", CPU_PANEL,
            (long long)w->K);
  else
    rc = cpu_team_errors(exec, pull_share, &job, job.errors, err);
  if (job.rows != NULL) exec->free(exec->ctx, job.rows);
  free(job.errors);
  return rc;
}

int32_t cpu_packed_begin(const cpu_packed_kind *kind, cpu_state *state, const bs_exec *exec,
                         const bs_op_query *query, const bs_source *weights, cpu_packed **out_packed,
                         bs_error *err) {
  cpu_packed *w = calloc(1, sizeof *w);
  if (w == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight");
  w->kind = kind;
  w->exec = exec;
  w->state = state;
  w->N = weights->rows;
  w->K = w->length = query->partition != NULL ? query->partition->count : weights->cols;
  w->panels = w->N / CPU_PANEL + (w->N % CPU_PANEL != 0);
  w->dtype = query->weight_dtype;
  w->size = BS_DTYPE_BYTES(w->dtype);
  w->type = cpu_type24(w->dtype);
  w->second_first = w->dtype == BS_BF16 && state->kernels.bf16_swap != NULL;
  *out_packed = w;
  return BS_OK;
}

static int32_t fill(cpu_packed *w, int64_t rows, int64_t columns, const bs_source *weights,
                    const bs_partition *partition, uint64_t *out_bytes, bs_error *err) {
  uint64_t bytes = 0;
  if (w->panels > INT64_MAX / CPU_PANEL ||
      __builtin_mul_overflow((uint64_t)rows, (uint64_t)columns, &bytes) ||
      __builtin_mul_overflow(bytes, (uint64_t)w->size, &bytes) || bytes > INT64_MAX)
    return bs_fail(err, BS_OVERFLOW, "BS-CPU-SIZE", "a weight of %lld x %lld is more than can be addressed",
                   (long long)w->N, (long long)w->K);
  *out_bytes = bytes;
  if (bytes == 0) return BS_OK;
  w->data = w->exec->alloc(w->exec->ctx, bytes);
  if (w->data != NULL) return pull(w, weights, partition, err);
  return bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for a packed weight of %llu bytes",
                 (unsigned long long)bytes);
}

int32_t cpu_packed_fill(cpu_packed *w, int64_t rows, int64_t columns, const bs_source *weights,
                        const bs_partition *partition, void **out_packed, uint64_t *out_bytes,
                        bs_error *err) {
  const int32_t rc = fill(w, rows, columns, weights, partition, out_bytes, err);
  if (rc == BS_OK)
    *out_packed = w;
  else
    cpu_packed_free(w);
  return rc;
}

void cpu_packed_free(void *packed) {
  cpu_packed *w = packed;
  if (w == NULL) return;
  if (w->data != NULL) w->exec->free(w->exec->ctx, w->data);
  cpu_codes_drop(w->state, w->codes);
  free(w);
}

/* ---- ranges of bf16 ------------------------------------------------------------------------- */

void cpu_range_begin(cpu_bf16_range *out) {
  memset(out->least, 0xff, sizeof out->least);
  memset(out->most, 0, sizeof out->most);
}

uint32_t cpu_range_of(const cpu_bf16_range *seen) {
  uint32_t least = 0xffff, most = 0;
  for (int i = 0; i < 32; i++) {
    if (seen->least[i] < least) least = seen->least[i];
    if (seen->most[i] > most) most = seen->most[i];
  }
  return (most >> 7) << 16 | (least + 1) >> 7;
}

int cpu_ranges_exact(uint32_t x, uint32_t w) {
  enum { MANTISSA = 7, BIAS = 127 };
  const uint32_t least = (x & 0xffff) + (w & 0xffff), most = (x >> 16) + (w >> 16);
  const uint32_t normal = (x & 0xffff) > 0 && (w & 0xffff) > 0;
  /* Each number is a multiple of 2^(exponent - BIAS - MANTISSA), so each sum is one of 2^-126. */
  return normal && least >= 2 * (BIAS + MANTISSA) - (BIAS - 1) && most <= 3 * BIAS - 2;
}

void cpu_packed_changes(cpu_packed *w) {
  if (w != NULL) atomic_store_explicit(&w->range, CPU_RANGE_CHANGES, memory_order_relaxed);
}

uint32_t cpu_packed_range(cpu_packed *w) {
  cpu_bf16_range seen;
  if (atomic_load_explicit(&w->range, memory_order_relaxed) == 0 && w->dtype == BS_BF16 &&
      w->state->kernels.bf16_swap != NULL) {
    cpu_range_begin(&seen);
    const int64_t words = w->K > 0 ? cpu_packed_at(w, 0, w->K - w->K % CPU_K_BLOCK) : 0;
    const int64_t rest = w->K % CPU_K_BLOCK;
    const int64_t all = words + (rest + rest % 2) * w->panels * CPU_PANEL;
    w->state->kernels.bf16_swap(NULL, w->data, all, &seen);
    atomic_store_explicit(&w->range, cpu_range_of(&seen), memory_order_relaxed);
  }
  return cpu_packed_range_now(w);
}

/* ---- used ----------------------------------------------------------------------------------- */

int32_t cpu_packed_check(const cpu_packed *w, int64_t N, int64_t K, uint32_t dtype, bs_error *err) {
  if (w != NULL && w->N == N && w->K == K && w->dtype == dtype) return BS_OK;
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-PACKED", "[%lld,%lld] asked of another packed weight",
                 (long long)N, (long long)K);
}

typedef union line {
  float f32[CPU_K_BLOCK];
  uint16_t half[CPU_K_BLOCK];
  uint8_t bytes[CPU_K_BLOCK * sizeof(float)];
} line;

static void add_line(uint32_t dtype, line *to, const float *delta, int64_t step, int64_t count) {
  if (dtype == BS_F32)
    for (int64_t k = 0; k < count; k++) to->f32[k] += delta[k * step];
  else if (dtype == BS_BF16)
    for (int64_t k = 0; k < count; k++)
      to->half[k] = cpu_bf16_store(cpu_bf16_load(to->half[k]) + delta[k * step]);
  else
    for (int64_t k = 0; k < count; k++)
      to->half[k] = cpu_f16_store(cpu_f16_load(to->half[k]) + delta[k * step]);
}

typedef struct update_job {
  const cpu_packed *w;
  const bs_tensor *delta;
} update_job;

static void update_share(void *arg, uint32_t member, uint32_t width) {
  const update_job *job = arg;
  const cpu_packed *w = job->w;
  const int64_t step = w->length > 1 ? job->delta->strides[1] : 1;
  int64_t begin, end;
  line values;
  cpu_share(w->panels, member, width, &begin, &end);
  for (int64_t n = begin * CPU_PANEL; n < end * CPU_PANEL && n < w->N; n++) {
    const float *row = (const float *)job->delta->data + n * job->delta->strides[0];
    for (int64_t first = 0; first < w->length; first += CPU_K_BLOCK) {
      const int64_t count = w->length - first < CPU_K_BLOCK ? w->length - first : CPU_K_BLOCK;
      w->kind->line(w, n, first, count, values.bytes, 0);
      add_line(w->dtype, &values, row + first * step, step, count);
      w->kind->line(w, n, first, count, values.bytes, 1);
    }
  }
}

int32_t cpu_packed_update(void *packed, const bs_tensor *delta, bs_error *err) {
  cpu_packed *w = packed;
  update_job job = {w, delta};
  if (w->dtype == BS_I8)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-UPDATE", "integer weights are not updated");
  if (delta->dtype != BS_F32 || delta->rank != 2 || delta->dims[0] != w->N || delta->dims[1] != w->length)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-UPDATE", "delta must be f32 [%lld,%lld]",
                   (long long)w->N, (long long)w->length);
  if (w->data == NULL) return BS_OK;
  cpu_packed_changes(w);
  return cpu_team(w->exec, 0, update_share, &job, err);
}

int32_t cpu_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err) {
  const cpu_packed *w = packed;
  line values;
  if (out->rank != 2 || out->dims[1] != w->length || row < 0 || out->dims[0] < 0 ||
      row > w->N - out->dims[0] || (w->length > 1 && out->strides[1] != 1))
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-READ",
                   "rows %lld.. of a packed weight [%lld,%lld] need an out of as many columns, side by side",
                   (long long)row, (long long)w->N, (long long)w->length);
  const size_t size = BS_DTYPE_BYTES(out->dtype);
  for (int64_t i = 0; i < out->dims[0]; i++)
    for (int64_t first = 0; first < w->length; first += CPU_K_BLOCK) {
      const int64_t count = w->length - first < CPU_K_BLOCK ? w->length - first : CPU_K_BLOCK;
      uint8_t *to = (uint8_t *)out->data + (size_t)(i * out->strides[0] + first) * size;
      w->kind->line(w, row + i, first, count, values.bytes, 0);
      if (w->state->host->convert(out->dtype, to, w->dtype, &values, (uint64_t)count) != BS_OK)
        return bs_fail(err, BS_UNSUPPORTED, "BS-CPU-READ", "cannot read weights as dtype 0x%04x", out->dtype);
    }
  return BS_OK;
}
