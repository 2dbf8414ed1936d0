/* SPDX-License-Identifier: MIT
 * launch.c - the device's context on the calling thread, results of the driver as errors, and launching. On
 * the way of every op's run: allocates nothing, locks nothing. */
#include "cuda.h"

#include "inner.h"

#define ITEM_THREADS 256u
#define MAX_GRID_X 2147483647 /* of every device since capability 3.0 */

int32_t cuda_check(const cuda_device *device, CUresult result, const char *what, bs_error *err) {
  return cuda_driver_check(device->driver, result, what, err);
}

int32_t cuda_reach(const cuda_device *device, bs_error *err) {
  const cuda_functions *call = &device->driver->call;
  CUcontext now = NULL;
  if (cuda_is_lost(device)) {
    if (err != NULL) *err = device->inner->end;
    return device->inner->end.code;
  }
  if (call->context_get(&now) == CUDA_SUCCESS && now == device->context) return BS_OK;
  return cuda_check(device, call->context_set(device->context), "cuCtxSetCurrent", err);
}

int32_t cuda_enter(const cuda_device *device, bs_error *err) {
  return device->inner->graph == CUDA_GRAPH_SPOILT ? cuda_graph_refuse(device, err) : cuda_reach(device, err);
}

CUstream cuda_stream(const cuda_device *device, bs_stream *stream) {
  if (stream != NULL) cuda_graph_spoil(device, "work in another stream");
  return stream != NULL ? (CUstream)(void *)stream : device->stream;
}

int32_t cuda_launch(const cuda_device *device, uint32_t kernel, const cuda_shape *shape, CUstream stream,
                    const void *args, bs_error *err) {
  if (shape->blocks_x == 0 || shape->blocks_y == 0 || shape->blocks_z == 0) return BS_OK;
  if (kernel >= CUDA_KERNEL_COUNT_ || device->kernels[kernel] == NULL)
    return bs_fail(err, BS_INTERNAL, "BS-CUDA-KERNEL", "kernel %u of %u is not part of this build", kernel,
                   (unsigned)CUDA_KERNEL_COUNT_);
  const int32_t rc = cuda_enter(device, err);
  if (rc != BS_OK) return rc;
  void *params[1] = {(void *)(uintptr_t)args}; /* the driver reads it only */
  const CUresult result =
      device->driver->call.launch(device->kernels[kernel], shape->blocks_x, shape->blocks_y, shape->blocks_z,
                                  shape->threads, 1, 1, shape->shared_bytes, stream, params, NULL);
  if (result == CUDA_SUCCESS) return BS_OK;
  char what[96];
  snprintf(what, sizeof what, "cuLaunchKernel of %s", cuda_kernel_table[kernel].name);
  return cuda_check(device, result, what, err);
}

int32_t cuda_launch_items(const cuda_device *device, uint32_t kernel, int64_t items, CUstream stream,
                          const void *args, bs_error *err) {
  if (items <= 0) return BS_OK;
  const int64_t blocks = (items - 1) / ITEM_THREADS + 1;
  if (blocks > MAX_GRID_X)
    return bs_fail(err, BS_OVERFLOW, "BS-CUDA-GRID", "%lld items are %lld blocks of %u threads; %d fit",
                   (long long)items, (long long)blocks, ITEM_THREADS, MAX_GRID_X);
  const cuda_shape shape = {(uint32_t)blocks, 1, 1, ITEM_THREADS, 0};
  return cuda_launch(device, kernel, &shape, stream, args, err);
}
