/* SPDX-License-Identifier: MIT
 * nvml.c - see nvml.h. The library numbers devices in its own order, and all of the machine's: a device is
 * found by its place on the bus. The library stays in the process, like the driver's. */
#include "nvml.h"

#include <dlfcn.h>

#include "inner.h"

#define BUS_ID_BYTES 32

struct cuda_nvml {
  pthread_mutex_t lock;
  const char *wanted;
  int32_t tried, open;
  cuda_nvml_functions call;
};

int32_t cuda_nvml_new(cuda_state *state, const char *wanted, bs_error *err) {
  struct cuda_nvml *nvml = state->host->alloc(state->host->ctx, sizeof *nvml, 64);
  if (nvml == NULL || pthread_mutex_init(&nvml->lock, NULL) != 0) {
    if (nvml != NULL) state->host->free(state->host->ctx, nvml);
    return bs_fail(err, BS_NO_MEMORY, "BS-CUDA-MEMORY", "no memory for NVML's table");
  }
  nvml->wanted = wanted;
  state->nvml = nvml;
  return BS_OK;
}

void cuda_nvml_delete(cuda_state *state) {
  if (state->nvml == NULL) return;
  (void)pthread_mutex_destroy(&state->nvml->lock);
  state->host->free(state->host->ctx, state->nvml);
  state->nvml = NULL;
}

static int find(void *library, const char *name, void *out_function) {
  void *at = dlsym(library, name);
  if (at == NULL) return 0;
  memcpy(out_function, &at, sizeof at); /* pointers to functions have the size of pointers to data */
  return 1;
}

/* The reasons were called throttle reasons before driver 535. */
static int32_t open_library(struct cuda_nvml *nvml) {
  if (strcmp(nvml->wanted, "off") == 0) return 0;
  const char *path = strcmp(nvml->wanted, "auto") == 0 ? "libnvidia-ml.so.1" : nvml->wanted;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == NULL) return 0;
  if (!find(library, "nvmlInit_v2", &nvml->call.init) ||
      !find(library, "nvmlDeviceGetHandleByPciBusId_v2", &nvml->call.by_pci) ||
      !find(library, "nvmlDeviceGetClockInfo", &nvml->call.clock))
    return 0;
  if (!find(library, "nvmlDeviceGetCurrentClocksEventReasons", &nvml->call.reasons) &&
      !find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &nvml->call.reasons))
    nvml->call.reasons = NULL;
  if (!find(library, "nvmlDeviceGetViolationStatus", &nvml->call.violation)) nvml->call.violation = NULL;
  return nvml->call.init() == CUDA_NVML_SUCCESS;
}

static int is_open(struct cuda_nvml *nvml) {
  pthread_mutex_lock(&nvml->lock);
  if (!nvml->tried) nvml->open = open_library(nvml);
  nvml->tried = 1;
  const int open = nvml->open;
  pthread_mutex_unlock(&nvml->lock);
  return open;
}

/* Policies whose times grew, as bits of reasons; the last two are none of the library's. */
#define BOARD (1ull << 62)
#define RELIABILITY (1ull << 63)
static unsigned long long since_last(const struct cuda_nvml *nvml, cuda_nvml_device handle, cuda_inner *in) {
  static const struct {
    int policy;
    unsigned long long bit;
  } policies[CUDA_NVML_POLICIES] = {{0, 0x4}, {1, 0x20}, {2, 0x10}, {3, BOARD}, {5, RELIABILITY}};
  unsigned long long bits = 0;
  for (uint32_t i = 0; i < CUDA_NVML_POLICIES; i++) {
    cuda_nvml_violation time = {0, 0};
    if (nvml->call.violation(handle, policies[i].policy, &time) != CUDA_NVML_SUCCESS) continue;
    if ((in->held_known >> i & 1u) != 0 && time.held_ns > in->held_ns[i]) bits |= policies[i].bit;
    in->held_ns[i] = time.held_ns;
    in->held_known |= 1u << i;
  }
  return bits;
}

/* An idle device has a low clock for want of work: nothing holds it back. */
static void in_words(unsigned long long bits, char *out_text, size_t size) {
  static const struct {
    unsigned long long bit;
    const char *word;
  } words[] = {
      {0x2, "set clocks"},
      {0x4, "power cap"},
      {0x8, "hardware slowdown"},
      {0x10, "sync boost"},
      {0x20, "heat"},
      {0x40, "heat (hardware)"},
      {0x80, "power brake"},
      {0x100, "display clocks"},
      {BOARD, "board limit"},
      {RELIABILITY, "reliability limit"},
  };
  size_t used = 0;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    if ((bits & words[i].bit) == 0) continue;
    const int n = snprintf(out_text + used, size - used, "%s%s", used > 0 ? ", " : "", words[i].word);
    if (n < 0 || (size_t)n >= size - used) {
      out_text[used] = '\0';
      return;
    }
    used += (size_t)n;
  }
}

void cuda_nvml_ask(const cuda_device *device, bs_device_state *out_state) {
  struct cuda_nvml *nvml = device->state->nvml;
  char bus_id[BUS_ID_BYTES] = "";
  cuda_nvml_device handle = NULL;
  unsigned int mhz = 0;
  unsigned long long bits = 0, now = 0;
  if (nvml == NULL || !is_open(nvml)) return;
  if (device->driver->call.device_bus_id(bus_id, (int)sizeof bus_id, device->ordinal) != CUDA_SUCCESS) return;
  if (nvml->call.by_pci(bus_id, &handle) != CUDA_NVML_SUCCESS) return;
  if (nvml->call.clock(handle, CUDA_NVML_CLOCK_SM, &mhz) == CUDA_NVML_SUCCESS) out_state->clock_mhz = mhz;
  if (nvml->call.reasons != NULL && nvml->call.reasons(handle, &now) == CUDA_NVML_SUCCESS) bits = now;
  if (nvml->call.violation != NULL) bits |= since_last(nvml, handle, device->inner);
  in_words(bits, out_state->held_back, sizeof out_state->held_back);
}
