/* SPDX-License-Identifier: MIT
 * onnx_graph.c - GraphProto, NodeProto and FunctionProto records, and the rule that each name is defined
 * once. A graph inside an attribute goes into a queue, so that nothing recurses. Called by onnx.c. */
#include <inttypes.h>
#include <stddef.h>

#include "core/base/error.h"
#include "formats/onnx_graph.h"

/* The node being filled, and the depth of the graph that holds it. */
typedef struct node_state {
  bs_onnx_node *node;
  uint32_t depth;
} node_state;

static int32_t body_of(const bs_pb_field *f, bs_pb *out, bs_error *err) {
  int32_t rc = bs_pb_want(f, BS_PB_BYTES, err);
  *out = f->body;
  return rc;
}

static int32_t node_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  node_state *s = record;
  bs_onnx_node *node = s->node;
  bs_pb body;
  switch (f->number) {
    case 1:
      return bs_onnx_name(f, &node->inputs[node->n_inputs++], err);
    case 2:
      return bs_onnx_name(f, &node->outputs[node->n_outputs++], err);
    case 3:
      return bs_onnx_name(f, &node->name, err);
    case 4:
      return bs_onnx_name(f, &node->op, err);
    case 5:
      if (body_of(f, &body, err) != BS_OK) return BS_INPUT;
      return bs_onnx_read_attr(r, body, s->depth, &node->attrs[node->n_attrs++], err);
    case 7:
      return bs_onnx_domain(f, &node->domain, err);
    case 8:
      return bs_onnx_name(f, &node->overload, err);
    default:
      return BS_OK;
  }
}

static int32_t check_attrs(const bs_onnx_node *node, bs_error *err) {
  for (uint32_t i = 0; i < node->n_attrs; i++)
    for (uint32_t j = 0; j < i; j++)
      if (bs_span_same(node->attrs[i].name, node->attrs[j].name))
        return bs_error_set(err, BS_INPUT, "BS-ONNX-TWICE",
                            "at byte %" PRIu64 ": node '%.*s' (%.*s) has the attribute '%.*s' twice",
                            node->offset, BS_SPAN_PRINT(node->name), BS_SPAN_PRINT(node->op),
                            BS_SPAN_PRINT(node->attrs[i].name));
  return BS_OK;
}

static int32_t read_node(bs_onnx_reader *r, const bs_pb_field *f, uint32_t depth, bs_onnx_node *out,
                         bs_error *err) {
  node_state s = {out, depth};
  uint64_t counts[9];
  bs_pb body;
  int32_t rc = body_of(f, &body, err);
  if (rc == BS_OK) rc = bs_pb_count(body, counts, 9, err);
  if (rc != BS_OK) return rc;
  out->offset = f->offset;
  if (counts[5] > BS_ONNX_MAX_ATTRIBUTES)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-COUNT",
                        "at byte %" PRIu64 ": a node has %" PRIu64 " attributes, cap %u", f->offset,
                        counts[5], BS_ONNX_MAX_ATTRIBUTES);
  rc = bs_onnx_list(r, &body, counts[1], 2, sizeof *out->inputs, &out->inputs, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[2], 2, sizeof *out->outputs, &out->outputs, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[5], 5, sizeof *out->attrs, &out->attrs, err);
  if (rc == BS_OK) rc = bs_onnx_fields(r, body, node_field, &s, err);
  if (rc != BS_OK) return rc;
  if (out->op.size == 0)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-NAME", "at byte %" PRIu64 ": node '%.*s' has no operator",
                        f->offset, BS_SPAN_PRINT(out->name));
  return check_attrs(out, err);
}

int32_t bs_onnx_queue_graph(bs_onnx_reader *r, bs_pb body, uint32_t depth, bs_onnx_graph **out_graph,
                            bs_error *err) {
  bs_onnx_pending *pending = NULL;
  if (depth > BS_ONNX_MAX_DEPTH)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-DEPTH", "at byte %" PRIu64 ": graphs nest deeper than %d",
                        bs_pb_offset(&body), BS_ONNX_MAX_DEPTH);
  int32_t rc = bs_onnx_bytes(r, 1, sizeof *pending, &pending, err);
  if (rc != BS_OK) return rc;
  pending->body = body;
  pending->graph.depth = depth;
  *r->last = pending;
  r->last = &pending->next;
  *out_graph = &pending->graph;
  return BS_OK;
}

static int32_t graph_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx_graph *g = record;
  bs_pb body;
  switch (f->number) {
    case 1:
      return read_node(r, f, g->depth, &g->nodes[g->n_nodes++], err);
    case 2:
      return bs_onnx_name(f, &g->name, err);
    case 5:
      if (body_of(f, &body, err) != BS_OK) return BS_INPUT;
      return bs_onnx_read_tensor(r, body, f->offset, &g->initializers[g->n_initializers++], err);
    case 11:
      if (body_of(f, &body, err) != BS_OK) return BS_INPUT;
      return bs_onnx_read_value(r, body, &g->inputs[g->n_inputs++], err);
    case 12:
      if (body_of(f, &body, err) != BS_OK) return BS_INPUT;
      return bs_onnx_read_value(r, body, &g->outputs[g->n_outputs++], err);
    case 13:
      if (body_of(f, &body, err) != BS_OK) return BS_INPUT;
      return bs_onnx_read_value(r, body, &g->values[g->n_values++], err);
    default:
      return BS_OK;
  }
}

/* The place where a name was defined; bs_names keeps it with the name. */
enum { OF_INPUT, OF_INITIALIZER, OF_NODE };

static int32_t define(bs_names *names, const bs_span *name, uint32_t what, uint64_t offset, bs_error *err) {
  int added = bs_names_add(names, name, what);
  if (added > 0) return BS_OK;
  if (added < 0) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "memory for names is not to be had");
  uint32_t *before = bs_names_find(names, *name);
  if (what == OF_INITIALIZER && *before == OF_INPUT) {
    *before = OF_INITIALIZER; /* the default value of an input */
    return BS_OK;
  }
  return bs_error_set(err, BS_INPUT, "BS-ONNX-TWICE", "at byte %" PRIu64 ": '%.*s' is defined a second time",
                      offset, BS_SPAN_PRINT(*name));
}

static int32_t define_outputs(bs_names *names, const bs_onnx_node *nodes, uint32_t n, bs_error *err) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < nodes[i].n_outputs; j++) {
      if (nodes[i].outputs[j].size == 0) continue;
      int32_t rc = define(names, &nodes[i].outputs[j], OF_NODE, nodes[i].offset, err);
      if (rc != BS_OK) return rc;
    }
  return BS_OK;
}

static int32_t check_graph_names(const bs_onnx_graph *g, uint64_t offset, bs_error *err) {
  bs_names names = {0};
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < g->n_inputs; i++)
    rc = define(&names, &g->inputs[i].name, OF_INPUT, offset, err);
  for (uint32_t i = 0; rc == BS_OK && i < g->n_initializers; i++) {
    const bs_onnx_tensor *t = &g->initializers[i];
    rc = t->name.size == 0 ? bs_error_set(err, BS_INPUT, "BS-ONNX-NAME",
                                          "at byte %" PRIu64 ": an initializer has no name", t->offset)
                           : define(&names, &t->name, OF_INITIALIZER, t->offset, err);
  }
  if (rc == BS_OK) rc = define_outputs(&names, g->nodes, g->n_nodes, err);
  bs_names_free(&names);
  return rc;
}

int32_t bs_onnx_read_graph(bs_onnx_reader *r, bs_pb body, bs_onnx_graph *g, bs_error *err) {
  uint64_t counts[16];
  int32_t rc = bs_pb_count(body, counts, 16, err);
  if (rc != BS_OK) return rc;
  if (counts[15] != 0)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-SPARSE",
                        "at byte %" PRIu64 ": the graph has sparse initializers", bs_pb_offset(&body));
  rc = bs_onnx_list(r, &body, counts[1], 5, sizeof *g->nodes, &g->nodes, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[5], 4, sizeof *g->initializers, &g->initializers, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[11], 5, sizeof *g->inputs, &g->inputs, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[12], 5, sizeof *g->outputs, &g->outputs, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[13], 5, sizeof *g->values, &g->values, err);
  if (rc == BS_OK) rc = bs_onnx_fields(r, body, graph_field, g, err);
  if (rc == BS_OK) rc = check_graph_names(g, bs_pb_offset(&body), err);
  return rc;
}

static int32_t function_field(bs_onnx_reader *r, void *record, const bs_pb_field *f, bs_error *err) {
  bs_onnx_function *fn = record;
  bs_pb body;
  switch (f->number) {
    case 1:
      return bs_onnx_name(f, &fn->name, err);
    case 4:
      return bs_onnx_name(f, &fn->inputs[fn->n_inputs++], err);
    case 5:
      return bs_onnx_name(f, &fn->outputs[fn->n_outputs++], err);
    case 6:
      return bs_onnx_name(f, &fn->attr_names[fn->n_attr_names++], err);
    case 7:
      return read_node(r, f, 0, &fn->nodes[fn->n_nodes++], err);
    case 9:
      if (body_of(f, &body, err) != BS_OK) return BS_INPUT;
      return bs_onnx_read_opset(r, body, &fn->opsets[fn->n_opsets++], err);
    case 10:
      return bs_onnx_domain(f, &fn->domain, err);
    case 11:
      if (body_of(f, &body, err) != BS_OK) return BS_INPUT;
      return bs_onnx_read_attr(r, body, 0, &fn->attrs[fn->n_attrs++], err);
    case 13:
      return bs_onnx_name(f, &fn->overload, err);
    default:
      return BS_OK;
  }
}

static int32_t check_function_names(const bs_onnx_function *fn, uint64_t offset, bs_error *err) {
  bs_names names = {0};
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < fn->n_inputs; i++)
    rc = define(&names, &fn->inputs[i], OF_INPUT, offset, err);
  if (rc == BS_OK) rc = define_outputs(&names, fn->nodes, fn->n_nodes, err);
  bs_names_free(&names);
  return rc;
}

int32_t bs_onnx_read_function(bs_onnx_reader *r, bs_pb body, bs_onnx_function *fn, bs_error *err) {
  uint64_t counts[14];
  int32_t rc = bs_pb_count(body, counts, 14, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[4], 2, sizeof *fn->inputs, &fn->inputs, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[5], 2, sizeof *fn->outputs, &fn->outputs, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[6], 2, sizeof *fn->attr_names, &fn->attr_names, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[11], 5, sizeof *fn->attrs, &fn->attrs, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[7], 5, sizeof *fn->nodes, &fn->nodes, err);
  if (rc == BS_OK) rc = bs_onnx_list(r, &body, counts[9], 2, sizeof *fn->opsets, &fn->opsets, err);
  if (rc == BS_OK) rc = bs_onnx_fields(r, body, function_field, fn, err);
  if (rc != BS_OK) return rc;
  if (fn->name.size == 0)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-NAME", "at byte %" PRIu64 ": a function has no name",
                        bs_pb_offset(&body));
  return check_function_names(fn, bs_pb_offset(&body), err);
}
