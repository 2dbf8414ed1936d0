/* SPDX-License-Identifier: MIT
 * memory.c - device memory: from a pool of the rank, allocated and freed in the order of its default stream.
 * A free names no stream: the default one waits for the queued work of all other streams of the rank, and
 * these wait for an allocation. If the device has no pools, the driver's plain allocation is used, and a free
 * waits for the device. */
#include "inner.h"

#define ALIGN 256u /* of every allocation, by the programming guide */

static int32_t check(const cuda_device *device, uint64_t bytes, uint64_t align, bs_error *err) {
  if ((align & (align - 1)) != 0)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CUDA-ALIGN", "alignment %llu is not a power of two",
                   (unsigned long long)align);
  if (align > ALIGN)
    return bs_fail(err, BS_UNSUPPORTED, "BS-CUDA-ALIGN", "alignment %llu; device memory is aligned to %u",
                   (unsigned long long)align, ALIGN);
  if (bytes <= device->memory) return BS_OK;
  (void)bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "%llu bytes asked, device %u has %llu",
                (unsigned long long)bytes, device->index, (unsigned long long)device->memory);
  return bs_fail_hint(err, "smaller shapes, or more ranks on more devices");
}

/* Freed memory may still be in use by queued work: when the streams are empty the pool can reuse it. */
static CUresult take(const cuda_device *device, uint64_t bytes, CUdeviceptr *out) {
  const cuda_functions *call = &device->driver->call;
  if (device->pool == NULL) return call->mem_alloc(out, bytes);
  CUresult result = call->pool_alloc(out, bytes, device->pool, device->stream);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  if (call->stream_synchronize(device->stream) != CUDA_SUCCESS) return result;
  return call->pool_alloc(out, bytes, device->pool, device->stream);
}

static void give(const cuda_device *device, CUdeviceptr ptr, bs_error *err) {
  const cuda_functions *call = &device->driver->call;
  int32_t rc = cuda_default_waits_for_sides(device, err);
  CUresult result;
  if (device->pool != NULL) {
    result = call->mem_free_async(ptr, device->stream);
  } else {
    if (rc == BS_OK)
      rc = cuda_check(device, call->stream_synchronize(device->stream), "cuStreamSynchronize", err);
    result = call->mem_free(ptr);
  }
  if (rc == BS_OK) rc = cuda_check(device, result, "freeing device memory", err);
  if (rc != BS_OK) cuda_late(device, err);
}

static int32_t no_memory(const cuda_device *device, CUresult result, uint64_t bytes, bs_error *err) {
  size_t left = 0, total = 0;
  char what[128];
  if (device->driver->call.mem_info(&left, &total) != CUDA_SUCCESS) left = 0;
  snprintf(what, sizeof what, "allocating %llu bytes on device %u, where %llu of %llu are free",
           (unsigned long long)bytes, device->index, (unsigned long long)left,
           (unsigned long long)device->memory);
  return cuda_check(device, result, what, err);
}

int32_t cuda_mem_alloc(void *opaque, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err) {
  const cuda_device *device = opaque;
  CUdeviceptr ptr = 0;
  *out_ptr = NULL;
  cuda_graph_spoil(device, "taking memory");
  int32_t rc = check(device, bytes, align, err);
  if (rc == BS_OK) rc = cuda_enter(device, err);
  if (rc != BS_OK) return rc;
  pthread_mutex_lock(&device->inner->lock);
  const CUresult result = take(device, bytes > 0 ? bytes : ALIGN, &ptr);
  if (result != CUDA_SUCCESS) {
    rc = no_memory(device, result, bytes, err);
  } else if (device->pool != NULL) {
    rc = cuda_sides_wait_for_default(device, err);
  }
  if (rc != BS_OK && ptr != 0) {
    bs_error again = {.struct_size = (uint32_t)sizeof again};
    give(device, ptr, &again);
    ptr = 0;
  }
  pthread_mutex_unlock(&device->inner->lock);
  *out_ptr = (void *)(uintptr_t)ptr;
  return rc;
}

void cuda_mem_free(void *opaque, void *ptr) {
  const cuda_device *device = opaque;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  if (ptr == NULL || cuda_is_lost(device)) return;
  cuda_graph_spoil(device, "giving memory back");
  const int32_t rc = cuda_reach(device, &err);
  pthread_mutex_lock(&device->inner->lock);
  if (rc == BS_OK) {
    give(device, (CUdeviceptr)(uintptr_t)ptr, &err);
  } else {
    cuda_late(device, &err);
  }
  pthread_mutex_unlock(&device->inner->lock);
}
