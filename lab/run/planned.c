/* SPDX-License-Identifier: MIT
 * planned.c - see planned.h. */
#include "lab/run/planned.h"

#include <string.h>

#include "core/base/error.h"

static int32_t refuse(const char *path, const char *why, bs_error *err) {
  bs_error_set(err, BS_INPUT, "BS-POINT-FILE", "--planned %.100s: %.200s", path, why);
  bs_error_hint(err, "bsrun sweep makes such files; bsrun --config FILE runs a configuration");
  return BS_INPUT;
}

static const char *text_at(const json_t *list, size_t i) {
  return json_string_value(json_array_get(list, i));
}

static int32_t read_phase(lab_planned *p, size_t i, const char *path, bs_error *err) {
  const char *text = text_at(json_object_get(p->input, "configs"), i);
  const char *root = json_string_value(json_object_get(p->input, "root"));
  const char *sweep = json_string_value(json_object_get(p->input, "sweep"));
  bs_node *tree = NULL;
  p->keys[i] = text_at(json_object_get(p->input, "keys"), i);
  if (text == NULL || p->keys[i] == NULL) return refuse(path, "a phase has no configuration or no key", err);
  int32_t rc = bs_config_parse("plan.jsonl", text, strlen(text), &tree, err);
  if (rc == BS_OK) rc = bs_config_set_text(tree, "logging.out_dir", root, err);
  if (rc == BS_OK) rc = bs_config_set_text(tree, "logging.run_group", sweep, err);
  p->trees[i] = tree;
  return rc;
}

static int are_texts(const json_t *list) {
  for (size_t i = 0; i < json_array_size(list); i++)
    if (text_at(list, i) == NULL) return 0;
  return 1;
}

int32_t lab_planned_read(const char *path, lab_planned *out, bs_error *err) {
  json_error_t why;
  *out = (lab_planned){.input = json_load_file(path, 0, &why)};
  if (out->input == NULL) return refuse(path, why.text, err);
  const size_t n = json_array_size(json_object_get(out->input, "configs"));
  if (n < 1 || n > LAB_PLANNED_PHASES || !json_is_string(json_object_get(out->input, "root")) ||
      !json_is_string(json_object_get(out->input, "sweep")) ||
      !json_is_integer(json_object_get(out->input, "point")) ||
      !are_texts(json_object_get(out->input, "choices")))
    return refuse(path, "it is no point of a sweep", err);
  out->command = json_string_value(json_object_get(out->input, "command"));
  out->argv = json_object_get(out->input, "argv");
  out->tune = json_is_true(json_object_get(out->input, "tune"));
  int32_t rc = BS_OK;
  for (; rc == BS_OK && out->n_phases < n; out->n_phases++) rc = read_phase(out, out->n_phases, path, err);
  return rc;
}

void lab_planned_free(lab_planned *p) {
  for (size_t i = 0; i < LAB_PLANNED_PHASES; i++) bs_config_free((bs_node *)(uintptr_t)p->trees[i]);
  json_decref(p->input);
  *p = (lab_planned){0};
}

void lab_planned_point(const lab_planned *p, lab_point *point) {
  point->n_phases = p->n_phases;
  point->trees = p->trees;
  point->keys = p->keys;
  point->choices = json_object_get(p->input, "choices");
  point->sweep = json_string_value(json_object_get(p->input, "sweep"));
  point->number = json_integer_value(json_object_get(p->input, "point"));
}
