/* SPDX-License-Identifier: MIT
 * host.c - the services that every plugin gets: bs_host. One table a context; it lives as long as the
 * context. All of it may be called from any thread, except what says "only inside activate". */
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/op/schema.h"
#include "core/plugin/plugins.h"

int bs_inside_activate(bs_plugin_self *self) {
  return self != NULL && atomic_load_explicit(&self->activating, memory_order_acquire) &&
         pthread_equal(self->activator, pthread_self());
}

int32_t bs_refuse_call(bs_plugin_self *self, const bs_error *why, bs_error *err) {
  if (self->refused_call.code == BS_OK) self->refused_call = *why;
  if (err != NULL) *err = *why;
  return why->code;
}

static int32_t host_log_enabled(void *ctx, const bs_plugin_self *self, int32_t level) {
  const bs_context *context = ctx;
  (void)self;
  return bs_log_enabled(&context->logger, level);
}

static void host_log(void *ctx, const bs_plugin_self *self, int32_t level, const char *file, int32_t line,
                     const char *msg) {
  const bs_context *context = ctx;
  const char *id = self != NULL ? self->id : "";
  if (msg == NULL) return;
  if (level >= BS_LOG_DEBUG && file != NULL)
    bs_log_write(&context->logger, level, id, bs_log_rank(), "%s:%d: %s", file, line, msg);
  else
    bs_log_write(&context->logger, level, id, bs_log_rank(), "%s", msg);
}

/* align 0: that of malloc. Not a power of two, or more than 1 MiB: NULL. */
static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align) {
  void *p = NULL;
  (void)ctx;
  if ((align & (align - 1)) != 0 || align > (1u << 20) || bytes > PTRDIFF_MAX) return NULL;
  if (align <= _Alignof(max_align_t)) return calloc(1, bytes ? (size_t)bytes : 1);
  if (posix_memalign(&p, (size_t)align, bytes ? (size_t)bytes : 1) != 0) return NULL;
  memset(p, 0, (size_t)bytes);
  return p;
}

static void host_free(void *ctx, void *p) {
  (void)ctx;
  free(p);
}

static int32_t host_rank_of_thread(void *ctx) {
  (void)ctx;
  return bs_log_rank();
}

void bs_host_fill(bs_context *context) {
  bs_host *h = &context->host;
  memset(h, 0, sizeof *h);
  h->struct_size = (uint32_t)sizeof *h;
  h->abi = BS_ABI_VERSION;
  h->ctx = context;
  h->register_thing = bs_host_register;
  h->log_enabled = host_log_enabled;
  h->log = host_log;
  h->alloc = host_alloc;
  h->free = host_free;
  h->param_define = bs_host_param_define;
  h->param_get = bs_host_param_get;
  h->rng_normal = bs_rng_normal;
  h->rng_uniform = bs_rng_uniform;
  h->rng_bits = bs_rng_bits;
  h->convert = bs_convert;
  h->partition_make = bs_partition_make;
  h->partition_free = bs_partition_free;
  h->rank_of_thread = host_rank_of_thread;
  h->op_cost = bs_op_cost_parts;
}
