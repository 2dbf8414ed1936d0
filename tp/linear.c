/* SPDX-License-Identifier: MIT
 *
 * linear.c - linear layers over the tensor group: a bs_layer of any method with the placements of
 * ColumnParallelLinear or RowParallelLinear, its gradients, and a bias that the caller adds. Weights are read
 * back in linear_weights.c.
 */
#include "tp/linear.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"

static int32_t contradicts(bs_error *err, const char *what) {
  return bs_error_set(err, BS_CONFIG, "BS-TP-LINEAR", "%s", what);
}

static int32_t check_spec(const bs_tp_linear_spec *s, int is_row, bs_error *err) {
  const int32_t rc = tp_size("bs_tp_linear_spec", s->struct_size, offsetof(bs_tp_linear_spec, method), err);
  if (rc != BS_OK) return rc;
  if (is_row && s->gather_output) return contradicts(err, "gather_output is an option of column layers");
  if (!is_row && s->input_is_parallel)
    return contradicts(err, "input_is_parallel is an option of row layers");
  if (s->skip_bias_add && s->activation != BS_ACT_NONE)
    return contradicts(err, "an activation cannot come before the bias that the caller adds");
  return BS_OK;
}

/* The spec of the method's layer. A group of one has everything. */
static void fill_spec(bs_tp_linear *l, const bs_tp_linear_spec *s, int is_row) {
  bs_layer_spec *m = &l->spec;
  m->struct_size = (uint32_t)sizeof *m;
  m->has_bias = s->bias && !s->skip_bias_add;
  m->B = s->tokens;
  m->N = s->out_features;
  m->K = s->in_features;
  m->x_dtype = s->x_dtype != 0 ? s->x_dtype : (uint32_t)BS_F32;
  m->w_dtype = s->w_dtype != 0 ? s->w_dtype : m->x_dtype;
  m->y_dtype = s->y_dtype != 0 ? s->y_dtype : m->x_dtype;
  m->reduce_dtype = s->reduce_dtype;
  m->activation = s->activation;
  m->x_placement = is_row && s->input_is_parallel ? BS_SPLIT : BS_REPLICATED;
  m->y_placement = is_row || s->gather_output ? BS_REPLICATED : BS_SPLIT;
  m->mask = s->mask;
  m->flags = s->flags;
  m->n_options = s->n_options;
  m->option_keys = s->option_keys;
  m->option_values = s->option_values;
}

static int32_t find_shape(bs_tp_linear *l, bs_error *err) {
  const bs_tp_place *p = &l->state->place;
  const int32_t rc = bs_layer_owns(l->layer, &l->own, err);
  if (rc != BS_OK) return rc;
  const int64_t columns = l->own.columns != NULL ? l->own.columns->count : l->spec.K;
  l->shape.struct_size = (uint32_t)sizeof l->shape;
  l->shape.x_features = l->spec.x_placement == BS_SPLIT ? columns : l->spec.K;
  l->shape.y_features = l->spec.N;
  if (l->spec.y_placement == BS_SPLIT)
    tp_share(l->spec.N, p->tensor_rank, p->tensor_size, &l->y_begin, &l->shape.y_features);
  l->shape.rows = l->own.row_count;
  l->shape.cols = l->own.kept != NULL ? (columns + 3) / 4 * 2 : columns;
  return BS_OK;
}

static int32_t make_gradients(bs_tp_linear *l, bs_error *err) {
  const bs_layer_spec *s = &l->spec;
  const int wide = s->x_dtype == BS_F64 || s->w_dtype == BS_F64 || s->y_dtype == BS_F64;
  const uint32_t dtype = wide ? BS_F64 : BS_F32;
  if ((s->flags & BS_LAYER_BACKWARD) == 0) return BS_OK;
  int32_t rc = bs_tp_tensor_make(l->state->rank, dtype, l->shape.rows, l->shape.cols, &l->dw, err);
  if (rc != BS_OK || !s->has_bias) return rc;
  const bs_tensor_desc desc = {.struct_size = (uint32_t)sizeof desc,
                               .dtype = dtype,
                               .rank = 1,
                               .dims = {l->shape.rows},
                               .strides = {1}};
  return bs_rank_get_api()->tensor_alloc(l->state->rank, &desc, BS_LIFE_ACTIVATION, &l->db, err);
}

/* The bias that the caller adds: the columns of the rank's y. */
static int32_t make_bias(bs_tp_linear *l, const bs_source *bias, bs_error *err) {
  const bs_partition own = {.struct_size = (uint32_t)sizeof own,
                            .kind = BS_PARTITION_CONTIGUOUS,
                            .total = l->spec.N,
                            .begin = l->y_begin,
                            .count = l->shape.y_features};
  if (bias == NULL || bias->rows != 1 || bias->cols != l->spec.N)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-LAYER-BIAS", "the bias must be 1 x %" PRId64,
                        l->spec.N);
  const int32_t rc =
      bs_tp_tensor_make(l->state->rank, l->spec.y_dtype, 1, l->shape.y_features, &l->bias, err);
  if (rc != BS_OK || l->shape.y_features == 0) return rc;
  return bs_rank_get_api()->tensor_read(l->state->rank, bias, 0, &own, &l->bias, err);
}

static int32_t build(bs_tp_linear *l, const char *method, const bs_tp_linear_spec *spec,
                     const bs_source *weights, const bs_source *bias, bs_error *err) {
  bs_group *group = l->state->place.tensor_group;
  int32_t rc = group != NULL
                   ? bs_layer_build_in(group, method, &l->spec, weights, bias, &l->layer, err)
                   : bs_layer_build(l->state->rank, method, &l->spec, weights, bias, &l->layer, err);
  if (rc == BS_OK) rc = find_shape(l, err);
  if (rc == BS_OK) rc = make_gradients(l, err);
  if (rc == BS_OK && spec->bias && spec->skip_bias_add) rc = make_bias(l, bias, err);
  return rc;
}

static int32_t make(bs_rank *rank, int is_row, const bs_tp_linear_spec *given, const bs_source *weights,
                    const bs_source *bias, bs_tp_linear **out_linear, bs_error *err) {
  tp_state *state;
  bs_tp_linear_spec spec;
  int32_t rc = tp_state_of(rank, &state, err);
  if (rc == BS_OK && (given == NULL || out_linear == NULL))
    rc = tp_null(is_row ? "bs_tp_row_linear" : "bs_tp_column_linear", "spec and out_linear", err);
  if (rc == BS_OK) rc = check_spec(given, is_row, err);
  if (rc != BS_OK) return rc;
  memset(&spec, 0, sizeof spec);
  memcpy(&spec, given, given->struct_size < sizeof spec ? given->struct_size : sizeof spec);
  bs_tp_linear *l = calloc(1, sizeof *l);
  if (l == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-TP-MEMORY", "no memory for a layer");
  state->users++;
  l->state = state;
  fill_spec(l, &spec, is_row);
  const char *usual = is_row ? "row_parallel" : "column_parallel";
  rc = build(l, spec.method != NULL ? spec.method : usual, &spec, weights, bias, err);
  if (rc == BS_OK)
    *out_linear = l;
  else
    bs_tp_linear_free(l);
  return rc;
}

int32_t bs_tp_column_linear(bs_rank *rank, const bs_tp_linear_spec *spec, const bs_source *weights,
                            const bs_source *bias, bs_tp_linear **out_linear, bs_error *err) {
  return make(rank, 0, spec, weights, bias, out_linear, err);
}
int32_t bs_tp_row_linear(bs_rank *rank, const bs_tp_linear_spec *spec, const bs_source *weights,
                         const bs_source *bias, bs_tp_linear **out_linear, bs_error *err) {
  return make(rank, 1, spec, weights, bias, out_linear, err);
}

void bs_tp_linear_free(bs_tp_linear *l) {
  if (l == NULL) return;
  bs_tp_tensor_free(l->state->rank, &l->dw);
  bs_tp_tensor_free(l->state->rank, &l->db);
  bs_tp_tensor_free(l->state->rank, &l->bias);
  bs_layer_free(l->layer);
  tp_state_release(l->state);
  free(l->row_map);
  free(l);
}

int32_t bs_tp_linear_get_shape(const bs_tp_linear *l, bs_tp_linear_shape *out_shape, bs_error *err) {
  if (l == NULL || out_shape == NULL) return tp_null("bs_tp_linear_get_shape", "linear and out_shape", err);
  const uint32_t size = out_shape->struct_size;
  if (tp_size("bs_tp_linear_shape", size, offsetof(bs_tp_linear_shape, y_features), err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  memcpy(out_shape, &l->shape, size < sizeof l->shape ? size : sizeof l->shape);
  out_shape->struct_size = size;
  return BS_OK;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static int32_t check_tensor(const bs_tensor *t, const char *name, uint32_t dtype, int64_t rows, int64_t most,
                            int64_t cols, bs_error *err) {
  if (t != NULL && t->rank == 2 && t->dtype == dtype && t->dims[0] == rows && rows >= 0 && rows <= most &&
      t->dims[1] == cols)
    return BS_OK;
  if (t == NULL || t->rank != 2)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-LINEAR", "%s is no [rows, %" PRId64 "] tensor", name,
                        cols);
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-TP-LINEAR",
                      "%s is %s [%" PRId64 ", %" PRId64 "], this rank needs %s [%" PRId64 ", %" PRId64
                      "], at most %" PRId64 " rows",
                      name, bs_dtype_name(t->dtype), t->dims[0], t->dims[1], bs_dtype_name(dtype), rows, cols,
                      most);
}

static int32_t check_pair(const bs_tp_linear *l, const bs_tensor *x, const bs_tensor *y, const char *y_name,
                          bs_error *err) {
  const bs_layer_spec *s = &l->spec;
  const int64_t rows = x != NULL && x->rank == 2 ? x->dims[0] : -1;
  const int32_t rc = check_tensor(x, "x", s->x_dtype, rows, s->B, l->shape.x_features, err);
  return rc == BS_OK ? check_tensor(y, y_name, s->y_dtype, rows, s->B, l->shape.y_features, err) : rc;
}

int32_t bs_tp_linear_forward(bs_tp_linear *l, const bs_tensor *x, bs_tensor *y, bs_error *err) {
  if (l == NULL) return tp_null("bs_tp_linear_forward", "linear", err);
  int32_t rc = check_pair(l, x, y, "y", err);
  if (rc == BS_OK) rc = tp_await_pass(l->state, x, y, err);
  return rc == BS_OK ? bs_layer_forward(l->layer, x, y, NULL, err) : rc;
}

int32_t bs_tp_linear_backward(bs_tp_linear *l, const bs_tensor *x, const bs_tensor *dy, bs_tensor *dx,
                              bs_error *err) {
  if (l == NULL) return tp_null("bs_tp_linear_backward", "linear", err);
  if ((l->spec.flags & BS_LAYER_BACKWARD) == 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-TP-LINEAR", "the layer was made for forward only");
    bs_error_hint(err, "set BS_LAYER_BACKWARD in its flags");
    return BS_UNSUPPORTED;
  }
  int32_t rc = check_pair(l, x, dy, "dy", err);
  if (rc == BS_OK && dx != NULL)
    rc = check_tensor(dx, "dx", l->spec.x_dtype, x->dims[0], l->spec.B, l->shape.x_features, err);
  if (rc == BS_OK) rc = tp_await_pass(l->state, x, dx, err);
  if (rc == BS_OK) rc = tp_await_pass(l->state, dy, &l->dw, err);
  if (rc == BS_OK) rc = tp_await_pass(l->state, NULL, &l->db, err);
  if (rc != BS_OK) return rc;
  return bs_layer_backward(l->layer, x, dy, dx, &l->dw, l->spec.has_bias ? &l->db : NULL, NULL, err);
}

int32_t bs_tp_linear_gradients(bs_tp_linear *l, bs_tensor **out_dw, bs_tensor **out_db, bs_error *err) {
  if (l == NULL || out_dw == NULL || out_db == NULL)
    return tp_null("bs_tp_linear_gradients", "linear, out_dw and out_db", err);
  if ((l->spec.flags & BS_LAYER_BACKWARD) == 0)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-TP-LINEAR", "the layer was made for forward only");
  *out_dw = &l->dw;
  *out_db = l->spec.has_bias ? &l->db : NULL;
  return BS_OK;
}

int32_t bs_tp_linear_step(bs_tp_linear *l, const bs_step *step, bs_error *err) {
  bs_step own;
  if (l == NULL || step == NULL) return tp_null("bs_tp_linear_step", "linear and step", err);
  if (tp_size("bs_step", step->struct_size, sizeof step->struct_size, err) != BS_OK)
    return BS_INVALID_ARGUMENT;
  memset(&own, 0, sizeof own);
  memcpy(&own, step, step->struct_size < sizeof own ? step->struct_size : sizeof own);
  own.struct_size = (uint32_t)sizeof own;
  own.dw = (l->spec.flags & BS_LAYER_BACKWARD) != 0 ? &l->dw : NULL;
  own.db = l->spec.has_bias ? &l->db : NULL;
  own.x = own.dy = NULL;
  int32_t rc = tp_await_pass(l->state, own.dw, NULL, err);
  if (rc == BS_OK) rc = tp_await_pass(l->state, own.db, NULL, err);
  return rc == BS_OK ? bs_layer_step(l->layer, &own, NULL, err) : rc;
}

bs_tensor *bs_tp_linear_bias(bs_tp_linear *l) {
  return l != NULL && l->bias.data != NULL ? &l->bias : NULL;
}
