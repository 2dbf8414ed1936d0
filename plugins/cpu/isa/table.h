/* SPDX-License-Identifier: MIT
 *
 * table.h - the inner loops of this folder, and the part of their table (kernels.h) that every instruction
 * set has alike. portable.c, avx2.c and avx512.c include it after their vec_....h. */
#ifndef BS_PLUGINS_CPU_ISA_TABLE_H
#define BS_PLUGINS_CPU_ISA_TABLE_H

#include "activate.h"
#include "attention.h"
#include "convert.h"
#include "f8.h"
#include "map.h"
#include "optimizer.h"
#include "pair_product.h"
#include "pairs.h"
#include "quantize.h"
#include "rows.h"
#include "sparse.h"
#include "tile.h"
#include "transpose.h"
#include "turned.h"
#include "whole.h"

/* clang-format off */
#define CPU_KERNELS_ALIKE                                                              \
  .tokens = TILE_TOKENS,                                                               \
  .widen = {NULL, widen_bf16, widen_f16},                                              \
  .load = {load_f32, load_bf16, load_f16, load_f8e4m3, load_f8e5m2},                   \
  .store = {store_f32, store_bf16, store_f16, store_f8e4m3, store_f8e5m2},             \
  .load_whole = {load_i8, load_u8, load_i32},                                          \
  .store_whole = {store_i8, store_u8, store_i32},                                      \
  .i64_load = {i64_of_i8, i64_of_u8, i64_of_i32},                                      \
  .i64_store = {bytes_of_i64, bytes_of_i64, u32_of_i64},                               \
  .i64_add = i64_add,                                                                  \
  .i64_sub = i64_sub,                                                                  \
  .i64_mul = i64_mul,                                                                  \
  .f64_of_i32 = f64_of_i32,                                                            \
  .f64_of_f32 = f64_of_f32,                                                            \
  .f32_of_f64 = f32_of_f64,                                                            \
  .f64_add = f64_add,                                                                  \
  .f64_sub = f64_sub,                                                                  \
  .f64_mul = f64_mul,                                                                  \
  .ends = ends_of_row,                                                                 \
  .add = add,                                                                          \
  .map = map_steps,                                                                    \
  .forms = map_forms,                                                                  \
  .rows = &row_fns,                                                                    \
  .transpose = transpose,                                                              \
  .narrow_tokens = NARROW_TOKENS,                                                      \
  .narrow24 = narrow24,                                                                \
  .wide24 = wide24,                                                                    \
  .sums24 = sums24,                                                                    \
  .values24 = values24,                                                                \
  .places24 = places24,                                                                \
  .spread24 = spread24,                                                                \
  .activate = {NULL, activate_relu, activate_gelu, activate_silu, activate_gelu_tanh}, \
  .slope = {NULL, slope_relu, slope_gelu, slope_silu},                                 \
  .sgd = sgd,                                                                          \
  .adamw = adamw,                                                                      \
  .largest = largest_bits,                                                             \
  .narrow = {narrow_i8, narrow_f8e4m3, narrow_f8e5m2},                                 \
  .widen8 = {NULL, widen_f8e4m3, widen_f8e5m2},                                        \
  .dot_rows = dot_rows,                                                                \
  .attend = {attend_exact, attend_fast},                                               \
  .attend_scale = attend_scale,                                                        \
  .strips = attend_strips,                                                             \
  .attend_dots = {attend_dots_f32, attend_dots_bf16, attend_dots_f16},                 \
  .attend_gather = {attend_gather_f32, attend_gather_bf16, attend_gather_f16},         \
  .dequantize = dequantize_group,                                                      \
  .scale_sums = scale_sums,                                                            \
  .pair_tokens = PAIRS_TOKENS,                                                         \
  .pairs = pairs,                                                                      \
  .narrow_row = narrow_row,                                                            \
  .pair_rows = pair_rows
/* clang-format on */

#endif
