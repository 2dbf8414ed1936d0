/* SPDX-License-Identifier: MIT
 * nvml.h - NVIDIA's management library, opened at run time if it is present: the clock of a device's
 * processors, and the reasons that limit it. Optional: without it, or without its answer, both are
 * unknown. */
#ifndef BS_PLUGIN_CUDA_NVML_H
#define BS_PLUGIN_CUDA_NVML_H
#include "cuda.h"

/* Declarations of the library's header, which not all toolkits have, with its numbers. */
typedef struct nvmlDevice_st *cuda_nvml_device;
enum { CUDA_NVML_SUCCESS = 0, CUDA_NVML_CLOCK_SM = 1 };
/* Since when the driver counts, and for how long the policy kept the clock down. */
typedef struct cuda_nvml_violation {
  unsigned long long reference_us, held_ns;
} cuda_nvml_violation;
typedef struct cuda_nvml_functions {
  int (*init)(void);
  int (*by_pci)(const char *bus_id, cuda_nvml_device *out_device);
  int (*clock)(cuda_nvml_device device, int which, unsigned int *out_mhz);
  int (*reasons)(cuda_nvml_device device, unsigned long long *out_bits);
  int (*violation)(cuda_nvml_device device, int policy, cuda_nvml_violation *out_time);
} cuda_nvml_functions;

/* `wanted`: a path, auto, or off; lives as long as the state. Opens nothing yet. */
int32_t cuda_nvml_new(cuda_state *state, const char *wanted, bs_error *err);
void cuda_nvml_delete(cuda_state *state);
/* Fills the known facts. held_back: the present limits of the clock, and all limits since the last call for
 * this device object, because a device that has just ended its work has none. One call at a time a device
 * object. */
void cuda_nvml_ask(const cuda_device *device, bs_device_state *out_state);
#endif
