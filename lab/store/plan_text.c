/* SPDX-License-Identifier: MIT
 * plan_text.c - see plan_text.h. */
#include "lab/store/plan_text.h"

#include <string.h>

#include "lab/error.h"
#include "lab/store/sha256.h"

enum { MAX_PHASES = 4 };

static int is_key(const json_t *value) {
  const char *text = json_string_value(value);
  return text != NULL && strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static int are_texts(const json_t *list, size_t n) {
  if (json_array_size(list) != n) return 0;
  for (size_t i = 0; i < n; i++)
    if (!json_is_string(json_array_get(list, i))) return 0;
  return 1;
}

static int is_point(const json_t *p, size_t i) {
  const json_t *twin = json_object_get(p, "duplicate_of"), *refused = json_object_get(p, "refused");
  const json_t *layer = json_object_get(p, "layer"), *settings = json_object_get(p, "settings");
  const size_t n = json_array_size(json_object_get(p, "phases"));
  const char *key;
  json_t *value;
  if (json_integer_value(json_object_get(p, "i")) != (json_int_t)i ||
      !is_key(json_object_get(p, "request_key")))
    return 0;
  if (n < 1 || n > MAX_PHASES || !are_texts(json_object_get(p, "phases"), n)) return 0;
  if (!are_texts(json_object_get(p, "configs"), n) || !are_texts(json_object_get(p, "keys"), n)) return 0;
  for (size_t k = 0; k < n; k++)
    if (!is_key(json_array_get(json_object_get(p, "keys"), k))) return 0;
  if (!json_is_object(settings)) return 0;
  json_object_foreach((json_t *)(uintptr_t)settings, key, value) if (!json_is_string(value)) return 0;
  if (!json_is_null(twin) &&
      (!json_is_integer(twin) || json_integer_value(twin) < 0 || (size_t)json_integer_value(twin) >= i))
    return 0;
  return (json_is_null(refused) || json_is_string(refused)) && (json_is_null(layer) || is_key(layer)) &&
         json_is_boolean(json_object_get(p, "alone"));
}

static int32_t corrupt(const char *what, const char **out_why) {
  *out_why = what;
  return BS_CORRUPT;
}

/* The lines between the first and the last. */
static int32_t read_points(const char *text, const char *end, json_t *points, const char **out_why,
                           bs_error *err) {
  while (text < end) {
    const char *line_end = memchr(text, '\n', (size_t)(end - text));
    if (line_end == NULL) return corrupt("a line has no end", out_why);
    json_t *point = json_loadb(text, (size_t)(line_end - text), 0, NULL);
    const size_t i = json_array_size(points);
    if (point == NULL || i >= BS_PLAN_POINTS || !is_point(point, i)) {
      json_decref(point);
      return corrupt("a line is no point", out_why);
    }
    if (json_array_append_new(points, point) != 0) return bs_no_memory(err, "a plan");
    text = line_end + 1;
  }
  return BS_OK;
}

static int32_t read_text(const char *text, size_t size, json_t **out_header, json_t *points,
                         const char **out_why, bs_error *err) {
  char hex[65];
  bs_sha256 h;
  if (size > BS_PLAN_BYTES) return corrupt("it has more than 64 MiB", out_why);
  if (size == 0 || text[size - 1] != '\n') return corrupt("it is torn", out_why);
  const char *last = memrchr(text, '\n', size - 1);
  if (last == NULL) return corrupt("it is torn", out_why);
  last++;
  json_t *tail = json_loadb(last, (size_t)(text + size - last), 0, NULL);
  const char *sum = json_string_value(json_object_get(tail, "sha256"));
  bs_sha256_init(&h);
  bs_sha256_add(&h, text, (size_t)(last - text));
  bs_sha256_hex(&h, hex);
  const int whole = sum != NULL && strcmp(sum, hex) == 0;
  const json_int_t n = json_integer_value(json_object_get(tail, "n"));
  json_decref(tail);
  if (!whole) return corrupt("its sum does not match", out_why);
  const char *first = memchr(text, '\n', size);
  *out_header = json_loadb(text, (size_t)(first - text), 0, NULL);
  if (!json_is_object(*out_header)) return corrupt("it has no header", out_why);
  const json_t *format = json_object_get(*out_header, "format");
  if (format != NULL && (!json_is_integer(format) || json_integer_value(format) != BS_PLAN_FORMAT)) {
    *out_why = "its format is not 1: another version of bsrun has written it";
    return BS_INPUT;
  }
  const int32_t rc = read_points(first + 1, last, points, out_why, err);
  if (rc == BS_OK && (json_int_t)json_array_size(points) != n) return corrupt("points are missing", out_why);
  return rc;
}

int32_t bs_plan_text_read(const char *text, size_t size, json_t **out_header, json_t **out_points,
                          const char **out_why, bs_error *err) {
  json_t *points = json_array(), *header = NULL;
  *out_why = NULL;
  const int32_t rc =
      points != NULL ? read_text(text, size, &header, points, out_why, err) : bs_no_memory(err, "a plan");
  if (rc != BS_OK) {
    json_decref(header);
    json_decref(points);
    header = points = NULL;
  }
  *out_header = header;
  *out_points = points;
  return rc;
}
