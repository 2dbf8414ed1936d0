/* SPDX-License-Identifier: MIT
 * onnx.h - inside the importer of ONNX: names of a graph, what surrounds a node, and the parts of the import.
 */
#ifndef BS_GRAPH_IMPORT_ONNX_H
#define BS_GRAPH_IMPORT_ONNX_H
#include "formats/arena.h"
#include "formats/names.h"
#include "formats/onnx.h"
#include "graph/model.h"

enum { ONNX_MAX_PORTS = 4096, ONNX_MAX_CALLS = 32, ONNX_MAX_OPSET = 28 };

typedef struct onnx_import {
  gmodel *model;
  const bs_onnx *file;
  bs_names functions; /* by domain, name and overload in one text */
  bs_names symbols;   /* those seen, so that there are not too many */
  bs_arena scratch;   /* texts and lists that gmodel copies */
  uint64_t nodes_left;
} onnx_import;

/* The names that a graph defines, and where to look next. A function's body has no outer scope. */
typedef struct onnx_scope {
  bs_names names; /* to values */
  const struct onnx_scope *outer;
  const bs_onnx_opset *opsets;
  uint32_t n_opsets;
  uint32_t block;                   /* of the model, where nodes go */
  uint32_t calls;                   /* functions around it */
  const bs_onnx_function *function; /* NULL: none */
  const bs_onnx_node *call;         /* of that function */
  const struct onnx_scope *caller;  /* of that call */
  const char *prefix;               /* of names of values and nodes; "" outside of functions */
} onnx_scope;

/* A text of the file with its end, valid until the import ends. */
int32_t onnx_text_of(onnx_import *im, const char *prefix, bs_span span, const char **out_text, bs_error *err);
int32_t onnx_scratch(onnx_import *im, uint64_t count, uint64_t bytes, void *out, bs_error *err);
int32_t onnx_define(onnx_scope *scope, const bs_span *name, uint32_t value, bs_error *err);
/* The value of a name in a scope or in one around it. 0: the name is unknown. */
int onnx_resolve(const onnx_scope *scope, bs_span name, uint32_t *out_value);

/* A tensor of the file as a constant's dtype and shape. */
int32_t onnx_desc(const bs_onnx_tensor *tensor, bs_tensor_desc *out_desc, bs_error *err);
/* Adds the constants, nodes and hints of a graph whose inputs are defined. */
int32_t onnx_body(onnx_import *im, const bs_onnx_graph *graph, onnx_scope *scope, bs_error *err);
/* Adds nodes in their order. */
int32_t onnx_nodes(onnx_import *im, const bs_onnx_node *nodes, uint32_t n, onnx_scope *scope, bs_error *err);
/* Attributes of a node as those of a model; a graph among them becomes a block. */
int32_t onnx_attrs(onnx_import *im, const bs_onnx_node *node, const onnx_scope *scope,
                   const bs_attr *const **out_attrs, uint32_t *out_n, bs_error *err);
/* Makes the key of a function in onnx_import.functions. */
int32_t onnx_function_key(onnx_import *im, bs_span domain, bs_span name, bs_span overload, bs_span *out,
                          bs_error *err);
/* How many nodes a model may have when functions have replaced their calls: functions that call each other
 * twice would make any number. */
uint64_t onnx_node_budget(const bs_onnx *file);
/* A body or branch as a new block. */
int32_t onnx_block(onnx_import *im, const bs_onnx_graph *graph, const onnx_scope *outer, uint32_t *out_block,
                   bs_error *err);
#endif
