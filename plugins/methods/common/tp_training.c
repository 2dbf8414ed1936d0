/* SPDX-License-Identifier: MIT
 *
 * tp_training.c - prepares the steps of a rank's share of a layer once: plans of the optimiser's ops over the
 * weight that forward has packed, the optimiser's state (zero at first), and the bias as a separate packed
 * weight. */
#include "tp_kept.h"

static int has_weights(const tp_layer *l) {
  return l->packed != NULL && l->shape.input != TP_X_ZERO && l->shape.k_own > 0;
}

/* full_width: the packed weight has all columns, dW the own ones. */
static int spreads(const tp_traits *traits, const tp_shape *s) {
  return traits->full_width && s->cols != NULL && s->k_own > 0;
}

static int makes_own(const bs_layer_spec *spec, int spread) {
  return spread && (spec->flags & BS_LAYER_SGD) && !(spec->flags & BS_LAYER_MOMENTUM);
}

uint64_t tp_training_bytes(const tp_traits *traits, const bs_layer_spec *spec, const tp_shape *s,
                           uint32_t wide) {
  if (!(spec->flags & (BS_LAYER_SGD | BS_LAYER_ADAMW))) return 0;
  const uint64_t memories =
      (spec->flags & BS_LAYER_MOMENTUM ? 1u : 0u) + (spec->flags & BS_LAYER_ADAMW ? 2u : 0u);
  const uint64_t rows = (uint64_t)s->row_count, bias = s->bias_here ? rows : 0;
  const uint64_t weights = s->k_own == 0 ? 0 : rows * (uint64_t)s->k_mul;
  uint64_t bytes = TP_NUMBERS * TP_NUMBERS_STEPS * 32 + (weights + bias) * 4 * memories + bias * 8;
  const int spread = spreads(traits, s);
  if (spread) bytes += weights * BS_DTYPE_BYTES(wide);
  if (makes_own(spec, spread || (traits->full_width && s->leaves > 0)))
    bytes += rows * (uint64_t)s->k_own * BS_DTYPE_BYTES(wide);
  return bytes;
}

static int32_t take(tp_layer *l, uint32_t dtype, int64_t rows, int64_t cols, uint32_t lifetime,
                    bs_tensor *out, bs_error *err) {
  const bs_tensor_desc d = bs_desc_2d(dtype, rows, cols);
  return l->api->tensor_alloc(l->rank, &d, lifetime, out, err);
}

static int32_t prepare(tp_layer *l, const char *op, const bs_tensor_desc *const *args, uint32_t nargs,
                       bs_packed *packed, uint32_t weight_dtype, bs_plan **out_plan, bs_error *err) {
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = op;
  q.nargs = nargs;
  q.args = args;
  q.flags = BS_QUERY_DETERMINISTIC;
  q.weight_dtype = weight_dtype;
  return l->api->op_prepare(l->rank, &q, packed, out_plan, err);
}

/* The steps over one packed [rows,cols], and what they remember of it. */
static int32_t build_steps(tp_layer *l, bs_packed *packed, uint32_t dtype, int64_t rows, int64_t cols,
                           bs_plan **sgd, bs_plan **adamw, bs_tensor *speed, bs_tensor *first,
                           bs_tensor *second, bs_error *err) {
  const tp_training *t = l->training;
  const int64_t stride = l->shape.dw_stride > 0 && packed == l->packed ? l->shape.dw_stride : cols;
  const bs_tensor_desc dw = tp_strided(t->wide, rows, cols, stride), state = bs_desc_2d(BS_F32, rows, cols);
  const bs_tensor_desc four = tp_vector(BS_F32, 4), eight = tp_vector(BS_F32, 8);
  const bs_tensor_desc *const slow[3] = {&dw, t->flags & BS_LAYER_MOMENTUM ? &state : NULL, &four};
  const bs_tensor_desc *const adaptive[4] = {&dw, &state, &state, &eight};
  int32_t rc = BS_OK;
  if (t->flags & BS_LAYER_MOMENTUM) rc = take(l, BS_F32, rows, cols, BS_LIFE_WEIGHTS, speed, err);
  if (rc == BS_OK && t->flags & BS_LAYER_SGD) rc = prepare(l, "sgd_update", slow, 3, packed, dtype, sgd, err);
  if (rc != BS_OK || !(t->flags & BS_LAYER_ADAMW)) return rc;
  rc = take(l, BS_F32, rows, cols, BS_LIFE_WEIGHTS, first, err);
  if (rc == BS_OK) rc = take(l, BS_F32, rows, cols, BS_LIFE_WEIGHTS, second, err);
  if (rc == BS_OK) rc = prepare(l, "adamw_update", adaptive, 4, packed, dtype, adamw, err);
  return rc;
}

/* W += alpha dY^T X without dW: where every column of the packed weight is the rank's own. */
static int32_t build_fused(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  const bs_tensor_desc dy = tp_dy_desc(l);
  const bs_tensor_desc x = bs_desc_2d(s->x_dtype, s->B, s->x_cols), alpha = tp_vector(BS_F32, 1);
  const bs_tensor_desc *args[3] = {&x, &dy, &alpha};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "matmul_update";
  q.nargs = 3;
  q.args = args;
  q.partition = s->cols;
  q.accumulate = spec->accumulate;
  q.flags = BS_QUERY_DETERMINISTIC | tp_bits_flag(s) |
            (s->cols != NULL && spec->x_placement == BS_REPLICATED ? (uint32_t)BS_QUERY_X_FULL : 0u);
  q.weight_dtype = s->w_dtype;
  return l->api->op_prepare(l->rank, &q, l->packed, &l->training->fused, err);
}

static int32_t build_spread(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_training *t = l->training;
  const bs_tensor_desc own = bs_desc_2d(t->wide, s->row_count, s->k_own);
  const bs_tensor_desc all = bs_desc_2d(t->wide, s->row_count, s->k_mul);
  const bs_tensor_desc *args[2] = {&own, &all};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "scatter_columns";
  q.nargs = 2;
  q.args = args;
  q.partition = s->cols;
  int32_t rc = take(l, t->wide, s->row_count, s->k_mul, BS_LIFE_SCRATCH, &t->dw_all, err);
  if (rc == BS_OK && makes_own(spec, 1))
    rc = take(l, t->wide, s->row_count, s->k_own, BS_LIFE_SCRATCH, &t->dw_own, err);
  if (rc == BS_OK && s->by_row) return tp_by_row_spread(l, &t->spread, err);
  return rc == BS_OK ? l->api->op_prepare(l->rank, &q, NULL, &t->spread, err) : rc;
}

static int32_t build_weights(tp_layer *l, const bs_layer_spec *spec, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_training *t = l->training;
  if (!has_weights(l)) return BS_OK;
  int32_t rc = build_steps(l, l->packed, s->w_dtype, s->row_count, s->k_mul, &t->sgd, &t->adamw, &t->speed,
                           &t->first, &t->second, err);
  if (rc != BS_OK) return rc;
  if (l->by_row != NULL) return BS_OK; /* fused by the op of its weight: blockshock/by_row_gradient.c */
  if (spreads(l->state->traits, s)) return build_spread(l, spec, err);
  /* R3: more ranks take their steps by a dW */
  if (l->state->traits->full_width && s->leaves > 0)
    return makes_own(spec, 1) ? take(l, t->wide, s->row_count, s->k_own, BS_LIFE_SCRATCH, &t->dw_own, err)
                              : BS_OK;
  return t->sgd != NULL && !(t->flags & BS_LAYER_MOMENTUM) ? build_fused(l, spec, err) : BS_OK;
}

/* Packs the bias as the weight of a product with one output; it is never multiplied. */
static int32_t build_bias(tp_layer *l, const bs_source *bias, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_training *t = l->training;
  if (!s->bias_here) return BS_OK;
  const uint32_t dtype = l->bias_row.dtype;
  const bs_tensor_desc x = bs_desc_2d(dtype, 1, s->row_count), y = bs_desc_2d(dtype, 1, 1);
  const bs_tensor_desc *args[4] = {&x, NULL, NULL, &y};
  bs_partition own;
  memset(&own, 0, sizeof own);
  own.struct_size = (uint32_t)sizeof own;
  own.kind = BS_PARTITION_CONTIGUOUS;
  own.total = s->N;
  own.begin = s->row_begin;
  own.count = s->row_count;
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = "matmul";
  q.nargs = 4;
  q.args = args;
  q.partition = &own;
  q.flags = BS_QUERY_DETERMINISTIC | BS_QUERY_TRAIN;
  q.weight_dtype = dtype;
  const int32_t rc = l->api->pack(l->rank, &q, bias, &t->bias, err);
  return rc == BS_OK ? build_steps(l, t->bias, dtype, 1, s->row_count, &t->bias_sgd, &t->bias_adamw,
                                   &t->bias_speed, &t->bias_first, &t->bias_second, err)
                     : rc;
}

int32_t tp_training_build(tp_layer *l, const bs_layer_spec *spec, const bs_source *bias, bs_error *err) {
  if (l->gradient == NULL)
    return bs_fail(err, BS_CONFIG, "BS-METHOD-STEP", "method %s: a step needs BS_LAYER_BACKWARD",
                   l->state->traits->name);
  l->training = l->api->alloc(l->rank, sizeof *l->training);
  if (l->training == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for the plan of a step");
  l->training->flags = spec->flags;
  l->training->wide = l->gradient->shape.wide;
  int32_t rc =
      take(l, BS_F32, (int64_t)TP_NUMBERS * TP_NUMBERS_STEPS, 8, BS_LIFE_SCRATCH, &l->training->hyper, err);
  if (rc == BS_OK) rc = build_weights(l, spec, err);
  if (rc == BS_OK) rc = build_bias(l, bias, err);
  return rc;
}

void tp_training_free(tp_layer *l) {
  tp_training *t = l->training;
  if (t == NULL) return;
  bs_plan *const plans[] = {t->fused, t->spread, t->sgd, t->adamw, t->bias_sgd, t->bias_adamw};
  for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++)
    if (plans[i] != NULL) l->api->op_release(plans[i]);
  if (t->bias != NULL) l->api->packed_release(t->bias);
  bs_tensor *const tensors[] = {&t->hyper,      &t->speed,       &t->first,  &t->second, &t->bias_speed,
                                &t->bias_first, &t->bias_second, &t->dw_own, &t->dw_all};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
    if (tensors[i]->data != NULL) l->api->tensor_free(l->rank, tensors[i]);
  l->api->free(l->rank, t);
  l->training = NULL;
}
