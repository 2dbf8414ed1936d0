/* SPDX-License-Identifier: MIT
 * copy.c - pinned memory, and copies. The driver may read pageable memory after its asynchronous copies have
 * returned (cuda.h does not specify it), and callers free their memory immediately. So such memory is copied
 * through pinned slots, used one after the other, each protected by an event. */
#include <stdlib.h>

#include "inner.h"

/* ---- pinned memory -------------------------------------------------------------------------- */

static int32_t pinned_room(cuda_inner *in, bs_error *err) {
  if (in->n_pinned < in->pinned_capacity) return BS_OK;
  const uint32_t capacity = in->pinned_capacity != 0 ? 2 * in->pinned_capacity : 8;
  cuda_pinned *grown = realloc(in->pinned, capacity * sizeof *grown);
  if (grown == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a table of pinned blocks");
  in->pinned = grown;
  in->pinned_capacity = capacity;
  return BS_OK;
}

int32_t cuda_pinned_alloc(const cuda_device *device, uint64_t bytes, void **out_ptr, bs_error *err) {
  cuda_inner *in = device->inner;
  void *memory = NULL;
  *out_ptr = NULL;
  cuda_graph_spoil(device, "taking memory of the host");
  int32_t rc = cuda_enter(device, err);
  if (rc != BS_OK) return rc;
  pthread_mutex_lock(&in->lock);
  rc = pinned_room(in, err);
  if (rc == BS_OK)
    rc = cuda_check(device, device->driver->call.mem_host_alloc(&memory, bytes > 0 ? bytes : 1, 0),
                    "cuMemHostAlloc", err);
  if (rc == BS_OK) in->pinned[in->n_pinned++] = (cuda_pinned){memory, bytes};
  pthread_mutex_unlock(&in->lock);
  if (rc == BS_OK) *out_ptr = memory;
  return rc;
}

/* The driver does not promise that freeing waits: copies of it may run on any stream. */
static void pinned_drain(const cuda_device *device) {
  const cuda_inner *in = device->inner;
  const cuda_functions *call = &device->driver->call;
  if (cuda_is_lost(device)) return;
  (void)call->stream_synchronize(device->stream); /* an error is sticky: the next sync tells it */
  for (uint32_t i = 0; i < in->n_sides; i++) (void)call->stream_synchronize(in->sides[i].stream);
}

void cuda_pinned_free(const cuda_device *device, void *ptr) {
  cuda_inner *in = device->inner;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  if (ptr == NULL) return;
  cuda_graph_spoil(device, "giving memory of the host back");
  int32_t rc = cuda_reach(device, &err);
  pthread_mutex_lock(&in->lock);
  if (rc == BS_OK) {
    pinned_drain(device);
    rc = cuda_check(device, device->driver->call.mem_host_free(ptr), "cuMemFreeHost", &err);
  }
  for (uint32_t i = 0; i < in->n_pinned; i++) {
    if (in->pinned[i].memory != ptr) continue;
    in->pinned[i] = in->pinned[--in->n_pinned];
    break;
  }
  if (rc != BS_OK) cuda_late(device, &err);
  pthread_mutex_unlock(&in->lock);
}

static int is_pinned(const cuda_inner *in, const void *host, uint64_t bytes) {
  const uintptr_t begin = (uintptr_t)host;
  for (uint32_t i = 0; i < in->n_pinned; i++) {
    const uintptr_t at = (uintptr_t)in->pinned[i].memory;
    if (begin >= at && begin - at <= in->pinned[i].bytes && bytes <= in->pinned[i].bytes - (begin - at))
      return 1;
  }
  return 0;
}

/* ---- through the slots ---------------------------------------------------------------------- */

static int32_t stage_make(const cuda_device *device, bs_error *err) {
  cuda_inner *in = device->inner;
  const cuda_functions *call = &device->driver->call;
  void *memory = NULL;
  if (in->stage != NULL) return BS_OK;
  int32_t rc = cuda_check(device, call->mem_host_alloc(&memory, CUDA_STAGE_SLOTS * CUDA_STAGE_BYTES, 0),
                          "cuMemHostAlloc", err);
  for (uint32_t i = 0; rc == BS_OK && i < CUDA_STAGE_SLOTS; i++) {
    in->slots[i].memory = (char *)memory + i * CUDA_STAGE_BYTES;
    if (in->slots[i].event == NULL)
      rc = cuda_check(device, call->event_create(&in->slots[i].event, CU_EVENT_DISABLE_TIMING),
                      "cuEventCreate", err);
  }
  if (rc == BS_OK) {
    in->stage = memory;
  } else if (memory != NULL) {
    (void)call->mem_host_free(memory);
  }
  return rc;
}

/* The next slot, free: an event that was never recorded is done. */
static int32_t slot_take(const cuda_device *device, cuda_slot **out, bs_error *err) {
  cuda_inner *in = device->inner;
  cuda_slot *slot = &in->slots[in->next_slot++ % CUDA_STAGE_SLOTS];
  *out = slot;
  return cuda_await(device, NULL, slot->event, err);
}

static int32_t slot_behind(const cuda_device *device, const cuda_slot *slot, CUstream stream, bs_error *err) {
  return cuda_check(device, device->driver->call.event_record(slot->event, stream), "cuEventRecord", err);
}

static uint64_t piece(uint64_t bytes, uint64_t at) {
  return bytes - at < CUDA_STAGE_BYTES ? bytes - at : CUDA_STAGE_BYTES;
}

static int32_t stage_up(const cuda_device *device, CUdeviceptr to, const char *host, uint64_t bytes,
                        CUstream stream, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint64_t at = 0; rc == BS_OK && at < bytes; at += CUDA_STAGE_BYTES) {
    const uint64_t n = piece(bytes, at);
    cuda_slot *slot;
    rc = slot_take(device, &slot, err);
    if (rc != BS_OK) return rc;
    memcpy(slot->memory, host + at, n);
    rc = cuda_check(device, device->driver->call.copy_up(to + at, slot->memory, n, stream),
                    "cuMemcpyHtoDAsync", err);
    if (rc == BS_OK) rc = slot_behind(device, slot, stream, err);
  }
  return rc;
}

/* A piece that is being copied from the device. */
typedef struct arrival {
  cuda_slot *slot;
  char *to;
  uint64_t bytes;
} arrival;

static int32_t arrive(const cuda_device *device, const arrival *a, bs_error *err) {
  if (a->slot == NULL) return BS_OK;
  const int32_t rc = cuda_await(device, NULL, a->slot->event, err);
  if (rc == BS_OK) memcpy(a->to, a->slot->memory, a->bytes);
  return rc;
}

/* Two pieces are under way: one is taken out while the next one comes. */
static int32_t stage_down(const cuda_device *device, char *host, CUdeviceptr from, uint64_t bytes,
                          CUstream stream, bs_error *err) {
  arrival before = {NULL, NULL, 0};
  int32_t rc = BS_OK;
  for (uint64_t at = 0; rc == BS_OK && at < bytes; at += CUDA_STAGE_BYTES) {
    arrival now = {NULL, host + at, piece(bytes, at)};
    rc = slot_take(device, &now.slot, err);
    if (rc == BS_OK)
      rc = cuda_check(device, device->driver->call.copy_down(now.slot->memory, from + at, now.bytes, stream),
                      "cuMemcpyDtoHAsync", err);
    if (rc == BS_OK) rc = slot_behind(device, now.slot, stream, err);
    if (rc == BS_OK) rc = arrive(device, &before, err);
    before = now;
  }
  return rc == BS_OK ? arrive(device, &before, err) : rc;
}

/* ---- the calls ------------------------------------------------------------------------------ */

int32_t cuda_upload(const cuda_device *device, void *device_ptr, const void *host, uint64_t bytes,
                    CUstream stream, bs_error *err) {
  cuda_inner *in = device->inner;
  const CUdeviceptr to = (CUdeviceptr)(uintptr_t)device_ptr;
  cuda_graph_spoil(device, "a copy from the host");
  int32_t rc = bytes > 0 ? cuda_enter(device, err) : BS_OK;
  if (rc != BS_OK || bytes == 0) return rc;
  pthread_mutex_lock(&in->lock);
  if (is_pinned(in, host, bytes)) {
    rc = cuda_check(device, device->driver->call.copy_up(to, host, bytes, stream), "cuMemcpyHtoDAsync", err);
  } else {
    rc = stage_make(device, err);
    if (rc == BS_OK) rc = stage_up(device, to, host, bytes, stream, err);
  }
  pthread_mutex_unlock(&in->lock);
  return rc;
}

int32_t cuda_download(const cuda_device *device, void *host, const void *device_ptr, uint64_t bytes,
                      CUstream stream, bs_error *err) {
  cuda_inner *in = device->inner;
  const CUdeviceptr from = (CUdeviceptr)(uintptr_t)device_ptr;
  cuda_graph_spoil(device, "a copy to the host");
  int32_t rc = bytes > 0 ? cuda_enter(device, err) : BS_OK;
  if (rc != BS_OK || bytes == 0) return rc;
  pthread_mutex_lock(&in->lock);
  if (is_pinned(in, host, bytes)) {
    rc = cuda_check(device, device->driver->call.copy_down(host, from, bytes, stream), "cuMemcpyDtoHAsync",
                    err);
  } else {
    rc = stage_make(device, err);
    if (rc == BS_OK) rc = stage_down(device, host, from, bytes, stream, err);
  }
  pthread_mutex_unlock(&in->lock);
  return rc;
}

static int32_t across(const cuda_device *device, void *dst, const void *src, uint64_t bytes, CUstream stream,
                      bs_error *err) {
  const int32_t rc = bytes > 0 && dst != src ? cuda_enter(device, err) : BS_OK;
  if (rc != BS_OK || bytes == 0 || dst == src) return rc;
  return cuda_check(device,
                    device->driver->call.copy_across((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src,
                                                     bytes, stream),
                    "cuMemcpyDtoDAsync", err);
}

int32_t cuda_mem_copy(void *opaque, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                      bs_stream *stream, bs_error *err) {
  const cuda_device *device = opaque;
  const CUstream on = cuda_stream(device, stream);
  if (kind == BS_COPY_HOST_TO_DEVICE) return cuda_upload(device, dst, src, bytes, on, err);
  if (kind == BS_COPY_DEVICE_TO_HOST) return cuda_download(device, dst, src, bytes, on, err);
  if (kind == BS_COPY_DEVICE_TO_DEVICE) return across(device, dst, src, bytes, on, err);
  return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-COPY", "unknown copy kind %u", kind);
}

void cuda_copies_close(const cuda_device *device) {
  cuda_inner *in = device->inner;
  const cuda_functions *call = &device->driver->call;
  for (uint32_t i = 0; i < CUDA_STAGE_SLOTS; i++)
    if (in->slots[i].event != NULL) (void)call->event_destroy(in->slots[i].event);
  if (in->stage != NULL) (void)call->mem_host_free(in->stage);
  for (uint32_t i = 0; i < in->n_pinned; i++) (void)call->mem_host_free(in->pinned[i].memory);
  free(in->pinned);
  in->pinned = NULL;
}
