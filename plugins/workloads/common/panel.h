/* SPDX-License-Identifier: MIT
 * panel.h - the common part of `read` in all sources of a workload: checks the arguments, visits the wanted
 * columns, rounds to the model's dtype and then to the requested one. Thread-safe, no allocation. */
#ifndef BS_WORKLOADS_COMMON_PANEL_H
#define BS_WORKLOADS_COMMON_PANEL_H
#include "blockshock/plugin.h"

/* Elements handled at a time: buffers on the stack stay below 24 KiB a call. */
enum { BS_WL_BLOCK = 1024 };

/* The columns wanted, with NULL resolved. `columns` NULL: begin .. begin+count-1. */
typedef struct bs_wl_columns {
  int64_t begin, count;
  const uint32_t *columns;
} bs_wl_columns;

/* BS_INVALID_ARGUMENT when a row or column is outside, the list does not ascend or a stride is short. */
int32_t bs_wl_check_read(int64_t rows, int64_t cols, int64_t row, int64_t nrows, const bs_partition *part,
                         int64_t out_stride, bs_wl_columns *out_columns, bs_error *err);
/* The number of wanted columns from index i on in one run: at most BS_WL_BLOCK columns wide, no gap above
 * max_gap. */
int64_t bs_wl_run(const bs_wl_columns *columns, int64_t i, uint32_t max_gap);
/* n <= BS_WL_BLOCK elements: src_dtype -> model -> out_dtype, each step rounding once. */
int32_t bs_wl_round(const bs_host *host, uint32_t model, uint32_t out_dtype, void *out, uint32_t src_dtype,
                    const void *src, int64_t n, bs_error *err);
/* The largest finite value of a float dtype; 0 for other dtypes. */
double bs_wl_max_finite(uint32_t dtype);
#endif
