/* SPDX-License-Identifier: MIT
 * model_info.c - `bsrun model info MODEL`: its ports and operators, and every node that cannot be served. */
#include <stdio.h>

#include "bsrun/model.h"
#include "core/base/error.h"

static const args_option model_info_options[] = {
    {OPT_BACKEND, "also ask its ops; default: the operators alone", 0},
    MODEL_OPTION_DIM,
    MODEL_OPTION_CONSTANT,
    MODEL_OPTION_TOKENS,
    MODEL_OPTIONS_PLUGINS,
    {OPT_OUTPUT, "table, md, csv, json or jsonl; json has everything, csv the unsupported nodes", 0},
    ARGS_HELP,
};

static const bs_field port_fields[] = {
    {"name", "name", 0, 0}, {"dtype", "dtype", 0, 0}, {"text", "shape", 0, 0}};
static const bs_field op_fields[] = {
    {"op", "operator", 0, 0}, {"domain", "domain", 0, 0}, {"nodes", "nodes", BS_FIELD_RIGHT, 0}};
static const bs_field issue_fields[] = {{"node", "node", 0, 0},     {"op", "operator", 0, 0},
                                        {"domain", "domain", 0, 0}, {"opset", "opset", 0, 0},
                                        {"dtype", "dtype", 0, 0},   {"reason", "reason", 0, 0}};

static long long number(const json_t *info, const char *key) {
  return (long long)json_integer_value(json_object_get(info, key));
}

static int32_t print_ports(const char *what, json_t *ports, bs_error *err) {
  size_t i;
  json_t *port;
  json_array_foreach(ports, i, port)
      json_object_set_new(port, "text", model_shape_text(json_object_get(port, "shape")));
  bs_print(stdout, "\n%s\n", what);
  return bs_report_print(stdout, BS_FORMAT_TABLE, port_fields, 3, ports, err);
}

static int32_t print_table(const char *model, const json_t *info, bs_error *err) {
  const json_t *issues = json_object_get(info, "unsupported");
  bs_print(stdout, "%s: opset %lld, %lld nodes, %lld constants of %lld bytes", model, number(info, "opset"),
           number(info, "nodes"), number(info, "constants"), number(info, "constant_bytes"));
  if (number(info, "states") > 0)
    printf(", a key-value cache of %lld tokens and %lld bytes", number(info, "cache_tokens"),
           number(info, "state_bytes"));
  printf("\n");
  const char *producer = json_string_value(json_object_get(info, "producer"));
  if (producer != NULL && producer[0] != '\0') bs_print(stdout, "made by %s\n", producer);
  int32_t rc = print_ports("inputs", json_object_get(info, "inputs"), err);
  if (rc == BS_OK) rc = print_ports("outputs", json_object_get(info, "outputs"), err);
  if (rc == BS_OK) printf("\noperators\n");
  if (rc == BS_OK)
    rc = bs_report_print(stdout, BS_FORMAT_TABLE, op_fields, 3, json_object_get(info, "ops"), err);
  if (rc != BS_OK) return rc;
  const char *not_judged = json_string_value(json_object_get(info, "not_judged"));
  if (not_judged != NULL && not_judged[0] != '\0') {
    printf("\n%s\n", not_judged);
    return BS_OK;
  }
  printf(json_array_size(issues) == 0 ? "\nEvery node is supported.\n" : "\nunsupported nodes\n");
  return json_array_size(issues) == 0
             ? BS_OK
             : bs_report_print(stdout, BS_FORMAT_TABLE, issue_fields, 6, issues, err);
}

static int32_t info_of(const args *a, bs_error *err) {
  model_asked asked = {0};
  json_t *info = NULL;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = model_asked_make(a, &asked, err);
  if (rc == BS_OK) rc = bs_model_info(&asked.model, args_value(a, "backend"), &info, err);
  model_progress_end(&asked);
  if (rc == BS_OK && format == BS_FORMAT_TABLE) {
    rc = print_table(a->words[0], info, err);
  } else if (rc == BS_OK && format == BS_FORMAT_JSON) {
    rc = model_print_json(info, err);
  } else if (rc == BS_OK) {
    rc = bs_report_print(stdout, format, issue_fields, 6, json_object_get(info, "unsupported"), err);
  }
  const size_t n = json_array_size(json_object_get(info, "unsupported"));
  if (rc == BS_OK && n > 0) {
    rc = bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-NODE", "%zu node%s of %.200s cannot be served", n,
                      n == 1 ? "" : "s", a->words[0]);
    bs_error_hint(err, "the list above has each with its reason");
  }
  json_decref(info);
  model_asked_free(&asked);
  return rc;
}

const bsrun_verb model_info = {
    .name = "info",
    .words = "MODEL [--backend NAME] [--dim NAME=N] [-o FORMAT]",
    .summary = "inputs, outputs and operators, and nodes that cannot be served",
    .about =
        "MODEL is a file .onnx or .gguf, or a folder with config.json and safetensors. Nothing is run. A\n"
        "dimension that is a name has its size when the model runs: --dim, or the shapes of the inputs.\n"
        "Without --dim sizes are tried; nodes that fit none of them are not judged, and a line says which\n"
        "sizes to give. Exit 3: some node cannot be served; all of them are listed, with dtype and reason.\n"
        "Exit 4: the file is wrong.\n",
    .examples =
        "  bsrun model info model.onnx\n"
        "  bsrun model info model.onnx --backend cpu -o json\n",
    .options = model_info_options,
    .run = info_of,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
