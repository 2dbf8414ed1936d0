/* SPDX-License-Identifier: MIT
 * onnx.c - from an ONNX file to a source model: ports, constants, blocks and what is shared. Nodes and
 * functions are in onnx_node.c, attributes in onnx_attr.c. Called by bs_graph_open. */
#include "graph/import/onnx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/import/import.h"

int32_t onnx_scratch(onnx_import *im, uint64_t count, uint64_t bytes, void *out, bs_error *err) {
  void *taken = bs_arena_take(&im->scratch, count, bytes);
  memcpy(out, &taken, sizeof taken);
  if (taken != NULL) return BS_OK;
  return bs_error_set(err, BS_INPUT, "BS-ONNX-BUDGET",
                      "the calls of its functions need more than the %" PRIu64
                      " bytes that a file of this size may take, or more than is to be had",
                      im->scratch.limit);
}

int32_t onnx_text_of(onnx_import *im, const char *prefix, bs_span span, const char **out_text,
                     bs_error *err) {
  const size_t before = strlen(prefix);
  char *text = NULL;
  const int32_t rc = onnx_scratch(im, 1, before + span.size + 1, &text, err);
  if (rc != BS_OK) return rc;
  if (before > 0)
    memcpy(text, prefix, before);  // NOLINT(bugprone-not-null-terminated-result): calloc ends it
  if (span.size > 0) memcpy(text + before, span.data, (size_t)span.size);
  *out_text = text;
  return BS_OK;
}

int32_t onnx_define(onnx_scope *scope, const bs_span *name, uint32_t value, bs_error *err) {
  const int added = bs_names_add(&scope->names, name, value);
  if (added > 0) return BS_OK;
  if (added < 0) return model_no_memory(err);
  return bs_error_set(err, BS_INPUT, "BS-ONNX-TWICE", "'%.*s' is defined a second time",
                      BS_SPAN_PRINT(*name));
}

int onnx_resolve(const onnx_scope *scope, bs_span name, uint32_t *out_value) {
  for (; scope != NULL; scope = scope->outer) {
    const uint32_t *value = bs_names_find(&scope->names, name);
    if (value == NULL) continue;
    *out_value = *value;
    return 1;
  }
  return 0;
}

/* ---- constants -------------------------------------------------------------------------------- */

int32_t onnx_desc(const bs_onnx_tensor *t, bs_tensor_desc *out_desc, bs_error *err) {
  memset(out_desc, 0, sizeof *out_desc);
  if (t->rank > BS_MAX_DIMS) {
    bs_error_set(err, BS_INPUT, "BS-ONNX-SHAPE", "at byte %" PRIu64 ": tensor '%.*s' has %u dimensions",
                 t->offset, BS_SPAN_PRINT(t->name), t->rank);
    bs_error_hint(err, "at most %d dimensions are supported", BS_MAX_DIMS);
    return BS_INPUT;
  }
  out_desc->struct_size = (uint32_t)sizeof *out_desc;
  out_desc->dtype = bs_onnx_type_of(t->type)->dtype;
  out_desc->rank = t->rank;
  memcpy(out_desc->dims, t->dims, t->rank * sizeof *t->dims);
  return BS_OK;
}

static int32_t add_constants(onnx_import *im, const bs_onnx_graph *g, onnx_scope *scope, bs_error *err) {
  for (uint32_t i = 0; i < g->n_initializers; i++) {
    const bs_onnx_tensor *t = &g->initializers[i];
    const char *name = NULL;
    bs_tensor_desc desc;
    uint32_t value;
    int32_t rc = onnx_desc(t, &desc, err);
    if (rc == BS_OK) rc = onnx_text_of(im, scope->prefix, t->name, &name, err);
    if (rc == BS_OK)
      rc = gmodel_constant(im->model, name, desc.dtype, desc.rank, desc.dims, t->data, t->bytes, 0, &value,
                           err);
    if (rc == BS_OK) rc = onnx_define(scope, &t->name, value, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* ---- ports ------------------------------------------------------------------------------------ */

static const char *kind_name(uint32_t kind) {
  switch (kind) {
    case BS_ONNX_KIND_NONE:
      return "of no type";
    case BS_ONNX_KIND_SEQUENCE:
      return "a sequence";
    case BS_ONNX_KIND_MAP:
      return "a map";
    case BS_ONNX_KIND_SPARSE:
      return "a sparse tensor";
    case BS_ONNX_KIND_OPTIONAL:
      return "an optional value";
    default:
      return "opaque";
  }
}

static int32_t bad_input(const bs_onnx_value *v, const char *id, const char *what, bs_error *err) {
  return bs_error_set(err, BS_INPUT, id, "input '%.*s' %s", BS_SPAN_PRINT(v->name), what);
}

/* The name of a symbolic dim; one without a name gets that of its place. */
static int32_t symbol_of(onnx_import *im, const bs_onnx_value *v, uint32_t dim, const char **out_name,
                         bs_error *err) {
  char place[16];
  bs_span *symbol = NULL;
  if (v->dims[dim].symbol.size > 0) {
    int32_t rc = onnx_text_of(im, "", v->dims[dim].symbol, out_name, err);
    if (rc != BS_OK) return rc;
  } else {
    const char *input = NULL;
    snprintf(place, sizeof place, ".%u", dim);
    int32_t rc = onnx_text_of(im, "", v->name, &input, err);
    if (rc == BS_OK) rc = onnx_text_of(im, input, (bs_span){place, strlen(place)}, out_name, err);
    if (rc != BS_OK) return rc;
  }
  int32_t rc = onnx_scratch(im, 1, sizeof *symbol, &symbol, err);
  if (rc != BS_OK) return rc;
  *symbol = (bs_span){*out_name, strlen(*out_name)};
  if (bs_names_add(&im->symbols, symbol, 0) < 0) return model_no_memory(err);
  if (im->symbols.count > ONNX_MAX_PORTS)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-COUNT", "more than %d symbolic dimensions", ONNX_MAX_PORTS);
  return BS_OK;
}

static int32_t add_input(onnx_import *im, const bs_onnx_value *v, onnx_scope *scope, bs_error *err) {
  const char *name = NULL, *symbols[BS_MAX_DIMS] = {NULL};
  int64_t dims[BS_MAX_DIMS] = {0};
  uint32_t value;
  if (v->kind != BS_ONNX_KIND_TENSOR)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-TYPE", "input '%.*s' is %s; tensors are read",
                        BS_SPAN_PRINT(v->name), kind_name(v->kind));
  const bs_onnx_type *type = bs_onnx_type_of(v->type);
  if (type == NULL) return bad_input(v, "BS-ONNX-TYPE", "has no element type", err);
  if (!v->has_shape) {
    bad_input(v, "BS-ONNX-SHAPE", "has no shape", err);
    bs_error_hint(err, "export it with a fixed number of dimensions; their sizes may be symbols");
    return BS_INPUT;
  }
  if (v->rank > BS_MAX_DIMS) return bad_input(v, "BS-ONNX-SHAPE", "has more than 6 dimensions", err);
  for (uint32_t i = 0; i < v->rank; i++) {
    dims[i] = v->dims[i].value;
    const int32_t rc = dims[i] < 0 ? symbol_of(im, v, i, &symbols[i], err) : BS_OK;
    if (rc != BS_OK) return rc;
  }
  int32_t rc = onnx_text_of(im, "", v->name, &name, err);
  if (rc == BS_OK) rc = gmodel_input(im->model, name, type->dtype, v->rank, dims, symbols, &value, err);
  return rc == BS_OK ? onnx_define(scope, &v->name, value, err) : rc;
}

/* An initializer that is an input too is a constant, whose value the caller may replace. */
static int32_t add_default(onnx_import *im, const bs_onnx_value *v, uint32_t value, bs_error *err) {
  int64_t dims[BS_MAX_DIMS] = {0};
  const char *name = NULL;
  const int shaped = v->kind == BS_ONNX_KIND_TENSOR && v->has_shape && v->rank <= BS_MAX_DIMS;
  for (uint32_t i = 0; shaped && i < v->rank; i++) dims[i] = v->dims[i].value < 0 ? -1 : v->dims[i].value;
  const int32_t rc = onnx_text_of(im, "", v->name, &name, err);
  return rc == BS_OK
             ? gmodel_default_add(im->model, name, value, shaped ? v->rank : GMODEL_RANK_UNKNOWN, dims, err)
             : rc;
}

static int32_t add_inputs(onnx_import *im, const bs_onnx_graph *g, onnx_scope *scope, bs_error *err) {
  uint32_t added = 0, value;
  for (uint32_t i = 0; i < g->n_inputs; i++) {
    const int has_value = onnx_resolve(scope, g->inputs[i].name, &value);
    if (!has_value && ++added > ONNX_MAX_PORTS)
      return bs_error_set(err, BS_INPUT, "BS-ONNX-COUNT", "more than %d inputs", ONNX_MAX_PORTS);
    const int32_t rc =
        has_value ? add_default(im, &g->inputs[i], value, err) : add_input(im, &g->inputs[i], scope, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t output_value(const bs_onnx_value *v, const onnx_scope *scope, uint32_t *out_value,
                            bs_error *err) {
  if (onnx_resolve(scope, v->name, out_value) && *out_value != GMODEL_NONE) return BS_OK;
  return bs_error_set(err, BS_INPUT, "BS-ONNX-UNDEFINED", "no node computes the output '%.*s'",
                      BS_SPAN_PRINT(v->name));
}

static int32_t add_outputs(onnx_import *im, const bs_onnx_graph *g, const onnx_scope *scope, bs_error *err) {
  if (g->n_outputs > ONNX_MAX_PORTS)
    return bs_error_set(err, BS_INPUT, "BS-ONNX-COUNT", "more than %d outputs", ONNX_MAX_PORTS);
  for (uint32_t i = 0; i < g->n_outputs; i++) {
    const char *name = NULL;
    uint32_t value;
    int32_t rc = output_value(&g->outputs[i], scope, &value, err);
    if (rc == BS_OK) rc = onnx_text_of(im, "", g->outputs[i].name, &name, err);
    if (rc == BS_OK) rc = gmodel_output(im->model, name, value, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* ---- bodies ----------------------------------------------------------------------------------- */

/* Adds the dtypes and shapes that the file gives for computed values, as hints. */
static void add_hints(onnx_import *im, const bs_onnx_value *values, uint32_t n, const onnx_scope *scope) {
  for (uint32_t i = 0; i < n; i++) {
    const bs_onnx_value *v = &values[i];
    const bs_onnx_type *type = bs_onnx_type_of(v->type);
    const uint32_t *value = bs_names_find(&scope->names, v->name);
    int64_t dims[BS_MAX_DIMS] = {0};
    if (v->kind != BS_ONNX_KIND_TENSOR || type == NULL || value == NULL || *value == GMODEL_NONE) continue;
    if (im->model->values[*value].kind != GMODEL_COMPUTED) continue;
    const int shaped = v->has_shape && v->rank <= BS_MAX_DIMS;
    for (uint32_t d = 0; shaped && d < v->rank; d++) dims[d] = v->dims[d].value;
    gmodel_hint(im->model, *value, type->dtype, shaped ? v->rank : GMODEL_RANK_UNKNOWN, dims);
  }
}

int32_t onnx_body(onnx_import *im, const bs_onnx_graph *g, onnx_scope *scope, bs_error *err) {
  const int32_t rc = onnx_nodes(im, g->nodes, g->n_nodes, scope, err);
  if (rc != BS_OK) return rc;
  add_hints(im, g->values, g->n_values, scope);
  add_hints(im, g->outputs, g->n_outputs, scope);
  return BS_OK;
}

static int32_t fill_block(onnx_import *im, const bs_onnx_graph *g, onnx_scope *scope, bs_error *err) {
  uint32_t *inputs = NULL, *outputs = NULL;
  int32_t rc = onnx_scratch(im, g->n_inputs, sizeof *inputs, &inputs, err);
  if (rc == BS_OK) rc = onnx_scratch(im, g->n_outputs, sizeof *outputs, &outputs, err);
  if (rc == BS_OK) rc = add_constants(im, g, scope, err);
  for (uint32_t i = 0; rc == BS_OK && i < g->n_inputs; i++) {
    const bs_onnx_type *type = bs_onnx_type_of(g->inputs[i].type);
    const char *name = NULL;
    rc = onnx_text_of(im, scope->prefix, g->inputs[i].name, &name, err);
    if (rc == BS_OK)
      rc = gmodel_block_input(im->model, name, type == NULL ? 0 : type->dtype, &inputs[i], err);
    if (rc == BS_OK) rc = onnx_define(scope, &g->inputs[i].name, inputs[i], err);
  }
  if (rc == BS_OK) rc = onnx_body(im, g, scope, err);
  for (uint32_t i = 0; rc == BS_OK && i < g->n_outputs; i++)
    rc = output_value(&g->outputs[i], scope, &outputs[i], err);
  if (rc != BS_OK) return rc;
  return gmodel_block_ports(im->model, scope->block, inputs, g->n_inputs, outputs, g->n_outputs, err);
}

int32_t onnx_block(onnx_import *im, const bs_onnx_graph *g, const onnx_scope *outer, uint32_t *out_block,
                   bs_error *err) {
  onnx_scope scope = *outer;
  memset(&scope.names, 0, sizeof scope.names);
  scope.outer = outer;
  int32_t rc = gmodel_block_new(im->model, out_block, err);
  if (rc != BS_OK) return rc;
  scope.block = *out_block;
  rc = fill_block(im, g, &scope, err);
  bs_names_free(&scope.names);
  return rc;
}

/* ---- a whole file ----------------------------------------------------------------------------- */

static int32_t opset_of_model(const bs_onnx *file, uint32_t *out_opset, bs_error *err) {
  *out_opset = 0;
  for (uint32_t i = 0; i < file->n_opsets; i++) {
    const bs_onnx_opset *o = &file->opsets[i];
    if (o->domain.size != 0) continue;
    if (o->version < 1 || o->version > ONNX_MAX_OPSET) {
      bs_error_set(err, BS_INPUT, "BS-ONNX-OPSET", "opset %" PRId64 " of ai.onnx; 1 to %d are read",
                   o->version, ONNX_MAX_OPSET);
      bs_error_hint(err, "export the model at opset 23 to %d", ONNX_MAX_OPSET);
      return BS_INPUT;
    }
    *out_opset = (uint32_t)o->version;
  }
  return BS_OK;
}

int32_t onnx_function_key(onnx_import *im, bs_span domain, bs_span name, bs_span overload, bs_span *out,
                          bs_error *err) {
  const char *text = NULL;
  int32_t rc = onnx_text_of(im, "", domain, &text, err);
  if (rc == BS_OK) rc = onnx_text_of(im, text, (bs_span){"\n", 1}, &text, err);
  if (rc == BS_OK) rc = onnx_text_of(im, text, name, &text, err);
  if (rc == BS_OK) rc = onnx_text_of(im, text, (bs_span){"\n", 1}, &text, err);
  if (rc == BS_OK) rc = onnx_text_of(im, text, overload, &text, err);
  if (rc == BS_OK) *out = (bs_span){text, strlen(text)};
  return rc;
}

static int32_t index_functions(onnx_import *im, bs_error *err) {
  for (uint32_t i = 0; i < im->file->n_functions; i++) {
    const bs_onnx_function *f = &im->file->functions[i];
    bs_span *key = NULL;
    int32_t rc = onnx_scratch(im, 1, sizeof *key, &key, err);
    if (rc == BS_OK) rc = onnx_function_key(im, f->domain, f->name, f->overload, key, err);
    if (rc != BS_OK) return rc;
    if (bs_names_add(&im->functions, key, i) < 0) return model_no_memory(err);
  }
  return BS_OK;
}

static int32_t fill_model(onnx_import *im, bs_error *err) {
  const bs_onnx *file = im->file;
  onnx_scope scope = {.opsets = file->opsets, .n_opsets = file->n_opsets, .prefix = ""};
  const char *producer = NULL;
  int32_t rc = index_functions(im, err);
  if (rc == BS_OK) rc = onnx_text_of(im, "", file->producer, &producer, err);
  if (rc == BS_OK) rc = gmodel_set_about(im->model, "", producer, err);
  if (rc == BS_OK) rc = add_constants(im, file->graph, &scope, err);
  if (rc == BS_OK) rc = add_inputs(im, file->graph, &scope, err);
  if (rc == BS_OK) rc = onnx_body(im, file->graph, &scope, err);
  if (rc == BS_OK) rc = add_outputs(im, file->graph, &scope, err);
  bs_names_free(&scope.names);
  return rc;
}

static void close_file(void *file) {
  bs_onnx_close(file);
  free(file);
}

static int32_t unchanged(void *file, bs_error *err) {
  return bs_onnx_unchanged(file, err);
}

/* Takes the file over, also when it fails. */
static int32_t import_file(bs_onnx *file, gmodel **out_model, bs_error *err) {
  onnx_import im = {.file = file, .scratch = {.limit = BS_ONNX_HEAP(file->file_bytes) + (64u << 20)}};
  uint32_t opset;
  int32_t rc = opset_of_model(file, &opset, err);
  if (rc == BS_OK) rc = gmodel_new(opset, &im.model, err);
  if (rc != BS_OK) {
    close_file(file);
    return rc;
  }
  rc = gmodel_keep(im.model, file, close_file, err);
  if (rc == BS_OK) {
    im.nodes_left = onnx_node_budget(file);
    rc = gmodel_watch(im.model, file, unchanged, err);
    if (rc == BS_OK) rc = fill_model(&im, err);
    if (rc == BS_OK) rc = bs_onnx_unchanged(file, err);
  }
  bs_names_free(&im.functions);
  bs_names_free(&im.symbols);
  bs_arena_free(&im.scratch);
  if (rc == BS_OK)
    *out_model = im.model;
  else
    gmodel_free(im.model);
  return rc;
}

int32_t import_onnx(const char *path, gmodel **out_model, bs_error *err) {
  bs_onnx *file = calloc(1, sizeof *file);
  if (file == NULL) return model_no_memory(err);
  int32_t rc = bs_onnx_open(path, file, err);
  if (rc != BS_OK) {
    free(file);
    return rc;
  }
  rc = import_file(file, out_model, err);
  if (rc != BS_OK && err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", path);
  return rc;
}

int32_t import_onnx_bytes(const void *bytes, uint64_t size, gmodel **out_model, bs_error *err) {
  bs_onnx *file = calloc(1, sizeof *file);
  if (file == NULL) return model_no_memory(err);
  int32_t rc = bs_onnx_parse(bytes, size, "memory", NULL, file, err);
  if (rc != BS_OK) {
    free(file);
    return rc;
  }
  rc = import_file(file, out_model, err);
  if (rc != BS_OK && err != NULL && err->where[0] == '\0') bs_error_where(err, "memory");
  return rc;
}
