/* SPDX-License-Identifier: MIT
 * engine.c - builds graphs of specs through graph.h and runs them. */
#include "tests/graph/fuzz_passes/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/rng.h"

/* A noise of a value: an input of its shape. */
typedef struct noise {
  int of;    /* value of the spec */
  int added; /* 1: it is added, else multiplied */
} noise;

enum { MAX_NOISES = 2 * SPEC_VALUES, MAX_BLOCKS = 8 * SPEC_VALUES };
struct machine {
  bs_context *context;
  bs_graph *graph;
  const spec *s;
  uint32_t n_blocks, n_noises;
  void *blocks[MAX_BLOCKS]; /* freed with the graph */
  noise noises[MAX_NOISES];
};

static void *keep(machine *m, size_t bytes) {
  void *p = m->n_blocks < MAX_BLOCKS ? aligned_alloc(64, (bytes + 64) & ~(size_t)63) : NULL;
  if (p != NULL) m->blocks[m->n_blocks++] = p;
  return p;
}

static bs_tensor_desc desc_of(const value *v) {
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d, .dtype = v->dtype, .rank = v->rank};
  for (uint32_t i = 0; i < v->rank; i++) d.dims[i] = v->dims[i];
  return d;
}

static void *as_dtype(machine *m, uint32_t dtype, const double *data, int64_t n) {
  void *p = keep(m, (size_t)n * BS_DTYPE_BYTES(dtype));
  for (int64_t i = 0; p != NULL && i < n; i++) bs_store_f64(dtype, p, i, data[i]);
  return p;
}

/* "name=value": an integer, a list (perm), a float (epsilon), a text. */
static void read_attr(char *word, bs_attr *out, int64_t *ints) {
  char *text = strchr(word, '=');
  *text++ = '\0';
  *out = (bs_attr){.struct_size = (uint32_t)sizeof *out, .name = word, .type = BS_ATTR_INT};
  if (strcmp(word, "perm") == 0) {
    out->type = BS_ATTR_INTS;
    out->ints = ints;
    for (char *at = text; *at != '\0'; at += *at == ',') ints[out->count++] = strtoll(at, &at, 10);
  } else if (strcmp(word, "epsilon") == 0 || strcmp(word, "alpha") == 0) {
    out->type = BS_ATTR_FLOAT;
    out->f = strtod(text, NULL);
  } else if (*text == '-' || (*text >= '0' && *text <= '9')) {
    out->i = strtoll(text, NULL, 10);
  } else {
    out->type = BS_ATTR_TEXT;
    out->text = text;
  }
}

static int32_t build_node(machine *m, const node *n, uint32_t *ids, bs_error *err) {
  bs_attr attrs[4];
  const bs_attr *pointers[4];
  int64_t ints[4][SPEC_RANK];
  char words[sizeof n->attrs], *state = NULL;
  uint32_t count = 0, in[6];
  memcpy(words, n->attrs, sizeof words);
  for (char *w = strtok_r(words, " ", &state); w != NULL && count < 4; w = strtok_r(NULL, " ", &state)) {
    read_attr(w, &attrs[count], ints[count]);
    pointers[count] = &attrs[count];
    count++;
  }
  for (uint32_t i = 0; i < n->n_in; i++) in[i] = n->in[i] == SPEC_NONE ? BS_GRAPH_NONE : ids[n->in[i]];
  return bs_graph_op(m->graph, n->op, in, n->n_in, pointers, count, &ids[n->out], 1, err);
}

double smallest_normal(uint32_t dtype) {
  return dtype == BS_F64 ? 0x1p-1022 : dtype == BS_F16 ? 0x1p-14 : is_float_dtype(dtype) ? 0x1p-126 : 0;
}

/* An input of the value's shape, and the value with it. */
static int32_t add_noise(machine *m, int of, int added, uint32_t *io_id, bs_error *err) {
  const value *v = &m->s->values[of];
  char name[24];
  uint32_t in[2] = {*io_id, 0};
  if (!is_float_dtype(v->dtype) || v->exact || m->n_noises == MAX_NOISES) return BS_OK;
  snprintf(name, sizeof name, "%s%d", added ? "added" : "noise", of);
  const bs_tensor_desc d = desc_of(v);
  const int32_t rc = bs_graph_input(m->graph, name, &d, NULL, &in[1], err);
  if (rc != BS_OK) return rc;
  m->noises[m->n_noises++] = (noise){of, added};
  return bs_graph_op(m->graph, added ? "Add" : "Mul", in, 2, NULL, 0, io_id, 1, err);
}

static int32_t build(machine *m, int noisy, bs_error *err) {
  const spec *s = m->s;
  uint32_t ids[SPEC_VALUES] = {0};
  char name[24];
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < s->n_values && rc == BS_OK; i++) {
    const value *v = &s->values[i];
    const bs_tensor_desc d = desc_of(v);
    if (v->kind == VALUE_NODE) continue;
    snprintf(name, sizeof name, "x%u", i);
    if (v->kind == VALUE_INPUT)
      rc = bs_graph_input(m->graph, name, &d, NULL, &ids[i], err);
    else
      rc = bs_graph_constant(m->graph, name, &d, as_dtype(m, v->dtype, v->data, spec_count(v)), &ids[i], err);
    if (rc == BS_OK && noisy) rc = add_noise(m, (int)i, 0, &ids[i], err);
  }
  for (uint32_t i = 0; i < s->n_nodes && rc == BS_OK; i++) {
    rc = build_node(m, &s->nodes[i], ids, err);
    for (int added = 0; added < 2 && rc == BS_OK && noisy; added++)
      rc = add_noise(m, s->nodes[i].out, added, &ids[s->nodes[i].out], err);
  }
  for (uint32_t i = 0; i < s->n_outputs && rc == BS_OK; i++) {
    snprintf(name, sizeof name, "y%u", i);
    rc = bs_graph_output(m->graph, name, ids[s->outputs[i]], err);
  }
  return rc;
}

int32_t machine_open(bs_context *context, const spec *s, int noisy, machine **out, char *error, size_t size) {
  bs_error err = BS_ERROR_INIT;
  machine *m = calloc(1, sizeof *m);
  *out = m;
  if (m == NULL) return BS_NO_MEMORY;
  m->context = context;
  m->s = s;
  int32_t rc = bs_graph_new(context, &m->graph, &err);
  if (rc == BS_OK) rc = build(m, noisy, &err);
  if (rc == BS_OK) return rc;
  snprintf(error, size, "%s: %s", err.id, err.message);
  machine_close(m);
  *out = NULL;
  return rc;
}

void machine_close(machine *m) {
  if (m == NULL) return;
  bs_graph_close(m->graph);
  for (uint32_t i = 0; i < m->n_blocks; i++) free(m->blocks[i]);
  free(m);
}

void result_clear(result *r) {
  for (uint32_t i = 0; i < r->n_outputs; i++) free(r->outputs[i]);
  memset(r, 0, sizeof *r);
}

/* ---- runs -------------------------------------------------------------------------------------- */

static int32_t set_port(machine *m, bs_session *session, const char *name, const double *data,
                        bs_error *err) {
  uint32_t port;
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d};
  int32_t rc = bs_session_find(session, name, &port, err);
  if (rc == BS_OK) rc = bs_session_port(session, port, NULL, &d, err);
  if (rc != BS_OK) return rc;
  bs_tensor t = {.struct_size = (uint32_t)sizeof t, .dtype = d.dtype, .rank = d.rank};
  int64_t n = 1;
  for (uint32_t i = d.rank; i-- > 0; n *= d.dims[i]) {
    t.dims[i] = d.dims[i];
    t.strides[i] = n;
  }
  t.bytes = (uint64_t)n * BS_DTYPE_BYTES(d.dtype);
  t.data = as_dtype(m, d.dtype, data, n);
  return bs_session_set(session, port, &t, err);
}

static int32_t set_inputs(machine *m, bs_session *session, bs_error *err) {
  char name[24];
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < m->s->n_values && rc == BS_OK; i++) {
    if (m->s->values[i].kind != VALUE_INPUT) continue;
    snprintf(name, sizeof name, "x%u", i);
    rc = set_port(m, session, name, m->s->values[i].data, err);
  }
  return rc;
}

/* 8 u: the functions of steps are within 4 ulp (expr.h). `underflow`: what is added is no zero. */
static int32_t set_noises(machine *m, bs_session *session, uint64_t seed, int underflow, bs_error *err) {
  double numbers[SPEC_ELEMENTS];
  float uniform[SPEC_ELEMENTS];
  char name[24];
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < m->n_noises && rc == BS_OK; i++) {
    const noise *of = &m->noises[i];
    const value *v = &m->s->values[of->of];
    const int64_t n = spec_count(v);
    const double size =
        of->added ? (underflow ? smallest_normal(v->dtype) : 0) : 8 * bs_dtype_unit_roundoff(v->dtype);
    bs_rng_uniform(seed, i, 0, (uint64_t)n, uniform);
    for (int64_t k = 0; k < n; k++) numbers[k] = !of->added + size * (2.0 * uniform[k] - 1);
    snprintf(name, sizeof name, "%s%d", of->added ? "added" : "noise", of->of);
    rc = set_port(m, session, name, numbers, err);
  }
  return rc;
}

static int32_t read_outputs(machine *m, bs_session *session, result *out, bs_error *err) {
  char name[24];
  for (uint32_t i = 0; i < m->s->n_outputs; i++) {
    uint32_t port;
    bs_tensor t = {.struct_size = (uint32_t)sizeof t};
    snprintf(name, sizeof name, "y%u", i);
    int32_t rc = bs_session_find(session, name, &port, err);
    if (rc == BS_OK) rc = bs_session_get(session, port, &t, err);
    if (rc != BS_OK) return rc;
    int64_t n = 1;
    for (uint32_t d = 0; d < t.rank; d++) n *= t.dims[d];
    double *to = malloc(((size_t)n + 1u) * sizeof *to);
    if (to == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-FUZZ-MEMORY", "no memory");
    for (int64_t k = 0; k < n; k++) to[k] = bs_load_f64(t.dtype, t.data, k);
    out->outputs[i] = to;
    out->counts[i] = n;
    out->dtypes[i] = t.dtype;
    out->n_outputs = i + 1;
  }
  return BS_OK;
}

static int32_t open_session(machine *m, const mode *how, bs_session **out, bs_error *err) {
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o,
                                .threads = 1,
                                .backend = how->backend,
                                .f64 = how->f64,
                                .passes_off = how->off,
                                .n_passes_off = how->n_off};
  return bs_session_open(m->context, m->graph, &o, out, err);
}

static void finish(result *out, int32_t rc, const bs_error *err) {
  out->status = rc;
  if (rc != BS_OK) snprintf(out->error, sizeof out->error, "%s: %.200s", err->id, err->message);
}

void machine_run(machine *m, const mode *how, result *out) {
  bs_error err = BS_ERROR_INIT;
  bs_session *session = NULL;
  memset(out, 0, sizeof *out);
  int32_t rc = open_session(m, how, &session, &err);
  if (rc == BS_OK) rc = set_inputs(m, session, &err);
  if (rc == BS_OK) rc = bs_session_run(session, &err);
  if (rc == BS_OK) rc = read_outputs(m, session, out, &err);
  finish(out, rc, &err);
  bs_session_close(session);
}

void machine_noise(machine *m, uint64_t seed, int underflow, uint32_t n, result *each) {
  static const mode truth = {"ref", 1, 1, {"all"}};
  bs_error err = BS_ERROR_INIT;
  bs_session *session = NULL;
  memset(each, 0, n * sizeof *each);
  int32_t rc = open_session(m, &truth, &session, &err);
  if (rc == BS_OK) rc = set_inputs(m, session, &err);
  for (uint32_t i = 0; i < n; i++) {
    const uint32_t blocks = m->n_blocks;
    if (rc == BS_OK) rc = set_noises(m, session, seed + i, underflow && i % 2 != 0, &err);
    if (rc == BS_OK) rc = bs_session_run(session, &err);
    if (rc == BS_OK) rc = read_outputs(m, session, &each[i], &err);
    finish(&each[i], rc, &err);
    while (m->n_blocks > blocks) free(m->blocks[--m->n_blocks]);
  }
  bs_session_close(session);
}
