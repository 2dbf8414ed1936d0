/* SPDX-License-Identifier: MIT
 * wrap.h - communicators and backends that are made of another: "fault:threads". The host joins the two, so
 * that no plugin looks another up. Made on the first look-up, kept until the context closes. The functions
 * that take a context expect its lock to be held, or take it themselves where they say so. */
#ifndef BS_CORE_PLUGIN_WRAP_H
#define BS_CORE_PLUGIN_WRAP_H
#include "core/plugin/registry.h"

/* Is it "wrapper:other" of a kind that can be wrapped? */
int bs_wrap_named(uint32_t kind, const char *name);
/* Does the registered thing need another one? */
int bs_wraps(const bs_thing *thing);
/* The thing of such a name. BS_NOT_FOUND for an unknown part, BS_CONFIG (BS-PLG-WRAP) for a name that wraps
 * nothing, whose wrapper cannot wrap, or that is too long. */
int32_t bs_wrap_find(bs_context *context, uint32_t kind, const char *name, const bs_thing **out_thing,
                     bs_error *err);
/* Does what bs_registry_ops does for such a backend: the ops of the inner one, wrapped. Takes the lock. */
uint32_t bs_wrap_ops(bs_context *context, const char *op, const char *backend, const bs_thing **out_things,
                     uint32_t max);
/* BS_CONFIG (BS-PLG-WRAP) when the vtable is that of a wrapper alone. */
int32_t bs_wrap_needs_inner(uint32_t kind, const char *name, const void *vtable, bs_error *err);
/* Unwrap all, newest first: before the plugins are deactivated. */
void bs_wrap_drop(bs_context *context);
#endif
