/* SPDX-License-Identifier: MIT
 * test_import_onnx.c - from an ONNX file to the source model: ports and symbols, constants without a copy,
 * nodes with their attributes, branches, functions in the place of their calls, and one error for each rule.
 */
#include "core/base/error.h"
#include "graph/import/import.h"
#include "tests/graph/onnx_case.h"

static unsigned char *bytes;
static size_t size;

static void after(void) {
  free(bytes);
  bytes = NULL;
  files_end();
}

static gmodel *import(const char *text) {
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  bytes = onnx_bytes(text, 0, &size);
  ck_assert_msg(import_onnx_bytes(bytes, size, &m, &err) == BS_OK, "%s: %s", err.id, err.message);
  ck_assert_msg(gmodel_check(m, &err) == BS_OK, "%s: %s", err.id, err.message);
  return m;
}

#define HEAD "<ir_version: 10, opset_import: [\"\" : 23, \"com.microsoft\" : 1, \"my.d\" : 2]> "

START_TEST(ports_and_constants) {
  gmodel *m = import(
      HEAD
      "g (float[N,T,8] x, float16[N,?] y, int64 n, float d = {2}, float s)\n"
      "=> (float[N,T,8] z, float w)\n"
      "<float[2] w = {1, 2}, string[1] t = {\"a\"}, uint16[1] u = {7}, uint4[3] odd = {33, 3}, float[N] h>\n"
      "{ h = Neg (x) z = Mul (h, d) }");
  ck_assert_uint_eq(m->opset, 23);
  ck_assert_uint_eq(m->n_inputs, 4); /* d is a constant */
  ck_assert_str_eq(m->inputs[0].name, "x");
  const gmodel_value *x = &m->values[m->inputs[0].value], *y = &m->values[m->inputs[1].value];
  ck_assert_uint_eq(x->kind, GMODEL_INPUT);
  ck_assert_uint_eq(x->dtype, BS_F32);
  ck_assert_uint_eq(x->rank, 3);
  ck_assert_int_eq(x->dims[0], -1);
  ck_assert_int_eq(x->dims[2], 8);
  ck_assert_str_eq(m->symbols[x->symbols[1] - 1], "T");
  ck_assert_uint_eq(y->dtype, BS_F16);
  ck_assert_uint_eq(y->symbols[0], x->symbols[0]);
  ck_assert_str_eq(m->symbols[y->symbols[1] - 1], "y.1");
  ck_assert_uint_eq(m->values[m->inputs[2].value].rank, 0);
  ck_assert_uint_eq(m->n_outputs, 2);
  const gmodel_value *w = &m->values[m->outputs[1].value];
  ck_assert_uint_eq(w->kind, GMODEL_CONSTANT);
  ck_assert(w->data > (const void *)bytes && w->data < (const void *)(bytes + size));
  ck_assert_uint_eq(w->bytes, 8);
  const gmodel_node *mul = &m->nodes[1];
  ck_assert_uint_eq(m->values[mul->in[1]].kind, GMODEL_CONSTANT);
  const gmodel_value *h = &m->values[mul->in[0]];
  ck_assert_uint_eq(h->dtype, BS_F32); /* what the file says about it */
  ck_assert_uint_eq(h->rank, 1);
  gmodel_free(m);
}
END_TEST

START_TEST(nodes_and_branches) {
  bs_error err = BS_ERROR_INIT;
  bytes = onnx_bytes(
      HEAD
      "g (bool c, float[N] x) => (float[N] y, float[N] e)\n"
      "<float p = {1}> {\n"
      "  [split] a, \"\", b = my.d.Any <axis: int = -1, f = 0.5, t = \"text\", i: ints = [1, 2],\n"
      "    fs: floats = [1, 2.5], ts: strings = [\"u\", \"v\"], v = int64[2] {3, 4}> (x, \"\", x)\n"
      "  y = If (c) <then_branch: graph = th () => (float[N] q) <float one = {1}> {\n"
      "      r = Add (a, one) q = If (c) <then_branch: graph = t2 () => (float[N] s) { s = Neg (r) },\n"
      "        else_branch: graph = e2 () => (float[N] b) {}> },\n"
      "    else_branch: graph = el () => (float[N] q) { q = Sub (b, p) }>\n"
      "  e = com.microsoft.BiasGelu (x, p)\n"
      "}",
      ONNX_TEXT_RAW, &size);
  gmodel *m = NULL;
  ck_assert_msg(import_onnx_bytes(bytes, size, &m, &err) == BS_OK, "%s: %s", err.id, err.message);
  ck_assert_msg(gmodel_check(m, &err) == BS_OK, "%s: %s", err.id, err.message);
  const gmodel_block *top = &m->blocks[0];
  ck_assert_uint_eq(top->n_nodes, 3);
  const gmodel_node *split = &m->nodes[top->nodes[0]], *branch = &m->nodes[top->nodes[1]];
  ck_assert_str_eq(split->name, "split");
  ck_assert_uint_eq(split->opset, 2);
  ck_assert_uint_eq(split->in[1], GMODEL_NONE);
  ck_assert_uint_eq(split->out[1], GMODEL_NONE);
  ck_assert_int_eq(gmodel_attr(split, "axis")->i, -1);
  ck_assert(gmodel_attr(split, "f")->f == 0.5);
  ck_assert_str_eq(gmodel_attr(split, "t")->text, "text");
  ck_assert_int_eq(gmodel_attr(split, "i")->ints[1], 2);
  ck_assert(gmodel_attr(split, "fs")->count == 2 && gmodel_attr(split, "fs")->floats[1] == 2.5);
  ck_assert_str_eq(gmodel_attr(split, "ts")->texts[1], "v");
  const bs_attr *v = gmodel_attr(split, "v");
  int64_t second = 0;
  memcpy(&second, (const char *)v->data + 8, 8);
  ck_assert(v->tensor->rank == 1 && v->tensor->dims[0] == 2 && second == 4);
  const uint32_t then = (uint32_t)gmodel_attr(branch, "then_branch")->i;
  ck_assert_uint_ge(then, 1);
  const gmodel_block *b = &m->blocks[then];
  ck_assert_uint_eq(b->n_nodes, 2);
  ck_assert_uint_eq(m->nodes[b->nodes[0]].in[0], split->out[0]); /* a value of outside */
  ck_assert_uint_eq(b->n_outputs, 1);
  const uint32_t inner = (uint32_t)gmodel_attr(&m->nodes[b->nodes[1]], "else_branch")->i;
  ck_assert_uint_eq(m->blocks[inner].outputs[0], split->out[2]);
  const gmodel_node *gelu = &m->nodes[top->nodes[2]];
  ck_assert_str_eq(gelu->domain, "com.microsoft");
  ck_assert_uint_eq(gelu->opset, 1);
  gmodel_free(m);
}
END_TEST

START_TEST(a_body_has_inputs) {
  gmodel *m = import(HEAD
                     "g (float[2] x, int64 n, bool c) => (float[2] y) { y = Loop (n, c, x) <body: graph =\n"
                     "  b (int64 i, bool go, float[2] v) => (bool go2, float[2] w) { go2 = Identity (go)\n"
                     "  w = Add (v, x) }> }");
  const gmodel_block *b = &m->blocks[gmodel_attr(&m->nodes[m->blocks[0].nodes[0]], "body")->i];
  ck_assert_uint_eq(b->n_inputs, 3);
  ck_assert_uint_eq(b->n_outputs, 2);
  ck_assert_uint_eq(m->values[b->inputs[0]].dtype, BS_I64);
  gmodel_free(m);
}
END_TEST

/* Twice calls Once twice; the attribute goes through both, or is the default of the inner one. */
#define FUNCTIONS                                                                                       \
  " <domain: \"my.d\", opset_import: [\"\" : 20, \"my.d\" : 2]> Once <alpha: float = 0.25, none>"       \
  " (a, b) => (r, u) { r = LeakyRelu <alpha: float = @alpha, other: int = @none> (a) u = Clip (a, b) }" \
  " <domain: \"my.d\", opset_import: [\"\" : 21, \"my.d\" : 2]> Twice <beta> (a) => (r)"                \
  " { [one] h = my.d.Once <alpha: float = @beta> (a) \"\", r = my.d.Once (h, a) }"

START_TEST(functions_replace_their_calls) {
  gmodel *m = import(HEAD "g (float[N] x) => (float[N] y) { [t] y = my.d.Twice <beta = 0.5> (x) }" FUNCTIONS);
  static const char *const ops[] = {"LeakyRelu", "Clip", "LeakyRelu", "Clip"};
  ck_assert_uint_eq(m->n_nodes, 4);
  for (uint32_t i = 0; i < 4; i++) {
    ck_assert_str_eq(m->nodes[i].op, ops[i]);
    ck_assert_str_eq(m->nodes[i].domain, "");
    ck_assert_uint_eq(m->nodes[i].opset, 20);
    ck_assert_ptr_null(gmodel_attr(&m->nodes[i], "other")); /* given by nobody */
  }
  ck_assert(gmodel_attr(&m->nodes[0], "alpha")->f == 0.5);
  ck_assert(gmodel_attr(&m->nodes[2], "alpha")->f == 0.25);
  ck_assert_uint_eq(m->nodes[1].in[1], GMODEL_NONE); /* the call gave no b */
  ck_assert_uint_eq(m->nodes[2].in[0], m->nodes[0].out[0]);
  ck_assert_uint_eq(m->nodes[3].in[1], m->inputs[0].value);
  ck_assert_uint_eq(m->outputs[0].value, m->nodes[3].out[0]);
  ck_assert_str_eq(m->values[m->nodes[0].out[0]].name, "t/one/r");
  gmodel_free(m);
}
END_TEST

static const struct {
  const char *id, *text;
} bad[] = {
    {"BS-ONNX-UNDEFINED", HEAD "g (float x) => (float y) { y = Add (x, z) }"},
    {"BS-ONNX-UNDEFINED", HEAD "g (float x) => (float y) { y = Add (x, z) z = Neg (x) }"},
    {"BS-ONNX-UNDEFINED", HEAD "g (float x) => (float y) { y = Add (x, y) }"},
    {"BS-ONNX-UNDEFINED", HEAD "g (float x) => (float y) { z = Neg (x) }"},
    {"BS-ONNX-UNDEFINED",
     HEAD "g (bool c) => (float y) { y = If <then_branch: graph = t () => (float q) {}> (c) }"},
    {"BS-ONNX-UNDEFINED",
     HEAD "g (float x) => (float y) { y = my.d.F (x) } <domain: \"my.d\"> F (a) => (b) {}"},
    {"BS-ONNX-UNDEFINED", /* a function does not see the names around its call */
     HEAD "g (float x) => (float y) { y = my.d.F (x) }"
          " <domain: \"my.d\", opset_import: [\"\" : 20]> F (a) => (b) { b = Add (a, x) }"},
    {"BS-ONNX-TWICE", HEAD "g (float x) => (float y) { y = my.d.F (x) }"
                           " <domain: \"my.d\", opset_import: [\"\" : 20]> F (a) => (b) { b = If <t: graph ="
                           " h (float i, float i) => () {}> (a) }"},
    {"BS-ONNX-CALL", HEAD "g (float x) => (float y) { y = my.d.Twice (x, x) }" FUNCTIONS},
    {"BS-ONNX-CALL", HEAD "g (float x) => (float y) { y, z = my.d.Twice (x) }" FUNCTIONS},
    {"BS-ONNX-CALL",
     HEAD "g (float x) => (float y) { y = my.d.F (x) }"
          " <domain: \"my.d\", opset_import: [\"my.d\" : 1]> F (a) => (b) { b = my.d.F (a) }"},
    {"BS-ONNX-OPSET", "<opset_import: [\"\" : 29]> g (float x) => (float x) {}"},
    {"BS-ONNX-OPSET", "<opset_import: [\"\" : 0]> g (float x) => (float x) {}"},
    {"BS-ONNX-OPSET", "<opset_import: [\"my.d\" : 1]> g (float x) => (float y) { y = Neg (x) }"},
    {"BS-ONNX-OPSET",
     "<opset_import: [\"\" : 20, \"my.d\" : -1]> g (float x) => (float y) { y = my.d.A (x) }"},
    {"BS-ONNX-TYPE", HEAD "g (seq(float[2]) x) => (float y) { y = Neg (x) }"},
    {"BS-ONNX-TYPE", HEAD "g (x) => (float y) { y = Neg (x) }"},
    {"BS-ONNX-SHAPE", HEAD "g (float[] x) => (float y) { y = Neg (x) }"},
    {"BS-ONNX-SHAPE", HEAD "g (float[1,1,1,1,1,1,1] x) => (float y) { y = Neg (x) }"},
    {"BS-ONNX-SHAPE", HEAD "g () => (float y) <float[1,1,1,1,1,1,1] x = {1}> { y = Neg (x) }"},
    {"BS-ONNX-SHAPE", HEAD "g () => (float y) { y = Constant <value = float[1,1,1,1,1,1,1] {1}> () }"},
    {"BS-ONNX-EXT", HEAD "g () => (float x) <float[1] x = [\"location\" : \"x\"]> {}"},
};

START_TEST(a_rule_is_broken) {
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  bytes = onnx_bytes(bad[_i].text, 0, &size);
  int32_t rc = import_onnx_bytes(bytes, size, &m, &err);
  files_expect(&err, rc, BS_INPUT, bad[_i].id, bad[_i].text);
  ck_assert_str_eq(err.where, "memory");
  ck_assert_ptr_null(m);
}
END_TEST

/* 20 functions that each call the next one twice would be a million nodes. */
START_TEST(calls_have_a_budget) {
  char text[8192];
  size_t at = (size_t)snprintf(text, sizeof text, HEAD "g (float x) => (float y) { y = my.d.F0 (x) }");
  for (int i = 0; i < 20; i++)
    at += (size_t)snprintf(text + at, sizeof text - at,
                           " <domain: \"my.d\", opset_import: [\"\" : 20, \"my.d\" : 1]> F%d (a) => (c)"
                           " { b = my.d.F%d (a) c = my.d.F%d (b) }",
                           i, i + 1, i + 1);
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  bytes = onnx_bytes(text, 0, &size);
  files_expect(&err, import_onnx_bytes(bytes, size, &m, &err), BS_INPUT, "BS-ONNX-BUDGET", "doubling");
}
END_TEST

START_TEST(cut_and_turned_over) {
  bs_error err = BS_ERROR_INIT;
  bytes = onnx_bytes(
      HEAD
      "g (bool c, float[N,2] x) => (float y) <float[2] w = {1, 2}> { h = my.d.Twice (x)"
      " y = If <then_branch: graph = t () => (float q) { q = Transpose <perm: ints = [1, 0]> (h) },"
      " else_branch: graph = e () => (float q) { q = Add (h, w) }> (c) }" FUNCTIONS,
      0, &size);
  for (size_t i = 0; i < 9 * size; i++) {
    gmodel *m = NULL;
    const size_t cut = i < size ? i : size, bit = i < size ? 0 : i - size;
    unsigned char *exact = malloc(cut + 1);
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, bytes, cut);
    if (i >= size) exact[bit / 8] ^= (unsigned char)(1 << bit % 8);
    if (import_onnx_bytes(exact, cut, &m, &err) == BS_OK)
      gmodel_check(m, &err);
    else
      ck_assert_int_eq(err.code, BS_INPUT);
    gmodel_free(m);
    free(exact);
  }
}
END_TEST

START_TEST(a_file_is_watched) {
  gmodel *m = NULL;
  bs_error err = BS_ERROR_INIT;
  static const float w[2] = {3, 4};
  bytes = onnx_bytes(HEAD "g () => (float[2] w) <float[2] w = [\"location\" : \"w.data\"]> {}", 0, &size);
  files_write("w.data", w, sizeof w);
  const char *path = files_write("m.onnx", bytes, size);
  ck_assert_msg(import_onnx(path, &m, &err) == BS_OK, "%s", err.message);
  ck_assert(((const float *)m->values[m->outputs[0].value].data)[1] == 4);
  ck_assert_int_eq(gmodel_unchanged(m, &err), BS_OK);
  ck_assert_int_eq(truncate(files_path("w.data"), 4), 0);
  files_expect(&err, gmodel_unchanged(m, &err), BS_INPUT, "BS-FILE-CHANGED", "cut");
  gmodel_free(m);
  m = NULL;
  files_expect(&err, import_onnx(path, &m, &err), BS_INPUT, "BS-ONNX-SIZE", "cut before");
  ck_assert_str_eq(err.where, path);
}
END_TEST

/* A program that prints err.message alone tells which file; the line of bs_error_format has the path once. */
static void must_name(const bs_error *err, const char *path, const char *says) {
  char line[1200];
  bs_error_format(err, "program", line, sizeof line);
  ck_assert_msg(strstr(err->message, path) == err->message, "%s", err->message);
  ck_assert_msg(strstr(err->message, says) != NULL, "%s", err->message);
  ck_assert_msg(strncmp(err->where, path, strlen(path)) == 0, "%s", err->where);
  const char *first = strstr(line, path);
  ck_assert_msg(first != NULL && strstr(first + 1, path) == NULL, "%s", line);
}

START_TEST(errors_name_the_file) {
  static const char broken[] = HEAD "g (float[2] x) => (float[2] y) { y = Relu <alpha: int = 1> (x) }";
  static const char outside[] = HEAD "g () => (float[2] w) <float[2] w = [\"location\" : \"w.data\"]> {}";
  static const float w[2] = {3, 4};
  bs_context *context;
  bs_graph *g = NULL;
  bs_session *s = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_context_open(NULL, &context, NULL), BS_OK);
  const char *path = files_path("none.onnx");
  ck_assert_int_eq(bs_graph_open(context, path, NULL, &g, &err), BS_INPUT);
  must_name(&err, path, "cannot be opened");
  path = files_write("m.onnx", "", 0);
  ck_assert_int_eq(bs_graph_open(context, path, NULL, &g, &err), BS_INPUT);
  must_name(&err, path, "this is no ONNX file");
  bytes = onnx_bytes(broken, ONNX_TEXT_RAW, &size);
  files_write("m.onnx", bytes, size);
  ck_assert_int_eq(bs_graph_open(context, path, NULL, &g, &err), BS_INPUT);
  must_name(&err, path, "m.onnx: the node (Relu) that gives 'y': ");
  ck_assert_int_eq(bs_graph_open(context, files_folder, NULL, &g, &err), BS_INPUT);
  must_name(&err, files_folder, "/config.json: cannot be opened");
  free(bytes);
  bytes = onnx_bytes(outside, 0, &size);
  files_write("m.onnx", bytes, size);
  files_write("w.data", w, sizeof w);
  ck_assert_int_eq(bs_graph_open(context, path, NULL, &g, &err), BS_OK);
  ck_assert_int_eq(truncate(files_path("w.data"), 4), 0);
  const bs_session_options options = {.struct_size = sizeof options, .threads = 1};
  ck_assert_int_eq(bs_session_open(context, g, &options, &s, &err), BS_INPUT);
  must_name(&err, path, "m.onnx: w.data: changed while in use");
  bs_graph_close(g);
  bs_context_close(context);
}
END_TEST

int main(void) {
  const test_case rows[] = {{ports_and_constants},
                            {nodes_and_branches},
                            {a_body_has_inputs},
                            {functions_replace_their_calls},
                            {a_rule_is_broken, TEST_COUNT(bad)},
                            {calls_have_a_budget},
                            {cut_and_turned_over},
                            {a_file_is_watched},
                            {errors_name_the_file},
                            {0}};
  return run_tests("import_onnx", rows, (test_setup){.before = files_begin, .after = after});
}
