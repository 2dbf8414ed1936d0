/* SPDX-License-Identifier: MIT
 * build.c - graphs for tests, built and run through graph.h alone. */
#include "tests/graph/build.h"

#include <string.h>

#include "core/base/rng.h"

bs_context *tb_context;
bs_graph *tb_graph;
enum { MAX_KEPT = 256 };
static void *kept[MAX_KEPT];
static uint32_t n_kept;
static uint64_t seed;

static void *keep(void *p) {
  ck_assert(p != NULL && n_kept < MAX_KEPT);
  kept[n_kept++] = p;
  return p;
}

static void ok(int32_t rc, const bs_error *err) {
  ck_assert_msg(rc == BS_OK, "%s: %s (%s; %s)", err->id, err->message, err->where, err->hint);
}
#define ERROR \
  { .struct_size = (uint32_t)sizeof(bs_error), .rank = -1 }

void tb_begin(void) {
  bs_error err = ERROR;
  ok(bs_context_open(NULL, &tb_context, &err), &err);
  ok(bs_graph_new(tb_context, &tb_graph, &err), &err);
  seed = 1;
}

void tb_end(void) {
  bs_graph_close(tb_graph);
  bs_context_close(tb_context);
  while (n_kept > 0) free(kept[--n_kept]);
}

static bs_tensor_desc desc_of(uint32_t dtype, uint32_t rank, const int64_t *dims) {
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = dtype, .rank = rank};
  for (uint32_t i = 0; i < rank; i++) d.dims[i] = dims[i];
  return d;
}

uint32_t tb_symbolic(const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                     const char *const *symbols) {
  bs_error err = ERROR;
  uint32_t value = 0;
  const bs_tensor_desc d = desc_of(dtype, rank, dims);
  ok(bs_graph_input(tb_graph, name, &d, symbols, &value, &err), &err);
  return value;
}

uint32_t tb_input(const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims) {
  return tb_symbolic(name, dtype, rank, dims, NULL);
}

uint32_t tb_constant(uint32_t dtype, uint32_t rank, const int64_t *dims, const void *data) {
  bs_error err = ERROR;
  uint32_t value = 0;
  const bs_tensor_desc d = desc_of(dtype, rank, dims);
  size_t bytes = BS_DTYPE_BYTES(dtype);
  for (uint32_t i = 0; i < rank; i++) bytes *= (size_t)dims[i];
  void *copy = keep(malloc(bytes + 1u));
  memcpy(copy, data, bytes);
  ok(bs_graph_constant(tb_graph, "", &d, copy, &value, &err), &err);
  return value;
}

uint32_t tb_ints(uint32_t count, const int64_t *values) {
  const int64_t dims[1] = {count};
  return tb_constant(BS_I64, 1, dims, values);
}

void tb_fill(float *out, int64_t n, uint64_t from) {
  bs_rng_normal(from, 0, 0, (uint64_t)n, out);
}

uint32_t tb_random(uint32_t rank, const int64_t *dims, double scale) {
  int64_t n = 1;
  for (uint32_t i = 0; i < rank; i++) n *= dims[i];
  float *data = malloc(((size_t)n + 1u) * sizeof *data);
  ck_assert(data != NULL);
  tb_fill(data, n, seed++);
  for (int64_t i = 0; i < n; i++) data[i] *= (float)scale;
  const uint32_t value = tb_constant(BS_F32, rank, dims, data);
  free(data);
  return value;
}

uint32_t tb_scalar(double value) {
  const float f = (float)value;
  return tb_constant(BS_F32, 0, NULL, &f);
}

/* ---- operators ------------------------------------------------------------------------------- */

static void read_attr(char *word, bs_attr *a) {
  char *value = strchr(word, '=');
  ck_assert(value != NULL);
  *value++ = '\0';
  *a = (bs_attr){.struct_size = (uint32_t)sizeof *a, .type = BS_ATTR_INT, .name = word};
  if (strchr(value, ',') != NULL) {
    int64_t *list = keep(calloc(16, sizeof *list));
    a->type = BS_ATTR_INTS;
    a->ints = list;
    for (char *p = value; *p != '\0' && a->count < 16;) {
      list[a->count++] = strtoll(p, &p, 10);
      if (*p == ',') p++;
    }
  } else if (strchr(value, '.') != NULL) {
    a->type = BS_ATTR_FLOAT;
    a->f = strtod(value, NULL);
  } else if ((*value >= '0' && *value <= '9') || *value == '-') {
    a->i = strtoll(value, NULL, 10);
  } else {
    a->type = BS_ATTR_TEXT;
    a->text = value;
  }
}

uint32_t tb_many(const char *op, const char *attrs, const uint32_t *in, uint32_t n_in, uint32_t *outs,
                 uint32_t n_out) {
  bs_error err = ERROR;
  bs_attr list[8];
  const bs_attr *pointers[8];
  uint32_t n = 0;
  char *copy = keep(strdup(attrs)), *state = NULL;
  for (char *word = strtok_r(copy, " ", &state); word != NULL; word = strtok_r(NULL, " ", &state)) {
    ck_assert(n < 8);
    read_attr(word, &list[n]);
    pointers[n] = &list[n];
    n++;
  }
  ok(bs_graph_op(tb_graph, op, in, n_in, pointers, n, outs, n_out, &err), &err);
  return outs[0];
}

uint32_t tb_with(const char *op, const char *attrs, uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t in[3] = {a, b, c};
  uint32_t out = 0, n = 3;
  while (n > 0 && in[n - 1] == BS_GRAPH_NONE) n--;
  return tb_many(op, attrs, in, n, &out, 1);
}

uint32_t tb_op(const char *op, uint32_t a, uint32_t b, uint32_t c) {
  return tb_with(op, "", a, b, c);
}

void tb_output(const char *name, uint32_t value) {
  bs_error err = ERROR;
  ok(bs_graph_output(tb_graph, name, value, &err), &err);
}

/* ---- sessions -------------------------------------------------------------------------------- */

int32_t tb_try(const char *backend, const char *dims, const char *off, bs_session **out, bs_error *err) {
  bs_dim list[8];
  const bs_dim *pointers[8];
  const char *offs[16];
  bs_session_options o = {.struct_size = (uint32_t)sizeof o, .threads = 1, .backend = backend};
  char *copy = keep(strdup(dims)), *state = NULL;
  for (char *word = strtok_r(copy, " ", &state); word != NULL; word = strtok_r(NULL, " ", &state)) {
    char *value = strchr(word, '=');
    *value++ = '\0';
    list[o.n_dims] = (bs_dim){.struct_size = (uint32_t)sizeof(bs_dim), .name = word, .size = atoll(value)};
    pointers[o.n_dims] = &list[o.n_dims];
    o.n_dims++;
  }
  o.dims = pointers;
  char *names = keep(strdup(off != NULL ? off : ""));
  state = NULL;
  for (char *word = strtok_r(names, " ", &state); word != NULL; word = strtok_r(NULL, " ", &state))
    offs[o.n_passes_off++] = word;
  o.passes_off = offs;
  return bs_session_open(tb_context, tb_graph, &o, out, err);
}

bs_session *tb_open(const char *backend, const char *dims, const char *off) {
  bs_error err = ERROR;
  bs_session *session = NULL;
  ok(tb_try(backend, dims, off, &session, &err), &err);
  return session;
}

static uint32_t port_of(bs_session *session, const char *name) {
  bs_error err = ERROR;
  uint32_t port = 0;
  ok(bs_session_find(session, name, &port, &err), &err);
  return port;
}

int64_t tb_elements(bs_session *session, const char *name) {
  bs_error err = ERROR;
  bs_tensor_desc d;
  int64_t n = 1;
  ok(bs_session_port(session, port_of(session, name), NULL, &d, &err), &err);
  for (uint32_t i = 0; i < d.rank; i++) n *= d.dims[i];
  return n;
}

void tb_set(bs_session *session, const char *name, const void *data) {
  bs_error err = ERROR;
  bs_tensor_desc d;
  const uint32_t port = port_of(session, name);
  ok(bs_session_port(session, port, NULL, &d, &err), &err);
  bs_tensor t = {.struct_size = (uint32_t)sizeof t, .dtype = d.dtype, .rank = d.rank, .data = (void *)data};
  memcpy(t.dims, d.dims, sizeof t.dims);
  memcpy(t.strides, d.strides, sizeof t.strides);
  t.bytes = (uint64_t)tb_elements(session, name) * BS_DTYPE_BYTES(d.dtype);
  ok(bs_session_set(session, port, &t, &err), &err);
}

void tb_run(bs_session *session) {
  bs_error err = ERROR;
  ok(bs_session_run(session, &err), &err);
}

const void *tb_data(bs_session *session, const char *name, bs_tensor *out_tensor) {
  bs_error err = ERROR;
  ok(bs_session_get(session, port_of(session, name), out_tensor, &err), &err);
  return out_tensor->data;
}

const float *tb_get(bs_session *session, const char *name) {
  bs_tensor t;
  return tb_data(session, name, &t);
}

static void append(void *user, const char *text) {
  char **all = user;
  const size_t have = *all != NULL ? strlen(*all) : 0;
  *all = realloc(*all, have + strlen(text) + 1u);
  ck_assert(*all != NULL);
  memcpy(*all + have, text, strlen(text) + 1u);
}

const char *tb_report(bs_session *session, uint32_t what, uint32_t json) {
  bs_error err = ERROR;
  char *text = NULL;
  append(&text, "");
  ok(bs_session_text(session, what, json, append, &text, &err), &err);
  return keep(text);
}
