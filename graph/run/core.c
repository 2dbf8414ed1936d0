/* SPDX-License-Identifier: MIT
 * core.c - what sessions of one model share: packed weights, copies of constants, states; and the ranks that
 * live as long as what they packed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/world/executor.h"
#include "graph/ir/arena.h"
#include "graph/run/run.h"
#include "graph/split/method.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a session");
}

static gcore *core_new(const bs_session_options *options) {
  gcore *core = calloc(1, sizeof *core);
  if (core == NULL) return NULL;
  core->progress = options->progress;
  core->progress_user = options->progress_user;
  core->threads = options->threads;
  core->bind = options->bind;
  snprintf(core->backend, sizeof core->backend, "%s",
           options->rank != NULL      ? bs_rank_backend(options->rank)
           : options->backend != NULL ? options->backend
                                      : "cpu");
  pthread_mutex_init(&core->lock, NULL);
  return core;
}

static void core_free(gcore *core) {
  for (uint32_t i = 0; i < core->n_copies; i++) free(core->copies[i].data);
  for (uint32_t i = 0; i < core->n_states; i++) {
    free(core->states[i].name);
    free(core->states[i].memory);
  }
  pthread_mutex_destroy(&core->lock);
  gmethod_free(core->method);
  free(core->weights);
  free(core->copies);
  free(core->blocks);
  free(core->states);
  free(core);
}

/* Weights were packed for one backend, and by default a session has as many threads as the other. */
static int32_t rank_options(const gcore *core, const bs_session_options *given, bs_session_options *out,
                            bs_error *err) {
  *out = *given;
  if (given->share == NULL) return BS_OK;
  if (given->backend != NULL && strcmp(given->backend, core->backend) != 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-SHARE",
                        "a session on backend %.64s cannot share the weights of one on %.64s", given->backend,
                        core->backend);
  out->backend = core->backend;
  if (given->threads == 0) out->threads = core->threads;
  if (given->bind == 0) out->bind = core->bind;
  return BS_OK;
}

int32_t gcore_open(bs_context *context, gcore *shared, const bs_session_options *options, gcore **out_core,
                   grank **out_rank, bs_error *err) {
  bs_session_options own;
  gcore *core = shared != NULL ? shared : core_new(options);
  grank *rank = calloc(1, sizeof *rank);
  int32_t rc = core == NULL || rank == NULL ? no_memory(err) : rank_options(core, options, &own, err);
  if (rc == BS_OK) rc = grank_open(context, &own, !own.no_fallback, rank, err);
  if (rc != BS_OK) {
    free(rank);
    if (core != NULL && shared == NULL) core_free(core);
    return rc;
  }
  rank->refs = 1;
  pthread_mutex_lock(&core->lock);
  core->refs++;
  pthread_mutex_unlock(&core->lock);
  *out_core = core;
  *out_rank = rank;
  return BS_OK;
}

void gcore_tell(const gcore *core, const char *what, uint64_t done, uint64_t total) {
  if (core->progress != NULL) core->progress(core->progress_user, what, done, total);
}

void gcore_close(gcore *core, grank *rank) {
  if (core == NULL) return;
  pthread_mutex_lock(&core->lock);
  const uint32_t left = --core->refs;
  if (left == 0) glayer_free_all(core);
  if (left == 0) gdevice_drop(core, NULL);
  grank_drop(rank);
  for (uint32_t i = 0; i < core->n_weights && left == 0; i++) {
    grank *packer = core->weights[i].rank;
    if (grank_enter_to_free(packer)) {
      packer->api->packed_release(core->weights[i].packed);
      grank_leave_freed(packer);
    }
    grank_drop(packer);
  }
  pthread_mutex_unlock(&core->lock);
  if (left == 0) core_free(core);
}

int32_t gcore_take_states(gcore *core, const gmodel *model, bs_error *err) {
  if (model->n_states == 0 || atomic_exchange(&core->states_busy, 1u) == 0) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-BUSY",
               "a session that shares this key-value cache is running");
  bs_error_hint(err, "sessions that share a cache run one after the other; open one that shares nothing");
  return BS_INVALID_ARGUMENT;
}

void gcore_give_states(gcore *core, const gmodel *model) {
  if (model->n_states > 0) atomic_store(&core->states_busy, 0u);
}

/* ---- constants and states -------------------------------------------------------------------- */

enum { LINE = 64 };

static void *alloc_lines(uint64_t bytes) {
  if (bytes > SIZE_MAX - 128u) return NULL;
  void *data = aligned_alloc(64, ((size_t)bytes + 64u) & ~(size_t)63u);
  return data;
}

/* The pages of a mapped file that were copied are given back. */
static void copy_mapped(unsigned char *to, const unsigned char *from, uint64_t bytes) {
  enum { PIECE = 4 << 20 };
  for (uint64_t at = 0; at < bytes; at += PIECE) {
    const uint64_t n = bytes - at < PIECE ? bytes - at : PIECE;
    memcpy(to + at, from + at, n);
    gdrop_mapped(from + at, n);
  }
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
  const int32_t rc = bs_memory_fits(bytes, "BS-GRAPH-MEMORY", "the constants of the model", err);
  if (rc != BS_OK) return rc;
  void *data = alloc_lines(bytes);
  if (data == NULL || !ARRAY_GROW(core->copies, core->n_copies, core->cap_copies)) {
    free(data);
    return no_memory(err);
  }
  copy_mapped(data, root->data, bytes);
  core->copies[core->n_copies++] = (gcopy){root->data, data};
  *out_data = data;
  return BS_OK;
}

uint64_t gcore_state_bytes(const gcore *core, const gvalue *v) {
  const uint64_t bytes = (uint64_t)graph_count(v) * BS_DTYPE_BYTES(v->dtype);
  return core->slots > 0 && v->dims[0] > 0 ? bytes / (uint64_t)v->dims[0] * (uint64_t)core->slots : bytes;
}

int32_t gcore_state(gcore *core, grank *rank, const char *name, uint64_t bytes, void **out_data,
                    bs_error *err) {
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
  int32_t rc = gdevice_fits(rank, core->state_bytes + bytes, "the states and the cache of the model", err);
  if (rc != BS_OK) return rc;
  if (!ARRAY_GROW(core->states, core->n_states, core->cap_states)) return no_memory(err);
  /* Zeros that are not written: the system takes a page when the first token is stored in it. */
  unsigned char *memory = !rank->apart && bytes <= SIZE_MAX - LINE ? calloc(1, (size_t)bytes + LINE) : NULL;
  void *data = memory != NULL ? memory + (LINE - (uintptr_t)memory % LINE) : NULL;
  char *copy = bs_strdup(name);
  if (copy == NULL)
    rc = no_memory(err);
  else if (rank->apart)
    rc = gdevice_take(core, rank, "a state", bytes, NULL, &data, err);
  else if (memory == NULL)
    rc = no_memory(err);
  if (rc != BS_OK) {
    free(copy);
    free(memory);
    return rc;
  }
  core->states[core->n_states++] = (gstate){copy, data, memory, bytes};
  core->state_bytes += bytes;
  *out_data = data;
  return BS_OK;
}
