/* SPDX-License-Identifier: MIT
 * test_pass_odd.c - fuse_attention, rope and view on graphs whose programs, strides and states no model
 * lowers to. */
#include "core/base/error.h"
#include "graph/pass/match.h"
#include "graph/pass/pass.h"
#include "tests/run_tests.h"

/* A map of a program with one output, at the end. */
static void add_map(graph *g, const gexpr *e, const uint32_t *in, uint32_t out) {
  bs_error err = BS_ERROR_INIT;
  gnode n = match_node(GOP_MAP, e->n_in, 1);
  for (uint32_t i = 0; i < e->n_in; i++) n.in[i] = in[i];
  n.out[0] = out;
  n.expr = graph_expr(g, e);
  ck_assert_uint_ne(n.expr, GNONE);
  ck_assert_int_eq(graph_add_node(g, &n, GNONE, NULL, &err), BS_OK);
}

/* softmax(map(scores)) V or guard(softmax(scores)) V in the IR; the map reads a mask too where it has two
 * inputs: programs that no operator of ONNX makes. */
static const struct odd {
  gexpr map, guard;         /* n_out 0: there is none */
  uint32_t mask, scores, q; /* dtype of the mask, slot of the scores, dtype of Q where it is not f32 */
  int changes;
} odds[] = {
    /* the scores alone; 0 where the weight is NaN */
    {.changes = 1},
    /* attention takes Q, K and V of one dtype */
    {.q = BS_F64},
    {.guard = {.compute = BS_F32,
               .n_in = 1,
               .n_const = 1,
               .n_steps = 2,
               .n_out = 1,
               .outs = {GX_STEP + 1},
               .steps = {{BS_EXPR_ISNAN, GX_IN, 0, 0}, {BS_EXPR_SELECT, GX_STEP, GX_CONST, GX_IN}}},
     .changes = 1},
    /* 1 where the weight is NaN, else 0 */
    {.guard = {.compute = BS_F32,
               .n_in = 1,
               .n_const = 1,
               .n_steps = 2,
               .n_out = 1,
               .outs = {GX_STEP + 1},
               .steps = {{BS_EXPR_ISNAN, GX_IN, 0, 0}, {BS_EXPR_ADD, GX_STEP, GX_CONST, 0}}}},
    /* -inf where the mask is false, NaN elsewhere, whatever the scores are */
    {.map = {.compute = BS_F32,
             .n_in = 2,
             .n_const = 1,
             .n_steps = 2,
             .n_out = 1,
             .outs = {GX_STEP + 1},
             .consts = {0xfff0000000000000},
             .steps = {{BS_EXPR_NOT, GX_IN + 1, 0, 0}, {BS_EXPR_MUL, GX_STEP, GX_CONST, 0}}},
     .mask = BS_BOOL},
    /* twice the mask, whatever the scores are */
    {.map = {.compute = BS_F32,
             .n_in = 2,
             .n_const = 1,
             .n_steps = 1,
             .n_out = 1,
             .outs = {GX_STEP},
             .consts = {0x4000000000000000},
             .steps = {{BS_EXPR_MUL, GX_IN, GX_CONST, 0}}},
     .mask = BS_F32,
     .scores = 1},
};

static uint32_t add_root(graph *g, uint32_t kind, uint32_t dtype, const int64_t dims[4]) {
  bs_error err = BS_ERROR_INIT;
  uint32_t v = GNONE;
  ck_assert_int_eq(graph_add_root(g, kind, dtype, 4, dims, NULL, NULL, &v, &err), BS_OK);
  return v;
}

static uint32_t add_node(graph *g, gnode n, uint32_t a, uint32_t b, const int64_t dims[4]) {
  bs_error err = BS_ERROR_INIT;
  n.in[0] = a;
  n.in[1] = b;
  n.numbers[0] = n.op == GOP_CONTRACT;
  n.attrs[0] = n.op == GOP_NORMALIZE ? BS_NORMALIZE_SOFTMAX : 0;
  n.out[0] = add_root(g, GV_TEMP, BS_F32, dims);
  ck_assert_int_eq(graph_add_node(g, &n, GNONE, NULL, &err), BS_OK);
  return n.out[0];
}

START_TEST(odd_programs_are_no_attention) {
  const struct odd *o = &odds[_i];
  const int64_t whole[] = {2, 3, 4, 5}, turned[] = {2, 3, 5, 4}, keys[] = {2, 3, 4, 4};
  bs_error err = BS_ERROR_INIT;
  graph *g = NULL;
  uint32_t changes = 0, kt;
  const int64_t strides[] = {60, 20, 1, 5};
  ck_assert_int_eq(graph_new(&g, &err), BS_OK);
  const uint32_t q = add_root(g, GV_INPUT, o->q != 0 ? o->q : BS_F32, whole),
                 k = add_root(g, GV_INPUT, BS_F32, whole), v = add_root(g, GV_INPUT, BS_F32, whole);
  ck_assert_int_eq(graph_add_view(g, k, BS_F32, 4, turned, strides, 0, &kt, &err), BS_OK);
  uint32_t s = add_node(g, match_node(GOP_CONTRACT, 3, 1), q, kt, keys);
  if (o->map.n_out > 0) {
    uint32_t in[2];
    in[o->scores] = s;
    in[1 - o->scores] = add_root(g, GV_INPUT, o->mask, keys);
    s = add_root(g, GV_TEMP, BS_F32, keys);
    add_map(g, &o->map, in, s);
  }
  uint32_t p = add_node(g, match_node(GOP_NORMALIZE, 4, 2), s, GNONE, keys);
  if (o->guard.n_out > 0) {
    const uint32_t in = p;
    p = add_root(g, GV_TEMP, BS_F32, keys);
    add_map(g, &o->guard, &in, p);
  }
  add_node(g, match_node(GOP_CONTRACT, 3, 1), p, v, whole);
  ck_assert_int_eq(gpass_fuse_attention(g, NULL, &changes, &err), BS_OK);
  ck_assert_int_eq((int)changes, o->changes);
  graph_free(g);
}
END_TEST

static const gexpr negative = {.compute = BS_F32,
                               .n_in = 1,
                               .n_steps = 1,
                               .n_out = 1,
                               .outs = {GX_STEP},
                               .steps = {{BS_EXPR_NEG, GX_IN, 0, 0}}};
static const gexpr copy = {.compute = BS_F32, .n_in = 1, .n_out = 1, .outs = {GX_IN}};

/* Where a dim is 1 its stride says nothing: halves of one row are halves, whatever stride the row has. */
START_TEST(rope_of_one_row) {
  const gexpr sum = {.compute = BS_F32,
                     .n_in = 4,
                     .n_steps = 3,
                     .n_out = 1,
                     .outs = {GX_STEP + 2},
                     .steps = {{BS_EXPR_MUL, GX_IN, GX_IN + 2, 0},
                               {BS_EXPR_MUL, GX_IN + 1, GX_IN + 3, 0},
                               {BS_EXPR_ADD, GX_STEP, GX_STEP + 1, 0}}};
  const int64_t one[] = {1, 1, 1, 4}, half[] = {1, 1, 1, 2}, other[] = {9, 7, 5, 1};
  bs_error err = BS_ERROR_INIT;
  graph *g = NULL;
  uint32_t changes = 0, in[4], parts[4];
  ck_assert_int_eq(graph_new(&g, &err), BS_OK);
  for (uint32_t i = 0; i < 4; i++) in[i] = add_root(g, i == 1 ? GV_TEMP : GV_INPUT, BS_F32, one);
  for (uint32_t i = 0; i < 4; i++) /* the halves of x, then of what is turned */
    ck_assert_int_eq(graph_add_view(g, in[i / 2], BS_F32, 4, half, other, i % 2 * 2, &parts[i], &err), BS_OK);
  add_map(g, &negative, &parts[1], parts[2]);
  add_map(g, &copy, &parts[0], parts[3]);
  add_map(g, &sum, in, add_root(g, GV_TEMP, BS_F32, one));
  ck_assert_int_eq(gpass_rope(g, NULL, &changes, &err), BS_OK);
  ck_assert_uint_eq(changes, 1);
  graph_free(g);
}
END_TEST

/* A state keeps what it was until all that reads it has run: nothing is written into it earlier. */
START_TEST(a_copy_into_a_state_stays) {
  const gexpr sum = {.compute = BS_F32,
                     .n_in = 2,
                     .n_steps = 1,
                     .n_out = 1,
                     .outs = {GX_STEP},
                     .steps = {{BS_EXPR_ADD, GX_IN, GX_IN + 1, 0}}};
  const int64_t dims[] = {4}, strides[] = {1};
  bs_error err = BS_ERROR_INIT;
  graph *g = NULL;
  uint32_t x, state, next, y, whole, changes = 0;
  ck_assert_int_eq(graph_new(&g, &err), BS_OK);
  graph_add_root(g, GV_INPUT, BS_F32, 1, dims, NULL, "x", &x, &err);
  graph_add_root(g, GV_STATE, BS_F32, 1, dims, NULL, "s", &state, &err);
  graph_add_root(g, GV_TEMP, BS_F32, 1, dims, NULL, NULL, &next, &err);
  graph_add_root(g, GV_TEMP, BS_F32, 1, dims, NULL, "y", &y, &err);
  ck_assert_int_eq(graph_add_view(g, state, BS_F32, 1, dims, strides, 0, &whole, &err), BS_OK);
  add_map(g, &negative, &x, next);
  add_map(g, &sum, (const uint32_t[]){x, state}, y);
  add_map(g, &copy, &next, whole);
  ck_assert_int_eq(gpass_view(g, NULL, &changes, &err), BS_OK);
  ck_assert_uint_eq(changes, 0);
  graph_free(g);
}
END_TEST

int main(void) {
  const test_case cases[] = {
      {odd_programs_are_no_attention, TEST_COUNT(odds)}, {rope_of_one_row}, {a_copy_into_a_state_stays}, {0}};
  return run_tests("odd graphs of passes", cases, (test_setup){0});
}
