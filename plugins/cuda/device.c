/* SPDX-License-Identifier: MIT
 * device.c - backend "cuda": devices are listed without a context, and opened in the device's primary context
 * with streams, a memory pool and the kernels of this build. */
#include <stdlib.h>

#include "comm/comm.h"
#include "comm/nccl.h"
#include "cudnn/library.h"
#include "cusparselt/library.h"
#include "inner.h"
#if defined(BS_CUDA_LT)
#include "cublaslt/library.h"
#endif

/* ---- listing without opening ---------------------------------------------------------------- */

static int32_t open_driver(cuda_state *state, bs_error *err) {
  return cuda_driver_open(&state->driver, state->driver_path, err);
}

static int32_t device_count(void *opaque, uint32_t *out_count, bs_error *err) {
  cuda_state *state = opaque;
  int count = 0;
  int32_t rc = open_driver(state, err);
  if (rc == BS_OK)
    rc = cuda_driver_check(&state->driver, state->driver.call.device_count(&count), "cuDeviceGetCount", err);
  if (rc == BS_OK && count <= 0) /* a driver may say so instead of failing in cuInit */
    rc = cuda_driver_check(&state->driver, CUDA_ERROR_NO_DEVICE, "cuDeviceGetCount", err);
  *out_count = rc == BS_OK ? (uint32_t)count : 0;
  return rc;
}

/* A device's number for the driver. */
static int32_t find(cuda_state *state, uint32_t index, CUdevice *out, bs_error *err) {
  uint32_t count = 0;
  const int32_t rc = device_count(state, &count, err);
  if (rc != BS_OK) return rc;
  if (index < count)
    return cuda_driver_check(&state->driver, state->driver.call.device_get(out, (int)index), "cuDeviceGet",
                             err);
  (void)bs_fail(err, BS_UNAVAILABLE, "BS-CUDA-DEVICE", "device %u asked, there %s %u", index,
                count == 1 ? "is" : "are", count);
  return bs_fail_hint(err, "nvidia-smi -L lists devices; CUDA_VISIBLE_DEVICES may hide some");
}

typedef struct told {
  char name[96];
  int32_t capability, multiprocessors, pools, cache;
  uint64_t memory;
} told;

static int32_t attribute(const cuda_state *state, CUdevice device, CUdevice_attribute which, int32_t *out,
                         bs_error *err) {
  int value = 0;
  const int32_t rc =
      cuda_driver_check(&state->driver, state->driver.call.device_attribute(&value, which, device),
                        "cuDeviceGetAttribute", err);
  *out = value;
  return rc;
}

static int32_t ask(const cuda_state *state, CUdevice device, told *out, bs_error *err) {
  const cuda_driver *driver = &state->driver;
  size_t memory = 0;
  int32_t major = 0, minor = 0;
  memset(out, 0, sizeof *out);
  int32_t rc = cuda_driver_check(driver, driver->call.device_name(out->name, (int)sizeof out->name, device),
                                 "cuDeviceGetName", err);
  if (rc == BS_OK)
    rc = cuda_driver_check(driver, driver->call.device_memory(&memory, device), "cuDeviceTotalMem", err);
  if (rc == BS_OK) rc = attribute(state, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major, err);
  if (rc == BS_OK) rc = attribute(state, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor, err);
  if (rc == BS_OK)
    rc = attribute(state, device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &out->multiprocessors, err);
  if (rc == BS_OK)
    rc = attribute(state, device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &out->pools, err);
  if (rc == BS_OK) rc = attribute(state, device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &out->cache, err);
  out->capability = 10 * major + minor;
  out->memory = memory;
  out->name[sizeof out->name - 1] = '\0';
  return rc;
}

static int32_t device_info(void *opaque, uint32_t index, bs_device_info *out_info, bs_error *err) {
  cuda_state *state = opaque;
  CUdevice device = 0;
  told t;
  int32_t rc = find(state, index, &device, err);
  if (rc == BS_OK) rc = ask(state, device, &t, err);
  if (rc != BS_OK) return rc;
  out_info->memory_bytes = t.memory;
  out_info->cache_bytes = t.cache > 0 ? (uint64_t)t.cache : 0;
  snprintf(out_info->name, sizeof out_info->name, "%s", t.name);
  snprintf(out_info->detail, sizeof out_info->detail,
           "compute capability %d.%d, %d multiprocessors, driver for CUDA %d.%d; several ranks may share it",
           t.capability / 10, t.capability % 10, t.multiprocessors, state->driver.version / 1000,
           state->driver.version % 1000 / 10);
  return BS_OK;
}

/* ---- opening -------------------------------------------------------------------------------- */

static int served_by(const cuda_arch *arch, int32_t capability) {
  if (arch->reach == CUDA_REACH_EXACT) return capability == arch->capability;
  if (arch->reach == CUDA_REACH_UP) return capability >= arch->capability;
  return capability / 10 == arch->capability / 10 && capability >= arch->capability;
}

/* Before a context is made: the driver's own words for this name neither side. */
static int32_t check_code(const cuda_device *device, const char *name, bs_error *err) {
  char held[128] = "";
  size_t used = 0;
  for (uint32_t i = 0; i < cuda_arch_count; i++) {
    if (served_by(&cuda_archs[i], device->capability)) return BS_OK;
    const int n = snprintf(held + used, sizeof held - used, "%s%s", i > 0 ? ", " : "", cuda_archs[i].name);
    if (n > 0 && (size_t)n < sizeof held - used) used += (size_t)n;
  }
  (void)bs_fail(err, BS_UNAVAILABLE, "BS-CUDA-ARCH",
                "device %u (%s) has compute capability %d.%d; this build holds code for %s", device->index,
                name, device->capability / 10, device->capability % 10, held);
  return bs_fail_hint(err, "build with -DBS_CUDA_ARCHS=%d", device->capability);
}

static int32_t make_pool(cuda_device *device, bs_error *err) {
  const cuda_functions *call = &device->driver->call;
  CUmemPoolProps props;
  cuuint64_t keep = UINT64_MAX; /* what is freed stays the pool's: layers come and go at the same sizes */
  memset(&props, 0, sizeof props);
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = (int)device->ordinal;
  int32_t rc = cuda_check(device, call->pool_create(&device->pool, &props), "cuMemPoolCreate", err);
  if (rc != BS_OK) return rc;
  return cuda_check(device, call->pool_set(device->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
                    "cuMemPoolSetAttribute", err);
}

/* The function of a kernel is in the image that has its name. */
static int32_t find_kernels(cuda_device *device, CUmodule module, const cuda_image *image, bs_error *err) {
  const cuda_functions *call = &device->driver->call;
  for (uint32_t k = 0; k < CUDA_KERNEL_COUNT_; k++) {
    const char *name = cuda_kernel_table[k].name;
    if (device->kernels[k] != NULL || name == NULL || strcmp(name, image->name) != 0) continue;
    const CUresult result = call->module_function(&device->kernels[k], module, name);
    device->images[k] = image;
    if (result == CUDA_SUCCESS) continue;
    device->kernels[k] = NULL;
    char what[96];
    snprintf(what, sizeof what, "cuModuleGetFunction of %s", name);
    return cuda_check(device, result, what, err);
  }
  return BS_OK;
}

static int32_t load_images(cuda_device *device, bs_error *err) {
  const cuda_functions *call = &device->driver->call;
  for (uint32_t i = 0; i < cuda_image_count; i++) {
    char what[96];
    snprintf(what, sizeof what, "cuModuleLoadData of %s, driver for CUDA %d.%d", cuda_images[i].name,
             device->driver->version / 1000, device->driver->version % 1000 / 10);
    int32_t rc = cuda_check(device, call->module_load(&device->modules[i], cuda_images[i].data), what, err);
    if (rc == BS_OK) rc = find_kernels(device, device->modules[i], &cuda_images[i], err);
    if (rc != BS_OK) return rc;
  }
  for (uint32_t k = 0; k < CUDA_KERNEL_COUNT_; k++)
    if (device->kernels[k] == NULL && cuda_kernel_table[k].name != NULL)
      return bs_fail(err, BS_INTERNAL, "BS-CUDA-KERNEL", "kernel %s is in no image of this build",
                     cuda_kernel_table[k].name);
  return BS_OK;
}

static int32_t make_inner(cuda_device *device, bs_error *err) {
  cuda_inner *in = device->state->host->alloc(device->state->host->ctx, sizeof *in, 64);
  if (in == NULL || pthread_mutex_init(&in->lock, NULL) != 0) {
    device->state->host->free(device->state->host->ctx, in);
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a device object");
  }
  device->inner = in;
  return BS_OK;
}

/* The primary context is kept from its first use until the plugin ends: it takes most of a second to make,
 * and NVIDIA's libraries keep what they put into it. */
static int32_t retain(cuda_device *device, bs_error *err) {
  cuda_state *state = device->state;
  const uint64_t bit = device->ordinal < 64 ? UINT64_C(1) << device->ordinal : 0;
  const int first = (__atomic_fetch_or(&state->contexts, bit, __ATOMIC_RELAXED) & bit) != bit;
  CUcontext context = NULL;
  int32_t rc = BS_OK;
  for (int i = 0; i <= first && rc == BS_OK; i++) {
    rc = cuda_check(device, device->driver->call.context_retain(&context, device->ordinal),
                    "cuDevicePrimaryCtxRetain", err);
    if (rc != BS_OK && first) (void)__atomic_fetch_and(&state->contexts, ~bit, __ATOMIC_RELAXED);
    if (rc == BS_OK) device->context = context;
  }
  return rc;
}

void cuda_contexts_release(cuda_state *state) {
  if (__atomic_load_n(&state->devices, __ATOMIC_RELAXED) != 0) return;
  for (int ordinal = 0; state->contexts != 0; ordinal++, state->contexts >>= 1)
    if (state->contexts & 1) (void)state->driver.call.context_release(ordinal);
}

static int32_t make_all(cuda_device *device, int pools, bs_error *err) {
  const cuda_functions *call = &device->driver->call;
  int32_t rc = make_inner(device, err);
  if (rc == BS_OK) rc = retain(device, err);
  if (rc == BS_OK) rc = cuda_enter(device, err);
  if (rc == BS_OK)
    rc = cuda_check(device, call->stream_create(&device->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate",
                    err);
  if (rc == BS_OK)
    rc = cuda_check(device, call->event_create(&device->inner->fence, CU_EVENT_DISABLE_TIMING),
                    "cuEventCreate", err);
  if (rc == BS_OK && pools) rc = make_pool(device, err);
  if (rc == BS_OK) rc = load_images(device, err);
  return rc == BS_OK ? cuda_resources_look(device, err) : rc;
}

static void device_close(void *opaque) {
  cuda_device *device = opaque;
  if (device == NULL) return;
  const bs_host *host = device->state->host;
  const cuda_functions *call = &device->driver->call;
  /* Memory that a lost device may still use stays until the process ends. */
  const int lost = cuda_is_lost(device);
  if (device->context != NULL && !lost && cuda_reach(device, NULL) == BS_OK) {
    cuda_sides_close(device);
    if (device->stream != NULL) (void)call->stream_synchronize(device->stream);
    cuda_copies_close(device);
#if defined(BS_CUDA_LT)
    cuda_lt_close(device);
#endif
    cuda_splt_close(device);
    cuda_dnn_close(device);
    for (uint32_t i = 0; i < cuda_image_count; i++)
      if (device->modules[i] != NULL) (void)call->module_unload(device->modules[i]);
    if (device->inner->fence != NULL) (void)call->event_destroy(device->inner->fence);
    if (device->stream != NULL) (void)call->stream_destroy(device->stream);
    if (device->pool != NULL) (void)call->pool_destroy(device->pool);
  }
  if (device->context != NULL && !lost) (void)call->context_release(device->ordinal);
  if (!lost) (void)__atomic_fetch_sub(&device->state->devices, 1, __ATOMIC_RELAXED);
  if (device->inner != NULL) {
    free(device->inner->sides); /* of a lost device: the tables alone */
    free(device->inner->pinned);
    (void)pthread_mutex_destroy(&device->inner->lock);
    host->free(host->ctx, device->inner);
  }
  host->free(host->ctx, device);
}

static int32_t device_open(void *opaque, uint32_t index, void **out_device, bs_error *err) {
  cuda_state *state = opaque;
  CUdevice ordinal = 0;
  told t;
  int32_t rc = find(state, index, &ordinal, err);
  if (rc == BS_OK) rc = ask(state, ordinal, &t, err);
  if (rc != BS_OK) return rc;
  cuda_device *device = state->host->alloc(state->host->ctx, sizeof *device, 64);
  if (device == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a device object");
  device->state = state;
  (void)__atomic_fetch_add(&state->devices, 1, __ATOMIC_RELAXED);
  device->driver = &state->driver;
  device->index = index;
  device->ordinal = ordinal;
  device->capability = t.capability;
  device->multiprocessors = t.multiprocessors;
  device->memory = t.memory;
  rc = check_code(device, t.name, err);
  if (rc == BS_OK) rc = make_all(device, t.pools, err);
  if (rc != BS_OK) {
    device_close(device);
    return rc;
  }
  *out_device = device;
  return BS_OK;
}

/* Ranks that are threads on the one device, or a device each. NCCL's ranks are those of this machine: over
 * several machines who asks must name it. */
static const char *comm_for(void *opaque, uint32_t ranks, uint32_t processes) {
  cuda_state *state = opaque;
  uint32_t count = 0;
  if (ranks < 2 || device_count(state, &count, NULL) != BS_OK) return NULL;
  if (count == 1) return processes ? NULL : cuda_comm_devlocal.name;
  return count >= ranks && cuda_nccl_open(state, NULL) == BS_OK ? cuda_comm_nccl.name : NULL;
}

const bs_backend cuda_backend = {
    .struct_size = (uint32_t)sizeof(bs_backend),
    .name = "cuda",
    .summary = "NVIDIA GPUs through their driver: own kernels, streams and events",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .mem_copy = cuda_mem_copy,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_sync = cuda_stream_sync,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_elapsed = cuda_event_elapsed,
    .native_handle = cuda_native_handle,
    .source_read = cuda_source_read,
    .comm_for = comm_for,
    .capture_begin = cuda_graph_begin,
    .capture_end = cuda_graph_end,
    .capture_run = cuda_graph_run,
    .capture_free = cuda_graph_free,
    .device_state = cuda_device_state,
    .stream_wait = cuda_stream_wait,
};
