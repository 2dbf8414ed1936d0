/* SPDX-License-Identifier: MIT
 * test_cuda_driver.c - a machine without NVIDIA's driver, with one that is too old, broken or without a
 * device: what the cuda backend, and bsrun, say of it. Nothing of the driver is touched before a device is
 * asked for. */
#include <jansson.h>
#include <pthread.h>

#include "tests/cuda/backend.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

/* No driver, an other library, and the stand-in with something planned; what is said. */
static const struct {
  const char *driver, *setup;
  const char *id, *message, *hint;
} wrongs[] = {
    {"libnvidia-is-not-here.so.1", NULL, "BS-CUDA-LIBRARY", "libnvidia-is-not-here.so.1: cannot open",
     "plugins.cuda.driver"},
    {"libm.so.6", NULL, "BS-CUDA-SYMBOL", "libm.so.6 has no cuInit", "too old"},
    {NULL, "plan=cuInit:1=803", "BS-CUDA-UNAVAILABLE",
     "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver",
     "different drivers"},
    {NULL, "plan=cuInit:1=999", "BS-CUDA-FAILED", "cuInit: CUDA_ERROR_UNKNOWN (999)", ""},
    {NULL, "plan=cuInit:1=12345", "BS-CUDA-FAILED", "cuInit: an unknown error (12345)", ""},
    {NULL, "devices=0", "BS-CUDA-UNAVAILABLE", "cuInit: CUDA_ERROR_NO_DEVICE (100)", "CUDA_VISIBLE_DEVICES"},
    {NULL, "plan=cuDriverGetVersion:1=3", "BS-CUDA-UNAVAILABLE", "cuDriverGetVersion", "nvidia-smi"},
};
enum { WRONGS = sizeof wrongs / sizeof wrongs[0] };

START_TEST(says_why_there_is_none) {
  const over o = over_open(wrongs[_i].driver, wrongs[_i].setup);
  bs_error err = BS_ERROR_INIT, again = BS_ERROR_INIT;
  uint32_t count = 7;
  void *device = NULL;
  ck_assert_int_eq(o.b->device_count(o.state, &count, &err), BS_UNAVAILABLE);
  ck_assert_uint_eq(count, 0);
  ck_assert_int_eq(err.code, BS_UNAVAILABLE);
  ck_assert_str_eq(err.id, wrongs[_i].id);
  ck_assert_msg(strstr(err.message, wrongs[_i].message) != NULL, "%s", err.message);
  ck_assert_msg(strstr(err.hint, wrongs[_i].hint) != NULL, "%s", err.hint);
  /* It is tried once, and told to whoever asks again. */
  ck_assert_int_eq(o.b->device_open(o.state, 0, &device, &again), BS_UNAVAILABLE);
  ck_assert_ptr_null(device);
  ck_assert_int_eq(memcmp(&err, &again, sizeof err), 0);
  if (wrongs[_i].driver == NULL) ck_assert_uint_eq(calls_of("cuInit"), 1);
  bs_context_close(o.context);
}
END_TEST

static void *count_devices(void *opaque) {
  const over *o = opaque;
  uint32_t count = 0;
  return (void *)(uintptr_t)(o->b->device_count(o->state, &count, NULL) == BS_OK ? count : 99);
}

START_TEST(is_opened_once_by_whoever_asks_first) {
  over o = over_open(NULL, "devices=3");
  pthread_t threads[6];
  ck_assert_ptr_null(dlopen(standin_path(), RTLD_NOW | RTLD_NOLOAD)); /* opened when a device is asked for */
  for (int i = 0; i < 6; i++) ck_assert_int_eq(pthread_create(&threads[i], NULL, count_devices, &o), 0);
  for (int i = 0; i < 6; i++) {
    void *count = NULL;
    pthread_join(threads[i], &count);
    ck_assert_uint_eq((uintptr_t)count, 3);
  }
  ck_assert_uint_eq(calls_of("cuInit"), 1);
  bs_context_close(o.context);
}
END_TEST

START_TEST(devices_are_told_without_a_context) {
  const over o = over_open(NULL, "devices=2;name=Test GPU;memory=123456789;capability=90;version=12080");
  bs_device_info info = {.struct_size = sizeof info};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(o.b->device_info(o.state, 1, &info, &err), BS_OK);
  ck_assert_str_eq(info.name, "Test GPU");
  ck_assert_uint_eq(info.memory_bytes, 123456789);
  ck_assert_str_eq(
      info.detail,
      "compute capability 9.0, 4 multiprocessors, driver for CUDA 12.8; several ranks may share it");
  ck_assert_int_eq(o.b->device_info(o.state, 2, &info, &err), BS_UNAVAILABLE);
  ck_assert_str_eq(err.id, "BS-CUDA-DEVICE");
  ck_assert_str_eq(err.message, "device 2 asked, there are 2");
  ck_assert_uint_eq(calls_of("cuDevicePrimaryCtxRetain"), 0);
  nothing_lives();
  over_close(&o);
}
END_TEST

/* Code for another capability: both are named, and no context is made. */
START_TEST(code_for_another_device) {
  static const char *const setups[] = {"capability=80", "capability=100"}, *const names[] = {"8.0", "10.0"};
  const over o = over_open(NULL, setups[_i]);
  bs_error err = BS_ERROR_INIT;
  void *device = NULL;
  ck_assert_int_eq(o.b->device_open(o.state, 0, &device, &err), BS_UNAVAILABLE);
  ck_assert_str_eq(err.id, "BS-CUDA-ARCH");
  ck_assert_msg(strstr(err.message, names[_i]) != NULL && strstr(err.message, "sm_90a") != NULL, "%s",
                err.message);
  ck_assert_msg(strstr(err.hint, "BS_CUDA_ARCHS") != NULL, "%s", err.hint);
  ck_assert_uint_eq(calls_of("cuDevicePrimaryCtxRetain"), 0);
  nothing_lives();
  over_close(&o);
}
END_TEST

/* ---- bsrun ------------------------------------------------------------------------------------- */

static void setup(void) {
  const char *plugins = getenv("BS_TEST_PLUGIN_DIR");
  ck_assert_ptr_nonnull(plugins);
  dir_make();
  setenv("BS_PLUGIN_PATH", plugins, 1);
}

START_TEST(a_run_ends_in_five) {
  if (wrongs[_i].setup != NULL) setenv("BS_CUDA_STANDIN", wrongs[_i].setup, 1);
  setenv("BS_CUDA_DRIVER", wrongs[_i].driver != NULL ? wrongs[_i].driver : standin_path(), 1);
  ran r = bsrun(dir, "--plugin", "cuda", "--method", "blockshock", "--set", "plugin_trust=any", NULL);
  must_be(&r, 5);
  ck_assert_msg(strstr(r.err, wrongs[_i].id) != NULL && strstr(r.err, wrongs[_i].message) != NULL &&
                    strstr(r.err, wrongs[_i].hint) != NULL,
                "%s", r.err);
  ck_assert_int_eq(result_files(dir), 0);
  ran_free(&r);
}
END_TEST

/* The row of the cuda plugin in a list. */
static void listed_as(const char *const load, const char *state, const char *why) {
  ran r = bsrun(dir, "plugins", "list", "--set", "plugin_trust=any", "-o", "json", load, NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL), *row;
  size_t i;
  int seen = 0;
  json_array_foreach(rows, i, row) {
    const char *id = json_string_value(json_object_get(row, "id"));
    const char *is = json_string_value(json_object_get(row, "state"));
    if (strcmp(id, "cuda") != 0) {
      ck_assert_msg(strcmp(is, "unavailable") != 0, "%s", r.out); /* the rest is as it was */
      continue;
    }
    seen = 1;
    ck_assert_str_eq(is, state);
    ck_assert_msg(strstr(json_string_value(json_object_get(row, "why")), why) != NULL, "%s", r.out);
  }
  ck_assert_int_eq(seen, 1);
  json_decref(rows);
  ran_free(&r);
}

/* This process has NVIDIA's driver, or has not: without the parameter what is told depends on the machine. */
START_TEST(lists_say_whether_it_can_be_used) {
  const int here = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL;
#ifndef BS_TEST_STATIC_PLUGINS /* what is linked in has no note */
  if (!here) listed_as(NULL, "unavailable", "needs libcuda.so.1, which cannot be opened here");
#endif
  if (!here) listed_as("--load", "unavailable", "NVIDIA's driver library is not available: libcuda.so.1: ");
  setenv("BS_CUDA_DRIVER", "libm.so.6", 1); /* named: no other is looked for, and it is not opened */
  listed_as(NULL, "found", "");
  listed_as("--load", "unavailable", "has no cuInit");
  setenv("BS_CUDA_DRIVER", standin_path(), 1);
  listed_as("--load", "ok", "");
  setenv("BS_CUDA_STANDIN", "devices=0", 1);
  listed_as("--load", "unavailable", "CUDA_ERROR_NO_DEVICE");
}
END_TEST

START_TEST(doctor_minds_it_when_it_is_asked_for) {
  setenv("BS_CUDA_DRIVER", "libm.so.6", 1);
  ran r =
      bsrun(dir, "doctor", "--plugin", "cuda", "-P", "1", "--set", "plugin_trust=any", "-o", "json", NULL);
  must_be(&r, 5);
  ck_assert_msg(strstr(r.out, "libm.so.6 has no cuInit") != NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

int main(void) {
  Suite *s = suite_create("cuda_driver");
  TCase *tc = tcase_create("backend"), *runs = tcase_create("bsrun");
  tcase_add_loop_test(tc, says_why_there_is_none, 0, WRONGS);
  tcase_add_test(tc, is_opened_once_by_whoever_asks_first);
  tcase_add_test(tc, devices_are_told_without_a_context);
  tcase_add_loop_test(tc, code_for_another_device, 0, 2);
  tcase_add_checked_fixture(runs, setup, dir_remove);
  tcase_add_loop_test(runs, a_run_ends_in_five, 0, WRONGS);
  tcase_add_test(runs, lists_say_whether_it_can_be_used);
  tcase_add_test(runs, doctor_minds_it_when_it_is_asked_for);
  suite_add_tcase(s, tc);
  suite_add_tcase(s, runs);
  return run_suite(s);
}
