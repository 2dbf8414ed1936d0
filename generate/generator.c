/* SPDX-License-Identifier: MIT
 * generator.c - opens, runs and closes a generator. */
#include "generate/generator.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

int32_t gen_no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GEN-MEMORY", "no memory for a generator");
}

static int32_t null_argument(const char *function, bs_error *err) {
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GEN-NULL", "%s was given NULL", function);
}

static int32_t bind(bs_token_generator *g, int64_t batch, int64_t sequence, int64_t wanted, bs_error *err) {
  const bs_dim dims[3] = {{sizeof(bs_dim), 0, "batch", batch},
                          {sizeof(bs_dim), 0, "sequence", sequence},
                          {sizeof(bs_dim), 0, "rows", wanted}};
  const bs_dim *const list[3] = {&dims[0], &dims[1], &dims[2]};
  const struct {
    void *data;
    uint32_t rank;
    int64_t dims[2];
  } ports[3] = {{g->ids, 2, {batch, sequence}}, {g->lengths, 1, {batch, 1}}, {g->rows, 1, {wanted, 1}}};
  g->batch = 0;
  int32_t rc = bs_session_bind(g->session, list, 3, err);
  for (uint32_t i = 0; rc == BS_OK && i < 3; i++) {
    bs_tensor t = {.struct_size = sizeof t, .dtype = BS_I64, .rank = ports[i].rank, .data = ports[i].data};
    for (uint32_t d = 0; d < t.rank; d++) t.dims[d] = ports[i].dims[d];
    t.strides[0] = t.rank == 2 ? t.dims[1] : 1;
    t.strides[1] = t.rank == 2 ? 1 : 0;
    t.bytes = (uint64_t)(ports[i].dims[0] * (t.rank == 2 ? t.dims[1] : 1)) * sizeof(int64_t);
    rc = bs_session_set(g->session, i, &t, err);
  }
  if (rc != BS_OK) return rc;
  g->batch = batch;
  g->sequence = sequence;
  g->wanted = wanted;
  return BS_OK;
}

int32_t gen_run(bs_token_generator *g, int64_t first, int64_t batch, int64_t sequence, int64_t wanted,
                bs_error *err) {
  int32_t rc = BS_OK;
  if (batch != g->batch || sequence != g->sequence || wanted != g->wanted)
    rc = bind(g, batch, sequence, wanted, err);
  if (rc == BS_OK) rc = bs_session_slot(g->session, first, err);
  if (rc == BS_OK) rc = bs_session_run(g->session, err);
  if (rc == BS_OK) rc = bs_session_get(g->session, 3, &g->logits, err);
  return rc;
}

/* The graph has slots, and the size of its vocabulary is known once a session is open. */
static int32_t read_graph(bs_token_generator *g, bs_error *err) {
  bs_graph_info info = {.struct_size = sizeof info};
  const int32_t rc = bs_graph_info_get(g->graph, &info, err);
  if (rc != BS_OK) return rc;
  if (info.slots < 1) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-GEN-MODEL",
                 "%.200s does not generate: it was opened without slots, or is no folder of a language model",
                 info.path[0] != '\0' ? info.path : "a model without files");
    bs_error_hint(err, "bs_graph_options.slots, and a folder with config.json and safetensors");
    return BS_UNSUPPORTED;
  }
  g->n_slots = info.slots;
  g->limit = info.cache_tokens;
  return BS_OK;
}

static int32_t open_session(bs_context *context, bs_token_generator *g, const bs_session_options *given,
                            bs_error *err) {
  static const bs_dim dims[3] = {
      {sizeof(bs_dim), 0, "batch", 1}, {sizeof(bs_dim), 0, "sequence", 1}, {sizeof(bs_dim), 0, "rows", 1}};
  const bs_dim *const list[3] = {&dims[0], &dims[1], &dims[2]};
  bs_session_options o = {0};
  bs_tensor_desc logits = {.struct_size = sizeof logits};
  if (given != NULL) memcpy(&o, given, given->struct_size < sizeof o ? given->struct_size : sizeof o);
  o.struct_size = sizeof o;
  o.dims = list;
  o.n_dims = 3;
  o.share = NULL;
  o.f64 = 0;
  if (o.tokenwise < BS_BITS_TOKENS) o.tokenwise = BS_BITS_BATCH;
  if (o.plans == 0) o.plans = 32;
  int32_t rc = bs_session_open(context, g->graph, &o, &g->session, err);
  if (rc == BS_OK) rc = bs_session_port(g->session, 3, NULL, &logits, err);
  if (rc == BS_OK && (logits.rank != 2 || logits.dims[1] < 1))
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GEN-MODEL", "the model's output has no logits");
  g->words = rc == BS_OK ? logits.dims[1] : 0;
  return rc;
}

static int32_t make_room(bs_token_generator *g, bs_error *err) {
  const size_t slots = (size_t)g->n_slots, words = (size_t)g->words;
  const size_t tokens = (size_t)(g->chunk > 8 * g->n_slots ? g->chunk : 8 * g->n_slots) + GEN_PROMPT_LEAST;
  g->slots = calloc(slots, sizeof *g->slots);
  g->ids = calloc(tokens, sizeof *g->ids);
  g->lengths = calloc(slots, sizeof *g->lengths);
  g->rows = calloc(8 * slots, sizeof *g->rows);
  g->room.p = malloc(words * sizeof *g->room.p);
  g->room.order = malloc(words * sizeof *g->room.order);
  g->room.seen = calloc(words, 1);
  int ok = g->slots != NULL && g->ids != NULL && g->lengths != NULL && g->rows != NULL && g->room.p != NULL &&
           g->room.order != NULL && g->room.seen != NULL;
  for (size_t i = 0; ok && i < slots; i++) {
    g->slots[i].ids = calloc((size_t)g->limit + 1u, sizeof(int64_t));
    ok = g->slots[i].ids != NULL;
  }
  return ok ? BS_OK : gen_no_memory(err);
}

BS_API int32_t bs_generator_open(bs_context *context, bs_graph *graph, const bs_generator_options *options,
                                 bs_token_generator **out_generator, bs_error *err) {
  bs_generator_options o = {0};
  if (context == NULL || graph == NULL || out_generator == NULL)
    return null_argument("bs_generator_open", err);
  if (options != NULL && options->struct_size == 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GEN-STRUCT",
                        "struct_size of bs_generator_options is 0");
  if (options != NULL) memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  if (o.chunk != 0 && o.chunk < GEN_CHUNK_LEAST)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GEN-CHUNK", "chunks of %u tokens: at least %d", o.chunk,
                        GEN_CHUNK_LEAST);
  bs_token_generator *g = calloc(1, sizeof *g);
  if (g == NULL) return gen_no_memory(err);
  g->graph = graph;
  g->chunk = o.chunk != 0 ? o.chunk : GEN_CHUNK;
  g->stop = o.stop;
  g->stop_user = o.stop_user;
  int32_t rc = read_graph(g, err);
  if (rc == BS_OK && g->chunk > g->limit) g->chunk = g->limit;
  if (rc == BS_OK) rc = open_session(context, g, o.session, err);
  if (rc == BS_OK) rc = make_room(g, err);
  if (rc != BS_OK) {
    bs_generator_close(g);
    return rc;
  }
  *out_generator = g;
  return BS_OK;
}

BS_API void bs_generator_end(bs_token_generator *g, uint32_t slot) {
  if (g == NULL || slot >= g->n_slots) return;
  g->slots[slot].live = g->slots[slot].ready = 0;
}

BS_API int64_t bs_generator_limit(const bs_token_generator *g) {
  return g != NULL ? g->limit : 0;
}

BS_API int32_t bs_generator_stats_get(const bs_token_generator *g, bs_generator_stats *out_stats,
                                      bs_error *err) {
  if (g == NULL || out_stats == NULL || out_stats->struct_size == 0)
    return null_argument("bs_generator_stats_get", err);
  bs_session_stats session = {.struct_size = sizeof session};
  bs_generator_stats stats = g->stats;
  const int32_t rc = bs_session_stats_get(g->session, &session, err);
  stats.struct_size = out_stats->struct_size;
  stats.fallback_nodes = session.fallback_nodes;
  memcpy(out_stats, &stats, stats.struct_size < sizeof stats ? stats.struct_size : sizeof stats);
  return rc;
}

BS_API int32_t bs_generator_follow(bs_token_generator *g, bs_error *err) {
  return g == NULL ? null_argument("bs_generator_follow", err) : bs_session_follow(g->session, err);
}

BS_API void bs_generator_close(bs_token_generator *g) {
  if (g == NULL) return;
  bs_session_close(g->session);
  for (int64_t i = 0; i < g->n_slots && g->slots != NULL; i++) free(g->slots[i].ids);
  free(g->slots);
  free(g->ids);
  free(g->lengths);
  free(g->rows);
  free(g->room.p);
  free(g->room.order);
  free(g->room.seen);
  free(g);
}
