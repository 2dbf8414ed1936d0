/* SPDX-License-Identifier: MIT
 * activate.c - activation as a transaction: what a plugin registers and declares becomes visible when
 * its activate has succeeded, and else leaves nothing. Called by registry.c and context.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/plugin/plugins.h"

static void drop_staged(bs_plugin_self *plugin) {
  for (uint32_t i = 0; i < plugin->staged.count; i++) bs_entry_free(plugin->staged.items[i]);
  bs_list_free(&plugin->staged);
  bs_params_drop(plugin);
}

/* Reserved before activate runs, so that the commit itself cannot fail. */
static int32_t list_things(bs_plugin_self *plugin, bs_error *err) {
  bs_text text = {0};
  if (plugin->has_note) return BS_OK;
  for (uint32_t i = 0; i < plugin->staged.count; i++) {
    const bs_entry *e = plugin->staged.items[i];
    const char *word = bs_kind_word(e->thing.kind);
    if (e->thing.kind == BS_KIND_OP)
      bs_text_printf(&text, "op:%s@%s\n", e->thing.name, ((const bs_op_impl *)e->thing.vtable)->backend);
    else
      bs_text_printf(&text, "%s:%s\n", word, e->thing.name);
    for (const char *alias = e->aliases; alias != NULL && *alias != '\0';) {
      const int n = (int)strcspn(alias, ", ");
      if (n > 0) bs_text_printf(&text, "%s:%.*s=%s\n", word, n, alias, e->thing.name);
      alias += n + (alias[n] != '\0');
    }
  }
  if (text.failed) {
    bs_text_free(&text);
    return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for the list of things");
  }
  plugin->things = text.data;
  return BS_OK;
}

static int32_t commit(bs_plugin_self *plugin, bs_error *err) {
  bs_context *c = plugin->context;
  if (!bs_list_reserve(&c->entries, plugin->staged.count) || !bs_list_reserve(&c->active, 1))
    return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory to register %u things",
                        plugin->staged.count);
  int32_t rc = list_things(plugin, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < plugin->staged.count; i++)
    (void)bs_list_push(&c->entries, plugin->staged.items[i]);
  (void)bs_list_push(&c->active, plugin);
  bs_list_free(&plugin->staged);
  plugin->state = BS_PLUGIN_ACTIVE;
  return BS_OK;
}

/* first: takes the error of the first plugin that has one; NULL, or another one: it is logged. */
static void deactivate(bs_plugin_self *plugin, bs_error *first) {
  bs_error err = BS_ERROR_INIT;
  if (plugin->desc.deactivate == NULL) return;
  const int32_t rc = plugin->desc.deactivate(plugin->plugin_state, &err);
  if (rc == BS_OK) return;
  err.code = rc;
  if (first != NULL && first->code == BS_OK)
    *first = err;
  else
    bs_log_write(&plugin->context->logger, BS_LOG_WARN, plugin->id, -1, "deactivate failed (%s): %s",
                 bs_status_name(rc), err.message);
}

/* Puts the plugin's own message into an error of the host. The code becomes BS_PLUGIN; only BS_UNAVAILABLE
 * (no driver, no device) stays. */
static int32_t wrap_failure(const bs_plugin_self *plugin, int32_t code, const bs_error *own, bs_error *err) {
  int32_t outer = code == BS_UNAVAILABLE ? BS_UNAVAILABLE : BS_PLUGIN;
  char text[sizeof own->message];
  snprintf(text, sizeof text, "%.*s", (int)sizeof own->message - 1, own->message);
  bs_error_set(err, outer, "BS-PLG-ACTIVATE", "activate of plugin %s failed (%s%s%.31s): %s", plugin->id,
               bs_status_name(code), own->id[0] != '\0' ? ", " : "", own->id,
               text[0] != '\0' ? text : "it gave no reason");
  if (own->hint[0] != '\0') bs_error_hint(err, "%.255s", own->hint);
  if (err != NULL) {
    err->native_code = own->native_code;
    memcpy(err->domain, own->domain, sizeof err->domain);
    err->domain[sizeof err->domain - 1] = '\0';
  }
  return outer;
}

static int32_t call_activate(bs_plugin_self *plugin, bs_error *err) {
  bs_error own = BS_ERROR_INIT;
  bs_error_clear(&plugin->refused_call);
  plugin->plugin_state = NULL;
  plugin->activator = pthread_self();
  atomic_store_explicit(&plugin->activating, 1, memory_order_release);
  int32_t code = plugin->desc.activate(&plugin->context->host, plugin, &plugin->plugin_state, &own);
  atomic_store_explicit(&plugin->activating, 0, memory_order_release);
  if (plugin->refused_call.code != BS_OK) {
    *err = plugin->refused_call; /* the cause, whatever the plugin made of it */
    if (code == BS_OK) deactivate(plugin, NULL);
    return err->code;
  }
  if (code != BS_OK) return wrap_failure(plugin, code, &own, err);
  int32_t rc = bs_params_check_known(plugin, err);
  if (rc == BS_OK) rc = commit(plugin, err);
  if (rc != BS_OK) deactivate(plugin, NULL);
  return rc;
}

static int32_t load_and_activate(bs_plugin_self *plugin, bs_error *err) {
  int32_t rc = bs_load(plugin, err);
  if (rc != BS_OK) return rc;
  rc = call_activate(plugin, err);
  if (rc != BS_OK) drop_staged(plugin);
  return rc;
}

int32_t bs_plugin_ensure(bs_plugin_self *plugin, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  if (plugin->state == BS_PLUGIN_ACTIVE) return BS_OK;
  if (plugin->state == BS_PLUGIN_FOUND) {
    if (bs_inside_activate(plugin))
      return bs_error_set(err, BS_PLUGIN, "BS-PLG-PHASE",
                          "plugin %s is asked for while it is being activated", plugin->id);
    int32_t rc = load_and_activate(plugin, &why);
    if (rc == BS_OK) return BS_OK;
    int unavailable = rc == BS_UNAVAILABLE || rc == BS_NO_MEMORY || strcmp(why.id, "BS-PLG-ACTIVATE") == 0;
    bs_plugin_refuse(plugin, unavailable ? BS_PLUGIN_UNAVAILABLE : BS_PLUGIN_REFUSED, &why);
  }
  if (err != NULL) *err = plugin->failure;
  return plugin->failure.code;
}

void bs_deactivate_all(bs_context *context, bs_error *err) {
  while (context->active.count > 0) {
    bs_plugin_self *plugin = context->active.items[--context->active.count];
    deactivate(plugin, err);
    plugin->state = BS_PLUGIN_FOUND;
  }
}
