/* SPDX-License-Identifier: MIT
 * test_onnx_read.c - what the ONNX reader finds in a model that holds what a model can hold: names, shapes,
 * attributes, tensors of every type in each of their fields, graphs inside graphs, functions. */
#include <math.h>

#include "core/base/error.h"
#include "formats/names.h"
#include "tests/graph/onnx_case.h"
#include "tests/graph/onnx_walk.h"

static bs_onnx parse(const char *text, uint32_t flags, unsigned char **out_bytes) {
  bs_onnx m;
  bs_error err = BS_ERROR_INIT;
  size_t size = 0;
  *out_bytes = onnx_bytes(text, flags, &size);
  ck_assert_msg(bs_onnx_parse(*out_bytes, size, "case", NULL, &m, &err) == BS_OK, "%s: %s", err.id,
                err.message);
  onnx_walk(&m);
  return m;
}

#define IS(span, text) ck_assert_msg(bs_span_is(span, text), "'%.*s' is not '%s'", BS_SPAN_PRINT(span), text)

START_TEST(heads_and_values) {
  unsigned char *bytes;
  bs_onnx m = parse(ONNX_CASE, 0, &bytes);
  const bs_onnx_graph *g = m.graph;
  ck_assert_int_eq(m.ir_version, 10);
  IS(m.producer, "me");
  ck_assert_uint_eq(m.n_opsets, 2);
  IS(m.opsets[0].domain, "");
  ck_assert_int_eq(m.opsets[0].version, 23);
  IS(m.opsets[1].domain, "my.d");
  IS(g->name, "g-1");
  ck_assert_uint_eq(g->n_inputs, 4);
  IS(g->inputs[1].name, "x");
  ck_assert_uint_eq(g->inputs[1].type, BS_ONNX_FLOAT);
  ck_assert_uint_eq(g->inputs[1].rank, 2);
  IS(g->inputs[1].dims[0].symbol, "N");
  ck_assert_int_eq(g->inputs[1].dims[0].value, -1);
  ck_assert_int_eq(g->inputs[1].dims[1].value, 3);
  ck_assert_uint_eq(g->inputs[0].has_shape, 1);
  ck_assert_uint_eq(g->inputs[0].rank, 0);
  ck_assert_uint_eq(g->inputs[2].has_shape, 0);
  ck_assert_uint_eq(g->inputs[3].kind, BS_ONNX_KIND_SEQUENCE);
  ck_assert_uint_eq(g->n_outputs, 2);
  ck_assert_int_eq(g->outputs[0].dims[1].value, -1);
  IS(g->outputs[0].dims[1].symbol, "");
  ck_assert_uint_eq(g->n_values, 1);
  IS(g->values[0].name, "y");
  bs_onnx_close(&m);
  bs_onnx_close(&m); /* a closed record may be closed again */
  free(bytes);
}
END_TEST

START_TEST(nodes_and_attributes) {
  unsigned char *bytes;
  bs_onnx m = parse(ONNX_CASE, 0, &bytes);
  const bs_onnx_node *n = m.graph->nodes;
  ck_assert_uint_eq(m.graph->n_nodes, 5);
  IS(n[0].op, "If");
  ck_assert_uint_eq(n[0].n_attrs, 2);
  IS(n[0].attrs[0].name, "else_branch");
  const bs_onnx_graph *other = n[0].attrs[0].value.graph, *then = n[0].attrs[1].value.graph;
  IS(other->nodes[0].name, "n/1");
  IS(then->outputs[0].name, "y2");
  ck_assert_uint_eq(then->depth, 1);
  ck_assert_uint_eq(then->n_initializers, 1);
  IS(n[1].name, "ln");
  ck_assert_uint_eq(n[1].n_inputs, 3);
  ck_assert_uint_eq(n[1].inputs[2].size, 0);
  ck_assert_uint_eq(n[1].n_outputs, 3);
  ck_assert_uint_eq(n[1].outputs[1].size, 0);
  IS(n[1].outputs[2], "/model/out.1");
  ck_assert_int_eq(n[1].attrs[0].value.i, -1);
  ck_assert(n[1].attrs[1].value.f == 1e-5f);
  IS(n[2].domain, "com.microsoft");
  ck_assert_uint_eq(n[2].attrs[0].count, 2);
  ck_assert(n[2].attrs[0].value.floats[1] == 2.5f);
  ck_assert_int_eq(n[2].attrs[1].value.ints[1], -3);
  IS(n[2].attrs[2].value.s, "con\"st");
  ck_assert_uint_eq(n[2].attrs[3].count, 2);
  IS(n[2].attrs[3].value.strings[1], "bc");
  ck_assert_uint_eq(n[3].attrs[0].type, BS_ONNX_ATTR_TENSOR);
  ck_assert_uint_eq(n[3].attrs[0].value.tensor->count, 3);
  ck_assert_uint_eq(m.n_functions, 1);
  const bs_onnx_function *f = m.functions;
  IS(f->name, "Foo");
  IS(f->domain, "my.d");
  IS(f->inputs[0], "a");
  IS(f->outputs[0], "b");
  IS(f->attr_names[0], "alpha");
  IS(f->attrs[0].name, "beta");
  ck_assert(f->attrs[0].value.f == 0.5f);
  IS(f->nodes[0].attrs[0].reference, "alpha");
  ck_assert_uint_eq(f->nodes[0].attrs[0].type, BS_ONNX_ATTR_FLOAT);
  ck_assert_int_eq(f->opsets[0].version, 23);
  bs_onnx_close(&m);
  free(bytes);
}
END_TEST

START_TEST(initializers) {
  unsigned char *bytes;
  bs_onnx m = parse(ONNX_CASE, _i == 0 ? 0 : ONNX_TEXT_RAW, &bytes);
  const bs_onnx_tensor *t = m.graph->initializers;
  float w[4];
  int64_t s = 0;
  ck_assert_uint_eq(m.graph->n_initializers, 6);
  IS(t[0].name, "w");
  ck_assert_uint_eq(t[0].rank, 2);
  memcpy(w, t[0].data, sizeof w);
  ck_assert(w[1] == 2.5f && isnan(w[2]) && isinf(w[3]) && w[3] < 0);
  ck_assert(_i == 1 || (const unsigned char *)t[0].data > bytes); /* in the file, not a copy */
  ck_assert_uint_eq(t[1].rank, 0);
  ck_assert_uint_eq(t[1].count, 1);
  memcpy(&s, t[1].data, sizeof s);
  ck_assert_int_eq(s, -3);
  ck_assert_int_eq(memcmp(t[2].data, "\x00\x3c\x00\x40", 4), 0);
  ck_assert_int_eq(memcmp(t[3].data, "\x01\x00", 2), 0);
  ck_assert_uint_eq(t[4].type, BS_ONNX_STRING);
  ck_assert_ptr_null(t[4].data);
  ck_assert_uint_eq(t[5].count, 0);
  ck_assert_uint_eq(t[5].dims[1], 4);
  bs_onnx_close(&m);
  free(bytes);
}
END_TEST

/* Each type's elements as text, and their bytes. The reader must find the same bytes in either field. */
static const struct {
  const char *type, *elements, *bytes;
  uint32_t number, dtype;
  size_t size;
} types[] = {
    {"float[1]", "-0", "\x00\x00\x00\x80", 1, BS_F32, 4},
    {"uint8[2]", "1, 255", "\x01\xff", 2, BS_U8, 2},
    {"int8[2]", "1, -128", "\x01\x80", 3, BS_I8, 2},
    {"uint16[1]", "65535", "\xff\xff", 4, 0x0110, 2},
    {"int16[1]", "-2", "\xfe\xff", 5, 0x0010, 2},
    {"int32[1]", "-2147483648", "\x00\x00\x00\x80", 6, BS_I32, 4},
    {"int64[1]", "-2", "\xfe\xff\xff\xff\xff\xff\xff\xff", 7, BS_I64, 8},
    {"bool[2]", "1, 0", "\x01\x00", 9, BS_BOOL, 2},
    {"float16[1]", "15360", "\x00\x3c", 10, BS_F16, 2},
    {"double[1]", "1", "\x00\x00\x00\x00\x00\x00\xf0\x3f", 11, BS_F64, 8},
    {"uint32[1]", "4294967295", "\xff\xff\xff\xff", 12, 0x0120, 4},
    {"uint64[1]", "18446744073709551615", "\xff\xff\xff\xff\xff\xff\xff\xff", 13, 0x0140, 8},
    {"complex64[1]", "1, -0", "\x00\x00\x80\x3f\x00\x00\x00\x80", 14, 0x0540, 8},
    {"complex128[1]", "1, 0", "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\x00", 15, 0x0580,
     16},
    {"bfloat16[1]", "16256", "\x80\x3f", 16, BS_BF16, 2},
    {"float8e4m3fn[1]", "56", "\x38", 17, BS_F8E4M3, 1},
    {"float8e4m3fnuz[1]", "56", "\x38", 18, 0x0B08, 1},
    {"float8e5m2[1]", "60", "\x3c", 19, BS_F8E5M2, 1},
    {"float8e5m2fnuz[1]", "60", "\x3c", 20, 0x0D08, 1},
    {"uint4[3]", "33, 3", "\x21\x03", 21, 0x0104, 2},
    {"int4[2]", "31", "\x1f", 22, 0x0004, 1},
    {"float4e2m1[2]", "33", "\x21", 23, 0x1104, 1},
    {"float8e8m0[1]", "127", "\x7f", 24, 0x0E08, 1},
    {"uint2[4]", "228", "\xe4", 25, 0x0102, 1},
    {"int2[4]", "228", "\xe4", 26, 0x0002, 1},
};

START_TEST(every_type_in_either_field) {
  char text[200];
  snprintf(text, sizeof text, "g () => () <%s w = {%s}> {}", types[_i].type, types[_i].elements);
  for (uint32_t flags = 0; flags <= ONNX_TEXT_RAW; flags++) {
    unsigned char *bytes;
    bs_onnx m = parse(text, flags, &bytes);
    const bs_onnx_tensor *t = m.graph->initializers;
    ck_assert_uint_eq(t->type, types[_i].number);
    ck_assert_uint_eq(bs_onnx_type_of(t->type)->dtype, types[_i].dtype);
    ck_assert_uint_eq(t->bytes, types[_i].size);
    ck_assert_msg(memcmp(t->data, types[_i].bytes, types[_i].size) == 0, "%s", types[_i].type);
    bs_onnx_close(&m);
    free(bytes);
  }
}
END_TEST

START_TEST(a_file_and_a_tensor_file) {
  bs_onnx m;
  bs_onnx_pb pb;
  bs_error err = BS_ERROR_INIT;
  size_t size = 0;
  char why[160];
  unsigned char *bytes = onnx_bytes(ONNX_CASE, 0, &size);
  const char *path = files_write("m.onnx", bytes, size), *text = "float[2,1] x = {1, 2} int64 y = {3}";
  free(bytes);
  ck_assert_msg(bs_onnx_open(path, &m, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(onnx_walk(&m), 8);
  ck_assert_uint_eq(m.file_bytes, size);
  ck_assert_int_eq(bs_onnx_unchanged(&m, &err), BS_OK);
  bs_onnx_close(&m);
  for (int i = 0; i < 2; i++) {
    ck_assert(onnx_text_tensor(&text, 0, &bytes, &size, why, sizeof why));
    path = files_write("x.pb", bytes, size);
    free(bytes);
    ck_assert_msg(bs_onnx_pb_open(path, &pb, &err) == BS_OK, "%s", err.message);
    IS(pb.tensor.name, i == 0 ? "x" : "y");
    ck_assert_uint_eq(pb.tensor.count, i == 0 ? 2 : 1);
    onnx_walk_tensor(&pb.tensor);
    bs_onnx_pb_close(&pb);
  }
  files_expect(&err, bs_onnx_open(files_path("none.onnx"), &m, &err), BS_INPUT, "BS-ONNX-READ", "missing");
  files_expect(&err, bs_onnx_open(files_folder, &m, &err), BS_INPUT, "BS-ONNX-READ", "a folder");
}
END_TEST

START_TEST(names_are_found) {
  bs_names names = {0};
  static char text[3000][8];
  static bs_span spans[3000];
  for (uint32_t i = 0; i < 3000; i++) {
    snprintf(text[i], sizeof text[i], "n%u", i);
    spans[i] = (bs_span){text[i], strlen(text[i])};
    ck_assert_int_eq(bs_names_add(&names, &spans[i], i), 1);
    ck_assert_int_eq(bs_names_add(&names, &spans[i], 7), 0);
  }
  for (uint32_t i = 0; i < 3000; i++) ck_assert_uint_eq(*bs_names_find(&names, spans[i]), i);
  ck_assert_ptr_null(bs_names_find(&names, (bs_span){"n", 1}));
  bs_names_free(&names);
  ck_assert_ptr_null(bs_names_find(&names, spans[0]));
}
END_TEST

int main(void) {
  const test_case rows[] = {{heads_and_values},
                            {nodes_and_attributes},
                            {initializers, 2},
                            {every_type_in_either_field, TEST_COUNT(types)},
                            {a_file_and_a_tensor_file},
                            {names_are_found},
                            {0}};
  return run_tests("onnx_read", rows, (test_setup){.before = files_begin, .after = files_end});
}
