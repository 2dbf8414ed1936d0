/* SPDX-License-Identifier: MIT
 *
 * tp_quantise.c - a sum over ranks in two int8 steps: each rank sends every other its share of the features
 * as int8 with a scale for each group of TP_WIRE_GROUP, sums what it got in f32 in rank order, and its share
 * of the sum goes to all the same way. Each value is rounded twice, however many ranks there are; every rank
 * widens the same int8, so that all hold the same bits. A split y ends after the first step.
 */
#include <math.h>

#include "tp.h"

static int64_t groups_of(int64_t columns) {
  return (columns + TP_WIRE_GROUP - 1) / TP_WIRE_GROUP;
}

/* Loops over ranks call it only where speed does not matter: build stores the results. */
static tp_block block_of(const tp_shape *s, uint32_t rank) {
  tp_block b = {0, 0, 0, 0};
  for (uint32_t r = 0; r <= rank; r++) {
    b.first_group += b.groups;
    tp_share(s->N, r, s->world, &b.begin, &b.count);
    b.groups = groups_of(b.count);
  }
  return b;
}

static int64_t all_groups(const tp_shape *s) {
  const tp_block last = block_of(s, s->world - 1u);
  return last.first_group + last.groups;
}

/* ---- what it will do -------------------------------------------------------------------------- */

void tp_quantise_propose(const tp_shape *s, bs_proposal *p) {
  const uint64_t values = (uint64_t)s->B * (uint64_t)s->N;
  const uint64_t scales = (uint64_t)s->B * (uint64_t)all_groups(s) * sizeof(float);
  p->n_collectives = s->coll == BS_COLL_ALL_REDUCE ? 4 : 2;
  for (uint32_t i = 0; i < p->n_collectives; i++) {
    p->coll_kind[i] = i < 2 ? BS_COLL_ALL_TO_ALL : BS_COLL_ALL_GATHER;
    p->coll_payload[i] = i % 2 == 0 ? values : scales;
  }
}

uint64_t tp_quantise_bytes(const tp_shape *s) {
  const tp_block me = block_of(s, s->rank);
  const int64_t columns = s->N + (int64_t)s->world * me.count;
  const int64_t scales = all_groups(s) + (int64_t)s->world * me.groups;
  const int64_t floats = scales + (s->coll == BS_COLL_ALL_REDUCE ? me.count : 0);
  return (uint64_t)s->B * ((uint64_t)columns + (uint64_t)floats * sizeof(float));
}

/* E[max^2] of n standard normal values: the integral of P(max |v| > t) 2 t dt, by the trapezoid rule. */
static double largest_squared(int64_t n) {
  const double step = 1.0 / 64, inner = 0.70710678118654752440;
  double sum = 0.0;
  for (int i = 1; i < 12 * 64; i++) {
    const double t = i * step;
    sum += 2.0 * t * -expm1((double)n * log(erf(t * inner)));
  }
  return sum * step;
}

/* Squared error of one rounding of a group, in (its values' deviation / 127)^2 / 12; the largest is kept. */
static double group_variance(int64_t n) {
  return n > 1 ? (double)(n - 1) * largest_squared(n) : 0.0;
}

double tp_quantise_error(const tp_shape *s) {
  const double full = group_variance(TP_WIRE_GROUP);
  const double steps = s->coll == BS_COLL_ALL_REDUCE ? 2.0 : 1.0;
  double variance = 0.0, tail = 0.0;
  int64_t tail_of = 0;
  for (uint32_t r = 0; r < s->world; r++) {
    int64_t begin, count;
    tp_share(s->N, r, s->world, &begin, &count);
    const int64_t rest = count % TP_WIRE_GROUP, groups = count / TP_WIRE_GROUP;
    if (rest != tail_of) tail = group_variance(rest); /* two sizes of shares at most */
    tail_of = rest;
    variance += (double)groups * full + tail;
  }
  return sqrt(steps * variance / (double)s->N / 12.0) / 127.0;
}

/* A value is rounded to u c of itself by one rounding (docs/gates.md); sums in rank order round each partial
 * and each partial sum, the last of which a y of the same dtype would round too. */
double tp_wire_error(const bs_layer_spec *spec, const tp_shape *s) {
  const double P = s->world;
  double u = 0.0;
  if (s->wire == BS_I8) return tp_quantise_error(s);
  if (s->coll != BS_COLL_ALL_REDUCE && s->coll != BS_COLL_REDUCE_SCATTER) return 0.0;
  if (s->reduce_dtype == BS_BF16) u = 0x1p-8;
  if (s->reduce_dtype == BS_F16) u = 0x1p-11;
  if (s->reduce_dtype == BS_F8E4M3) u = 0x1p-4;
  if (s->reduce_dtype == BS_F8E5M2) u = 0x1p-3;
  const double last = s->reduce_dtype == s->y_dtype && spec->activation == BS_ACT_NONE ? 1.0 : 0.0;
  return 0.425 * u * sqrt(1.0 + (P * (P + 1.0) / 2.0 - 1.0) / P - last);
}

/* ---- build ------------------------------------------------------------------------------------ */

static int32_t scratch(tp_layer *l, uint32_t dtype, int64_t columns, bs_tensor *out, bs_error *err) {
  const bs_tensor_desc d = bs_desc_2d(dtype, l->shape.B, columns);
  return columns > 0 ? l->api->tensor_alloc(l->rank, &d, BS_LIFE_CALL, out, err) : BS_OK;
}

static bs_tensor_desc columns_desc(uint32_t dtype, int64_t rows, int64_t columns, int64_t stride) {
  bs_tensor_desc d = bs_desc_2d(dtype, rows, columns);
  d.strides[0] = stride > 0 ? stride : 1;
  return d;
}

/* quantize_groups (terms 0) or dequantize_sum. */
static int32_t prepare(tp_layer *l, int64_t terms, const bs_tensor_desc *a, const bs_tensor_desc *b,
                       const bs_tensor_desc *c, bs_plan **out_plan, bs_error *err) {
  const bs_tensor_desc *args[3] = {a, b, c};
  bs_op_query q;
  memset(&q, 0, sizeof q);
  q.struct_size = (uint32_t)sizeof q;
  q.op = terms > 0 ? "dequantize_sum" : "quantize_groups";
  q.nargs = 3;
  q.args = args;
  q.attrs[0] = TP_WIRE_GROUP;
  q.attrs[1] = terms;
  return l->api->op_prepare(l->rank, &q, NULL, out_plan, err);
}

/* The plans of rank r's block in the whole: it is made int8 here and, of a sum for all, widened at the end.
 */
static int32_t build_block(tp_layer *l, uint32_t r, uint32_t out_dtype, bs_error *err) {
  const tp_shape *s = &l->shape;
  tp_quantise *z = l->quantise;
  const tp_block b = block_of(s, r);
  if (b.count == 0) return BS_OK;
  const bs_tensor_desc values = columns_desc(BS_I8, s->B, b.count, s->N);
  const bs_tensor_desc scales = columns_desc(BS_F32, s->B, b.groups, z->scales.dims[1]);
  const bs_tensor_desc in = columns_desc(BS_F32, s->B, b.count, s->N);
  const bs_tensor_desc out = columns_desc(out_dtype, s->B, b.count, s->N);
  int32_t rc = prepare(l, 0, &in, &values, &scales, &z->narrow[r], err);
  if (rc == BS_OK && s->coll == BS_COLL_ALL_REDUCE)
    rc = prepare(l, 1, &values, &scales, &out, &z->widen[r], err);
  if (rc != BS_OK || r != s->rank) return rc;
  const bs_tensor_desc all = columns_desc(BS_I8, s->B, b.count * s->world, b.count * s->world);
  const bs_tensor_desc all_scales = columns_desc(BS_F32, s->B, b.groups * s->world, b.groups * s->world);
  const int whole = s->coll == BS_COLL_ALL_REDUCE;
  const bs_tensor_desc sum = columns_desc(whole ? (uint32_t)BS_F32 : out_dtype, s->B, b.count, b.count);
  rc = prepare(l, s->world, &all, &all_scales, &sum, &z->sum, err);
  if (rc == BS_OK && whole) rc = prepare(l, 0, &sum, &values, &scales, &z->narrow_sum, err);
  return rc;
}

static int32_t build_exchange(tp_layer *l, uint32_t i, uint32_t dtype, const uint64_t *counts,
                              const uint64_t *mine, bs_error *err) {
  static const char *const what[4] = {"values", "scales", "sums", "sum_scales"};
  bs_collective c;
  memset(&c, 0, sizeof c);
  c.struct_size = (uint32_t)sizeof c;
  c.kind = i < 2 ? BS_COLL_ALL_TO_ALL : BS_COLL_ALL_GATHER;
  c.dtype_in = c.dtype_out = dtype;
  c.rows = (uint64_t)l->shape.B;
  c.ncounts = l->shape.world;
  c.counts = counts;
  c.recv_counts = i < 2 ? mine : NULL;
  snprintf(l->quantise->site[i], TP_SITE, "%s.%s", l->state->traits->site, what[i]);
  c.site = l->quantise->site[i];
  return l->api->collective_prepare(l->rank, &c, &l->quantise->exchange[i], err);
}

static int32_t build_exchanges(tp_layer *l, bs_error *err) {
  const tp_shape *s = &l->shape;
  const uint32_t steps = s->coll == BS_COLL_ALL_REDUCE ? 4 : 2, P = s->world;
  const tp_block me = block_of(s, s->rank);
  uint64_t *counts = l->api->alloc(l->rank, 4u * P * sizeof *counts);
  if (counts == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for %u block sizes", P);
  for (uint32_t r = 0; r < P; r++) {
    const tp_block b = block_of(s, r);
    counts[r] = (uint64_t)b.count;
    counts[P + r] = (uint64_t)b.groups;
    counts[2 * P + r] = (uint64_t)me.count;
    counts[3 * P + r] = (uint64_t)me.groups;
  }
  int32_t rc = BS_OK;
  for (uint32_t i = 0; rc == BS_OK && i < steps; i++) {
    const uint32_t scales = i % 2;
    rc = build_exchange(l, i, scales ? BS_F32 : BS_I8, counts + scales * P, counts + (2 + scales) * P, err);
  }
  l->api->free(l->rank, counts);
  return rc;
}

int32_t tp_quantise_build(tp_layer *l, uint32_t out_dtype, bs_error *err) {
  const tp_shape *s = &l->shape;
  const bs_rank_api *api = l->api;
  const tp_block me = block_of(s, s->rank);
  tp_quantise *z = l->quantise = api->alloc(l->rank, sizeof *z);
  if (z != NULL) z->narrow = api->alloc(l->rank, 2u * s->world * sizeof *z->narrow);
  if (z != NULL) z->block = api->alloc(l->rank, s->world * sizeof *z->block);
  if (z == NULL || z->narrow == NULL || z->block == NULL)
    return bs_fail(err, BS_NO_MEMORY, "BS-METHOD-MEMORY", "no memory for the plans of %u ranks", s->world);
  z->widen = z->narrow + s->world;
  for (uint32_t r = 0; r < s->world; r++) z->block[r] = block_of(s, r);
  z->region = api->region_named(l->rank, "quantize");
  int32_t rc = scratch(l, BS_I8, s->N, &z->values, err);
  if (rc == BS_OK) rc = scratch(l, BS_F32, all_groups(s), &z->scales, err);
  if (rc == BS_OK) rc = scratch(l, BS_I8, me.count * s->world, &z->got, err);
  if (rc == BS_OK) rc = scratch(l, BS_F32, me.groups * s->world, &z->got_scales, err);
  if (rc == BS_OK && s->coll == BS_COLL_ALL_REDUCE) rc = scratch(l, BS_F32, me.count, &z->mine, err);
  for (uint32_t r = 0; rc == BS_OK && r < s->world; r++) rc = build_block(l, r, out_dtype, err);
  return rc == BS_OK ? build_exchanges(l, err) : rc;
}

void tp_quantise_free(tp_layer *l) {
  const bs_rank_api *api = l->api;
  tp_quantise *z = l->quantise;
  if (z == NULL) return;
  for (uint32_t i = 0; i < 4; i++)
    if (z->exchange[i] != NULL) api->collective_release(z->exchange[i]);
  for (uint32_t r = 0; z->narrow != NULL && r < 2 * l->shape.world; r++)
    if (z->narrow[r] != NULL) api->op_release(z->narrow[r]);
  if (z->narrow_sum != NULL) api->op_release(z->narrow_sum);
  if (z->sum != NULL) api->op_release(z->sum);
  bs_tensor *const tensors[5] = {&z->values, &z->scales, &z->got, &z->got_scales, &z->mine};
  for (uint32_t i = 0; i < 5; i++)
    if (tensors[i]->data != NULL) api->tensor_free(l->rank, tensors[i]);
  if (z->narrow != NULL) api->free(l->rank, z->narrow);
  if (z->block != NULL) api->free(l->rank, z->block);
  api->free(l->rank, z);
}

/* ---- forward ---------------------------------------------------------------------------------- */

static int32_t apply(tp_layer *l, bs_plan *plan, bs_tensor *a, bs_tensor *b, bs_tensor *c, bs_stream *stream,
                     bs_error *err) {
  bs_tensor *args[3] = {a, b, c};
  return plan != NULL ? l->api->op_run(plan, args, 3, stream, err) : BS_OK;
}

/* Every rank's block of the whole: to int8, or back. */
static int32_t blocks(tp_layer *l, int widen, const bs_tensor *floats, const bs_tensor *values,
                      const bs_tensor *scales, bs_stream *stream, bs_error *err) {
  int32_t rc = BS_OK;
  l->api->region_begin(l->rank, l->quantise->region);
  for (uint32_t r = 0; rc == BS_OK && r < l->shape.world; r++) {
    const tp_block b = l->quantise->block[r];
    bs_tensor f = tp_view_columns(floats, b.begin, b.count), v = tp_view_columns(values, b.begin, b.count);
    bs_tensor s = tp_view_columns(scales, b.first_group, b.groups);
    rc = widen ? apply(l, l->quantise->widen[r], &v, &s, &f, stream, err)
               : apply(l, l->quantise->narrow[r], &f, &v, &s, stream, err);
  }
  l->api->region_end(l->rank, l->quantise->region);
  return rc;
}

static int32_t exchange(tp_layer *l, uint32_t i, const bs_tensor *in, bs_tensor *out, bs_stream *stream,
                        bs_error *err) {
  l->api->region_begin(l->rank, BS_REGION_ALLREDUCE);
  const int32_t rc = l->api->collective_run(l->quantise->exchange[i], in, out, stream, err);
  l->api->region_end(l->rank, BS_REGION_ALLREDUCE);
  return rc;
}

static int32_t sum_share(tp_layer *l, bs_tensor *got, bs_tensor *got_scales, bs_tensor *to, bs_stream *stream,
                         bs_error *err) {
  l->api->region_begin(l->rank, l->quantise->region);
  const int32_t rc = apply(l, l->quantise->sum, got, got_scales, to, stream, err);
  l->api->region_end(l->rank, l->quantise->region);
  return rc;
}

/* My share of the sum, in its place among all: what is gathered in place. */
static int32_t share_to_all(tp_layer *l, bs_tensor *mine, bs_tensor *values, bs_tensor *scales,
                            bs_stream *stream, bs_error *err) {
  const tp_block me = l->quantise->block[l->shape.rank];
  bs_tensor v = tp_view_columns(values, me.begin, me.count);
  bs_tensor s = tp_view_columns(scales, me.first_group, me.groups);
  l->api->region_begin(l->rank, l->quantise->region);
  int32_t rc = apply(l, l->quantise->narrow_sum, mine, &v, &s, stream, err);
  l->api->region_end(l->rank, l->quantise->region);
  if (rc == BS_OK) rc = exchange(l, 2, &v, values, stream, err);
  if (rc == BS_OK) rc = exchange(l, 3, &s, scales, stream, err);
  return rc;
}

/* A rank whose share is empty receives nothing: a view of no columns stands for it. */
static bs_tensor rows_of(const bs_tensor *t, const bs_tensor *like, int64_t rows) {
  bs_tensor view = t->data != NULL ? *t : tp_view_columns(like, 0, 0);
  return tp_view_rows(&view, rows);
}

int32_t tp_quantise_forward(tp_layer *l, const bs_tensor *product, bs_tensor *sums, bs_stream *stream,
                            bs_error *err) {
  tp_quantise *z = l->quantise;
  const int64_t rows = product->dims[0];
  bs_tensor values = tp_view_rows(&z->values, rows), scales = tp_view_rows(&z->scales, rows);
  bs_tensor got = rows_of(&z->got, &values, rows), got_scales = rows_of(&z->got_scales, &scales, rows);
  int32_t rc = blocks(l, 0, product, &values, &scales, stream, err);
  if (rc == BS_OK) rc = exchange(l, 0, &values, &got, stream, err);
  if (rc == BS_OK) rc = exchange(l, 1, &scales, &got_scales, stream, err);
  if (rc != BS_OK) return rc;
  if (l->shape.coll == BS_COLL_REDUCE_SCATTER) return sum_share(l, &got, &got_scales, sums, stream, err);
  bs_tensor mine = tp_view_rows(&z->mine, rows);
  rc = sum_share(l, &got, &got_scales, &mine, stream, err);
  if (rc == BS_OK) rc = share_to_all(l, &mine, &values, &scales, stream, err);
  return rc == BS_OK ? blocks(l, 1, sums, &values, &scales, stream, err) : rc;
}
