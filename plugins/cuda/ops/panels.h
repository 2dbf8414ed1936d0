/* SPDX-License-Identifier: MIT
 * panels.h - a matrix made on the host, some rows at a time, and uploaded while the next rows are made. */
#ifndef BS_PLUGIN_CUDA_PANELS_H
#define BS_PLUGIN_CUDA_PANELS_H
#include "ops.h"

typedef struct cuda_panels {
  const cuda_device *device;
  const bs_host *host;
  const bs_exec *exec;
  void *to; /* device memory, rows * line bytes */
  int64_t rows;
  uint64_t line;    /* bytes of a row */
  uint64_t scratch; /* scratch bytes of one member of the team, in addition to its rows */
  /* Fills rows row .. row+n-1, `line` bytes apart, at most `most` at a time. `out` holds zeros or data of an
   * earlier call. The members of the team call it for separate rows. */
  int32_t (*fill)(const void *ctx, int64_t row, int64_t n, unsigned char *out, unsigned char *scratch,
                  bs_error *err);
  const void *ctx;
  int64_t most;
} cuda_panels;

/* Copies all rows, through two pinned buffers alternately: the team fills one while the other is being
 * copied. Complete, on the device's own stream, when it returns. */
int32_t cuda_panels_pull(const cuda_panels *panels, bs_error *err);
#endif
