/* SPDX-License-Identifier: MIT
 * cuda.h - parts that the files of the cuda plugin share on the host: its state, an opened device, launching
 * a kernel.
 *
 * The driver's library is opened at run time (driver/driver.h): on a machine without it the plugin loads, and
 * reports that it is unavailable and why. cuda_launch starts every kernel, by its place in one table
 * (kernels.h). */
#ifndef BS_PLUGIN_CUDA_H
#define BS_PLUGIN_CUDA_H
#include <cuda.h>

#include "blockshock/plugin.h"
#include "driver/driver.h"
#include "image.h"
#include "kernels.h"

typedef struct cuda_state {
  const bs_host *host;
  bs_plugin_self *self;
  const char *driver_path; /* NULL: libcuda.so.1, as the system finds it */
  cuda_driver driver;      /* driver/driver.h: opened once, by the first caller */
  struct cuda_nccl *nccl;  /* comm/nccl.h: NVIDIA's communication library, opened on request */
  struct cuda_nvml *nvml;  /* nvml.h: the device's clock */
  struct cuda_lt *lt;      /* cublaslt/library.h; NULL: built without cuBLASLt's header */
  struct cuda_splt *splt;  /* cusparselt/library.h */
  struct cuda_dnn *dnn;    /* cudnn/library.h */
  uint64_t contexts;       /* a bit for each ordinal whose primary context is kept (device.c) */
  uint32_t devices;        /* opened, and not closed: work that has not ended may still use its context */
  uint32_t kernels_told;   /* resources.c has reported the kernels' needs: once, not for each rank */
  char without[512];       /* the parameter: ",topk,normalize," */
  bs_op_impl steps[2];     /* sgd_update and adamw_update under cublaslt's name: any weight is stepped so */
} cuda_state;

/* The resources that the driver assigned to a kernel for a device (resources.c). */
typedef struct cuda_needs {
  int registers, shared, local, threads;
} cuda_needs;

/* Gives back the contexts that device_open kept: the plugin ends. */
void cuda_contexts_release(cuda_state *state);

typedef struct cuda_inner cuda_inner; /* inner.h: state that changes while the device is used, under a lock */

/* One rank's device object: its own streams and memory pool in the device's primary context, which ranks of a
 * process that open the same index share. Used by one rank. */
typedef struct cuda_device {
  cuda_state *state;
  const cuda_driver *driver; /* the table of functions, never NULL */
  uint32_t index;
  int32_t capability; /* 10 major + minor: 90 */
  int32_t multiprocessors;
  uint32_t reserved;
  CUdevice ordinal;
  uint64_t memory;   /* bytes of the device's */
  CUcontext context; /* the primary one, retained */
  CUstream stream;   /* the rank's default stream, for a NULL bs_stream */
  CUmemoryPool pool; /* the rank's own; NULL: the device has no pools */
  CUmodule modules[CUDA_IMAGES_MAX];
  CUfunction kernels[CUDA_KERNEL_COUNT_];
  cuda_needs needs[CUDA_KERNEL_COUNT_];
  const cuda_image *images[CUDA_KERNEL_COUNT_]; /* the image of each kernel */
  cuda_inner *inner;
  void *lt;   /* cuBLASLt's handle, after the first product has made it */
  void *splt; /* cuSPARSELt's */
  void *dnn;  /* cuDNN's */
} cuda_device;

/* The backend's stream as the driver's. */
CUstream cuda_stream(const cuda_device *device, bs_stream *stream);
/* Makes the device's context the calling thread's; fast if it is already. BS_UNSUPPORTED: a graph was spoilt
 * and has not ended; `reach` is for functions that release. */
int32_t cuda_enter(const cuda_device *device, bs_error *err);
int32_t cuda_reach(const cuda_device *device, bs_error *err);
/* Fills err from a result of the driver: BS_NO_MEMORY, BS_UNAVAILABLE or BS_RANK_FAILED by its meaning;
 * `what` names the call. Returns err's code; CUDA_SUCCESS: BS_OK. */
int32_t cuda_check(const cuda_device *device, CUresult result, const char *what, bs_error *err);

/* Launches `kernel` (enum cuda_kernel) on `blocks` blocks of `threads` threads; args: its NAME_args, copied
 * before this returns. 0 blocks: does nothing. Asynchronous; BS_OK means that it was queued. */
typedef struct cuda_shape {
  uint32_t blocks_x, blocks_y, blocks_z;
  uint32_t threads;
  uint32_t shared_bytes; /* dynamic */
} cuda_shape;
int32_t cuda_launch(const cuda_device *device, uint32_t kernel, const cuda_shape *shape, CUstream stream,
                    const void *args, bs_error *err);
/* One thread an item, 256 a block. BS_OVERFLOW: the grid cannot hold them. */
int32_t cuda_launch_items(const cuda_device *device, uint32_t kernel, int64_t items, CUstream stream,
                          const void *args, bs_error *err);

/* Host memory for copies at full speed, which outlives them: a free waits for a running copy of the
 * memory. */
int32_t cuda_pinned_alloc(const cuda_device *device, uint64_t bytes, void **out_ptr, bs_error *err);
void cuda_pinned_free(const cuda_device *device, void *ptr);
/* Copies in the order of the stream. With pinned memory they are asynchronous, and the memory must live until
 * they are done. Other host memory may be used and freed when the call returns: an upload has read its
 * content by then, a download has waited for it. */
int32_t cuda_upload(const cuda_device *device, void *device_ptr, const void *host, uint64_t bytes,
                    CUstream stream, bs_error *err);
int32_t cuda_download(const cuda_device *device, void *host, const void *device_ptr, uint64_t bytes,
                      CUstream stream, bs_error *err);
int32_t cuda_wait(const cuda_device *device, CUstream stream, bs_error *err); /* until the stream is empty */

extern const bs_backend cuda_backend;
#endif
