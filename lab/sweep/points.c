/* SPDX-License-Identifier: MIT
 * points.c - points as composed trees with their keys (points.h). */
#include "lab/sweep/points.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/config/schema.h"
#include "lab/error.h"
#include "lab/store/request_key.h"
#include "lab/store/sha256.h"

/* A request with one point's settings. */
typedef struct varied {
  bs_compose_request q;
  char **sets;
  size_t n;
  bs_node *given; /* the --set values of the request */
} varied;

static const char **word_of(bs_compose_request *q, const char *key) {
  const struct {
    const char *key, **word;
  } words[] = {{"phase.name", &q->phase},
               {"method.name", &q->method},
               {"mask.name", &q->mask},
               {"workload.name", &q->workload},
               {"hardware.name", &q->hardware}};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcmp(words[i].key, key) == 0) return words[i].word;
  return NULL;
}

static int32_t twice(const char *key, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-SWEEP-AXIS", "%s is given, and is also what the sweep varies", key);
  bs_error_hint(err, "leave one of both out");
  return BS_USAGE;
}

static int begins_with_key(const char *text, const char *key) {
  const size_t size = strlen(key);
  return text != NULL && strncmp(text, key, size) == 0 && text[size] == '=';
}

static int32_t vary(varied *v, const char *key, const char *value, bs_error *err) {
  const char **word = word_of(&v->q, key);
  if (word != NULL && *word != NULL) return twice(key, err);
  if (bs_config_find(v->given, key) != NULL) return twice(key, err);
  for (size_t i = 0; i < v->q.n_texts; i++)
    if (begins_with_key(v->q.texts[i], key)) return twice(key, err);
  if (strcmp(key, "hardware.world_size") == 0 && v->q.world_size > 0) return twice(key, err);
  if (word != NULL) {
    *word = value;
    return BS_OK;
  }
  bs_text text = {0};
  bs_text_printf(&text, "%s=%s", key, value);
  if (text.failed) {
    bs_text_free(&text);
    return bs_no_memory(err, "a sweep");
  }
  v->sets[v->q.n_sets++] = text.data;
  v->n++;
  return BS_OK;
}

static void varied_free(varied *v) {
  for (size_t i = 0; i < v->n; i++) free(v->sets[v->q.n_sets - 1 - i]);
  free(v->sets);
  bs_config_free(v->given);
}

static int32_t varied_make(const bs_compose_request *request, const json_t *settings, varied *out,
                           bs_error *err) {
  const char *key;
  json_t *value;
  int32_t rc = BS_OK;
  *out = (varied){.q = *request};
  out->sets = calloc(request->n_sets + json_object_size(settings) + 1, sizeof *out->sets);
  if (out->sets == NULL) return bs_no_memory(err, "a sweep");
  for (size_t i = 0; i < request->n_sets; i++) out->sets[i] = (char *)(uintptr_t)request->sets[i];
  out->q.sets = (const char *const *)out->sets;
  out->given = bs_sets_tree(request->sets, request->n_sets);
  if (out->given == NULL) return bs_no_memory(err, "a sweep");
  json_object_foreach((json_t *)(uintptr_t)settings, key, value) {
    if (rc == BS_OK) rc = vary(out, key, json_string_value(value), err);
  }
  return rc;
}

/* ---- a point --------------------------------------------------------------------------------- */

/* Takes the tree. Its sweep is done with: the point is one run. */
static int32_t add_phase(json_t *point, bs_context *context, bs_node *config, bs_error *err) {
  char key[65];
  bs_text text = {0};
  bs_config_remove(config, "sweep");
  bs_config_remove(config, "run_id");
  int32_t rc = bs_request_key(context, config, key, err);
  if (rc == BS_OK) bs_config_print(config, &text);
  const char *phase = bs_schema_str(config, "phase.name");
  if (rc == BS_OK &&
      (text.failed || json_array_append_new(json_object_get(point, "phases"), json_string(phase)) != 0 ||
       json_array_append_new(json_object_get(point, "keys"), json_string(key)) != 0 ||
       json_array_append_new(json_object_get(point, "configs"), json_string(text.data)) != 0))
    rc = bs_error_set(err, BS_CONFIG, "BS-CFG-UTF8",
                      "a configuration is not UTF-8, or there is no memory for it");
  bs_text_free(&text);
  bs_config_free(config);
  return rc;
}

/* Sets a point's key: with one phase that phase's key. */
static void set_key(json_t *point) {
  char hex[65];
  const json_t *keys = json_object_get(point, "keys");
  bs_sha256 h;
  bs_sha256_init(&h);
  for (size_t i = 0; i < json_array_size(keys); i++)
    bs_sha256_field(&h, json_string_value(json_array_get(keys, i)));
  bs_sha256_hex(&h, hex);
  json_object_set_new(
      point, "request_key",
      json_string(json_array_size(keys) == 1 ? json_string_value(json_array_get(keys, 0)) : hex));
}

static int32_t compose_phase(varied *v, bs_context *context, const char *phase, json_t *point, int *out_given,
                             bs_error *err) {
  bs_composed composed;
  bs_compose_request q = v->q;
  q.context = context;
  if (phase != NULL) q.phase = phase;
  int32_t rc = bs_compose(&q, &composed, err);
  if (rc != BS_OK) return rc;
  *out_given = composed.phase_given != 0;
  if (phase == NULL && !*out_given) { /* both phases are checked below */
    bs_config_free(composed.config);
    return BS_OK;
  }
  rc = bs_schema_check(composed.config, q.configs_dir, NULL, err);
  if (rc == BS_OK) return add_phase(point, context, composed.config, err);
  bs_config_free(composed.config);
  return rc;
}

static int32_t make_point(const bs_compose_request *request, bs_context *context, const json_t *settings,
                          size_t i, json_t *points, bs_error *err) {
  varied v;
  int given = 0;
  json_t *point = json_pack("{s:I, s:n, s:O, s:n, s:n, s:[], s:[], s:[], s:n, s:b}", "i", (json_int_t)i,
                            "request_key", "settings", settings, "duplicate_of", "refused", "phases", "keys",
                            "configs", "layer", "alone", 1);
  if (point == NULL || json_array_append_new(points, point) != 0) return bs_no_memory(err, "a sweep");
  int32_t rc = varied_make(request, settings, &v, err);
  if (rc == BS_OK) rc = compose_phase(&v, context, NULL, point, &given, err);
  if (rc == BS_OK && !given) {
    rc = compose_phase(&v, context, "phase0_correctness", point, &given, err);
    if (rc == BS_OK) rc = compose_phase(&v, context, "phase1_forward", point, &given, err);
  }
  varied_free(&v);
  if (rc == BS_OK) set_key(point);
  return rc;
}

int32_t bs_points_make(const bs_compose_request *request, bs_context *context, const json_t *settings,
                       json_t **out_points, bs_error *err) {
  size_t i;
  const json_t *one;
  json_t *points = json_array();
  int32_t rc = points == NULL ? bs_no_memory(err, "a sweep") : BS_OK;
  json_array_foreach(settings, i, one) {
    if (rc == BS_OK) rc = make_point(request, context, one, i, points, err);
  }
  if (rc == BS_OK) {
    bs_points_pair(points);
  } else {
    json_decref(points);
    points = NULL;
  }
  *out_points = points;
  return rc;
}

int32_t bs_point_rekey(bs_context *context, json_t *point, int *out_changed, bs_error *err) {
  const json_t *configs = json_object_get(point, "configs");
  json_t *keys = json_object_get(point, "keys");
  *out_changed = 0;
  for (size_t i = 0; i < json_array_size(configs); i++) {
    char key[65];
    bs_node *config = NULL;
    const char *text = json_string_value(json_array_get(configs, i));
    int32_t rc = bs_config_parse("plan.jsonl", text, strlen(text), &config, err);
    if (rc == BS_OK) rc = bs_request_key(context, config, key, err);
    bs_config_free(config);
    if (rc != BS_OK) return rc;
    if (strcmp(key, json_string_value(json_array_get(keys, i))) == 0) continue;
    *out_changed = 1;
    json_array_set_new(keys, i, json_string(key));
  }
  set_key(point);
  return BS_OK;
}

void bs_points_pair(json_t *points) {
  size_t i;
  json_t *point, *seen = json_object();
  json_array_foreach(points, i, point) {
    const char *key = json_string_value(json_object_get(point, "request_key"));
    const json_t *first = json_object_get(seen, key);
    if (first == NULL)
      json_object_set_new(seen, key, json_integer((json_int_t)i));
    else
      json_object_set(point, "duplicate_of", (json_t *)(uintptr_t)first);
  }
  json_decref(seen);
}

json_t *bs_point_words(const json_t *header, const json_t *point) {
  static const char *const options[] = {"phase.name", "method.name", "mask.name", "workload.name",
                                        "hardware.name"}; /* word_of */
  const char *key;
  json_t *value, *words = json_deep_copy(json_object_get(header, "words"));
  if (words == NULL) return NULL;
  json_object_foreach(json_object_get(point, "settings"), key, value) {
    const char *text = json_string_value(value);
    size_t i = 0;
    while (i < sizeof options / sizeof options[0] && strcmp(options[i], key) != 0) i++;
    if (i < sizeof options / sizeof options[0]) {
      json_array_append_new(words, json_sprintf("--%.*s", (int)strcspn(key, "."), key));
      json_array_append(words, value);
    } else {
      json_array_append_new(words, json_string("--set"));
      json_array_append_new(words, json_sprintf("%s=%s", key, text));
    }
  }
  return words;
}

char *bs_point_input(const char *root, const char *sweep, const json_t *header, const json_t *point,
                     const json_t *choices, int tune) {
  static const char *const same[] = {"phases", "keys", "configs"};
  json_t *input = json_pack("{s:s, s:s, s:O, s:b}", "root", root, "sweep", sweep, "point",
                            json_object_get(point, "i"), "tune", tune);
  for (size_t i = 0; input != NULL && i < 3; i++)
    json_object_set(input, same[i], json_object_get(point, same[i]));
  json_t *command = json_object_get(header, "command");
  if (command != NULL) json_object_set(input, "command", command);
  json_object_set_new(input, "argv", bs_point_words(header, point));
  if (choices != NULL) json_object_set(input, "choices", (json_t *)(uintptr_t)choices);
  char *text = input == NULL ? NULL : json_dumps(input, JSON_COMPACT);
  json_decref(input);
  return text;
}
