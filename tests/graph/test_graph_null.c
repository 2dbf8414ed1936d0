/* SPDX-License-Identifier: MIT
 * test_graph_null.c - every function of graph.h with NULL in each place that needs something, with lists
 * without entries, and with struct_size 0: an error, never a signal. */
#include "blockshock/graph.h"
#include "core/base/error.h"
#include "tests/run_tests.h"

static bs_context *context;
static bs_graph *graph;
static bs_session *session;

static const bs_tensor_desc four = {
    .struct_size = sizeof four, .dtype = BS_F32, .rank = 1, .dims = {4}, .strides = {1}};
static const bs_tensor_desc any = {
    .struct_size = sizeof any, .dtype = BS_F32, .rank = 1, .dims = {-1}, .strides = {1}};
static const bs_tensor_desc no_size = {.dtype = BS_F32, .rank = 1, .dims = {4}, .strides = {1}};
static float numbers[4];

static void must_be(int32_t rc, const bs_error *err, const char *id, int line) {
  ck_assert_msg(rc == BS_INVALID_ARGUMENT && strcmp(err->id, id) == 0, "line %d: %d %s %s", line, rc, err->id,
                err->message);
}

/* A call that fails, with an error and without one. `e` stands for it. */
#define REFUSED(id, call)                        \
  do {                                           \
    bs_error own = BS_ERROR_INIT, *e = &own;     \
    must_be(call, &own, id, __LINE__);           \
    e = NULL;                                    \
    ck_assert_int_eq(call, BS_INVALID_ARGUMENT); \
  } while (0)
#define IS_NULL(call) REFUSED("BS-GRAPH-NULL", call)
#define IS_SIZE(call) REFUSED("BS-GRAPH-STRUCT", call)

static void begin(void) {
  static const char *const names[] = {"n"};
  static const bs_dim dim = {.struct_size = sizeof dim, .name = "n", .size = 4};
  static const bs_dim *const dims[] = {&dim};
  const bs_session_options options = {
      .struct_size = sizeof options, .threads = 1, .backend = "ref", .dims = dims, .n_dims = 1};
  uint32_t x, y;
  ck_assert_int_eq(bs_context_open(NULL, &context, NULL), BS_OK);
  ck_assert_int_eq(bs_graph_new(context, &graph, NULL), BS_OK);
  ck_assert_int_eq(bs_graph_input(graph, "x", &any, names, &x, NULL), BS_OK);
  ck_assert_int_eq(bs_graph_op(graph, "Relu", &x, 1, NULL, 0, &y, 1, NULL), BS_OK);
  ck_assert_int_eq(bs_graph_output(graph, "y", y, NULL), BS_OK);
  ck_assert_int_eq(bs_session_open(context, graph, &options, &session, NULL), BS_OK);
}

static void end(void) {
  bs_session_close(session);
  bs_graph_close(graph);
  bs_context_close(context);
}

START_TEST(graphs) {
  bs_graph *g = NULL;
  bs_port port = {.struct_size = sizeof port}, no_port = {0};
  bs_graph_info info = {.struct_size = sizeof info}, no_info = {0};
  const bs_graph_options no_options = {0};
  IS_NULL(bs_graph_open(NULL, "m.onnx", NULL, &g, e));
  IS_NULL(bs_graph_open(context, NULL, NULL, &g, e));
  IS_NULL(bs_graph_open(context, "m.onnx", NULL, NULL, e));
  IS_SIZE(bs_graph_open(context, "m.onnx", &no_options, &g, e));
  IS_NULL(bs_graph_new(NULL, &g, e));
  IS_NULL(bs_graph_new(context, NULL, e));
  IS_NULL(bs_graph_port(NULL, 1, 0, &port, e));
  IS_NULL(bs_graph_port(graph, 1, 0, NULL, e));
  IS_SIZE(bs_graph_port(graph, 1, 0, &no_port, e));
  IS_NULL(bs_graph_info_get(NULL, &info, e));
  IS_NULL(bs_graph_info_get(graph, NULL, e));
  IS_SIZE(bs_graph_info_get(graph, &no_info, e));
  IS_NULL(bs_graph_ops(NULL, NULL, NULL, e));
  IS_NULL(bs_graph_ops(graph, NULL, NULL, e));
  ck_assert_uint_eq(bs_graph_port_count(NULL, 0), 0);
  ck_assert_uint_eq(bs_graph_port_count(NULL, 1), 0);
  bs_graph_close(NULL);
}
END_TEST

START_TEST(building) {
  bs_graph *g = NULL;
  uint32_t x = 0, y = 0;
  static const int64_t axes[1] = {0};
  const bs_attr axis = {.struct_size = sizeof axis, .type = BS_ATTR_INT, .name = "axis"};
  const bs_attr bad[] = {
      {.struct_size = sizeof axis, .type = BS_ATTR_INT},
      {.struct_size = sizeof axis, .type = BS_ATTR_TEXT, .name = "approximate"},
      {.struct_size = sizeof axis, .type = BS_ATTR_INTS, .name = "perm", .count = 1},
      {.struct_size = sizeof axis, .type = BS_ATTR_FLOATS, .name = "value_floats", .count = 1},
      {.struct_size = sizeof axis, .type = BS_ATTR_TEXTS, .name = "value_strings", .count = 1},
      {.struct_size = sizeof axis, .type = BS_ATTR_TENSOR, .name = "value", .data = numbers},
      {.struct_size = sizeof axis, .type = BS_ATTR_TENSOR, .name = "value", .tensor = &four}};
  const bs_attr sizeless = {.type = BS_ATTR_INTS, .name = "perm", .count = 1, .ints = axes};
  const bs_attr *const good[] = {&axis}, *const nothing[] = {NULL}, *const no_struct[] = {&sizeless};
  const bs_tensor tensor = {.struct_size = sizeof tensor, .dtype = BS_F32, .rank = 1, .dims = {4}};
  const bs_tensor no_tensor = {.dtype = BS_F32, .rank = 1, .dims = {4}};
  ck_assert_int_eq(bs_graph_new(context, &g, NULL), BS_OK);
  ck_assert_int_eq(bs_graph_input(g, "x", &four, NULL, &x, NULL), BS_OK);
  IS_NULL(bs_graph_input(NULL, "a", &four, NULL, &y, e));
  IS_NULL(bs_graph_input(g, NULL, &four, NULL, &y, e));
  IS_NULL(bs_graph_input(g, "a", NULL, NULL, &y, e));
  IS_NULL(bs_graph_input(g, "a", &four, NULL, NULL, e));
  IS_SIZE(bs_graph_input(g, "a", &no_size, NULL, &y, e));
  IS_NULL(bs_graph_constant(NULL, "a", &four, numbers, &y, e));
  IS_NULL(bs_graph_constant(g, "a", NULL, numbers, &y, e));
  IS_NULL(bs_graph_constant(g, "a", &four, NULL, &y, e));
  IS_NULL(bs_graph_constant(g, "a", &four, numbers, NULL, e));
  IS_SIZE(bs_graph_constant(g, "a", &no_size, numbers, &y, e));
  ck_assert_int_eq(bs_graph_constant(g, NULL, &four, numbers, &y, NULL), BS_OK);
  IS_NULL(bs_graph_op(NULL, "Softmax", &x, 1, good, 1, &y, 1, e));
  IS_NULL(bs_graph_op(g, NULL, &x, 1, good, 1, &y, 1, e));
  IS_NULL(bs_graph_op(g, "Softmax", NULL, 1, good, 1, &y, 1, e));
  IS_NULL(bs_graph_op(g, "Softmax", &x, 1, NULL, 1, &y, 1, e));
  IS_NULL(bs_graph_op(g, "Softmax", &x, 1, nothing, 1, &y, 1, e));
  IS_NULL(bs_graph_op(g, "Softmax", &x, 1, good, 1, NULL, 1, e));
  IS_SIZE(bs_graph_op(g, "Transpose", &x, 1, no_struct, 1, &y, 1, e));
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    const bs_attr *const one[] = {&bad[i]};
    IS_NULL(bs_graph_op(g, i < 3 ? "Transpose" : "Constant", &x, 1, one, 1, &y, 1, e));
  }
  IS_NULL(bs_graph_output(NULL, "y", x, e));
  IS_NULL(bs_graph_output(g, NULL, x, e));
  IS_NULL(bs_graph_fix(NULL, "x", &tensor, e));
  IS_NULL(bs_graph_fix(g, NULL, &tensor, e));
  IS_NULL(bs_graph_fix(g, "x", NULL, e));
  IS_SIZE(bs_graph_fix(g, "x", &no_tensor, e));
  REFUSED("BS-GRAPH-PORT", bs_graph_fix(g, "x", &tensor, e)); /* no data */
  bs_graph_close(g);
}
END_TEST

START_TEST(sizes) {
  bs_session *s = NULL;
  const bs_dim nameless = {.struct_size = sizeof nameless, .size = 1}, sizeless = {.name = "n", .size = 1};
  const bs_dim *const nothing[] = {NULL}, *const no_name[] = {&nameless}, *const no_struct[] = {&sizeless};
  const char *const no_text[] = {NULL};
  const bs_session_options empty = {0}, dims = {.struct_size = sizeof dims, .n_dims = 1},
                           pass = {.struct_size = sizeof pass, .n_passes_off = 1},
                           passes = {.struct_size = sizeof pass, .passes_off = no_text, .n_passes_off = 1},
                           choice = {.struct_size = sizeof pass, .choices = no_text, .n_choices = 1};
  IS_NULL(bs_graph_check(NULL, NULL, NULL, 0, NULL, NULL, e));
  IS_NULL(bs_graph_check(graph, NULL, NULL, 1, NULL, NULL, e));
  IS_NULL(bs_graph_check(graph, NULL, nothing, 1, NULL, NULL, e));
  IS_NULL(bs_graph_check(graph, NULL, no_name, 1, NULL, NULL, e));
  IS_SIZE(bs_graph_check(graph, NULL, no_struct, 1, NULL, NULL, e));
  ck_assert_int_eq(bs_graph_check(graph, NULL, NULL, 0, NULL, NULL, NULL), BS_OK);
  IS_NULL(bs_session_open(NULL, graph, NULL, &s, e));
  IS_NULL(bs_session_open(context, NULL, NULL, &s, e));
  IS_NULL(bs_session_open(context, graph, NULL, NULL, e));
  IS_SIZE(bs_session_open(context, graph, &empty, &s, e));
  IS_NULL(bs_session_open(context, graph, &dims, &s, e));
  IS_NULL(bs_session_open(context, graph, &pass, &s, e));
  IS_NULL(bs_session_open(context, graph, &passes, &s, e));
  IS_NULL(bs_session_open(context, graph, &choice, &s, e));
  IS_NULL(bs_session_bind(NULL, NULL, 0, e));
  IS_NULL(bs_session_bind(session, NULL, 1, e));
  IS_NULL(bs_session_bind(session, nothing, 1, e));
  IS_NULL(bs_session_bind(session, no_name, 1, e));
  IS_SIZE(bs_session_bind(session, no_struct, 1, e));
}
END_TEST

static void put_nothing(void *user, const char *text) {
  (void)user;
  (void)text;
}

START_TEST(sessions) {
  uint32_t port;
  bs_tensor tensor = {.struct_size = sizeof tensor,
                      .dtype = BS_F32,
                      .rank = 1,
                      .dims = {4},
                      .strides = {1},
                      .data = numbers,
                      .bytes = sizeof numbers};
  bs_tensor no_tensor = tensor;
  bs_node_info node = {.struct_size = sizeof node}, no_node = {0};
  bs_session_stats stats = {.struct_size = sizeof stats}, no_stats = {0};
  no_tensor.struct_size = 0;
  IS_NULL(bs_session_use_workspace(NULL, NULL, 0, e));
  IS_NULL(bs_session_port(NULL, 0, NULL, NULL, e));
  ck_assert_int_eq(bs_session_port(session, 0, NULL, NULL, NULL), BS_OK);
  IS_NULL(bs_session_find(NULL, "x", &port, e));
  IS_NULL(bs_session_find(session, NULL, &port, e));
  IS_NULL(bs_session_find(session, "x", NULL, e));
  IS_NULL(bs_session_set(NULL, 0, &tensor, e));
  IS_NULL(bs_session_set(session, 0, NULL, e));
  IS_SIZE(bs_session_set(session, 0, &no_tensor, e));
  IS_NULL(bs_session_get(NULL, 0, &tensor, e));
  IS_NULL(bs_session_get(session, 0, NULL, e));
  IS_NULL(bs_session_run(NULL, e));
  IS_NULL(bs_session_cache(NULL, 0, e));
  IS_NULL(bs_session_check(NULL, NULL, NULL, e));
  IS_NULL(bs_session_trace(session, NULL, NULL, e));
  IS_NULL(bs_session_follow(NULL, e));
  bs_verify_report report = {.struct_size = sizeof report}, no_report = {0};
  IS_NULL(bs_session_verify(NULL, &report, e));
  IS_NULL(bs_session_verify(session, NULL, e));
  IS_SIZE(bs_session_verify(session, &no_report, e));
  IS_NULL(bs_session_node(NULL, 0, &node, e));
  IS_NULL(bs_session_node(session, 0, NULL, e));
  IS_SIZE(bs_session_node(session, 0, &no_node, e));
  IS_NULL(bs_session_stats_get(NULL, &stats, e));
  IS_NULL(bs_session_stats_get(session, NULL, e));
  IS_SIZE(bs_session_stats_get(session, &no_stats, e));
  IS_NULL(bs_session_text(NULL, BS_REPORT_PLAN, 0, put_nothing, NULL, e));
  IS_NULL(bs_session_text(session, BS_REPORT_PLAN, 0, NULL, NULL, e));
  ck_assert_uint_eq(bs_session_workspace(NULL), 0);
  ck_assert_uint_eq(bs_session_port_count(NULL), 0);
  ck_assert_uint_eq(bs_session_node_count(NULL), 0);
  ck_assert_int_eq(bs_session_cache_length(NULL), 0);
  ck_assert_int_eq(bs_session_cache_limit(NULL), 0);
  bs_session_close(NULL);
}
END_TEST

/* An input becomes a constant before the first session alone: the session's ports would move. */
START_TEST(fix_behind_a_session) {
  const bs_tensor tensor = {.struct_size = sizeof tensor,
                            .dtype = BS_F32,
                            .rank = 1,
                            .dims = {4},
                            .strides = {1},
                            .data = numbers,
                            .bytes = sizeof numbers};
  const char *name = "";
  REFUSED("BS-GRAPH-BUILD", bs_graph_fix(graph, "x", &tensor, e));
  ck_assert_int_eq(bs_session_bind(session, NULL, 0, NULL), BS_OK);
  ck_assert_int_eq(bs_session_port(session, 0, &name, NULL, NULL), BS_OK);
  ck_assert_str_eq(name, "x");
}
END_TEST

/* What the operator does not have, by calls. */
START_TEST(calls_that_break_the_schema) {
  bs_graph *g = NULL;
  uint32_t x = 0, y = 0;
  bs_error err = BS_ERROR_INIT;
  const bs_attr axis = {.struct_size = sizeof axis, .type = BS_ATTR_INT, .name = "axsi", .i = 0};
  const bs_attr *const attrs[] = {&axis};
  ck_assert_int_eq(bs_graph_new(context, &g, NULL), BS_OK);
  ck_assert_int_eq(bs_graph_input(g, "x", &four, NULL, &x, NULL), BS_OK);
  const uint32_t three[] = {x, x, x};
  ck_assert_int_eq(bs_graph_op(g, "Softmax", &x, 1, attrs, 1, &y, 1, &err), BS_INPUT);
  ck_assert_str_eq(err.id, "BS-GRAPH-BAD");
  ck_assert_ptr_nonnull(strstr(err.message, "'axsi'"));
  ck_assert_int_eq(bs_graph_op(g, "Add", three, 3, NULL, 0, &y, 1, &err), BS_INPUT);
  ck_assert_ptr_nonnull(strstr(err.message, "3 inputs"));
  ck_assert_int_eq(bs_graph_op(g, "Add", three, 1, NULL, 0, &y, 1, &err), BS_INPUT);
  ck_assert_ptr_nonnull(strstr(err.message, "input 1"));
  bs_graph_close(g);
}
END_TEST

int main(void) {
  const test_case rows[] = {
      {graphs}, {building}, {sizes}, {sessions}, {fix_behind_a_session}, {calls_that_break_the_schema}, {0}};
  return run_tests("graph_null", rows, (test_setup){begin, end});
}
