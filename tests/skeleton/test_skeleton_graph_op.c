/* SPDX-License-Identifier: MIT
 * test_skeleton_graph_op.c - the skeleton of an op of graphs: rms normalisation of rows of any rank, chosen
 * before the backend's own where it serves, with dims smaller than prepared; the rest is ref's. The same in
 * a model that the graph runtime runs. */
#include <math.h>

#include "blockshock/graph.h"
#include "skeleton_test.h"
#include "tests/run_tests.h"

static bs_context *context;
static void setup(void) {
  context = skeleton_context();
}
static void teardown(void) {
  bs_context_close(context);
}

enum { OUTER = 3, ROWS = 4, COLS = 7, PLACES = OUTER * ROWS * COLS };

typedef struct norm_case {
  int64_t kind;
  float x[PLACES], gamma[COLS], y[PLACES];
  int64_t rows; /* of the run: at most ROWS */
} norm_case;

static bs_tensor view(float *data, uint32_t rank, int64_t rows) {
  bs_tensor t = {.struct_size = sizeof t, .dtype = BS_F32, .rank = rank, .data = data};
  const int64_t dims[3] = {OUTER, rows, COLS}, strides[3] = {ROWS * COLS, COLS, 1};
  memcpy(t.dims, dims + 3 - rank, rank * sizeof *dims);
  memcpy(t.strides, strides + 3 - rank, rank * sizeof *strides);
  t.bytes = (rank == 3 ? PLACES : COLS) * sizeof(float);
  return t;
}

static bs_tensor_desc desc_of(const bs_tensor *t) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = t->dtype, .rank = t->rank};
  memcpy(d.dims, t->dims, sizeof d.dims);
  memcpy(d.strides, t->strides, sizeof d.strides);
  return d;
}

static int32_t rank_main(bs_rank *rank, void *arg, bs_error *err) {
  norm_case *c = arg;
  const bs_rank_api *api = bs_rank_get_api();
  bs_tensor x = view(c->x, 3, ROWS), gamma = view(c->gamma, 1, ROWS), y = view(c->y, 3, ROWS);
  const bs_tensor_desc dx = desc_of(&x), dg = desc_of(&gamma), dy = desc_of(&y);
  const bs_tensor_desc *descs[6] = {&dx, NULL, &dg, NULL, &dy, NULL};
  bs_tensor *args[6] = {&x, NULL, &gamma, NULL, &y, NULL};
  const bs_op_query q = {.struct_size = sizeof q,
                         .op = "normalize",
                         .nargs = 6,
                         .args = descs,
                         .attrs = {c->kind},
                         .numbers = {1e-5}};
  bs_plan *plan = NULL;
  int32_t rc = api->op_prepare(rank, &q, NULL, &plan, err);
  x.dims[1] = y.dims[1] = c->rows;
  if (rc == BS_OK) rc = api->op_run(plan, args, 6, NULL, err);
  if (plan != NULL) api->op_release(plan);
  return rc;
}

static void run_case(norm_case *c, char *out_algorithms, size_t size) {
  const bs_world_options o = {
      .struct_size = sizeof o, .world_size = 1, .backend = "ref", .threads_per_rank = 2};
  bs_world *world = NULL;
  bs_error err = BS_ERROR_INIT;
  for (int i = 0; i < PLACES; i++) {
    c->x[i] = (float)((i * 37) % 21 - 10) * 0.25f;
    c->y[i] = 99.0f;
  }
  for (int i = 0; i < COLS; i++) c->gamma[i] = 1.0f + 0.5f * (float)i;
  ck_assert_msg(bs_world_create(context, &o, &world, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_world_run(world, rank_main, c, &err) == BS_OK, "%s: %s", err.id, err.message);
  snprintf(out_algorithms, size, "%s", bs_world_algorithms(world));
  bs_world_destroy(world);
}

START_TEST(values_of_all_and_of_fewer_rows) {
  char algorithms[256];
  norm_case c = {.kind = BS_NORMALIZE_RMS, .rows = _i == 0 ? ROWS : 2};
  run_case(&c, algorithms, sizeof algorithms);
  ck_assert_str_eq(algorithms, "normalize@ref/skel_normalize (rms)");
  for (int64_t r = 0; r < (int64_t)OUTER * ROWS; r++) {
    const float *x = c.x + r * COLS, *y = c.y + r * COLS;
    double sum = 0.0;
    for (int i = 0; i < COLS; i++) sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < COLS; i++) {
      const double want = (double)x[i] / sqrt(sum / COLS + 1e-5) * (double)c.gamma[i];
      if (r % ROWS >= c.rows)
        ck_assert_float_eq(y[i], 99.0f); /* not a row of this run */
      else
        ck_assert_double_eq_tol((double)y[i], want, 1e-6 * (1.0 + fabs(want)));
    }
  }
}
END_TEST

START_TEST(the_rest_is_served_by_ref) {
  char algorithms[256];
  norm_case c = {.kind = BS_NORMALIZE_LAYER, .rows = ROWS};
  run_case(&c, algorithms, sizeof algorithms);
  ck_assert_has(algorithms, "normalize@ref/portable");
  ck_assert_ptr_null(strstr(algorithms, "skel_normalize"));
}
END_TEST

static bs_tensor_desc dense(uint32_t rank, int64_t rows) {
  bs_tensor_desc d = {.struct_size = sizeof d, .dtype = BS_F32, .rank = rank, .dims = {COLS}, .strides = {1}};
  if (rank == 2) {
    d.dims[0] = rows;
    d.dims[1] = d.strides[0] = COLS;
    d.strides[1] = 1;
  }
  return d;
}

/* y = -rms(x): the plugin's normalize between ref's ops, every node beside f64. */
START_TEST(a_model_finds_it) {
  static const float gamma[COLS] = {1, 2, 3, 4, 5, 6, 7};
  float x[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; i++) x[i] = 0.25f * (float)(i % 9) - 1;
  const bs_tensor_desc dx = dense(2, ROWS), dg = dense(1, 0);
  bs_error err = BS_ERROR_INIT;
  bs_graph *graph = NULL;
  bs_session *session = NULL;
  uint32_t in[2], norm = 0, y = 0, found = 0;
  ck_assert_int_eq(bs_graph_new(context, &graph, &err), BS_OK);
  ck_assert_int_eq(bs_graph_input(graph, "x", &dx, NULL, &in[0], &err), BS_OK);
  ck_assert_int_eq(bs_graph_constant(graph, "gamma", &dg, gamma, &in[1], &err), BS_OK);
  ck_assert_int_eq(bs_graph_op(graph, "RMSNormalization", in, 2, NULL, 0, &norm, 1, &err), BS_OK);
  ck_assert_int_eq(bs_graph_op(graph, "Neg", &norm, 1, NULL, 0, &y, 1, &err), BS_OK);
  ck_assert_int_eq(bs_graph_output(graph, "y", y, &err), BS_OK);
  const bs_session_options o = {.struct_size = sizeof o, .backend = "ref", .threads = 1};
  ck_assert_msg(bs_session_open(context, graph, &o, &session, &err) == BS_OK, "%s", err.message);
  for (uint32_t i = 0; i < bs_session_node_count(session); i++) {
    bs_node_info node = {.struct_size = sizeof node};
    ck_assert_int_eq(bs_session_node(session, i, &node, &err), BS_OK);
    const int is_norm = strcmp(node.op, "normalize") == 0;
    ck_assert_str_eq(node.serves, is_norm ? "ref:skel_normalize" : "ref:portable");
    found += is_norm;
  }
  ck_assert_uint_eq(found, 1);
  ck_assert_uint_eq(bs_session_node_count(session), 2);
  const bs_tensor t = {.struct_size = sizeof t,
                       .dtype = BS_F32,
                       .rank = 2,
                       .dims = {ROWS, COLS},
                       .strides = {COLS, 1},
                       .data = x,
                       .bytes = sizeof x};
  ck_assert_int_eq(bs_session_set(session, 0, &t, &err), BS_OK);
  ck_assert_msg(bs_session_check(session, NULL, NULL, &err) == BS_OK, "%s", err.message);
  bs_session_close(session);
  bs_graph_close(graph);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {values_of_all_and_of_fewer_rows, 2}, {the_rest_is_served_by_ref}, {a_model_finds_it}, {0}};
  return run_tests("skeleton_graph_op", tests, (test_setup){setup, teardown});
}
