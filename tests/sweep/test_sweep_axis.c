/* SPDX-License-Identifier: MIT
 * test_sweep_axis.c - axes as texts, ranges, products, batch files, and what is refused. */
#include "lab/sweep/axis.h"
#include "lab/sweep/declared.h"

#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

/* The values of an axis joined by blanks, in a static buffer. */
static const char *values_of(const char *text) {
  static char joined[512];
  bs_error err = BS_ERROR_INIT;
  json_t *axis = NULL;
  const json_t *value;
  size_t i;
  joined[0] = '\0';
  ck_assert_msg(bs_axis_parse(text, &axis, &err) == BS_OK, "%s: %s", text, err.message);
  json_array_foreach(json_object_get(axis, "values"), i, value) {
    const size_t used = strlen(joined);
    snprintf(joined + used, sizeof joined - used, "%s%s", i > 0 ? " " : "", json_string_value(value));
  }
  json_decref(axis);
  return joined;
}

START_TEST(lists_and_ranges_become_values) {
  static const char *const rows[][2] = {{"N=512", "512"},
                                        {"N=512,1024", "512 1024"},
                                        {"N=512:4096*2", "512 1024 2048 4096"},
                                        {"model.B=1:9+4", "1 5 9"},
                                        {"B=1,16:64*2", "1 16 32 64"},
                                        {"N=1Ki,4k", "1024 4000"},
                                        {"phase.lr=0.1:0.4+0.1", "0.1 0.2 0.3 0.4"},
                                        {"phase.lr=0.001:0.1*10", "0.001 0.01 0.1"},
                                        {"method=dense,blockshock", "dense blockshock"},
                                        {"mask.shares=[1,1],[3, 1]", "[1,1] [3, 1]"},
                                        {"backend=fault:cpu,cpu", "fault:cpu cpu"},
                                        {"method.half='0,1',2", "'0,1' 2"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    ck_assert_str_eq(values_of(rows[i][0]), rows[i][1]);
}
END_TEST

START_TEST(what_is_no_axis_is_refused) {
  static const char *const bad[] = {"N",
                                    "=1",
                                    "N=",
                                    "N=1,,2",
                                    "Q=1",
                                    "model.n=1",
                                    "N=4:1*2",
                                    "N=1:4*1",
                                    "N=1:4+0",
                                    "N=0:4*2",
                                    "sweep.param=x",
                                    "logging.out_dir=x",
                                    "plugin=a.so,b.so",
                                    "plugin_dirs=[a],[b]",
                                    "plugin_trust=any,owner",
                                    "phase.lr=1:0+1",
                                    "N=1:5000+1"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    json_t *axis = NULL;
    ck_assert_msg(bs_axis_parse(bad[i], &axis, &err) == BS_USAGE, "%s was taken", bad[i]);
    ck_assert_ptr_null(axis);
    ck_assert_msg(strncmp(err.id, "BS-SWEEP-", 9) == 0, "%s", err.id);
  }
}
END_TEST

static json_t *axes_of(const char *const *texts, size_t n) {
  bs_error err = BS_ERROR_INIT;
  json_t *axes = json_array(), *axis = NULL;
  for (size_t i = 0; i < n; i++) {
    ck_assert_int_eq(bs_axis_parse(texts[i], &axis, &err), BS_OK);
    json_array_append_new(axes, axis);
  }
  return axes;
}

START_TEST(several_axes_are_their_product) {
  static const char *const texts[] = {"method=dense,blockshock", "N=8,16,32"};
  static const char *const twice[] = {"N=8", "model.N=16"}, *const many[] = {"N=1:64+1", "B=1:65+1"};
  bs_error err = BS_ERROR_INIT;
  json_t *axes = axes_of(texts, 2), *points = json_array();
  ck_assert_int_eq(bs_axes_multiply(axes, points, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(points), 6);
  char *text = json_dumps(json_array_get(points, 4), JSON_COMPACT);
  ck_assert_str_eq(text, "{\"method.name\":\"blockshock\",\"model.N\":\"16\"}");
  free(text);
  json_decref(axes);
  axes = axes_of(twice, 2);
  ck_assert_int_eq(bs_axes_multiply(axes, points, &err), BS_USAGE);
  json_decref(axes);
  axes = axes_of(many, 2);
  ck_assert_int_eq(bs_axes_multiply(axes, points, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-SWEEP-POINTS");
  json_decref(axes);
  json_decref(points);
}
END_TEST

START_TEST(a_batch_file_has_a_product_a_line) {
  const char *dir = scratch_dir();
  char path[600];
  bs_error err = BS_ERROR_INIT;
  json_t *lines = json_array();
  snprintf(path, sizeof path, "%s/batch", dir);
  write_text(dir, "batch", "# points\nN=8 method=dense\n\n  N=16,32 B=1 # two\n");
  ck_assert_int_eq(bs_axes_batch(path, lines, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(lines), 2);
  ck_assert_uint_eq(json_array_size(json_array_get(lines, 1)), 2);
  write_text(dir, "batch", "N=8\nmodel.M=3\n");
  ck_assert_int_eq(bs_axes_batch(path, lines, &err), BS_USAGE);
  ck_assert_ptr_nonnull(strstr(err.where, "batch:2"));
  write_text(dir, "batch", "# nothing\n");
  json_array_clear(lines);
  ck_assert_int_eq(bs_axes_batch(path, lines, &err), BS_USAGE);
  ck_assert_int_eq(bs_axes_batch("/nowhere/batch", lines, &err), BS_INPUT);
  ck_assert_int_eq(bs_axes_batch(dir, lines, &err), BS_INPUT);
  json_decref(lines);
  remove_dir(dir);
}
END_TEST

/* Of a range with a step only powers of two; of any other set all of it. */
START_TEST(a_set_of_a_knob_becomes_values) {
  static const char *const rows[][2] = {{"off,auto,2,3", "off auto 2 3"},
                                        {"8:64*2", "8 16 32 64"},
                                        {"3:48*4,all", "3 12 48 all"},
                                        {"0:9+1,auto", "1 2 4 8 auto"},
                                        {"7:1000+10", "7"}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    const bs_knob knob = {.struct_size = sizeof knob, .name = "k", .values = rows[i][0]};
    char joined[256] = "";
    const json_t *value;
    size_t k;
    json_t *values = json_array();
    bs_declared_values(&knob, values);
    json_array_foreach(values, k, value) {
      const size_t used = strlen(joined);
      snprintf(joined + used, sizeof joined - used, "%s%s", k > 0 ? " " : "", json_string_value(value));
    }
    ck_assert_str_eq(joined, rows[i][1]);
    json_decref(values);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{lists_and_ranges_become_values}, {what_is_no_axis_is_refused},
                             {several_axes_are_their_product}, {a_batch_file_has_a_product_a_line},
                             {a_set_of_a_knob_becomes_values}, {0}};
  return run_tests("sweep_axis", tests, (test_setup){0});
}
