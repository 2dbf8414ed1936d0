/* SPDX-License-Identifier: MIT
 * onnx_graph.h - between onnx.c and onnx_graph.c: the parsers of whole graphs and functions. */
#ifndef BS_FORMATS_ONNX_GRAPH_H
#define BS_FORMATS_ONNX_GRAPH_H
#include "formats/onnx_parse.h"

int32_t bs_onnx_read_graph(bs_onnx_reader *r, bs_pb body, bs_onnx_graph *g, bs_error *err);
int32_t bs_onnx_read_function(bs_onnx_reader *r, bs_pb body, bs_onnx_function *fn, bs_error *err);
int32_t bs_onnx_read_opset(bs_onnx_reader *r, bs_pb body, bs_onnx_opset *out, bs_error *err);
#endif
