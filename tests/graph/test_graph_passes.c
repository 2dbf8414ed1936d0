/* SPDX-License-Identifier: MIT
 * Each pass on a graph as exporters write it: with the pass there are fewer nodes of some op, without it
 * there are not; both give what no pass at all gives, and every node agrees with f64. */
#include <math.h>
#include <string.h>

#include "tests/graph/build.h"
#include "tests/graph/pass_alpha.h"
#include "tests/graph/pass_graphs.h"
#include "tests/graph/pass_shared.h"

#define NONE BS_GRAPH_NONE
enum { B = 2, S = 6, H = 4, D = 8, W = H * D };

static uint32_t input(const char *name) {
  const int64_t dims[] = {B, S, W};
  return tb_input(name, BS_F32, 3, dims);
}

static uint32_t linear(uint32_t x, int64_t n) {
  const int64_t w[] = {W, n}, b[] = {n};
  return tb_op("Add", tb_op("MatMul", x, tb_random(2, w, 0.2), NONE), tb_random(1, b, 0.2), NONE);
}

static uint32_t heads(uint32_t x) {
  const int64_t dims[] = {B, S, H, D};
  return tb_with("Transpose", "perm=0,2,1,3", tb_op("Reshape", x, tb_ints(4, dims), NONE), NONE, NONE);
}

static uint32_t reduced(const char *op, uint32_t x, const int64_t axis) {
  return tb_with(op, "keepdims=1", x, tb_ints(1, &axis), NONE);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* A table of angles that is computed from constants. */
static void angles(void) {
  const int64_t dims[] = {S, W};
  tb_output("y", tb_op("Add", input("x"), tb_op("Cos", tb_random(2, dims, 3), NONE, NONE), NONE));
}

static void unused(void) {
  const uint32_t x = input("x");
  tb_op("Exp", x, NONE, NONE);
  tb_output("y", tb_op("Neg", x, NONE, NONE));
}

/* The heads of an attention are turned back and become rows again. */
static void turned_back(void) {
  const int64_t rows[] = {B, S, W};
  const uint32_t x = heads(input("x"));
  const uint32_t y = tb_with("Transpose", "perm=0,2,1,3", tb_op("Exp", x, NONE, NONE), NONE, NONE);
  tb_output("y", linear(tb_op("Reshape", y, tb_ints(3, rows), NONE), W));
}

static void joined(void) {
  const uint32_t parts[] = {tb_op("Softmax", input("x"), NONE, NONE),
                            tb_op("Softmax", input("z"), NONE, NONE)};
  uint32_t all = 0;
  tb_many("Concat", "axis=2", parts, 2, &all, 1);
  tb_output("y", tb_op("Neg", all, NONE, NONE));
}

static void chain(void) {
  uint32_t x = input("x");
  x = tb_op("Mul", tb_op("Add", tb_op("Exp", x, NONE, NONE), tb_scalar(1), NONE), x, NONE);
  tb_output("y", tb_op("Tanh", x, NONE, NONE));
}

/* gelu by tanh as eight nodes. */
static void eight_nodes_of(uint32_t x) {
  const uint32_t cube = tb_op("Pow", x, tb_scalar(3), NONE);
  const uint32_t inner = tb_op("Add", x, tb_op("Mul", tb_scalar(0.044715), cube, NONE), NONE);
  const uint32_t t = tb_op("Tanh", tb_op("Mul", inner, tb_scalar(0.7978845608), NONE), NONE, NONE);
  const uint32_t one = tb_op("Add", tb_scalar(1), t, NONE);
  tb_output("y", tb_op("Mul", tb_op("Mul", tb_scalar(0.5), x, NONE), one, NONE));
}
static void eight_nodes(void) {
  eight_nodes_of(input("x"));
}
static void eight_nodes_of_a_sum(void) {
  eight_nodes_of(tb_op("Add", input("x"), input("z"), NONE));
}

/* Other spellings of the same functions: a form does not depend on the order of factors and terms. */
static void gelu_of_terms(void) { /* 0.5 x + 0.5 x erf(x / root) */
  const uint32_t x = input("x"), h = tb_op("Mul", x, tb_scalar(0.5), NONE);
  const uint32_t e = tb_op("Erf", tb_op("Div", x, tb_scalar(sqrt(2.0)), NONE), NONE, NONE);
  tb_output("y", tb_op("Add", h, tb_op("Mul", e, h, NONE), NONE));
}
static void gelu_halved_last(void) { /* x (erf(0.7071 x) + 1) / 2 */
  const uint32_t x = input("x"), e = tb_op("Erf", tb_op("Mul", tb_scalar(sqrt(0.5)), x, NONE), NONE, NONE);
  tb_output("y",
            tb_op("Div", tb_op("Mul", tb_op("Add", e, tb_scalar(1), NONE), x, NONE), tb_scalar(2), NONE));
}
static void gelu_tanh_factored(void) { /* tanh(c x (1 + k x x)) */
  const uint32_t x = input("x");
  const uint32_t cube = tb_op("Mul", tb_scalar(0.044715), tb_op("Mul", x, x, NONE), NONE);
  const uint32_t inner = tb_op("Mul", tb_op("Mul", x, tb_scalar(0.7978845608), NONE),
                               tb_op("Add", cube, tb_scalar(1), NONE), NONE);
  const uint32_t half =
      tb_op("Mul", tb_op("Add", tb_op("Tanh", inner, NONE, NONE), tb_scalar(1), NONE), tb_scalar(0.5), NONE);
  tb_output("y", tb_op("Mul", half, x, NONE));
}
static uint32_t one_plus_exp(uint32_t x) {
  return tb_op("Add", tb_scalar(1), tb_op("Exp", x, NONE, NONE), NONE);
}
static void sigmoid_by_hand(void) {
  tb_output("y", tb_op("Reciprocal", one_plus_exp(tb_op("Neg", input("x"), NONE, NONE)), NONE, NONE));
}
static void silu_by_hand(void) {
  const uint32_t x = input("x");
  tb_output("y", tb_op("Div", x, one_plus_exp(tb_op("Mul", x, tb_scalar(-1), NONE)), NONE));
}
static void softplus_by_hand(void) {
  tb_output("y", tb_op("Log", one_plus_exp(input("x")), NONE, NONE));
}

static void naive_softmax(void) {
  const uint32_t x = input("x");
  const uint32_t e = tb_op("Exp", tb_op("Sub", x, reduced("ReduceMax", x, -1), NONE), NONE, NONE);
  tb_output("y", tb_op("Div", e, reduced("ReduceSum", e, -1), NONE));
}

static void rms(void) {
  const int64_t w[] = {W};
  const uint32_t x = input("x");
  const uint32_t mean = reduced("ReduceMean", tb_op("Pow", x, tb_scalar(2), NONE), -1);
  const uint32_t scale =
      tb_op("Reciprocal", tb_op("Sqrt", tb_op("Add", mean, tb_scalar(1e-6), NONE), NONE, NONE), NONE, NONE);
  tb_output("y", tb_op("Mul", tb_random(1, w, 1), tb_op("Mul", x, scale, NONE), NONE));
}

static void layer_norm(void) {
  const int64_t w[] = {W};
  const uint32_t x = input("x");
  const uint32_t d = tb_op("Sub", x, reduced("ReduceMean", x, -1), NONE);
  const uint32_t variance = reduced("ReduceMean", tb_op("Mul", d, d, NONE), -1);
  const uint32_t n =
      tb_op("Div", d, tb_op("Sqrt", tb_op("Add", variance, tb_scalar(1e-5), NONE), NONE, NONE), NONE);
  tb_output("y", tb_op("Add", tb_op("Mul", n, tb_random(1, w, 1), NONE), tb_random(1, w, 1), NONE));
}

/* Scores with a scale and a mask that is broadcast. */
static uint32_t attend(uint32_t q, uint32_t k, uint32_t v, uint32_t mask) {
  uint32_t s = tb_op("MatMul", q, tb_with("Transpose", "perm=0,1,3,2", k, NONE, NONE), NONE);
  s = tb_op("Mul", s, tb_scalar(0.3), NONE);
  if (mask != NONE) s = tb_op("Add", s, mask, NONE);
  return tb_op("MatMul", tb_with("Softmax", "axis=-1", s, NONE, NONE), v, NONE);
}

static void attention(void) {
  tb_output("y", attend(heads(input("q")), heads(input("k")), heads(input("v")), NONE));
}

static void masked_attention(void) {
  const int64_t dims[] = {B, 1, 1, S};
  const uint32_t mask = tb_input("mask", BS_F32, 4, dims);
  tb_output("y", attend(heads(input("q")), heads(input("k")), heads(input("v")), mask));
}

/* Heads in the batch of the products, and apart from it where the mask is added: [B H,S,S] is [B,H,S,S]. */
static void batched_attention(void) {
  const int64_t dims[] = {B, 1, S, S}, flat[] = {B * H, S, D}, apart[] = {B, H, S, S},
                joint[] = {B * H, S, S};
  const uint32_t mask = tb_input("mask", BS_F32, 4, dims);
  const uint32_t q = tb_op("Reshape", heads(input("q")), tb_ints(3, flat), NONE);
  const uint32_t k = tb_op("Reshape", heads(input("k")), tb_ints(3, flat), NONE);
  const uint32_t v = tb_op("Reshape", heads(input("v")), tb_ints(3, flat), NONE);
  uint32_t s = tb_op("MatMul", q, tb_with("Transpose", "perm=0,2,1", k, NONE, NONE), NONE);
  s = tb_op("Add", tb_op("Reshape", s, tb_ints(4, apart), NONE), mask, NONE);
  s = tb_with("Softmax", "axis=-1", tb_op("Reshape", s, tb_ints(3, joint), NONE), NONE, NONE);
  tb_output("y", tb_op("MatMul", s, v, NONE));
}

/* Two heads of K and V for four of Q, repeated by Expand. */
static uint32_t repeated(uint32_t x) {
  const int64_t dims[] = {B, S, 2, D}, one[] = {2}, five[] = {B, 2, 2, S, D}, four[] = {B, H, S, D};
  x = tb_with("Transpose", "perm=0,2,1,3", tb_op("Reshape", x, tb_ints(4, dims), NONE), NONE, NONE);
  x = tb_op("Expand", tb_op("Unsqueeze", x, tb_ints(1, one), NONE), tb_ints(5, five), NONE);
  return tb_op("Reshape", x, tb_ints(4, four), NONE);
}

static void grouped_attention(void) {
  const int64_t dims[] = {B, S, 2 * D};
  const uint32_t k = tb_input("k", BS_F32, 3, dims), v = tb_input("v", BS_F32, 3, dims);
  tb_output("y", attend(heads(input("q")), repeated(k), repeated(v), NONE));
}

static void rotary(void) {
  const int64_t table[] = {S, D};
  float cosines[S * D], sines[S * D];
  for (int i = 0; i < S * D; i++) {
    const double angle = (double)(i / D) * pow(10, -(double)(i % (D / 2)));
    cosines[i] = (float)cos(angle);
    sines[i] = (float)sin(angle);
  }
  const uint32_t x = heads(input("x"));
  const int64_t zero = 0, half = D / 2, all = D, last = 3;
  const uint32_t first[] = {x, tb_ints(1, &zero), tb_ints(1, &half), tb_ints(1, &last)};
  const uint32_t second[] = {x, tb_ints(1, &half), tb_ints(1, &all), tb_ints(1, &last)};
  uint32_t low = 0, high = 0, turned = 0;
  tb_many("Slice", "", first, 4, &low, 1);
  tb_many("Slice", "", second, 4, &high, 1);
  const uint32_t parts[] = {tb_op("Neg", high, NONE, NONE), low};
  tb_many("Concat", "axis=-1", parts, 2, &turned, 1);
  tb_output("y", tb_op("Add", tb_op("Mul", x, tb_constant(BS_F32, 2, table, cosines), NONE),
                       tb_op("Mul", turned, tb_constant(BS_F32, 2, table, sines), NONE), NONE));
}

static void bias_activation(void) {
  tb_output("y", tb_op("Relu", linear(input("x"), 40), NONE, NONE));
}

static void bias_residual(void) {
  const uint32_t x = input("x");
  tb_output("y", tb_op("Add", x, linear(x, W), NONE));
}

/* A sum that a normalisation reads, and something after it. */
static void add_norm(void) {
  const int64_t w[] = {W};
  const uint32_t sum = tb_op("Add", input("x"), input("z"), NONE);
  const uint32_t n = tb_op("LayerNormalization", sum, tb_random(1, w, 1), NONE);
  tb_output("y", tb_op("Mul", tb_op("Exp", n, NONE, NONE), sum, NONE));
}

static void last_token(void) {
  const int64_t b = S - 1, e = S, axis = 1;
  const uint32_t in[] = {linear(input("x"), 50), tb_ints(1, &b), tb_ints(1, &e), tb_ints(1, &axis)};
  uint32_t cut = 0;
  tb_many("Slice", "", in, 4, &cut, 1);
  tb_output("y", cut);
}

/* Q, K and V of different widths, and who reads them. */
static void three_products(void) {
  const uint32_t x = input("x"), q = linear(x, 40), k = linear(x, 24), v = linear(x, 24);
  const int64_t split[] = {B, S, 3, 8};
  const uint32_t kv =
      tb_op("Reshape", tb_op("Mul", tb_op("Softmax", k, NONE, NONE), tb_op("Softmax", v, NONE, NONE), NONE),
            tb_ints(4, split), NONE);
  tb_output("y", tb_op("Mul", tb_op("Softmax", q, NONE, NONE), tb_scalar(2), NONE));
  tb_output("z", kv);
}

/* ---- what a pass does in more than one way, and what it leaves alone --------------------------- */

static uint32_t slice(uint32_t x, int64_t begin, int64_t end, int64_t axis, int64_t step) {
  const uint32_t in[] = {x, tb_ints(1, &begin), tb_ints(1, &end), tb_ints(1, &axis), tb_ints(1, &step)};
  uint32_t cut = 0;
  tb_many("Slice", "", in, 5, &cut, 1);
  return cut;
}

/* A table of constants that is softmax's, whose absent arguments are no values. */
static void softmax_of_a_table(void) {
  const int64_t dims[] = {S, W};
  tb_output("y", tb_op("Add", input("x"), tb_op("Softmax", tb_random(2, dims, 3), NONE, NONE), NONE));
}

/* Rows by columns: larger than what it comes from, and small. */
static void table_of_sums(void) {
  const int64_t rows[] = {48, 1}, columns[] = {1, W}, first = 0, end = S;
  const uint32_t sum = tb_op("Add", tb_random(2, rows, 3), tb_random(2, columns, 3), NONE);
  tb_output("y", tb_op("Add", input("x"), slice(sum, first, end, 0, 1), NONE));
}

/* A product whose rows are known once the cosines are: no backend is asked for it before the run. */
static void product_of_a_table(void) {
  const int64_t dims[] = {S, W}, w[] = {W, W};
  const uint32_t table = tb_op("Cos", tb_random(2, dims, 3), NONE, NONE);
  tb_output("y", tb_op("Add", input("x"), tb_op("MatMul", table, tb_random(2, w, 0.2), NONE), NONE));
}

static void map_of_places(void) { /* a program that knows where it is: the places of ones */
  const int64_t values[] = {-1, 1};
  const uint32_t index = tb_with("Cast", "to=7", input("x"), NONE, NONE);
  const uint32_t hot = tb_op("OneHot", index, tb_scalar(3), tb_ints(2, values));
  tb_output("y", tb_with("Cast", "to=1", hot, NONE, NONE));
}
static void map_seen_otherwise(void) {
  const int64_t flat[] = {B * S, W};
  const uint32_t e = tb_op("Reshape", tb_op("Exp", input("x"), NONE, NONE), tb_ints(2, flat), NONE);
  tb_output("y", tb_op("Neg", e, NONE, NONE));
}

static void silu_of_a_step(void) { /* without a constant */
  const uint32_t x = input("x");
  tb_output("y", tb_op("Mul", x, tb_op("Sigmoid", x, NONE, NONE), NONE));
}
static void softplus_of_a_sum(void) {
  tb_output("y", tb_op("Log", one_plus_exp(tb_op("Add", input("x"), input("z"), NONE)), NONE, NONE));
}

static void bias_gelu(void) {
  tb_output("y", tb_op("Gelu", linear(input("x"), 40), NONE, NONE));
}
static void bias_eight_nodes(void) {
  eight_nodes_of(linear(input("x"), 40));
}
static void bias_silu(void) {
  const uint32_t m = linear(input("x"), 40);
  tb_output("y", tb_op("Mul", m, tb_op("Sigmoid", m, NONE, NONE), NONE));
}
static void zero_or_more(void) {
  tb_output("y", tb_op("Max", tb_scalar(0), linear(input("x"), 40), NONE));
}
static void relu_residual(void) {
  const uint32_t x = input("x");
  tb_output("y", tb_op("Add", x, tb_op("Relu", linear(x, W), NONE, NONE), NONE));
}
static void relu_residual_last(void) {
  const uint32_t x = input("x"), y = tb_op("Relu", linear(x, W), NONE, NONE);
  tb_output("y", tb_op("Sub", y, tb_op("Neg", x, NONE, NONE), NONE));
}
/* The bias is the product's before the activation is. */
static void gemm_relu(void) {
  const int64_t flat[] = {B * S, W}, w[] = {W, 40}, b[] = {40};
  const uint32_t x = tb_op("Reshape", input("x"), tb_ints(2, flat), NONE);
  tb_output("y", tb_op("Relu", tb_op("Gemm", x, tb_random(2, w, 0.2), tb_random(1, b, 0.2)), NONE, NONE));
}
/* A row of one token can be a bias or a residual. */
static void one_token_two_rows(void) {
  const int64_t token[] = {1, 1, W}, w[] = {W, W}, b[] = {W};
  const uint32_t m = tb_op("MatMul", tb_input("x", BS_F32, 3, token), tb_random(2, w, 0.2), NONE);
  tb_output("y", tb_op("Add", tb_op("Add", m, tb_random(1, b, 1), NONE), tb_random(1, b, 1), NONE));
}
static void one_token_two_inputs(void) {
  const int64_t token[] = {1, 1, W}, w[] = {W, W};
  const uint32_t m = tb_op("MatMul", tb_input("x", BS_F32, 3, token), tb_random(2, w, 0.2), NONE);
  const uint32_t r = tb_input("r", BS_F32, 3, token), b = tb_input("b", BS_F32, 3, token);
  tb_output("y", tb_op("Add", tb_op("Add", m, r, NONE), b, NONE));
}

/* A value that is f16 between two maps: its second reader keeps them apart. */
static uint32_t by_f16(uint32_t x) {
  const uint32_t half = tb_with("Cast", "to=10", x, NONE, NONE);
  tb_output("z", tb_op("Exp", tb_with("Cast", "to=1", half, NONE, NONE), NONE, NONE));
  return tb_with("Cast", "to=1", half, NONE, NONE);
}
static void residual_of_f16(void) {
  const int64_t w[] = {W, W};
  const uint32_t r = by_f16(input("r"));
  tb_output("y", tb_op("Add", tb_op("MatMul", input("x"), tb_random(2, w, 0.2), NONE), r, NONE));
}
static void product_to_f16(void) {
  const int64_t w[] = {W, W};
  const uint32_t m = tb_op("MatMul", input("x"), tb_random(2, w, 0.2), NONE);
  tb_output("y", tb_op("Softmax", by_f16(tb_op("Relu", m, NONE, NONE)), NONE, NONE));
}
static void add_f16_norm(void) {
  const int64_t w[] = {W};
  const uint32_t r = by_f16(input("r"));
  tb_output("y", tb_op("LayerNormalization", tb_op("Add", input("x"), r, NONE), tb_random(1, w, 1), NONE));
}

/* Nodes between the sum and the normalisation, which do not read the sum. */
static void add_between_norm(void) {
  const int64_t w[] = {W}, ww[] = {W, W};
  const uint32_t x = input("x"), sum = tb_op("Add", x, input("z"), NONE);
  const uint32_t m = tb_op("Softmax", tb_op("MatMul", x, tb_random(2, ww, 1), NONE), NONE, NONE);
  const uint32_t n = tb_op("LayerNormalization", sum, tb_random(1, w, 1), NONE);
  tb_output("y", tb_op("Mul", tb_op("Add", n, m, NONE), sum, NONE));
}
/* One number for each row; its dimension of 1 has another stride than 1. */
static void add_column_norm(void) {
  const int64_t dims[] = {1, B, S}, w[] = {W};
  const uint32_t c = tb_with("Transpose", "perm=1,2,0", tb_input("c", BS_F32, 3, dims), NONE, NONE);
  tb_output("y", tb_op("LayerNormalization", tb_op("Add", input("x"), c, NONE), tb_random(1, w, 1), NONE));
}

static void last_two_tokens(void) {
  const int64_t dims[] = {1, S, W}, w[] = {W, 50};
  const uint32_t x = tb_input("x", BS_F32, 3, dims);
  tb_output("y", slice(tb_op("MatMul", x, tb_random(2, w, 0.2), NONE), S - 2, S, 1, 1));
}

static uint32_t plain(uint32_t x, int64_t n) {
  const int64_t w[] = {W, n};
  return tb_op("MatMul", x, tb_random(2, w, 0.2), NONE);
}
static void five_products(void) { /* of which four become one */
  const uint32_t x = input("x");
  uint32_t y = tb_op("Softmax", plain(x, 24), NONE, NONE);
  for (int i = 0; i < 4; i++) y = tb_op("Add", y, tb_op("Softmax", plain(x, 24), NONE, NONE), NONE);
  tb_output("y", y);
}
static void products_without_bias(void) {
  const uint32_t x = input("x"), m = plain(x, 24), n = plain(x, 24);
  tb_output("y", tb_op("Add", tb_op("Softmax", m, NONE, NONE), tb_op("Softmax", n, NONE, NONE), NONE));
}
/* A view that runs over the ends of rows; no node reads it, only a reshape of it. */
static void products_seen_flat(void) {
  const int64_t flat[] = {B * S * 24}, rows[] = {B, S, 24};
  const uint32_t x = input("x"), m = plain(x, 24);
  const uint32_t seen =
      tb_op("Reshape", tb_op("Reshape", plain(x, 24), tb_ints(1, flat), NONE), tb_ints(3, rows), NONE);
  tb_output("y", tb_op("Add", tb_op("Softmax", m, NONE, NONE), tb_op("Softmax", seen, NONE, NONE), NONE));
}
static void products_of_one_column(void) { /* which would have gaps in the whole */
  const uint32_t x = input("x"), m = plain(x, 1), n = plain(x, 1);
  tb_output("y", tb_op("Mul", tb_with("Softmax", "axis=1", m, NONE, NONE), n, NONE));
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct row {
  const char *pass;
  void (*make)(void);
  const char *op; /* of which there are `with` nodes with the pass, `without` without it */
  int with, without;
} rows[] = {
    {"fold", angles, "map", 1, 2},
    {"dce", unused, "map", 1, 2},
    {"view", turned_back, "map", 1, 2},
    {"view", joined, "map", 1, 3},
    {"fuse_map", chain, "map", 1, 4},
    {"expr", eight_nodes, "steps", 1, 8},
    {"expr", eight_nodes_of_a_sum, "steps", 2, 9},
    {"expr", gelu_of_terms, "steps", 1, 5},
    {"expr", gelu_halved_last, "steps", 1, 5},
    {"expr", gelu_tanh_factored, "steps", 1, 9},
    {"expr", sigmoid_by_hand, "steps", 1, 4},
    {"expr", silu_by_hand, "steps", 1, 4},
    {"expr", softplus_by_hand, "steps", 1, 3},
    {"fuse_norm", naive_softmax, "reduce", 0, 2},
    {"fuse_norm", rms, "reduce", 0, 1},
    {"fuse_norm", layer_norm, "reduce", 0, 2},
    {"fuse_attention", attention, "contract", 0, 2},
    {"fuse_attention", masked_attention, "contract", 0, 2},
    {"fuse_attention", batched_attention, "contract", 0, 2},
    {"fuse_attention", grouped_attention, "map", 0, 2},
    {"rope", rotary, "map", 1, 3},
    {"epilogue", bias_activation, "map", 0, 1},
    {"epilogue", bias_residual, "map", 0, 1},
    {"epilogue", add_norm, "map", 1, 2},
    {"merge", three_products, "matmul", 1, 3},
    {"last_token", last_token, "rows", 2, 12},
    {"fold", softmax_of_a_table, "normalize", 0, 1},
    {"fold", table_of_sums, "map", 1, 2},
    {"fold", product_of_a_table, "matmul", 1, 1},
    {"fuse_map", map_of_places, "map", 2, 4},
    {"fuse_map", map_seen_otherwise, "map", 1, 2},
    {"expr", silu_of_a_step, "steps", 1, 2},
    {"expr", softplus_of_a_sum, "steps", 2, 4},
    {"epilogue", bias_gelu, "map", 0, 1},
    {"epilogue", bias_eight_nodes, "map", 0, 1},
    {"epilogue", bias_silu, "map", 0, 1},
    {"epilogue", zero_or_more, "map", 0, 1},
    {"epilogue", relu_residual, "map", 0, 1},
    {"epilogue", relu_residual_last, "map", 0, 1},
    {"epilogue", gemm_relu, "map", 0, 1},
    {"epilogue", one_token_two_rows, "map", 0, 1},
    {"epilogue", one_token_two_inputs, "map", 0, 1},
    {"epilogue", residual_of_f16, "map", 3, 3},
    {"epilogue", product_to_f16, "map", 3, 3},
    {"epilogue", add_f16_norm, "map", 3, 3},
    {"epilogue", add_between_norm, "map", 1, 2},
    {"epilogue", add_column_norm, "map", 0, 1},
    {"merge", five_products, "matmul", 2, 5},
    {"merge", products_without_bias, "matmul", 1, 2},
    {"merge", products_seen_flat, "matmul", 1, 2},
    {"merge", products_of_one_column, "matmul", 2, 2},
    {"last_token", last_two_tokens, "rows", 2, 6},
    /* shapes, strides and dtypes: what is left alone has as many nodes with the pass as without it */
    {"fuse_attention", scores_alone, "contract", 0, 2},
    {"fuse_attention", softmax_in_f64, "contract", 0, 2},
    {"fuse_attention", scores_in_f64, "contract", 2, 2},
    {"fuse_attention", queries_copied, "contract", 0, 2},
    {"fuse_attention", queries_turned, "contract", 2, 2},
    {"fuse_attention", keys_turned, "contract", 2, 2},
    {"fuse_attention", values_turned, "contract", 2, 2},
    {"fuse_attention", queries_of_one_number, "contract", 0, 2},
    {"fuse_attention", groups_of_one_batch, "contract", 0, 2},
    {"fuse_attention", groups_of_one_key, "contract", 0, 2},
    {"fuse_attention", groups_of_one_number, "contract", 0, 2},
    {"fuse_attention", groups_of_keys_alone, "contract", 0, 2},
    {"fuse_attention", groups_of_f64, "contract", 0, 2},
    {"rope", rotary, "steps", 6, 4},
    {"rope", rotary_of_one_head, "map", 1, 3},
    {"rope", rotary_by_one_angle, "map", 1, 3},
    {"rope", rotary_by_one_angle, "inputs", 4, 1},
    {"rope", rotary_read_twice, "steps", 4, 4},
    {"rope", rotary_of_f16, "map", 2, 4},
    {"view", turned_behind_one, "map", 1, 2},
    {"view", columns_joined, "map", 0, 2},
    {"view", sums_turned, "map", 1, 1},
    {"weights", weight_of_f16, "contract", 0, 1},
    {"weights", weight_with_update, "contract", 0, 1},
    {"weights", weight_of_rank_3, "contract", 0, 1},
    {"weights", weight_spread, "contract", 0, 1},
    {"weights", weight_of_gemm, "contract", 0, 1},
    {"weights", weights_of_a_batch, "contract", 1, 1},
    {"weights", weight_on_the_left, "contract", 1, 1},
    {"weights", weight_of_a_broadcast, "contract", 1, 1},
    {"weights", weight_of_turned_rows, "contract", 1, 1},
    {"weights", weight_of_a_turned_matrix, "contract", 1, 1},
    {"weights", weight_of_rows_of_a_bias, "contract", 1, 1},
    {"weights", weight_of_integers, "contract", 1, 1},
    {"weights", weight_of_bf16, "contract", 1, 1},
    {"weights", weight_of_gemm_halved, "contract", 0, 1},
    {"weights", weight_of_a_column, "contract", 1, 1},
    {"alpha", number_before_and_behind, "map", 0, 2},
    {"alpha", product_divided, "map", 0, 1},
    {"alpha", product_negated, "map", 0, 1},
    {"alpha", sum_with_bias_halved, "map", 0, 1},
    {"alpha", sum_with_bias_of_others, "map", 0, 1},
    {"alpha", sum_with_large_bias, "map", 1, 1},
    {"alpha", sum_with_bias_of_the_caller, "map", 1, 1},
    {"alpha", number_before_two_products, "map", 2, 2},
    {"alpha", number_in_f64_alone, "map", 2, 3},
    {"alpha", gemm_of_halved_rows, "map", 0, 1},
    {"alpha", product_beside_its_half, "map", 1, 1},
    {"alpha", half_and_power_of_the_caller, "map", 1, 2},
    {"alpha", product_half_and_turned, "map", 1, 1},
    {"alpha", number_of_turned_square_read_turned, "map", 1, 1},
    {"alpha", number_of_turned_seen_otherwise, "map", 1, 1},
    {"alpha", large_number_before_activations, "map", 1, 1},
    {"alpha", sum_with_bias_and_a_number, "map", 1, 1},
    {"alpha", gemm_by_alpha, "map", 0, 1},
    {"alpha", gemm_by_alpha_and_number, "map", 0, 1},
    {"alpha", number_behind_activations, "map", 0, 1},
    {"alpha", number_before_activations, "map", 0, 2},
    {"alpha", number_of_turned, "map", 0, 1},
    {"alpha", number_of_turned_read_turned, "map", 1, 1},
    {"alpha", number_of_turned_rows, "map", 1, 1},
    {"alpha", number_of_rows_read_turned, "map", 0, 1},
    {"alpha", large_number, "map", 1, 1},
    {"alpha", small_number, "map", 1, 1},
    {"alpha", large_number_before, "map", 1, 1},
    {"alpha", large_numbers, "map", 1, 2},
    {"alpha", large_numbers_of_activations, "map", 1, 2},
    {"alpha", weight_with_zero, "map", 0, 1},
    {"alpha", weight_with_infinity, "map", 0, 1},
    {"alpha", weight_near_the_end, "map", 1, 1},
    {"alpha", weight_near_zero, "map", 1, 1},
    {"alpha", weight_beside_an_odd_one, "map", 2, 3},
    {"alpha", bias_near_the_end, "map", 1, 1},
    {"alpha", bias_of_the_caller, "map", 1, 1},
    {"alpha", bias_with_gaps, "map", 1, 1},
    {"alpha", product_shown, "map", 1, 1},
    {"alpha", product_read_beside, "map", 1, 1},
    {"alpha", rows_read_beside, "map", 1, 1},
    {"alpha", rows_by_themselves, "map", 1, 1},
    {"alpha", number_of_the_caller, "map", 1, 1},
    {"alpha", number_of_the_caller_before, "map", 1, 1},
    {"alpha", number_behind_relu, "map", 1, 1},
    {"alpha", number_over_product, "map", 1, 1},
    {"alpha", product_over_value, "map", 1, 1},
    {"alpha", product_squared, "map", 1, 1},
    {"alpha", product_and_its_half, "map", 1, 1},
    {"alpha", rows_and_a_number, "map", 1, 1},
    {"alpha", rows_spread, "map", 1, 1},
    {"alpha", number_in_f64, "map", 1, 1},
    {"alpha", number_in_f64_before, "map", 1, 1},
    {"alpha", product_by_sixteen, "map", 0, 1},
    {"alpha", product_by_more, "map", 1, 1},
    {"alpha", rows_by_more, "map", 0, 1},
    {"alpha", activations_by_more, "map", 0, 1},
    {"alpha", sixteenth_of_activations, "map", 0, 1},
    {"alpha", less_of_activations, "map", 1, 1},
    {"alpha", f16_by_four, "map", 3, 3},
    {"alpha", f16_activations_by_a_half, "map", 3, 4},
    {"alpha", f16_activations_by_two, "map", 4, 4},
    {"alpha", f16_by_a_quarter, "map", 2, 3},
    {"alpha", f16_by_three, "map", 3, 3},
    {"alpha", bf16_by_a_quarter, "map", 2, 3},
    {"alpha", bf16_by_three, "map", 3, 3},
    {"alpha", f16_widened, "map", 3, 3},
    {"alpha", f16_and_more, "map", 3, 3},
    {"cse", product_twice, "contract", 1, 2},
    {"cse", product_three_times, "contract", 1, 3},
    {"cse", angles_of_two_layers, "take", 1, 2},
    {"cse", norm_seen_flat, "normalize", 1, 2},
    {"cse", twice_in_a_row, "normalize", 2, 4},
    {"cse", largest_twice, "topk", 1, 2},
    {"cse", two_outputs, "normalize", 2, 2},
    {"cse", another_axis, "reduce", 2, 2},
    {"cse", another_eps, "normalize", 2, 2},
    {"cse", another_weight, "matmul", 2, 2},
    {"cse", same_rows, "take", 1, 2},
    {"cse", another_row, "take", 2, 2},
    {"cse", same_left_matrix, "contract", 1, 2},
    {"cse", another_left_matrix, "contract", 2, 2},
    {"cse", another_operand, "contract", 2, 2},
    {"cse", another_activation, "matmul", 2, 2},
    {"cse", bias_of_the_first, "normalize", 2, 2},
    {"cse", bias_of_the_second, "normalize", 2, 2},
    {"cse", another_op, "normalize", 1, 1},
    {"cse", another_op, "reduce", 1, 1},
};

/* Nodes of an op; "steps": of the program of the only map; "rows": of the product's output; "inputs":
of the first map. */
static int count(bs_session *s, const char *op) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  int n = 0;
  if (strcmp(op, "steps") == 0) {
    for (const char *t = strstr(tb_report(s, BS_REPORT_DUMP, 0), "; "); t != NULL; t = strstr(t + 1, "; "))
      n++;
    return n;
  }
  if (strcmp(op, "rows") == 0) {
    const char *at = strstr(tb_report(s, BS_REPORT_DUMP, 0), " = matmul(");
    while (*at != '[') at--;
    return atoi(at + 1);
  }
  if (strcmp(op, "inputs") == 0) {
    const char *at = strstr(tb_report(s, BS_REPORT_DUMP, 0), " = map(");
    for (; *at != '\n'; at++) n += *at == '%';
    return n;
  }
  for (uint32_t i = 0; i < bs_session_node_count(s); i++) {
    bs_node_info info = {.struct_size = (uint32_t)sizeof info};
    ck_assert_int_eq(bs_session_node(s, i, &info, &err), BS_OK);
    n += strcmp(info.op, op) == 0;
  }
  return n;
}

/* Runs with inputs of seeds and returns a copy of y. */
static float *result(bs_session *s, int64_t *out_n) {
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  float *in[4] = {NULL};
  const uint32_t ports = bs_graph_port_count(tb_graph, 1);
  for (uint32_t i = 0; i < ports; i++) {
    const char *name;
    bs_tensor_desc d;
    ck_assert_int_eq(bs_session_port(s, i, &name, &d, &err), BS_OK);
    const int64_t n = tb_elements(s, name);
    in[i] = malloc((size_t)n * sizeof(float));
    tb_fill(in[i], n, 100 + i);
    tb_set(s, name, in[i]);
  }
  const int32_t rc = bs_session_check(s, NULL, NULL, &err);
  ck_assert_msg(rc == BS_OK, "%s %s", err.message, err.where);
  tb_run(s);
  *out_n = tb_elements(s, "y");
  float *y = malloc((size_t)*out_n * sizeof *y);
  memcpy(y, tb_get(s, "y"), (size_t)*out_n * sizeof *y);
  for (uint32_t i = 0; i < ports; i++) free(in[i]);
  return y;
}

static void same(const float *a, const float *b, int64_t n, const char *what) {
  double most = 1e-30, off = 0;
  for (int64_t i = 0; i < n; i++) {
    most = fmax(most, fabs((double)a[i]));
    off = fmax(off, fabs((double)a[i] - (double)b[i]));
  }
  ck_assert_msg(off <= 2e-6 * most, "%s: %g of %g", what, off, most);
}

START_TEST(a_pass_does_its_work) {
  const struct row *r = &rows[_i];
  r->make();
  bs_session *on = tb_open("ref", "", NULL), *off = tb_open("ref", "", r->pass),
             *none = tb_open("ref", "", "all");
  const int with = count(on, r->op), without = count(off, r->op);
  ck_assert_msg(with == r->with && without == r->without, "%s: %d nodes of %s with it, %d without\n%s\n%s",
                r->pass, with, r->op, without, tb_report(on, BS_REPORT_DUMP, 0),
                tb_report(off, BS_REPORT_DUMP, 0));
  int64_t n = 0;
  float *a = result(on, &n), *b = result(off, &n), *c = result(none, &n);
  same(c, a, n, "all passes");
  same(c, b, n, "all but one");
  free(a);
  free(b);
  free(c);
  const char *text = tb_report(on, BS_REPORT_EXPLAIN, 0);
  ck_assert(strstr(text, r->pass) != NULL);
  bs_session_close(on);
  bs_session_close(off);
  bs_session_close(none);
}
END_TEST

/* A graph in which there is nothing to do: every pass reports 0 changes. */
START_TEST(nothing_to_do) {
  const uint32_t m = tb_op("Tanh", plain(input("x"), 24), NONE, NONE);
  tb_output("y", tb_op("Softmax", m, NONE, NONE));
  bs_session *on = tb_open("ref", "", NULL);
  const char *text = tb_report(on, BS_REPORT_EXPLAIN, 0);
  for (uint32_t i = 0; bs_graph_pass_name(i) != NULL; i++) {
    char wanted[80];
    snprintf(wanted, sizeof wanted, "pass %-14s     %5d changes", bs_graph_pass_name(i), 0);
    ck_assert_msg(strstr(text, wanted) != NULL, "%s changed something\n%s", bs_graph_pass_name(i), text);
  }
  bs_session_close(on);
}
END_TEST

/* The number behind the product leaves a copy, which the pass view takes away in the second round; the last
 * round finds nothing. */
START_TEST(passes_come_again) {
  number_behind_activations();
  bs_session *on = tb_open("ref", "", NULL);
  const char *text = tb_report(on, BS_REPORT_EXPLAIN, 0), *json = tb_report(on, BS_REPORT_EXPLAIN, 1);
  ck_assert_msg(strstr(text, "\nround 2: view 1\n") != NULL && strstr(text, "round 3") == NULL, "%s", text);
  ck_assert_msg(strstr(json, "\"name\":\"view\",\"off\":false,\"changes\":1,\"by_round\":[0,1]") != NULL,
                "%s", json);
  bs_session_close(on);
}
END_TEST

/* Every pass has a row above. */
START_TEST(every_pass_is_tested) {
  for (uint32_t i = 0; bs_graph_pass_name(i) != NULL; i++) {
    int found = 0;
    for (int k = 0; k < TEST_COUNT(rows); k++) found |= strcmp(rows[k].pass, bs_graph_pass_name(i)) == 0;
    ck_assert_msg(found, "%s has no test", bs_graph_pass_name(i));
  }
}
END_TEST

/* The time of the passes grows with the nodes and not with their square: 10,000 nodes in a row, of which a
 * third are joined to their neighbours, are no work to speak of. */
START_TEST(a_long_chain) {
  enum { LENGTH = 10000 };
  const int64_t dims[] = {1, 2};
  uint32_t x = tb_input("x", BS_F32, 2, dims);
  for (int i = 0; i < LENGTH; i++) {
    bs_error err = {.struct_size = (uint32_t)sizeof err};
    const char *op = i % 3 == 2 ? "Softmax" : "Tanh";
    const uint32_t in = x;
    ck_assert_int_eq(bs_graph_op(tb_graph, op, &in, 1, NULL, 0, &x, 1, &err), BS_OK);
  }
  tb_output("y", x);
  bs_session *on = tb_open("ref", "", NULL);
  ck_assert_int_eq(count(on, "normalize"), LENGTH / 3);
  ck_assert_int_eq(count(on, "map"), LENGTH / 3 + 1);
  bs_session_close(on);
}
END_TEST

int main(void) {
  const test_case cases[] = {{a_pass_does_its_work, TEST_COUNT(rows)},
                             {nothing_to_do},
                             {passes_come_again},
                             {every_pass_is_tested},
                             {a_long_chain},
                             {0}};
  return run_tests("graph passes", cases, (test_setup){.before = tb_begin, .after = tb_end});
}
