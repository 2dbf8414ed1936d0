/* SPDX-License-Identifier: MIT
 * front.c - a session over a world. It has a member on each rank of this process, and each call that computes
 * is one run of the world. A member's error that all ranks meet alike, before they wait for one another,
 * leaves the world as it was; any other one ends it, an error of a layer too: the other ranks may not have
 * it, and wait for this rank. Where ranks are processes, rank 0's front tells the others each call first
 * (tell.h). */
#include "graph/split/front.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/world/executor.h"
#include "graph/run/args.h"
#include "graph/split/echo.h"
#include "graph/split/gates.h"
#include "graph/split/tell.h"

/* A call on the member of a rank. */
typedef int32_t (*member_call)(gfront *front, uint32_t rank, void *arg, bs_error *err);
typedef struct calling {
  gfront *front;
  member_call call;
  void *arg;
  int meets; /* processes: all ranks make the call */
} calling;

/* Errors of what was asked or given. */
static int is_common(int32_t code) {
  static const int32_t codes[] = {BS_UNSUPPORTED, BS_CONFIG, BS_INVALID_ARGUMENT, BS_OVERFLOW,
                                  BS_INPUT,       BS_USAGE,  BS_NUMERIC,          BS_NOT_FOUND};
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
    if (codes[i] == code) return 1;
  return 0;
}

int gfront_goes_on(const bs_rank *rank, int32_t code) {
  return code == BS_OK || (is_common(code) && !bs_rank_is_alone(rank));
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  const calling *c = arg;
  gfront *f = c->front;
  const uint32_t index = bs_rank_get_api()->rank(rank);
  bs_error *mine = &f->errors[index];
  *mine = (bs_error)BS_ERROR_INIT;
  const int32_t told = f->told.call != GTOLD_NONE ? gtell_call(f, rank, err) : BS_OK;
  if (told != BS_OK) return told;
  f->codes[index] = c->call(f, index, c->arg, mine);
  if (gfront_goes_on(rank, f->codes[index]))
    return f->processes && c->meets ? gtell_outcome(f, rank, err) : BS_OK;
  if (err != NULL) *err = *mine;
  return f->codes[index];
}

/* The call on every rank; alone: on those of this process, which tells no other. The error is the first
 * rank's that has one; it names no rank where all have it. */
static int32_t run_world(gfront *f, member_call call, void *arg, int alone, bs_error *err) {
  calling c = {.front = f, .call = call, .arg = arg, .meets = !alone && f->told.call != GTOLD_CLOSE};
  for (uint32_t r = 0; r < f->size; r++) f->codes[r] = BS_OK;
  const int32_t rc = bs_world_run(f->world, rank_main, &c, err);
  if (rc != BS_OK) return rc;
  int all = 1;
  for (uint32_t r = 0; r < f->size; r++) all &= f->codes[r] == f->codes[0];
  for (uint32_t r = 0; r < f->size; r++) {
    if (f->codes[r] == BS_OK) continue;
    const int leads = f->echoes != NULL && r == f->first; /* its error is that of all */
    if (!all && !leads) f->errors[r].rank = (int32_t)r;
    if (err != NULL) *err = f->errors[r];
    return f->codes[r];
  }
  return BS_OK;
}

/* A call that rank 0 makes, and tells to ranks of other processes. */
static int32_t run_all(gfront *f, uint32_t call_told, member_call call, void *arg, bs_error *err) {
  if (f->processes) {
    const bs_session *lead = gfront_lead(f);
    f->told.call = call_told;
    f->told.compares = f->compares;
    f->told.length = lead->core->length;
    f->told.slot = lead->slot;
  }
  const int32_t rc = run_world(f, call, arg, 0, err);
  f->told = (gtold){0};
  return rc;
}

int32_t gfront_leads(const gfront *f, bs_error *err) {
  if (!f->processes || f->first == 0) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-FOLLOW",
               "rank %u makes a call on a session whose ranks are processes: rank 0 makes them", f->first);
  bs_error_hint(err, "call bs_session_follow on this rank");
  return BS_INVALID_ARGUMENT;
}

/* Checks what a run needs of its caller, before rank 0 tells it to other processes. */
static int32_t ready(const gfront *f, bs_error *err) {
  int64_t tokens = 0;
  const int32_t rc = gfront_leads(f, err);
  return rc == BS_OK && f->processes ? gsession_ready(gfront_lead(f), &tokens, err) : rc;
}

/* Makes the session ready for a call whose caller sees the values of nodes. */
static int32_t ready_to_see(const gfront *f, const char *what, bs_error *err) {
  int32_t rc = gfront_leads(f, err);
  if (rc == BS_OK) rc = gdevice_has_values(gfront_lead(f)->rank, what, err);
  return rc == BS_OK ? ready(f, err) : rc;
}

bs_session *gfront_lead(const gfront *f) {
  return f->members[f->first];
}

bs_session *gfront_member(const gfront *f, uint32_t rank) {
  return f->members[rank];
}

/* ---- open and close -------------------------------------------------------------------------- */

typedef struct opening {
  bs_context *context;
  bs_graph *graph;
  const bs_session_options *options;
  gsame same;
} opening;

/* The lead of ranks without values has bound its session. Its arena is there before an echo runs. */
static int32_t end_of_lead(gfront *f, int32_t rc, bs_error *err) {
  bs_session *lead = f->members[f->first];
  if (rc == BS_OK) rc = gsession_arena(lead, err);
  const int32_t met = glead_end(&f->lead, rc == BS_OK ? lead : NULL, rc == BS_OK ? err : NULL);
  return rc != BS_OK ? rc : met;
}

static int32_t open_member(gfront *f, uint32_t rank, void *arg, bs_error *err) {
  const opening *o = arg;
  bs_session_options mine = *o->options;
  mine.world = NULL;
  mine.rank = bs_world_rank(f->world, rank);
  if (rank != 0) mine.progress = NULL;
  if (mine.share != NULL) mine.share = mine.share->front->members[rank];
  int32_t rc = f->processes ? gtell_same(mine.rank, &o->same, err) : BS_OK;
  if (rc != BS_OK) return rc;
  if (f->echoes == NULL) return bs_session_open(o->context, o->graph, &mine, &f->members[rank], err);
  if (rank != f->first) {
    rc = gecho_open(o->context, mine.rank, &f->echoes[rank], err);
    return rc == BS_OK ? gecho_follow(f->echoes[rank], &f->lead, err) : rc;
  }
  mine.exact = 1; /* plans of a range are changed when another size is bound */
  f->lead.rank = mine.rank;
  rc = gsession_open(o->context, o->graph, &mine, &f->lead, &f->members[rank], err);
  return end_of_lead(f, rc, err);
}

static int32_t close_member(gfront *f, uint32_t rank, void *arg, bs_error *err) {
  (void)arg;
  (void)err;
  if (f->echoes != NULL) gecho_close(f->echoes[rank]);
  if (f->echoes != NULL) f->echoes[rank] = NULL;
  bs_session_close(f->members[rank]);
  f->members[rank] = NULL;
  return BS_OK;
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a session");
}

/* Backend, threads and choices are the world's. */
static int32_t check_options(const bs_session_options *o, bs_error *err) {
  const char *given = o->backend != NULL                     ? "backend"
                      : o->threads != 0                      ? "threads"
                      : o->bind != 0                         ? "bind"
                      : o->n_choices != 0                    ? "choices"
                      : o->no_fallback != 0                  ? "no_fallback"
                      : o->f64 != 0                          ? "f64"
                      : o->rank != NULL                      ? "rank"
                      : o->share != NULL && !o->share->front ? "share, of a session without a world,"
                                                             : NULL;
  if (o->share != NULL && bs_world_own_rank(o->world) != BS_WORLD_ALL_RANKS) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-WORLD",
                 "ranks that are processes follow one session at a time");
    bs_error_hint(err, "sessions over ranks that are threads share");
    return BS_UNSUPPORTED;
  }
  if (given == NULL && o->share != NULL && o->share->front->world != o->world)
    given = "share, of another world,";
  if (given == NULL) return BS_OK;
  bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GRAPH-WORLD",
               "a session over a world has the world's: %s is given", given);
  bs_error_hint(err, "give it to bs_world_create");
  return BS_INVALID_ARGUMENT;
}

/* Memory of a front. */
static int make_room(gfront *f, const gmodel *m) {
  f->n_inputs = m->n_inputs;
  f->members = calloc(f->size, sizeof *f->members);
  f->codes = calloc(f->size, sizeof *f->codes);
  f->errors = calloc(f->size, sizeof *f->errors);
  f->sizes = calloc(m->n_symbols + 1u, sizeof *f->sizes);
  f->inputs = calloc(m->n_inputs + 1u, sizeof *f->inputs);
  f->input_bytes = calloc(m->n_inputs + 1u, sizeof *f->input_bytes);
  return f->members != NULL && f->codes != NULL && f->errors != NULL && f->sizes != NULL &&
         f->inputs != NULL && f->input_bytes != NULL;
}

/* Ranks without values follow the first one, where all of them are of this process. */
static int32_t follow_first(gfront *f, bs_context *context, const bs_session_options *o, uint32_t own,
                            bs_error *err) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  const int32_t rc =
      bs_find_backend(context, bs_rank_backend(bs_world_rank(f->world, f->first)), &backend, &state, err);
  if (rc != BS_OK || (backend->flags & BS_BACKEND_PHANTOM) == 0) return rc;
  if (own != BS_WORLD_ALL_RANKS || o->share != NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-WORLD", "a session over a backend without values %s",
                        o->share != NULL ? "shares nothing" : "has all ranks in one process");
  f->echoes = calloc(f->size, sizeof(gecho *));
  return f->echoes != NULL ? BS_OK : no_memory(err);
}

int32_t gfront_open(bs_context *context, bs_graph *model, const bs_session_options *options,
                    gfront **out_front, bs_error *err) {
  int32_t rc = check_options(options, err);
  if (rc != BS_OK) return rc;
  gfront *f = calloc(1, sizeof *f);
  if (f == NULL) return no_memory(err);
  const uint32_t own = bs_world_own_rank(options->world);
  opening o = {.context = context, .graph = model, .options = options};
  f->world = options->world;
  f->size = bs_world_size(f->world);
  f->processes = own != BS_WORLD_ALL_RANKS;
  f->first = f->processes ? own : 0;
  rc = make_room(f, model->model) ? BS_OK : no_memory(err);
  if (rc == BS_OK) rc = follow_first(f, context, options, own, err);
  if (rc == BS_OK && f->processes) rc = gsame_make(model->model, options, &o.same, err);
  if (rc == BS_OK) rc = run_world(f, open_member, &o, 0, err);
  if (rc != BS_OK) {
    gfront_close(f);
    return rc;
  }
  f->opened = 1;
  *out_front = f;
  return BS_OK;
}

/* A world that failed runs nothing any more: its members are closed here. */
void gfront_close(gfront *f) {
  if (f == NULL) return;
  if (f->members != NULL && f->codes != NULL && f->errors != NULL) {
    int any = 0;
    for (uint32_t r = 0; r < f->size; r++)
      any |= f->members[r] != NULL || (f->echoes != NULL && f->echoes[r] != NULL);
    if (any && f->processes && f->opened && f->first == 0)
      run_all(f, GTOLD_CLOSE, close_member, NULL, NULL);
    else if (any)
      run_world(f, close_member, NULL, 1, NULL);
    for (uint32_t r = 0; r < f->size && !bs_world_left_behind(f->world); r++) close_member(f, r, NULL, NULL);
  }
  free(f->echoes);
  glead_free(&f->lead);
  free(f->members);
  free(f->codes);
  free(f->errors);
  for (uint32_t i = 0; i < f->n_inputs && f->inputs != NULL; i++) free(f->inputs[i]);
  free(f->inputs);
  free(f->input_bytes);
  free(f->sizes);
  free(f);
}

/* ---- calls that every rank makes ------------------------------------------------------------- */

typedef struct binding {
  const bs_dim *const *dims;
  uint32_t n;
} binding;

static int32_t bind_member(gfront *f, uint32_t rank, void *arg, bs_error *err) {
  const binding *b = arg;
  if (f->echoes != NULL && rank != f->first) return gecho_follow(f->echoes[rank], &f->lead, err);
  const int32_t rc = bs_session_bind(f->members[rank], b->dims, b->n, err);
  return f->echoes != NULL ? end_of_lead(f, rc, err) : rc;
}

/* The sizes as rank 0 sends them to other processes. BS_NOT_FOUND: the model has no such symbol. */
static int32_t read_sizes(gfront *f, const bs_dim *const *dims, uint32_t n) {
  const gmodel *m = gfront_lead(f)->graph->model;
  for (uint32_t i = 0; i < m->n_symbols; i++) f->sizes[i] = GTOLD_SAME;
  for (uint32_t k = 0; k < n; k++) {
    uint32_t i = 0;
    while (i < m->n_symbols && strcmp(m->symbols[i], dims[k]->name) != 0) i++;
    if (i == m->n_symbols) return BS_NOT_FOUND;
    f->sizes[i] = dims[k]->size;
  }
  return BS_OK;
}

int32_t gfront_bind(gfront *f, const bs_dim *const *dims, uint32_t n, bs_error *err) {
  binding b = {dims, n};
  int32_t rc = gfront_leads(f, err);
  if (rc == BS_OK && f->processes) {
    rc = gargs_dims("bs_session_bind", dims, n, err);
    if (rc == BS_OK && read_sizes(f, dims, n) != BS_OK)
      return bs_session_bind(gfront_lead(f), dims, n, err); /* which says what is wrong */
  }
  return rc == BS_OK ? run_all(f, GTOLD_BIND, bind_member, &b, err) : rc;
}

/* A rank whose error ends the world compares nothing: the world ends the other ranks, too. */
int32_t gfront_run_member(bs_session *s, uint32_t compares, bs_error *err) {
  const int32_t rc = bs_session_run(s, err);
  if (!compares || s->rank->phantom || !gfront_goes_on(s->rank->rank, rc)) return rc;
  const int32_t same = ggates_outputs(s->bound, rc, rc == BS_OK ? err : NULL);
  return rc == BS_OK ? same : rc;
}

static int32_t run_member(gfront *f, uint32_t rank, void *arg, bs_error *err) {
  (void)arg;
  if (f->echoes != NULL && rank != f->first) return gecho_run(f->echoes[rank], err);
  return gfront_run_member(f->members[rank], f->compares, err);
}

uint32_t gfront_compare(gfront *f, uint32_t on) {
  const uint32_t was = f->compares;
  f->compares = on;
  return was;
}

int32_t gfront_run(gfront *f, bs_error *err) {
  const int32_t rc = ready(f, err);
  const bs_session *lead = gfront_lead(f);
  if (rc == BS_OK && f->echoes != NULL) gcut_set(lead->bound, lead->core->length);
  return rc == BS_OK ? run_all(f, GTOLD_RUN, run_member, NULL, err) : rc;
}

typedef struct checking {
  void (*each)(void *user, const bs_node_check *row);
  void *user;
} checking;

static int32_t check_member(gfront *f, uint32_t rank, void *arg, bs_error *err) {
  const checking *c = arg;
  return bs_session_check(f->members[rank], rank == f->first ? c->each : NULL, c->user, err);
}

int32_t gfront_check(gfront *f, void (*each)(void *user, const bs_node_check *row), void *user,
                     bs_error *err) {
  checking c = {each, user};
  const int32_t rc = ready_to_see(f, "a check of the model", err);
  return rc == BS_OK ? run_all(f, GTOLD_CHECK, check_member, &c, err) : rc;
}

typedef struct tracing {
  void (*each)(void *user, const bs_node_trace *row);
  void *user;
} tracing;

static int32_t trace_member(gfront *f, uint32_t rank, void *arg, bs_error *err) {
  const tracing *t = arg;
  return rank == f->first ? bs_session_trace(f->members[rank], t->each, t->user, err)
                          : bs_session_run(f->members[rank], err);
}

int32_t gfront_trace(gfront *f, void (*each)(void *user, const bs_node_trace *row), void *user,
                     bs_error *err) {
  tracing t = {each, user};
  const int32_t rc = ready_to_see(f, "a run with the values of its nodes", err);
  return rc == BS_OK ? run_all(f, GTOLD_TRACE, trace_member, &t, err) : rc;
}

/* ---- calls in which ranks do not meet -------------------------------------------------------- */

/* If ranks are processes, these calls change rank 0 alone. The next run of rank 0 sends its state to the
 * others. */

/* Inputs are the caller's memory for all ranks; an output that the caller gives memory for is the lead's. */
int32_t gfront_set(gfront *f, uint32_t port, const bs_tensor *tensor, bs_error *err) {
  int32_t rc = gfront_leads(f, err);
  const int input = port < f->n_inputs;
  for (uint32_t r = 0; r < f->size && rc == BS_OK; r++)
    if (f->members[r] != NULL && (input || r == f->first))
      rc = bs_session_set(f->members[r], port, tensor, err);
  return rc;
}

int32_t gfront_cache(gfront *f, int64_t length, bs_error *err) {
  int32_t rc = gfront_leads(f, err);
  for (uint32_t r = 0; r < f->size && rc == BS_OK; r++)
    if (f->members[r] != NULL) rc = bs_session_cache(f->members[r], length, err);
  return rc;
}

int32_t gfront_slot(gfront *f, int64_t first, bs_error *err) {
  int32_t rc = gfront_leads(f, err);
  for (uint32_t r = 0; r < f->size && rc == BS_OK; r++)
    if (f->members[r] != NULL) rc = bs_session_slot(f->members[r], first, err);
  return rc;
}

typedef struct copying {
  int64_t from, to, tokens;
} copying;

static int32_t copy_member(gfront *f, uint32_t rank, void *arg, bs_error *err) {
  const copying *c = arg;
  return bs_session_slot_copy(f->members[rank], c->from, c->to, c->tokens, err);
}

int32_t gfront_slot_copy(gfront *f, int64_t from, int64_t to, int64_t tokens, bs_error *err) {
  copying c = {from, to, tokens};
  int32_t rc = gfront_leads(f, err);
  f->told.from = from;
  f->told.to = to;
  f->told.tokens = tokens;
  if (f->processes) return rc == BS_OK ? run_all(f, GTOLD_COPY, copy_member, &c, err) : rc;
  for (uint32_t r = 0; r < f->size && rc == BS_OK; r++)
    if (f->members[r] != NULL) rc = bs_session_slot_copy(f->members[r], from, to, tokens, err);
  return rc;
}
