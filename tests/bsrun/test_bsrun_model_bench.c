/* SPDX-License-Identifier: MIT
 * test_bsrun_model_bench.c - `bsrun model bench`: its rows and what they are of, prefill and decode, nodes
 * that ref would serve, the nodes' times. No time is judged. */
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>

#include "formats/onnx_write.h"
#include "tests/bsrun/model_files.h"
#include "tests/run_tests.h"
#include "tests/slow.h"

static double real_of(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "%s is no number", key);
  return json_number_value(value);
}

static long long count_of(const json_t *row, const char *key) {
  return (long long)real_of(row, key);
}

/* y = relu(x w), and the largest of each row of a product in f64, which cpu does not serve. */
static void write_models(void) {
  static const float x[] = {1, 1, -1, 1, 2, 0};
  static const double wide[] = {1, 1, -1, 1, 2, 0};
  write_onnx("m.onnx",
             "<ir_version: 10, opset_import: [\"\" : 23]> g (float[batch,2] x) => (float[batch,2] y) "
             "<float[2,2] w = {1, 2, 3, 4}> { p = MatMul (x, w) y = Relu (p) }");
  write_onnx("top.onnx",
             "<ir_version: 10, opset_import: [\"\" : 23]> g (double[batch,2] x) => (double[batch,1] y) "
             "<double[2,2] w = {1, 2, 3, 4}, int64[1] a = {1}> { p = MatMul (x, w) y = ReduceMax (p, a) }");
  write_array("x.npy", BS_F32, 2, (const int64_t[]){3, 2}, x);
  write_array("wide.npy", BS_F64, 2, (const int64_t[]){3, 2}, wide);
}

/* A row's times: an interval around the median, of samples that are there. */
static void must_be_sampled(const json_t *row) {
  const double median = real_of(row, "median_s");
  ck_assert(median > 0 && real_of(row, "low_s") <= median && real_of(row, "high_s") >= median);
  ck_assert(real_of(row, "min_s") <= median && real_of(row, "first_s") > 0);
  ck_assert_int_ge(count_of(row, "pairs"), 5);
  ck_assert_int_eq((long long)json_array_size(json_object_get(row, "samples_s")), count_of(row, "pairs"));
}

static void must_be_timed(const json_t *row) {
  must_be_sampled(row);
  ck_assert_str_eq(json_string_value(json_object_get(row, "phase")), "steady-hot");
}

static json_t *load_result(ran *r) {
  must_be(r, 0);
  json_t *result = json_loads(r->out, 0, NULL);
  ck_assert_msg(result != NULL, "%s", r->out);
  ran_free(r);
  return result;
}

START_TEST(a_run) {
  write_models();
  ran r = bsrun(dir, "model", "bench", "m.onnx", "--input", "x=x.npy", "--seconds", "0.01", "--threads", "1",
                "--show", "nodes", "-o", "json", NULL);
  json_t *result = load_result(&r);
  const json_t *rows = json_object_get(result, "rows"), *row = json_array_get(rows, 0);
  const json_t *nodes = json_object_get(result, "profile");
  ck_assert_uint_eq(json_array_size(rows), 1);
  must_be_timed(row);
  ck_assert(real_of(result, "median_s") == real_of(row, "median_s"));
  ck_assert_str_eq(json_string_value(json_object_get(row, "work")), "run");
  ck_assert_str_eq(json_string_value(json_object_get(row, "backend")), "cpu");
  ck_assert(count_of(row, "threads") == 1 && count_of(row, "fallback_nodes") == 0);
  ck_assert(count_of(row, "flops") >= 24 && real_of(row, "gflops") > 0 && real_of(row, "pack_s") > 0);
  ck_assert(json_is_null(json_object_get(row, "tokens_per_s")));
  ck_assert_int_eq(count_of(json_object_get(result, "dims"), "batch"), 3);
  ck_assert_int_eq((long long)json_array_size(nodes), count_of(row, "nodes"));
  double share = 0;
  for (size_t i = 0; i < json_array_size(nodes); i++) {
    share += real_of(json_array_get(nodes, i), "share");
    ck_assert_int_ge(count_of(json_array_get(nodes, i), "runs"), 3);
  }
  ck_assert(share > 0.99 && share < 1.01);
  const json_t *memory = json_object_get(result, "memory");
  ck_assert(real_of(memory, "resident_bytes") > 0 && real_of(memory, "bar_bytes") > 0);
  /* A sanitizer takes more memory. */
  ck_assert(BS_SLOW || json_is_true(json_object_get(memory, "within")));
  json_decref(result);
}
END_TEST

/* ---- a quantised file does not grow in memory ------------------------------------------------ */

enum { WIDTH = 256, ROWS = 16384, PRODUCTS = 4 };

static int32_t fill_bytes(void *ctx, uint64_t offset, uint64_t bytes, void *out, bs_error *err) {
  (void)err;
  unsigned char *to = out;
  for (uint64_t i = 0; i < bytes; i++) {
    const uint64_t at = offset + i;
    /* Of floats: 1 + a little. */
    to[i] = ctx == NULL    ? (unsigned char)(at * 31u % 251u)
            : at % 4u == 3 ? 0x3f
            : at % 4u == 2 ? 0x80
                           : (unsigned char)(at % 199u);
  }
  return BS_OK;
}

/* As quantize_dynamic makes it: a table of floats that are not aligned in the file, products by u8. */
static void write_quantised(const char *name) {
  bs_onnx model;
  bs_error err = BS_ERROR_INIT;
  char path[800], to[800], text[1600];
  static const char *const names[PRODUCTS] = {"w0", "w1", "w2", "w3"};
  bs_span dropped[PRODUCTS + 1];
  bs_onnx_new_tensor tensors[PRODUCTS + 1];
  int at = snprintf(text, sizeof text,
                    "<ir_version: 10, opset_import: [\"\" : 21]> g (int64[tokens] ids, float[%d,%d] table",
                    ROWS, WIDTH);
  for (int i = 0; i < PRODUCTS; i++)
    at += snprintf(text + at, sizeof text - (size_t)at, ", uint8[%d,%d] w%d", WIDTH, ROWS, i);
  at += snprintf(text + at, sizeof text - (size_t)at,
                 ") => (float[tokens,1] y) <uint8 z = {119}, float s = {0.001}, int64[1] last = {1}> { x = "
                 "Gather (table, ids) q, sx, zx = DynamicQuantizeLinear (x) ");
  for (int i = 0; i < PRODUCTS; i++)
    at += snprintf(text + at, sizeof text - (size_t)at,
                   "p%d = MatMulInteger (q, w%d, zx, z) f%d = Cast <to: int = 1> (p%d) m%d = ReduceMax (f%d, "
                   "last) ",
                   i, i, i, i, i, i);
  snprintf(text + at, sizeof text - (size_t)at,
           "a = Add (m0, m1) b = Add (m2, m3) c = Add (a, b) d = Mul (c, s) y = Mul (d, sx) }");
  for (int i = 0; i <= PRODUCTS; i++) {
    const char *tensor = i < PRODUCTS ? names[i] : "table";
    const int64_t bytes = (int64_t)ROWS * WIDTH * (i < PRODUCTS ? 1 : 4);
    dropped[i] = (bs_span){tensor, strlen(tensor)};
    tensors[i] = (bs_onnx_new_tensor){.name = tensor,
                                      .type = i < PRODUCTS ? 2u : 1u,
                                      .rank = 2,
                                      .dims = {i < PRODUCTS ? WIDTH : ROWS, i < PRODUCTS ? ROWS : WIDTH},
                                      .bytes = (uint64_t)bytes,
                                      .ctx = i < PRODUCTS ? NULL : to,
                                      .fill = fill_bytes};
  }
  const bs_onnx_edits edits = {
      .dropped = dropped, .n_dropped = PRODUCTS + 1, .tensors = tensors, .n_tensors = PRODUCTS + 1};
  write_onnx("small.onnx", text);
  snprintf(path, sizeof path, "%s/small.onnx", dir);
  snprintf(to, sizeof to, "%s/%s", dir, name);
  ck_assert_msg(bs_onnx_open(path, &model, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_onnx_write(&model, &edits, to, &err) == BS_OK, "%s", err.message);
  bs_onnx_close(&model);
  ck_assert_msg(bs_onnx_open(to, &model, &err) == BS_OK, "%s", err.message);
  int unaligned = 0;
  for (uint32_t i = 0; i < model.graph->n_initializers; i++)
    unaligned +=
        model.graph->initializers[i].type == 1u && ((uintptr_t)model.graph->initializers[i].data & 3u) != 0;
  bs_onnx_close(&model);
  ck_assert_int_ge(unaligned, 1);
}

START_TEST(a_quantised_file) {
  write_quantised("q.onnx");
  ran r = bsrun(dir, "model", "bench", "q.onnx", "--dim", "tokens=32", "--seconds", "0.01", "--threads", "1",
                "-o", "json", NULL);
  json_t *result = load_result(&r);
  const json_t *memory = json_object_get(result, "memory");
  const double packed = real_of(memory, "packed_bytes");
  ck_assert(packed > PRODUCTS * ROWS * WIDTH && packed < 1.1 * PRODUCTS * ROWS * WIDTH);
  ck_assert_msg(BS_SLOW || json_is_true(json_object_get(memory, "within")), "resident %g, bar %g",
                real_of(memory, "resident_bytes"), real_of(memory, "bar_bytes"));
  json_decref(result);
}
END_TEST

START_TEST(prefill_and_decode) {
  write_gpt2(dir);
  ran r = bsrun(dir, "model", "bench", ".", "--dim", "sequence=6", "--seconds", "0.01", "--threads", "1",
                "--force", "--show", "nodes", "-o", "json", NULL);
  json_t *result = load_result(&r);
  static const char *const works[] = {"prefill", "decode"};
  static const int tokens[] = {6, 1}, before[] = {0, 6};
  const json_t *rows = json_object_get(result, "rows");
  ck_assert_uint_eq(json_array_size(rows), 2);
  for (size_t i = 0; i < 2; i++) {
    const json_t *row = json_array_get(rows, i);
    must_be_timed(row);
    ck_assert_str_eq(json_string_value(json_object_get(row, "work")), works[i]);
    ck_assert(count_of(row, "tokens") == tokens[i] && count_of(row, "cache_tokens") == before[i]);
    const double rate = real_of(row, "tokens_per_s") * real_of(row, "median_s");
    ck_assert(rate > 0.999 * tokens[i] && rate < 1.001 * tokens[i]);
  }
  ck_assert(json_is_true(json_object_get(result, "made_inputs")));
  ck_assert_int_eq(count_of(json_object_get(result, "dims"), "sequence"), 6);
  /* Each row has the seconds of its own binding. */
  static const char *const seconds[] = {"lower_s", "pass_s", "plan_s", "prepare_s"};
  for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
    const double first = real_of(json_array_get(rows, 0), seconds[i]),
                 then = real_of(json_array_get(rows, 1), seconds[i]);
    const double all = real_of(json_object_get(result, "stats"), seconds[i]);
    ck_assert_msg(first > 0 && then > 0 && fabs(all - first - then) < 1e-9, "%s: %g + %g, not %g", seconds[i],
                  first, then, all);
  }
  ck_assert_str_eq(json_string_value(json_object_get(result, "profile_work")), "decode");
  ck_assert_uint_gt(json_array_size(json_object_get(result, "profile")), 3);
  json_decref(result);
}
END_TEST

START_TEST(ref_serves_only_where_it_is_allowed) {
  write_models();
  ran r = bsrun(dir, "model", "bench", "top.onnx", "--input", "x=wide.npy", "--seconds", "0.01", NULL);
  must_be(&r, 3);
  ck_assert_msg(strstr(r.err, "BS-MODEL-FALLBACK") != NULL && strstr(r.err, "matmul") != NULL, "%s", r.err);
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
  r = bsrun(dir, "model", "bench", "top.onnx", "--input", "x=wide.npy", "--seconds", "0.01", "--force", "-o",
            "csv", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.err, "1 nodes ran on ref") != NULL, "%s", r.err);
  ck_assert_msg(strstr(r.out, "fallback_nodes") != NULL && strstr(r.out, "\nrun,") != NULL, "%s", r.out);
  ran_free(&r);
  r = bsrun(dir, "model", "bench", "top.onnx", "--input", "x=wide.npy", "--seconds", "0.01", "--backend",
            "ref", NULL);
  must_be(&r, 0); /* ref does not fall back on itself */
  ran_free(&r);
}
END_TEST

/* A record for each row, with the sums of the model's files; none with --out off. */
START_TEST(records) {
  char model[700];
  snprintf(model, sizeof model, "%s/.gpt2", dir); /* no run is kept in a folder with such a name */
  ck_assert_int_eq(mkdir(model, 0755), 0);
  write_gpt2(model);
  ran r = bsrun(dir, "model", "bench", ".gpt2", "--dim", "sequence=6", "--seconds", "0.01", "--threads", "1",
                "--force", "--run-id", "mine", NULL);
  must_be(&r, 0);
  ck_assert_msg(
      strstr(r.out, "run: results/raw/model_bench/_gpt2/") != NULL && strstr(r.out, "/mine\n") != NULL, "%s",
      r.out);
  for (int i = 0; i < 2; i++) {
    json_t *record = model_record(&r, i);
    const json_t *inputs = json_object_get(record, "inputs");
    must_be_sampled(record);
    ck_assert_str_eq(json_string_value(json_object_get(record, "phase")), "model_bench");
    ck_assert_str_eq(json_string_value(json_object_get(record, "work")), i == 0 ? "prefill" : "decode");
    ck_assert_str_eq(json_string_value(json_object_get(record, "status")), "ok");
    ck_assert_uint_ge(json_array_size(json_object_get(record, "plugins")), 2);
    ck_assert_uint_eq(json_array_size(inputs), 2); /* config.json, model.safetensors */
    ck_assert_uint_eq(strlen(json_string_value(json_object_get(json_array_get(inputs, 1), "sha256"))), 64);
    json_decref(record);
  }
  char *config = read_text(run_folder(&r, dir, 0), "config.yaml");
  ck_assert_msg(strstr(config, "- \"sequence=6\"") != NULL && strstr(config, "seconds: 0.01") != NULL, "%s",
                config);
  free(config);
  ran_free(&r);
  r = bsrun(dir, "model", "bench", ".gpt2", "--dim", "sequence=6", "--seconds", "0.01", "--force", "--out",
            "off", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "run: ") == NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

/* Prefill and decode are rows of their own, with the fields of a run of a phase, wherever runs are looked at.
 */
START_TEST(rows_of_a_run) {
  static const struct {
    const char *words[7], *says[2];
  } looks[] = {{{"runs", "list"}, {"  prefill  ", "  decode  "}},
               {{"runs", "show", "ranks"}, {"\narm               prefill\n", "\ndecode: median_s  "}},
               {{"report", "-o", "csv"}, {",model_bench,prefill,", ",model_bench,decode,"}},
               {{"compare", "ranks", "ranks", "-o", "csv"}, {"\nprefill,", "\ndecode,"}}};
  static const char *const works[] = {"prefill", "decode"};
  const json_t *row;
  size_t i;
  char model[700];
  snprintf(model, sizeof model, "%s/toy", dir);
  ck_assert_int_eq(mkdir(model, 0755), 0);
  write_gpt2(model);
  ran r = bsrun(dir, "model", "bench", "toy", "--dim", "sequence=6", "--seconds", "0.01", "--threads", "1",
                "--method", "row_parallel", "-P", "2", "--launch", "processes", "--force", "--run-id",
                "ranks", NULL);
  must_be(&r, 0);
  json_t *record = model_record(&r, 1);
  ck_assert_int_eq(json_integer_value(json_object_get(record, "threads")), 1);
  json_decref(record);
  char *config = read_text(run_folder(&r, dir, 0), "config.yaml");
  ck_assert_msg(strstr(config, "launch: processes") != NULL && strstr(config, "threads: 1") != NULL, "%s",
                config);
  free(config);
  ran_free(&r);
  r = bsrun(dir, "runs", "list", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, 0, NULL);
  ck_assert_uint_eq(json_array_size(rows), 2);
  json_array_foreach(rows, i, row) {
    ck_assert_str_eq(json_string_value(json_object_get(row, "arm")), works[i]);
    ck_assert_str_eq(json_string_value(json_object_get(row, "method")), "row_parallel");
    ck_assert_str_eq(json_string_value(json_object_get(row, "launch")), "processes");
    ck_assert_str_eq(json_string_value(json_object_get(row, "comm")), "shm");
    ck_assert_int_eq(json_integer_value(json_object_get(row, "world_size")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "threads_per_rank")), 1);
  }
  json_decref(rows);
  ran_free(&r);
  for (i = 0; i < sizeof looks / sizeof looks[0]; i++) {
    const char *const *w = looks[i].words;
    r = bsrun(dir, w[0], w[1], w[2], w[3], w[4], NULL);
    must_be(&r, 0);
    for (size_t k = 0; k < 2; k++)
      ck_assert_msg(strstr(r.out, looks[i].says[k]) != NULL, "%s %s: %s", w[0], looks[i].says[k], r.out);
    ran_free(&r);
  }
}
END_TEST

/* A terminal is told what lasts more than half a second, and the line is wiped out. */
START_TEST(progress_on_a_terminal) {
  char said[8192], name[128], out[900];
  size_t used = 0;
  int status;
  write_models();
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ck_assert(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
  ck_assert_int_eq(ptsname_r(master, name, sizeof name), 0);
  snprintf(out, sizeof out, "%s/stdout", dir);
  const int tty = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  const int file = open(out, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ck_assert(tty >= 0 && file >= 0);
  const pid_t pid = fork();
  if (pid == 0) {
    if (dup2(file, 1) < 0 || dup2(tty, 2) < 0 || chdir(dir) != 0) _exit(125);
    execl(bsrun_path(), "bsrun", "model", "bench", "m.onnx", "--input", "x=x.npy", "--seconds", "0.6",
          "--threads", "1", "--out", "off", (char *)NULL);
    _exit(126);
  }
  close(tty);
  close(file);
  for (ssize_t n; (n = read(master, said + used, sizeof said - 1 - used)) > 0 || (n < 0 && errno == EINTR);)
    used += n > 0 ? (size_t)n : 0;
  said[used] = '\0';
  close(master);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x: %s", status, said);
  ck_assert_msg(strstr(said, "\r\033[Kmodel: run, pairs") != NULL, "%s", said);
  char *text = read_text(dir, "stdout");
  ck_assert_msg(strchr(text, '\033') == NULL && strstr(text, "run ") != NULL, "%s", text);
  free(text);
}
END_TEST

static const struct {
  const char *words[4], *says;
  int code;
} bad[] = {
    {{"m.onnx", "--input", "y=x.npy"}, "the model has no input 'y'", 2},
    {{"m.onnx", "--seconds", "0"}, "BS-USE-NUMBER", 2},
    {{"missing.onnx"}, "missing.onnx", 4},
    {{"m.onnx", "--input", "x=x.npy", "--backend=none"}, "none", 3},
    {{".", "--dim", "sequence=16"}, "the cache holds 16", 2},
    {{".", "--cache-tokens", "1"}, "the cache holds 1", 2},
};

START_TEST(what_is_wrong_is_said) {
  write_models();
  write_gpt2(dir);
  const char *const *w = bad[_i].words;
  ran r = bsrun(dir, "model", "bench", w[0], w[1], w[2], w[3], NULL);
  must_be(&r, bad[_i].code);
  ck_assert_msg(strstr(r.err, bad[_i].says) != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  return run_tests("bsrun_model_bench",
                   (test_case[]){{a_run},
                                 {a_quantised_file},
                                 {prefill_and_decode},
                                 {ref_serves_only_where_it_is_allowed},
                                 {records},
                                 {rows_of_a_run},
                                 {progress_on_a_terminal},
                                 {what_is_wrong_is_said, TEST_COUNT(bad)},
                                 {0}},
                   (test_setup){dir_make, dir_remove});
}
