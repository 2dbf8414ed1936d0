/* SPDX-License-Identifier: MIT
 * ranks.c - the options of a model's sessions, and the world that they run on. */
#include "core/base/error.h"
#include "lab/model/model.h"

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
                                    .fallback = 1};
  return bs_world_create(context, &options, &m->world, err);
}
