/* SPDX-License-Identifier: MIT
 * driver.c - see driver.h. Nothing here knows devices. */
#include "driver.h"

#include <dlfcn.h>
#include <stddef.h>

/* dlsym gives a pointer to data; the table's members are pointers to functions of the same size. */
typedef struct symbol {
  const char *name;
  size_t offset;
} symbol;
#define AT(member) offsetof(cuda_functions, member)
static const symbol symbols[] = {
    {"cuInit", AT(init)},
    {"cuDriverGetVersion", AT(driver_version)},
    {"cuGetErrorName", AT(error_name)},
    {"cuGetErrorString", AT(error_string)},
    {"cuDeviceGetCount", AT(device_count)},
    {"cuDeviceGet", AT(device_get)},
    {"cuDeviceGetName", AT(device_name)},
    {"cuDeviceGetPCIBusId", AT(device_bus_id)},
    {"cuDeviceTotalMem_v2", AT(device_memory)},
    {"cuDeviceGetAttribute", AT(device_attribute)},
    {"cuDevicePrimaryCtxRetain", AT(context_retain)},
    {"cuDevicePrimaryCtxRelease_v2", AT(context_release)},
    {"cuCtxSetCurrent", AT(context_set)},
    {"cuCtxGetCurrent", AT(context_get)},
    {"cuModuleLoadData", AT(module_load)},
    {"cuModuleUnload", AT(module_unload)},
    {"cuModuleGetFunction", AT(module_function)},
    {"cuFuncGetAttribute", AT(function_attribute)},
    {"cuFuncSetAttribute", AT(function_set)},
    {"cuLaunchKernel", AT(launch)},
    {"cuMemAlloc_v2", AT(mem_alloc)},
    {"cuMemFree_v2", AT(mem_free)},
    {"cuMemGetInfo_v2", AT(mem_info)},
    {"cuMemPoolCreate", AT(pool_create)},
    {"cuMemPoolDestroy", AT(pool_destroy)},
    {"cuMemPoolSetAttribute", AT(pool_set)},
    {"cuMemPoolGetAttribute", AT(pool_get)},
    {"cuMemAllocFromPoolAsync", AT(pool_alloc)},
    {"cuMemFreeAsync", AT(mem_free_async)},
    {"cuMemHostAlloc", AT(mem_host_alloc)},
    {"cuMemFreeHost", AT(mem_host_free)},
    {"cuMemcpyHtoDAsync_v2", AT(copy_up)},
    {"cuMemcpyDtoHAsync_v2", AT(copy_down)},
    {"cuMemcpyDtoDAsync_v2", AT(copy_across)},
    {"cuStreamCreate", AT(stream_create)},
    {"cuStreamDestroy_v2", AT(stream_destroy)},
    {"cuStreamSynchronize", AT(stream_synchronize)},
    {"cuStreamQuery", AT(stream_query)},
    {"cuStreamBeginCapture_v2", AT(capture_begin)},
    {"cuStreamEndCapture", AT(capture_end)},
    {"cuGraphDestroy", AT(graph_destroy)},
    {"cuGraphInstantiateWithFlags", AT(graph_instantiate)},
    {"cuGraphLaunch", AT(graph_launch)},
    {"cuGraphExecDestroy", AT(graph_exec_destroy)},
    {"cuStreamWaitEvent", AT(stream_wait_event)},
    {"cuEventCreate", AT(event_create)},
    {"cuEventDestroy_v2", AT(event_destroy)},
    {"cuEventRecord", AT(event_record)},
    {"cuEventQuery", AT(event_query)},
    {"cuEventSynchronize", AT(event_synchronize)},
    {"cuEventElapsedTime", AT(event_elapsed)},
};
#undef AT
enum { N_SYMBOLS = sizeof symbols / sizeof symbols[0] };
_Static_assert(N_SYMBOLS * sizeof(void *) == sizeof(cuda_functions), "a symbol for each function");

/* ---- results in words ----------------------------------------------------------------------- */

typedef struct meaning {
  CUresult result;
  int32_t code;
  const char *hint;
} meaning;
static const char driver_hint[] =
    "nvidia-smi tells whether the driver works; after an update it may need to be loaded again";
static const char lost_hint[] =
    "the device's work of this process is lost; compute-sanitizer bsrun ... names the kernel";
static const meaning meanings[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, BS_NO_MEMORY,
     "nvidia-smi shows who holds the device's memory; fewer ranks a device or smaller shapes take less"},
    {CUDA_ERROR_NOT_INITIALIZED, BS_UNAVAILABLE, driver_hint},
    {CUDA_ERROR_DEINITIALIZED, BS_UNAVAILABLE, "the process is ending"},
    {CUDA_ERROR_STUB_LIBRARY, BS_UNAVAILABLE,
     "this libcuda is the toolkit's stub for linking: take its folder out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, BS_UNAVAILABLE,
     "another process has it for itself: nvidia-smi tells the compute mode"},
    {CUDA_ERROR_NO_DEVICE, BS_UNAVAILABLE, "nvidia-smi -L lists devices; CUDA_VISIBLE_DEVICES may hide them"},
    {CUDA_ERROR_INVALID_DEVICE, BS_UNAVAILABLE, "nvidia-smi -L lists devices"},
    {CUDA_ERROR_DEVICE_NOT_LICENSED, BS_UNAVAILABLE, "the virtual GPU has no licence"},
    {CUDA_ERROR_INVALID_IMAGE, BS_UNAVAILABLE, "the driver may be older than the toolkit of this build"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, BS_UNAVAILABLE, "build with -DBS_CUDA_ARCHS naming this device's"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, BS_UNAVAILABLE,
     "the driver is older than the toolkit of this build"},
    {CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, BS_UNAVAILABLE, driver_hint},
    {CUDA_ERROR_OPERATING_SYSTEM, BS_UNAVAILABLE, driver_hint},
    {CUDA_ERROR_SYSTEM_NOT_READY, BS_UNAVAILABLE, "the machine's fabric manager does not run"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, BS_UNAVAILABLE,
     "the library and the kernel's module belong to different drivers: load the module again, or restart the "
     "machine"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, BS_UNAVAILABLE,
     "take the compatibility library out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_MPS_CONNECTION_FAILED, BS_UNAVAILABLE, "the MPS server does not answer"},
    {CUDA_ERROR_MPS_SERVER_NOT_READY, BS_UNAVAILABLE, "the MPS server is starting: try again"},
    {CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, BS_UNAVAILABLE, "the MPS server takes no more processes"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, BS_RANK_FAILED, "the device's memory is broken: nvidia-smi -q -d ECC"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, BS_RANK_FAILED, lost_hint},
    {CUDA_ERROR_MISALIGNED_ADDRESS, BS_RANK_FAILED, lost_hint},
    {CUDA_ERROR_LAUNCH_FAILED, BS_RANK_FAILED, lost_hint},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, BS_RANK_FAILED, lost_hint},
    {CUDA_ERROR_HARDWARE_STACK_ERROR, BS_RANK_FAILED, lost_hint},
};

static const meaning *meaning_of(CUresult result) {
  for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
    if (meanings[i].result == result) return &meanings[i];
  return NULL;
}

int32_t cuda_driver_check(const cuda_driver *driver, CUresult result, const char *what, bs_error *err) {
  if (result == CUDA_SUCCESS) return BS_OK;
  const meaning *m = meaning_of(result);
  const int32_t code = m != NULL ? m->code : BS_RANK_FAILED;
  const char *name = NULL, *text = NULL;
  if (driver->call.error_name != NULL && driver->call.error_name(result, &name) != CUDA_SUCCESS) name = NULL;
  if (driver->call.error_string != NULL && driver->call.error_string(result, &text) != CUDA_SUCCESS)
    text = NULL;
  (void)bs_fail(err, code,
                code == BS_NO_MEMORY     ? "BS-CUDA-MEMORY"
                : code == BS_UNAVAILABLE ? "BS-CUDA-UNAVAILABLE"
                                         : "BS-CUDA-FAILED",
                "%s: %s (%d): %s", what, name != NULL ? name : "an unknown error", (int)result,
                text != NULL ? text : "the driver has no words for it");
  if (err != NULL) {
    err->native_code = (int64_t)result;
    snprintf(err->domain, sizeof err->domain, "cuda");
    if (m != NULL) (void)bs_fail_hint(err, "%s", m->hint);
  }
  return code;
}

/* ---- opening -------------------------------------------------------------------------------- */

int32_t cuda_driver_init(cuda_driver *driver, bs_error *err) {
  if (pthread_mutex_init(&driver->lock, NULL) == 0) return BS_OK;
  return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for a lock");
}

void cuda_driver_close(cuda_driver *driver) {
  (void)pthread_mutex_destroy(&driver->lock);
}

static int32_t find_library(cuda_driver *driver, const char *path, bs_error *err) {
  driver->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (driver->library != NULL) return BS_OK;
  const char *why = dlerror();
  (void)bs_fail(err, BS_UNAVAILABLE, "BS-CUDA-LIBRARY", "NVIDIA's driver library is not available: %s",
                why != NULL ? why : path);
  return bs_fail_hint(err,
                      "install NVIDIA's driver (nvidia-smi shows it), or name the library's file: "
                      "--set plugins.cuda.driver=PATH");
}

static int32_t find_symbols(cuda_driver *driver, const char *path, bs_error *err) {
  for (size_t i = 0; i < N_SYMBOLS; i++) {
    void *at = dlsym(driver->library, symbols[i].name);
    if (at == NULL) {
      memset(&driver->call, 0, sizeof driver->call);
      (void)bs_fail(err, BS_UNAVAILABLE, "BS-CUDA-SYMBOL", "%s has no %s", path, symbols[i].name);
      return bs_fail_hint(err,
                          "the driver is too old, or the file is another library: drivers since CUDA "
                          "11.4 have it");
    }
    memcpy((char *)&driver->call + symbols[i].offset, &at, sizeof at);
  }
  return BS_OK;
}

static int32_t open_once(cuda_driver *driver, const char *path, bs_error *err) {
  int32_t rc = find_library(driver, path, err);
  if (rc == BS_OK) rc = find_symbols(driver, path, err);
  if (rc != BS_OK) return rc;
  rc = cuda_driver_check(driver, driver->call.init(0), "cuInit", err);
  int version = 0;
  if (rc == BS_OK)
    rc = cuda_driver_check(driver, driver->call.driver_version(&version), "cuDriverGetVersion", err);
  driver->version = version;
  if (rc == BS_OK) return BS_OK;
  /* Whatever it is, nothing can be done with the driver. */
  if (err != NULL) err->code = BS_UNAVAILABLE;
  return BS_UNAVAILABLE;
}

int32_t cuda_driver_open(cuda_driver *driver, const char *path, bs_error *err) {
  pthread_mutex_lock(&driver->lock);
  if (!driver->tried) {
    driver->tried = 1;
    driver->why.struct_size = (uint32_t)sizeof driver->why;
    driver->why.code = BS_OK;
    driver->why.code = open_once(driver, path != NULL ? path : "libcuda.so.1", &driver->why);
  }
  const int32_t rc = driver->why.code;
  if (rc != BS_OK && err != NULL) *err = driver->why;
  pthread_mutex_unlock(&driver->lock);
  return rc;
}

int32_t cuda_driver_capability(cuda_driver *driver, const char *path) {
  int32_t least = 0;
  int count = 0;
  if (cuda_driver_open(driver, path, NULL) != BS_OK) return 0;
  if (driver->call.device_count(&count) != CUDA_SUCCESS) return 0;
  for (int i = 0; i < count; i++) {
    CUdevice device = 0;
    int major = 0, minor = 0;
    if (driver->call.device_get(&device, i) != CUDA_SUCCESS ||
        driver->call.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) !=
            CUDA_SUCCESS ||
        driver->call.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) !=
            CUDA_SUCCESS)
      continue;
    const int32_t capability = 10 * major + minor;
    if (least == 0 || capability < least) least = capability;
  }
  return least;
}
