/* SPDX-License-Identifier: MIT
 *
 * portable.c - the kernel table for any processor. */
#include "vec_portable.h"

#include "table.h"

const cpu_kernels cpu_kernels_portable = {
    .name = "portable",
    CPU_KERNELS_ALIKE,
    .panels = {0, 1, 1},
    .panels_many = 1,
    .tile = {tile_f32, NULL, NULL},
    .narrow_most = 4,
    .spread_most = 2,
    .turned24 = turned24,
    .quant = &cpu_quant_portable,
};
