/* SPDX-License-Identifier: MIT
 * onnx_write.c - see onnx_write.h. Each message is emitted twice: once to count its bytes, which stand before
 * it, and once to write them. Nothing of the model is held in memory but one piece of a new tensor. */
#include "formats/onnx_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/out_file.h"
#include "formats/onnx_parse.h"

enum { PIECE = 4 << 20 };
#define LARGEST UINT64_C(0x7fffffff) /* bytes of a protobuf message */

/* Numbers of fields: of ModelProto, GraphProto, NodeProto, TensorProto, AttributeProto, OperatorSetIdProto.
 */
enum { MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum { GRAPH_NODE = 1, GRAPH_TENSOR = 5, GRAPH_INPUT = 11 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_ATTR = 5, NODE_DOMAIN = 7 };
enum {
  TENSOR_DIM = 1,
  TENSOR_TYPE = 2,
  TENSOR_NAME = 8,
  TENSOR_RAW = 9,
  TENSOR_ENTRY = 13,
  TENSOR_PLACE = 14
};
enum { ATTR_NAME = 1, ATTR_I = 3, ATTR_INTS = 8, ATTR_TYPE = 20, ATTR_TYPE_INT = 2, ATTR_TYPE_INTS = 7 };
enum { OPSET_DOMAIN = 1, OPSET_VERSION = 2 };

typedef struct sink {
  const bs_onnx *model;
  const bs_onnx_edits *edits;
  bs_out_file *out; /* NULL: bytes are counted only */
  unsigned char *piece;
  uint64_t bytes;
  int why; /* an errno */
  int32_t rc;
  bs_error *err;
} sink;

static void put(sink *s, const void *data, uint64_t bytes) {
  s->bytes += bytes;
  if (s->out != NULL && s->why == 0 && s->rc == BS_OK) s->why = bs_out_write(s->out, data, bytes);
}

static void put_varint(sink *s, uint64_t value) {
  unsigned char bytes[10];
  size_t n = 0;
  do {
    bytes[n++] = (unsigned char)((value & 127u) | (value > 127u ? 128u : 0u));
    value >>= 7;
  } while (value != 0);
  put(s, bytes, n);
}

static void put_number(sink *s, uint32_t field, uint64_t value) {
  put_varint(s, (uint64_t)field << 3 | BS_PB_VARINT);
  put_varint(s, value);
}

static void put_text(sink *s, uint32_t field, const char *text) {
  const size_t size = strlen(text);
  put_varint(s, (uint64_t)field << 3 | BS_PB_BYTES);
  put_varint(s, size);
  put(s, text, size);
}

/* A message as field `field`: counted, then written. */
static void put_message(sink *s, uint32_t field, void (*emit)(sink *s, const void *of), const void *of) {
  sink count = *s;
  count.out = NULL;
  count.bytes = 0;
  emit(&count, of);
  if (s->rc == BS_OK) s->rc = count.rc;
  put_varint(s, (uint64_t)field << 3 | BS_PB_BYTES);
  put_varint(s, count.bytes);
  if (s->out != NULL)
    emit(s, of);
  else
    s->bytes += count.bytes;
}

/* ---- new records -------------------------------------------------------------------------------- */

typedef struct attr {
  const char *name;
  int64_t value;
  int is_list;
} attr;

static void emit_attr(sink *s, const void *of) {
  const attr *a = of;
  put_text(s, ATTR_NAME, a->name);
  put_number(s, a->is_list ? ATTR_INTS : ATTR_I, (uint64_t)a->value);
  put_number(s, ATTR_TYPE, a->is_list ? ATTR_TYPE_INTS : ATTR_TYPE_INT);
}

static void emit_node(sink *s, const void *of) {
  const bs_onnx_new_node *n = of;
  for (uint32_t i = 0; i < n->n_inputs; i++) put_text(s, NODE_INPUT, n->inputs[i]);
  for (uint32_t i = 0; i < n->n_outputs; i++) put_text(s, NODE_OUTPUT, n->outputs[i]);
  put_text(s, NODE_NAME, n->name);
  put_text(s, NODE_OP, n->op);
  for (uint32_t i = 0; i < n->n_attrs; i++)
    put_message(s, NODE_ATTR, emit_attr,
                &(attr){n->attr_names[i], n->attr_values[i], (n->attr_lists >> i & 1u) != 0});
  if (n->domain[0] != '\0') put_text(s, NODE_DOMAIN, n->domain);
}

static void put_filled(sink *s, const bs_onnx_new_tensor *t) {
  if (s->out == NULL) s->bytes += t->bytes;
  for (uint64_t at = 0; s->out != NULL && at < t->bytes && s->rc == BS_OK && s->why == 0; at += PIECE) {
    const uint64_t n = t->bytes - at < PIECE ? t->bytes - at : PIECE;
    s->rc = t->fill(t->ctx, at, n, s->piece, s->err);
    put(s, s->piece, n);
  }
}

static void emit_tensor(sink *s, const void *of) {
  const bs_onnx_new_tensor *t = of;
  for (uint32_t i = 0; i < t->rank; i++) put_number(s, TENSOR_DIM, (uint64_t)t->dims[i]);
  put_number(s, TENSOR_TYPE, t->type);
  put_text(s, TENSOR_NAME, t->name);
  put_varint(s, (uint64_t)TENSOR_RAW << 3 | BS_PB_BYTES);
  put_varint(s, t->bytes);
  put_filled(s, t);
}

static void emit_opset(sink *s, const void *of) {
  const bs_onnx_edits *edits = of;
  put_text(s, OPSET_DOMAIN, edits->domain);
  put_number(s, OPSET_VERSION, (uint64_t)edits->version);
}

/* ---- records of the model ----------------------------------------------------------------------- */

/* The bytes of the record that `before` began with. */
static void copy_record(sink *s, const bs_pb *before, const bs_pb *after) {
  put(s, before->at, (uint64_t)(after->at - before->at));
}

static int next_field(sink *s, bs_pb *at, bs_pb_field *f) {
  if (s->rc != BS_OK) return 0;
  s->rc = bs_pb_next(at, f, s->err);
  return s->rc == BS_OK && f->number != 0;
}

typedef struct external {
  const bs_onnx_tensor *tensor;
  bs_pb body;
} external;

/* An initializer of external data, with its data. */
static void emit_external(sink *s, const void *of) {
  const external *e = of;
  bs_pb at = e->body, before = at;
  bs_pb_field f;
  while (next_field(s, &at, &f)) {
    if (f.number != TENSOR_ENTRY && f.number != TENSOR_PLACE && f.number != TENSOR_RAW)
      copy_record(s, &before, &at);
    before = at;
  }
  put_varint(s, (uint64_t)TENSOR_RAW << 3 | BS_PB_BYTES);
  put_varint(s, e->tensor->bytes);
  put(s, e->tensor->data, e->tensor->bytes);
}

static int is_dropped(const sink *s, bs_span name) {
  for (size_t i = 0; i < s->edits->n_dropped; i++)
    if (bs_span_same(s->edits->dropped[i], name)) return 1;
  return 0;
}

/* The new nodes before node `index`. Returns 1 where one of them replaces it. */
static int put_nodes(sink *s, uint32_t index, size_t *at) {
  const bs_onnx_edits *edits = s->edits;
  int replaced = 0;
  for (; *at < edits->n_nodes && edits->nodes[*at].before <= index; ++*at) {
    put_message(s, GRAPH_NODE, emit_node, &edits->nodes[*at]);
    replaced |= edits->nodes[*at].replaces != 0 && edits->nodes[*at].before == index;
  }
  return replaced;
}

static const char *new_input(const sink *s, uint32_t node, uint32_t input) {
  for (size_t i = 0; i < s->edits->n_inputs; i++)
    if (s->edits->inputs[i].node == node && s->edits->inputs[i].input == input)
      return s->edits->inputs[i].name;
  return NULL;
}

static int has_new_input(const sink *s, uint32_t node) {
  for (size_t i = 0; i < s->edits->n_inputs; i++)
    if (s->edits->inputs[i].node == node) return 1;
  return 0;
}

typedef struct record {
  uint32_t index;
  bs_pb body;
} record;

/* A node of the model that reads other values. */
static void emit_rewired(sink *s, const void *of) {
  const record *r = of;
  bs_pb at = r->body, before = at;
  bs_pb_field f;
  uint32_t input = 0;
  while (next_field(s, &at, &f)) {
    const char *name = f.number == NODE_INPUT ? new_input(s, r->index, input++) : NULL;
    if (name != NULL)
      put_text(s, NODE_INPUT, name);
    else
      copy_record(s, &before, &at);
    before = at;
  }
}

/* A node of the model, with what stands in front of it. 1: the caller copies it. */
static int put_node(sink *s, uint32_t index, size_t *placed, const bs_pb *body) {
  if (put_nodes(s, index, placed)) return 0;
  if (!has_new_input(s, index)) return 1;
  put_message(s, GRAPH_NODE, emit_rewired, &(record){index, *body});
  return 0;
}

static void emit_graph(sink *s, const void *of) {
  const bs_onnx_graph *g = s->model->graph;
  bs_pb at = *(const bs_pb *)of, before = at;
  bs_pb_field f;
  uint32_t nodes = 0, tensors = 0, inputs = 0;
  size_t placed = 0;
  while (next_field(s, &at, &f)) {
    int kept = 1;
    if (f.number == GRAPH_NODE) kept = put_node(s, nodes++, &placed, &f.body);
    if (f.number == GRAPH_INPUT) kept = !is_dropped(s, g->inputs[inputs++].name);
    if (f.number == GRAPH_TENSOR) {
      const bs_onnx_tensor *t = &g->initializers[tensors++];
      kept = !is_dropped(s, t->name);
      if (kept && t->is_external) put_message(s, GRAPH_TENSOR, emit_external, &(external){t, f.body});
      kept = kept && !t->is_external;
    }
    if (kept) copy_record(s, &before, &at);
    before = at;
  }
  put_nodes(s, UINT32_MAX, &placed);
  for (size_t i = 0; i < s->edits->n_tensors; i++)
    put_message(s, GRAPH_TENSOR, emit_tensor, &s->edits->tensors[i]);
}

static void emit_model(sink *s) {
  const bs_map *map = &s->model->store->map;
  bs_pb at = {map->data, (const unsigned char *)map->data + map->bytes, map->data};
  bs_pb before = at;
  bs_pb_field f;
  while (next_field(s, &at, &f)) {
    if (f.number == MODEL_GRAPH)
      put_message(s, MODEL_GRAPH, emit_graph, &f.body);
    else
      copy_record(s, &before, &at);
    before = at;
  }
  if (s->edits->domain != NULL) put_message(s, MODEL_OPSET, emit_opset, s->edits);
}

/* ---- the file ----------------------------------------------------------------------------------- */

static int has_external(const bs_onnx_graph *g);

static int node_has_external(const bs_onnx_node *node) {
  for (uint32_t i = 0; i < node->n_attrs; i++) {
    const bs_onnx_attr *a = &node->attrs[i];
    if (a->type == BS_ONNX_ATTR_TENSOR && a->value.tensor->is_external) return 1;
    if (a->type == BS_ONNX_ATTR_GRAPH && has_external(a->value.graph)) return 1;
    for (uint64_t j = 0; a->type == BS_ONNX_ATTR_GRAPHS && j < a->count; j++)
      if (has_external(a->value.graphs[j])) return 1;
  }
  return 0;
}

/* Does a tensor in it, at any depth (at most BS_ONNX_MAX_DEPTH), lie in another file? */
static int has_external(const bs_onnx_graph *g) {
  for (uint32_t i = 0; g->depth > 0 && i < g->n_initializers; i++)
    if (g->initializers[i].is_external) return 1;
  for (uint32_t i = 0; i < g->n_nodes; i++)
    if (node_has_external(&g->nodes[i])) return 1;
  return 0;
}

static int32_t check(const bs_onnx *model, const bs_onnx_edits *edits, bs_error *err) {
  sink count = {.model = model, .edits = edits, .err = err};
  for (uint32_t i = 0; i < model->graph->n_nodes; i++)
    if (node_has_external(&model->graph->nodes[i]))
      return bs_error_set(err, BS_UNSUPPORTED, "BS-ONNX-EXTERNAL",
                          "node '%.*s' has a tensor in a file of external data: no copy is written",
                          BS_SPAN_PRINT(model->graph->nodes[i].name));
  emit_model(&count);
  if (count.rc != BS_OK || count.bytes <= LARGEST) return count.rc;
  bs_error_set(err, BS_UNSUPPORTED, "BS-ONNX-SIZE",
               "the copy would have %" PRIu64 " bytes: a file of the format has at most 2 GiB", count.bytes);
  bs_error_hint(err, "fewer bits (--scheme w4g32), or fewer tensors that stay floats");
  return BS_UNSUPPORTED;
}

int32_t bs_onnx_write(const bs_onnx *model, const bs_onnx_edits *edits, const char *to, bs_error *err) {
  bs_out_file out;
  int32_t rc = check(model, edits, err);
  if (rc != BS_OK) return rc;
  sink s = {.model = model, .edits = edits, .out = &out, .piece = malloc(PIECE), .err = err};
  if (s.piece == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-ONNX-MEMORY", "no memory for a piece of 4 MiB");
  s.why = bs_out_open(to, &out);
  if (s.why == 0) {
    emit_model(&s);
    if (s.rc == BS_OK) s.rc = bs_onnx_unchanged(model, err);
    s.why = bs_out_close(&out, s.rc == BS_OK ? s.why : (s.why != 0 ? s.why : ECANCELED), 1);
  }
  free(s.piece);
  if (s.rc != BS_OK) return s.rc;
  if (s.why == 0) return BS_OK;
  bs_error_errno(err, BS_IO, "BS-ONNX-WRITE", s.why, "cannot be written");
  bs_error_where(err, "%s", to);
  return BS_IO;
}
