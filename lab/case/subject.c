/* SPDX-License-Identifier: MIT
 * subject.c - from an experiment to the thing that is measured: the opened workload, its sources, the layer
 * spec and the world size. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/config/experiment.h"
#include "lab/lab.h"

static int32_t open_workload(bs_context *context, const bs_experiment *e, bs_subject *out, bs_error *err) {
  void *state = NULL;
  int32_t rc = bs_find_workload(context, e->workload, &out->workload, &state, err);
  if (rc != BS_OK) return rc;
  const bs_workload_request request = {.struct_size = sizeof request,
                                       .dtype = e->dtype,
                                       .B = e->B,
                                       .N = e->N,
                                       .K = e->K,
                                       .seed = e->workload_seed,
                                       .weight_seed = e->seed,
                                       .has_bias = e->has_bias,
                                       .n_options = e->n_workload_options,
                                       .option_keys = e->workload_keys,
                                       .option_values = e->workload_values};
  rc = out->workload->open(state, &request, &out->instance, err);
  if (rc != BS_OK) return rc;
  out->info.struct_size = sizeof out->info;
  return out->workload->info(out->instance, &out->info, err);
}

static int32_t open_sources(bs_subject *out, bs_error *err) {
  const bs_workload *w = out->workload;
  out->x.struct_size = out->w.struct_size = out->bias.struct_size = out->target.struct_size =
      sizeof(bs_source);
  int32_t rc = w->source(out->instance, BS_PART_X, &out->x, err);
  if (rc == BS_OK) rc = w->source(out->instance, BS_PART_W, &out->w, err);
  if (rc == BS_OK && out->info.has_bias) rc = w->source(out->instance, BS_PART_BIAS, &out->bias, err);
  if (rc == BS_OK && out->info.has_target) rc = w->source(out->instance, BS_PART_TARGET, &out->target, err);
  return rc;
}

static int32_t resolve_world(bs_context *context, const bs_experiment *e, bs_subject *out, bs_error *err) {
  const bs_method *method = NULL;
  void *state = NULL;
  const int32_t rc = bs_find_method(context, e->method, &method, &state, err);
  if (rc != BS_OK) return rc;
  out->world_size = bs_experiment_world(e, method);
  if (method->max_world && out->world_size > method->max_world) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-METHOD-WORLD", "%s runs on at most %u rank(s), -P asked for %u",
                 method->name, method->max_world, out->world_size);
    bs_error_hint(err, "use -P %u, or another method (bsrun plugins list)", method->max_world);
    return BS_UNSUPPORTED;
  }
  return BS_OK;
}

/* Opens the mask of the layer: the experiment's. If it is cut or kept high by importance, the columns are put
 * into that order. A layer that splits without a mask gets one without other settings. */
static int32_t open_mask(const bs_experiment *e, bs_subject *out, bs_error *err) {
  const int mixed = bs_mixed_wanted(e->n_method_options, e->method_keys, e->method_values) >= 0;
  out->mask = e->mask;
  if (!mixed && (!e->mask_given || e->mask.kind != BS_MASK_IMPORTANCE)) return BS_OK;
  if (!e->mask_given)
    out->mask = (bs_mask){.struct_size = sizeof out->mask, .kind = BS_MASK_CONTIGUOUS, .name = "contiguous"};
  const int32_t rc = bs_importance_order(out, e->importance ? e->importance : "ranges", &out->order, err);
  out->mask.order = out->order;
  out->mask.n_order = out->info.K;
  return rc;
}

/* Refuses a bias for a method that takes none, with the setting that removes it: a bias is in every run
 * unless it is left out. The method itself refuses other things in build. */
static int32_t refuse_bias(const bs_experiment *e, const bs_subject *s, bs_error *err) {
  bs_proposal p = {.struct_size = sizeof p};
  bs_layer_spec bare = s->spec;
  bs_error why = BS_ERROR_INIT;
  bare.has_bias = 0;
  if (!s->spec.has_bias) return BS_OK;
  const int32_t rc =
      bs_method_propose((bs_context *)(uintptr_t)s->context, e->method, &s->spec, 0, s->world_size, &p, &why);
  if (rc == BS_OK || bs_method_propose((bs_context *)(uintptr_t)s->context, e->method, &bare, 0,
                                       s->world_size, &p, NULL) != BS_OK)
    return BS_OK;
  if (err != NULL) *err = why;
  bs_error_hint(err, "this method takes no bias: --set method.bias=false");
  return rc;
}

int32_t bs_subject_open(bs_context *context, const bs_experiment *e, bs_subject *out, bs_error *err) {
  memset(out, 0, sizeof *out);
  out->context = context;
  int32_t rc = resolve_world(context, e, out, err);
  if (rc == BS_OK) rc = open_workload(context, e, out, err);
  if (rc == BS_OK) rc = open_sources(out, err);
  if (rc == BS_OK) rc = open_mask(e, out, err);
  if (rc != BS_OK) {
    bs_subject_close(out);
    return rc;
  }
  out->spec = (bs_layer_spec){.struct_size = sizeof out->spec,
                              .has_bias = out->info.has_bias,
                              .B = out->info.B,
                              .N = out->info.N,
                              .K = out->info.K,
                              .x_dtype = e->dtype,
                              .w_dtype = e->dtype,
                              .y_dtype = e->dtype,
                              .reduce_dtype = e->reduce_dtype,
                              .accumulate = e->accumulate,
                              .activation = e->activation,
                              .x_placement = e->x_placement,
                              .y_placement = e->y_placement,
                              .flags = (e->phase >= BS_PHASE_BACKWARD ? (uint32_t)BS_LAYER_BACKWARD : 0u) |
                                       (e->graph ? (uint32_t)BS_LAYER_CAPTURE : 0u),
                              .mask = e->mask_given || out->order ? &out->mask : NULL,
                              .n_options = e->n_method_options,
                              .option_keys = e->method_keys,
                              .option_values = e->method_values};
  rc = refuse_bias(e, out, err);
  if (rc != BS_OK) bs_subject_close(out);
  return rc;
}

void bs_subject_close(bs_subject *subject) {
  /* A rank that has not returned may still read its weights. */
  const int stuck = bs_context_stuck(subject->context) > 0;
  if (subject->workload && subject->instance && !stuck) subject->workload->close(subject->instance);
  if (!stuck) free(subject->order);
  memset(subject, 0, sizeof *subject);
}
