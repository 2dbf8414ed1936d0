/* SPDX-License-Identifier: MIT
 * registry.h - the things that plugins registered, and the context that holds them. */
#ifndef BS_CORE_PLUGIN_REGISTRY_H
#define BS_CORE_PLUGIN_REGISTRY_H
#include "blockshock/blockshock.h"
#include "core/base/log.h"

/* One registered thing. vtable is the host's own zero-filled full-size copy (bs_method, ...). */
typedef struct bs_thing {
  uint32_t kind;
  uint32_t reserved;
  const char *name; /* for BS_KIND_OP: the op's name */
  const char *plugin;
  const void *vtable;
  void *state;
  bs_src_loc at;
  const char
      *build; /* of an op implementation with an echo: the id of the file that its code lies in, or "" */
} bs_thing;

/* version.c: the GNU build id of the loaded object that holds an address, as hex; "": it has none. */
enum { BS_BUILD_ID_SIZE = 65 };
void bs_build_id_of(uintptr_t address, char out[BS_BUILD_ID_SIZE]);

/* Find by kind and name or alias; opens the plugin that offers it (thread-safe). BS_NOT_FOUND names
 * the nearest known name; a plugin that offers it but cannot load gives its own reason. */
int32_t bs_registry_find(bs_context *context, uint32_t kind, const char *name, const bs_thing **out_thing,
                         bs_error *err);
/* Implementations of `op` on `backend`, all plugins that offer "op:<op>@<backend>" opened first; things
 * live as long as the context. Returns how many exist; fills at most max. */
uint32_t bs_registry_ops(bs_context *context, const char *op, const char *backend,
                         const bs_thing **out_things, uint32_t max);
/* The index-th thing of an active plugin, as bs_thing_get counts; NULL at the end. Opens nothing. */
BS_API const bs_thing *bs_registry_thing(const bs_context *context, const char *plugin_id, uint32_t index);
/* The knobs that an op implementation or a method declares; of other kinds none. */
const bs_knob *const *bs_thing_knobs(const bs_thing *thing, uint32_t *out_count);
const bs_logger *bs_context_logger(const bs_context *context);
/* A rank did not come back from a call: its world, this context and what it works on stay until the process
 * ends (launch.c); bs_context_close does nothing then. */
void bs_context_leave_stuck(bs_context *context);
BS_API uint32_t bs_context_stuck(const bs_context *context);
/* bs_context_close that returns what a plugin says of its end (of all the first), in place of a warning. */
BS_API int32_t bs_context_end(bs_context *context, bs_error *err);
#endif
