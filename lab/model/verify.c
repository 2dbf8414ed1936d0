/* SPDX-License-Identifier: MIT
 * verify.c - see verify.h. */
#include "lab/model/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "graph/run/verify.h"
#include "lab/error.h"
#include "lab/model/made.h"
#include "lab/stop.h"
#include "lab/store/env.h"

int32_t bs_model_verified_init(bs_model_verified *out, bs_error *err) {
  *out = (bs_model_verified){.rows = json_array(), .notes = json_array(), .most = 60};
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
  json_t *row = json_pack(
      "{s:o, s:s, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:o, s:s}", "case",
      bs_model_json_text(name), "inputs", inputs, "ok", (int)r->ok, "compared", (json_int_t)r->compared,
      "skipped", (json_int_t)r->skipped, "output", bs_model_json_text(r->output), "at", at, "value",
      number_or_null(r->value), "expected", number_or_null(r->expected), "limit", number_or_null(r->bound),
      "pass", r->pass, "without", r->off, "node", bs_model_json_text(r->node), "serves", r->serves);
  json_object_set_new(row, "difference", number_or_null(fabs(r->value - r->expected)));
  json_array_append_new(v->rows, row);
  v->failed += !r->ok;
}

static void add_note(bs_model_verified *v, const char *text) {
  json_array_append_new(v->notes, bs_model_json_text(text));
}

/* If earlier cases used all the time, a case gets a twelfth of it at most. */
static double seconds_left(const bs_model_verified *v) {
  return fmax(v->most - v->spent, v->most / 12);
}

/* ---- one set of inputs --------------------------------------------------------------------------- */

typedef struct verifying {
  const bs_model_request *request;
  bs_session *session;
  const char *name; /* of the case */
  gverify *verify;
  void **given, **made, **cut; /* of each input; given NULL: not set; cut: given at smaller sizes */
  bs_tensor_desc *descs;       /* of each input, at the sizes of the session */
  int64_t *sizes;              /* of symbols, as the session was bound */
  uint32_t n_inputs, done, total;
  int all_given;
  double each;    /* seconds that one set takes, estimated, then measured */
  bs_graph *part; /* of fewer layers, and its session; NULL: the whole is compared */
  bs_session *of_part;
  bs_model_verified *out;
} verifying;

static int32_t compare(verifying *v, const char *inputs, bs_error *err) {
  bs_verify_report report = {.struct_size = (uint32_t)sizeof report};
  bs_error why = BS_ERROR_INIT;
  const bs_model_request *r = v->request;
  v->done++;
  if (r->progress != NULL)
    r->progress(r->progress_user, "compare with the graph as written", v->done, v->total);
  const int64_t cached = bs_session_cache_length(v->session);
  const double began = bs_clock_s();
  int32_t rc = gverify_run(v->verify, &report, &why);
  v->each = bs_clock_s() - began;
  v->out->spent += v->each;
  if (rc == BS_OK || rc == BS_NUMERIC) {
    add_row(v->out, v->name, inputs, &report);
    if (rc == BS_NUMERIC && v->out->error == NULL)
      v->out->error = json_pack("{s:s, s:o, s:o}", "id", why.id, "message", bs_model_json_text(why.message),
                                "hint", bs_model_json_text(why.hint));
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
    if (rc == BS_OK && v->made[i] == NULL)
      v->made[i] = aligned_alloc(64, (bytes_of(&d) + 64u) & ~UINT64_C(63));
    if (rc == BS_OK && v->made[i] == NULL) rc = bs_no_memory(err, "made inputs");
    if (rc == BS_OK)
      bs_made_fill(of, v->session->graph, v->request->seed, i, &d,
                   v->cut[i] != NULL ? v->cut[i] : v->given[i], v->made[i]);
    if (rc == BS_OK) rc = set_port(v, i, v->made[i], err);
  }
  return rc;
}

/* Runs one set of made inputs. An error of the model on made inputs is not a proof that its passes are
 * wrong. */
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
  for (uint32_t i = 0; i < v->n_inputs; i++)
    if (bs_dtype_is_float(v->descs[i].dtype)) return 1;
  return 0;
}

static int32_t compare_made(verifying *v, bs_error *err) {
  bs_made list[BS_MADE_MOST];
  char note[120];
  int32_t rc = BS_OK;
  if (!has_floats(v) && v->all_given) return rc; /* they would be those that were given */
  uint32_t n = bs_made_list(v->session->graph, list, BS_MADE_MOST);
  if (!has_floats(v)) n = 1; /* the kinds differ in their floats */
  v->total = n + (uint32_t)v->all_given;
  for (uint32_t k = 0; rc == BS_OK && k < n && v->out->failed == 0; k++) {
    if (bs_stop_asked() != 0) {
      snprintf(note, sizeof note, "%u of %u sets of made inputs: interrupted", n - k, n);
      add_note(v->out, note);
      return rc;
    }
    if (v->done > 0 && v->out->spent + v->each > v->out->most) {
      snprintf(note, sizeof note, "%u of %u sets of made inputs, which would take more than a minute", n - k,
               n);
      add_note(v->out, note);
      return rc;
    }
    rc = try_made(v, &list[k], err);
  }
  return rc;
}

/* ---- sizes --------------------------------------------------------------------------------------- */

enum { RATE_ROWS = 32, RATE_WIDTH = 256 };

/* The time of the graph as written of a product, in both of its runs. */
static int32_t time_product(bs_context *context, double *out_seconds, bs_error *err) {
  static float x[RATE_ROWS * RATE_WIDTH], w[RATE_WIDTH * RATE_WIDTH];
  const bs_tensor_desc
      of_x = {.struct_size = sizeof of_x, .dtype = BS_F32, .rank = 2, .dims = {RATE_ROWS, RATE_WIDTH}},
      of_w = {.struct_size = sizeof of_w, .dtype = BS_F32, .rank = 2, .dims = {RATE_WIDTH, RATE_WIDTH}};
  const bs_session_options o = {.struct_size = sizeof o, .threads = 1, .backend = "ref"};
  bs_verify_report report = {.struct_size = sizeof report};
  bs_tensor t = {.struct_size = sizeof t, .dtype = BS_F32, .rank = 2, .dims = {RATE_ROWS, RATE_WIDTH}};
  bs_graph *g = NULL;
  bs_session *s = NULL;
  gverify *v = NULL;
  uint32_t in[2], out;
  t.strides[0] = RATE_WIDTH;
  t.strides[1] = 1;
  t.data = x;
  t.bytes = sizeof x;
  int32_t rc = bs_graph_new(context, &g, err);
  if (rc == BS_OK) rc = bs_graph_input(g, "x", &of_x, NULL, &in[0], err);
  if (rc == BS_OK) rc = bs_graph_constant(g, "w", &of_w, w, &in[1], err);
  if (rc == BS_OK) rc = bs_graph_op(g, "MatMul", in, 2, NULL, 0, &out, 1, err);
  if (rc == BS_OK) rc = bs_graph_output(g, "y", out, err);
  if (rc == BS_OK) rc = bs_session_open(context, g, &o, &s, err);
  if (rc == BS_OK) rc = bs_session_set(s, 0, &t, err);
  if (rc == BS_OK) rc = gverify_open(s, &v, err);
  const double began = bs_clock_s();
  if (rc == BS_OK) rc = gverify_run(v, &report, err);
  *out_seconds = bs_clock_s() - began;
  gverify_close(v);
  bs_session_close(s);
  bs_graph_close(g);
  return rc;
}

/* Seconds of one comparison at the sizes that the session is bound to. */
static int32_t estimate(verifying *v, double *out_seconds, bs_error *err) {
  double flops = 0, seconds = 0;
  int32_t rc = BS_OK;
  if (v->out->rate == 0) {
    rc = time_product(v->session->context, &seconds, err);
    if (rc == BS_OK) v->out->rate = 2.0 * RATE_ROWS * RATE_WIDTH * RATE_WIDTH / fmax(seconds, 1e-6);
  }
  for (uint32_t i = 0; rc == BS_OK && i < bs_session_node_count(v->session); i++) {
    bs_node_info node = {.struct_size = sizeof node};
    rc = bs_session_node(v->session, i, &node, err);
    flops += (double)node.flops;
  }
  if (rc == BS_OK) *out_seconds = flops / v->out->rate;
  return rc;
}

static int32_t bind_sizes(const verifying *v, const int64_t *sizes, bs_error *err) {
  const gmodel *m = v->session->graph->model;
  bs_dim *dims = calloc(m->n_symbols + 1u, sizeof *dims);
  const bs_dim **list = calloc(m->n_symbols + 1u, sizeof *list);
  uint32_t n = 0;
  int32_t rc = dims == NULL || list == NULL ? bs_no_memory(err, "sizes") : BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < m->n_symbols; i++) {
    if (sizes[i] < 0) continue;
    dims[n] = (bs_dim){.struct_size = sizeof *dims, .name = m->symbols[i], .size = sizes[i]};
    list[n] = &dims[n];
    n++;
  }
  if (rc == BS_OK) rc = bs_session_bind(v->session, list, n, err);
  free(dims);
  free(list);
  return rc;
}

/* Copies the first elements of each dimension of the given input. */
static void cut_out(const bs_tensor_desc *from, const bs_tensor_desc *to, const unsigned char *data,
                    unsigned char *out) {
  const size_t size = BS_DTYPE_BYTES(to->dtype);
  uint64_t count = 1;
  for (uint32_t d = 0; d < to->rank; d++) count *= (uint64_t)to->dims[d];
  for (uint64_t i = 0; i < count; i++) {
    uint64_t rest = i, at = 0, stride = 1;
    for (uint32_t d = to->rank; d-- > 0; stride *= (uint64_t)from->dims[d]) {
      at += rest % (uint64_t)to->dims[d] * stride;
      rest /= (uint64_t)to->dims[d];
    }
    memcpy(out + i * size, data + at * size, size);
  }
}

static int32_t set_cut(verifying *v, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < v->n_inputs; i++) {
    bs_tensor_desc to = {.struct_size = sizeof to};
    if (v->given[i] == NULL) continue;
    rc = bs_session_port(v->session, i, NULL, &to, err);
    if (rc == BS_OK) v->cut[i] = aligned_alloc(64, (bytes_of(&to) + 64u) & ~UINT64_C(63));
    if (rc == BS_OK && v->cut[i] == NULL) rc = bs_no_memory(err, "inputs");
    if (rc != BS_OK) return rc;
    cut_out(&v->descs[i], &to, v->given[i], v->cut[i]);
    rc = set_port(v, i, v->cut[i], err);
  }
  return rc;
}

/* Notes the sizes; the caller reports notes like "4 of 24 layers". */
static void note_sizes(const verifying *v, const int64_t *sizes, double whole) {
  const gmodel *m = v->session->graph->model;
  bs_text text = {0};
  for (uint32_t i = 0; i < m->n_symbols; i++)
    if (sizes[i] != v->sizes[i])
      bs_text_printf(&text, "%s%.60s %lld of %lld", text.size > 0 ? ", " : "compared at ", m->symbols[i],
                     (long long)sizes[i], (long long)v->sizes[i]);
  bs_text_printf(&text, "; the whole would take about %.0f s", whole);
  add_note(v->out, text.data != NULL ? text.data : "");
  bs_text_free(&text);
}

static uint32_t largest_size(const int64_t *sizes, uint32_t n) {
  uint32_t best = n;
  for (uint32_t i = 0; i < n; i++)
    if (sizes[i] > 1 && (best == n || sizes[i] > sizes[best])) best = i;
  return best;
}

/* Halves the largest named dimension until a comparison fits into the remaining time. A model that cannot be
 * bound to smaller sizes stays unchanged. */
static int32_t make_smaller(verifying *v, bs_error *err) {
  const uint32_t n = v->session->graph->model->n_symbols;
  const double left = seconds_left(v->out);
  int64_t *sizes = malloc((n + 1u) * sizeof *sizes);
  int32_t rc = sizes == NULL ? bs_no_memory(err, "sizes") : estimate(v, &v->each, err);
  const double whole = v->each;
  int changed = 0;
  if (rc == BS_OK) memcpy(sizes, v->sizes, n * sizeof *sizes);
  for (uint32_t k; rc == BS_OK && v->each > left && (k = largest_size(sizes, n)) < n;) {
    const int64_t before = sizes[k];
    sizes[k] = (before + 1) / 2;
    if (bind_sizes(v, sizes, NULL) != BS_OK) {
      sizes[k] = before;
      rc = bind_sizes(v, sizes, err);
      break;
    }
    changed = 1;
    rc = estimate(v, &v->each, err);
  }
  if (rc == BS_OK && changed) rc = set_cut(v, err);
  if (rc == BS_OK && changed) note_sizes(v, sizes, whole);
  free(sizes);
  return rc;
}

/* ---- layers -------------------------------------------------------------------------------------- */

/* The bytes of the constants in sessions of the graph as written: both in their dtype and packed. */
static double written_bytes(const gmodel *m) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < m->n_values; i++) {
    const gmodel_value *value = &m->values[i];
    if (value->kind == GMODEL_CONSTANT && bs_dtype_is_float(value->dtype))
      bytes +=
          2 * value->bytes + (value->quant != NULL ? 0 : 16 * (value->bytes / BS_DTYPE_BYTES(value->dtype)));
  }
  return (double)bytes;
}

static int32_t open_part(verifying *v, int64_t layers, bs_error *err) {
  const gmodel *m = v->session->graph->model;
  const bs_graph_options of = {.struct_size = sizeof of,
                               .cache_tokens = m->cache_tokens,
                               .layers = layers,
                               .cache_dtype = m->cache_dtype};
  const char *off[GPASS_MAX];
  const bs_dim dim = {.struct_size = sizeof dim,
                      .name = m->n_symbols > 0 ? m->symbols[0] : "",
                      .size = m->n_symbols > 0 ? gsession_lead(v->session)->bound->sizes[0] : 0};
  const bs_dim *const dims[] = {&dim};
  bs_session_options o = {.struct_size = sizeof o,
                          .threads = v->request->threads,
                          .backend = gsession_lead(v->session)->core->backend,
                          .dims = dims,
                          .n_dims = m->n_symbols > 0,
                          .passes_off = off,
                          .weights = v->request->weights,
                          .activations = v->request->activations,
                          .choices = v->request->choices.words,
                          .n_choices = (uint32_t)v->request->choices.n};
  for (uint32_t i = 0; i < GPASS_MAX && bs_graph_pass_name(i) != NULL; i++)
    if (gsession_lead(v->session)->passes_off >> i & 1u) off[o.n_passes_off++] = bs_graph_pass_name(i);
  int32_t rc = bs_graph_open(v->session->context, m->path, &of, &v->part, err);
  return rc == BS_OK ? bs_session_open(v->session->context, v->part, &o, &v->of_part, err) : rc;
}

/* Uses fewer layers of a folder if one comparison takes too long, or too much memory. *out_skip: no layers
 * can be left out, and there is too little memory. */
static int32_t leave_layers_out(verifying *v, int *out_skip, bs_error *err) {
  const gmodel *m = v->session->graph->model;
  const double left = seconds_left(v->out);
  const double available = v->out->bytes > 0 ? v->out->bytes : (double)bs_memory_available("") / 2;
  const double bytes = written_bytes(m);
  const double part = fmin(left / fmax(v->each, 1e-9), available > 0 ? available / fmax(bytes, 1) : 1);
  const int64_t layers = (int64_t)fmax(1, floor(part * (double)m->all_layers));
  char note[160];
  *out_skip = 0;
  if (part >= 1) return BS_OK;
  int32_t rc = layers < m->all_layers ? open_part(v, layers, err) : BS_OK;
  const double least = v->part != NULL ? written_bytes(v->part->model) : bytes;
  *out_skip = rc == BS_OK && least > available && available > 0;
  if (*out_skip) {
    snprintf(note, sizeof note, "the graph as written, which would take %.1f GB of memory", 1e-9 * bytes);
    add_note(v->out, note);
  }
  if (*out_skip || rc != BS_OK || layers >= m->all_layers) return rc;
  snprintf(note, sizeof note, "compared with %lld of %lld layers; all would take about %.0f s and %.1f GB",
           (long long)layers, (long long)m->all_layers, v->each, 1e-9 * bytes);
  add_note(v->out, note);
  v->session = v->of_part;
  for (uint32_t i = 0; rc == BS_OK && i < v->n_inputs; i++)
    if (v->given[i] != NULL) rc = set_port(v, i, v->cut[i] != NULL ? v->cut[i] : v->given[i], err);
  return rc;
}

static int32_t put_back(const verifying *v, bs_error *err) {
  int32_t rc = bind_sizes(v, v->sizes, err);
  for (uint32_t i = 0; rc == BS_OK && i < v->n_inputs; i++)
    if (v->given[i] != NULL) rc = set_port(v, i, v->given[i], err);
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static int32_t begin(verifying *v, int which, bs_error *err) {
  bs_session *s = gsession_lead(v->session);
  const uint32_t n = s->graph->model->n_symbols;
  v->n_inputs = s->bound->g->n_inputs;
  v->given = calloc(v->n_inputs + 1u, sizeof *v->given);
  v->made = calloc(v->n_inputs + 1u, sizeof *v->made);
  v->cut = calloc(v->n_inputs + 1u, sizeof *v->cut);
  v->descs = calloc(v->n_inputs + 1u, sizeof *v->descs);
  v->sizes = malloc((n + 1u) * sizeof *v->sizes);
  if (v->given == NULL || v->made == NULL || v->cut == NULL || v->descs == NULL || v->sizes == NULL)
    return bs_no_memory(err, "inputs");
  memcpy(v->sizes, s->bound->sizes, n * sizeof *v->sizes);
  v->all_given = which != BS_VERIFY_MADE;
  v->total = 1;
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < v->n_inputs; i++) {
    v->given[i] = s->memory[i];
    v->descs[i].struct_size = (uint32_t)sizeof v->descs[i];
    v->all_given = v->all_given && v->given[i] != NULL;
    rc = bs_session_port(s, i, NULL, &v->descs[i], err);
  }
  return rc;
}

static void end(verifying *v) {
  gverify_close(v->verify);
  bs_session_close(v->of_part);
  bs_graph_close(v->part);
  for (uint32_t i = 0; v->made != NULL && v->cut != NULL && i < v->n_inputs; i++) {
    free(v->made[i]);
    free(v->cut[i]);
  }
  free(v->given);
  free(v->made);
  free(v->cut);
  free(v->descs);
  free(v->sizes);
}

static int32_t compare_sets(verifying *v, int made, double began, bs_error *err) {
  int32_t rc = gverify_open(v->session, &v->verify, err);
  v->out->spent += bs_clock_s() - began;
  if (rc == BS_OK && v->all_given) rc = compare(v, "given", err);
  return rc == BS_OK && made ? compare_made(v, err) : rc;
}

int32_t bs_model_verify(const bs_model_request *request, bs_session *session, const char *name, int which,
                        bs_model_verified *io, bs_error *err) {
  verifying v = {.request = request, .session = session, .name = name, .out = io};
  const double began = bs_clock_s(), before = io->spent;
  const size_t notes = json_array_size(io->notes);
  int skip = 0;
  int32_t rc = begin(&v, which, err);
  if (rc == BS_OK) rc = make_smaller(&v, err);
  if (rc == BS_OK) rc = leave_layers_out(&v, &skip, err);
  if (rc == BS_OK && !skip) rc = compare_sets(&v, which != BS_VERIFY_GIVEN, began, err);
  v.session = session;
  if (rc == BS_OK) rc = put_back(&v, err);
  io->ran = rc == BS_OK && v.done > 0 && json_array_size(io->notes) == notes; /* at all sizes */
  end(&v);
  io->spent = before + bs_clock_s() - began;
  return rc;
}
