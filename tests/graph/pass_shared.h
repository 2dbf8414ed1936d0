/* SPDX-License-Identifier: MIT
 * pass_shared.h - graphs for test_graph_passes.c: matrices that are computed from constants, and nodes that
 * compute the same. */
#ifndef BS_TESTS_GRAPH_PASS_SHARED_H
#define BS_TESTS_GRAPH_PASS_SHARED_H
#include "tests/graph/pass_graphs.h"

enum { PS_ROWS = 5, PS_K = 24, PS_N = 20 };

static uint32_t ps_input(const char *name) {
  const int64_t dims[] = {PG_BATCH, PS_ROWS, PS_K};
  return tb_input(name, BS_F32, 3, dims);
}

static uint32_t ps_matrix(void) {
  const int64_t dims[] = {PS_K, PS_N};
  return tb_random(2, dims, 0.2);
}

static uint32_t ps_halved(uint32_t x) {
  return tb_op("Mul", x, tb_scalar(0.5), BS_GRAPH_NONE);
}

static uint32_t ps_sum(uint32_t a, uint32_t b) {
  return tb_op("Add", a, b, BS_GRAPH_NONE);
}

/* ---- weights --------------------------------------------------------------------------------- */

static void weight_of_f16(void) {
  const int64_t n[] = {PS_N};
  const uint32_t w = pg_cast(pg_cast(ps_matrix(), BS_F16), BS_F32);
  tb_output("y", ps_sum(pg_product(ps_input("x"), w), tb_random(1, n, 1)));
}

/* W + A B / 2, as adapters are written. */
static void weight_with_update(void) {
  const int64_t a[] = {PS_K, 2}, b[] = {2, PS_N};
  const uint32_t update = ps_halved(pg_product(tb_random(2, a, 1), tb_random(2, b, 1)));
  tb_output("y", pg_product(ps_input("x"), ps_sum(ps_matrix(), update)));
}

static void weight_of_rank_3(void) {
  const int64_t w[] = {1, PS_K, PS_N};
  tb_output("y", pg_product(ps_input("x"), tb_random(3, w, 0.2)));
}

/* One matrix, shown once for each batch. */
static void weight_spread(void) {
  const int64_t all[] = {PG_BATCH, PS_K, PS_N};
  const uint32_t w = tb_op("Expand", ps_halved(ps_matrix()), tb_ints(3, all), BS_GRAPH_NONE);
  tb_output("y", pg_product(ps_input("x"), w));
}

static void weight_of_gemm(void) {
  const int64_t x[] = {PS_ROWS, PS_K}, w[] = {PS_N, PS_K}, n[] = {PS_N};
  tb_output("y", tb_with("Gemm", "transB=1", tb_input("x", BS_F32, 2, x), ps_halved(tb_random(2, w, 0.2)),
                         tb_random(1, n, 1)));
}

static void weights_of_a_batch(void) {
  const int64_t w[] = {PG_BATCH, PS_K, PS_N};
  tb_output("y", pg_product(ps_input("x"), ps_halved(tb_random(3, w, 0.2))));
}

static void weight_on_the_left(void) {
  const int64_t w[] = {PS_N, PS_ROWS};
  tb_output("y", pg_product(ps_halved(tb_random(2, w, 0.2)), ps_input("x")));
}

/* The rows are those of one batch, and the result has those of two. */
static void weight_of_a_broadcast(void) {
  const int64_t x[] = {1, PS_ROWS, PS_K}, all[] = {PG_BATCH, PS_K, PS_N};
  const uint32_t w = tb_op("Expand", ps_halved(ps_matrix()), tb_ints(3, all), BS_GRAPH_NONE);
  tb_output("y", pg_product(tb_input("x", BS_F32, 3, x), w));
}

/* Elements of a row of X are not side by side. */
static void weight_of_turned_rows(void) {
  const int64_t x[] = {PG_BATCH, PS_K, PS_ROWS};
  tb_output("y", pg_product(tb_with("Transpose", "perm=0,2,1", tb_input("x", BS_F32, 3, x), BS_GRAPH_NONE,
                                    BS_GRAPH_NONE),
                            ps_halved(ps_matrix())));
}

static void weight_of_a_turned_matrix(void) {
  const int64_t x[] = {PS_K, PS_ROWS};
  tb_output("y",
            tb_op("Gemm",
                  tb_with("Transpose", "perm=1,0", tb_input("x", BS_F32, 2, x), BS_GRAPH_NONE, BS_GRAPH_NONE),
                  ps_halved(ps_matrix()), BS_GRAPH_NONE));
}

/* Each row has another bias. */
static void weight_of_rows_of_a_bias(void) {
  const int64_t x[] = {PS_ROWS, PS_K}, c[] = {PS_ROWS, PS_N};
  tb_output("y", tb_op("Gemm", tb_input("x", BS_F32, 2, x), ps_halved(ps_matrix()), tb_random(2, c, 1)));
}

/* Not packed: processors' products of bf16 have other subnormals. */
static void weight_of_bf16(void) {
  const uint32_t x = tb_with("Cast", "to=16", ps_input("x"), BS_GRAPH_NONE, BS_GRAPH_NONE);
  const uint32_t w = tb_with("Cast", "to=16", ps_matrix(), BS_GRAPH_NONE, BS_GRAPH_NONE);
  tb_output("y", pg_cast(pg_product(x, w), BS_F32));
}

/* A product of integers keeps the kernels of `contract`. */
static void weight_of_integers(void) {
  const uint32_t x = tb_with("Cast", "to=6", ps_input("x"), BS_GRAPH_NONE, BS_GRAPH_NONE);
  const uint32_t w = tb_with("Cast", "to=6", ps_matrix(), BS_GRAPH_NONE, BS_GRAPH_NONE);
  tb_output("y", pg_cast(pg_product(x, w), BS_F32));
}

static void weight_of_gemm_halved(void) {
  const int64_t x[] = {PS_ROWS, PS_K};
  tb_output("y",
            tb_with("Gemm", "alpha=0.5", tb_input("x", BS_F32, 2, x), ps_halved(ps_matrix()), BS_GRAPH_NONE));
}

/* As many rows as columns: the bias is one number for each row. */
static void weight_of_a_column(void) {
  const int64_t x[] = {PS_N, PS_K}, c[] = {PS_N, 1};
  tb_output("y", tb_op("Gemm", tb_input("x", BS_F32, 2, x), ps_halved(ps_matrix()), tb_random(2, c, 1)));
}

/* ---- cse ------------------------------------------------------------------------------------- */

/* Not by a constant: the pass merge makes one node of such products anyway. */
static uint32_t ps_products(const char *const *readers, int n) {
  const uint32_t x = ps_input("x"), t = tb_with("Transpose", "perm=0,2,1", x, BS_GRAPH_NONE, BS_GRAPH_NONE);
  uint32_t sum = pg_one(readers[0], pg_product(x, t));
  for (int i = 1; i < n; i++) sum = ps_sum(sum, pg_one(readers[i], pg_product(x, t)));
  return sum;
}

static void product_twice(void) {
  const char *const readers[] = {"Softmax", "Tanh"};
  tb_output("y", ps_products(readers, 2));
}

static void product_three_times(void) {
  const char *const readers[] = {"Softmax", "Tanh", "LogSoftmax"};
  tb_output("y", ps_products(readers, 3));
}

/* A table that two layers take by the same places. */
static void angles_of_two_layers(void) {
  const int64_t table[] = {8, PS_K}, rows[] = {PS_ROWS};
  const uint32_t p = tb_op("Clip", tb_input("p", BS_F32, 1, rows), tb_scalar(0), tb_scalar(7));
  const uint32_t at = tb_with("Cast", "to=7", p, BS_GRAPH_NONE, BS_GRAPH_NONE), t = tb_random(2, table, 1);
  uint32_t x = tb_op("Mul", ps_input("x"), tb_op("Gather", t, at, BS_GRAPH_NONE), BS_GRAPH_NONE);
  x = tb_op("Mul", pg_one("Softmax", x), tb_op("Gather", t, at, BS_GRAPH_NONE), BS_GRAPH_NONE);
  tb_output("y", x);
}

/* The second result is read with other dims. */
static void norm_seen_flat(void) {
  const int64_t flat[] = {PG_BATCH * PS_ROWS, PS_K};
  const uint32_t x = ps_input("x"), a = pg_one("Softmax", x);
  const uint32_t b = tb_op("Reshape", pg_one("Softmax", x), tb_ints(2, flat), BS_GRAPH_NONE);
  tb_output("z", pg_one("Exp", b));
  tb_output("y", pg_one("Neg", a));
}

/* Two nodes that are equal once those before them are one. */
static void twice_in_a_row(void) {
  const uint32_t x = ps_input("x");
  const uint32_t a = pg_one("Softmax", pg_one("LogSoftmax", x)),
                 b = pg_one("Softmax", pg_one("LogSoftmax", x));
  tb_output("y", ps_sum(pg_one("Exp", a), b));
}

static void largest_twice(void) {
  const int64_t three = 3;
  uint32_t first[2], second[2];
  const uint32_t x = ps_input("x"), in[] = {x, tb_ints(1, &three)}, again[] = {x, tb_ints(1, &three)};
  tb_many("TopK", "", in, 2, first, 2);
  tb_many("TopK", "", again, 2, second, 2);
  tb_output("y", ps_sum(pg_one("Exp", first[0]), second[0]));
}

/* Each port has memory of its own. */
static void two_outputs(void) {
  const uint32_t x = ps_input("x");
  tb_output("y", pg_one("Softmax", x));
  tb_output("z", pg_one("Softmax", x));
}

static uint32_t ps_total(uint32_t x, int64_t axis) {
  return tb_with("ReduceSum", "keepdims=0", x, tb_ints(1, &axis), BS_GRAPH_NONE);
}

static void another_axis(void) {
  const int64_t dims[] = {PG_BATCH, PS_K, PS_K};
  const uint32_t x = tb_input("x", BS_F32, 3, dims);
  tb_output("y", tb_op("Sub", ps_total(x, 1), ps_total(x, 2), BS_GRAPH_NONE));
}

static void another_eps(void) {
  const int64_t k[] = {PS_K};
  const uint32_t x = ps_input("x"), w = tb_random(1, k, 1);
  const uint32_t a = tb_with("LayerNormalization", "epsilon=0.00001", x, w, BS_GRAPH_NONE);
  tb_output("y",
            ps_sum(pg_one("Exp", a), tb_with("LayerNormalization", "epsilon=0.01", x, w, BS_GRAPH_NONE)));
}

static void another_weight(void) {
  const uint32_t x = ps_input("x");
  tb_output("y",
            ps_sum(pg_one("Softmax", pg_product(x, ps_matrix())), pg_product(x, pg_one("Neg", ps_matrix()))));
}

static void ps_rows(const int64_t *first, const int64_t *second) {
  const uint32_t x = ps_input("x");
  const uint32_t a = tb_with("Gather", "axis=1", x, tb_ints(3, first), BS_GRAPH_NONE);
  tb_output("y",
            ps_sum(pg_one("Softmax", a), tb_with("Gather", "axis=1", x, tb_ints(3, second), BS_GRAPH_NONE)));
}

/* The same numbers in two constants, and others. */
static void same_rows(void) {
  const int64_t first[] = {0, 3, 1}, second[] = {0, 3, 1};
  ps_rows(first, second);
}

static void another_row(void) {
  const int64_t first[] = {0, 3, 1}, second[] = {0, 3, 2};
  ps_rows(first, second);
}

/* Matrices of constants from the left, of so few numbers that they are compared. */
static void ps_left(double first, double second) {
  const int64_t dims[] = {3, 4}, x[] = {4, PS_K};
  const float a[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, (float)first};
  const float b[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, (float)second};
  const uint32_t in = tb_input("x", BS_F32, 2, x);
  const uint32_t p = pg_product(tb_constant(BS_F32, 2, dims, a), in);
  tb_output("y", ps_sum(pg_one("Softmax", p), pg_product(tb_constant(BS_F32, 2, dims, b), in)));
}
static void same_left_matrix(void) {
  ps_left(12, 12);
}
static void another_left_matrix(void) {
  ps_left(12, 13);
}

/* Small matrices that are no constants. */
static void another_operand(void) {
  const int64_t dims[] = {4, 4};
  const uint32_t x = tb_input("x", BS_F32, 2, dims), a = tb_input("a", BS_F32, 2, dims);
  const uint32_t b = tb_input("b", BS_F32, 2, dims);
  tb_output("y", ps_sum(pg_one("Softmax", pg_product(a, x)), pg_product(b, x)));
}

static void another_activation(void) {
  const uint32_t x = ps_input("x"), w = ps_matrix();
  tb_output("y", ps_sum(pg_one("Softmax", pg_product(x, w)),
                        pg_one("LogSoftmax", pg_one("Relu", pg_product(x, w)))));
}

static void ps_biases(int first, int second) {
  const int64_t k[] = {PS_K};
  const uint32_t x = ps_input("x"), w = tb_random(1, k, 1), b = tb_random(1, k, 1);
  const uint32_t y = tb_op("LayerNormalization", x, w, first ? b : BS_GRAPH_NONE);
  tb_output("y", ps_sum(pg_one("Exp", y), tb_op("LayerNormalization", x, w, second ? b : BS_GRAPH_NONE)));
}
static void bias_of_the_first(void) {
  ps_biases(1, 0);
}
static void bias_of_the_second(void) {
  ps_biases(0, 1);
}

/* Softmax and the least of one element have the same attributes and dims. */
static void another_op(void) {
  const int64_t dims[] = {PG_BATCH, PS_ROWS, 1}, last = -1;
  const uint32_t x = tb_input("x", BS_F32, 3, dims);
  const uint32_t least = tb_with("ReduceMin", "keepdims=1", x, tb_ints(1, &last), BS_GRAPH_NONE);
  tb_output("y", ps_sum(pg_one("Exp", least), pg_one("Softmax", x)));
}
#endif
