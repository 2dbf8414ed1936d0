/* SPDX-License-Identifier: MIT
 * pass_alpha.h - graphs for test_graph_passes.c: numbers before and behind products. */
#ifndef BS_TESTS_GRAPH_PASS_ALPHA_H
#define BS_TESTS_GRAPH_PASS_ALPHA_H
#include <math.h>

#include "core/base/dtype.h"
#include "tests/graph/pass_shared.h"

static uint32_t pa_times(uint32_t x, double number) {
  return tb_op("Mul", x, tb_scalar(number), BS_GRAPH_NONE);
}

static void number_before_and_behind(void) {
  tb_output("y", pa_times(pg_product(pa_times(ps_input("x"), 0.125), ps_matrix()), 3));
}

static void product_divided(void) {
  tb_output("y", tb_op("Div", pg_product(ps_input("x"), ps_matrix()), tb_scalar(7), BS_GRAPH_NONE));
}

static void product_negated(void) {
  tb_output("y", pg_one("Neg", pg_product(ps_input("x"), ps_matrix())));
}

static void sum_with_bias_halved(void) {
  const int64_t n[] = {PS_N};
  tb_output("y", ps_halved(ps_sum(pg_product(ps_input("x"), ps_matrix()), tb_random(1, n, 1))));
}

/* Product and bias, each times another number. */
static void sum_with_bias_of_others(void) {
  const int64_t n[] = {PS_N};
  const uint32_t y = pa_times(pg_product(ps_input("x"), ps_matrix()), 0.3);
  tb_output("y", ps_halved(ps_sum(y, tb_random(1, n, 1))));
}
static void sum_with_large_bias(void) {
  const int64_t n[] = {2}, dims[] = {PS_K, 2};
  const float b[] = {1, 1e37f};
  const uint32_t y = pg_product(ps_input("x"), tb_random(2, dims, 0.2));
  tb_output("y", pa_times(ps_sum(y, tb_constant(BS_F32, 1, n, b)), 1e3));
}
static void sum_with_bias_of_the_caller(void) {
  const int64_t n[] = {PS_N};
  tb_output("y", ps_halved(ps_sum(pg_product(ps_input("x"), ps_matrix()), tb_input("b", BS_F32, 1, n))));
}
static void sum_with_bias_and_a_number(void) {
  const int64_t n[] = {PS_N};
  const uint32_t y = ps_sum(pg_product(ps_input("x"), ps_matrix()), tb_random(1, n, 1));
  tb_output("y", ps_halved(ps_sum(y, tb_scalar(1))));
}

/* The product is multiplied before the bias is added: the bias is not. */
static void gemm_by_alpha(void) {
  const int64_t x[] = {PS_ROWS, PS_K}, n[] = {PS_N};
  tb_output("y", tb_with("Gemm", "alpha=0.3", tb_input("x", BS_F32, 2, x), ps_matrix(), tb_random(1, n, 1)));
}

/* Gemm's product by a matrix that is no constant yet has alpha and bias, and another number behind. */
static void gemm_by_alpha_and_number(void) {
  const int64_t x[] = {PS_ROWS, PS_K}, w[] = {PS_K, PS_N}, n[] = {PS_N};
  const uint32_t y = tb_with("Gemm", "alpha=0.3", tb_input("x", BS_F32, 2, x), tb_input("w", BS_F32, 2, w),
                             tb_random(1, n, 1));
  tb_output("y", pa_times(y, -0.7));
}

static void number_behind_activations(void) {
  tb_output("y", pa_times(pg_product(pg_heads("a"), pg_turned(pg_heads("b"))), 0.3));
}

static void number_before_activations(void) {
  const uint32_t a = pa_times(pg_heads("a"), 0.3), b = pa_times(pg_heads("b"), -5);
  tb_output("y", pg_product(a, pg_turned(b)));
}

/* What is multiplied is a view with gaps, and is read as it is. */
static void number_of_turned(void) {
  const uint32_t a = pg_turned(pg_input("a", PG_BATCH, PG_HEADS, PG_WIDTH, PG_ROWS));
  tb_output("y", pg_product(pa_times(a, 0.3), pg_turned(pg_heads("b"))));
}

/* It is read in another order than it is written in: another view of what it was made of. */
static void number_of_turned_read_turned(void) {
  const uint32_t a = pg_turned(pg_heads("a"));
  tb_output("y", pg_product(pg_turned(pa_times(a, 0.3)), pg_turned(pg_heads("b"))));
}

/* matmul takes rows without gaps. */
static void number_of_turned_rows(void) {
  const int64_t x[] = {PG_BATCH, PS_K, PS_ROWS};
  const uint32_t t =
      tb_with("Transpose", "perm=0,2,1", tb_input("x", BS_F32, 3, x), BS_GRAPH_NONE, BS_GRAPH_NONE);
  tb_output("y", pg_product(ps_halved(t), ps_matrix()));
}

static void number_of_rows_read_turned(void) {
  const int64_t x[] = {PS_ROWS, PG_BATCH, PS_K};
  const uint32_t t = tb_with("Transpose", "perm=1,0,2", ps_halved(tb_input("x", BS_F32, 3, x)), BS_GRAPH_NONE,
                             BS_GRAPH_NONE);
  tb_output("y", pg_product(t, pg_turned(tb_op("Unsqueeze", ps_input("b"), tb_ints(1, (const int64_t[]){1}),
                                               BS_GRAPH_NONE))));
}

/* ---- what it leaves ---------------------------------------------------------------------------- */

static void large_number(void) {
  tb_output("y", pa_times(pg_product(ps_input("x"), ps_matrix()), 1e12));
}
static void small_number(void) {
  tb_output("y", pa_times(pg_product(ps_input("x"), ps_matrix()), 1e-12));
}
static void large_number_before(void) {
  tb_output("y", pg_product(pa_times(ps_input("x"), 1e12), ps_matrix()));
}
/* Each is moderate, both are not: one of them stays. */
static void large_numbers(void) {
  tb_output("y", pa_times(pg_product(pa_times(ps_input("x"), 1e4), ps_matrix()), 1e4));
}
static void large_numbers_of_activations(void) {
  const uint32_t a = pa_times(pg_heads("a"), 1e4);
  tb_output("y", pa_times(pg_product(a, pg_turned(pg_heads("b"))), 1e4));
}

/* Sums of the new product may be 16 times as large as those as written. */
static void product_by_sixteen(void) {
  tb_output("y", pa_times(pg_product(ps_input("x"), ps_matrix()), -16));
}
static void product_by_more(void) {
  tb_output("y", pa_times(pg_product(ps_input("x"), ps_matrix()), -17));
}
/* As written, the terms of the sums have been multiplied already. */
static void rows_by_more(void) {
  tb_output("y", pg_product(pa_times(ps_input("x"), 17), ps_matrix()));
}
static void activations_by_more(void) {
  tb_output("y", pa_times(pg_product(pg_heads("a"), pg_turned(pg_heads("b"))), 17));
}
static void sixteenth_of_activations(void) {
  tb_output("y", pg_product(pa_times(pg_heads("a"), 1.0 / 16), pg_turned(pg_heads("b"))));
}
static void less_of_activations(void) {
  tb_output("y", pg_product(pa_times(pg_heads("a"), 1.0 / 17), pg_turned(pg_heads("b"))));
}

static void pa_weight(float odd, double number) {
  const int64_t dims[] = {PS_K, PS_N};
  float w[PS_K * PS_N];
  tb_fill(w, PS_K * PS_N, 5);
  w[77] = odd;
  tb_output("y", pa_times(pg_product(ps_input("x"), tb_constant(BS_F32, 2, dims, w)), number));
}
static void weight_with_zero(void) {
  pa_weight(0, 0.5);
}
static void weight_with_infinity(void) {
  pa_weight(INFINITY, 0.5);
}
static void weight_near_the_end(void) {
  pa_weight(1e37f, 1e3);
}
static void weight_near_zero(void) {
  pa_weight(1e-37f, 1e-3);
}
/* The odd number is in the part of the matrix that another product takes. */
static void weight_beside_an_odd_one(void) {
  const int64_t dims[] = {PS_K, PS_N}, split[] = {PS_N / 2, PS_N / 2};
  float w[PS_K * PS_N];
  uint32_t parts[2];
  tb_fill(w, PS_K * PS_N, 5);
  w[PS_N - 1] = 1e38f;
  const uint32_t in[] = {tb_constant(BS_F32, 2, dims, w), tb_ints(2, split)};
  tb_many("Split", "axis=1", in, 2, parts, 2);
  const uint32_t a = pa_times(pg_product(ps_input("x"), parts[0]), 8);
  tb_output(
      "y", ps_sum(pg_one("Softmax", a), pg_one("Softmax", pa_times(pg_product(ps_input("z"), parts[1]), 8))));
}
static void bias_near_the_end(void) {
  const int64_t x[] = {PS_ROWS, PS_K}, n[] = {2}, w[] = {PS_K, 2};
  const float b[] = {1, 1e37f};
  tb_output("y", pa_times(tb_op("Gemm", tb_input("x", BS_F32, 2, x), tb_input("w", BS_F32, 2, w),
                                tb_constant(BS_F32, 1, n, b)),
                          1e3));
}
static void bias_of_the_caller(void) {
  const int64_t x[] = {PS_ROWS, PS_K}, w[] = {PS_K, PS_N}, n[] = {PS_N};
  tb_output("y", pa_times(tb_op("Gemm", tb_input("x", BS_F32, 2, x), tb_input("w", BS_F32, 2, w),
                                tb_input("b", BS_F32, 1, n)),
                          0.5));
}
/* One number a row, for all columns. */
static void bias_with_gaps(void) {
  const int64_t x[] = {PS_ROWS, PS_K}, w[] = {PS_K, PS_N}, c[] = {PS_N, PS_ROWS};
  const uint32_t t = tb_with("Transpose", "perm=1,0", tb_random(2, c, 1), BS_GRAPH_NONE, BS_GRAPH_NONE);
  tb_output("y", pa_times(tb_op("Gemm", tb_input("x", BS_F32, 2, x), tb_input("w", BS_F32, 2, w), t), 0.5));
}

/* One product is made of both, whose weight is joined. */
static void number_before_two_products(void) {
  const uint32_t x = ps_halved(ps_input("x"));
  tb_output("y", ps_sum(pg_one("Softmax", pg_product(x, ps_matrix())),
                        pg_one("LogSoftmax", pg_product(x, ps_matrix()))));
}
static void number_in_f64_alone(void) {
  const int64_t dims[] = {PS_K, PS_N};
  const double third = 0.3;
  double w[PS_K * PS_N];
  for (int i = 0; i < PS_K * PS_N; i++) w[i] = 0.01 * (i % 37) - 0.2;
  const uint32_t y = pg_product(pg_cast(ps_input("x"), BS_F64), tb_constant(BS_F64, 2, dims, w));
  tb_output("y",
            pg_cast(pg_one("Softmax", tb_op("Mul", y, tb_constant(BS_F64, 0, NULL, &third), BS_GRAPH_NONE)),
                    BS_F32));
}
/* The number stands before the product: the bias is not multiplied. */
static void gemm_of_halved_rows(void) {
  const int64_t x[] = {PS_ROWS, PS_K}, n[] = {PS_N};
  tb_output("y", tb_op("Gemm", ps_halved(tb_input("x", BS_F32, 2, x)), ps_matrix(), tb_random(1, n, 1)));
}
static void product_beside_its_half(void) {
  const uint32_t m = pg_product(ps_input("x"), ps_matrix());
  tb_output("y", ps_sum(pg_one("Exp", m), ps_halved(m)));
}
static void half_and_power_of_the_caller(void) {
  const int64_t n[] = {PS_N};
  const uint32_t b = pg_one("Exp", tb_input("b", BS_F32, 1, n));
  tb_output("y", ps_sum(ps_halved(pg_product(ps_input("x"), ps_matrix())), b));
}
/* The map reads the product twice, in another order the second time. */
static void product_half_and_turned(void) {
  const uint32_t m = pg_product(pg_heads("a"), pg_turned(pg_heads("b")));
  tb_output("y", ps_sum(ps_halved(m), pg_turned(m)));
}
static uint32_t pa_square(const char *name) {
  return pg_input(name, PG_BATCH, PG_HEADS, PG_WIDTH, PG_WIDTH);
}
static void number_of_turned_square_read_turned(void) {
  tb_output("y", pg_product(pg_turned(pa_times(pg_turned(pa_square("a")), 0.3)), pa_square("b")));
}
/* Rows of the turned matrix are seen as other ones. */
static void number_of_turned_seen_otherwise(void) {
  const int64_t dims[] = {PG_BATCH, PG_HEADS, PG_WIDTH / 2, 2 * PG_WIDTH};
  const uint32_t a =
      tb_op("Reshape", pa_times(pg_turned(pa_square("a")), 0.3), tb_ints(4, dims), BS_GRAPH_NONE);
  tb_output("y", pg_product(a, pg_input("b", PG_BATCH, PG_HEADS, (int64_t)2 * PG_WIDTH, PG_ROWS)));
}
static void large_number_before_activations(void) {
  tb_output("y", pg_product(pa_times(pg_heads("a"), 1e12), pg_turned(pg_heads("b"))));
}

static void product_shown(void) {
  const uint32_t m = pg_product(ps_input("x"), ps_matrix());
  tb_output("z", m);
  tb_output("y", ps_halved(m));
}
static void product_read_beside(void) {
  const uint32_t m = pg_product(ps_input("x"), ps_matrix());
  tb_output("y", ps_sum(ps_halved(m), pg_one("Softmax", m)));
}
static void rows_read_beside(void) {
  const uint32_t x = ps_halved(ps_input("x"));
  tb_output("y", pg_product(x, ps_matrix()));
  tb_output("z", pg_one("Softmax", x));
}
/* The same rows on both sides. */
static void rows_by_themselves(void) {
  const uint32_t x = ps_halved(ps_input("x"));
  tb_output("y", pg_product(x, tb_with("Transpose", "perm=0,2,1", x, BS_GRAPH_NONE, BS_GRAPH_NONE)));
}
static void number_of_the_caller(void) {
  tb_output("y", tb_op("Mul", pg_product(ps_input("x"), ps_matrix()), tb_input("s", BS_F32, 0, NULL),
                       BS_GRAPH_NONE));
}
static void number_of_the_caller_before(void) {
  const uint32_t x = tb_op("Mul", ps_input("x"), tb_input("s", BS_F32, 0, NULL), BS_GRAPH_NONE);
  tb_output("y", pg_product(x, ps_matrix()));
}
static void number_behind_relu(void) {
  tb_output("y", ps_halved(pg_one("Relu", pg_product(ps_input("x"), ps_matrix()))));
}
static void number_over_product(void) {
  tb_output("y", tb_op("Div", tb_scalar(2), pg_product(ps_input("x"), ps_matrix()), BS_GRAPH_NONE));
}
static void product_over_value(void) {
  const int64_t n[] = {PG_BATCH, PS_ROWS, PS_N};
  tb_output("y",
            tb_op("Div", pg_product(ps_input("x"), ps_matrix()), tb_input("d", BS_F32, 3, n), BS_GRAPH_NONE));
}
static void product_squared(void) {
  const uint32_t m = pg_product(ps_input("x"), ps_matrix());
  tb_output("y", tb_op("Mul", m, m, BS_GRAPH_NONE));
}
static void product_and_its_half(void) {
  const uint32_t m = pg_product(ps_input("x"), ps_matrix());
  tb_output("y", tb_op("Max", m, ps_halved(m), BS_GRAPH_NONE));
}
static void rows_and_a_number(void) {
  tb_output("y",
            pg_product(tb_op("Add", ps_halved(ps_input("x")), tb_scalar(1), BS_GRAPH_NONE), ps_matrix()));
}
static void rows_spread(void) {
  const int64_t x[] = {1, PS_ROWS, PS_K}, all[] = {PG_BATCH, PS_ROWS, PS_K}, w[] = {PG_BATCH, PS_K, PS_N};
  const uint32_t wide = tb_op("Expand", tb_input("x", BS_F32, 3, x), tb_ints(3, all), BS_GRAPH_NONE);
  tb_output("y", pg_product(ps_halved(wide), tb_input("w", BS_F32, 3, w)));
}
static uint32_t pa_half_in_f64(uint32_t x) {
  const double half = 0.3;
  return pg_cast(tb_op("Mul", pg_cast(x, BS_F64), tb_constant(BS_F64, 0, NULL, &half), BS_GRAPH_NONE),
                 BS_F32);
}
static void number_in_f64(void) {
  tb_output("y", pa_half_in_f64(pg_product(ps_input("x"), ps_matrix())));
}
static void number_in_f64_before(void) {
  tb_output("y", pg_product(pa_half_in_f64(ps_input("x")), ps_matrix()));
}

/* ---- halves ------------------------------------------------------------------------------------- */

/* A product by a constant matrix of 16 bits, times a number of as many. */
static uint32_t pa_product_of(uint32_t dtype, double number) {
  const int64_t dims[] = {PS_K, PS_N};
  float w[PS_K * PS_N];
  uint16_t narrow[PS_K * PS_N], one;
  const float wide = (float)number;
  tb_fill(w, PS_K * PS_N, 7);
  bs_convert(dtype, narrow, BS_F32, w, PS_K * PS_N);
  bs_convert(dtype, &one, BS_F32, &wide, 1);
  const uint32_t x =
      tb_with("Cast", dtype == BS_F16 ? "to=10" : "to=16", ps_input("x"), BS_GRAPH_NONE, BS_GRAPH_NONE);
  return tb_op("Mul", pg_product(x, tb_constant(dtype, 2, dims, narrow)), tb_constant(dtype, 0, NULL, &one),
               BS_GRAPH_NONE);
}
static void pa_softmax(uint32_t x) {
  tb_output("y", pg_cast(pg_one("Softmax", x), BS_F32));
}
static void f16_by_a_quarter(void) {
  pa_softmax(pa_product_of(BS_F16, 0.25));
}
static void f16_by_three(void) {
  pa_softmax(pa_product_of(BS_F16, 3));
}
static void bf16_by_a_quarter(void) {
  pa_softmax(pa_product_of(BS_BF16, 0.25));
}
static void bf16_by_three(void) {
  pa_softmax(pa_product_of(BS_BF16, 3));
}
/* 2^15 times a product of f16 is a number in f32 and none in f16. */
static void f16_widened(void) {
  const int64_t dims[] = {PS_K, PS_N};
  const uint32_t a = pg_cast(ps_input("a"), BS_F16), b = pg_cast(tb_input("b", BS_F32, 2, dims), BS_F16);
  tb_output("y", pa_times(pg_cast(pg_product(a, b), BS_F32), 0x1p15));
}
static void f16_by_four(void) {
  pa_softmax(pa_product_of(BS_F16, 4));
}
static uint32_t pa_half_heads(const char *name) {
  return pg_cast(pg_heads(name), BS_F16);
}
static void pa_half_activations(double number) {
  const float wide = (float)number;
  uint16_t one;
  bs_convert(BS_F16, &one, BS_F32, &wide, 1);
  const uint32_t y = pg_product(pa_half_heads("a"), pg_turned(pa_half_heads("b")));
  pa_softmax(tb_op("Mul", y, tb_constant(BS_F16, 0, NULL, &one), BS_GRAPH_NONE));
}
static void f16_activations_by_a_half(void) {
  pa_half_activations(0.5);
}
static void f16_activations_by_two(void) {
  pa_half_activations(2);
}
static void f16_and_more(void) {
  tb_output("y", pg_cast(pg_one("Softmax", pg_one("Exp", pa_product_of(BS_F16, 0.0625))), BS_F32));
}
#endif
