/* SPDX-License-Identifier: MIT
 * grids.h - the numbers that the weights of a quantised ONNX model can have, found for the weights of the
 * float model that it was made of; and a copy of the float model with noise of the size of that rounding. The
 * noise predicts the error of rounding to the nearest. Nothing here shares code with what quantises. */
#ifndef BS_LAB_MODEL_GRIDS_H
#define BS_LAB_MODEL_GRIDS_H
#include "formats/onnx.h"

/* The grid of one weight: scale (q - zero), q from low to high, a scale and a zero for each group. */
typedef struct bs_grid {
  const bs_onnx_tensor *weight;         /* of the float model, of two dimensions */
  const bs_onnx_tensor *scales, *zeros; /* of the quantised one; zeros NULL: `zero` */
  double zero, low, high;
  int64_t axis, block; /* DequantizeLinear: block 0: a scale for each index of the axis; axis -1: one scale */
  uint32_t nbits;      /* 1: MatMulNBits, whose groups run along the first dimension of the weight */
  uint32_t bits;
  bs_quant form;   /* of a scheme; struct_size 0: the file has the grid */
  uint32_t turned; /* of a scheme: the rows of the form are the columns of the weight */
} bs_grid;

typedef struct bs_grids {
  bs_grid *rows;
  size_t n;
  size_t other; /* quantised weights of the model that no weight of the float model was found for */
} bs_grids;

/* Finds them: a product of the quantised model and the product of the float model whose outputs have one
 * name. *out is freed by bs_grids_free. BS_UNSUPPORTED, BS-QUANT-NOTHING: the model has no such weight. */
int32_t bs_grids_find(const bs_onnx *quantised, const bs_onnx *floats, bs_grids *out, bs_error *err);
/* The grids of a float model whose weights are rounded while they are packed (bs_session_options.weights):
 * all products, and tables that the list names. */
int32_t bs_grids_of_schemes(const bs_onnx *floats, const char *list, bs_grids *out, bs_error *err);
void bs_grids_free(bs_grids *grids);
/* Writes a copy of the float model to `to`: each weight of a grid with uniform noise, whose mean square is in
 * each group that of rounding the group's weights to the grid. */
int32_t bs_grids_noisy_copy(const bs_onnx *floats, const bs_grids *grids, uint64_t seed, const char *to,
                            bs_error *err);
#endif
