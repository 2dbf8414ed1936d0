/* SPDX-License-Identifier: MIT
 * plugins.h - the inside of the plugin system, shared by the files of this folder only: what a context
 * holds, one plugin of a context, and the steps from a file name to registered things
 * (search -> note -> trust -> accept -> load -> activate -> registry). All functions that take a
 * context or a plugin expect the context's lock to be held unless they say otherwise. */
#ifndef BS_CORE_PLUGIN_PLUGINS_H
#define BS_CORE_PLUGIN_PLUGINS_H
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "blockshock/blockshock.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/plugin/note.h"
#include "core/plugin/registry.h"

#define BS_PLUGIN_ID_MAX 31

/* A growing array of pointers. */
typedef struct bs_list {
  void **items;
  uint32_t count;
  uint32_t capacity;
} bs_list;
int bs_list_push(bs_list *list, void *item); /* 1, or 0 when out of memory */
int bs_list_reserve(bs_list *list, uint32_t more);
void bs_list_free(bs_list *list); /* not the items */

/* A folder of the search. */
typedef struct bs_place {
  char *origin;
  char *path;
  char *real; /* NULL: not searched, failure says why */
  uint32_t files;
  bs_error failure;
} bs_place;

/* One registered thing with what only this folder needs. */
typedef struct bs_entry {
  bs_thing thing;
  bs_plugin_self *owner;
  void *copy;  /* thing.vtable */
  void *knobs; /* the host's copies of those that it declares */
  char build[BS_BUILD_ID_SIZE];
  char *label; /* "matmul@cpu/dnnl" for ops, else thing.name */
  const char *summary;
  const char *aliases; /* comma-separated, may be NULL */
} bs_entry;

typedef struct bs_param {
  bs_param_desc desc;
  bs_value value;
  char *text;
  const char *origin; /* "default", "environment", "config" */
} bs_param;

/* The users and groups that may change the library itself. They may own its plugin folder, too (trust.c). */
typedef struct bs_trust_base {
  char *root; /* real path of <libdir>; the chain of parents ends there */
  uid_t owners[2];
  uint32_t group_writable; /* bit i: groups[i] may write */
  gid_t groups[2];
} bs_trust_base;

/* A plugin as one context sees it; its address is the opaque `self` of the ABI. */
struct bs_plugin_self {
  bs_context *context;
  uint32_t state; /* enum bs_plugin_state */
  uint32_t builtin;
  uint32_t by_path; /* named by --plugin PATH */
  uint32_t named;   /* named by --plugin: opened at the first look-up, and must work */
  uint32_t has_note;
  uint32_t has_desc;
  uint32_t own_folder; /* found next to the library: judged by context->base */
  char id[32];
  bs_note note;        /* of a built-in or a plugin without note: filled from the descriptor */
  bs_plugin_desc desc; /* the host's copy, full size */
  char *path;          /* as found; "" for a built-in */
  char *real;          /* resolved */
  char *origin;
  char *things; /* after activation of a plugin without note; else NULL */
  dev_t dev;
  ino_t ino;
  bs_plugin_query_fn query;
  bs_error failure; /* why it is SHADOWED, REFUSED or UNAVAILABLE */
  _Atomic uint32_t activating;
  pthread_t activator;
  bs_error refused_call; /* first host call that failed while activating */
  void *plugin_state;
  bs_list staged; /* bs_entry, only while activating */
  bs_list params; /* bs_param */
};

struct bs_context {
  pthread_mutex_t lock; /* recursive: a log callback may ask about plugins */
  bs_logger logger;
  bs_host host;
  uint32_t trust;
  bs_trust_base base;
  bs_list plugins;          /* bs_plugin_self, in order of precedence */
  bs_list active;           /* bs_plugin_self, in order of activation */
  bs_list entries;          /* bs_entry, in order of registration */
  bs_list params;           /* char*: "id.name=value" */
  bs_list places;           /* bs_place, in order of the search */
  bs_list wrapped;          /* bs_wrapped, in order of making (wrap.h) */
  bs_attachment attachment; /* of this process, once a communicator has reported it (core/world/attach.c) */
  _Atomic uint32_t stuck;   /* ranks inside a call that did not return: nothing that they may use is freed */
};

static inline bs_plugin_self *bs_plugin_at(const bs_context *context, uint32_t i) {
  return (bs_plugin_self *)context->plugins.items[i];
}
static inline bs_entry *bs_entry_at(const bs_context *context, uint32_t i) {
  return (bs_entry *)context->entries.items[i];
}
void bs_context_lock(const bs_context *context);
void bs_context_unlock(const bs_context *context);
void bs_context_free(bs_context *context); /* frees all, deactivates nothing */

/* search.c: fills context->plugins and context->places from the options. */
void bs_place_free(bs_place *place);
int32_t bs_search(bs_context *context, const bs_context_options *options, bs_error *err);
/* BS-PLG-NOTFOUND with the nearest id. */
int32_t bs_search_unknown(const bs_context *context, const char *id, bs_error *err);
/* file.c: one plugin file. bs_file_examine gives a new row its state; bs_file_verify repeats the checks
 * right before the file is opened. */
int bs_plugin_id_valid(const char *id);
bs_plugin_self *bs_plugin_new(bs_context *context, const char *path, const char *origin);
void bs_plugin_free(bs_plugin_self *plugin);
void bs_plugin_refuse(bs_plugin_self *plugin, uint32_t state, const bs_error *why);
void bs_file_examine(bs_plugin_self *plugin, const char *name);
int32_t bs_file_verify(bs_plugin_self *plugin, bs_error *err);
/* 1 when the newline-separated things of a note hold the name or alias; an op also by "op@backend". */
int bs_things_offer(const char *things, uint32_t kind, const char *name);
const char *bs_kind_word(uint32_t kind);

/* load.c: dlopen or the built-in's query, then every check of the descriptor. */
int32_t bs_load(bs_plugin_self *plugin, bs_error *err);
int32_t bs_load_desc(bs_plugin_self *plugin, const bs_plugin_desc *seen, bs_error *err);

/* activate.c: load and activate once; the failure of an earlier try is given again. */
int32_t bs_plugin_ensure(bs_plugin_self *plugin, bs_error *err);
/* err: the error of the first that has one; NULL: all are logged. */
void bs_deactivate_all(bs_context *context, bs_error *err);
void bs_entry_free(bs_entry *entry);
/* stage.c: the host's register_thing, and the strings of names and aliases. */
int32_t bs_host_register(void *ctx, bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                         const bs_src_loc *at, bs_error *err);
int bs_alias_match(const char *aliases, const char *name);
/* host.c */
void bs_host_fill(bs_context *context);
/* 1 when the calling thread is inside this plugin's activate. */
int bs_inside_activate(bs_plugin_self *self);
/* Remembers the first host call that failed while activating; returns code. */
int32_t bs_refuse_call(bs_plugin_self *self, const bs_error *why, bs_error *err);

/* params.c */
/* The text as the parameter's type: 1 good, 0 a wrong value, -1 a wrong declaration. */
BS_API int bs_param_parse(const bs_param_desc *d, const char *text, bs_value *v);
const char *bs_param_type_word(uint32_t type); /* "an integer" */
int32_t bs_host_param_define(void *ctx, bs_plugin_self *self, const bs_param_desc *desc, bs_error *err);
int32_t bs_host_param_get(void *ctx, const bs_plugin_self *self, const char *name, bs_value *out_value,
                          bs_error *err);
int32_t bs_params_check_known(bs_plugin_self *self, bs_error *err); /* configured but not declared */
int32_t bs_params_take(bs_context *context, const bs_context_options *options, bs_error *err);
int32_t bs_params_check_plugins(bs_context *context, bs_error *err);
void bs_params_drop(bs_plugin_self *self);
#endif
