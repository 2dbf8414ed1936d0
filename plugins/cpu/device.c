/* SPDX-License-Identifier: MIT
 *
 * device.c - the backend "cpu": one device, host memory, synchronous streams. Called by the host's world
 * code; allocation never happens on the hot path. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu.h"
#include "pool.h"

/* AddressSanitizer finds overruns and leaks of blocks that it allocates itself. */
#if defined(__SANITIZE_ADDRESS__)
#define POOLED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOLED 0
#endif
#endif
#ifndef POOLED
#define POOLED 1
#endif

/* Nothing of the processor needs opening: the device is the plugin's state. */
static int32_t device_count(void *state, uint32_t *out_count, bs_error *err) {
  (void)state;
  (void)err;
  *out_count = 1;
  return BS_OK;
}

static int32_t check_index(uint32_t index, bs_error *err) {
  if (index == 0) return BS_OK;
  return bs_fail(err, BS_NOT_FOUND, "BS-CPU-DEVICE", "cpu has one device (0), not %u", index);
}

static int32_t device_info(void *state, uint32_t index, bs_device_info *out_info, bs_error *err) {
  const cpu_state *cpu = state;
  char isa[64], library[80] = "built without oneDNN";
  const int32_t rc = check_index(index, err);
  if (rc != BS_OK) return rc;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  out_info->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
  cpu_name(out_info->name, sizeof out_info->name);
  cpu_isa_text(&cpu->isa, isa, sizeof isa);
#ifdef BS_CPU_DNNL
  cpu_dnnl_text(cpu->dnnl, library, sizeof library);
#endif
  snprintf(out_info->detail, sizeof out_info->detail, "%s; own kernels: %.12s, class %.8s; %.48s", isa,
           cpu->kernels.name, cpu_class(&cpu->kernels), library);
  return BS_OK;
}

static int32_t device_open(void *state, uint32_t index, void **out_device, bs_error *err) {
  const int32_t rc = check_index(index, err);
  if (rc == BS_OK) *out_device = state;
  return rc;
}

static void device_close(void *device) {
  (void)device;
}

/* Large blocks start at 2 MiB boundaries and request huge pages: a weight of 64 MiB is 16,384 small pages,
 * more than any TLB holds. Smaller ones come from regions of huge pages. Memory is zeroed, which also places
 * its pages near this thread. */
static int32_t mem_alloc(void *device, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err) {
  (void)device;
  const int large = bytes >= 2 * HUGE_PAGE;
  uint64_t boundary = align < 64 ? 64 : align;
  if (large && boundary < HUGE_PAGE) boundary = HUGE_PAGE;
  *out_ptr = NULL;
  if ((align & (align - 1)) != 0)
    return bs_fail(err, BS_INVALID_ARGUMENT, "BS-CPU-ALIGN", "alignment %llu is not a power of two",
                   (unsigned long long)align);
  if (bytes > (uint64_t)PTRDIFF_MAX - boundary)
    return bs_fail(err, BS_OVERFLOW, "BS-CPU-SIZE", "%llu bytes are more than can be addressed",
                   (unsigned long long)bytes);
  void *p = NULL;
  if (POOLED && bytes >= CPU_POOL_LEAST && !large && boundary == 64) p = cpu_pool_alloc(bytes);
  const int rc = p != NULL ? 0 : posix_memalign(&p, (size_t)boundary, bytes == 0 ? 64 : (size_t)bytes);
  if (rc != 0) {
    bs_fail(err, BS_NO_MEMORY, "BS-CPU-MEMORY", "no memory for %llu bytes", (unsigned long long)bytes);
    if (err != NULL) {
      err->native_code = rc;
      snprintf(err->domain, sizeof err->domain, "errno");
    }
    return BS_NO_MEMORY;
  }
  if (large) (void)madvise(p, (size_t)(bytes & ~(HUGE_PAGE - 1)), MADV_HUGEPAGE); /* advice only */
  memset(p, 0, (size_t)bytes);
  *out_ptr = p;
  return BS_OK;
}

static void mem_free(void *device, void *ptr) {
  (void)device;
  if (!POOLED || !cpu_pool_free(ptr)) free(ptr);
}

static int32_t mem_copy(void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                        bs_stream *stream, bs_error *err) {
  (void)device;
  (void)kind; /* all memory is host memory */
  (void)stream;
  (void)err;
  if (bytes > 0) memmove(dst, src, (size_t)bytes);
  return BS_OK;
}

static void *native_handle(void *device, uint32_t what, bs_stream *stream) {
  (void)device;
  (void)what;
  (void)stream;
  return NULL; /* there is nothing below: memory is plain pointers, streams do not exist */
}

const bs_src_loc cpu_backend_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_backend cpu_backend = {
    .struct_size = sizeof(bs_backend),
    .flags = BS_BACKEND_HOST_MEMORY | BS_BACKEND_SYNC,
    .name = "cpu",
    .summary = "this machine's processors: own AMX, AVX-512, AVX2 or portable kernels, and oneDNN",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_copy = mem_copy,
    .native_handle = native_handle,
};
