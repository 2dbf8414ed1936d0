/* SPDX-License-Identifier: MIT
 * pass_graphs.h - graphs for test_graph_passes.c whose shapes, strides and dtypes decide whether attention,
 * rope or a view is made of them. */
#ifndef BS_TESTS_GRAPH_PASS_GRAPHS_H
#define BS_TESTS_GRAPH_PASS_GRAPHS_H
#include "tests/graph/build.h"

enum { PG_BATCH = 2, PG_HEADS = 4, PG_ROWS = 3, PG_WIDTH = 6 };

static uint32_t pg_input(const char *name, int64_t batch, int64_t heads, int64_t rows, int64_t width) {
  const int64_t dims[] = {batch, heads, rows, width};
  return tb_input(name, BS_F32, 4, dims);
}

static uint32_t pg_heads(const char *name) {
  return pg_input(name, PG_BATCH, PG_HEADS, PG_ROWS, PG_WIDTH);
}

static uint32_t pg_one(const char *op, uint32_t x) {
  return tb_op(op, x, BS_GRAPH_NONE, BS_GRAPH_NONE);
}

static uint32_t pg_turned(uint32_t x) {
  return tb_with("Transpose", "perm=0,1,3,2", x, BS_GRAPH_NONE, BS_GRAPH_NONE);
}

static uint32_t pg_cast(uint32_t x, uint32_t dtype) {
  return tb_with("Cast",
                 dtype == BS_F64   ? "to=11"
                 : dtype == BS_F16 ? "to=10"
                                   : "to=1",
                 x, BS_GRAPH_NONE, BS_GRAPH_NONE);
}

static uint32_t pg_joined(uint32_t a, uint32_t b, const char *attrs) {
  const uint32_t in[] = {a, b};
  uint32_t y = 0;
  tb_many("Concat", attrs, in, b != BS_GRAPH_NONE ? 2 : 1, &y, 1);
  return y;
}

static uint32_t pg_product(uint32_t a, uint32_t b) {
  return tb_op("MatMul", a, b, BS_GRAPH_NONE);
}

/* ---- attention ------------------------------------------------------------------------------- */

static void pg_attend(uint32_t q, uint32_t kt, uint32_t v) {
  tb_output("y", pg_product(pg_one("Softmax", pg_product(q, kt)), v));
}

static void scores_alone(void) {
  pg_attend(pg_heads("q"), pg_turned(pg_heads("k")), pg_heads("v"));
}

static void softmax_in_f64(void) {
  const uint32_t s = pg_product(pg_heads("q"), pg_turned(pg_heads("k")));
  const uint32_t p = pg_one("Softmax", pg_cast(s, BS_F64));
  tb_output("y", pg_product(pg_cast(p, BS_F32), pg_heads("v")));
}

/* Attention takes Q, K and V of one dtype. */
static void scores_in_f64(void) {
  const uint32_t q = pg_cast(pg_heads("q"), BS_F64), k = pg_cast(pg_heads("k"), BS_F64);
  const uint32_t s = pg_cast(pg_product(q, pg_turned(k)), BS_F32);
  tb_output("y", pg_product(pg_one("Softmax", s), pg_heads("v")));
}

/* A copy that makes rows without gaps is no scale of 1: it stays. */
static void queries_copied(void) {
  const int64_t flat = PG_BATCH * PG_HEADS * PG_ROWS * PG_WIDTH,
                dims[] = {PG_BATCH, PG_HEADS, PG_ROWS, PG_WIDTH};
  const uint32_t q = pg_turned(pg_input("q", PG_BATCH, PG_HEADS, PG_WIDTH, PG_ROWS));
  const uint32_t rows = tb_op("Reshape", q, tb_ints(1, &flat), BS_GRAPH_NONE);
  pg_attend(tb_op("Reshape", rows, tb_ints(4, dims), BS_GRAPH_NONE), pg_turned(pg_heads("k")), pg_heads("v"));
}

/* Rows with gaps. */
static void queries_turned(void) {
  pg_attend(pg_turned(pg_input("q", PG_BATCH, PG_HEADS, PG_WIDTH, PG_ROWS)), pg_turned(pg_heads("k")),
            pg_heads("v"));
}
static void keys_turned(void) {
  pg_attend(pg_heads("q"), pg_input("k", PG_BATCH, PG_HEADS, PG_WIDTH, PG_ROWS), pg_heads("v"));
}
static void values_turned(void) {
  pg_attend(pg_heads("q"), pg_turned(pg_heads("k")),
            pg_turned(pg_input("v", PG_BATCH, PG_HEADS, PG_WIDTH, PG_ROWS)));
}

/* A row of one number has no gaps, whatever its stride is. */
static void queries_of_one_number(void) {
  pg_attend(pg_turned(pg_input("q", PG_BATCH, PG_HEADS, 1, PG_ROWS)),
            pg_turned(pg_input("k", PG_BATCH, PG_HEADS, PG_ROWS, 1)), pg_heads("v"));
}

/* [batch,groups,1,rows,width] for all heads. */
static uint32_t pg_repeated(const char *name, const int64_t from[5]) {
  const int64_t wide[] = {PG_BATCH, 2, 2, PG_ROWS, PG_WIDTH}, four[] = {PG_BATCH, 4, PG_ROWS, PG_WIDTH};
  const uint32_t x = tb_input(name, BS_F32, 5, from);
  return tb_op("Reshape", tb_op("Expand", x, tb_ints(5, wide), BS_GRAPH_NONE), tb_ints(4, four),
               BS_GRAPH_NONE);
}

static void pg_attend_masked(uint32_t k, uint32_t v) {
  const int64_t mask[] = {PG_ROWS, PG_ROWS};
  const uint32_t s =
      tb_op("Add", pg_product(pg_heads("q"), pg_turned(k)), tb_input("mask", BS_F32, 2, mask), BS_GRAPH_NONE);
  tb_output("y", pg_product(pg_one("Softmax", s), v));
}

/* A repetition in another place than the heads of a group stays. */
static void groups_of_one_batch(void) {
  const int64_t from[] = {1, 2, 1, PG_ROWS, PG_WIDTH};
  pg_attend_masked(pg_repeated("k", from), pg_repeated("v", from));
}
static void groups_of_one_key(void) {
  const int64_t from[] = {PG_BATCH, 2, 1, 1, PG_WIDTH};
  pg_attend_masked(pg_repeated("k", from), pg_repeated("v", from));
}
static void groups_of_one_number(void) {
  const int64_t from[] = {PG_BATCH, 2, 1, PG_ROWS, 1};
  pg_attend_masked(pg_repeated("k", from), pg_repeated("v", from));
}
/* K of two heads, V of four. */
static void groups_of_keys_alone(void) {
  const int64_t from[] = {PG_BATCH, 2, 1, PG_ROWS, PG_WIDTH};
  pg_attend_masked(pg_repeated("k", from), pg_heads("v"));
}
static void groups_of_f64(void) {
  const int64_t from[] = {PG_BATCH, 2, 1, PG_ROWS, PG_WIDTH}, wide[] = {PG_BATCH, 2, 2, PG_ROWS, PG_WIDTH},
                four[] = {PG_BATCH, 4, PG_ROWS, PG_WIDTH};
  uint32_t x[2];
  for (int i = 0; i < 2; i++) {
    x[i] = pg_one("Softmax", pg_cast(tb_input(i == 0 ? "k" : "v", BS_F32, 5, from), BS_F64));
    x[i] = pg_cast(tb_op("Expand", x[i], tb_ints(5, wide), BS_GRAPH_NONE), BS_F32);
    x[i] = tb_op("Reshape", x[i], tb_ints(4, four), BS_GRAPH_NONE);
  }
  pg_attend(pg_heads("q"), pg_turned(x[0]), x[1]);
}

/* ---- rope ------------------------------------------------------------------------------------ */

static uint32_t pg_part(uint32_t x, int64_t axis, int64_t begin, int64_t end) {
  const uint32_t in[] = {x, tb_ints(1, &begin), tb_ints(1, &end), tb_ints(1, &axis)};
  uint32_t y = 0;
  tb_many("Slice", "", in, 4, &y, 1);
  return y;
}

static uint32_t pg_rotated(uint32_t x, uint32_t turned, uint32_t cosine, uint32_t sine) {
  return tb_op("Add", tb_op("Mul", x, cosine, BS_GRAPH_NONE), tb_op("Mul", turned, sine, BS_GRAPH_NONE),
               BS_GRAPH_NONE);
}

static uint32_t pg_halves_turned(uint32_t x) {
  return pg_joined(pg_one("Neg", pg_part(x, 3, PG_WIDTH / 2, PG_WIDTH)), pg_part(x, 3, 0, PG_WIDTH / 2),
                   "axis=-1");
}

static uint32_t pg_angles(int64_t width) {
  const int64_t dims[] = {PG_ROWS, width};
  return tb_random(2, dims, 1);
}

static void rotary_of_one_head(void) {
  const uint32_t x = pg_input("x", 1, 1, PG_ROWS, PG_WIDTH);
  tb_output("y", pg_rotated(x, pg_halves_turned(x), pg_angles(PG_WIDTH), pg_angles(PG_WIDTH)));
}

/* One angle for each row: both halves have the same. */
static void rotary_by_one_angle(void) {
  const int64_t dims[] = {PG_ROWS, 1};
  const uint32_t x = pg_heads("x"), cosine = tb_input("cosine", BS_F32, 2, dims);
  tb_output("y", pg_rotated(x, pg_halves_turned(x), cosine, tb_input("sine", BS_F32, 2, dims)));
}

/* What was turned is read by another node too: it must be made all the same. */
static void rotary_read_twice(void) {
  const uint32_t x = pg_heads("x"), turned = pg_halves_turned(x);
  tb_output("y", pg_rotated(x, turned, pg_angles(PG_WIDTH), pg_angles(PG_WIDTH)));
  tb_output("z", pg_one("Softmax", turned));
}

/* f16 becomes f32 without rounding. */
static void rotary_of_f16(void) {
  const uint32_t x = pg_one("Softmax", pg_cast(pg_heads("x"), BS_F16));
  const uint32_t low = pg_cast(pg_part(x, 3, 0, PG_WIDTH / 2), BS_F32);
  const uint32_t high = pg_one("Neg", pg_cast(pg_part(x, 3, PG_WIDTH / 2, PG_WIDTH), BS_F32));
  tb_output("y", pg_rotated(pg_cast(x, BS_F32), pg_joined(high, low, "axis=-1"), pg_angles(PG_WIDTH),
                            pg_angles(PG_WIDTH)));
}

/* ---- views ----------------------------------------------------------------------------------- */

/* A dimension of 1 in front of those that are turned. */
static void turned_behind_one(void) {
  const int64_t dims[] = {PG_ROWS, PG_BATCH, PG_WIDTH}, axis = 0, other[] = {1, PG_BATCH, PG_ROWS, PG_WIDTH};
  const uint32_t x = pg_one("Softmax", tb_input("x", BS_F32, 3, dims));
  const uint32_t t = tb_op("Unsqueeze", tb_with("Transpose", "perm=1,0,2", x, BS_GRAPH_NONE, BS_GRAPH_NONE),
                           tb_ints(1, &axis), BS_GRAPH_NONE);
  tb_output("y", pg_one("Softmax", pg_joined(t, tb_input("z", BS_F32, 4, other), "axis=0")));
}

/* Values of one column become columns of a wider value. */
static void columns_joined(void) {
  const int64_t dims[] = {5, 1}, rows[] = {0, 4, 2}, others[] = {3, 1, 0};
  const uint32_t x = tb_input("x", BS_F32, 2, dims);
  const uint32_t a = tb_op("Gather", x, tb_ints(3, rows), BS_GRAPH_NONE);
  const uint32_t b = tb_op("Gather", x, tb_ints(3, others), BS_GRAPH_NONE);
  tb_output("y", pg_one("Softmax", pg_joined(a, b, "axis=1")));
}

/* A reduction writes no gaps. */
static void sums_turned(void) {
  const int64_t dims[] = {PG_ROWS, PG_WIDTH}, axis = 1, flat = PG_ROWS * PG_WIDTH;
  const uint32_t s =
      tb_op("CumSum", tb_input("x", BS_F32, 2, dims), tb_constant(BS_I64, 0, NULL, &axis), BS_GRAPH_NONE);
  const uint32_t t = tb_with("Transpose", "perm=1,0", s, BS_GRAPH_NONE, BS_GRAPH_NONE);
  tb_output("y", pg_one("Softmax", tb_op("Reshape", t, tb_ints(1, &flat), BS_GRAPH_NONE)));
}
#endif
