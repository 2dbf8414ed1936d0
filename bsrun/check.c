/* SPDX-License-Identifier: MIT
 * check.c - `bsrun check DIR`: are the X, W, partials and Y of any program a right layer, and if not, which
 * error is likely? --selftest: do the gates catch the faults that they are made for? */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/check/check.h"
#include "lab/word.h"

static const args_option check_options[] = {
    {OPT_DTYPE, "that Y was rounded to", 0},
    {OPT_REDUCE_DTYPE, "default: f32; f64 where Y is f64", 0},
    {OPT_WORLD_SIZE, "over which the sum was made, if the tensors do not show it", 0},
    {OPT_ACTIVATION, "default: none", 0},
    {OPT_LIMIT, "outputs of a token are judged; default: all, fewer of a large layer", 0},
    {OPT_TRANSPOSED, NULL, 0},
    {OPT_SELFTEST, NULL, 0},
    {OPT_GATES, "of --selftest", 0},
    {OPT_SET, "of --selftest", 0},
    {OPT_OUTPUT, "table, md, csv, json or jsonl", 0},
    ARGS_HELP,
};

static const bs_field fields[] = {{"gate", "GATE", 0, 0},
                                  {"state", "STATE", 0, 0},
                                  {"rank", "RANK", BS_FIELD_RIGHT, 0},
                                  {"value", "VALUE", BS_FIELD_RIGHT, 4},
                                  {"limit", "LIMIT", BS_FIELD_RIGHT, 4},
                                  {"text", "TEXT", 0, 0}};

static int32_t options_of(const args *a, bs_check_options *out, bs_error *err) {
  int64_t ranks = 0;
  int32_t rc = args_word(a, "dtype", BS_NAMES_DTYPE, bs_float_dtypes, BS_FLOAT_DTYPES, &out->y_dtype, err);
  if (rc == BS_OK)
    rc = args_word(a, "reduce-dtype", BS_NAMES_DTYPE, bs_float_dtypes, BS_FLOAT_DTYPES, &out->reduce_dtype,
                   err);
  if (rc == BS_OK) rc = args_word(a, "activation", BS_NAMES_ACTIVATION, NULL, 0, &out->activation, err);
  if (rc == BS_OK) rc = args_integer(a, "world-size", 1, BS_CHECK_RANKS, 0, &ranks, err);
  if (rc == BS_OK) rc = args_integer(a, "limit", 1, INT64_MAX, 0, &out->max_features, err);
  out->transposed = args_has(a, "transposed");
  out->ranks = (uint32_t)ranks;
  return rc;
}

static int32_t print_gates(const bs_check_result *result, int format, bs_error *err) {
  json_t *rows = json_array();
  for (uint32_t g = 0; g < result->n_gates; g++) {
    const bs_gate *gate = &result->gates[g];
    const int judged = gate->state != BS_GATE_SKIPPED;
    json_t *row =
        json_pack("{ss,ss,ss}", "gate", gate->name, "state", bs_gate_shown(gate->state), "text", gate->text);
    if (judged && gate->rank >= 0) json_object_set_new(row, "rank", json_integer(gate->rank));
    if (judged && isfinite(gate->value)) json_object_set_new(row, "value", json_real(gate->value));
    if (judged && isinf(gate->value)) json_object_set_new(row, "value", json_string("inf"));
    if (judged) json_object_set_new(row, "limit", json_real(gate->limit));
    json_array_append_new(rows, row);
  }
  const int32_t rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
  json_decref(rows);
  return rc;
}

/* The sentence: an error of the tensors, or a line below the table. */
static int32_t conclude(const bs_check_result *r, const char *dir, int format, bs_error *err) {
  int judged = 0;
  for (uint32_t g = 0; g < r->n_gates; g++)
    judged += strcmp(r->gates[g].name, "T3") == 0 && r->gates[g].state == BS_GATE_PASS;
  if (r->wrong) {
    bs_error_set(err, BS_NUMERIC, "BS-CHECK-WRONG", "%s", r->cause);
    bs_error_where(err, "%s", dir);
    bs_error_hint(err, "share/doc/blockshock/check.md tells what each gate measures");
    return BS_NUMERIC;
  }
  if (!judged) {
    bs_error_set(err, BS_INCONCLUSIVE, "BS-CHECK-NOTHING",
                 "not judged: every output is zero, NaN or infinite");
    bs_error_hint(err, "dump a layer with random X and W");
    return BS_INCONCLUSIVE;
  }
  if (format == BS_FORMAT_TABLE || format == BS_FORMAT_MD)
    bs_print(stdout, "\nright: Y is act(X W^T + b) in %s; B %lld, N %lld (%lld judged), K %lld, %u rank(s)\n",
             bs_dtype_name(r->y_dtype), (long long)r->B, (long long)r->N, (long long)r->features,
             (long long)r->K, r->ranks);
  return BS_OK;
}

static int32_t run(const args *a, bs_error *err) {
  const char *dir = a->n_words > 0 ? a->words[0] : NULL;
  bs_check_options options = {0};
  bs_check_result result;
  bs_check_set *set = NULL;
  int format;
  if (args_has(a, "selftest") && dir == NULL) return check_selftest(a, err);
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = options_of(a, &options, err);
  if (rc != BS_OK) return rc;
  if (dir == NULL) {
    bs_error_set(err, BS_USAGE, "BS-USE-WORD", "check needs a DIR or --selftest");
    bs_error_hint(err, "bsrun check DIR");
    return BS_USAGE;
  }
  set = calloc(1, sizeof *set);
  if (set == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a dump");
  rc = bs_check_load(dir, set, err);
  if (rc == BS_OK) rc = bs_check_judge(set, &options, &result, err);
  if (rc == BS_OK) rc = print_gates(&result, format, err);
  if (rc == BS_OK) rc = conclude(&result, dir, format, err);
  bs_check_free(set);
  free(set);
  return rc;
}

const bsrun_verb verb_check = {
    .name = "check",
    .summary = "judge tensors of any program, and name the likely cause",
    .words =
        "DIR [options]\n"
        "--selftest [--gates NAME] [-o FORMAT]",
    .about =
        "Judges tensors that any program has written, Y = act(X W^T + b), by the gates that need no run: "
        "against\n"
        "an fp64 reference and the error that round-off predicts. Prints a row for each gate, and a "
        "sentence\n"
        "that names the likely cause of what is wrong. Names of tensors (share/doc/blockshock/check.md):\n"
        "X, W, b or bias, Y (or Y0, Y1 .. of ranks), partial_0, partial_1 .., columns_0, columns_1 ..;\n"
        "and all that `bsrun --phase numbers --to DIR` writes.\n"
        "\n"
        "--selftest runs kernels and layers that are wrong on purpose and prints what each gate made of "
        "them:\n"
        "the gates of kernels with the controls that they name (share/doc/blockshock/gates.md), T1 to T5 "
        "and\n"
        "the gates of gradients and steps with the faults of T6. -o json has the whole matrix.\n",
    .examples =
        "  bsrun --method row_parallel --phase numbers --to tensors && bsrun check tensors\n"
        "  bsrun check layer.safetensors --dtype bf16 --activation gelu -o json\n"
        "  bsrun check --selftest\n",
    .exits =
        "0 every gate that judged passed; 2 usage; 4 a file is damaged or missing, or shapes do not\n"
        "fit; 6 the numbers are wrong, or a gate has missed a fault; 15 nothing could be judged\n",
    .options = check_options,
    .run = run,
    .max_words = 1,
};
