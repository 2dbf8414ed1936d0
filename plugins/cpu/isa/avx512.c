/* SPDX-License-Identifier: MIT
 *
 * avx512.c - the kernel table for AVX-512 F, BW, VL and DQ: tiles of up to twelve tokens with two panels, 24
 * accumulators. Compiled with these flags, reached through kernels.h only. */
#include "vec_avx512.h"

#include "columns.h"
#include "table.h"

/* One token with one panel is one chain of wide multiply-adds, two of narrow ones: the same bits, and
 * memory is read a fifth faster. */
static void tile_f32_or_narrow(const cpu_tile *t) {
  if (t->tokens == 1 && t->panels == 1)
    cpu_kernels_avx2.tile[0](t);
  else
    tile_f32(t);
}

/* Eight lanes hold few tokens as well, and their instructions are shorter: the same bits. */
static void turned24_or_narrow(const cpu_turned24 *t) {
  if (t->tokens <= 8)
    cpu_kernels_avx2.turned24(t);
  else
    turned24(t);
}

const cpu_kernels cpu_kernels_avx512 = {
    .name = "avx512",
    CPU_KERNELS_ALIKE,
    .panels = {0, 4, 4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1},
    .panels_dot = {0, 4, 4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1},
    .panels_two = {0, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2},
    .panels_half = {0, 2, 4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1},
    .panels_many = 2,
    .tile = {tile_f32_or_narrow, tile_bf16, tile_f16},
    .narrow_most = 16,
    .spread_most = 12,
    .turned24 = turned24_or_narrow,
    .quant = &cpu_quant_avx512,
    .gather = columns_gather,
    .scatter = columns_scatter,
};
