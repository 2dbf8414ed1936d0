/* SPDX-License-Identifier: MIT
 *
 * portable.c - the kernel table for any processor. */
#include "vec_portable.h"

#include "activate.h"
#include "attention.h"
#include "bytes.h"
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

const cpu_kernels cpu_kernels_portable = {
    .name = "portable",
    .tokens = TILE_TOKENS,
    .panels = {0, 1, 1},
    .panels_many = 1,
    .tile = {tile_f32, NULL, NULL},
    .widen = {NULL, widen_bf16, widen_f16},
    .load = {load_f32, load_bf16, load_f16, load_f8e4m3, load_f8e5m2},
    .store = {store_f32, store_bf16, store_f16, store_f8e4m3, store_f8e5m2},
    .add = add,
    .map = map_steps,
    .forms = map_forms,
    .rows = &row_fns,
    .transpose = transpose,
    .narrow_tokens = NARROW_TOKENS,
    .narrow_most = 4,
    .narrow24 = narrow24,
    .wide24 = wide24,
    .sums24 = sums24,
    .values24 = values24,
    .places24 = places24,
    .spread_most = 2,
    .spread24 = spread24,
    .turned24 = turned24,
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
};
