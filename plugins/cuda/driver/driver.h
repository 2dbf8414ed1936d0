/* SPDX-License-Identifier: MIT
 * driver.h - libcuda, opened at run time: a table of its functions, and the reason if it is missing. */
#ifndef BS_PLUGIN_CUDA_DRIVER_H
#define BS_PLUGIN_CUDA_DRIVER_H
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>

#include "blockshock/plugin.h"

/* The driver's functions in use. Drivers since CUDA 11.4 have these symbols (driver.c): if cuda.h names a
 * newer form of the same call, the older one is used. */
typedef struct cuda_functions {
  CUresult (*init)(unsigned int flags);
  CUresult (*driver_version)(int *out_version);
  CUresult (*error_name)(CUresult error, const char **out_text);
  CUresult (*error_string)(CUresult error, const char **out_text);
  CUresult (*device_count)(int *out_count);
  CUresult (*device_get)(CUdevice *out_device, int index);
  CUresult (*device_name)(char *out_name, int size, CUdevice device);
  CUresult (*device_bus_id)(char *out_text, int size, CUdevice device);
  CUresult (*device_memory)(size_t *out_bytes, CUdevice device);
  CUresult (*device_attribute)(int *out_value, CUdevice_attribute attribute, CUdevice device);
  CUresult (*context_retain)(CUcontext *out_context, CUdevice device);
  CUresult (*context_release)(CUdevice device);
  CUresult (*context_set)(CUcontext context);
  CUresult (*context_get)(CUcontext *out_context);
  CUresult (*module_load)(CUmodule *out_module, const void *image);
  CUresult (*module_unload)(CUmodule module);
  CUresult (*module_function)(CUfunction *out_function, CUmodule module, const char *name);
  CUresult (*function_attribute)(int *out_value, CUfunction_attribute attribute, CUfunction function);
  CUresult (*function_set)(CUfunction function, CUfunction_attribute attribute, int value);
  CUresult (*launch)(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                     unsigned int block_x, unsigned int block_y, unsigned int block_z,
                     unsigned int shared_bytes, CUstream stream, void **params, void **extra);
  CUresult (*mem_alloc)(CUdeviceptr *out_ptr, size_t bytes);
  CUresult (*mem_free)(CUdeviceptr ptr);
  CUresult (*mem_info)(size_t *out_free, size_t *out_total);
  CUresult (*pool_create)(CUmemoryPool *out_pool, const CUmemPoolProps *props);
  CUresult (*pool_destroy)(CUmemoryPool pool);
  CUresult (*pool_set)(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
  CUresult (*pool_get)(CUmemoryPool pool, CUmemPool_attribute attribute, void *out_value);
  CUresult (*pool_alloc)(CUdeviceptr *out_ptr, size_t bytes, CUmemoryPool pool, CUstream stream);
  CUresult (*mem_free_async)(CUdeviceptr ptr, CUstream stream);
  CUresult (*mem_host_alloc)(void **out_ptr, size_t bytes, unsigned int flags);
  CUresult (*mem_host_free)(void *ptr);
  CUresult (*copy_up)(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream);
  CUresult (*copy_down)(void *dst, CUdeviceptr src, size_t bytes, CUstream stream);
  CUresult (*copy_across)(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
  CUresult (*stream_create)(CUstream *out_stream, unsigned int flags);
  CUresult (*stream_destroy)(CUstream stream);
  CUresult (*stream_synchronize)(CUstream stream);
  CUresult (*stream_query)(CUstream stream);
  CUresult (*capture_begin)(CUstream stream, CUstreamCaptureMode mode);
  CUresult (*capture_end)(CUstream stream, CUgraph *out_graph);
  CUresult (*graph_destroy)(CUgraph graph);
  CUresult (*graph_instantiate)(CUgraphExec *out_exec, CUgraph graph, unsigned long long flags);
  CUresult (*graph_launch)(CUgraphExec exec, CUstream stream);
  CUresult (*graph_exec_destroy)(CUgraphExec exec);
  CUresult (*stream_wait_event)(CUstream stream, CUevent event, unsigned int flags);
  CUresult (*event_create)(CUevent *out_event, unsigned int flags);
  CUresult (*event_destroy)(CUevent event);
  CUresult (*event_record)(CUevent event, CUstream stream);
  CUresult (*event_query)(CUevent event);
  CUresult (*event_synchronize)(CUevent event);
  CUresult (*event_elapsed)(float *out_milliseconds, CUevent start, CUevent stop);
} cuda_functions;

typedef struct cuda_driver {
  pthread_mutex_t lock;
  int32_t tried;
  int32_t version; /* cuDriverGetVersion: 13000 */
  void *library;
  cuda_functions call; /* all there once cuda_driver_open has succeeded */
  bs_error why;        /* why it is not available; repeated for later requests */
} cuda_driver;

/* Makes the lock of a zero-filled driver; opens nothing. */
int32_t cuda_driver_init(cuda_driver *driver, bs_error *err);
/* Open the library and initialise it; once, any thread. `path` NULL: libcuda.so.1 by the system's search.
 * BS_UNAVAILABLE with the reason and a hint. */
int32_t cuda_driver_open(cuda_driver *driver, const char *path, bs_error *err);
/* The least compute capability (90) of its devices: the device of a plan is not known here. 0: no device.
 * Opens the library, but no context. */
int32_t cuda_driver_capability(cuda_driver *driver, const char *path);
/* The library stays in the process, because it has started threads. */
void cuda_driver_close(cuda_driver *driver);
/* Fills err from a result of `what`, a call of the driver (which may be closed): BS_NO_MEMORY, BS_UNAVAILABLE
 * or BS_RANK_FAILED by its meaning, with the driver's message and a hint. Returns err's code; CUDA_SUCCESS:
 * BS_OK, and err is unchanged. */
int32_t cuda_driver_check(const cuda_driver *driver, CUresult result, const char *what, bs_error *err);
#endif
