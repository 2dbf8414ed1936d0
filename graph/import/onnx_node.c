/* SPDX-License-Identifier: MIT
 * onnx_node.c - nodes of an ONNX graph into the source model, and functions in the place of their calls.
 * Called by onnx.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/import/onnx.h"

enum { MAX_PREFIX = 256 };

uint64_t onnx_node_budget(const bs_onnx *file) {
  uint64_t nodes = file->graph->n_nodes;
  for (uint32_t i = 0; i < file->n_functions; i++) nodes += file->functions[i].n_nodes;
  return 20000 + 64 * nodes;
}

static int32_t undefined(const bs_onnx_node *node, bs_span name, bs_error *err) {
  bs_error_set(err, BS_INPUT, "BS-ONNX-UNDEFINED",
               "at byte %" PRIu64 ": node '%.*s' (%.*s) reads '%.*s', which no node before it gives",
               node->offset, BS_SPAN_PRINT(node->name), BS_SPAN_PRINT(node->op), BS_SPAN_PRINT(name));
  bs_error_hint(err, "nodes must stand in an order in which each name is defined before it is read");
  return BS_INPUT;
}

static int32_t read_inputs(onnx_import *im, const bs_onnx_node *node, const onnx_scope *scope,
                           uint32_t **out_in, bs_error *err) {
  uint32_t *in = NULL;
  const int32_t rc = onnx_scratch(im, node->n_inputs, sizeof *in, &in, err);
  for (uint32_t i = 0; rc == BS_OK && i < node->n_inputs; i++) {
    in[i] = GMODEL_NONE;
    if (node->inputs[i].size != 0 && !onnx_resolve(scope, node->inputs[i], &in[i]))
      return undefined(node, node->inputs[i], err);
  }
  *out_in = in;
  return rc;
}

/* The version of a domain's operators; a custom domain that is not imported has version 1. */
static int32_t opset_of(const bs_onnx_node *node, const onnx_scope *scope, uint32_t *out_opset,
                        bs_error *err) {
  for (uint32_t i = 0; i < scope->n_opsets; i++) {
    const int64_t version = scope->opsets[i].version;
    if (!bs_span_same(scope->opsets[i].domain, node->domain)) continue;
    if (version > 0 && version <= (node->domain.size == 0 ? ONNX_MAX_OPSET : INT32_MAX)) {
      *out_opset = (uint32_t)version;
      return BS_OK;
    }
    return bs_error_set(err, BS_INPUT, "BS-ONNX-OPSET", "opset %" PRId64 " of domain '%.*s' is not read",
                        version, BS_SPAN_PRINT(node->domain));
  }
  *out_opset = 1;
  if (node->domain.size != 0) return BS_OK;
  return bs_error_set(err, BS_INPUT, "BS-ONNX-OPSET",
                      "node '%.*s' (%.*s) is of ai.onnx, of which no opset is imported",
                      BS_SPAN_PRINT(node->name), BS_SPAN_PRINT(node->op));
}

static int32_t make_outputs(onnx_import *im, const bs_onnx_node *node, onnx_scope *scope, uint32_t *out,
                            bs_error *err) {
  for (uint32_t i = 0; i < node->n_outputs; i++) {
    const char *name = NULL;
    out[i] = GMODEL_NONE;
    if (node->outputs[i].size == 0) continue;
    int32_t rc = onnx_text_of(im, scope->prefix, node->outputs[i], &name, err);
    if (rc == BS_OK) rc = gmodel_computed(im->model, name, &out[i], err);
    if (rc == BS_OK) rc = onnx_define(scope, &node->outputs[i], out[i], err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t add_node(onnx_import *im, const bs_onnx_node *node, onnx_scope *scope, bs_error *err) {
  gmodel_node_desc desc = {.block = scope->block, .n_in = node->n_inputs, .n_out = node->n_outputs};
  uint32_t *in = NULL, *out = NULL;
  int32_t rc = read_inputs(im, node, scope, &in, err);
  if (rc == BS_OK) rc = opset_of(node, scope, &desc.opset, err);
  if (rc == BS_OK) rc = onnx_attrs(im, node, scope, &desc.attrs, &desc.n_attr, err);
  if (rc == BS_OK) rc = onnx_scratch(im, node->n_outputs, sizeof *out, &out, err);
  if (rc == BS_OK) rc = make_outputs(im, node, scope, out, err);
  if (rc == BS_OK) rc = onnx_text_of(im, "", node->op, &desc.op, err);
  if (rc == BS_OK) rc = onnx_text_of(im, "", node->domain, &desc.domain, err);
  if (rc == BS_OK)
    rc = onnx_text_of(im, node->name.size == 0 ? "" : scope->prefix, node->name, &desc.name, err);
  desc.in = in;
  return rc == BS_OK ? gmodel_node_add(im->model, &desc, out, err) : rc;
}

/* ---- functions -------------------------------------------------------------------------------- */

static int32_t find_function(onnx_import *im, const bs_onnx_node *node, const bs_onnx_function **out,
                             bs_error *err) {
  bs_span key;
  *out = NULL;
  if (im->file->n_functions == 0) return BS_OK;
  const int32_t rc = onnx_function_key(im, node->domain, node->op, node->overload, &key, err);
  const uint32_t *found = rc == BS_OK ? bs_names_find(&im->functions, key) : NULL;
  if (found != NULL) *out = &im->file->functions[*found];
  return rc;
}

/* "call/": what stands before the names of the body. One that gets long is a number instead. */
static int32_t prefix_of(onnx_import *im, const bs_onnx_node *node, const onnx_scope *scope,
                         const char **out_prefix, bs_error *err) {
  char number[32];
  bs_span name = node->name;
  const char *before = scope->prefix;
  if (name.size == 0 && node->n_outputs > 0) name = node->outputs[0];
  if (name.size == 0) name = node->op;
  if (strlen(before) + name.size > MAX_PREFIX) {
    snprintf(number, sizeof number, "call %" PRIu64, im->nodes_left);
    before = "";
    name = (bs_span){number, strlen(number)};
  }
  int32_t rc = onnx_text_of(im, before, name, out_prefix, err);
  if (rc == BS_OK) rc = onnx_text_of(im, *out_prefix, (bs_span){"/", 1}, out_prefix, err);
  return rc;
}

static int32_t bad_call(const bs_onnx_node *node, const char *what, uint32_t seen, uint32_t most,
                        bs_error *err) {
  return bs_error_set(err, BS_INPUT, "BS-ONNX-CALL",
                      "at byte %" PRIu64 ": node '%.*s' calls the function '%.*s' %s: %u, at most %u",
                      node->offset, BS_SPAN_PRINT(node->name), BS_SPAN_PRINT(node->op), what, seen, most);
}

static int32_t fill_call(onnx_import *im, const bs_onnx_node *node, const bs_onnx_function *f,
                         onnx_scope *scope, onnx_scope *body, bs_error *err) {
  uint32_t *in = NULL;
  int32_t rc = read_inputs(im, node, scope, &in, err);
  for (uint32_t i = 0; rc == BS_OK && i < f->n_inputs; i++)
    rc = onnx_define(body, &f->inputs[i], in != NULL && i < node->n_inputs ? in[i] : GMODEL_NONE, err);
  if (rc == BS_OK) rc = onnx_nodes(im, f->nodes, f->n_nodes, body, err);
  for (uint32_t i = 0; rc == BS_OK && i < node->n_outputs; i++) {
    uint32_t value;
    if (node->outputs[i].size == 0) continue;
    rc = onnx_resolve(body, f->outputs[i], &value)
             ? onnx_define(scope, &node->outputs[i], value, err)
             : bs_error_set(err, BS_INPUT, "BS-ONNX-UNDEFINED",
                            "function '%.*s' does not compute its output '%.*s'", BS_SPAN_PRINT(f->name),
                            BS_SPAN_PRINT(f->outputs[i]));
  }
  return rc;
}

static int32_t add_call(onnx_import *im, const bs_onnx_node *node, const bs_onnx_function *f,
                        onnx_scope *scope, bs_error *err) {
  onnx_scope body = {.opsets = f->opsets,
                     .n_opsets = f->n_opsets,
                     .block = scope->block,
                     .calls = scope->calls + 1,
                     .function = f,
                     .call = node,
                     .caller = scope};
  if (node->n_inputs > f->n_inputs)
    return bad_call(node, "with too many inputs", node->n_inputs, f->n_inputs, err);
  if (node->n_outputs > f->n_outputs)
    return bad_call(node, "with too many outputs", node->n_outputs, f->n_outputs, err);
  if (body.calls > ONNX_MAX_CALLS)
    return bad_call(node, "inside other functions", body.calls, ONNX_MAX_CALLS, err);
  int32_t rc = prefix_of(im, node, scope, &body.prefix, err);
  if (rc == BS_OK) rc = fill_call(im, node, f, scope, &body, err);
  bs_names_free(&body.names);
  return rc;
}

int32_t onnx_nodes(onnx_import *im, const bs_onnx_node *nodes, uint32_t n, onnx_scope *scope, bs_error *err) {
  for (uint32_t i = 0; i < n; i++) {
    const bs_onnx_function *f = NULL;
    if (im->nodes_left-- == 0)
      return bs_error_set(err, BS_INPUT, "BS-ONNX-BUDGET",
                          "its functions make more than %" PRIu64 " nodes of their calls",
                          onnx_node_budget(im->file));
    int32_t rc = find_function(im, &nodes[i], &f, err);
    if (rc == BS_OK)
      rc = f != NULL ? add_call(im, &nodes[i], f, scope, err) : add_node(im, &nodes[i], scope, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}
