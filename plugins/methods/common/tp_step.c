/* SPDX-License-Identifier: MIT
 *
 * tp_step.c - one step of the optimiser on the rank's weights and bias, in place in what is packed: weights
 * are owned by one rank each, so that nothing is exchanged. Without a dW, SGD adds -lr dY^T X where the
 * weight lies. Weight decay is of W alone. Allocates nothing.
 */
#include <math.h>

#include "tp_kept.h"

static int32_t refuse(const tp_layer *l, int32_t code, const char *why, bs_error *err) {
  return bs_fail(err, code, "BS-METHOD-STEP", "method %s: %s", l->state->traits->name, why);
}

static int32_t check(const tp_layer *l, const bs_step *step, bs_error *err) {
  const tp_shape *s = &l->shape;
  const tp_training *t = l->training;
  const uint32_t flag = step->optimizer == BS_OPT_ADAMW ? BS_LAYER_ADAMW : BS_LAYER_SGD;
  if (t == NULL || !(t->flags & flag) ||
      (step->optimizer == BS_OPT_SGD && step->momentum != 0.0 && !(t->flags & BS_LAYER_MOMENTUM))) {
    refuse(l, BS_UNSUPPORTED, "the layer was not built for this optimiser", err);
    return bs_fail_hint(err, "BS_LAYER_SGD, BS_LAYER_MOMENTUM, BS_LAYER_ADAMW"), BS_UNSUPPORTED;
  }
  const int plain = step->optimizer == BS_OPT_SGD && !(t->flags & BS_LAYER_MOMENTUM);
  if (step->dw == NULL && (!plain || step->weight_decay != 0.0 || step->x == NULL || step->dy == NULL))
    return refuse(l, BS_INVALID_ARGUMENT, "no dw, and not SGD alone with x and dy", err);
  if (step->dw != NULL && !tp_fits(step->dw, s->row_count, t->wide, s->k_own))
    return refuse(l, BS_INVALID_ARGUMENT, "dw is not what backward gives", err);
  if (step->db != NULL && !tp_is_row(step->db, s->row_count, t->wide))
    return refuse(l, BS_INVALID_ARGUMENT, "db is not what backward gives", err);
  if (step->dw != NULL) return BS_OK;
  const int64_t rows = step->dy->dims[0];
  if (rows < 0 || rows > s->B || !tp_fits(step->dy, rows, s->y_dtype, l->gradient->shape.dy_cols) ||
      !tp_fits(step->x, rows, s->x_dtype, s->x_cols))
    return refuse(l, BS_INVALID_ARGUMENT, "x or dy is not as backward had it", err);
  return BS_OK;
}

/* ---- the numbers of a step ------------------------------------------------------------------- */

static int32_t read_hyper(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t out_stride, bs_error *err) {
  (void)row;
  (void)nrows;
  (void)cols;
  (void)out_stride;
  if (dtype != BS_F32) return bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-STEP", "the numbers of a step are f32");
  memcpy(out, ctx, 8 * sizeof(float));
  return BS_OK;
}

static int32_t set_hyper(tp_layer *l, const float *values, bs_error *err) {
  bs_source source;
  memset(&source, 0, sizeof source);
  source.struct_size = (uint32_t)sizeof source;
  source.dtype = BS_F32;
  source.rows = 1;
  source.cols = 8;
  source.ctx = (void *)(uintptr_t)values;
  source.read = read_hyper;
  return l->api->tensor_read(l->rank, &source, 0, NULL, &l->training->hyper, err);
}

static bs_tensor hyper_of(const tp_training *t, int64_t count) {
  bs_tensor h = t->hyper;
  h.rank = 1;
  h.dims[0] = count;
  h.dims[1] = h.strides[1] = 0;
  h.strides[0] = 1;
  return h;
}

static void numbers(const bs_step *step, float *v) {
  memset(v, 0, 8 * sizeof *v);
  v[0] = (float)step->lr;
  if (step->optimizer == BS_OPT_SGD) {
    v[1] = (float)step->momentum;
    v[2] = (float)step->weight_decay;
    return;
  }
  v[1] = (float)step->beta1;
  v[2] = (float)step->beta2;
  v[3] = (float)step->eps;
  v[4] = (float)step->weight_decay;
  v[5] = (float)(1.0 / (1.0 - pow(step->beta1, (double)step->t)));
  v[6] = (float)(1.0 / (1.0 - pow(step->beta2, (double)step->t)));
}

/* ---- weights and bias ------------------------------------------------------------------------ */

static int32_t take_step(tp_layer *l, const bs_step *step, int of_bias, bs_tensor *gradient,
                         bs_stream *stream, bs_error *err) {
  tp_training *t = l->training;
  bs_tensor four = hyper_of(t, 4), eight = hyper_of(t, 8);
  if (step->optimizer == BS_OPT_SGD) {
    bs_tensor *speed = !(t->flags & BS_LAYER_MOMENTUM) ? NULL : of_bias ? &t->bias_speed : &t->speed;
    bs_tensor *args[3] = {gradient, speed, &four};
    return l->api->op_run(of_bias ? t->bias_sgd : t->sgd, args, 3, stream, err);
  }
  bs_tensor *args[4] = {gradient, of_bias ? &t->bias_first : &t->first,
                        of_bias ? &t->bias_second : &t->second, &eight};
  return l->api->op_run(of_bias ? t->bias_adamw : t->adamw, args, 4, stream, err);
}

/* W += -lr dY^T X, or dW of the own columns where the packed weight has more. */
static int32_t without_dw(tp_layer *l, const bs_step *step, bs_stream *stream, bs_error *err) {
  tp_training *t = l->training;
  bs_tensor x = *step->x, dy = tp_own_dy(l, step->dy), alpha = hyper_of(t, 1);
  if (t->fused == NULL) {
    bs_tensor *args[3] = {&x, &dy, &t->dw_own};
    return l->api->op_run(l->gradient->dw, args, 3, stream, err);
  }
  float numbers[8] = {-(float)step->lr};
  const int32_t rc = set_hyper(l, numbers, err);
  bs_tensor *args[3] = {&x, &dy, &alpha};
  return rc == BS_OK ? l->api->op_run(t->fused, args, 3, stream, err) : rc;
}

static int32_t step_weights(tp_layer *l, const bs_step *step, bs_stream *stream, bs_error *err) {
  tp_training *t = l->training;
  bs_tensor dw = step->dw != NULL ? *step->dw : t->dw_own;
  if (t->sgd == NULL && t->adamw == NULL) return BS_OK; /* no weights here */
  if (step->dw == NULL) {
    const int32_t rc = without_dw(l, step, stream, err);
    if (rc != BS_OK || t->fused != NULL) return rc;
  }
  if (t->spread != NULL) {
    bs_tensor all = l->shape.by_row ? tp_by_row_place(l, &t->dw_all) : t->dw_all;
    bs_tensor *args[2] = {&dw, &all};
    const int32_t rc = l->api->op_run(t->spread, args, 2, stream, err);
    if (rc != BS_OK) return rc;
    dw = t->dw_all;
  }
  float values[8];
  numbers(step, values);
  const int32_t rc = set_hyper(l, values, err);
  return rc == BS_OK ? take_step(l, step, 0, &dw, stream, err) : rc;
}

static int32_t step_bias(tp_layer *l, const bs_step *step, bs_stream *stream, bs_error *err) {
  tp_training *t = l->training;
  if (t->bias == NULL || step->db == NULL) return BS_OK;
  float values[8];
  bs_tensor db = *step->db;
  db.rank = 2;
  db.dims[1] = db.dims[0];
  db.strides[0] = db.dims[0] > 0 ? db.dims[0] : 1;
  db.dims[0] = db.strides[1] = 1;
  numbers(step, values);
  values[step->optimizer == BS_OPT_SGD ? 2 : 4] = 0.0f; /* the bias does not decay */
  int32_t rc = set_hyper(l, values, err);
  if (rc == BS_OK) rc = take_step(l, step, 1, &db, stream, err);
  return rc == BS_OK ? l->api->packed_read(t->bias, 0, &l->bias_row, err) : rc;
}

int32_t tp_step(void *layer, const bs_step *step, bs_stream *stream, bs_error *err) {
  tp_layer *l = layer;
  int32_t rc = check(l, step, err);
  if (rc == BS_OK) rc = step_weights(l, step, stream, err);
  if (rc == BS_OK) rc = step_bias(l, step, stream, err);
  return rc;
}
