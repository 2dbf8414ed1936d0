/* SPDX-License-Identifier: MIT
 * twins.h - the CPU twins of the cuda plugin's kernels: the same bodies (plugins/cuda/ops/NAME_body.h) run by
 * loops over blocks and threads. The stand-in of the driver's library launches them in the place of kernels.
 *
 * Device pointers of the stand-in are no host addresses: whoever reads through one without asking here stops
 * with a signal, as on a machine with a GPU. */
#ifndef BS_STANDIN_TWINS_H
#define BS_STANDIN_TWINS_H
#include <stdint.h>

#include "plugins/cuda/ops/kernel.h"

typedef struct cuda_twin_grid {
  uint32_t x, y, z; /* blocks */
  uint32_t threads; /* of a block */
  uint32_t shared;  /* bytes of dynamic shared memory of a block */
} cuda_twin_grid;

/* Runs the whole grid. `args` is the kernel's NAME_args as it was launched, with device pointers in it. */
typedef struct cuda_twin {
  const char *name;
  void (*run)(const void *args, const cuda_twin_grid *grid);
} cuda_twin;
const cuda_twin *cuda_twin_find(const char *name); /* NULL: no such kernel */
const cuda_twin *cuda_twin_at(uint32_t index);     /* NULL: no more */

/* The host address of `bytes` bytes at a device pointer; NULL for NULL. Anything else that does not lie in
 * one living allocation of the stand-in ends the process with a message that names the twin: what a memory
 * checker does. */
void *cuda_twin_memory(const void *device_pointer, uint64_t bytes);
/* Does the same for all memory that a view reaches. */
void cuda_twin_view(cuda_view *view);
#endif
