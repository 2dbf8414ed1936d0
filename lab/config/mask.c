/* SPDX-License-Identifier: MIT
 * mask.c - the keys mask.*: names and patterns, shares, seed, the measure of importance, and whether the mask
 * is passed to the method. */
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "lab/config/experiment_read.h"
#include "lab/config/schema.h"
#include "lab/error.h"

/* Pattern as text: "1100", or [1, 1, 0, 0] joined by '-' so that every entry must be one digit. */
static char *pattern_text(const bs_node *config, const char *path) {
  const bs_node *node = bs_config_find(config, path);
  if (node == NULL || node->kind == BS_NODE_NULL) return NULL;
  if (node->kind == BS_NODE_SCALAR) return bs_strdup(node->text);
  bs_text text = {0};
  for (const bs_node *item = node->first; item != NULL; item = item->next) {
    const int digit = item->kind == BS_NODE_SCALAR && item->text[0] != '\0' && item->text[1] == '\0';
    bs_text_printf(&text, "%s%s", item == node->first ? "" : "-", digit ? item->text : "?");
  }
  return text.data == NULL ? bs_strdup("") : text.data;
}

/* mask.shares, or the same by the devices' speeds: a rank's part of the columns is its part of the speed, so
 * that all are done at the same time. */
static int32_t read_shares(bs_experiment *e, bs_error *err) {
  const int by_speed = given(e->config, "mask.speeds");
  if (by_speed && given(e->config, "mask.shares")) {
    (void)bs_schema_refuse(bs_config_find(e->config, "mask.speeds"), err, "BS-CFG-SHARES",
                           "mask.speeds and mask.shares set the same thing");
    bs_error_hint(err, "give one of them");
    return BS_CONFIG;
  }
  const bs_node *list = bs_config_find(e->config, by_speed ? "mask.speeds" : "mask.shares");
  uint32_t n = 0;
  if (list == NULL || list->kind != BS_NODE_LIST) return BS_OK;
  for (const bs_node *item = list->first; item != NULL; item = item->next) n++;
  double *shares = calloc(n == 0 ? 1 : n, sizeof *shares);
  if (shares == NULL) return bs_no_memory(err, "a configuration");
  n = 0;
  for (const bs_node *item = list->first; item != NULL; item = item->next)
    bs_parse_f64(item->text, &shares[n++]);
  e->mask.shares = shares;
  e->mask.n_shares = n;
  return BS_OK;
}

/* Notes a typed key of another kind of mask: it has no effect. */
static void note_idle(const bs_experiment *e, const char *path, int used, const char *quiet_dir,
                      bs_notes *notes) {
  if (!used && given(e->config, path) && !is_shipped(bs_config_find(e->config, path), quiet_dir))
    bs_note_add(notes, "%s has no effect on the mask %s", path, e->mask.name);
}

int64_t bs_mixed_wanted(uint32_t n, const char *const *keys, const char *const *values) {
  for (uint32_t i = 0; i < n; ++i)
    if (strcmp(keys[i], "mixed") == 0 && values[i][0] != '\0') return strtoll(values[i], NULL, 10);
  return -1;
}

static int32_t read_details(bs_experiment *e, const char *quiet_dir, bs_notes *notes, bs_error *err) {
  const int mixed = bs_mixed_wanted(e->n_method_options, e->method_keys, e->method_values) >= 0;
  const int by_order = e->mask.kind == BS_MASK_IMPORTANCE, ordered = by_order || mixed;
  const int shared = by_order || e->mask.kind == BS_MASK_UNEVEN;
  e->mask.seed = (uint64_t)bs_schema_i64(e->config, "mask.seed");
  e->importance = ordered ? bs_schema_str(e->config, "mask.importance") : NULL;
  if (mixed && !given(e->config, "mask.importance")) e->importance = "ranges";
  note_idle(e, "mask.shares", shared, quiet_dir, notes);
  note_idle(e, "mask.speeds", shared, quiet_dir, notes);
  note_idle(e, "mask.importance", ordered, quiet_dir, notes);
  return shared ? read_shares(e, err) : BS_OK;
}

/* Is the mask passed to the method? Each method lists the kinds that it uses. Without a context (the
 * configuration is only printed) there is no method to ask, and the answer is yes. */
static int mask_serves(bs_context *context, const char *name, const bs_mask *mask) {
  const bs_method *method = NULL;
  void *state = NULL;
  if (context == NULL || bs_find_method(context, name, &method, &state, NULL) != BS_OK) return 1;
  return (int)(method->mask_kinds >> mask->kind & 1u);
}

int32_t bs_experiment_mask(bs_context *context, bs_experiment *e, const char *quiet_dir, bs_notes *notes,
                           bs_error *err) {
  const char *use = bs_schema_str(e->config, "mask.use");
  const char *name = bs_schema_str(e->config, "mask.name");
  char *a = pattern_text(e->config, given(e->config, "mask.pattern_a") ? "mask.pattern_a" : "mask.pattern");
  char *b = pattern_text(e->config, "mask.pattern_b");
  int32_t rc = BS_OK;
  if (name != NULL || a != NULL) {
    rc = bs_mask_parse(name, a, b, &e->mask, err);
    if (rc != BS_OK) {
      bs_schema_where(bs_config_find(e->config, a != NULL ? "mask.pattern_a" : "mask.name"), err);
    } else {
      rc = read_details(e, quiet_dir, notes, err);
      /* base.yaml names a mask for methods that use one; the user did not type it. */
      const int typed =
          strcmp(use, "always") == 0 || !is_shipped(bs_config_find(e->config, "mask.name"), quiet_dir);
      const int serves = mask_serves(context, e->method, &e->mask);
      if (typed && !serves && strcmp(use, "never") != 0)
        bs_note_add(notes, "mask %s has no effect: %s splits without it", e->mask.name, e->method);
      e->mask_given = strcmp(use, "never") != 0 && serves;
    }
  }
  free(a);
  free(b);
  return rc;
}
