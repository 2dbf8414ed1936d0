/* SPDX-License-Identifier: MIT
 * cache.c - see cache.h. Every entry is checked on reading: users may have edited the file, crashes may have
 * cut it. */
#include "lab/tune/cache.h"

#include <stdio.h>
#include <string.h>

#include "lab/error.h"
#include "lab/measure/constants.h"
#include "lab/store/store.h"

static const bs_lines_words words = {"BS-TUNE-IO", "BS-TUNE-LOCK",
                                     "--tune-cache FILE chooses another place, --tune-cache off none", 0};

static int is_text(const json_t *object, const char *key) {
  return json_is_string(json_object_get(object, key));
}

/* Are the numbers of a measured candidate valid, if there are any? */
static int is_measured(const json_t *row) {
  static const char *const numbers[] = {"ratio", "low", "high", "seconds", "default_seconds", "pairs"};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    const json_t *value = json_object_get(row, numbers[i]);
    if (value != NULL && !(json_is_number(value) && json_number_value(value) >= 0.0)) return 0;
  }
  return 1;
}

/* Everything that the rest relies on. */
static int is_entry(const json_t *e) {
  size_t i;
  const json_t *candidates = json_object_get(e, "candidates"), *c;
  if (json_integer_value(json_object_get(e, "format")) != 1 || !is_text(e, "key") || !is_text(e, "choice") ||
      !is_text(e, "default") || !json_is_object(json_object_get(e, "machine")) ||
      json_array_size(candidates) == 0 || json_object_get(e, "pending") != NULL)
    return 0;
  int chosen = 0;
  json_array_foreach(candidates, i, c) {
    if (!is_text(c, "name") || !is_text(c, "how") || !is_text(c, "plugin") || !is_measured(c) ||
        !is_measured(json_object_get(c, "again")))
      return 0;
    chosen |= bs_tune_names(bs_tune_text(e, "choice"), bs_tune_text(c, "name"));
  }
  return chosen;
}

static enum bs_line judge_line(void *user, const json_t *entry) {
  const bs_tune_cache *cache = user;
  if (!is_entry(entry)) return BS_LINE_BROKEN;
  return json_equal(json_object_get(entry, "machine"), cache->machine) ? BS_LINE_HOLDS : BS_LINE_FOREIGN;
}

int32_t bs_tune_cache_open(const char *path, bs_tune_cache *out, bs_error *err) {
  out->machine = bs_constants_key();
  json_object_del(out->machine, "library_build_id"); /* each candidate has its plugin's */
  const int32_t rc = bs_lines_open(&words, path, judge_line, out, &out->lines, err);
  return rc == BS_OK && out->machine == NULL ? bs_no_memory(err, "the tuning file") : rc;
}

int bs_tune_cache_broken(const bs_tune_cache *cache, char *out, size_t size) {
  const size_t n = cache->lines.broken;
  if (n > 0)
    snprintf(out, size, "%zu line%s of %.300s cannot be read as a tuning entry: skipped", n,
             n == 1 ? "" : "s", cache->lines.path);
  return n > 0;
}

void bs_tune_cache_close(bs_tune_cache *cache) {
  json_decref(cache->machine);
  bs_lines_close(&cache->lines);
}

json_t *bs_tune_entry(const bs_tune_cache *cache, const json_t *asked, const char *choice,
                      const json_t *results) {
  char stamp[16];
  size_t i;
  json_t *c, *candidates = json_deep_copy(json_object_get(asked, "candidates"));
  json_array_foreach(candidates, i, c) {
    const json_t *result = bs_tune_row(results, bs_tune_text(c, "name"));
    if (result != NULL) json_object_update(c, (json_t *)(uintptr_t)result);
  }
  bs_store_stamp(stamp);
  return json_pack("{s:i,s:O,s:s,s:O,s:O,s:o,s:s,s:s}", "format", 1, "key", json_object_get(asked, "key"),
                   "choice", choice, "default", json_object_get(asked, "default"), "machine", cache->machine,
                   "candidates", candidates, "measured_at", stamp, "blockshock", bs_version());
}

/* Is `c` among the entry's candidates, the same plugin file answering the same? */
static int known(const json_t *entry, const json_t *c) {
  const json_t *row = bs_tune_row(json_object_get(entry, "candidates"), bs_tune_text(c, "name"));
  return row != NULL && json_equal(json_object_get(row, "how"), json_object_get(c, "how")) &&
         json_equal(json_object_get(row, "plugin"), json_object_get(c, "plugin"));
}

static int fits(const json_t *entry, const json_t *asked) {
  size_t i;
  const json_t *c;
  int chosen = 0;
  if (!json_equal(json_object_get(entry, "key"), json_object_get(asked, "key"))) return 0;
  json_array_foreach(json_object_get(asked, "candidates"), i, c) {
    if (!known(entry, c)) return 0;
    chosen = chosen || bs_tune_names(bs_tune_text(entry, "choice"), bs_tune_text(c, "name"));
  }
  return chosen;
}

const json_t *bs_tune_cache_find(const bs_tune_cache *cache, const json_t *asked, const json_t *restriction) {
  const json_t *partial = NULL;
  for (size_t i = json_array_size(cache->lines.entries); i-- > 0;) {
    const json_t *entry = json_array_get(cache->lines.entries, i),
                 *of = json_object_get(entry, "restriction");
    if (!fits(entry, asked)) continue;
    if (json_object_size(restriction) > 0 ? json_equal(of, restriction) : of == NULL) return entry;
    if (restriction == NULL && partial == NULL) partial = entry;
  }
  return partial;
}
