/* SPDX-License-Identifier: MIT
 * nvml.c - a stand-in of NVIDIA's management library (libnvidia-ml.so.1): the one device that the driver's
 * stand-in names first. Its clock goes round 1500, 1980 and 1200 MHz from call to call. At 1200 the reasons
 * are the power cap and an idle device. Heat throttles it only between calls: the time lost to heat grows
 * from call to call, and heat is never among the reasons. */
#include <stdint.h>
#include <string.h>

#define NVML_EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, CLOCK_SM = 1 };

NVML_EXPORT int nvmlInit_v2(void);
NVML_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **out_device);
NVML_EXPORT int nvmlDeviceGetClockInfo(void *device, int which, unsigned int *out_mhz);
NVML_EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *out_bits);

typedef struct violation {
  unsigned long long reference_us, held_ns;
} violation;
NVML_EXPORT int nvmlDeviceGetViolationStatus(void *device, int policy, violation *out_time);

static int initialised, the_device;
static _Atomic uint32_t calls;

int nvmlInit_v2(void) {
  initialised = 1;
  return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **out_device) {
  if (!initialised) return UNINITIALIZED;
  if (strcmp(bus_id, "0000:01:00.0") != 0) return NOT_FOUND;
  *out_device = &the_device;
  return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned int *out_mhz) {
  static const unsigned int clocks[3] = {1500, 1980, 1200};
  if (device != &the_device || which != CLOCK_SM) return INVALID_ARGUMENT;
  *out_mhz = clocks[calls++ % 3];
  return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *out_bits) {
  if (device != &the_device) return INVALID_ARGUMENT;
  *out_bits = calls % 3 == 0 ? 0x5 : 0x1;
  return SUCCESS;
}

/* Power was throttled before the first call, and not since. The board's limits are not reported. */
int nvmlDeviceGetViolationStatus(void *device, int policy, violation *out_time) {
  static _Atomic unsigned long long asked;
  if (device != &the_device) return INVALID_ARGUMENT;
  if (policy == 3) return NOT_SUPPORTED;
  out_time->reference_us = 1;
  out_time->held_ns = policy == 0 ? 5000 : policy == 1 ? asked++ * 1000 : 0;
  return SUCCESS;
}
