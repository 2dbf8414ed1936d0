/* SPDX-License-Identifier: MIT
 *
 * layer.c - built layers of a method, and proposals. Thin: finds the method, checks what every method
 * would have to check, calls it. Called by embedding programs and the lab.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/op/knob.h"
#include "core/world/world.h"

struct bs_layer {
  const bs_method *method;
  bs_rank *rank;
  void *object;
  bs_facade *facade; /* of a layer over a group; NULL: over the world */
  uint32_t flags;
  int64_t N, K;
  bs_layer_capture_state *graph; /* NULL without BS_LAYER_CAPTURE */
};

/* A step needs the gradients that backward makes, a velocity an SGD that uses it. */
static int32_t check_flags(uint32_t flags, bs_error *err) {
  const uint32_t steps = BS_LAYER_SGD | BS_LAYER_ADAMW;
  const uint32_t all = BS_LAYER_BACKWARD | BS_LAYER_MOMENTUM | BS_LAYER_CAPTURE | steps;
  if (flags & ~all) return bs_error_set(err, BS_CONFIG, "BS-LAYER-FLAGS", "unknown flags 0x%x", flags);
  if (((flags & steps) && !(flags & BS_LAYER_BACKWARD)) ||
      ((flags & BS_LAYER_MOMENTUM) && !(flags & BS_LAYER_SGD))) {
    bs_error_set(err, BS_CONFIG, "BS-LAYER-FLAGS", "flags 0x%x: an optimiser without what it needs", flags);
    bs_error_hint(err, "SGD and ADAMW need BACKWARD, MOMENTUM needs SGD");
    return BS_CONFIG;
  }
  return BS_OK;
}

static int32_t check_spec(const bs_layer_spec *s, bs_error *err) {
  if (s->B < 1 || s->N < 1 || s->K < 1)
    return bs_error_set(err, BS_CONFIG, "BS-LAYER-SHAPE", "B, N, K must be positive: %lld, %lld, %lld",
                        (long long)s->B, (long long)s->N, (long long)s->K);
  if (s->K > (int64_t)UINT32_MAX)
    return bs_error_set(err, BS_CONFIG, "BS-LAYER-SHAPE", "K = %lld; at most %lld", (long long)s->K,
                        (long long)UINT32_MAX);
  if (!bs_dtype_known(s->x_dtype) || !bs_dtype_known(s->w_dtype) || !bs_dtype_known(s->y_dtype))
    return bs_error_set(err, BS_CONFIG, "BS-LAYER-DTYPE", "unknown dtype among x 0x%04x, w 0x%04x, y 0x%04x",
                        s->x_dtype, s->w_dtype, s->y_dtype);
  if (bs_dtype_is_float(s->x_dtype) != bs_dtype_is_float(s->w_dtype) ||
      bs_dtype_is_float(s->x_dtype) != bs_dtype_is_float(s->y_dtype)) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-LAYER-DTYPE", "x %s, w %s, y %s: all float or all integer",
                 bs_dtype_name(s->x_dtype), bs_dtype_name(s->w_dtype), bs_dtype_name(s->y_dtype));
    bs_error_hint(
        err,
        "columns of W in int8 or fp8 are the option mixed of a method (share/doc/blockshock/methods.md)");
    return BS_UNSUPPORTED;
  }
  if (s->x_placement > BS_SPLIT_TOKENS || s->y_placement > BS_SPLIT_TOKENS)
    return bs_error_set(err, BS_CONFIG, "BS-LAYER-PLACEMENT", "unknown placement: x %u, y %u", s->x_placement,
                        s->y_placement);
  return check_flags(s->flags, err);
}

static int32_t check_world(const bs_method *m, uint32_t world_size, bs_error *err) {
  if ((m->max_world != 0 && world_size > m->max_world) || world_size < m->min_world) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-LAYER-WORLD", "method %s on %u ranks; it serves %u to %u", m->name,
                 world_size, m->min_world != 0 ? m->min_world : 1,
                 m->max_world != 0 ? m->max_world : BS_WORLD_MAX);
    if (m->default_world != 0) bs_error_hint(err, "its usual number is %u", m->default_world);
    return BS_UNSUPPORTED;
  }
  return BS_OK;
}

/* Over a group, or with NULL over the world. */
static int32_t build(bs_rank *rank, bs_group *group, const char *method, const bs_layer_spec *spec,
                     const bs_source *weights, const bs_source *bias, bs_layer **out_layer, bs_error *err) {
  const bs_method *m;
  void *state;
  int32_t rc = bs_find_method(rank->world->context, method, &m, &state, err);
  if (rc == BS_OK) rc = check_spec(spec, err);
  if (rc == BS_OK) rc = check_world(m, group != NULL ? group->n : rank->world->size, err);
  if (rc == BS_OK)
    rc = bs_method_check_options(m, spec->n_options, spec->option_keys, spec->option_values, err);
  if (rc != BS_OK) return rc;
  if (weights == NULL || weights->rows != spec->N || weights->cols != spec->K)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-LAYER-WEIGHTS",
                        "weights must be N x K = %lld x %lld, they are %lld x %lld", (long long)spec->N,
                        (long long)spec->K, weights ? (long long)weights->rows : 0,
                        weights ? (long long)weights->cols : 0);
  if (spec->has_bias && (bias == NULL || bias->rows != 1 || bias->cols != spec->N))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-LAYER-BIAS", "the bias must be 1 x %lld",
                        (long long)spec->N);
  bs_layer *layer = calloc(1, sizeof *layer);
  if (layer == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-LAYER-MEMORY", "no memory for a layer");
  layer->method = m;
  layer->rank = rank;
  layer->flags = spec->flags;
  layer->N = spec->N;
  layer->K = spec->K;
  bs_layer_spec seen = *spec; /* by the method */
  seen.flags &= ~(uint32_t)BS_LAYER_CAPTURE;
  if ((group != NULL && (layer->facade = bs_facade_new(group)) == NULL) ||
      ((spec->flags & BS_LAYER_CAPTURE) && (layer->graph = bs_capture_new(rank)) == NULL)) {
    free(layer->facade);
    free(layer);
    return bs_error_set(err, BS_NO_MEMORY, "BS-LAYER-MEMORY", "no memory for a layer");
  }
  bs_rank *seen_rank = group != NULL ? (bs_rank *)(void *)layer->facade : rank;
  const bs_rank_api *api = group != NULL ? bs_facade_api() : bs_rank_get_api();
  int timed = !bs_region_running(rank, BS_REGION_BUILD); /* unless the caller times it */
  if (timed) bs_region_begin(rank, BS_REGION_BUILD);
  if ((spec->flags & BS_LAYER_BACKWARD) == 0) bs_memory_calls_begin(rank); /* else backward reads it too */
  rc = m->build(state, api, seen_rank, &seen, weights, spec->has_bias ? bias : NULL, &layer->object, err);
  bs_memory_calls_end(rank);
  if (timed) bs_region_end(rank, BS_REGION_BUILD);
  if (rc == BS_OK && layer->object == NULL)
    rc =
        bs_error_set(err, BS_PLUGIN, "BS-LAYER-NULL", "rank %u: build returned OK and no layer", rank->index);
  if (rc != BS_OK) {
    if (err != NULL && err->where[0] == '\0') bs_error_where(err, "build of method %s", m->name);
    bs_capture_free(layer->graph);
    free(layer->facade);
    free(layer);
    return rc;
  }
  *out_layer = layer;
  return BS_OK;
}

int32_t bs_layer_build(bs_rank *rank, const char *method, const bs_layer_spec *spec, const bs_source *weights,
                       const bs_source *bias, bs_layer **out_layer, bs_error *err) {
  return build(rank, NULL, method, spec, weights, bias, out_layer, err);
}

int32_t bs_layer_build_in(bs_group *group, const char *method, const bs_layer_spec *spec,
                          const bs_source *weights, const bs_source *bias, bs_layer **out_layer,
                          bs_error *err) {
  return build(group->rank, group, method, spec, weights, bias, out_layer, err);
}

/* The one at `i` is written to: it came as such. */
static bs_tensor *written(const bs_work *w, uint32_t i) {
  return (bs_tensor *)(uintptr_t)w->tensors[i];
}

int32_t bs_work_run(const bs_work *w, bs_error *err) {
  const bs_method *m = w->method;
  if (w->pass == BS_PASS_FORWARD) return m->forward(w->object, w->tensors[0], written(w, 1), w->stream, err);
  if (w->pass == BS_PASS_STEP) return m->step(w->object, w->step, w->stream, err);
  return m->backward(w->object, w->tensors[0], w->tensors[1], written(w, 2), written(w, 3), written(w, 4),
                     w->stream, err);
}

static int32_t run_pass(bs_layer *layer, const bs_work *work, uint32_t region, bs_error *err) {
  bs_rank *rank = layer->rank;
  int timed = !bs_region_running(rank, region); /* unless the caller times it */
  if (timed) bs_region_begin(rank, region);
  const int32_t rc = layer->graph != NULL ? bs_capture_run(layer->graph, work, err) : bs_work_run(work, err);
  if (timed) bs_region_end(rank, region);
  return rc;
}

int32_t bs_layer_forward(bs_layer *layer, const bs_tensor *x, bs_tensor *y, bs_stream *stream,
                         bs_error *err) {
  const bs_work work = {BS_PASS_FORWARD, layer->method, layer->object, {x, y}, NULL, stream};
  return run_pass(layer, &work, BS_REGION_FORWARD, err);
}

int32_t bs_layer_backward(bs_layer *layer, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx,
                          bs_tensor *dw, bs_tensor *db, bs_stream *stream, bs_error *err) {
  if (layer->method->backward == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-LAYER-BACKWARD", "method %s has no backward pass",
                        layer->method->name);
  const bs_work work = {BS_PASS_BACKWARD, layer->method, layer->object, {x, dy, dx, dw, db}, NULL, stream};
  return run_pass(layer, &work, BS_REGION_BACKWARD, err);
}

static int32_t check_step(const bs_layer *layer, const bs_step *step, bs_error *err) {
  uint32_t needs = step->optimizer == BS_OPT_ADAMW ? BS_LAYER_ADAMW : BS_LAYER_SGD;
  if (step->struct_size < sizeof *step)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-LAYER-STEP", "struct_size %u, need %zu",
                        step->struct_size, sizeof *step);
  if (step->optimizer != BS_OPT_SGD && step->optimizer != BS_OPT_ADAMW)
    return bs_error_set(err, BS_CONFIG, "BS-LAYER-STEP", "unknown optimiser %u", step->optimizer);
  if (step->optimizer == BS_OPT_SGD && step->momentum != 0.0) needs |= BS_LAYER_MOMENTUM;
  if ((layer->flags & needs) != needs) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-LAYER-STEP",
                 "the layer was built with flags 0x%x, the step needs 0x%x", layer->flags, needs);
    bs_error_hint(err, "build it with BS_LAYER_SGD, BS_LAYER_MOMENTUM or BS_LAYER_ADAMW");
    return BS_UNSUPPORTED;
  }
  if (step->optimizer == BS_OPT_ADAMW && step->t == 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-LAYER-STEP", "step 0 of AdamW: the first is 1");
  const int fused =
      step->optimizer == BS_OPT_SGD && !(layer->flags & BS_LAYER_MOMENTUM) && step->weight_decay == 0.0;
  if (step->dw != NULL || (fused && step->x != NULL && step->dy != NULL)) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-LAYER-STEP", "the step has no dw%s",
               fused ? ", and not both x and dy" : "");
  bs_error_hint(err, "only SGD without momentum and decay makes its update of x and dy");
  return BS_INVALID_ARGUMENT;
}

int32_t bs_layer_step(bs_layer *layer, const bs_step *step, bs_stream *stream, bs_error *err) {
  if (layer->method->step == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-LAYER-STEP", "method %s cannot be trained",
                        layer->method->name);
  const int32_t rc = check_step(layer, step, err);
  if (rc != BS_OK) return rc;
  const bs_work work = {BS_PASS_STEP, layer->method, layer->object, {step->dw, step->db, step->x, step->dy},
                        step,         stream};
  return run_pass(layer, &work, BS_REGION_OPT_STEP, err);
}

/* A part of W that the caller indexes by: a plugin's numbers are believed only here. */
static int32_t check_columns(const bs_partition *p, int64_t K, char *why, size_t size) {
  const int gather = p->kind == BS_PARTITION_GATHER;
  if (p->count < 0 || p->count > K || (gather && p->count > 0 && p->columns == NULL))
    return snprintf(why, size, "%" PRId64 " columns%s of %" PRId64, p->count,
                    p->columns == NULL && gather ? " without a list" : "", K);
  if (!gather && (p->begin < 0 || p->begin > K - p->count))
    return snprintf(why, size, "%" PRId64 " columns from %" PRId64 " on, of %" PRId64, p->count, p->begin, K);
  for (int64_t i = 0; gather && i < p->count; ++i) {
    const uint32_t column = p->columns[i];
    if (column >= K || (i > 0 && column <= p->columns[i - 1]))
      return snprintf(why, size,
                      "column %u at place %" PRId64 " of its list; columns ascend and are below %" PRId64,
                      column, i, K);
  }
  return 0;
}

static int32_t check_kept(const bs_ownership *o, int64_t K, char *why, size_t size) {
  const bs_kept *k = o->kept;
  const int64_t cols = o->columns != NULL ? o->columns->count : K;
  if (k->read != NULL && k->rows == o->row_count && k->cols == cols) return 0;
  return snprintf(why, size,
                  "positions of %" PRId64 " x %" PRId64 " weights%s for a part of %" PRId64 " x %" PRId64,
                  k->rows, k->cols, k->read != NULL ? "" : ", without `read`,", o->row_count, cols);
}

int32_t bs_layer_owns(bs_layer *layer, bs_ownership *o, bs_error *err) {
  char why[160] = "";
  memset(o, 0, sizeof *o);
  o->struct_size = (uint32_t)sizeof *o;
  const int32_t rc = layer->method->owns(layer->object, o, err);
  if (rc != BS_OK) return rc;
  if (o->row_begin < 0 || o->row_count < 0 || o->row_count > layer->N ||
      o->row_begin > layer->N - o->row_count)
    snprintf(why, sizeof why, "%" PRId64 " rows from %" PRId64 " on, of %" PRId64, o->row_count, o->row_begin,
             layer->N);
  else if (o->columns == NULL || check_columns(o->columns, layer->K, why, sizeof why) == 0)
    if (o->kept != NULL) check_kept(o, layer->K, why, sizeof why);
  if (why[0] == '\0') return BS_OK;
  memset(o, 0, sizeof *o);
  return bs_error_set(err, BS_PLUGIN, "BS-LAYER-OWNS", "method %s says that rank %u owns %s",
                      layer->method->name, layer->rank->index, why);
}

int32_t bs_layer_read_weights(bs_layer *layer, int64_t row, bs_tensor *out, bs_error *err) {
  return layer->method->read_weights(layer->object, row, out, err);
}

const char *bs_layer_capture(const bs_layer *layer, uint32_t pass) {
  return layer->graph != NULL ? bs_capture_told(layer->graph, pass) : NULL;
}

void bs_layer_free(bs_layer *layer) {
  if (layer == NULL) return;
  bs_capture_free(layer->graph);
  layer->method->layer_free(layer->object);
  free(layer->facade);
  free(layer);
}

/* Checks the numbers of a plugin's proposal that callers use as an index, and ends its text. */
static int32_t check_proposal(const bs_method *m, bs_proposal *p, bs_error *err) {
  p->struct_size = (uint32_t)sizeof *p;
  p->text[sizeof p->text - 1] = '\0';
  if (p->n_collectives <= BS_MAX_PROPOSED && p->n_backward <= BS_MAX_PROPOSED) return BS_OK;
  bs_error_set(err, BS_PLUGIN, "BS-LAYER-PROPOSAL",
               "method %s proposes %u collectives forward and %u backward, at most %d each can be reported",
               m->name, p->n_collectives, p->n_backward, BS_MAX_PROPOSED);
  bs_error_where(err, "propose of method %s", m->name);
  return BS_PLUGIN;
}

int32_t bs_method_propose(bs_context *context, const char *method, const bs_layer_spec *spec, uint32_t rank,
                          uint32_t world_size, bs_proposal *out_proposal, bs_error *err) {
  const bs_method *m;
  void *state;
  int32_t rc = bs_find_method(context, method, &m, &state, err);
  if (rc == BS_OK) rc = check_spec(spec, err);
  if (rc == BS_OK && (world_size == 0 || rank >= world_size))
    rc = bs_error_set(err, BS_INVALID_ARGUMENT, "BS-LAYER-WORLD", "rank %u of %u ranks", rank, world_size);
  if (rc == BS_OK) rc = check_world(m, world_size, err);
  if (rc == BS_OK)
    rc = bs_method_check_options(m, spec->n_options, spec->option_keys, spec->option_values, err);
  if (rc != BS_OK) return rc;
  memset(out_proposal, 0, sizeof *out_proposal);
  out_proposal->struct_size = (uint32_t)sizeof *out_proposal;
  bs_layer_spec seen = *spec;
  seen.flags &= ~(uint32_t)BS_LAYER_CAPTURE;
  rc = m->propose(state, &seen, rank, world_size, out_proposal, err);
  if (rc == BS_OK) rc = check_proposal(m, out_proposal, err);
  if (rc != BS_OK) out_proposal->n_collectives = out_proposal->n_backward = 0;
  return rc;
}
