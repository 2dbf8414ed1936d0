/* SPDX-License-Identifier: MIT
 * alike.c - the differences of two stored runs, and those that forbid a comparison of their times. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/compare/stored.h"
#include "lab/json.h"
#include "lab/report/rows.h"
#include "lab/store/summary.h"

/* Facts of env.json that differ between any two runs: how busy the machine was, by which command. */
static int is_volatile(const char *key) {
  static const char *const names[] = {"load_average", "load_before", "load_after",  "memory_available_bytes",
                                      "stolen_s",     "command",     "argv",        "temperature_c",
                                      "power_w",      "clock_mhz",   "steal_after", "after"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(key, names[i]) == 0) return 1;
  return 0;
}

/* The name of a plugin or a library, by which it is found: its place in a list may differ. */
static const char *label_of(const json_t *one) {
  static const char *const keys[] = {"id", "name", "path"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    const char *text = json_string_value(json_object_get(one, keys[i]));
    if (text != NULL) return text;
  }
  return NULL;
}

static void flatten(const json_t *value, const char *path, json_t *out) {
  const char *key;
  json_t *one;
  size_t i;
  bs_text name = {0};
  if (json_is_object(value)) {
    json_object_foreach((json_t *)(uintptr_t)value, key, one) {
      if (is_volatile(key)) continue;
      bs_text_printf(&name, "%s%s%s", path, path[0] != '\0' ? "." : "", key);
      if (name.data != NULL && !name.failed) flatten(one, name.data, out);
      bs_text_free(&name);
    }
  } else if (json_is_array(value)) {
    json_array_foreach(value, i, one) {
      const char *id = label_of(one);
      if (id != NULL)
        bs_text_printf(&name, "%s.%s", path, id);
      else
        bs_text_printf(&name, "%s[%zu]", path, i);
      if (name.data != NULL && !name.failed) flatten(one, name.data, out);
      bs_text_free(&name);
    }
  } else {
    json_object_set(out, path, (json_t *)(uintptr_t)value);
  }
}

/* Adds rows for members that only one object has, or that differ. */
static int add_differences(json_t *rows, const char *of, json_t *a, json_t *b) {
  const char *key;
  json_t *value;
  int bad = 0;
  json_object_foreach(a, key, value) {
    json_t *other = json_object_get(b, key);
    if (other != NULL && json_equal(value, other)) continue;
    json_t *row = json_pack("{s:o,s:O,s:o}", "what", json_sprintf("%s.%s", of, key), "a", value, "b",
                            other != NULL ? json_incref(other) : json_null());
    bad |= json_array_append_new(rows, row);
  }
  json_object_foreach(b, key, value) {
    if (json_object_get(a, key) != NULL) continue;
    bad |= json_array_append_new(
        rows, json_pack("{s:o,s:n,s:O}", "what", json_sprintf("%s.%s", of, key), "a", "b", value));
  }
  return bad;
}

json_t *bs_stored_differences(const bs_stored_run *a, const bs_stored_run *b) {
  json_t *rows = json_array(), *env_a = json_object(), *env_b = json_object();
  flatten(a->env, "", env_a);
  flatten(b->env, "", env_b);
  const int bad =
      add_differences(rows, "config", a->config, b->config) || add_differences(rows, "env", env_a, env_b);
  json_decref(env_a);
  json_decref(env_b);
  if (!bad) return rows;
  json_decref(rows);
  return NULL;
}

/* ---- may they be compared? ---------------------------------------------------------------------- */

/* The device whose time it is: the simulated machine, the GPU by name, or this kind of processor. */
static void device_of(const bs_stored_run *run, const json_t *record, char out[160]) {
  const json_t *device = json_object_get(record, "device");
  const char *name = bs_get_text(device, "name"),
             *model = bs_get_text(json_object_get(run->env, "cpu"), "model");
  if (bs_row_is_simulated(record)) name = bs_get_text(json_object_get(record, "simulated"), "machine");
  snprintf(out, 160, "%.40s on %.100s", bs_get_text(record, "backend"), name[0] != '\0' ? name : model);
}

static void unlike(const char *what, const char *a, const char *b, char *text, size_t size) {
  const size_t used = strlen(text);
  if (strcmp(a, b) != 0 && used < size)
    snprintf(text + used, size - used, "%s%s %.160s and %.160s", used > 0 ? "; " : "", what, a, b);
}

/* The phase of a record. Comparisons of methods were of the phase "ladder" before. */
static const char *phase_of(const json_t *record) {
  const char *phase = bs_get_text(record, "phase");
  return strcmp(phase, "ladder") == 0 ? "compare" : phase;
}

/* Writes why the records at one place of both runs cannot be compared; empty: they can. */
static void unlike_records(const bs_stored_run *a, const bs_stored_run *b, size_t at, char *text,
                           size_t size) {
  static const char *const keys[] = {"pass", "dtype"};
  const json_t *x = json_array_get(a->records, at), *y = json_array_get(b->records, at);
  char device_a[160], device_b[160];
  text[0] = '\0';
  unlike("phase", phase_of(x), phase_of(y), text, size);
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    unlike(keys[i], bs_get_text(x, keys[i]), bs_get_text(y, keys[i]), text, size);
  unlike("clock", bs_record_clock(x), bs_record_clock(y), text, size);
  device_of(a, x, device_a);
  device_of(b, y, device_b);
  unlike("device", device_a, device_b, text, size);
}

int32_t bs_stored_alike(const bs_stored_run *a, const bs_stored_run *b, bs_error *err) {
  const size_t of_a = json_array_size(a->records), of_b = json_array_size(b->records);
  char text[480] = "";
  for (size_t i = 0; text[0] == '\0' && i < of_a && i < of_b; i++) unlike_records(a, b, i, text, sizeof text);
  if (text[0] == '\0') return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-COMPARE-UNLIKE", "the runs are not alike: %s", text);
  bs_error_hint(err, "--force compares their times all the same");
  return BS_CONFIG;
}
