/* SPDX-License-Identifier: MIT
 * info.c - the content of a model: ports, operators, and every node that cannot be served. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/model/model.h"
#include "lab/report/report.h"

json_t *bs_model_json_text(const char *text) {
  json_t *value = json_string(text == NULL ? "" : text);
  if (value != NULL) return value;
  char *shown = bs_report_printable(text);
  value = json_string(shown != NULL ? shown : "");
  free(shown);
  return value;
}

static json_t *port_shape(const bs_port *port) {
  if (port->rank > BS_MAX_DIMS) return json_null();
  json_t *shape = json_array();
  for (uint32_t d = 0; d < port->rank; d++) {
    json_t *dim = port->symbols[d] != NULL ? bs_model_json_text(port->symbols[d])
                  : port->dims[d] < 0      ? json_string("?")
                                           : json_integer(port->dims[d]);
    json_array_append_new(shape, dim);
  }
  return shape;
}

static int32_t list_ports(const bs_graph *graph, uint32_t inputs, json_t *out, bs_error *err) {
  const uint32_t n = bs_graph_port_count(graph, inputs);
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < n && rc == BS_OK; i++) {
    bs_port port = {.struct_size = sizeof port};
    rc = bs_graph_port(graph, inputs, i, &port, err);
    if (rc != BS_OK) break;
    json_array_append_new(
        out, json_pack("{s:o, s:o, s:o}", "name", bs_model_json_text(port.name), "dtype",
                       port.dtype != 0 ? json_string(bs_dtype_name(port.dtype)) : json_null(), "shape",
                       port_shape(&port)));
  }
  return rc;
}

static void add_op(void *user, const char *op, const char *domain, uint64_t nodes) {
  json_array_append_new(user, json_pack("{s:o, s:o, s:I}", "op", bs_model_json_text(op), "domain",
                                        bs_model_json_text(domain), "nodes", (json_int_t)nodes));
}

static void add_issue(void *user, const bs_graph_issue *issue) {
  json_array_append_new(
      user, json_pack("{s:o, s:o, s:o, s:i, s:o, s:o}", "node", bs_model_json_text(issue->node), "op",
                      bs_model_json_text(issue->op), "domain", bs_model_json_text(issue->domain), "opset",
                      (int)issue->opset, "dtype",
                      issue->dtype != 0 ? json_string(bs_dtype_name(issue->dtype)) : json_string(""),
                      "reason", bs_model_json_text(issue->reason)));
}

int32_t bs_model_info(const bs_model *model, const char *backend, json_t **out, bs_error *err) {
  bs_graph_info info = {.struct_size = sizeof info};
  json_t *inputs = json_array(), *outputs = json_array(), *ops = json_array(), *issues = json_array();
  bs_error note = BS_ERROR_INIT;
  *out = NULL;
  int32_t rc = bs_graph_info_get(model->graph, &info, err);
  if (rc == BS_OK) rc = list_ports(model->graph, 1, inputs, err);
  if (rc == BS_OK) rc = list_ports(model->graph, 0, outputs, err);
  if (rc == BS_OK) rc = bs_graph_ops(model->graph, add_op, ops, err);
  if (rc == BS_OK) {
    rc = bs_graph_check(model->graph, backend, model->dim_pointers, (uint32_t)model->n_dims, add_issue,
                        issues, &note);
    if (rc == BS_UNSUPPORTED && json_array_size(issues) > 0) {
      rc = BS_OK;
      bs_error_clear(&note);
    }
    if (rc != BS_OK && err != NULL) *err = note;
  }
  if (rc != BS_OK) {
    json_decref(inputs);
    json_decref(outputs);
    json_decref(ops);
    json_decref(issues);
    return rc;
  }
  char not_judged[900] = "";
  if (note.id[0] != '\0') snprintf(not_judged, sizeof not_judged, "%s; %s", note.message, note.hint);
  *out = json_pack("{s:o, s:o, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:o}", "path",
                   bs_model_json_text(info.path), "producer", bs_model_json_text(info.producer), "opset",
                   (int)info.opset, "nodes", (json_int_t)info.nodes, "constants", (json_int_t)info.constants,
                   "constant_bytes", (json_int_t)info.constant_bytes, "states", (json_int_t)info.states,
                   "state_bytes", (json_int_t)info.state_bytes, "cache_tokens", (json_int_t)info.cache_tokens,
                   "load_seconds", info.load_seconds, "inputs", inputs, "outputs", outputs, "ops", ops,
                   "unsupported", issues, "not_judged", bs_model_json_text(not_judged));
  return *out != NULL
             ? BS_OK
             : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the model's description");
}
