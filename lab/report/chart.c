/* SPDX-License-Identifier: MIT
 * chart.c - shared parts of charts: see chart.h. */
#include "lab/report/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"

void bs_chart_free(bs_chart *chart) {
  json_decref(chart->data);
  bs_text_free(&chart->svg);
  memset(chart, 0, sizeof *chart);
}

double bs_row_number(const json_t *row, const char *path) {
  const char *dot = path != NULL ? strchr(path, '.') : NULL;
  const json_t *value = NULL;
  if (dot != NULL) {
    value = json_object_get(json_object_getn(row, path, (size_t)(dot - path)), dot + 1);
  } else if (path != NULL) {
    value = json_object_get(row, path);
  }
  return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *bs_row_text(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text != NULL ? text : "";
}

int bs_row_true(const json_t *row, const char *key) {
  return json_is_true(json_object_get(row, key));
}

/* Does text begin with name, and end there or go on with something else? */
static int begins_with(const char *text, const char *name) {
  const size_t n = strlen(name);
  return strncmp(text, name, n) == 0 && (text[n] == '\0' || strchr(", {/:", text[n]) != NULL);
}

int bs_series_colour(const char *series) {
  static const struct {
    const char *name;
    int colour;
  } known[] = {{"blockshock", 0},   {"block_shock_2gpu", 0},        {"row_parallel", 1},
               {"dense_tp", 1},     {"column_parallel", 2},         {"masked_split_dense", 3},
               {"masked_split", 3}, {"dense, one rank's cores", 6}, {"dense_single", 4},
               {"dense", 4}};
  static const int others[] = {5, 7, 8, 9};
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (begins_with(series, known[i].name)) return known[i].colour;
  for (size_t i = 0; series[i] != '\0' && strchr(", {/:", series[i]) == NULL; i++)
    hash = (hash ^ (unsigned char)series[i]) * 16777619u;
  return others[(hash ^ hash >> 16) % 4];
}

const char *bs_mask_words(const char *mask, char *out, size_t size) {
  static const char before[] = "complement_";
  const char *found = strstr(mask, before);
  const int first = found != NULL ? (int)(found - mask) : 0;
  const char *pattern = found != NULL ? found + sizeof before - 1 : mask;
  const size_t n = strspn(pattern, "01_");
  if (found == NULL || (pattern[n] != '\0' && pattern[n] != ' ')) {
    snprintf(out, size, "%s", mask);
    return out;
  }
  snprintf(out, size, "%.*s%s", first, mask, pattern);
  for (size_t i = (size_t)first; i < (size_t)first + n && i < size && out[i] != '\0'; i++)
    if (out[i] == '_') out[i] = '/';
  return out;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bs_median_of(double *values, size_t n) {
  qsort(values, n, sizeof *values, by_value);
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static const struct {
  const char *key, *before;
} settings[] = {{"method", ""},        {"arm", ""},          {"mask", ""},
                {"N", "N "},           {"K", "K "},          {"B", "B "},
                {"dtype", ""},         {"world_size", "P "}, {"threads_per_rank", "threads a rank "},
                {"activation", ""},    {"backend", ""},      {"comm", "comm "},
                {"launch", "launch "}, {"host", "on "},      {"origin", ""},
                {"phase", ""},         {"simulated", ""},    {"pass", ""},
                {"problem", ""}};
enum { METHOD, ARM, SETTINGS = sizeof settings / sizeof settings[0], WORDS = 160 };

/* Is it a setting of the machine? For a simulated run these describe the simulating machine, not the
 * layer. */
static int of_machine(const char *key) {
  static const char *const keys[] = {"backend", "comm", "launch", "host", "threads_per_rank"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (strcmp(keys[i], key) == 0) return 1;
  return 0;
}

uint32_t bs_rows_differ(const json_t *rows) {
  size_t at = 0;
  while (at + 1 < json_array_size(rows) && bs_row_true(json_array_get(rows, at), "simulated")) ++at;
  const json_t *first = json_array_get(rows, at);
  uint32_t bits = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const int simulated = bs_row_true(row, "simulated");
    for (size_t k = 0; k < SETTINGS; k++) {
      const json_t *a = json_object_get(first, settings[k].key), *b = json_object_get(row, settings[k].key);
      if (a == b || (simulated && of_machine(settings[k].key))) continue;
      if (a == NULL || b == NULL || !json_equal(a, b)) bits |= 1u << k;
    }
  }
  return bits;
}

int bs_rows_square(const json_t *rows) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    if (!json_equal(json_object_get(row, "N"), json_object_get(row, "K"))) return 0;
  }
  return 1;
}

static int listed(const char *const *list, const char *key) {
  for (; list != NULL && *list != NULL; list++)
    if (strcmp(*list, key) == 0) return 1;
  return 0;
}

/* The text of a setting; "": none. */
static const char *setting_text(const json_t *row, size_t k, char number[WORDS]) {
  const json_t *value = json_object_get(row, settings[k].key);
  const char *text = json_string_value(value);
  if (strcmp(settings[k].key, "K") == 0 && json_equal(value, json_object_get(row, "N"))) return "";
  if (json_is_number(value)) {
    snprintf(number, WORDS, "%.10g", json_number_value(value));
    return number;
  }
  if (strcmp(settings[k].key, "simulated") == 0) return json_is_true(value) ? "simulated" : "";
  if (text == NULL || strcmp(text, "none") == 0) return "";
  if (strcmp(settings[k].key, "phase") == 0 && strncmp(text, "phase", 5) == 0 && strchr(text, '_') != NULL)
    return strchr(text, '_') + 1;
  if (strcmp(settings[k].key, "arm") == 0 && strcmp(text, "method") == 0) return "";
  return k == ARM || strcmp(settings[k].key, "mask") == 0 ? bs_mask_words(text, number, WORDS) : text;
}

/* "dense, all cores" and "blockshock interleave" name the method too. */
static int arm_has_it(const json_t *row, uint32_t which, const char *const *but) {
  const char *method = bs_row_text(row, "method"), *arm = bs_row_text(row, "arm");
  const size_t n = strlen(method);
  return which & 1u << ARM && !listed(but, "arm") && strncmp(arm, method, n) == 0 &&
         (arm[n] == '\0' || arm[n] == ',' || arm[n] == ' ');
}

void bs_row_words(const json_t *row, uint32_t which, const char *const *but, char *out, size_t size) {
  size_t used = 0;
  out[0] = '\0';
  for (size_t k = 0; k < SETTINGS; k++) {
    char number[WORDS];
    const char *text = which & 1u << k && !listed(but, settings[k].key) ? setting_text(row, k, number) : "";
    if (text[0] == '\0' || (k == METHOD && arm_has_it(row, which, but))) continue;
    const int n = snprintf(out + used, size - used, "%s%s%s", used > 0 ? ", " : "", settings[k].before, text);
    if (n < 0 || (size_t)n >= size - used) break;
    used += (size_t)n;
  }
}

void bs_row_set(json_t *row, const char *key, double value) {
  json_object_set_new(row, key, isfinite(value) ? json_real(value) : json_null());
}

int32_t bs_chart_begin(bs_chart *out, const char *id, const char *title, const json_t *rows,
                       const char *const *but, bs_error *err) {
  static const char *const details[] = {"arm",   "launch",     "backend",          "comm", "host",
                                        "phase", "activation", "threads_per_rank", NULL};
  char same[112];
  memset(out, 0, sizeof *out);
  snprintf(out->id, sizeof out->id, "%s", id);
  bs_row_words(json_array_get(rows, 0), ~bs_rows_differ(rows), but != NULL ? but : details, same,
               sizeof same);
  snprintf(out->title, sizeof out->title, "%s%s%s", title, same[0] != '\0' ? ": " : "", same);
  out->data = json_array();
  return out->data != NULL ? BS_OK : bs_no_memory(err, "chart %s", id);
}

int32_t bs_chart_end(bs_chart *chart, int32_t rc, bs_error *err) {
  if (rc == BS_OK && chart->svg.failed) rc = bs_no_memory(err, "chart %s", chart->id);
  if (rc != BS_OK) bs_chart_free(chart);
  return rc;
}
