/* SPDX-License-Identifier: MIT
 *
 * avx2.c - the kernel table for AVX2 with FMA and F16C: tiles of six tokens with 16 outputs, twelve
 * accumulators, two loads of the weight panel and six broadcasts a step. Compiled with these flags,
 * reached through kernels.h only. */
#include "vec_avx2.h"

#include "columns.h"
#include "table.h"

const cpu_kernels cpu_kernels_avx2 = {
    .name = "avx2",
    CPU_KERNELS_ALIKE,
    .panels = {0, 4, 2, 2, 1, 1, 1},
    .panels_half = {0, 4, 2, 1, 1, 1, 1},
    .panels_many = 1,
    .tile = {tile_f32, tile_bf16, tile_f16},
    .narrow_most = 8,
    .spread_most = 6,
    .turned24 = turned24,
    .quant = &cpu_quant_avx2,
    .gather = columns_gather,
    .scatter = columns_scatter,
};
