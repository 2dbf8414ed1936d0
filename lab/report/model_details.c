/* SPDX-License-Identifier: MIT
 * model_details.c - adds data that the rows of an index lack: samples, warnings, environment and commands of
 * the newest runs; the points of a sweep's plan that have no run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/report/model_parts.h"
#include "lab/store/notes.h"
#include "lab/store/read.h"

enum { MOST_READ = 40, MOST_SAMPLED = 2, MOST_PROFILES = 20, MOST_PLAN = 1 << 20 };

void bs_model_add(json_t *model, const char *list, const char *what, const char *why) {
  json_t *row = json_object(), *first = json_string(what), *second = json_string(why);
  json_object_set_new(row, "what", first != NULL ? first : json_string("(not UTF-8)"));
  json_object_set_new(row, "why", second != NULL ? second : json_string("(not UTF-8)"));
  json_array_append_new(json_object_get(model, list), row);
}

void bs_model_count(json_t *model, const char *key, json_int_t more) {
  json_object_set_new(model, key, json_integer(json_integer_value(json_object_get(model, key)) + more));
}

static void add_text_once(json_t *list, const char *text) {
  for (size_t i = 0; i < json_array_size(list); i++)
    if (strcmp(json_string_value(json_array_get(list, i)), text) == 0) return;
  json_array_append_new(list, json_string(text));
}

/* ---- the plan of a sweep ---- */

static void settings_words(const json_t *settings, char *out, size_t size) {
  const char *key;
  json_t *value;
  size_t used = 0;
  out[0] = '\0';
  json_object_foreach((json_t *)settings, key, value) {
    char *text =
        json_is_string(value) ? bs_strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
    const int n =
        snprintf(out + used, size - used, "%s%s=%s", used > 0 ? " " : "", key, text != NULL ? text : "");
    free(text);
    if (n < 0 || (size_t)n >= size - used) break;
    used += (size_t)n;
  }
}

/* For each request key: did a run of it end well? */
static json_t *keys_of(const json_t *rows) {
  json_t *keys = json_object(), *row;
  size_t i;
  json_array_foreach((json_t *)rows, i, row) {
    const char *key = bs_row_text(row, "request_key");
    if (key[0] == '\0' || json_is_true(json_object_get(keys, key))) continue;
    json_object_set_new(keys, key, json_boolean(strcmp(bs_row_text(row, "status"), "ok") == 0));
  }
  return keys;
}

/* Has the point a run of each of its phases? A phase that did not end well ends the point: the phases after
 * it are not run. */
static int was_run(const json_t *point, const json_t *keys) {
  const json_t *wanted = json_object_get(point, "keys");
  for (size_t i = 0; i < json_array_size(wanted); i++) {
    const char *key = json_string_value(json_array_get(wanted, i));
    const json_t *ended = key != NULL ? json_object_get(keys, key) : NULL;
    if (ended == NULL) return 0;
    if (!json_is_true(ended)) return 1;
  }
  return json_array_size(wanted) > 0 || json_object_get(keys, bs_row_text(point, "request_key")) != NULL;
}

static void plan_point(json_t *model, const json_t *point, const json_t *keys) {
  const json_t *refused = json_object_get(point, "refused");
  char words[400], why[600];
  settings_words(json_object_get(point, "settings"), words, sizeof words);
  if (refused != NULL && !json_is_null(refused) && !json_is_false(refused)) {
    const char *text = json_is_string(refused) ? json_string_value(refused) : bs_row_text(refused, "message");
    snprintf(why, sizeof why, "refused: %.500s", text != NULL ? text : "");
    bs_model_add(model, "untried", words, why);
  } else if (!json_is_integer(json_object_get(point, "duplicate_of")) && !was_run(point, keys)) {
    bs_model_add(model, "untried", words, "not run: bsrun sweep --resume goes on");
  }
}

void bs_model_plans(json_t *model, const char *sweep) {
  char path[4200];
  if (snprintf(path, sizeof path, "%s/plan.jsonl", sweep) >= (int)sizeof path) return;
  FILE *file = fopen(path, "r");
  if (file == NULL) return;
  json_t *keys = keys_of(json_object_get(model, "rows"));
  char *line = NULL;
  size_t room = 0, number = 0;
  while (getline(&line, &room, file) > 0 && ++number < MOST_PLAN) {
    json_t *point = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    if (point == NULL) bs_model_add(model, "warnings", path, "a line of the plan is no JSON");
    if (json_object_get(point, "settings") != NULL) plan_point(model, point, keys);
    const char *command = bs_row_text(point, "command"); /* of the header */
    if (command[0] != '\0') add_text_once(json_object_get(model, "commands"), command);
    json_decref(point);
  }
  free(line);
  json_decref(keys);
  fclose(file);
}

/* ---- the newest runs ---- */

static void add_samples(json_t *model, const json_t *row) {
  json_t *found = NULL, *arm, *out = json_array();
  size_t i, k;
  if (bs_run_samples(bs_row_text(row, "root"), bs_row_text(row, "run"), &found, NULL) != BS_OK) found = NULL;
  json_array_foreach(found, i, arm) {
    static const char *const keys[] = {"seconds", "discarded"};
    const char *name = bs_row_text(arm, "arm");
    if (strcmp(bs_row_text(arm, "phase"), "steady-cold") == 0) continue;
    if (strcmp(name, "method") == 0) name = bs_row_text(row, "method");
    for (int d = 0; d < 2; d++) {
      json_t *value, *list = json_object_get(arm, keys[d]);
      json_array_foreach(list, k, value) {
        json_array_append_new(out, json_pack("{s:s, s:I, s:O, s:b}", "series", name, "at", (json_int_t)k,
                                             "seconds", value, "discarded", d));
      }
    }
  }
  if (json_array_size(out) > 0)
    json_array_append_new(json_object_get(model, "samples"),
                          json_pack("{s:O, s:O}", "row", (json_t *)row, "rows", out));
  json_decref(out);
  json_decref(found);
}

/* The findings of `bsrun diagnose`, with their run. */
static void take_findings(json_t *model, const json_t *row, const json_t *record) {
  const json_t *findings = json_object_get(json_object_get(record, "diagnosis"), "findings"), *finding;
  size_t i;
  json_array_foreach(findings, i, finding) {
    json_t *copy = json_copy((json_t *)(uintptr_t)finding);
    json_object_set(copy, "run", json_object_get(row, "run"));
    json_array_append_new(json_object_get(model, "findings"), copy);
  }
}

static void take_record(json_t *model, const json_t *row, const json_t *record) {
  json_t *warning, *warnings = json_object_get(record, "measuring_warnings");
  const json_t *error = json_object_get(record, "error");
  size_t i;
  take_findings(model, row, record);
  json_array_foreach(warnings, i, warning) {
    if (json_is_string(warning))
      bs_model_add(model, "warnings", bs_row_text(row, "run"), json_string_value(warning));
  }
  json_t *profile = json_object_get(record, "profile"), *profiles = json_object_get(model, "profiles");
  if (json_is_object(profile) && json_array_size(profiles) < MOST_PROFILES)
    json_array_append_new(profiles,
                          json_pack("{s:s, s:O}", "run", bs_row_text(row, "run"), "profile", profile));
  if (json_is_object(error))
    bs_model_add(model, "refused", bs_row_text(row, "run"), bs_row_text(error, "message"));
}

/* Reads the newest runs, and the error of a failed one. */
static int32_t read_run(json_t *model, const json_t *row, bs_error *err) {
  json_t *records = NULL, *env = NULL, *record;
  size_t i;
  int32_t rc = bs_run_read(bs_row_text(row, "root"), bs_row_text(row, "run"), &records, &env, err);
  if (rc == BS_CORRUPT || rc == BS_NOT_FOUND) { /* it was whole when it was listed */
    bs_model_add(model, "refused", bs_row_text(row, "run"), err != NULL ? err->message : "damaged");
    if (err != NULL) bs_error_clear(err);
    return BS_OK;
  }
  if (rc != BS_OK) return rc;
  json_array_foreach(records, i, record) take_record(model, row, record);
  const char *command = bs_row_text(env, "command");
  if (command[0] != '\0' && strstr(command, "--planned ") == NULL) /* the plan has that of a sweep */
    add_text_once(json_object_get(model, "commands"), command);
  if (json_object_size(json_object_get(model, "env")) == 0) json_object_set(model, "env", env);
  json_decref(records);
  json_decref(env);
  return BS_OK;
}

/* Every note, with its date and kind. */
static int32_t add_notes(json_t *model, const json_t *row, bs_error *err) {
  json_t *notes = NULL, *note;
  const char *run = bs_row_text(row, "run");
  size_t i;
  char text[4096];
  const int32_t rc = bs_run_notes(bs_row_text(row, "root"), run, &notes, err);
  json_array_foreach(notes, i, note) {
    snprintf(text, sizeof text, "%.40s, %.40s: %.4000s", bs_row_text(note, "date"), bs_row_text(note, "kind"),
             bs_row_text(note, "text"));
    json_t *shown = json_string(text); /* NULL: cut within a character */
    if (shown == NULL) shown = json_incref(json_object_get(note, "text"));
    json_array_append_new(json_object_get(model, "notes"),
                          json_pack("{s:s, s:o}", "run", run, "text", shown));
  }
  json_decref(notes);
  return rc;
}

static int ended_badly(const json_t *row) {
  return strcmp(bs_row_text(row, "status"), "failed") == 0;
}

int32_t bs_model_details(json_t *model, const char *command, bs_error *err) {
  json_t *rows = json_object_get(model, "rows"), *row;
  const char *last = "";
  size_t i, read = 0, failed = 0;
  int32_t rc = BS_OK;
  if (command != NULL) add_text_once(json_object_get(model, "commands"), command);
  json_array_foreach(rows, i, row) {
    const char *run = bs_row_text(row, "run"), *note = bs_row_text(row, "note");
    if (rc != BS_OK) break;
    if (strcmp(run, last) == 0) continue;
    last = run;
    if (note[0] != '\0') rc = add_notes(model, row, err);
    if (rc != BS_OK) break;
    if (ended_badly(row) ? failed++ < MOST_READ : read < MOST_READ) rc = read_run(model, row, err);
    read += !ended_badly(row);
    if (bs_row_text(row, "arm")[0] != '\0' && !bs_row_true(row, "simulated") &&
        json_array_size(json_object_get(model, "samples")) < MOST_SAMPLED)
      add_samples(model, row);
  }
  return rc;
}
