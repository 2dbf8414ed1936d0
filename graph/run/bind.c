/* SPDX-License-Identifier: MIT
 * bind.c - gives a session sizes for the symbols of its model. It takes a plan that serves these sizes. If
 * there is none, it lowers, optimises and plans the model: for a range of sizes (bucket.h), or for these
 * sizes alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "graph/run/args.h"
#include "graph/run/bucket.h"
#include "graph/run/session.h"
#include "graph/split/front.h"
#include "graph/split/method.h"

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a session");
}

/* ---- the model as a graph -------------------------------------------------------------------- */

/* Optimised, for the sizes of symbols; -1: not known. */
static int32_t make_graph(bs_session *s, const int64_t *sizes, gmisses *misses, graph **out_graph,
                          gpass_trace *traces, bs_error *err) {
  const gmodel *m = s->graph->model;
  bs_dim *all = calloc(m->n_symbols + 1u, sizeof *all);
  const bs_dim **list = calloc(m->n_symbols + 1u, sizeof *list);
  uint32_t known = 0;
  *out_graph = NULL;
  int32_t rc = all == NULL || list == NULL ? no_memory(err) : BS_OK;
  for (uint32_t i = 0; i < m->n_symbols && rc == BS_OK; i++) {
    if (sizes[i] < 0) continue;
    all[known] = (bs_dim){.struct_size = (uint32_t)sizeof *all, .name = m->symbols[i], .size = sizes[i]};
    list[known] = &all[known];
    known++;
  }
  const lower_options lower = {.dims = list,
                               .n_dims = known,
                               .folder = {gfold_run, &s->graph->fold, gfold_constant, gfold_ask},
                               .weights = s->weights,
                               .x_bytes = s->x_bytes};
  const gpass_ctx ctx = {.fold = gfold_constant,
                         .fold_user = &s->graph->fold,
                         .miss = misses != NULL ? gmiss_add : NULL,
                         .miss_user = misses,
                         .layers = s->core->method != NULL};
  const double began = bs_clock_s();
  gcore_tell(s->core, "lower", 0, 0);
  if (rc == BS_OK) rc = lower_model(m, &lower, out_graph, err);
  free(all);
  free(list);
  if (rc == BS_OK && s->weights != NULL && graph_has_ids(*out_graph))
    rc = graph_widen(*out_graph, BS_F32, err);
  const double lowered = bs_clock_s();
  s->stats.lower_s += lowered - began;
  if (rc == BS_OK) (*out_graph)->tokenwise = s->tokenwise;
  gcore_tell(s->core, "passes", 0, 0);
  if (rc == BS_OK) rc = gpass_run(*out_graph, &ctx, s->passes_off, traces, err);
  if (rc == BS_OK && s->core->method != NULL) rc = gmethod_mark(s->core->method, s->rank, *out_graph, err);
  s->stats.pass_s += bs_clock_s() - lowered;
  if (rc == BS_OK && s->f64) rc = graph_widen(*out_graph, BS_F64, err);
  if (rc != BS_OK) {
    graph_free(*out_graph);
    *out_graph = NULL;
  }
  return rc;
}

static int32_t lower_at(void *session, const int64_t *sizes, graph **out_graph, gpass_trace *traces,
                        bs_error *err) {
  return make_graph(session, sizes, NULL, out_graph, traces, err);
}

/* ---- the bindings that are kept -------------------------------------------------------------- */

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

/* The sizes that the binding's plan was made for: its own, or the largest of its range. */
static const int64_t *planned_for(const gbinding *b) {
  return b->bucket != NULL ? b->bucket->range.sizes : b->sizes;
}

void gsession_drop(bs_session *s, gbinding *b) {
  if (b != NULL) {
    gdevice_forget(b->core, b);
    gfold_hold(&s->graph->fold, b->g, -1);
  }
  gbinding_free(b);
}

/* The binding that was used longest ago makes room. */
static uint32_t free_place(bs_session *s) {
  uint32_t oldest = 0;
  for (uint32_t i = 0; i < s->n_bindings; i++) {
    if (s->bindings[i] == NULL) return i;
    if (s->bindings[i]->used < s->bindings[oldest]->used) oldest = i;
  }
  if (s->bindings[oldest] == NULL) return oldest;
  s->dropped[s->n_dropped++ % GSESSION_DROPPED] =
      hash_sizes(planned_for(s->bindings[oldest]), s->graph->model->n_symbols);
  gsession_drop(s, s->bindings[oldest]);
  s->bindings[oldest] = NULL;
  return oldest;
}

/* Ports have no memory from here on. */
static void forget_ports(bs_session *s) {
  const uint32_t n = bs_session_port_count(s);
  int given = s->workspace != NULL;
  for (uint32_t i = s->graph->model->n_inputs; i < n; i++) given |= s->memory[i] != NULL;
  if (s->bound != NULL && s->rank->apart)
    for (uint32_t i = 0; i < n; i++) gports_set(s->bound, i, NULL);
  else if (given && s->bound != NULL)
    gbinding_place(s->bound, s->bound->own_arena);
  memset(s->memory, 0, n * sizeof *s->memory);
  s->workspace = NULL;
}

static void use(bs_session *s, gbinding *b) {
  s->bound = b;
  b->used = ++s->clock;
}

/* A new binding gets a place; it replaces the oldest one, perhaps that which is bound. */
static void keep(bs_session *s, gbinding *b) {
  gdrop_constants(s->graph->model);
  s->stats.plans_again += (uint64_t)was_dropped(s, planned_for(b));
  forget_ports(s);
  s->bindings[free_place(s)] = b;
  use(s, b);
  s->stats.plans_made++;
  s->stats.plan_s += b->plan_s;
  s->stats.prepare_s += b->prepare_s;
}

/* ---- plans of one size ----------------------------------------------------------------------- */

/* Takes over sizes. */
static int32_t bind_alone(bs_session *s, int64_t *sizes, const char *why, bs_error *err) {
  graph *g = NULL;
  gbinding *b = NULL;
  gpass_trace traces[GPASS_MAX] = {{0}};
  gfold_enter(&s->graph->fold);
  int32_t rc = make_graph(s, sizes, NULL, &g, traces, err);
  if (rc == BS_OK) rc = gbinding_make(s->core, s->rank, g, &b, err);
  if (b != NULL) gfold_hold(&s->graph->fold, b->g, 1);
  gfold_leave(&s->graph->fold);
  if (rc == BS_OK) rc = gmodel_unchanged(s->graph->model, err);
  if (rc != BS_OK || b == NULL) {
    gsession_drop(s, b);
    free(sizes);
    return rc;
  }
  b->sizes = sizes;
  if (why != NULL && why[0] != '\0') b->alone = bs_strdup(why);
  memcpy(b->traces, traces, sizeof traces);
  keep(s, b);
  return BS_OK;
}

/* ---- plans of a range ------------------------------------------------------------------------ */

/* The largest size of a symbol that the model can have; INT64_MAX: not known. */
static int64_t limit_of(const bs_session *s, uint32_t symbol) {
  const gmodel *m = s->graph->model;
  if (m->slots > 0 && strcmp(m->symbols[symbol], "batch") == 0) return m->slots;
  if (m->tokens_input != GMODEL_NONE && m->cache_tokens > 0 &&
      m->values[m->tokens_input].symbols[m->tokens_axis] == symbol + 1u)
    return m->cache_tokens;
  return INT64_MAX;
}

/* Symbols that had another size before vary; one whose range is one size does not. */
static void find_range(const bs_session *s, const int64_t *sizes, gbucket_range *out, char *why,
                       size_t why_size) {
  for (uint32_t i = 0; i < out->n_sizes; i++) {
    out->sizes[i] = sizes[i];
    if (i >= GSESSION_SYMBOLS || !(s->moved >> i & 1u) || sizes[i] < 1) continue;
    const int64_t end = gbucket_end(sizes[i]), least = gbucket_least(end), limit = limit_of(s, i);
    const int64_t largest = end < limit ? end : limit;
    if (largest <= least || largest < sizes[i]) continue;
    if (out->n == GBUCKET_SYMBOLS) {
      snprintf(why, why_size, "more than %d dimensions change", GBUCKET_SYMBOLS);
      out->n = 0;
      return;
    }
    out->symbol[out->n] = i;
    out->least[out->n++] = least;
    out->sizes[i] = largest;
  }
}

static const gsession_refused *refused(const bs_session *s, const gbucket_range *r) {
  const uint64_t hash = hash_sizes(r->sizes, r->n_sizes);
  for (uint32_t i = 0; i < GSESSION_REFUSED; i++)
    if (s->refused[i].range == hash) return &s->refused[i];
  return NULL;
}

/* The graph of the sizes that the binding has is that of its range. */
static int32_t look(bs_session *s, const gbinding *b, bs_error *err) {
  gpass_trace traces[GPASS_MAX];
  graph *g = NULL;
  gfold_enter(&s->graph->fold);
  int32_t rc = make_graph(s, b->sizes, NULL, &g, traces, err);
  if (rc == BS_OK) rc = gbucket_verify(b, g, err);
  graph_free(g);
  gfold_leave(&s->graph->fold);
  return rc;
}

/* A plan of a range takes the sizes; *out_fits 0: their graph is another one. Where that is not known of all
 * sizes, each is looked at once. */
static int32_t take_sizes(bs_session *s, gbinding *b, const int64_t *sizes, int *out_fits, bs_error *err) {
  uint8_t *looked = gbucket_looked(b->bucket, sizes);
  const size_t bytes = s->graph->model->n_symbols * sizeof *sizes;
  *out_fits = looked == NULL || *looked != 2;
  if (!*out_fits) return BS_OK;
  int64_t *before = malloc(bytes + 1u);
  if (before == NULL) return no_memory(err);
  memcpy(before, b->sizes, bytes);
  int32_t rc = gbucket_bind(b, sizes, err);
  if (rc == BS_OK && looked != NULL && *looked == 0) {
    *out_fits = look(s, b, NULL) == BS_OK;
    *looked = *out_fits ? 1 : 2;
    if (!*out_fits) rc = gbucket_bind(b, before, err);
  }
  free(before);
  return rc;
}

/* Makes a plan for the range that serves `sizes`. BS_UNSUPPORTED: no such plan exists; `why` is the reason.
 */
static int32_t make_range(bs_session *s, gbucket_range *r, const int64_t *sizes, char *why, size_t why_size,
                          bs_error *err) {
  const gbucket_lower lower = {lower_at, s};
  const uint64_t range = hash_sizes(r->sizes, r->n_sizes);
  const size_t bytes = (r->n_sizes + 1u) * sizeof *sizes;
  gbinding *b = NULL;
  bs_error refusal = BS_ERROR_INIT;
  int64_t *own = calloc(r->n_sizes + 1u, sizeof *own);
  if (own == NULL) return no_memory(err);
  gfold_enter(&s->graph->fold);
  int32_t rc = gbucket_make(s->core, s->rank, r, &lower, &b, &refusal);
  if (b != NULL) {
    gfold_hold(&s->graph->fold, b->g, 1);
    memcpy(own, b->bucket->range.sizes, bytes);
    b->sizes = own;
    r->sizes = NULL; /* the bucket's */
    int fits = 1;
    rc = take_sizes(s, b, sizes, &fits, &refusal);
    if (rc == BS_OK && !fits)
      rc = bs_error_set(&refusal, BS_UNSUPPORTED, "BS-GRAPH-BUCKET", "a size of the range has another graph");
  } else {
    free(own);
  }
  gfold_leave(&s->graph->fold);
  const int32_t changed = gmodel_unchanged(s->graph->model, err);
  if (b != NULL && rc == BS_OK && changed == BS_OK) {
    keep(s, b);
    return BS_OK;
  }
  gsession_drop(s, b);
  if (changed != BS_OK) return changed;
  gsession_refused *row = &s->refused[s->n_refused++ % GSESSION_REFUSED];
  row->range = range;
  snprintf(row->why, sizeof row->why, "%.199s", refusal.message);
  snprintf(why, why_size, "%s", row->why);
  return BS_UNSUPPORTED;
}

static int32_t verified(bs_session *s, bs_error *err) {
#ifndef NDEBUG
  return gsession_verify_bucket(s, err);
#else
  (void)s;
  (void)err;
  return BS_OK;
#endif
}

static int32_t bind_range(bs_session *s, const int64_t *sizes, char *why, size_t why_size, bs_error *err) {
  gbucket_range r = {.n_sizes = s->graph->model->n_symbols};
  r.sizes = calloc(r.n_sizes + 1u, sizeof *r.sizes);
  if (r.sizes == NULL) return no_memory(err);
  find_range(s, sizes, &r, why, why_size);
  int32_t rc = BS_UNSUPPORTED;
  const gsession_refused *known = r.n > 0 ? refused(s, &r) : NULL;
  if (known != NULL) snprintf(why, why_size, "%s", known->why);
  if (r.n > 0 && known == NULL) rc = make_range(s, &r, sizes, why, why_size, err);
  free(r.sizes);
  return rc == BS_OK ? verified(s, err) : rc;
}

/* ---- which of them --------------------------------------------------------------------------- */

static void note_moved(bs_session *s, const int64_t *sizes) {
  for (uint32_t i = 0; i < s->graph->model->n_symbols && i < GSESSION_SYMBOLS; i++)
    if (s->bound != NULL && s->bound->sizes[i] != sizes[i]) s->moved |= UINT64_C(1) << i;
}

/* Takes over sizes. */
static int32_t bind_sizes(bs_session *s, int64_t *sizes, bs_error *err) {
  const size_t bytes = s->graph->model->n_symbols * sizeof *sizes;
  char why[sizeof s->refused[0].why] = "";
  for (uint32_t i = 0; i < s->n_bindings; i++) {
    gbinding *b = s->bindings[i];
    if (b == NULL || memcmp(b->sizes, sizes, bytes) != 0) continue;
    free(sizes);
    s->stats.plans_reused++;
    if (s->bound != b) forget_ports(s);
    use(s, b);
    return BS_OK;
  }
  note_moved(s, sizes);
  for (uint32_t i = 0; i < s->n_bindings; i++) {
    gbinding *b = s->bindings[i];
    if (b == NULL || b->bucket == NULL || !gbucket_has(&b->bucket->range, sizes)) continue;
    int fits = 1;
    if (take_sizes(s, b, sizes, &fits, err) != BS_OK || !fits) {
      bs_error_clear(err);
      snprintf(why, sizeof why, "%s", fits ? "" : "its graph is not that of the range");
      return bind_alone(s, sizes, why, err);
    }
    free(sizes);
    s->stats.plans_reused++;
    forget_ports(s);
    use(s, b);
    return verified(s, err);
  }
  if (!s->exact && s->bound != NULL) {
    const int32_t rc = bind_range(s, sizes, why, sizeof why, err);
    if (rc != BS_UNSUPPORTED) {
      free(sizes);
      return rc;
    }
    bs_error_clear(err);
  }
  return bind_alone(s, sizes, why, err);
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
  if (s->front != NULL) return gfront_bind(s->front, dims, n, err);
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
  return bind_sizes(s, sizes, err);
}

/* ---- the bound sizes again ------------------------------------------------------------------- */

int32_t gsession_misses(bs_session *s, gmisses *out_misses, bs_error *err) {
  const bs_session_stats before = s->stats;
  gpass_trace traces[GPASS_MAX];
  graph *g = NULL;
  gfold_enter(&s->graph->fold);
  const int32_t rc = make_graph(s, s->bound->sizes, out_misses, &g, traces, err);
  graph_free(g);
  gfold_leave(&s->graph->fold);
  s->stats = before;
  return rc == BS_OK && out_misses->failed ? no_memory(err) : rc;
}

int32_t gsession_verify_bucket(bs_session *s, bs_error *err) {
  const bs_session_stats before = s->stats;
  if (s->bound->bucket == NULL) return BS_OK;
  const int32_t rc = look(s, s->bound, err);
  s->stats = before;
  return rc;
}
