/* SPDX-License-Identifier: MIT
 * device.c - the driver itself, devices, primary contexts, and the list of what lives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

static struct CUctx_st contexts[SI_DEVICES];
static _Thread_local CUcontext current;

/* ---- what lives ------------------------------------------------------------------------------- */

static struct {
  const void **things;
  size_t count, capacity;
} living[SI_KIND_COUNT_];
static pthread_mutex_t living_lock = PTHREAD_MUTEX_INITIALIZER;

void si_live(uint32_t kind, const void *thing) {
  pthread_mutex_lock(&living_lock);
  if (living[kind].count == living[kind].capacity) {
    living[kind].capacity = living[kind].capacity != 0 ? 2 * living[kind].capacity : 64;
    living[kind].things = realloc(living[kind].things, living[kind].capacity * sizeof *living[kind].things);
    if (living[kind].things == NULL) si_die("no memory");
  }
  living[kind].things[living[kind].count++] = thing;
  pthread_mutex_unlock(&living_lock);
}

static size_t place_of(uint32_t kind, const void *thing) {
  for (size_t i = living[kind].count; i-- > 0;)
    if (living[kind].things[i] == thing) return i;
  return SIZE_MAX;
}

void si_end(uint32_t kind, const void *thing) {
  pthread_mutex_lock(&living_lock);
  const size_t at = place_of(kind, thing);
  if (at == SIZE_MAX) si_die("the end of something (kind %u) that does not live", kind);
  living[kind].things[at] = living[kind].things[--living[kind].count];
  pthread_mutex_unlock(&living_lock);
}

int si_lives(uint32_t kind, const void *thing) {
  pthread_mutex_lock(&living_lock);
  const int yes = thing != NULL && place_of(kind, thing) != SIZE_MAX;
  pthread_mutex_unlock(&living_lock);
  return yes;
}

int64_t standin_count(uint32_t kind) {
  pthread_mutex_lock(&living_lock);
  const int64_t count = kind < SI_KIND_COUNT_ ? (int64_t)living[kind].count : -1;
  pthread_mutex_unlock(&living_lock);
  return count;
}

/* ---- the driver ------------------------------------------------------------------------------- */

CUresult cuInit(unsigned int flags) {
  const CUresult rc = si_plain("cuInit");
  if (rc != CUDA_SUCCESS) return rc;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (si_get_setup()->devices == 0) return CUDA_ERROR_NO_DEVICE;
  __atomic_store_n(&si_initialised, 1, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *out_version) {
  const CUresult rc = si_plain("cuDriverGetVersion");
  if (rc == CUDA_SUCCESS) *out_version = si_get_setup()->version;
  return rc;
}

/* Names of what the tests plan; the rest by number. */
static const struct {
  CUresult error;
  const char *name, *text;
} texts[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int text_of(CUresult error) {
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (texts[i].error == error) return (int)i;
  return -1;
}
CUresult cuGetErrorName(CUresult error, const char **out_text) {
  const int at = text_of(error);
  *out_text = at >= 0 ? texts[at].name : NULL;
  return at >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorString(CUresult error, const char **out_text) {
  const int at = text_of(error);
  *out_text = at >= 0 ? texts[at].text : NULL;
  return at >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- devices ---------------------------------------------------------------------------------- */

static CUresult device_enter(const char *function, CUdevice device) {
  const CUresult rc = si_enter(function);
  if (rc != CUDA_SUCCESS) return rc;
  return device >= 0 && device < si_get_setup()->devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *out_count) {
  const CUresult rc = si_enter("cuDeviceGetCount");
  if (rc == CUDA_SUCCESS) *out_count = si_get_setup()->devices;
  return rc;
}
CUresult cuDeviceGet(CUdevice *out_device, int index) {
  const CUresult rc = device_enter("cuDeviceGet", index);
  if (rc == CUDA_SUCCESS) *out_device = index;
  return rc;
}
CUresult cuDeviceGetName(char *out_name, int size, CUdevice device) {
  const CUresult rc = device_enter("cuDeviceGetName", device);
  if (rc == CUDA_SUCCESS) snprintf(out_name, (size_t)size, "%s", si_get_setup()->name);
  return rc;
}
CUresult cuDeviceGetPCIBusId(char *out_text, int size, CUdevice device) {
  const CUresult rc = device_enter("cuDeviceGetPCIBusId", device);
  if (rc == CUDA_SUCCESS) snprintf(out_text, (size_t)size, "0000:%02x:00.0", device + 1);
  return rc;
}
CUresult cuDeviceTotalMem_v2(size_t *out_bytes, CUdevice device) {
  const CUresult rc = device_enter("cuDeviceTotalMem_v2", device);
  if (rc == CUDA_SUCCESS) *out_bytes = si_get_setup()->memory;
  return rc;
}
CUresult cuDeviceGetAttribute(int *out_value, CUdevice_attribute attribute, CUdevice device) {
  const CUresult rc = device_enter("cuDeviceGetAttribute", device);
  const si_setup *s = si_get_setup();
  if (rc != CUDA_SUCCESS) return rc;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *out_value = s->capability / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *out_value = s->capability % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *out_value = 4;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      *out_value = s->pools;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *out_value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *out_value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *out_value = 49152;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *out_value = 232448;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *out_value = 1 << 20;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

/* ---- primary contexts ------------------------------------------------------------------------- */

CUcontext si_current(void) {
  return current != NULL && __atomic_load_n(&current->retained, __ATOMIC_ACQUIRE) > 0 ? current : NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out_context, CUdevice device) {
  const CUresult rc = device_enter("cuDevicePrimaryCtxRetain", device);
  if (rc != CUDA_SUCCESS) return rc;
  CUcontext c = &contexts[device];
  pthread_mutex_lock(&si_lock);
  if (c->retained == 0) {
    c->device = device;
    c->sticky = CUDA_SUCCESS;
    si_live(SI_CONTEXT, c);
  }
  __atomic_add_fetch(&c->retained, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&si_lock);
  *out_context = c;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const CUresult rc = device_enter("cuDevicePrimaryCtxRelease_v2", device);
  if (rc != CUDA_SUCCESS) {
    si_join_workers(); /* nothing waits for them later, and a sanitizer reports them as leaks */
    return rc;
  }
  CUcontext c = &contexts[device];
  if (!si_lives(SI_CONTEXT, c)) return CUDA_ERROR_INVALID_CONTEXT;
  pthread_mutex_lock(&si_lock);
  const int64_t left = (int64_t)__atomic_sub_fetch(&c->retained, 1, __ATOMIC_RELEASE);
  if (left == 0) si_end(SI_CONTEXT, c);
  pthread_mutex_unlock(&si_lock);
  if (left <= 1) si_join_workers(); /* the last one may be kept by who uses none */
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  const CUresult rc = si_enter("cuCtxSetCurrent");
  if (rc != CUDA_SUCCESS) return rc;
  if (context != NULL && !si_lives(SI_CONTEXT, context)) return CUDA_ERROR_INVALID_CONTEXT;
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *out_context) {
  const CUresult rc = si_enter("cuCtxGetCurrent");
  if (rc == CUDA_SUCCESS) *out_context = si_current();
  return rc;
}
