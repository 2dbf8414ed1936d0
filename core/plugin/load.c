/* SPDX-License-Identifier: MIT
 * load.c - from a found plugin to a checked descriptor: dlopen by resolved path (NOW, LOCAL, never
 * closed: threads, TLS and exit handlers of plugins may stay), the entry symbol of this very object,
 * and every field of the descriptor. Called by activate.c, and by search.c for built-ins. */
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/plugin.h"
#include "core/base/text.h"
#include "core/plugin/accept.h"
#include "core/plugin/handlers.h"
#include "core/plugin/plugins.h"

int32_t bs_load_desc(bs_plugin_self *plugin, const bs_plugin_desc *seen, bs_error *err) {
  bs_plugin_desc *d = &plugin->desc;
  if (seen == NULL)
    return bs_error_set(err, BS_ABI, "BS-PLG-ABI", "query returned NULL for host ABI %u.%u", BS_ABI_MAJOR,
                        BS_ABI_MINOR);
  int32_t rc = bs_accept_abi(BS_ABI_VERSION, seen->abi, seen->min_host_minor, err);
  if (rc == BS_OK)
    rc = bs_accept_size(BS_ABI_VERSION, "bs_plugin_desc", seen->struct_size, sizeof *d, sizeof *d, err);
  if (rc == BS_OK) rc = bs_accept_sanitizer(BS_THIS_SANITIZER, seen->sanitizer, err);
  if (rc != BS_OK) return rc;
  bs_copy_in(d, sizeof *d, seen, seen->struct_size);
  if (d->id == NULL || d->version == NULL || d->summary == NULL || d->activate == NULL)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-SLOT", "descriptor slot '%s' is NULL, it is required",
                        d->id == NULL        ? "id"
                        : d->version == NULL ? "version"
                        : d->summary == NULL ? "summary"
                                             : "activate");
  if (!bs_plugin_id_valid(d->id))
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-ID", "plugin id '%s' is not [a-z][a-z0-9_]{1,30}", d->id);
  if (plugin->builtin) snprintf(plugin->id, sizeof plugin->id, "%s", d->id);
  if (strcmp(d->id, plugin->id) != 0)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-ID", "file is named bs_%s.so, its plugin id is '%s'",
                        plugin->id, d->id);
  plugin->has_desc = 1;
  if (!plugin->has_note) {
    bs_note *n = &plugin->note;
    memset(n, 0, sizeof *n);
    n->abi = d->abi;
    n->kinds = d->kinds;
    n->sanitizer = d->sanitizer;
    snprintf(n->id, sizeof n->id, "%s", d->id);
    snprintf(n->version, sizeof n->version, "%s", d->version);
    snprintf(n->summary, sizeof n->summary, "%s", d->summary);
  }
  return BS_OK;
}

static int32_t differs(bs_error *err, const char *field, const char *note, const char *desc) {
  bs_error_set(err, BS_PLUGIN, "BS-PLG-NOTE", "note and descriptor differ in %s: '%s' and '%s'", field, note,
               desc);
  bs_error_hint(err, "define both by BS_PLUGIN_DEFINE");
  return BS_PLUGIN;
}

static int32_t compare_number(bs_error *err, const char *field, uint32_t note, uint32_t desc) {
  char a[16], b[16];
  if (note == desc) return BS_OK;
  snprintf(a, sizeof a, "%u", note);
  snprintf(b, sizeof b, "%u", desc);
  return differs(err, field, a, b);
}

/* The note, which was listed, must agree with the descriptor of the code that runs. */
static int32_t compare_note(const bs_plugin_self *plugin, bs_error *err) {
  const bs_note *n = &plugin->note;
  const bs_plugin_desc *d = &plugin->desc;
  int32_t rc = compare_number(err, "abi", n->abi, d->abi);
  if (rc == BS_OK) rc = compare_number(err, "min_host_minor", n->min_host_minor, d->min_host_minor);
  if (rc == BS_OK) rc = compare_number(err, "sanitizer", n->sanitizer, d->sanitizer);
  if (rc == BS_OK) rc = compare_number(err, "kinds", n->kinds, d->kinds);
  if (rc == BS_OK && strcmp(n->version, d->version) != 0)
    rc = differs(err, "version", n->version, d->version);
  if (rc == BS_OK && strcmp(n->summary, d->summary) != 0)
    rc = differs(err, "summary", n->summary, d->summary);
  return rc;
}

/* dlsym also answers with the symbol of a library that the plugin needs (measured): only the plugin's own
 * counts. */
static int own_symbol(void *handle, void *symbol) {
  struct link_map *of_handle = NULL, *of_symbol = NULL;
  Dl_info info;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &of_handle) != 0) return 0;
  if (dladdr1(symbol, &info, (void **)&of_symbol, RTLD_DL_LINKMAP) == 0) return 0;
  return of_handle == of_symbol;
}

static int32_t open_file(bs_plugin_self *plugin, bs_error *err) {
  int32_t rc = bs_file_verify(plugin, err);
  if (rc != BS_OK) return rc;
  bs_handlers handlers;
  bs_handlers_keep(&handlers);
  dlerror();
  void *handle = dlopen(plugin->real, RTLD_NOW | RTLD_LOCAL);
  const uint32_t moved = bs_handlers_put_back(&handlers, NULL);
  if (moved > 0)
    bs_log_write(&plugin->context->logger, BS_LOG_INFO, plugin->id, -1,
                 "%u signal handlers that were installed while it was opened are put back", moved);
  if (handle == NULL) {
    const char *text = dlerror();
    size_t n = strlen(plugin->real);
    if (text == NULL) text = "dlopen failed";
    if (strncmp(text, plugin->real, n) == 0 && strncmp(text + n, ": ", 2) == 0)
      text += n + 2; /* `where` says it */
    return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-LOAD", "%s", text);
  }
  void *symbol = dlsym(handle, BS_PLUGIN_QUERY_SYMBOL);
  if (symbol == NULL || !own_symbol(handle, symbol))
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-SYMBOL", "has no %s of its own", BS_PLUGIN_QUERY_SYMBOL);
  memcpy(&plugin->query, &symbol, sizeof symbol);
  return BS_OK;
}

int32_t bs_load(bs_plugin_self *plugin, bs_error *err) {
  if (plugin->builtin) return BS_OK; /* loaded when the context was opened */
  int32_t rc = open_file(plugin, err);
  if (rc == BS_OK) rc = bs_load_desc(plugin, plugin->query(BS_ABI_VERSION, 0), err);
  if (rc == BS_OK && plugin->has_note) rc = compare_note(plugin, err);
  return rc;
}
