/* SPDX-License-Identifier: MIT
 * against.c - see against.h. */
#include "lab/model/against.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "formats/onnx.h"
#include "lab/model/grids.h"
#include "lab/model/layers.h"
#include "lab/model/noise.h"
#include "lab/model/pair.h"
#include "lab/model/quantize.h"

enum { SEEDS = BS_LAYERS_COPIES - 1, MORE_PASSES = 4 };

/* Passes that join a product with nodes before it, after it, or with another product of the same X. */
static const char *const passes_off[MORE_PASSES] = {"merge", "epilogue", "last_token", "alpha"};

/* Ratios are of errors that are at least those of f32 sums. */
static const double ROUND_OFF = 1e-6, KL_ROUND_OFF = 1e-12;

typedef struct against {
  bs_pair pair;
  bs_model_request request;         /* with the passes */
  bs_differs *measured, *predicted; /* [n_outputs], [SEEDS][n_outputs] */
  uint32_t copy;                    /* that runs now; 0: the measured model */
  bs_grids grids;
  bs_layers layers;
  const char **passes; /* those of the request, and passes_off */
  size_t n_passes;
} against;

static void next_run(void *user) {
  against *a = user;
  bs_layers_next(&a->layers, a->copy);
}

static void keep(void *user, const bs_node_trace *row) {
  bs_layers_keep(&((against *)user)->layers, row);
}

static void compare(void *user, const bs_node_trace *row) {
  bs_layers_compare(&((against *)user)->layers, row);
}

/* Model number `copy`; 0: the measured one. */
static int32_t run_model(against *a, const char *path, const char *weights, const char *activations,
                         uint32_t copy, bs_error *err) {
  bs_differs *to = copy == 0 ? a->measured : &a->predicted[(copy - 1) * a->pair.n_outputs];
  a->copy = copy;
  const int32_t rc = bs_pair_run(&a->pair, path, weights, activations, to, err);
  if (rc != BS_OK || !a->layers.failed) return rc;
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the outputs of layers");
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
  if (a->request.progress != NULL) a->request.progress(a->request.progress_user, "noisy copies", seed, SEEDS);
  int32_t rc = bs_grids_noisy_copy(floats, &a->grids, seed + 1, path, err);
  if (rc == BS_OK) rc = run_model(a, path, NULL, NULL, seed + 1, err);
  unlink(path);
  return rc;
}

/* ---- the result ---------------------------------------------------------------------------------- */

static double share_of_same(const bs_differs *d) {
  return d->rows > 0 ? (double)d->same / (double)d->rows : 1.0;
}

static json_t *number_or_null(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

/* {set, row} of the first row whose largest number is at another place; null: no row differs so. */
static json_t *first_of(const against *a, const bs_differs *d) {
  const uint64_t rows = d->rows / a->pair.sets;
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

static void note_empty(json_t *notes, const char *output, const bs_differs *d) {
  char text[300];
  if (d->numbers > 0) return;
  snprintf(text, sizeof text, "output %.200s has no finite number: nothing of it was compared", output);
  json_array_append_new(notes, bs_model_json_text(text));
}

static json_t *row_of(const against *a, uint32_t o, json_t *notes, uint64_t *failed) {
  bs_port port = {.struct_size = sizeof port};
  double squares = 0.0, kl = 0.0, same = 0.0;
  for (uint32_t s = 0; s < SEEDS; s++) {
    const bs_differs *d = &a->predicted[s * a->pair.n_outputs + o];
    squares += bs_differs_relative(d) * bs_differs_relative(d) / SEEDS;
    kl += bs_differs_kl(d) / SEEDS;
    same += share_of_same(d) / SEEDS;
  }
  const bs_differs *m = &a->measured[o];
  const double predicted = sqrt(squares);
  const double ratio = bs_differs_ratio(bs_differs_relative(m), predicted, ROUND_OFF);
  const double kl_ratio = bs_differs_ratio(bs_differs_kl(m), kl, KL_ROUND_OFF);
  const char *reason = !(ratio <= BS_AGAINST_WHOLE)   ? "the output differs by more than rounding explains"
                       : !(kl_ratio <= BS_AGAINST_KL) ? "the KL divergence is more than rounding explains"
                                                      : "";
  bs_graph_port(a->pair.floats.graph, 0, o, &port, NULL);
  *failed += reason[0] != '\0';
  json_t *row = json_pack("{s:o, s:f, s:f, s:f, s:f, s:o, s:b, s:s}", "output", bs_model_json_text(port.name),
                          "limit", BS_AGAINST_WHOLE, "kl_limit", BS_AGAINST_KL, "first_same",
                          share_of_same(m), "first_same_predicted", same, "predicted",
                          number_or_null(predicted), "ok", reason[0] == '\0', "reason", reason);
  note_good(notes, port.name, ratio);
  note_empty(notes, port.name, m);
  json_object_set_new(row, "first_differs", first_of(a, m));
  json_object_set_new(row, "measured", number_or_null(bs_differs_relative(m)));
  json_object_set_new(row, "ratio", number_or_null(ratio));
  json_object_set_new(row, "kl", number_or_null(bs_differs_kl(m)));
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
  for (size_t i = 0; rc == BS_OK && a->request.weights == NULL && i < n; i++) {
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
  for (uint32_t o = 0; o < a->pair.n_outputs; o++) json_array_append_new(rows, row_of(a, o, notes, &failed));
  json_t *layers = bs_layers_result(&a->layers, notes, &failed);
  const int32_t rc = note_floats(a, floats, notes, err);
  *out = json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "model",
                   bs_model_json_text(a->request.path), "against", bs_model_json_text(float_path), "backend",
                   a->request.backend != NULL ? a->request.backend : "cpu", "inputs",
                   (json_int_t)a->pair.sets, "weights", (json_int_t)a->grids.n, "unmatched",
                   (json_int_t)a->grids.other, "failed", (json_int_t)failed, "rows", rows, "worst",
                   worst_of(layers), "layers", layers, "notes", notes);
  return rc;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static int32_t start_floats(against *a, const char *path, bs_error *err) {
  const bs_model_words asked = a->request.passes;
  a->passes = calloc(asked.n + MORE_PASSES, sizeof *a->passes);
  if (a->passes == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for words");
  for (size_t i = 0; i < asked.n; i++) a->passes[a->n_passes++] = asked.words[i];
  for (size_t i = 0; i < MORE_PASSES; i++) a->passes[a->n_passes++] = passes_off[i];
  a->request.passes = (bs_model_words){a->passes, a->n_passes};
  const int32_t rc = bs_pair_open(&a->pair, path, err);
  if (rc != BS_OK) return rc;
  const uint32_t n = a->pair.n_outputs + 1u;
  a->measured = calloc(n, sizeof *a->measured);
  a->predicted = calloc(SEEDS * n, sizeof *a->predicted);
  if (a->measured != NULL && a->predicted != NULL) return BS_OK;
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for %u outputs", n - 1);
}

int32_t bs_model_against(bs_context *context, const bs_model_request *request, const char *float_path,
                         json_t **out, bs_error *err) {
  against a = {.request = *request};
  bs_onnx quantised = {0}, floats = {0};
  *out = NULL;
  a.layers.grids = &a.grids;
  a.pair = (bs_pair){.context = context,
                     .request = &a.request,
                     .next = next_run,
                     .keep = keep,
                     .compare = compare,
                     .user = &a};
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
  bs_pair_close(&a.pair);
  free(a.passes);
  free(a.measured);
  free(a.predicted);
  return rc;
}
