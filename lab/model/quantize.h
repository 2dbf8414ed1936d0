/* SPDX-License-Identifier: MIT
 * quantize.h - the work of `bsrun model quantize`: a copy of an ONNX model whose weights are whole numbers
 * with scales. */
#ifndef BS_LAB_MODEL_QUANTIZE_H
#define BS_LAB_MODEL_QUANTIZE_H
#include <jansson.h>

#include "formats/onnx.h"
#include "formats/onnx_write.h"
#include "lab/model/calibrate.h"

/* How a weight stands in the copy. AUTO: by blocks of one scale as QDQ from opset 21 on, else as NBITS. */
enum bs_quantize_format {
  BS_QUANTIZE_AUTO = 0,
  BS_QUANTIZE_QDQ = 1,  /* DequantizeLinear before its readers */
  BS_QUANTIZE_NBITS = 2 /* com.microsoft MatMulNBits in the place of MatMul */
};

typedef struct bs_quantize_request {
  const char *from, *to;
  /* "w8", or pairs "PATTERN=SCHEME" with ';' between: the first pattern that a weight's name matches counts.
   * The scheme "float" leaves it as it is. Schemes: core/op/quant.h. */
  const char *weights;
  uint32_t format; /* enum bs_quantize_format */
  /* X of products whose weight has one scale a row becomes whole numbers of 8 bits; NULL: floats. */
  const bs_x_ranges *ranges;
  void (*progress)(void *user, const char *what, uint64_t done, uint64_t total); /* may be NULL */
  void *progress_user;
} bs_quantize_request;

/* Writes the copy. *out: {from, to, opset, format, bytes, bytes_before, weights: [{name, rows, cols, scheme,
 * bits, bytes, bytes_before, error}], kept: [{name, rows, cols, bytes, reason}], static: as quantize_x.h};
 * error: the root mean square of what the rounding changed, over that of the weight. BS_USAGE: a scheme that
 * does not exist, or that ONNX cannot hold. BS_UNSUPPORTED: the model's opset cannot hold it, no weight is
 * left to quantise, or no product can have X on the ranges. The caller owns *out. */
int32_t bs_model_quantize(const bs_quantize_request *request, json_t **out, bs_error *err);

/* The scheme of a weight's name in a list as request->weights; "" where no pattern matches. */
void bs_quantize_scheme_of(const char *list, const char *name, char *out, size_t size);

/* ---- quantize_pick.c --------------------------------------------------------------------------- */

/* An initializer of two dimensions that products or Gather read: W [rows,cols], a row for each output or
 * entry. */
typedef struct bs_quantize_weight {
  const bs_onnx_tensor *tensor;
  int64_t rows, cols;
  uint32_t turned;    /* 1: the file has it as [cols,rows] */
  uint32_t table;     /* 1: every reader is a Gather */
  uint32_t nbits;     /* 1: every reader is a MatMul that MatMulNBits can replace */
  const char *reason; /* why it stays as it is; NULL: it can be quantised */
} bs_quantize_weight;

/* All float initializers of two dimensions of the model's graph, in the order of the file. *out is malloc'd.
 */
int32_t bs_quantize_pick(const bs_onnx *model, bs_quantize_weight **out, size_t *out_n, bs_error *err);
#endif
