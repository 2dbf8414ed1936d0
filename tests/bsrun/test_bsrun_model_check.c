/* SPDX-License-Identifier: MIT
 * test_bsrun_model_check.c - `bsrun model check` and `generate`: right models pass, wrong vectors are exit 6
 * and are named, a bad index is exit 4; tokens are those that follow by hand, prefill and decode alike, a
 * full cache ends. */
#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "tests/bsrun/model_files.h"
#include "tests/run_tests.h"

/* ---- check ----------------------------------------------------------------------------------- */

/* y = relu(x w), z = x > 0; two cases of other sizes. */
static void write_model(void) {
  static const char text[] =
      "<ir_version: 10, opset_import: [\"\" : 23]> g (float[batch,2] x) => (float[batch,2] y, bool[batch,2] "
      "z) "
      "<float[2,2] w = {1, 2, 3, 4}, float o = {0}> { p = MatMul (x, w) y = Relu (p) z = Greater (x, o) }";
  static const float x[] = {1, 1, -1, 1, 2, 0}, y[] = {4, 6, 2, 2, 2, 4}, bad[] = {4, 6, 2, 2.1F, 2, 4},
                     turned[] = {4, 6, 2, 2, -2, -4}, none[] = {NAN, 1, -1, 1, 2, 0};
  static const uint8_t z[] = {1, 1, 0, 1, 1, 0}, other[] = {1, 1, 1, 1, 1, 0};
  const int64_t one[] = {1, 2}, three[] = {3, 2};
  write_onnx("m.onnx", text);
  write_array("x1.npy", BS_F32, 2, one, x);
  write_array("y1.npy", BS_F32, 2, one, y);
  write_array("x3.npy", BS_F32, 2, three, x);
  write_array("y3.npy", BS_F32, 2, three, y);
  write_array("z3.npy", BS_BOOL, 2, three, z);
  write_array("other.npy", BS_BOOL, 2, three, other);
  write_array("bad.npy", BS_F32, 2, three, bad);
  write_array("turned.npy", BS_F32, 2, three, turned);
  write_array("none.npy", BS_F32, 2, three, none);
}

#define HEAD "blockshock-vectors 1\n# a comment\nmodel m.onnx\n"
#define FILLS "blockshock-vectors 1\nmodel fills.onnx\ncase a\n"
#define THREE "case three\ndim 3 batch\ninput x3.npy x\n"

static const struct {
  const char *index;
  int code;
  const char *says; /* in stdout, or of an error in stderr */
} indexes[] = {
    {HEAD "tolerance 1e-6\ncase one\ndim 1 batch\ninput x1.npy x\noutput y1.npy y\n" THREE
          "output y3.npy y\noutput z3.npy z\ncosine 1e-6\n",
     0, "2 cases on ref, 0 wrong"},
    {HEAD THREE "output bad.npy y\n", 6, "the deviation is over its limit"},
    {"blockshock-vectors 1\nmodel bf16.onnx\ncase three\ndim 3 batch\ninput x3.npy x\noutput x3.npy y\n", 0,
     "1 cases on ref, 0 wrong"}, /* .npy files have no bf16 */
    {"blockshock-vectors 1\nmodel bf16.onnx\ncosine 1e-6\ncase none\ndim 3 batch\ninput none.npy x\noutput "
     "none.npy "
     "y\n",
     6, "the cosine distance is over its limit"}, /* rows behind that of NaN do not hide it */
    {HEAD THREE "tolerance 0.1\noutput bad.npy y\n", 0, "1 cases on ref, 0 wrong"},
    {HEAD THREE "tolerance 0.1\ncosine 1e-6\noutput bad.npy y\n", 6, "the cosine distance is over its limit"},
    {HEAD THREE "tolerance 9\ncosine 1.5\noutput turned.npy y\n", 6, "the cosine distance is over its limit"},
    {HEAD THREE "output other.npy z\n", 6, "numbers differ"},
    {HEAD THREE "output y1.npy y\n", 6, "another dtype or shape"},
    {HEAD THREE "output z3.npy y\n", 6, "another dtype or shape"},
    {"case\n", 4, "vectors.txt:1: the first line is not blockshock-vectors 1"},
    {HEAD, 4, "no case"},
    {HEAD "case a\ndim two batch\n", 4, "vectors.txt:5: dim wants a size and a name"},
    {HEAD "case a\ninput x3.npy\n", 4, "no name behind the file 'x3.npy'"},
    {HEAD "input x3.npy x\n", 4, "no case before"},
    {HEAD "tolerance small\n", 4, "not a limit: 'small'"},
    {HEAD "wish x\n", 4, "vectors.txt:4: no case before 'wish'"},
    {HEAD "case a\nwish x\n", 4, "unknown word 'wish'"},
    {HEAD "model m.onnx\n", 4, "a second model"},
    {"blockshock-vectors 1\ncase a\n", 4, "no model before"},
    {HEAD THREE "output missing.npy y\n", 4, "missing.npy"},
    {HEAD "case a\ngenerate x1.npy y1.npy\n", 3, "does not generate"},
    /* a number beside a fill of a mask */
    {FILLS "input x3.npy x\noutput fills.npy y\n", 0, "1 cases on ref, 0 wrong"},
    {FILLS "input x3.npy x\noutput badfills.npy y\n", 6, "the deviation is over its limit"},
    {FILLS "cosine 1e-6\ntolerance 9\ninput x3.npy x\noutput badfills.npy y\n", 6,
     "the cosine distance is over"},
    /* what compares nothing, and what the model does not have */
    {HEAD THREE, 4, "vectors.txt:4: neither an output nor a prompt in case 'three'"},
    {HEAD THREE "case four\n", 4, "vectors.txt:4: neither an output nor a prompt"},
    {HEAD "case a\ninput x3.npy x\noutput y3.npy y\n", 0, "1 cases on ref, 0 wrong"}, /* batch is x's */
    {HEAD "case a\ninput x3.npy x\noutput y3.npy y\ncase b\ninput x1.npy x\noutput y1.npy y\n", 0, "2 cases"},
    {HEAD "case a\noutput y3.npy y\n", 4, "BS-GRAPH-DIM"},
    {HEAD "case a\ndim 3 bach\ninput x3.npy x\noutput y3.npy y\n", 4, "the nearest one is batch"},
    {HEAD "case a\ndim 2 batch\ninput x3.npy x\noutput y3.npy y\n", 4,
     "vectors.txt:6: x3.npy holds f32 [3, 2]; input 'x' is f32 [2, 2]"},
    {HEAD "case a\ndim 3 batch\ninput z3.npy x\noutput y3.npy y\n", 4,
     "vectors.txt:6: z3.npy holds bool [3, 2]; input 'x' is f32 [3, 2]"},
    {HEAD "case a\ndim 3 batch\ninput x3.npy w\noutput y3.npy y\n", 4,
     "vectors.txt:6: the model has no input 'w'"},
    {HEAD "case a\ndim 3 batch\ninput x3.npy y\noutput y3.npy y\n", 4, "the model has no input 'y'"},
    {HEAD THREE "output y3.npy yy\n", 4, "vectors.txt:7: the model has no output 'yy'"},
    {HEAD THREE "output x3.npy x\n", 4, "the model has no output 'x'"},
    {HEAD THREE "input x3.npy x\noutput y3.npy y\n", 4, "vectors.txt:7: a second file of 'x'"},
    {HEAD "case a\ndim 3 batch\noutput y3.npy y\n", 4, "vectors.txt:4: input 'x' is not set"},
    {HEAD THREE "output y3.npy y\ncase b\ndim 3 batch\noutput y3.npy y\n", 4, "input 'x' is not set"},
};

START_TEST(folders_with_vectors) {
  static const char coarse[] =
      "<ir_version: 10, opset_import: [\"\" : 23]> g (float[batch,2] x) => "
      "(bfloat16[batch,2] y) { y = Cast <to: int = 16> (x) }";
  static const char masked[] =
      "<ir_version: 10, opset_import: [\"\" : 23]> g (float[3,2] x) => (float[3,2] y) "
      "<float[2] m = {0, -1000000000}> { y = Add (x, m) }";
  static const float fills[] = {1, -1e9F, -1, -1e9F, 2, -1e9F}, badfills[] = {1, -1e9F, -1, -1e9F, -3, -1e9F};
  write_model();
  write_array("fills.npy", BS_F32, 2, (const int64_t[]){3, 2}, fills);
  write_array("badfills.npy", BS_F32, 2, (const int64_t[]){3, 2}, badfills);
  write_onnx("fills.onnx", masked);
  write_onnx("bf16.onnx", coarse);
  write_text(dir, "vectors.txt", indexes[_i].index);
  ran r = bsrun(dir, "model", "check", ".", "--backend", "ref", NULL);
  must_be(&r, indexes[_i].code);
  const int in_rows = indexes[_i].code == 0 || indexes[_i].code == 6;
  ck_assert_msg(strstr(in_rows ? r.out : r.err, indexes[_i].says) != NULL, "%s%s", r.out, r.err);
  if (indexes[_i].code == 6) ck_assert_ptr_nonnull(strstr(r.err, "BS-MODEL-CHECK"));
  ran_free(&r);
}
END_TEST

START_TEST(nodes_of_a_folder_and_of_a_model) {
  write_model();
  write_text(dir, "vectors.txt", HEAD THREE "output y3.npy y\n");
  ran r = bsrun(dir, "model", "check", ".", "--nodes", "-o", "json", NULL);
  must_be(&r, 0);
  json_int_t cases, failed;
  json_t *rows, *nodes, *result = json_loads(r.out, 0, NULL);
  ck_assert_int_eq(json_unpack(result, "{s:I, s:I, s:o, s:o}", "cases", &cases, "failed", &failed, "rows",
                               &rows, "nodes", &nodes),
                   0);
  ck_assert(cases == 1 && failed == 0 && json_array_size(rows) == 1 && json_array_size(nodes) == 2);
  for (size_t i = 0; i < 2; i++) { /* all nodes, the right ones too */
    const json_t *node = json_array_get(nodes, i);
    ck_assert(json_is_true(json_object_get(node, "ok")) &&
              json_is_number(json_object_get(node, "deviation")));
    ck_assert_uint_eq((size_t)json_integer_value(json_object_get(node, "node")), i);
  }
  json_decref(result);
  ran_free(&r);
  r = bsrun(dir, "model", "check", "m.onnx", "--input", "x=x3.npy", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "nodes on cpu, 0 wrong") != NULL && strstr(r.out, "matmul") == NULL, "%s",
                r.out);
  ran_free(&r);
  r = bsrun(dir, "model", "check", ".", "--input", "x=x3.npy", NULL);
  must_be(&r, 2);
  ran_free(&r);
  r = bsrun(dir, "model", "check", "m.onnx", NULL);
  must_be(&r, 2);
  ck_assert_ptr_nonnull(strstr(r.err, "1 dimension has no size: batch"));
  ran_free(&r);
}
END_TEST

/* A folder, a model with its inputs, a model on made ones alone. */
START_TEST(outputs_are_held_against_the_graph_as_written) {
  static const struct {
    const char *words[3];
    const char *first; /* the first set of inputs */
    int nodes;
  } rows[] = {{{".", NULL, NULL}, "given", 0},
              {{"m.onnx", "--input", "x=x3.npy"}, "given", 1},
              {{"m.onnx", "--dim", "batch=2"}, "made: ordinary numbers", 0}};
  write_model();
  write_text(dir, "vectors.txt", HEAD THREE "output y3.npy y\n");
  const char *const *w = rows[_i].words;
  ran r = bsrun(dir, "model", "check", w[0], "--out", "off", w[1], w[2], NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "sets of inputs compared with the graph as written, in f64: 0 differ") != NULL,
                "%s", r.out);
  ck_assert_int_eq(strstr(r.out, "no node was checked alone") != NULL, _i == 2);
  ran_free(&r);
  r = bsrun(dir, "model", "check", w[0], "--out", "off", "-o", "json", w[1], w[2], NULL);
  must_be(&r, 0);
  json_t *result = json_loads(r.out, 0, NULL), *written = json_object_get(result, "written"), *row;
  size_t i;
  ck_assert_msg(json_array_size(written) > 5, "%s", r.out);
  json_array_foreach(written, i, row) {
    ck_assert(json_is_true(json_object_get(row, "ok")) &&
              json_integer_value(json_object_get(row, "compared")) > 0);
    ck_assert_str_eq(json_string_value(json_object_get(row, "pass")), "");
  }
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(written, 0), "inputs")), rows[_i].first);
  ck_assert_uint_eq(json_array_size(json_object_get(result, "written_not_compared")), 0);
  json_decref(result);
  ran_free(&r);
}
END_TEST

/* check, and a run with --verify: a kernel that computes something wrong is exit 6 and named. */
START_TEST(a_wrong_kernel_is_told) {
  static const char *const plans[] = {"plugins.fault.count=false",
                                      "plugins.fault.plan=rank=*,op=matmul,seq=*,do=flip"};
  write_model();
  for (int wrong = 0; wrong < 2; wrong++) {
    ran r = _i == 0 ? bsrun(dir, "model", "check", "m.onnx", "--input", "x=x3.npy", "--out", "off",
                            "--backend", "fault:ref", "--set", plans[wrong], NULL)
                    : bsrun(dir, "model", "run", "m.onnx", "--input", "x=x3.npy", "--verify", "--backend",
                            "fault:ref", "--set", plans[wrong], NULL);
    must_be(&r, wrong ? 6 : 0);
    if (wrong)
      ck_assert_msg(strstr(r.err, "BS-MODEL-KERNEL") != NULL && strstr(r.err, "output 'y' differs") != NULL &&
                        strstr(r.err, "no pass made it, the kernel fault:") != NULL,
                    "%s", r.err);
    if (_i == 1)
      ck_assert_msg(
          strstr(r.out, wrong ? "differs from the graph as written" : "equal, within round-off") != NULL,
          "%s", r.out);
    ran_free(&r);
  }
}
END_TEST

/* What the backend does not serve is told, by check and by generate. */
START_TEST(nodes_on_ref_are_told) {
  static const char top[] =
      "<ir_version: 10, opset_import: [\"\" : 23]> g (float[3,2] x) => (float[3,1] v, int64[3,1] i) "
      "<int64[1] k = {1}> { v, i = TopK (x, k) }";
  static const char *const words[] = {"model", "check", ".", "--backend"};
  write_model();
  write_onnx("top.onnx", top);
  write_array("v.npy", BS_F32, 2, (const int64_t[]){3, 1}, (const float[]){1, 1, 2});
  write_text(dir, "vectors.txt",
             "blockshock-vectors 1\nmodel top.onnx\ncase a\ninput x3.npy x\noutput v.npy v\n");
  for (int ref = 0; ref < 2; ref++)
    for (int quiet = 0; quiet < 2; quiet++) {
      ran r = bsrun(dir, words[0], words[1], words[2], words[3], ref ? "ref" : "cpu",
                    quiet ? "--quiet" : NULL, NULL);
      must_be(&r, 0);
      ck_assert_msg((strstr(r.err, "1 node ran on ref, because cpu") != NULL) == (!ref && !quiet), "%s",
                    r.err);
      ran_free(&r);
    }
}
END_TEST

/* A check is kept, right or wrong; where it cannot be, it is told and exit 10. */
START_TEST(a_check_is_kept) {
  write_model();
  write_text(dir, "vectors.txt", HEAD THREE "output bad.npy y\n");
  for (int wrong = 1; wrong >= 0; wrong--) {
    if (!wrong) write_text(dir, "vectors.txt", HEAD THREE "output y3.npy y\n");
    ran r = bsrun(dir, "model", "check", ".", "--nodes", NULL);
    must_be(&r, wrong ? 6 : 0);
    json_t *record = model_record(&r, 0);
    ck_assert_str_eq(json_string_value(json_object_get(record, "phase")), "model_check");
    ck_assert(json_is_true(json_object_get(record, "passed")) == !wrong);
    ck_assert_int_eq(json_integer_value(json_object_get(record, "failed")), wrong);
    ck_assert_uint_eq(json_array_size(json_object_get(record, "nodes")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(record, "inputs")), 2); /* m.onnx, vectors.txt */
    json_decref(record);
    ran_free(&r);
  }
  ran r = bsrun(dir, "model", "check", ".", "--out", "m.onnx", NULL);
  must_be(&r, 10);
  ck_assert_msg(strstr(r.out, "0 wrong") != NULL && strstr(r.err, "BS-STO-IO") != NULL, "%s%s", r.out, r.err);
  ran_free(&r);
}
END_TEST

/* ---- generate -------------------------------------------------------------------------------- */

static const struct {
  int code;
  const char *words[6], *says;
  const char *tokens; /* in stdout beside an error */
} prompts[] = {
    {0, {"--ids", "0", "--tokens", "5"}, "1,2,3,0,1\n"},
    {0, {"--ids", "3,3, 3", "--tokens", "4"}, "3,0,1,2\n"},
    {0, {"--ids", "1,2,0", "--tokens", "9", "--stop", "1"}, "3,0,1\n"},
    {0, {"--ids", "p.npy", "--tokens", "2"}, "2,3\n"},
    {0, {"--ids", "0", "--tokens", "16"}, "1,2,3,0,1,2,3,0,1,2,3,0,1,2,3,0\n"}, /* the cache is full */
    {10, {"--ids", "0", "--tokens", "17"}, "BS-GRAPH-CACHE", "1,2,3,0,1,2,3,0,1,2,3,0,1,2,3,0\n"},
    {10, {"--ids", "0,1,2", "--tokens", "2", "--cache-tokens", "3"}, "BS-GRAPH-CACHE", "3\n"},
    {10, {"--ids", "0,1,2", "--tokens", "2", "--cache-tokens", "2"}, "BS-GRAPH-CACHE", ""},
    {2, {"--ids", "1,x"}, "'x' is not a token id"},
    {2, {"--ids", "1, 2x,3"}, "'2x' is not a token id"},
    {2, {"--ids", "-5"}, "'-5' is not a token id"},
    {2, {"--tokens", "2"}, "needs a prompt"},
    {2, {"--ids", "1,,2"}, "'' is not a token id"},
    {2, {"--ids", ""}, "--ids '' holds no token id"},
    {2, {"--ids", "  "}, "holds no token id"},
    {4, {"--ids", "missing.npy"}, "missing.npy"},
    {4, {"--ids", "1,99"}, "index 99 is outside of"},
    {4, {"--ids", "f.npy"}, "no i64 token ids"},
    {4, {"--ids", "below.npy"}, "no i64 token ids of 0 or more"},
};

START_TEST(tokens_follow_by_hand) {
  const char *const *w = prompts[_i].words;
  static const int64_t ids[] = {1, 1}, below[] = {1, -1};
  static const float reals[] = {1, 1};
  write_gpt2(dir);
  write_array("p.npy", BS_I64, 1, (const int64_t[]){2}, ids);
  write_array("below.npy", BS_I64, 1, (const int64_t[]){2}, below);
  write_array("f.npy", BS_F32, 1, (const int64_t[]){2}, reals);
  ran r = bsrun(dir, "model", "generate", ".", w[0], w[1], w[2], w[3], w[4], w[5], NULL);
  must_be(&r, prompts[_i].code);
  if (prompts[_i].code == 0) {
    ck_assert_str_eq(r.out, prompts[_i].says);
  } else {
    ck_assert_msg(strstr(r.err, prompts[_i].says) != NULL, "%s", r.err);
    ck_assert_str_eq(r.out, prompts[_i].tokens != NULL ? prompts[_i].tokens : "");
  }
  ran_free(&r);
}
END_TEST

static const struct {
  const char *line;
  int code;
  const char *says;
} folders[] = {
    {"generate p.npy t.npy", 0, "1 cases on cpu, 0 wrong"},
    {"generate p.npy wrong.npy", 6, "other tokens"},
    {"logits p.npy empty.npy", 4, "no logits in 'empty.npy'"},
    {"generate p.npy empty.npy", 4, "no i64 token ids in 'empty.npy'"},
    {"generate p.npy t.npy\noutput p.npy y", 4, "prompts beside sizes, inputs or outputs in case 'p'"},
};

/* The same by vectors.txt, and a saved file. */
START_TEST(generation_is_checked) {
  static const int64_t ids[] = {1, 1}, next[] = {2, 3, 0, 1}, wrong[] = {2, 3, 0, 2};
  write_gpt2(dir);
  write_array("p.npy", BS_I64, 1, (const int64_t[]){2}, ids);
  write_array("wrong.npy", BS_I64, 1, (const int64_t[]){4}, wrong);
  write_array("empty.npy", BS_F32, 2, (const int64_t[]){0, 4}, NULL);
  ran r = bsrun(dir, "model", "generate", ".", "--ids", "p.npy", "--tokens", "4", "--save", "t.npy", "-o",
                "json", NULL);
  must_be(&r, 0);
  json_t *row = json_loads(r.out, 0, NULL), *tokens = json_object_get(row, "tokens");
  ck_assert_uint_eq(json_array_size(tokens), 4);
  for (size_t i = 0; i < 4; i++) ck_assert(json_integer_value(json_array_get(tokens, i)) == next[i]);
  json_decref(row);
  ran_free(&r);
  for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
    char index[200];
    snprintf(index, sizeof index, "blockshock-vectors 1\nmodel .\ncase p\n%s\n", folders[i].line);
    write_text(dir, "vectors.txt", index);
    r = bsrun(dir, "model", "check", ".", NULL);
    must_be(&r, folders[i].code);
    ck_assert_msg(strstr(folders[i].code == 4 ? r.err : r.out, folders[i].says) != NULL, "%s%s", r.out,
                  r.err);
    ran_free(&r);
  }
}
END_TEST

/* The nodes of a prompt's last run: of one token behind the others, of the whole prompt. */
START_TEST(nodes_of_prompts_are_checked) {
  static const int64_t ids[] = {1, 1}, next[] = {2, 3, 0};
  static const float logits[] = {0, 0, 4, 0};
  static const char *const lines[] = {"generate p.npy t.npy", "generate p.npy one.npy", "logits p.npy l.npy"};
  write_gpt2(dir);
  write_array("p.npy", BS_I64, 1, (const int64_t[]){2}, ids);
  write_array("t.npy", BS_I64, 1, (const int64_t[]){3}, next);
  write_array("one.npy", BS_I64, 1, (const int64_t[]){1}, next);
  write_array("l.npy", BS_F32, 2, (const int64_t[]){1, 4}, logits);
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    char index[200];
    snprintf(index, sizeof index, "blockshock-vectors 1\nmodel .\ntolerance 9\ncase p\n%s\n", lines[i]);
    write_text(dir, "vectors.txt", index);
    ran r = bsrun(dir, "model", "check", ".", "--nodes", "--out", "off", "-o", "json", NULL);
    must_be(&r, 0);
    json_t *result = json_loads(r.out, 0, NULL);
    ck_assert_msg(json_array_size(json_object_get(result, "nodes")) > 5, "%s: %s", lines[i], r.out);
    ck_assert_int_eq(json_integer_value(json_object_get(result, "failed")), 0);
    json_decref(result);
    ran_free(&r);
    r = bsrun(dir, "model", "check", ".", "--nodes", "--out", "off", NULL);
    ck_assert_msg(
        strstr(r.out, "1 cases on cpu, 0 wrong; ") != NULL && strstr(r.out, " nodes, 0 wrong") != NULL, "%s",
        r.out);
    ran_free(&r);
  }
}
END_TEST

int main(void) {
  return run_tests("bsrun_model_check",
                   (test_case[]){{folders_with_vectors, TEST_COUNT(indexes)},
                                 {nodes_of_a_folder_and_of_a_model},
                                 {outputs_are_held_against_the_graph_as_written, 3},
                                 {a_wrong_kernel_is_told, 2},
                                 {nodes_on_ref_are_told},
                                 {a_check_is_kept},
                                 {tokens_follow_by_hand, TEST_COUNT(prompts)},
                                 {generation_is_checked},
                                 {nodes_of_prompts_are_checked},
                                 {0}},
                   (test_setup){dir_make, dir_remove});
}
