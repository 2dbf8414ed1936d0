/* SPDX-License-Identifier: MIT
 * gguf_quant.h - a quantised tensor of a GGUF file as a bs_quant: whole numbers, scales and steps as they
 * stand in the file. The numbers that they stand for have the bits of bs_gguf_dequantize. */
#ifndef BS_FORMATS_GGUF_QUANT_H
#define BS_FORMATS_GGUF_QUANT_H
#include "formats/gguf.h"

/* The ctx of the bs_quant: it must stay where it is, and the file open, as long as the bs_quant is used. */
typedef struct bs_gguf_rows {
  const unsigned char *blocks;
  const bs_gguf_type *type;
  int64_t rows, cols;
} bs_gguf_rows;

/* 1: both are filled. 0: the tensor has not two dims, or its type is another than Q8_0, Q4_0, Q4_1, Q4_K,
 * Q5_K and Q6_K. */
int bs_gguf_quant(const bs_gguf_tensor *tensor, bs_gguf_rows *out_rows, bs_quant *out_quant);
#endif
