/* SPDX-License-Identifier: MIT
 * model_quantize.c - `bsrun model quantize IN.onnx OUT.onnx`: a copy whose weights are whole numbers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bsrun/model.h"
#include "core/base/error.h"
#include "core/base/out_file.h"
#include "lab/model/budget.h"
#include "lab/model/calibrate.h"
#include "lab/model/quantize.h"
#include "lab/model/quantize_gguf.h"

static const args_option model_quantize_options[] = {
    {OPT_WEIGHTS, "the scheme; or PATTERN=SCHEME;..., of which the first match counts (float: stays)", 0},
    {OPT_ACTIVATIONS,
     "static: X of products in 8 bits too, by the ranges that `calibrate` has; default: float", 0},
    {OPT_WITH, NULL, 0},
    {OPT_WITH_BLOCKS, NULL, 0},
    {OPT_WITH_CALIBRATE, NULL, 0},
    {OPT_WITH_RANGE, NULL, 0},
    {OPT_WITH_KL, NULL, 0},
    {OPT_WITH_BITS, NULL, 0},
    MODEL_OPTION_THREADS,
    {OPT_QUIET, NULL, 0},
    {OPT_OUTPUT, "table, md, csv, json or jsonl", 0},
    ARGS_HELP,
};

static const bs_field fields[] = {{"name", "weight", 0, 0},
                                  {"rows", "rows", BS_FIELD_RIGHT, 0},
                                  {"cols", "columns", BS_FIELD_RIGHT, 0},
                                  {"scheme", "scheme", 0, 0},
                                  {"format", "format", 0, 0},
                                  {"bytes_before", "bytes before", BS_FIELD_RIGHT, 0},
                                  {"bytes", "bytes", BS_FIELD_RIGHT, 0},
                                  {"error", "error", BS_FIELD_RIGHT, 3}};
static const bs_field kept_fields[] = {{"name", "stays as it is", 0, 0},
                                       {"rows", "rows", BS_FIELD_RIGHT, 0},
                                       {"cols", "columns", BS_FIELD_RIGHT, 0},
                                       {"bytes", "bytes", BS_FIELD_RIGHT, 0},
                                       {"reason", "reason", 0, 0}};
enum { N_FIELDS = sizeof fields / sizeof fields[0], N_KEPT = sizeof kept_fields / sizeof kept_fields[0] };

static const bs_field static_fields[] = {
    {"name", "X in whole numbers", 0, 0},  {"products", "products", BS_FIELD_RIGHT, 0},
    {"low", "from", BS_FIELD_RIGHT, 4},    {"high", "to", BS_FIELD_RIGHT, 4},
    {"scale", "scale", BS_FIELD_RIGHT, 4}, {"zero", "zero", BS_FIELD_RIGHT, 0}};
enum { N_STATIC = sizeof static_fields / sizeof static_fields[0] };

static double megabytes(const json_t *result, const char *key) {
  return (double)json_integer_value(json_object_get(result, key)) / 1e6;
}

static int32_t print_table(const json_t *result, bs_error *err) {
  json_t *kept = json_object_get(result, "kept"), *weights = json_object_get(result, "weights");
  int32_t rc = bs_report_print(stdout, BS_FORMAT_TABLE, fields, N_FIELDS, weights, err);
  if (rc == BS_OK && json_array_size(kept) > 0) {
    printf("\n");
    rc = bs_report_print(stdout, BS_FORMAT_TABLE, kept_fields, N_KEPT, kept, err);
  }
  json_t *xs = json_object_get(result, "static");
  if (rc == BS_OK && json_array_size(xs) > 0) {
    printf("\n");
    rc = bs_report_print(stdout, BS_FORMAT_TABLE, static_fields, N_STATIC, xs, err);
  }
  if (rc != BS_OK) return rc;
  printf("\n%zu weights of %.2f MB are %.2f MB in %s\n", json_array_size(weights),
         megabytes(result, "bytes_before"), megabytes(result, "bytes"),
         json_string_value(json_object_get(result, "to")));
  const json_t *budget = json_object_get(result, "budget");
  if (budget != NULL)
    printf("%.2f bits a weight, KL %.3g; %lld units, %lld runs\n",
           json_real_value(json_object_get(budget, "bits")), json_real_value(json_object_get(budget, "kl")),
           (long long)json_integer_value(json_object_get(budget, "units")),
           (long long)json_integer_value(json_object_get(budget, "runs")));
  return BS_OK;
}

static int32_t read_format(const args *a, uint32_t *out, bs_error *err) {
  const char *given = args_value(a, "blocks");
  *out = BS_QUANTIZE_AUTO;
  if (given != NULL && strcmp(given, "qdq") == 0) *out = BS_QUANTIZE_QDQ;
  if (given != NULL && strcmp(given, "nbits") == 0) *out = BS_QUANTIZE_NBITS;
  if (given == NULL || *out != BS_QUANTIZE_AUTO) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--with blocks=%.40s", given);
  bs_error_hint(err, "qdq or nbits");
  return BS_USAGE;
}

/* The ranges of X, if --activations static asks for them. */
static int32_t read_ranges(const args *a, model_asked *asked, bs_x_ranges *out, bs_error *err) {
  const char *how = args_value(a, "activations"), *folder = args_value(a, "calibrate");
  double keep = 100.0;
  int32_t rc = args_real(a, "range", 50.0, 100.0, 100.0, &keep, err);
  if (rc != BS_OK) return rc;
  if (how != NULL && strcmp(how, "static") != 0 && strcmp(how, "float") != 0) {
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "--activations %.40s", how);
    bs_error_hint(err, "static or float; --activations x8 of run, bench and check needs no copy");
    return BS_USAGE;
  }
  const int is_static = how != NULL && strcmp(how, "static") == 0;
  if (is_static && folder == NULL)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--activations static needs --with calibrate=DIR");
  const int chooses = args_has(a, "kl") || args_has(a, "bits");
  if (!is_static && ((folder != NULL && !chooses) || args_has(a, "range")))
    rc = bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "calibrate and range are for --activations static");
  if (rc != BS_OK || !is_static) return rc;
  rc = bs_calibrate(asked->context, &asked->request, folder, keep / 100.0, out, err);
  model_progress_end(asked);
  return rc;
}

/* Schemes by a limit, if kl or bits is given; *out_list is NULL without. */
static int32_t choose_schemes(const args *a, model_asked *asked, char **out_list, json_t **out,
                              bs_error *err) {
  bs_budget_request budget = {.folder = args_value(a, "calibrate")};
  const int kl = args_has(a, "kl"), bits = args_has(a, "bits");
  if (!kl && !bits) return BS_OK;
  if (kl && bits) return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "kl and bits: one limit at a time");
  if (args_has(a, "weights"))
    return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "--weights: %s chooses the schemes",
                        kl ? "kl" : "bits");
  int32_t rc = args_real(a, "kl", 1e-12, 100.0, 0.0, &budget.kl, err);
  if (rc == BS_OK) rc = args_real(a, "bits", 1.0, 32.0, 0.0, &budget.bits, err);
  if (rc == BS_OK) rc = bs_model_budget(asked->context, &asked->request, &budget, out_list, out, err);
  model_progress_end(asked);
  return rc;
}

static int is_gguf(const char *path) {
  const size_t size = strlen(path);
  return size > 5 && strcmp(path + size - 5, ".gguf") == 0;
}

/* Refuses a wrong pair of names: GGUF is written from a folder, ONNX from an ONNX file. */
static int32_t check_names(const bs_quantize_request *request, bs_error *err) {
  struct stat info;
  const int folder = stat(request->from, &info) == 0 && S_ISDIR(info.st_mode);
  if (folder && !is_gguf(request->to))
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "%.200s is a folder, and %.200s is not a .gguf file",
                 request->from, request->to);
  else if (!folder && is_gguf(request->to))
    bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "%.200s is not a folder: only a folder becomes a .gguf file",
                 request->from);
  else
    return BS_OK;
  bs_error_hint(err, "model quantize IN.onnx OUT.onnx, or model quantize FOLDER OUT.gguf");
  return BS_USAGE;
}

/* A folder as GGUF. It is opened as a model first, so that what cannot be read is not written. */
static int32_t write_gguf(const args *a, const model_asked *asked, const bs_quantize_request *request,
                          json_t **out, bs_error *err) {
  static const char *const of_onnx[] = {"activations", "blocks", "calibrate", "range", "kl", "bits"};
  bs_graph *graph = NULL;
  for (size_t i = 0; i < sizeof of_onnx / sizeof of_onnx[0]; i++)
    if (args_has(a, of_onnx[i]))
      return bs_error_set(err, BS_USAGE, "BS-USE-OPTION", "%s is for ONNX files, not for GGUF", of_onnx[i]);
  int32_t rc = bs_graph_open(asked->context, request->from, NULL, &graph, err);
  bs_graph_close(graph);
  return rc == BS_OK ? bs_model_quantize_gguf(request, out, err) : rc;
}

static int32_t quantize(const args *a, bs_error *err) {
  const char *weights = args_value(a, "weights");
  model_asked asked = {0};
  bs_x_ranges ranges = {0};
  bs_quantize_request request = {
      .from = a->words[0], .to = a->words[1], .weights = weights != NULL ? weights : "w8"};
  json_t *result = NULL, *budget = NULL;
  char *list = NULL;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = read_format(a, &request.format, err);
  if (rc == BS_OK) rc = check_names(&request, err);
  bsrun_interruptible("nothing is written");
  if (rc == BS_OK) rc = model_asked_read(a, &asked, err);
  const int gguf = is_gguf(request.to);
  if (gguf && weights == NULL) request.weights = "w8g32";
  if (rc == BS_OK && !gguf) rc = choose_schemes(a, &asked, &list, &budget, err);
  if (list != NULL) request.weights = list;
  if (rc == BS_OK && !gguf) rc = read_ranges(a, &asked, &ranges, err);
  if (ranges.n > 0) request.ranges = &ranges;
  if (rc == BS_OK && bs_out_is_stdout(request.to) && bs_out_claim_stdout() != 0)
    rc = bs_error_errno(err, BS_IO, "BS-OUT-WRITE", errno, "cannot write the model to stdout");
  if (rc == BS_OK && gguf)
    rc = write_gguf(a, &asked, &request, &result, err);
  else if (rc == BS_OK)
    rc = bs_model_quantize(&request, &result, err);
  if (rc == BS_OK && budget != NULL) json_object_set(result, "budget", budget);
  if (rc == BS_OK && format == BS_FORMAT_TABLE)
    rc = print_table(result, err);
  else if (rc == BS_OK && format == BS_FORMAT_JSON)
    rc = model_print_json(result, err);
  else if (rc == BS_OK)
    rc = bs_report_print(stdout, format, fields, N_FIELDS, json_object_get(result, "weights"), err);
  json_decref(result);
  json_decref(budget);
  free(list);
  bs_x_ranges_free(&ranges);
  model_asked_free(&asked);
  return rc;
}

const bsrun_verb model_quantize = {
    .name = "quantize",
    .words =
        "IN.onnx|FOLDER OUT.onnx|OUT.gguf [--weights SCHEME] [--activations static] [--with LIST] [-o "
        "FORMAT]",
    .summary = "a copy of a model with weights of 8 or 4 bits, as ONNX or GGUF",
    .about =
        "Weights that MatMul, Gemm and Gather read become whole numbers with scales. All else is copied.\n"
        "Schemes: w8 (8 bits, a scale for each row); w8g32, w4g32, w4g128 (a scale for so many columns);\n"
        "w4z32 (with zeros). Blocks are written as DequantizeLinear from opset 21 on. Before it,\n"
        "MatMulNBits replaces MatMul. `error` is the root mean square of the change by rounding, relative\n"
        "to the weight.\n"
        "--activations static puts QuantizeLinear and DequantizeLinear around X of products whose weight\n"
        "has a scale for each row. The range is that of the inputs in `calibrate`.\n"
        "--with kl=X or bits=X chooses a scheme for each weight: w4g32, w8 or float. Weights that read one\n"
        "value get one scheme. Each scheme is measured on the inputs in `calibrate`, or on made ones.\n"
        "A FOLDER of llama, mistral, qwen2, qwen3 or gpt2 becomes a .gguf file with its tokenizer: w8g32\n"
        "is Q8_0 (the default there), w4g32 Q4_0, w4k Q4_K, w6k Q6_K.\n"
        "--weights of model run, bench, check and generate rounds weights in memory, without a copy.\n",
    .examples =
        "  bsrun model quantize minilm.onnx minilm-w8.onnx\n"
        "  bsrun model quantize model.onnx small.onnx --weights 'lm_head*=w8;*embed*=float;*=w4g32'\n"
        "  bsrun model quantize minilm.onnx w8x8.onnx --activations static --with "
        "calibrate=texts,range=99.99\n"
        "  bsrun model quantize minilm.onnx small.onnx --with kl=0.001\n"
        "  bsrun model quantize qwen3-0.6b qwen3-q4.gguf --weights w4k\n",
    .options = model_quantize_options,
    .run = quantize,
    .min_words = 2,
    .max_words = 2,
    .takes = ":file :file",
    .exits =
        "2 wrong words; 3 the model's opset cannot hold the scheme, or the limit is too low; 4 a damaged "
        "file; 10 not written",
};
