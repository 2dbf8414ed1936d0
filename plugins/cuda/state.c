/* SPDX-License-Identifier: MIT
 * state.c - how an opened device fares: the most that its pool held, which is not known without pools, and
 * its clock. */
#include "inner.h"
#include "nvml.h"

int32_t cuda_device_state(void *opaque, bs_device_state *out_state, bs_error *err) {
  const cuda_device *device = opaque;
  cuuint64_t high = 0;
  int32_t rc = cuda_enter(device, err);
  if (rc == BS_OK && device->pool != NULL)
    rc = cuda_check(device, device->driver->call.pool_get(device->pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high),
                    "cuMemPoolGetAttribute", err);
  out_state->memory_peak_bytes = high;
  if (rc == BS_OK) cuda_nvml_ask(device, out_state);
  return rc;
}
