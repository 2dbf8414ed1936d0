/* SPDX-License-Identifier: MIT
 *
 * device.c - what a rank's device tells of itself, and emptying its cache: one block of the backend's own
 * memory, half of it copied over the other half. Called by the lab.
 */
#include <string.h>

#include "core/world/world.h"

static int32_t ask(bs_rank *rank, bs_device_state *out, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  memset(out, 0, sizeof *out);
  out->struct_size = (uint32_t)sizeof *out;
  if (backend->device_state == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-DEVICE-STATE",
                        "backend %s does not report its device's state", backend->name);
  return backend->device_state(rank->device, out, err);
}

/* Leaves the block of a flush out of the memory peak: the peak before the flush, or the peak without its
 * block, whichever is larger. */
int32_t bs_rank_device_state(bs_rank *rank, bs_device_state *out_state, bs_error *err) {
  const int32_t rc = ask(rank, out_state, err);
  if (rc != BS_OK || rank->flush == NULL || out_state->memory_peak_bytes == 0) return rc;
  const uint64_t high = out_state->memory_peak_bytes, taken = 2 * rank->flush_bytes;
  const uint64_t others = high > taken ? high - taken : 0;
  out_state->memory_peak_bytes = others > rank->peak_before_flush ? others : rank->peak_before_flush;
  return BS_OK;
}

static int32_t take(bs_rank *rank, bs_error *err) {
  const bs_world *world = rank->world;
  bs_device_info info = {.struct_size = (uint32_t)sizeof info};
  bs_device_state state;
  if ((world->backend->flags & BS_BACKEND_HOST_MEMORY) != 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-DEVICE-FLUSH", "backend %s has the host's caches",
                        world->backend->name);
  int32_t rc = world->backend->device_info(world->backend_state,
                                           bs_world_place(world, rank->index) % world->devices, &info, err);
  if (rc != BS_OK) return rc;
  if (info.cache_bytes == 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-DEVICE-FLUSH", "%s does not tell the size of its cache",
                        info.name);
  rank->peak_before_flush = ask(rank, &state, NULL) == BS_OK ? state.memory_peak_bytes : 0;
  rank->flush_bytes = 2 * info.cache_bytes;
  rc = world->backend->mem_alloc(rank->device, 2 * rank->flush_bytes, 64, &rank->flush, err);
  if (rc != BS_OK) {
    rank->flush = NULL;
    bs_error_hint(err, "phase.cold=false goes without cold samples");
  }
  return rc;
}

int32_t bs_rank_device_flush(bs_rank *rank, uint64_t *out_bytes, bs_error *err) {
  const bs_backend *backend = rank->world->backend;
  int32_t rc = rank->flush == NULL ? take(rank, err) : BS_OK;
  *out_bytes = 0;
  if (rc == BS_OK)
    rc = backend->mem_copy(rank->device, (char *)rank->flush + rank->flush_bytes, rank->flush,
                           rank->flush_bytes, BS_COPY_DEVICE_TO_DEVICE, NULL, err);
  if (rc == BS_OK) rc = bs_rank_sync(rank, err);
  if (rc == BS_OK) *out_bytes = rank->flush_bytes;
  return rc;
}

void bs_rank_flush_free(bs_rank *rank) {
  if (rank->flush != NULL) rank->world->backend->mem_free(rank->device, rank->flush);
  rank->flush = NULL;
}
