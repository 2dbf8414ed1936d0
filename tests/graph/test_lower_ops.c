/* SPDX-License-Identifier: MIT
 * test_lower_ops.c - into which kernel ops operators are lowered, before any pass: movement is views and no
 * op, a product with a constant matrix is `matmul`, attention is one op unless its scores are asked for. */
#include "blockshock/graph.h"
#include "core/base/error.h"
#include "tests/graph/onnx_case.h"

/* The nodes of a model with inputs x [2,3,4] and m [3,4] and the constants w [4,5], b [5], s i64 [2] = {6,4},
 * k [3,4,2], one i64 [1] = {1}; and the ops expected, with those of the outputs' copies. */
static const struct {
  const char *nodes, *ops;
} rows[] = {
    /* Movement: the copy at the end is the output's own memory. */
    {"y = Reshape (x, s)", "map"},
    {"a = Transpose <perm: ints = [0,2,1]> (x) t = Transpose <perm: ints = [0,2,1]> (a) y = Neg (t)", "map"},
    {"a, t = Split <axis: int = 0> (x) y = Add (a, t)", "map"},
    {"a = Unsqueeze (m, one) t = Squeeze (a, one) y = Neg (t)", "map"},
    {"a = Identity (x) t = Dropout (a) y = Neg (t)", "map"},
    {"a = Shape (x) t = ConstantOfShape (a) y = Add (x, t)", "map"},
    {"a = Shape (m) t = Gather (a, one) r = Concat <axis: int = 0> (t, one) e = Expand (one, r) y = Neg (e)",
     "map"}, /* all is computed: the output is a copy */
    /* Concat is a copy for each part. */
    {"y = Concat <axis: int = 0> (x, x)", "map map"},
    /* Products. */
    {"y = MatMul (x, w)", "matmul"},
    {"y = Gemm (m, w, b)", "matmul"},
    {"a = Transpose (w) y = Gemm <transB: int = 1> (m, a, b)", "matmul"},
    {"a = Transpose (m) y = MatMul (m, a)", "contract"},
    {"y = MatMul (m, k)", "contract"},
    {"y = Einsum <equation: string = \"bij,kj->bik\"> (x, m)", "contract"},
    /* One program each. */
    {"y = Gelu (x)", "map"},
    {"t = Greater (x, m) y = Where (t, x, m)", "map map"},
    {"y = Clip (x, , z)", "map"},
    {"y = Softmax (x)", "normalize"},
    {"y = Softmax <axis: int = 1> (x)", "map normalize map"},
    {"y = LayerNormalization (x, c, c)", "normalize"},
    {"y = LayerNormalization (x, z)", "normalize map"},
    {"y = RMSNormalization (x, c)", "normalize"},
    {"y = ReduceMean <keepdims: int = 0> (x, one)", "reduce"},
    {"y = ArgMax (x)", "reduce"},
    {"y = CumSum (x, one0)", "reduce"},
    {"y = Gather (x, one)", "map"},
    {"y = Gather (x, s)", "take"},
    {"y = Gather (x, far)", "take"},
    {"y, t = TopK (x, one)", "topk"},
    {"a = Unsqueeze (x, one) y = Attention <is_causal: int = 1> (a, a, a)", "attention"},
    {"a = Unsqueeze (x, one) y, \"\", \"\", t = Attention (a, a, a)", "contract normalize contract"},
    {"y = Slice (x, down, far, one, down)", "take"},
};

static bs_context *context;

static void open_all(void) {
  bs_error err = BS_ERROR_INIT;
  files_begin();
  ck_assert_msg(bs_context_open(NULL, &context, &err) == BS_OK, "%s", err.message);
}

static void close_all(void) {
  bs_context_close(context);
  files_end();
}

/* The ops of the session's nodes, with spaces between. */
static void list_ops(const char *path, char *out, size_t size) {
  bs_error err = BS_ERROR_INIT;
  bs_graph *graph = NULL;
  bs_session *session = NULL;
  const char *none = "all";
  const bs_session_options options = {
      .struct_size = sizeof options, .threads = 1, .backend = "ref", .passes_off = &none, .n_passes_off = 1};
  int32_t rc = bs_graph_open(context, path, NULL, &graph, &err);
  if (rc == BS_OK) rc = bs_session_open(context, graph, &options, &session, &err);
  snprintf(out, size, "%s", rc == BS_OK ? "" : err.message);
  for (uint32_t i = 0; rc == BS_OK && i < bs_session_node_count(session); ++i) {
    bs_node_info info = {.struct_size = sizeof info};
    ck_assert_int_eq(bs_session_node(session, i, &info, &err), BS_OK);
    snprintf(out + strlen(out), size - strlen(out), "%s%s", i > 0 ? " " : "", info.op);
  }
  bs_session_close(session);
  bs_graph_close(graph);
}

START_TEST(ops_of_an_operator) {
  char text[2000], ops[1000];
  size_t size;
  snprintf(text, sizeof text,
           "<ir_version: 10, opset_import: [\"\" : 23]> g (float[2,3,4] x, float[3,4] m) => (float[?] y)\n"
           "<float[4,5] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2}, float[5] b = {1,2,3,4,5}, int64[2] s "
           "= {6,4},\n"
           " float[3,4,2] k = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6}, int64[1] one = {1}, int64 "
           "one0 = {1},\n"
           " float z = {1.5}, float[4] c = {1,2,3,4}, int64[1] down = {-1}, int64[1] far = {-9}>\n{ %s }\n",
           rows[_i].nodes);
  unsigned char *bytes = onnx_bytes(text, 0, &size);
  list_ops(files_write("ops.onnx", bytes, size), ops, sizeof ops);
  free(bytes);
  ck_assert_msg(strcmp(ops, rows[_i].ops) == 0, "%s: '%s', expected '%s'", rows[_i].nodes, ops, rows[_i].ops);
}
END_TEST

int main(void) {
  const test_case cases[] = {{ops_of_an_operator, TEST_COUNT(rows)}, {0}};
  return run_tests("lower_ops", cases, (test_setup){open_all, close_all, 60});
}
