/* SPDX-License-Identifier: MIT
 * repro.c - see repro.h. */
#include "lab/model/repro.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "graph/run/session.h"
#include "lab/model/certificate.h"
#include "lab/model/inputs.h"
#include "lab/model/repro_inside.h"
#include "lab/stop.h"

enum { TOKENS = 112, BATCH = 3, BESIDE = 2 };

static const repro_cut cuts[] = {{"all", 0, 0, 0},
                                 {"first 2", 2, 0, 0},
                                 {"first 8", 8, 0, 0},
                                 {"first 9", 9, 0, 0},
                                 {"first 97", 97, 0, 0},
                                 {"first 104", 104, 0, 0},
                                 {"all but 1, 1", 0, -1, 0},
                                 {"1 at a time", 0, 1, 0},
                                 {"5 at a time", 0, 5, 0},
                                 {"9 at a time", 0, 9, 0},
                                 {"1 at a time with 2 others", 0, 1, BESIDE},
                                 {"9 at a time with 2 others", 0, 9, BESIDE}};
enum { CUTS = sizeof cuts / sizeof cuts[0], ONE_AT_A_TIME = 7 };

/* Tables beside the one that the plugin takes by itself. They run a part of the grid. */
static const char *const tables[] = {"portable", "avx2", "avx512"};
static const int of_tables[] = {0, 3, 4, 6, 8};
static const uint32_t threads[] = {1, 2, 16};

int32_t repro_no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a certificate");
}

int32_t repro_ran(repro *r, int32_t rc, bs_error *err) {
  if (rc != BS_NUMERIC || err == NULL || strcmp(err->id, "BS-GRAPH-RANKS") != 0) return rc;
  if (r->differs.code == BS_OK) r->differs = *err;
  bs_error_clear(err);
  return BS_OK;
}

static int32_t skip(repro *r, const char *text, bs_error *err) {
  size_t i;
  const json_t *old;
  json_array_foreach(r->skipped, i, old) if (strcmp(json_string_value(old), text) == 0) return BS_OK;
  return json_array_append_new(r->skipped, json_string(text)) == 0 ? BS_OK : repro_no_memory(err);
}

static void tell(const repro *r, const char *what) {
  if (r->request->progress != NULL)
    r->request->progress(r->request->progress_user, what, json_array_size(r->cells), 0);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static const int64_t *ids_of(const bs_model *m) {
  return m->n_inputs > 0 ? m->files[0].data : m->made[0];
}

static int32_t run_tokens(repro *r, int64_t at, int64_t n, bs_error *err) {
  const int64_t *ids = ids_of(&r->model);
  bs_tensor logits;
  const int32_t rc =
      repro_ran(r, bs_model_feed(r->model.session, r->symbol, ids + at, (size_t)n, &logits, err), err);
  return rc == BS_OK ? repro_take(r, (uint64_t)at, 0, (uint64_t)n, (uint64_t)n, err) : rc;
}

/* Entries at..at+n of the batch, whose inputs are parts of those of the whole batch. */
static int32_t run_entries(repro *r, const bs_tensor *inputs, int64_t at, int64_t n, bs_error *err) {
  const bs_dim dim = {.struct_size = sizeof dim, .name = r->symbol, .size = n};
  const bs_dim *dims[] = {&dim};
  bs_session *s = r->model.session;
  int32_t rc = r->symbol != NULL ? bs_session_bind(s, dims, 1, err) : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < bs_graph_port_count(r->model.graph, 1); i++) {
    bs_tensor t = inputs[i];
    if (r->symbol != NULL && t.dims[0] > 0) {
      t.bytes = t.bytes / (uint64_t)t.dims[0] * (uint64_t)n;
      t.data = (uint8_t *)t.data + (uint64_t)at * (inputs[i].bytes / (uint64_t)t.dims[0]);
      t.dims[0] = n;
    }
    rc = bs_session_set(s, i, &t, err);
  }
  if (rc == BS_OK) rc = repro_ran(r, bs_session_run(s, err), err);
  return rc == BS_OK ? repro_take(r, (uint64_t)at, 0, (uint64_t)n, (uint64_t)n, err) : rc;
}

/* The rows that a cut has; 0: it is another one's for so few. */
static int64_t rows_of(const repro *r, const repro_cut *c) {
  const int64_t all = (int64_t)r->rows;
  if (c->beside != r->beside || (!r->cached && c->each == 1 && all == 1)) return 0;
  if (c->each > 1 || c->each < 0) return all > 2 && all > c->each ? all : 0;
  return c->length > 0 ? (c->length < all ? c->length : 0) : all;
}

static int32_t run_cut(repro *r, const bs_tensor *inputs, const repro_cut *c, bs_error *err) {
  const int64_t end = rows_of(r, c), each = c->each > 0 ? c->each : c->each < 0 ? end - 1 : end;
  if (r->now != NULL) memset(r->now, 0xa5, r->rows * r->row);
  if (c->beside > 0) return repro_slots_run(r, each, err);
  int32_t rc = r->cached ? bs_session_cache(r->model.session, 0, err) : BS_OK;
  for (int64_t at = 0; rc == BS_OK && at < end; at += each) {
    const int64_t n = end - at < each ? end - at : each;
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = r->cached ? run_tokens(r, at, n, err) : run_entries(r, inputs, at, n, err);
  }
  return rc;
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* -1: not known. */
static int64_t size_of(const bs_model *m, const char *symbol) {
  for (size_t i = 0; i < m->n_dims; i++)
    if (strcmp(m->dims[i].name, symbol) == 0) return m->dims[i].size;
  return -1;
}

/* The symbol that is the first dim of every input, and no other dim of one; NULL: there is none. */
static int32_t find_batch(repro *r, bs_error *err) {
  bs_port port = {.struct_size = sizeof port};
  const bs_graph *g = r->model.graph;
  const uint32_t n = bs_graph_port_count(g, 1);
  int32_t rc = n > 0 ? bs_graph_port(g, 1, 0, &port, err) : BS_OK;
  r->symbol = rc == BS_OK && n > 0 && port.rank > 0 && port.rank <= BS_MAX_DIMS ? port.symbols[0] : NULL;
  for (uint32_t p = 0; rc == BS_OK && p < n && r->symbol != NULL; p++) {
    rc = bs_graph_port(g, 1, p, &port, err);
    int is = port.rank > 0 && port.rank <= BS_MAX_DIMS;
    for (uint32_t d = 0; is && d < port.rank; d++)
      is = (port.symbols[d] != NULL && strcmp(port.symbols[d], r->symbol) == 0) == (d == 0);
    if (!is) r->symbol = NULL;
  }
  return rc;
}

/* 1: the first dim of every output is the batch, and the others do not depend on it. Binds `size` again. */
static int32_t follows(const repro *r, int64_t size, int *out_does, bs_error *err) {
  bs_session *s = r->model.session;
  const uint32_t in = bs_graph_port_count(r->model.graph, 1), n = bs_session_port_count(s) - in;
  bs_tensor_desc *whole = calloc(n + 1u, sizeof *whole), one = {.struct_size = sizeof one};
  bs_dim dim = {.struct_size = sizeof dim, .name = r->symbol, .size = 1};
  const bs_dim *dims[] = {&dim};
  int32_t rc = whole != NULL ? BS_OK : repro_no_memory(err);
  *out_does = size > 1;
  for (uint32_t p = 0; rc == BS_OK && p < n; p++) {
    whole[p].struct_size = sizeof whole[p];
    rc = bs_session_port(s, in + p, NULL, &whole[p], err);
  }
  const int binds =
      rc == BS_OK && bs_session_bind(s, dims, 1, NULL) == BS_OK; /* some models take no batch of 1 */
  *out_does &= binds;
  for (uint32_t p = 0; rc == BS_OK && binds && p < n; p++) {
    rc = bs_session_port(s, in + p, NULL, &one, err);
    *out_does &= one.rank == whole[p].rank && one.rank > 0 && whole[p].dims[0] == size && one.dims[0] == 1;
    for (uint32_t d = 1; *out_does && d < one.rank; d++) *out_does = one.dims[d] == whole[p].dims[d];
  }
  dim.size = size;
  if (rc == BS_OK) rc = bs_session_bind(s, dims, 1, err);
  free(whole);
  return rc;
}

/* Sets what the outputs depend on in the result, once; that of a certificate must be the same. */
static int32_t take_files(repro *r, bs_error *err) {
  if (r->has_files) return BS_OK;
  r->has_files = 1;
  tell(r, "files");
  const int32_t rc = bs_certificate_add_files(&r->model, r->result, err);
  return rc == BS_OK && r->certificate != NULL ? bs_certificate_same_files(r->certificate, r->result, err)
                                               : rc;
}

static int32_t take_inputs(repro *r, const bs_model_request *request, bs_error *err) {
  if (r->has_inputs) return BS_OK;
  r->has_inputs = 1;
  int32_t rc = bs_certificate_add_inputs(&r->model, r->result, err);
  if (rc == BS_OK && r->certificate != NULL) rc = bs_certificate_same_inputs(r->certificate, r->result, err);
  if (rc == BS_OK && json_object_set_new(r->result, "asked", bs_certificate_asked(request, &r->model)) != 0)
    rc = repro_no_memory(err);
  if (rc != BS_OK || !r->cached) return rc;
  const int64_t *ids = ids_of(&r->model);
  r->ids = calloc(r->rows + 1, sizeof *r->ids);
  if (r->ids == NULL) return repro_no_memory(err);
  memcpy(r->ids, ids, r->rows * sizeof *ids);
  return BS_OK;
}

/* A model that does not open with the words of a certificate is most often another one: its files say so. */
static int32_t blame_files(repro *r, bs_context *context, const bs_model_request *request, int32_t rc,
                           bs_error *err) {
  bs_model_request q = *request;
  bs_error why = BS_ERROR_INIT;
  const int of_dim = err != NULL && strcmp(err->id, "BS-MODEL-DIM") == 0;
  if (r->certificate == NULL || r->has_files ||
      (!of_dim && (err == NULL || strcmp(err->id, "BS-HF-CACHE") != 0)))
    return rc;
  q.dims = q.inputs = (bs_model_words){NULL, 0};
  q.cache_tokens = 0;
  q.note = NULL;
  bs_model_close(&r->model);
  memset(&r->model, 0, sizeof r->model);
  if (bs_model_open(context, &q, &r->model, NULL) == BS_OK && take_files(r, &why) == BS_INPUT &&
      (of_dim || strcmp(why.id, "BS-CERT-FILE") == 0)) {
    *err = why;
    return BS_INPUT;
  }
  bs_error_hint(err, "the certificate asks for it: take one that was made of this model");
  return err->code = BS_INPUT;
}

/* Opens the model's session, and fills its inputs. */
static int32_t start(repro *r, bs_context *context, bs_model_request *request, bs_error *err) {
  bs_model *m = &r->model;
  bs_graph_info info = {.struct_size = sizeof info};
  int does = 0;
  if (r->beside > 0) return repro_slots_start(r, context, request, err);
  int32_t rc = bs_model_open(context, request, m, err);
  if (rc != BS_OK) rc = blame_files(r, context, request, rc, err);
  if (rc == BS_OK) rc = take_files(r, err);
  if (rc == BS_OK) rc = bs_graph_info_get(m->graph, &info, err);
  if (rc != BS_OK) return rc;
  r->cache_tokens = info.cache_tokens;
  r->cached = info.cache_tokens > 0;
  rc = r->cached ? bs_model_token_dim(m->graph, &r->symbol, err) : find_batch(r, err);
  const int64_t size = !r->cached ? BATCH : info.cache_tokens < TOKENS ? info.cache_tokens : TOKENS;
  if (rc == BS_OK && r->symbol != NULL && size_of(m, r->symbol) < 0)
    rc = bs_model_set_dim(m, r->symbol, size, err);
  if (rc == BS_OK) rc = bs_model_start(context, request, m, err);
  if (rc == BS_OK) rc = bs_model_follow(m, m->session, err);
  r->rows = rc == BS_OK && r->symbol != NULL ? (uint64_t)size_of(m, r->symbol) : 1;
  if (rc == BS_OK && r->symbol != NULL && !r->cached) {
    rc = follows(r, (int64_t)r->rows, &does, err);
    if (!does) r->symbol = NULL;
    if (!does) r->rows = 1;
  }
  if (rc == BS_OK) rc = bs_model_set_inputs(request, m, err);
  return rc == BS_OK ? take_inputs(r, request, err) : rc;
}

/* Runs cuts in the open session. The first run of all is kept, and made again as the first cell. cells NULL:
 * the control, whose last cut is compared with its first. */
static int32_t run_cuts(repro *r, const bs_tensor *inputs, const int *which, size_t n, json_t *cells,
                        bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    const repro_cut *c = &cuts[which[i]];
    const int64_t rows = rows_of(r, c);
    const int is_first =
        r->certificate == NULL && (r->outputs == NULL || (cells == NULL && i == 0 && !r->keep_first));
    json_t *cell = NULL;
    if (rows == 0) continue;
    tell(r, c->name);
    rc = run_cut(r, inputs, c, err);
    if (rc == BS_OK && is_first) memcpy(r->first, r->now, r->rows * r->row);
    if (rc == BS_OK && is_first) rc = run_cut(r, inputs, c, err);
    if (rc == BS_OK && (cells != NULL || i + 1 == n)) rc = repro_compare(r, c, (uint64_t)rows, &cell, err);
    if (cell == NULL) continue;
    const int failed =
        cells != NULL ? json_array_append_new(cells, cell) : json_object_set_new(r->result, "control", cell);
    if (failed) rc = repro_no_memory(err);
  }
  return rc;
}

/* Runs cuts in a session of their own. */
static int32_t run_session(repro *r, uint32_t tokenwise, const int *which, size_t n, json_t *cells,
                           bs_error *err) {
  bs_context *context = NULL;
  bs_model_request request = *r->request;
  bs_model_ranks ranks;
  request.threads = r->threads;
  if (r->ranks > 0) {
    ranks = *request.ranks;
    ranks.n = r->ranks;
    ranks.threads = r->threads;
    if (!r->joined && r->asked->joined != NULL) ranks.comm = NULL;
    request.ranks = &ranks;
  }
  request.tokenwise = tokenwise;
  request.note = r->has_inputs ? NULL : request.note;
  memset(&r->model, 0, sizeof r->model);
  int32_t rc = r->joined ? BS_OK : r->asked->open(r->asked->user, r->table, &context, err);
  if (r->joined) context = r->asked->joined;
  if (rc == BS_OK) rc = start(r, context, &request, err);
  if (rc == BS_OK) gsession_compare_ranks(r->model.session, 1);
  const uint32_t n_inputs = rc == BS_OK && r->beside == 0 ? bs_graph_port_count(r->model.graph, 1) : 0;
  bs_tensor *inputs = calloc(n_inputs + 1u, sizeof *inputs);
  if (rc == BS_OK && inputs == NULL) rc = repro_no_memory(err);
  for (uint32_t i = 0; rc == BS_OK && i < n_inputs; i++) {
    inputs[i].struct_size = sizeof inputs[i];
    rc = bs_session_get(r->model.session, i, &inputs[i], err);
  }
  if (rc == BS_OK) rc = run_cuts(r, inputs, which, n, cells, err);
  if (rc == BS_OK && json_object_get(r->result, "build") == NULL)
    rc = bs_certificate_add_machine(context, r->result, err);
  free(inputs);
  bs_model_close(&r->model);
  if (!r->joined) bs_context_close(context);
  return rc;
}

/* ---- the grid -------------------------------------------------------------------------------- */

/* Notes why a session was not opened, and clears the error. */
static int32_t skip_session(repro *r, const char *what, bs_error *err) {
  char text[300];
  snprintf(text, sizeof text, "%.60s: %.200s", what, err->message);
  bs_error_clear(err);
  return skip(r, text, err);
}

static int32_t run_tables(repro *r, bs_error *err) {
  int32_t rc = BS_OK;
  if (r->request->backend != NULL && strcmp(r->request->backend, "cpu") != 0)
    return skip(r, "tables: the backend is not cpu", err);
  r->threads = 1;
  for (size_t i = 0; rc == BS_OK && i < sizeof tables / sizeof tables[0]; i++) {
    r->table = tables[i];
    rc = run_session(r, r->asked->bits, of_tables, sizeof of_tables / sizeof of_tables[0], r->cells, err);
    if (rc != BS_UNAVAILABLE) continue;
    char text[64];
    snprintf(text, sizeof text, "table %s: not on this processor", tables[i]);
    bs_error_clear(err);
    rc = skip(r, text, err);
  }
  r->table = NULL;
  return rc;
}

/* The sequence in runs with others. */
static int32_t run_beside(repro *r, bs_error *err) {
  static const int beside[] = {ONE_AT_A_TIME + 3, ONE_AT_A_TIME + 4};
  bs_error why = BS_ERROR_INIT;
  if (!r->cached)
    return skip(r, "lengths of a sequence, and sequences side by side: the model has no key-value cache",
                err);
  r->beside = BESIDE;
  int32_t rc = run_session(r, r->asked->bits, beside, 2, r->cells, &why);
  r->beside = 0;
  if (rc == BS_UNSUPPORTED) return skip_session(r, "sequences side by side", &why);
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
}

/* The numbers of ranks that the promise is for, beside the one of the rest of the grid. */
static int32_t run_ranks(repro *r, bs_error *err) {
  static const struct { uint32_t ranks, threads; } of[] = {{2, 1}, {2, 2}, {4, 1}, {8, 1}};
  int32_t rc = BS_OK;
  if (r->asked->bits < BS_BITS_RANKS) return BS_OK;
  for (size_t i = 0; rc == BS_OK && i < sizeof of / sizeof of[0]; i++) {
    r->ranks = of[i].ranks;
    r->threads = of[i].threads;
    rc = run_session(r, r->asked->bits, of_tables, sizeof of_tables / sizeof of_tables[0], r->cells, err);
  }
  r->ranks = 1;
  return rc;
}

/* On ranks that are processes. They wait for each other, so this is the first session. */
static int32_t run_joined(repro *r, bs_error *err) {
  if (r->asked->joined == NULL) return BS_OK;
  r->joined = 1;
  r->ranks = r->request->ranks->n;
  r->threads = 1;
  const int32_t rc =
      run_session(r, r->asked->bits, of_tables, sizeof of_tables / sizeof of_tables[0], r->cells, err);
  r->joined = 0;
  return rc;
}

/* Without the promise: another cut, and for ranks another number of them. It should differ. */
static int32_t run_control(repro *r, bs_error *err) {
  static const int control[] = {0, ONE_AT_A_TIME};
  if (r->asked->bits < BS_BITS_RANKS) return run_session(r, BS_BITS_RUNS, control, 2, NULL, err);
  int32_t rc = run_session(r, BS_BITS_RUNS, control, 1, NULL, err);
  r->keep_first = 1;
  r->ranks = 2;
  if (rc == BS_OK) rc = run_session(r, BS_BITS_RUNS, r->cached ? &control[1] : control, 1, NULL, err);
  r->ranks = 1;
  return rc;
}

static int32_t run_all(repro *r, bs_error *err) {
  static const int all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  int32_t rc = run_joined(r, err);
  if (r->request->ranks != NULL) r->ranks = r->asked->bits < BS_BITS_RANKS ? r->request->ranks->n : 1;
  for (size_t i = 0; rc == BS_OK && i < sizeof threads / sizeof threads[0]; i++) {
    r->threads = threads[i];
    rc = run_session(r, r->asked->bits, all, sizeof all / sizeof all[0], r->cells, err);
    if (rc == BS_OK && i == 0 && json_object_set_new(r->result, "output", repro_digest(r)) != 0)
      rc = repro_no_memory(err);
  }
  if (rc == BS_OK) rc = run_tables(r, err);
  if (rc == BS_OK) rc = run_ranks(r, err);
  r->threads = 2;
  if (rc == BS_OK) rc = run_beside(r, err);
  if (rc == BS_OK && json_array_size(r->cells) == 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-MODEL-REPRO", "no run of %.200s has a row: nothing was compared",
                 r->request->path);
    bs_error_hint(err, "--dim NAME=N gives the rows");
    return BS_UNSUPPORTED;
  }
  if (rc == BS_OK) rc = run_control(r, err);
  if (rc == BS_OK && !r->cached && r->symbol == NULL) rc = skip(r, "batch: no symbol is the first dim", err);
  return rc;
}

static int32_t end(repro *r, int32_t rc, json_t **out, bs_error *err) {
  json_int_t failed = 0;
  for (size_t i = 0; i < json_array_size(r->cells); i++)
    failed += !json_is_true(json_object_get(json_array_get(r->cells, i), "equal"));
  if (rc == BS_OK && (json_object_set(r->result, "cells", r->cells) != 0 ||
                      json_object_set(r->result, "not_compared", r->skipped) != 0 ||
                      json_object_set_new(r->result, "failed", json_integer(failed)) != 0))
    rc = repro_no_memory(err);
  if (rc == BS_OK) rc = bs_certificate_add_tables(r->result, err);
  if (rc == BS_OK && failed == 0 && r->differs.code != BS_OK) {
    rc = r->differs.code;
    if (err != NULL) *err = r->differs;
  }
  free(r->outputs);
  free(r->first);
  free(r->now);
  free(r->ids);
  json_decref(r->cells);
  json_decref(r->skipped);
  if (rc == BS_OK)
    *out = r->result;
  else
    json_decref(r->result);
  return rc;
}

int32_t bs_model_repro(const bs_model_request *request, const bs_repro_asked *asked, json_t **out,
                       bs_error *err) {
  static const char *const words[] = {"runs", "batch", "tokens", "ranks"};
  repro r = {.request = request, .asked = asked, .cells = json_array(), .skipped = json_array()};
  *out = NULL;
  r.result = json_pack("{s:i, s:s, s:i, s:o}", "blockshock_bits", 1, "word", words[asked->bits], "definition",
                       1, "model", bs_model_json_text(request->path));
  const int32_t rc =
      r.result != NULL && r.cells != NULL && r.skipped != NULL ? run_all(&r, err) : repro_no_memory(err);
  return end(&r, rc, out, err);
}

/* ---- a certificate --------------------------------------------------------------------------- */

static const char *text_of(const json_t *cell, const char *key) {
  return json_string_value(json_object_get(cell, key));
}

/* -1: a name that this version does not know. */
static int cut_of(const json_t *cell) {
  int i = 0;
  while (i < CUTS && strcmp(cuts[i].name, text_of(cell, "run")) != 0) i++;
  return i < CUTS ? i : -1;
}

/* 1: both cells run in one session. */
static int share_session(const json_t *a, const json_t *b) {
  const int of[2] = {cut_of(a), cut_of(b)};
  return of[0] >= 0 && of[1] >= 0 && cuts[of[0]].beside == cuts[of[1]].beside &&
         json_equal(json_object_get(a, "table"), json_object_get(b, "table")) &&
         json_object_get(a, "launch") == NULL && json_object_get(b, "launch") == NULL &&
         json_integer_value(json_object_get(a, "ranks")) == json_integer_value(json_object_get(b, "ranks")) &&
         json_equal(json_object_get(a, "threads"), json_object_get(b, "threads"));
}

/* 1: a session was not opened because this machine lacks something. */
static int is_absent(const repro *r, int32_t rc, const bs_error *why) {
  return rc == BS_UNAVAILABLE || rc == BS_UNSUPPORTED || rc == BS_NOT_FOUND ||
         (rc == BS_CONFIG && r->table != NULL && strcmp(why->id, "BS-PLG-PARAM") == 0);
}

/* Runs the cells that share a session with cell `at`, unless one before it does. *why: of the first session
 * that was not opened. */
static int32_t run_cell(repro *r, const json_t *cells, size_t at, bs_error *why, bs_error *err) {
  const json_t *cell = json_array_get(cells, at);
  int which[CUTS], has[CUTS] = {0};
  size_t n = 0;
  char what[100];
  bs_error now = BS_ERROR_INIT;
  if (json_object_get(cell, "launch") != NULL && why->code == BS_OK)
    bs_error_set(why, BS_UNAVAILABLE, "BS-CERT-CELLS", "its ranks are processes");
  if (json_object_get(cell, "launch") != NULL)
    return skip(r, "ranks that are processes: --with repro=ranks --launch processes makes such cells", err);
  if (cut_of(cell) < 0) {
    snprintf(what, sizeof what, "run '%.60s': this version has no such run", text_of(cell, "run"));
    return skip(r, what, err);
  }
  for (size_t i = 0; i < at; i++)
    if (share_session(json_array_get(cells, i), cell)) return BS_OK;
  for (size_t i = at; i < json_array_size(cells); i++)
    if (share_session(json_array_get(cells, i), cell)) has[cut_of(json_array_get(cells, i))] = 1;
  for (int i = 0; i < CUTS; i++)
    if (has[i]) which[n++] = i;
  r->beside = cuts[which[0]].beside;
  r->threads = (uint32_t)json_integer_value(json_object_get(cell, "threads"));
  r->ranks = r->request->ranks != NULL ? (uint32_t)json_integer_value(json_object_get(cell, "ranks")) : 0;
  r->table = strcmp(text_of(cell, "table"), "auto") != 0 ? text_of(cell, "table") : NULL;
  const int32_t rc = run_session(r, r->asked->bits, which, n, r->cells, &now);
  if (rc == BS_OK || !is_absent(r, rc, &now)) {
    if (rc != BS_OK && err != NULL) *err = now;
    return rc;
  }
  if (why->code == BS_OK) *why = now;
  snprintf(what, sizeof what, "table %.31s, %u threads", text_of(cell, "table"), r->threads);
  if (r->ranks > 0)
    snprintf(what, sizeof what, "table %.31s, %u ranks, %u threads", text_of(cell, "table"), r->ranks,
             r->threads);
  return skip_session(r, what, &now);
}

static int32_t run_certificate(repro *r, bs_error *err) {
  const json_t *cells = json_object_get(r->certificate, "cells");
  bs_error why = BS_ERROR_INIT;
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < json_array_size(cells); i++) rc = run_cell(r, cells, i, &why, err);
  if (rc != BS_OK || r->has_whole) return rc;
  if (json_array_size(r->cells) > 0)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-CERT-CELLS",
                        "none of the %zu cells that ran has all rows of the output, so that output.sha256 "
                        "was compared with nothing",
                        json_array_size(r->cells));
  bs_error_set(err, BS_UNAVAILABLE, "BS-CERT-CELLS",
               "none of the %zu cells of the certificate can run here: %.300s", json_array_size(cells),
               why.code != BS_OK ? why.message : "this version has none of their runs");
  bs_error_hint(err, "nothing was compared; a machine that has one of its tables can, without --backend");
  return BS_UNAVAILABLE;
}

int32_t bs_model_repro_against(const bs_model_request *request, const bs_repro_asked *asked,
                               const json_t *certificate, json_t **out, bs_error *err) {
  bs_certificate_words words = {0};
  bs_model_request q = *request;
  repro r = {.request = &q,
             .asked = asked,
             .certificate = certificate,
             .cells = json_array(),
             .skipped = json_array()};
  *out = NULL;
  r.result = json_pack("{s:O, s:o}", "word", json_object_get(certificate, "word"), "model",
                       bs_model_json_text(request->path));
  int32_t rc = r.result != NULL && r.cells != NULL && r.skipped != NULL
                   ? bs_certificate_ask(certificate, &q, &words, err)
                   : repro_no_memory(err);
  if (rc == BS_OK) rc = run_certificate(&r, err);
  rc = end(&r, rc, out, err);
  bs_certificate_words_free(&words);
  return rc;
}
