/* SPDX-License-Identifier: MIT
 * grids.h - the numbers that the weights of a quantised ONNX model can have, and how its products round X.
 * They are found for the weights of the float model that it was made from. Nothing here shares code with the
 * functions that quantise. */
#ifndef BS_LAB_MODEL_GRIDS_H
#define BS_LAB_MODEL_GRIDS_H
#include "formats/onnx.h"

/* The grid of one weight: scale (q - zero), q from low to high, a scale and a zero for each group. */
typedef struct bs_grid {
  const bs_onnx_tensor *weight;         /* of the float model, of two dimensions */
  const bs_onnx_tensor *codes;          /* of the quantised model; NULL: of a scheme */
  const bs_onnx_tensor *scales, *zeros; /* of the quantised one; zeros NULL: `zero` */
  double zero, low, high;
  int64_t axis, block; /* DequantizeLinear: block 0: a scale for each index of the axis; axis -1: one scale */
  uint32_t nbits;      /* 1: MatMulNBits, whose groups run along the first dimension of the weight */
  uint32_t bits;
  bs_quant form;   /* of a scheme; struct_size 0: the file has the grid */
  uint32_t turned; /* of a scheme: the rows of the form are the columns of the weight */
} bs_grid;

/* How a product of the float model, whose weight has a grid, takes its X. */
typedef struct bs_x_grid {
  uint32_t node; /* X is its input 0 */
  bs_span x;
  uint32_t type; /* of the floats */
  int64_t cols,
      group; /* in bytes: a scale for `group` columns of a row; group 0: the grid below serves all */
  double scale, zero, low, high;
} bs_x_grid;

typedef struct bs_grids {
  bs_grid *rows;
  size_t n;
  bs_x_grid *xs;
  size_t n_xs;
  size_t other; /* quantised weights of the model that no weight of the float model was found for */
} bs_grids;

/* Finds them: a product of the quantised model and the product of the float model whose outputs have one
 * name. `activations` as bs_session_options. *out is freed by bs_grids_free. BS_UNSUPPORTED,
 * BS-QUANT-NOTHING: the model has no such weight. */
int32_t bs_grids_find(const bs_onnx *quantised, const bs_onnx *floats, const char *activations, bs_grids *out,
                      bs_error *err);
/* The grids of a float model whose weights are rounded while they are packed (bs_session_options.weights):
 * all products, and tables that the list names. */
int32_t bs_grids_of_schemes(const bs_onnx *floats, const char *list, const char *activations, bs_grids *out,
                            bs_error *err);
void bs_grids_free(bs_grids *grids);
/* The initializer that a MatMul or Gemm has as its second matrix, also through Transpose, Identity and Cast;
 * NULL: it is not an initializer, or not a matrix of floats. */
const bs_onnx_tensor *bs_product_weight(const bs_onnx_graph *graph, const bs_onnx_node *node);
/* Element i of a tensor of numbers; types of 4 bits are packed. */
double bs_grid_number(const bs_onnx_tensor *tensor, int64_t i);
#endif
