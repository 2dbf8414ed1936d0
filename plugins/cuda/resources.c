/* SPDX-License-Identifier: MIT
 * resources.c - what the driver made of each kernel for a device: registers, shared and local memory and the
 * most threads, of the loaded function. The table of the code as it was built is docs/gpu/resources.txt; the
 * driver's own compiler, for PTX, may come to others. */
#include "inner.h"

typedef struct needs {
  int registers, shared, local, threads;
} needs;

static int32_t ask(const cuda_device *device, uint32_t k, needs *out, bs_error *err) {
  const struct {
    CUfunction_attribute what;
    int *out;
  } asked[] = {{CU_FUNC_ATTRIBUTE_NUM_REGS, &out->registers},
               {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &out->shared},
               {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &out->local},
               {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &out->threads}};
  for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
    char what[96];
    const CUresult result =
        device->driver->call.function_attribute(asked[i].out, asked[i].what, device->kernels[k]);
    snprintf(what, sizeof what, "cuFuncGetAttribute of %s", cuda_kernel_table[k].name);
    if (result != CUDA_SUCCESS) return cuda_check(device, result, what, err);
  }
  return BS_OK;
}

static void say(const cuda_device *device, int32_t level, const char *text) {
  const cuda_state *state = device->state;
  state->host->log(state->host->ctx, state->self, level, __FILE__, __LINE__, text);
}

/* Local memory is slow, not wrong. */
static void tell(const cuda_device *device, uint32_t k, const needs *n) {
  const cuda_kernel_info *kernel = &cuda_kernel_table[k];
  char text[256];
  snprintf(text, sizeof text,
           "kernel %s: %d registers a thread, %d bytes of shared memory a block, %d bytes of local memory a "
           "thread; %u threads a block of at most %d",
           kernel->name, n->registers, n->shared, n->local, kernel->threads, n->threads);
  say(device, BS_LOG_DEBUG, text);
  if ((uint32_t)n->local <= kernel->local_bytes) return;
  snprintf(
      text, sizeof text,
      "kernel %s has %d bytes of local memory a thread on device %u, and should have %u: it is slower than "
      "it need be; a build with -DBS_CUDA_ARCHS=%d may not be",
      kernel->name, n->local, device->index, kernel->local_bytes, device->capability);
  say(device, BS_LOG_WARN, text);
}

int32_t cuda_resources_look(const cuda_device *device, bs_error *err) {
  const int first = !__atomic_exchange_n(&device->state->kernels_told, 1, __ATOMIC_RELAXED);
  for (uint32_t k = 0; k < CUDA_KERNEL_COUNT_; k++) {
    needs n = {0, 0, 0, 0};
    if (device->kernels[k] == NULL) continue;
    const int32_t rc = ask(device, k, &n, err);
    if (rc != BS_OK) return rc;
    if (first) tell(device, k, &n);
    if (n.threads >= 0 && (uint32_t)n.threads >= cuda_kernel_table[k].threads) continue;
    return bs_fail(err, BS_UNAVAILABLE, "BS-CUDA-KERNEL",
                   "kernel %s can have %d threads a block on device %u, it is launched with %u",
                   cuda_kernel_table[k].name, n.threads, device->index, cuda_kernel_table[k].threads);
  }
  return BS_OK;
}
