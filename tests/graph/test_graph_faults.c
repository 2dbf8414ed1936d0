/* SPDX-License-Identifier: MIT
 * What other runtimes got wrong: orders of a transpose, scales and masks of attention, queries and keys of
 * different lengths, weights that are tied, constants of rank 3, tables of more than 2^31 bytes. Results are
 * compared with loops in f64 here. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/graph/build.h"

#define NONE BS_GRAPH_NONE

/* All 24 orders of four dimensions, read by an op, so that the view is not only copied. */
START_TEST(turns_every_way) {
  static const int64_t dims[4] = {2, 3, 4, 5};
  int order[4], left = _i, used = 0;
  for (int i = 0; i < 4; i++) {
    const int choices = 4 - i;
    int pick = left % choices, d = 0;
    left /= choices;
    for (;; d++)
      if (!(used >> d & 1) && pick-- == 0) break;
    used |= 1 << d;
    order[i] = d;
  }
  char perm[32];
  snprintf(perm, sizeof perm, "perm=%d,%d,%d,%d", order[0], order[1], order[2], order[3]);
  const uint32_t x = tb_input("x", BS_F32, 4, dims);
  tb_output("y", tb_op("Neg", tb_with("Transpose", perm, x, NONE, NONE), NONE, NONE));
  bs_session *s = tb_open("ref", "", NULL);
  float in[120];
  tb_fill(in, 120, 5);
  tb_set(s, "x", in);
  tb_run(s);
  const float *y = tb_get(s, "y");
  const int64_t stride[4] = {60, 20, 5, 1};
  int64_t at = 0;
  for (int64_t a = 0; a < dims[order[0]]; a++)
    for (int64_t b = 0; b < dims[order[1]]; b++)
      for (int64_t c = 0; c < dims[order[2]]; c++)
        for (int64_t d = 0; d < dims[order[3]]; d++, at++)
          ck_assert_float_eq(
              y[at],
              -in[a * stride[order[0]] + b * stride[order[1]] + c * stride[order[2]] + d * stride[order[3]]]);
  bs_session_close(s);
}
END_TEST

/* ---- attention ------------------------------------------------------------------------------- */

enum { B = 2, D = 8 };

typedef struct problem {
  const char *name;
  int64_t heads, groups, queries, keys;
  double scale;    /* 0: 1 / sqrt(D) */
  int mask_rank;   /* 0: none */
  int64_t mask[4]; /* its dims: 1 or those of the scores */
  int causal;
  int as_nodes; /* products and a softmax, as exporters write it; else the operator Attention */
} problem;

static const problem problems[] = {
    {"scaled", 4, 4, 6, 6, 0, 0, {0}, 0, 0},
    {"unscaled", 4, 4, 6, 6, 1, 0, {0}, 0, 1},
    {"custom scale", 4, 4, 6, 6, 0.77, 0, {0}, 0, 1},
    {"cross", 4, 4, 3, 9, 0, 0, {0}, 0, 0},
    {"cross by nodes", 4, 4, 9, 3, 0.5, 0, {0}, 0, 1},
    {"one query", 4, 2, 1, 9, 0, 0, {0}, 0, 0},
    {"groups", 4, 2, 6, 6, 0, 0, {0}, 0, 0},
    {"causal", 4, 2, 6, 6, 0, 0, {0}, 1, 0},
    {"mask of rank 2", 4, 4, 6, 5, 0, 2, {6, 5}, 0, 0},
    {"mask of rank 3", 4, 4, 6, 5, 0, 3, {4, 6, 5}, 0, 0},
    {"mask of rank 4", 4, 4, 6, 5, 0, 4, {2, 4, 6, 5}, 0, 0},
    {"mask of one row", 4, 4, 6, 5, 0, 4, {2, 1, 1, 5}, 0, 0},
    {"mask of one head", 4, 4, 6, 5, 0, 4, {1, 1, 6, 5}, 0, 1},
    {"mask of one column", 4, 4, 6, 5, 0, 4, {1, 4, 6, 1}, 0, 1},
    {"mask by rank 2 nodes", 4, 4, 6, 5, 0, 2, {6, 5}, 0, 1},
};

static double mask_at(const problem *p, const float *mask, const int64_t at[4]) {
  int64_t offset = 0;
  if (p->mask_rank == 0) return 0;
  for (int i = 0; i < p->mask_rank; i++)
    offset = offset * p->mask[i] + (p->mask[i] == 1 ? 0 : at[4 - p->mask_rank + i]);
  return mask[offset];
}

static double expected(const problem *p, const float *q, const float *k, const float *v, const float *mask,
                       int64_t b, int64_t h, int64_t s, int64_t d) {
  const double scale = p->scale != 0 ? p->scale : 1 / sqrt(D);
  const int64_t g = h / (p->heads / p->groups);
  double sum = 0, total = 0;
  for (int64_t t = 0; t < p->keys; t++) {
    double score = 0;
    if (p->causal && t > s) continue;
    for (int64_t i = 0; i < D; i++)
      score += (double)q[((b * p->heads + h) * p->queries + s) * D + i] *
               (double)k[((b * p->groups + g) * p->keys + t) * D + i];
    const int64_t at[4] = {b, h, s, t};
    const double e = exp(score * scale + mask_at(p, mask, at));
    total += e;
    sum += e * (double)v[((b * p->groups + g) * p->keys + t) * D + d];
  }
  return sum / total;
}

static uint32_t as_nodes(const problem *p, uint32_t q, uint32_t k, uint32_t v, uint32_t mask) {
  uint32_t s = tb_op("MatMul", q, tb_with("Transpose", "perm=0,1,3,2", k, NONE, NONE), NONE);
  if (p->scale != 1) s = tb_op("Mul", s, tb_scalar(p->scale != 0 ? p->scale : 1 / sqrt(D)), NONE);
  if (mask != NONE) s = tb_op("Add", s, mask, NONE);
  return tb_op("MatMul", tb_with("Softmax", "axis=-1", s, NONE, NONE), v, NONE);
}

START_TEST(attends) {
  const problem *p = &problems[_i];
  const int64_t qd[] = {B, p->heads, p->queries, D}, kd[] = {B, p->groups, p->keys, D};
  const uint32_t q = tb_input("q", BS_F32, 4, qd), k = tb_input("k", BS_F32, 4, kd),
                 v = tb_input("v", BS_F32, 4, kd);
  const uint32_t mask = p->mask_rank > 0 ? tb_input("mask", BS_F32, (uint32_t)p->mask_rank, p->mask) : NONE;
  uint32_t y = 0;
  char attrs[64];
  const uint32_t in[] = {q, k, v, mask};
  snprintf(attrs, sizeof attrs, "is_causal=%d", p->causal);
  if (p->as_nodes)
    y = as_nodes(p, q, k, v, mask);
  else
    tb_many("Attention", attrs, in, mask != NONE ? 4 : 3, &y, 1);
  tb_output("y", y);
  float qs[640], ks[640], vs[640], ms[640]; /* 2 x 4 x 9 x 8 at most */
  tb_fill(qs, 640, 1);
  tb_fill(ks, 640, 2);
  tb_fill(vs, 640, 3);
  tb_fill(ms, 640, 4);
  static const char *const off[] = {NULL, "all"};
  for (int pass = 0; pass < 2; pass++) {
    bs_session *s = tb_open("ref", "", off[pass]);
    bs_error err = {.struct_size = (uint32_t)sizeof err};
    tb_set(s, "q", qs);
    tb_set(s, "k", ks);
    tb_set(s, "v", vs);
    if (mask != NONE) tb_set(s, "mask", ms);
    ck_assert_msg(bs_session_check(s, NULL, NULL, &err) == BS_OK, "%s: %s", p->name, err.message);
    if (pass == 0) ck_assert_uint_eq(bs_session_node_count(s), 1); /* attention, however it was written */
    const float *got = tb_get(s, "y");
    int64_t i = 0;
    for (int64_t b = 0; b < B; b++)
      for (int64_t h = 0; h < p->heads; h++)
        for (int64_t m = 0; m < p->queries; m++)
          for (int64_t d = 0; d < D; d++, i++) {
            const double want = expected(p, qs, ks, vs, ms, b, h, m, d);
            ck_assert_msg(fabs((double)got[i] - want) < 1e-5, "%s: %g, not %g", p->name, (double)got[i],
                          want);
          }
    bs_session_close(s);
  }
}
END_TEST

/* Masks of sizes around those at which kernels change their tiles: beside f64, with guards, and with a
 * workspace of the caller's whose end stays as it was. */
START_TEST(masks_around_tiles) {
  static const int64_t sizes[] = {1, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257};
  const int64_t S = sizes[_i], d[] = {1, 2, S, 16}, md[] = {1, 1, S, S};
  enum { MOST = 257, END = 64 };
  static float q[2 * MOST * 16], k[2 * MOST * 16], v[2 * MOST * 16], mask[MOST * MOST];
  const uint32_t in[] = {tb_input("q", BS_F32, 4, d), tb_input("k", BS_F32, 4, d),
                         tb_input("v", BS_F32, 4, d), tb_input("mask", BS_F32, 4, md)};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  uint32_t y = 0;
  tb_many("Attention", "is_causal=0", in, 4, &y, 1);
  tb_output("y", tb_op("Neg", y, NONE, NONE));
  tb_fill(q, 2 * S * 16, 1);
  tb_fill(k, 2 * S * 16, 2);
  tb_fill(v, 2 * S * 16, 3);
  tb_fill(mask, S * S, 4);
  bs_session *s = tb_open("cpu", "", NULL);
  tb_set(s, "q", q);
  tb_set(s, "k", k);
  tb_set(s, "v", v);
  tb_set(s, "mask", mask);
  const uint64_t bytes = bs_session_workspace(s);
  unsigned char *memory = aligned_alloc(64, (bytes + END + 63) / 64 * 64);
  ck_assert_ptr_nonnull(memory);
  memset(memory + bytes, 0xA5, END);
  ck_assert_int_eq(bs_session_use_workspace(s, memory, bytes, &err), BS_OK);
  ck_assert_msg(bs_session_check(s, NULL, NULL, &err) == BS_OK, "%lld: %s", (long long)S, err.message);
  tb_run(s);
  for (int i = 0; i < END; i++) ck_assert_uint_eq(memory[bytes + (uint64_t)i], 0xA5);
  bs_session_close(s);
  free(memory);
}
END_TEST

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Rows at the end of a table of more than 2^31 bytes, by index and by a view. Its other pages are not there.
 */
START_TEST(reads_beyond_2_31_bytes) {
  const int64_t dims[] = {(INT64_C(1) << 25) + 3, 16}, one[] = {1}, row[] = {1, 16}, two[] = {2};
  const size_t bytes = (size_t)dims[0] * 16 * sizeof(float);
  float *table =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ck_assert_ptr_ne(table, MAP_FAILED);
  const float *last = table + (dims[0] - 1) * 16;
  tb_fill(table + (dims[0] - 1) * 16, 16, 5);
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const bs_tensor_desc desc = {.struct_size = (uint32_t)sizeof desc,
                               .dtype = BS_F32,
                               .rank = 2,
                               .dims = {dims[0], 16},
                               .strides = {16, 1}};
  uint32_t rows = 0, cut = 0;
  ck_assert_int_eq(bs_graph_constant(tb_graph, "table", &desc, table, &rows, &err), BS_OK);
  const int64_t begin = dims[0] - 1, axis = 0;
  const uint32_t part[] = {rows, tb_ints(1, &begin), tb_ints(1, &dims[0]), tb_ints(1, &axis)};
  tb_many("Slice", "", part, 4, &cut, 1);
  tb_output("taken", tb_with("Gather", "axis=0", rows, tb_input("ids", BS_I64, 1, two), NONE));
  tb_output("sum", tb_op("Add", cut, tb_input("x", BS_F32, 1, one), NONE));
  bs_session *s = tb_open(_i == 0 ? "ref" : "cpu", "", NULL);
  const int64_t ids[] = {0, -1};
  const float x[] = {1};
  tb_set(s, "ids", ids);
  tb_set(s, "x", x);
  tb_run(s);
  for (int64_t i = 0; i < row[1]; i++) {
    ck_assert_float_eq(tb_get(s, "taken")[i], 0);
    ck_assert_float_eq(tb_get(s, "taken")[16 + i], last[i]);
    ck_assert_float_eq(tb_get(s, "sum")[i], last[i] + 1);
  }
  bs_session_close(s);
  munmap(table, bytes);
}
END_TEST

/* ---- weights --------------------------------------------------------------------------------- */

/* One constant as the weight of two products, and turned as that of a third: packed once for each order. */
START_TEST(ties_weights) {
  const int64_t rows[] = {3, 8}, square[] = {8, 8};
  const uint32_t x = tb_input("x", BS_F32, 2, rows), w = tb_random(2, square, 0.3);
  uint32_t h = tb_op("Exp", tb_op("MatMul", x, w, NONE), NONE, NONE);
  h = tb_op("Exp", tb_op("MatMul", h, w, NONE), NONE, NONE);
  tb_output("y", h);
  bs_session *one = tb_open("ref", "", NULL);
  bs_session_stats a = {.struct_size = (uint32_t)sizeof a}, b = a;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  ck_assert_int_eq(bs_session_stats_get(one, &a, &err), BS_OK);
  ck_assert(a.packed_bytes >= 64 * sizeof(float) && a.packed_bytes < 2 * 64 * sizeof(float) * 4);
  const uint64_t single = a.packed_bytes;
  bs_session_close(one);
  tb_end();
  tb_begin();
  const uint32_t x2 = tb_input("x", BS_F32, 2, rows), w2 = tb_random(2, square, 0.3);
  h = tb_op("Exp", tb_op("MatMul", x2, w2, NONE), NONE, NONE);
  h = tb_op("Exp", tb_op("MatMul", h, tb_with("Transpose", "perm=1,0", w2, NONE, NONE), NONE), NONE, NONE);
  tb_output("y", h);
  bs_session *two = tb_open("ref", "", NULL);
  ck_assert_int_eq(bs_session_stats_get(two, &b, &err), BS_OK);
  ck_assert_uint_eq(b.packed_bytes, 2 * single);
  bs_session_close(two);
}
END_TEST

/* A product of rank 3 over constants is computed when the session opens. */
START_TEST(folds_products_of_rank_3) {
  const int64_t ad[] = {2, 3, 4}, bd[] = {2, 4, 5}, cd[] = {5}, yd[] = {2, 3, 5};
  float a[24], b[40], c[5];
  const float x[30] = {0};
  tb_fill(a, 24, 1);
  tb_fill(b, 40, 2);
  tb_fill(c, 5, 3);
  const uint32_t product =
      tb_op("MatMul", tb_constant(BS_F32, 3, ad, a), tb_constant(BS_F32, 3, bd, b), NONE);
  const uint32_t sum = tb_op("Add", product, tb_constant(BS_F32, 1, cd, c), NONE);
  tb_output("y", tb_op("Add", tb_input("x", BS_F32, 3, yd), sum, NONE));
  bs_session *s = tb_open("ref", "", NULL);
  ck_assert_uint_eq(bs_session_node_count(s), 1);
  tb_set(s, "x", x);
  tb_run(s);
  for (int i = 0; i < 30; i++) {
    double want = (double)c[i % 5];
    for (int k = 0; k < 4; k++) want += (double)a[i / 5 * 4 + k] * (double)b[i / 15 * 20 + k * 5 + i % 5];
    ck_assert_double_eq_tol((double)tb_get(s, "y")[i], want, 1e-5);
  }
  bs_session_close(s);
}
END_TEST

/* Gemm with a factor, a turned weight and a bias: alpha is not lost. */
START_TEST(keeps_alpha) {
  const int64_t xd[] = {3, 8}, wd[] = {4, 8}, bd[] = {4};
  float w[32], bias[4], x[24];
  tb_fill(w, 32, 1);
  tb_fill(bias, 4, 2);
  tb_fill(x, 24, 3);
  const uint32_t in = tb_input("x", BS_F32, 2, xd);
  tb_output("y", tb_with("Gemm", "alpha=0.3 beta=0.7 transB=1", in, tb_constant(BS_F32, 2, wd, w),
                         tb_constant(BS_F32, 1, bd, bias)));
  static const char *const off[] = {NULL, "all"};
  for (int pass = 0; pass < 2; pass++) {
    bs_session *s = tb_open("ref", "", off[pass]);
    bs_error err = {.struct_size = (uint32_t)sizeof err};
    tb_set(s, "x", x);
    ck_assert_msg(bs_session_check(s, NULL, NULL, &err) == BS_OK, "%s", err.message);
    tb_run(s);
    for (int m = 0; m < 3; m++)
      for (int n = 0; n < 4; n++) {
        double want = 0.7 * (double)bias[n];
        for (int k = 0; k < 8; k++) want += 0.3 * (double)x[m * 8 + k] * (double)w[n * 8 + k];
        ck_assert_double_eq_tol((double)tb_get(s, "y")[m * 4 + n], want, 1e-5);
      }
    bs_session_close(s);
  }
}
END_TEST

/* An early output is not overwritten by what comes later. */
START_TEST(keeps_early_outputs) {
  const int64_t dims[] = {64};
  uint32_t x = tb_input("x", BS_F32, 1, dims);
  const uint32_t first = tb_op("Exp", x, NONE, NONE);
  tb_output("first", first);
  x = first;
  for (int i = 0; i < 6; i++)
    x = tb_with("CumSum", "reverse=0", x, tb_constant(BS_I64, 0, NULL, &(int64_t){0}), NONE);
  tb_output("last", x);
  bs_session *s = tb_open("ref", "", NULL);
  float in[64];
  tb_fill(in, 64, 9);
  tb_set(s, "x", in);
  tb_run(s);
  for (int i = 0; i < 64; i++)
    ck_assert_double_eq_tol((double)tb_get(s, "first")[i], exp((double)in[i]), 1e-5);
  bs_session_close(s);
}
END_TEST

int main(void) {
  const test_case rows[] = {{turns_every_way, 24},
                            {attends, TEST_COUNT(problems)},
                            {masks_around_tiles, 13},
                            {reads_beyond_2_31_bytes, 2},
                            {ties_weights},
                            {folds_products_of_rank_3},
                            {keeps_alpha},
                            {keeps_early_outputs},
                            {0}};
  return run_tests("graph faults", rows, (test_setup){.before = tb_begin, .after = tb_end});
}
