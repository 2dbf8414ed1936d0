/* SPDX-License-Identifier: MIT
 * specs.c - rungs that are named one by one, each by its settings over the same configuration: the two sides
 * of `bsrun compare SPEC SPEC`. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "lab/config/schema.h"
#include "lab/config/short_names.h"
#include "lab/ladder/ladder.h"

static int32_t refuse(const char *word, const char *why, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-COMPARE-SPEC", "'%.100s': %s", word, why);
  bs_error_hint(err, "KEY=VALUE words with spaces between, as in 'method=row_parallel model.N=1024'");
  return BS_USAGE;
}

/* A key of the schema that changes a run, or an option of a plugin. */
static int32_t check_key(const char *word, const char *key, bs_error *err) {
  const bs_key *known = bs_schema_find(key);
  const char *names[BS_SHORT_NAMES_MAX];
  if (known != NULL && bs_key_varies(known)) return BS_OK;
  if (known == NULL && (strncmp(key, "method.", 7) == 0 || strncmp(key, "workload.", 9) == 0)) return BS_OK;
  const char *nearest = bs_nearest(key, names, bs_short_names(names));
  refuse(word, "not a key that changes a run", err);
  if (nearest != NULL) bs_error_hint(err, "did you mean '%s'? bsrun config keys lists all keys", nearest);
  return BS_USAGE;
}

static int32_t add_word(bs_rung *r, const char *word, size_t length, bs_error *err) {
  char text[96], name[64];
  if (length >= sizeof text) return refuse(word, "longer than any setting", err);
  snprintf(text, sizeof text, "%.*s", (int)length, word);
  const size_t until = strcspn(text, "=");
  if (text[until] != '=' || until == 0 || until >= sizeof name || text[until + 1] == '\0')
    return refuse(text, "no KEY=VALUE", err);
  snprintf(name, sizeof name, "%.*s", (int)until, text);
  const char *key = bs_short_name_key(name);
  const int32_t rc = check_key(text, key, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < r->n_settings; i++)
    if (strncmp(r->settings[i], key, strlen(key)) == 0 && r->settings[i][strlen(key)] == '=')
      return refuse(text, "the key is given twice", err);
  if (r->n_settings == BS_RUNG_SETTINGS) return refuse(text, "more than 10 settings", err);
  const int n = snprintf(r->settings[r->n_settings], sizeof r->settings[0], "%s=%s", key, text + until + 1);
  if (n < 0 || (size_t)n >= sizeof r->settings[0]) return refuse(text, "longer than any setting", err);
  r->n_settings++;
  return BS_OK;
}

int32_t bs_ladder_specs(const bs_ladder_options *o, bs_ladder *ladder, bs_error *err) {
  for (size_t i = 0; i < o->n_specs; i++) {
    bs_rung r = {.n_settings = 0};
    snprintf(r.name, sizeof r.name, "%c", (char)('A' + i));
    const char *at = o->specs[i] + strspn(o->specs[i], " ");
    int32_t rc = *at == '\0' ? refuse(o->specs[i], "empty", err) : BS_OK;
    while (rc == BS_OK && *at != '\0') {
      const size_t length = strcspn(at, " ");
      rc = add_word(&r, at, length, err);
      at += length + strspn(at + length, " ");
    }
    if (rc == BS_OK) rc = bs_ladder_append(ladder, &r, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}
