/* SPDX-License-Identifier: MIT
 * repro.c - see repro.h. */
#include "lab/model/repro.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "lab/model/inputs.h"
#include "lab/stop.h"
#include "lab/store/sha256.h"

enum { TOKENS = 112, BATCH = 3 };

/* How a sequence is run: the first `length` tokens (0: all), `each` at a time (0: all, -1: all but one). */
typedef struct cut {
  const char *name;
  int64_t length, each;
} cut;
static const cut cuts[] = {{"all", 0, 0},           {"first 2", 2, 0},     {"first 8", 8, 0},
                           {"first 9", 9, 0},       {"first 97", 97, 0},   {"first 104", 104, 0},
                           {"all but 1, 1", 0, -1}, {"1 at a time", 0, 1}, {"5 at a time", 0, 5},
                           {"9 at a time", 0, 9}};
enum { CUTS = sizeof cuts / sizeof cuts[0], ONE_AT_A_TIME = 7 };

/* Tables beside the one that the plugin takes by itself. They run a part of the grid. */
static const char *const tables[] = {"portable", "avx2", "avx512"};
static const int of_tables[] = {0, 3, 4, 6, 8};
static const uint32_t threads[] = {1, 2, 16};

/* Where the numbers of an output lie in a row. */
typedef struct output {
  uint64_t offset, bytes;
  uint32_t dtype, width;
} output;

typedef struct repro {
  const bs_model_request *request;
  const bs_repro_asked *asked;
  const char *table; /* of the session that is open; NULL: the plugin's own */
  uint32_t threads;
  bs_model model;     /* that is open */
  const char *symbol; /* of the tokens, or of the batch; NULL: the outputs are one row */
  int cached;
  uint64_t rows, row; /* tokens, or entries of the batch; bytes of one: of all outputs */
  uint64_t numbers;   /* of a row */
  output *outputs;
  uint32_t n_outputs;
  uint8_t *first, *now;
  json_t *cells, *skipped, *result;
} repro;

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a certificate");
}

static int32_t skip(repro *r, const char *text, bs_error *err) {
  size_t i;
  const json_t *old;
  json_array_foreach(r->skipped, i, old) if (strcmp(json_string_value(old), text) == 0) return BS_OK;
  return json_array_append_new(r->skipped, json_string(text)) == 0 ? BS_OK : no_memory(err);
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* Lays out a row of all outputs, whose last run had `n` rows. */
static int32_t lay_out(repro *r, uint64_t n, bs_error *err) {
  int32_t rc = BS_OK;
  const uint32_t in = bs_graph_port_count(r->model.graph, 1);
  r->n_outputs = bs_session_port_count(r->model.session) - in;
  r->outputs = calloc(r->n_outputs + 1u, sizeof *r->outputs);
  if (r->outputs == NULL) return no_memory(err);
  for (uint32_t p = 0; rc == BS_OK && p < r->n_outputs; p++) {
    bs_tensor_desc d = {.struct_size = sizeof d};
    output *o = &r->outputs[p];
    rc = bs_session_port(r->model.session, in + p, NULL, &d, err);
    o->dtype = d.dtype == BS_BF16 ? BS_F32 : d.dtype; /* as bs_model_dense */
    o->width = BS_DTYPE_BYTES(o->dtype);
    o->offset = r->row;
    o->bytes = n > 0 ? o->width : 0;
    for (uint32_t i = 0; i < d.rank; i++) o->bytes *= (uint64_t)d.dims[i];
    o->bytes /= n > 0 ? n : 1;
    r->row += o->bytes;
    r->numbers += o->width > 0 ? o->bytes / o->width : 0;
  }
  if (rc == BS_OK && r->row == 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-MODEL-REPRO", "%.200s has no output with a number",
                        r->request->path);
  if (rc == BS_OK) rc = bs_memory_fits(2 * r->row * r->rows, "BS-MODEL-MEMORY", "copies of the outputs", err);
  if (rc != BS_OK) return rc;
  r->first = calloc(r->rows + 1, r->row);
  r->now = calloc(r->rows + 1, r->row);
  return r->first != NULL && r->now != NULL ? BS_OK : no_memory(err);
}

/* Copies the outputs of the last run, which has `n` rows, to rows `at` on. */
static int32_t take_rows(repro *r, uint64_t at, uint64_t n, bs_error *err) {
  int32_t rc = r->outputs == NULL ? lay_out(r, n, err) : BS_OK;
  const uint32_t in = bs_graph_port_count(r->model.graph, 1);
  for (uint32_t p = 0; rc == BS_OK && p < r->n_outputs; p++) {
    const output *o = &r->outputs[p];
    bs_tensor t = {.struct_size = sizeof t};
    uint32_t dtype;
    uint64_t count;
    rc = bs_session_get(r->model.session, in + p, &t, err);
    uint8_t *dense = rc == BS_OK ? bs_model_dense(&t, &dtype, &count) : NULL;
    if (rc != BS_OK || dense == NULL) return rc != BS_OK ? rc : no_memory(err);
    if (count * o->width != o->bytes * n)
      rc = bs_error_set(err, BS_INTERNAL, "BS-MODEL-REPRO", "output %u has %llu numbers in %llu rows", p,
                        (unsigned long long)count, (unsigned long long)n);
    for (uint64_t i = 0; rc == BS_OK && i < n; i++)
      memcpy(r->now + (at + i) * r->row + o->offset, dense + i * o->bytes, o->bytes);
    free(dense);
  }
  return rc;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static int32_t run_tokens(repro *r, int64_t at, int64_t n, bs_error *err) {
  const int64_t *ids = r->model.n_inputs > 0 ? r->model.files[0].data : r->model.made[0];
  bs_tensor logits;
  const int32_t rc = bs_model_feed(r->model.session, r->symbol, ids + at, (size_t)n, &logits, err);
  return rc == BS_OK ? take_rows(r, (uint64_t)at, (uint64_t)n, err) : rc;
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
  if (rc == BS_OK) rc = bs_session_run(s, err);
  return rc == BS_OK ? take_rows(r, (uint64_t)at, (uint64_t)n, err) : rc;
}

/* The rows that a cut has; 0: it is another one's for so few. */
static int64_t rows_of(const repro *r, const cut *c) {
  const int64_t all = (int64_t)r->rows;
  if (!r->cached) return c->length == 0 && (c->each == 0 || (c->each == 1 && all > 1)) ? all : 0;
  if (c->each > 1 || c->each < 0) return all > 2 && all > c->each ? all : 0;
  return c->length > 0 ? (c->length < all ? c->length : 0) : all;
}

static int32_t run_cut(repro *r, const bs_tensor *inputs, const cut *c, bs_error *err) {
  const int64_t end = rows_of(r, c), each = c->each > 0 ? c->each : c->each < 0 ? end - 1 : end;
  int32_t rc = r->cached ? bs_session_cache(r->model.session, 0, err) : BS_OK;
  if (r->now != NULL) memset(r->now, 0xa5, r->rows * r->row);
  for (int64_t at = 0; rc == BS_OK && at < end; at += each) {
    const int64_t n = end - at < each ? end - at : each;
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = r->cached ? run_tokens(r, at, n, err) : run_entries(r, inputs, at, n, err);
  }
  return rc;
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* Every NaN is equal: its sign and its payload are the processor's. */
static int are_equal(const output *o, const uint8_t *a, const uint8_t *b) {
  return memcmp(a, b, o->width) == 0 ||
         (isnan(bs_load_f64(o->dtype, a, 0)) && isnan(bs_load_f64(o->dtype, b, 0)));
}

static uint64_t count_differ(const repro *r, const uint8_t *a, const uint8_t *b) {
  uint64_t differ = 0;
  for (uint32_t p = 0; p < r->n_outputs && memcmp(a, b, r->row) != 0; p++) {
    const output *o = &r->outputs[p];
    for (uint64_t at = o->offset; at < o->offset + o->bytes; at += o->width)
      differ += !are_equal(o, a + at, b + at);
  }
  return differ;
}

static json_t *compare(const repro *r, const cut *c) {
  const uint64_t rows = (uint64_t)rows_of(r, c);
  uint64_t differ = 0;
  int64_t first = -1;
  for (uint64_t i = 0; i < rows; i++) {
    const uint64_t n = count_differ(r, r->first + i * r->row, r->now + i * r->row);
    if (n > 0 && first < 0) first = (int64_t)i;
    differ += n;
  }
  return json_pack("{s:s, s:I, s:s, s:I, s:I, s:o, s:b}", "table", r->table != NULL ? r->table : "auto",
                   "threads", (json_int_t)r->threads, "run", c->name, "compared",
                   (json_int_t)(rows * r->numbers), "differ", (json_int_t)differ, "first",
                   first < 0 ? json_null() : json_integer(first), "equal", first < 0);
}

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
  int32_t rc = whole != NULL ? BS_OK : no_memory(err);
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

/* Opens the model's session, and fills its inputs. */
static int32_t start(repro *r, bs_context *context, bs_model_request *request, bs_error *err) {
  bs_model *m = &r->model;
  bs_graph_info info = {.struct_size = sizeof info};
  int does = 0;
  int32_t rc = bs_model_open(context, request, m, err);
  if (rc == BS_OK) rc = bs_graph_info_get(m->graph, &info, err);
  if (rc != BS_OK) return rc;
  r->cached = info.cache_tokens > 0;
  rc = r->cached ? bs_model_token_dim(m->graph, &r->symbol, err) : find_batch(r, err);
  const int64_t size = !r->cached ? BATCH : info.cache_tokens < TOKENS ? info.cache_tokens : TOKENS;
  if (rc == BS_OK && r->symbol != NULL && size_of(m, r->symbol) < 0)
    rc = bs_model_set_dim(m, r->symbol, size, err);
  if (rc == BS_OK) rc = bs_model_start(context, request, m, err);
  r->rows = rc == BS_OK && r->symbol != NULL ? (uint64_t)size_of(m, r->symbol) : 1;
  if (rc == BS_OK && r->symbol != NULL && !r->cached) {
    rc = follows(r, (int64_t)r->rows, &does, err);
    if (!does) r->symbol = NULL;
    if (!does) r->rows = 1;
  }
  return rc == BS_OK ? bs_model_set_inputs(request, m, err) : rc;
}

static void tell(const repro *r, const char *what) {
  if (r->request->progress != NULL)
    r->request->progress(r->request->progress_user, what, json_array_size(r->cells), 0);
}

/* Runs cuts in a session of their own. The first run of all is kept, and made again as the first cell. cells
 * NULL: the control, whose last cut is compared with its first. */
static int32_t run_session(repro *r, uint32_t tokenwise, const int *which, size_t n, json_t *cells,
                           bs_error *err) {
  bs_context *context = NULL;
  bs_model_request request = *r->request;
  request.threads = r->threads;
  request.tokenwise = tokenwise;
  request.note = cells == r->cells && r->outputs == NULL ? request.note : NULL;
  memset(&r->model, 0, sizeof r->model);
  int32_t rc = r->asked->open(r->asked->user, r->table, &context, err);
  if (rc == BS_OK) rc = start(r, context, &request, err);
  const uint32_t n_inputs = rc == BS_OK ? bs_graph_port_count(r->model.graph, 1) : 0;
  bs_tensor *inputs = calloc(n_inputs + 1u, sizeof *inputs);
  if (rc == BS_OK && inputs == NULL) rc = no_memory(err);
  for (uint32_t i = 0; rc == BS_OK && i < n_inputs; i++) {
    inputs[i].struct_size = sizeof inputs[i];
    rc = bs_session_get(r->model.session, i, &inputs[i], err);
  }
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    const cut *c = &cuts[which[i]];
    const int is_first = r->outputs == NULL || (cells == NULL && i == 0);
    if (rows_of(r, c) == 0) continue;
    tell(r, c->name);
    rc = run_cut(r, inputs, c, err);
    if (rc == BS_OK && is_first) memcpy(r->first, r->now, r->rows * r->row);
    if (rc == BS_OK && is_first) rc = run_cut(r, inputs, c, err);
    if (rc == BS_OK && cells != NULL && json_array_append_new(cells, compare(r, c)) != 0) rc = no_memory(err);
    if (rc == BS_OK && cells == NULL && i + 1 == n) json_object_set_new(r->result, "control", compare(r, c));
  }
  free(inputs);
  bs_model_close(&r->model);
  bs_context_close(context);
  return rc;
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

/* The bits of the output: whole, and 8 digits of each row. */
static int32_t add_output(repro *r, bs_error *err) {
  char hex[65];
  bs_sha256 h;
  json_t *rows = json_array();
  for (uint64_t i = 0; i < r->rows; i++) {
    bs_sha256_init(&h);
    bs_sha256_add(&h, r->first + i * r->row, r->row);
    bs_sha256_hex(&h, hex);
    json_array_append_new(rows, json_stringn(hex, 8));
  }
  bs_sha256_init(&h);
  bs_sha256_add(&h, r->first, r->rows * r->row);
  bs_sha256_hex(&h, hex);
  json_t *of_output = json_pack("{s:I, s:s, s:o}", "numbers", (json_int_t)(r->rows * r->numbers), "sha256",
                                hex, "rows", rows);
  return json_object_set_new(r->result, "output", of_output) == 0 ? BS_OK : no_memory(err);
}

static int32_t run_all(repro *r, bs_error *err) {
  static const int all[CUTS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, control[] = {0, ONE_AT_A_TIME};
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < sizeof threads / sizeof threads[0]; i++) {
    r->threads = threads[i];
    rc = run_session(r, r->asked->bits, all, CUTS, r->cells, err);
    if (rc == BS_OK && i == 0) rc = add_output(r, err);
  }
  if (rc == BS_OK) rc = run_tables(r, err);
  r->threads = 2;
  if (rc == BS_OK) rc = run_session(r, BS_BITS_RUNS, control, 2, NULL, err);
  if (rc == BS_OK && !r->cached) rc = skip(r, "lengths and cuts: the model has no key-value cache", err);
  if (rc == BS_OK && !r->cached && r->symbol == NULL) rc = skip(r, "batch: no symbol is the first dim", err);
  if (rc == BS_OK && r->cached) rc = skip(r, "batch: one sequence a run", err);
  return rc;
}

int32_t bs_model_repro(const bs_model_request *request, const bs_repro_asked *asked, json_t **out,
                       bs_error *err) {
  repro r = {.request = request, .asked = asked, .cells = json_array(), .skipped = json_array()};
  *out = NULL;
  r.result = json_pack("{s:i, s:s, s:s, s:o, s:o, s:I}", "blockshock_bits", 1, "word",
                       asked->bits == BS_BITS_TOKENS ? "tokens" : "runs", "model", request->path, "cells",
                       r.cells, "not_compared", r.skipped, "seed", (json_int_t)request->seed);
  int32_t rc = r.result != NULL ? run_all(&r, err) : no_memory(err);
  json_int_t failed = 0;
  for (size_t i = 0; i < json_array_size(r.cells); i++)
    failed += !json_is_true(json_object_get(json_array_get(r.cells, i), "equal"));
  if (rc == BS_OK && json_object_set_new(r.result, "failed", json_integer(failed)) != 0) rc = no_memory(err);
  free(r.outputs);
  free(r.first);
  free(r.now);
  if (rc == BS_OK)
    *out = r.result;
  else
    json_decref(r.result);
  return rc;
}
