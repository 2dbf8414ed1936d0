/* SPDX-License-Identifier: MIT
 * source.c - source_read: X, biases and targets that are generated are made on the device. */
#include "inner.h"
#include "ops/generate.h"

static void *take(void *device, uint64_t bytes) {
  void *ptr = NULL;
  return cuda_mem_alloc(device, bytes, 64, &ptr, NULL) == BS_OK ? ptr : NULL;
}

int32_t cuda_source_read(void *opaque, const bs_source *source, int64_t row, const bs_partition *cols,
                         bs_tensor *out, bs_error *err) {
  cuda_device *device = opaque;
  const bs_exec exec = {.struct_size = (uint32_t)sizeof exec,
                        .device = device,
                        .ctx = device,
                        .alloc = take,
                        .free = cuda_mem_free};
  const cuda_view view = cuda_view_of(out);
  cuda_columns columns;
  if (!cuda_generates(source, row, view.rows, cols)) return BS_UNSUPPORTED;
  int32_t rc = cuda_columns_make(&exec, device->state->host, cols, source->cols, &columns, err);
  if (rc != BS_OK) return rc;
  rc = cuda_generate(device, source, row, &columns, NULL, &view, device->stream, err);
  cuda_columns_free(&exec, &columns); /* in the order of the stream */
  return rc;
}
