/* SPDX-License-Identifier: MIT
 * op_q.c - queries of matmul_q and take_q: a quantised weight of every form, its values, and the columns that
 * share a scale of X. op_q_judge.c has the oracles. */
#include <math.h>
#include <stdio.h>

#include "kit/op_q.h"

enum { X, BIAS, RESIDUAL, Y };
enum { INDEX, OUT };
enum { Z = BS_QUANT_ZEROS, L = BS_QUANT_LOWS, S = BS_QUANT_STEPS };

/* {bits, flags, zero, group, span}; group 0: one scale a row. The first ROW_FORMS serve X of bytes too. */
static const struct {
  uint32_t bits, flags;
  int32_t zero;
  int64_t group, span;
} forms[] = {{8, 0, 128, 0, 0}, {4, 0, 8, 0, 0},           {8, Z, 0, 0, 0},         {6, 0, 32, 0, 0},
             {4, Z, 0, 0, 0},   {8, 0, 0, 0, 0},           {8, 0, 255, 0, 0},       {6, Z, 0, 0, 0},
             {4, 0, 8, 32, 0},  {8, 0, 128, 32, 0},        {4, L | S, 0, 32, 256},  {6, S, 32, 16, 256},
             {4, Z, 0, 16, 0},  {4, L, 0, 32, 0},          {6, L | S, 0, 32, 256},  {8, Z, 0, 64, 0},
             {4, 0, 8, 128, 0}, {8, L, 7, 0, 0},           {4, Z | L, 0, 64, 0},    {8, 0, 128, 256, 0},
             {6, 0, 32, 16, 0}, {8, Z | L | S, 0, 32, 64}, {8, S, 128, 16, 32},     {4, Z, 0, 256, 0},
             {6, L, 1, 128, 0}, {8, L | S, 255, 64, 64},   {4, Z | S, 0, 128, 256}, {8, Z | L, 0, 16, 0}};
enum { FORMS = sizeof forms / sizeof forms[0], ROW_FORMS = 8 };

int kit_is_q(const char *op) {
  return strcmp(op, "matmul_q") == 0 || kit_is_take_q(op);
}

int kit_is_take_q(const char *op) {
  return strcmp(op, "take_q") == 0;
}

static int is_byte(uint32_t dtype) {
  return dtype == BS_I8 || dtype == BS_U8;
}

/* ---- the weight ------------------------------------------------------------------------------- */

static int64_t parts(int64_t cols, int64_t size) {
  return size > 0 ? (cols + size - 1) / size : 0;
}

/* What a plugin does wrong here it is told as an error of the source. */
static int32_t read_rows(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const kit_q *w = ctx;
  const bs_quant *f = &w->form;
  const int zeros = (f->flags & Z) != 0, lows = (f->flags & L) != 0, steps = (f->flags & S) != 0;
  if (row < 0 || nrows < 0 || row > f->rows - nrows)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-KIT-ROWS", "rows %lld+%lld of %lld are asked for",
                        (long long)row, (long long)nrows, (long long)f->rows);
  if (out->struct_size < sizeof *out || out->codes == NULL || out->codes_stride < f->cols ||
      out->scales == NULL || (out->zeros != NULL) != zeros || (out->lows != NULL) != lows ||
      (out->steps != NULL) != steps || (out->low_steps != NULL) != (steps && lows))
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-KIT-ROWS",
                        "bs_quant_rows: struct_size %u, codes_stride %lld of %lld columns, or an array that "
                        "is there without its flag, or lacks",
                        out->struct_size, (long long)out->codes_stride, (long long)f->cols);
  const size_t groups = (size_t)(nrows * w->groups), at = (size_t)(row * w->groups);
  const size_t spans = (size_t)(nrows * w->spans), from = (size_t)(row * w->spans);
  for (int64_t r = 0; r < nrows; r++)
    memcpy(out->codes + r * out->codes_stride, w->codes + (row + r) * f->cols, (size_t)f->cols);
  memcpy(out->scales, w->scales + from, spans * sizeof *out->scales);
  if (zeros) memcpy(out->zeros, w->zeros + at, groups);
  if (lows) memcpy(out->lows, w->lows + from, spans * sizeof *out->lows);
  if (steps) memcpy(out->steps, w->steps + at, groups);
  if (steps && lows) memcpy(out->low_steps, w->low_steps + at, groups);
  return BS_OK;
}

/* Of both signs and several sizes; one of 16 is 0, one of 16 subnormal. */
static float draw_scale(uint64_t *seed) {
  const float v = ldexpf(0.5f + (float)(kit_next(seed) >> 40) * 0x1p-24f, (int)kit_below(seed, 9) - 6);
  const int64_t kind = kit_below(seed, 16);
  return kind == 0 ? 0.0f : kind == 1 ? 0x1.8p-140f : kind < 6 ? -v : v;
}

/* Two of three queries have codes of all values, the third one the least and the largest alone. */
static void fill_weight(kit_q *w, uint64_t own, uint64_t *seed) {
  const bs_quant *f = &w->form;
  const int64_t most = INT64_C(1) << f->bits;
  for (int64_t i = 0; i < f->rows * f->cols; i++)
    w->codes[i] = (uint8_t)(own % 3 == 0 ? kit_below(seed, 2) * (most - 1) : kit_below(seed, most));
  for (int64_t i = 0; i < f->rows * w->spans; i++) {
    w->scales[i] = draw_scale(seed);
    w->lows[i] = draw_scale(seed);
  }
  for (int64_t i = 0; i < f->rows * w->groups; i++) {
    w->zeros[i] = (uint8_t)kit_below(seed, most);
    w->steps[i] = (int8_t)(own % 3 == 0 ? -128 : kit_below(seed, 256) - 128);
    w->low_steps[i] = (uint8_t)kit_below(seed, 256);
  }
}

/* NaN, infinities, zeros and subnormals among scales and lows. */
static void fill_hostile(kit_q *w, uint64_t *seed) {
  static const float hostile[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 0x1p-149f, 0x1.8p-130f};
  const int64_t n = w->form.rows * w->spans;
  for (int64_t i = 0; i < n; i++) {
    if (kit_below(seed, 6) == 0) w->scales[i] = hostile[kit_below(seed, 7)];
    if (kit_below(seed, 9) == 0) w->lows[i] = hostile[kit_below(seed, 7)];
  }
}

static void *room(int64_t n, size_t size) {
  void *p = calloc((size_t)n + 1, size);
  kit_assert(p != NULL, "no memory");
  return p;
}

/* Only from the seed, N and K: queries of another B have the same weight. */
static void make_weight(kit_data *d) {
  const kit_shape *s = &d->shape;
  const uint64_t own = s->seed;
  const size_t i = (size_t)(own % (bs_dtype_is_float(s->x) ? FORMS : ROW_FORMS));
  uint64_t seed = own ^ UINT64_C(0x9e3779b97f4a7c15);
  kit_q *w = room(0, sizeof *w);
  d->q = w;
  w->form = (bs_quant){.struct_size = sizeof w->form,
                       .bits = forms[i].bits,
                       .flags = forms[i].flags,
                       .zero = forms[i].zero,
                       .rows = s->N,
                       .cols = s->K,
                       .group = forms[i].group > 0 ? forms[i].group : s->K,
                       .ctx = w,
                       .read = read_rows};
  w->form.span = forms[i].span > 0 ? forms[i].span : w->form.group;
  w->groups = parts(s->K, w->form.group);
  w->spans = parts(s->K, w->form.span);
  w->codes = room(s->N * s->K, 1);
  w->scales = room(s->N * w->spans, sizeof *w->scales);
  w->lows = room(s->N * w->spans, sizeof *w->lows);
  w->zeros = room(s->N * w->groups, 1);
  w->steps = room(s->N * w->groups, 1);
  w->low_steps = room(s->N * w->groups, 1);
  fill_weight(w, own / FORMS, &seed);
  if (s->values == KIT_SPECIAL) fill_hostile(w, &seed);
}

void kit_q_free(kit_data *d) {
  kit_q *w = d->q;
  if (w == NULL) return;
  free(w->codes);
  free(w->scales);
  free(w->lows);
  free(w->zeros);
  free(w->steps);
  free(w->low_steps);
  free(w);
}

/* ---- the query -------------------------------------------------------------------------------- */

/* Sets the dtypes that the schema requires, for any draw. */
static void fit(kit_data *d) {
  kit_shape *s = &d->shape;
  const int bytes = !bs_dtype_is_float(s->x);
  s->part = s->x_full = 0;
  s->w = BS_F32;
  if (kit_is_take_q(d->op)) {
    if (!bs_dtype_is_float(s->y)) s->y = BS_F32;
    s->x = s->y;
    s->bias = s->residual = s->activation = s->accumulate = 0;
    return;
  }
  if (bytes) {
    s->x = s->seed / 3 % 2 == 0 ? BS_I8 : BS_U8;
    s->y = BS_I32;
    s->bias = s->residual = s->activation = 0;
  } else if (!bs_dtype_is_float(s->y)) {
    s->y = s->x;
  }
}

/* Of a plain query X as it is; of others X in bytes every second time, by every group that is allowed. */
static void draw_attrs(kit_data *d, uint64_t *seed) {
  const bs_quant *f = &d->q->form;
  const int64_t groups[] = {0, f->cols, 32, 64, 128, 4096};
  if (!bs_dtype_is_float(d->shape.x) || kit_is_take_q(d->op) || d->shape.plain || kit_below(seed, 2) == 0)
    return;
  d->query.attrs[0] = 1;
  d->query.attrs[1] = groups[kit_below(seed, 6)];
  if ((f->flags & S) != 0) d->query.attrs[1] = f->span >= 32 && kit_below(seed, 2) == 0 ? f->span : 0;
}

/* X: of every fourth query in the middle between two whole numbers of its scale (of every eighth neighbouring
 * scales differ), of every eighth the largest value everywhere. */
static void fill_x(kit_data *d, uint64_t *seed) {
  kit_tensor *x = &d->a[X];
  const uint64_t how = d->shape.seed / FORMS % 8;
  kit_fill(x, seed);
  for (int64_t b = 0; b < d->shape.B; b++)
    for (int64_t k = 0; k < d->shape.K; k++) {
      double v = kit_get(x, b, k);
      if (is_byte(x->t.dtype))
        v = (double)(kit_below(seed, 256) - (x->t.dtype == BS_I8 ? 128 : 0));
      else if (d->shape.values == KIT_SMALL)
        v = ldexp((double)(1 + (b + k) % 3), x->t.dtype == BS_F64 ? -1060 : -140);
      else if (how % 4 == 1)
        v = ldexp(k % 32 == 0 ? 127 : (double)kit_below(seed, 251) - 125.5, (int)(k / 32 % how) - 3);
      else if (how == 2)
        v = kit_below(seed, 2) == 0 ? 1.0 : -1.0;
      kit_set(x, b, k, v);
    }
  if (d->shape.values != KIT_SPECIAL) return;
  static const double special[] = {NAN, INFINITY, -INFINITY, -0.0};
  for (int64_t b = 1; b < d->shape.B; b++)
    for (int64_t k = 0; k < d->shape.K; k++)
      if (kit_below(seed, 23) == 0) kit_set(x, b, k, special[(b + kit_below(seed, 2)) % 4]);
}

static void make_matmul(kit_data *d, uint64_t *seed) {
  const kit_shape *s = &d->shape;
  const uint32_t dtypes[] = {s->x, s->bias, s->residual, s->y};
  d->nargs = 4;
  for (uint32_t i = 0; i < d->nargs; i++)
    if (dtypes[i] != 0)
      kit_tensor_make(&d->a[i], dtypes[i], i == BIAS ? 1 : 2, i == BIAS ? 1 : s->B, i == X ? s->K : s->N,
                      s->spread);
  fill_x(d, seed);
  for (uint32_t i = BIAS; i <= RESIDUAL; i++)
    if (d->a[i].block != NULL) kit_fill(&d->a[i], seed);
}

static void make_take(kit_data *d, uint64_t *seed) {
  const kit_shape *s = &d->shape;
  d->nargs = 2;
  kit_tensor_make(&d->a[INDEX], s->seed % 2 == 0 ? BS_I64 : BS_I32, 1, 1, s->B, s->spread);
  kit_tensor_make(&d->a[OUT], s->y, 2, s->B, s->K, s->spread);
  for (int64_t b = 0; b < s->B; b++)
    kit_set(&d->a[INDEX], 0, b, (double)(s->N > 0 ? kit_below(seed, 2 * s->N) - s->N : 0));
}

void kit_q_make(kit_data *d, uint64_t *seed) {
  kit_shape *s = &d->shape;
  fit(d);
  if (kit_is_take_q(d->op) && s->N == 0) s->N = 1; /* what is indexed has something */
  make_weight(d);
  d->length = d->kept = s->K;
  draw_attrs(d, seed);
  *seed += s->index * UINT64_C(0x9e3779b97f4a7c15); /* another index, other values over the same weight */
  if (kit_is_take_q(d->op))
    make_take(d, seed);
  else
    make_matmul(d, seed);
  d->out = (int32_t)d->nargs - 1;
  d->second = -1;
  for (uint32_t i = 0; i < d->nargs; i++) d->descs[i] = d->a[i].block != NULL ? &d->a[i].d : NULL;
  d->query.struct_size = (uint32_t)sizeof d->query;
  d->query.nargs = d->nargs;
  d->query.op = d->op;
  d->query.args = d->descs;
  d->query.accumulate = s->accumulate;
  d->query.activation = s->activation;
  d->query.flags = s->flags;
  d->query.weight_dtype = BS_F32;
  d->query.quant = &d->q->form;
  d->pack_query = d->query;
  if (!kit_is_take_q(d->op)) return;
  /* As a product of one row packs it, by which a table and a head are shared. */
  memset(d->pack_query.attrs, 0, sizeof d->pack_query.attrs);
  d->pack_x = bs_desc_2d(BS_F32, 1, s->K);
  d->pack_y = bs_desc_2d(BS_F32, 1, s->N);
  d->pack_descs[X] = &d->pack_x;
  d->pack_descs[Y] = &d->pack_y;
  d->pack_query.op = "matmul_q";
  d->pack_query.nargs = 4;
  d->pack_query.args = d->pack_descs;
}

void kit_q_huge(kit_data *d, const int64_t size[3]) {
  bs_quant *f = &d->q->form;
  const int row = f->group == f->cols;
  f->rows = size[1];
  f->cols = size[2];
  if (row) f->span = f->group = f->cols;
  for (uint32_t i = 0; i < d->nargs; i++) {
    bs_tensor_desc *desc = &d->a[i].d;
    const int of_x = kit_is_take_q(d->op) ? i == OUT : i == X;
    if (d->a[i].block == NULL) continue;
    memset(desc->strides, 0, sizeof desc->strides);
    desc->dims[0] = desc->rank == 2 || kit_is_take_q(d->op) ? size[0] : size[1];
    desc->dims[1] = desc->rank == 1 ? 0 : of_x ? size[2] : size[1];
  }
}

const char *kit_q_text(const kit_data *d) {
  static char text[600];
  const kit_shape *s = &d->shape;
  const bs_quant *f = &d->q->form;
  char form[BS_QUANT_TEXT];
  bs_quant_text(f, form);
  snprintf(text, sizeof text,
           "%s B=%lld N=%lld K=%lld w=%s zero=%d x=%s%s y=%s%s%s%s%s attrs=%lld,%lld act=%u acc=%u "
           "strides=%u%s%s",
           d->op, (long long)s->B, (long long)s->N, (long long)s->K, form, f->zero,
           bs_dtype_name(d->a[0].d.dtype), d->query.attrs[0] != 0 ? " in bytes" : "", bs_dtype_name(s->y),
           s->bias != 0 ? " bias=" : "", s->bias != 0 ? bs_dtype_name(s->bias) : "",
           s->residual != 0 ? " residual=" : "", s->residual != 0 ? bs_dtype_name(s->residual) : "",
           (long long)d->query.attrs[0], (long long)d->query.attrs[1], s->activation, s->accumulate,
           s->spread & ~(uint32_t)KIT_SHIFTED,
           s->spread & KIT_SHIFTED ? " (data one element behind a cache line)" : "", d->note);
  return text;
}
