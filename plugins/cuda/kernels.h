/* SPDX-License-Identifier: MIT
 * kernels.h - a table of all kernels of the plugin, with their facts that do not depend on a device. */
#ifndef BS_PLUGIN_CUDA_KERNELS_H
#define BS_PLUGIN_CUDA_KERNELS_H
#include <stdint.h>

enum cuda_kernel {
  CUDA_CONVERT = 0,
  CUDA_ACTIVATE,
  CUDA_ACTIVATE_DX,
  CUDA_TREE_SUM,
  CUDA_GATHER_COLUMNS,
  CUDA_SCATTER_COLUMNS,
  CUDA_QUANTIZE_GROUPS,
  CUDA_DEQUANTIZE_SUM,
  CUDA_DEQUANTIZE_PRODUCT,
  CUDA_SGD_UPDATE,
  CUDA_ADAMW_UPDATE,
  CUDA_EXPAND24,
  CUDA_PRODUCT_F32, /* matmul and its derivatives: sums in f32, f64, 64-bit integers */
  CUDA_PRODUCT_F64,
  CUDA_PRODUCT_I64,
  CUDA_PRODUCT24_F32, /* matmul24 and its derivatives */
  CUDA_PRODUCT24_F64,
  CUDA_PRODUCT24_I64,
  CUDA_GENERATE,
  CUDA_ROWS_F32_4, /* matmul of few tokens: at most 4, at most 16; of bytes */
  CUDA_ROWS_F32_16,
  CUDA_ROWS_I32_4,
  CUDA_ROWS_I32_16,
  CUDA_RANKS_REDUCE,   /* of collectives */
  CUDA_FINISH_PRODUCT, /* of products by cuBLASLt: the steps that its epilogues lack */
  CUDA_SCALED_MATMUL,
  CUDA_LOSS_GRADIENT,
  CUDA_ATTENTION_ROWS,   /* a warp a query, any layout */
  CUDA_ATTENTION_F16_64, /* tensor cores: rows of at most 64, 128, 256 elements */
  CUDA_ATTENTION_F16_128,
  CUDA_ATTENTION_F16_256,
  CUDA_ATTENTION_BF16_64,
  CUDA_ATTENTION_BF16_128,
  CUDA_ATTENTION_BF16_256,
  CUDA_ATTENTION_MERGE, /* of parts of the keys */
  CUDA_TAKE,
  CUDA_PUT_SET,
  CUDA_PUT_FOLD,
  CUDA_TOPK,
  CUDA_NORMALIZE_WARP, /* a warp a row; a block a row, in f32 and in f64 */
  CUDA_NORMALIZE_F32,
  CUDA_NORMALIZE_F64,
  CUDA_REDUCE_F64, /* of floats, of integers */
  CUDA_REDUCE_I64,
  CUDA_SCAN_F64, /* running sums */
  CUDA_SCAN_I64,
  CUDA_MAP_F32, /* programs of graphs, by the type of their values */
  CUDA_MAP_F64,
  CUDA_MAP_I64,
  CUDA_KERNEL_COUNT_
};

typedef struct cuda_kernel_info {
  const char *name;     /* of the entry in the cubin, and of its CPU twin */
  uint32_t args_bytes;  /* sizeof its NAME_args */
  uint32_t threads;     /* a block; of kernels with dynamic shared memory at most */
  uint32_t local_bytes; /* allowed a thread: 0 */
  uint32_t registers;   /* limit of a thread; 0: by the launch bounds */
  uint32_t dynamic;     /* limit of a launch's shared memory in bytes */
} cuda_kernel_info;

/* The kernels in the order of enum cuda_kernel. */
extern const cuda_kernel_info cuda_kernel_table[CUDA_KERNEL_COUNT_];
#endif
