/* SPDX-License-Identifier: MIT
 * verify.c - see verify.h. */
#include "lab/model/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "graph/run/verify.h"
#include "lab/error.h"
#include "lab/model/made.h"

int32_t bs_model_verified_init(bs_model_verified *out, bs_error *err) {
  *out = (bs_model_verified){.rows = json_array(), .notes = json_array()};
  return out->rows != NULL && out->notes != NULL ? BS_OK : bs_no_memory(err, "rows");
}

void bs_model_verified_put(const bs_model_verified *v, json_t *result) {
  json_object_set(result, "written", v->rows);
  json_object_set(result, "written_not_compared", v->notes);
  if (v->error != NULL) json_object_set(result, "written_error", v->error);
}

void bs_model_verified_free(bs_model_verified *v) {
  json_decref(v->rows);
  json_decref(v->notes);
  json_decref(v->error);
  *v = (bs_model_verified){0};
}

static json_t *number_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static void add_row(bs_model_verified *v, const char *name, const char *inputs, const bs_verify_report *r) {
  json_t *at = json_array();
  for (uint32_t d = 0; d < r->rank; d++) json_array_append_new(at, json_integer(r->at[d]));
  json_t *row = json_pack("{s:o, s:s, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:o, s:s}", "case",
                          bs_model_json_text(name), "inputs", inputs, "ok", (int)r->ok, "compared",
                          (json_int_t)r->compared, "skipped", (json_int_t)r->skipped, "output",
                          bs_model_json_text(r->output), "at", at, "value", number_or_null(r->value), "expected",
                          number_or_null(r->expected), "limit", number_or_null(r->bound), "pass", r->pass,
                          "without", r->off, "node", bs_model_json_text(r->node), "serves", r->serves);
  json_object_set_new(row, "difference", number_or_null(fabs(r->value - r->expected)));
  json_array_append_new(v->rows, row);
  v->failed += !r->ok;
}

static void add_note(bs_model_verified *v, const char *text) {
  json_array_append_new(v->notes, bs_model_json_text(text));
}

/* ---- one set of inputs --------------------------------------------------------------------------- */

typedef struct verifying {
  const bs_model_request *request;
  bs_session *session;
  const char *name; /* of the case */
  gverify *verify;
  void **given, **made; /* of each input; given NULL: not set */
  uint32_t n_inputs, done, total;
  bs_model_verified *out;
} verifying;

static int32_t compare(verifying *v, const char *inputs, bs_error *err) {
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  bs_error why = BS_ERROR_INIT;
  const bs_model_request *r = v->request;
  if (r->progress != NULL) r->progress(r->progress_user, "compare with the graph as written", ++v->done, v->total);
  const int64_t cached = bs_session_cache_length(v->session);
  int32_t rc = gverify_run(v->verify, &report, &why);
  if (rc == BS_OK || rc == BS_NUMERIC) {
    add_row(v->out, v->name, inputs, &report);
    if (rc == BS_NUMERIC && v->out->error == NULL)
      v->out->error = json_pack("{s:s, s:o, s:o}", "id", why.id, "message", bs_model_json_text(why.message), "hint",
                                bs_model_json_text(why.hint));
    rc = BS_OK;
  } else if (err != NULL) {
    *err = why;
  }
  if (rc == BS_OK && bs_session_cache_limit(v->session) > 0) rc = bs_session_cache(v->session, cached, err);
  return rc;
}

/* ---- made inputs --------------------------------------------------------------------------------- */

static uint64_t bytes_of(const bs_tensor_desc *d) {
  uint64_t bytes = BS_DTYPE_BYTES(d->dtype);
  for (uint32_t i = 0; i < d->rank; i++) bytes *= (uint64_t)d->dims[i];
  return bytes;
}

static int32_t set_port(const verifying *v, uint32_t port, void *data, bs_error *err) {
  bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d};
  int32_t rc = bs_session_port(v->session, port, NULL, &d, err);
  bs_tensor t = {.struct_size = (uint32_t)sizeof t, .dtype = d.dtype, .rank = d.rank, .data = data};
  memcpy(t.dims, d.dims, sizeof t.dims);
  memcpy(t.strides, d.strides, sizeof t.strides);
  t.bytes = bytes_of(&d);
  return rc == BS_OK ? bs_session_set(v->session, port, &t, err) : rc;
}

static int32_t fill_ports(verifying *v, const bs_made *of, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < v->n_inputs; i++) {
    bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d};
    rc = bs_session_port(v->session, i, NULL, &d, err);
    if (rc == BS_OK && v->made[i] == NULL) v->made[i] = aligned_alloc(64, (bytes_of(&d) + 64u) & ~UINT64_C(63));
    if (rc == BS_OK && v->made[i] == NULL) rc = bs_no_memory(err, "made inputs");
    if (rc == BS_OK) bs_made_fill(of, v->session->graph, i, &d, v->given[i], v->made[i]);
    if (rc == BS_OK) rc = set_port(v, i, v->made[i], err);
  }
  return rc;
}

/* What a model does not accept of made inputs says nothing of its passes. */
static int32_t try_made(verifying *v, const bs_made *of, bs_error *err) {
  char note[700];
  bs_error why = BS_ERROR_INIT;
  int32_t rc = fill_ports(v, of, err);
  if (rc != BS_OK) return rc;
  rc = compare(v, of->name, &why);
  if (rc == BS_INPUT) {
    snprintf(note, sizeof note, "%s: the model does not accept them (%.300s)", of->name, why.message);
    add_note(v->out, note);
    return BS_OK;
  }
  if (rc != BS_OK && err != NULL) *err = why;
  return rc;
}

static int has_floats(const verifying *v) {
  for (uint32_t i = 0; i < v->n_inputs; i++) {
    bs_tensor_desc d = {.struct_size = (uint32_t)sizeof d};
    if (bs_session_port(v->session, i, NULL, &d, NULL) == BS_OK && bs_dtype_is_float(d.dtype)) return 1;
  }
  return 0;
}

static int32_t compare_made(verifying *v, int all_given, bs_error *err) {
  bs_made list[BS_MADE_MOST];
  int32_t rc = BS_OK;
  if (!has_floats(v) && all_given) return rc; /* they would be those that were given */
  const uint32_t n = bs_made_list(v->session->graph, list, BS_MADE_MOST);
  v->total = n + (uint32_t)all_given;
  for (uint32_t k = 0; rc == BS_OK && k < n && v->out->failed == 0; k++) rc = try_made(v, &list[k], err);
  return rc;
}

static int32_t put_back(const verifying *v, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < v->n_inputs; i++)
    if (v->given[i] != NULL) rc = set_port(v, i, v->given[i], err);
  return rc;
}

int32_t bs_model_verify(const bs_model_request *request, bs_session *session, const char *name, int made,
                        bs_model_verified *io, bs_error *err) {
  verifying v = {.request = request, .session = session, .name = name, .out = io, .total = 1};
  int all_given = 1;
  v.n_inputs = session->bound->g->n_inputs;
  v.given = calloc(v.n_inputs + 1u, sizeof *v.given);
  v.made = calloc(v.n_inputs + 1u, sizeof *v.made);
  int32_t rc = v.given == NULL || v.made == NULL ? bs_no_memory(err, "inputs") : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < v.n_inputs; i++) {
    v.given[i] = session->memory[i];
    all_given = all_given && v.given[i] != NULL;
  }
  if (rc == BS_OK) rc = gverify_open(session, &v.verify, err);
  if (rc == BS_OK && all_given) rc = compare(&v, "given", err);
  if (rc == BS_OK && made) rc = compare_made(&v, all_given, err);
  if (rc == BS_OK) rc = put_back(&v, err);
  gverify_close(v.verify);
  for (uint32_t i = 0; v.made != NULL && i < v.n_inputs; i++) free(v.made[i]);
  free(v.given);
  free(v.made);
  return rc;
}
