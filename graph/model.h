/* SPDX-License-Identifier: MIT
 * model.h - the source model: what the ONNX reader, the builders of folders and the C API make, and what the
 * lowering reads. Operators are ONNX's; shapes may be symbolic; nothing is computed here. It only grows:
 * values and nodes are added and never changed. One thread at a time.
 *
 * A model owns copies of all names and attributes. It owns the data of a constant only when the caller asks
 * for it; else the data lies in something that gmodel_keep was given (a mapped file), or is the caller's for
 * as long as the model lives. */
#ifndef BS_GRAPH_MODEL_H
#define BS_GRAPH_MODEL_H
#include "blockshock/graph.h"

#define GMODEL_NONE BS_GRAPH_NONE      /* no value: an absent optional input or output */
#define GMODEL_ATTR_OTHER 0u           /* type of an attribute whose value is not kept (a sparse tensor) */
#define GMODEL_RANK_UNKNOWN UINT32_MAX /* of a computed value whose shape the file does not tell */

/* The kind of a value. */
enum gmodel_kind {
  GMODEL_INPUT = 1,
  GMODEL_CONSTANT = 2,
  GMODEL_COMPUTED = 3, /* output of a node */
  GMODEL_STATE = 4,    /* key-value cache: keeps its memory from run to run, zero at first */
  GMODEL_LENGTH = 5    /* i64 [1]: tokens that the cache held before the run */
};

/* One value. dtype is an enum bs_dtype, or by the same formula ((DLPack type code << 8) | bits) a dtype that
 * the library does not compute with (u16 is 0x0110); 0: not known, or no numbers (strings). */
typedef struct gmodel_value {
  uint8_t kind; /* enum gmodel_kind */
  uint32_t dtype;
  uint32_t rank;                 /* 0..BS_MAX_DIMS, or GMODEL_RANK_UNKNOWN (computed values only) */
  int64_t dims[BS_MAX_DIMS];     /* -1: a symbol, or (computed values only) not known */
  uint32_t symbols[BS_MAX_DIMS]; /* index of the symbol + 1; 0: none */
  const char *name;              /* unique in its block; "" for a value without a name */
  const void *data;              /* CONSTANT: dense, little endian, aligned or not */
  uint64_t bytes;                /* of data */
  const bs_quant *quant;         /* CONSTANT f32 [rows,cols] that is quantised in its file; NULL: it is not */
  uint32_t x_bytes;              /* with quant: products take X in bytes */
  uint32_t producer;             /* node; GMODEL_NONE */
  uint32_t next; /* STATE: the value that the state is after a run; GMODEL_NONE before it is set */
} gmodel_value;

/* One node. Nodes of a block are in an order in which each input is known before it is used. */
typedef struct gmodel_node {
  const char *op, *domain, *name; /* domain "": ai.onnx; name may be "" */
  uint32_t opset;                 /* of its domain */
  uint32_t block;                 /* 0: the model; else a branch of an If */
  uint32_t n_in, n_out, n_attr;
  const uint32_t *in, *out; /* values; GMODEL_NONE: absent */
  const bs_attr *attrs;     /* BS_ATTR_GRAPH: i is the block */
} gmodel_node;

/* The graph of a branch: its values are those of the model, so that it may use what is computed outside. */
typedef struct gmodel_block {
  const uint32_t *nodes; /* numbers of its nodes, in order */
  uint32_t n_nodes, cap_nodes;
  const uint32_t *outputs;
  uint32_t n_outputs;
  const uint32_t *inputs; /* of the bodies of Scan, Loop and FlexAttention's functions */
  uint32_t n_inputs;
} gmodel_block;

typedef struct gmodel_port {
  const char *name;
  uint32_t value;
} gmodel_port;

/* A constant that the model lists among its inputs too: bs_graph_fix may give it another value. */
typedef struct gmodel_default {
  const char *name;
  uint32_t value;
  uint32_t rank;             /* of the input; GMODEL_RANK_UNKNOWN: any shape */
  int64_t dims[BS_MAX_DIMS]; /* -1: any size */
} gmodel_default;

typedef struct gmodel gmodel;
struct gmodel {
  gmodel_value *values;
  gmodel_node *nodes;
  gmodel_block *blocks; /* 0 is the model itself */
  gmodel_port *inputs, *outputs;
  gmodel_default *defaults;
  const char **symbols;
  uint32_t n_values, n_nodes, n_blocks, n_inputs, n_outputs, n_defaults, n_symbols;
  uint32_t cap_values, cap_nodes, cap_blocks, cap_inputs, cap_outputs, cap_defaults, cap_symbols;
  uint32_t opset;              /* of ai.onnx */
  uint32_t n_states;           /* values of kind STATE */
  uint32_t length;             /* the value of kind LENGTH; GMODEL_NONE */
  int64_t cache_tokens;        /* capacity of the states; 0: no states */
  uint32_t cache_dtype;        /* bs_graph_options.cache_dtype, of a folder or a GGUF file */
  uint32_t shapes;             /* 1: its weights are zeros in the place of those that the folder lacks */
  int64_t slots;               /* states of a sequence each, side by side; 0: one, whose length is counted */
  int64_t layers, all_layers;  /* of a folder: that were read, that it has; 0: not known */
  uint32_t tokens_input;       /* with states: the input that holds the tokens ... */
  uint32_t tokens_axis;        /* ... and which of its dims counts them: a run adds that many to the length */
  const char *path, *producer; /* "": unknown */
  const char *warning;         /* the parts of its files that are not used; "" */
  double load_seconds;
  /* The descriptor of the mapped file that has these bytes, and their place in it; -1: none has them. NULL:
   * nothing is mapped. */
  int (*file_of)(const void *data, uint64_t bytes, uint64_t *out_at);
  void *arena; /* model.c: memory of names, attributes and copies */
  void *kept;  /* model.c: what gmodel_keep and gmodel_watch were given */
};

/* Makes an empty model of ai.onnx `opset`. */
int32_t gmodel_new(uint32_t opset, gmodel **out_model, bs_error *err);
/* Frees it, then closes what it keeps, the newest first. NULL is allowed. */
void gmodel_free(gmodel *model);
/* The model closes `resource` with `close` when it is freed. When this fails, `resource` is closed
 * immediately.
 */
int32_t gmodel_keep(gmodel *model, void *resource, void (*close)(void *resource), bs_error *err);
/* A file that the model reads from: `unchanged` fails when it was cut or written since it was opened.
 * gmodel_unchanged asks all of them. */
int32_t gmodel_watch(gmodel *model, void *resource, int32_t (*unchanged)(void *resource, bs_error *err),
                     bs_error *err);
int32_t gmodel_unchanged(const gmodel *model, bs_error *err);
/* Memory that lives as long as the model; zero-filled, 64-byte aligned. NULL: no memory. */
void *gmodel_alloc(gmodel *model, uint64_t bytes);
/* A copy of a text (`bytes` of it, then NUL) in the model's memory. NULL: no memory. */
const char *gmodel_copy_text(gmodel *model, const char *text, uint64_t bytes);
int32_t gmodel_set_about(gmodel *model, const char *path, const char *producer, bs_error *err);

/* The symbol of that name, made when it is new. */
int32_t gmodel_symbol(gmodel *model, const char *name, uint32_t *out_symbol, bs_error *err);
/* An input of the model. dims -1 need a name in dim_names (NULL: no dim is symbolic). rank at most
 * BS_MAX_DIMS. */
int32_t gmodel_input(gmodel *model, const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                     const char *const *dim_names, uint32_t *out_value, bs_error *err);
/* A constant. copy 0: `data` stays where it is until the model is freed; 1: the model copies it. `bytes` must
 * be the size of the shape (BS_INPUT else). */
int32_t gmodel_constant(gmodel *model, const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                        const void *data, uint64_t bytes, int copy, uint32_t *out_value, bs_error *err);
/* A constant f32 [rows,cols] that stays quantised: products and embeddings read it by quant->read (tensor.h),
 * whose ctx lives as long as the model; the struct is copied. data, bytes: where its codes lie in a mapped
 * file, whose pages are given back when it is packed, and what tells it from others. x_bytes 1: products with
 * it take X in bytes, as the format's own runtime does. */
int32_t gmodel_quant(gmodel *model, const char *name, const bs_quant *quant, const void *data, uint64_t bytes,
                     int x_bytes, uint32_t *out_value, bs_error *err);
/* The constant `value` may get another value by its name. */
int32_t gmodel_default_add(gmodel *model, const char *name, uint32_t value, uint32_t rank,
                           const int64_t *dims, bs_error *err);
/* Makes an input, or a constant of gmodel_default_add, a constant with a copy of these elements.
 * BS_NOT_FOUND: no value has that name; BS_INVALID_ARGUMENT: it has another dtype or shape. */
int32_t gmodel_fix(gmodel *model, const char *name, const bs_tensor *tensor, bs_error *err);
/* A key-value cache [.., tokens, ..] that keeps its values from run to run. */
int32_t gmodel_state(gmodel *model, const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                     uint32_t *out_value, bs_error *err);
/* The states have a first dim `batch` of that symbol, and memory for `slots` of them; limit: the capacity. */
int32_t gmodel_slots(gmodel *model, int64_t slots, int64_t limit, bs_error *err);
/* The value that the state becomes by a run: a TensorScatter into it, of the same shape and dtype. */
int32_t gmodel_state_next(gmodel *model, uint32_t state, uint32_t value, bs_error *err);
/* The number of tokens that the cache held before the run: i64 [1]. The same value at each call. */
int32_t gmodel_length(gmodel *model, uint32_t *out_value, bs_error *err);
/* Declares the tokens that a run adds to the length: the size of dim `axis` of the input `input` (a value).
 * limit: the capacity. */
int32_t gmodel_cache(gmodel *model, uint32_t input, uint32_t axis, int64_t limit, bs_error *err);

/* A value that a node will compute, named before the node is added; gmodel_node_add makes those that are not.
 */
int32_t gmodel_computed(gmodel *model, const char *name, uint32_t *out_value, bs_error *err);
/* Keeps the dtype and shape that a file gives for a computed value (value_info): a hint that nothing relies
 * on. */
void gmodel_hint(gmodel *model, uint32_t value, uint32_t dtype, uint32_t rank, const int64_t *dims);

/* A node to add. Attributes are copied with what they point to (copy_tensors 0: but not the data of tensors).
 */
typedef struct gmodel_node_desc {
  const char *op, *domain, *name; /* NULL: "" */
  uint32_t opset;                 /* 0: the model's */
  uint32_t block;
  const uint32_t *in;
  uint32_t n_in, n_out, n_attr;
  const bs_attr *const *attrs;
  int copy_tensors;
} gmodel_node_desc;
/* Adds a node at the end of its block. out[i]: a computed value without a producer, or GMODEL_NONE when that
 * output is absent. A node that breaks the schema of its operator (graph/schema.h) is BS_INPUT. */
int32_t gmodel_node_add(gmodel *model, const gmodel_node_desc *desc, const uint32_t *out, bs_error *err);
/* Adds a node of ai.onnx to block 0 and makes its outputs: what builders use. */
int32_t gmodel_op(gmodel *model, const char *op, const char *name, const uint32_t *in, uint32_t n_in,
                  const bs_attr *const *attrs, uint32_t n_attr, uint32_t *out_values, uint32_t n_out,
                  bs_error *err);
/* A new block for a branch; its number is the `i` of the attribute. Values inside are made by the functions
 * above, outputs (and inputs of a body) are set when all nodes are there. */
int32_t gmodel_block_new(gmodel *model, uint32_t *out_block, bs_error *err);
/* An input of a body (Scan, Loop, functions of FlexAttention): a value without a producer. */
int32_t gmodel_block_input(gmodel *model, const char *name, uint32_t dtype, uint32_t *out_value,
                           bs_error *err);
int32_t gmodel_block_ports(gmodel *model, uint32_t block, const uint32_t *inputs, uint32_t n_inputs,
                           const uint32_t *outputs, uint32_t n_outputs, bs_error *err);
int32_t gmodel_output(gmodel *model, const char *name, uint32_t value, bs_error *err);
/* All that a whole model must satisfy: every used value is known before its use, names of ports are unique,
 * there is at least one output, states have a next value. BS_INPUT names the node. */
int32_t gmodel_check(const gmodel *model, bs_error *err);

/* The attribute of that name; NULL: it has none. */
const bs_attr *gmodel_attr(const gmodel_node *node, const char *name);
/* Elements and bytes of a shape, checked: 0 when they do not fit in 63 bits or a dim is negative. */
int gmodel_shape_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims, uint64_t *out_bytes);
#define model_no_memory(err) bs_error_set((err), BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for the model")
#endif
