/* SPDX-License-Identifier: MIT
 * context.c - bs_context_open and bs_context_close, the context's lock and lists, activation by id and the
 * typed look-ups of blockshock.h. Everything here may be called from any thread. */
#include <stdlib.h>
#include <string.h>

#include "core/plugin/accept.h"
#include "core/plugin/plugins.h"
#include "core/plugin/wrap.h"

int bs_list_reserve(bs_list *list, uint32_t more) {
  uint32_t capacity = list->capacity > 0 ? list->capacity : 8;
  if (more > UINT32_MAX / 4 - list->count) return 0;
  while (capacity < list->count + more) capacity *= 2;
  if (capacity == list->capacity) return 1;
  void **items = realloc(list->items, (size_t)capacity * sizeof *items);
  if (items == NULL) return 0;
  list->items = items;
  list->capacity = capacity;
  return 1;
}

int bs_list_push(bs_list *list, void *item) {
  if (!bs_list_reserve(list, 1)) return 0;
  list->items[list->count++] = item;
  return 1;
}

void bs_list_free(bs_list *list) {
  free(list->items);
  memset(list, 0, sizeof *list);
}

/* The lock is no part of what a const context promises. */
void bs_context_lock(const bs_context *context) {
  pthread_mutex_lock(&((bs_context *)context)->lock);
}

void bs_context_unlock(const bs_context *context) {
  pthread_mutex_unlock(&((bs_context *)context)->lock);
}

void bs_context_leave_stuck(bs_context *context) {
  atomic_fetch_add(&context->stuck, 1u);
}

uint32_t bs_context_stuck(const bs_context *context) {
  return context != NULL ? atomic_load(&((bs_context *)context)->stuck) : 0;
}

const bs_logger *bs_context_logger(const bs_context *context) {
  return &context->logger;
}

static bs_context *context_new(void) {
  pthread_mutexattr_t attributes;
  bs_context *c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&c->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  return c;
}

void bs_context_free(bs_context *context) {
  for (uint32_t i = 0; i < context->entries.count; i++) bs_entry_free(bs_entry_at(context, i));
  for (uint32_t i = 0; i < context->plugins.count; i++) bs_plugin_free(bs_plugin_at(context, i));
  for (uint32_t i = 0; i < context->params.count; i++) free(context->params.items[i]);
  for (uint32_t i = 0; i < context->places.count; i++) bs_place_free(context->places.items[i]);
  bs_list_free(&context->entries);
  bs_list_free(&context->plugins);
  bs_list_free(&context->active);
  bs_list_free(&context->params);
  bs_list_free(&context->places);
  bs_list_free(&context->wrapped);
  free(context->base.root);
  pthread_mutex_destroy(&context->lock);
  free(context);
}

static int32_t check_options(const bs_context_options *o, bs_error *err) {
  const char *what = NULL;
  if (o->trust > BS_TRUST_ANY)
    what = "trust is not one of BS_TRUST_*";
  else if (o->n_plugins > 0 && o->plugins == NULL)
    what = "plugins is NULL";
  else if (o->n_plugin_dirs > 0 && o->plugin_dirs == NULL)
    what = "plugin_dirs is NULL";
  else if (o->n_params > 0 && o->params == NULL)
    what = "params is NULL";
  if (what != NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT", "bs_context_options: %s", what);
  return BS_OK;
}

int32_t bs_context_open(const bs_context_options *options, bs_context **out_context, bs_error *err) {
  bs_context_options o;
  bs_error why = BS_ERROR_INIT;
  memset(&o, 0, sizeof o);
  if (out_context == NULL || (options != NULL && options->struct_size < sizeof options->struct_size))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT",
                        "bs_context_open needs out_context, and struct_size set in the options");
  if (options != NULL) bs_copy_in(&o, sizeof o, options, options->struct_size);
  *out_context = NULL;
  int32_t rc = check_options(&o, err);
  if (rc != BS_OK) return rc;
  bs_context *c = context_new();
  if (c == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory for a context");
  bs_logger_init(&c->logger, o.log_level != 0 ? o.log_level : BS_LOG_WARN, o.log, o.log_user);
  c->trust = o.trust;
  bs_host_fill(c);
  rc = bs_params_take(c, &o, &why);
  if (rc == BS_OK) rc = bs_search(c, &o, &why);
  if (rc == BS_OK) rc = bs_params_check_plugins(c, &why);
  if (rc != BS_OK) {
    if (err != NULL) *err = why;
    bs_context_free(c);
    return rc;
  }
  *out_context = c;
  return BS_OK;
}

int32_t bs_context_end(bs_context *context, bs_error *err) {
  if (context == NULL || bs_context_stuck(context) > 0) return BS_OK;
  bs_context_lock(context);
  bs_wrap_drop(context);
  bs_deactivate_all(context, err);
  bs_context_unlock(context);
  bs_context_free(context);
  return err != NULL ? err->code : BS_OK;
}

void bs_context_close(bs_context *context) {
  (void)bs_context_end(context, NULL);
}

int32_t bs_plugin_activate(bs_context *context, const char *id, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  bs_plugin_self *found = NULL;
  int32_t rc;
  if (context == NULL || id == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLG-ARGUMENT",
                        "bs_plugin_activate needs a context and an id");
  bs_context_lock(context);
  for (uint32_t i = 0; i < context->plugins.count; i++) {
    bs_plugin_self *p = bs_plugin_at(context, i);
    if (strcmp(p->id, id) != 0 || p->state == BS_PLUGIN_SHADOWED) continue;
    /* One that can be used, or was, goes before one that never could. */
    if (found == NULL || (found->state == BS_PLUGIN_REFUSED && p->state != BS_PLUGIN_REFUSED)) found = p;
  }
  rc = found != NULL ? bs_plugin_ensure(found, &why) : bs_search_unknown(context, id, &why);
  bs_context_unlock(context);
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
}

static int32_t find(bs_context *context, uint32_t kind, const char *name, const void **out_vtable,
                    void **out_state, bs_error *err) {
  const bs_thing *thing = NULL;
  int32_t rc = bs_registry_find(context, kind, name, &thing, err);
  if (rc != BS_OK) return rc;
  *out_vtable = thing->vtable;
  if (out_state != NULL) *out_state = thing->state;
  return BS_OK;
}

int32_t bs_find_method(bs_context *context, const char *name, const bs_method **out_method, void **out_state,
                       bs_error *err) {
  const void *vtable = NULL;
  int32_t rc = find(context, BS_KIND_METHOD, name, &vtable, out_state, err);
  if (rc == BS_OK && out_method != NULL) *out_method = vtable;
  return rc;
}

int32_t bs_find_workload(bs_context *context, const char *name, const bs_workload **out_workload,
                         void **out_state, bs_error *err) {
  const void *vtable = NULL;
  int32_t rc = find(context, BS_KIND_WORKLOAD, name, &vtable, out_state, err);
  if (rc == BS_OK && out_workload != NULL) *out_workload = vtable;
  return rc;
}

int32_t bs_find_backend(bs_context *context, const char *name, const bs_backend **out_backend,
                        void **out_state, bs_error *err) {
  const void *vtable = NULL;
  int32_t rc = find(context, BS_KIND_BACKEND, name, &vtable, out_state, err);
  if (rc == BS_OK) rc = bs_wrap_needs_inner(BS_KIND_BACKEND, name, vtable, err);
  if (rc == BS_OK && out_backend != NULL) *out_backend = vtable;
  return rc;
}

int32_t bs_find_comm(bs_context *context, const char *name, const bs_comm **out_comm, void **out_state,
                     bs_error *err) {
  const void *vtable = NULL;
  int32_t rc = find(context, BS_KIND_COMM, name, &vtable, out_state, err);
  if (rc == BS_OK) rc = bs_wrap_needs_inner(BS_KIND_COMM, name, vtable, err);
  if (rc == BS_OK && out_comm != NULL) *out_comm = vtable;
  return rc;
}

int32_t bs_find_importer(bs_context *context, const char *name, const bs_importer **out_importer,
                         void **out_state, bs_error *err) {
  const void *vtable = NULL;
  int32_t rc = find(context, BS_KIND_IMPORTER, name, &vtable, out_state, err);
  if (rc == BS_OK && out_importer != NULL) *out_importer = vtable;
  return rc;
}

int32_t bs_find_algorithm(bs_context *context, const char *name, const bs_algorithm **out_algorithm,
                          void **out_state, bs_error *err) {
  const void *vtable = NULL;
  int32_t rc = find(context, BS_KIND_ALGORITHM, name, &vtable, out_state, err);
  if (rc == BS_OK && out_algorithm != NULL) *out_algorithm = vtable;
  return rc;
}

int32_t bs_find_topology(bs_context *context, const char *name, const bs_topology **out_topology,
                         void **out_state, bs_error *err) {
  const void *vtable = NULL;
  int32_t rc = find(context, BS_KIND_TOPOLOGY, name, &vtable, out_state, err);
  if (rc == BS_OK && out_topology != NULL) *out_topology = vtable;
  return rc;
}
