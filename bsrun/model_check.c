/* SPDX-License-Identifier: MIT
 * model_check.c - `bsrun model check FOLDER|MODEL`: compares outputs with vectors that lie next to a model,
 * and nodes with f64. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/model.h"
#include "bsrun/plugins.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/model/against.h"
#include "lab/model/certificate.h"
#include "lab/model/repro.h"
#include "lab/model/vectors.h"
#include "lab/stop.h"

static const args_option model_check_options[] = {
    {OPT_INPUT, "of a model without vectors.txt; else made ones", 0},
    MODEL_OPTION_DIM,
    MODEL_OPTION_CONSTANT,
    MODEL_OPTION_SEED,
    {OPT_AGAINST, "a certificate's cells are run again", 0},
    {OPT_SHOW, NULL, 0},
    {OPT_SHOW_NODES, "poisoned outputs, guarded, each beside f64; -o json has all", 0},
    MODEL_OPTION_BACKEND,
    MODEL_OPTION_THREADS,
    MODEL_OPTIONS_RANKS,
    MODEL_OPTION_PASS,
    MODEL_OPTIONS_QUANT,
    MODEL_OPTION_TOKENS,
    {OPT_WITH, NULL, 0},
    {OPT_WITH_REPRO, NULL, 0},
    MODEL_OPTION_CACHE_DTYPE,
    MODEL_OPTIONS_KEEP,
    MODEL_OPTIONS_PLUGINS,
    {OPT_OUTPUT, "table, md, csv, json or jsonl", 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

static const bs_field fields[] = {{"case", "case", 0, 0},
                                  {"output", "output", 0, 0},
                                  {"deviation", "deviation", BS_FIELD_RIGHT, 3},
                                  {"limit", "limit", BS_FIELD_RIGHT, 3},
                                  {"cosine", "1 - cos", BS_FIELD_RIGHT, 3},
                                  {"cosine_limit", "limit", BS_FIELD_RIGHT, 3},
                                  {"ok", "ok", 0, 0},
                                  {"reason", "reason", 0, 0}};
static const bs_field node_fields[] = {{"case", "case", 0, 0},
                                       {"node", "node", BS_FIELD_RIGHT, 0},
                                       {"op", "op", 0, 0},
                                       {"serves", "serves", 0, 0},
                                       {"origin", "of the model's", 0, 0},
                                       {"deviation", "deviation", BS_FIELD_RIGHT, 3},
                                       {"limit", "limit", BS_FIELD_RIGHT, 3},
                                       {"ok", "ok", 0, 0},
                                       {"reason", "reason", 0, 0}};
static const bs_field written_fields[] = {{"case", "case", 0, 0},
                                          {"inputs", "inputs", 0, 0},
                                          {"output", "output", 0, 0},
                                          {"difference", "difference", BS_FIELD_RIGHT, 3},
                                          {"limit", "limit", BS_FIELD_RIGHT, 3},
                                          {"compared", "numbers", BS_FIELD_RIGHT, 0},
                                          {"skipped", "not compared", BS_FIELD_RIGHT, 0},
                                          {"ok", "ok", 0, 0},
                                          {"pass", "pass", 0, 0},
                                          {"node", "of the model's", 0, 0}};
enum {
  N_FIELDS = sizeof fields / sizeof fields[0],
  N_NODE_FIELDS = sizeof node_fields / sizeof node_fields[0],
  N_WRITTEN_FIELDS = sizeof written_fields / sizeof written_fields[0]
};

static size_t count_wrong(const json_t *nodes) {
  size_t n = 0;
  for (size_t i = 0; i < json_array_size(nodes); i++)
    n += !json_is_true(json_object_get(json_array_get(nodes, i), "ok"));
  return n;
}

/* The wrong rows; those that are right are for programs to read. */
static json_t *wrong_rows(json_t *nodes) {
  json_t *wrong = json_array();
  for (size_t i = 0; i < json_array_size(nodes); i++) {
    json_t *node = json_array_get(nodes, i);
    if (!json_is_true(json_object_get(node, "ok"))) json_array_append(wrong, node);
  }
  return wrong;
}

/* "4 cases on cpu, 0 wrong; 96 nodes, 0 wrong": the second half where nodes were checked. Then what was
 * compared with the graph as written, and what was not. */
static void print_counts(int by_node, const json_t *result) {
  const json_t *nodes = json_object_get(result, "nodes"), *written = json_object_get(result, "written");
  const json_t *notes = json_object_get(result, "written_not_compared"), *note;
  const size_t differ = count_wrong(written);
  const long long failed =
      (long long)json_integer_value(json_object_get(result, "failed")) - (long long)differ;
  const long long wrong = by_node ? 0 : (long long)count_wrong(nodes);
  size_t i;
  bs_print(stdout, "%lld %s on %s, %lld wrong",
           (long long)json_integer_value(json_object_get(result, "cases")), by_node ? "nodes" : "cases",
           json_string_value(json_object_get(result, "backend")), failed - wrong);
  if (!by_node && json_array_size(nodes) > 0)
    printf("; %zu nodes, %lld wrong", json_array_size(nodes), wrong);
  printf("\n%zu set%s of inputs compared with the graph as written, in f64: %zu differ\n",
         json_array_size(written), json_array_size(written) == 1 ? "" : "s", differ);
  json_array_foreach(notes, i, note) printf("not compared: %s\n", json_string_value(note));
}

/* The wrong rows of a table; with `all` each. */
static int32_t print_rows(int format, const char *title, const bs_field *columns, size_t n, json_t *rows,
                          int all, bs_error *err) {
  json_t *shown = all ? json_incref(rows) : wrong_rows(rows);
  int32_t rc = BS_OK;
  if (json_array_size(shown) > 0) {
    if (format == BS_FORMAT_TABLE && title != NULL) printf("\n%s\n", title);
    rc = bs_report_print(stdout, format, columns, n, shown, err);
  }
  json_decref(shown);
  return rc;
}

static int32_t print_result(int format, int by_node, const json_t *result, bs_error *err) {
  const json_t *rows = json_object_get(result, "rows");
  json_t *nodes = json_object_get(result, "nodes"), *written = json_object_get(result, "written");
  const int all = by_node && (format == BS_FORMAT_CSV || format == BS_FORMAT_JSONL);
  int32_t rc = BS_OK;
  if (format == BS_FORMAT_JSON) return model_print_json(result, err);
  if (!by_node) rc = bs_report_print(stdout, format, fields, N_FIELDS, rows, err);
  if (rc == BS_OK)
    rc = print_rows(format, by_node ? NULL : "nodes", node_fields, N_NODE_FIELDS, nodes, all, err);
  if (rc == BS_OK)
    rc = print_rows(format, "compared with the graph as written", written_fields, N_WRITTEN_FIELDS, written,
                    0, err);
  if (rc == BS_OK && format == BS_FORMAT_TABLE) print_counts(by_node, result);
  return rc;
}

/* A model without vectors, node by node. */
static int32_t check_model(model_asked *asked, json_t **out, bs_error *err) {
  int32_t rc = bs_model_open(asked->context, &asked->request, &asked->model, err);
  if (rc == BS_OK) rc = bs_model_start(asked->context, &asked->request, &asked->model, err);
  return rc == BS_OK ? bs_model_check_nodes(&asked->request, &asked->model, out, err) : rc;
}

static int32_t check_folder(const args *a, model_asked *asked, json_t **out, bs_error *err) {
  static const char *const of_models[] = {"input", "dim", "constant"};
  for (size_t i = 0; i < sizeof of_models / sizeof of_models[0]; i++)
    if (args_has(a, of_models[i]))
      return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--%s: vectors.txt of the folder sets it already",
                          of_models[i]);
  return bs_model_check_folder(asked->context, &asked->request, args_has(a, "nodes"), out, err);
}

/* The result is printed also where it cannot be kept. */
static int32_t keep_and_print(const args *a, const model_asked *asked, int format, int by_node,
                              json_t *result, bs_error *err) {
  const long long failed = (long long)json_integer_value(json_object_get(result, "failed"));
  char *folder = NULL;
  json_object_set_new(result, "passed", json_boolean(failed == 0));
  const int32_t kept =
      bs_stop_asked() != 0 ? BS_OK : model_keep(a, asked, "model_check", failed == 0, result, &folder, err);
  const int32_t rc = print_result(format, by_node, result, kept == BS_OK ? err : NULL);
  model_print_folder(format, folder);
  free(folder);
  if (kept != BS_OK || rc != BS_OK || failed == 0) return kept != BS_OK ? kept : rc;
  if (model_say_written(result, err)) return BS_NUMERIC;
  bs_error_set(err, BS_NUMERIC, "BS-MODEL-CHECK", "%lld of the comparisons of %.200s failed", failed,
               a->words[0]);
  bs_error_hint(err, "%s",
                by_node ? "--no-pass all says whether a pass is the cause"
                        : "--show nodes names the nodes whose numbers are wrong");
  return BS_NUMERIC;
}

static const bs_field against_fields[] = {{"output", "output", 0, 0},
                                          {"measured", "error", BS_FIELD_RIGHT, 3},
                                          {"predicted", "predicted", BS_FIELD_RIGHT, 3},
                                          {"ratio", "ratio", BS_FIELD_RIGHT, 3},
                                          {"limit", "may be", BS_FIELD_RIGHT, 3},
                                          {"kl", "KL", BS_FIELD_RIGHT, 3},
                                          {"kl_predicted", "predicted", BS_FIELD_RIGHT, 3},
                                          {"kl_ratio", "ratio", BS_FIELD_RIGHT, 3},
                                          {"kl_limit", "may be", BS_FIELD_RIGHT, 3},
                                          {"first_same", "same first", BS_FIELD_RIGHT, 3},
                                          {"ok", "ok", 0, 0},
                                          {"reason", "reason", 0, 0}};
enum { N_AGAINST = sizeof against_fields / sizeof against_fields[0] };

static long long integer(const json_t *result, const char *key) {
  return (long long)json_integer_value(json_object_get(result, key));
}

static double real(const json_t *row, const char *key) {
  return json_number_value(json_object_get(row, key));
}

/* Prints the lines below the table: the worst layer, the first token that differs, notes. */
static void print_layers(const json_t *result) {
  const json_t *worst = json_object_get(result, "worst"), *row;
  size_t i;
  if (json_is_object(worst))
    bs_print(stdout,
             "worst layer of %zu: %s, %.1f dB (%.1f dB predicted), error %.3g times the predicted (%g)\n",
             json_array_size(json_object_get(result, "layers")),
             json_string_value(json_object_get(worst, "layer")), real(worst, "snr"),
             real(worst, "snr_predicted"), real(worst, "ratio"), real(worst, "limit"));
  json_array_foreach(json_object_get(result, "rows"), i, row) {
    const json_t *first = json_object_get(row, "first_differs");
    if (json_is_object(first))
      bs_print(stdout, "first differing token of %s: set %lld, row %lld\n",
               json_string_value(json_object_get(row, "output")), integer(first, "set"),
               integer(first, "row"));
  }
  json_array_foreach(json_object_get(result, "notes"), i, row)
      bs_print(stdout, "note: %s\n", json_string_value(row));
}

static int32_t print_against(int format, const json_t *result, bs_error *err) {
  if (format == BS_FORMAT_JSON) return model_print_json(result, err);
  const int32_t rc =
      bs_report_print(stdout, format, against_fields, N_AGAINST, json_object_get(result, "rows"), err);
  if (rc == BS_OK && format == BS_FORMAT_TABLE)
    bs_print(stdout, "%lld quantised weights, %lld that the float model lacks; %lld sets of inputs\n",
             integer(result, "weights"), integer(result, "unmatched"), integer(result, "inputs"));
  if (rc == BS_OK && format == BS_FORMAT_TABLE) print_layers(result);
  return rc;
}

/* A quantised model compared with the float one: exit 6 where it differs by more than rounding explains. */
static int32_t check_against(const args *a, bs_error *err) {
  model_asked asked = {0};
  json_t *result = NULL;
  int format;
  bsrun_interruptible("nothing is kept");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = model_asked_read(a, &asked, err);
  if (rc == BS_OK)
    rc = bs_model_against(asked.context, &asked.request, args_value(a, "against"), &result, err);
  model_progress_end(&asked);
  if (rc == BS_OK) rc = print_against(format, result, err);
  const long long failed = integer(result, "failed");
  if (rc == BS_OK && failed > 0) {
    rc =
        bs_error_set(err, BS_NUMERIC, "BS-QUANT-ERROR",
                     "%lld outputs and layers of %.200s differ by more than rounding to the nearest explains",
                     failed, a->words[0]);
    bs_error_hint(err, "its codes, scales or zeros are not those of the weights of %.100s",
                  args_value(a, "against"));
  }
  json_decref(result);
  model_asked_free(&asked);
  return rc;
}

static const bs_field repro_fields[] = {{"table", "table", 0, 0},
                                        {"ranks", "ranks", BS_FIELD_RIGHT, 0},
                                        {"launch", "launch", 0, 0},
                                        {"threads", "threads", BS_FIELD_RIGHT, 0},
                                        {"run", "run", 0, 0},
                                        {"compared", "numbers", BS_FIELD_RIGHT, 0},
                                        {"differ", "differ", BS_FIELD_RIGHT, 0},
                                        {"first", "first row", BS_FIELD_RIGHT, 0},
                                        {"equal", "equal", 0, 0}};
static const bs_field certificate_fields[] = {{"table", "table", 0, 0},
                                              {"ranks", "ranks", BS_FIELD_RIGHT, 0},
                                              {"launch", "launch", 0, 0},
                                              {"threads", "threads", BS_FIELD_RIGHT, 0},
                                              {"run", "run", 0, 0},
                                              {"rows", "rows", BS_FIELD_RIGHT, 0},
                                              {"differ", "differ", BS_FIELD_RIGHT, 0},
                                              {"first", "first row", BS_FIELD_RIGHT, 0},
                                              {"equal", "equal", 0, 0}};
enum { N_REPRO = sizeof repro_fields / sizeof repro_fields[0] };

static int32_t open_table(void *user, const char *isa, bs_context **out, bs_error *err) {
  const args *a = user;
  char setting[64];
  if (isa == NULL) return plugins_open_context(a, NULL, 0, out, err);
  snprintf(setting, sizeof setting, "plugins.cpu.isa=%s", isa);
  return plugins_open_context_set(a, setting, out, err);
}

/* against: the certificate; NULL: one was made. */
static int32_t print_repro(int format, const char *against, const json_t *result, bs_error *err) {
  const json_t *control = json_object_get(result, "control"), *note;
  json_t *cells = json_object_get(result, "cells");
  size_t i;
  if (format == BS_FORMAT_JSON) return model_print_json(result, err);
  const int32_t rc = bs_report_print(stdout, format, against != NULL ? certificate_fields : repro_fields,
                                     N_REPRO, cells, err);
  if (rc != BS_OK || format != BS_FORMAT_TABLE) return rc;
  bs_print(stdout, "%s: %lld of %zu cells have the bits of %s\n",
           json_string_value(json_object_get(result, "word")),
           (long long)json_array_size(cells) - integer(result, "failed"), json_array_size(cells),
           against != NULL ? against : "the first");
  if (control != NULL)
    bs_print(stdout, "control, without the promise, %s: %lld of %lld numbers differ%s\n",
             json_string_value(json_object_get(control, "run")), integer(control, "differ"),
             integer(control, "compared"),
             json_is_true(json_object_get(control, "equal")) ? ": it proves nothing about the promise" : "");
  json_array_foreach(json_object_get(result, "not_compared"), i, note)
      bs_print(stdout, "not compared: %s\n", json_string_value(note));
  return BS_OK;
}

/* The first cell that differs. */
static int32_t fail_repro(const char *model, const json_t *certificate, const json_t *result, bs_error *err) {
  const json_t *cell = NULL;
  char maker[240], ranks[64] = "";
  size_t i;
  json_array_foreach(json_object_get(result, "cells"), i,
                     cell) if (!json_is_true(json_object_get(cell, "equal"))) break;
  if (json_object_get(cell, "ranks") != NULL)
    snprintf(
        ranks, sizeof ranks, "%lld ranks%s%.12s, ", integer(cell, "ranks"),
        json_object_get(cell, "launch") != NULL ? " that are " : "",
        json_object_get(cell, "launch") != NULL ? json_string_value(json_object_get(cell, "launch")) : "");
  bs_error_set(
      err, BS_NUMERIC, "BS-MODEL-REPRO",
      "%lld cells of %.120s have other bits; the first: table %.20s, %s%lld threads, %.40s, from row %lld on",
      integer(result, "failed"), model, json_string_value(json_object_get(cell, "table")), ranks,
      integer(cell, "threads"), json_string_value(json_object_get(cell, "run")), integer(cell, "first"));
  if (certificate == NULL) {
    bs_error_hint(
        err,
        "a model that mixes the entries of a batch differs too; bsrun model explain --with repro=tokens "
        "names what serves each node");
    return BS_NUMERIC;
  }
  bs_certificate_maker(certificate, maker, sizeof maker);
  bs_error_hint(err, "the certificate was made by %s; log, sin, cos and pow are the C library's", maker);
  return BS_NUMERIC;
}

/* Compares the bits of every cell of a grid. Exit 6: one differs. */
static int32_t check_repro(const args *a, bs_error *err) {
  model_asked asked = {0};
  json_t *result = NULL;
  int format;
  if (args_has(a, "threads"))
    return bs_error_set(err, BS_USAGE, "BS-USE-OPTION",
                        "--threads has no effect beside --with repro: the grid has 1, 2 and 16");
  bsrun_interruptible("nothing is kept");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = model_asked_read(a, &asked, err);
  const char *launch = model_ranks_joined(a);
  if (rc == BS_OK && asked.request.tokenwise == BS_BITS_RANKS && args_has(a, "world-size") && launch == NULL)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-OPTION",
                      "-P has no effect beside --with repro=ranks: the grid has 1, 2, 4 and 8 ranks");
  const bs_repro_asked how = {.open = open_table,
                              .user = (void *)(uintptr_t)a,
                              .bits = asked.request.tokenwise,
                              .joined = launch != NULL ? asked.context : NULL,
                              .launch = launch};
  if (rc == BS_OK) rc = bs_model_repro(&asked.request, &how, &result, err);
  model_progress_end(&asked);
  if (rc == BS_OK) rc = print_repro(format, NULL, result, err);
  if (rc == BS_OK && integer(result, "failed") > 0) rc = fail_repro(a->words[0], NULL, result, err);
  json_decref(result);
  model_asked_free(&asked);
  return rc;
}

/* Options that a certificate has the values of, and how they are written. */
static int32_t refuse_beside_certificate(const args *a, bs_error *err) {
  static const char *const options[][2] = {{"dim", "dim"},
                                           {"seed", "seed"},
                                           {"cache-tokens", "cache-tokens"},
                                           {"cache-dtype", "with cache-dtype"},
                                           {"no-pass", "no-pass"},
                                           {"weights", "weights"},
                                           {"activations", "activations"},
                                           {"threads", "threads"},
                                           {"method", "method"},
                                           {"world-size", "world-size"},
                                           {"mask", "mask"},
                                           {"repro", "with repro"},
                                           {"nodes", "show nodes"}};
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
    if (args_has(a, options[i][0]))
      return bs_error_set(err, BS_USAGE, "BS-USE-OPTION",
                          "--%s has no effect beside a certificate, which says how the model is run",
                          options[i][1]);
  return BS_OK;
}

/* Runs the cells of a certificate again. Exit 4: files or inputs are others; 5: no cell can run; 6: a cell
 * differs. */
static int32_t check_certificate(const args *a, const char *path, bs_error *err) {
  model_asked asked = {0};
  json_t *certificate = NULL, *result = NULL;
  int format;
  bsrun_interruptible("nothing is kept");
  int32_t rc = refuse_beside_certificate(a, err);
  if (rc == BS_OK) rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = bs_certificate_read(path, &certificate, err);
  if (rc == BS_OK) rc = model_asked_read(a, &asked, err);
  const char *word = json_string_value(json_object_get(certificate, "word"));
  const bs_repro_asked how = {
      .open = open_table,
      .user = (void *)(uintptr_t)a,
      .bits = word != NULL && strcmp(word, "ranks") == 0 ? BS_BITS_RANKS : BS_BITS_TOKENS};
  if (rc == BS_OK) rc = bs_model_repro_against(&asked.request, &how, certificate, &result, err);
  model_progress_end(&asked);
  if (rc == BS_OK) rc = print_repro(format, path, result, err);
  if (rc == BS_OK && integer(result, "failed") > 0) rc = fail_repro(a->words[0], certificate, result, err);
  json_decref(result);
  json_decref(certificate);
  model_asked_free(&asked);
  return rc;
}

static int32_t check_any(const args *a, bs_error *err) {
  const char *against = args_value(a, "against");
  if (against != NULL && bs_certificate_is(against)) return check_certificate(a, against, err);
  if (against != NULL) return check_against(a, err);
  if (args_has(a, "repro") && !args_has(a, "nodes")) return check_repro(a, err);
  const int by_node = !bs_vectors_in(a->words[0]);
  model_asked asked = {0};
  json_t *result = NULL;
  int format;
  bsrun_interruptible(
      "what was compared is above, and is not kept; smaller sizes (--dim NAME=N) take less time");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = model_asked_read(a, &asked, err);
  if (rc == BS_OK) rc = by_node ? check_model(&asked, &result, err) : check_folder(a, &asked, &result, err);
  model_progress_end(&asked);
  if (rc == BS_OK) model_tell_fallback(a, &asked.request, json_object_get(result, "stats"));
  if (rc == BS_OK) rc = keep_and_print(a, &asked, format, by_node, result, err);
  json_decref(result);
  model_asked_free(&asked);
  return rc;
}

static int32_t check_here(const args *a, bs_error *err) {
  const char *word = args_value(a, "repro");
  const int several =
      args_has(a, "against") || (word != NULL && strcmp(word, "ranks") != 0 && !args_has(a, "nodes"));
  const int32_t rc = several ? model_ranks_threads_only(a, err) : BS_OK;
  return rc == BS_OK ? check_any(a, err) : rc;
}

const bsrun_verb model_check = {
    .name = "check",
    .words = "FOLDER|MODEL [--show nodes] [--input NAME=FILE.npy ...] [--backend NAME] [-o FORMAT]",
    .summary = "prove a model right: stored outputs, the graph, each node in f64",
    .about =
        "FOLDER holds a model, .npy files and vectors.txt, as tools/bs-export writes them: every case runs,\n"
        "and its outputs are compared with those of PyTorch. A MODEL without vectors is checked node by "
        "node\n"
        "on the inputs given, or on made ones: outputs are poisoned first, guard bytes lie around them, "
        "each\n"
        "node is computed in f64 too, and the bits must be those of a plain run. In both the outputs are\n"
        "compared with those of the graph as written, in f64 and without passes, also on sets of made "
        "inputs.\n"
        "An error names the pass. Exit 6: numbers are wrong; each is listed with its reason.\n"
        "--with repro=tokens runs the model with many threads, tables of kernels, lengths and cuts into "
        "runs, and\n"
        "compares each bit with the first run's. A control without the promise should differ. -o json is a\n"
        "certificate of what was seen. Exit 6: a cell differs. With --show nodes the nodes of such a session "
        "are\nchecked as above. --against CERTIFICATE compares files, constants that import computes, and "
        "inputs;"
        "\nthen it runs the cells that this machine has, and compares their outputs. Exit 4: a file or an "
        "input "
        "is\nanother; 5: no cell can run; 6: outputs are others. repro=ranks, with --method F+S, adds cells "
        "on\n"
        "2, 4 and 8 ranks.\n"
        "--against compares a quantised ONNX model with the float one on the same inputs. The prediction "
        "runs the\n"
        "float model with noise of the size of the rounding. Exit 6: the error is more than 1.2 times the\n"
        "predicted one, or the KL divergence of the softmax of the last dimension more than 1.5 times, or "
        "the\n"
        "error of a layer more than twice. Notes name layers that were left in float.\n",
    .examples =
        "  bsrun model check models/minilm\n"
        "  bsrun model check models/minilm --backend ref --show nodes -o json\n"
        "  bsrun model check model.onnx --input x=x.npy\n"
        "  bsrun model check builtin:lm:2x64\n"
        "  bsrun model check small.onnx --against model.onnx\n"
        "  bsrun model check models/gpt2 --with repro=tokens -o json > gpt2.bits.json\n"
        "  bsrun model check models/gpt2 --with repro=ranks --method column_parallel+row_parallel\n"
        "  bsrun model check models/gpt2 --against gpt2.bits.json\n",
    .options = model_check_options,
    .run = check_here,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
