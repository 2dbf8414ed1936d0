/* SPDX-License-Identifier: MIT
 * stage.c - register_thing: checks one vtable, copies it into the host's own full-size struct and
 * stages it; activate.c makes staged things visible only once activate has succeeded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/op/knob.h"
#include "core/plugin/accept.h"
#include "core/plugin/plugins.h"
#include "core/plugin/slots.h"

enum { NAME_MAX_SIZE = 63 };

void bs_entry_free(bs_entry *entry) {
  if (entry == NULL) return;
  if (entry->thing.kind == BS_KIND_OP) free(entry->label);
  free(entry->copy);
  free(entry->knobs);
  free(entry);
}

/* [a-z][a-z0-9_.-]*, at most 63 */
static int name_valid(const char *name, size_t n) {
  if (n == 0 || n > NAME_MAX_SIZE || name[0] < 'a' || name[0] > 'z') return 0;
  for (size_t i = 0; i < n; i++)
    if (strchr("abcdefghijklmnopqrstuvwxyz0123456789_.-", name[i]) == NULL || name[i] == '\0') return 0;
  return 1;
}

/* The next alias of a comma-separated list, without spaces around it; NULL at the end. */
static const char *next_alias(const char **at, size_t *out_size) {
  if (*at == NULL || **at == '\0') return NULL;
  const char *start = *at + strspn(*at, " ");
  size_t n = strcspn(start, ",");
  *at = start + n + (start[n] == ',');
  while (n > 0 && start[n - 1] == ' ') n--;
  *out_size = n;
  return start;
}

int bs_alias_match(const char *aliases, const char *name) {
  size_t n, name_size = strlen(name);
  const char *alias;
  while ((alias = next_alias(&aliases, &n)) != NULL)
    if (n == name_size && strncmp(alias, name, n) == 0) return 1;
  return 0;
}

static void read_names(bs_entry *e) {
  bs_thing *t = &e->thing;
  switch (t->kind) {
    case BS_KIND_OP:
      t->name = ((const bs_op_impl *)t->vtable)->op;
      e->summary = ((const bs_op_impl *)t->vtable)->summary;
      break;
    case BS_KIND_BACKEND:
      t->name = ((const bs_backend *)t->vtable)->name;
      e->summary = ((const bs_backend *)t->vtable)->summary;
      break;
    case BS_KIND_COMM:
      t->name = ((const bs_comm *)t->vtable)->name;
      e->summary = ((const bs_comm *)t->vtable)->summary;
      break;
    case BS_KIND_METHOD:
      t->name = ((const bs_method *)t->vtable)->name;
      e->summary = ((const bs_method *)t->vtable)->summary;
      e->aliases = ((const bs_method *)t->vtable)->aliases;
      break;
    case BS_KIND_IMPORTER:
      t->name = ((const bs_importer *)t->vtable)->name;
      e->summary = ((const bs_importer *)t->vtable)->summary;
      e->aliases = ((const bs_importer *)t->vtable)->aliases;
      break;
    case BS_KIND_ALGORITHM:
      t->name = ((const bs_algorithm *)t->vtable)->name;
      e->summary = ((const bs_algorithm *)t->vtable)->summary;
      e->aliases = ((const bs_algorithm *)t->vtable)->aliases;
      break;
    case BS_KIND_TOPOLOGY:
      t->name = ((const bs_topology *)t->vtable)->name;
      e->summary = ((const bs_topology *)t->vtable)->summary;
      e->aliases = ((const bs_topology *)t->vtable)->aliases;
      break;
    default:
      t->name = ((const bs_workload *)t->vtable)->name;
      e->summary = ((const bs_workload *)t->vtable)->summary;
      e->aliases = ((const bs_workload *)t->vtable)->aliases;
      break;
  }
}

static int32_t make_label(bs_entry *e, bs_error *err) {
  e->label = (char *)e->thing.name;
  if (e->thing.kind != BS_KIND_OP) return BS_OK;
  const bs_op_impl *op = e->thing.vtable;
  bs_text text = {0};
  bs_text_printf(&text, "%s@%s/%s", op->op, op->backend, op->name);
  e->label = text.data;
  return text.failed || text.data == NULL
             ? bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for the name of an op")
             : BS_OK;
}

static int32_t check_names(const bs_entry *e, bs_error *err) {
  const bs_thing *t = &e->thing;
  const char *bad = NULL, *alias, *at = e->aliases;
  size_t n = 0;
  if (!name_valid(t->name, strlen(t->name))) bad = t->name, n = strlen(bad);
  if (t->kind == BS_KIND_OP) {
    const bs_op_impl *op = t->vtable;
    if (!name_valid(op->backend, strlen(op->backend))) bad = op->backend, n = strlen(bad);
    if (!name_valid(op->name, strlen(op->name))) bad = op->name, n = strlen(bad);
  }
  while (bad == NULL && (alias = next_alias(&at, &n)) != NULL)
    if (!name_valid(alias, n)) bad = alias;
  if (bad == NULL) return BS_OK;
  return bs_error_set(err, BS_PLUGIN, "BS-PLG-ID", "%s name '%.*s' is not [a-z][a-z0-9_.-]{0,62}",
                      bs_kind_word(t->kind), (int)(n > 64 ? 64 : n), bad);
}

/* The first name or alias that both have, NULL when none. */
static const char *clash(const bs_entry *a, const bs_entry *b, char *buffer, size_t size) {
  const char *alias, *at = a->aliases;
  size_t n;
  if (a->thing.kind != b->thing.kind) return NULL;
  if (a->thing.kind == BS_KIND_OP) return strcmp(a->label, b->label) == 0 ? a->label : NULL;
  if (strcmp(a->thing.name, b->thing.name) == 0 || bs_alias_match(b->aliases, a->thing.name))
    return a->thing.name;
  while ((alias = next_alias(&at, &n)) != NULL) {
    snprintf(buffer, size, "%.*s", (int)n, alias);
    if (strcmp(buffer, b->thing.name) == 0 || bs_alias_match(b->aliases, buffer)) return buffer;
  }
  return NULL;
}

static int32_t check_clash(const bs_list *entries, const bs_entry *e, bs_error *err) {
  char buffer[NAME_MAX_SIZE + 1];
  for (uint32_t i = 0; i < entries->count; i++) {
    const bs_entry *other = entries->items[i];
    const char *name = clash(e, other, buffer, sizeof buffer);
    if (name == NULL) continue;
    bs_error_set(err, BS_PLUGIN, "BS-PLG-DUP",
                 "%s '%s' of plugin %s is already registered by plugin %s (%s:%u)",
                 bs_kind_word(e->thing.kind), name, e->owner->id, other->owner->id,
                 other->thing.at.file != NULL ? other->thing.at.file : "?", other->thing.at.line);
    bs_error_hint(err, "rename one of them, or leave one plugin out");
    return BS_PLUGIN;
  }
  return BS_OK;
}

static int32_t check_kind(const bs_plugin_self *self, uint32_t kind, const void *vtable, uint32_t size,
                          bs_error *err) {
  char what[32];
  if ((self->desc.kinds & (1u << kind)) == 0)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-KIND", "registers a %s, its descriptor's kinds are 0x%x",
                        bs_kind_word(kind), self->desc.kinds);
  if (vtable == NULL)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-SLOT", "registers a %s without a vtable", bs_kind_word(kind));
  snprintf(what, sizeof what, "bs_%s", kind == BS_KIND_OP ? "op_impl" : bs_kind_word(kind));
  return bs_accept_size(BS_ABI_VERSION, what, size, bs_kind_frozen_size(kind), bs_kind_size(kind), err);
}

const bs_knob *const *bs_thing_knobs(const bs_thing *thing, uint32_t *out_count) {
  const bs_op_impl *op = thing->kind == BS_KIND_OP ? thing->vtable : NULL;
  const bs_method *method = thing->kind == BS_KIND_METHOD ? thing->vtable : NULL;
  *out_count = op != NULL ? op->n_knobs : method != NULL ? method->n_knobs : 0;
  return op != NULL ? op->knobs : method != NULL ? method->knobs : NULL;
}

/* Makes the host's own copy of the declared knobs: one block with a list of pointers, then the knobs that
 * they point to. */
static int32_t copy_knobs(bs_entry *e, const bs_knob *const *seen, uint32_t n, bs_error *err) {
  const bs_knob **list = calloc(n, sizeof *list + sizeof **list);
  if (list == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for %u knobs", n);
  e->knobs = list;
  bs_knob *own = (bs_knob *)(void *)(list + n);
  for (uint32_t i = 0; i < n; i++) {
    const int32_t rc =
        bs_accept_copy(BS_ABI_VERSION, "bs_knob", seen[i], sizeof *own, &own[i], sizeof *own, err);
    if (rc != BS_OK) return rc;
    list[i] = &own[i];
  }
  if (e->thing.kind == BS_KIND_OP)
    ((bs_op_impl *)e->copy)->knobs = list;
  else
    ((bs_method *)e->copy)->knobs = list;
  return BS_OK;
}

static int32_t take_knobs(bs_entry *e, bs_error *err) {
  uint32_t n;
  const bs_knob *const *seen = bs_thing_knobs(&e->thing, &n);
  if (n == 0) return BS_OK;
  int32_t rc = n <= BS_MAX_KNOBS && seen != NULL ? copy_knobs(e, seen, n, err) : BS_OK;
  if (rc != BS_OK) return rc;
  seen = bs_thing_knobs(&e->thing, &n);
  return bs_knobs_declared(seen, n, e->label, err);
}

/* Which file's code a plan is of, for those that do not say it themselves. */
static void take_build(bs_entry *e) {
  const bs_op_impl *op = e->thing.kind == BS_KIND_OP ? e->thing.vtable : NULL;
  if (op != NULL && op->echo != NULL) bs_build_id_of((uintptr_t)op->echo, e->build);
  e->thing.build = e->build;
}

static int32_t make_entry(bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                          const bs_src_loc *at, bs_entry **out_entry, bs_error *err) {
  uint32_t size = 0;
  if (vtable != NULL) memcpy(&size, vtable, sizeof size);
  int32_t rc = check_kind(self, kind, vtable, size, err);
  if (rc != BS_OK) return rc;
  bs_entry *e = calloc(1, sizeof *e);
  if (e != NULL) e->copy = malloc(bs_kind_size(kind));
  if (e == NULL || e->copy == NULL) {
    free(e);
    return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory to register a %s", bs_kind_word(kind));
  }
  bs_copy_in(e->copy, bs_kind_size(kind), vtable, size);
  e->owner = self;
  e->thing.kind = kind;
  e->thing.plugin = self->id;
  e->thing.vtable = e->copy;
  e->thing.state = state;
  if (at != NULL) e->thing.at = *at;
  rc = bs_slots_check(kind, e->copy, err);
  if (rc == BS_OK) {
    read_names(e);
    rc = check_names(e, err);
  }
  if (rc == BS_OK) rc = make_label(e, err);
  if (rc == BS_OK) rc = take_knobs(e, err);
  if (rc == BS_OK) take_build(e);
  if (rc != BS_OK) {
    bs_entry_free(e);
    return rc;
  }
  *out_entry = e;
  return BS_OK;
}

static void warn_unlisted(const bs_plugin_self *self, const bs_entry *e) {
  char name[160];
  if (!self->has_note) return;
  if (e->thing.kind == BS_KIND_OP)
    snprintf(name, sizeof name, "%s@%s", e->thing.name, ((const bs_op_impl *)e->thing.vtable)->backend);
  else
    snprintf(name, sizeof name, "%s", e->thing.name);
  if (!bs_things_offer(self->note.things, e->thing.kind, name))
    bs_log_write(
        &self->context->logger, BS_LOG_WARN, self->id, -1,
        "registers %s:%s, which its note does not list: it cannot be found by name before the plugin runs",
        bs_kind_word(e->thing.kind), name);
}

/* A kind of a later minor is unsupported, not wrong: this one thing is left out, aloud, and a plugin that
 * serves older hosts goes on with its others. */
static int32_t unknown_kind(const bs_plugin_self *self, uint32_t kind, bs_error *err) {
  bs_log_write(&self->context->logger, BS_LOG_WARN, self->id, -1,
               "registers a thing of kind %u, known are 0 to %d: it is left out", kind, BS_KIND_COUNT_ - 1);
  return bs_error_set(err, BS_UNSUPPORTED, "BS-PLG-KIND", "a thing of kind %u; known are 0 to %d", kind,
                      BS_KIND_COUNT_ - 1);
}

int32_t bs_host_register(void *ctx, bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                         const bs_src_loc *at, bs_error *err) {
  bs_context *context = ctx;
  bs_entry *e = NULL;
  bs_error why = BS_ERROR_INIT;
  if (!bs_inside_activate(self))
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-PHASE", "register_thing is called outside activate");
  if (bs_kind_size(kind) == 0) return unknown_kind(self, kind, err);
  int32_t rc = make_entry(self, kind, vtable, state, at, &e, &why);
  if (rc == BS_OK) rc = check_clash(&context->entries, e, &why);
  if (rc == BS_OK) rc = check_clash(&self->staged, e, &why);
  if (rc == BS_OK && !bs_list_push(&self->staged, e))
    rc = bs_error_set(&why, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory to register a %s", bs_kind_word(kind));
  if (rc != BS_OK) {
    bs_entry_free(e);
    size_t n = strlen(why.message);
    if (at != NULL && at->file != NULL)
      snprintf(why.message + n, sizeof why.message - n, " (registered at %s:%u)", at->file, at->line);
    return bs_refuse_call(self, &why, err);
  }
  warn_unlisted(self, e);
  return BS_OK;
}
