/* SPDX-License-Identifier: MIT
 * table.c - the twins by the names of their kernels: two lines each. */
#include <string.h>

#include "twins.h"

extern const cuda_twin cuda_twin_convert;
extern const cuda_twin cuda_twin_activate, cuda_twin_activate_dx, cuda_twin_tree_sum,
    cuda_twin_dequantize_sum, cuda_twin_dequantize_product, cuda_twin_finish_product, cuda_twin_scaled_matmul,
    cuda_twin_loss_gradient;
extern const cuda_twin cuda_twin_gather_columns, cuda_twin_scatter_columns, cuda_twin_quantize_groups,
    cuda_twin_sgd_update, cuda_twin_adamw_update, cuda_twin_expand24, cuda_twin_ranks_reduce;
extern const cuda_twin cuda_twin_product_f32, cuda_twin_product_f64, cuda_twin_product_i64;
extern const cuda_twin cuda_twin_generate;
extern const cuda_twin cuda_twin_take, cuda_twin_put_set, cuda_twin_put_fold, cuda_twin_topk;
extern const cuda_twin cuda_twin_rows_f32_4, cuda_twin_rows_f32_16, cuda_twin_rows_i32_4,
    cuda_twin_rows_i32_16;
extern const cuda_twin cuda_twin_product24_f32, cuda_twin_product24_f64, cuda_twin_product24_i64;
extern const cuda_twin cuda_twin_attention_rows, cuda_twin_attention_merge, cuda_twin_attention_f16_64,
    cuda_twin_attention_f16_128, cuda_twin_attention_f16_256, cuda_twin_attention_bf16_64,
    cuda_twin_attention_bf16_128, cuda_twin_attention_bf16_256;
extern const cuda_twin cuda_twin_normalize_warp, cuda_twin_normalize_f32, cuda_twin_normalize_f64;
extern const cuda_twin cuda_twin_reduce_f64, cuda_twin_reduce_i64, cuda_twin_scan_f64, cuda_twin_scan_i64;
extern const cuda_twin cuda_twin_map_f32, cuda_twin_map_f64, cuda_twin_map_i64;

static const cuda_twin *const twins[] = {
    &cuda_twin_convert,
    &cuda_twin_activate,
    &cuda_twin_activate_dx,
    &cuda_twin_tree_sum,
    &cuda_twin_dequantize_sum,
    &cuda_twin_dequantize_product,
    &cuda_twin_gather_columns,
    &cuda_twin_scatter_columns,
    &cuda_twin_quantize_groups,
    &cuda_twin_sgd_update,
    &cuda_twin_adamw_update,
    &cuda_twin_expand24,
    &cuda_twin_product_f32,
    &cuda_twin_product_f64,
    &cuda_twin_product_i64,
    &cuda_twin_product24_f32,
    &cuda_twin_product24_f64,
    &cuda_twin_product24_i64,
    &cuda_twin_generate,
    &cuda_twin_rows_f32_4,
    &cuda_twin_rows_f32_16,
    &cuda_twin_rows_i32_4,
    &cuda_twin_rows_i32_16,
    &cuda_twin_ranks_reduce,
    &cuda_twin_finish_product,
    &cuda_twin_scaled_matmul,
    &cuda_twin_loss_gradient,
    &cuda_twin_attention_rows,
    &cuda_twin_attention_merge,
    &cuda_twin_attention_f16_64,
    &cuda_twin_attention_f16_128,
    &cuda_twin_attention_f16_256,
    &cuda_twin_attention_bf16_64,
    &cuda_twin_attention_bf16_128,
    &cuda_twin_attention_bf16_256,
    &cuda_twin_take,
    &cuda_twin_put_set,
    &cuda_twin_put_fold,
    &cuda_twin_topk,
    &cuda_twin_normalize_warp,
    &cuda_twin_normalize_f32,
    &cuda_twin_normalize_f64,
    &cuda_twin_reduce_f64,
    &cuda_twin_reduce_i64,
    &cuda_twin_scan_f64,
    &cuda_twin_scan_i64,
    &cuda_twin_map_f32,
    &cuda_twin_map_f64,
    &cuda_twin_map_i64,
};

const cuda_twin *cuda_twin_at(uint32_t index) {
  return index < sizeof twins / sizeof twins[0] ? twins[index] : NULL;
}

const cuda_twin *cuda_twin_find(const char *name) {
  const cuda_twin *twin;
  for (uint32_t i = 0; (twin = cuda_twin_at(i)) != NULL; i++)
    if (strcmp(twin->name, name) == 0) return twin;
  return NULL;
}
