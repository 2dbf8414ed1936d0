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
    {OPT_WHY_NOT, NULL, 0},
    MODEL_OPTION_BACKEND,
    MODEL_OPTION_THREADS,
    MODEL_OPTIONS_RANKS,
    MODEL_OPTION_PASS,
    MODEL_OPTIONS_QUANT,
    MODEL_OPTION_TOKENS,
    {OPT_WITH, NULL, 0},
    {OPT_WITH_REPRO, NULL, 0},
    MODEL_OPTION_CACHE_DTYPE,
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
  if (args_value(a, "why-not") == NULL) return BS_OK;
  if (*out_json || *out_what != BS_REPORT_EXPLAIN)
    return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--why-not excludes --show and -o json");
  *out_what = BS_REPORT_MISSES;
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

/* A row "OP NAME<tab>PASS<tab>REASON" of the report, cut at its tabs. */
typedef struct miss {
  char *node, *pass, *reason;
} miss;

static int next_miss(char **io_rest, miss *out) {
  char *line = strsep(io_rest, "\n");
  if (line == NULL || *line == '\0') return 0;
  out->node = strsep(&line, "\t");
  out->pass = strsep(&line, "\t");
  out->reason = line;
  return out->pass != NULL && out->reason != NULL;
}

/* "MatMul /layer.0/ln_1/MatMul": the whole, the name, or parts of its path one after the other. */
static const char *name_of(const char *node) {
  const char *space = strchr(node, ' ');
  return space != NULL ? space + 1 : node;
}
static int is_meant(const char *node, const char *asked) {
  const char *name = name_of(node);
  const size_t n = strlen(asked);
  if (strcmp(node, asked) == 0) return 1;
  for (const char *at = strstr(name, asked); at != NULL && n > 0; at = strstr(at + 1, asked))
    if ((at == name || at[-1] == '/' || *at == '/') && (at[n] == '\0' || at[n] == '/')) return 1;
  return 0;
}

/* The reasons of a node, each once; *out_found: the model has it. `text` is cut. */
static void print_reasons(char *text, const char *asked, int *out_found) {
  bs_text said = {0};
  miss row;
  for (char *rest = text; next_miss(&rest, &row);) {
    if (!is_meant(row.node, asked)) continue;
    *out_found = 1;
    bs_text line = {0};
    bs_text_printf(&line, "%s: %s\n", row.pass, row.reason);
    if (row.pass[0] != '\0' && line.data != NULL &&
        (said.data == NULL || strstr(said.data, line.data) == NULL))
      bs_text_printf(&said, "%s", line.data);
    bs_text_free(&line);
  }
  if (said.data != NULL)
    bs_print(stdout, "%s", said.data);
  else if (*out_found)
    bs_print(stdout, "no pass looked for '%s' and left it: `bsrun model explain` shows what it became\n",
             asked);
  bs_text_free(&said);
}

static int32_t explain_why_not(const char *text, const char *asked, bs_error *err) {
  char *copy = bs_strdup(text);
  const char **names = calloc(strlen(text) + 1u, sizeof *names);
  size_t n = 0;
  miss row;
  int found = 0, rc = BS_OK;
  if (copy != NULL) print_reasons(copy, asked, &found);
  free(copy);
  copy = found ? NULL : bs_strdup(text);
  for (char *rest = copy; names != NULL && rest != NULL && next_miss(&rest, &row);)
    names[n++] = name_of(row.node);
  if (!found) {
    const char *nearest = names != NULL ? bs_nearest(asked, names, n) : NULL;
    rc = bs_error_set(err, BS_NOT_FOUND, "BS-MODEL-NODE", "the model has no node '%.64s'", asked);
    bs_error_hint(err,
                  nearest != NULL ? "the nearest one is %.64s" : "`bsrun model explain` lists the nodes%.0s",
                  nearest != NULL ? nearest : "");
  }
  free(names);
  free(copy);
  return rc;
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
  if (rc == BS_OK && what == BS_REPORT_MISSES) {
    rc = explain_why_not(text, args_value(a, "why-not"), err);
  } else if (rc == BS_OK && !json && what != BS_REPORT_DUMP) {
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
        "  bsrun model explain model.onnx --dim batch=1 --dim sequence=128 --why-not ln_1\n"
        "  bsrun model explain model.onnx --input x=x.npy --show memory -o json\n",
    .options = model_explain_options,
    .run = explain_model,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
