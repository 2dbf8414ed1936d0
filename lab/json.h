/* SPDX-License-Identifier: MIT
 * json.h - reading members of JSON objects that may be absent. */
#ifndef BS_LAB_JSON_H
#define BS_LAB_JSON_H
#include <jansson.h>

/* "": absent, or no string. */
static inline const char *bs_get_text(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "";
}

/* 0: absent, or no number. */
static inline double bs_get_number(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

/* A text that may be NULL or not UTF-8: a plugin or a user has written it. */
static inline json_t *bs_json_of_text(const char *text) {
  json_t *value = json_string(text == NULL ? "" : text);
  return value != NULL ? value : json_string("(not UTF-8)");
}
#endif
