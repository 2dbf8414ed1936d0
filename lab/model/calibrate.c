/* SPDX-License-Identifier: MIT
 * calibrate.c - see calibrate.h. A share is counted in a histogram between the least and the largest number,
 * which a first run of all sets finds. */
#include "lab/model/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/model/inputs.h"
#include "lab/model/sets.h"
#include "lab/stop.h"

enum { BINS = 8192, PASSES_OFF = 4 };

/* Passes that move or join products. */
static const char *const passes_off[PASSES_OFF] = {"merge", "epilogue", "last_token", "alpha"};

static bs_x_range *row_of(bs_x_ranges *r, const char *weight) {
  for (size_t i = 0; i < r->n; i++)
    if (strcmp(r->rows[i].weight, weight) == 0) return &r->rows[i];
  if (r->n == r->room) {
    const size_t room = r->room > 0 ? 2 * r->room : 64;
    bs_x_range *rows = realloc(r->rows, room * sizeof *rows);
    r->failed |= rows == NULL;
    if (rows == NULL) return NULL;
    r->rows = rows;
    r->room = room;
  }
  char *name = strdup(weight);
  r->failed |= name == NULL;
  if (name == NULL) return NULL;
  r->rows[r->n] = (bs_x_range){.weight = name, .low = INFINITY, .high = -INFINITY};
  return &r->rows[r->n++];
}

static void count_value(bs_x_range *row, double v) {
  const double width = row->high - row->low;
  const double place = width > 0.0 ? (v - row->low) / width * BINS : 0.0;
  const double last = BINS - 1;
  row->bins[(size_t)(place < 0.0 ? 0.0 : place > last ? last : place)]++;
  row->count++;
}

static void see(void *user, const bs_node_trace *trace) {
  bs_x_ranges *r = user;
  const int product = trace->weight[0] != '\0' && strcmp(trace->op, "matmul") == 0;
  if (r->failed || !product || trace->n_inputs == 0 || trace->inputs[0] == NULL) return;
  bs_x_range *row = row_of(r, trace->weight);
  uint32_t dtype = 0;
  uint64_t count = 0;
  if (row == NULL) return;
  if (r->counts && row->bins == NULL) row->bins = calloc(BINS, sizeof *row->bins);
  void *dense = bs_model_dense(trace->inputs[0], &dtype, &count);
  r->failed |= dense == NULL || (r->counts && row->bins == NULL);
  for (uint64_t i = 0; !r->failed && i < count; i++) {
    const double v = bs_load_f64(dtype, dense, (int64_t)i);
    if (!isfinite(v)) continue; /* the fill of a mask: it is rounded to an end of the range */
    if (r->counts) {
      count_value(row, v);
      continue;
    }
    if (v < row->low) row->low = v;
    if (v > row->high) row->high = v;
  }
  free(dense);
}

static int32_t run_set(bs_context *context, const bs_model_request *asked, const bs_set *set, bs_x_ranges *r,
                       bs_error *err) {
  bs_model_request request = *asked;
  bs_model model = {0};
  request.inputs = (bs_model_words){(const char *const *)set->words, set->n};
  request.passes = (bs_model_words){passes_off, PASSES_OFF};
  request.weights = NULL;
  request.activations = NULL;
  request.note = NULL;
  int32_t rc = bs_model_open(context, &request, &model, err);
  if (rc == BS_OK) rc = bs_model_start(context, &request, &model, err);
  if (rc == BS_OK) rc = bs_model_set_inputs(&request, &model, err);
  if (rc == BS_OK) {
    rc = bs_session_trace(model.session, see, r, err);
    rc = bs_model_blame_input(&request, &model, rc, err);
  }
  if (rc == BS_OK && r->failed)
    rc = bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the ranges");
  bs_model_close(&model);
  return rc;
}

static int32_t run_sets(bs_context *context, const bs_model_request *request, const bs_sets *sets,
                        bs_x_ranges *r, bs_error *err) {
  int32_t rc = BS_OK;
  for (size_t i = 0; rc == BS_OK && i < sets->n; i++) {
    if (request->progress != NULL) request->progress(request->progress_user, "calibration", i, sets->n);
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = run_set(context, request, &sets->rows[i], r, err);
  }
  return rc;
}

/* The narrowest range of bins beyond whose ends lies at most half of the rest, each. */
static void narrow(bs_x_range *row, double keep) {
  const double most = (1.0 - keep) / 2.0 * (double)row->count, width = (row->high - row->low) / BINS;
  size_t first = 0, last = BINS - 1;
  uint64_t below = 0, above = 0;
  while (first < last && (double)(below + row->bins[first]) <= most) below += row->bins[first++];
  while (last > first && (double)(above + row->bins[last]) <= most) above += row->bins[last--];
  row->high = row->low + width * (double)(last + 1);
  row->low += width * (double)first;
}

/* Ranges of no finite number serve nothing; of some products alone (an empty X) they are left out. */
static int32_t check_ranges(const bs_x_ranges *r, const char *folder, bs_error *err) {
  for (size_t i = 0; i < r->n; i++)
    if (r->rows[i].low <= r->rows[i].high) return BS_OK;
  if (r->n == 0) return BS_OK;
  bs_error_set(err, BS_INPUT, "BS-QUANT-CALIBRATE",
               "the inputs in %.200s give no finite number in X of any product", folder);
  bs_error_hint(err, "the first product is that of %.100s; are there NaN in the inputs?", r->rows[0].weight);
  return BS_INPUT;
}

int32_t bs_calibrate(bs_context *context, const bs_model_request *request, const char *folder, double keep,
                     bs_x_ranges *out, bs_error *err) {
  bs_model model = {0};
  bs_sets sets = {0};
  bs_model_request plain = *request;
  plain.weights = NULL;
  plain.note = NULL;
  *out = (bs_x_ranges){.keep = keep};
  int32_t rc = bs_model_open(context, &plain, &model, err);
  if (rc == BS_OK) rc = bs_sets_read(folder, model.graph, &sets, err);
  bs_model_close(&model);
  if (rc == BS_OK) rc = run_sets(context, request, &sets, out, err);
  if (rc == BS_OK) rc = check_ranges(out, folder, err);
  out->counts = keep < 1.0;
  if (rc == BS_OK && out->counts) rc = run_sets(context, request, &sets, out, err);
  for (size_t i = 0; rc == BS_OK && out->counts && i < out->n; i++)
    if (out->rows[i].bins != NULL && out->rows[i].count > 0) narrow(&out->rows[i], keep);
  out->sets = sets.n;
  bs_sets_free(&sets);
  return rc;
}

const bs_x_range *bs_x_range_of(const bs_x_ranges *ranges, const char *weight) {
  for (size_t i = 0; i < ranges->n; i++)
    if (strcmp(ranges->rows[i].weight, weight) == 0) return &ranges->rows[i];
  return NULL;
}

void bs_x_ranges_free(bs_x_ranges *ranges) {
  for (size_t i = 0; i < ranges->n; i++) {
    free(ranges->rows[i].weight);
    free(ranges->rows[i].bins);
  }
  free(ranges->rows);
  *ranges = (bs_x_ranges){0};
}
