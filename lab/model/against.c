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
#include "lab/model/noise.h"
#include "lab/stop.h"

enum { SETS = 4, SEEDS = 4 };

/* What one output of one model differs by from the float model's, over all sets of inputs. */
typedef struct differs {
  double changed, size; /* sums of squares: of the difference, of the float output */
  double kl;            /* a sum over rows */
  uint64_t rows, same;  /* rows; those whose largest number is at the same place */
} differs;

typedef struct against {
  bs_context *context;
  const bs_model_request *request;
  bs_model floats;
  uint32_t n_inputs, n_outputs, sets;
  differs *measured, *predicted; /* [n_outputs], [SEEDS][n_outputs] */
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

/* Gives the other session the inputs of the float one, and runs it. */
static int32_t run_same(against *a, bs_session *other, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < a->n_inputs; i++) {
    bs_tensor t = {.struct_size = sizeof t};
    rc = bs_session_get(a->floats.session, i, &t, err);
    if (rc == BS_OK) rc = bs_session_set(other, i, &t, err);
  }
  return rc == BS_OK ? bs_session_run(other, err) : rc;
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

/* Another model, its weights rounded to a list of schemes (NULL: as they are), on all sets of inputs. */
static int32_t run_model(against *a, const char *path, const char *weights, const char *activations,
                         differs *to, bs_error *err) {
  bs_model_request request = *a->request;
  request.weights = weights;
  request.activations = activations;
  bs_model model = {0};
  request.path = path;
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
    if (rc == BS_OK) rc = bs_session_run(a->floats.session, err);
    if (rc == BS_OK) rc = run_same(a, model.session, err);
    if (rc == BS_OK) rc = compare_outputs(a, model.session, to, err);
  }
  bs_model_close(&model);
  return rc;
}

/* A noisy copy lies in the folder of temporary files while it is open. */
static int32_t run_noisy(against *a, const bs_onnx *floats, const bs_grids *grids, uint32_t seed,
                         bs_error *err) {
  const char *folder = getenv("TMPDIR");
  char path[4096];
  snprintf(path, sizeof path, "%s/bsrun-noise-XXXXXX.onnx",
           folder != NULL && folder[0] != '\0' ? folder : "/tmp");
  const int fd = mkstemps(path, 5);
  if (fd < 0) return bs_error_errno(err, BS_IO, "BS-QUANT-NOISE", errno, "cannot make %.200s", path);
  close(fd);
  if (a->request->progress != NULL)
    a->request->progress(a->request->progress_user, "noisy copies", seed, SEEDS);
  int32_t rc = bs_grids_noisy_copy(floats, grids, seed + 1, path, err);
  if (rc == BS_OK) rc = run_model(a, path, NULL, NULL, &a->predicted[seed * a->n_outputs], err);
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

static double ratio_of(double measured, double predicted) {
  return predicted > 0.0 ? measured / predicted : measured > 0.0 ? INFINITY : 1.0;
}

static json_t *number_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static json_t *row_of(const against *a, uint32_t o, uint64_t *failed) {
  bs_port port = {.struct_size = sizeof port};
  double squares = 0.0, kl = 0.0, same = 0.0;
  for (uint32_t s = 0; s < SEEDS; s++) {
    const differs *d = &a->predicted[s * a->n_outputs + o];
    squares += relative(d) * relative(d) / SEEDS;
    kl += mean_kl(d) / SEEDS;
    same += share_of_same(d) / SEEDS;
  }
  const differs *m = &a->measured[o];
  const double predicted = sqrt(squares), ratio = ratio_of(relative(m), predicted);
  const double kl_ratio = ratio_of(mean_kl(m), kl);
  const char *reason = !(ratio <= BS_AGAINST_WHOLE)   ? "the output differs by more than rounding explains"
                       : !(kl_ratio <= BS_AGAINST_KL) ? "the KL divergence is more than rounding explains"
                                                      : "";
  bs_graph_port(a->floats.graph, 0, o, &port, NULL);
  *failed += reason[0] != '\0';
  json_t *row = json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:b, s:s}", "output", bs_model_json_text(port.name),
                          "limit", BS_AGAINST_WHOLE, "kl_limit", BS_AGAINST_KL, "first_same",
                          share_of_same(m), "first_same_predicted", same, "predicted", predicted, "ok",
                          reason[0] == '\0', "reason", reason);
  json_object_set_new(row, "measured", number_or_null(relative(m)));
  json_object_set_new(row, "ratio", number_or_null(ratio));
  json_object_set_new(row, "kl", number_or_null(mean_kl(m)));
  json_object_set_new(row, "kl_predicted", number_or_null(kl));
  json_object_set_new(row, "kl_ratio", number_or_null(kl_ratio));
  return row;
}

static json_t *result_of(const against *a, const char *float_path, const bs_grids *grids) {
  json_t *rows = json_array();
  uint64_t failed = 0;
  for (uint32_t o = 0; o < a->n_outputs; o++) json_array_append_new(rows, row_of(a, o, &failed));
  return json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:o}", "model", bs_model_json_text(a->request->path),
                   "against", bs_model_json_text(float_path), "backend",
                   a->request->backend != NULL ? a->request->backend : "cpu", "inputs", (json_int_t)a->sets,
                   "weights", (json_int_t)grids->n, "unmatched", (json_int_t)grids->other, "failed",
                   (json_int_t)failed, "rows", rows);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static int32_t start_floats(against *a, const char *path, bs_error *err) {
  bs_model_request request = *a->request;
  request.path = path;
  request.weights = NULL;
  request.activations = NULL;
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
  bs_grids grids = {0};
  *out = NULL;
  int32_t rc = bs_onnx_open(request->path, &quantised, err);
  if (rc == BS_OK) rc = bs_onnx_open(float_path, &floats, err);
  if (rc == BS_OK)
    rc = request->weights != NULL
             ? bs_grids_of_schemes(&floats, request->weights, request->activations, &grids, err)
             : bs_grids_find(&quantised, &floats, request->activations, &grids, err);
  if (rc == BS_OK) rc = start_floats(&a, float_path, err);
  if (rc == BS_OK) rc = run_model(&a, request->path, request->weights, request->activations, a.measured, err);
  for (uint32_t s = 0; rc == BS_OK && s < SEEDS; s++) rc = run_noisy(&a, &floats, &grids, s, err);
  if (rc == BS_OK) *out = result_of(&a, float_path, &grids);
  bs_grids_free(&grids);
  bs_onnx_close(&quantised);
  bs_onnx_close(&floats);
  bs_model_close(&a.floats);
  free(a.measured);
  free(a.predicted);
  return rc;
}
