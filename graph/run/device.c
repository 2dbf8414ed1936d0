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

int32_t gdevice_no_room(const gcore *core, const grank *rank, const char *what, uint64_t bytes,
                        bs_error *err) {
  const double mib = 1024.0 * 1024.0;
  uint64_t held = 0;
  char asked[64] = "";
  for (uint32_t i = 0; i < core->n_blocks; i++) held += core->blocks[i].tensor.bytes;
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

int32_t gdevice_constant(gcore *core, grank *rank, const graph *g, const gvalue *root, const void *owner,
                         void **out_data, bs_error *err) {
  const uint64_t bytes = graph_bytes(root);
  const int own = graph_owns(g, root->data);
  for (uint32_t i = 0; i < core->n_blocks && !own; i++) {
    const gdevice *known = &core->blocks[i];
    if (known->of != root->data || known->tensor.bytes != bytes) continue;
    *out_data = known->tensor.data;
    return BS_OK;
  }
  int32_t rc = gdevice_take(core, rank, "a constant", bytes, own ? owner : NULL, out_data, err);
  if (rc != BS_OK) return rc;
  if (!own) core->blocks[core->n_blocks - 1].of = root->data;
  if (rank->phantom) return BS_OK;
  rc = bs_rank_copy(rank->rank, *out_data, root->data, bytes, BS_COPY_HOST_TO_DEVICE, err);
  return rc == BS_OK ? bs_rank_sync(rank->rank, err) : rc;
}

static void block_free(gdevice *block) {
  grank *rank = block->rank;
  if (grank_enter_to_free(rank)) {
    rank->api->tensor_free(rank->rank, &block->tensor);
    grank_leave_freed(rank);
  }
  grank_drop(rank);
}

void gdevice_drop(gcore *core, const void *owner) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < core->n_blocks; i++)
    if (owner == NULL || core->blocks[i].owner == owner)
      block_free(&core->blocks[i]);
    else
      core->blocks[kept++] = core->blocks[i];
  core->n_blocks = kept;
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
