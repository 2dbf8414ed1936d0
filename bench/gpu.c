/* SPDX-License-Identifier: MIT
 *
 * gpu.c - see gpu.h. */
#include "gpu.h"
#ifdef BS_HAVE_CUBLASLT
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "support.h"

#define WORKSPACE ((size_t)32 << 20) /* what NVIDIA advises for Hopper, and the most torch gives */
enum { ALGORITHMS = 8, CALLS = 20 };

typedef struct symbol {
  const char *name;
  size_t offset;
} symbol;

static int find_all(void *library, const symbol *symbols, size_t count, void *table) {
  for (size_t i = 0; i < count; ++i) {
    void *at = dlsym(library, symbols[i].name);
    if (at == NULL) return 0;
    memcpy((char *)table + symbols[i].offset, &at, sizeof at);
  }
  return 1;
}

/* ---- the driver ---------------------------------------------------------------------------------- */

#define AT(member) offsetof(bench_gpu, member)
static const symbol driver_symbols[] = {
    {"cuInit", AT(init)},
    {"cuDeviceGet", AT(device_get)},
    {"cuDevicePrimaryCtxRetain", AT(context_retain)},
    {"cuDevicePrimaryCtxRelease_v2", AT(context_release)},
    {"cuCtxSetCurrent", AT(context_set)},
    {"cuMemAlloc_v2", AT(mem_alloc)},
    {"cuMemFree_v2", AT(mem_free)},
    {"cuMemcpyHtoDAsync_v2", AT(copy_up)},
    {"cuMemcpyDtoHAsync_v2", AT(copy_down)},
    {"cuMemcpyDtoDAsync_v2", AT(copy_across)},
    {"cuStreamCreate", AT(stream_create)},
    {"cuStreamDestroy_v2", AT(stream_destroy)},
    {"cuStreamSynchronize", AT(stream_synchronize)},
};
#undef AT

int32_t bench_gpu_check(CUresult result, const char *what, bs_error *err) {
  if (result == CUDA_SUCCESS) return BS_OK;
  return bs_error_set(err, BS_PLUGIN, "BS-BENCH-CUDA", "%s: error %d of the driver", what, (int)result);
}

int32_t bench_gpu_open(bench_gpu *gpu, const char *driver, bs_error *err) {
  CUdevice device = 0;
  memset(gpu, 0, sizeof *gpu);
  gpu->library = dlopen(driver != NULL ? driver : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (gpu->library == NULL ||
      !find_all(gpu->library, driver_symbols, sizeof driver_symbols / sizeof *driver_symbols, gpu))
    return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-CUDA", "no driver's library: %s", dlerror());
  CUresult result = gpu->init(0);
  if (result == CUDA_SUCCESS) result = gpu->device_get(&device, 0);
  if (result == CUDA_SUCCESS) result = gpu->context_retain(&gpu->context, device);
  if (result != CUDA_SUCCESS)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-CUDA", "the driver has no device: error %d",
                        (int)result);
  int32_t rc = bench_gpu_check(gpu->context_set(gpu->context), "cuCtxSetCurrent", err);
  if (rc == BS_OK)
    rc = bench_gpu_check(gpu->stream_create(&gpu->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate", err);
  return rc;
}

void bench_gpu_close(bench_gpu *gpu) {
  CUdevice device = 0;
  if (gpu->stream != NULL) (void)gpu->stream_destroy(gpu->stream);
  if (gpu->context != NULL && gpu->device_get(&device, 0) == CUDA_SUCCESS) (void)gpu->context_release(device);
  memset(gpu, 0, sizeof *gpu); /* the library has threads, and stays */
}

int32_t bench_gpu_buffer(bench_gpu *gpu, size_t bytes, const void *from, CUdeviceptr *out, bs_error *err) {
  const CUresult result = gpu->mem_alloc(out, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-MEMORY", "the device has no %zu MiB left",
                        bytes >> 20);
  int32_t rc = bench_gpu_check(result, "cuMemAlloc", err);
  if (rc != BS_OK || from == NULL) return rc;
  rc = bench_gpu_check(gpu->copy_up(*out, from, bytes, gpu->stream), "cuMemcpyHtoDAsync", err);
  return rc != BS_OK ? rc : bench_gpu_check(gpu->stream_synchronize(gpu->stream), "cuStreamSynchronize", err);
}

/* ---- cuBLASLt ------------------------------------------------------------------------------------ */

#define AT(member) offsetof(bench_lt, member)
static const symbol lt_symbols[] = {
    {"cublasLtCreate", AT(create)},
    {"cublasLtDestroy", AT(destroy)},
    {"cublasLtGetVersion", AT(version)},
    {"cublasLtMatmul", AT(matmul)},
    {"cublasLtMatrixLayoutInit_internal", AT(layout)},
    {"cublasLtMatmulDescInit_internal", AT(desc)},
    {"cublasLtMatmulDescSetAttribute", AT(desc_set)},
    {"cublasLtMatmulPreferenceInit_internal", AT(preference)},
    {"cublasLtMatmulPreferenceSetAttribute", AT(preference_set)},
    {"cublasLtMatmulAlgoGetHeuristic", AT(heuristic)},
};
#undef AT

static int32_t check(cublasStatus_t status, const char *what, bs_error *err) {
  if (status == CUBLAS_STATUS_SUCCESS) return BS_OK;
  return bs_error_set(err, status == CUBLAS_STATUS_NOT_SUPPORTED ? BS_UNSUPPORTED : BS_PLUGIN,
                      "BS-BENCH-CUDA", "%s: status %d of cuBLASLt", what, (int)status);
}

int32_t bench_lt_open(bench_lt *lt, bench_gpu *gpu, const char *library, bs_error *err) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
  memset(lt, 0, sizeof *lt);
  if (library != NULL) lt->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  for (size_t i = 0; library == NULL && lt->library == NULL && i < 2; ++i)
    lt->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (lt->library == NULL || !find_all(lt->library, lt_symbols, sizeof lt_symbols / sizeof *lt_symbols, lt))
    return bs_error_set(err, BS_UNAVAILABLE, "BS-BENCH-CUDA", "no cuBLASLt: %s", dlerror());
  const int32_t rc = check(lt->create(&lt->handle), "cublasLtCreate", err);
  return rc != BS_OK ? rc : bench_gpu_buffer(gpu, WORKSPACE, NULL, &lt->workspace, err);
}

void bench_lt_close(bench_lt *lt, bench_gpu *gpu) {
  if (lt->workspace != 0) (void)gpu->mem_free(lt->workspace);
  if (lt->handle != NULL) (void)lt->destroy(lt->handle);
  memset(lt, 0, sizeof *lt);
}

static cublasStatus_t describe(const bench_lt *lt, int64_t n, int64_t k, int64_t b, cudaDataType type,
                               bench_lt_product *p) {
  const int32_t turn = CUBLAS_OP_T; /* what is row after row is column after column of its transpose */
  cublasStatus_t rc = lt->desc(&p->product, sizeof p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (rc == CUBLAS_STATUS_SUCCESS)
    rc = lt->desc_set(&p->product, CUBLASLT_MATMUL_DESC_TRANSA, &turn, sizeof turn);
  if (rc == CUBLAS_STATUS_SUCCESS) rc = lt->layout(&p->w, sizeof p->w, type, (uint64_t)k, (uint64_t)n, k);
  if (rc == CUBLAS_STATUS_SUCCESS) rc = lt->layout(&p->x, sizeof p->x, type, (uint64_t)k, (uint64_t)b, k);
  if (rc == CUBLAS_STATUS_SUCCESS) rc = lt->layout(&p->y, sizeof p->y, type, (uint64_t)n, (uint64_t)b, n);
  return rc;
}

int32_t bench_lt_time(const bench_lt *lt, bench_gpu *gpu, const bench_lt_product *p, uint64_t calls,
                      double out[2], bs_error *err) {
  static const float one = 1.0f, zero = 0.0f;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const void *w = (const void *)(uintptr_t)p->w_at, *x = (const void *)(uintptr_t)p->x_at;
  void *y = (void *)(uintptr_t)p->y_at, *workspace = (void *)(uintptr_t)lt->workspace;
  cublasLtMatmulDescOpaque_t product = p->product; /* the library's parameters are not const */
  cublasLtMatrixLayoutOpaque_t in_w = p->w, in_x = p->x, in_y = p->y;
  int32_t rc = bench_gpu_check(gpu->context_set(gpu->context), "cuCtxSetCurrent", err);
  const double start = bench_now();
  for (uint64_t i = 0; rc == BS_OK && status == CUBLAS_STATUS_SUCCESS && i < calls; ++i)
    status = lt->matmul(lt->handle, &product, &one, w, &in_w, x, &in_x, &zero, y, &in_y, y, &in_y, &p->algo,
                        workspace, WORKSPACE, gpu->stream);
  out[1] = (bench_now() - start) / (double)calls;
  if (rc == BS_OK) rc = check(status, "cublasLtMatmul", err);
  if (rc == BS_OK) rc = bench_gpu_check(gpu->stream_synchronize(gpu->stream), "cuStreamSynchronize", err);
  out[0] = (bench_now() - start) / (double)calls;
  return rc;
}

/* Of what the heuristics name, the one that a few calls show to be the fastest. */
static int32_t choose(bench_lt *lt, bench_gpu *gpu, bench_lt_product *p, bs_error *err) {
  cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
  cublasLtMatmulPreferenceOpaque_t preference;
  const uint64_t most = WORKSPACE;
  int count = 0, chosen = -1;
  double best = 0.0, seconds[2];
  cublasStatus_t status = lt->preference(&preference, sizeof preference);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = lt->preference_set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = lt->heuristic(lt->handle, &p->product, &p->w, &p->x, &p->y, &p->y, &preference, ALGORITHMS,
                           found, &count);
  if (status != CUBLAS_STATUS_SUCCESS) return check(status, "cublasLtMatmulAlgoGetHeuristic", err);
  for (int i = 0; i < count; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    p->algo = found[i].algo;
    if (bench_lt_time(lt, gpu, p, 2, seconds, err) != BS_OK) continue;
    const int32_t rc = bench_lt_time(lt, gpu, p, CALLS, seconds, err);
    if (rc != BS_OK) return rc;
    ++p->tried;
    if (chosen >= 0 && seconds[0] >= best) continue;
    chosen = i;
    best = seconds[0];
  }
  if (chosen < 0) return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-CUDA", "cuBLASLt has no such product");
  p->algo = found[chosen].algo;
  return BS_OK;
}

int32_t bench_lt_make(bench_lt *lt, bench_gpu *gpu, int64_t n, int64_t k, int64_t b, uint32_t dtype,
                      const bench_numbers *m, bench_lt_product *p, bs_error *err) {
  const cudaDataType type = dtype == BS_F32 ? CUDA_R_32F : dtype == BS_BF16 ? CUDA_R_16BF : CUDA_R_16F;
  const size_t size = BS_DTYPE_BYTES(dtype);
  memset(p, 0, sizeof *p);
  if (dtype != BS_F32 && dtype != BS_BF16 && dtype != BS_F16)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-BENCH-CUDA", "f32, bf16 and f16 are timed, not %s",
                        bs_dtype_name(dtype));
  int32_t rc = bench_gpu_check(gpu->context_set(gpu->context), "cuCtxSetCurrent", err);
  if (rc == BS_OK) rc = bench_gpu_buffer(gpu, (size_t)(n * k) * size, m != NULL ? m->w : NULL, &p->w_at, err);
  if (rc == BS_OK) rc = bench_gpu_buffer(gpu, (size_t)(b * k) * size, m != NULL ? m->x : NULL, &p->x_at, err);
  if (rc == BS_OK) rc = bench_gpu_buffer(gpu, (size_t)(b * n) * size, NULL, &p->y_at, err);
  if (rc == BS_OK) rc = check(describe(lt, n, k, b, type, p), "cublasLtMatmulDescInit", err);
  return rc != BS_OK ? rc : choose(lt, gpu, p, err);
}

void bench_lt_drop(bench_gpu *gpu, bench_lt_product *p) {
  const CUdeviceptr all[3] = {p->w_at, p->x_at, p->y_at};
  for (int i = 0; i < 3; ++i)
    if (all[i] != 0) (void)gpu->mem_free(all[i]);
  memset(p, 0, sizeof *p);
}
#endif
