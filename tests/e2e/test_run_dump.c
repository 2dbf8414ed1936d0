/* SPDX-License-Identifier: MIT
 * test_run_dump.c - what `bsrun --dump` writes, checked from the files alone: Y = X W^T + b in fp64 within
 * T3's bound, each rank's partial the product over its own columns, their sum Y bit for bit, and X, W, bias
 * the same bytes for every number of ranks. check_dump.py does the same in NumPy where there is one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/dtype.h"
#include "formats/npy.h"
#include "lab/store/sha256.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

enum { B = 7, N = 33, K = 45, MAX_RANKS = 4 };

typedef struct matrix {
  int64_t rows, cols;
  double *at;
} matrix;

typedef struct dump {
  uint32_t ranks;
  matrix x, w, bias, columns[MAX_RANKS], partial[MAX_RANKS], y[MAX_RANKS];
} dump;

typedef struct format {
  const char *name;
  uint32_t dtype;
  double u, tiny; /* unit round-off; one subnormal step */
} format;
static const format formats[] = {{"f32", BS_F32, 0x1p-24, 0x1p-149},
                                 {"bf16", BS_BF16, 0x1p-8, 0x1p-133},
                                 {"f16", BS_F16, 0x1p-11, 0x1p-24}};

static int has(const char *in, const char *name, int rank) {
  char file[64];
  snprintf(file, sizeof file, rank < 0 ? "%s.npy" : "%s_rank%d.npy", name, rank);
  return run_exists(in, file);
}

static matrix load(const char *in, const char *name, int rank) {
  char path[256];
  bs_npy npy;
  bs_error err = {.struct_size = sizeof err};
  matrix m;
  snprintf(path, sizeof path, rank < 0 ? "%s/%s.npy" : "%s/%s_rank%d.npy", in, name, rank);
  if (bs_npy_open(path, &npy, &err) != BS_OK) ck_abort_msg("%s: %s", path, err.message);
  ck_assert_uint_eq(npy.rank, 2);
  m.rows = npy.dims[0];
  m.cols = npy.dims[1];
  m.at = malloc((npy.count + 1) * sizeof *m.at);
  ck_assert_ptr_nonnull(m.at);
  for (uint64_t i = 0; i < npy.count; i++) {
    m.at[i] = npy.dtype == BS_I64 ? (double)((const int64_t *)npy.data)[i]
                                  : bs_load_f64(npy.dtype, npy.data, (int64_t)i);
  }
  bs_npy_close(&npy);
  return m;
}

static void load_dump(const char *in, uint32_t ranks, dump *d) {
  memset(d, 0, sizeof *d);
  d->ranks = ranks;
  d->x = load(in, "x", -1);
  d->w = load(in, "w", -1);
  d->bias = load(in, "bias", -1);
  for (int r = 0; r < (int)ranks; r++) {
    d->columns[r] = load(in, "columns", r);
    d->y[r] = load(in, "y", r);
    if (ranks > 1) d->partial[r] = load(in, "partial", r);
  }
  ck_assert_int_eq(has(in, "y", (int)ranks), 0);
  ck_assert_int_eq(has(in, "partial", ranks > 1 ? (int)ranks : 0), 0);
}

static void free_dump(dump *d) {
  free(d->x.at);
  free(d->w.at);
  free(d->bias.at);
  for (uint32_t r = 0; r < d->ranks; r++) {
    free(d->columns[r].at);
    free(d->partial[r].at);
    free(d->y[r].at);
  }
}

/* The product over `columns` and its magnitude, at one output. */
static void product(const dump *d, const matrix *columns, int64_t b, int64_t n, double *out_y,
                    double *out_magnitude) {
  *out_y = *out_magnitude = 0;
  for (int64_t i = 0; i < columns->cols; i++) {
    const int64_t k = (int64_t)columns->at[i];
    const double term = d->x.at[b * K + k] * d->w.at[n * K + k];
    *out_y += term;
    *out_magnitude += fabs(term);
  }
}

/* T3 at one output of a layer split over K, and each rank's own bound on its partial. 1: within. */
static int k_split_output(const dump *d, const format *f, int64_t b, int64_t n) {
  const double bias = d->bias.at[n], got = d->y[0].at[b * N + n];
  double y = 0, magnitude = 0, stored = 0, bound;
  float total = 0;
  int right = 1;
  for (uint32_t r = 0; r < d->ranks; r++) {
    double part, part_magnitude;
    product(d, &d->columns[r], b, n, &part, &part_magnitude);
    part += r == 0 ? bias : 0;
    part_magnitude += r == 0 ? fabs(bias) : 0;
    y += part;
    magnitude += part_magnitude;
    stored += fabs(part);
    if (r > 0 && (r + 1 < d->ranks || f->dtype != BS_F32)) stored += fabs(y);
    if (d->ranks == 1) continue;
    const double dumped = d->partial[r].at[b * N + n];
    const double allowed =
        0x1p-24 * fabs(part) + 4 * sqrt((double)K + 1) * 0x1p-24 * part_magnitude + 0x1p-149;
    right = right && fabs(dumped - part) <= allowed;
    total = r == 0 ? (float)dumped : total + (float)dumped;
  }
  bound = f->u * fabs(y) + f->tiny / 2 + 4 * sqrt((double)K + 1) * 0x1p-24 * magnitude;
  if (d->ranks > 1) {
    unsigned char rounded[8];
    bound += (1 + f->u) * (0x1p-24 * stored + 0x1p-149 * d->ranks);
    bs_store_f64(f->dtype, rounded, 0, (double)total);
    right = right && bs_load_f64(f->dtype, rounded, 0) == got;
  }
  return right && fabs(got - y) <= bound;
}

/* The same for rows of W on ranks: own features side by side are Y. */
static int n_split_output(const dump *d, const format *f, int64_t b, int64_t n) {
  const double got = d->y[0].at[b * N + n], bias = d->bias.at[n];
  double y, magnitude;
  int64_t own = n;
  uint32_t r = 0;
  product(d, &d->columns[0], b, n, &y, &magnitude);
  y += bias;
  magnitude += fabs(bias);
  while (d->ranks > 1 && own >= d->partial[r].cols) own -= d->partial[r++].cols;
  if (d->ranks > 1 && d->partial[r].at[b * d->partial[r].cols + own] != got) return 0;
  return fabs(got - y) <= f->u * fabs(y) + f->tiny / 2 + 4 * sqrt((double)K + 1) * 0x1p-24 * magnitude;
}

/* The number of outputs that are wrong. */
static size_t judge(const dump *d, const format *f, int splits_rows) {
  size_t wrong = 0;
  for (int64_t b = 0; b < B; b++) {
    for (int64_t n = 0; n < N; n++)
      wrong += !(splits_rows ? n_split_output(d, f, b, n) : k_split_output(d, f, b, n));
  }
  for (uint32_t r = 1; r < d->ranks; r++)
    wrong += memcmp(d->y[0].at, d->y[r].at, B * N * sizeof(double)) != 0;
  return wrong;
}

static void check_columns(const dump *d, int splits_rows) {
  int seen[K] = {0};
  for (uint32_t r = 0; r < d->ranks; r++) {
    for (int64_t i = 0; i < d->columns[r].cols; i++) seen[(int64_t)d->columns[r].at[i]]++;
  }
  for (int k = 0; k < K; k++) ck_assert_int_eq(seen[k], splits_rows ? (int)d->ranks : 1);
}

typedef struct dump_case {
  const char *method, *mask; /* mask NULL: the method's own */
  uint32_t ranks;
  int splits_rows;
  const char *set; /* one more setting, or NULL */
} dump_case;

static const dump_case cases[] = {
    {"dense", NULL, 1, 1, NULL},
    {"column_parallel", NULL, 1, 1, NULL},
    {"column_parallel", NULL, 2, 1, NULL},
    {"column_parallel", NULL, 3, 1, NULL},
    {"column_parallel", NULL, 4, 1, NULL},
    {"row_parallel", NULL, 1, 0, NULL},
    {"row_parallel", NULL, 2, 0, NULL},
    {"row_parallel", NULL, 3, 0, NULL},
    {"row_parallel", NULL, 4, 0, NULL},
    {"blockshock", "complement_1100_0011", 1, 0, NULL},
    {"blockshock", "complement_1100_0011", 2, 0, NULL},
    {"blockshock", "complement_1010_0101", 2, 0, NULL},
    {"blockshock", "complement_1001_0110", 4, 0, NULL},
    {"blockshock", "interleave", 3, 0, NULL},
    {"blockshock", "contiguous", 4, 0, NULL},
    {"masked_split", "complement_1100_0011", 2, 0, NULL},
    {"masked_split", "complement_1001_0110", 4, 0, NULL},
    {"masked_split", "interleave", 3, 0, NULL},
    {"row_parallel", NULL, 2, 0, "method.overlap=4"},
    {"blockshock", "interleave", 3, 0, "method.overlap=2"},
    {"column_parallel", NULL, 2, 1, "method.overlap=3"},
    {"row_parallel", NULL, 2, 0, "method.x_placement=split"},
};

static void make_dump(const dump_case *c, const format *f, const char *name) {
  char dtype[32], ranks[8];
  ran r;
  const char **args = run_words(
      "--plugin cpu --phase numbers -q --method %s -P %s --to %s --out out --set model.N=33 --set "
      "model.K=45 "
      "--set model.B=7 --set %s --set method.bias=true --set phase.timed_iters=1 --set "
      "phase.integer_gate=false --set phase.fault_gate=false",
      c->method, ranks, name, dtype);
  size_t n = 0;
  while (args[n] != NULL) n++;
  if (c->mask != NULL) args[n++] = "--mask", args[n++] = c->mask;
  if (c->set != NULL) args[n++] = "--set", args[n++] = c->set;
  snprintf(dtype, sizeof dtype, "model.dtype=%s", f->name);
  snprintf(ranks, sizeof ranks, "%u", c->ranks);
  run_bsrun(&r, dir, NULL, args);
  run_expect(&r, 0, c->method);
  ran_free(&r);
}

START_TEST(dump_is_the_product) {
  const dump_case *c = &cases[_i];
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    char path[128];
    dump d;
    make_dump(c, &formats[i], formats[i].name);
    snprintf(path, sizeof path, "%s/%s", dir, formats[i].name);
    load_dump(path, c->ranks, &d);
    ck_assert_int_eq(d.x.rows * 10000 + d.x.cols, B * 10000 + K);
    ck_assert_int_eq(d.w.rows * 10000 + d.w.cols, N * 10000 + K);
    check_columns(&d, c->splits_rows);
    ck_assert_msg(judge(&d, &formats[i], c->splits_rows) == 0, "%s -P %u %s: wrong outputs", c->method,
                  c->ranks, formats[i].name);
    /* The check itself can fail: a lost weight, and a partial of another rank. */
    d.w.at[5 * K + 3] = 0;
    ck_assert_uint_ge(judge(&d, &formats[i], c->splits_rows), 1);
    free_dump(&d);
  }
}
END_TEST

/* The terms of a sum in int8 steps travel as codes and scales: neither is written as a partial. */
START_TEST(codes_are_no_partial) {
  static const dump_case c = {"row_parallel", NULL, 2, 0, "method.reduce_dtype=int8"};
  char path[128];
  make_dump(&c, &formats[0], "int8");
  snprintf(path, sizeof path, "%s/int8", dir);
  for (int r = 0; r < 2; r++) {
    ck_assert_int_eq(has(path, "y", r), 1);
    ck_assert_int_eq(has(path, "partial", r), 0);
  }
}
END_TEST

/* X, W and bias are generated part by part on the ranks; they are the same numbers however many there are,
 * and whatever the method. */
START_TEST(inputs_do_not_depend_on_ranks) {
  static const char *const names[] = {"x.npy", "w.npy", "bias.npy"};
  static const dump_case variants[] = {
      {"row_parallel", NULL, 1, 0, NULL},    {"row_parallel", NULL, 2, 0, NULL},
      {"row_parallel", NULL, 3, 0, NULL},    {"row_parallel", NULL, 4, 0, NULL},
      {"column_parallel", NULL, 3, 1, NULL}, {"dense", NULL, 1, 1, NULL}};
  char sums[3][3][65];
  for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
    for (size_t i = 0; i < 3; i++) {
      char name[32];
      snprintf(name, sizeof name, "%zu_%s", v, formats[i].name);
      make_dump(&variants[v], &formats[i], name);
      for (size_t k = 0; k < 3; k++) {
        char path[256], sum[65];
        bs_error err = {.struct_size = sizeof err};
        snprintf(path, sizeof path, "%s/%s/%s", dir, name, names[k]);
        ck_assert_int_eq(bs_sha256_file(path, sum, &err), BS_OK);
        if (v == 0) memcpy(sums[i][k], sum, sizeof sum);
        ck_assert_msg(strcmp(sums[i][k], sum) == 0, "%s of %s -P %u differs", names[k], variants[v].method,
                      variants[v].ranks);
      }
    }
    if (v == 0) { /* equal seeds are not equal numbers: X is not W */
      ck_assert_str_ne(sums[0][0], sums[0][1]);
      ck_assert_str_ne(sums[0][0], sums[1][0]);
    }
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {dump_is_the_product, TEST_COUNT(cases)}, {codes_are_no_partial}, {inputs_do_not_depend_on_ranks}, {0}};
  return run_tests("run_dump", tests, (test_setup){dir_make, dir_remove, .timeout = 180});
}
