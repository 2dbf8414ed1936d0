/* SPDX-License-Identifier: MIT
 * core.c - what sessions of one model share: the rank, packed weights, copies of constants, states. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "graph/ir/arena.h"
#include "graph/run/run.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a session");
}

int32_t gcore_open(bs_context *context, const bs_session_options *options, gcore **out_core, bs_error *err) {
  gcore *core = calloc(1, sizeof *core);
  if (core == NULL) return no_memory(err);
  core->refs = 1;
  core->progress = options->progress;
  core->progress_user = options->progress_user;
  snprintf(core->backend, sizeof core->backend, "%s", options->backend != NULL ? options->backend : "cpu");
  const int32_t rc = grank_open(context, options, !options->no_fallback, &core->rank, err);
  if (rc != BS_OK) {
    free(core);
    return rc;
  }
  *out_core = core;
  return BS_OK;
}

void gcore_tell(const gcore *core, const char *what, uint64_t done, uint64_t total) {
  if (core->progress != NULL) core->progress(core->progress_user, what, done, total);
}

void gcore_release(gcore *core) {
  if (core == NULL || --core->refs > 0) return;
  if (core->n_weights > 0 && grank_enter(&core->rank, NULL) == BS_OK) {
    for (uint32_t i = 0; i < core->n_weights; i++) core->rank.api->packed_release(core->weights[i].packed);
    grank_leave(&core->rank, BS_OK, NULL);
  }
  for (uint32_t i = 0; i < core->n_copies; i++) free(core->copies[i].data);
  for (uint32_t i = 0; i < core->n_states; i++) free(core->states[i].memory);
  grank_close(&core->rank);
  free(core->weights);
  free(core->copies);
  free(core->states);
  free(core);
}

/* ---- constants and states -------------------------------------------------------------------- */

enum { LINE = 64 };

static void *alloc_lines(uint64_t bytes) {
  if (bytes > SIZE_MAX - 128u) return NULL;
  void *data = aligned_alloc(64, ((size_t)bytes + 64u) & ~(size_t)63u);
  return data;
}

int32_t gcore_constant(gcore *core, const gvalue *root, void **out_data, bs_error *err) {
  const uint32_t size = BS_DTYPE_BYTES(root->dtype);
  *out_data = (void *)root->data;
  if (((uintptr_t)root->data & (size - 1u)) == 0) return BS_OK;
  for (uint32_t i = 0; i < core->n_copies; i++)
    if (core->copies[i].from == root->data) {
      *out_data = core->copies[i].data;
      return BS_OK;
    }
  const uint64_t bytes = (uint64_t)graph_count(root) * size;
  void *data = alloc_lines(bytes);
  if (data == NULL || !ARRAY_GROW(core->copies, core->n_copies, core->cap_copies)) {
    free(data);
    return no_memory(err);
  }
  memcpy(data, root->data, bytes);
  core->copies[core->n_copies++] = (gcopy){root->data, data};
  *out_data = data;
  return BS_OK;
}

int32_t gcore_state(gcore *core, const char *name, uint64_t bytes, void **out_data, bs_error *err) {
  for (uint32_t i = 0; i < core->n_states; i++) {
    const gstate *s = &core->states[i];
    if (strcmp(s->name, name) != 0) continue;
    if (s->bytes != bytes)
      return bs_error_set(err, BS_CONFIG, "BS-GRAPH-STATE",
                          "state '%.64s' has %llu bytes, another session %llu", name,
                          (unsigned long long)bytes, (unsigned long long)s->bytes);
    *out_data = s->data;
    return BS_OK;
  }
  /* Zeros that nobody has written: the system gives a page when a token comes to lie in it. */
  unsigned char *memory = bytes <= SIZE_MAX - LINE ? calloc(1, (size_t)bytes + LINE) : NULL;
  if (memory == NULL || !ARRAY_GROW(core->states, core->n_states, core->cap_states)) {
    free(memory);
    return no_memory(err);
  }
  void *data = memory + (LINE - (uintptr_t)memory % LINE);
  core->states[core->n_states++] = (gstate){name, data, memory, bytes};
  core->state_bytes += bytes;
  *out_data = data;
  return BS_OK;
}
