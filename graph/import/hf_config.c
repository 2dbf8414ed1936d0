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

int hf_list_has(const hf_build *b, const char *key, const char *text) {
  const json_t *list = find(b, key);
  size_t i = 0;
  if (!json_is_array(list)) return -1;
  while (i < json_array_size(list)) {
    const char *item = json_string_value(json_array_get(list, i++));
    if (item != NULL && strcmp(item, text) == 0) return 1;
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
