/* SPDX-License-Identifier: MIT
 * blocklist.h - a table of features of cuDNN's attention that are wrong or missing, by version. */
#ifndef BS_PLUGIN_CUDA_CUDNN_BLOCKLIST_H
#define BS_PLUGIN_CUDA_CUDNN_BLOCKLIST_H
#include "blockshock/op.h"

/* The features that a query of attention requests, a bit each. */
enum cuda_dnn_feature {
  DNN_CAUSAL = 1u << 0,
  DNN_CAUSAL_LOWER = 1u << 1,
  DNN_WINDOW = 1u << 2,
  DNN_MASK = 1u << 3,
  DNN_LENGTHS = 1u << 4,
  DNN_STATS = 1u << 5, /* LSE */
  DNN_SOFTCAP = 1u << 6,
  DNN_ZEROS = 1u << 7 /* for NaN */
};

typedef struct cuda_dnn_block {
  int64_t from, to;  /* versions, 91301: 9.13.1; both are blocked */
  uint32_t dtype;    /* of Q; 0: any */
  uint32_t features; /* any of these; 0: every query */
  uint32_t reason;   /* enum bs_reason */
  const char *why;
} cuda_dnn_block;
extern const cuda_dnn_block cuda_dnn_blocklist[];
extern const uint32_t cuda_dnn_blocked;

uint32_t cuda_dnn_features(const bs_op_query *query);
/* The first row that applies, or NULL. */
const cuda_dnn_block *cuda_dnn_block_of(int64_t version, uint32_t dtype, uint32_t features);
#endif
