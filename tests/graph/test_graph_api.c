/* SPDX-License-Identifier: MIT
 * Models that are built through graph.h: ports, shapes by symbols, constants that are computed before the
 * run, outputs that are values of other kinds, memory of the caller, errors. */
#include <math.h>
#include <sched.h>
#include <string.h>

#include "graph/run/session.h"
#include "tests/graph/build.h"

#define NONE BS_GRAPH_NONE

static const int64_t d23[] = {2, 3};

START_TEST(adds_and_multiplies) {
  const int64_t d3[] = {3};
  const uint32_t x = tb_input("x", BS_F32, 2, d23), b = tb_input("b", BS_F32, 1, d3);
  const uint32_t sum = tb_op("Add", x, b, NONE);
  tb_output("y", tb_op("Mul", sum, tb_scalar(2), NONE));
  bs_session *s = tb_open("ref", "", NULL);
  const float xs[6] = {0, 1, 2, 3, 4, 5}, bs[3] = {10, 20, 30};
  tb_set(s, "x", xs);
  tb_set(s, "b", bs);
  tb_run(s);
  const float *y = tb_get(s, "y");
  for (int i = 0; i < 6; i++) ck_assert_float_eq(y[i], 2 * (xs[i] + bs[i % 3]));
  bs_session_close(s);
}
END_TEST

/* An output that is also read, an input as an output, a constant as an output, one value as two outputs. */
START_TEST(gives_every_kind_of_output) {
  const uint32_t x = tb_input("x", BS_F32, 2, d23);
  const uint32_t a = tb_op("Neg", x, NONE, NONE), b = tb_op("Abs", a, NONE, NONE);
  tb_output("a", a);
  tb_output("b", b);
  tb_output("x_again", x);
  tb_output("b_again", b);
  tb_output("five", tb_scalar(5));
  tb_output("turned", tb_with("Transpose", "perm=1,0", a, NONE, NONE));
  bs_session *s = tb_open("ref", "", NULL);
  const float xs[6] = {0, 1, 2, 3, 4, 5};
  float mine[6];
  tb_set(s, "x", xs);
  tb_set(s, "b", mine);
  tb_run(s);
  for (int i = 0; i < 6; i++) {
    ck_assert_float_eq(tb_get(s, "a")[i], -xs[i]);
    ck_assert_float_eq(mine[i], xs[i]);
    ck_assert_float_eq(tb_get(s, "b_again")[i], xs[i]);
    ck_assert_float_eq(tb_get(s, "x_again")[i], xs[i]);
    ck_assert_float_eq(tb_get(s, "turned")[i], -xs[i % 2 * 3 + i / 2]);
  }
  ck_assert_float_eq(tb_get(s, "five")[0], 5);
  bs_session_close(s);
}
END_TEST

/* [N,3] x [3,4]: symbols get sizes at the opening and by bind; weights are packed once. */
START_TEST(binds_symbols) {
  const int64_t dims[] = {-1, 3}, w34[] = {3, 4};
  const char *const names[] = {"N", NULL};
  const uint32_t x = tb_symbolic("x", BS_F32, 2, dims, names);
  tb_output("y", tb_op("MatMul", x, tb_random(2, w34, 1), NONE));
  bs_session *s = tb_open("ref", "N=2", NULL);
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  float xs[15], first[8];
  tb_fill(xs, 15, 7);
  tb_set(s, "x", xs);
  tb_run(s);
  memcpy(first, tb_get(s, "y"), sizeof first);
  const bs_dim five = {.struct_size = (uint32_t)sizeof five, .name = "N", .size = 5},
               two = {.struct_size = (uint32_t)sizeof two, .name = "N", .size = 2};
  const bs_dim *dim = &five;
  ck_assert_int_eq(bs_session_bind(s, &dim, 1, &err), BS_OK);
  ck_assert_int_eq(tb_elements(s, "y"), 20);
  ck_assert_int_eq(bs_session_run(s, &err), BS_INVALID_ARGUMENT); /* x is forgotten */
  ck_assert(strstr(err.message, "'x'") != NULL);
  tb_set(s, "x", xs);
  tb_run(s);
  ck_assert(memcmp(first, tb_get(s, "y"), sizeof first) == 0);
  dim = &two;
  ck_assert_int_eq(bs_session_bind(s, &dim, 1, &err), BS_OK);
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  ck_assert_int_eq(bs_session_stats_get(s, &stats, &err), BS_OK);
  ck_assert_uint_eq(stats.plans_made, 2);
  ck_assert_uint_eq(stats.plans_reused, 1);
  bs_session_close(s);
}
END_TEST

/* A session of -x of N rows, that keeps 8 plans. */
static bs_session *open_rows(uint32_t exact) {
  const int64_t dims[] = {-1, 3};
  const char *const names[] = {"N", NULL};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "N", .size = 1}, *d = &dim;
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o,
                                .threads = 1,
                                .backend = "ref",
                                .dims = &d,
                                .n_dims = 1,
                                .plans = 8,
                                .exact = exact};
  bs_session *s = NULL;
  tb_output("y", tb_op("Neg", tb_symbolic("x", BS_F32, 2, dims, names), NONE, NONE));
  ck_assert_int_eq(bs_session_open(tb_context, tb_graph, &o, &s, &err), BS_OK);
  return s;
}

static void bind_rows(bs_session *s, int64_t rows) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "N", .size = rows}, *d = &dim;
  ck_assert_int_eq(bs_session_bind(s, &d, 1, &err), BS_OK);
}

/* Why a session plans: the first sizes, new ones, and sizes whose plan had made room. Ranges end at 4, 8, 16.
 */
START_TEST(counts_plans_by_reason) {
  static const int64_t sizes[] = {2, 3, 4, 5, 6, 7, 8, 8, 9, 1, 10}; /* exact: 9 drops 1, which drops 2 */
  static const uint64_t wants[2][3] = {{5, 0, 7}, {11, 1, 1}};
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  bs_session *s = open_rows((uint32_t)_i);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) bind_rows(s, sizes[i]);
  ck_assert_int_eq(bs_session_stats_get(s, &stats, NULL), BS_OK);
  ck_assert_uint_eq(stats.plans_made, wants[_i][0]);
  ck_assert_uint_eq(stats.plans_again, wants[_i][1]);
  ck_assert_uint_eq(stats.plans_reused, wants[_i][2]);
  bs_session_close(s);
}
END_TEST

/* Memory of the caller belongs to the sizes that it was given for. */
START_TEST(forgets_memory_within_a_range) {
  static float xs[2][24], ys[24];
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_session *s = open_rows(0);
  tb_fill(xs[0], 24, 3);
  tb_fill(xs[1], 24, 5);
  bind_rows(s, 8);
  tb_set(s, "x", xs[0]);
  tb_set(s, "y", ys);
  tb_run(s);
  bind_rows(s, 6);
  ck_assert_int_eq(bs_session_run(s, &err), BS_INVALID_ARGUMENT);
  tb_set(s, "x", xs[1]);
  tb_run(s);
  ck_assert_int_eq(tb_elements(s, "y"), 18);
  for (int i = 0; i < 24; i++) ck_assert_float_eq(ys[i], -xs[0][i]);
  for (int i = 0; i < 18; i++) ck_assert_float_eq(tb_get(s, "y")[i], -xs[1][i]);
  ck_assert_int_eq(bs_session_check(s, NULL, NULL, &err), BS_OK);
  bs_session_close(s);
}
END_TEST

static void find_alone(void *user, const char *text) {
  const char *at = strstr(text, "planned for these sizes alone: ");
  if (at != NULL) snprintf(user, 100, "%.*s", (int)strcspn(at, "\n"), at);
}

/* The first 6 rows of N: all of them up to 6, then a part. Sizes of a range have other graphs, and are
 * planned as they come. */
START_TEST(says_why_sizes_are_alone) {
  const int64_t dims[] = {-1, 3}, zero[] = {0}, six[] = {6};
  const char *const names[] = {"N", NULL};
  char why[100] = "";
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  const uint32_t x = tb_symbolic("x", BS_F32, 2, dims, names),
                 rows = tb_op("Gather", tb_op("Shape", x, NONE, NONE), tb_ints(1, zero), NONE);
  const uint32_t of[] = {x, tb_ints(1, zero), tb_op("Min", rows, tb_ints(1, six), NONE)};
  uint32_t part = 0;
  tb_many("Slice", "", of, 3, &part, 1);
  tb_output("y", tb_op("Neg", part, NONE, NONE));
  bs_session *s = tb_open("ref", "N=1", NULL);
  for (int64_t n = 5; n <= 8; n++) {
    bind_rows(s, n);
    ck_assert_int_eq(tb_elements(s, "y"), 3 * (n < 6 ? n : 6));
    ck_assert_int_eq(bs_session_text(s, BS_REPORT_EXPLAIN, 0, find_alone, why, &err), BS_OK);
    ck_assert_msg(strstr(why, "the sizes change") != NULL, "%s", why);
  }
  ck_assert_int_eq(bs_session_stats_get(s, &stats, &err), BS_OK);
  ck_assert_uint_eq(stats.plans_made, 5);
  bs_session_close(s);
}
END_TEST

/* The size of dim 0 of a value, as i64 [1]. */
static uint32_t rows_of(uint32_t value) {
  const int64_t zero[] = {0};
  return tb_op("Gather", tb_op("Shape", value, NONE, NONE), tb_ints(1, zero), NONE);
}

/* Weights are packed once for a range: one whose contents follow the size has no part in it. */
START_TEST(plans_weights_of_a_size_alone) {
  const int64_t dims[] = {-1, 3}, w33[] = {3, 3};
  const char *const names[] = {"N", NULL};
  const uint32_t x = tb_symbolic("x", BS_F32, 2, dims, names);
  const uint32_t rows = tb_with("Cast", "to=1", rows_of(x), NONE, NONE);
  float xs[24], ws[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  tb_output("y", tb_op("MatMul", x, tb_op("Mul", tb_constant(BS_F32, 2, w33, ws), rows, NONE), NONE));
  bs_session *s = tb_open(_i == 0 ? "ref" : "cpu", "N=1", NULL);
  tb_fill(xs, 24, 7);
  for (int n = 8; n >= 5; n--) {
    bind_rows(s, n);
    tb_set(s, "x", xs);
    tb_run(s);
    for (int i = 0; i < 3 * n; i++) ck_assert_float_eq(tb_get(s, "y")[i], xs[i] * (float)n);
  }
  bs_session_close(s);
}
END_TEST

/* Rows of x and of w, both halved: their difference is as linear ones have it where both are largest, and
 * where both are smallest. */
START_TEST(tests_each_end_of_a_range) {
  static const int64_t sizes[][2] = {{8, 8}, {6, 8}, {7, 5}, {5, 5}, {8, 6}};
  const int64_t dims[] = {-1, 3}, one[] = {1}, two[] = {2};
  const char *const x_names[] = {"A", NULL}, *const w_names[] = {"B", NULL};
  const uint32_t x = tb_symbolic("x", BS_F32, 2, dims, x_names),
                 w = tb_symbolic("w", BS_F32, 2, dims, w_names), t = tb_input("t", BS_I64, 1, one);
  const uint32_t a = tb_op("Div", rows_of(x), tb_ints(1, two), NONE),
                 b = tb_op("Div", rows_of(w), tb_ints(1, two), NONE);
  float xs[24];
  const int64_t ts[] = {100};
  int64_t y;
  tb_output("y", tb_op("Add", t, tb_op("Sub", a, b, NONE), NONE));
  tb_output("z", tb_op("Neg", x, NONE, NONE));
  bs_session *s = tb_open("ref", "A=1 B=1", NULL);
  tb_fill(xs, 24, 7);
  for (int i = 0; i < TEST_COUNT(sizes); i++) {
    bs_error err = {.struct_size = (uint32_t)sizeof err};
    const bs_dim both[] = {{.struct_size = (uint32_t)sizeof both[0], .name = "A", .size = sizes[i][0]},
                           {.struct_size = (uint32_t)sizeof both[0], .name = "B", .size = sizes[i][1]}};
    const bs_dim *const list[] = {&both[0], &both[1]};
    ck_assert_int_eq(bs_session_bind(s, list, 2, &err), BS_OK);
    tb_set(s, "x", xs);
    tb_set(s, "w", xs);
    tb_set(s, "t", ts);
    tb_run(s);
    memcpy(&y, tb_get(s, "y"), sizeof y);
    ck_assert_int_eq(y, 100 + sizes[i][0] / 2 - sizes[i][1] / 2);
  }
  bs_session_close(s);
}
END_TEST

/* Makes a value that is -x at size 6, and x at the other sizes of 5 to 8 that the plan looks at. Kind 0 uses
 * a remainder, 1 a comparison, 2 a dim of 1 that Squeeze takes out. */
static uint32_t x_or_less(int kind, uint32_t x) {
  const int64_t six[] = {6}, three[] = {3}, zero[] = {0}, from[] = {5}, to[] = {99}, two[] = {2};
  const uint32_t rows = rows_of(x), in[] = {x, tb_ints(1, from), tb_ints(1, to), tb_ints(1, zero)};
  uint32_t is_six;
  if (kind == 0)
    is_six = tb_op("Equal", tb_op("Mod", rows, tb_ints(1, three), NONE), tb_ints(1, zero), NONE);
  else if (kind == 1)
    is_six = tb_op("Equal", rows, tb_ints(1, six), NONE);
  else {
    uint32_t rest;
    tb_many("Slice", "", in, 4, &rest, 1);
    const uint32_t rank =
        tb_op("Shape", tb_op("Shape", tb_op("Squeeze", rest, NONE, NONE), NONE, NONE), NONE, NONE);
    is_six = tb_op("Less", rank, tb_ints(1, two), NONE);
  }
  return tb_op("Where", is_six, tb_op("Neg", x, NONE, NONE), x);
}

START_TEST(plans_sizes_of_other_graphs_alone) {
  const int64_t dims[] = {-1, 3};
  const char *const names[] = {"N", NULL};
  float xs[24];
  tb_output("y", x_or_less(_i, tb_symbolic("x", BS_F32, 2, dims, names)));
  bs_session *s = tb_open("ref", "N=1", NULL);
  tb_fill(xs, 24, 7);
  for (int n = 5; n <= 8; n++) {
    bind_rows(s, n);
    tb_set(s, "x", xs);
    tb_run(s);
    for (int i = 0; i < 3 * n; i++) ck_assert_float_eq(tb_get(s, "y")[i], n == 6 ? -xs[i] : xs[i]);
  }
  bs_session_close(s);
}
END_TEST

/* A weight that was packed for a range that is refused is found again by the plan of one size: what it was
 * made from stays, so that no other weight may come to lie in its place. */
START_TEST(keeps_weights_of_a_refused_range) {
  enum { SIDE = 128, WEIGHTS = 4, WIDE = 16384 };
  const int64_t dims[] = {-1, SIDE}, w[] = {SIDE, SIDE}, row[] = {1, WIDE}, five[] = {5}, one[] = {1};
  const int64_t numbers[] = {0, 1};
  const char *const names[] = {"N", NULL};
  bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
  const uint32_t in = tb_symbolic("x", BS_F32, 2, dims, names), rows = rows_of(in),
                 zero = tb_constant(BS_I64, 0, NULL, &numbers[0]),
                 step = tb_constant(BS_I64, 0, NULL, &numbers[1]),
                 n = tb_op("Gather", tb_op("Shape", in, NONE, NONE), zero, NONE),
                 places = tb_op("Add", tb_op("Range", zero, n, step), rows, NONE);
  const uint32_t column =
                     tb_with("Cast", "to=1", tb_op("Unsqueeze", places, tb_ints(1, one), NONE), NONE, NONE),
                 few = tb_with("Cast", "to=1", tb_op("Min", rows, tb_ints(1, five), NONE), NONE, NONE);
  uint32_t x = in;
  tb_output("z", tb_op("Max", tb_op("ReduceMax", in, tb_ints(1, one), NONE),
                       tb_op("Mul", column, tb_random(2, row, 1), NONE), NONE));
  for (int i = 0; i < WEIGHTS; i++)
    x = tb_op("Sin", tb_op("MatMul", x, tb_op("Add", tb_random(2, w, 1), few, NONE), NONE), NONE, NONE);
  tb_output("y", x);
  bs_session *s = tb_open("ref", "N=1", NULL);
  ck_assert_int_eq(bs_session_stats_get(s, &stats, NULL), BS_OK);
  const uint64_t packed = stats.packed_bytes;
  bind_rows(s, 5);
  ck_assert(s->bound->alone != NULL);
  ck_assert_int_eq(bs_session_stats_get(s, &stats, NULL), BS_OK);
  ck_assert_uint_eq(stats.packed_bytes, 2 * packed);
  bs_session_close(s);
}
END_TEST

/* In f64 each graph owns its weights and frees them. The next graph finds the packed weights by the contents.
 */
START_TEST(packs_f64_weights_once) {
  enum { SIDE = 16 };
  const int64_t dims[] = {-1, SIDE}, w[] = {SIDE, SIDE};
  const char *const names[] = {"N", NULL};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "N", .size = 1}, *d = &dim;
  const bs_session_options o = {
      .struct_size = (uint32_t)sizeof o, .threads = 1, .dims = &d, .n_dims = 1, .f64 = 1, .plans = 1};
  bs_session_stats first = {.struct_size = (uint32_t)sizeof first}, last = first;
  bs_session *s = NULL;
  uint32_t x = tb_symbolic("x", BS_F32, 2, dims, names);
  for (int i = 0; i < 3; i++) x = tb_op("Sin", tb_op("MatMul", x, tb_random(2, w, 1), NONE), NONE, NONE);
  tb_output("y", x);
  ck_assert_int_eq(bs_session_open(tb_context, tb_graph, &o, &s, &err), BS_OK);
  ck_assert_int_eq(bs_session_stats_get(s, &first, NULL), BS_OK);
  ck_assert_uint_eq(first.packed_bytes, 3 * SIDE * SIDE * sizeof(double));
  for (int64_t n = 2; n < 6; n++) bind_rows(s, n);
  ck_assert_int_eq(bs_session_stats_get(s, &last, NULL), BS_OK);
  ck_assert_uint_eq(last.packed_bytes, first.packed_bytes);
  bs_session_close(s);
}
END_TEST

/* The session keeps as many plans as the caller wants. */
START_TEST(keeps_as_many_plans_as_wanted) {
  static const struct {
    uint32_t plans;
    uint64_t made, again, reused;
  } wants[] = {{8, 40, 20, 0}, {1, 40, 20, 0}, {19, 40, 20, 0}, {20, 20, 0, 20}, {UINT32_MAX, 20, 0, 20}};
  const int64_t dims[] = {-1, 3};
  const char *const names[] = {"N", NULL};
  tb_output("y", tb_op("Neg", tb_symbolic("x", BS_F32, 2, dims, names), NONE, NONE));
  for (int i = 0; i < TEST_COUNT(wants); i++) {
    bs_session_stats stats = {.struct_size = (uint32_t)sizeof stats};
    bs_error err = {.struct_size = (uint32_t)sizeof err};
    bs_dim dim = {.struct_size = (uint32_t)sizeof dim, .name = "N", .size = 1};
    const bs_dim *d = &dim;
    const bs_session_options o = {.struct_size = (uint32_t)sizeof o,
                                  .threads = 1,
                                  .backend = "ref",
                                  .dims = &d,
                                  .n_dims = 1,
                                  .plans = wants[i].plans,
                                  .exact = 1};
    bs_session *s = NULL;
    ck_assert_int_eq(bs_session_open(tb_context, tb_graph, &o, &s, &err), BS_OK);
    for (int k = 1; k < 40; k++) { /* 20 shapes one after the other, twice */
      dim.size = 1 + k % 20;
      ck_assert_int_eq(bs_session_bind(s, &d, 1, &err), BS_OK);
    }
    ck_assert_int_eq(bs_session_stats_get(s, &stats, &err), BS_OK);
    ck_assert_uint_eq(stats.plans_made, wants[i].made);
    ck_assert_uint_eq(stats.plans_again, wants[i].again);
    ck_assert_uint_eq(stats.plans_reused, wants[i].reused);
    bs_session_close(s);
  }
}
END_TEST

/* Shapes that are computed are constants before the run. */
START_TEST(computes_shapes_first) {
  const int64_t dims[] = {-1, 4, 6}, one[] = {1}, minus[] = {-1}, zero[] = {0};
  const char *const names[] = {"N", NULL, NULL};
  const uint32_t x = tb_symbolic("x", BS_F32, 3, dims, names);
  const uint32_t shape = tb_op("Shape", x, NONE, NONE);
  const uint32_t n = tb_op("Gather", shape, tb_ints(1, zero), NONE);
  const uint32_t parts[] = {n, tb_ints(1, minus)};
  uint32_t wanted = 0;
  tb_many("Concat", "axis=0", parts, 2, &wanted, 1);
  (void)one;
  tb_output("y", tb_op("Reshape", x, wanted, NONE));
  bs_session *s = tb_open("ref", "N=3", NULL);
  ck_assert_int_eq(tb_elements(s, "y"), 72);
  ck_assert_uint_eq(bs_session_node_count(s), 1); /* the copy to the output */
  float xs[72];
  tb_fill(xs, 72, 1);
  tb_set(s, "x", xs);
  tb_run(s);
  ck_assert(memcmp(xs, tb_get(s, "y"), sizeof xs) == 0);
  bs_session_close(s);
}
END_TEST

START_TEST(joins_and_cuts) {
  const uint32_t x = tb_input("x", BS_F32, 2, d23), y = tb_input("y", BS_F32, 2, d23);
  const uint32_t parts[] = {x, tb_op("Neg", y, NONE, NONE), x};
  uint32_t all = 0;
  tb_many("Concat", "axis=1", parts, 3, &all, 1);
  tb_output("all", all);
  const int64_t b[] = {2}, e[] = {8}, a[] = {1}, st[] = {3};
  const uint32_t in[] = {all, tb_ints(1, b), tb_ints(1, e), tb_ints(1, a), tb_ints(1, st)};
  uint32_t cut = 0;
  tb_many("Slice", "", in, 5, &cut, 1);
  tb_output("cut", tb_op("Add", cut, tb_scalar(0.5), NONE));
  bs_session *s = tb_open("ref", "", NULL);
  const float xs[6] = {0, 1, 2, 3, 4, 5}, ys[6] = {10, 11, 12, 13, 14, 15};
  tb_set(s, "x", xs);
  tb_set(s, "y", ys);
  tb_run(s);
  const float want[18] = {0, 1, 2, -10, -11, -12, 0, 1, 2, 3, 4, 5, -13, -14, -15, 3, 4, 5};
  ck_assert(memcmp(tb_get(s, "all"), want, sizeof want) == 0);
  const float cuts[4] = {2.5F, -11.5F, 5.5F, -14.5F};
  ck_assert(memcmp(tb_get(s, "cut"), cuts, sizeof cuts) == 0);
  bs_session_close(s);
}
END_TEST

static void make_mlp(void) {
  const int64_t dims[] = {4, 8}, w1[] = {8, 16}, w2[] = {16, 8}, b1[] = {16};
  const uint32_t x = tb_input("x", BS_F32, 2, dims);
  uint32_t h = tb_op("Add", tb_op("MatMul", x, tb_random(2, w1, 0.3), NONE), tb_random(1, b1, 0.3), NONE);
  h = tb_op("Relu", h, NONE, NONE);
  h = tb_op("MatMul", h, tb_random(2, w2, 0.3), NONE);
  tb_output("y", tb_op("Add", h, x, NONE));
}

/* The caller's workspace gives the same bits, a small or crooked one is refused. */
START_TEST(uses_a_workspace) {
  make_mlp();
  bs_session *s = tb_open("ref", "", NULL);
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  float xs[32], first[32];
  tb_fill(xs, 32, 3);
  tb_set(s, "x", xs);
  tb_run(s);
  memcpy(first, tb_get(s, "y"), sizeof first);
  const uint64_t bytes = bs_session_workspace(s);
  ck_assert(bytes > 0 && bytes % 64 == 0);
  unsigned char *memory = aligned_alloc(64, bytes + 64);
  ck_assert_int_eq(bs_session_use_workspace(s, memory, bytes - 64, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(bs_session_use_workspace(s, memory + 4, bytes, &err), BS_INVALID_ARGUMENT);
  memset(memory, 0xff, bytes);
  ck_assert_int_eq(bs_session_use_workspace(s, memory, bytes, &err), BS_OK);
  tb_run(s);
  const float *y = tb_get(s, "y");
  ck_assert((const unsigned char *)y >= memory && (const unsigned char *)y < memory + bytes);
  ck_assert(memcmp(first, y, sizeof first) == 0);
  bs_session_close(s);
  free(memory);
}
END_TEST

/* Two sessions share packed weights. */
START_TEST(shares_weights) {
  make_mlp();
  bs_session *s = tb_open("ref", "", NULL), *other = NULL;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o, .backend = "ref", .share = s};
  ck_assert_int_eq(bs_session_open(tb_context, tb_graph, &o, &other, &err), BS_OK);
  bs_session_stats a = {.struct_size = (uint32_t)sizeof a}, b = a;
  ck_assert_int_eq(bs_session_stats_get(s, &a, &err), BS_OK);
  ck_assert_int_eq(bs_session_stats_get(other, &b, &err), BS_OK);
  ck_assert_uint_eq(a.packed_bytes, b.packed_bytes);
  float xs[32], first[32];
  tb_fill(xs, 32, 3);
  tb_set(s, "x", xs);
  tb_set(other, "x", xs);
  tb_run(s);
  memcpy(first, tb_get(s, "y"), sizeof first);
  bs_session_close(s);
  tb_run(other);
  ck_assert(memcmp(first, tb_get(other, "y"), sizeof first) == 0);
  bs_session_close(other);
}
END_TEST

/* What the session tells while it opens: its parts in order, each product once. */
typedef struct heard {
  char parts[200];
  uint64_t products, last, total;
} heard;

static void hear(void *user, const char *what, uint64_t done, uint64_t total) {
  heard *h = user;
  if (total == 0) {
    strncat(h->parts, what, sizeof h->parts - strlen(h->parts) - 1);
    strncat(h->parts, ";", sizeof h->parts - strlen(h->parts) - 1);
    return;
  }
  ck_assert_str_eq(what, "pack weights");
  ck_assert_uint_eq(done, h->last + 1);
  h->last = done;
  h->total = total;
  h->products++;
}

START_TEST(tells_what_it_does) {
  make_mlp();
  heard h = {.parts = ""};
  bs_session *s = NULL;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o,
                                .backend = "ref",
                                .threads = 1,
                                .progress = hear,
                                .progress_user = &h};
  ck_assert_int_eq(bs_session_open(tb_context, tb_graph, &o, &s, &err), BS_OK);
  ck_assert_str_eq(h.parts, "lower;passes;plan;");
  ck_assert(h.products > 0 && h.products == h.total);
  bs_session_close(s);
}
END_TEST

static const struct fault {
  const char *op, *attrs;
  int32_t code;
  const char *said;
} faults[] = {
    {"MatMul", "", BS_INPUT, "inner dims"},
    {"Concat", "axis=7", BS_INPUT, "axis"},
    {"Reshape", "", BS_UNSUPPORTED, "before the run"},
};

/* x [2,3] and z [2,3]: what each operator says of them. */
START_TEST(refuses_bad_models) {
  const struct fault *f = &faults[_i];
  const uint32_t x = tb_input("x", BS_F32, 2, d23), z = tb_input("z", BS_I64, 1, d23);
  tb_output("y", tb_with(f->op, f->attrs, x, strcmp(f->op, "Reshape") == 0 ? z : x, NONE));
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_session *s = NULL;
  ck_assert_int_eq(tb_try("ref", "", NULL, &s, &err), f->code);
  ck_assert_msg(strstr(err.message, f->said) != NULL, "%s", err.message);
  ck_assert_msg(strstr(err.where, "n0") != NULL, "%s", err.where);
}
END_TEST

START_TEST(refuses_bad_calls) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_session *s = NULL;
  uint32_t v = 0;
  ck_assert_int_eq(bs_graph_op(tb_graph, "NoSuchOp", NULL, 0, NULL, 0, &v, 1, &err), BS_UNSUPPORTED);
  ck_assert_int_eq(tb_try("ref", "", NULL, &s, &err), BS_INPUT); /* no output */
  const int64_t dims[] = {-1, 3};
  const char *const names[] = {"N", NULL};
  const uint32_t x = tb_symbolic("x", BS_F32, 2, dims, names);
  tb_output("y", tb_op("Neg", x, NONE, NONE));
  ck_assert_int_eq(tb_try("ref", "", NULL, &s, &err), BS_CONFIG);
  ck_assert(strstr(err.message, "'N'") != NULL);
  ck_assert_int_eq(tb_try("ref", "M=2", NULL, &s, &err), BS_CONFIG);
  ck_assert_int_eq(tb_try("ref", "N=2", "no_such_pass", &s, &err), BS_CONFIG);
  ck_assert_int_eq(tb_try("nothing", "N=2", NULL, &s, &err), BS_NOT_FOUND);
  s = tb_open("ref", "N=2", NULL);
  const float xs[6] = {0};
  bs_tensor t = {.struct_size = (uint32_t)sizeof t,
                 .dtype = BS_F32,
                 .rank = 2,
                 .dims = {2, 3},
                 .strides = {3, 1},
                 .data = (void *)xs,
                 .bytes = 23};
  ck_assert_int_eq(bs_session_set(s, 0, &t, &err), BS_INVALID_ARGUMENT); /* a byte is missing */
  t.bytes = 24;
  t.dims[0] = 1;
  ck_assert_int_eq(bs_session_set(s, 0, &t, &err), BS_INVALID_ARGUMENT);
  ck_assert(strstr(err.message, "f32[2,3]") != NULL);
  ck_assert_int_eq(bs_session_find(s, "z", &v, &err), BS_NOT_FOUND);
  bs_session_close(s);
}
END_TEST

/* `model info`: every node at once. */
static void count_issue(void *user, const bs_graph_issue *issue) {
  ck_assert(issue->reason[0] != '\0');
  ++*(int *)user;
}

START_TEST(lists_all_issues) {
  const uint32_t x = tb_input("x", BS_F32, 2, d23), z = tb_input("z", BS_I64, 1, d23);
  const uint32_t a = tb_op("Reshape", x, z, NONE), b = tb_op("Expand", x, z, NONE);
  tb_output("a", tb_op("Neg", a, NONE, NONE));
  tb_output("b", b);
  int count = 0;
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  ck_assert_int_eq(bs_graph_check(tb_graph, NULL, NULL, 0, count_issue, &count, &err), BS_UNSUPPORTED);
  ck_assert_int_eq(count, 2);
}
END_TEST

/* An index that lies outside is the model's fault, also where it is computed before the run: in the lowering,
 * and, of larger tables, in the pass fold. */
START_TEST(refuses_constant_indices) {
  const int64_t dims[] = {3, _i == 0 ? 2 : 200}, seven[] = {7};
  const uint32_t x = tb_input("x", BS_F32, 2, (const int64_t[]){1, dims[1]});
  const uint32_t row = tb_with("Gather", "axis=0", tb_random(2, dims, 1), tb_ints(1, seven), NONE);
  tb_output("y", tb_op("Add", x, row, NONE));
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_session *s = NULL;
  ck_assert_int_eq(tb_try("ref", "", NULL, &s, &err), BS_INPUT);
  ck_assert_str_eq(err.id, "BS-OP-INDEX");
  ck_assert_msg(strstr(err.where, "n0") != NULL, "%s", err.where);
}
END_TEST

/* Threads that are not asked for are the processors that the process may use, and not all of the machine. */
START_TEST(uses_allowed_processors) {
  cpu_set_t before, one;
  ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  tb_output("y", tb_op("Neg", tb_input("x", BS_F32, 2, d23), NONE, NONE));
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o, .backend = "ref"};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  for (int all = 0; all < 2; all++) {
    bs_session *s = NULL;
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, all ? &before : &one), 0);
    ck_assert_int_eq(bs_session_open(tb_context, tb_graph, &o, &s, &err), BS_OK);
    ck_assert_uint_eq(bs_world_threads_per_rank(s->rank->world), all ? (uint32_t)CPU_COUNT(&before) : 1);
    bs_session_close(s);
  }
}
END_TEST

/* Why cpu does not serve a node, and not what ref says of itself. */
START_TEST(tells_why_ref_serves) {
  tb_output("y", tb_op("Softmax", tb_input("x", BS_F64, 2, d23), NONE, NONE));
  bs_session *s = tb_open("cpu", "", NULL);
  bs_node_info node = {.struct_size = (uint32_t)sizeof node};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  int found = 0;
  for (uint32_t i = 0; i < bs_session_node_count(s); i++) {
    ck_assert_int_eq(bs_session_node(s, i, &node, &err), BS_OK);
    if (strncmp(node.serves, "ref:", 4) != 0) {
      ck_assert_str_eq(node.reason, "");
      continue;
    }
    ck_assert_str_eq(node.reason, "cpu (cpu): dtype: arg 0 of dtype f64: f32, bf16 and f16 only");
    found++;
  }
  ck_assert_int_eq(found, 1);
  bs_session_close(s);
}
END_TEST

/* The numbers of outputs may lie where those of the inputs were. */
START_TEST(outputs_replace_inputs) {
  uint32_t v[2] = {tb_input("x", BS_F32, 2, d23), tb_scalar(5)};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  const uint32_t x = v[0];
  ck_assert_msg(bs_graph_op(tb_graph, "Add", v, 2, NULL, 0, v, 1, &err) == BS_OK, "%s", err.message);
  ck_assert(v[0] != x);
  tb_output("y", v[0]);
  bs_session *s = tb_open("ref", "", NULL);
  const float xs[6] = {0, 1, 2, 3, 4, 5};
  tb_set(s, "x", xs);
  tb_run(s);
  for (int i = 0; i < 6; i++) ck_assert_float_eq(tb_get(s, "y")[i], xs[i] + 5);
  bs_session_close(s);
}
END_TEST

static void append_op(void *user, const char *op, const char *domain, uint64_t nodes) {
  char *list = user;
  snprintf(list + strlen(list), 100 - strlen(list), "%s%s %llu;", domain, op, (unsigned long long)nodes);
}

/* Each operator once, in the order in which the model uses them first. */
START_TEST(counts_operators) {
  static const char *const ops[] = {"Tanh", "Neg", "Abs", "Neg", "Tanh", "Neg"};
  char list[100] = "";
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  uint32_t x = tb_input("x", BS_F32, 2, d23);
  ck_assert_int_eq(bs_graph_ops(tb_graph, append_op, list, &err), BS_OK);
  ck_assert_str_eq(list, "");
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) x = tb_op(ops[i], x, NONE, NONE);
  ck_assert_int_eq(bs_graph_ops(tb_graph, append_op, list, &err), BS_OK);
  ck_assert_str_eq(list, "Tanh 2;Neg 3;Abs 1;");
}
END_TEST

int main(void) {
  const test_case rows[] = {{adds_and_multiplies},
                            {gives_every_kind_of_output},
                            {binds_symbols},
                            {counts_plans_by_reason, 2},
                            {forgets_memory_within_a_range},
                            {says_why_sizes_are_alone},
                            {plans_weights_of_a_size_alone, 2},
                            {tests_each_end_of_a_range},
                            {plans_sizes_of_other_graphs_alone, 3},
                            {keeps_weights_of_a_refused_range},
                            {packs_f64_weights_once},
                            {keeps_as_many_plans_as_wanted},
                            {computes_shapes_first},
                            {joins_and_cuts},
                            {uses_a_workspace},
                            {shares_weights},
                            {tells_what_it_does},
                            {refuses_bad_models, TEST_COUNT(faults)},
                            {refuses_bad_calls},
                            {lists_all_issues},
                            {refuses_constant_indices, 2},
                            {uses_allowed_processors},
                            {tells_why_ref_serves},
                            {outputs_replace_inputs},
                            {counts_operators},
                            {0}};
  return run_tests("graph api", rows, (test_setup){.before = tb_begin, .after = tb_end});
}
