/* SPDX-License-Identifier: MIT
 * test_run_input.c - weights, inputs and bias from files that are broken, hostile, or hold NaN and Inf,
 * through bsrun: exit 4, one error line that names the file, nothing else; allow_nonfinite says what it lets
 * through. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run_help.h"
#include "tests/run_tests.h"

enum { N = 8, K = 6, B = 4 };
static char folder[64];

static const char *const common[] = {"--plugin",
                                     "cpu",
                                     "--method",
                                     "row_parallel",
                                     "--phase",
                                     "0",
                                     "-q",
                                     "--out",
                                     "out",
                                     "--workload",
                                     "file",
                                     "--set",
                                     "phase.fault_gate=false",
                                     "--set",
                                     "phase.timed_iters=1",
                                     "--set",
                                     "model.dtype=f32",
                                     "--set",
                                     "model.B=4",
                                     NULL};

/* Version 1.0 with `header` padded as NumPy does, then `size` bytes of data. */
static void write_npy(const char *name, const char *header, const void *data, size_t size) {
  unsigned char bytes[4096];
  size_t length = strlen(header);
  memcpy(bytes, "\x93NUMPY\x01\x00", 8);
  memcpy(bytes + 10, header, length);
  while ((10 + length + 1) % 64 != 0) bytes[10 + length++] = ' ';
  bytes[10 + length++] = '\n';
  bytes[8] = (unsigned char)(length & 255u);
  bytes[9] = (unsigned char)(length >> 8);
  memcpy(bytes + 10 + length, data, size);
  run_write(folder, name, bytes, 10 + length + size);
}

static void write_safetensors(const char *name, const char *header, size_t claimed, size_t data_size) {
  unsigned char bytes[4096] = {0};
  for (size_t i = 0; i < 8; i++) bytes[i] = (unsigned char)((unsigned long long)claimed >> (8 * i));
  memcpy(bytes + 8, header, strlen(header));
  run_write(folder, name, bytes, 8 + strlen(header) + data_size);
}

static void setup(void) {
  static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 6), }";
  float w[N * K];
  run_make_folder(folder);
  for (int i = 0; i < N * K; i++) w[i] = (float)(i % 7) - 3.0f;
  write_npy("w.npy", header, w, sizeof w);
}
static void teardown(void) {
  run_remove(folder);
}

/* ---- .npy --------------------------------------------------------------------------------------------- */

typedef struct npy_case {
  const char *header, *id, *what;
  size_t size; /* of data */
} npy_case;
static const npy_case npys[] = {
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (8, 6), }", "BS-NPY-SHORT", "a row is missing", 168},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (8, 6), }", "BS-NPY-TRAILING", "4 bytes too many",
     196},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (8, 6), }", "BS-NPY-DTYPE", "objects", 192},
    {"{'descr': '<U4', 'fortran_order': False, 'shape': (8, 6), }", "BS-NPY-DTYPE", "text", 192},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (8, 3), }", "BS-NPY-DTYPE", "complex numbers", 192},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (8, 6), }", "BS-NPY-DTYPE", "records", 192},
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (8, 6), }", "BS-NPY-ENDIAN", "big endian", 192},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "BS-NPY-SHAPE",
     "a product that wraps", 192},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-8, 6), }", "BS-NPY-SHAPE", "a negative size", 192},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (8, 6)", "BS-NPY-HEADER", "an open dictionary", 192},
    {"{'descr': '<f4', 'shape': (8, 6), }", "BS-NPY-HEADER", "a key is missing", 192},
    {"__import__('os').system('touch hacked')", "BS-NPY-HEADER", "code", 192},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (48,), }", "BS-WL-SHAPE", "one dimension", 192},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 6), }", "BS-WL-SHAPE", "no rows", 0},
};

START_TEST(bad_npy) {
  static const unsigned char data[256];
  const npy_case *c = &npys[_i];
  const run_bad want = {c->what, 4, c->id, "bad.npy", {"--set", "workload.weights=bad.npy", NULL}};
  write_npy("bad.npy", c->header, data, c->size);
  run_check_bad(folder, NULL, common, &want);
  ck_assert_int_eq(run_exists(folder, "hacked"), 0);
}
END_TEST

/* ---- safetensors ----------------------------------------------------------------------------------------
 */

static const char st_good[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[0,192]}}";
typedef struct st_case {
  const char *header, *id, *what;
  size_t claimed, size; /* header length in the file (0: its own), bytes of data */
} st_case;
#define TENSOR(dtype, shape, offsets) \
  "{\"w\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
static const st_case sts[] = {
    {st_good, "BS-ST-HEADER", "a header longer than the file", 100000, 192},
    {st_good, "BS-ST-HEADER", "a header longer than the cap", (size_t)1 << 40, 192},
    {st_good, "BS-ST-HEADER", "a header length that wraps", (size_t)-1, 192},
    {st_good, "BS-ST-OFFSET", "data cut off", 0, 100},
    {st_good, "BS-ST-TRAILING", "data left over", 0, 200},
    {"{\"w\":", "BS-ST-JSON", "JSON cut off", 0, 0},
    {"[1,2]", "BS-ST-JSON", "not an object", 0, 0},
    {"{\"w\":{\"a\":{\"b\":{\"c\":{\"d\":1}}}}}", "BS-ST-JSON", "too deep", 0, 0},
    {TENSOR("F32", "[8,6]", "[192,0]"), "BS-ST-OFFSET", "offsets backwards", 0, 192},
    {TENSOR("F32", "[8,6]", "[-192,0]"), "BS-ST-OFFSET", "a negative offset", 0, 192},
    {TENSOR("F32", "[8,7]", "[0,192]"), "BS-ST-SHAPE", "a shape of more bytes", 0, 192},
    {TENSOR("F32", "[4294967296,4294967296]", "[0,192]"), "BS-ST-SHAPE", "a product that wraps", 0, 192},
    {TENSOR("F99", "[8,6]", "[0,192]"), "BS-ST-DTYPE", "an unknown dtype", 0, 192},
    {TENSOR("I16", "[8,12]", "[0,192]"), "BS-ST-DTYPE", "a dtype that is not computed with", 0, 192},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[0,192]},"
     "\"w\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[0,192]}}",
     "BS-ST-DUP", "one name twice", 0, 192},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[0,192]},"
     "\"v\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[96,288]}}",
     "BS-ST-OVERLAP", "tensors that overlap", 0, 288},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[0,192]},"
     "\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[208,212]}}",
     "BS-ST-HOLE", "bytes of no tensor", 0, 212},
    {"{\"weight\":{\"dtype\":\"F32\",\"shape\":[8,6],\"data_offsets\":[0,192]}}", "BS-ST-NOTFOUND",
     "another tensor's name", 0, 192},
    {TENSOR("F32", "[48]", "[0,192]"), "BS-WL-SHAPE", "one dimension", 0, 192},
};

START_TEST(bad_safetensors) {
  const st_case *c = &sts[_i];
  const run_bad want = {
      c->what, 4, c->id, "bad.safetensors", {"--set", "workload.weights=bad.safetensors#w", NULL}};
  write_safetensors("bad.safetensors", c->header, c->claimed != 0 ? c->claimed : strlen(c->header), c->size);
  run_check_bad(folder, NULL, common, &want);
}
END_TEST

/* ---- paths and settings ----------------------------------------------------------------------------------
 */

START_TEST(bad_paths) {
  static const run_bad rows[] = {
      {"no file", 4, "BS-NPY-READ", "none.npy", {"--set", "workload.weights=none.npy", NULL}},
      {"a folder", 4, "BS-NPY-READ", NULL, {"--set", "workload.weights=./.npy", NULL}},
      {"a pipe nobody writes to", 4, "BS-NPY-READ", "pipe.npy", {"--set", "workload.weights=pipe.npy", NULL}},
      {"a device", 4, "BS-NPY-READ", "zero", {"--set", "workload.weights=zero.npy", NULL}},
      {"an empty file", 4, "BS-NPY-MAGIC", "empty.npy", {"--set", "workload.weights=empty.npy", NULL}},
      {"an empty safetensors",
       4,
       "BS-ST-SIZE",
       NULL,
       {"--set", "workload.weights=empty.safetensors#w", NULL}},
      {"another kind of file", 4, "BS-NPY-MAGIC", "text.npy", {"--set", "workload.weights=text.npy", NULL}},
      {"no bias beside it",
       4,
       "BS-NPY-READ",
       "none.npy",
       {"--set", "workload.weights=w.npy", "--set", "workload.bias=none.npy", NULL}},
      {"X of another width",
       4,
       "BS-WL-SHAPE",
       "workload.x has K=7",
       {"--set", "workload.weights=w.npy", "--set", "workload.x=x.npy", NULL}},
      {"other sizes than the file's",
       3,
       "BS-WL-SIZE",
       "model.N is 9",
       {"--set", "workload.weights=w.npy", "--set", "model.N=9", NULL}},
      {"no weights named", 3, "BS-WL-FILE", "workload.weights", {"-q", NULL}},
  };
  static const float x[B * (K + 1)];
  char path[128];
  run_bad row = rows[_i];
  snprintf(path, sizeof path, "%s/.npy", folder);
  ck_assert_int_eq(mkdir(path, 0700), 0);
  snprintf(path, sizeof path, "%s/pipe.npy", folder);
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  snprintf(path, sizeof path, "%s/zero.npy", folder);
  ck_assert_int_eq(symlink("/dev/zero", path), 0);
  run_write(folder, "empty.npy", "", 0);
  run_write(folder, "empty.safetensors", "", 0);
  run_write(folder, "text.npy", "a text, not an array\n", 21);
  write_npy("x.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 7), }", x, sizeof x);
  if (strcmp(row.args[0], "-q") == 0) row.args[0] = "--verbose";
  run_check_bad(folder, NULL, common, &row);
}
END_TEST

/* ---- NaN and Inf
 * -------------------------------------------------------------------------------------------- */

typedef struct nonfinite_case {
  const char *file; /* which matrix has it */
  float value;
  const char *shown; /* in the message */
} nonfinite_case;
static const nonfinite_case nonfinites[] = {
    {"w", NAN, "NaN"}, {"w", INFINITY, "Inf"}, {"x", NAN, "NaN"}, {"x", -INFINITY, "Inf"}, {"b", NAN, "NaN"},
};

START_TEST(nonfinite) {
  const nonfinite_case *c = &nonfinites[_i];
  float w[N * K], x[B * K], b[N];
  static const char *const files[] = {"--set", "workload.weights=nw.npy", "--set", "workload.x=nx.npy",
                                      "--set", "workload.bias=nb.npy",    NULL};
  run_bad want = {
      "NaN or Inf", 4, "BS-IN-NAN", NULL, {files[0], files[1], files[2], files[3], files[4], files[5], NULL}};
  char name[16];
  for (int i = 0; i < N * K; i++) w[i] = (float)(i % 5);
  for (int i = 0; i < B * K; i++) x[i] = (float)(i % 3);
  for (int i = 0; i < N; i++) b[i] = 1.0f;
  for (int bad = 0; bad < 2; bad++) {
    if (bad) (c->file[0] == 'w' ? w : c->file[0] == 'x' ? x : b)[5] = c->value;
    write_npy("nw.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 6), }", w, sizeof w);
    write_npy("nx.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 6), }", x, sizeof x);
    write_npy("nb.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (8,), }", b, sizeof b);
    if (!bad) {
      char out[80];
      run_check_good(folder, NULL, common, files);
      snprintf(out, sizeof out, "%s/out", folder);
      run_remove(out);
    }
  }
  snprintf(name, sizeof name, "n%s.npy", c->file);
  want.says = name;
  run_check_bad(folder, NULL, common, &want);
}
END_TEST

/* Let through, a NaN is counted and told, never hidden: the run's text and record say so and its numbers are
 * not called right. */
START_TEST(nonfinite_allowed) {
  const char **args = run_words(
      "--plugin cpu --method row_parallel --phase 0 --out out --workload file --set workload.weights=nw.npy "
      "--set workload.allow_nonfinite=true --set model.B=4 --set model.dtype=f32 --set "
      "phase.fault_gate=false --run-id it");
  float w[N * K] = {0};
  run_result r;
  for (int i = 0; i < N * K; i++) w[i] = (float)(i % 5);
  w[7] = NAN;
  w[20] = INFINITY;
  write_npy("nw.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (8, 6), }", w, sizeof w);
  run_bsrun(&r, folder, NULL, args);
  run_expect(&r, 0, "NaN and Inf that are allowed");
  ck_assert_msg(strstr(r.out, "NaN or Inf") != NULL, "the table does not say so: %s", r.out);
  json_t *record = run_record(folder, "out/phase0_correctness/row_parallel/it");
  ck_assert(json_is_false(json_object_get(record, "valid")));
  ck_assert_int_eq((int)run_num(record, "nonfinite_inputs"), 2);
  ck_assert_int_ge((int)run_num(record, "nonfinite_outputs"), 2 * B);
  ck_assert_ptr_nonnull(strstr(run_str(record, "workload_text"), "2 NaN/Inf allowed"));
  json_decref(record);
  run_free(&r);
}
END_TEST

/* The control of every row above: the good file runs. */
START_TEST(good_files) {
  static const char *const npy[] = {"--set", "workload.weights=w.npy", NULL};
  static const char *const st[] = {"--set", "workload.weights=good.safetensors#w", NULL};
  write_safetensors("good.safetensors", st_good, strlen(st_good), 192);
  run_check_good(folder, NULL, common, npy);
  run_check_good(folder, NULL, common, st);
}
END_TEST

/* config.yaml of a run repeats it from another folder: files have absolute paths, and what was decided is
 * written down. The record has the sums of the files. */
START_TEST(a_stored_configuration_repeats_from_anywhere) {
  const char **args = run_words(
      "--method row_parallel --phase 0 -P 2 --workload file --set workload.weights=./w.npy --set "
      "phase.fault_gate=false --set model.B=4 -o jsonl");
  char dir[512], config[640], other[96];
  run_result r;
  run_bsrun(&r, folder, NULL, args);
  run_expect(&r, 0, "first");
  json_t *rows = run_rows(r.out);
  snprintf(dir, sizeof dir, "%s/%s", folder, run_str(json_array_get(rows, 0), "run_dir"));
  json_t *record = run_record(folder, dir), *input = json_array_get(json_object_get(record, "inputs"), 0);
  ck_assert_str_eq(run_str(input, "key"), "workload.weights");
  ck_assert_uint_eq(strlen(run_str(input, "sha256")), 64);
  char *text = run_read(dir, "config.yaml", NULL), *env = run_read(dir, "env.json", NULL);
  static const char *const decided[] = {"backend: cpu", "comm: threads", "world_size: 2", "bias: true"};
  for (size_t i = 0; i < 4; i++) ck_assert_msg(strstr(text, decided[i]) != NULL, "%s: %s", decided[i], text);
  ck_assert_msg(strstr(env, "\"command\": \"bsrun --method row_parallel") != NULL, "%s", env);
  run_free(&r);
  run_make_folder(other);
  snprintf(config, sizeof config, "%s/config.yaml", dir);
  const char *again[] = {"--config", config, "-q", NULL};
  run_bsrun(&r, other, NULL, again);
  run_expect(&r, 0, "from another folder");
  run_free(&r);
  run_remove(other);
  free(text);
  free(env);
  json_decref(record);
  json_decref(rows);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_stored_configuration_repeats_from_anywhere},
                             {bad_npy, TEST_COUNT(npys)},
                             {bad_safetensors, TEST_COUNT(sts)},
                             {bad_paths, 11},
                             {nonfinite, TEST_COUNT(nonfinites)},
                             {nonfinite_allowed},
                             {good_files},
                             {0}};
  return run_tests("run_input", tests, (test_setup){setup, teardown, 60});
}
