/* SPDX-License-Identifier: MIT
 * test_cuda_normalize.c - normalize of the cuda plugin, its kernels' bodies run by the CPU twins, against
 * ref: every kind, rows of a warp and of a block, dtypes, gaps, addends that repeat, special values, results
 * in the place of arguments. */
#include <math.h>

#include "plain.h"
#include "tests/run_tests.h"

enum { X, ADD, GAMMA, BETA, Y, SUM, ARGS };
enum { DENSE, GAPS, TURNED, LAYS };
enum { NO_ADD, ADD_WHOLE, ADD_ROW, ADD_COLUMN, ADDS };

/* Everything of one query. Tensors of Y and sum are there twice: by ref, by the plugin. */
typedef struct ncase {
  int64_t rows, n;
  int64_t kind;
  double eps;
  uint32_t dtypes[ARGS];
  int lay, add, where;
  int has_gamma, has_beta, has_sum;
  int64_t rare; /* one in so many values of X is special */
} ncase;

typedef struct tensors {
  pl_tensor in[Y];
  pl_tensor out[2][2]; /* [ref, cuda][Y, sum] */
} tensors;

static void lay(pl_tensor *t, uint32_t dtype, int64_t rows, int64_t n, int how, int where) {
  if (how == DENSE) pl_matrix(t, dtype, rows, n, n, 1, where);
  if (how == GAPS) pl_matrix(t, dtype, rows, n, (n + 11) / 8 * 8, 1, where);
  if (how == TURNED) pl_matrix(t, dtype, rows, n, 1, rows + 1, where);
}

static void make(tensors *t, const ncase *c, uint64_t *seed) {
  const int64_t one = 1;
  lay(&t->in[X], c->dtypes[X], c->rows, c->n, c->lay, c->where);
  pl_fill(&t->in[X], seed, c->rare);
  lay(&t->in[ADD], c->dtypes[ADD], c->add == ADD_ROW ? 1 : c->rows, c->add == ADD_COLUMN ? 1 : c->n,
      c->add == ADD_WHOLE ? (c->lay + 1) % LAYS : DENSE, c->where);
  pl_make(&t->in[GAMMA], c->dtypes[GAMMA], 1, &c->n, NULL, c->where);
  pl_make(&t->in[BETA], c->dtypes[BETA], 1, &c->n, c->lay == GAPS ? (const int64_t[]){2} : &one, c->where);
  for (int i = ADD; i < Y; i++) pl_fill(&t->in[i], seed, 0);
  for (int w = 0; w < 2; w++) {
    lay(&t->out[w][0], c->dtypes[Y], c->rows, c->n, (c->lay + 2) % LAYS, c->where);
    lay(&t->out[w][1], c->dtypes[SUM], c->rows, c->n, c->lay, c->where);
  }
}

static void drop(tensors *t) {
  for (int i = 0; i < Y; i++) pl_free(&t->in[i]);
  for (int i = 0; i < 4; i++) pl_free(&t->out[i / 2][i % 2]);
}

static bs_op_query ask(const ncase *c, const bs_tensor_desc *const *descs) {
  bs_op_query q = fx_query("normalize", descs, ARGS);
  q.attrs[0] = c->kind;
  q.numbers[0] = c->eps;
  return q;
}

static void run_one(pl *p, const ncase *c, tensors *t, int by_cuda) {
  pl_tensor *all[ARGS] = {&t->in[X],
                          c->add != NO_ADD ? &t->in[ADD] : NULL,
                          c->has_gamma ? &t->in[GAMMA] : NULL,
                          c->has_beta ? &t->in[BETA] : NULL,
                          &t->out[by_cuda][0],
                          c->has_sum ? &t->out[by_cuda][1] : NULL};
  const bs_tensor_desc *descs[ARGS];
  bs_tensor *args[ARGS];
  for (int i = 0; i < ARGS; i++) {
    descs[i] = all[i] != NULL ? &all[i]->d : NULL;
    args[i] = all[i] != NULL ? &all[i]->t : NULL;
  }
  const bs_op_query q = ask(c, descs);
  if (by_cuda)
    pl_run_cuda(p, &cuda_normalize, &q, NULL, args);
  else
    pl_run_ref(p, &q, NULL, args);
}

/* One unit of an output's dtype at v. */
static double own_step(uint32_t dtype, double v) {
  const double least = dtype == BS_F16      ? 0x1p-24
                       : dtype == BS_F8E4M3 ? 0x1p-9
                       : dtype == BS_F8E5M2 ? 0x1p-16
                       : dtype == BS_F64    ? 0.0
                                            : 0x1p-133;
  return dtype == BS_F32 ? 0x1p-149 : fmax(2.0 * bs_dtype_unit_roundoff(dtype) * fabs(v), least);
}

/* Within `units` roundings of |want| + `floor`, and one rounding to the dtype. Elements are then zeroed, so
 * that all other bytes can be compared. */
static void near(pl_tensor *got, pl_tensor *want, double units, double floor, int wide, const char *what) {
  const double u = wide ? 0x1p-53 : 0x1p-24;
  for (int64_t r = 0; r < got->t.dims[0]; r++)
    for (int64_t c = 0; c < got->t.dims[1]; c++) {
      const double g = pl_get(got, r, c), w = pl_get(want, r, c);
      const double bound = units * u * (fabs(w) + floor) + own_step(got->t.dtype, w);
      if (!(g == w || (isnan(g) && isnan(w)) || fabs(g - w) <= bound))
        ck_abort_msg("%s: [%lld,%lld] is %.17g, want %.17g", what, (long long)r, (long long)c, g, w);
      pl_set(got, r, c, 0.0);
      pl_set(want, r, c, 0.0);
    }
  pl_same_bits(got, want, what);
}

static void check(pl *p, const ncase *c, uint64_t *seed) {
  tensors t, again;
  char what[128];
  int wide = 0;
  uint64_t same = *seed;
  for (int i = 0; i < ARGS; i++) {
    const int there[ARGS] = {1, c->add != NO_ADD, c->has_gamma, c->has_beta, 1, c->has_sum};
    wide |= there[i] && c->dtypes[i] == BS_F64;
  }
  snprintf(what, sizeof what, "kind %lld, %lld rows of %lld, lay %d, add %d, dtypes %x %x %x",
           (long long)c->kind, (long long)c->rows, (long long)c->n, c->lay, c->add, c->dtypes[X],
           c->dtypes[ADD], c->dtypes[Y]);
  make(&t, c, seed);
  make(&again, c, &same);
  run_one(p, c, &t, 0);
  run_one(p, c, &t, 1);
  run_one(p, c, &again, 1);
  for (int i = 0; i < 2; i++) pl_same_bits(&again.out[1][i], &t.out[1][i], what);
  /* e^v has |v| times the error of v; in f64, sums of ref in one chain round as much. */
  double units = c->kind != BS_NORMALIZE_SOFTMAX ? 12.0 : c->rare > 0 ? 256.0 : 24.0;
  if (wide) units *= 1.0 + (double)c->n / 100.0;
  const double floor = c->kind == BS_NORMALIZE_SOFTMAX       ? 0.0
                       : c->kind == BS_NORMALIZE_LOG_SOFTMAX ? 1.0
                                                             : 8.0;
  near(&t.out[1][0], &t.out[0][0], units, floor, wide, what);
  near(&t.out[1][1], &t.out[0][1], 1.0, 0.0, wide, what);
  drop(&t);
  drop(&again);
}

static const uint32_t dtypes[6] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_F8E4M3, BS_F8E5M2};
static const int64_t lengths[] = {1, 2, 3, 31, 32, 33, 127, 768, 1000, 1024, 1025, 2051, 5000};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static ncase begin_case(int64_t kind, int64_t n, uint64_t *seed) {
  ncase c = {.rows = 1 + fx_below(seed, n < 100 ? 19 : 3), .n = n, .kind = kind, .eps = 1e-5};
  c.lay = (int)fx_below(seed, LAYS);
  c.add = (int)fx_below(seed, ADDS);
  c.where = (int)fx_below(seed, PL_PLACES);
  c.has_gamma = kind < BS_NORMALIZE_SOFTMAX && fx_below(seed, 2);
  c.has_beta = kind < BS_NORMALIZE_SOFTMAX && fx_below(seed, 2);
  c.has_sum = (int)fx_below(seed, 2);
  for (int i = 0; i < ARGS; i++) c.dtypes[i] = BS_F32;
  return c;
}

START_TEST(every_length) {
  pl p;
  pl_open(&p);
  uint64_t seed = 101;
  for (int64_t kind = BS_NORMALIZE_LAYER; kind <= BS_NORMALIZE_LOG_SOFTMAX; kind++)
    for (int i = 0; i < LENGTHS; i++)
      for (int turn = 0; turn < 12; turn++) {
        ncase c = begin_case(kind, lengths[i], &seed);
        const uint32_t all = dtypes[turn % 4];
        for (int a = 0; a < ARGS; a++) c.dtypes[a] = all;
        check(&p, &c, &seed);
      }
  pl_close(&p);
}
END_TEST

START_TEST(mixed_dtypes) {
  pl p;
  pl_open(&p);
  uint64_t seed = 103;
  for (int turn = 0; turn < 600; turn++) {
    ncase c = begin_case(1 + turn % 4, lengths[fx_below(&seed, LENGTHS)], &seed);
    for (int a = 0; a < ARGS; a++) c.dtypes[a] = dtypes[fx_below(&seed, 6)];
    check(&p, &c, &seed);
  }
  pl_close(&p);
}
END_TEST

/* NaN, infinities, zeros, and numbers whose squares f32 does not have. */
START_TEST(special_values) {
  pl p;
  pl_open(&p);
  uint64_t seed = 107;
  for (int turn = 0; turn < 600; turn++) {
    const int64_t n = lengths[fx_below(&seed, LENGTHS)];
    ncase c = begin_case(1 + turn % 4, n, &seed);
    for (int a = 0; a < ARGS; a++) c.dtypes[a] = dtypes[turn / 4 % 4];
    c.dtypes[Y] = c.dtypes[X] == BS_F64 ? BS_F64 : BS_F32;
    c.rare = 2 + fx_below(&seed, 4 * n);
    check(&p, &c, &seed);
  }
  pl_close(&p);
}
END_TEST

/* Rows of one value, of which also large, small and infinite ones; eps 0 too. */
static void check_row(pl *p, int64_t kind, int64_t n, double eps, double first, double others) {
  ncase c = {.rows = 2, .n = n, .kind = kind, .eps = eps};
  uint64_t seed = 1;
  tensors t;
  char what[96];
  for (int i = 0; i < ARGS; i++) c.dtypes[i] = BS_F32;
  make(&t, &c, &seed);
  for (int64_t i = 0; i < 2 * n; i++) pl_set(&t.in[X], i / n, i % n, i % n == 0 ? first : others);
  run_one(p, &c, &t, 0);
  run_one(p, &c, &t, 1);
  snprintf(what, sizeof what, "kind %lld, %lld of %g and %g, eps %g", (long long)kind, (long long)n, first,
           others, eps);
  near(&t.out[1][0], &t.out[0][0], 32.0, kind == BS_NORMALIZE_SOFTMAX ? 0.0 : 1.0, 0, what);
  drop(&t);
}

START_TEST(rows_of_few_values) {
  static const double values[] = {0.0,  -0.0,  1.0,    7.25,     1e30,      -1e30,
                                  3e38, 1e-30, -1e-42, INFINITY, -INFINITY, NAN};
  static const int64_t sizes[] = {1, 2, 64, 1024, 2048};
  enum { VALUES = sizeof values / sizeof *values };
  pl p;
  pl_open(&p);
  for (int64_t kind = BS_NORMALIZE_LAYER; kind <= BS_NORMALIZE_LOG_SOFTMAX; kind++)
    for (int size = 0; size < 5; size++)
      for (int i = 0; i < VALUES; i++)
        for (int j = 0; j < VALUES; j++) {
          check_row(&p, kind, sizes[size], 1e-5, values[i], values[j]);
          check_row(&p, kind, sizes[size], 0.0, values[i], values[j]);
        }
  pl_close(&p);
}
END_TEST

/* Numbers about 1000 that differ by thousandths: the mean in one number of f32 would be too coarse. */
START_TEST(near_numbers) {
  static const int64_t sizes[] = {5, 768, 4096};
  pl p;
  pl_open(&p);
  for (int size = 0; size < 3; size++) {
    ncase c = {.rows = 3, .n = sizes[size], .kind = BS_NORMALIZE_LAYER, .eps = 1e-12};
    uint64_t seed = 109;
    tensors t;
    for (int i = 0; i < ARGS; i++) c.dtypes[i] = BS_F32;
    make(&t, &c, &seed);
    for (int64_t i = 0; i < c.rows * c.n; i++)
      pl_set(&t.in[X], i / c.n, i % c.n, 1000.0 + 0x1p-10 * (double)fx_below(&seed, 9));
    run_one(&p, &c, &t, 0);
    run_one(&p, &c, &t, 1);
    near(&t.out[1][0], &t.out[0][0], 12.0, 1.0, 0, "near numbers");
    drop(&t);
  }
  pl_close(&p);
}
END_TEST

/* The bits are those of the length: rows that can be read in pieces or cannot. */
START_TEST(bits_are_of_the_shape) {
  pl p;
  pl_open(&p);
  for (int64_t kind = BS_NORMALIZE_LAYER; kind <= BS_NORMALIZE_LOG_SOFTMAX; kind++)
    for (int i = 0; i < LENGTHS; i++)
      for (int d = 0; d < 4; d++) {
        tensors t[2];
        for (int w = 0; w < 2; w++) {
          uint64_t seed = 113;
          ncase c = {.rows = 3, .n = lengths[i], .kind = kind, .eps = 1e-6, .add = ADD_WHOLE};
          for (int a = 0; a < ARGS; a++) c.dtypes[a] = dtypes[d];
          c.where = w == 0 ? PL_FIRST : PL_ODD;
          c.lay = w == 0 ? DENSE : TURNED;
          make(&t[w], &c, &seed);
          run_one(&p, &c, &t[w], 1);
        }
        for (int64_t e = 0; e < 3 * lengths[i]; e++)
          ck_assert(pl_get(&t[0].out[1][0], e / lengths[i], e % lengths[i]) ==
                    pl_get(&t[1].out[1][0], e / lengths[i], e % lengths[i]));
        for (int w = 0; w < 2; w++) drop(&t[w]);
      }
  pl_close(&p);
}
END_TEST

/* Y in the place of X, sum in that of add. */
START_TEST(in_place) {
  pl p;
  pl_open(&p);
  uint64_t seed = 127;
  for (int turn = 0; turn < 120; turn++) {
    const uint32_t dtype = dtypes[turn / 4 % 4];
    const int64_t n = lengths[turn % LENGTHS];
    pl_tensor of[2][2];
    for (int w = 0; w < 2; w++)
      for (int i = 0; i < 2; i++) lay(&of[w][i], dtype, 4, n, turn % LAYS, turn % PL_PLACES);
    for (int i = 0; i < 2; i++) {
      pl_fill(&of[0][i], &seed, 0);
      pl_copy(&of[1][i], &of[0][i]);
    }
    const bs_tensor_desc *d = &of[0][0].d, *descs[ARGS] = {d, d, NULL, NULL, d, d};
    bs_op_query q = fx_query("normalize", descs, ARGS);
    q.attrs[0] = 1 + turn % 4;
    q.numbers[0] = 1e-5;
    for (int w = 0; w < 2; w++) {
      bs_tensor *x = &of[w][0].t, *add = &of[w][1].t, *args[ARGS] = {x, add, NULL, NULL, x, add};
      if (w == 0) pl_run_ref(&p, &q, NULL, args);
      if (w == 1) pl_run_cuda(&p, &cuda_normalize, &q, NULL, args);
    }
    for (int i = 0; i < 2; i++) near(&of[1][i], &of[0][i], 24.0, 1.0, dtype == BS_F64, "in place");
    for (int i = 0; i < 4; i++) pl_free(&of[i / 2][i % 2]);
  }
  pl_close(&p);
}
END_TEST

/* The same memory as a tensor of more dims: [A, B, C, n] of rows that lie as [B, C, A]. */
static void as_four(pl_tensor *t, const int64_t *dims, int turned) {
  const int64_t n = t->t.dims[1], step = t->t.strides[0], last = t->t.strides[1];
  const int64_t strides[4] = {turned ? step : dims[1] * dims[2] * step,
                              turned ? dims[2] * dims[0] * step : dims[2] * step,
                              turned ? dims[0] * step : step, last};
  t->t.rank = t->d.rank = 4;
  for (int d = 0; d < 4; d++) {
    t->t.dims[d] = t->d.dims[d] = d < 3 ? dims[d] : n;
    t->t.strides[d] = t->d.strides[d] = strides[d];
  }
}
static void as_two(pl_tensor *t, int64_t rows, int64_t n, int64_t step) {
  t->t.rank = 2;
  t->t.dims[0] = rows;
  t->t.dims[1] = n;
  t->t.strides[0] = step;
  t->t.strides[1] = 1;
}

START_TEST(four_dims) {
  static const int64_t dims[3] = {3, 2, 5};
  pl p;
  pl_open(&p);
  uint64_t seed = 131;
  for (int turn = 0; turn < 48; turn++) {
    const int64_t n = lengths[turn % LENGTHS] % 1100, step = n + turn % 3;
    const uint32_t dtype = dtypes[turn % 4];
    pl_tensor x, add, y[2];
    pl_matrix(&x, dtype, 30, n, step, 1, turn % PL_PLACES);
    pl_make(&add, BS_F32, 3, (const int64_t[]){2, 1, n}, NULL, PL_LAST); /* fewer dims, and one of 1 */
    memset(add.t.data, 0, add.t.bytes);
    for (int64_t i = 0; i < 2 * n; i++) bs_store_f64(BS_F32, add.t.data, i, (double)fx_below(&seed, 9));
    pl_fill(&x, &seed, 0);
    as_four(&x, dims, turn % 2);
    for (int w = 0; w < 2; w++) {
      pl_matrix(&y[w], BS_F32, 30, n, step, 1, turn % PL_PLACES);
      as_four(&y[w], dims, turn / 2 % 2);
    }
    add.t.rank = add.d.rank = 4; /* the schema wants the rank of X */
    for (int d = 3; d > 0; d--) {
      add.t.dims[d] = add.d.dims[d] = add.t.dims[d - 1];
      add.t.strides[d] = add.d.strides[d] = add.t.strides[d - 1];
    }
    add.t.dims[0] = add.d.dims[0] = 1;
    const bs_tensor_desc *descs[ARGS] = {&x.d, &add.d, NULL, NULL, &y[0].d, NULL};
    bs_op_query q = fx_query("normalize", descs, ARGS);
    q.attrs[0] = 1 + turn % 4;
    q.numbers[0] = 1e-5;
    pl_run_ref(&p, &q, NULL, (bs_tensor *[]){&x.t, &add.t, NULL, NULL, &y[0].t, NULL});
    pl_run_cuda(&p, &cuda_normalize, &q, NULL, (bs_tensor *[]){&x.t, &add.t, NULL, NULL, &y[1].t, NULL});
    for (int w = 0; w < 2; w++) as_two(&y[w], 30, n, step);
    near(&y[1], &y[0], 32.0, 1.0, dtype == BS_F64, "four dims");
    pl_free(&x);
    pl_free(&add);
    for (int w = 0; w < 2; w++) pl_free(&y[w]);
  }
  pl_close(&p);
}
END_TEST

START_TEST(empty) {
  pl p;
  pl_open(&p);
  uint64_t seed = 137;
  for (int turn = 0; turn < 8; turn++) {
    ncase c = {.rows = turn % 2 ? 0 : 3, .n = turn % 2 ? 5 : 0, .kind = 1 + turn / 2};
    for (int i = 0; i < ARGS; i++) c.dtypes[i] = BS_F32;
    check(&p, &c, &seed);
  }
  ck_assert_int_eq(p.launches, 0);
  pl_close(&p);
}
END_TEST

static void refused(pl *p, const bs_op_query *q, uint32_t reason) {
  bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
  ck_assert_int_eq(cuda_normalize.supports(&p->state, q, &answer), BS_OK);
  ck_assert_uint_eq(answer.level, BS_LEVEL_NO);
  ck_assert_uint_eq(answer.reason, reason);
  ck_assert(answer.text[0] != '\0');
}

START_TEST(refusals) {
  const int64_t dims[2] = {2, 8};
  pl p;
  pl_open(&p);
  pl_tensor x, whole;
  pl_make(&x, BS_F32, 2, dims, NULL, PL_FIRST);
  pl_make(&whole, BS_I32, 2, dims, NULL, PL_FIRST);
  const bs_tensor_desc *descs[ARGS] = {&x.d, NULL, NULL, NULL, &x.d, NULL};
  bs_op_query q = fx_query("normalize", descs, ARGS);
  q.attrs[0] = 9;
  refused(&p, &q, BS_REASON_NOT_BUILT);
  q.attrs[0] = 1;
  descs[ADD] = &whole.d;
  refused(&p, &q, BS_REASON_DTYPE);
  descs[ADD] = descs[Y] = NULL;
  refused(&p, &q, BS_REASON_RANK);
  pl_free(&x);
  pl_free(&whole);
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_length},
                             {mixed_dtypes},
                             {special_values},
                             {rows_of_few_values},
                             {near_numbers},
                             {bits_are_of_the_shape},
                             {in_place},
                             {four_dims},
                             {empty},
                             {refusals},
                             {0}};
  return run_tests("cuda normalize", tests, (test_setup){0});
}
