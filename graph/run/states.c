/* SPDX-License-Identifier: MIT
 * states.c - the bytes of a core's key-value states: a check runs a model more than once from the same ones.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/world/executor.h"
#include "graph/run/run.h"

enum { BLOCK = 4096 };

/* Copies what differs. Most of a cache was never written: reading it takes no memory, writing it would. */
static void copy_changes(unsigned char *to, const unsigned char *from, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += BLOCK) {
    const size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;
    if (memcmp(to + at, from + at, n) != 0) memcpy(to + at, from + at, n);
  }
}

uint64_t gstates_bytes(const gcore *core) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < core->n_states; i++) bytes += core->states[i].bytes;
  return bytes;
}

/* Copies between the host and a device. */
static int32_t copy_apart(const gcore *core, grank *rank, unsigned char *host, uint32_t kind, bs_error *err) {
  int32_t rc = grank_enter(rank, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 0; i < core->n_states && rc == BS_OK; host += core->states[i++].bytes) {
    void *device = core->states[i].data;
    const int up = kind == BS_COPY_HOST_TO_DEVICE;
    rc = bs_rank_copy(rank->rank, up ? device : host, up ? host : device, core->states[i].bytes, kind, err);
  }
  if (rc == BS_OK) rc = bs_rank_sync(rank->rank, err);
  return grank_leave(rank, rc, err);
}

int32_t gstates_get(const gcore *core, grank *rank, unsigned char *to, bs_error *err) {
  if (rank->apart) return copy_apart(core, rank, to, BS_COPY_DEVICE_TO_HOST, err);
  for (uint32_t i = 0; i < core->n_states; to += core->states[i++].bytes)
    copy_changes(to, core->states[i].data, core->states[i].bytes);
  return BS_OK;
}

int32_t gstates_put(const gcore *core, grank *rank, const unsigned char *from, bs_error *err) {
  if (rank->apart)
    return copy_apart(core, rank, (unsigned char *)(uintptr_t)from, BS_COPY_HOST_TO_DEVICE, err);
  for (uint32_t i = 0; i < core->n_states; from += core->states[i++].bytes)
    copy_changes(core->states[i].data, from, core->states[i].bytes);
  return BS_OK;
}

static int32_t copy_slot(const gbinding *b, int64_t from, int64_t to, int64_t tokens, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < b->g->n_values && rc == BS_OK; i++) {
    const gvalue *v = &b->g->values[i];
    if (v->kind != GV_STATE || v->rank != 4) continue;
    const int64_t line = v->dims[3] * (int64_t)BS_DTYPE_BYTES(v->dtype), group = v->dims[2] * line,
                  row = v->dims[1] * group;
    unsigned char *slot0 = (unsigned char *)b->tensors[i].data - b->slot * row;
    for (int64_t g = 0; g < v->dims[1] && rc == BS_OK; g++)
      rc = bs_rank_copy(b->rank->rank, slot0 + to * row + g * group, slot0 + from * row + g * group,
                        (uint64_t)(tokens * line), BS_COPY_DEVICE_TO_DEVICE, err);
  }
  return rc == BS_OK ? bs_rank_sync(b->rank->rank, err) : rc;
}

int32_t gstates_copy_slot(const gbinding *b, int64_t from, int64_t to, int64_t tokens, bs_error *err) {
  const int32_t rc = grank_enter(b->rank, err);
  return rc == BS_OK ? grank_leave(b->rank, copy_slot(b, from, to, tokens, err), err) : rc;
}

int32_t gstates_keep(const gcore *core, grank *rank, unsigned char **out_bytes, bs_error *err) {
  *out_bytes = calloc(1, gstates_bytes(core) + 1u); /* zeros take no memory before they are written */
  if (*out_bytes == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a copy of the cache");
  return gstates_get(core, rank, *out_bytes, err);
}
