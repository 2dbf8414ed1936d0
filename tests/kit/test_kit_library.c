/* SPDX-License-Identifier: MIT
 * test_kit_library.c - the kit as a library, where no command has looked at what it is given: settings that
 * are none or too many, and a reason that is not UTF-8. */
#include <jansson.h>
#include <unistd.h>

#include "core/base/error.h"
#include "kit/conformance.h"
#include "tests/kit/kit_test.h"
#include "tests/run_tests.h"

static int32_t run_with(const char *const *params, uint32_t n, bs_error *err) {
  static char path[4200];
  bs_kit_report report;
  snprintf(path, sizeof path, "%s/bs_wrong_op.so", BS_TEST_KIT_DIR);
  const bs_kit_options o = {.plugin = path, .group = "abi", .params = params, .n_params = n};
  const int32_t rc = bs_kit_run(&o, &report, err);
  if (rc == BS_OK) bs_kit_free(&report);
  return rc;
}

START_TEST(settings_are_looked_at) {
  const char *many[65], *half = "half", *nothing = NULL;
  bs_error err = BS_ERROR_INIT;
  for (int i = 0; i < 65; i++) many[i] = "a=b";
  ck_assert_int_eq(run_with(many, 65, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-KIT-SETTING");
  ck_assert_int_eq(run_with(&half, 1, &err), BS_USAGE);
  ck_assert_ptr_nonnull(strstr(err.message, "'half'"));
  ck_assert_int_eq(run_with(&nothing, 1, &err), BS_USAGE);
  ck_assert_msg(run_with(many, 64, &err) == BS_OK, "%s", err.message);
}
END_TEST

/* Its letters beyond ASCII go, the sentence stays. */
START_TEST(a_reason_that_is_not_utf8_is_told) {
  bs_kit_row row = {
      .group = "truth", .name = "truth.supports.x", .result = BS_KIT_FAIL, .text = "gr\xf6sser than \xff 4"};
  const bs_kit_report report = {.rows = &row, .n_rows = 1, .count = {[BS_KIT_FAIL] = 1}};
  char text[4096];
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  ck_assert_int_eq(bs_kit_print(&report, BS_KIT_JSON, ends[1]), 0);
  close(ends[1]);
  const ssize_t n = read(ends[0], text, sizeof text - 1);
  close(ends[0]);
  ck_assert_int_gt(n, 0);
  json_t *root = json_loadb(text, (size_t)n, 0, NULL);
  ck_assert_str_eq(
      json_string_value(json_object_get(json_array_get(json_object_get(root, "checks"), 0), "text")),
      "gr?sser than ? 4");
  json_decref(root);
}
END_TEST

int main(void) {
  const test_case tests[] = {{settings_are_looked_at}, {a_reason_that_is_not_utf8_is_told}, {0}};
  return run_tests("kit_library", tests, (test_setup){.timeout = 60});
}
