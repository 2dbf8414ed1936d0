/* SPDX-License-Identifier: MIT
 * model_quantize.c - `bsrun model quantize IN.onnx OUT.onnx`: a copy whose weights are whole numbers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bsrun/model.h"
#include "core/base/error.h"
#include "core/base/out_file.h"
#include "lab/model/quantize.h"

static const args_option model_quantize_options[] = {
    {OPT_WEIGHTS, "the scheme; or PATTERN=SCHEME;..., of which the first match counts (float: stays)", 0},
    {OPT_WITH, NULL, 0},
    {OPT_WITH_BLOCKS, NULL, 0},
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
  if (rc != BS_OK) return rc;
  printf("\n%zu weights of %.2f MB are %.2f MB in %s\n", json_array_size(weights),
         megabytes(result, "bytes_before"), megabytes(result, "bytes"),
         json_string_value(json_object_get(result, "to")));
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

static int32_t quantize(const args *a, bs_error *err) {
  const char *weights = args_value(a, "weights");
  bs_quantize_request request = {
      .from = a->words[0], .to = a->words[1], .weights = weights != NULL ? weights : "w8"};
  json_t *result = NULL;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = read_format(a, &request.format, err);
  if (rc == BS_OK && bs_out_is_stdout(request.to) && bs_out_claim_stdout() != 0)
    rc = bs_error_errno(err, BS_IO, "BS-OUT-WRITE", errno, "cannot write the model to stdout");
  if (rc == BS_OK) rc = bs_model_quantize(&request, &result, err);
  if (rc == BS_OK && format == BS_FORMAT_TABLE)
    rc = print_table(result, err);
  else if (rc == BS_OK && format == BS_FORMAT_JSON)
    rc = model_print_json(result, err);
  else if (rc == BS_OK)
    rc = bs_report_print(stdout, format, fields, N_FIELDS, json_object_get(result, "weights"), err);
  json_decref(result);
  return rc;
}

const bsrun_verb model_quantize = {
    .name = "quantize",
    .words = "IN.onnx OUT.onnx [--weights SCHEME] [--with blocks=qdq|nbits] [-o FORMAT]",
    .summary = "a copy of an ONNX model with weights of 8 or 4 bits",
    .about =
        "Weights that MatMul, Gemm and Gather read become whole numbers with scales; all else is copied as "
        "it\n"
        "is. Schemes: w8 (8 bits, a scale a row), w8g32, w4g32, w4g128 (a scale for so many columns), w4z32\n"
        "(with zeros). Blocks are DequantizeLinear from opset 21 on, and before it MatMulNBits, which takes "
        "the\n"
        "place of MatMul. `error` is the root mean square of what the rounding changed, relative to the "
        "weight.\n"
        "Any model opens so without a copy: --weights of model run, bench, check and generate.\n",
    .examples =
        "  bsrun model quantize minilm.onnx minilm-w8.onnx\n"
        "  bsrun model quantize model.onnx small.onnx --weights 'lm_head*=w8;*embed*=float;*=w4g32'\n",
    .options = model_quantize_options,
    .run = quantize,
    .min_words = 2,
    .max_words = 2,
    .takes = ":file :file",
    .exits = "2 wrong words; 3 the model's opset cannot hold the scheme; 4 a damaged file; 10 not written",
};
