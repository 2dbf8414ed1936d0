/* SPDX-License-Identifier: MIT
 *
 * avx512.c - the kernel table for AVX-512 F, BW, VL and DQ: tiles of up to twelve tokens with two panels, 24
 * accumulators. Compiled with these flags, reached through kernels.h only. */
#include "vec_avx512.h"

#include "activate.h"
#include "attention.h"
#include "bytes.h"
#include "columns.h"
#include "convert.h"
#include "f8.h"
#include "map.h"
#include "optimizer.h"
#include "quantize.h"
#include "rows.h"
#include "sparse.h"
#include "tile.h"
#include "transpose.h"
#include "turned.h"

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
    .tokens = TILE_TOKENS,
    .panels = {0, 4, 4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1},
    .panels_half = {0, 2, 4, 4, 4, 2, 2, 2, 1, 1, 1, 1, 1},
    .panels_many = 2,
    .tile = {tile_f32_or_narrow, tile_bf16, tile_f16},
    .widen = {NULL, widen_bf16, widen_f16},
    .load = {load_f32, load_bf16, load_f16, load_f8e4m3, load_f8e5m2},
    .store = {store_f32, store_bf16, store_f16, store_f8e4m3, store_f8e5m2},
    .add = add,
    .map = map_steps,
    .forms = map_forms,
    .rows = &row_fns,
    .transpose = transpose,
    .narrow_tokens = NARROW_TOKENS,
    .narrow_most = 16,
    .narrow24 = narrow24,
    .wide24 = wide24,
    .sums24 = sums24,
    .values24 = values24,
    .places24 = places24,
    .spread_most = 12,
    .spread24 = spread24,
    .turned24 = turned24_or_narrow,
    .activate = {NULL, activate_relu, activate_gelu, activate_silu, activate_gelu_tanh},
    .slope = {NULL, slope_relu, slope_gelu, slope_silu},
    .sgd = sgd,
    .adamw = adamw,
    .largest = largest_bits,
    .narrow = {narrow_i8, narrow_f8e4m3, narrow_f8e5m2},
    .widen8 = {NULL, widen_f8e4m3, widen_f8e5m2},
    .dot_rows = dot_rows,
    .attend = {attend_exact, attend_fast},
    .attend_scale = attend_scale,
    .strips = attend_strips,
    .attend_gather = attend_gather,
    .dequantize = dequantize_group,
    .scale_sums = scale_sums,
    .bytes_tokens = BYTES_TOKENS,
    .bytes = bytes,
    .gather = columns_gather,
    .scatter = columns_scatter,
};
