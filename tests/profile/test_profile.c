/* SPDX-License-Identifier: MIT
 * test_profile.c - files of Nsight Compute, the findings of configs/rules on numbers that are known, and what
 * is said where the processor's counters are not there. */
#include <errno.h>
#include <math.h>

#include "lab/profile/counters.h"
#include "lab/profile/ncu.h"
#include "lab/profile/profile.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  char configs[512];
  dir = scratch_dir();
  snprintf(configs, sizeof configs, "%s/configs", getenv("BS_TEST_SOURCE_DIR"));
  setenv("BS_CONFIG_DIR", configs, 1);
}
static void teardown(void) {
  remove_dir(dir);
}

/* ---- ncu ---------------------------------------------------------------------------------------- */

static int32_t keep_kernel(void *user, const json_t *kernel, size_t at, size_t all, bs_error *err) {
  (void)err;
  ck_assert_uint_eq(at, json_array_size(user));
  ck_assert_uint_lt(at, all);
  return json_array_append_new(user, json_deep_copy(kernel)) == 0 ? BS_OK : BS_NO_MEMORY;
}

/* NULL where nothing is taken. */
static int32_t read_ncu(const char *text, json_t **out, bs_error *err) {
  char path[600];
  write_text(dir, "k.csv", text);
  snprintf(path, sizeof path, "%s/k.csv", dir);
  *out = json_array();
  const int32_t rc = bs_ncu_read(path, keep_kernel, *out, err);
  if (json_array_size(*out) == 0) {
    json_decref(*out);
    *out = NULL;
  }
  return rc;
}

static double metric(const json_t *kernels, size_t i, const char *key) {
  return json_number_value(json_object_get(json_object_get(json_array_get(kernels, i), "ncu"), key));
}

START_TEST(rows_of_metrics) {
  static const char text[] =
      "==PROF== Connected to process 7\n"
      "\"ID\",\"Process ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric "
      "Value\"\r\n"
      "\"0\",\"7\",\"attn<64, 64>(params)\",\"Speed\",\"DRAM Throughput\",\"%\",\"40\"\r\n"
      "\"0\",\"7\",\"attn<64, 64>(params)\",\"Speed\",\"Duration\",\"usecond\",\"1,200.5\"\n"
      "\"1\",\"7\",\"attn<64, 64>(params)\",\"Speed\",\"DRAM Throughput\",\"%\",\"60\"\n"
      "\"2\",\"7\",\"say \"\"hi\"\"\",\"Occupancy\",\"Achieved Occupancy\",\"%\",\"12.5\"\n"
      "\"2\",\"7\",\"say \"\"hi\"\"\",\"Other\",\"Unknown Metric\",\"word\",\"n/a\"\n"
      "==WARNING== done\n";
  json_t *kernels = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(read_ncu(text, &kernels, &err) == BS_OK, "%s %s", err.message, err.where);
  ck_assert_uint_eq(json_array_size(kernels), 2);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(kernels, 0), "kernel")),
                   "attn<64, 64>(params)");
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(kernels, 1), "kernel")), "say \"hi\"");
  ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(kernels, 0), "launches")), 2);
  ck_assert(metric(kernels, 0, "dram_percent") == 50 &&
            fabs(metric(kernels, 0, "seconds") - 1.2005e-3) < 1e-12);
  ck_assert(metric(kernels, 1, "warps_percent") == 12.5);
  ck_assert_ptr_null(json_object_get(json_object_get(json_array_get(kernels, 1), "ncu"), "dram_percent"));
  json_decref(kernels);
}
END_TEST

START_TEST(rows_of_kernels) {
  static const char text[] =
      "\"ID\",\"Kernel "
      "Name\",\"gpu__time_duration.sum\",\"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_"
      "active\",\"launch__registers_per_thread\"\n"
      "\"\",\"\",\"ns\",\"%\",\"register/thread\"\n"
      "\"0\",\"gemm\",\"2000\",\"81.5\",\"168\"\n";
  json_t *kernels = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(read_ncu(text, &kernels, &err) == BS_OK, "%s", err.message);
  ck_assert(metric(kernels, 0, "tensor_percent") == 81.5 && metric(kernels, 0, "registers") == 168);
  ck_assert(fabs(metric(kernels, 0, "seconds") - 2e-6) < 1e-15);
  json_decref(kernels);
}
END_TEST

#define HEAD "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
static const struct {
  const char *text, *says, *place;
} damaged[] = {
    {"", "no header", ":0"},
    {"kernel,time\na,1\n", "no header", ":2"},
    {"\"ID\",\"Name\"\n", "no column 'Kernel Name'", ":1"},
    {"\"ID\",\"Kernel Name\",\"Metric Name\"\n", "no columns 'Metric Unit'", ":1"},
    {HEAD, "there is no kernel", ":1"},
    {HEAD "\n\"0\",\"a\",\"Duration\",\"us\",\"x\"\n", "no number", ":3"},
    {HEAD "\"0\",\"a\",\"Duration\",\"us\",\"1e999\"\n", "no number", ":2"},
    {HEAD "\"0\",\"a\",\"Duration\",\"us\",\"0x10\"\n", "no number", ":2"},
    {HEAD "\"0\",\"a\",\"Duration\",\"us\",\"1,23,456\"\n", "no number", ":2"},
    {HEAD "\"0\",\"a\",\"Duration\",\"us\",\"12 345.5\"\n", "no number", ":2"},
    {HEAD "\"0\",\"a\",\"Duration\",\"us\",\"-5\"\n", "cannot be", ":2"},
    {HEAD "\"0\",\"a\",\"Duration\",\"us\",\"0\"\n", "cannot be", ":2"},
    {HEAD "\"0\",\"a\",\"DRAM Throughput\",\"%\",\"5000\"\n", "cannot be", ":2"},
    {HEAD "\"0\",\"a\",\"DRAM Throughput\",\"%\",\"-5\"\n", "cannot be", ":2"},
    {HEAD "\"0\",\"a\",\"Duration\",\"us\",\"1,234\"\n", "no other number tells", ":2"},
    {HEAD "\"0\",\"a\",\"Duration\",\"us\",\"1,5\"\n\"0\",\"a\",\"Duration\",\"us\",\"1.5\"\n",
     "a decimal comma in", ":3"},
    {HEAD "\"0\",\"a\",\"Duration\",\"fortnight\",\"1\"\n", "unit of a time", ":2"},
    {HEAD "\"0\",\"a\",\"Duration\",\"us\"\n", "number of cells", ":2"},
    {HEAD "\"0\",\"a\n", "a quote is not closed", ":2"},
    {HEAD "\"0\",\"\xff\",\"Duration\",\"us\",\"1\"\n", "no UTF-8", ":2"},
};
START_TEST(a_damaged_file_is_told) {
  json_t *kernels = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(read_ncu(damaged[_i].text, &kernels, &err), BS_INPUT);
  ck_assert_ptr_null(kernels);
  ck_assert_msg(strstr(err.message, damaged[_i].says) != NULL, "%s", err.message);
  ck_assert_msg(strstr(err.where, damaged[_i].place) != NULL, "%s", err.where);
}
END_TEST

/* One file has one style of numbers: us, tensor %, registers. */
static const struct {
  const char *us, *percent, *other;
  double seconds, tensor;
} styles[] = {
    {"1,234.5", "81.5", "7", 1234.5e-6, 81.5},  {"1.234,5", "81,5", "7", 1234.5e-6, 81.5},
    {"12345.5", "81", "7", 12345.5e-6, 81},     {"12345,5", "81", "7", 12345.5e-6, 81},
    {"1,234", "81.5", "7", 1234e-6, 81.5},      {"1,234", "81,5", "7", 1.234e-6, 81.5},
    {"1.234", "81,5", "7", 1234e-6, 81.5},      {"1.234", "81", "7", 1.234e-6, 81},
    {"1,234,567", "1", "7", 1234567e-6, 1},     {"1.234.567", "1", "7", 1234567e-6, 1},
    {"1,234", "20,125", "7", 1.234e-6, 20.125}, /* 20125 % is no percentage */
    {"1,234", "81", "0,5", 1.234e-6, 81},       {"1,234", "81", "0.5", 1234e-6, 81},
    {"1.5e+03", "81", "7", 1500e-6, 81},
};
START_TEST(numbers_of_any_locale) {
  char text[900];
  json_t *kernels = NULL;
  bs_error err = BS_ERROR_INIT;
  snprintf(text, sizeof text,
           "\xef\xbb\xbf" HEAD
           "\"0\",\"a\",\"Duration\",\"us\",\"%s\"\n"
           "\"0\",\"a\",\"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active\",\"%%\",\"%s\"\n"
           "\"0\",\"a\",\"Elapsed Cycles\",\"cycle\",\"%s\"\n"
           "\"0\",\"a\",\"DRAM Throughput\",\"%%\",\"(!) nan\"\n"
           "\"0\",\"a\",\"Achieved Occupancy\",\"%%\",\"nan\"\n",
           styles[_i].us, styles[_i].percent, styles[_i].other);
  ck_assert_msg(read_ncu(text, &kernels, &err) == BS_OK, "%s %s", err.message, err.where);
  ck_assert_msg(fabs(metric(kernels, 0, "seconds") / styles[_i].seconds - 1) < 1e-12, "%s: %g", styles[_i].us,
                metric(kernels, 0, "seconds"));
  ck_assert_double_eq(metric(kernels, 0, "tensor_percent"), styles[_i].tensor);
  const json_t *ncu = json_object_get(json_array_get(kernels, 0), "ncu");
  ck_assert(!json_object_get(ncu, "dram_percent") && !json_object_get(ncu, "warps_percent"));
  json_decref(kernels);
}
END_TEST

/* ---- findings ----------------------------------------------------------------------------------- */

/* Which findings hold, and which are unknown: names with blanks. */
static void judge(const char *rules, const char *record, char held[300], char unknown[300]) {
  bs_error err = BS_ERROR_INIT;
  json_t *r = json_loads(record, 0, NULL), *row;
  size_t i;
  ck_assert_ptr_nonnull(r);
  ck_assert_msg(bs_profile_judge(r, rules, &err) == BS_OK, "%s", err.message);
  held[0] = unknown[0] = '\0';
  json_array_foreach(json_object_get(r, "findings"), i, row) {
    const char *state = json_string_value(json_object_get(row, "state"));
    char *to = strcmp(state, "holds") == 0 ? held : strcmp(state, "UNKNOWN") == 0 ? unknown : NULL;
    if (to == NULL) continue;
    snprintf(to + strlen(to), 300 - strlen(to), "%s ", json_string_value(json_object_get(row, "rule")));
  }
  json_decref(r);
}

#define KERNEL "{\"subject\": {\"kernel\": 1, \"model\": 0, \"dtype_bytes\": 2}, \"ranks\": {\"n\": 1}, "
#define LAYER "{\"subject\": {\"kernel\": 0, \"model\": 0}, \"ranks\": {\"n\": 2, "
#define QUIET "\"counters\": {\"ipc\": 2, \"llc_share\": 0.1, \"branch_misses_per_1000\": 1}}"
#define IDLE                                                                                  \
  "\"bound\": {\"percent\": 60, \"fma_share\": 0.6, \"exp_share\": 0, \"bytes_share\": 0.1, " \
  "\"launch_share\": 0}, "
#define NCU(tensor, dram, warps, sm)                                                                 \
  "{\"ncu\": {\"tensor_percent\": " tensor ", \"dram_percent\": " dram ", \"warps_percent\": " warps \
  ", \"sm_percent\": " sm ", \"registers\": 128}}"
#define NO_COUNTERS "few_instructions cache_misses branches "
static const struct {
  const char *rules, *record, *held, *unknown;
} known[] = {
    {"ncu", NCU("60", "30", "50", "70"), "compute_bound ", ""},
    {"ncu", NCU("60", "55", "50", "70"), "", ""},
    {"ncu", NCU("10", "71", "50", "20"), "memory_bound ", ""},
    {"ncu", NCU("10", "20", "29", "70"), "few_warps ", ""},
    {"ncu", NCU("10", "20", "50", "59"), "latency_bound ", ""},
    {"ncu", "{\"ncu\": {\"registers\": 255}}", "register_cap ",
     "compute_bound memory_bound few_warps latency_bound "},
    {"ncu", "{\"ncu\": {}}", "", "register_cap compute_bound memory_bound few_warps latency_bound "},
    {"cpu", KERNEL IDLE QUIET, "", ""},
    {"cpu",
     KERNEL "\"bound\": {\"percent\": 80, \"fma_share\": 0.8, \"exp_share\": 0.5, \"bytes_share\": 0.7, "
            "\"launch_share\": 0.2}, " QUIET,
     "compute_bound memory_bound exp_bound launch_bound ", ""},
    {"cpu",
     "{\"subject\": {\"kernel\": 1, \"model\": 0, \"dtype_bytes\": 4}, \"ranks\": {\"n\": 1}, \"bound\": "
     "{\"percent\": 80, \"fma_share\": 0.1, \"exp_share\": 0.5, \"bytes_share\": 0.1, \"launch_share\": "
     "0.1}, " QUIET,
     "exp_bound_f32 ", ""},
    {"cpu", KERNEL IDLE "\"counters\": {\"known\": 0, \"reason\": \"not permitted\"}}", "", NO_COUNTERS},
    {"cpu", KERNEL IDLE "\"counters\": {\"ipc\": 0.9, \"llc_share\": 0.5, \"branch_misses_per_1000\": 5}}",
     "few_instructions cache_misses branches ", ""},
    {"cpu", LAYER "\"imbalance\": 1.2, \"wait_share\": 0.1, \"collective_share\": 0.3}, " IDLE QUIET,
     "imbalance waiting collectives ", ""},
    {"cpu", LAYER "\"imbalance\": 1.0, \"wait_share\": 0, \"collective_share\": 0.1}, " IDLE QUIET, "", ""},
    {"cpu",
     "{\"subject\": {\"kernel\": 0, \"model\": 1}, \"ranks\": {\"n\": 1}, \"nodes\": {\"fallback\": 2, "
     "\"top_share\": 0.5}, \"bound\": {\"percent\": 49, \"fma_share\": 0.4, \"bytes_share\": 0.1, "
     "\"launch_share\": "
     "0}, " QUIET,
     "far_from_bound fallback one_node ", ""},
};
START_TEST(findings) {
  char held[300], unknown[300];
  judge(known[_i].rules, known[_i].record, held, unknown);
  ck_assert_str_eq(held, known[_i].held);
  ck_assert_str_eq(unknown, known[_i].unknown);
}
END_TEST

/* ---- counters ----------------------------------------------------------------------------------- */

static const struct {
  int error;
  int32_t paranoid;
  const char *says;
} reasons[] = {{EACCES, 4, "perf_event_paranoid is 4): sysctl kernel.perf_event_paranoid=2"},
               {EPERM, INT32_MIN, "not permitted: sysctl"},
               {ENOSYS, 2, "no perf_event"},
               {ENOENT, 2, "no such counter"},
               {EMFILE, 2, "perf_event_open:"}};
START_TEST(reasons_are_told) {
  char text[200];
  bs_counters_reason(reasons[_i].error, reasons[_i].paranoid, text, sizeof text);
  ck_assert_msg(strstr(text, reasons[_i].says) != NULL, "%s", text);
}
END_TEST

START_TEST(counters_of_calls) {
  bs_counters c;
  bs_counters_open(0, &c);
  bs_counters_start(&c);
  bs_counters_stop(&c);
  json_t *none = bs_counters_json(&c, 10, 1e-3, 1e9);
  ck_assert_int_eq(json_integer_value(json_object_get(none, "known")), 0);
  ck_assert_ptr_nonnull(json_object_get(none, "reason"));
  ck_assert_uint_eq(json_object_size(none), 2); /* no number stands for one that is not known */
  const double counts[] = {4e6, 8e6, 1e4, 1.6e4};
  memcpy(c.count, counts, sizeof counts);
  json_t *all = bs_counters_json(&c, 10, 1e-3, 1e9);
  ck_assert_int_eq(json_integer_value(json_object_get(all, "known")), 1);
  ck_assert(json_number_value(json_object_get(all, "cycles")) == 4e5);
  ck_assert(json_number_value(json_object_get(all, "ipc")) == 2);
  ck_assert(json_number_value(json_object_get(all, "branch_misses_per_1000")) == 2);
  ck_assert(fabs(json_number_value(json_object_get(all, "llc_share")) - 1e3 * 64 / 1e-3 / 1e9) < 1e-12);
  json_decref(none);
  json_decref(all);
  bs_counters_close(&c);
}
END_TEST

int main(void) {
  const test_case tests[] = {{rows_of_metrics},
                             {rows_of_kernels},
                             {a_damaged_file_is_told, TEST_COUNT(damaged)},
                             {numbers_of_any_locale, TEST_COUNT(styles)},
                             {findings, TEST_COUNT(known)},
                             {reasons_are_told, TEST_COUNT(reasons)},
                             {counters_of_calls},
                             {0}};
  return run_tests("profile", tests, (test_setup){setup, teardown, .at_once = 2});
}
