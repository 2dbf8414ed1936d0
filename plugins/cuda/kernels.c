/* SPDX-License-Identifier: MIT
 * kernels.c - the table of kernels: see kernels.h. What a body's NAME_args are is known from its own file. */
#include "kernels.h"

#include "ops/activate_body.h"
#include "ops/activate_dx_body.h"
#include "ops/adamw_update_body.h"
#include "ops/attention_row.h"
#include "ops/convert_body.h"
#include "ops/dequantize_product_body.h"
#include "ops/dequantize_sum_body.h"
#include "ops/expand24_body.h"
#include "ops/finish_product_body.h"
#include "ops/gather_columns_body.h"
#include "ops/generate_body.h"
#include "ops/loss_gradient_body.h"
#include "ops/map.h"
#include "ops/normalize.h"
#include "ops/product.h"
#include "ops/put_body.h"
#include "ops/quantize_groups_body.h"
#include "ops/ranks_reduce_body.h"
#include "ops/reduce.h"
#include "ops/rows.h"
#include "ops/scaled_matmul_body.h"
#include "ops/scan.h"
#include "ops/scatter_columns_body.h"
#include "ops/sgd_update_body.h"
#include "ops/take_body.h"
#include "ops/topk_body.h"
#include "ops/tree_sum_body.h"

/* The kernels in the order of enum cuda_kernel. */
const cuda_kernel_info cuda_kernel_table[CUDA_KERNEL_COUNT_] = {
    [CUDA_CONVERT] = {"convert", sizeof(convert_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_ACTIVATE] = {"activate", sizeof(activate_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_ACTIVATE_DX] = {"activate_dx", sizeof(activate_dx_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_TREE_SUM] = {"tree_sum", sizeof(tree_sum_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_DEQUANTIZE_SUM] = {"dequantize_sum", sizeof(dequantize_sum_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_DEQUANTIZE_PRODUCT] = {"dequantize_product", sizeof(dequantize_product_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_GATHER_COLUMNS] = {"gather_columns", sizeof(gather_columns_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_SCATTER_COLUMNS] = {"scatter_columns", sizeof(scatter_columns_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_QUANTIZE_GROUPS] = {"quantize_groups", sizeof(quantize_groups_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_SGD_UPDATE] = {"sgd_update", sizeof(sgd_update_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_ADAMW_UPDATE] = {"adamw_update", sizeof(adamw_update_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_EXPAND24] = {"expand24", sizeof(expand24_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_PRODUCT_F32] = {"product_f32", sizeof(product_args), PRODUCT_THREADS, 0, 0, 0},
    [CUDA_PRODUCT_F64] = {"product_f64", sizeof(product_args), PRODUCT_THREADS, 0, 0, 0},
    [CUDA_PRODUCT_I64] = {"product_i64", sizeof(product_args), PRODUCT_THREADS, 0, 0, 0},
    [CUDA_PRODUCT24_F32] = {"product24_f32", sizeof(product24_args), PRODUCT_THREADS, 0, 0, 0},
    [CUDA_PRODUCT24_F64] = {"product24_f64", sizeof(product24_args), PRODUCT_THREADS, 0, 0, 0},
    [CUDA_PRODUCT24_I64] = {"product24_i64", sizeof(product24_args), PRODUCT_THREADS, 0, 0, 0},
    [CUDA_GENERATE] = {"generate", sizeof(generate_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_ROWS_F32_4] = {"rows_f32_4", sizeof(rows_args), ROWS_THREADS, 0, 0, 0},
    [CUDA_ROWS_F32_16] = {"rows_f32_16", sizeof(rows_args), ROWS_THREADS, 0, 0, 0},
    [CUDA_ROWS_I32_4] = {"rows_i32_4", sizeof(rows_args), ROWS_THREADS, 0, 0, 0},
    [CUDA_ROWS_I32_16] = {"rows_i32_16", sizeof(rows_args), ROWS_THREADS, 0, 0, 0},
    [CUDA_FINISH_PRODUCT] = {"finish_product", sizeof(finish_product_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_SCALED_MATMUL] = {"scaled_matmul", sizeof(scaled_matmul_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_LOSS_GRADIENT] = {"loss_gradient", sizeof(loss_gradient_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_ATTENTION_ROWS] = {"attention_rows", sizeof(attention_args), ATTENTION_ROWS_THREADS, 0, 128, 0},
    [CUDA_ATTENTION_MERGE] = {"attention_merge", sizeof(attention_args), ATTENTION_ROWS_THREADS, 0, 128, 0},
    [CUDA_ATTENTION_F16_64] = {"attention_f16_64", sizeof(attention_args), ATTENTION_THREADS, 0, 224,
                               ATTENTION_SHARED},
    [CUDA_ATTENTION_F16_128] = {"attention_f16_128", sizeof(attention_args), ATTENTION_THREADS, 0, 255,
                                ATTENTION_SHARED},
    [CUDA_ATTENTION_F16_256] = {"attention_f16_256", sizeof(attention_args), ATTENTION_THREADS, 0, 255,
                                ATTENTION_SHARED},
    [CUDA_ATTENTION_BF16_64] = {"attention_bf16_64", sizeof(attention_args), ATTENTION_THREADS, 0, 224,
                                ATTENTION_SHARED},
    [CUDA_ATTENTION_BF16_128] = {"attention_bf16_128", sizeof(attention_args), ATTENTION_THREADS, 0, 255,
                                 ATTENTION_SHARED},
    [CUDA_ATTENTION_BF16_256] = {"attention_bf16_256", sizeof(attention_args), ATTENTION_THREADS, 0, 255,
                                 ATTENTION_SHARED},
    [CUDA_NORMALIZE_WARP] = {"normalize_warp", sizeof(normalize_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_NORMALIZE_F32] = {"normalize_f32", sizeof(normalize_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_NORMALIZE_F64] = {"normalize_f64", sizeof(normalize_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_REDUCE_F64] = {"reduce_f64", sizeof(reduce_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_REDUCE_I64] = {"reduce_i64", sizeof(reduce_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_SCAN_F64] = {"scan_f64", sizeof(scan_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_SCAN_I64] = {"scan_i64", sizeof(scan_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_MAP_F32] = {"map_f32", sizeof(map_args), MAP_THREADS, 0, 0, MAP_SHARED},
    [CUDA_MAP_F64] = {"map_f64", sizeof(map_args), MAP_THREADS, 0, 0, MAP_SHARED},
    [CUDA_MAP_I64] = {"map_i64", sizeof(map_args), MAP_THREADS, 0, 0, MAP_SHARED},
    [CUDA_RANKS_REDUCE] = {"ranks_reduce", sizeof(ranks_reduce_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_TAKE] = {"take", sizeof(take_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_PUT_SET] = {"put_set", sizeof(put_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_PUT_FOLD] = {"put_fold", sizeof(put_args), CUDA_BLOCK, 0, 0, 0},
    [CUDA_TOPK] = {"topk", sizeof(topk_args), TOPK_THREADS, 0, 0, TOPK_SHARED},
};
