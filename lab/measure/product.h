/* SPDX-License-Identifier: MIT
 * product.h - a world whose ranks multiply with their rows of one weight at the same time: of all columns, or
 * of two of each four; forward, or the products of a backward pass. kernel.h uses it. */
#ifndef BS_LAB_MEASURE_PRODUCT_H
#define BS_LAB_MEASURE_PRODUCT_H
#include "blockshock/blockshock.h"

enum { BS_PRODUCT_RANKS = 64 };
enum bs_product_call {
  BS_PRODUCT_FORWARD = 0, /* of tokens[0] */
  BS_PRODUCT_SECOND = 1,  /* of tokens[1]; not for training */
  BS_PRODUCT_DX = 2,      /* of tokens[0], only for training */
  BS_PRODUCT_DW = 3,
  BS_PRODUCT_CALLS_
};

typedef struct bs_product {
  uint32_t dtype, ranks, threads; /* threads: of each rank */
  uint32_t of24, trains;
  int64_t N, K; /* of all ranks together; N a multiple of ranks, K of 4 */
  int64_t tokens[2];
  double pace;    /* 1: rounds as long as they should be; less: shorter by this factor */
  int rehearse;   /* only pack */
  uint64_t calls; /* of the round in progress */
  double rank_seconds[BS_PRODUCT_RANKS];
  double seconds[BS_PRODUCT_CALLS_]; /* of one call by all ranks */
} bs_product;

/* Bytes of a weight: those of the dense one; for 2:4 the kept values and two bits for each position. */
double bs_product_bytes(const bs_product *product);
/* rank_main; arg: the bs_product, which all ranks share. */
int32_t bs_product_main(bs_rank *rank, void *arg, bs_error *err);
#endif
