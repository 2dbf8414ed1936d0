/* SPDX-License-Identifier: MIT
 * backend.c - one device, whose memory is the host's. */
#include "bad_attention.h"

static int32_t device_count(void *state, uint32_t *out_count, bs_error *err) {
  (void)state, (void)err;
  *out_count = 1;
  return BS_OK;
}

static int32_t check_index(uint32_t index, bs_error *err) {
  if (index == 0) return BS_OK;
  return bs_fail(err, BS_UNAVAILABLE, "BS-BAD-DEVICE", "device %u asked, there is one", index);
}

static int32_t device_info(void *state, uint32_t index, bs_device_info *out_info, bs_error *err) {
  (void)state;
  const int32_t rc = check_index(index, err);
  if (rc != BS_OK) return rc;
  snprintf(out_info->name, sizeof out_info->name, "host memory");
  snprintf(out_info->detail, sizeof out_info->detail, "controls of gates");
  return BS_OK;
}

/* The plugin itself serves as the device: there is nothing of a rank's own. */
static int32_t device_open(void *state, uint32_t index, void **out_device, bs_error *err) {
  const int32_t rc = check_index(index, err);
  if (rc == BS_OK) *out_device = state;
  return rc;
}

static void device_close(void *device) {
  (void)device;
}

static int32_t mem_alloc(void *device, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err) {
  const bs_host *host = ((bad_plugin *)device)->host;
  *out_ptr = host->alloc(host->ctx, bytes > 0 ? bytes : 1, align < 64 ? 64 : align);
  if (*out_ptr != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-BAD-MEMORY", "no memory for %llu bytes", (unsigned long long)bytes);
}

static void mem_free(void *device, void *memory) {
  const bs_host *host = ((bad_plugin *)device)->host;
  host->free(host->ctx, memory);
}

static int32_t mem_copy(void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                        bs_stream *stream, bs_error *err) {
  (void)device, (void)stream;
  if (kind < BS_COPY_HOST_TO_DEVICE || kind > BS_COPY_DEVICE_TO_DEVICE)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-BAD-COPY", "unknown kind of copy %u", kind);
  if (bytes > 0) memmove(dst, src, bytes);
  return BS_OK;
}

void bad_backend_table(bs_backend *backend) {
  *backend = (bs_backend){.struct_size = (uint32_t)sizeof *backend,
                          .flags = BS_BACKEND_HOST_MEMORY | BS_BACKEND_SYNC,
                          .name = "bad_attention",
                          .summary = "host memory; controls of gates",
                          .device_count = device_count,
                          .device_info = device_info,
                          .device_open = device_open,
                          .device_close = device_close,
                          .mem_alloc = mem_alloc,
                          .mem_free = mem_free,
                          .mem_copy = mem_copy};
}
