/* SPDX-License-Identifier: MIT
 * test_cuda_resources.c - what the driver says of loaded kernels over the stand-in, which reads it off their
 * code: each is told once, with the numbers of docs/gpu/resources.txt, one that has more local memory than
 * was built is warned of, and one that cannot be launched is refused before it is. */
#include <string.h>

#include "plugins/cuda/kernels.h"
#include "tests/cuda/backend.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

enum { LINES = 256 };
static struct {
  int32_t level;
  char text[320];
} lines[LINES];
static int n_lines;

static void keep_line(void *user, int32_t level, const char *plugin, int32_t rank, const char *message) {
  (void)user, (void)rank;
  const char *told = strstr(message, "kernel "); /* of DEBUG lines behind a place in the source */
  if (strcmp(plugin, "cuda") != 0 || told == NULL) return;
  ck_assert_int_lt(n_lines, LINES);
  lines[n_lines].level = level;
  snprintf(lines[n_lines++].text, sizeof lines[0].text, "%s", told);
}

/* Devices opened one after the other, as by ranks. */
static int32_t open_devices(const char *setup, uint32_t count, bs_error *err) {
  char param[1200];
  const char *dirs[] = {getenv("BS_TEST_PLUGIN_DIR")}, *params[] = {param};
  void *devices[4] = {NULL};
  bs_context *context = NULL;
  const bs_backend *b = NULL;
  void *state = NULL;
  snprintf(param, sizeof param, "cuda.driver=%s", standin_path());
  setenv("BS_CUDA_STANDIN", setup, 1);
  const bs_context_options options = {.struct_size = sizeof options,
                                      .trust = BS_TRUST_ANY,
                                      .plugin_dirs = dirs,
                                      .n_plugin_dirs = 1,
                                      .params = params,
                                      .n_params = 1,
                                      .log_level = BS_LOG_DEBUG,
                                      .log = keep_line};
  n_lines = 0;
  int32_t rc = bs_context_open(&options, &context, err);
  if (rc == BS_OK) rc = bs_find_backend(context, "cuda", &b, &state, err);
  for (uint32_t i = 0; rc == BS_OK && i < count; i++) rc = b->device_open(state, 0, &devices[i], err);
  for (uint32_t i = 0; i < count; i++)
    if (devices[i] != NULL) b->device_close(devices[i]);
  bs_context_close(context);
  return rc;
}

static int of_level(int32_t level) {
  int n = 0;
  for (int i = 0; i < n_lines; i++) n += lines[i].level == level;
  return n;
}

static const char *line_of(const char *kernel) {
  char head[80];
  snprintf(head, sizeof head, "kernel %s: ", kernel);
  for (int i = 0; i < n_lines; i++)
    if (strncmp(lines[i].text, head, strlen(head)) == 0) return lines[i].text;
  return NULL;
}

static FILE *open_file(const char *folder, const char *name) {
  char path[1200];
  snprintf(path, sizeof path, "%s/%s", getenv(folder), name);
  FILE *f = fopen(path, "r");
  ck_assert_msg(f != NULL, "%s", path);
  return f;
}

START_TEST(each_is_told_once_as_it_was_built) {
  char version[32] = "", head[64], row[200];
  int rows = 0, same_compiler = 0; /* another one gives other registers */
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(open_devices("devices=1", 3, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(of_level(BS_LOG_DEBUG), CUDA_KERNEL_COUNT_);
  ck_assert_int_eq(of_level(BS_LOG_WARN), 0);
  FILE *f = open_file("BS_TEST_BINARY_DIR", "plugins/cuda/code/version");
  ck_assert_int_eq(fscanf(f, "%31s", version), 1);
  fclose(f);
  snprintf(head, sizeof head, "# CUDA %s.", version);
  f = open_file("BS_TEST_SOURCE_DIR", "docs/gpu/resources.txt");
  while (fgets(row, sizeof row, f) != NULL) {
    if (strncmp(row, head, strlen(head)) == 0) same_compiler = 1;
    char *rest = NULL, *const code = strtok_r(row, " ", &rest), *const kernel = strtok_r(NULL, " ", &rest);
    if (strcmp(code, "sm_90a") != 0) continue;
    const long registers = strtol(rest, &rest, 10), shared = strtol(rest, &rest, 10),
               local = strtol(rest, &rest, 10);
    char numbers[200];
    rows++;
    const char *told = line_of(kernel);
    ck_assert_msg(told != NULL, "nothing is told of %s", kernel);
    snprintf(numbers, sizeof numbers,
             ": %ld registers a thread, %ld bytes of shared memory a block, %ld bytes of local", registers,
             shared, local);
    ck_assert_msg(!same_compiler || strstr(told, numbers) != NULL, "%s, not %s", told, numbers);
  }
  fclose(f);
  ck_assert_int_eq(rows, CUDA_KERNEL_COUNT_);
}
END_TEST

START_TEST(local_memory_is_warned_of) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(open_devices("devices=1;local=48", 2, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(of_level(BS_LOG_WARN), CUDA_KERNEL_COUNT_);
  ck_assert_msg(
      strstr(lines[1].text, "has 48 bytes of local memory a thread on device 0, and should have 0") != NULL,
      "%s", lines[1].text);
}
END_TEST

/* Those that say how many they may have: attention's. */
START_TEST(registers_are_warned_of) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(open_devices("devices=1;registers=100", 1, &err) == BS_OK, "%s", err.message);
  ck_assert_int_eq(of_level(BS_LOG_WARN), 8);
  for (int i = 0; i < n_lines; i++)
    ck_assert(lines[i].level != BS_LOG_WARN ||
              (strncmp(lines[i].text, "kernel attention_", 17) == 0 &&
               strstr(lines[i].text, "registers a thread on device 0") != NULL));
}
END_TEST

START_TEST(one_that_cannot_be_launched_is_refused) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(open_devices("devices=1;threads=64", 1, &err), BS_UNAVAILABLE);
  ck_assert_msg(strstr(err.message, "can have 64 threads a block on device 0, it is launched with") != NULL,
                "%s", err.message);
}
END_TEST

int main(void) {
  const test_case tests[] = {{each_is_told_once_as_it_was_built},
                             {local_memory_is_warned_of},
                             {registers_are_warned_of},
                             {one_that_cannot_be_launched_is_refused},
                             {0}};
  return run_tests("cuda_resources", tests, (test_setup){.timeout = 60});
}
