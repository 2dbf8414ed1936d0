/* SPDX-License-Identifier: MIT
 * registry.c - finding things by kind and name, and opening the plugins that offer them on the way.
 * Order: plugins named by --plugin (opened first, and an error when they cannot), things registered
 * already, the first plugin whose note lists the name, then plugins without a note and built-ins. A
 * plugin that offers the name but cannot load is the answer: no next one is tried. */
#include "core/plugin/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/plugin/plugins.h"
#include "core/plugin/wrap.h"

static int32_t open_named(bs_context *context, bs_error *err) {
  for (uint32_t i = 0; i < context->plugins.count; i++) {
    bs_plugin_self *p = bs_plugin_at(context, i);
    if (!p->named || p->state == BS_PLUGIN_ACTIVE || bs_inside_activate(p)) continue;
    int32_t rc = bs_plugin_ensure(p, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static const bs_thing *registered(const bs_context *context, uint32_t kind, const char *name) {
  for (uint32_t i = 0; i < context->entries.count; i++) {
    const bs_entry *e = bs_entry_at(context, i);
    if (e->thing.kind != kind) continue;
    if (strcmp(e->thing.name, name) == 0 || bs_alias_match(e->aliases, name) ||
        (kind == BS_KIND_OP && strcmp(e->label, name) == 0))
      return &e->thing;
  }
  return NULL;
}

/* Usable first; else one that was refused or failed, which then gives its reason. */
static bs_plugin_self *offering(const bs_context *context, uint32_t kind, const char *name) {
  bs_plugin_self *unusable = NULL;
  for (uint32_t i = 0; i < context->plugins.count; i++) {
    bs_plugin_self *p = bs_plugin_at(context, i);
    if (!p->has_note || !bs_things_offer(p->note.things, kind, name)) continue;
    if (p->state == BS_PLUGIN_UNAVAILABLE || p->state == BS_PLUGIN_FOUND) return p;
    if (p->state == BS_PLUGIN_REFUSED && unusable == NULL) unusable = p;
  }
  return unusable;
}

/* Opens the next plugin without note: what it offers is known only after it was opened. */
static int open_next_unlisted(bs_context *context, uint32_t kind) {
  for (uint32_t i = 0; i < context->plugins.count; i++) {
    bs_plugin_self *p = bs_plugin_at(context, i);
    bs_error why = BS_ERROR_INIT;
    if (p->has_note || p->state != BS_PLUGIN_FOUND ||
        (p->note.kinds != 0 && !(p->note.kinds & (1u << kind))) || bs_inside_activate(p))
      continue;
    if (bs_plugin_ensure(p, &why) != BS_OK)
      bs_log_write(&context->logger, BS_LOG_WARN, "", -1, "plugin %s: %s", p->id, why.message);
    return 1;
  }
  return 0;
}

static void add_unique(bs_list *names, const char *text, size_t n) {
  for (uint32_t i = 0; i < names->count; i++)
    if (strlen(names->items[i]) == n && strncmp(names->items[i], text, n) == 0) return;
  char *copy = malloc(n + 1);
  if (copy == NULL) return;
  memcpy(copy, text, n);
  copy[n] = '\0';
  if (!bs_list_push(names, copy)) free(copy);
}

/* Names, or aliases ("alias=name"). */
static void add_listed(bs_list *names, const char *things, uint32_t kind, int aliases) {
  const char *word = bs_kind_word(kind);
  size_t word_size = strlen(word);
  for (const char *line = things; *line != '\0';) {
    size_t n = strcspn(line, "\n");
    if (n > word_size + 1 && strncmp(line, word, word_size) == 0 && line[word_size] == ':') {
      const char *own = line + word_size + 1;
      size_t size = strcspn(own, "=@\n");
      if ((own[size] == '=') == aliases) add_unique(names, own, size);
    }
    line += n + (line[n] == '\n');
  }
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* How a plugin comes to be that this build or this machine does not have; NULL: of another name. */
static const char *why_not_built(const char *name) {
  static const char *const rows[][2] = {
      {"cuda", "an NVIDIA GPU is --backend cuda; its plugin is built by: make run BS_CUDA=on"},
      {"gpu", "an NVIDIA GPU is --backend cuda; its plugin is built by: make run BS_CUDA=on"},
      {"mpi", "the plugin mpi is built where MPI's headers are: install libopenmpi-dev, and build again"},
      {"nccl", "the plugin nccl is built with the plugin cuda: make run BS_CUDA=on"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (strcmp(name, rows[i][0]) == 0) return rows[i][1];
  return NULL;
}

/* 1: the summary of the plugin begins with "for tests". Such a plugin is not offered for an unknown name. */
static int is_for_tests(const bs_plugin_self *p) {
  return strncmp(p->note.summary, "for tests", 9) == 0;
}

static int32_t not_found(const bs_context *context, uint32_t kind, const char *name, bs_error *err) {
  bs_list names = {0};
  bs_text known = {0};
  for (uint32_t i = 0; i < context->plugins.count; i++) {
    const bs_plugin_self *p = bs_plugin_at(context, i);
    if (p->has_note && !is_for_tests(p) && (p->state == BS_PLUGIN_FOUND || p->state == BS_PLUGIN_ACTIVE))
      add_listed(&names, p->note.things, kind, 0);
  }
  for (uint32_t i = 0; i < context->entries.count; i++) {
    const bs_entry *e = bs_entry_at(context, i);
    char name_of[80];
    if (e->thing.kind != kind || (e->owner != NULL && is_for_tests(e->owner))) continue;
    snprintf(name_of, sizeof name_of, "%s%s", e->thing.name, bs_wraps(&e->thing) ? ":" : "");
    add_unique(&names, name_of, strlen(name_of));
  }
  if (names.count > 1) qsort(names.items, names.count, sizeof names.items[0], compare_names);
  for (uint32_t i = 0; i < names.count; i++)
    bs_text_printf(&known, "%s%s", i > 0 ? ", " : "", (const char *)names.items[i]);
  const char *word = bs_kind_word(kind);
  /* Aliases and plugins for tests are not listed, but the hint may offer one. */
  for (uint32_t i = 0; i < context->plugins.count; i++) {
    const bs_plugin_self *p = bs_plugin_at(context, i);
    if (p->has_note) add_listed(&names, p->note.things, kind, 1);
    if (p->has_note && is_for_tests(p)) add_listed(&names, p->note.things, kind, 0);
  }
  const char *near = bs_nearest(name, (const char *const *)names.items, names.count);
  bs_error_set(err, BS_NOT_FOUND, "BS-PLG-NOTFOUND", "no %s '%s'; known: %s", word, name,
               known.data != NULL ? known.data : "none");
  const char *not_built = why_not_built(name);
  if (not_built != NULL)
    bs_error_hint(err, "%s", not_built);
  else if (near != NULL)
    bs_error_hint(err, "did you mean '%s'?", near);
  else
    bs_error_hint(err, "bsrun plugins list shows what was searched, and why a plugin was refused");
  for (uint32_t i = 0; i < names.count; i++) free(names.items[i]);
  bs_list_free(&names);
  bs_text_free(&known);
  return BS_NOT_FOUND;
}

static int32_t find_locked(bs_context *context, uint32_t kind, const char *name, const bs_thing **out_thing,
                           bs_error *err) {
  int32_t rc = open_named(context, err);
  if (rc != BS_OK) return rc;
  const bs_thing *thing = registered(context, kind, name);
  if (thing == NULL) {
    bs_plugin_self *p = offering(context, kind, name);
    if (p != NULL) {
      rc = bs_plugin_ensure(p, err);
      if (rc != BS_OK) return rc;
      thing = registered(context, kind, name);
      if (thing == NULL) {
        bs_error_set(err, BS_PLUGIN, "BS-PLG-NOTE", "note of plugin %s lists %s '%s', but it registered none",
                     p->id, bs_kind_word(kind), name);
        bs_error_where(err, "%s", p->path);
        return BS_PLUGIN;
      }
    }
  }
  while (thing == NULL && open_next_unlisted(context, kind)) thing = registered(context, kind, name);
  if (thing == NULL) return not_found(context, kind, name, err);
  *out_thing = thing;
  return BS_OK;
}

int32_t bs_registry_find(bs_context *context, uint32_t kind, const char *name, const bs_thing **out_thing,
                         bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  if (context == NULL || name == NULL || out_thing == NULL || kind >= BS_KIND_COUNT_)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT",
                        "a look-up needs a context, a known kind and a name");
  bs_context_lock(context);
  int32_t rc = bs_wrap_named(kind, name) ? bs_wrap_find(context, kind, name, out_thing, &why)
                                         : find_locked(context, kind, name, out_thing, &why);
  bs_context_unlock(context);
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
}

/* Opens everything that may implement op@backend; what cannot is said once and left out. */
static void open_for_op(bs_context *context, const char *op_at_backend) {
  bs_error why = BS_ERROR_INIT;
  for (uint32_t i = 0; i < context->plugins.count; i++) {
    bs_plugin_self *p = bs_plugin_at(context, i);
    if (p->state != BS_PLUGIN_FOUND || bs_inside_activate(p)) continue;
    if (p->has_note && !p->named && !bs_things_offer(p->note.things, BS_KIND_OP, op_at_backend)) continue;
    if (!p->has_note && p->note.kinds != 0 && !(p->note.kinds & (1u << BS_KIND_OP))) continue;
    if (bs_plugin_ensure(p, &why) != BS_OK)
      bs_log_write(&context->logger, BS_LOG_WARN, "", -1, "plugin %s offers %s but cannot be used: %s", p->id,
                   op_at_backend, why.message);
  }
}

uint32_t bs_registry_ops(bs_context *context, const char *op, const char *backend,
                         const bs_thing **out_things, uint32_t max) {
  bs_text wanted = {0};
  uint32_t n = 0;
  if (bs_wrap_named(BS_KIND_BACKEND, backend)) return bs_wrap_ops(context, op, backend, out_things, max);
  bs_text_printf(&wanted, "%s@%s", op, backend);
  if (wanted.failed) {
    bs_text_free(&wanted);
    return 0;
  }
  bs_context_lock(context);
  open_for_op(context, wanted.data);
  for (uint32_t i = 0; i < context->entries.count; i++) {
    const bs_entry *e = bs_entry_at(context, i);
    if (e->thing.kind != BS_KIND_OP || strcmp(e->thing.name, op) != 0) continue;
    if (strcmp(((const bs_op_impl *)e->thing.vtable)->backend, backend) != 0) continue;
    if (n < max) out_things[n] = &e->thing;
    n++;
  }
  bs_context_unlock(context);
  bs_text_free(&wanted);
  return n;
}
