/* SPDX-License-Identifier: MIT
 * quantize_x.h - QuantizeLinear and DequantizeLinear in front of products, for a copy of an ONNX model. */
#ifndef BS_LAB_MODEL_QUANTIZE_X_H
#define BS_LAB_MODEL_QUANTIZE_X_H
#include <jansson.h>

#include "formats/onnx_write.h"
#include "lab/model/calibrate.h"

/* A value that products read, on 256 numbers: x = scale (q - zero). */
typedef struct bs_x_static {
  bs_span x;
  uint32_t half;  /* 1: a model of f16 */
  char *names[5]; /* of the value, its codes, its scale, its zero, the value again */
  double low, high;
  float scale;
  uint16_t scale_half;
  uint8_t zero;
  size_t products;
} bs_x_static;
/* Edits of a copy. Nodes are in ascending order of `before`. */
typedef struct bs_quantize_x {
  bs_x_static *rows;
  bs_onnx_new_node *nodes;
  bs_onnx_new_tensor *tensors;
  bs_onnx_new_input *inputs;
  size_t n, n_nodes, n_tensors, n_inputs;
} bs_quantize_x;

/* For the products whose weight `takes` accepts, and which have a range. The caller frees in every case. */
int32_t bs_quantize_x_make(const bs_onnx *model, const bs_x_ranges *ranges,
                           int (*takes)(const void *user, bs_span weight), const void *user,
                           bs_quantize_x *out, bs_error *err);
/* [{name, low, high, scale, zero, products}] */
json_t *bs_quantize_x_report(const bs_quantize_x *x);
void bs_quantize_x_free(bs_quantize_x *x);
#endif
