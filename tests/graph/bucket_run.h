/* SPDX-License-Identifier: MIT
 * bucket_run.h - runs the models of cases with a size of their inputs as a symbol, in two sessions. The plans
 * of one serve ranges of sizes; the other plans each size alone. Graphs as text and results must be equal,
 * bit by bit. BS_TEST_DUMP=1 prints why sizes are planned alone, and graphs that differ. */
#ifndef BS_TESTS_GRAPH_BUCKET_RUN_H
#define BS_TESTS_GRAPH_BUCKET_RUN_H
#include "graph/api.h"
#include "graph/run/bucket.h"
#include "graph/run/session.h"
#include "tests/graph/case_run.h"

enum { BUCKET_INPUTS = 32, BUCKET_SYMBOLS = 4 };

/* How it went, over all cases. */
typedef struct bucket_count {
  const int64_t *sizes;                    /* that are bound, ended by 0 */
  uint32_t models, served, alone, refused; /* models; sizes */
} bucket_count;

/* Lines of constants stay out: those that no node reads have the dims of the largest size. */
static inline void bucket_put(void *user, const char *text) {
  if (strncmp(text, "const ", 6) != 0) bs_text_printf(user, "%s", text);
}

/* Numbers of an input: small ones, positive where they may be indices. */
static inline void bucket_fill(uint32_t dtype, void *data, uint64_t count, uint32_t seed) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t x = (uint32_t)(i * 2654435761u + seed * 40503u) >> 16 & 255u;
    const double number = dtype == BS_BOOL                     ? x & 1u
                          : dtype == BS_I64 || dtype == BS_I32 ? x & 1u
                                                               : ((double)x - 127.0) / 64.0;
    bs_store_f64(dtype, data, (int64_t)i, number);
  }
}

static inline int32_t bucket_feed(bs_session *s, void **memory, bs_error *err) {
  const uint32_t n = s->bound->g->n_inputs;
  int32_t rc = n <= BUCKET_INPUTS ? BS_OK : BS_UNSUPPORTED;
  for (uint32_t i = 0; i < n && rc == BS_OK; ++i) {
    bs_tensor_desc d = {.struct_size = sizeof d};
    rc = bs_session_port(s, i, NULL, &d, err);
    bs_tensor t = {.struct_size = sizeof t, .dtype = d.dtype, .rank = d.rank};
    uint64_t count = 1;
    for (uint32_t k = 0; k < d.rank; ++k) {
      t.dims[k] = d.dims[k];
      t.strides[k] = d.strides[k];
      count *= (uint64_t)d.dims[k];
    }
    t.bytes = count * BS_DTYPE_BYTES(d.dtype);
    free(memory[i]);
    memory[i] = calloc(1, t.bytes + 64);
    t.data = memory[i];
    bucket_fill(d.dtype, memory[i], count, i + 1);
    if (rc == BS_OK) rc = bs_session_set(s, i, &t, err);
  }
  return rc;
}

/* 1: equal outputs, or the same error. */
static inline int bucket_same_results(case_run *c, bs_session *shared, bs_session *own, int64_t size) {
  void *memory[2][BUCKET_INPUTS] = {{NULL}};
  bs_session *const both[2] = {shared, own};
  bs_error err[2] = {BS_ERROR_INIT, BS_ERROR_INIT};
  int32_t rc[2];
  for (int k = 0; k < 2; ++k) {
    rc[k] = bucket_feed(both[k], memory[k], &err[k]);
    if (rc[k] == BS_OK) rc[k] = bs_session_run(both[k], &err[k]);
  }
  int same = rc[0] == rc[1];
  if (!same)
    snprintf(c->why, sizeof c->why, "size %lld: %.200s | %.200s", (long long)size, err[0].message,
             err[1].message);
  const graph *g = own->bound->g;
  for (uint32_t i = 0; i < g->n_outputs && same && rc[0] == BS_OK; ++i) {
    bs_tensor t[2] = {{.struct_size = sizeof t[0]}, {.struct_size = sizeof t[0]}};
    for (int k = 0; k < 2; ++k) bs_session_get(both[k], g->n_inputs + i, &t[k], &err[k]);
    const uint64_t bytes = graph_bytes(&g->values[gsession_value(own, g->n_inputs + i)]);
    same = bytes == 0 || memcmp(t[0].data, t[1].data, bytes) == 0;
    if (!same) snprintf(c->why, sizeof c->why, "size %lld: output %u has other bits", (long long)size, i);
  }
  for (uint32_t i = 0; i < BUCKET_INPUTS; ++i) {
    free(memory[0][i]);
    free(memory[1][i]);
  }
  return same;
}

static inline int bucket_same_dump(case_run *c, bs_session *shared, bs_session *own, int64_t size) {
  bs_text a = {0}, b = {0};
  bs_error err = BS_ERROR_INIT;
  bs_session_text(shared, BS_REPORT_DUMP, 0, bucket_put, &a, &err);
  bs_session_text(own, BS_REPORT_DUMP, 0, bucket_put, &b, &err);
  const int same = a.data != NULL && b.data != NULL && strcmp(a.data, b.data) == 0 &&
                   gsession_verify_bucket(shared, &err) == BS_OK;
  if (!same)
    snprintf(c->why, sizeof c->why, "size %lld: another graph than alone: %.300s", (long long)size,
             err.message);
  if (!same && getenv("BS_TEST_DUMP") != NULL) fprintf(stderr, "%s\n---\n%s\n", a.data, b.data);
  bs_text_free(&a);
  bs_text_free(&b);
  return same;
}

/* The symbols of a model. Those in `vary` take the sizes one after the other; the second of them takes the
 * sizes in the opposite order. */
typedef struct bucket_way {
  const char *names[BUCKET_SYMBOLS];
  int64_t first[BUCKET_SYMBOLS];
  uint32_t n, vary;
} bucket_way;

/* The dims of step k. */
static inline void bucket_dims(const bucket_way *w, const int64_t *sizes, uint32_t k, uint32_t n,
                               bs_dim *dims) {
  int second = 0;
  for (uint32_t i = 0; i < w->n; ++i) {
    dims[i] = (bs_dim){.struct_size = sizeof *dims, .name = w->names[i], .size = w->first[i]};
    if (!(w->vary >> i & 1u)) continue;
    dims[i].size = sizes[second ? n - 1 - k : k];
    second = 1;
  }
}

static inline int bucket_step(case_run *c, bs_session *shared, bs_session *own, const bs_dim *dims,
                              uint32_t n, bucket_count *io) {
  const bs_dim *list[BUCKET_SYMBOLS];
  bs_error err = BS_ERROR_INIT;
  const long long size = dims[0].size;
  for (uint32_t i = 0; i < n; ++i) list[i] = &dims[i];
  const int32_t rc = bs_session_bind(own, list, n, NULL), with = bs_session_bind(shared, list, n, &err);
  if (rc != with) {
    snprintf(c->why, sizeof c->why, "size %lld: bind %d, alone %d: %.200s", size, with, rc, err.message);
    return 0;
  }
  io->refused += rc != BS_OK;
  if (rc != BS_OK) return 1;
  io->served += shared->bound->bucket != NULL;
  io->alone += shared->bound->bucket == NULL;
  if (getenv("BS_TEST_DUMP") != NULL && shared->bound->alone != NULL)
    fprintf(stderr, "alone: %s\n", shared->bound->alone);
  return shared->bound->bucket == NULL ||
         (bucket_same_dump(c, shared, own, size) && bucket_same_results(c, shared, own, size));
}

/* Both sessions are opened with sizes of no range, then bound to all. */
static inline int bucket_run(case_run *c, bs_graph *model, const bucket_way *w, bucket_count *io) {
  bs_session *shared = NULL, *own = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_dim dims[BUCKET_SYMBOLS];
  const bs_dim *list[BUCKET_SYMBOLS];
  uint32_t n = 0;
  bucket_dims(&(bucket_way){.names = {w->names[0], w->names[1], w->names[2], w->names[3]},
                            .first = {w->first[0], w->first[1], w->first[2], w->first[3]},
                            .n = w->n},
              NULL, 0, 0, dims);
  for (uint32_t i = 0; i < w->n; ++i) list[i] = &dims[i];
  while (io->sizes[n] != 0) ++n;
  bs_session_options o = {
      .struct_size = sizeof o, .threads = 1, .backend = c->backend, .dims = list, .n_dims = w->n};
  int32_t rc = bs_session_open(c->context, model, &o, &shared, &err);
  o.exact = 1;
  if (rc == BS_OK) rc = bs_session_open(c->context, model, &o, &own, &err);
  io->models += rc == BS_OK;
  int good = 1;
  for (uint32_t k = 0; k < n && rc == BS_OK && good; ++k) {
    bucket_dims(w, io->sizes, k, n, dims);
    good = bucket_step(c, shared, own, dims, w->n, io);
  }
  bs_session_close(shared);
  bs_session_close(own);
  return good;
}

/* Varies each symbol of a model alone while the others are 3, then the first two together. */
static inline int bucket_symbols(case_run *c, bs_graph *model, bucket_count *io) {
  const gmodel *m = model->model;
  bucket_way w = {.n = m->n_symbols};
  int good = 1;
  if (m->n_symbols > BUCKET_SYMBOLS) return 1;
  for (uint32_t i = 0; i < m->n_symbols; ++i) {
    w.names[i] = m->symbols[i];
    w.first[i] = 3;
  }
  for (uint32_t i = 0; i < w.n && good; ++i) {
    w.vary = 1u << i;
    good = bucket_run(c, model, &w, io);
  }
  w.vary = 3;
  return good && w.n > 1 ? bucket_run(c, model, &w, io) : good;
}

/* The dims of inputs that are sizes[k] become the symbol names[k], of one or two. */
static inline int bucket_made(case_run *c, const char *path, const int64_t *sizes, uint32_t count,
                              bucket_count *io) {
  bucket_way w = {.names = {"n", "k"}, .n = count, .vary = (1u << count) - 1u};
  bs_graph *model = NULL;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_graph_open(c->context, path, NULL, &model, &err);
  for (uint32_t k = 0; k < count && rc == BS_OK; ++k) {
    uint32_t symbol;
    w.first[k] = sizes[k];
    rc = gmodel_symbol(model->model, w.names[k], &symbol, &err);
    for (uint32_t i = 0; rc == BS_OK && i < model->model->n_inputs; ++i) {
      gmodel_value *v = &model->model->values[model->model->inputs[i].value];
      for (uint32_t d = 0; d < v->rank; ++d)
        if (v->dims[d] == sizes[k]) {
          v->dims[d] = -1;
          v->symbols[d] = symbol + 1u;
        }
    }
  }
  const int good = rc != BS_OK || bucket_run(c, model, &w, io);
  bs_graph_close(model);
  return good;
}

/* Varies the symbols of a model. If it has none, each size of its inputs becomes a symbol, one after the
 * other, then two sizes together. Returns enum case_outcome. */
static inline int bucket_file(case_run *c, const char *path, bucket_count *io) {
  bs_graph *model = NULL;
  bs_error err = BS_ERROR_INIT;
  int64_t sizes[8];
  uint32_t n = 0;
  if (bs_graph_open(c->context, path, NULL, &model, &err) != BS_OK) return CASE_PASSED;
  const gmodel *m = model->model;
  int good = bucket_symbols(c, model, io);
  for (uint32_t i = 0; i < m->n_inputs && m->n_symbols == 0; ++i)
    for (uint32_t d = 0; d < m->values[m->inputs[i].value].rank; ++d) {
      const int64_t size = m->values[m->inputs[i].value].dims[d];
      uint32_t k = 0;
      while (k < n && sizes[k] != size) ++k;
      if (k == n && n < 8 && size > 1) sizes[n++] = size;
    }
  bs_graph_close(model);
  for (uint32_t i = 0; i < n && good; ++i) good = bucket_made(c, path, sizes + i, 1, io);
  if (n > 1 && good) good = bucket_made(c, path, sizes, 2, io);
  return good ? CASE_PASSED : CASE_WRONG;
}
#endif
