/* SPDX-License-Identifier: MIT
 * onnx_case.h - from a model's text to an open model, for tests. */
#ifndef BS_TESTS_GRAPH_ONNX_CASE_H
#define BS_TESTS_GRAPH_ONNX_CASE_H
#include "formats/onnx.h"
#include "tests/formats/files.h"
#include "tests/graph/onnx_text.h"
#include "tests/run_tests.h"

/* The bytes of a model, to be freed. */
static inline unsigned char *onnx_bytes(const char *text, uint32_t flags, size_t *out_size) {
  unsigned char *bytes = NULL;
  char why[160];
  ck_assert_msg(onnx_text(text, flags, &bytes, out_size, why, sizeof why), "%s", why);
  return bytes;
}

/* A model that holds what a model can hold. Its names and values are checked by test_onnx_read.c. */
#define ONNX_CASE                                                                                        \
  "<ir_version: 10, opset_import: [\"\" : 23, \"my.d\" : 1], producer_name: \"me\">\n"                   \
  "\"g-1\" (bool c, float[N,3] x, float[] u, seq(float[]) q) => (float[N,?] z, int64 k)\n"               \
  "<float[2,2] w = {1, 2.5, nan, -inf}, int64 s = {-3}, float16[2] h = {15360, 16384}, bool[2] b = {1, " \
  "0},\n"                                                                                                \
  " string[2] t = {\"ab\", \"c\"}, float[0,4] e = {}, float[N] y>\n"                                     \
  "{\n"                                                                                                  \
  "  y = If (c) <else_branch: graph = other () => (float[N] y3) { [\"n/1\"] y3 = Identity (x) },\n"      \
  "    then_branch: graph = then () => (float[?] y2) <float p = {7}> { y2 = Add (x, p) }>\n"             \
  "  [ln] z, \"\", \"/model/out.1\" = LayerNormalization <axis: int = -1, epsilon: float = 1e-05>\n"     \
  "    (y, w, \"\")\n"                                                                                   \
  "  r = com.microsoft.Gelu <a: floats = [1, 2.5], b: ints = [3, -3], c: string = \"con\\\"st\",\n"      \
  "    d: strings = [\"a\", \"bc\"]> (z)\n"                                                              \
  "  k = Constant <value: tensor = int64[3] kk {1, 2, 3}> ()\n"                                          \
  "  f = my.d.Foo <alpha = 2.0> (z)\n"                                                                   \
  "}\n"                                                                                                  \
  "<domain: \"my.d\", opset_import: [\"\" : 23]>\n"                                                      \
  "Foo <alpha, beta: float = 0.5> (a) => (b) { b = Scale <alpha: float = @alpha> (a) }\n"
#endif
