/* SPDX-License-Identifier: MIT
 * against.c - see against.h. The float model stays open; the quantised one and each noisy copy run on its
 * inputs, one after the other. */
#include "lab/model/against.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "formats/onnx.h"
#include "lab/model/grids.h"
#include "lab/model/inputs.h"
#include "lab/model/layers.h"
#include "lab/model/noise.h"
#include "lab/model/quantize.h"
#include "lab/stop.h"

enum { SETS = 4, SEEDS = BS_LAYERS_COPIES - 1, MORE_PASSES = 4 };

/* Passes that join a product with what is before, beside or behind it. */
static const char *const passes_off[MORE_PASSES] = {"merge", "epilogue", "last_token", "alpha"};

/* Ratios are of errors that are at least those of f32 sums. */
static const double ROUND_OFF = 1e-6, KL_ROUND_OFF = 1e-12;

/* What one output of one model differs by from the float model's, over all sets of inputs. */
typedef struct differs {
  double changed, size; /* sums of squares: of the difference, of the float output */
  double kl;            /* a sum over rows */
  uint64_t rows, same;  /* rows; those whose largest number is at the same place */
  uint64_t first;       /* the first that is at another place, counted over all sets; same < rows */
} differs;

typedef struct against {
  bs_context *context;
  const bs_model_request *request;
  bs_model floats;
  uint32_t n_inputs, n_outputs, sets;
  differs *measured, *predicted; /* [n_outputs], [SEEDS][n_outputs] */
  bs_grids grids;
  bs_layers layers;
  const char **passes; /* those of the request, and passes_off */
  size_t n_passes;
} against;

/* The float output beside another one, of `count` numbers in rows of `row`. */
static void take_row(const double *f, const double *v, int64_t n, differs *d) {
  double most_f = f[0], most_v = v[0], sum_f = 0.0, sum_v = 0.0, kl = 0.0;
  int64_t at_f = 0, at_v = 0;
  for (int64_t i = 0; i < n; i++) {
    d->changed += (v[i] - f[i]) * (v[i] - f[i]);
    d->size += f[i] * f[i];
    if (f[i] > most_f) most_f = f[at_f = i];
    if (v[i] > most_v) most_v = v[at_v = i];
  }
  for (int64_t i = 0; i < n; i++) {
    sum_f += exp(f[i] - most_f);
    sum_v += exp(v[i] - most_v);
  }
  for (int64_t i = 0; i < n; i++) {
    const double log_f = f[i] - most_f - log(sum_f), log_v = v[i] - most_v - log(sum_v);
    kl += exp(log_f) * (log_f - log_v);
  }
  d->kl += kl;
  if (at_f != at_v && d->same == d->rows) d->first = d->rows;
  d->rows++;
  d->same += at_f == at_v;
}

/* The numbers of an output as f64, malloc'd; NULL: no memory. */
static double *numbers(bs_session *session, uint32_t port, uint64_t *out_count, int64_t *out_row,
                       bs_error *err) {
  bs_tensor t = {.struct_size = sizeof t};
  uint32_t dtype = 0;
  if (bs_session_get(session, port, &t, err) != BS_OK) return NULL;
  void *dense = bs_model_dense(&t, &dtype, out_count);
  double *wide = dense != NULL ? malloc(*out_count * sizeof *wide + 1) : NULL;
  for (uint64_t i = 0; wide != NULL && i < *out_count; i++) wide[i] = bs_load_f64(dtype, dense, (int64_t)i);
  *out_row = t.rank > 0 ? t.dims[t.rank - 1] : 1;
  free(dense);
  if (wide == NULL) bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for an output");
  return wide;
}

static int32_t compare_outputs(against *a, bs_session *other, differs *to, bs_error *err) {
  for (uint32_t o = 0; o < a->n_outputs; o++) {
    uint64_t n_f = 0, n_v = 0;
    int64_t row_f = 1, row_v = 1;
    double *f = numbers(a->floats.session, a->n_inputs + o, &n_f, &row_f, err);
    double *v = f != NULL ? numbers(other, a->n_inputs + o, &n_v, &row_v, err) : NULL;
    int32_t rc = v != NULL ? BS_OK : BS_NO_MEMORY;
    if (rc == BS_OK && (n_f != n_v || row_f != row_v))
      rc = bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-PORTS", "output %u differs in its shape", o);
    for (uint64_t at = 0; rc == BS_OK && row_f > 0 && at < n_f; at += (uint64_t)row_f)
      take_row(f + at, v + at, row_f, &to[o]);
    free(f);
    free(v);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

/* Gives the other session the inputs of the float one, and runs both. */
static int32_t run_both(against *a, bs_session *other, uint32_t copy, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < a->n_inputs; i++) {
    bs_tensor t = {.struct_size = sizeof t};
    rc = bs_session_get(a->floats.session, i, &t, err);
    if (rc == BS_OK) rc = bs_session_set(other, i, &t, err);
  }
  bs_layers_next(&a->layers, copy);
  if (rc == BS_OK) rc = bs_session_trace(a->floats.session, bs_layers_keep, &a->layers, err);
  bs_layers_next(&a->layers, copy);
  if (rc == BS_OK) rc = bs_session_trace(other, bs_layers_compare, &a->layers, err);
  if (rc == BS_OK && a->layers.failed)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the outputs of layers");
  return rc;
}

static int32_t same_ports(const against *a, const bs_graph *other, bs_error *err) {
  for (uint32_t inputs = 0; inputs < 2; inputs++) {
    const uint32_t n = bs_graph_port_count(a->floats.graph, inputs);
    int same = bs_graph_port_count(other, inputs) == n;
    for (uint32_t i = 0; same && i < n; i++) {
      bs_port f = {.struct_size = sizeof f}, v = {.struct_size = sizeof v};
      same = bs_graph_port(a->floats.graph, inputs, i, &f, err) == BS_OK &&
             bs_graph_port(other, inputs, i, &v, err) == BS_OK && strcmp(f.name, v.name) == 0;
    }
    if (!same)
      return bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-PORTS", "the two models have other %s",
                          inputs ? "inputs" : "outputs");
  }
  return BS_OK;
}

/* The request for one of the models. */
static bs_model_request request_for(const against *a, const char *path) {
  bs_model_request request = *a->request;
  request.path = path;
  request.weights = NULL;
  request.activations = NULL;
  request.passes = (bs_model_words){a->passes, a->n_passes};
  return request;
}

/* Another model, number `copy` (0: the measured one), its weights rounded to a list of schemes (NULL: as they
 * are), on all sets of inputs. */
static int32_t run_model(against *a, const char *path, const char *weights, const char *activations,
                         uint32_t copy, bs_error *err) {
  bs_model_request request = request_for(a, path);
  bs_model model = {0};
  differs *to = copy == 0 ? a->measured : &a->predicted[(copy - 1) * a->n_outputs];
  request.weights = weights;
  request.activations = activations;
  request.note = NULL;
  int32_t rc = bs_model_open(a->context, &request, &model, err);
  if (rc == BS_OK) rc = same_ports(a, model.graph, err);
  for (size_t i = 0; rc == BS_OK && i < a->floats.n_dims; i++)
    rc = bs_model_set_dim(&model, a->floats.dims[i].name, a->floats.dims[i].size, err);
  if (rc == BS_OK) rc = bs_model_start(a->context, &request, &model, err);
  for (uint32_t set = 0; rc == BS_OK && set < a->sets; set++) {
    a->floats.seed = a->request->seed + set;
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = bs_model_set_inputs(&request, &a->floats, err);
    if (rc == BS_OK) rc = run_both(a, model.session, copy, err);
    if (rc == BS_OK) rc = compare_outputs(a, model.session, to, err);
  }
  bs_model_close(&model);
  return rc;
}

/* A noisy copy lies in the folder of temporary files while it is open. */
static int32_t run_noisy(against *a, const bs_onnx *floats, uint32_t seed, bs_error *err) {
  const char *folder = getenv("TMPDIR");
  char path[4096];
  snprintf(path, sizeof path, "%s/bsrun-noise-XXXXXX.onnx",
           folder != NULL && folder[0] != '\0' ? folder : "/tmp");
  const int fd = mkstemps(path, 5);
  if (fd < 0) return bs_error_errno(err, BS_IO, "BS-QUANT-NOISE", errno, "cannot make %.200s", path);
  close(fd);
  if (a->request->progress != NULL)
    a->request->progress(a->request->progress_user, "noisy copies", seed, SEEDS);
  int32_t rc = bs_grids_noisy_copy(floats, &a->grids, seed + 1, path, err);
  if (rc == BS_OK) rc = run_model(a, path, NULL, NULL, seed + 1, err);
  unlink(path);
  return rc;
}

/* ---- the result ---------------------------------------------------------------------------------- */

static double relative(const differs *d) {
  return d->size > 0.0 ? sqrt(d->changed / d->size) : d->changed > 0.0 ? INFINITY : 0.0;
}

static double mean_kl(const differs *d) {
  return d->rows > 0 ? d->kl / (double)d->rows : 0.0;
}

static double share_of_same(const differs *d) {
  return d->rows > 0 ? (double)d->same / (double)d->rows : 1.0;
}

static json_t *number_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

/* {set, row} of the first row whose largest number is at another place; null: there is none. */
static json_t *first_of(const against *a, const differs *d) {
  const uint64_t rows = d->rows / a->sets;
  if (d->same == d->rows || rows == 0) return json_null();
  return json_pack("{s:I, s:I}", "set", (json_int_t)(d->first / rows), "row", (json_int_t)(d->first % rows));
}

static void note_good(json_t *notes, const char *output, double ratio) {
  char text[400];
  if (!(ratio < BS_LAYERS_LEAST)) return;
  snprintf(
      text, sizeof text,
      "output %.200s differs %.2g times as much as predicted: weights were left in float, or not rounded "
      "to the nearest",
      output, ratio);
  json_array_append_new(notes, bs_model_json_text(text));
}

static json_t *row_of(const against *a, uint32_t o, json_t *notes, uint64_t *failed) {
  bs_port port = {.struct_size = sizeof port};
  double squares = 0.0, kl = 0.0, same = 0.0;
  for (uint32_t s = 0; s < SEEDS; s++) {
    const differs *d = &a->predicted[s * a->n_outputs + o];
    squares += relative(d) * relative(d) / SEEDS;
    kl += mean_kl(d) / SEEDS;
    same += share_of_same(d) / SEEDS;
  }
  const differs *m = &a->measured[o];
  const double predicted = sqrt(squares);
  const double ratio = fmax(relative(m), ROUND_OFF) / fmax(predicted, ROUND_OFF);
  const double kl_ratio = fmax(mean_kl(m), KL_ROUND_OFF) / fmax(kl, KL_ROUND_OFF);
  const char *reason = !(ratio <= BS_AGAINST_WHOLE)   ? "the output differs by more than rounding explains"
                       : !(kl_ratio <= BS_AGAINST_KL) ? "the KL divergence is more than rounding explains"
                                                      : "";
  bs_graph_port(a->floats.graph, 0, o, &port, NULL);
  *failed += reason[0] != '\0';
  json_t *row = json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:b, s:s}", "output", bs_model_json_text(port.name),
                          "limit", BS_AGAINST_WHOLE, "kl_limit", BS_AGAINST_KL, "first_same",
                          share_of_same(m), "first_same_predicted", same, "predicted", predicted, "ok",
                          reason[0] == '\0', "reason", reason);
  note_good(notes, port.name, ratio);
  json_object_set_new(row, "first_differs", first_of(a, m));
  json_object_set_new(row, "measured", number_or_null(relative(m)));
  json_object_set_new(row, "ratio", number_or_null(ratio));
  json_object_set_new(row, "kl", number_or_null(mean_kl(m)));
  json_object_set_new(row, "kl_predicted", number_or_null(kl));
  json_object_set_new(row, "kl_ratio", number_or_null(kl_ratio));
  return row;
}

/* Weights of products that the quantised model has as floats. */
static int32_t note_floats(const against *a, const bs_onnx *floats, json_t *notes, bs_error *err) {
  enum { MOST = 4 };
  bs_quantize_weight *picked = NULL;
  size_t n = 0, left = 0;
  char text[400];
  const int32_t rc = bs_quantize_pick(floats, &picked, &n, err);
  for (size_t i = 0; rc == BS_OK && a->request->weights == NULL && i < n; i++) {
    size_t k = 0;
    while (k < a->grids.n && a->grids.rows[k].weight != picked[i].tensor) k++;
    if (k < a->grids.n || picked[i].reason != NULL || picked[i].table) continue;
    if (left++ >= MOST) continue;
    snprintf(text, sizeof text, "layer %.*s was left in float", BS_SPAN_PRINT(picked[i].tensor->name));
    json_array_append_new(notes, bs_model_json_text(text));
  }
  if (left > MOST) {
    snprintf(text, sizeof text, "%zu more layers were left in float", left - MOST);
    json_array_append_new(notes, json_string(text));
  }
  free(picked);
  return rc;
}

/* The layer of the smallest ratio of signal to noise; null: no layer was compared. */
static json_t *worst_of(const json_t *layers) {
  json_t *row, *worst = NULL;
  size_t i;
  json_array_foreach(layers, i, row) {
    const json_t *snr = json_object_get(row, "snr");
    if (!json_is_real(snr)) continue;
    if (worst == NULL || json_real_value(snr) < json_real_value(json_object_get(worst, "snr"))) worst = row;
  }
  return worst != NULL ? json_incref(worst) : json_null();
}

static int32_t result_of(const against *a, const char *float_path, const bs_onnx *floats, json_t **out,
                         bs_error *err) {
  json_t *rows = json_array(), *notes = json_array();
  uint64_t failed = 0;
  for (uint32_t o = 0; o < a->n_outputs; o++) json_array_append_new(rows, row_of(a, o, notes, &failed));
  json_t *layers = bs_layers_result(&a->layers, notes, &failed);
  const int32_t rc = note_floats(a, floats, notes, err);
  *out = json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "model",
                   bs_model_json_text(a->request->path), "against", bs_model_json_text(float_path), "backend",
                   a->request->backend != NULL ? a->request->backend : "cpu", "inputs", (json_int_t)a->sets,
                   "weights", (json_int_t)a->grids.n, "unmatched", (json_int_t)a->grids.other, "failed",
                   (json_int_t)failed, "rows", rows, "worst", worst_of(layers), "layers", layers, "notes",
                   notes);
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static int32_t start_floats(against *a, const char *path, bs_error *err) {
  const size_t asked = a->request->passes.n;
  a->passes = calloc(asked + MORE_PASSES, sizeof *a->passes);
  if (a->passes == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for words");
  for (size_t i = 0; i < asked; i++) a->passes[a->n_passes++] = a->request->passes.words[i];
  for (size_t i = 0; i < MORE_PASSES; i++) a->passes[a->n_passes++] = passes_off[i];
  const bs_model_request request = request_for(a, path);
  int32_t rc = bs_model_open(a->context, &request, &a->floats, err);
  if (rc == BS_OK) rc = bs_model_start(a->context, &request, &a->floats, err);
  if (rc == BS_OK) rc = bs_model_find_domains(&request, &a->floats, err);
  if (rc != BS_OK) return rc;
  a->n_inputs = bs_graph_port_count(a->floats.graph, 1);
  a->n_outputs = bs_graph_port_count(a->floats.graph, 0);
  a->sets = bs_model_makes_inputs(&a->floats) ? SETS : 1;
  a->measured = calloc(a->n_outputs + 1u, sizeof *a->measured);
  a->predicted = calloc(SEEDS * (a->n_outputs + 1u), sizeof *a->predicted);
  if (a->measured != NULL && a->predicted != NULL) return BS_OK;
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %u outputs", a->n_outputs);
}

int32_t bs_model_against(bs_context *context, const bs_model_request *request, const char *float_path,
                         json_t **out, bs_error *err) {
  against a = {.context = context, .request = request};
  bs_onnx quantised = {0}, floats = {0};
  *out = NULL;
  a.layers.grids = &a.grids;
  int32_t rc = bs_onnx_open(request->path, &quantised, err);
  if (rc == BS_OK) rc = bs_onnx_open(float_path, &floats, err);
  if (rc == BS_OK)
    rc = request->weights != NULL
             ? bs_grids_of_schemes(&floats, request->weights, request->activations, &a.grids, err)
             : bs_grids_find(&quantised, &floats, request->activations, &a.grids, err);
  if (rc == BS_OK) rc = start_floats(&a, float_path, err);
  if (rc == BS_OK) rc = run_model(&a, request->path, request->weights, request->activations, 0, err);
  for (uint32_t s = 0; rc == BS_OK && s < SEEDS; s++) rc = run_noisy(&a, &floats, s, err);
  if (rc == BS_OK) rc = result_of(&a, float_path, &floats, out, err);
  bs_layers_free(&a.layers);
  bs_grids_free(&a.grids);
  bs_onnx_close(&quantised);
  bs_onnx_close(&floats);
  bs_model_close(&a.floats);
  free(a.passes);
  free(a.measured);
  free(a.predicted);
  return rc;
}
