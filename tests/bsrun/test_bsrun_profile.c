/* SPDX-License-Identifier: MIT
 * test_bsrun_profile.c - `bsrun profile`: its parts, bounds and findings of a layer, kernels, a model and a
 * file of Nsight Compute; what is UNKNOWN without counters; what is kept. No time is judged. */
#include <jansson.h>

#include "tests/bsrun/model_files.h"
#include "tests/run_tests.h"

static json_t *load(ran *r) {
  must_be(r, 0);
  json_t *out = json_loads(r->out, 0, NULL);
  ck_assert_msg(out != NULL, "%s", r->out);
  ran_free(r);
  return out;
}

static const char *text_of(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text != NULL ? text : "";
}

static double number_of(const json_t *object, const char *key) {
  ck_assert_msg(json_is_number(json_object_get(object, key)), "no number %s", key);
  return json_number_value(json_object_get(object, key));
}

static const char *state_of(const json_t *record, const char *rule) {
  size_t i;
  json_t *row;
  json_array_foreach(json_object_get(record, "findings"), i, row) {
    if (strcmp(text_of(row, "rule"), rule) == 0) return text_of(row, "state");
  }
  return "";
}

/* Without counters no rule that needs one holds, or says that it does not. */
static void must_not_know_counters(const json_t *record) {
  static const char *const rules[] = {"few_instructions", "cache_misses", "branches"};
  for (size_t i = 0; i < 3; i++) ck_assert_str_eq(state_of(record, rules[i]), "UNKNOWN");
  ck_assert(number_of(json_object_get(record, "counters"), "known") == 0);
  ck_assert(strstr(text_of(json_object_get(record, "counters"), "reason"), "--counters off") != NULL);
}

/* call_s is the median of so many. */
static void must_spread(const json_t *record, double least, double most) {
  const json_t *calls = json_object_get(record, "calls");
  const double call_s = number_of(record, "call_s");
  ck_assert(number_of(calls, "n") >= least && number_of(calls, "n") <= most);
  ck_assert(number_of(calls, "min_s") <= call_s && call_s <= number_of(calls, "p95_s"));
}

START_TEST(a_layer) {
  ran r =
      bsrun(dir, "profile", "layer", "--method", "row_parallel", "-P", "2", "--n", "64", "--b", "8",
            "--counters", "off", "--to", "t.json", "--threads", "1", "--samples", "7", "-o", "json", NULL);
  json_t *record = load(&r), *part, *trace;
  size_t i, products = 0, sums = 0;
  double flops = 0;
  json_array_foreach(json_object_get(record, "parts"), i, part) {
    ck_assert(number_of(part, "seconds") >= 0);
    if (strcmp(text_of(part, "part"), "products") == 0) products++, flops += number_of(part, "flops");
    sums += strcmp(text_of(part, "part"), "allreduce") == 0;
  }
  ck_assert(products == 2 && sums == 2);
  ck_assert(flops == 2.0 * 8 * 64 * 64);
  const json_t *ranks = json_object_get(record, "ranks"), *bound = json_object_get(record, "bound");
  ck_assert(number_of(ranks, "n") == 2 && number_of(ranks, "imbalance") >= 1 &&
            number_of(ranks, "wait_share") >= 0);
  ck_assert(number_of(bound, "fma_share") > 0 && number_of(bound, "bytes_share") > 0);
  must_spread(record, 7, 7);
  must_not_know_counters(record);
  char *text = read_text(dir, "t.json");
  trace = json_loads(text, 0, NULL);
  ck_assert_uint_ge(json_array_size(json_object_get(trace, "traceEvents")), 4);
  free(text);
  json_decref(trace);
  json_decref(record);
}
END_TEST

START_TEST(kernels) {
  static const struct {
    const char *problem, *name, *missing; /* missing: a share that nobody knows */
  } of[] = {{"b1h2s32d16:f32:causal", "b1h2s32d16:f32:causal", "wire_share"},
            {"matmul n32k32b4:f32", "matmul n32k32b4:f32", "launch_share"}};
  for (size_t i = 0; i < 2; i++) {
    ran r = bsrun(dir, "profile", "kernel", of[i].problem, "--seconds", "0.01", "--threads", "1",
                  "--counters", "off", "--out", "runs", "-o", "json", NULL);
    json_t *record = load(&r);
    ck_assert_str_eq(text_of(json_object_get(record, "subject"), "name"), of[i].name);
    ck_assert(number_of(record, "call_s") > 0);
    must_spread(record, 5, 20000);
    const json_t *bound = json_object_get(record, "bound"),
                 *part = json_array_get(json_object_get(record, "parts"), 0);
    ck_assert(number_of(bound, "fma_share") > 0 && number_of(bound, "exp_share") >= 0 &&
              number_of(part, "flops") > 0);
    ck_assert_ptr_null(json_object_get(bound, of[i].missing));
    must_not_know_counters(record);
    json_decref(record);
  }
}
END_TEST

/* A run folder with its record, which a report shows. */
START_TEST(what_is_kept) {
  ran r = bsrun(dir, "profile", "kernel", "b1h1s16d8:f32", "--seconds", "0.01", "--threads", "1",
                "--counters", "off", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "few_instructions")); /* which needs a counter, so it is UNKNOWN */
  json_t *record = model_record(&r, 0);
  ck_assert_str_eq(text_of(record, "phase"), "profile_kernel");
  ck_assert_ptr_nonnull(json_object_get(json_object_get(record, "profile"), "findings"));
  json_decref(record);
  ran_free(&r);
  r = bsrun(dir, "runs", "list", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "profile_kernel"));
  ran_free(&r);
  r = bsrun(dir, "report", NULL);
  must_be(&r, 0);
  ran_free(&r);
  char *page = read_text(dir, "report.html");
  ck_assert_ptr_nonnull(strstr(page, "kernel b1h1s16d8:f32:full"));
  ck_assert_ptr_nonnull(strstr(page, "<td>few_instructions</td>"));
  free(page);
  r = bsrun(dir, "runs", "fsck", NULL);
  must_be(&r, 0);
  ran_free(&r);
}
END_TEST

START_TEST(a_model) {
  static const float x[] = {1, 1, -1, 1, 2, 0};
  static const double z[] = {1, 2}; /* cpu does not serve softmax in f64 */
  write_onnx(
      "two.onnx",
      "<ir_version: 10, opset_import: [\"\" : 23]> g (float[batch,2] x, double[1,2] z) => (float[batch,2] "
      "y, double[1,2] s) <float[2,2] w = {1, 2, 3, 4}> { y = MatMul (x, w) s = Softmax (z) }");
  write_array("x.npy", BS_F32, 2, (const int64_t[]){3, 2}, x);
  write_array("z.npy", BS_F64, 2, (const int64_t[]){1, 2}, z);
  ran r = bsrun(dir, "profile", "model", "two.onnx", "--input", "x=x.npy", "--input", "z=z.npy", "--threads",
                "1", "--seconds", "0.01", "--counters", "off", "-o", "json", NULL);
  json_t *record = load(&r);
  ck_assert_str_eq(state_of(record, "fallback"), "holds");
  ck_assert_str_eq(state_of(record, "exp_bound"), "no");
  ck_assert(number_of(json_object_get(record, "nodes"), "n") == 2);
  ck_assert_uint_eq(json_array_size(json_object_get(record, "parts")), 2);
  must_spread(record, 5, 1e6);
  /* The product's share of the machine's multiply-adds; the other node has none. */
  const json_t *product = json_array_get(json_object_get(record, "parts"), 0);
  if (strstr(text_of(product, "part"), "matmul") == NULL)
    product = json_array_get(json_object_get(record, "parts"), 1);
  ck_assert(number_of(product, "bound_percent") > 0 && number_of(product, "flops") > 0);
  must_not_know_counters(record);
  json_decref(record);
}
END_TEST

START_TEST(a_file_of_ncu) {
  write_text(dir, "k.csv",
             "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
             "\"0\",\"attn\",\"DRAM Throughput\",\"%\",\"82\"\n\"0\",\"attn\",\"Achieved "
             "Occupancy\",\"%\",\"20\"\n");
  ran r = bsrun(dir, "profile", "ncu", "k.csv", "-o", "json", NULL);
  json_t *record = load(&r);
  ck_assert_str_eq(state_of(record, "memory_bound"), "holds");
  ck_assert_str_eq(state_of(record, "few_warps"), "holds");
  ck_assert_str_eq(state_of(record, "compute_bound"), "no"); /* not where the memory is in use */
  ck_assert_str_eq(state_of(record, "register_cap"), "UNKNOWN");
  json_decref(record);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_layer}, {kernels}, {what_is_kept}, {a_model}, {a_file_of_ncu}, {0}};
  return run_tests("bsrun_profile", tests, (test_setup){dir_make, dir_remove, .at_once = 2});
}
