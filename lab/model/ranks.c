/* SPDX-License-Identifier: MIT
 * ranks.c - the options of a model's sessions, and the world that they run on. */
#include "core/base/error.h"
#include "lab/cores.h"
#include "lab/model/model.h"

/* Rows of the longest part of a prompt (generate.h): layers are then built once, whatever is bound first. */
static int64_t most_rows(const bs_graph *g) {
  enum { PROMPT = 512 };
  bs_graph_info info = {.struct_size = sizeof info};
  if (bs_graph_info_get(g, &info, NULL) != BS_OK) return 0;
  return info.cache_tokens < PROMPT ? info.cache_tokens : PROMPT; /* 0: it has no cache */
}

bs_session_options bs_model_session_options(const bs_model_request *r, const bs_model *m) {
  bs_session_options o = {.struct_size = sizeof o,
                          .dims = m->dim_pointers,
                          .n_dims = (uint32_t)m->n_dims,
                          .passes_off = m->passes_off,
                          .n_passes_off = (uint32_t)m->n_passes_off,
                          .profile = r->profile,
                          .weights = r->weights,
                          .activations = r->activations,
                          .exact = r->exact,
                          .tokenwise = r->tokenwise,
                          .progress = r->progress,
                          .progress_user = r->progress_user};
  if (m->world != NULL) {
    const bs_model_ranks *k = r->ranks;
    o.world = m->world;
    o.method = k->method;
    o.method_keys = k->keys;
    o.method_values = k->values;
    o.n_method_options = k->n_options;
    o.tokens = most_rows(m->graph);
    o.mask = k->has_mask ? &k->mask : NULL;
    return o;
  }
  o.threads = r->threads;
  o.bind = r->bind;
  o.backend = r->backend;
  o.choices = r->choices.words;
  o.n_choices = (uint32_t)r->choices.n;
  return o;
}

/* Processes of one world run the same program. */
static uint64_t build_hash(void) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (const char *id = bs_build_id(); *id != '\0'; id++)
    hash = (hash ^ (unsigned char)*id) * UINT64_C(1099511628211);
  return hash;
}

int32_t bs_model_world(bs_context *context, const bs_model_request *r, bs_model *m, bs_error *err) {
  if (r->ranks == NULL || m->world != NULL) return BS_OK;
  const bs_world_options options = {.struct_size = sizeof options,
                                    .world_size = r->ranks->n,
                                    .backend = r->backend,
                                    .comm = r->ranks->comm,
                                    .threads_per_rank = r->ranks->threads,
                                    .algorithm = r->ranks->algorithm,
                                    .topology = r->ranks->topology,
                                    /* Ranks that share a core wait for each other there. */
                                    .bind = !r->ranks->simulated,
                                    .choices = r->choices.words,
                                    .n_choices = (uint32_t)r->choices.n,
                                    .fallback = 1,
                                    .timeout_s = r->ranks->timeout_s,
                                    .config_hash = build_hash()};
  return bs_world_create(context, &options, &m->world, err);
}

uint32_t bs_model_threads(const bs_model_request *r) {
  const bs_model_ranks *k = r->ranks;
  const uint32_t cores = bs_machine_cores();
  if (k == NULL) return r->threads > 0 ? r->threads : cores;
  if (k->simulated || k->n > cores) return k->threads > 0 ? k->threads : 1;
  return k->threads > 0 ? k->threads : cores / k->n;
}

int bs_model_follows(const bs_model *m) {
  const uint32_t own = m->world != NULL ? bs_world_own_rank(m->world) : BS_WORLD_ALL_RANKS;
  return own != BS_WORLD_ALL_RANKS && own > 0;
}

int32_t bs_model_follow(const bs_model *m, bs_session *session, bs_error *err) {
  if (!bs_model_follows(m)) return BS_OK;
  const int32_t rc = bs_session_follow(session, err);
  return rc == BS_OK ? bs_model_done(0, err) : rc;
}

int32_t bs_model_done(int exit_code, bs_error *err) {
  bs_error_set(err, BS_ABORTED, BS_MODEL_DONE_ID, "this process has done its part");
  if (err != NULL) err->native_code = exit_code;
  return BS_ABORTED;
}
