/* SPDX-License-Identifier: MIT
 * budget.c - see budget.h. The sum of what units cost alone is the estimate; the whole corrects it. */
#include "lab/model/budget.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/op/quant.h"
#include "lab/model/grids.h"
#include "lab/model/pair.h"
#include "lab/model/quantize.h"
#include "lab/model/sets.h"

enum { SCHEMES = 3, FLOAT = 2, SETS_MOST = 4, ROUNDS = 8, OPSET_ROWS = 13, OPSET_BLOCKS = 21 };
static const char *const schemes[SCHEMES] = {"w4g32", "w8", "float"};

typedef struct unit {
  int first, now; /* its first scheme that the model can hold, the one chosen */
  double kl[SCHEMES], bytes[SCHEMES];
} unit;

typedef struct budget {
  const bs_budget_request *asked;
  const bs_model_request *request;
  bs_quantize_weight *weights;
  size_t n_weights, n_units;
  size_t *unit_of; /* of each weight; n_weights: it stays as it is */
  unit *units;
  double count; /* elements of all weights in units */
  bs_sets sets;
  bs_pair pairs[SETS_MOST];
  bs_model_request requests[SETS_MOST]; /* of the pairs */
  size_t n_pairs;
  uint64_t runs;
  uint32_t rounds;
  double correction; /* KL of the whole over the sum of its units */
} budget;

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-QUANT-MEMORY", "no memory for the choice of schemes");
}

/* ---- units --------------------------------------------------------------------------------------- */

static size_t weight_at(const budget *b, const bs_onnx_tensor *tensor) {
  size_t i = 0;
  while (i < b->n_weights && b->weights[i].tensor != tensor) i++;
  return i;
}

/* Both weights are of one unit. */
static void join(budget *b, size_t a, size_t c) {
  const size_t from = b->unit_of[a], to = b->unit_of[c];
  for (size_t i = 0; i < b->n_weights; i++)
    if (b->unit_of[i] == from) b->unit_of[i] = to;
}

/* Weights of products that read one value. */
static void join_readers(budget *b, const bs_onnx_graph *g) {
  for (uint32_t n = 0; n < g->n_nodes; n++) {
    const size_t a = weight_at(b, bs_product_weight(g, &g->nodes[n]));
    if (a == b->n_weights || b->unit_of[a] == b->n_weights) continue;
    for (uint32_t m = 0; m < n; m++) {
      const size_t c = weight_at(b, bs_product_weight(g, &g->nodes[m]));
      if (c == b->n_weights || b->unit_of[c] == b->n_weights) continue;
      if (bs_span_same(g->nodes[n].inputs[0], g->nodes[m].inputs[0])) join(b, a, c);
    }
  }
}

/* Names of the list can have no sign that ends an entry, and are at most so long. */
static int can_be_named(bs_span name) {
  if (name.size == 0 || name.size > 180) return 0;
  for (uint64_t i = 0; i < name.size; i++)
    if (strchr(";,=*?[]\\", name.data[i]) != NULL) return 0;
  return 1;
}

static int first_scheme(const bs_quantize_weight *w, int64_t opset, uint32_t format) {
  const int nbits = format == BS_QUANTIZE_NBITS || opset < OPSET_BLOCKS;
  if (nbits ? w->nbits != 0 : 1) return 0;
  return opset >= OPSET_ROWS ? 1 : FLOAT;
}

static int32_t add_sizes(unit *u, const bs_quantize_weight *w, bs_error *err) {
  for (int s = 0; s < FLOAT; s++) {
    bs_quant form;
    const int32_t rc = bs_quant_scheme(schemes[s], w->rows, w->cols, &form, err);
    if (rc != BS_OK) return rc;
    u->bytes[s] += (double)bs_quant_bytes(&form);
  }
  u->bytes[FLOAT] += (double)w->tensor->bytes;
  return BS_OK;
}

static int64_t opset_of(const bs_onnx *model) {
  for (uint32_t i = 0; i < model->n_opsets; i++)
    if (model->opsets[i].domain.size == 0) return model->opsets[i].version;
  return 0;
}

/* Units are numbered in the order of the file. */
static int32_t make_units(budget *b, const bs_onnx *model, bs_error *err) {
  int32_t rc = bs_quantize_pick(model, &b->weights, &b->n_weights, err);
  if (rc != BS_OK) return rc;
  const size_t n = b->n_weights;
  size_t *numbers = calloc(n + 1, sizeof *numbers);
  b->unit_of = calloc(n + 1, sizeof *b->unit_of);
  b->units = calloc(n + 1, sizeof *b->units);
  if (numbers == NULL || b->unit_of == NULL || b->units == NULL) rc = no_memory(err);
  for (size_t i = 0; rc == BS_OK && i < n; i++)
    b->unit_of[i] = b->weights[i].reason == NULL && can_be_named(b->weights[i].tensor->name) ? i : n;
  if (rc == BS_OK) join_readers(b, model->graph);
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    const size_t at = b->unit_of[i];
    if (at == n) continue;
    if (numbers[at] == 0) numbers[at] = ++b->n_units;
    unit *u = &b->units[b->unit_of[i] = numbers[at] - 1];
    const int first = first_scheme(&b->weights[i], opset_of(model), BS_QUANTIZE_AUTO);
    u->first = u->now = first > u->first ? first : u->first;
    b->count += (double)b->weights[i].tensor->count;
    rc = add_sizes(u, &b->weights[i], err);
  }
  free(numbers);
  if (rc != BS_OK || b->n_units > 0) return rc;
  return bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-NOTHING", "no weight of the model can be quantised");
}

/* ---- what schemes cost ---------------------------------------------------------------------------- */

/* The list for the chosen schemes; only: of one unit, in scheme s, the others as floats. */
static char *list_of(const budget *b, const unit *only, int s) {
  bs_text text = {0};
  for (size_t i = 0; i < b->n_weights; i++) {
    const bs_span name = b->weights[i].tensor->name;
    const unit *u = b->unit_of[i] < b->n_units ? &b->units[b->unit_of[i]] : NULL;
    const int scheme = u == NULL ? FLOAT : only == NULL ? u->now : u == only ? s : FLOAT;
    if (u != NULL && scheme != FLOAT)
      bs_text_printf(&text, "%.*s=%s;", (int)name.size, name.data, schemes[scheme]);
  }
  bs_text_printf(&text, "*=float");
  return text.data;
}

/* The mean over sets of inputs of the KL divergences of all outputs together. */
static int32_t run_list(budget *b, const unit *only, int s, double *out_kl, bs_error *err) {
  char *list = list_of(b, only, s);
  uint64_t rows = 0;
  int32_t rc = list != NULL ? BS_OK : no_memory(err);
  *out_kl = 0.0;
  for (size_t p = 0; rc == BS_OK && p < b->n_pairs; p++) {
    bs_pair *pair = &b->pairs[p];
    bs_differs *differs = calloc(pair->n_outputs + 1u, sizeof *differs);
    rc = differs != NULL ? bs_pair_run(pair, b->request->path, list, NULL, differs, err) : no_memory(err);
    for (uint32_t o = 0; rc == BS_OK && o < pair->n_outputs; o++) {
      *out_kl += bs_differs_kl(&differs[o]) / (double)b->n_pairs;
      rows += differs[o].kl_rows;
    }
    free(differs);
  }
  b->runs++;
  free(list);
  if (rc != BS_OK || rows > 0) return rc;
  bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-BUDGET",
               "no output has a row of finite numbers: there is no KL");
  bs_error_hint(err, "give other inputs by `calibrate`, and the model an output of floats (logits)");
  return BS_UNSUPPORTED;
}

static int32_t open_pairs(budget *b, bs_context *context, bs_error *err) {
  bs_model model = {0};
  int32_t rc = BS_OK;
  if (b->asked->folder != NULL) {
    bs_model_request plain = *b->request;
    plain.weights = NULL;
    plain.note = NULL;
    rc = bs_model_open(context, &plain, &model, err);
    if (rc == BS_OK) rc = bs_sets_read(b->asked->folder, model.graph, &b->sets, err);
    bs_model_close(&model);
  }
  const size_t sets = b->sets.n > 0 ? b->sets.n : 1, n = sets < SETS_MOST ? sets : SETS_MOST;
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    b->requests[i] = *b->request;
    if (b->sets.n > 0) {
      const bs_set *set = &b->sets.rows[i * b->sets.n / n];
      b->requests[i].inputs = (bs_model_words){(const char *const *)set->words, set->n};
    }
    b->pairs[i] = (bs_pair){.context = context, .request = &b->requests[i]};
    b->n_pairs = i + 1;
    rc = bs_pair_open(&b->pairs[i], b->request->path, err);
  }
  return rc;
}

static int32_t run_units(budget *b, bs_error *err) {
  for (size_t i = 0; i < b->n_units; i++)
    for (int s = b->units[i].first; s < FLOAT; s++) {
      const int32_t rc = run_list(b, &b->units[i], s, &b->units[i].kl[s], err);
      if (rc != BS_OK) return rc;
      if (b->request->progress != NULL)
        b->request->progress(b->request->progress_user, "units", i, b->n_units);
    }
  return BS_OK;
}

/* ---- the choice ----------------------------------------------------------------------------------- */

static double bytes_of(const budget *b) {
  double sum = 0.0;
  for (size_t i = 0; i < b->n_units; i++) sum += b->units[i].bytes[b->units[i].now];
  return sum;
}

static double kl_of(const budget *b) {
  double sum = 0.0;
  for (size_t i = 0; i < b->n_units; i++) sum += b->units[i].kl[b->units[i].now];
  return sum * b->correction;
}

/* Raises the unit that saves most KL for each byte, of those that cost at most `room` bytes. 0: no unit
 * does. */
static int raise_one(budget *b, double room) {
  unit *best = NULL;
  int to = 0;
  double most = -1.0;
  for (size_t i = 0; i < b->n_units; i++) {
    unit *u = &b->units[i];
    for (int s = u->now + 1; s < SCHEMES; s++) {
      const double more = u->bytes[s] - u->bytes[u->now], less = u->kl[u->now] - u->kl[s];
      const double gain = more > 0.0 ? less / more : INFINITY;
      if (more > room || !(gain > most) || !(less > 0.0)) continue;
      most = gain;
      best = u;
      to = s;
    }
  }
  if (best != NULL) best->now = to;
  return best != NULL;
}

static int all_floats(const budget *b) {
  for (size_t i = 0; i < b->n_units; i++)
    if (b->units[i].now != FLOAT) return 0;
  return 1;
}

static int32_t cannot(const budget *b, double kl, bs_error *err) {
  if (b->asked->kl > 0.0 && all_floats(b)) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-BUDGET", "kl=%g: every weight would stay a float",
                 b->asked->kl);
    bs_error_hint(err, "allow a larger KL");
  } else if (b->asked->kl > 0.0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-BUDGET",
                 "kl=%g: after %u rounds KL is %.3g, with %.2f bits a weight", b->asked->kl, b->rounds, kl,
                 8.0 * bytes_of(b) / b->count);
    bs_error_hint(err, "allow a larger KL");
  } else {
    bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-BUDGET",
                 "bits=%g: the weights of the model take at least %.3f bits", b->asked->bits,
                 8.0 * bytes_of(b) / b->count);
    bs_error_hint(err, "allow more bits");
  }
  return BS_UNSUPPORTED;
}

static int32_t choose_by_kl(budget *b, double *out_kl, bs_error *err) {
  for (b->rounds = 1; b->rounds <= ROUNDS; b->rounds++) {
    while (kl_of(b) > b->asked->kl && raise_one(b, INFINITY)) continue;
    const int32_t rc = run_list(b, NULL, 0, out_kl, err);
    if (rc != BS_OK) return rc;
    if (all_floats(b)) break;
    if (*out_kl <= b->asked->kl) return BS_OK;
    const double sum = kl_of(b);
    b->correction *= sum > 0.0 ? *out_kl / sum : 2.0;
  }
  b->rounds = b->rounds > ROUNDS ? ROUNDS : b->rounds;
  return cannot(b, *out_kl, err);
}

static int32_t choose_by_bits(budget *b, double *out_kl, bs_error *err) {
  const double most = b->asked->bits * b->count / 8.0;
  if (bytes_of(b) > most) return cannot(b, 0.0, err);
  while (raise_one(b, most - bytes_of(b))) continue;
  b->rounds = 1;
  if (all_floats(b)) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-BUDGET", "bits=%g: every weight fits as a float",
                 b->asked->bits);
    bs_error_hint(err, "allow fewer bits");
    return BS_UNSUPPORTED;
  }
  return run_list(b, NULL, 0, out_kl, err);
}

int32_t bs_model_budget(bs_context *context, const bs_model_request *request, const bs_budget_request *asked,
                        char **out_list, json_t **out, bs_error *err) {
  budget b = {.asked = asked, .request = request, .correction = 1.0};
  bs_onnx model = {0};
  double kl = 0.0;
  *out_list = NULL;
  *out = NULL;
  int32_t rc = bs_onnx_open(request->path, &model, err);
  if (rc == BS_OK) rc = make_units(&b, &model, err);
  if (rc == BS_OK) rc = open_pairs(&b, context, err);
  if (rc == BS_OK) rc = run_units(&b, err);
  if (rc == BS_OK) rc = asked->kl > 0.0 ? choose_by_kl(&b, &kl, err) : choose_by_bits(&b, &kl, err);
  if (rc == BS_OK && (*out_list = list_of(&b, NULL, 0)) == NULL) rc = no_memory(err);
  if (rc == BS_OK)
    *out = json_pack("{s:f, s:f, s:I, s:I, s:I, s:I}", "kl", kl, "bits", 8.0 * bytes_of(&b) / b.count,
                     "bytes", (json_int_t)bytes_of(&b), "units", (json_int_t)b.n_units, "rounds",
                     (json_int_t)b.rounds, "runs", (json_int_t)b.runs);
  for (size_t i = 0; i < b.n_pairs; i++) bs_pair_close(&b.pairs[i]);
  bs_sets_free(&b.sets);
  bs_onnx_close(&model);
  free(b.weights);
  free(b.unit_of);
  free(b.units);
  return rc;
}
