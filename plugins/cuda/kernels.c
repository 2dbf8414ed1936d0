/* SPDX-License-Identifier: MIT
 * kernels.c - the table of kernels: see kernels.h. What a body's NAME_args are is known from its own file. */
#include "kernels.h"

#include "ops/convert_body.h"

/* In the order of enum cuda_kernel. */
const cuda_kernel_info cuda_kernel_table[CUDA_KERNEL_COUNT_] = {
    [CUDA_CONVERT] = {"convert", sizeof(convert_args), CUDA_BLOCK, 0},
};
