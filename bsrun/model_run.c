/* SPDX-License-Identifier: MIT
 * model_run.c - `bsrun model run MODEL`: one run on .npy files. */
#include <stdio.h>
#include <string.h>

#include "bsrun/model.h"
#include "core/base/error.h"
#include "lab/model/inputs.h"
#include "lab/model/verify.h"

static const args_option model_run_options[] = {
    {OPT_INPUT, NULL, 0},
    MODEL_OPTION_DIM,
    MODEL_OPTION_CONSTANT,
    {OPT_TO, "each output as PATH/NAME.npy; default: outputs are only described", ARGS_FOLDER},
    {OPT_VERIFY, NULL, 0},
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
    {OPT_OUTPUT, "table, md, csv, json or jsonl", 0},
    {OPT_QUIET, NULL, 0},
    ARGS_HELP,
};

static const bs_field fields[] = {{"name", "output", 0, 0},
                                  {"dtype", "dtype", 0, 0},
                                  {"text", "shape", 0, 0},
                                  {"min", "min", BS_FIELD_RIGHT, 0},
                                  {"max", "max", BS_FIELD_RIGHT, 0},
                                  {"mean", "mean", BS_FIELD_RIGHT, 0},
                                  {"nonfinite", "inf, nan", BS_FIELD_RIGHT, 0},
                                  {"file", "file", 0, 0}};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static double seconds(const json_t *stats, const char *key) {
  return json_real_value(json_object_get(stats, key));
}

static long long count(const json_t *stats, const char *key) {
  return (long long)json_integer_value(json_object_get(stats, key));
}

static const char *more_than_one(const json_t *stats, const char *key) {
  return count(stats, key) == 1 ? "" : "s";
}

static int32_t print_result(int format, json_t *result, bs_error *err) {
  json_t *outputs = json_object_get(result, "outputs"), *row;
  const json_t *stats = json_object_get(result, "stats");
  size_t i;
  if (format == BS_FORMAT_JSON) return model_print_json(result, err);
  json_array_foreach(outputs, i, row)
      json_object_set_new(row, "text", model_shape_text(json_object_get(row, "shape")));
  const int32_t rc = bs_report_print(stdout, format, fields, N_FIELDS, outputs, err);
  if (rc != BS_OK || format != BS_FORMAT_TABLE) return rc;
  if (count(stats, "layers") > 0)
    bs_print(stdout, "%lld layer%s on %lld rank%s; a run: %lld collective%s, payload %lld bytes\n",
             count(stats, "layers"), more_than_one(stats, "layers"), count(stats, "ranks"),
             more_than_one(stats, "ranks"), count(stats, "collectives"), more_than_one(stats, "collectives"),
             count(stats, "payload_bytes"));
  bs_print(stdout,
           "%lld nodes on %s; arena %lld bytes (lower bound %lld, without sharing %lld)\n"
           "load %.3f s, lower %.3f s, passes %.3f s, plan %.3f s, pack %.3f s, first run %.3f s\n",
           count(result, "nodes"), json_string_value(json_object_get(result, "backend")),
           count(stats, "arena_bytes"), count(stats, "bound_bytes"), count(stats, "naive_bytes"),
           seconds(stats, "load_s"), seconds(stats, "lower_s"), seconds(stats, "pass_s"),
           seconds(stats, "plan_s"), seconds(stats, "pack_s"), seconds(stats, "first_run_s"));
  return BS_OK;
}

/* The run that is compared is the one that is printed, also where it differs from the graph as written. */
static int32_t compare_first(const args *a, model_asked *asked, bs_model_verified *out, bs_error *err) {
  if (!args_has(a, "verify")) return BS_OK;
  const bs_model_request *r = &asked->request;
  int32_t rc = bs_model_set_inputs(r, &asked->model, err);
  if (rc == BS_OK) rc = bs_model_verified_init(out, err);
  if (rc == BS_OK) rc = bs_model_verify(r, asked->model.session, "", BS_VERIFY_GIVEN, out, err);
  return bs_model_blame_input(r, &asked->model, rc, err);
}

static void print_compared(int format, const bs_model_verified *v) {
  const json_t *note;
  size_t i;
  if (v->rows == NULL || format != BS_FORMAT_TABLE) return;
  const char *output = json_string_value(json_object_get(json_array_get(v->rows, 0), "output"));
  if (v->failed > 0 && output != NULL && *output == '\0')
    printf("the ranks differ: not compared with the graph as written\n");
  else
    printf("%s the graph as written, in f64\n",
           v->failed > 0 ? "differs from" : "equal, within round-off, to");
  json_array_foreach(v->notes, i, note) printf("not compared: %s\n", json_string_value(note));
}

static int32_t run_once(const args *a, bs_error *err) {
  model_asked asked = {0};
  bs_model_verified verified = {0};
  json_t *result = NULL;
  int format;
  bsrun_interruptible("nothing is written; the same command runs the model again");
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = model_asked_make(a, &asked, err);
  if (rc == BS_OK) rc = bs_model_start(asked.context, &asked.request, &asked.model, err);
  if (rc == BS_OK) rc = compare_first(a, &asked, &verified, err);
  if (rc == BS_OK)
    rc = bs_model_run(&asked.request, &asked.model, verified.ran, args_value(a, "to"), &result, err);
  model_progress_end(&asked);
  if (rc == BS_OK) {
    model_tell_fallback(a, &asked.request, json_object_get(result, "stats"));
    if (verified.rows != NULL) bs_model_verified_put(&verified, result);
    rc = print_result(format, result, err);
    print_compared(format, &verified);
  }
  if (rc == BS_OK && model_say_written(result, err)) rc = BS_NUMERIC;
  bs_model_verified_free(&verified);
  json_decref(result);
  model_asked_free(&asked);
  return rc;
}

const bsrun_verb model_run = {
    .name = "run",
    .words = "MODEL [--input NAME=FILE.npy ...] [--to DIR] [--backend NAME] [options]",
    .summary = "run a model once on .npy files",
    .about =
        "MODEL is a file .onnx or .gguf, or a folder with config.json and safetensors, or with vectors.txt.\n"
        "A file of an input has its dtype and shape (bsrun model info). Inputs and sizes that nothing gives\n"
        "are made, and notes name them (share/doc/blockshock/models.md, \"Inputs\"). Prints what the "
        "outputs\n"
        "are like, and writes them with --to. Exit 6 with --verify: the outputs differ from those of the\n"
        "graph as written.\n",
    .examples =
        "  bsrun model run model.onnx --input input_ids=ids.npy --to out\n"
        "  bsrun model run model.onnx --input x=x.npy --backend ref --no-pass all -o json\n"
        "  bsrun model run model.onnx --input x=x.npy --verify\n",
    .options = model_run_options,
    .run = run_once,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
