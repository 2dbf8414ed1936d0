/* SPDX-License-Identifier: MIT
 * seal.c - see seal.h. */
#include "lab/model/seal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/cores.h"
#include "lab/error.h"
#include "lab/json.h"
#include "lab/model/text_file.h"
#include "lab/store/sha256.h"
#include "lab/yaml/config.h"

static const char *const sum_key = "sha256";

/* ---- the grid -------------------------------------------------------------------------------- */

static int32_t bad_grid(const char *path, const bs_node *node, const char *what, bs_error *err) {
  char place[300];
  bs_error_set(err, BS_INPUT, "BS-SEAL-GRID", "%s", what);
  bs_config_place(node, place, sizeof place);
  bs_error_where(err, "%s", place[0] != '\0' ? place : path);
  bs_error_hint(err,
                "model: gpt2, and options of `bsrun model bench` with lists: dim: [sequence=32, "
                "sequence=128]");
  return BS_INPUT;
}

/* A command with one more option; "model" is the word that comes first. */
static json_t *with_option(const json_t *command, const char *key, const bs_node *value) {
  char name[80];
  json_t *longer = json_copy((json_t *)(uintptr_t)command);
  int bad = longer == NULL;
  snprintf(name, sizeof name, "--%.70s", key);
  if (!bad && strcmp(key, "model") != 0) bad = json_array_append_new(longer, json_string(name)) != 0;
  if (!bad && value->kind == BS_NODE_SCALAR)
    bad = json_array_append_new(longer, json_string(value->text)) != 0;
  if (bad) json_decref(longer);
  return bad ? NULL : longer;
}

/* Replaces each command by one for each value of the option. */
static int32_t add_option(const char *path, const bs_node *option, json_t **io_commands, bs_error *err) {
  const bs_node *first = option->kind == BS_NODE_LIST ? option->first : option;
  json_t *all = json_array(), *command;
  size_t i;
  if (all == NULL) return bs_no_memory(err, "a grid");
  json_array_foreach(*io_commands, i, command) {
    for (const bs_node *v = first; v != NULL; v = option->kind == BS_NODE_LIST ? v->next : NULL) {
      const int bad_kind = v->kind == BS_NODE_LIST || v->kind == BS_NODE_MAP;
      const int full = json_array_size(all) == BS_SEAL_COMMANDS;
      if (bad_kind || full) {
        json_decref(all);
        return bad_grid(
            path, v,
            full ? "the grid has over 256 combinations" : "a value is neither a text nor a list of texts",
            err);
      }
      if (json_array_append_new(all, with_option(command, option->key, v)) != 0) {
        json_decref(all);
        return bs_no_memory(err, "a grid");
      }
    }
  }
  json_decref(*io_commands);
  *io_commands = all;
  return json_array_size(all) > 0 ? BS_OK : bad_grid(path, option, "a list is empty", err);
}

int32_t bs_seal_grid(const char *path, json_t **out_commands, bs_error *err) {
  bs_node *root = NULL;
  json_t *commands = json_pack("[[]]");
  *out_commands = NULL;
  int32_t rc = commands != NULL ? bs_config_load(path, &root, err) : bs_no_memory(err, "a grid");
  if (rc == BS_CONFIG && err != NULL) rc = err->code = BS_INPUT;
  const bs_node *model = rc == BS_OK ? bs_config_find(root, "model") : NULL;
  if (rc == BS_OK && (model == NULL || model->kind == BS_NODE_NULL))
    rc = bad_grid(path, root, "a grid of models has no `model`", err);
  if (rc == BS_OK) rc = add_option(path, model, &commands, err);
  for (const bs_node *option = rc == BS_OK ? root->first : NULL; rc == BS_OK && option != NULL;
       option = option->next)
    if (option != model) rc = add_option(path, option, &commands, err);
  bs_config_free(root);
  if (rc == BS_OK)
    *out_commands = commands;
  else
    json_decref(commands);
  return rc;
}

/* ---- the file -------------------------------------------------------------------------------- */

static void hash_of(const char *text, char out_hex[65]) {
  bs_sha256 h;
  bs_sha256_init(&h);
  bs_sha256_add(&h, text, strlen(text));
  bs_sha256_hex(&h, out_hex);
}

/* The hash of all fields but the sum, in one order and with all digits. */
static int32_t sum_of(const json_t *seal, char out_hex[65], bs_error *err) {
  json_t *rest = json_copy((json_t *)(uintptr_t)seal);
  if (rest != NULL) json_object_del(rest, sum_key);
  char *text =
      rest != NULL ? json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)) : NULL;
  json_decref(rest);
  if (text == NULL) return bs_no_memory(err, "the sum of a seal");
  hash_of(text, out_hex);
  free(text);
  return BS_OK;
}

int32_t bs_seal_text(json_t *seal, char **out_text, char out_hex[65], bs_error *err) {
  char hex[65];
  *out_text = NULL;
  const int32_t rc = sum_of(seal, hex, err);
  if (rc != BS_OK) return rc;
  if (json_object_set_new(seal, sum_key, json_string(hex)) == 0)
    *out_text = json_dumps(seal, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
  if (*out_text == NULL) return bs_no_memory(err, "a seal");
  hash_of(*out_text, out_hex);
  return BS_OK;
}

static int32_t bad_seal(const char *path, const char *id, const char *what, const char *hint, bs_error *err) {
  bs_error_set(err, BS_INPUT, id, "%s", what);
  bs_error_where(err, "%s", path);
  bs_error_hint(err, "%s", hint);
  return BS_INPUT;
}

static int are_texts(const json_t *list) {
  const json_t *text;
  size_t i;
  json_array_foreach(list, i, text) if (!json_is_string(text)) return 0;
  return json_array_size(list) > 0;
}

/* What a cell must have: a command, and a work with a time, or a reason. */
static int is_cell(const json_t *cell) {
  const json_t *predicted = json_object_get(cell, "predicted_s");
  if (!are_texts(json_object_get(cell, "command"))) return 0;
  if (json_is_null(predicted)) return json_is_string(json_object_get(cell, "why"));
  return json_is_number(predicted) && json_number_value(predicted) > 0 &&
         json_is_string(json_object_get(cell, "work")) && json_is_integer(json_object_get(cell, "flops"));
}

static int32_t check_fields(const char *path, const json_t *seal, bs_error *err) {
  static const char hint[] = "`bsrun sim seal GRID.yaml --hardware M --to FILE` writes one";
  const json_t *cells = json_object_get(seal, "cells"), *cell;
  size_t i;
  char hex[65];
  if (json_integer_value(json_object_get(seal, "blockshock_seal")) != 1 || json_array_size(cells) == 0)
    return bad_seal(path, "BS-SEAL-BAD", "it is no seal of version 1 with cells", hint, err);
  const int32_t rc = sum_of(seal, hex, err);
  if (rc != BS_OK) return rc;
  if (strcmp(bs_get_text(seal, sum_key), hex) != 0)
    return bad_seal(path, "BS-SEAL-CHANGED", "its fields were changed: they have not the sum that it states",
                    "take the file that was published", err);
  json_array_foreach(cells, i, cell) if (!is_cell(cell)) return bad_seal(
      path, "BS-SEAL-BAD", "a cell has no command, or neither a predicted time nor a reason", hint, err);
  return BS_OK;
}

static int32_t not_json(const char *path, const json_t *seal, const json_error_t *why, bs_error *err) {
  char text[300] = "it is no JSON object";
  if (seal == NULL) snprintf(text, sizeof text, "it is no JSON: line %d: %.200s", why->line, why->text);
  return bad_seal(path, "BS-SEAL-BAD", text, "`bsrun sim seal` writes one", err);
}

int32_t bs_seal_read(const char *path, json_t **out, char out_hex[65], bs_error *err) {
  json_error_t why = {.text = ""};
  char *text = NULL;
  *out = NULL;
  int32_t rc = bs_text_file_read(path, "BS-SEAL-BAD", &text, err);
  if (rc == BS_OK) hash_of(text, out_hex);
  json_t *seal = rc == BS_OK ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : NULL;
  free(text);
  if (rc == BS_OK && !json_is_object(seal)) rc = not_json(path, seal, &why, err);
  if (rc == BS_OK) rc = check_fields(path, seal, err);
  if (rc == BS_OK)
    *out = seal;
  else
    json_decref(seal);
  return rc;
}

/* ---- the score ------------------------------------------------------------------------------- */

/* What disturbed the measurement, or that its ranks shared cores. */
static int add_cause(json_t *row, const json_t *measured, int clear) {
  char text[120];
  const double threads = bs_get_number(measured, "world_size") * bs_get_number(measured, "threads_per_rank");
  const char *cause = bs_get_text(json_object_get(measured, "disturbance"), "cause");
  if (!clear) return json_object_set_new(row, "why", bs_json_of_text(cause));
  if (threads <= bs_machine_cores()) return 0;
  snprintf(text, sizeof text, "%.0f threads of all ranks share %u cores", threads, bs_machine_cores());
  return json_object_set_new(row, "why", json_string(text));
}

/* The measured fields of a row that can be compared. */
static int add_measured(json_t *row, const json_t *measured) {
  static const char *const kept[] = {"low_s", "high_s"};
  const double seconds = bs_get_number(measured, "median_s"), predicted = bs_get_number(row, "predicted_s");
  const int clear = !json_is_string(json_object_get(measured, "unclear"));
  int bad = json_object_set_new(row, "measured_s", json_real(seconds)) != 0;
  for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
    bad |= json_object_set(row, kept[i], json_object_get(measured, kept[i])) != 0;
  bad |= json_object_set_new(row, "error_percent", json_real(100 * (predicted / seconds - 1))) != 0;
  bad |= json_object_set_new(row, "word", json_string(clear ? "covered" : "UNCLEAR")) != 0;
  return !bad && add_cause(row, measured, clear) == 0;
}

int32_t bs_seal_judge(const json_t *cell, const json_t *measured, const char *why, json_t **out,
                      bs_error *err) {
  const int predicted = json_is_number(json_object_get(cell, "predicted_s"));
  *out = NULL;
  if (predicted && measured != NULL &&
      !json_equal(json_object_get(cell, "flops"), json_object_get(measured, "flops"))) {
    bs_error_set(err, BS_INPUT, "BS-SEAL-MODEL",
                 "the %s of %s has %.0f FLOP here, and %.0f were sealed: it is another model or setting",
                 bs_get_text(cell, "work"),
                 json_string_value(json_array_get(json_object_get(cell, "command"), 0)),
                 bs_get_number(measured, "flops"), bs_get_number(cell, "flops"));
    bs_error_hint(err, "score it where the sealed paths are the same models");
    return BS_INPUT;
  }
  json_t *row = json_deep_copy(cell);
  int good = row != NULL;
  if (good && predicted && measured != NULL)
    good = add_measured(row, measured);
  else if (good)
    good = json_object_set_new(row, "word", json_string(predicted ? "not measured" : "no prediction")) == 0 &&
           (!predicted || json_object_set_new(row, "why", bs_json_of_text(why)) == 0);
  if (good)
    *out = row;
  else
    json_decref(row);
  return good ? BS_OK : bs_no_memory(err, "a row");
}

json_t *bs_seal_score(const json_t *rows) {
  json_int_t covered = 0, measured = 0, within[3] = {0}, worst = 0;
  double sum = 0, sum_abs = 0, most = 0;
  const json_t *row;
  size_t i;
  json_array_foreach(rows, i, row) {
    measured += json_object_get(row, "measured_s") != NULL;
    if (strcmp(bs_get_text(row, "word"), "covered") != 0) continue;
    const double error = bs_get_number(row, "error_percent"), size = fabs(error);
    covered++;
    sum += error;
    sum_abs += size;
    within[0] += size <= 10;
    within[1] += size <= 15;
    within[2] += size <= 30;
    if (worst > 0 && size <= fabs(most)) continue;
    most = error;
    worst = (json_int_t)i + 1;
  }
  const double n = (double)covered;
  return json_pack(
      "{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "registered", (json_int_t)json_array_size(rows),
      "measured", measured, "covered", covered, "within_10", within[0], "within_15", within[1], "within_30",
      within[2], "mean_percent", covered > 0 ? json_real(sum_abs / n) : json_null(), "bias_percent",
      covered > 0 ? json_real(sum / n) : json_null(), "worst_percent",
      covered > 0 ? json_real(most) : json_null(), "worst", covered > 0 ? json_integer(worst) : json_null());
}
