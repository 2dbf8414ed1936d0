/* SPDX-License-Identifier: MIT
 * info.c - what a context can tell of its plugins, their things and parameters: the rows of
 * `bsrun plugins list` and `inspect`. Runs no plugin code. Thread-safe. */
#include <string.h>

#include "core/plugin/plugins.h"
#include "core/plugin/wrap.h"

uint32_t bs_plugin_count(const bs_context *context) {
  if (context == NULL) return 0;
  bs_context_lock(context);
  uint32_t n = context->plugins.count;
  bs_context_unlock(context);
  return n;
}

/* Copies as much of `full` as the caller's struct has room for. */
static int32_t give(void *out, const void *full, size_t full_size, bs_error *err) {
  uint32_t size;
  memcpy(&size, out, sizeof size);
  if (size < sizeof size)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT", "struct_size of the result is not set");
  size_t n = size < full_size ? size : full_size;
  memcpy((char *)out + sizeof size, (const char *)full + sizeof size, n - sizeof size);
  return BS_OK;
}

static int32_t out_of_range(uint32_t index, uint32_t count, const char *what, bs_error *err) {
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT", "%s %u of %u", what, index, count);
}

static void fill_plugin(const bs_plugin_self *p, bs_plugin_info *info) {
  memset(info, 0, sizeof *info);
  info->struct_size = (uint32_t)sizeof *info;
  info->state = p->state;
  info->abi = p->note.abi;
  info->kinds = p->note.kinds;
  info->sanitizer = p->note.sanitizer;
  info->builtin = p->builtin;
  /* A text that was given out must not be written later: an unopened plugin without note has no texts yet. */
  int told = p->has_note || p->has_desc;
  info->id = p->id;
  info->version = told ? p->note.version : "";
  info->summary = told ? p->note.summary : "";
  info->things = p->things != NULL ? p->things : told ? p->note.things : "";
  info->path = p->path;
  info->origin = p->origin;
  int usable = p->state == BS_PLUGIN_FOUND || p->state == BS_PLUGIN_ACTIVE;
  info->why = usable ? "" : p->failure.message;
  info->why_id = usable ? "" : p->failure.id;
  info->hint = usable ? "" : p->failure.hint;
}

int32_t bs_plugin_get(const bs_context *context, uint32_t index, bs_plugin_info *out_info, bs_error *err) {
  bs_plugin_info full;
  if (context == NULL || out_info == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT",
                        "bs_plugin_get needs a context and a result");
  bs_context_lock(context);
  uint32_t n = context->plugins.count;
  if (index < n) fill_plugin(bs_plugin_at(context, index), &full);
  bs_context_unlock(context);
  if (index >= n) return out_of_range(index, n, "plugin", err);
  return give(out_info, &full, sizeof full, err);
}

uint32_t bs_place_count(const bs_context *context) {
  return context != NULL ? context->places.count : 0; /* complete once the context is open */
}

int32_t bs_place_get(const bs_context *context, uint32_t index, bs_place_info *out_info, bs_error *err) {
  bs_place_info full;
  if (context == NULL || out_info == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT",
                        "bs_place_get needs a context and a result");
  if (index >= context->places.count) return out_of_range(index, context->places.count, "place", err);
  const bs_place *place = context->places.items[index];
  memset(&full, 0, sizeof full);
  full.struct_size = (uint32_t)sizeof full;
  full.files = place->files;
  full.origin = place->origin;
  full.path = place->path;
  full.why = place->real != NULL ? "" : place->failure.message;
  full.why_id = place->real != NULL ? "" : place->failure.id;
  return give(out_info, &full, sizeof full, err);
}

/* The active plugin with that id; NULL: there is no active one. */
static const bs_plugin_self *active_plugin(const bs_context *context, const char *id) {
  for (uint32_t i = 0; id != NULL && i < context->plugins.count; i++) {
    const bs_plugin_self *p = bs_plugin_at(context, i);
    if (p->state == BS_PLUGIN_ACTIVE && strcmp(p->id, id) == 0) return p;
  }
  return NULL;
}

/* The index-th thing of a plugin, NULL at the end; *out_count: how many were passed. */
static const bs_entry *thing_of(const bs_context *context, const char *id, uint32_t index,
                                uint32_t *out_count) {
  const bs_plugin_self *p = active_plugin(context, id);
  uint32_t n = 0;
  *out_count = 0;
  if (p == NULL) return NULL;
  for (uint32_t i = 0; i < context->entries.count; i++) {
    const bs_entry *e = bs_entry_at(context, i);
    if (e->owner != p) continue;
    if (n++ == index) return e;
    *out_count = n;
  }
  return NULL;
}

uint32_t bs_thing_count(const bs_context *context, const char *plugin_id) {
  uint32_t n = 0;
  if (context == NULL) return 0;
  bs_context_lock(context);
  (void)thing_of(context, plugin_id, UINT32_MAX, &n);
  bs_context_unlock(context);
  return n;
}

int32_t bs_thing_get(const bs_context *context, const char *plugin_id, uint32_t index,
                     bs_thing_info *out_info, bs_error *err) {
  bs_thing_info full;
  uint32_t n = 0;
  if (context == NULL || out_info == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT",
                        "bs_thing_get needs a context and a result");
  memset(&full, 0, sizeof full);
  bs_context_lock(context);
  const bs_entry *e = thing_of(context, plugin_id, index, &n);
  if (e != NULL) {
    full.struct_size = (uint32_t)sizeof full;
    full.kind = e->thing.kind;
    full.name = e->label;
    full.plugin = e->thing.plugin;
    full.summary = e->summary != NULL ? e->summary : "";
    full.aliases = e->aliases != NULL ? e->aliases : "";
    full.at = e->thing.at;
    full.wrapper = (uint32_t)bs_wraps(&e->thing);
    full.knobs = bs_thing_knobs(&e->thing, &full.n_knobs);
  }
  bs_context_unlock(context);
  if (e == NULL) return out_of_range(index, n, "thing", err);
  return give(out_info, &full, sizeof full, err);
}

const bs_thing *bs_registry_thing(const bs_context *context, const char *plugin_id, uint32_t index) {
  uint32_t n = 0;
  bs_context_lock(context);
  const bs_entry *e = thing_of(context, plugin_id, index, &n);
  bs_context_unlock(context);
  return e != NULL ? &e->thing : NULL;
}

uint32_t bs_param_count(const bs_context *context, const char *plugin_id) {
  if (context == NULL) return 0;
  bs_context_lock(context);
  const bs_plugin_self *p = active_plugin(context, plugin_id);
  uint32_t n = p != NULL ? p->params.count : 0;
  bs_context_unlock(context);
  return n;
}

int32_t bs_param_info_get(const bs_context *context, const char *plugin_id, uint32_t index,
                          bs_param_info *out_info, bs_error *err) {
  bs_param_info full;
  if (context == NULL || out_info == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT",
                        "bs_param_info_get needs a context and a result");
  memset(&full, 0, sizeof full);
  bs_context_lock(context);
  const bs_plugin_self *p = active_plugin(context, plugin_id);
  uint32_t n = p != NULL ? p->params.count : 0;
  if (index < n) {
    const bs_param *param = p->params.items[index];
    full.struct_size = (uint32_t)sizeof full;
    full.desc = param->desc;
    full.value_text = param->text;
    full.origin = param->origin;
  }
  bs_context_unlock(context);
  if (index >= n) return out_of_range(index, n, "parameter", err);
  return give(out_info, &full, sizeof full, err);
}
