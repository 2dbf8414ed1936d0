/* SPDX-License-Identifier: MIT
 * hf_config.c - keys of config.json, each held against what it may be. An error names the key and the value
 * that was seen. Called by hf.c, gpt2.c and llama.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/import/gguf.h"

/* The value of a key or of "object.key"; NULL: absent or null. */
static json_t *find(const hf_build *b, const char *key) {
  char first[64];
  const char *dot = strchr(key, '.');
  json_t *value = b->config;
  if (dot != NULL && (size_t)(dot - key) < sizeof first) {
    memcpy(first, key, (size_t)(dot - key));
    first[dot - key] = '\0';
    value = json_object_get(value, first);
    key = dot + 1;
  }
  value = json_object_get(value, key);
  return json_is_null(value) ? NULL : value;
}

int hf_has_key(const hf_build *b, const char *key) {
  return find(b, key) != NULL;
}

/* Null counts as a value. */
int hf_is_null(const hf_build *b, const char *key) {
  return strchr(key, '.') == NULL && json_is_null(json_object_get(b->config, key));
}

int64_t hf_count(const hf_build *b, const char *key) {
  const json_t *value = find(b, key);
  if (json_is_array(value)) return (int64_t)json_array_size(value);
  return json_is_object(value) ? (int64_t)json_object_size(value) : -1;
}

const char *hf_item(const hf_build *b, const char *key, int64_t i) {
  return json_string_value(json_array_get(find(b, key), (size_t)i));
}

int hf_list_has_int(const hf_build *b, const char *key, int64_t number) {
  const json_t *list = find(b, key);
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *item = json_array_get(list, i);
    if (json_is_integer(item) && json_integer_value(item) == number) return 1;
  }
  return 0;
}

static void bad(hf_build *b, const char *key, const char *want) {
  json_t *value = find(b, key);
  char *text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
  if (b->rc != BS_OK) {
    free(text);
    return;
  }
  char own[GGUF_NAME];
  if (b->weights->gguf != NULL) key = gguf_key_name(b->weights->gguf, key, own);
  b->rc = bs_error_set(b->err, BS_INPUT, "BS-HF-CONFIG", "key '%s' is %.100s; %s", key,
                       text != NULL ? text : "not there", want);
  bs_error_where(b->err, "%s", b->config_path);
  free(text);
}

void hf_refuse(hf_build *b, const char *key, const char *known) {
  bad(b, key, known);
}

int64_t hf_list_int(hf_build *b, const char *key, int64_t i, int64_t least, int64_t most) {
  char want[96];
  const json_t *item = json_array_get(find(b, key), (size_t)i);
  if (b->rc != BS_OK) return least;
  if (json_is_integer(item) && json_integer_value(item) >= least && json_integer_value(item) <= most)
    return json_integer_value(item);
  snprintf(want, sizeof want, "it must be a list of whole numbers from %" PRId64 " to %" PRId64, least, most);
  bad(b, key, want);
  return least;
}

int64_t hf_int(hf_build *b, const char *key, int64_t least, int64_t most, int64_t otherwise) {
  char want[96];
  const json_t *value = find(b, key);
  if (b->rc != BS_OK) return least;
  if (value == NULL && otherwise >= least) return otherwise;
  if (json_is_integer(value) && json_integer_value(value) >= least && json_integer_value(value) <= most)
    return json_integer_value(value);
  snprintf(want, sizeof want, "it must be a whole number from %" PRId64 " to %" PRId64, least, most);
  bad(b, key, want);
  return least;
}

int64_t hf_layers(hf_build *b, const char *key) {
  const int64_t all = hf_int(b, key, 1, 4096, 0);
  b->model->all_layers = all;
  b->model->layers = b->layers > 0 && b->layers < all ? b->layers : all;
  return b->model->layers;
}

double hf_real(hf_build *b, const char *key, double otherwise) {
  const json_t *value = find(b, key);
  if (b->rc != BS_OK || (value == NULL && otherwise > 0)) return otherwise;
  const double number = json_is_number(value) ? json_number_value(value) : 0;
  if (number > 0 && isfinite(number)) return number;
  bad(b, key, "it must be a number above 0");
  return 1;
}

void hf_reals(hf_build *b, const char *key, int64_t count, float *out_numbers) {
  char want[64];
  const json_t *list = find(b, key);
  int ok = json_is_array(list) && (int64_t)json_array_size(list) == count;
  for (int64_t i = 0; ok && i < count; i++) {
    out_numbers[i] = (float)json_number_value(json_array_get(list, (size_t)i));
    ok = out_numbers[i] > 0 && isfinite(out_numbers[i]);
  }
  snprintf(want, sizeof want, "it must be a list of %" PRId64 " numbers above 0", count);
  if (!ok) bad(b, key, want);
}

void hf_known_keys(hf_build *b, const char *object, const char *const *known) {
  json_t *all = find(b, object);
  if (!json_is_object(all)) bad(b, object, "it must be an object");
  for (void *at = json_object_iter(all); at != NULL; at = json_object_iter_next(all, at)) {
    const char *key = json_object_iter_key(at);
    char name[160];
    size_t i = 0;
    while (known[i] != NULL && strcmp(known[i], key) != 0) i++;
    if (known[i] != NULL || json_is_null(json_object_iter_value(at))) continue;
    snprintf(name, sizeof name, "%.40s.%.100s", object, key);
    bad(b, name, "a key that is not known");
  }
}

int hf_bool(hf_build *b, const char *key, int otherwise) {
  const json_t *value = find(b, key);
  if (value == NULL) return otherwise;
  if (!json_is_boolean(value)) bad(b, key, "it must be true or false");
  return json_is_true(value);
}

const char *hf_text(hf_build *b, const char *key, const char *otherwise) {
  const json_t *value = find(b, key);
  if (value == NULL && otherwise != NULL) return otherwise;
  if (json_is_string(value)) return json_string_value(value);
  bad(b, key, "it must be a text");
  return "";
}
