/* SPDX-License-Identifier: MIT
 * actor.c - one implementation of an op, opened with a device, a team of threads and counted memory: what a
 * rank is to it. Memory from exec is filled with rubbish: an implementation may not count on zeros. */
#include <pthread.h>

#include "kit/op.h"

int kit_host_memory(const kit_actor *a) {
  return (a->backend->flags & BS_BACKEND_HOST_MEMORY) != 0;
}

static void *exec_alloc(void *ctx, uint64_t bytes) {
  kit_actor *a = ctx;
  void *p = NULL;
  if (__atomic_add_fetch(&a->calls, 1, __ATOMIC_RELAXED) == a->fail_at) return NULL;
  if (kit_host_memory(a)) { /* packed weights too: at a fence, as far as 64-byte alignment lets them */
    p = kit_fence_alloc((bytes + 63) / 64 * 64, kit_fence_turn());
    if (p == NULL) return NULL;
    memset(p, 0xE7, bytes);
  } else if (a->backend->mem_alloc(a->device, bytes > 0 ? bytes : 1, 64, &p, NULL) != BS_OK) {
    return NULL;
  }
  __atomic_add_fetch(&a->live, 1, __ATOMIC_RELAXED);
  return p;
}

static void exec_free(void *ctx, void *p) {
  kit_actor *a = ctx;
  if (p == NULL) return;
  __atomic_sub_fetch(&a->live, 1, __ATOMIC_RELAXED);
  if (!kit_fence_free(p)) a->backend->mem_free(a->device, p);
}

/* Only ops that work on host memory ask for it. */
static int32_t exec_reserve(void *ctx, uint64_t bytes) {
  kit_actor *a = ctx;
  if (__atomic_add_fetch(&a->calls, 1, __ATOMIC_RELAXED) == a->fail_at) return BS_NO_MEMORY;
  if (a->scratch != NULL && bytes <= a->scratch_bytes) return BS_OK;
  void *more = kit_fence_alloc((bytes + 63) / 64 * 64, 1);
  if (more == NULL) return BS_NO_MEMORY;
  kit_fence_free(a->scratch);
  a->scratch = more;
  a->scratch_bytes = bytes;
  return BS_OK;
}

/* Nothing of an earlier run is left in it. */
static void *exec_scratch(void *ctx) {
  const kit_actor *a = ctx;
  const uint64_t most = UINT64_C(1) << 16;
  if (a->scratch != NULL) memset(a->scratch, 0xE7, a->scratch_bytes < most ? a->scratch_bytes : most);
  return a->scratch;
}

typedef struct member {
  void (*body)(void *arg, uint32_t member, uint32_t width);
  void *arg;
  uint32_t member, width;
} member;

static void *member_main(void *opaque) {
  const member *m = opaque;
  m->body(m->arg, m->member, m->width);
  return NULL;
}

static int32_t parallel_for(void *ctx, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg) {
  kit_actor *a = ctx;
  pthread_t threads[16];
  member members[16];
  if (__atomic_add_fetch(&a->team_calls, 1, __ATOMIC_RELAXED) == a->team_fail_at) return BS_INTERNAL;
  for (uint32_t i = 0; i < a->exec.width; i++) {
    members[i] = (member){body, arg, i, a->exec.width};
    kit_assert(i == 0 || pthread_create(&threads[i], NULL, member_main, &members[i]) == 0, "no threads");
  }
  body(arg, 0, a->exec.width);
  for (uint32_t i = 1; i < a->exec.width; i++) pthread_join(threads[i], NULL);
  return BS_OK;
}

/* The backend that the op is for: the plugin's own, or another's that the library finds. */
static void find_backend(kit_actor *a, void **out_state) {
  bs_error err = BS_ERROR_INIT;
  for (uint32_t i = 0; i < a->p->host.n_things; i++) {
    const kit_thing *t = &a->p->host.things[i];
    if (t->kind != BS_KIND_BACKEND || strcmp(((const bs_backend *)t->vtable)->name, a->impl->backend) != 0)
      continue;
    a->backend = t->vtable;
    *out_state = t->state;
    return;
  }
  const bs_context_options o = {.struct_size = sizeof o, .trust = BS_TRUST_ANY, .log_level = BS_LOG_ERROR};
  int32_t rc = bs_context_open(&o, &a->context, &err);
  if (rc == BS_OK) rc = bs_find_backend(a->context, a->impl->backend, &a->backend, out_state, &err);
  kit_assert(rc == BS_OK, "is for a backend that is not there: %s: %s", err.id, err.message);
}

static const bs_op_impl *sibling(const kit_actor *a, const char *op_name, void **out_state) {
  const bs_op_impl *found = NULL;
  for (uint32_t i = 0; i < a->p->host.n_things; i++) {
    const kit_thing *t = &a->p->host.things[i];
    const bs_op_impl *op = t->vtable;
    if (t->kind != BS_KIND_OP || strcmp(op->op, op_name) != 0 || strcmp(op->name, a->impl->name) != 0 ||
        strcmp(op->backend, a->impl->backend) != 0)
      continue;
    found = op;
    *out_state = t->state;
  }
  return found;
}

/* Weights are packed by the matmul of the same backend and name; a step takes those of its matmul24 too. */
static void find_packer(kit_actor *a) {
  if (a->impl->pack != NULL) {
    a->packer = a->impl;
    a->packer_state = a->state;
    return;
  }
  const char *op = a->impl->op;
  if (!kit_op_is(op, "matmul_dx") && !kit_changes_weight(op) && !kit_is_take_q(op)) return;
  const char *packer = kit_is_take_q(op)                 ? "matmul_q"
                       : strncmp(op, "matmul24", 8) == 0 ? "matmul24"
                                                         : "matmul";
  a->packer = sibling(a, packer, &a->packer_state);
  if (kit_is_step(a->impl->op)) a->packer24 = sibling(a, "matmul24", &a->packer24_state);
  kit_assert(a->packer != NULL, "%s@%s/%s has no %s of its name to pack its weights", a->impl->op,
             a->impl->backend, a->impl->name, packer);
}

const char *kit_actor_attach(kit_actor *a, kit_plugin *p, uint32_t thing, uint32_t width) {
  static bs_error err;
  uint32_t devices = 0;
  void *state = NULL;
  a->p = p;
  kit_assert(thing < p->host.n_things, "registers fewer things than before");
  a->impl = p->host.things[thing].vtable;
  a->state = p->host.things[thing].state;
  find_backend(a, &state);
  find_packer(a);
  bs_error_clear(&err);
  int32_t rc = a->backend->device_count(state, &devices, &err);
  if (rc != BS_OK || devices == 0) return err.message[0] != '\0' ? err.message : "it counts none";
  rc = a->backend->device_open(state, 0, &a->device, &err);
  kit_assert(rc == BS_OK, "device 0 cannot be opened: %s: %s", err.id, err.message);
  a->exec = (bs_exec){.struct_size = sizeof a->exec,
                      .width = width,
                      .device = a->device,
                      .ctx = a,
                      .parallel_for = parallel_for,
                      .alloc = exec_alloc,
                      .free = exec_free,
                      .reserve = exec_reserve,
                      .scratch = exec_scratch};
  return NULL;
}

int kit_actor_open(kit_actor *a, uint32_t thing, uint32_t width) {
  memset(a, 0, sizeof *a);
  kit_plugin_open(&a->own);
  const char *why = kit_actor_attach(a, &a->own, thing, width);
  if (why != NULL) kit_unsupported("backend %s has no device here: %s", a->impl->backend, why);
  return why == NULL;
}

void kit_actor_close(kit_actor *a) {
  kit_assert(a->live == 0, "%s@%s/%s leaves %lld blocks of device memory", a->impl->op, a->impl->backend,
             a->impl->name, (long long)a->live);
  kit_fence_free(a->scratch);
  a->scratch = NULL;
  if (a->device != NULL) a->backend->device_close(a->device);
  if (a->context != NULL) bs_context_close(a->context);
  if (a->p != &a->own) return;
  kit_plugin_deactivate(&a->own);
  kit_assert(a->own.host.blocks == 0, "leaves %lld blocks of host memory after deactivate",
             (long long)a->own.host.blocks);
}
