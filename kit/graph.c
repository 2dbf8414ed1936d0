/* SPDX-License-Identifier: MIT
 * graph.c - what the queries of the ops of graphs share: dims, how tensors lie in memory, values, and the
 * comparison of one element. */
#include "kit/graph.h"

#include <math.h>
#include <stdio.h>

static const kit_graph_op *const ops[KIT_GRAPH_OPS] = {
    &kit_graph_map,  &kit_graph_normalize, &kit_graph_attention, &kit_graph_contract,    &kit_graph_reduce,
    &kit_graph_take, &kit_graph_put,       &kit_graph_topk,      &kit_graph_attention_dx};

const kit_graph_op *kit_graph_find(const char *op) {
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    if (strcmp(ops[i]->op, op) == 0) return ops[i];
  return NULL;
}

uint32_t kit_graph_kinds(const char *op) {
  return kit_graph_find(op) != NULL ? 24 : 1;
}

int kit_graph_fit(const char *op, int integers) {
  const kit_graph_op *g = kit_graph_find(op);
  return integers ? (int)g->integers : (int)g->floats;
}

/* ---- queries ---------------------------------------------------------------------------------- */

int64_t kit_graph_size(const kit_data *d, int64_t size) {
  return d->shape.shrinks == 2 && size > 2 ? size - size / 3 : size;
}

uint32_t kit_graph_dims(const kit_data *d, uint64_t *seed, uint32_t least, uint32_t most, int64_t rows,
                        int64_t cols, int64_t *out_dims) {
  const uint32_t rank = least + (uint32_t)kit_below(seed, (int64_t)most - least + 1);
  int64_t room = 6;
  for (uint32_t i = 0; i < rank; i++) {
    const int64_t drawn = kit_below(seed, 3) == 0 ? 1 + kit_below(seed, 3) : 1;
    const int64_t outer = drawn <= room ? drawn : 1;
    room /= outer;
    out_dims[i] = kit_graph_size(d, i + 1 == rank ? cols : i + 2 == rank ? rows : outer);
  }
  return rank;
}

void kit_graph_one_dtype(kit_data *d, int bools) {
  kit_shape *s = &d->shape;
  if (bools && !bs_dtype_is_float(s->x) && s->seed % 5 == 0) s->x = BS_BOOL;
  s->y = s->w = s->x;
  s->bias = s->residual = 0;
  s->activation = BS_ACT_NONE;
}

/* KIT_DENSE queries are dense, and two of three others have adjacent elements, which most kernels ask
 * for. The last dimension's stride is the plan's; other strides of a plan whose dims have shrunk are new
 * ones. */
static uint32_t layout_of(const kit_data *d, uint32_t i) {
  static const uint32_t any[] = {0, KIT_PADDED, KIT_GAPS, KIT_TURNED, KIT_COLUMNS, 0};
  static const uint32_t adjacent[] = {0, KIT_PADDED, KIT_TURNED};
  uint64_t mix = d->shape.seed + (d->shape.in_place ? 0 : i * UINT64_C(0x9e3779b97f4a7c15));
  const uint32_t shifted = d->shape.spread & KIT_SHIFTED;
  uint64_t query = d->shape.seed;
  if ((d->shape.spread & KIT_DENSE) != 0) return shifted;
  const int64_t first = kit_below(&mix, 6), second = kit_below(&mix, 3);
  if (kit_below(&query, 3) != 0) return adjacent[(second + (d->shape.shrinks == 2)) % 3] | shifted;
  if (d->shape.shrinks == 0) return any[first] | shifted;
  if (any[first] == KIT_GAPS) return KIT_GAPS | shifted;
  return adjacent[(second + (d->shape.shrinks == 2)) % 3] | shifted;
}

void kit_graph_arg(kit_data *d, uint32_t i, uint32_t dtype, uint32_t rank, const int64_t *dims,
                   uint32_t repeats) {
  uint32_t seen = 0;
  for (uint32_t k = 0; k < rank; k++) /* all strides 0 would be a dense tensor */
    if ((repeats >> k & 1u) == 0 || dims[k] <= 1) seen = 1;
  kit_tensor_make_nd(&d->a[i], dtype, rank, dims, layout_of(d, i), seen ? repeats : 0);
  if (d->nargs <= i) d->nargs = i + 1;
}

void kit_graph_broadcast(const kit_data *d, uint64_t *seed, uint32_t rank, const int64_t *dims,
                         int64_t *out_dims, uint32_t *out_repeats) {
  *out_repeats = 0;
  for (uint32_t k = 0; k < rank; k++) {
    const int64_t how = d->shape.in_place ? 9 : kit_below(seed, 8);
    out_dims[k] = how == 0 ? 1 : dims[k];
    /* A last dimension of stride 0 would have another one when it shrinks to 1. */
    if (how == 1 && (k + 1 < rank || d->shape.shrinks == 0)) *out_repeats |= 1u << k;
  }
}

/* ---- values ----------------------------------------------------------------------------------- */

uint64_t kit_graph_seed(const kit_data *d, uint32_t i) {
  return d->shape.seed * UINT64_C(0x9e3779b97f4a7c15) + i;
}

void kit_graph_fill(kit_data *d, uint32_t i) {
  static const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
  kit_tensor *m = &d->a[i];
  const int64_t n = kit_elements(m);
  uint64_t own = kit_graph_seed(d, i), *seed = &own;
  kit_fill(m, seed);
  if (!bs_dtype_is_float(m->t.dtype)) return;
  for (int64_t e = 0; e < n; e++) {
    if (d->shape.values == KIT_SMALL)
      kit_set_at(m, e, ldexp((double)(1 + e % 3), m->t.dtype == BS_F64 ? -1060 : -140));
    else if (d->shape.values == KIT_PLAIN && kit_below(seed, 13) == 0)
      kit_set_at(m, e, kit_below(seed, 2) == 0 ? 0.0 : -0.0);
    else if (d->shape.values == KIT_SPECIAL && kit_below(seed, 17) == 0)
      kit_set_at(m, e, special[kit_below(seed, 5)]);
  }
}

uint32_t kit_graph_wide(const kit_data *d) {
  return (uint32_t)(d->shape.seed / 8 % 3);
}

void kit_graph_fill_wide(kit_data *d, uint32_t i) {
  kit_tensor *m = &d->a[i];
  uint64_t own = kit_graph_seed(d, i) + 1;
  const uint32_t dtype = m->t.dtype, bits = 8 * BS_DTYPE_BYTES(dtype), kind = kit_graph_wide(d);
  kit_graph_fill(d, i);
  if (bs_dtype_is_float(dtype) || dtype == BS_BOOL || kind == 0) return;
  const int64_t some = INT64_C(1) << (d->shape.seed / 32 % 4 == 0 ? 8 : 15);
  const int64_t most = kind == 1 && bits > 8 ? some : bits > 32 ? INT64_C(1) << 52 : INT64_C(1) << (bits - 1);
  const int64_t n = kit_elements(m), low = dtype == BS_U8 ? 0 : -most;
  for (int64_t e = 0; e < n; e++) kit_set_at(m, e, (double)(low + kit_below(&own, 2 * most)));
}

void kit_graph_at(int64_t i, uint32_t rank, const int64_t *dims, int64_t *out_at) {
  for (uint32_t k = rank; k-- > 0;) {
    out_at[k] = i % dims[k];
    i /= dims[k];
  }
}

int64_t kit_graph_number(const kit_tensor *m, uint32_t rank, const int64_t *at) {
  const uint32_t missing = rank - m->t.rank;
  int64_t number = 0;
  for (uint32_t k = 0; k < m->t.rank; k++)
    number = number * m->t.dims[k] + (m->t.dims[k] == 1 ? 0 : at[missing + k]);
  return number;
}

double kit_graph_value(const kit_tensor *m, uint32_t rank, const int64_t *at) {
  return kit_get_at(m, kit_graph_number(m, rank, at));
}

int64_t kit_graph_count(uint32_t rank, const int64_t *dims) {
  int64_t n = 1;
  for (uint32_t i = 0; i < rank; i++) n *= dims[i];
  return n;
}

/* ---- text ------------------------------------------------------------------------------------- */

static const char *layout_text(const kit_tensor *m) {
  int64_t step = 1;
  for (uint32_t i = m->t.rank; i-- > 0;) {
    if (m->t.dims[i] > 1 && m->t.strides[i] != step) return "*"; /* not dense */
    step *= m->t.dims[i];
  }
  return "";
}

const char *kit_graph_text(const kit_data *d) {
  static char text[900];
  size_t n = (size_t)snprintf(text, sizeof text, "%s", d->op);
  for (uint32_t i = 0; i < d->nargs && n < sizeof text; i++) {
    const kit_tensor *m = &d->a[i];
    if (m->block == NULL) continue;
    n += (size_t)snprintf(text + n, sizeof text - n, " %u:%s[", i, bs_dtype_name(m->t.dtype));
    for (uint32_t k = 0; k < m->t.rank && n < sizeof text; k++)
      n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld", k > 0 ? "," : "", (long long)m->t.dims[k]);
    if (n < sizeof text) n += (size_t)snprintf(text + n, sizeof text - n, "]%s", layout_text(m));
  }
  if (n < sizeof text)
    n += (size_t)snprintf(text + n, sizeof text - n, " attrs=%lld,%lld,%lld,%lld numbers=%g,%g act=%u",
                          (long long)d->query.attrs[0], (long long)d->query.attrs[1],
                          (long long)d->query.attrs[2], (long long)d->query.attrs[3], d->query.numbers[0],
                          d->query.numbers[1], d->query.activation);
  const bs_expr *e = d->query.expr;
  for (uint32_t i = 0; e != NULL && i < e->n_steps && i < 8 && n < sizeof text; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%u(%u,%u,%u)", i == 0 ? " program " : " ",
                          e->steps[i].op, e->steps[i].a, e->steps[i].b, e->steps[i].c);
  if (n < sizeof text) snprintf(text + n, sizeof text - n, "%s", d->note);
  return text;
}

/* ---- judging ---------------------------------------------------------------------------------- */

double kit_graph_unit(const kit_data *d, uint32_t tolerance) {
  switch (tolerance) {
    case BS_TOL_ACC_F64:
      return 0x1p-53;
    case BS_TOL_ACC_LOW:
      return 0x1p-11;
    case BS_TOL_EXACT:
      return kit_wide(d) ? 0x1p-53 : 0x1p-24;
    case BS_TOL_ACC_F32:
      return 0x1p-24;
    default:
      kit_fail("%s: the answer's tolerance class %u is not one of enum bs_tolerance", kit_data_text(d),
               tolerance);
      return 0.0;
  }
}

/* A float as an integer of this dtype: towards zero, at most its ends; NaN is 0. */
static double whole(uint32_t dtype, double v) {
  unsigned char at[8] = {0};
  bs_store_f64(dtype, at, 0, trunc(v));
  return bs_load_f64(dtype, at, 0);
}

static int within(uint32_t dtype, double got, double want, double slack) {
  if (dtype == BS_BOOL) return got == (want != 0) || (slack > 0 && got == (fabs(want) > slack));
  if (bs_dtype_is_float(dtype)) return kit_within(dtype, got, want, slack);
  return got >= whole(dtype, want - slack) && got <= whole(dtype, want + slack);
}

void kit_graph_check(const kit_data *d, uint32_t arg, int64_t i, double want, double slack, int special) {
  const kit_tensor *m = &d->a[arg];
  const double got = kit_get_at(m, i);
  int fits = kit_same_class(m->t.dtype, got, want);
  if (!bs_dtype_is_float(m->t.dtype) || !special || (isfinite(want) && isfinite(slack)))
    fits = within(m->t.dtype, got, want, slack);
  if (!fits)
    kit_fail("%s: element %lld of arg %u is %.9g, the fp64 oracle says %.9g, bound %.3g", kit_data_text(d),
             (long long)i, arg, got, want, slack);
}

void kit_graph_make(kit_data *d, uint64_t *seed) {
  kit_graph_find(d->op)->make(d, seed);
  d->out = -1;
  for (uint32_t i = d->nargs; i-- > 0;)
    if ((d->outs >> i & 1u) != 0 && d->a[i].block != NULL) d->out = (int32_t)i;
  d->second = -1;
  for (uint32_t i = 0; i < d->nargs; i++) d->descs[i] = d->a[i].block != NULL ? &d->a[i].d : NULL;
  d->query.struct_size = (uint32_t)sizeof d->query;
  d->query.nargs = d->nargs;
  d->query.op = d->op;
  d->query.args = d->descs;
  d->query.flags = d->shape.flags;
  d->pack_query = d->query;
}
