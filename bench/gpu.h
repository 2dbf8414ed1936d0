/* SPDX-License-Identifier: MIT
 *
 * gpu.h - the first GPU as the arms beside the cuda plugin use it: the driver and cuBLASLt opened at run time
 * and called directly. A build without their headers has none. */
#ifndef BS_BENCH_GPU_H
#define BS_BENCH_GPU_H
#include "arms.h"
#ifdef BS_HAVE_CUBLASLT
#include <cublasLt.h>
#include <cuda.h>

typedef struct bench_gpu {
  CUresult (*init)(unsigned int flags);
  CUresult (*device_get)(CUdevice *out_device, int index);
  CUresult (*context_retain)(CUcontext *out_context, CUdevice device);
  CUresult (*context_release)(CUdevice device);
  CUresult (*context_set)(CUcontext context);
  CUresult (*mem_alloc)(CUdeviceptr *out_ptr, size_t bytes);
  CUresult (*mem_free)(CUdeviceptr ptr);
  CUresult (*copy_up)(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream);
  CUresult (*copy_down)(void *dst, CUdeviceptr src, size_t bytes, CUstream stream);
  CUresult (*copy_across)(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream);
  CUresult (*stream_create)(CUstream *out_stream, unsigned int flags);
  CUresult (*stream_destroy)(CUstream stream);
  CUresult (*stream_synchronize)(CUstream stream);
  void *library;
  CUcontext context; /* NULL: not open */
  CUstream stream;
} bench_gpu;

/* Opens the library `driver` names, or the system's, and the first device's context, which is made current.
 * BS_UNAVAILABLE where there is none. Closed also after a failure. */
int32_t bench_gpu_open(bench_gpu *gpu, const char *driver, bs_error *err);
void bench_gpu_close(bench_gpu *gpu);
/* BS_OK, or BS_PLUGIN with the call's name and number. */
int32_t bench_gpu_check(CUresult result, const char *what, bs_error *err);
/* Memory of the device; `from`, of the host, is copied into it unless it is NULL. */
int32_t bench_gpu_buffer(bench_gpu *gpu, size_t bytes, const void *from, CUdeviceptr *out, bs_error *err);

/* Y [b,n] = X [b,k] W [n,k]^T by cublasLtMatmul, as its user writes it. */
typedef struct bench_lt {
  __typeof__(&cublasLtCreate) create;
  __typeof__(&cublasLtDestroy) destroy;
  __typeof__(&cublasLtGetVersion) version;
  __typeof__(&cublasLtMatmul) matmul;
  __typeof__(&cublasLtMatrixLayoutInit_internal) layout;
  __typeof__(&cublasLtMatmulDescInit_internal) desc;
  __typeof__(&cublasLtMatmulDescSetAttribute) desc_set;
  __typeof__(&cublasLtMatmulPreferenceInit_internal) preference;
  __typeof__(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  __typeof__(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  void *library;
  cublasLtHandle_t handle;
  CUdeviceptr workspace;
} bench_lt;
typedef struct bench_lt_product {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t w, x, y;
  cublasLtMatmulAlgo_t algo;
  int tried; /* of the heuristics' */
  CUdeviceptr w_at, x_at, y_at;
} bench_lt_product;

int32_t bench_lt_open(bench_lt *lt, bench_gpu *gpu, const char *library, bs_error *err);
void bench_lt_close(bench_lt *lt, bench_gpu *gpu);
/* Memory for the operands, from `m` where it is not NULL, and the fastest algorithm for them. BS_UNSUPPORTED:
 * none. Freed by bench_lt_drop, also after a failure. */
int32_t bench_lt_make(bench_lt *lt, bench_gpu *gpu, int64_t n, int64_t k, int64_t b, uint32_t dtype,
                      const bench_numbers *m, bench_lt_product *out, bs_error *err);
void bench_lt_drop(bench_gpu *gpu, bench_lt_product *product);
/* Seconds a call; the stream is waited for at the end. out[1]: until all are queued. */
int32_t bench_lt_time(const bench_lt *lt, bench_gpu *gpu, const bench_lt_product *p, uint64_t calls,
                      double out[2], bs_error *err);
#endif
#endif
