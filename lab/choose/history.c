/* SPDX-License-Identifier: MIT
 * history.c - see history.h. The file is read with distrust: anyone may have edited or torn it. */
#include "lab/choose/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lab/error.h"
#include "lab/json.h"
#include "lab/store/store.h"

const char *const bs_verdict_names[5] = {"ok", "failed", "wrong", "refused", "late"};
static const bs_lines_words words = {"BS-TUNE-IO", "BS-TUNE-LOCK",
                                     "--points FILE chooses another place, --points off none", 0};

static int is_verdict(const char *text) {
  for (size_t i = 0; i < 5; i++)
    if (strcmp(text, bs_verdict_names[i]) == 0) return 1;
  return 0;
}

int bs_history_is_entry(const json_t *e) {
  static const char *const texts[] = {"problem", "provider", "plugin", "regime", "config", "verdict"};
  if (json_integer_value(json_object_get(e, "format")) != 1 ||
      !json_is_object(json_object_get(e, "machine")) || !json_is_integer(json_object_get(e, "threads")) ||
      !json_is_integer(json_object_get(e, "effort")))
    return 0;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    if (!json_is_string(json_object_get(e, texts[i]))) return 0;
  if (!is_verdict(bs_get_text(e, "verdict"))) return 0;
  const double seconds = json_number_value(json_object_get(e, "seconds"));
  return strcmp(bs_get_text(e, "verdict"), "ok") != 0 || (isfinite(seconds) && seconds > 0.0);
}

static enum bs_line judge(void *user, const json_t *e) {
  const bs_history_key *key = user;
  uint64_t point = 0;
  if (!bs_history_is_entry(e)) return BS_LINE_BROKEN;
  const int same = strcmp(bs_get_text(e, "problem"), key->problem) == 0 &&
                   strcmp(bs_get_text(e, "provider"), key->provider) == 0 &&
                   strcmp(bs_get_text(e, "plugin"), key->plugin) == 0 &&
                   strcmp(bs_get_text(e, "regime"), key->regime) == 0 &&
                   json_is_string(json_object_get(e, "how")) &&
                   strcmp(bs_get_text(e, "how"), key->how) == 0 &&
                   json_equal(json_object_get(e, "settings"), key->settings) &&
                   strcmp(bs_get_text(e, "backend"), key->backend) == 0 &&
                   json_integer_value(json_object_get(e, "threads")) == (json_int_t)key->threads &&
                   json_equal(json_object_get(e, "machine"), key->machine);
  return same && bs_space_find(key->space, bs_get_text(e, "config"), &point) ? BS_LINE_HOLDS
                                                                             : BS_LINE_FOREIGN;
}

static json_int_t effort_of(const bs_history *h, size_t entry) {
  return json_integer_value(json_object_get(json_array_get(h->lines.entries, entry), "effort"));
}

/* Indexes entry number h->n: its point, and whether it is the valid entry for the point. */
static int32_t index_entry(bs_history *h, uint64_t point, bs_error *err) {
  if (h->n == h->capacity) {
    const size_t capacity = h->capacity == 0 ? 64 : 2 * h->capacity;
    uint64_t *grown = realloc(h->point, capacity * sizeof *grown);
    if (grown == NULL) return bs_no_memory(err, "measured points");
    h->point = grown;
    h->capacity = capacity;
  }
  const uint32_t before = h->entry[point];
  h->point[h->n] = point;
  if (before == 0 || effort_of(h, h->n) >= effort_of(h, before - 1)) h->entry[point] = (uint32_t)h->n + 1;
  h->n++;
  return BS_OK;
}

int32_t bs_history_open(const char *path, const bs_history_key *key, bs_history *out, bs_error *err) {
  *out = (bs_history){.key = *key};
  int32_t rc = bs_lines_open(&words, path, judge, &out->key, &out->lines, err);
  out->entry = calloc(key->space->size, sizeof *out->entry);
  if (rc == BS_OK && out->entry == NULL) rc = bs_no_memory(err, "measured points");
  for (size_t i = 0; rc == BS_OK && i < json_array_size(out->lines.entries); i++) {
    uint64_t point = 0;
    bs_space_find(key->space, bs_get_text(json_array_get(out->lines.entries, i), "config"), &point);
    rc = index_entry(out, point, err);
  }
  return rc;
}

void bs_history_close(bs_history *h) {
  bs_lines_close(&h->lines);
  free(h->point);
  free(h->entry);
  h->point = NULL;
  h->entry = NULL;
}

const json_t *bs_history_find(const bs_history *h, uint64_t point) {
  return h->entry[point] > 0 ? json_array_get(h->lines.entries, h->entry[point] - 1) : NULL;
}

double bs_history_seconds(const json_t *e) {
  return strcmp(bs_get_text(e, "verdict"), "ok") == 0 ? json_number_value(json_object_get(e, "seconds"))
                                                      : INFINITY;
}

int32_t bs_history_add(bs_history *h, uint64_t point, json_t *result, bs_error *err) {
  const bs_history_key *k = &h->key;
  char config[BS_SPACE_TEXT], stamp[16];
  bs_store_stamp(stamp);
  json_t *entry =
      json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:s,s:O,s:i,s:O,s:s,s:s}", "format", 1, "problem", k->problem,
                "provider", k->provider, "plugin", k->plugin, "how", k->how, "backend", k->backend, "regime",
                k->regime, "settings", k->settings, "threads", (int)k->threads, "machine", k->machine,
                "config", bs_space_text(k->space, point, config, sizeof config), "measured_at", stamp);
  const int bad = entry == NULL || json_object_update_missing(entry, result) != 0;
  json_decref(result);
  if (bad || json_array_append_new(h->lines.entries, entry) != 0) {
    if (bad) json_decref(entry);
    return bs_no_memory(err, "a measured point");
  }
  const int32_t rc = index_entry(h, point, err);
  return rc != BS_OK ? rc : bs_lines_append(&h->lines, entry, err);
}
