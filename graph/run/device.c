/* SPDX-License-Identifier: MIT
 * device.c - memory of a rank whose backend has its own: blocks that the session takes from it, and copies of
 * constants. Where the backend holds no values (BS_BACKEND_PHANTOM) the blocks are addresses that nothing
 * reads or writes; they are taken so that the device counts them, and refuses a model that it has no room
 * for. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/world/executor.h"
#include "graph/ir/arena.h"
#include "graph/run/run.h"

/* The first block of the same memory: bindings may have a constant in common. */
static uint32_t first_of(const gcore *core, uint32_t block) {
  uint32_t i = 0;
  while (core->blocks[i].tensor.data != core->blocks[block].tensor.data) i++;
  return i;
}

uint64_t gdevice_held(const gcore *core) {
  uint64_t held = 0;
  for (uint32_t i = 0; i < core->n_blocks; i++)
    if (first_of(core, i) == i) held += core->blocks[i].tensor.bytes;
  return held;
}

int32_t gdevice_no_room(const gcore *core, const grank *rank, const char *what, uint64_t bytes,
                        bs_error *err) {
  const double mib = 1024.0 * 1024.0;
  const uint64_t held = gdevice_held(core);
  char asked[64] = "";
  if (err == NULL || rank->phantom || strcmp(err->id, "BS-GRAPH-DEVICE-MEMORY") == 0) return BS_NO_MEMORY;
  const bs_error why = *err;
  if (bytes > 0) snprintf(asked, sizeof asked, "%.1f MiB of ", (double)bytes / mib);
  bs_error_set(
      err, BS_NO_MEMORY, "BS-GRAPH-DEVICE-MEMORY",
      "no memory for %s%s on backend %.64s; the session holds packed weights of %.1f MiB, the cache of "
      "%.1f MiB, all else of %.1f MiB: %.300s",
      asked, what, bs_rank_backend(rank->rank), (double)core->packed_bytes / mib,
      (double)core->state_bytes / mib, (double)(held - core->state_bytes) / mib, why.message);
  bs_error_hint(err,
                "weights are smaller with --weights w8, or on more ranks (--method F+S -P n); else smaller "
                "dimensions, or --cache-tokens with a smaller number");
  return BS_NO_MEMORY;
}

int32_t gdevice_take(gcore *core, grank *rank, const char *what, uint64_t bytes, const void *owner,
                     void **out_data, bs_error *err) {
  const bs_tensor_desc desc = {.struct_size = (uint32_t)sizeof desc,
                               .dtype = BS_U8,
                               .rank = 1,
                               .dims = {(int64_t)bytes},
                               .strides = {1}};
  if (bytes > INT64_MAX || !ARRAY_GROW(core->blocks, core->n_blocks, core->cap_blocks))
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a session");
  gdevice *block = &core->blocks[core->n_blocks];
  const int32_t rc = rank->api->tensor_alloc(rank->rank, &desc, BS_LIFE_ACTIVATION, &block->tensor, err);
  if (rc == BS_NO_MEMORY) return gdevice_no_room(core, rank, what, bytes, err);
  if (rc != BS_OK) return rc;
  block->of = NULL;
  block->owner = owner;
  block->rank = rank;
  rank->refs++;
  core->n_blocks++;
  *out_data = block->tensor.data;
  return BS_OK;
}

/* Adds the owner to those of a block. */
static int32_t share(gcore *core, uint32_t block, const void *owner, bs_error *err) {
  if (core->blocks[block].owner == NULL) return BS_OK;
  if (!ARRAY_GROW(core->blocks, core->n_blocks, core->cap_blocks))
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a session");
  gdevice *other = &core->blocks[core->n_blocks++];
  *other = core->blocks[block];
  other->owner = owner;
  other->rank->refs++;
  return BS_OK;
}

int32_t gdevice_constant(gcore *core, grank *rank, const graph *g, const gvalue *root, const void *owner,
                         void **out_data, bs_error *err) {
  const uint64_t bytes = graph_bytes(root);
  const int own = graph_owns(g, root->data);
  /* A constant that was computed lives as long as a binding has it; then its place may be another one's. */
  const int lasts = !own && !(g->ask == gfold_ask && gfold_has(g->ask_user, root->data));
  for (uint32_t i = 0; i < core->n_blocks && !own; i++) {
    if (core->blocks[i].of != root->data || core->blocks[i].tensor.bytes != bytes) continue;
    *out_data = core->blocks[i].tensor.data;
    return share(core, i, owner, err);
  }
  int32_t rc = gdevice_take(core, rank, "a constant", bytes, owner, out_data, err);
  if (rc == BS_OK && !rank->phantom)
    rc = bs_rank_copy(rank->rank, *out_data, root->data, bytes, BS_COPY_HOST_TO_DEVICE, err);
  if (rc == BS_OK && !rank->phantom) rc = bs_rank_sync(rank->rank, err);
  if (rc != BS_OK || own) return rc;
  gdevice *made = &core->blocks[core->n_blocks - 1]; /* found from here on: it has its numbers */
  made->of = root->data;
  if (lasts) made->owner = NULL;
  return BS_OK;
}

static void block_free(gdevice *block, int others) {
  grank *rank = block->rank;
  if (!others && grank_enter_to_free(rank)) {
    rank->api->tensor_free(rank->rank, &block->tensor);
    grank_leave_freed(rank);
  }
  grank_drop(rank);
}

/* 1: a block that stays, or that goes later, has the same memory. */
static int is_shared(const gcore *core, uint32_t kept, uint32_t block) {
  const bs_tensor *t = &core->blocks[block].tensor;
  for (uint32_t i = 0; i < core->n_blocks && t->bytes > 0; i++)
    if ((i < kept || i > block) && core->blocks[i].tensor.data == t->data) return 1;
  return 0;
}

void gdevice_drop(gcore *core, const void *owner) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < core->n_blocks; i++)
    if (owner == NULL || core->blocks[i].owner == owner)
      block_free(&core->blocks[i], is_shared(core, kept, i));
    else
      core->blocks[kept++] = core->blocks[i];
  core->n_blocks = kept;
}

void gdevice_forget(gcore *core, const void *owner) {
  pthread_mutex_lock(&core->lock);
  for (uint32_t i = 0; i < core->n_blocks; i++)
    if (core->blocks[i].owner == owner) core->blocks[i].of = NULL;
  pthread_mutex_unlock(&core->lock);
}

int32_t gdevice_has_values(const grank *rank, const char *what, bs_error *err) {
  if (!rank->phantom) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-VALUES", "%s is asked for, and backend %.64s holds no values",
               what, bs_rank_backend(rank->rank));
  bs_error_hint(err, "bsrun model bench takes its times; --backend virtual:ref has values");
  return BS_UNSUPPORTED;
}

int32_t gdevice_fits(const grank *rank, uint64_t bytes, const char *what, bs_error *err) {
  return rank->apart ? BS_OK : bs_memory_fits(bytes, "BS-GRAPH-MEMORY", what, err);
}
