/* SPDX-License-Identifier: MIT
 * bs_session_check over a backend that computes something wrong on purpose: it says so, and which node. */
#include <string.h>

#include "tests/graph/build.h"

#define NONE BS_GRAPH_NONE

static const struct row {
  const char *plan, *said;
  int32_t code;
} rows[] = {
    {"", "", BS_OK},
    {"rank=*,op=matmul,seq=*,do=flip", "matmul", BS_NUMERIC},         /* a bit of an output */
    {"rank=*,op=matmul,seq=1,do=nan", "matmul", BS_NUMERIC},          /* node by node alone */
    {"rank=*,op=matmul,seq=0,do=flip", "different bits", BS_NUMERIC}, /* in the planned run alone */
    {"rank=*,op=matmul,seq=*,do=truncate", "matmul", BS_NUMERIC},     /* a row stays as it was: poisoned */
    {"rank=*,op=matmul,seq=*,do=err", "matmul", BS_RANK_FAILED},
};

/* A model of two products on fault:ref with the plan. */
static void wrap(const char *plan) {
  char text[160];
  const char *params[1] = {text};
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  snprintf(text, sizeof text, "fault.plan=%s", plan);
  const bs_context_options o = {
      .struct_size = (uint32_t)sizeof o, .params = params, .n_params = 1, .trust = BS_TRUST_ANY};
  tb_end();
  ck_assert_msg(bs_context_open(&o, &tb_context, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_graph_new(tb_context, &tb_graph, &err) == BS_OK, "%s", err.message);
  const int64_t dims[] = {4, 8}, square[] = {8, 8};
  uint32_t x = tb_input("x", BS_F32, 2, dims);
  x = tb_op("Tanh", tb_op("MatMul", x, tb_random(2, square, 0.5), NONE), NONE, NONE);
  tb_output("y", tb_op("Neg", x, NONE, NONE));
}

static void count_wrong(void *user, const bs_node_check *row) {
  if (row->ok) return;
  ck_assert(row->reason[0] != '\0' && row->origin[0] != '\0');
  ++*(int *)user;
}

START_TEST(finds_wrong_nodes) {
  const struct row *r = &rows[_i];
  wrap(r->plan);
  bs_session *s = tb_open("fault:ref", "", NULL);
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  float x[32];
  int wrong = 0;
  tb_fill(x, 32, 1);
  tb_set(s, "x", x);
  const int32_t rc = bs_session_check(s, count_wrong, &wrong, &err);
  ck_assert_msg(r->code == BS_RANK_FAILED ? rc != BS_OK : rc == r->code, "%d: %s", rc, err.message);
  ck_assert_msg(strstr(err.message, r->said) != NULL || strstr(err.where, r->said) != NULL, "%s (%s)",
                err.message, err.where);
  if (rc == BS_NUMERIC && strcmp(r->said, "matmul") == 0) ck_assert_int_eq(wrong, 1);
  bs_session_close(s);
}
END_TEST

/* A wrong number beside a fill of a mask: the largest number of the node is not what it is relative to. */
START_TEST(finds_wrong_numbers_beside_fills) {
  static const float fills[] = {-1e9F, -3.4028235e38F};
  wrap(_i % 2 == 0 ? "" : "rank=*,seq=*,do=flip"); /* 0 becomes 2 */
  const int64_t dims[] = {4, 8};
  bs_graph_close(tb_graph);
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  ck_assert_int_eq(bs_graph_new(tb_context, &tb_graph, &err), BS_OK);
  tb_output("y", tb_op("Add", tb_input("x", BS_F32, 2, dims), tb_input("mask", BS_F32, 2, dims), NONE));
  bs_session *s = tb_open("fault:ref", "", NULL);
  float x[32], mask[32] = {0};
  int wrong = 0;
  tb_fill(x, 32, 1);
  x[0] = 0;
  for (int i = 1; i < 32; i += 2) mask[i] = fills[_i / 2];
  tb_set(s, "x", x);
  tb_set(s, "mask", mask);
  const int32_t rc = bs_session_check(s, count_wrong, &wrong, &err);
  ck_assert_msg(rc == (_i % 2 == 0 ? BS_OK : BS_NUMERIC) && wrong == _i % 2, "%d: %s", rc, err.message);
  bs_session_close(s);
}
END_TEST

typedef struct seen {
  uint32_t nodes, products;
  const float *x;
  double sum; /* of what the last node gave */
} seen;

static void see(void *user, const bs_node_trace *row) {
  seen *s = user;
  ck_assert_uint_eq(row->index, s->nodes++);
  ck_assert(row->n_outputs >= 1 && row->outputs[0] != NULL && row->origin[0] != '\0');
  const float *y = row->outputs[0]->data;
  s->sum = 0;
  for (uint32_t i = 0; i < 32; i++) s->sum += (double)y[i];
  if (strcmp(row->op, "matmul") != 0) return;
  ck_assert(row->inputs[0] != NULL && memcmp(row->inputs[0]->data, s->x, 32 * sizeof *s->x) == 0);
  s->products++;
}

/* bs_session_trace shows each node once, with what it read and gave, and leaves what a run leaves. */
START_TEST(traces_each_node) {
  wrap("");
  bs_session *s = tb_open("fault:ref", "", NULL);
  bs_error err = {.struct_size = (uint32_t)sizeof err};
  bs_tensor y = {.struct_size = (uint32_t)sizeof y};
  float x[32], run[32];
  seen of = {.x = x};
  double sum = 0;
  tb_fill(x, 32, 1);
  tb_set(s, "x", x);
  ck_assert_int_eq(bs_session_run(s, &err), BS_OK);
  ck_assert_int_eq(bs_session_get(s, 1, &y, &err), BS_OK);
  memcpy(run, y.data, sizeof run);
  ck_assert_msg(bs_session_trace(s, see, &of, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(bs_session_get(s, 1, &y, &err), BS_OK);
  ck_assert(memcmp(run, y.data, sizeof run) == 0);
  for (int i = 0; i < 32; i++) sum += (double)run[i];
  ck_assert(of.products == 1 && of.nodes == bs_session_node_count(s) && !(sum < of.sum) && !(sum > of.sum));
  bs_session_close(s);
}
END_TEST

int main(void) {
  const test_case cases[] = {{finds_wrong_nodes, TEST_COUNT(rows)},
                             {finds_wrong_numbers_beside_fills, 4},
                             {traces_each_node, 1},
                             {0}};
  return run_tests("graph check", cases, (test_setup){.before = tb_begin, .after = tb_end});
}
