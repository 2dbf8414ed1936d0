/* SPDX-License-Identifier: MIT
 * resources.c - the resources of each kernel on a device: registers, shared and local memory and the most
 * threads, of the loaded function. docs/gpu/resources.txt has the table of the code as built; the driver's
 * own compiler, for PTX, may use others. */
#include "inner.h"

static int32_t ask(const cuda_device *device, uint32_t k, cuda_needs *out, bs_error *err) {
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

/* Too much of them is slow, not wrong. */
static void tell(const cuda_device *device, uint32_t k) {
  const cuda_kernel_info *kernel = &cuda_kernel_table[k];
  const cuda_needs *n = &device->needs[k];
  char text[256];
  snprintf(text, sizeof text,
           "kernel %s: %d registers a thread, %d bytes of shared memory a block, %d bytes of local memory a "
           "thread; %u threads a block of at most %d",
           kernel->name, n->registers, n->shared, n->local, kernel->threads, n->threads);
  say(device, BS_LOG_DEBUG, text);
  const struct {
    int has, allowed;
    const char *of;
  } limits[] = {{n->local, (int)kernel->local_bytes, "bytes of local memory"},
                {n->registers, kernel->registers > 0 ? (int)kernel->registers : n->registers, "registers"}};
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    if (limits[i].has <= limits[i].allowed) continue;
    snprintf(text, sizeof text,
             "kernel %s has %d %s a thread on device %u, and should have %d: it is slower than "
             "it need be; a build with -DBS_CUDA_ARCHS=%d may not be",
             kernel->name, limits[i].has, limits[i].of, device->index, limits[i].allowed, device->capability);
    say(device, BS_LOG_WARN, text);
  }
}

/* Beyond 48 KiB shared memory is had for the asking, once. */
static int32_t allow(const cuda_device *device, uint32_t k, bs_error *err) {
  char what[96];
  if (cuda_kernel_table[k].dynamic == 0) return BS_OK;
  const CUresult result = device->driver->call.function_set(
      device->kernels[k], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)cuda_kernel_table[k].dynamic);
  snprintf(what, sizeof what, "cuFuncSetAttribute of %s, %u bytes of shared memory",
           cuda_kernel_table[k].name, cuda_kernel_table[k].dynamic);
  return cuda_check(device, result, what, err);
}

int32_t cuda_resources_look(cuda_device *device, bs_error *err) {
  const int first = !__atomic_exchange_n(&device->state->kernels_told, 1, __ATOMIC_RELAXED);
  for (uint32_t k = 0; k < CUDA_KERNEL_COUNT_; k++) {
    if (device->kernels[k] == NULL) continue;
    int32_t rc = ask(device, k, &device->needs[k], err);
    if (rc == BS_OK) rc = allow(device, k, err);
    if (rc != BS_OK) return rc;
    if (first) tell(device, k);
    const int threads = device->needs[k].threads;
    if (threads >= 0 && (uint32_t)threads >= cuda_kernel_table[k].threads) continue;
    return bs_fail(err, BS_UNAVAILABLE, "BS-CUDA-KERNEL",
                   "kernel %s can have %d threads a block on device %u, it is launched with %u",
                   cuda_kernel_table[k].name, threads, device->index, cuda_kernel_table[k].threads);
  }
  return BS_OK;
}
