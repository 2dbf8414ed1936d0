/* SPDX-License-Identifier: MIT
 * session.c - sessions: options, ports, memory, runs. bind.c binds them to sizes. */
#include "graph/run/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "graph/run/args.h"
#include "graph/split/front.h"
#include "graph/split/method.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a session");
}

bs_session *gsession_lead(const bs_session *s) {
  return s != NULL && s->front != NULL ? gfront_lead(s->front) : (bs_session *)(uintptr_t)s;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int32_t no_weights(const bs_session *s, bs_error *err) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-SHAPES", "%.200s has no weights", s->graph->model->path);
  bs_error_hint(err, "a simulated machine runs it: bsrun model bench with --hardware, on the backend sim");
  return BS_UNSUPPORTED;
}

static int32_t open_core(bs_session *s, const bs_session_options *o, bs_error *err) {
  bs_session_options own = *o;
  if (o->f64) own.backend = "ref";
  if (o->share != NULL && (o->share->graph != s->graph || o->share->f64 != o->f64))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-SHARE",
                        "sessions of different models share nothing");
  int32_t rc =
      gcore_open(s->context, o->share != NULL ? o->share->core : NULL, &own, &s->core, &s->rank, err);
  if (rc == BS_OK && s->graph->model->shapes && !s->rank->phantom) rc = no_weights(s, err);
  /* A plan of a range writes some constants for each size, on the host: so a device has a plan for each. */
  if (rc == BS_OK && s->rank->apart && !s->rank->phantom) s->exact = 1;
  if (rc != BS_OK || o->share != NULL) return rc;
  s->core->slots = s->graph->model->slots;
  rc = gmethod_make(s->context, o, bs_world_size(s->rank->world), &s->core->method, err);
  if (rc == BS_OK && s->core->method != NULL) s->core->method->tell = s->tell;
  return rc;
}

/* Who decides how products with quantised weights take X. */
static int32_t read_activations(const bs_session_options *o, uint32_t *out_x_bytes, bs_error *err) {
  static const char *const names[] = {"float", "x8"};
  *out_x_bytes = 0;
  for (uint32_t i = 0; o->activations != NULL && i < 2; i++)
    if (strcmp(names[i], o->activations) == 0) *out_x_bytes = i + 1u;
  if (o->activations == NULL || *out_x_bytes != 0) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-QUANT-SCHEME", "activations: '%.40s' is none of float, x8",
               o->activations);
  return BS_CONFIG;
}

/* A session that shares has the weights of the other. */
static int32_t take_weights(bs_session *s, const bs_session_options *o, bs_error *err) {
  const char *list = o->share != NULL ? o->share->weights : o->weights;
  int32_t rc = read_activations(o, &s->x_bytes, err);
  if (rc == BS_OK && o->share != NULL) s->x_bytes = o->share->x_bytes;
  if (rc == BS_OK) rc = lower_weights_check(list, err);
  if (rc != BS_OK || list == NULL) return rc;
  s->weights = bs_strdup(list);
  return s->weights != NULL ? BS_OK : no_memory(err);
}

static int32_t check_options(const bs_session_options *o, bs_error *err) {
  static const char function[] = "bs_session_open";
  int32_t rc = gargs_dims(function, o->dims, o->n_dims, err);
  if (rc == BS_OK && o->tokenwise > BS_BITS_RANKS)
    rc = bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-BITS",
                      "tokenwise is %u, and enum bs_session_bits ends at %d", o->tokenwise, BS_BITS_RANKS);
  if (rc == BS_OK && o->tokenwise == BS_BITS_RANKS && o->method == NULL) {
    bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-BITS", "bits of all numbers of ranks need a method");
    bs_error_hint(err, "method, and a world of one rank or more");
    return BS_INVALID_ARGUMENT;
  }
  if (rc == BS_OK) rc = gargs_list(function, "passes_off", o->passes_off, o->n_passes_off, err);
  if (rc == BS_OK) rc = gargs_list(function, "method_keys", o->method_keys, o->n_method_options, err);
  if (rc == BS_OK) rc = gargs_list(function, "method_values", o->method_values, o->n_method_options, err);
  if (rc == BS_OK && o->method != NULL && o->world == NULL && o->rank == NULL)
    rc = bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-WORLD",
                      "method %.60s splits products over ranks, and no world or rank is given", o->method);
  return rc == BS_OK ? gargs_list(function, "choices", o->choices, o->n_choices, err) : rc;
}

BS_API int32_t bs_session_open(bs_context *context, bs_graph *model, const bs_session_options *options,
                               bs_session **out_session, bs_error *err) {
  return gsession_open(context, model, options, NULL, out_session, err);
}

int32_t gsession_open(bs_context *context, bs_graph *model, const bs_session_options *options,
                      struct glead *tell, bs_session **out_session, bs_error *err) {
  bs_session_options o = {0};
  if (context == NULL || model == NULL || out_session == NULL)
    return gargs_null("bs_session_open", "context, graph and out_session", err);
  if (options != NULL &&
      gargs_size("bs_session_open", "bs_session_options", options->struct_size, err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  if (options != NULL) memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  o.struct_size = (uint32_t)sizeof o;
  int32_t rc = check_options(&o, err);
  if (rc == BS_OK) rc = bs_graph_finish(model, err);
  if (rc != BS_OK) return rc;
  bs_session *s = calloc(1, sizeof *s);
  if (s == NULL) return no_memory(err);
  s->context = context;
  s->graph = model;
  s->tell = tell;
  if (o.world != NULL) {
    rc = gfront_open(context, model, &o, &s->front, err);
    if (rc != BS_OK) {
      free(s);
      return rc;
    }
    model->has_session = 1;
    *out_session = s;
    return BS_OK;
  }
  s->f64 = o.f64;
  s->profile = o.profile;
  s->tokenwise = o.tokenwise;
  s->exact = o.exact;
  s->stats.load_s = model->model->load_seconds;
  s->memory = calloc(model->model->n_inputs + model->model->n_outputs + 1u, sizeof *s->memory);
  s->n_bindings = o.plans == 0 ? GSESSION_BINDINGS : o.plans;
  if (s->n_bindings > GSESSION_BINDINGS_MAX) s->n_bindings = GSESSION_BINDINGS_MAX;
  s->bindings = calloc(s->n_bindings, sizeof *s->bindings);
  rc = s->memory == NULL || s->bindings == NULL
           ? no_memory(err)
           : gpass_mask(o.passes_off, o.n_passes_off, &s->passes_off, err);
  if (rc == BS_OK) rc = take_weights(s, &o, err);
  if (rc == BS_OK) rc = open_core(s, &o, err);
  if (rc == BS_OK) rc = bs_session_bind(s, o.dims, o.n_dims, err);
  if (rc != BS_OK) {
    bs_session_close(s);
    return rc;
  }
  model->has_session = 1;
  *out_session = s;
  return BS_OK;
}

BS_API void bs_session_close(bs_session *s) {
  if (s == NULL) return;
  if (s->front != NULL) {
    gfront_close(s->front);
    free(s);
    return;
  }
  for (uint32_t i = 0; i < s->n_bindings && s->bindings != NULL; i++) gsession_drop(s, s->bindings[i]);
  gcore_close(s->core, s->rank);
  free(s->bindings);
  free(s->memory);
  free(s->weights);
  free(s);
}

/* ---- ports ----------------------------------------------------------------------------------- */

BS_API uint32_t bs_session_port_count(const bs_session *s) {
  s = gsession_lead(s);
  return s == NULL ? 0 : s->graph->model->n_inputs + s->graph->model->n_outputs;
}

uint32_t gsession_value(const bs_session *s, uint32_t port) {
  const graph *g = s->bound->g;
  if (port < g->n_inputs) return g->inputs[port].value;
  port -= g->n_inputs;
  return port < g->n_outputs ? g->outputs[port].value : GNONE;
}

static const char *port_name(const bs_session *s, uint32_t port) {
  const gmodel *m = s->graph->model;
  return port < m->n_inputs ? m->inputs[port].name : m->outputs[port - m->n_inputs].name;
}

static int32_t check_port(const bs_session *s, uint32_t port, bs_error *err) {
  if (s == NULL) return gargs_null("a function of a session", "session", err);
  if (port < bs_session_port_count(s)) return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-PORT", "there is no port %u, the session has %u",
                      port, bs_session_port_count(s));
}

BS_API int32_t bs_session_port(const bs_session *s, uint32_t port, const char **out_name,
                               bs_tensor_desc *out_desc, bs_error *err) {
  s = gsession_lead(s);
  const int32_t rc = check_port(s, port, err);
  if (rc != BS_OK) return rc;
  const gvalue *v = &s->bound->g->values[gsession_value(s, port)];
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = v->dtype, .rank = v->rank};
  memcpy(d.dims, v->dims, sizeof d.dims);
  graph_dense_strides(v->rank, d.dims, d.strides);
  if (out_name != NULL) *out_name = port_name(s, port);
  if (out_desc != NULL) *out_desc = d;
  return BS_OK;
}

BS_API int32_t bs_session_find(const bs_session *s, const char *name, uint32_t *out_port, bs_error *err) {
  s = gsession_lead(s);
  if (s == NULL || name == NULL || out_port == NULL)
    return gargs_null("bs_session_find", "session, name and out_port", err);
  const uint32_t n = bs_session_port_count(s);
  for (uint32_t i = 0; i < n; i++)
    if (strcmp(port_name(s, i), name) == 0) {
      *out_port = i;
      return BS_OK;
    }
  const char **names = calloc(n + 1u, sizeof *names);
  for (uint32_t i = 0; i < n && names != NULL; i++) names[i] = port_name(s, i);
  const char *nearest = names != NULL ? bs_nearest(name, names, n) : NULL;
  bs_error_set(err, BS_NOT_FOUND, "BS-GRAPH-PORT", "the model has no input or output '%.64s'", name);
  bs_error_hint(err, nearest != NULL ? "the nearest one is %.64s" : "`bsrun model info` lists them%.0s",
                nearest != NULL ? nearest : "");
  free(names);
  return BS_NOT_FOUND;
}

static int32_t port_differs(const bs_session *s, uint32_t port, const bs_tensor *t, bs_error *err) {
  bs_text want = {0};
  const gvalue *v = &s->bound->g->values[gsession_value(s, port)];
  bs_text_printf(&want, "%s[", bs_dtype_name(v->dtype));
  for (uint32_t i = 0; i < v->rank; i++)
    bs_text_printf(&want, "%s%lld", i > 0 ? "," : "", (long long)v->dims[i]);
  bs_text_printf(&want, "], got %s[", bs_dtype_name(t->dtype));
  for (uint32_t i = 0; i < t->rank && i < BS_MAX_DIMS; i++)
    bs_text_printf(&want, "%s%lld", i > 0 ? "," : "", (long long)t->dims[i]);
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-PORT", "port '%.64s' is dense %s] with %llu bytes",
               port_name(s, port), want.data != NULL ? want.data : "", (unsigned long long)t->bytes);
  bs_error_hint(err, "data is aligned to its element; another size of a symbol needs bs_session_bind");
  bs_text_free(&want);
  return BS_INVALID_ARGUMENT;
}

BS_API int32_t bs_session_set(bs_session *s, uint32_t port, const bs_tensor *t, bs_error *err) {
  if (s == NULL || t == NULL) return gargs_null("bs_session_set", "session and tensor", err);
  if (s->front != NULL) return gfront_set(s->front, port, t, err);
  int32_t rc = gargs_size("bs_session_set", "bs_tensor", t->struct_size, err);
  if (rc == BS_OK) rc = check_port(s, port, err);
  if (rc != BS_OK) return rc;
  const uint32_t value = gsession_value(s, port);
  const gvalue *v = &s->bound->g->values[value];
  const uint64_t bytes = (uint64_t)graph_count(v) * BS_DTYPE_BYTES(v->dtype);
  gvalue given = {.rank = (uint8_t)v->rank};
  int fits = t->dtype == v->dtype && t->rank == v->rank && t->bytes >= bytes &&
             (t->data != NULL || bytes == 0) && ((uintptr_t)t->data & (BS_DTYPE_BYTES(v->dtype) - 1u)) == 0;
  for (uint32_t i = 0; i < v->rank && fits; i++) {
    given.dims[i] = t->dims[i];
    given.strides[i] = t->strides[i];
    fits = t->dims[i] == v->dims[i];
  }
  if (!fits || !graph_is_dense(&given)) return port_differs(s, port, t, err);
  s->memory[port] = t->data != NULL ? t->data : s->memory;
  if (s->rank->apart)
    gports_set(s->bound, port, s->memory[port]);
  else
    gbinding_set_root(s->bound, v->base, s->memory[port]);
  return BS_OK;
}

BS_API int32_t bs_session_get(const bs_session *s, uint32_t port, bs_tensor *out_tensor, bs_error *err) {
  s = gsession_lead(s);
  if (out_tensor == NULL) return gargs_null("bs_session_get", "session and out_tensor", err);
  int32_t rc = check_port(s, port, err);
  if (rc != BS_OK) return rc;
  const bs_tensor *t = &s->bound->tensors[gsession_value(s, port)];
  if (port >= s->graph->model->n_inputs) rc = gdevice_has_values(s->rank, "an output of the model", err);
  if (rc != BS_OK) return rc;
  void *data = s->rank->apart ? gports_host(s->bound, port) : t->data;
  if (data == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-PORT",
                        "port '%.64s' has no memory before the first run", port_name(s, port));
  *out_tensor = *t;
  out_tensor->data = data;
  return rc;
}

uint32_t gsession_compare_ranks(bs_session *s, uint32_t on) {
  return s->front != NULL ? gfront_compare(s->front, on) : 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

BS_API uint64_t bs_session_workspace(const bs_session *s) {
  s = gsession_lead(s);
  return s == NULL ? 0 : s->bound->arena_bytes;
}

/* Outputs that the caller gave memory for lie there and not in the arena. */
void gsession_place(bs_session *s, void *memory) {
  gbinding_place(s->bound, memory);
  const uint32_t n = bs_session_port_count(s);
  for (uint32_t i = s->bound->g->n_inputs; i < n && !s->rank->apart; i++)
    if (s->memory[i] != NULL)
      gbinding_set_root(s->bound, s->bound->g->values[gsession_value(s, i)].base, s->memory[i]);
}

BS_API int32_t bs_session_use_workspace(bs_session *s, void *memory, uint64_t bytes, bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_use_workspace", "session", err);
  if (s->front != NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-WORLD",
                        "a session over a world has memory for intermediate values on each rank");
  if (s->rank->apart)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-WORKSPACE",
                        "intermediate values lie in the memory of backend %.64s", s->core->backend);
  if (((uintptr_t)memory & 63u) != 0 || bytes < s->bound->arena_bytes || (memory == NULL && bytes > 0))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-WORKSPACE",
                        "a workspace of %llu bytes at %p: %llu bytes are needed, aligned to 64",
                        (unsigned long long)bytes, memory, (unsigned long long)s->bound->arena_bytes);
  s->workspace = memory;
  gsession_place(s, memory);
  return BS_OK;
}

static int32_t arena_apart(bs_session *s, bs_error *err) {
  gbinding *b = s->bound;
  int32_t rc = grank_enter(s->rank, err);
  if (rc != BS_OK) return rc;
  pthread_mutex_lock(&s->core->lock);
  rc = gdevice_take(s->core, s->rank, "intermediate values", b->arena_bytes, b, &b->own_arena, err);
  pthread_mutex_unlock(&s->core->lock);
  if (rc == BS_OK) gsession_place(s, b->own_arena);
  return grank_leave(s->rank, rc, err);
}

int32_t gsession_arena(bs_session *s, bs_error *err) {
  gbinding *b = s->bound;
  if (b->arena != NULL || b->arena_bytes == 0) return BS_OK;
  if (s->rank->apart) return arena_apart(s, err);
  /* The system takes a page of a cache when the first token is stored in it: no page before the first token.
   */
  const uint64_t cache = s->core->length == 0 ? s->core->state_bytes : 0;
  const int32_t rc = bs_memory_fits(b->arena_bytes + cache, "BS-GRAPH-MEMORY",
                                    cache > 0 ? "the intermediate values and the cache of the model"
                                              : "the intermediate values of the model",
                                    err);
  if (rc != BS_OK) return rc;
  b->own_arena = aligned_alloc(64, (size_t)(b->arena_bytes + 63u) & ~(size_t)63u);
  if (b->own_arena == NULL) {
    bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for intermediate values: %llu bytes",
                 (unsigned long long)b->arena_bytes);
    return BS_NO_MEMORY;
  }
  gsession_place(s, b->own_arena);
  return BS_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int64_t run_tokens(const bs_session *s) {
  const gmodel *m = s->graph->model;
  const graph *g = s->bound->g;
  for (uint32_t i = 0; i < g->n_inputs && m->tokens_input != GMODEL_NONE; i++) {
    const gvalue *v = &g->values[g->inputs[i].value];
    if (v->source == m->tokens_input) return v->dims[m->tokens_axis];
  }
  return 0;
}

/* The rows of the bound batch, from the chosen slot on, are slots of the model. */
static int32_t slots_there(const bs_session *s, bs_error *err) {
  const gmodel *m = s->graph->model;
  int64_t batch = 0;
  for (uint32_t i = 0; i < m->n_symbols; i++)
    if (strcmp(m->symbols[i], "batch") == 0) batch = s->bound->sizes[i];
  if (batch > 0 && s->slot <= m->slots - batch) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-SLOT",
               "a batch of %lld from slot %lld: there are %lld slots", (long long)batch, (long long)s->slot,
               (long long)m->slots);
  bs_error_hint(err, "open the graph with more slots");
  return BS_INVALID_ARGUMENT;
}

int32_t gsession_ready(bs_session *s, int64_t *out_tokens, bs_error *err) {
  for (uint32_t i = 0; i < s->bound->g->n_inputs; i++)
    if (s->memory[i] == NULL && graph_count(&s->bound->g->values[gsession_value(s, i)]) > 0)
      return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-PORT", "input '%.64s' is not set",
                          port_name(s, i));
  const int64_t limit = s->graph->model->cache_tokens;
  *out_tokens = limit > 0 ? run_tokens(s) : 0;
  if (limit > 0 && *out_tokens > limit - s->core->length) {
    bs_error_set(err, BS_OVERFLOW, "BS-GRAPH-CACHE", "the cache holds %lld of %lld tokens, the run adds %lld",
                 (long long)s->core->length, (long long)limit, (long long)*out_tokens);
    bs_error_hint(err, "empty the cache, or open the model with a larger one");
    return BS_OVERFLOW;
  }
  if (limit > 0) s->bound->length = s->core->length; /* of no cache: sessions run at the same time */
  if (s->graph->model->slots > 0) {
    const int32_t rc = slots_there(s, err);
    if (rc != BS_OK) return rc;
    gbinding_set_slot(s->bound, s->slot);
  }
  return gsession_arena(s, err);
}

static int32_t run_once(bs_session *s, bs_error *err) {
  int64_t tokens = 0;
  int32_t rc = gsession_ready(s, &tokens, err);
  if (rc == BS_OK) rc = gbinding_check(s->bound, err);
  if (rc == BS_OK) rc = gflat_run(s->bound, (int)s->profile, err);
  /* Tables are read where they lie in the mapped files: zeros of a file that was cut are no result. */
  if (rc == BS_OK) rc = gmodel_unchanged(s->graph->model, err);
  if (rc == BS_OK && tokens > 0) s->core->length += tokens;
  return rc;
}

BS_API int32_t bs_session_run(bs_session *s, bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_run", "session", err);
  if (s->front != NULL) return gfront_run(s->front, err);
  const double began = s->stats.runs == 0 ? bs_clock_s() : 0;
  int32_t rc = gcore_take_states(s->core, s->graph->model, err);
  if (rc != BS_OK) return rc;
  rc = run_once(s, err);
  gcore_give_states(s->core, s->graph->model);
  if (rc == BS_OK && s->stats.runs++ == 0) s->stats.first_run_s = bs_clock_s() - began;
  return rc;
}

BS_API int64_t bs_session_cache_length(const bs_session *s) {
  s = gsession_lead(s);
  return s == NULL ? 0 : s->core->length;
}
BS_API int64_t bs_session_cache_limit(const bs_session *s) {
  s = gsession_lead(s);
  return s == NULL ? 0 : s->graph->model->cache_tokens;
}

BS_API int32_t bs_session_cache(bs_session *s, int64_t length, bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_cache", "session", err);
  if (s->front != NULL) return gfront_cache(s->front, length, err);
  if (s->graph->model->cache_tokens == 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-CACHE", "the model has no key-value cache");
  if (length < 0 || length > s->core->length)
    return bs_error_set(err, BS_OVERFLOW, "BS-GRAPH-CACHE",
                        "the cache holds %lld tokens and cannot be cut to %lld", (long long)s->core->length,
                        (long long)length);
  s->core->length = length;
  return BS_OK;
}

static int32_t has_slot(const bs_session *s, int64_t slot, bs_error *err) {
  const int64_t slots = s->graph->model->slots;
  if (slot >= 0 && slot < slots) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-SLOT", "there is no slot %lld, the model has %lld",
               (long long)slot, (long long)slots);
  bs_error_hint(err, "bs_graph_options.slots says how many there are");
  return BS_INVALID_ARGUMENT;
}

BS_API int32_t bs_session_slot(bs_session *s, int64_t first, bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_slot", "session", err);
  if (s->front != NULL) return gfront_slot(s->front, first, err);
  const int32_t rc = has_slot(s, first, err);
  if (rc == BS_OK) s->slot = first;
  return rc;
}

BS_API int32_t bs_session_slot_copy(bs_session *s, int64_t from, int64_t to, int64_t tokens, bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_slot_copy", "session", err);
  if (s->front != NULL) return gfront_slot_copy(s->front, from, to, tokens, err);
  int32_t rc = has_slot(s, from, err);
  if (rc == BS_OK) rc = has_slot(s, to, err);
  if (rc == BS_OK && (tokens < 0 || tokens > s->graph->model->cache_tokens))
    rc = bs_error_set(err, BS_OVERFLOW, "BS-GRAPH-CACHE", "a slot holds %lld tokens, not %lld",
                      (long long)s->graph->model->cache_tokens, (long long)tokens);
  if (rc == BS_OK) rc = gcore_take_states(s->core, s->graph->model, err);
  if (rc != BS_OK) return rc;
  if (from != to && !s->rank->phantom) rc = gstates_copy_slot(s->bound, from, to, tokens, err);
  gcore_give_states(s->core, s->graph->model);
  return rc;
}

static void count_layer(const gbinding *b, const gstep *step, bs_session_stats *io) {
  io->layers_whole += b->g->nodes[step->node].whole != 0;
  if (step->layer == NULL) return;
  io->layers++;
  bs_proposal proposal;
  if (glayer_propose(b, step, &proposal, NULL) != BS_OK) return;
  io->collectives += proposal.n_collectives;
  for (uint32_t i = 0; i < proposal.n_collectives; i++) io->payload_bytes += proposal.coll_payload[i];
}

BS_API int32_t bs_session_stats_get(const bs_session *s, bs_session_stats *out_stats, bs_error *err) {
  s = gsession_lead(s);
  if (s == NULL || out_stats == NULL) return gargs_null("bs_session_stats_get", "session and out_stats", err);
  if (gargs_size("bs_session_stats_get", "bs_session_stats", out_stats->struct_size, err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  bs_session_stats t = s->stats;
  const gbinding *b = s->bound;
  t.struct_size = out_stats->struct_size;
  t.arena_bytes = b->arena_bytes;
  t.bound_bytes = b->report.bound;
  t.naive_bytes = b->report.naive;
  pthread_mutex_lock(&s->core->lock);
  t.packed_bytes = s->core->packed_bytes;
  t.state_bytes = s->core->state_bytes;
  t.pack_s = s->core->pack_s;
  t.layers_again = s->core->layers_again;
  pthread_mutex_unlock(&s->core->lock);
  t.scratch_bytes = grank_scratch(s->rank);
  t.constant_bytes = b->constant_bytes;
  t.host_waits = s->rank->waits;
  t.copied_bytes = s->rank->copied;
  t.ranks = s->rank->inside ? bs_world_size(s->rank->world) : 1;
  for (uint32_t i = 0; i < b->n_steps; i++) {
    t.fallback_nodes += (uint64_t)gstep_falls_back(&b->steps[i]);
    count_layer(b, &b->steps[i], &t);
  }
  memcpy(out_stats, &t, t.struct_size < sizeof t ? t.struct_size : sizeof t);
  return BS_OK;
}
