/* SPDX-License-Identifier: MIT
 * test_pass_by_hand.c - passes on graphs that are made value by value: graphs that no model lowers to today,
 * and answers of the function that folds. A pass makes one change in each graph, and must leave the variants
 * of the graph alone. */
#include <string.h>

#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "graph/pass/program.h"
#include "tests/run_tests.h"

enum { N = 4 };
static graph *g;
static float data[N * N];

static void ok(int32_t rc, const bs_error *err) {
  ck_assert_msg(rc == BS_OK, "%s: %s", err->id, err->message);
}

static void begin(void) {
  bs_error err = BS_ERROR_INIT;
  ok(graph_new(&g, &err), &err);
}

static void end(void) {
  graph_free(g);
}

static uint32_t root_of(uint32_t kind, uint32_t dtype, int64_t rows, int64_t columns) {
  const int64_t dims[2] = {rows, columns};
  bs_error err = BS_ERROR_INIT;
  uint32_t value = GNONE;
  ok(graph_add_root(g, kind, dtype, 2, dims, kind == GV_CONST ? data : NULL, NULL, &value, &err), &err);
  return value;
}

static uint32_t square(uint32_t kind) {
  return root_of(kind, BS_F32, N, N);
}

static uint32_t row(uint32_t dtype) {
  const int64_t n = N;
  bs_error err = BS_ERROR_INIT;
  uint32_t value = GNONE;
  ok(graph_add_root(g, GV_CONST, dtype, 1, &n, data, NULL, &value, &err), &err);
  return value;
}

static uint32_t add(const gnode *n) {
  bs_error err = BS_ERROR_INIT;
  uint32_t id = GNONE;
  ok(graph_add_node(g, n, GNONE, &id, &err), &err);
  return id;
}

/* out = a + b; with `second` also second = a. b GNONE: out = -a. */
static uint32_t map(uint32_t a, uint32_t b, uint32_t out, uint32_t second) {
  gexpr e = {.compute = BS_F32, .n_in = b != GNONE ? 2 : 1, .n_steps = 1, .n_out = second != GNONE ? 2 : 1};
  e.steps[0].op = b != GNONE ? BS_EXPR_ADD : BS_EXPR_NEG;
  e.steps[0].b = b != GNONE ? 1 : 0;
  e.outs[0] = GX_STEP;
  gnode n = match_node(GOP_MAP, e.n_in, e.n_out);
  n.in[0] = a;
  n.in[1] = b;
  n.out[0] = out;
  n.out[1] = second;
  n.expr = graph_expr(g, &e);
  return add(&n);
}

static uint32_t product(uint32_t x, uint32_t weight, uint32_t bias, uint32_t out) {
  gnode n = match_node(GOP_MATMUL, 3, 1);
  n.in[0] = x;
  n.in[1] = bias;
  n.weight = weight;
  n.out[0] = out;
  return add(&n);
}

static uint32_t softmax(uint32_t x, uint32_t term, uint32_t out, uint32_t sum) {
  gnode n = match_node(GOP_NORMALIZE, 4, 2);
  n.attrs[0] = BS_NORMALIZE_SOFTMAX;
  n.in[0] = x;
  n.in[1] = term;
  n.out[0] = out;
  n.out[1] = sum;
  return add(&n);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* A sum, its normalisation, and who reads it then. 1: the normalisation adds another value already; 2: it
 * writes its sum already; 3: the map writes one of its inputs too; 4: the normalisation reads the sum by a
 * view, which is no name that the map writes. */
static void sum_and_norm(int variant) {
  const int64_t dims[2] = {N, N}, strides[2] = {N, 1};
  const uint32_t x = square(GV_INPUT), r = square(GV_INPUT), s = square(GV_TEMP), y = square(GV_TEMP);
  bs_error err = BS_ERROR_INIT;
  uint32_t seen = s;
  if (variant == 4) ok(graph_add_view(g, s, BS_F32, 2, dims, strides, 0, &seen, &err), &err);
  map(x, r, s, variant == 3 ? square(GV_TEMP) : GNONE);
  softmax(seen, variant == 1 ? r : GNONE, y, variant == 2 ? square(GV_TEMP) : GNONE);
  map(s, GNONE, square(GV_TEMP), GNONE);
}

/* A number becomes a constant of the program. 1: it is all that the map reads, and a map without inputs is
 * made of none. */
static void map_of_a_number(int variant) {
  const uint32_t number = root_of(GV_CONST, BS_F32, 1, 1), y = square(GV_TEMP);
  if (variant == 1)
    map(number, GNONE, y, GNONE);
  else
    map(square(GV_INPUT), number, y, GNONE);
}

/* Two maps. 1: the first one reads a state; 2: it writes one of its inputs too. */
static void two_maps(int variant) {
  const uint32_t x = square(variant == 1 ? GV_STATE : GV_INPUT), r = square(GV_INPUT);
  const uint32_t s = square(GV_TEMP), y = square(GV_TEMP);
  map(x, r, s, variant == 2 ? square(GV_TEMP) : GNONE);
  map(s, GNONE, y, GNONE);
}

/* Two products of the same rows. Apart from: 1: the accumulator; 2: the weight's dtype; 3: the result's
 * dtype; 4: the bias' dtype. */
static void two_products(int variant) {
  const uint32_t x = square(GV_INPUT), b = row(BS_F32), c = row(variant == 4 ? BS_F16 : BS_F32);
  const uint32_t w = square(GV_CONST), v = root_of(GV_CONST, variant == 2 ? BS_F16 : BS_F32, N, N);
  const uint32_t y = square(GV_TEMP), z = root_of(GV_TEMP, variant == 3 ? BS_F16 : BS_F32, N, N);
  product(x, w, b, y);
  const uint32_t second = product(x, v, c, z);
  if (variant == 1) g->nodes[second].accumulate = BS_ACC_F64;
}

/* One row of a product, whose dimension of 1 has a stride that means nothing. */
static void product_of_a_row(int variant) {
  const int64_t dims[2] = {1, N}, strides[2] = {N + 2, 1};
  const uint32_t x = square(GV_INPUT), y = square(GV_TEMP), z = square(GV_TEMP);
  bs_error err = BS_ERROR_INIT;
  uint32_t seen = GNONE;
  (void)variant;
  product(x, square(GV_CONST), GNONE, y);
  product(x, square(GV_CONST), GNONE, z);
  ok(graph_add_view(g, z, BS_F32, 2, dims, strides, N, &seen, &err), &err);
  map(seen, GNONE, root_of(GV_TEMP, BS_F32, 1, N), GNONE);
}

static const struct {
  const char *what;
  int32_t (*pass)(graph *g, const gpass_ctx *ctx, uint32_t *out_changes, bs_error *err);
  void (*make)(int variant);
  int variants; /* that the pass leaves alone */
} rows[] = {{"a sum before a normalisation", gpass_epilogue, sum_and_norm, 4},
            {"a map of a number", gpass_expr, map_of_a_number, 1},
            {"a map of a map", gpass_fuse_map, two_maps, 2},
            {"products of the same rows", gpass_merge, two_products, 4},
            {"products of which a row is read", gpass_merge, product_of_a_row, 0}};

START_TEST(it_changes_one_and_leaves_the_others) {
  for (int variant = 0; variant <= rows[_i].variants; variant++) {
    const gpass_ctx ctx = {0};
    bs_error err = BS_ERROR_INIT;
    uint32_t changes = 0;
    if (variant > 0) begin();
    rows[_i].make(variant);
    ok(graph_validate(g, "as made", &err), &err);
    ok(rows[_i].pass(g, &ctx, &changes, &err), &err);
    ok(graph_validate(g, "after the pass", &err), &err);
    ck_assert_msg(changes == (variant == 0), "%s, variant %d: %u changes", rows[_i].what, variant, changes);
    if (variant < rows[_i].variants) end();
  }
}
END_TEST

/* ---- folding --------------------------------------------------------------------------------- */

static uint32_t calls;

static int32_t answer(void *user, const graph *of, const gnode *node, void **out_data, bs_error *err) {
  static double computed[4];
  (void)of;
  (void)node;
  out_data[0] = computed;
  calls++;
  return *(const int32_t *)user == BS_OK ? BS_OK : bs_error_set(err, *(const int32_t *)user, "BS-TEST", "no");
}

static int32_t fold(int32_t code, uint32_t *out_changes) {
  const gpass_ctx ctx = {.fold = answer, .fold_user = &code};
  bs_error err = BS_ERROR_INIT;
  calls = 0;
  *out_changes = 0;
  return gpass_fold(g, &ctx, out_changes, &err);
}

/* A node that cannot be computed before the run stays for the run; other errors end the plan. */
static const struct {
  int32_t code, rc;
  uint32_t changes;
} answers[] = {{BS_OK, BS_OK, 1},
               {BS_UNSUPPORTED, BS_OK, 0},
               {BS_UNAVAILABLE, BS_OK, 0},
               {BS_NOT_FOUND, BS_OK, 0},
               {BS_NO_MEMORY, BS_NO_MEMORY, 0}};

START_TEST(what_cannot_be_folded_stays) {
  bs_error err = BS_ERROR_INIT;
  uint32_t changes;
  const uint32_t y = square(GV_TEMP);
  map(square(GV_CONST), square(GV_CONST), y, GNONE);
  ck_assert_int_eq(fold(answers[_i].code, &changes), answers[_i].rc);
  ck_assert_uint_eq(calls, 1);
  ck_assert_uint_eq(changes, answers[_i].changes);
  if (answers[_i].rc != BS_OK) return;
  ck_assert_uint_eq(g->values[y].kind, answers[_i].changes == 1 ? GV_CONST : GV_TEMP);
  ck_assert_uint_eq(g->n_live, 1 - answers[_i].changes);
  ck_assert_int_eq(g->values[y].data != NULL, answers[_i].changes == 1);
  ok(graph_validate(g, "after fold", &err), &err);
}
END_TEST

/* Rows by columns, from a column and a row or from a whole value: no more than 64 MiB, and no more than 4
 * MiB where it is larger than four times what it comes from. The data are not looked at. */
static const struct {
  int64_t rows, columns;
  int whole;
  uint32_t folded;
} sizes[] = {{64, 64, 0, 1}, {1024, 1024, 0, 1}, {1024, 1025, 0, 0}, {2048, 1024, 1, 1}, {4096, 4097, 1, 0}};

START_TEST(what_is_too_large_is_not_folded) {
  const int64_t r = sizes[_i].rows, c = sizes[_i].columns;
  uint32_t changes;
  map(root_of(GV_CONST, BS_F32, r, sizes[_i].whole ? c : 1), root_of(GV_CONST, BS_F32, 1, c),
      root_of(GV_TEMP, BS_F32, r, c), GNONE);
  ck_assert_int_eq(fold(BS_OK, &changes), BS_OK);
  ck_assert_uint_eq(changes, sizes[_i].folded);
}
END_TEST

int main(void) {
  const test_case cases[] = {{it_changes_one_and_leaves_the_others, TEST_COUNT(rows)},
                             {what_cannot_be_folded_stays, TEST_COUNT(answers)},
                             {what_is_too_large_is_not_folded, TEST_COUNT(sizes)},
                             {0}};
  return run_tests("passes by hand", cases, (test_setup){.before = begin, .after = end});
}
