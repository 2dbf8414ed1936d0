/* SPDX-License-Identifier: MIT
 * device.c - backend "ref": one device, which is the host's memory; every op is done when run returns. */
#include <unistd.h>

#include "ref.h"

typedef struct ref_device {
  const bs_host *host;
} ref_device;

static int32_t device_count(void *state, uint32_t *out_count, bs_error *err) {
  (void)state;
  (void)err;
  *out_count = 1;
  return BS_OK;
}

static int32_t check_index(uint32_t index, bs_error *err) {
  if (index == 0) return BS_OK;
  return bs_fail(err, BS_UNAVAILABLE, "BS-REF-DEVICE", "device %u asked, the ref backend has one", index);
}

static int32_t device_info(void *state, uint32_t index, bs_device_info *out_info, bs_error *err) {
  (void)state;
  const int32_t rc = check_index(index, err);
  if (rc != BS_OK) return rc;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  out_info->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
  snprintf(out_info->name, sizeof out_info->name, "host");
#if defined(__clang__)
  snprintf(out_info->detail, sizeof out_info->detail, "portable C, clang %d.%d", __clang_major__,
           __clang_minor__);
#elif defined(__GNUC__)
  snprintf(out_info->detail, sizeof out_info->detail, "portable C, gcc %d.%d", __GNUC__, __GNUC_MINOR__);
#else
  snprintf(out_info->detail, sizeof out_info->detail, "portable C");
#endif
  return BS_OK;
}

static int32_t device_open(void *opaque, uint32_t index, void **out_device, bs_error *err) {
  ref_state *state = opaque;
  const int32_t rc = check_index(index, err);
  if (rc != BS_OK) return rc;
  ref_device *device = state->host->alloc(state->host->ctx, sizeof *device, 64);
  if (device == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for a device object");
  device->host = state->host;
  *out_device = device;
  return BS_OK;
}

static void device_close(void *opaque) {
  ref_device *device = opaque;
  if (device != NULL) device->host->free(device->host->ctx, device);
}

static int32_t mem_alloc(void *opaque, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err) {
  ref_device *device = opaque;
  if (align < 64) align = 64;
  *out_ptr = device->host->alloc(device->host->ctx, bytes > 0 ? bytes : align, align);
  if (*out_ptr != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-REF-MEMORY", "no memory for %llu bytes aligned to %llu",
                 (unsigned long long)bytes, (unsigned long long)align);
}

static void mem_free(void *opaque, void *ptr) {
  ref_device *device = opaque;
  device->host->free(device->host->ctx, ptr);
}

static int32_t mem_copy(void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                        bs_stream *stream, bs_error *err) {
  (void)device;
  (void)stream;
  if (kind < BS_COPY_HOST_TO_DEVICE || kind > BS_COPY_DEVICE_TO_DEVICE)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-REF-COPY", "unknown copy kind %u", kind);
  if (bytes > 0) memmove(dst, src, bytes);
  return BS_OK;
}

const bs_src_loc ref_backend_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_backend ref_backend = {
    .struct_size = (uint32_t)sizeof(bs_backend),
    .flags = BS_BACKEND_HOST_MEMORY | BS_BACKEND_SYNC,
    .name = "ref",
    .summary = "portable C on host memory",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_copy = mem_copy,
};
