/* SPDX-License-Identifier: MIT
 * kernels.c - the table of kernels: see kernels.h. What a body's NAME_args are is known from its own file. */
#include "kernels.h"

#include <stddef.h>

/* In the order of enum cuda_kernel. */
const cuda_kernel_info cuda_kernel_table[CUDA_KERNEL_COUNT_] = {
    [CUDA_CONVERT] = {NULL, 0, 0, 0},
};
