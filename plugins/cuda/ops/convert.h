/* SPDX-License-Identifier: MIT
 * convert.h - rounds a matrix to another dtype, for ops that need this as a step. */
#ifndef BS_PLUGIN_CUDA_CONVERT_H
#define BS_PLUGIN_CUDA_CONVERT_H
#include "ops.h"

/* The type of a value between two dtypes: enum of walk.h. */
uint32_t cuda_convert_by(uint32_t from, uint32_t to);
/* out = in rounded to out's dtype, two matrices of one shape in device memory; queued in the stream. */
int32_t cuda_convert_views(const cuda_device *device, const cuda_view *in, const cuda_view *out,
                           CUstream stream, bs_error *err);
#endif
