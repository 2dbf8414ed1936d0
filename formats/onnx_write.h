/* SPDX-License-Identifier: MIT
 * onnx_write.h - a copy of an ONNX model in which some tensors and nodes are others. Every record that is not
 * edited is copied as it stands in the file. */
#ifndef BS_FORMATS_ONNX_WRITE_H
#define BS_FORMATS_ONNX_WRITE_H
#include "formats/onnx.h"

/* A new initializer of the model's graph. */
typedef struct bs_onnx_new_tensor {
  const char *name;
  uint32_t type; /* enum bs_onnx_type_number, or a later number of the format */
  uint32_t rank;
  int64_t dims[BS_ONNX_MAX_DIMS];
  uint64_t bytes; /* of its data, as the format stores them */
  void *ctx;
  /* Gives bytes offset .. offset + bytes - 1 of the data. The pieces are asked in ascending order, once. */
  int32_t (*fill)(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err);
} bs_onnx_new_tensor;

/* A new node of the model's graph; its attributes are integers. */
typedef struct bs_onnx_new_node {
  const char *op, *domain, *name; /* domain "": the standard operators */
  const char *inputs[4], *outputs[1];
  uint32_t n_inputs, n_outputs, n_attrs;
  uint32_t before;   /* it stands in front of this node of the graph */
  uint32_t replaces; /* 1: that node is left out */
  const char *attr_names[4];
  int64_t attr_values[4];
  uint32_t attr_lists; /* bit i: attribute i is a list of one integer */
} bs_onnx_new_node;

/* A node of the model's graph reads another value as one of its inputs. */
typedef struct bs_onnx_new_input {
  uint32_t node, input;
  const char *name;
} bs_onnx_new_input;

typedef struct bs_onnx_edits {
  const bs_span *dropped; /* initializers that are left out, and inputs of these names */
  size_t n_dropped;
  const bs_onnx_new_tensor *tensors;
  size_t n_tensors;
  const bs_onnx_new_node *nodes; /* in ascending order of `before` */
  size_t n_nodes;
  const bs_onnx_new_input *inputs; /* of nodes that are not replaced */
  size_t n_inputs;
  const char *domain; /* an operator set that is added to those of the model; NULL: none */
  int64_t version;
} bs_onnx_edits;

/* Writes the copy: the old file, the new one or none is at `to` at every moment. External data are put into
 * the file. The caller owns everything. BS_IO: `to` cannot be written. BS_UNSUPPORTED, BS-ONNX-SIZE: the copy
 * would be larger than 2 GiB, which the format cannot be; BS-ONNX-EXTERNAL: a graph inside of a node has
 * external data. BS_INPUT: the model's file was changed meanwhile. */
int32_t bs_onnx_write(const bs_onnx *model, const bs_onnx_edits *edits, const char *to, bs_error *err);
#endif
