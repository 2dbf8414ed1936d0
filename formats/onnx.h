/* SPDX-License-Identifier: MIT
 * onnx.h - the ONNX container: a model as it stands in the file, without meaning. Copies are avoided:
 * texts and tensor bytes point into the mapped file (or into a mapped file of external data), lists
 * of small structs lie in one arena of the model. Time and memory of a parse are bounded by the file's size.
 * A file that is cut short while it is mapped does not end the process: bs_onnx_unchanged reports it.
 * All pointers stay valid until bs_onnx_close. After bs_onnx_open a model is only read: thread-safe. */
#ifndef BS_FORMATS_ONNX_H
#define BS_FORMATS_ONNX_H
#include "blockshock/blockshock.h"

#define BS_ONNX_MAX_DIMS 8
#define BS_ONNX_MAX_DEPTH 8         /* graphs inside graphs */
#define BS_ONNX_MAX_ITEMS 1000000u  /* nodes, tensors, attributes and named values of a model */
#define BS_ONNX_MAX_NAME 1024u      /* bytes of a name */
#define BS_ONNX_MAX_ATTRIBUTES 256u /* of one node */
#define BS_ONNX_HEAP(file_bytes) (40 * (file_bytes) + 65536) /* the most that a parse takes from the heap */

/* Text or bytes in the file: not terminated. Print it with "%.*s", BS_SPAN_PRINT(span). */
typedef struct bs_span {
  const char *data;
  uint64_t size;
} bs_span;
#define BS_SPAN_PRINT(s) (int)((s).size < 200 ? (s).size : 200), (s).size == 0 ? "" : (s).data
int bs_span_is(bs_span span, const char *text);
int bs_span_same(bs_span a, bs_span b);

/* The number of a tensor's type in the format (TensorProto.DataType). */
enum bs_onnx_type_number {
  BS_ONNX_FLOAT = 1,
  BS_ONNX_UINT8 = 2,
  BS_ONNX_INT8 = 3,
  BS_ONNX_UINT16 = 4,
  BS_ONNX_INT16 = 5,
  BS_ONNX_INT32 = 6,
  BS_ONNX_INT64 = 7,
  BS_ONNX_STRING = 8,
  BS_ONNX_BOOL = 9,
  BS_ONNX_FLOAT16 = 10,
  BS_ONNX_DOUBLE = 11,
  BS_ONNX_UINT32 = 12,
  BS_ONNX_UINT64 = 13,
  BS_ONNX_BFLOAT16 = 16
};
typedef struct bs_onnx_type {
  uint32_t number;
  uint32_t bits;    /* of an element; 0 for strings */
  uint32_t dtype;   /* enum bs_dtype, or by its formula a dtype that it does not list; 0 for strings */
  const char *name; /* as in the format: "FLOAT16"; static */
} bs_onnx_type;
/* NULL for a number that the format does not have. */
const bs_onnx_type *bs_onnx_type_of(uint32_t number);

/* data: little-endian elements in row-major order, whatever field of the file they stood in. Types of less
 * than 8 bits are packed, the first element in the lowest bits. NULL for strings and for no elements. The
 * format does not promise alignment to the element. */
typedef struct bs_onnx_tensor {
  bs_span name;
  uint32_t type; /* always one that bs_onnx_type_of knows */
  uint32_t rank;
  int64_t dims[BS_ONNX_MAX_DIMS]; /* >= 0 */
  uint64_t count;                 /* elements */
  const void *data;
  uint64_t bytes;
  uint64_t offset; /* of this record in the model's file, for messages */
  uint32_t is_external;
  uint32_t reserved;
} bs_onnx_tensor;

/* A size, or a symbol with value -1, or neither (value -1, no symbol). */
typedef struct bs_onnx_dim {
  int64_t value;
  bs_span symbol;
} bs_onnx_dim;

enum bs_onnx_kind {
  BS_ONNX_KIND_NONE = 0, /* the file does not tell */
  BS_ONNX_KIND_TENSOR = 1,
  BS_ONNX_KIND_SEQUENCE = 4,
  BS_ONNX_KIND_MAP = 5,
  BS_ONNX_KIND_OPAQUE = 7,
  BS_ONNX_KIND_SPARSE = 8,
  BS_ONNX_KIND_OPTIONAL = 9
};
typedef struct bs_onnx_value {
  bs_span name;
  uint32_t kind;
  uint32_t type; /* TENSOR and SPARSE; 0: unknown */
  uint32_t has_shape;
  uint32_t rank;
  bs_onnx_dim *dims;
} bs_onnx_value;

struct bs_onnx_graph;
enum bs_onnx_attr_type {
  BS_ONNX_ATTR_FLOAT = 1,
  BS_ONNX_ATTR_INT = 2,
  BS_ONNX_ATTR_STRING = 3,
  BS_ONNX_ATTR_TENSOR = 4,
  BS_ONNX_ATTR_GRAPH = 5,
  BS_ONNX_ATTR_FLOATS = 6,
  BS_ONNX_ATTR_INTS = 7,
  BS_ONNX_ATTR_STRINGS = 8,
  BS_ONNX_ATTR_TENSORS = 9,
  BS_ONNX_ATTR_GRAPHS = 10
  /* 11 to 14, sparse tensors and types: the value is not kept */
};
typedef struct bs_onnx_attr {
  bs_span name;
  bs_span reference; /* in a function: the attribute of the call whose value this one takes; else empty */
  uint32_t type;
  uint32_t reserved;
  uint64_t count; /* of a list */
  union {
    float f;
    int64_t i;
    bs_span s;
    const bs_onnx_tensor *tensor; /* TENSOR: one; TENSORS: count */
    struct bs_onnx_graph *graph;
    const float *floats;
    const int64_t *ints;
    const bs_span *strings;
    struct bs_onnx_graph **graphs;
  } value;
} bs_onnx_attr;

typedef struct bs_onnx_node {
  bs_span name, op, domain, overload; /* op is never empty */
  bs_span *inputs, *outputs;          /* an empty name: an optional one that is absent */
  bs_onnx_attr *attrs;
  uint32_t n_inputs, n_outputs, n_attrs, reserved;
  uint64_t offset; /* of this record in the model's file, for messages */
} bs_onnx_node;

/* Names of inputs, initializers and node outputs are each defined once; an initializer may also give an input
 * its default value. Whether a name that a node reads is defined is left to the importer. */
typedef struct bs_onnx_graph {
  bs_span name;
  bs_onnx_node *nodes;
  bs_onnx_tensor *initializers;
  bs_onnx_value *inputs, *outputs, *values;
  uint32_t n_nodes, n_initializers, n_inputs, n_outputs, n_values, depth;
} bs_onnx_graph;

typedef struct bs_onnx_opset {
  bs_span domain; /* empty: the standard operators ("ai.onnx" is given as empty too) */
  int64_t version;
} bs_onnx_opset;

/* A function: a graph whose inputs and outputs are names alone, and whose attributes come from the call. */
typedef struct bs_onnx_function {
  bs_span name, domain, overload;
  bs_span *inputs, *outputs, *attr_names;
  bs_onnx_attr *attrs; /* attributes with a default */
  bs_onnx_node *nodes;
  bs_onnx_opset *opsets;
  uint32_t n_inputs, n_outputs, n_attr_names, n_attrs, n_nodes, n_opsets;
} bs_onnx_function;

struct bs_onnx_store; /* the maps and the arena */
typedef struct bs_onnx {
  int64_t ir_version;
  bs_span producer, producer_version;
  bs_onnx_graph *graph;
  bs_onnx_function *functions;
  bs_onnx_opset *opsets;
  uint32_t n_functions, n_opsets;
  uint64_t heap;         /* bytes that the parse took from the heap, at most BS_ONNX_HEAP(its bytes) */
  uint64_t file_bytes;   /* of the model's own file */
  uint64_t mapped_bytes; /* of that file and the external ones */
  struct bs_onnx_store *store;
} bs_onnx;

/* Open a model. External data is opened beneath the folder of `path` only. Errors are BS_INPUT (exit 4) with
 * ids BS-ONNX-*, BS-PB-* and BS-FILE-*; the message has the byte offset. On failure *out_model is closed. */
int32_t bs_onnx_open(const char *path, bs_onnx *out_model, bs_error *err);
/* Parses bytes in memory, which must outlive the model. `name` stands for the file in messages;
 * `folder` is where external data lies, NULL refuses it. */
int32_t bs_onnx_parse(const void *bytes, uint64_t size, const char *name, const char *folder,
                      bs_onnx *out_model, bs_error *err);
/* BS-FILE-CHANGED when a file of the model was cut or written after it was opened: call it before believing
 * what was read. Thread-safe. */
int32_t bs_onnx_unchanged(const bs_onnx *model, bs_error *err);
void bs_onnx_close(bs_onnx *model);

/* One tensor in a separate file (input_0.pb of ONNX's test data). */
typedef struct bs_onnx_pb {
  bs_onnx_tensor tensor;
  struct bs_onnx_store *store;
} bs_onnx_pb;
int32_t bs_onnx_pb_open(const char *path, bs_onnx_pb *out_file, bs_error *err);
void bs_onnx_pb_close(bs_onnx_pb *file);
#endif
