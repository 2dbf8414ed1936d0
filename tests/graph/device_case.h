/* SPDX-License-Identifier: MIT
 * device_case.h - what tests of sessions on a backend with separate memory (apart/apart.h) have in common.
 */
#ifndef BS_TESTS_GRAPH_DEVICE_CASE_H
#define BS_TESTS_GRAPH_DEVICE_CASE_H
#include <math.h>
#include <string.h>

#include "graph/run/session.h"
#include "tests/graph/split_case.h"

enum { PROMPT = 5, PORTS = 8 };

static char plugin_path[1024];

/* Opens the context again, with parameters of the plugin. */
static inline void with_params(const char *const *params, uint32_t n) {
  const char *const plugins[1] = {plugin_path};
  const bs_context_options o = {.struct_size = (uint32_t)sizeof o,
                                .trust = BS_TRUST_ANY,
                                .plugins = plugins,
                                .n_plugins = 1,
                                .params = params,
                                .n_params = n};
  bs_context_close(split_context);
  split_context = NULL;
  split_ok(bs_context_open(&o, &split_context, &split_err), "context");
}

static inline void before(void) {
  snprintf(plugin_path, sizeof plugin_path, "%s/tests/fixtures/bs_apart.so", getenv("BS_TEST_BINARY_DIR"));
  split_begin();
  with_params(NULL, 0);
}

/* A session for `tokens` of each symbol but batches. */
static inline int32_t try_open(bs_graph *model, bs_session_options o, int64_t tokens, bs_session **out) {
  const gmodel *m = model->model;
  bs_dim dims[8];
  const bs_dim *list[8];
  ck_assert_uint_le(m->n_symbols, 8);
  for (uint32_t i = 0; i < m->n_symbols; i++) {
    const int batch = strstr(m->symbols[i], "batch") != NULL;
    dims[i] = (bs_dim){.struct_size = sizeof dims[i], .name = m->symbols[i], .size = batch ? 2 : tokens};
    list[i] = &dims[i];
  }
  o.struct_size = (uint32_t)sizeof o;
  o.threads = 1;
  o.dims = list;
  o.n_dims = m->n_symbols;
  return bs_session_open(split_context, model, &o, out, &split_err);
}

static inline bs_session *open_on(bs_graph *model, const char *backend, int64_t tokens, bs_session *share) {
  const bs_session_options o = {.backend = backend, .share = share};
  bs_session *s = NULL;
  split_ok(try_open(model, o, tokens, &s), backend);
  return s;
}

static inline int32_t try_bind(bs_session *s, int64_t tokens) {
  const gmodel *m = s->graph->model;
  bs_dim dims[8];
  const bs_dim *list[8];
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->n_symbols; i++) {
    if (strstr(m->symbols[i], "batch") != NULL) continue;
    dims[n] = (bs_dim){.struct_size = sizeof dims[n], .name = m->symbols[i], .size = tokens};
    list[n] = &dims[n];
    n++;
  }
  return bs_session_bind(s, list, n, &split_err);
}

static inline void bind(bs_session *s, int64_t tokens) {
  split_ok(try_bind(s, tokens), "bind");
}

/* Words that a vocabulary of 5 has, waves, true; `from` is the place of the first. The memory is the test's.
 */
static inline void feed(bs_session *s, int64_t from, void **out_memory) {
  for (uint32_t port = 0; port < s->graph->model->n_inputs; port++) {
    bs_tensor_desc d;
    const char *name = NULL;
    split_ok(bs_session_port(s, port, &name, &d, &split_err), "port");
    const int places = strcmp(name, "rows") == 0;
    bs_tensor t = {.struct_size = (uint32_t)sizeof t, .dtype = d.dtype, .rank = d.rank};
    memcpy(t.dims, d.dims, sizeof t.dims);
    memcpy(t.strides, d.strides, sizeof t.strides);
    const int64_t n = (int64_t)tensor_elements(&t);
    t.bytes = (uint64_t)n * BS_DTYPE_BYTES(t.dtype);
    t.data = out_memory[port] = malloc(t.bytes + 1);
    for (int64_t i = 0; i < n; i++) {
      if (t.dtype == BS_I64) ((int64_t *)t.data)[i] = places ? i : (7 * (i + from) + 3) % 5;
      if (t.dtype == BS_F32) ((float *)t.data)[i] = (float)sin(0.7 * (double)(i + from));
      if (t.dtype == BS_BOOL) ((unsigned char *)t.data)[i] = 1;
    }
    split_ok(bs_session_set(s, port, &t, &split_err), "set");
  }
}

static inline void unfeed(bs_session *s, void **memory) {
  for (uint32_t port = 0; port < s->graph->model->n_inputs; port++) free(memory[port]);
}

static inline void run(bs_session *s, int64_t from) {
  void *memory[PORTS] = {NULL};
  feed(s, from, memory);
  split_ok(bs_session_run(s, &split_err), "run");
  unfeed(s, memory);
}

static inline void same_outputs(bs_session *a, bs_session *b, const char *what) {
  for (uint32_t port = a->graph->model->n_inputs; port < bs_session_port_count(a); port++) {
    bs_tensor x = {.struct_size = (uint32_t)sizeof x}, y = {.struct_size = (uint32_t)sizeof y};
    split_ok(bs_session_get(a, port, &x, &split_err), "get");
    split_ok(bs_session_get(b, port, &y, &split_err), "get");
    ck_assert_uint_eq(tensor_elements(&x), tensor_elements(&y));
    ck_assert_msg(memcmp(x.data, y.data, tensor_elements(&x) * BS_DTYPE_BYTES(x.dtype)) == 0,
                  "%s: output %u has other bits than on the host", what, port);
  }
}
#endif
