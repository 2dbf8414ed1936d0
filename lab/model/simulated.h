/* SPDX-License-Identifier: MIT
 * simulated.h - runs of a model over ranks in virtual time (`bsrun model bench --hardware M`). */
#ifndef BS_LAB_MODEL_SIMULATED_H
#define BS_LAB_MODEL_SIMULATED_H
#include "lab/model/model.h"

/* The row of the newest run of a model whose world has a virtual clock: {work, method, world_size, tokens,
 * cache_tokens, nodes, flops, simulated_s, tokens_per_s (both of all ranks), replicas, collectives_share,
 * simulated (as in records of layers)}. tokens 0: the model has no key-value cache. BS_CONFIG,
 * BS-SIM-MACHINE: nothing takes time. */
int32_t bs_model_simulated_row(const bs_model *model, const bs_model_ranks *ranks, const char *work,
                               int64_t tokens, int64_t before, json_t **out, bs_error *err);
/* Adds `limit` to each node of a profile of the newest run, in the order of the run: the term (as in
 * bs_simulated_limit) that takes most of its time on rank 0; "nothing" where no work is charged. The plugin
 * sim keeps the steps of rank 0 (steps_first); without them no limit is added. */
void bs_model_simulated_limits(const bs_model *model, json_t *nodes);
/* The tokens of a cache that the prompt of --dim NAME=N or of --input, else a made one, and one more token
 * need: attention is charged for the whole cache. */
int64_t bs_model_simulated_cache(const bs_model_request *request);
#endif
