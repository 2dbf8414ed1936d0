/* SPDX-License-Identifier: MIT
 * skel_backend.c - the backend skel_backend: one device, whose memory is the host's. BS_BACKEND_SYNC declares
 * that ops are complete when run returns, so there are no streams and events to make. */
#include "skel_backend.h"

typedef struct device {
  const bs_host *host;
} device;

static int32_t device_count(void *state, uint32_t *out_count, bs_error *err) {
  (void)state;
  (void)err;
  *out_count = 1;
  return BS_OK;
}

static int32_t check_index(uint32_t index, bs_error *err) {
  if (index == 0) return BS_OK;
  return bs_fail(err, BS_UNAVAILABLE, "BS-SKEL-BACKEND-DEVICE", "device %u asked, there is one", index);
}

/* Like device_count it opens nothing: it is asked on machines where the device is busy or absent. */
static int32_t device_info(void *state, uint32_t index, bs_device_info *out_info, bs_error *err) {
  (void)state;
  const int32_t rc = check_index(index, err);
  if (rc != BS_OK) return rc;
  out_info->memory_bytes = 0; /* unknown */
  snprintf(out_info->name, sizeof out_info->name, "host memory");
  snprintf(out_info->detail, sizeof out_info->detail, "plain loops");
  return BS_OK;
}

/* A device object belongs to one rank; the same index may be opened by several. */
static int32_t device_open(void *state, uint32_t index, void **out_device, bs_error *err) {
  const bs_host *host = (const bs_host *)state;
  const int32_t rc = check_index(index, err);
  if (rc != BS_OK) return rc;
  device *d = (device *)host->alloc(host->ctx, sizeof *d, 64);
  if (d == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-BACKEND-MEMORY", "no memory for a device object");
  d->host = host;
  *out_device = d;
  return BS_OK;
}

static void device_close(void *ptr) {
  device *d = (device *)ptr;
  if (d != NULL) d->host->free(d->host->ctx, d);
}

static int32_t mem_alloc(void *ptr, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err) {
  device *d = (device *)ptr;
  *out_ptr = d->host->alloc(d->host->ctx, bytes > 0 ? bytes : 1, align < 64 ? 64 : align);
  if (*out_ptr != NULL) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-SKEL-BACKEND-MEMORY", "no memory for %llu bytes",
                 (unsigned long long)bytes);
}

static void mem_free(void *ptr, void *memory) {
  device *d = (device *)ptr;
  d->host->free(d->host->ctx, memory);
}

static int32_t mem_copy(void *ptr, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                        bs_stream *stream, bs_error *err) {
  (void)ptr;
  (void)stream;
  if (kind < BS_COPY_HOST_TO_DEVICE || kind > BS_COPY_DEVICE_TO_DEVICE)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SKEL-BACKEND-COPY", "unknown kind of copy %u", kind);
  if (bytes > 0) memmove(dst, src, bytes);
  return BS_OK;
}

void skel_backend_table(bs_backend *backend) {
  memset(backend, 0, sizeof *backend);
  backend->struct_size = (uint32_t)sizeof *backend;
  backend->flags = BS_BACKEND_HOST_MEMORY | BS_BACKEND_SYNC;
  backend->name = "skel_backend";
  backend->summary = "host memory, plain loops";
  backend->device_count = device_count;
  backend->device_info = device_info;
  backend->device_open = device_open;
  backend->device_close = device_close;
  backend->mem_alloc = mem_alloc;
  backend->mem_free = mem_free;
  backend->mem_copy = mem_copy;
}
