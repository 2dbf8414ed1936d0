/* SPDX-License-Identifier: MIT
 * vary.c - copies every rung for each value of a key. It covers what the lists of methods, masks, overlap and
 * reduce dtypes have no axis for (kernels, slices, placements, threads), all in one sampling. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/op/knob.h"
#include "core/plugin/registry.h"
#include "lab/config/schema.h"
#include "lab/ladder/ladder.h"

enum { MAX_VALUES = 16 };

typedef struct axis {
  char key[64], text[256]; /* text: the values, split in place */
  const char *value[MAX_VALUES];
  uint32_t n;
  int of_methods; /* an option that only some methods have */
} axis;

static int32_t refuse(const char *asked, const char *why, bs_error *err) {
  bs_error_set(err, BS_CONFIG, "BS-AUTO-VARY", "--vary %.100s: %s", asked, why);
  bs_error_hint(err, "KEY=V1,V2 of method, mask or hardware, for example method.kernel=gather,sparse24");
  return BS_CONFIG;
}

static int32_t read_axis(const char *asked, axis *out, bs_error *err) {
  const size_t length = strcspn(asked, "=");
  memset(out, 0, sizeof *out);
  if (asked[length] != '=' || length == 0) return refuse(asked, "no values", err);
  if (length >= sizeof out->key || strlen(asked + length + 1) >= sizeof out->text)
    return refuse(asked, "longer than anything of that kind", err);
  snprintf(out->key, sizeof out->key, "%.*s", (int)length, asked);
  snprintf(out->text, sizeof out->text, "%s", asked + length + 1);
  const bs_key *known = bs_schema_find(out->key);
  const int of_layer = strncmp(out->key, "method.", 7) == 0 || strncmp(out->key, "mask.", 5) == 0 ||
                       strncmp(out->key, "hardware.", 9) == 0;
  out->of_methods = known == NULL && strncmp(out->key, "method.", 7) == 0;
  if (!of_layer || (!out->of_methods && (known == NULL || !bs_key_varies(known))))
    return refuse(asked, "not a key of how a layer is split", err);
  for (char *at = out->text; at != NULL;) {
    char *next = strchr(at, ',');
    if (next != NULL) *next++ = '\0';
    if (at[0] == '\0') return refuse(asked, "an empty value", err);
    if (out->n == MAX_VALUES) return refuse(asked, "more than 16 values", err);
    out->value[out->n++] = at;
    at = next;
  }
  return BS_OK;
}

/* The index of the rung's setting of the key; n_settings: not set. */
static uint32_t place_of(const bs_rung *r, const char *key) {
  const size_t length = strlen(key);
  uint32_t at = 0;
  while (at < r->n_settings && (strncmp(r->settings[at], key, length) != 0 || r->settings[at][length] != '='))
    at++;
  return at;
}

static const char *setting_of(const bs_rung *r, const char *key) {
  const uint32_t at = place_of(r, key);
  return at < r->n_settings ? r->settings[at] + strlen(key) + 1 : NULL;
}

/* Does the key mean something to the rung's method? */
static int takes(bs_context *context, const axis *a, const bs_rung *r) {
  const bs_method *method = NULL;
  void *state = NULL;
  const char *name = setting_of(r, "method.name");
  if (!a->of_methods) return 1;
  if (name == NULL || bs_find_method(context, name, &method, &state, NULL) != BS_OK) return 0;
  return bs_option_listed(method->option_docs, a->key + strlen("method."));
}

/* The short form of a key in names of rungs. */
static const char *word_of(const char *key) {
  if (strcmp(key, "method.x_placement") == 0) return "x";
  if (strcmp(key, "method.y_placement") == 0) return "y";
  return strrchr(key, '.') + 1;
}

/* Takes " WORD=VALUE" of a key out of a rung's name. */
static void unname(bs_rung *r, const char *word, const char *value) {
  char text[sizeof r->name];
  snprintf(text, sizeof text, " %s=%s", word, value);
  const size_t length = strlen(text);
  for (char *at = r->name; (at = strstr(at, text)) != NULL; at += 1)
    if (at[length] == ' ' || at[length] == '\0') {
      memmove(at, at + length, strlen(at + length) + 1);
      return;
    }
}

/* Copies the rung with one more value, which replaces its value of that key. */
static int32_t with(const bs_rung *r, const axis *a, const char *value, bs_rung *out, bs_error *err) {
  const char *word = word_of(a->key), *old = setting_of(r, a->key);
  const uint32_t at = place_of(r, a->key);
  *out = *r;
  if (old != NULL) unname(out, word, old);
  if (at == BS_RUNG_SETTINGS)
    return bs_error_set(err, BS_CONFIG, "BS-AUTO-VARY", "--vary %s: a candidate has no room for more",
                        a->key);
  if (at == out->n_settings) out->n_settings++;
  const int n = snprintf(out->settings[at], sizeof out->settings[at], "%s=%s", a->key, value);
  if (n < 0 || (size_t)n >= sizeof out->settings[at])
    return bs_error_set(err, BS_CONFIG, "BS-AUTO-VARY", "--vary %s: '%.60s' is too long", a->key, value);
  const size_t used = strlen(out->name);
  snprintf(out->name + used, sizeof out->name - used, " %s=%s", word, value);
  return BS_OK;
}

static int32_t vary(bs_context *context, const axis *a, bs_ladder *ladder, bs_error *err) {
  const bs_ladder old = *ladder;
  uint32_t varied = 0;
  int32_t rc = BS_OK;
  ladder->rungs = NULL;
  ladder->n = 0;
  for (uint32_t i = 0; rc == BS_OK && i < old.n; i++) {
    const bs_rung *r = &old.rungs[i];
    const int fixed = i + old.beside >= old.n || !takes(context, a, r);
    varied += !fixed;
    if (fixed) rc = bs_ladder_add(ladder, r, err);
    for (uint32_t v = 0; rc == BS_OK && !fixed && v < a->n; v++) {
      bs_rung more;
      rc = with(r, a, a->value[v], &more, err);
      if (rc == BS_OK) rc = bs_ladder_add(ladder, &more, err);
    }
  }
  free(old.rungs);
  return rc == BS_OK && varied == 0 ? refuse(a->key, "none of the methods has that option", err) : rc;
}

int32_t bs_ladder_vary(bs_context *context, const bs_ladder_options *o, bs_ladder *ladder, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < o->n_vary; i++) {
    axis a;
    rc = read_axis(o->vary[i], &a, err);
    if (rc == BS_OK) rc = vary(context, &a, ladder, err);
  }
  return rc;
}
