/* SPDX-License-Identifier: MIT
 * states.c - the bytes of a core's key-value states: a check runs a model more than once from the same ones.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
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

void gstates_get(const gcore *core, unsigned char *to) {
  for (uint32_t i = 0; i < core->n_states; to += core->states[i++].bytes)
    copy_changes(to, core->states[i].data, core->states[i].bytes);
}

void gstates_put(const gcore *core, const unsigned char *from) {
  for (uint32_t i = 0; i < core->n_states; from += core->states[i++].bytes)
    copy_changes(core->states[i].data, from, core->states[i].bytes);
}

void gstates_copy_slot(const gbinding *b, int64_t from, int64_t to, int64_t tokens) {
  for (uint32_t i = 0; i < b->g->n_values; i++) {
    const gvalue *v = &b->g->values[i];
    if (v->kind != GV_STATE || v->rank != 4) continue;
    const int64_t line = v->dims[3] * (int64_t)BS_DTYPE_BYTES(v->dtype), group = v->dims[2] * line,
                  row = v->dims[1] * group;
    unsigned char *slot0 = (unsigned char *)b->tensors[i].data - b->slot * row;
    for (int64_t g = 0; g < v->dims[1]; g++)
      memmove(slot0 + to * row + g * group, slot0 + from * row + g * group, (size_t)(tokens * line));
  }
}

int32_t gstates_keep(const gcore *core, unsigned char **out_bytes, bs_error *err) {
  *out_bytes = calloc(1, gstates_bytes(core) + 1u); /* zeros take no memory before they are written */
  if (*out_bytes == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a copy of the cache");
  gstates_get(core, *out_bytes);
  return BS_OK;
}
