/* SPDX-License-Identifier: MIT
 * products24.h - shared parts of the ops over 2:4 weights, in addition to products.h. */
#ifndef BS_PLUGIN_CUDA_PRODUCTS24_H
#define BS_PLUGIN_CUDA_PRODUCTS24_H
#include "products.h"

int32_t cuda_packed24_make(const bs_op_impl *impl, void *state, const bs_exec *exec, const bs_op_query *query,
                           const bs_source *weights, void **out_packed, uint64_t *out_bytes, bs_error *err);
void cuda_packed24_free(void *packed);
#endif
