/* SPDX-License-Identifier: MIT
 * case_run.h - one model run by the public API from tensors that are given, and compared with tensors that
 * are expected: for the cases as text (test_lower_cases.c) and ONNX's node tests (run_nodes.c). */
#ifndef BS_TESTS_GRAPH_CASE_RUN_H
#define BS_TESTS_GRAPH_CASE_RUN_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/graph.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "formats/onnx.h"

enum { CASE_MAX_PORTS = 32 };
enum case_outcome { CASE_PASSED = 0, CASE_REFUSED = 1, CASE_WRONG = 2 };

typedef struct case_run {
  bs_context *context;
  const char *backend, *passes_off; /* passes_off: a name, "all", or NULL */
  double rtol, atol;
  uint32_t n_in, n_out;
  const bs_onnx_tensor *in[CASE_MAX_PORTS], *out[CASE_MAX_PORTS];
  char why[800];         /* of a case that did not pass */
  uint64_t nodes, flops; /* of all cases so far: of their plans */
  uint64_t fallback;     /* nodes that ref serves for another backend, without those of f64 */
  /* Called with a session that ran, its inputs still set; returns 0 with `why` filled where it is wrong.
   * NULL: not. */
  int (*also)(struct case_run *c, bs_session *session);
  /* Called with the file of a case in the place of a run; an enum case_outcome. NULL: not. */
  int (*file)(struct case_run *c, const char *path);
  void *user;
} case_run;

static inline double case_number(uint32_t dtype, const void *data, uint64_t i) {
  unsigned char one[8] = {0};
  const size_t size = BS_DTYPE_BYTES(dtype);
  memcpy(one, (const unsigned char *)data + i * size, size);
  return bs_load_f64(dtype, one, 0);
}

/* Numbers are equal, both NaN, or within the bound of numpy's assert_allclose; i64 are compared as integers.
 */
static inline int case_same(const case_run *c, uint32_t dtype, const void *got, const void *wanted,
                            uint64_t i) {
  const size_t size = BS_DTYPE_BYTES(dtype);
  if (memcmp((const unsigned char *)got + i * size, (const unsigned char *)wanted + i * size, size) == 0)
    return 1;
  if (dtype == BS_I64) return 0;
  const double a = case_number(dtype, got, i), b = case_number(dtype, wanted, i);
  return (isnan(a) && isnan(b)) || a == b || (isfinite(b) && fabs(a - b) <= c->atol + c->rtol * fabs(b));
}

static inline int case_compare(case_run *c, bs_session *session, uint32_t port,
                               const bs_onnx_tensor *wanted) {
  bs_tensor got = {.struct_size = sizeof got};
  bs_error err = BS_ERROR_INIT;
  const uint32_t dtype = bs_onnx_type_of(wanted->type)->dtype;
  if (bs_session_get(session, port, &got, &err) != BS_OK) {
    snprintf(c->why, sizeof c->why, "%s: %s", err.id, err.message);
    return 0;
  }
  int alike = got.dtype == dtype && got.rank == wanted->rank;
  for (uint32_t d = 0; alike && d < got.rank; ++d) alike = got.dims[d] == wanted->dims[d];
  if (!alike) {
    snprintf(c->why, sizeof c->why,
             "port %u has another shape or dtype: rank %u of 0x%04x, expected %u of 0x%04x", port, got.rank,
             got.dtype, wanted->rank, dtype);
    return 0;
  }
  for (uint64_t i = 0; i < wanted->count; ++i) {
    if (case_same(c, dtype, got.data, wanted->data, i)) continue;
    snprintf(c->why, sizeof c->why, "port %u, element %llu is %.9g, expected %.9g", port,
             (unsigned long long)i, case_number(dtype, got.data, i), case_number(dtype, wanted->data, i));
    return 0;
  }
  return 1;
}

/* Gives the inputs to the session, in memory of the lists' own, which is freed by the caller. */
static inline int32_t case_feed(const case_run *c, bs_session *session, void **memory, bs_error *err) {
  for (uint32_t i = 0; i < c->n_in; ++i) {
    const bs_onnx_tensor *t = c->in[i];
    bs_tensor tensor = {
        .struct_size = sizeof tensor, .dtype = bs_onnx_type_of(t->type)->dtype, .rank = t->rank};
    int64_t stride = 1;
    for (uint32_t d = t->rank; d-- > 0;) {
      tensor.dims[d] = t->dims[d];
      tensor.strides[d] = stride;
      stride *= t->dims[d];
    }
    memory[i] = aligned_alloc(64, (t->bytes + 64) & ~(uint64_t)63);
    if (memory[i] == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-TEST-MEMORY", "no memory");
    if (t->bytes > 0) memcpy(memory[i], t->data, t->bytes);
    tensor.data = memory[i];
    tensor.bytes = t->bytes;
    const int32_t rc = bs_session_set(session, i, &tensor, err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static inline void case_count(case_run *c, const bs_session *session) {
  bs_error err = BS_ERROR_INIT;
  bs_node_info info = {.struct_size = sizeof info};
  const uint32_t n = bs_session_node_count(session);
  bs_session_stats stats = {.struct_size = sizeof stats};
  const int some = bs_session_stats_get(session, &stats, &err) == BS_OK && stats.fallback_nodes > 0;
  for (uint32_t i = 0; i < n && bs_session_node(session, i, &info, &err) == BS_OK; ++i) {
    c->flops += info.flops;
    if (!some || strncmp(info.serves, "ref:", 4) != 0 || strstr(info.reason, "of dtype f64") != NULL)
      continue;
    ++c->fallback;
    fprintf(stderr, "ref serves %s: %s\n", info.op, info.reason);
  }
  c->nodes += n;
}

static inline int case_run_session(case_run *c, bs_session *session, bs_error *err) {
  void *memory[CASE_MAX_PORTS] = {NULL};
  case_count(c, session);
  int32_t rc = case_feed(c, session, memory, err);
  if (rc == BS_OK) rc = bs_session_run(session, err);
  int outcome = rc == BS_OK ? CASE_PASSED : CASE_WRONG;
  if (rc != BS_OK) snprintf(c->why, sizeof c->why, "%s: %s", err->id, err->message);
  for (uint32_t i = 0; i < c->n_out && outcome == CASE_PASSED; ++i) {
    if (!case_compare(c, session, c->n_in + i, c->out[i])) outcome = CASE_WRONG;
  }
  if (outcome == CASE_PASSED && c->also != NULL && !c->also(c, session)) outcome = CASE_WRONG;
  for (uint32_t i = 0; i < c->n_in; ++i) free(memory[i]);
  return outcome;
}

/* enum case_outcome. REFUSED: the model or the session could not be opened. */
static inline int case_run_file(case_run *c, const char *path) {
  bs_error err = BS_ERROR_INIT;
  bs_graph *model = NULL;
  bs_session *session = NULL;
  const bs_session_options options = {.struct_size = sizeof options,
                                      .threads = 1,
                                      .backend = c->backend,
                                      .passes_off = &c->passes_off,
                                      .n_passes_off = c->passes_off != NULL};
  c->why[0] = '\0';
  int32_t rc = bs_graph_open(c->context, path, NULL, &model, &err);
  if (rc == BS_OK) rc = bs_session_open(c->context, model, &options, &session, &err);
  int outcome = CASE_REFUSED;
  if (rc != BS_OK) {
    snprintf(c->why, sizeof c->why, "%s: %s", err.id, err.message);
  } else if (bs_session_port_count(session) != c->n_in + c->n_out) {
    snprintf(c->why, sizeof c->why, "it has %u ports, expected %u", bs_session_port_count(session),
             c->n_in + c->n_out);
    outcome = CASE_WRONG;
  } else {
    outcome = case_run_session(c, session, &err);
  }
  bs_session_close(session);
  bs_graph_close(model);
  return outcome;
}
#endif
