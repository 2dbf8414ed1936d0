/* SPDX-License-Identifier: MIT
 * session.c - sessions: a model is lowered for the sizes of its symbols, optimised and bound; bindings are
 * kept for the sizes that come again. */
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

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a session");
}

/* ---- binding --------------------------------------------------------------------------------- */

/* The model as a graph, optimised. */
static int32_t make_graph(bs_session *s, const bs_dim *const *dims, uint32_t n_dims, gmisses *misses,
                          graph **out_graph, gpass_trace *traces, bs_error *err) {
  const lower_options lower = {.dims = dims,
                               .n_dims = n_dims,
                               .folder = {gfold_run, &s->graph->fold},
                               .weights = s->weights,
                               .x_bytes = s->x_bytes};
  const gpass_ctx ctx = {.fold = gfold_constant,
                         .fold_user = &s->graph->fold,
                         .miss = misses != NULL ? gmiss_add : NULL,
                         .miss_user = misses};
  const double began = bs_clock_s();
  gcore_tell(s->core, "lower", 0, 0);
  int32_t rc = lower_model(s->graph->model, &lower, out_graph, err);
  if (rc == BS_OK && s->weights != NULL && graph_has_ids(*out_graph))
    rc = graph_widen(*out_graph, BS_F32, err);
  const double lowered = bs_clock_s();
  s->stats.lower_s += lowered - began;
  if (rc == BS_OK) (*out_graph)->tokenwise = s->tokenwise;
  gcore_tell(s->core, "passes", 0, 0);
  if (rc == BS_OK) (*out_graph)->ask = gfold_ask;
  if (rc == BS_OK) (*out_graph)->ask_user = &s->graph->fold;
  if (rc == BS_OK) rc = gpass_run(*out_graph, &ctx, s->passes_off, traces, err);
  s->stats.pass_s += bs_clock_s() - lowered;
  if (rc == BS_OK && s->f64) rc = graph_widen(*out_graph, BS_F64, err);
  if (rc != BS_OK) {
    graph_free(*out_graph);
    *out_graph = NULL;
  }
  return rc;
}

/* FNV-1a; never 0. */
static uint64_t hash_sizes(const int64_t *sizes, uint32_t count) {
  uint64_t hash = UINT64_C(14695981039346656037);
  for (uint32_t i = 0; i < count; i++)
    for (int b = 0; b < 64; b += 8)
      hash = (hash ^ ((uint64_t)sizes[i] >> b & 0xff)) * UINT64_C(1099511628211);
  return hash | 1u;
}

static int was_dropped(const bs_session *s, const int64_t *sizes) {
  const uint64_t hash = hash_sizes(sizes, s->graph->model->n_symbols);
  for (uint32_t i = 0; i < GSESSION_DROPPED; i++)
    if (s->dropped[i] == hash) return 1;
  return 0;
}

static void drop_binding(bs_session *s, gbinding *b) {
  if (b != NULL) gfold_hold(&s->graph->fold, b->g, -1);
  gbinding_free(b);
}

/* The binding that was used longest ago makes room. */
static uint32_t free_place(bs_session *s) {
  uint32_t oldest = 0;
  for (uint32_t i = 0; i < s->n_bindings; i++) {
    if (s->bindings[i] == NULL) return i;
    if (s->bindings[i]->used < s->bindings[oldest]->used) oldest = i;
  }
  s->dropped[s->n_dropped++ % GSESSION_DROPPED] =
      hash_sizes(s->bindings[oldest]->sizes, s->graph->model->n_symbols);
  drop_binding(s, s->bindings[oldest]);
  s->bindings[oldest] = NULL;
  return oldest;
}

static int32_t make_binding(bs_session *s, const bs_dim *const *dims, uint32_t n_dims, int64_t *sizes,
                            bs_error *err) {
  graph *g = NULL;
  gbinding *b = NULL;
  gpass_trace traces[GPASS_MAX] = {{0}};
  gfold_enter(&s->graph->fold);
  int32_t rc = make_graph(s, dims, n_dims, NULL, &g, traces, err);
  if (rc == BS_OK) rc = gbinding_make(s->core, s->rank, g, &b, err);
  if (b != NULL) gfold_hold(&s->graph->fold, b->g, 1);
  gfold_leave(&s->graph->fold);
  if (rc == BS_OK) rc = gmodel_unchanged(s->graph->model, err);
  if (rc != BS_OK || b == NULL) {
    drop_binding(s, b);
    free(sizes);
    return rc;
  }
  b->sizes = sizes;
  memcpy(b->traces, traces, sizeof traces);
  s->stats.plans_again += (uint64_t)was_dropped(s, sizes);
  s->bindings[free_place(s)] = b;
  s->bound = b;
  s->stats.plans_made++;
  s->stats.plan_s += b->plan_s;
  s->stats.prepare_s += b->prepare_s;
  return BS_OK;
}

static void forget_ports(bs_session *s) {
  memset(s->memory, 0, bs_session_port_count(s) * sizeof *s->memory);
  s->workspace = NULL;
}

/* Sizes of all symbols: the bound ones, then those of dims. */
static int32_t all_sizes(const bs_session *s, const bs_dim *const *dims, uint32_t n, int64_t *sizes,
                         bs_error *err) {
  const gmodel *m = s->graph->model;
  for (uint32_t i = 0; i < m->n_symbols; i++) sizes[i] = s->bound != NULL ? s->bound->sizes[i] : -1;
  for (uint32_t k = 0; k < n; k++) {
    uint32_t i = 0;
    while (i < m->n_symbols && strcmp(m->symbols[i], dims[k]->name) != 0) i++;
    if (i == m->n_symbols) {
      const char *nearest = bs_nearest(dims[k]->name, m->symbols, m->n_symbols);
      bs_error_set(err, BS_CONFIG, "BS-GRAPH-DIM", "the model has no symbolic dimension '%.64s'",
                   dims[k]->name);
      bs_error_hint(err,
                    nearest != NULL ? "the nearest one is %.64s" : "`bsrun model info` lists its inputs%.0s",
                    nearest != NULL ? nearest : "");
      return BS_CONFIG;
    }
    sizes[i] = dims[k]->size;
  }
  return BS_OK;
}

/* A run of more tokens than the cache holds can never be. */
static int32_t cache_holds(const gmodel *m, const int64_t *sizes, bs_error *err) {
  const uint32_t symbol = m->tokens_input != GMODEL_NONE && m->cache_tokens > 0
                              ? m->values[m->tokens_input].symbols[m->tokens_axis]
                              : 0;
  if (symbol == 0 || sizes[symbol - 1u] <= m->cache_tokens) return BS_OK;
  bs_error_set(err, BS_OVERFLOW, "BS-GRAPH-CACHE", "%lld tokens in one run: the cache holds %lld",
               (long long)sizes[symbol - 1u], (long long)m->cache_tokens);
  bs_error_hint(err, "open the model with a larger cache, as far as its positions go");
  return BS_OVERFLOW;
}

BS_API int32_t bs_session_bind(bs_session *s, const bs_dim *const *dims, uint32_t n, bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_bind", "session", err);
  const int32_t wrong = gargs_dims("bs_session_bind", dims, n, err);
  if (wrong != BS_OK) return wrong;
  const gmodel *m = s->graph->model;
  const uint32_t count = m->n_symbols;
  int64_t *sizes = calloc(count + 1u, sizeof *sizes);
  if (sizes == NULL) return no_memory(err);
  int32_t rc = all_sizes(s, dims, n, sizes, err);
  if (rc == BS_OK) rc = cache_holds(m, sizes, err);
  if (rc != BS_OK) {
    free(sizes);
    return rc;
  }
  for (uint32_t i = 0; i < s->n_bindings; i++) {
    gbinding *b = s->bindings[i];
    if (b == NULL || memcmp(b->sizes, sizes, count * sizeof *sizes) != 0) continue;
    free(sizes);
    s->stats.plans_reused++;
    if (s->bound != b) forget_ports(s);
    s->bound = b;
    b->used = ++s->clock;
    return BS_OK;
  }
  bs_dim *all = calloc(count + 1u, sizeof *all);
  const bs_dim **list = calloc(count + 1u, sizeof *list);
  uint32_t known = 0;
  for (uint32_t i = 0; i < count && all != NULL && list != NULL; i++) {
    if (sizes[i] < 0) continue;
    all[known] = (bs_dim){.struct_size = (uint32_t)sizeof *all, .name = m->symbols[i], .size = sizes[i]};
    list[known] = &all[known];
    known++;
  }
  if (all == NULL || list == NULL) {
    free(sizes);
    rc = no_memory(err);
  } else {
    rc = make_binding(s, list, known, sizes, err);
  }
  if (rc == BS_OK) {
    forget_ports(s);
    s->bound->used = ++s->clock;
  }
  free(all);
  free(list);
  return rc;
}

int32_t gsession_misses(bs_session *s, gmisses *out_misses, bs_error *err) {
  const gmodel *m = s->graph->model;
  const bs_session_stats before = s->stats;
  bs_dim *all = calloc(m->n_symbols + 1u, sizeof *all);
  const bs_dim **list = calloc(m->n_symbols + 1u, sizeof *list);
  gpass_trace traces[GPASS_MAX];
  graph *g = NULL;
  uint32_t known = 0;
  int32_t rc = all == NULL || list == NULL ? no_memory(err) : BS_OK;
  for (uint32_t i = 0; i < m->n_symbols && rc == BS_OK; i++) {
    if (s->bound->sizes[i] < 0) continue;
    all[known] =
        (bs_dim){.struct_size = (uint32_t)sizeof *all, .name = m->symbols[i], .size = s->bound->sizes[i]};
    list[known] = &all[known];
    known++;
  }
  gfold_enter(&s->graph->fold);
  if (rc == BS_OK) rc = make_graph(s, list, known, out_misses, &g, traces, err);
  graph_free(g);
  gfold_leave(&s->graph->fold);
  s->stats = before;
  free(all);
  free(list);
  return rc == BS_OK && out_misses->failed ? no_memory(err) : rc;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int32_t open_core(bs_session *s, const bs_session_options *o, bs_error *err) {
  bs_session_options own = *o;
  if (o->f64) own.backend = "ref";
  if (o->share != NULL && (o->share->graph != s->graph || o->share->f64 != o->f64))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-SHARE",
                        "sessions of different models share nothing");
  const int32_t rc =
      gcore_open(s->context, o->share != NULL ? o->share->core : NULL, &own, &s->core, &s->rank, err);
  if (rc == BS_OK) s->core->slots = s->graph->model->slots;
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
  if (rc == BS_OK) rc = gargs_list(function, "passes_off", o->passes_off, o->n_passes_off, err);
  return rc == BS_OK ? gargs_list(function, "choices", o->choices, o->n_choices, err) : rc;
}

BS_API int32_t bs_session_open(bs_context *context, bs_graph *model, const bs_session_options *options,
                               bs_session **out_session, bs_error *err) {
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
  s->f64 = o.f64;
  s->profile = o.profile;
  s->tokenwise = o.tokenwise;
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
  for (uint32_t i = 0; i < s->n_bindings && s->bindings != NULL; i++) drop_binding(s, s->bindings[i]);
  gcore_close(s->core, s->rank);
  free(s->bindings);
  free(s->memory);
  free(s->weights);
  free(s);
}

/* ---- ports ----------------------------------------------------------------------------------- */

BS_API uint32_t bs_session_port_count(const bs_session *s) {
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
  gbinding_set_root(s->bound, v->base, s->memory[port]);
  return BS_OK;
}

BS_API int32_t bs_session_get(const bs_session *s, uint32_t port, bs_tensor *out_tensor, bs_error *err) {
  if (out_tensor == NULL) return gargs_null("bs_session_get", "session and out_tensor", err);
  int32_t rc = check_port(s, port, err);
  if (rc != BS_OK) return rc;
  const bs_tensor *t = &s->bound->tensors[gsession_value(s, port)];
  if (t->data == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-PORT",
                        "port '%.64s' has no memory before the first run", port_name(s, port));
  *out_tensor = *t;
  return rc;
}

/* ---- memory ---------------------------------------------------------------------------------- */

BS_API uint64_t bs_session_workspace(const bs_session *s) {
  return s == NULL ? 0 : s->bound->arena_bytes;
}

/* Outputs that the caller gave memory for lie there and not in the arena. */
void gsession_place(bs_session *s, void *memory) {
  gbinding_place(s->bound, memory);
  const uint32_t n = bs_session_port_count(s);
  for (uint32_t i = s->bound->g->n_inputs; i < n; i++)
    if (s->memory[i] != NULL)
      gbinding_set_root(s->bound, s->bound->g->values[gsession_value(s, i)].base, s->memory[i]);
}

BS_API int32_t bs_session_use_workspace(bs_session *s, void *memory, uint64_t bytes, bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_use_workspace", "session", err);
  if (((uintptr_t)memory & 63u) != 0 || bytes < s->bound->arena_bytes || (memory == NULL && bytes > 0))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-WORKSPACE",
                        "a workspace of %llu bytes at %p: %llu bytes are needed, aligned to 64",
                        (unsigned long long)bytes, memory, (unsigned long long)s->bound->arena_bytes);
  s->workspace = memory;
  gsession_place(s, memory);
  return BS_OK;
}

int32_t gsession_arena(bs_session *s, bs_error *err) {
  gbinding *b = s->bound;
  if (b->arena != NULL || b->arena_bytes == 0) return BS_OK;
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
  const double began = s->stats.runs == 0 ? bs_clock_s() : 0;
  int32_t rc = gcore_take_states(s->core, s->graph->model, err);
  if (rc != BS_OK) return rc;
  rc = run_once(s, err);
  gcore_give_states(s->core, s->graph->model);
  if (rc == BS_OK && s->stats.runs++ == 0) s->stats.first_run_s = bs_clock_s() - began;
  return rc;
}

BS_API int64_t bs_session_cache_length(const bs_session *s) {
  return s == NULL ? 0 : s->core->length;
}
BS_API int64_t bs_session_cache_limit(const bs_session *s) {
  return s == NULL ? 0 : s->graph->model->cache_tokens;
}

BS_API int32_t bs_session_cache(bs_session *s, int64_t length, bs_error *err) {
  if (s == NULL) return gargs_null("bs_session_cache", "session", err);
  if (s->graph->model->cache_tokens == 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-CACHE", "the model has no key-value cache");
  if (length < 0 || length > s->core->length)
    return bs_error_set(err, BS_OVERFLOW, "BS-GRAPH-CACHE",
                        "the cache holds %lld tokens and cannot be cut to %lld", (long long)s->core->length,
                        (long long)length);
  s->core->length = length;
  return BS_OK;
}

static int32_t has_slot(const bs_session *s, const char *function, int64_t slot, bs_error *err) {
  if (s == NULL) return gargs_null(function, "session", err);
  const int64_t slots = s->graph->model->slots;
  if (slot >= 0 && slot < slots) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-SLOT", "there is no slot %lld, the model has %lld",
               (long long)slot, (long long)slots);
  bs_error_hint(err, "bs_graph_options.slots says how many there are");
  return BS_INVALID_ARGUMENT;
}

BS_API int32_t bs_session_slot(bs_session *s, int64_t first, bs_error *err) {
  const int32_t rc = has_slot(s, "bs_session_slot", first, err);
  if (rc == BS_OK) s->slot = first;
  return rc;
}

BS_API int32_t bs_session_slot_copy(bs_session *s, int64_t from, int64_t to, int64_t tokens, bs_error *err) {
  int32_t rc = has_slot(s, "bs_session_slot_copy", from, err);
  if (rc == BS_OK) rc = has_slot(s, "bs_session_slot_copy", to, err);
  if (rc == BS_OK && (tokens < 0 || tokens > s->graph->model->cache_tokens))
    rc = bs_error_set(err, BS_OVERFLOW, "BS-GRAPH-CACHE", "a slot holds %lld tokens, not %lld",
                      (long long)s->graph->model->cache_tokens, (long long)tokens);
  if (rc == BS_OK) rc = gcore_take_states(s->core, s->graph->model, err);
  if (rc != BS_OK) return rc;
  if (from != to) gstates_copy_slot(s->bound, from, to, tokens);
  gcore_give_states(s->core, s->graph->model);
  return BS_OK;
}

BS_API int32_t bs_session_stats_get(const bs_session *s, bs_session_stats *out_stats, bs_error *err) {
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
  pthread_mutex_unlock(&s->core->lock);
  t.scratch_bytes = grank_scratch(s->rank);
  t.constant_bytes = b->constant_bytes;
  for (uint32_t i = 0; i < b->n_steps; i++) t.fallback_nodes += (uint64_t)gstep_falls_back(&b->steps[i]);
  memcpy(out_stats, &t, t.struct_size < sizeof t ? t.struct_size : sizeof t);
  return BS_OK;
}
