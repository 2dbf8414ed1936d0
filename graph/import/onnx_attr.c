/* SPDX-License-Identifier: MIT
 * onnx_attr.c - attributes of ONNX nodes as those of a source model. In a function's body an attribute may
 * take the value of one of the call, else of the function's default, else it is absent. Called by
 * onnx_node.c. */
#include <string.h>

#include "core/base/error.h"
#include "graph/import/onnx.h"

static const bs_onnx_attr *find(const bs_onnx_attr *attrs, uint32_t n, bs_span name) {
  for (uint32_t i = 0; i < n; i++)
    if (bs_span_same(attrs[i].name, name)) return &attrs[i];
  return NULL;
}

/* Follows the references of an attribute to the one with the value, and gets the scope that its graphs belong
 * to. NULL: it is absent. */
static const bs_onnx_attr *referred(const bs_onnx_attr *a, const onnx_scope *scope,
                                    const onnx_scope **out_scope) {
  *out_scope = scope;
  for (uint32_t calls = 0; a != NULL && a->reference.size != 0 && calls <= ONNX_MAX_CALLS; calls++) {
    if (scope->function == NULL) return NULL;
    const bs_onnx_attr *given = find(scope->call->attrs, scope->call->n_attrs, a->reference);
    a = given != NULL ? given : find(scope->function->attrs, scope->function->n_attrs, a->reference);
    if (given != NULL) scope = scope->caller;
    *out_scope = scope;
  }
  return a != NULL && a->reference.size != 0 ? NULL : a;
}

/* A copy, so that what a function's calls copy again and again is within the budget. */
static int32_t set_ints(onnx_import *im, const bs_onnx_attr *a, bs_attr *out, bs_error *err) {
  int64_t *values = NULL;
  const int32_t rc = onnx_scratch(im, a->count, sizeof *values, &values, err);
  if (rc == BS_OK && a->count > 0) memcpy(values, a->value.ints, (size_t)a->count * sizeof *values);
  out->ints = values;
  return rc;
}

static int32_t set_floats(onnx_import *im, const bs_onnx_attr *a, bs_attr *out, bs_error *err) {
  double *values = NULL;
  const int32_t rc = onnx_scratch(im, a->count, sizeof *values, &values, err);
  for (uint64_t i = 0; rc == BS_OK && i < a->count; i++) values[i] = (double)a->value.floats[i];
  out->floats = values;
  return rc;
}

static int32_t set_texts(onnx_import *im, const bs_onnx_attr *a, bs_attr *out, bs_error *err) {
  const char **texts = NULL;
  int32_t rc = onnx_scratch(im, a->count, sizeof *texts, &texts, err);
  for (uint64_t i = 0; rc == BS_OK && i < a->count; i++)
    rc = onnx_text_of(im, "", a->value.strings[i], &texts[i], err);
  out->texts = texts;
  return rc;
}

static int32_t set_tensor(onnx_import *im, const bs_onnx_attr *a, bs_attr *out, bs_error *err) {
  bs_tensor_desc *desc = NULL;
  int32_t rc = onnx_scratch(im, 1, sizeof *desc, &desc, err);
  if (rc == BS_OK) rc = onnx_desc(a->value.tensor, desc, err);
  out->tensor = desc;
  out->data = a->value.tensor->data;
  return rc;
}

/* The value of a list of tensors or graphs, a sparse tensor or a type is not kept: GMODEL_ATTR_OTHER. */
static int32_t convert(onnx_import *im, const bs_onnx_attr *a, const onnx_scope *scope, bs_attr *out,
                       bs_error *err) {
  uint32_t block = 0;
  int32_t rc;
  out->struct_size = (uint32_t)sizeof *out;
  out->count = a->count;
  switch (a->type) {
    case BS_ONNX_ATTR_FLOAT:
      out->type = BS_ATTR_FLOAT;
      out->f = (double)a->value.f;
      return BS_OK;
    case BS_ONNX_ATTR_INT:
      out->type = BS_ATTR_INT;
      out->i = a->value.i;
      return BS_OK;
    case BS_ONNX_ATTR_STRING:
      out->type = BS_ATTR_TEXT;
      return onnx_text_of(im, "", a->value.s, &out->text, err);
    case BS_ONNX_ATTR_INTS:
      out->type = BS_ATTR_INTS;
      return set_ints(im, a, out, err);
    case BS_ONNX_ATTR_FLOATS:
      out->type = BS_ATTR_FLOATS;
      return set_floats(im, a, out, err);
    case BS_ONNX_ATTR_STRINGS:
      out->type = BS_ATTR_TEXTS;
      return set_texts(im, a, out, err);
    case BS_ONNX_ATTR_TENSOR:
      out->type = BS_ATTR_TENSOR;
      return set_tensor(im, a, out, err);
    case BS_ONNX_ATTR_GRAPH:
      out->type = BS_ATTR_GRAPH;
      rc = onnx_block(im, a->value.graph, scope, &block, err);
      out->i = (int64_t)block;
      return rc;
    default:
      return BS_OK;
  }
}

int32_t onnx_attrs(onnx_import *im, const bs_onnx_node *node, const onnx_scope *scope,
                   const bs_attr *const **out_attrs, uint32_t *out_n, bs_error *err) {
  bs_attr *attrs = NULL;
  const bs_attr **list = NULL;
  uint32_t n = 0;
  int32_t rc = onnx_scratch(im, node->n_attrs, sizeof *attrs, &attrs, err);
  if (rc == BS_OK) rc = onnx_scratch(im, node->n_attrs, sizeof *list, &list, err);
  for (uint32_t i = 0; rc == BS_OK && i < node->n_attrs; i++) {
    const onnx_scope *at = scope;
    const bs_onnx_attr *a = referred(&node->attrs[i], scope, &at);
    if (a == NULL) continue;
    rc = onnx_text_of(im, "", node->attrs[i].name, &attrs[n].name, err);
    if (rc == BS_OK) rc = convert(im, a, at, &attrs[n], err);
    if (rc != BS_OK) continue;
    list[n] = &attrs[n];
    n++;
  }
  *out_attrs = list;
  *out_n = n;
  return rc;
}
