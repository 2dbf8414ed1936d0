/* SPDX-License-Identifier: MIT
 * memory.c - device memory, pinned memory, pools and copies. What a device's memory is for a stream begins
 * and ends in the stream's order, where it was allocated and freed so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"
#include "tools/standin/twins/twins.h"

struct CUmemPoolHandle_st {
  int device;
  uint64_t used, high;
};

/* One allocation. `begun` and `ended` as its stream has come to them, `freed` as the caller has. */
typedef struct block {
  char *memory;
  size_t bytes;
  CUcontext context;
  CUmemoryPool pool;
  int begun, freed;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *blocks;
static size_t n_blocks, capacity;
static uint64_t in_use[SI_DEVICES];

/* The block that it lies in, else the one that ends there: another may begin where one ends. Under the lock.
 */
static block *find(CUdeviceptr ptr) {
  const uintptr_t at = (uintptr_t)(ptr & ~SI_TAG);
  block *ends = NULL;
  if ((ptr & SI_TAG) == 0) return NULL;
  for (size_t i = n_blocks; i-- > 0;) {
    const uintptr_t begin = (uintptr_t)blocks[i].memory;
    if (at >= begin && at - begin < blocks[i].bytes) return &blocks[i];
    if (at == begin + blocks[i].bytes) ends = &blocks[i];
  }
  return ends;
}

static int reaches(const block *b, CUdeviceptr ptr, size_t bytes) {
  return b != NULL && bytes <= b->bytes - ((uintptr_t)(ptr & ~SI_TAG) - (uintptr_t)b->memory);
}

int si_inside(CUdeviceptr ptr, size_t bytes) {
  pthread_mutex_lock(&lock);
  const block *b = find(ptr);
  const int yes = reaches(b, ptr, bytes) && !b->freed;
  pthread_mutex_unlock(&lock);
  return yes;
}

/* A range of 0 bytes may lie anywhere: an empty tensor after an allocation is not read. */
char *si_host(CUdeviceptr ptr, size_t bytes, const char *who) {
  if (bytes == 0) return (char *)(uintptr_t)(ptr & ~SI_TAG);
  pthread_mutex_lock(&lock);
  const block *b = find(ptr);
  if (!reaches(b, ptr, bytes))
    si_die("%s reaches %zu bytes at 0x%llx, which is in no living allocation%s", who, bytes,
           (unsigned long long)ptr, (ptr & SI_TAG) == 0 ? ": it is not a device pointer" : "");
  if (!b->begun) si_die("%s uses memory at 0x%llx before its allocation", who, (unsigned long long)ptr);
  pthread_mutex_unlock(&lock);
  return (char *)(uintptr_t)(ptr & ~SI_TAG);
}

static CUresult add(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, int begun) {
  CUcontext context = si_current();
  void *memory = NULL;
  if (bytes == 0 || out == NULL) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  const int fits = bytes <= si_get_setup()->memory - in_use[context->device];
  if (!fits || posix_memalign(&memory, 512, bytes) != 0) {
    pthread_mutex_unlock(&lock);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memset(memory, 0xA5, bytes); /* no caller may rely on zeros */
  if (n_blocks == capacity) {
    capacity = capacity != 0 ? 2 * capacity : 64;
    blocks = realloc(blocks, capacity * sizeof *blocks);
    if (blocks == NULL) si_die("no memory");
  }
  blocks[n_blocks++] = (block){memory, bytes, context, pool, begun, 0};
  in_use[context->device] += bytes;
  if (pool != NULL) pool->used += bytes;
  if (pool != NULL && pool->used > pool->high) pool->high = pool->used;
  pthread_mutex_unlock(&lock);
  si_live(SI_MEMORY, memory);
  *out = (CUdeviceptr)(uintptr_t)memory | SI_TAG;
  return CUDA_SUCCESS;
}

void si_memory_begins(CUdeviceptr ptr) {
  pthread_mutex_lock(&lock);
  block *b = find(ptr);
  if (b != NULL) b->begun = 1;
  pthread_mutex_unlock(&lock);
}

void si_memory_ends(CUdeviceptr ptr) {
  pthread_mutex_lock(&lock);
  block *b = find(ptr);
  if (b == NULL) si_die("the end of memory that is none");
  char *memory = b->memory;
  in_use[b->context->device] -= b->bytes;
  if (b->pool != NULL && si_lives(SI_POOL, b->pool)) b->pool->used -= b->bytes;
  *b = blocks[--n_blocks];
  pthread_mutex_unlock(&lock);
  si_end(SI_MEMORY, memory);
  free(memory);
}

/* The beginning of a block that is not freed yet is freed now; its pool. */
static CUresult mark_freed(CUdeviceptr ptr, CUmemoryPool *out_pool) {
  pthread_mutex_lock(&lock);
  block *b = find(ptr);
  const int ok = b != NULL && !b->freed && b->memory == (char *)(uintptr_t)(ptr & ~SI_TAG);
  if (ok) {
    b->freed = 1;
    *out_pool = b->pool;
  }
  pthread_mutex_unlock(&lock);
  return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- allocating ------------------------------------------------------------------------------- */

CUresult cuMemAlloc_v2(CUdeviceptr *out_ptr, size_t bytes) {
  const CUresult rc = si_enter_context("cuMemAlloc_v2");
  if (rc == CUDA_SUCCESS && si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return rc == CUDA_SUCCESS ? add(out_ptr, bytes, NULL, 1) : rc;
}

CUresult cuMemFree_v2(CUdeviceptr ptr) {
  CUmemoryPool pool = NULL;
  CUresult rc = si_enter_context("cuMemFree_v2");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  rc = mark_freed(ptr, &pool);
  if (rc != CUDA_SUCCESS) return rc;
  /* A driver may wait for the device here, but does not promise to: work that still uses it is stopped. */
  si_memory_ends(ptr);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *out_free, size_t *out_total) {
  const CUresult rc = si_enter_context("cuMemGetInfo_v2");
  if (rc != CUDA_SUCCESS) return rc;
  pthread_mutex_lock(&lock);
  *out_total = si_get_setup()->memory;
  *out_free = *out_total - in_use[si_current()->device];
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *out_pool, const CUmemPoolProps *props) {
  const CUresult rc = si_enter("cuMemPoolCreate");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_get_setup()->pools) return CUDA_ERROR_NOT_SUPPORTED;
  if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->location.id < 0 ||
      props->location.id >= si_get_setup()->devices)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < sizeof props->reserved; i++)
    if (props->reserved[i] != 0) return CUDA_ERROR_INVALID_VALUE;
  CUmemoryPool pool = calloc(1, sizeof *pool);
  if (pool == NULL) si_die("no memory");
  pool->device = props->location.id;
  si_live(SI_POOL, pool);
  *out_pool = pool;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const CUresult rc = si_enter("cuMemPoolDestroy");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_POOL, pool)) return CUDA_ERROR_INVALID_HANDLE;
  si_end(SI_POOL, pool);
  free(pool); /* blocks of it live on until they are freed */
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  const CUresult rc = si_enter("cuMemPoolSetAttribute");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_POOL, pool)) return CUDA_ERROR_INVALID_HANDLE;
  return attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && value != NULL ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  const CUresult rc = si_enter("cuMemPoolGetAttribute");
  if (rc != CUDA_SUCCESS) return rc;
  if (!si_lives(SI_POOL, pool)) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute != CU_MEMPOOL_ATTR_USED_MEM_HIGH || value == NULL) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  *(cuuint64_t *)value = pool->high;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

static void run_begin(si_work *work) {
  if (work->stream != NULL) si_memory_begins(work->u.memory.ptr);
}
static void run_end(si_work *work) {
  si_memory_ends(work->u.memory.ptr);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out_ptr, size_t bytes, CUmemoryPool pool, CUstream stream) {
  CUresult rc = si_enter_context("cuMemAllocFromPoolAsync");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!si_lives(SI_POOL, pool) || pool->device != si_current()->device) return CUDA_ERROR_INVALID_HANDLE;
  si_work *work = si_work_new(stream, &rc);
  if (work == NULL) return rc;
  rc = add(out_ptr, bytes, pool, 0);
  if (rc != CUDA_SUCCESS) {
    free(work);
    return rc;
  }
  work->u.memory.ptr = *out_ptr;
  work->run = run_begin;
  si_submit(work);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream) {
  CUmemoryPool pool = NULL;
  CUresult rc = si_enter_context("cuMemFreeAsync");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  si_work *work = si_work_new(stream, &rc);
  if (work == NULL) return rc;
  rc = mark_freed(ptr, &pool);
  if (rc == CUDA_SUCCESS && pool == NULL) si_die("cuMemFreeAsync of memory that cuMemAlloc gave");
  if (rc != CUDA_SUCCESS) {
    free(work);
    return rc;
  }
  work->u.memory.ptr = ptr;
  work->run = run_end;
  si_submit(work);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **out_ptr, size_t bytes, unsigned int flags) {
  const CUresult rc = si_enter_context("cuMemHostAlloc");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (flags > 7u || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (posix_memalign(out_ptr, 4096, bytes) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memset(*out_ptr, 0x5A, bytes);
  si_live(SI_PINNED, *out_ptr);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *ptr) {
  const CUresult rc = si_enter("cuMemFreeHost");
  if (rc != CUDA_SUCCESS) return rc;
  if (si_capture_spoilt()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!si_lives(SI_PINNED, ptr)) return CUDA_ERROR_INVALID_VALUE;
  si_end(SI_PINNED, ptr);
  free(ptr);
  return CUDA_SUCCESS;
}

/* ---- copies ----------------------------------------------------------------------------------- */

static void run_copy(si_work *work) {
  if (work->stream == NULL) return;
  char *dst = work->u.copy.dst;
  const char *src = work->u.copy.src;
  if (work->u.copy.dst_device != 0) dst = si_host(work->u.copy.dst_device, work->u.copy.bytes, "a copy");
  if (work->u.copy.src_device != 0) src = si_host(work->u.copy.src_device, work->u.copy.bytes, "a copy");
  memcpy(dst, src, work->u.copy.bytes);
}

static CUresult copy(const char *function, CUdeviceptr dst_device, void *dst, CUdeviceptr src_device,
                     const void *src, size_t bytes, CUstream stream) {
  CUresult rc = si_enter_context(function);
  if (rc != CUDA_SUCCESS) return rc;
  if ((dst_device == 0 || src_device == 0) && si_capture_spoilt()) /* the host's memory may be gone by then */
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const int dst_ok = dst_device != 0 ? si_inside(dst_device, bytes) : dst != NULL;
  const int src_ok = src_device != 0 ? si_inside(src_device, bytes) : src != NULL;
  if (!dst_ok || !src_ok) return CUDA_ERROR_INVALID_VALUE;
  if (((CUdeviceptr)(uintptr_t)dst & SI_TAG) != 0 || ((CUdeviceptr)(uintptr_t)src & SI_TAG) != 0)
    return CUDA_ERROR_INVALID_VALUE; /* a device pointer where a host's belongs */
  if (dst_device != 0 && src_device != 0 && dst_device < src_device + bytes &&
      src_device < dst_device + bytes)
    si_die("a copy from 0x%llx to 0x%llx overlaps itself", (unsigned long long)src_device,
           (unsigned long long)dst_device);
  si_work *work = si_work_new(stream, &rc);
  if (work == NULL) return rc;
  work->u.copy.dst = dst;
  work->u.copy.src = src;
  work->u.copy.dst_device = dst_device;
  work->u.copy.src_device = src_device;
  work->u.copy.bytes = bytes;
  work->run = run_copy;
  si_submit(work);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream) {
  return copy("cuMemcpyHtoDAsync_v2", dst, NULL, 0, src, bytes, stream);
}
CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy("cuMemcpyDtoHAsync_v2", 0, dst, src, NULL, bytes, stream);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy("cuMemcpyDtoDAsync_v2", dst, NULL, src, NULL, bytes, stream);
}

/* ---- for twins -------------------------------------------------------------------------------- */

void *cuda_twin_memory(const void *device_pointer, uint64_t bytes) {
  if (device_pointer == NULL) return NULL;
  return si_host((CUdeviceptr)(uintptr_t)device_pointer, bytes, si_running);
}

void cuda_twin_view(cuda_view *view) {
  if (view->data == NULL) return;
  uint64_t bytes = 0;
  if (view->rows > 0 && view->cols > 0)
    bytes = ((uint64_t)(view->rows - 1) * (uint64_t)view->row +
             (uint64_t)(view->cols - 1) * (uint64_t)view->col + 1) *
            view->size;
  view->data = cuda_twin_memory(view->data, bytes);
}
