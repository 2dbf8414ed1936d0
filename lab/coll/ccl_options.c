/* SPDX-License-Identifier: MIT
 * ccl_options.c - an algorithm by its name, with the options that it declares. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/plugin/plugins.h"
#include "lab/coll/ccl.h"

static uint32_t n_params(const bs_algorithm *a) {
  uint32_t n = 0;
  while (a->params != NULL && n < BS_ALGORITHM_MAX_OPTIONS && a->params[n] != NULL) ++n;
  return n;
}

static int32_t set(bs_ccl *c, uint32_t i, const char *text, bs_error *err) {
  const bs_param_desc *d = c->algorithm->params[i];
  free(c->texts[i]);
  c->texts[i] = bs_strdup(text);
  if (c->texts[i] == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  c->options[i] = (bs_value){.struct_size = sizeof c->options[i], .type = d->type};
  if (bs_param_parse(d, c->texts[i], &c->options[i]) == 1) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-CCL-OPTION", "option %s of the algorithm %s: '%.80s' is not a value of it",
               d->name, c->algorithm->name, text);
  bs_error_hint(err, "%s%s", d->choices != NULL ? "one of " : d->doc, d->choices != NULL ? d->choices : "");
  return BS_USAGE;
}

static int32_t set_given(bs_ccl *c, const char *given, bs_error *err) {
  const char *names[BS_ALGORITHM_MAX_OPTIONS], *value = strchr(given, '=');
  const uint32_t n = n_params(c->algorithm);
  char key[64] = "";
  if (value == NULL || (size_t)(value - given) >= sizeof key)
    return bs_error_set(err, BS_USAGE, "BS-CCL-OPTION", "'%.80s' is not KEY=VALUE", given);
  memcpy(key, given, (size_t)(value - given));
  for (uint32_t i = 0; i < n; ++i) {
    names[i] = c->algorithm->params[i]->name;
    if (strcmp(names[i], key) == 0) return set(c, i, value + 1, err);
  }
  const char *nearest = bs_nearest(key, names, n);
  bs_error_set(err, BS_USAGE, "BS-CCL-OPTION", "the algorithm %s has no option '%.60s'", c->algorithm->name,
               key);
  if (nearest != NULL) bs_error_hint(err, "did you mean '%s'?", nearest);
  if (nearest == NULL) bs_error_hint(err, "bsrun coll list shows the options of each");
  return BS_USAGE;
}

/* The thing that registered this name: its plugin and file. */
static void find_thing(bs_context *context, bs_ccl *c) {
  for (uint32_t i = 0; i < bs_plugin_count(context); ++i) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) != BS_OK || info.state != BS_PLUGIN_ACTIVE) continue;
    for (uint32_t k = 0; k < bs_thing_count(context, info.id); ++k) {
      bs_thing_info thing = {.struct_size = sizeof thing};
      if (bs_thing_get(context, info.id, k, &thing, NULL) != BS_OK) continue;
      if (thing.kind == BS_KIND_ALGORITHM && strcmp(thing.name, c->algorithm->name) == 0) c->thing = thing;
    }
  }
}

int32_t bs_ccl_open(bs_context *context, const char *name, const char *const *options, size_t n_options,
                    bs_ccl *out_ccl, bs_error *err) {
  *out_ccl = (bs_ccl){0};
  int32_t rc = bs_find_algorithm(context, name, &out_ccl->algorithm, &out_ccl->state, err);
  if (rc != BS_OK) return rc;
  const uint32_t n = n_params(out_ccl->algorithm);
  for (uint32_t i = 0; rc == BS_OK && i < n; ++i)
    rc = set(out_ccl, i, out_ccl->algorithm->params[i]->default_text, err);
  for (size_t i = 0; rc == BS_OK && i < n_options; ++i) rc = set_given(out_ccl, options[i], err);
  if (rc == BS_OK) find_thing(context, out_ccl);
  if (rc != BS_OK) bs_ccl_free(out_ccl);
  return rc;
}

void bs_ccl_free(bs_ccl *ccl) {
  for (uint32_t i = 0; i < BS_ALGORITHM_MAX_OPTIONS; ++i) free(ccl->texts[i]);
  *ccl = (bs_ccl){0};
}

int32_t bs_ccl_names(bs_context *context, const char *plugin, json_t **out_names, bs_error *err) {
  json_t *names = json_array();
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < bs_plugin_count(context); ++i) {
    bs_plugin_info info = {.struct_size = sizeof info};
    rc = bs_plugin_get(context, i, &info, err);
    if (rc != BS_OK || info.state > BS_PLUGIN_ACTIVE || (info.kinds >> BS_KIND_ALGORITHM & 1) == 0) continue;
    if (plugin != NULL && strcmp(info.id, plugin) != 0) continue;
    rc = bs_plugin_activate(context, info.id, err);
    for (uint32_t k = 0; rc == BS_OK && k < bs_thing_count(context, info.id); ++k) {
      bs_thing_info thing = {.struct_size = sizeof thing};
      rc = bs_thing_get(context, info.id, k, &thing, err);
      if (rc == BS_OK && thing.kind == BS_KIND_ALGORITHM)
        json_array_append_new(names, json_string(thing.name));
    }
  }
  if (rc != BS_OK) json_decref(names);
  *out_names = rc == BS_OK ? names : NULL;
  return rc;
}
