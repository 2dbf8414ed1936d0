/* SPDX-License-Identifier: MIT
 * model_explain.c - `bsrun model explain MODEL`: the lowered plan: passes, nodes, who serves them, memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/model.h"
#include "core/base/error.h"
#include "core/base/text.h"

static const args_option model_explain_options[] = {
    {OPT_INPUT, "for its shape", 0},
    MODEL_OPTION_DIM,
    MODEL_OPTION_CONSTANT,
    {OPT_SHOW, NULL, 0},
    {OPT_SHOW_GRAPH, NULL, 0},
    {OPT_SHOW_MEMORY, NULL, 0},
    MODEL_OPTION_BACKEND,
    MODEL_OPTION_THREADS,
    MODEL_OPTION_PASS,
    MODEL_OPTIONS_QUANT,
    MODEL_OPTION_TOKENS,
    MODEL_OPTION_TUNED,
    MODEL_OPTIONS_PLUGINS,
    {OPT_OUTPUT, "text or json", 0},
    ARGS_HELP,
};

static int32_t read_what(const args *a, uint32_t *out_what, uint32_t *out_json, bs_error *err) {
  static const char *const formats[] = {"text", "json"};
  const char *format = args_value(a, "output");
  *out_what = args_has(a, "graph")    ? BS_REPORT_DUMP
              : args_has(a, "memory") ? BS_REPORT_PLAN
                                      : BS_REPORT_EXPLAIN;
  *out_json = format != NULL && strcmp(format, "json") == 0;
  if (args_has(a, "graph") && args_has(a, "memory"))
    return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--show graph and --show memory exclude each other");
  if (format != NULL && !*out_json && strcmp(format, "text") != 0)
    return bsrun_unknown("output format", format, formats, 2, err);
  return BS_OK;
}

/* The plan: all lines but those of nodes are folded, the summary of a pass below itself. */
static void print_plan(const char *text) {
  static const size_t summary = sizeof "pass fuse_attention off     0 changes     0 nodes  " - 1;
  char *copy = bs_strdup(text), *rest = copy;
  for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
    const char first = line[strspn(line, " ")];
    if (first >= '0' && first <= '9')
      bs_print(stdout, "%s\n", line);
    else
      bs_print_folded(stdout, strncmp(line, "pass ", 5) == 0 ? summary : 2, line);
  }
  free(copy);
}

static int32_t explain_model(const args *a, bs_error *err) {
  model_asked asked = {0};
  char *text = NULL;
  uint32_t what, json;
  int32_t rc = read_what(a, &what, &json, err);
  if (rc == BS_OK) rc = model_asked_make(a, &asked, err);
  if (rc == BS_OK) rc = bs_model_start(asked.context, &asked.request, &asked.model, err);
  if (rc == BS_OK) rc = bs_model_text(&asked.model, what, json, &text, err);
  model_progress_end(&asked);
  if (rc == BS_OK && !json && what != BS_REPORT_DUMP) {
    print_plan(text);
  } else if (rc == BS_OK) {
    bs_print_lines(stdout, text);
    if (text[0] != '\0' && text[strlen(text) - 1] != '\n') fputs("\n", stdout);
  }
  free(text);
  model_asked_free(&asked);
  return rc;
}

const bsrun_verb model_explain = {
    .name = "explain",
    .words = "MODEL [--dim NAME=N] [--show graph|memory] [--backend NAME] [-o text|json]",
    .summary = "the plan of a model: passes, nodes, who serves them, memory",
    .about =
        "Lowers the model, runs the passes, packs the weights and plans the memory as `model run` does, and\n"
        "runs nothing. Every named dimension needs a size: --dim, or the file of an input.\n",
    .examples =
        "  bsrun model explain model.onnx --dim batch=1 --dim sequence=128\n"
        "  bsrun model explain model.onnx --dim batch=1 --dim sequence=128 --no-pass fuse_map --show graph\n"
        "  bsrun model explain model.onnx --input x=x.npy --show memory -o json\n",
    .options = model_explain_options,
    .run = explain_model,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
