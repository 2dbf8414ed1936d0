/* SPDX-License-Identifier: MIT
 * test_cuda_phases.c - what the record of a run on the device says of its times, its memory and its clock:
 * bsrun over the stand-in, whose events have a clock that moves by a known step. */
#include <jansson.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

static void setup(void) {
  char xdg[600];
  const char *standin = getenv("BS_TEST_CUDA_STANDIN");
  ck_assert_msg(standin != NULL, "BS_TEST_CUDA_STANDIN is not set: run the test through ctest");
  dir = scratch_dir();
  snprintf(xdg, sizeof xdg, "%s/cache", dir);
  setenv("XDG_CACHE_HOME", xdg, 1);
  setenv("BS_CUDA_DRIVER", standin, 1);
  setenv("BS_CUDA_CUBLASLT", "off", 1);
}

/* The record of a phase 1 of one dense layer; the caller releases it. */
static json_t *phase1(const char *standin, const char *option, const char *value, ran *out) {
  setenv("BS_CUDA_STANDIN", standin, 1);
  *out = bsrun(dir, "--method", "dense", "--plugin", "cuda", "--phase", "1", "-P", "1", SMALL, "--set",
               "model.K=64", "--set", "phase.dense_arm=false", "--set", "phase.pairs_min=12", "--set",
               "phase.pairs_max=12", "--set", "phase.pairs_seconds=60", "-v", option, value, NULL);
  must_be(out, 0);
  char *text = read_text(run_folder(out, dir, 0), "metrics.jsonl");
  json_t *record = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(record != NULL, "%s", text);
  free(text);
  return record;
}

static double number_in(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  ck_assert_msg(json_is_number(value), "%s is no number", key);
  return json_number_value(value);
}

/* The most that the one rank's pool held: the layer and its tensors, and not what empties the cache. */
static void check_peak(const json_t *device) {
  const json_t *peaks = json_object_get(device, "peak_bytes");
  ck_assert_uint_eq(json_array_size(peaks), 1);
  const json_int_t peak = json_integer_value(json_array_get(peaks, 0));
  ck_assert_int_ge(peak, (64 * 64 + 2 * 8 * 64) * 2);
  ck_assert_int_lt(peak, 1 << 20);
}

/* A forward lies between two records of an event: one step of 5 s, whatever the host's clock says; and the
 * host's time until all is queued is beside it, and is none of the device's. No library tells a clock. */
START_TEST(times_are_the_devices) {
  ran r;
  setenv("BS_CUDA_NVML", "off", 1);
  json_t *record = phase1("event_ns=5000000000", "--set", "phase.sync_mode=sync", &r);
  const json_t *device = json_object_get(record, "device");
  const json_t *forward = json_object_get(json_object_get(record, "timings_ms"), "forward");
  const json_t *arm = json_array_get(json_object_get(record, "arms"), 0);
  ck_assert_str_eq(json_string_value(json_object_get(device, "clock")), "events");
  ck_assert(number_in(forward, "p50_ms") == 5000.0 && number_in(forward, "max_ms") == 5000.0);
  ck_assert(number_in(device, "forward_us") == 5e6);
  const double enqueue = number_in(device, "enqueue_us"), host = number_in(device, "host_avg_us");
  ck_assert_msg(enqueue > 0 && enqueue < 1e6 && host > 0 && host < 1e6, "%g %g", enqueue, host);
  ck_assert(number_in(forward, "enqueue_p50_ms") * 1e3 == enqueue);
  ck_assert(json_is_false(json_object_get(device, "launch_bound")));
  ck_assert_ptr_null(strstr(r.err, "launch-bound"));
  ck_assert_ptr_null(strstr(r.out, "launch-bound"));
  check_peak(device);
  ck_assert(json_is_null(json_object_get(arm, "clock_mhz")) && json_is_null(json_object_get(arm, "cold")));
  ck_assert_uint_eq(json_array_size(json_object_get(arm, "held_back")), 0);
  json_decref(record);
  ran_free(&r);
}
END_TEST

static void check_clock(const json_t *arm, const char *notes) {
  const json_t *clock = json_object_get(arm, "clock_mhz"), *held = json_object_get(arm, "held_back");
  ck_assert(number_in(clock, "min") == 1200 && number_in(clock, "max") == 1980);
  ck_assert(number_in(clock, "median") == 1500 && number_in(clock, "looks") >= 10);
  ck_assert_uint_eq(json_array_size(held), 2); /* idle holds nothing back */
  const json_t *first = json_array_get(held, 0), *second = json_array_get(held, 1);
  const int cap = strcmp(json_string_value(json_object_get(first, "reason")), "power cap") == 0;
  const json_t *heat = cap ? second : first;
  ck_assert_str_eq(json_string_value(json_object_get(cap ? first : second, "reason")), "power cap");
  ck_assert_str_eq(json_string_value(json_object_get(heat, "reason")), "heat");
  ck_assert(number_in(heat, "looks") == number_in(clock, "looks"));
  ck_assert_ptr_nonnull(strstr(notes, "method: the device's clock was held back ("));
  ck_assert_ptr_nonnull(strstr(notes, "): 1200 to 1980 MHz, median 1500"));
}

/* A device that takes no time has waited for the host, and it is said. Cold: the stand-in's cache of 1 MiB is
 * written twice over before each forward. The clock is looked at behind each batch. */
START_TEST(a_device_that_waits) {
  ran r;
  setenv("BS_CUDA_NVML", NVML_STANDIN, 1);
  json_t *record = phase1("event_ns=100", "--set", "phase.cold=true", &r);
  const json_t *device = json_object_get(record, "device");
  const json_t *arm = json_array_get(json_object_get(record, "arms"), 0),
               *cold = json_object_get(arm, "cold");
  ck_assert(json_is_true(json_object_get(device, "launch_bound")));
  ck_assert_ptr_nonnull(strstr(r.err, "launch-bound: host enqueue "));
  ck_assert_ptr_nonnull(strstr(r.err, " us of 0.1 us a forward on the device"));
  ck_assert_ptr_nonnull(strstr(r.out, "launch-bound: the host takes "));
  ck_assert_str_eq(json_string_value(json_object_get(cold, "phase")), "steady-cold");
  ck_assert(number_in(cold, "flush_bytes") == 2 * 1048576.0);
  check_peak(device);
  check_clock(arm, r.err);
  json_decref(record);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{times_are_the_devices}, {a_device_that_waits}, {0}};
  return run_tests("cuda_phases", tests, (test_setup){setup, dir_remove});
}
