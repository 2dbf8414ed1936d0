/* SPDX-License-Identifier: MIT
 * host.c - the host table that the kit gives a plugin. Wrappers around the real services of libblockshock
 * count calls, record what is registered, and on request fail at the n-th call. The host's own rules
 * (core/plugin/slots.h, accept.h) judge what is registered. */
#include <stdio.h>

#include "core/base/rng.h"
#include "core/base/text.h"
#include "core/op/schema.h"
#include "core/plugin/accept.h"
#include "core/plugin/slots.h"
#include "kit/kit.h"

static kit_host *newest;   /* partition_make is given no host: the one that was made last */
static int64_t partitions; /* made and not freed */

/* 1 when this call is the one to fail. */
static int fails(kit_host *h, const char *service) {
  if (__atomic_add_fetch(&h->calls, 1, __ATOMIC_RELAXED) != h->fail_at) return 0;
  h->failed = service;
  return 1;
}

static int32_t refuse(kit_host *h, const bs_error *why, bs_error *err) {
  if (h->refused.code == BS_OK) h->refused = *why;
  if (err != NULL) *err = *why;
  return why->code;
}

static int32_t injected(kit_host *h, const char *service, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  bs_error_set(&why, BS_NO_MEMORY, "BS-KIT-INJECTED", "%s fails: the kit made it", service);
  return refuse(h, &why, err);
}

int kit_host_fails(kit_host *h, const char *service, bs_error *err) {
  if (!fails(h, service)) return 0;
  bs_error_set(err, BS_NO_MEMORY, "BS-KIT-INJECTED", "%s fails: the kit made it", service);
  return 1;
}

static int32_t check_thing(const kit_host *h, uint32_t kind, const void *vtable, bs_error *err) {
  uint32_t size = 0;
  if (!h->inside)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-PHASE", "register_thing is called outside activate");
  if (bs_kind_size(kind) == 0 || (h->kinds & 1u << kind) == 0)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-KIND", "a thing of kind %u, the descriptor's kinds are 0x%x",
                        kind, h->kinds);
  if (vtable == NULL)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-SLOT", "a %s without a vtable", kit_kind_word(kind));
  memcpy(&size, vtable, sizeof size);
  return bs_accept_size(BS_ABI_VERSION, kit_kind_word(kind), size, bs_kind_frozen_size(kind),
                        bs_kind_size(kind), err);
}

static int32_t register_thing(void *ctx, bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                              const bs_src_loc *at, bs_error *err) {
  kit_host *h = ctx;
  bs_error why = BS_ERROR_INIT;
  (void)at;
  if (fails(h, "register_thing")) return injected(h, "register_thing", err);
  if ((void *)self != ctx) {
    bs_error_set(&why, BS_PLUGIN, "BS-PLG-SELF", "register_thing is given another host's self");
    return refuse(h, &why, err);
  }
  if (check_thing(h, kind, vtable, &why) != BS_OK) return refuse(h, &why, err);
  void *copy = calloc(1, bs_kind_size(kind));
  if (copy == NULL || h->n_things == KIT_MAX_THINGS) {
    free(copy);
    bs_error_set(&why, BS_NO_MEMORY, "BS-KIT-FULL", "the kit takes %d things of one plugin", KIT_MAX_THINGS);
    return refuse(h, &why, err);
  }
  uint32_t size;
  memcpy(&size, vtable, sizeof size);
  bs_copy_in(copy, bs_kind_size(kind), vtable, size);
  if (bs_slots_check(kind, copy, &why) != BS_OK) {
    free(copy);
    return refuse(h, &why, err);
  }
  h->things[h->n_things++] = (kit_thing){kind, copy, state};
  return BS_OK;
}

static int32_t log_enabled(void *ctx, const bs_plugin_self *self, int32_t level) {
  (void)ctx, (void)self, (void)level;
  return 1; /* so that every message is made */
}

static void log_line(void *ctx, const bs_plugin_self *self, int32_t level, const char *file, int32_t line,
                     const char *msg) {
  (void)ctx, (void)self, (void)level, (void)file, (void)line, (void)msg;
}

/* The block begins with its size's room: free needs no help from the plugin. */
static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align) {
  kit_host *h = ctx;
  void *p = NULL;
  if (fails(h, "alloc")) return NULL;
  if ((align & (align - 1)) != 0 || align > (1u << 20) || bytes > PTRDIFF_MAX) return NULL;
  if (posix_memalign(&p, align < 64 ? 64 : (size_t)align, bytes > 0 ? (size_t)bytes : 1) != 0) return NULL;
  memset(p, 0, (size_t)bytes);
  __atomic_add_fetch(&h->blocks, 1, __ATOMIC_RELAXED);
  return p;
}

static void host_free(void *ctx, void *p) {
  kit_host *h = ctx;
  if (p != NULL) __atomic_sub_fetch(&h->blocks, 1, __ATOMIC_RELAXED);
  free(p);
}

static int parse_value(const bs_param_desc *d, kit_param *p) {
  int64_t whole = 0; /* of a number with a unit: 80G */
  int flag = 0;
  p->value = (bs_value){.struct_size = sizeof p->value, .type = d->type, .s = p->text};
  switch (d->type) {
    case BS_PARAM_INT:
      return bs_parse_size(p->text, &p->value.i);
    case BS_PARAM_FLOAT:
      if (bs_parse_f64(p->text, &p->value.f)) return 1;
      if (!bs_parse_size(p->text, &whole)) return 0;
      p->value.f = (double)whole;
      return 1;
    case BS_PARAM_BOOL:
      if (!bs_parse_bool(p->text, &flag)) return 0;
      p->value.i = flag;
      return 1;
    default:
      return d->type == BS_PARAM_STRING;
  }
}

static const char *setting(const kit_host *h, const char *name) {
  const size_t n = strlen(name);
  for (uint32_t i = h->options->n_params; i-- > 0;)
    if (strncmp(h->options->params[i], name, n) == 0 && h->options->params[i][n] == '=')
      return h->options->params[i] + n + 1;
  return NULL;
}

static int32_t param_define(void *ctx, bs_plugin_self *self, const bs_param_desc *d, bs_error *err) {
  kit_host *h = ctx;
  bs_error why = BS_ERROR_INIT;
  (void)self;
  if (fails(h, "param_define")) return injected(h, "param_define", err);
  if (!h->inside || d == NULL || d->struct_size != sizeof *d || d->name == NULL || d->default_text == NULL ||
      h->n_params == KIT_MAX_PARAMS) {
    bs_error_set(
        &why, BS_PLUGIN, "BS-PLG-PARAM",
        "parameter '%s' is declared outside activate, or without a name, a default or the right size",
        d != NULL && d->name != NULL ? d->name : "");
    return refuse(h, &why, err);
  }
  kit_param *p = &h->params[h->n_params];
  const char *given = setting(h, d->name);
  snprintf(p->name, sizeof p->name, "%s", d->name);
  snprintf(p->text, sizeof p->text, "%s", given != NULL ? given : d->default_text);
  if (!parse_value(d, p)) {
    bs_error_set(&why, BS_CONFIG, "BS-PLG-PARAM", "parameter %s: '%s' is not of its type", d->name, p->text);
    return refuse(h, &why, err);
  }
  h->n_params++;
  return BS_OK;
}

static int32_t param_get(void *ctx, const bs_plugin_self *self, const char *name, bs_value *out_value,
                         bs_error *err) {
  kit_host *h = ctx;
  (void)self;
  if (fails(h, "param_get")) return injected(h, "param_get", err);
  for (uint32_t i = 0; i < h->n_params; i++)
    if (strcmp(h->params[i].name, name) == 0) {
      *out_value = h->params[i].value;
      return BS_OK;
    }
  return bs_error_set(err, BS_NOT_FOUND, "BS-PLG-PARAM", "there is no parameter '%s'", name);
}

int32_t kit_partition_make(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world_size,
                           const bs_partition **out, bs_error *err) {
  if (newest != NULL && kit_host_fails(newest, "partition_make", err)) return BS_NO_MEMORY;
  const int32_t rc = bs_partition_make(mask, total, rank, world_size, out, err);
  if (rc == BS_OK) __atomic_add_fetch(&partitions, 1, __ATOMIC_RELAXED);
  return rc;
}

void kit_partition_free(const bs_partition *p) {
  if (p != NULL) __atomic_sub_fetch(&partitions, 1, __ATOMIC_RELAXED);
  bs_partition_free(p);
}

int64_t kit_partitions(void) {
  return __atomic_load_n(&partitions, __ATOMIC_RELAXED);
}

void kit_host_init(kit_host *h, const bs_kit_options *options, uint32_t kinds) {
  memset(h, 0, sizeof *h);
  h->options = options;
  h->kinds = kinds;
  bs_host *t = &h->table.host;
  t->struct_size = (uint32_t)sizeof *t;
  t->abi = BS_ABI_VERSION;
  t->ctx = h;
  t->register_thing = register_thing;
  t->log_enabled = log_enabled;
  t->log = log_line;
  t->alloc = host_alloc;
  t->free = host_free;
  t->param_define = param_define;
  t->param_get = param_get;
  t->rng_normal = bs_rng_normal;
  t->rng_uniform = bs_rng_uniform;
  t->rng_bits = bs_rng_bits;
  t->convert = bs_convert;
  t->partition_make = kit_partition_make;
  t->partition_free = kit_partition_free;
  t->op_cost = bs_op_cost_parts;
  newest = h;
  for (size_t i = 0; i < sizeof h->table.later / sizeof h->table.later[0]; i++)
    h->table.later[i] = &h->table.later; /* whoever calls it, crashes */
}

void kit_host_drop(kit_host *h) {
  for (uint32_t i = 0; i < h->n_things; i++) free(h->things[i].vtable);
  h->n_things = h->n_params = 0;
}
