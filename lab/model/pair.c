/* SPDX-License-Identifier: MIT
 * pair.c - see pair.h. */
#include "lab/model/pair.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "lab/model/inputs.h"
#include "lab/stop.h"

enum { SETS = 4 };

int bs_differs_same_fill(double f, double v) {
  return isnan(f) ? isnan(v) : isinf(f) && v == f;
}

/* The KL divergence of the softmax of a row, which a row has whose largest number is finite. */
static void take_kl(const double *f, const double *v, int64_t n, double most_f, double most_v,
                    bs_differs *d) {
  double sum_f = 0.0, sum_v = 0.0;
  if (!isfinite(most_f) || !isfinite(most_v)) return;
  for (int64_t i = 0; i < n; i++) {
    if (bs_differs_same_fill(f[i], v[i])) continue;
    sum_f += exp(f[i] - most_f);
    sum_v += exp(v[i] - most_v);
  }
  for (int64_t i = 0; i < n; i++) {
    if (bs_differs_same_fill(f[i], v[i])) continue;
    const double log_f = f[i] - most_f - log(sum_f), log_v = v[i] - most_v - log(sum_v);
    d->kl += exp(log_f) * (log_f - log_v);
  }
  d->kl_rows++;
}

static void count_row(bs_differs *d, int same) {
  if (!same && d->same == d->rows) d->first = d->rows;
  d->rows++;
  d->same += same != 0;
}

/* Compares a row of n numbers of the float output with the same row of the other model. */
static void take_row(const double *f, const double *v, int64_t n, bs_differs *d) {
  double most_f = -INFINITY, most_v = -INFINITY;
  int64_t at_f = 0, at_v = 0;
  for (int64_t i = 0; i < n; i++) {
    if (f[i] > most_f) most_f = f[at_f = i];
    if (v[i] > most_v) most_v = v[at_v = i];
    if (bs_differs_same_fill(f[i], v[i])) continue;
    d->numbers++;
    d->changed += (v[i] - f[i]) * (v[i] - f[i]);
    if (isfinite(f[i])) d->size += f[i] * f[i];
  }
  take_kl(f, v, n, most_f, most_v, d);
  count_row(d, at_f == at_v);
}

/* The numbers of an output as f64, malloc'd; NULL: no memory. Whole numbers (indices) are rows of their own.
 */
static double *numbers(bs_session *session, uint32_t port, uint64_t *out_count, int64_t *out_row,
                       bs_error *err) {
  bs_tensor t = {.struct_size = sizeof t};
  uint32_t dtype = 0;
  if (bs_session_get(session, port, &t, err) != BS_OK) return NULL;
  void *dense = bs_model_dense(&t, &dtype, out_count);
  double *wide = dense != NULL ? malloc(*out_count * sizeof *wide + 1) : NULL;
  for (uint64_t i = 0; wide != NULL && i < *out_count; i++) wide[i] = bs_load_f64(dtype, dense, (int64_t)i);
  *out_row = !bs_dtype_is_float(dtype) ? 0 : t.rank > 0 ? t.dims[t.rank - 1] : 1;
  free(dense);
  if (wide == NULL) bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for an output");
  return wide;
}

static int32_t compare_outputs(bs_pair *p, bs_session *other, bs_differs *to, bs_error *err) {
  for (uint32_t o = 0; o < p->n_outputs; o++) {
    uint64_t n_f = 0, n_v = 0;
    int64_t row_f = 1, row_v = 1;
    double *f = numbers(p->floats.session, p->n_inputs + o, &n_f, &row_f, err);
    double *v = f != NULL ? numbers(other, p->n_inputs + o, &n_v, &row_v, err) : NULL;
    int32_t rc = v != NULL ? BS_OK : BS_NO_MEMORY;
    if (rc == BS_OK && (n_f != n_v || row_f != row_v))
      rc = bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-PORTS", "output %u differs in its shape", o);
    for (uint64_t at = 0; rc == BS_OK && row_f > 0 && at < n_f; at += (uint64_t)row_f)
      take_row(f + at, v + at, row_f, &to[o]);
    for (uint64_t i = 0; rc == BS_OK && row_f == 0 && i < n_f; i++, to[o].numbers++)
      count_row(&to[o], f[i] == v[i]);
    free(f);
    free(v);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t run_one(bs_pair *p, bs_session *session, bs_pair_see see, bs_error *err) {
  if (see == NULL) return bs_session_run(session, err);
  p->next(p->user);
  return bs_session_trace(session, see, p->user, err);
}

/* Gives the other session the inputs of the float one, and runs both. */
static int32_t run_both(bs_pair *p, bs_session *other, bs_error *err) {
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < p->n_inputs; i++) {
    bs_tensor t = {.struct_size = sizeof t};
    rc = bs_session_get(p->floats.session, i, &t, err);
    if (rc == BS_OK) rc = bs_session_set(other, i, &t, err);
  }
  if (rc == BS_OK) rc = run_one(p, p->floats.session, p->keep, err);
  return rc == BS_OK ? run_one(p, other, p->compare, err) : rc;
}

static int32_t same_ports(const bs_pair *p, const bs_graph *other, bs_error *err) {
  for (uint32_t inputs = 0; inputs < 2; inputs++) {
    const uint32_t n = bs_graph_port_count(p->floats.graph, inputs);
    int same = bs_graph_port_count(other, inputs) == n;
    for (uint32_t i = 0; same && i < n; i++) {
      bs_port f = {.struct_size = sizeof f}, v = {.struct_size = sizeof v};
      same = bs_graph_port(p->floats.graph, inputs, i, &f, err) == BS_OK &&
             bs_graph_port(other, inputs, i, &v, err) == BS_OK && strcmp(f.name, v.name) == 0;
    }
    if (!same)
      return bs_error_set(err, BS_UNSUPPORTED, "BS-QUANT-PORTS", "the two models have other %s",
                          inputs ? "inputs" : "outputs");
  }
  return BS_OK;
}

/* The request for one of the models. */
static bs_model_request request_for(const bs_pair *p, const char *path) {
  bs_model_request request = *p->request;
  request.path = path;
  request.weights = NULL;
  request.activations = NULL;
  return request;
}

int32_t bs_pair_run(bs_pair *p, const char *path, const char *weights, const char *activations,
                    bs_differs *to, bs_error *err) {
  bs_model_request request = request_for(p, path);
  bs_model model = {0};
  request.weights = weights;
  request.activations = activations;
  request.note = NULL;
  int32_t rc = bs_model_open(p->context, &request, &model, err);
  if (rc == BS_OK) rc = same_ports(p, model.graph, err);
  for (size_t i = 0; rc == BS_OK && i < p->floats.n_dims; i++)
    rc = bs_model_set_dim(&model, p->floats.dims[i].name, p->floats.dims[i].size, err);
  if (rc == BS_OK) rc = bs_model_start(p->context, &request, &model, err);
  for (uint32_t set = 0; rc == BS_OK && set < p->sets; set++) {
    p->floats.seed = p->request->seed + set;
    rc = bs_stop_check(err);
    if (rc == BS_OK) rc = bs_model_set_inputs(&request, &p->floats, err);
    if (rc == BS_OK) rc = run_both(p, model.session, err);
    if (rc == BS_OK) rc = compare_outputs(p, model.session, to, err);
  }
  bs_model_close(&model);
  return rc;
}

int32_t bs_pair_open(bs_pair *p, const char *path, bs_error *err) {
  const bs_model_request request = request_for(p, path);
  int32_t rc = bs_model_open(p->context, &request, &p->floats, err);
  if (rc == BS_OK) rc = bs_model_start(p->context, &request, &p->floats, err);
  if (rc == BS_OK) rc = bs_model_find_domains(&request, &p->floats, err);
  if (rc != BS_OK) return rc;
  p->n_inputs = bs_graph_port_count(p->floats.graph, 1);
  p->n_outputs = bs_graph_port_count(p->floats.graph, 0);
  p->sets = bs_model_makes_inputs(&p->floats) ? SETS : 1;
  return BS_OK;
}

void bs_pair_close(bs_pair *p) {
  bs_model_close(&p->floats);
}

double bs_differs_relative(const bs_differs *d) {
  return d->size > 0.0 ? sqrt(d->changed / d->size) : d->changed == 0.0 ? 0.0 : INFINITY;
}

double bs_differs_kl(const bs_differs *d) {
  return d->kl_rows > 0 ? d->kl / (double)d->kl_rows : 0.0;
}

double bs_differs_ratio(double measured, double predicted, double least) {
  return (measured < least ? least : measured) / (predicted < least ? least : predicted);
}
