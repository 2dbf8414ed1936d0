/* SPDX-License-Identifier: MIT
 * wrap.c - see wrap.h. A wrapped thing has the wrapper's table with the name, the launch or flags, and the
 * missing slots of the inner one; a wrapped op keeps the names and the plugin of the inner one, so that
 * choices, siblings and records see the same kernels. */
#include "core/plugin/wrap.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/plugin/plugins.h"
#include "core/plugin/slots.h"

enum { WRAP_NAME_MAX = 200 };

typedef struct bs_wrapped {
  bs_thing thing; /* first: what is given out */
  const bs_thing *outer, *inner;
  char *name;
  void *copy;
} bs_wrapped;

typedef void (*slot_fn)(void); /* all function pointers have one size and form where plugins are loaded */

static const size_t comm_slots[] = {
    offsetof(bs_comm, world_drive), offsetof(bs_comm, group_open),     offsetof(bs_comm, all_reduce),
    offsetof(bs_comm, all_gather),  offsetof(bs_comm, reduce_scatter), offsetof(bs_comm, broadcast),
    offsetof(bs_comm, all_to_all),  offsetof(bs_comm, send),           offsetof(bs_comm, recv),
    offsetof(bs_comm, barrier),     offsetof(bs_comm, clock_ns),       offsetof(bs_comm, exchange),
    offsetof(bs_comm, report)};
static const size_t backend_slots[] = {
    offsetof(bs_backend, stream_create), offsetof(bs_backend, stream_destroy),
    offsetof(bs_backend, stream_sync),   offsetof(bs_backend, event_create),
    offsetof(bs_backend, event_destroy), offsetof(bs_backend, event_record),
    offsetof(bs_backend, event_elapsed), offsetof(bs_backend, native_handle),
    offsetof(bs_backend, source_read),   offsetof(bs_backend, comm_for),
    offsetof(bs_backend, capture_begin), offsetof(bs_backend, capture_end),
    offsetof(bs_backend, capture_run),   offsetof(bs_backend, capture_free),
    offsetof(bs_backend, device_state)};
static const size_t op_slots[] = {offsetof(bs_op_impl, pack), offsetof(bs_op_impl, packed_update),
                                  offsetof(bs_op_impl, packed_read), offsetof(bs_op_impl, packed_free),
                                  offsetof(bs_op_impl, echo)};

int bs_wrap_named(uint32_t kind, const char *name) {
  return (kind == BS_KIND_COMM || kind == BS_KIND_BACKEND) && strchr(name, ':') != NULL;
}

static int table_wraps(uint32_t kind, const void *vtable) {
  if (kind == BS_KIND_COMM) return ((const bs_comm *)vtable)->wrap != NULL;
  return kind == BS_KIND_BACKEND && ((const bs_backend *)vtable)->wrap != NULL;
}

int bs_wraps(const bs_thing *thing) {
  return table_wraps(thing->kind, thing->vtable);
}

int32_t bs_wrap_needs_inner(uint32_t kind, const char *name, const void *vtable, bs_error *err) {
  if (!table_wraps(kind, vtable)) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-PLG-WRAP", "%s '%.64s' needs an inner one", bs_kind_word(kind), name);
  bs_error_hint(err, "write %.64s:%s", name, kind == BS_KIND_COMM ? "threads" : "cpu");
  return BS_CONFIG;
}

static bs_wrapped *wrapped_at(const bs_context *context, uint32_t i) {
  return context->wrapped.items[i];
}

/* Slots that the inner one lacks are lacking. */
static void mask(void *copy, const void *inner, const size_t *slots, size_t n) {
  for (size_t i = 0; i < n; i++) {
    slot_fn fn;
    memcpy(&fn, (const char *)inner + slots[i], sizeof fn);
    if (fn == NULL) memcpy((char *)copy + slots[i], &fn, sizeof fn);
  }
}
#define MASK(copy, inner, slots) mask((copy), (inner), (slots), sizeof(slots) / sizeof(slots)[0])

static void dress_comm(bs_wrapped *w) {
  bs_comm *copy = w->copy;
  const bs_comm *inner = w->inner->vtable;
  copy->name = w->name;
  copy->launch = inner->launch;
  copy->max_ranks = inner->max_ranks;
  copy->wrap = NULL;
  copy->unwrap = NULL;
  MASK(copy, inner, comm_slots);
}

static void dress_backend(bs_wrapped *w) {
  bs_backend *copy = w->copy;
  const bs_backend *inner = w->inner->vtable;
  copy->name = w->name;
  copy->flags = inner->flags;
  copy->wrap = NULL;
  copy->wrap_op = NULL;
  copy->unwrap = NULL;
  MASK(copy, inner, backend_slots);
}

/* Takes room in the list first, so that nothing can fail after the plugin's call has succeeded. */
static bs_wrapped *begin(bs_context *context, const bs_thing *outer, const bs_thing *inner, uint32_t kind,
                         const char *name, bs_error *err) {
  bs_wrapped *w = bs_list_reserve(&context->wrapped, 1) ? calloc(1, sizeof *w) : NULL;
  if (w != NULL) {
    w->name = bs_strdup(name);
    w->copy = calloc(1, bs_kind_size(kind));
  }
  if (w == NULL || w->name == NULL || w->copy == NULL) {
    if (w != NULL) {
      free(w->name);
      free(w->copy);
    }
    free(w);
    bs_error_set(err, BS_NO_MEMORY, "BS-PLG-MEMORY", "no memory to wrap a %s", bs_kind_word(kind));
    return NULL;
  }
  w->outer = outer;
  w->inner = inner;
  w->thing = *outer;
  w->thing.kind = kind;
  w->thing.name = w->name;
  w->thing.vtable = w->copy;
  w->thing.state = NULL;
  return w;
}

static void discard(bs_wrapped *w) {
  free(w->name);
  free(w->copy);
  free(w);
}

static int32_t wrap(bs_context *context, const bs_thing *outer, const bs_thing *inner, const char *name,
                    const bs_thing **out_thing, bs_error *err) {
  const uint32_t kind = outer->kind;
  bs_wrapped *w = begin(context, outer, inner, kind, name, err);
  if (w == NULL) return BS_NO_MEMORY;
  memcpy(w->copy, outer->vtable, bs_kind_size(kind));
  int32_t rc;
  if (kind == BS_KIND_COMM) {
    rc = ((const bs_comm *)outer->vtable)
             ->wrap(outer->state, inner->vtable, inner->state, &w->thing.state, err);
    dress_comm(w);
  } else {
    rc = ((const bs_backend *)outer->vtable)
             ->wrap(outer->state, inner->vtable, inner->state, &w->thing.state, err);
    dress_backend(w);
  }
  if (rc != BS_OK) {
    discard(w);
    return rc;
  }
  (void)bs_list_push(&context->wrapped, w);
  *out_thing = &w->thing;
  return BS_OK;
}

static int32_t bad_name(uint32_t kind, const char *name, const char *why, bs_error *err) {
  bs_error_set(err, BS_CONFIG, "BS-PLG-WRAP", "%s '%.100s': %s", bs_kind_word(kind), name, why);
  bs_error_hint(err, "WRAPPER:OTHER, as in fault:%s", kind == BS_KIND_COMM ? "threads" : "cpu");
  return BS_CONFIG;
}

int32_t bs_wrap_find(bs_context *context, uint32_t kind, const char *name, const bs_thing **out_thing,
                     bs_error *err) {
  char first[64];
  const bs_thing *outer = NULL, *inner = NULL;
  for (uint32_t i = 0; i < context->wrapped.count; i++) {
    const bs_thing *known = &wrapped_at(context, i)->thing;
    if (known->kind != kind || strcmp(known->name, name) != 0) continue;
    *out_thing = known;
    return BS_OK;
  }
  const size_t n = strcspn(name, ":");
  if (n == 0 || name[n + 1] == '\0') return bad_name(kind, name, "a part of it is empty", err);
  if (n >= sizeof first || strlen(name) > WRAP_NAME_MAX) return bad_name(kind, name, "it is too long", err);
  memcpy(first, name, n);
  first[n] = '\0';
  int32_t rc = bs_registry_find(context, kind, first, &outer, err);
  if (rc == BS_OK && !bs_wraps(outer))
    return bad_name(kind, name, "what is before the colon wraps nothing", err);
  if (rc == BS_OK) rc = bs_registry_find(context, kind, name + n + 1, &inner, err);
  if (rc == BS_OK) rc = bs_wrap_needs_inner(kind, name + n + 1, inner->vtable, err);
  if (rc == BS_OK) rc = wrap(context, outer, inner, name, out_thing, err);
  return rc;
}

/* ---- ops ------------------------------------------------------------------------------------ */

static void dress_op(bs_wrapped *w, const char *backend) {
  bs_op_impl *copy = w->copy;
  const bs_op_impl *inner = w->inner->vtable;
  copy->op = inner->op;
  copy->backend = backend;
  copy->name = inner->name;
  copy->summary = inner->summary;
  copy->priority = inner->priority;
  copy->n_knobs = inner->n_knobs;
  copy->knobs = inner->knobs;
  MASK(copy, inner, op_slots);
}

/* Returns the wrapped op. NULL: it failed; the log has the reason. */
static const bs_thing *wrap_op(bs_context *context, const bs_wrapped *backend, const bs_thing *inner) {
  const bs_op_impl *table = NULL;
  bs_error err = BS_ERROR_INIT;
  for (uint32_t i = 0; i < context->wrapped.count; i++) {
    const bs_wrapped *known = wrapped_at(context, i);
    if (known->inner == inner && known->outer == &backend->thing) return &known->thing;
  }
  bs_wrapped *w = begin(context, &backend->thing, inner, BS_KIND_OP, inner->name, &err);
  int32_t rc = w == NULL ? err.code
                         : ((const bs_backend *)backend->outer->vtable)
                               ->wrap_op(backend->thing.state, inner->vtable, inner->state, &table,
                                         &w->thing.state, &err);
  if (rc == BS_OK && (table == NULL || table->struct_size != sizeof *table))
    rc = bs_error_set(&err, BS_ABI, "BS-PLG-SIZE", "wrap_op gave no table of this ABI");
  if (rc != BS_OK) {
    bs_log_write(&context->logger, BS_LOG_ERROR, backend->thing.plugin, -1, "cannot wrap %s of %s: %s",
                 inner->name, backend->thing.name, err.message);
    if (w != NULL) discard(w);
    return NULL;
  }
  memcpy(w->copy, table, sizeof *table);
  w->thing.plugin = inner->plugin;
  w->thing.at = inner->at;
  w->thing.build = inner->build;
  dress_op(w, backend->thing.name);
  (void)bs_list_push(&context->wrapped, w);
  return &w->thing;
}

static uint32_t wrap_all(bs_context *context, const bs_wrapped *backend, const char *op,
                         const bs_thing **out_things, uint32_t max) {
  const uint32_t count = bs_registry_ops(context, op, backend->inner->name, NULL, 0);
  const bs_thing **inner = count > 0 ? calloc(count, sizeof *inner) : NULL;
  uint32_t n = 0;
  if (inner == NULL) return 0;
  const uint32_t filled = bs_registry_ops(context, op, backend->inner->name, inner, count);
  for (uint32_t i = 0; i < filled && i < count; i++) {
    const bs_thing *made = wrap_op(context, backend, inner[i]);
    if (made == NULL) continue;
    if (n < max) out_things[n] = made;
    n++;
  }
  free(inner);
  return n;
}

uint32_t bs_wrap_ops(bs_context *context, const char *op, const char *backend, const bs_thing **out_things,
                     uint32_t max) {
  const bs_thing *thing = NULL;
  uint32_t n = 0;
  bs_context_lock(context);
  if (bs_wrap_find(context, BS_KIND_BACKEND, backend, &thing, NULL) == BS_OK)
    n = wrap_all(context, (const bs_wrapped *)(const void *)thing, op, out_things, max);
  bs_context_unlock(context);
  return n;
}

void bs_wrap_drop(bs_context *context) {
  while (context->wrapped.count > 0) {
    bs_wrapped *w = wrapped_at(context, --context->wrapped.count);
    if (w->thing.kind == BS_KIND_COMM) ((const bs_comm *)w->outer->vtable)->unwrap(w->thing.state);
    if (w->thing.kind == BS_KIND_BACKEND) ((const bs_backend *)w->outer->vtable)->unwrap(w->thing.state);
    discard(w);
  }
}
