/* SPDX-License-Identifier: MIT
 * test_bsrun_model.c - `bsrun model`: its sub-verbs as a user calls them. */
#include <jansson.h>

#include "formats/npy.h"
#include "tests/bsrun/spawn.h"
#include "tests/graph/onnx_text.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

/* ---- plan ------------------------------------------------------------------------------------ */

static const char example[] = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";

/* The example of minimalloc's README: it needs 12, and each offset is one of 0, 4, 8. */
START_TEST(plan_of_an_example) {
  write_text(dir, "e.csv", example);
  ran r = bsrun(dir, "model", "plan", "e.csv", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *plan = json_loads(r.out, 0, NULL);
  ck_assert_ptr_nonnull(plan);
  const char *by;
  json_int_t arena, bound, blocks, peak, naive;
  double ratio, seconds;
  int proven;
  json_t *placements, *largest;
  ck_assert_int_eq(
      json_unpack(plan, "{s:I, s:I, s:I, s:I, s:I, s:F, s:F, s:b, s:s, s:o, s:o}", "arena", &arena, "bound",
                  &bound, "blocks", &blocks, "peak_step", &peak, "naive", &naive, "ratio", &ratio, "seconds",
                  &seconds, "proven", &proven, "by", &by, "placements", &placements, "largest", &largest),
      0);
  ck_assert(arena == 12 && bound == 12 && blocks == 5 && peak == 0 && naive == 20 && ratio == 1 && proven);
  ck_assert_uint_eq(json_array_size(largest), 3);
  ck_assert_uint_eq(json_array_size(placements), 5);
  for (size_t i = 0; i < 5; i++) {
    const json_int_t offset = json_integer_value(json_object_get(json_array_get(placements, i), "offset"));
    ck_assert(offset == 0 || offset == 4 || offset == 8);
  }
  json_decref(plan);
  ran_free(&r);
}
END_TEST

/* -o csv is a file that can be planned again, with columns in another order and more of them; the table says
 * what is proven. */
START_TEST(plan_as_csv_and_table) {
  write_text(dir, "e.csv", example);
  ran r = bsrun(dir, "model", "plan", "e.csv", "-o", "csv", NULL);
  must_be(&r, 0);
  ck_assert_ptr_eq(strstr(r.out, "id,lower,upper,size,offset"), r.out);
  write_text(dir, "placed.csv", r.out);
  ran_free(&r);
  write_text(dir, "mixed.csv", "size, upper ,lower,id,note\r\n4,3,0,b1,x\r\n\r\n4,9,0,b3,\r\n");
  static const char *const files[] = {"placed.csv", "mixed.csv"};
  static const char *const arenas[] = {"5 blocks of 20 bytes lie in an arena of 12 bytes.",
                                       "2 blocks of 8 bytes lie in an arena of 8 bytes."};
  for (int i = 0; i < 2; i++) {
    r = bsrun(dir, "model", "plan", files[i], NULL);
    must_be(&r, 0);
    ck_assert_msg(strstr(r.out, arenas[i]) != NULL && strstr(r.out, "no arena is smaller") != NULL, "%s",
                  r.out);
    ran_free(&r);
  }
  r = bsrun(dir, "model", "plan", "e.csv", "--align", "64", "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "\"arena\": 192"));
  ran_free(&r);
}
END_TEST

static const struct {
  const char *text, *id, *says;
} bad[] = {
    {"", "BS-PLAN-FILE", "is empty"},
    {"id,lower,upper,size\n", "BS-PLAN-FILE", "has no blocks"},
    {"id,lower,upper\na,1,2\n", "BS-PLAN-LINE", "bad.csv:1: no column 'size'"},
    {"id,lower,upper,size\na,1,2,3\nb,1,2\n", "BS-PLAN-LINE", "bad.csv:3: not as many cells"},
    {"id,lower,upper,size\na,1,x,3\n", "BS-PLAN-LINE", "bad.csv:2: upper is no whole number of 32 bits: 'x'"},
    {"id,lower,upper,size\na,-1,2,3\n", "BS-PLAN-LINE", "bad.csv:2: lower is no whole number"},
    {"id,lower,upper,size\na,1,4294967296,3\n", "BS-PLAN-LINE", "bad.csv:2: upper is no whole number"},
    {"id,lower,upper,size\na,1,2,9223372036854775808\n", "BS-PLAN-LINE",
     "bad.csv:2: size is no whole number"},
    {"id,lower,upper,size\na,3,3,3\n", "BS-PLAN-LINE", "bad.csv:2: lower is not below upper in block 'a'"},
    {"id,lower,upper,size,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,\n", "BS-PLAN-LINE", "more than 32 columns"},
};

START_TEST(bad_files_are_exit_4) {
  write_text(dir, "bad.csv", bad[_i].text);
  ran r = bsrun(dir, "model", "plan", "bad.csv", NULL);
  must_be(&r, 4);
  ck_assert_msg(strstr(r.err, bad[_i].id) != NULL && strstr(r.err, bad[_i].says) != NULL, "%s", r.err);
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
}
END_TEST

START_TEST(sizes_beyond_2_62_are_exit_10) {
  write_text(dir, "big.csv", "id,lower,upper,size\na,1,2,4611686018427387904\nb,1,2,4611686018427387904\n");
  ran r = bsrun(dir, "model", "plan", "big.csv", NULL);
  must_be(&r, 10);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-PLAN-SIZE"));
  ran_free(&r);
}
END_TEST

/* ---- info, run, explain ---------------------------------------------------------------------- */

static void write_model(const char *name, const char *text) {
  unsigned char *bytes;
  size_t size;
  char path[800], why[200] = "";
  ck_assert_msg(onnx_text(text, 0, &bytes, &size, why, sizeof why), "%s", why);
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(bytes, 1, size, f), size);
  fclose(f);
  free(bytes);
}

static void write_array(const char *name, uint32_t dtype, uint32_t rank, const int64_t *dims,
                        const void *data) {
  char path[800];
  bs_error err = BS_ERROR_INIT;
  snprintf(path, sizeof path, "%s/%s", dir, name);
  ck_assert_msg(bs_npy_write(path, dtype, rank, dims, data, &err) == BS_OK, "%s", err.message);
}

static const char small[] =
    "<ir_version: 10, opset_import: [\"\" : 23]> g (float[batch,2] x, float[batch,2] bias) => "
    "(float[batch,3] y, "
    "float[batch,3] twice) <float[2,3] w = {1, 2, 3, 4, 5, 6}, float[1] two = {2}> { s = Add (x, bias) "
    "p = MatMul (s, w) y = Relu (p) twice = Mul (y, two) }";
/* x + bias = {{1, 1}, {-2, 1}}; times w = {{5, 7, 9}, {2, 1, 0}}. */
static const float small_x[] = {1, 0, -1, 1}, small_bias[] = {0, 1, -1, 0};

static void small_model(void) {
  write_model("m.onnx", small);
  write_array("x.npy", BS_F32, 2, (const int64_t[]){2, 2}, small_x);
  write_array("b.npy", BS_F32, 2, (const int64_t[]){2, 2}, small_bias);
}

START_TEST(info_of_a_model) {
  write_model("m.onnx", small);
  ran r = bsrun(dir, "model", "info", "m.onnx", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *info = json_loads(r.out, 0, NULL);
  const char *input, *symbol, *output;
  json_int_t two, nodes, opset;
  json_t *unsupported, *ops;
  ck_assert_int_eq(json_unpack(info, "{s:I, s:I, s:[{s:s, s:[s, I]}, {}], s:[{}, {s:s}], s:o, s:o}", "nodes",
                               &nodes, "opset", &opset, "inputs", "name", &input, "shape", &symbol, &two,
                               "outputs", "name", &output, "unsupported", &unsupported, "ops", &ops),
                   0);
  ck_assert_str_eq(input, "x");
  ck_assert_str_eq(symbol, "batch");
  ck_assert_str_eq(output, "twice");
  ck_assert(two == 2 && nodes == 4 && opset == 23);
  ck_assert_uint_eq(json_array_size(unsupported), 0);
  ck_assert_uint_eq(json_array_size(ops), 4);
  json_decref(info);
  ran_free(&r);
  r = bsrun(dir, "model", "info", "m.onnx", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "[batch, 2]") != NULL && strstr(r.out, "Every node is supported.") != NULL,
                "%s", r.out);
  ran_free(&r);
}
END_TEST

/* All that cannot be served, not the first alone; in every format, with exit 3. */
START_TEST(info_lists_every_unsupported_node) {
  write_model(
      "u.onnx",
      "<ir_version: 10, opset_import: [\"\" : 23, \"com.microsoft\" : 1]> g (float[4] x) => (float[4] z) { "
      "a = com.microsoft.FastGelu (x) b = Relu (a) z = Hardmax (b) }");
  static const char *const formats[] = {"table", "csv", "json"};
  for (int i = 0; i < 3; i++) {
    ran r = bsrun(dir, "model", "info", "u.onnx", "-o", formats[i], NULL);
    must_be(&r, 3);
    ck_assert_msg(strstr(r.out, "FastGelu") != NULL && strstr(r.out, "Hardmax") != NULL, "%s", r.out);
    ck_assert_msg(strstr(r.err, "BS-GRAPH-NODE") != NULL, "%s", r.err);
    ran_free(&r);
  }
}
END_TEST

static const struct {
  const char *words[4];
} ways[] = {{{"--backend", "ref"}},
            {{"--backend", "cpu"}},
            {{"--backend", "ref", "--pass", "all=off"}},
            {{"--threads", "1", "--dim", "batch=2"}}};

START_TEST(run_of_a_model) {
  const char *const *w = ways[_i].words;
  static const float want[] = {5, 7, 9, 2, 1, 0};
  small_model();
  ran r = bsrun(dir, "model", "run", "m.onnx", "--input", "x=x.npy", "--input", "bias=b.npy", "--output-dir",
                "out", "-o", "json", w[0], w[1], w[2], w[3], NULL);
  must_be(&r, 0);
  json_t *result = json_loads(r.out, 0, NULL);
  json_int_t batch, rows, columns, arena;
  const char *name, *file;
  double high;
  ck_assert_int_eq(json_unpack(result, "{s:{s:I}, s:[{s:s, s:[I, I], s:F, s:s}, {}], s:{s:I}}", "dims",
                               "batch", &batch, "outputs", "name", &name, "shape", &rows, &columns, "max",
                               &high, "file", &file, "stats", "arena_bytes", &arena),
                   0);
  ck_assert(batch == 2 && rows == 2 && columns == 3 && high == 9);
  ck_assert_str_eq(name, "y");
  ck_assert_str_eq(file, "out/y.npy");
  json_decref(result);
  ran_free(&r);
  for (int k = 0; k < 2; k++) {
    char path[800];
    bs_npy npy;
    bs_error err = BS_ERROR_INIT;
    snprintf(path, sizeof path, "%s/out/%s.npy", dir, k == 0 ? "y" : "twice");
    ck_assert_int_eq(bs_npy_open(path, &npy, &err), BS_OK);
    ck_assert(npy.dtype == BS_F32 && npy.rank == 2 && npy.count == 6);
    for (int i = 0; i < 6; i++) ck_assert(((const float *)npy.data)[i] == want[i] * (float)(k + 1));
    bs_npy_close(&npy);
  }
}
END_TEST

/* Values of 4 TiB: told before any of it is taken, with what is free. */
START_TEST(a_model_larger_than_the_memory_is_exit_10) {
  write_model("large.onnx",
              "<ir_version: 10, opset_import: [\"\" : 23]> g (float[1] x) => (float[1] y) "
              "<int64[1] s = {1099511627776}> { c = Expand (x, s) e = Exp (c) r = ReduceSum (e) "
              "y = Add (r, x) }");
  write_array("x.npy", BS_F32, 1, (const int64_t[]){1}, small_x);
  ran r = bsrun(dir, "model", "run", "large.onnx", "--input", "x=x.npy", NULL);
  must_be(&r, 10);
  ck_assert_msg(strstr(r.err, "error[BS-GRAPH-MEMORY] the intermediate values of the model need ") != NULL &&
                    strstr(r.err, " MiB are free; hint: ") != NULL,
                "%s", r.err);
  ran_free(&r);
}
END_TEST

/* An initializer that is an input too keeps its value, unless a file gives it another; names with '='. */
static const struct {
  int code;
  const char *words[6], *says;
} given[] = {
    {0, {"x=x.npy"}, "11"},
    {0, {"x=x.npy", "a=b=w.npy"}, "31"},
    {0, {"a=b=w.npy", "x=x.npy"}, "31"},
    {2, {"x=x.npy", "a=b=w.npy", "a=b=w.npy"}, "--input a=b is given twice"},
    {2, {"x=x.npy", "a=w.npy"}, "the model has no input 'a'"},
    {4, {"x=x.npy", "a=b=three.npy"}, "three.npy holds another dtype or shape than input 'a=b'"},
    {4, {"x=x.npy", "a=b=none.npy"}, "none.npy"},
    {0, {"x=x.npy", "c=d=x.npy"}, "11"},
};

START_TEST(values_of_initializers) {
  static const float x[] = {1, 1}, w[] = {30, 30}, three[] = {1, 2, 3};
  const char *const *v = given[_i].words;
  const int plain = strncmp(v[1] != NULL ? v[1] : "", "c=d", 3) != 0;
  write_model("m.onnx",
              plain ? "<ir_version: 10, opset_import: [\"\" : 23]> g (float[2] x, float[n] \"a=b\")"
                      " => (float[2] y) <float[2] \"a=b\" = {10, 10}> { y = Add (x, \"a=b\") }"
                    : "<ir_version: 10, opset_import: [\"\" : 23]> g (float[2] x, float[2] \"c=d\")"
                      " => (float[2] y) <float[2] k = {9, 9}> { s = Add (x, \"c=d\") y = Add (s, k) }");
  write_array("x.npy", BS_F32, 1, (const int64_t[]){2}, x);
  write_array("w.npy", BS_F32, 1, (const int64_t[]){2}, w);
  write_array("three.npy", BS_F32, 2, (const int64_t[]){1, 3}, three);
  ran r = bsrun(dir, "model", "run", "m.onnx", "--input", v[0], v[1] != NULL ? "--input" : NULL, v[1],
                v[2] != NULL ? "--input" : NULL, v[2], NULL);
  must_be(&r, given[_i].code);
  ck_assert_msg(strstr(given[_i].code == 0 ? r.out : r.err, given[_i].says) != NULL, "%s%s", r.out, r.err);
  ran_free(&r);
}
END_TEST

/* A node that fits none of the sizes that are tried is not judged: model info says which --dim would help. */
START_TEST(info_without_sizes) {
  static const char *const words[][2] = {{NULL, NULL}, {"--dim", "s=11"}};
  static const char *const says[] = {"1 node is not judged", "Every node is supported"};
  write_model("m.onnx",
              "<ir_version: 10, opset_import: [\"\" : 23]> g (float[1,s] x, float[77] p) => (float y)"
              " { t = Concat <axis: int = 1> (x, x, x, x, x, x, x) y = Add (t, p) }");
  for (int i = 0; i < 2; i++) {
    ran r = bsrun(dir, "model", "info", "m.onnx", words[i][0], words[i][1], NULL);
    must_be(&r, 0);
    ck_assert_msg(strstr(r.out, says[i]) != NULL, "%s", r.out);
    if (i == 0) ck_assert_msg(strstr(r.out, "give --dim s=N") != NULL, "%s", r.out);
    ran_free(&r);
  }
}
END_TEST

START_TEST(explain_of_a_model) {
  write_model("m.onnx", small);
  static const char *const what[] = {"--backend", "--memory", "--dump"}, *const more[] = {"ref", NULL, NULL};
  for (int i = 0; i < 3; i++) {
    ran r =
        bsrun(dir, "model", "explain", "m.onnx", "--dim", "batch=2", "-o", "json", what[i], more[i], NULL);
    must_be(&r, 0);
    json_t *value = json_loads(r.out, 0, NULL);
    ck_assert_msg(value != NULL, "%s", r.out);
    json_decref(value);
    ran_free(&r);
  }
  ran r = bsrun(dir, "model", "explain", "m.onnx", "--dim", "batch=2", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "matmul") != NULL && strstr(r.out, "arena") != NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

static const struct {
  int code;
  const char *words[8], *id, *says;
} wrong[] = {
    {2,
     {"run", "m.onnx", "--input", "x=x.npy"},
     "BS-MODEL-INPUT",
     "1 input has no file: bias: f32 [batch, 2]"},
    {2, {"run", "m.onnx"}, "BS-MODEL-INPUT", "2 inputs have no file: x: f32"},
    {2, {"explain", "m.onnx"}, "BS-MODEL-DIM", "1 dimension has no size: batch"},
    {2, {"run", "m.onnx", "--input", "xx=x.npy"}, "BS-MODEL-INPUT", "did you mean 'x'?"},
    {2, {"run", "m.onnx", "--input", "x"}, "BS-USE-VALUE", "not of the form NAME=FILE.npy"},
    {2,
     {"run", "m.onnx", "--input", "x=x.npy", "--input", "x=b.npy"},
     "BS-USE-TWICE",
     "--input x is given twice"},
    {2, {"run", "m.onnx", "--input", "x=x.npy", "--dim", "batch=3"}, "BS-MODEL-DIM", "'batch' is 2 in x.npy"},
    {2, {"run", "m.onnx", "--dim", "batsh=3"}, "BS-MODEL-DIM", "did you mean 'batch'?"},
    {2, {"run", "m.onnx", "--dim", "batch=two"}, "BS-USE-NUMBER", "'two' is not a whole number"},
    {2, {"run", "m.onnx", "--pass", "nothing=off"}, "BS-MODEL-PASS", "no pass 'nothing'"},
    {2, {"run", "m.onnx", "--pass", "fold=maybe"}, "BS-USE-VALUE", "neither on nor off"},
    {4,
     {"run", "m.onnx", "--input", "x=i.npy"},
     "BS-MODEL-INPUT",
     "i.npy holds i64 [2, 2]; input 'x' is f32 [batch, 2]"},
    {4, {"run", "m.onnx", "--input", "x=r.npy"}, "BS-MODEL-INPUT", "r.npy holds f32 [4]"},
    {4, {"run", "m.onnx", "--input", "x=missing.npy"}, "missing.npy", ""},
    {4, {"run", "missing.onnx"}, "missing.onnx", ""},
    {4, {"info", "x.npy"}, "x.npy", ""},
    {2, {"explain", "m.onnx", "--dump", "--memory"}, "BS-USE-OPTION", "exclude each other"},
    {2, {"explain", "m.onnx", "-o", "csv"}, "BS-USE-FORMAT", "csv"},
};

START_TEST(wrong_words_and_files) {
  static const int64_t ints[4] = {0};
  const char *const *w = wrong[_i].words;
  small_model();
  write_array("i.npy", BS_I64, 2, (const int64_t[]){2, 2}, ints);
  write_array("r.npy", BS_F32, 1, (const int64_t[]){4}, small_x);
  ran r = bsrun(dir, "model", w[0], w[1], w[2], w[3], w[4], w[5], w[6], NULL);
  must_be(&r, wrong[_i].code);
  ck_assert_msg(strstr(r.err, wrong[_i].id) != NULL && strstr(r.err, wrong[_i].says) != NULL, "%s", r.err);
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
}
END_TEST

/* ---- words ----------------------------------------------------------------------------------- */

static const struct {
  int code;
  const char *words[6], *says;
} uses[] = {
    {0, {"model", "--help"}, "usage: bsrun model"},
    {2, {"model"}, "usage: bsrun model"},
    {0, {"help", "model"}, "Options of model plan:"},
    {0, {"model", "plan", "--help"}, "--align BYTES"},
    {2, {"model", "plam"}, "did you mean 'plan'?"},
    {2, {"model", "plan"}, "0 words given"},
    {2, {"model", "plan", "a", "b"}, "2 words given"},
    {2, {"model", "plan", "a", "--align", "3"}, "3 is not a power of two"},
    {2, {"model", "plan", "a", "-o", "yaml"}, "unknown output format 'yaml'"},
    {4, {"model", "plan", "missing.csv"}, "missing.csv"},
};

START_TEST(words_of_the_verb) {
  const char *const *w = uses[_i].words;
  ran r = bsrun(dir, w[0], w[1], w[2], w[3], w[4], NULL);
  must_be(&r, uses[_i].code);
  ck_assert_msg(strstr(r.out, uses[_i].says) != NULL || strstr(r.err, uses[_i].says) != NULL, "%s%s", r.out,
                r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  return run_tests("bsrun_model",
                   (test_case[]){{plan_of_an_example},
                                 {plan_as_csv_and_table},
                                 {bad_files_are_exit_4, TEST_COUNT(bad)},
                                 {sizes_beyond_2_62_are_exit_10},
                                 {info_of_a_model},
                                 {info_lists_every_unsupported_node},
                                 {run_of_a_model, TEST_COUNT(ways)},
                                 {values_of_initializers, TEST_COUNT(given)},
                                 {info_without_sizes},
                                 {explain_of_a_model},
                                 {a_model_larger_than_the_memory_is_exit_10},
                                 {wrong_words_and_files, TEST_COUNT(wrong)},
                                 {words_of_the_verb, TEST_COUNT(uses)},
                                 {0}},
                   (test_setup){setup, teardown});
}
