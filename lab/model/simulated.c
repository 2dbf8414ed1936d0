/* SPDX-License-Identifier: MIT
 * simulated.c - see simulated.h. */
#include "lab/model/simulated.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "formats/npy.h"
#include "lab/error.h"
#include "lab/model/bench.h"
#include "lab/model/inputs.h"
#include "lab/phase/simulated.h"

/* Returns the time that the rank which ends last spends in collectives. */
static double in_collectives(const bs_simulated *s) {
  return s->own[BS_SIM_LATENCY] + s->own[BS_SIM_WIRE] + s->own[BS_SIM_WAIT];
}

/* A backend without a virtual clock charges no op: the time would be that of the collectives alone. */
static int32_t charges_ops(const bs_simulated *s, uint64_t flops, bs_error *err) {
  if (flops == 0 || s->ops > 0) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-SIM-VALUES",
               "the backend charges no op of the model to the virtual clock");
  bs_error_hint(err, "--backend sim, or virtual:cpu for values, too");
  return BS_CONFIG;
}

int32_t bs_model_simulated_row(const bs_model *m, const bs_model_ranks *k, const char *work, int64_t tokens,
                               int64_t before, json_t **out, bs_error *err) {
  bs_simulated s;
  uint64_t flops, bytes;
  bs_session_stats stats = {.struct_size = sizeof stats};
  memset(&s, 0, sizeof s);
  bs_simulated_take(m->world, &s);
  json_decref(s.steps); /* of the nodes: bs_model_simulated_limits */
  s.steps = NULL;
  int32_t rc = bs_simulated_takes_time(s.ps, err);
  if (rc == BS_OK) rc = bs_model_count_work(m->session, &flops, &bytes, err);
  if (rc == BS_OK) rc = charges_ops(&s, flops, err);
  if (rc == BS_OK) rc = bs_session_stats_get(m->session, &stats, err);
  if (rc == BS_OK) {
    const double seconds = s.ps * 1e-12;
    const uint32_t replicas = k->replicas > 0 ? k->replicas : 1;
    s.phantom = k->phantom;
    *out = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:f, s:o}", "work", work, "method",
        k->method != NULL ? k->method : "", "world_size", (json_int_t)k->n * replicas, "cache_tokens",
        (json_int_t)before, "nodes", (json_int_t)bs_session_node_count(m->session), "flops",
        (json_int_t)flops * replicas, "collectives", (json_int_t)stats.collectives, "layers_whole",
        (json_int_t)stats.layers_whole, "simulated_s", seconds, "tokens_per_s",
        tokens > 0 ? json_real((double)tokens * replicas / seconds) : json_null(), "collectives_share",
        in_collectives(&s) / s.ps, "simulated", bs_simulated_json(&s, k->machine));
    if (*out == NULL) rc = bs_no_memory(err, "a row");
    char beyond[400];
    if (rc == BS_OK &&
        bs_simulated_beyond(&s, k->machine, k->n, k->algorithm, k->topology, beyond, sizeof beyond))
      json_object_set_new(json_object_get(*out, "simulated"), "beyond", json_string(beyond));
  }
  if (rc == BS_OK && k->replicas > 1) json_object_set_new(*out, "replicas", json_integer(k->replicas));
  if (rc == BS_OK && tokens > 0) json_object_set_new(*out, "tokens", json_integer(tokens));
  return rc;
}

/* Adds the terms of the steps whose middle is before `end`, from step *io_at on. Times in us. */
static void add_steps(const json_t *steps, size_t *io_at, double end, double *io_terms) {
  for (; *io_at < json_array_size(steps); ++*io_at) {
    const json_t *step = json_array_get(steps, *io_at);
    const double began = json_number_value(json_object_get(step, "began"));
    if (began + 0.5 * json_number_value(json_object_get(step, "took")) > end) return;
    for (int i = 0; i < BS_SIM_TERMS; i++)
      io_terms[i] += json_number_value(json_object_get(step, bs_sim_term_names[i]));
  }
}

void bs_model_simulated_limits(const bs_model *m, json_t *nodes) {
  bs_simulated s;
  json_t *node;
  size_t i, at = 0;
  double end = 0;
  memset(&s, 0, sizeof s);
  bs_simulated_take(m->world, &s);
  json_array_foreach(nodes, i, node) {
    double terms[BS_SIM_TERMS] = {0};
    end += 1e6 * json_number_value(json_object_get(node, "seconds"));
    add_steps(s.steps, &at, end, terms);
    if (s.steps != NULL) json_object_set_new(node, "limit", json_string(bs_simulated_term(terms)));
  }
  json_decref(s.steps);
}

/* The longest last dim of the input files. What is wrong with a file is told when its numbers are read. */
static int64_t longest_input(const bs_model_request *r) {
  int64_t most = 0;
  for (size_t i = 0; i < r->inputs.n; i++) {
    const char *equals = strrchr(r->inputs.words[i], '=');
    bs_npy npy;
    const char *path = equals != NULL ? equals + 1 : r->inputs.words[i];
    if (bs_npy_open(path, &npy, NULL) != BS_OK) continue;
    if (npy.rank > 0 && npy.dims[npy.rank - 1] > most) most = npy.dims[npy.rank - 1];
    bs_npy_close(&npy);
  }
  return most;
}

int64_t bs_model_simulated_cache(const bs_model_request *r) {
  int64_t most = longest_input(r), size;
  for (size_t i = 0; i < r->dims.n; i++) {
    const char *equals = strrchr(r->dims.words[i], '=');
    if (equals != NULL && bs_parse_size(equals + 1, &size) && size > most) most = size;
  }
  return most > 0 && most < INT32_MAX ? most + 1 : BS_MODEL_MADE_SIZE + 1;
}
