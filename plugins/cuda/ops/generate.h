/* SPDX-License-Identifier: MIT
 * generate.h - generated matrices made on the device, for packing and for source_read. */
#ifndef BS_PLUGIN_CUDA_GENERATE_H
#define BS_PLUGIN_CUDA_GENERATE_H
#include "ops.h"

/* 1: rows row .. row+nrows-1 of the source and the columns of `cols` can be generated here. 0 also for
 * invalid arguments: the source's read reports the reason. */
int cuda_generates(const bs_source *source, int64_t row, int64_t nrows, const bs_partition *cols);
/* Queues the values into out, whose columns after columns->count become zero. places: out has only the kept
 * ones of `columns`, two a group; NULL: all. Call it only if cuda_generates returned 1. */
int32_t cuda_generate(const cuda_device *device, const bs_source *source, int64_t row,
                      const cuda_columns *columns, const cuda_places *places, const cuda_view *out,
                      CUstream stream, bs_error *err);
/* Generates a whole packed weight, including its rows' ends; it is complete when this returns.
 * BS_UNSUPPORTED: nothing was done. */
int32_t cuda_generate_packed(const cuda_packed *packed, const bs_source *source, const bs_partition *cols,
                             bs_error *err);
#endif
