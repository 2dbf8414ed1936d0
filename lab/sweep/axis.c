/* SPDX-License-Identifier: MIT
 * axis.c - see axis.h. */
#include "lab/sweep/axis.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/config/schema.h"
#include "lab/config/short_names.h"
#include "lab/error.h"

/* Keys of chosen plugins are known only when these are: they are looked at when a point is composed. */
static int is_open_key(const char *key) {
  static const char *const sections[] = {"method.", "workload.", "plugins."};
  for (size_t i = 0; i < 3; i++)
    if (strncmp(key, sections[i], strlen(sections[i])) == 0 && key[strlen(sections[i])] != '\0') return 1;
  return 0;
}

/* Does the key choose the source of plugins? Such keys apply to the whole sweep: one process plans its
 * points. */
static int is_of_plugins(const char *key) {
  return strcmp(key, "plugin") == 0 || strncmp(key, "plugin_", 7) == 0;
}

static int32_t check_key(const char *key, bs_error *err) {
  const char *known[BS_SHORT_NAMES_MAX + 256];
  size_t count = 0;
  const bs_key *keys = bs_schema_keys(&count);
  const bs_key *found = bs_schema_find(key);
  if (found != NULL && is_of_plugins(key)) {
    bs_error_set(err, BS_USAGE, "BS-SWEEP-AXIS", "%s applies to the whole sweep; it cannot be an axis", key);
    bs_error_hint(err, "--plugin FILE gives all points a plugin; vary method, backend or plugins.NAME.KEY");
    return BS_USAGE;
  }
  const int varies = found != NULL &&
                     (found->effect == BS_EFFECT_ACTIVE || found->effect == BS_EFFECT_LABEL) &&
                     strncmp(key, "sweep.", 6) != 0 && strncmp(key, "logging.", 8) != 0;
  if (varies || (found == NULL && is_open_key(key))) return BS_OK;
  if (found != NULL)
    return bs_error_set(err, BS_USAGE, "BS-SWEEP-AXIS", "%s is not a key that changes a run", key);
  size_t n = bs_short_names(known);
  for (size_t i = 0; i < count && n < sizeof known / sizeof known[0]; i++) known[n++] = keys[i].path;
  const char *nearest = bs_nearest(key, known, n);
  bs_error_set(err, BS_USAGE, "BS-SWEEP-AXIS", "unknown key '%.100s'", key);
  bs_error_hint(err, "%s%s%s", nearest != NULL ? "did you mean '" : "bsrun config keys lists them",
                nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
  return BS_USAGE;
}

static int32_t add_value(json_t *values, const char *text, bs_error *err) {
  if (json_array_size(values) >= BS_SWEEP_POINTS_MAX)
    return bs_error_set(err, BS_USAGE, "BS-SWEEP-POINTS", "more than %d values", BS_SWEEP_POINTS_MAX);
  if (json_array_append_new(values, json_string(text)) != 0)
    return bs_error_set(err, BS_USAGE, "BS-SWEEP-AXIS", "a value is not UTF-8");
  return BS_OK;
}

/* Adds 4k as 4000 if the key takes a whole number, and phases and masks by their one name. Other texts are
 * unchanged. */
static int32_t add_plain(json_t *values, const char *key, const char *text, bs_error *err) {
  char number[32];
  int64_t whole;
  const bs_key *known = bs_schema_find(key);
  if (known == NULL || known->type != BS_KEY_INT || !bs_parse_size(text, &whole))
    return add_value(values, bs_full_name(key, text), err);
  snprintf(number, sizeof number, "%lld", (long long)whole);
  return add_value(values, number, err);
}

typedef struct range {
  char first[64], last[64], by[64];
  char sign; /* '*' or '+' */
} range;

/* FIRST:LAST*FACTOR or FIRST:LAST+STEP, numbers all three. */
static int read_range(const char *text, range *out) {
  double number;
  int64_t whole;
  const char *colon = strchr(text, ':');
  const char *sign = colon == NULL ? NULL : strpbrk(colon + 1, "*+");
  if (sign == NULL || sign == colon + 1 || strlen(text) >= sizeof out->first) return 0;
  snprintf(out->first, sizeof out->first, "%.*s", (int)(colon - text), text);
  snprintf(out->last, sizeof out->last, "%.*s", (int)(sign - colon - 1), colon + 1);
  snprintf(out->by, sizeof out->by, "%s", sign + 1);
  out->sign = *sign;
  const char *const all[] = {out->first, out->last, out->by};
  for (size_t i = 0; i < 3; i++)
    if (!bs_parse_size(all[i], &whole) && !bs_parse_f64(all[i], &number)) return 0;
  return 1;
}

static int32_t bad_range(const char *text, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-SWEEP-RANGE", "range '%.60s' is empty or never reaches its last value",
               text);
  bs_error_hint(err, "FIRST:LAST*FACTOR with FACTOR above 1, or FIRST:LAST+STEP with STEP above 0");
  return BS_USAGE;
}

static int32_t add_whole(json_t *values, const char *text, const range *r, const int64_t of[3],
                         bs_error *err) {
  char number[32];
  int64_t at = of[0];
  if (r->sign == '*' ? (of[0] <= 0 || of[2] < 2) : of[2] < 1) return bad_range(text, err);
  while (at <= of[1]) {
    snprintf(number, sizeof number, "%lld", (long long)at);
    const int32_t rc = add_value(values, number, err);
    if (rc != BS_OK) return rc;
    if (r->sign == '*' ? __builtin_mul_overflow(at, of[2], &at) : __builtin_add_overflow(at, of[2], &at))
      break;
  }
  return of[0] <= of[1] ? BS_OK : bad_range(text, err);
}

/* Adds numbers with a point: the end is in the range if it is reached except for rounding. */
static int32_t add_real(json_t *values, const char *text, const range *r, bs_error *err) {
  double first = 0, last = 0, by = 0;
  char number[40];
  if (!bs_parse_f64(r->first, &first) || !bs_parse_f64(r->last, &last) || !bs_parse_f64(r->by, &by))
    return bad_range(text, err);
  if (r->sign == '*' ? (first <= 0 || by <= 1.0) : by <= 0.0) return bad_range(text, err);
  const double end = last + (r->sign == '*' ? fabs(last) : by) * 1e-9;
  if (first > end) return bad_range(text, err);
  for (int i = 0;; i++) {
    const double at = r->sign == '*' ? first * pow(by, i) : first + by * i;
    if (at > end) return BS_OK;
    snprintf(number, sizeof number, "%.12g", at);
    const int32_t rc = add_value(values, number, err);
    if (rc != BS_OK) return rc;
  }
}

static int32_t add_text(json_t *values, const char *key, const char *text, bs_error *err) {
  range r;
  int64_t of[3];
  if (text[0] == '\0') return bs_error_set(err, BS_USAGE, "BS-SWEEP-AXIS", "%s has an empty value", key);
  if (!read_range(text, &r)) return add_plain(values, key, text, err);
  if (bs_parse_size(r.first, &of[0]) && bs_parse_size(r.last, &of[1]) && bs_parse_size(r.by, &of[2]))
    return add_whole(values, text, &r, of, err);
  return add_real(values, text, &r, err);
}

/* Up to the comma that ends a value: not one within brackets or quotes. */
static size_t value_length(const char *text) {
  int depth = 0;
  char quote = 0;
  size_t i = 0;
  for (; text[i] != '\0'; i++) {
    const char c = text[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '[' || c == '{') {
      depth++;
    } else if (c == ']' || c == '}') {
      depth--;
    } else if (c == ',' && depth <= 0) {
      break;
    }
  }
  return i;
}

static int32_t add_values(json_t *values, const char *key, const char *text, bs_error *err) {
  for (;;) {
    const size_t size = value_length(text);
    char *one = strndup(text, size);
    if (one == NULL) return bs_no_memory(err, "a sweep");
    const int32_t rc = add_text(values, key, one, err);
    free(one);
    if (rc != BS_OK || text[size] == '\0') return rc;
    text += size + 1;
  }
}

int32_t bs_axis_parse(const char *text, json_t **out_axis, bs_error *err) {
  char name[128];
  const char *equals = strchr(text, '=');
  if (equals == NULL || equals == text || (size_t)(equals - text) >= sizeof name) {
    bs_error_set(err, BS_USAGE, "BS-SWEEP-AXIS", "'%.100s' is not of the form KEY=VALUES", text);
    bs_error_hint(err, "for example -x N=512:4096*2 or -x method=dense,blockshock");
    return BS_USAGE;
  }
  snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
  const char *key = bs_short_name_key(name);
  int32_t rc = check_key(key, err);
  if (rc != BS_OK) return rc;
  json_t *values = json_array();
  rc = add_values(values, key, equals + 1, err);
  *out_axis = rc == BS_OK ? json_pack("{s:s, s:O}", "key", key, "values", values) : NULL;
  json_decref(values);
  return rc == BS_OK && *out_axis == NULL ? bs_no_memory(err, "a sweep") : rc;
}

static int32_t no_twins(const json_t *axes, bs_error *err) {
  for (size_t i = 0; i < json_array_size(axes); i++)
    for (size_t k = 0; k < i; k++) {
      const json_t *key = json_object_get(json_array_get(axes, i), "key");
      if (!json_equal(key, json_object_get(json_array_get(axes, k), "key"))) continue;
      bs_error_set(err, BS_USAGE, "BS-SWEEP-AXIS", "%s is varied twice", json_string_value(key));
      bs_error_hint(err, "one axis takes all values: KEY=a,b,c");
      return BS_USAGE;
    }
  return BS_OK;
}

int32_t bs_axes_multiply(const json_t *axes, json_t *points, bs_error *err) {
  size_t total = 1;
  const size_t n = json_array_size(axes);
  const int32_t rc = no_twins(axes, err);
  if (rc != BS_OK) return rc;
  for (size_t i = 0; i < n && total <= BS_SWEEP_POINTS_MAX; i++)
    total *= json_array_size(json_object_get(json_array_get(axes, i), "values"));
  if (total + json_array_size(points) > BS_SWEEP_POINTS_MAX)
    return bs_error_set(err, BS_USAGE, "BS-SWEEP-POINTS", "more than %d points", BS_SWEEP_POINTS_MAX);
  for (size_t p = 0; p < total; p++) {
    json_t *point = json_object();
    size_t each = total, at = p;
    for (size_t i = 0; point != NULL && i < n; i++) {
      const json_t *axis = json_array_get(axes, i), *values = json_object_get(axis, "values");
      each /= json_array_size(values);
      json_object_set(point, json_string_value(json_object_get(axis, "key")),
                      json_array_get(values, at / each));
      at %= each;
    }
    if (json_array_append_new(points, point) != 0) return bs_no_memory(err, "a sweep");
  }
  return BS_OK;
}

static int32_t add_line(char *line, json_t *lines, bs_error *err) {
  json_t *axes = json_array();
  char *rest = NULL;
  int32_t rc = axes == NULL ? bs_no_memory(err, "a sweep") : BS_OK;
  for (char *word = strtok_r(line, " \t\r", &rest); rc == BS_OK && word != NULL && word[0] != '#';
       word = strtok_r(NULL, " \t\r", &rest)) {
    json_t *axis = NULL;
    rc = bs_axis_parse(word, &axis, err);
    if (rc == BS_OK) json_array_append_new(axes, axis);
  }
  if (rc == BS_OK && json_array_size(axes) > 0) json_array_append(lines, axes);
  json_decref(axes);
  return rc;
}

static int32_t read_file(const char *path, char **out, bs_error *err) {
  enum { CAP = 1 << 20 };
  FILE *f = fopen(path, "re");
  if (f == NULL) return bs_error_errno(err, BS_INPUT, "BS-SWEEP-BATCH", errno, "cannot read %.200s", path);
  char *text = malloc(CAP + 1);
  const size_t n = text == NULL ? 0 : fread(text, 1, CAP + 1, f);
  const int bad = ferror(f), saved = errno;
  fclose(f);
  if (text == NULL) return bs_no_memory(err, "a sweep");
  if (!bad && n <= CAP && memchr(text, '\0', n) == NULL) {
    text[n] = '\0';
    *out = text;
    return BS_OK;
  }
  free(text);
  if (bad) return bs_error_errno(err, BS_INPUT, "BS-SWEEP-BATCH", saved, "cannot read %.200s", path);
  return bs_error_set(err, BS_INPUT, "BS-SWEEP-BATCH", "%.200s: %s", path,
                      n > CAP ? "more than 1 MiB" : "it is no text");
}

int32_t bs_axes_batch(const char *path, json_t *lines, bs_error *err) {
  char *text = NULL;
  int number = 0;
  int32_t rc = read_file(path, &text, err);
  for (char *line = text, *end = text; rc == BS_OK && end != NULL; line = end + 1) {
    end = strchr(line, '\n');
    if (end != NULL) *end = '\0';
    number++;
    rc = add_line(line, lines, err);
  }
  free(text);
  if (rc == BS_USAGE) bs_error_where(err, "%.120s:%d", path, number);
  if (rc == BS_OK && json_array_size(lines) == 0)
    return bs_error_set(err, BS_USAGE, "BS-SWEEP-BATCH", "%.200s has no points", path);
  return rc;
}
