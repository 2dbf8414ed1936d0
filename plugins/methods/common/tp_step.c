/* SPDX-License-Identifier: MIT
 *
 * tp_step.c - one step of the optimiser on the rank's weights and bias, in place in the packed weight. One
 * rank owns each weight, so nothing is exchanged. Without a dW, SGD adds -lr dY^T X in place. Weight decay
 * applies only to W. Allocates nothing. */
#include <math.h>

#include "tp_kept.h"
#include "tp_tree.h"

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

static void numbers(const bs_step *step, uint32_t of, uint64_t t, float *v) {
  const double decay = of == TP_NUMBERS_BIAS ? 0.0 : step->weight_decay; /* the bias does not decay */
  memset(v, 0, 8 * sizeof *v);
  v[0] = of == TP_NUMBERS_FUSED ? -(float)step->lr : (float)step->lr;
  if (of == TP_NUMBERS_FUSED) return;
  if (step->optimizer == BS_OPT_SGD) {
    v[1] = (float)step->momentum;
    v[2] = (float)decay;
    return;
  }
  v[1] = (float)(1.0 - step->beta1); /* of 1 - beta: of a rounded beta near 1 little would be left */
  v[2] = (float)(1.0 - step->beta2);
  v[3] = (float)step->eps;
  v[4] = (float)decay;
  v[5] = (float)(1.0 / (1.0 - pow(step->beta1, (double)t)));
  v[6] = (float)(1.0 / (1.0 - pow(step->beta2, (double)t)));
}

typedef struct step_source {
  const bs_step *step;
  uint32_t of;
} step_source;

static int32_t read_numbers(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                            void *out, int64_t out_stride, bs_error *err) {
  const step_source *told = ctx;
  (void)cols;
  if (dtype != BS_F32) return bs_fail(err, BS_UNSUPPORTED, "BS-METHOD-STEP", "the numbers of a step are f32");
  for (int64_t i = 0; i < nrows; i++)
    numbers(told->step, told->of, told->step->t + (uint64_t)(row + i), (float *)out + i * out_stride);
  return BS_OK;
}

/* SGD's are the same at any t. */
static int still_told(const tp_told *have, const bs_step *step, uint32_t of) {
  const bs_step *old = &have->step;
  const int any_t = of == TP_NUMBERS_FUSED || step->optimizer == BS_OPT_SGD;
  return have->set && old->optimizer == step->optimizer && old->lr == step->lr &&
         old->momentum == step->momentum && old->beta1 == step->beta1 && old->beta2 == step->beta2 &&
         old->eps == step->eps && old->weight_decay == step->weight_decay &&
         (any_t || (step->t >= old->t && step->t - old->t < TP_NUMBERS_STEPS));
}

/* Writes the first `count` numbers of this step to device memory. They are written for several steps ahead: a
 * copy from the host in every step would make every step wait. */
static int32_t tell(tp_layer *l, const bs_step *step, uint32_t of, int64_t count, bs_tensor *out_numbers,
                    bs_error *err) {
  tp_told *have = &l->training->told[of];
  bs_tensor rows = l->training->hyper;
  rows.dims[0] = TP_NUMBERS_STEPS;
  rows.bytes = TP_NUMBERS_STEPS * 8 * sizeof(float);
  rows.data = (char *)rows.data + of * rows.bytes;
  if (!still_told(have, step, of)) {
    step_source told = {step, of};
    bs_source source;
    memset(&source, 0, sizeof source);
    source.struct_size = (uint32_t)sizeof source;
    source.dtype = BS_F32;
    source.rows = TP_NUMBERS_STEPS;
    source.cols = 8;
    source.ctx = &told;
    source.read = read_numbers;
    const int32_t rc = l->api->tensor_read(l->rank, &source, 0, NULL, &rows, err);
    have->set = rc == BS_OK;
    have->step = *step;
    if (rc != BS_OK) return rc;
  }
  const int moves = of != TP_NUMBERS_FUSED && step->optimizer != BS_OPT_SGD;
  const uint64_t skip = (moves ? step->t - have->step.t : 0) * 8 * sizeof(float);
  rows.rank = 1;
  rows.dims[0] = count;
  rows.dims[1] = rows.strides[1] = 0;
  rows.strides[0] = 1;
  rows.data = (char *)rows.data + skip;
  rows.bytes -= skip;
  *out_numbers = rows;
  return BS_OK;
}

/* ---- weights and bias ------------------------------------------------------------------------ */

static int32_t take_step(tp_layer *l, const bs_step *step, int of_bias, bs_tensor *gradient,
                         bs_stream *stream, bs_error *err) {
  tp_training *t = l->training;
  bs_tensor hyper;
  const int32_t rc = tell(l, step, of_bias ? TP_NUMBERS_BIAS : TP_NUMBERS_WEIGHTS,
                          step->optimizer == BS_OPT_SGD ? 4 : 8, &hyper, err);
  if (rc != BS_OK) return rc;
  if (step->optimizer == BS_OPT_SGD) {
    bs_tensor *speed = !(t->flags & BS_LAYER_MOMENTUM) ? NULL : of_bias ? &t->bias_speed : &t->speed;
    bs_tensor *args[3] = {gradient, speed, &hyper};
    return l->api->op_run(of_bias ? t->bias_sgd : t->sgd, args, 3, stream, err);
  }
  bs_tensor *args[4] = {gradient, of_bias ? &t->bias_first : &t->first,
                        of_bias ? &t->bias_second : &t->second, &hyper};
  return l->api->op_run(of_bias ? t->bias_adamw : t->adamw, args, 4, stream, err);
}

/* W += -lr dY^T X, or dW of the own columns where the packed weight has more. */
static int32_t without_dw(tp_layer *l, const bs_step *step, const bs_tensor *own_dy, bs_stream *stream,
                          bs_error *err) {
  tp_training *t = l->training;
  bs_tensor x = *step->x, dy = *own_dy, alpha;
  if (t->fused == NULL) {
    bs_tensor *args[3] = {&x, &dy, &t->dw_own};
    return l->api->op_run(l->gradient->dw, args, 3, stream, err);
  }
  const int32_t rc = tell(l, step, TP_NUMBERS_FUSED, 1, &alpha, err);
  bs_tensor *args[3] = {&x, &dy, &alpha};
  return rc == BS_OK ? l->api->op_run(t->fused, args, 3, stream, err) : rc;
}

int32_t tp_step_weights(tp_layer *l, const bs_step *step, const bs_tensor *dy, const bs_tensor *given,
                        bs_stream *stream, bs_error *err) {
  tp_training *t = l->training;
  bs_tensor dw = given != NULL ? *given : t->dw_own;
  if (t->sgd == NULL && t->adamw == NULL) return BS_OK; /* no weights here */
  if (given == NULL) {
    const int32_t rc = without_dw(l, step, dy, stream, err);
    if (rc != BS_OK || t->fused != NULL) return rc;
  }
  if (t->spread != NULL) {
    bs_tensor all = l->shape.by_row ? tp_by_row_place(l, &t->dw_all) : t->dw_all;
    bs_tensor *args[2] = {&dw, &all};
    const int32_t rc = l->api->op_run(t->spread, args, 2, stream, err);
    if (rc != BS_OK) return rc;
    dw = t->dw_all;
  }
  return take_step(l, step, 0, &dw, stream, err);
}

static int32_t step_bias(tp_layer *l, const bs_step *step, bs_stream *stream, bs_error *err) {
  tp_training *t = l->training;
  if (t->bias == NULL || step->db == NULL) return BS_OK;
  bs_tensor db = *step->db;
  db.rank = 2;
  db.dims[1] = db.dims[0];
  db.strides[0] = db.dims[0] > 0 ? db.dims[0] : 1;
  db.dims[0] = db.strides[1] = 1;
  const int32_t rc = take_step(l, step, 1, &db, stream, err);
  return rc == BS_OK ? l->api->packed_read(t->bias, 0, &l->bias_row, err) : rc;
}

int32_t tp_step(void *layer, const bs_step *step, bs_stream *stream, bs_error *err) {
  tp_layer *l = layer;
  int32_t rc = check(l, step, err);
  if (rc != BS_OK) return rc;
  const bs_tensor dy = step->dw == NULL ? tp_own_dy(l, step->dy) : (bs_tensor){0};
  rc = l->leaf_grad != NULL ? tp_leaf_step(l, step, stream, err)
                            : tp_step_weights(l, step, &dy, step->dw, stream, err);
  if (rc == BS_OK) rc = step_bias(l, step, stream, err);
  return rc;
}
