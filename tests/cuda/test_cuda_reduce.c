/* SPDX-License-Identifier: MIT
 * test_cuda_reduce.c - reduce of the cuda plugin, its kernels' bodies run by the CPU twins, against ref:
 * every fold and dtype, any of up to six dims, turned and with gaps, folds of nothing, special values. */
#include <math.h>

#include "plain.h"
#include "tests/run_tests.h"

enum { IN, GOT, WANT, AGAIN, TENSORS, MOST = 6 };

static const uint32_t dtypes[11] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                    BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};

typedef struct rcase {
  uint32_t rank, in, out; /* dtypes */
  int64_t dims[MOST], to[MOST];
  int64_t fold, axis, last;
  double factor;
  pl_tensor t[TENSORS];
} rcase;

static int64_t count_of(uint32_t rank, const int64_t *dims) {
  int64_t n = 1;
  for (uint32_t d = 0; d < rank; d++) n *= dims[d];
  return n;
}

/* A tensor whose dims lie in any order, with a gap behind some. */
static void make(pl_tensor *t, uint32_t dtype, uint32_t rank, const int64_t *dims, uint64_t *seed) {
  int64_t strides[MOST], step = 1;
  uint32_t order[MOST];
  const int any = (int)fx_below(seed, 3);
  for (uint32_t d = 0; d < rank; d++) order[d] = d;
  for (uint32_t d = rank; any == 0 && d-- > 1;) {
    const uint32_t other = (uint32_t)fx_below(seed, (int64_t)d + 1), was = order[d];
    order[d] = order[other];
    order[other] = was;
  }
  for (uint32_t k = rank; k-- > 0;) {
    if (any < 2 && k + 1 < rank) step += fx_below(seed, 2) * 4;
    strides[order[k]] = step;
    step *= dims[order[k]] > 0 ? dims[order[k]] : 1;
  }
  pl_make(t, dtype, rank, dims, strides, (int)fx_below(seed, PL_PLACES));
}

/* Element i, row-major, and the same one of a tensor in which some dims are 1. */
static unsigned char *at(const pl_tensor *t, uint32_t rank, const int64_t *dims, int64_t i, int64_t *out_i) {
  int64_t offset = 0, other = 0, step = 1;
  for (uint32_t d = rank; d-- > 0;) {
    const int64_t c = t->t.dims[d] == 1 ? 0 : i % dims[d];
    i /= dims[d];
    offset += c * t->t.strides[d];
    other += c * step;
    step *= t->t.dims[d];
  }
  if (out_i != NULL) *out_i = other;
  return (unsigned char *)t->t.data + offset * (int64_t)BS_DTYPE_BYTES(t->t.dtype);
}

static double special(uint64_t *seed) {
  static const double values[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 1e30, -1e30, 3e38, 1e-40, 65504.0};
  return values[fx_below(seed, (int64_t)(sizeof values / sizeof *values))];
}

static void fill(rcase *c, int64_t rare, uint64_t *seed) {
  for (int64_t i = 0; i < count_of(c->rank, c->dims); i++) {
    unsigned char *to = at(&c->t[IN], c->rank, c->dims, i, NULL);
    uint64_t bits = fx_next(seed) >> fx_below(seed, 60);
    double v = (double)(int64_t)(fx_next(seed) >> 11) * 0x1p-52 * 4.0 - 4.0;
    if (c->fold == BS_FOLD_PROD) v = (v < 0 ? -1.0 : 1.0) + v * 0x1p-9;
    if (fx_below(seed, 3) == 0) v = rint(v); /* equal ones */
    if (c->fold == BS_FOLD_PROD && v == 0.0) v = 1.0;
    if (rare > 0 && fx_below(seed, rare) == 0) v = special(seed);
    if (c->in == BS_BOOL) bits &= 1;
    if (bs_dtype_is_float(c->in))
      bs_store_f64(c->in, to, 0, v);
    else
      memcpy(to, &bits, BS_DTYPE_BYTES(c->in));
  }
}

static int is_place(const rcase *c) {
  return c->fold == BS_FOLD_ARGMAX || c->fold == BS_FOLD_ARGMIN;
}
static int is_running(const rcase *c) {
  return c->fold == BS_FOLD_CUMSUM;
}

/* Half of the dims, or the axis of places, become 1. */
static void shape_out(rcase *c, uint64_t *seed) {
  c->axis = c->rank > 0 ? fx_below(seed, c->rank) : 0;
  c->last = fx_below(seed, is_running(c) ? 4 : 2);
  for (uint32_t d = 0; d < c->rank; d++)
    c->to[d] = is_running(c)                                                    ? c->dims[d]
               : (is_place(c) ? (int64_t)d == c->axis : (int)fx_below(seed, 2)) ? 1
                                                                                : c->dims[d];
}

static uint32_t out_dtype(const rcase *c, uint64_t *seed) {
  if (is_place(c)) return fx_below(seed, 2) ? BS_I64 : BS_I32;
  if (c->fold == BS_FOLD_MAX || c->fold == BS_FOLD_MIN || is_running(c)) return c->in;
  return dtypes[bs_dtype_is_float(c->in) ? fx_below(seed, 6) : 6 + fx_below(seed, 4)];
}

static double own_step(uint32_t dtype, double v) {
  const double least = dtype == BS_F16      ? 0x1p-24
                       : dtype == BS_F8E4M3 ? 0x1p-9
                       : dtype == BS_F8E5M2 ? 0x1p-16
                       : dtype == BS_F32    ? 0x1p-149
                       : dtype == BS_F64    ? 0.0
                                            : 0x1p-133;
  return dtype == BS_F64 ? 0.0 : fmax(2.0 * bs_dtype_unit_roundoff(dtype) * fabs(v), least);
}

/* What an element of out may differ by: roundings of f64 of the sum of magnitudes. */
static void bounds(const rcase *c, double *out) {
  const int64_t n = count_of(c->rank, c->dims), outs = count_of(c->rank, c->to);
  double all = 0.0;
  for (int64_t i = 0; i < outs; i++) out[i] = 0.0;
  for (int64_t i = 0; i < n; i++) {
    int64_t o = 0;
    (void)at(&c->t[GOT], c->rank, c->dims, i, &o);
    const double v = bs_load_f64(c->in, at(&c->t[IN], c->rank, c->dims, i, NULL), 0);
    if (c->fold == BS_FOLD_SUM) out[o] += fabs(v);
    if (isfinite(v)) all += fabs(v);
    if (c->fold == BS_FOLD_SUMSQ) out[o] += v * v;
  }
  for (int64_t i = 0; is_running(c) && i < outs; i++) out[i] = all;
  for (int64_t i = 0; i < outs; i++) out[i] *= fabs(c->factor) * 0x1p-53 * (double)(n + 4);
}

static void compare(rcase *c, const char *what) {
  const int64_t outs = count_of(c->rank, c->to);
  double *bound = calloc((size_t)outs + 1, sizeof *bound);
  ck_assert_ptr_nonnull(bound);
  if (bs_dtype_is_float(c->out)) bounds(c, bound);
  for (int64_t i = 0; bs_dtype_is_float(c->out) && i < outs; i++) {
    unsigned char *got = at(&c->t[GOT], c->rank, c->to, i, NULL),
                  *want = at(&c->t[WANT], c->rank, c->to, i, NULL);
    const double g = bs_load_f64(c->out, got, 0), w = bs_load_f64(c->out, want, 0);
    const int exact = c->fold == BS_FOLD_MAX || c->fold == BS_FOLD_MIN;
    double by = bound[i] + own_step(c->out, w);
    if (c->fold == BS_FOLD_PROD) by += fabs(w) * 0x1p-53 * (double)(count_of(c->rank, c->dims) + 4);
    if (!(g == w || (isnan(g) && isnan(w)) || (!exact && fabs(g - w) <= by)))
      ck_abort_msg("%s: element %lld is %.17g, want %.17g", what, (long long)i, g, w);
    memset(got, 0, BS_DTYPE_BYTES(c->out));
    memset(want, 0, BS_DTYPE_BYTES(c->out));
  }
  ck_assert_msg(memcmp(c->t[GOT].pages, c->t[WANT].pages, c->t[GOT].bytes) == 0, "%s: bytes differ", what);
  free(bound);
}

static void check(pl *p, rcase *c, int64_t rare, uint64_t *seed) {
  char what[160];
  snprintf(what, sizeof what,
           "fold %lld of %x to %x, [%lld,%lld,%lld,..] to [%lld,%lld,%lld,..], axis %lld, last %lld",
           (long long)c->fold, c->in, c->out, (long long)c->dims[0], (long long)c->dims[1],
           (long long)c->dims[2], (long long)c->to[0], (long long)c->to[1], (long long)c->to[2],
           (long long)c->axis, (long long)c->last);
  make(&c->t[IN], c->in, c->rank, c->dims, seed);
  fill(c, rare, seed);
  uint64_t same = fx_next(seed);
  for (int i = GOT; i < TENSORS; i++) {
    uint64_t copy = same;
    make(&c->t[i], c->out, c->rank, c->to, &copy);
  }
  const bs_tensor_desc *descs[2] = {&c->t[IN].d, &c->t[GOT].d};
  bs_op_query q = fx_query("reduce", descs, 2);
  q.attrs[0] = c->fold;
  q.attrs[1] = is_place(c) || is_running(c) ? c->axis : 0;
  q.attrs[2] = is_place(c) || is_running(c) ? c->last : 0;
  q.numbers[0] = c->factor;
  pl_run_ref(p, &q, NULL, (bs_tensor *[]){&c->t[IN].t, &c->t[WANT].t});
  pl_run_cuda(p, is_running(c) ? &cuda_scan : &cuda_reduce_op, &q, NULL,
              (bs_tensor *[]){&c->t[IN].t, &c->t[GOT].t});
  pl_run_cuda(p, is_running(c) ? &cuda_scan : &cuda_reduce_op, &q, NULL,
              (bs_tensor *[]){&c->t[IN].t, &c->t[AGAIN].t});
  ck_assert_msg(memcmp(c->t[GOT].pages, c->t[AGAIN].pages, c->t[GOT].bytes) == 0, "%s: two runs differ",
                what);
  compare(c, what);
  for (int i = 0; i < TENSORS; i++) pl_free(&c->t[i]);
}

static void set_factor(rcase *c) {
  c->factor = 1.0;
  if ((c->fold == BS_FOLD_SUM || c->fold == BS_FOLD_SUMSQ) && bs_dtype_is_float(c->in)) c->factor = 0.375;
}

/* Matrices, of which rows, columns or all are folded. */
START_TEST(matrices) {
  static const int64_t lengths[] = {1, 2, 3, 31, 32, 33, 129, 1024, 1025, 5000};
  pl p;
  pl_open(&p);
  uint64_t seed = 211;
  for (int64_t fold = BS_FOLD_SUM; fold <= BS_FOLD_CUMSUM; fold++)
    for (int d = 0; d < 11; d++)
      for (int i = 0; i < 10; i++)
        for (int turned = 0; turned < 2; turned++) {
          rcase c = {.rank = 2, .in = dtypes[d], .fold = fold};
          if (c.in == BS_BOOL && fold != BS_FOLD_MAX && fold != BS_FOLD_MIN && !is_place(&c)) continue;
          c.dims[turned] = lengths[i];
          c.dims[!turned] = 1 + fx_below(&seed, lengths[i] < 100 ? 70 : 5);
          shape_out(&c, &seed);
          if (fx_below(&seed, 2)) { /* the long one is folded */
            c.axis = turned;
            for (int k = 0; k < 2; k++) c.to[k] = k == turned && !is_running(&c) ? 1 : c.dims[k];
          }
          c.out = out_dtype(&c, &seed);
          set_factor(&c);
          check(&p, &c, 0, &seed);
        }
  pl_close(&p);
}
END_TEST

START_TEST(any_dims) {
  pl p;
  pl_open(&p);
  uint64_t seed = 223;
  for (int turn = 0; turn < 4000; turn++) {
    rcase c = {.rank = (uint32_t)fx_below(&seed, MOST + 1), .in = dtypes[fx_below(&seed, 11)]};
    c.fold = 1 + fx_below(&seed, 8);
    if (c.rank == 0 && (is_place(&c) || is_running(&c))) continue;
    if (c.in == BS_BOOL && c.fold != BS_FOLD_MAX && c.fold != BS_FOLD_MIN && !is_place(&c)) continue;
    for (uint32_t d = 0; d < c.rank; d++)
      c.dims[d] = turn % 20 == 0 ? fx_below(&seed, 3) : 1 + fx_below(&seed, 6);
    shape_out(&c, &seed);
    c.out = out_dtype(&c, &seed);
    set_factor(&c);
    check(&p, &c, 0, &seed);
  }
  pl_close(&p);
}
END_TEST

START_TEST(special_values) {
  pl p;
  pl_open(&p);
  uint64_t seed = 227;
  for (int turn = 0; turn < 3000; turn++) {
    rcase c = {.rank = 2, .in = dtypes[fx_below(&seed, 6)], .fold = 1 + fx_below(&seed, 8)};
    c.dims[0] = 1 + fx_below(&seed, 40);
    c.dims[1] = 1 + fx_below(&seed, 40);
    shape_out(&c, &seed);
    c.out = out_dtype(&c, &seed);
    set_factor(&c);
    check(&p, &c, c.fold == BS_FOLD_PROD ? 600 : 2 + fx_below(&seed, 60), &seed);
  }
  pl_close(&p);
}
END_TEST

static void refused(pl *p, const bs_op_query *q, uint32_t reason) {
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  ck_assert_int_eq(cuda_reduce_op.supports(&p->state, q, &answer), BS_OK);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  ck_assert_uint_eq(answer.reason, reason);
  ck_assert(answer.text[0] != '\0');
}

START_TEST(refusals) {
  pl p;
  pl_open(&p);
  pl_tensor in, out;
  pl_make(&in, BS_F32, 2, (const int64_t[]){2, 8}, NULL, PL_FIRST);
  pl_make(&out, BS_F32, 2, (const int64_t[]){2, 1}, NULL, PL_FIRST);
  const bs_tensor_desc whole = bs_desc_2d(BS_I32, 2, 1), *descs[2] = {&in.d, &out.d};
  bs_op_query q = fx_query("reduce", descs, 2);
  q.numbers[0] = 1.0;
  refused(&p, &q, BS_REASON_NOT_BUILT);
  q.attrs[0] = BS_FOLD_CUMSUM;
  refused(&p, &q, BS_REASON_NOT_BUILT);
  q.attrs[0] = BS_FOLD_SUM;
  descs[1] = &whole;
  refused(&p, &q, BS_REASON_DTYPE);
  descs[1] = NULL;
  refused(&p, &q, BS_REASON_RANK);
  pl_free(&in);
  pl_free(&out);
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{matrices}, {any_dims}, {special_values}, {refusals}, {0}};
  return run_tests("cuda reduce", tests, (test_setup){0});
}
