/* SPDX-License-Identifier: MIT
 * declared.c - see declared.h. */
#include "lab/sweep/declared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/config/schema.h"
#include "lab/error.h"
#include "lab/process/hear.h"
#include "lab/store/store.h"
#include "lab/sweep/axis.h"

/* ---- declared values ------------------------------------------------------------------------- */

static int is_power_of_two(const char *text) {
  int64_t n;
  return bs_parse_i64(text, &n) && n > 0 && (n & (n - 1)) == 0;
}

/* A set of a knob is parts with commas between them. */
static void add_part(const bs_knob *part, json_t *values) {
  const int steps = strchr(part->values, ':') != NULL && strchr(part->values, '+') != NULL;
  const size_t before = json_array_size(values);
  char text[64];
  for (uint32_t i = 0; bs_knob_value(part, i, text, sizeof text, NULL) == BS_OK; i++)
    if (!steps || is_power_of_two(text)) json_array_append_new(values, json_string(text));
  if (json_array_size(values) == before && bs_knob_value(part, 0, text, sizeof text, NULL) == BS_OK)
    json_array_append_new(values, json_string(text));
}

void bs_declared_values(const bs_knob *knob, json_t *values) {
  char *set = bs_strdup(knob->values), *rest = NULL;
  for (char *word = set == NULL ? NULL : strtok_r(set, ",", &rest); word != NULL;
       word = strtok_r(NULL, ",", &rest)) {
    bs_knob part = *knob;
    part.values = word;
    add_part(&part, values);
  }
  free(set);
}

/* ---- in the child ---------------------------------------------------------------------------- */

typedef struct expansion {
  const bs_compose_request *request;
  bs_context *context;
  const json_t *settings;
} expansion;

/* Lists algorithms; plugins that cannot be opened contribute none. */
static void algorithms(bs_context *context, json_t *values) {
  for (uint32_t i = 0; i < bs_plugin_count(context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK || info.state > BS_PLUGIN_ACTIVE ||
        (info.kinds >> BS_KIND_ALGORITHM & 1) == 0 || bs_plugin_activate(context, info.id, NULL) != BS_OK)
      continue;
    for (uint32_t k = 0; k < bs_thing_count(context, info.id); k++) {
      bs_thing_info thing = {.struct_size = sizeof thing};
      if (bs_thing_get(context, info.id, k, &thing, NULL) == BS_OK && thing.kind == BS_KIND_ALGORITHM)
        json_array_append_new(values, json_string(thing.name));
    }
  }
}

/* Lists values of a method's option; none if the point's method is unknown or declares no values. */
static void of_method(const expansion *x, const json_t *point, const char *option, json_t *values) {
  const char *word = json_string_value(json_object_get(point, "method.name"));
  const bs_method *method = NULL;
  void *state = NULL;
  bs_compose_request q = *x->request;
  bs_composed composed;
  q.context = x->context;
  if (word != NULL) q.method = word;
  if (bs_compose(&q, &composed, NULL) != BS_OK) return;
  const char *name = bs_schema_str(composed.config, "method.name");
  if (name != NULL && bs_find_method(x->context, name, &method, &state, NULL) == BS_OK)
    for (uint32_t i = 0; i < method->n_knobs; i++)
      if (strcmp(method->knobs[i]->name, option) == 0) bs_declared_values(method->knobs[i], values);
  bs_config_free(composed.config);
}

/* Each of `points` once with each value of the key. */
static json_t *times(const json_t *points, const char *key, const json_t *values) {
  size_t i, k;
  const json_t *point;
  json_t *value, *out = json_array();
  json_array_foreach(points, i, point) {
    json_array_foreach(values, k, value) {
      json_t *copy = json_copy((json_t *)(uintptr_t)point);
      json_object_set(copy, key, value);
      json_array_append_new(out, copy);
    }
  }
  return out;
}

static int is_all(const char *key, const json_t *value) {
  return strcmp(json_string_value(value), "all") == 0 &&
         (strcmp(key, "hardware.algorithm") == 0 ||
          (strncmp(key, "method.", 7) == 0 && strcmp(key, "method.name") != 0));
}

static void expand_point(const expansion *x, const json_t *point, json_t *out) {
  const char *key;
  json_t *value, *points = json_pack("[O]", point);
  json_object_foreach((json_t *)(uintptr_t)point, key, value) {
    if (!is_all(key, value)) continue;
    json_t *values = json_array(), *before = points;
    if (strcmp(key, "hardware.algorithm") == 0)
      algorithms(x->context, values);
    else
      of_method(x, point, key + strlen("method."), values);
    if (json_array_size(values) > 0) {
      points = times(before, key, values);
      json_decref(before);
    }
    json_decref(values);
  }
  json_array_extend(out, points);
  json_decref(points);
}

/* Answers with all points, up to one more than are allowed. */
static void answer(void *user, int fd) {
  const expansion *x = user;
  size_t i;
  const json_t *point;
  json_t *out = json_array();
  json_array_foreach(x->settings, i, point) {
    if (json_array_size(out) <= BS_SWEEP_POINTS_MAX) expand_point(x, point, out);
  }
  char *line = json_dumps(out, JSON_COMPACT);
  if (line != NULL) (void)bs_store_write_all(fd, line, strlen(line));
}

/* ---- in the supervisor ----------------------------------------------------------------------- */

static int wants_all(const json_t *settings) {
  size_t i;
  const char *key;
  json_t *point, *value;
  json_array_foreach(settings, i, point) {
    json_object_foreach(point, key, value) {
      if (is_all(key, value)) return 1;
    }
  }
  return 0;
}

int32_t bs_sweep_hear(void (*say)(void *user, int fd), void *user, bs_text *out, bs_error *err) {
  bs_hearing h = {.say = say, .user = user, .silence_s = 60.0}; /* time for opening what one point names */
  const int failed = bs_hear(&h, out);
  if (failed != 0)
    return bs_error_errno(err, BS_NO_MEMORY, "BS-SWEEP-FORK", failed, "cannot check the points");
  return out->failed ? bs_no_memory(err, "a sweep") : BS_OK;
}

static int32_t nothing_heard(bs_error *err) {
  bs_error_set(err, BS_UNAVAILABLE, "BS-SWEEP-DECLARED",
               "a plugin ended or hung the process that read the values of 'all'");
  bs_error_hint(err, "name the values: bsrun plugins knobs PATTERN has them");
  return BS_UNAVAILABLE;
}

int32_t bs_settings_expand(const bs_compose_request *request, bs_context *context, json_t *settings,
                           bs_error *err) {
  expansion x = {request, context, settings};
  bs_text text = {0};
  if (!wants_all(settings)) return BS_OK;
  int32_t rc = bs_sweep_hear(answer, &x, &text, err);
  json_t *points = rc == BS_OK && text.size > 0 ? json_loadb(text.data, text.size, 0, NULL) : NULL;
  bs_text_free(&text);
  if (rc == BS_OK && points == NULL) rc = nothing_heard(err);
  if (rc == BS_OK && json_array_size(points) > BS_SWEEP_POINTS_MAX)
    rc = bs_error_set(err, BS_USAGE, "BS-SWEEP-POINTS", "with the values of 'all' more than %d points",
                      BS_SWEEP_POINTS_MAX);
  if (rc == BS_OK && (json_array_clear(settings) != 0 || json_array_extend(settings, points) != 0))
    rc = bs_no_memory(err, "a sweep");
  json_decref(points);
  return rc;
}
