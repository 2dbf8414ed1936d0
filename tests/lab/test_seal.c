/* SPDX-License-Identifier: MIT
 * test_seal.c - what a score counts as covered, and its shares; grids in the order of their file. */
#include "lab/model/seal.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

/* A sealed cell of 1 s with 100 FLOP; without a prediction where predicted is 0. */
static json_t *cell(double predicted_s) {
  return predicted_s > 0
             ? json_pack("{s:[s], s:s, s:f, s:i}", "command", "m.onnx", "work", "run", "predicted_s",
                         predicted_s, "flops", 100)
             : json_pack("{s:[s], s:n, s:s}", "command", "m.onnx", "predicted_s", "why", "too large");
}

/* Appends the judged row of a cell that took `seconds`; 0: it was not measured. */
static void judge(json_t *rows, double predicted_s, double seconds, const char *unclear) {
  bs_error err = BS_ERROR_INIT;
  json_t *c = cell(predicted_s), *row = NULL;
  json_t *measured = json_pack("{s:f, s:f, s:f, s:i, s:s?}", "median_s", seconds, "low_s", 0.9 * seconds,
                               "high_s", 1.1 * seconds, "flops", 100, "unclear", unclear);
  ck_assert_int_eq(bs_seal_judge(c, seconds > 0 ? measured : NULL, "it failed", &row, &err), BS_OK);
  json_array_append_new(rows, row);
  json_decref(measured);
  json_decref(c);
}

static const char *word(const json_t *rows, size_t i) {
  return json_string_value(json_object_get(json_array_get(rows, i), "word"));
}

static void is(const json_t *score, const char *key, double value) {
  ck_assert_msg(json_is_number(json_object_get(score, key)), "%s is no number", key);
  ck_assert_double_eq_tol(json_number_value(json_object_get(score, key)), value, 1e-9);
}

START_TEST(shares_are_of_all_registered_cells) {
  json_t *rows = json_array();
  judge(rows, 1.05, 1, NULL);     /* + 5 % */
  judge(rows, 1.72, 2, NULL);     /* - 14 % */
  judge(rows, 1, 1, "DISTURBED"); /* exact, and not covered */
  judge(rows, 0, 1, NULL);        /* no prediction */
  judge(rows, 1, 0, NULL);        /* not measured */
  judge(rows, 0.6, 1, NULL);      /* - 40 % */
  judge(rows, 1.2, 1, NULL);      /* + 20 % */
  ck_assert_str_eq(word(rows, 0), "covered");
  ck_assert_str_eq(word(rows, 2), "UNCLEAR");
  ck_assert_str_eq(word(rows, 3), "no prediction");
  ck_assert_str_eq(word(rows, 4), "not measured");
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 3), "why")), "too large");
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 4), "why")), "it failed");
  json_t *score = bs_seal_score(rows);
  is(score, "registered", 7);
  is(score, "covered", 4);
  is(score, "within_10", 1);
  is(score, "within_15", 2);
  is(score, "within_30", 3);
  is(score, "mean_percent", 19.75);
  is(score, "bias_percent", -7.25);
  is(score, "worst_percent", -40);
  is(score, "worst", 6);
  json_decref(score);
  json_decref(rows);
}
END_TEST

START_TEST(nothing_covered_has_no_mean) {
  json_t *rows = json_array();
  judge(rows, 0, 1, NULL);
  json_t *score = bs_seal_score(rows);
  is(score, "covered", 0);
  ck_assert(json_is_null(json_object_get(score, "mean_percent")));
  ck_assert(json_is_null(json_object_get(score, "worst")));
  json_decref(score);
  json_decref(rows);
}
END_TEST

START_TEST(other_work_is_another_model) {
  bs_error err = BS_ERROR_INIT;
  json_t *c = cell(1), *row = NULL, *measured = json_pack("{s:f, s:i}", "median_s", 1.0, "flops", 101);
  ck_assert_int_eq(bs_seal_judge(c, measured, "", &row, &err), BS_INPUT);
  ck_assert_str_eq(err.id, "BS-SEAL-MODEL");
  ck_assert_ptr_null(row);
  json_decref(c);
  json_decref(measured);
}
END_TEST

static int32_t read_grid(const char *text, json_t **out, bs_error *err) {
  const char *dir = scratch_dir();
  char path[600];
  snprintf(path, sizeof path, "%s/grid.yaml", dir);
  write_text(dir, "grid.yaml", text);
  const int32_t rc = bs_seal_grid(path, out, err);
  remove_dir(dir);
  return rc;
}

START_TEST(a_grid_in_the_order_of_its_file) {
  static const char *const lines[] = {
      "gpt2 --dim sequence=3 --world-size 1 --force",   "gpt2 --dim sequence=3 --world-size 2 --force",
      "gpt2 --dim sequence=50 --world-size 1 --force",  "gpt2 --dim sequence=50 --world-size 2 --force",
      "qwen3 --dim sequence=3 --world-size 1 --force",  "qwen3 --dim sequence=3 --world-size 2 --force",
      "qwen3 --dim sequence=50 --world-size 1 --force", "qwen3 --dim sequence=50 --world-size 2 --force"};
  bs_error err = BS_ERROR_INIT;
  json_t *commands = NULL;
  ck_assert_msg(
      read_grid("dim: [sequence=3, sequence=50]\nworld-size: [1, 2]\nforce:\nmodel: [gpt2, qwen3]\n",
                &commands, &err) == BS_OK,
      "%s", err.message);
  ck_assert_uint_eq(json_array_size(commands), 8);
  for (size_t i = 0; i < 8; i++) {
    char line[200] = "";
    const json_t *text;
    size_t k;
    json_array_foreach(json_array_get(commands, i), k, text) snprintf(
        line + strlen(line), sizeof line - strlen(line), "%s%s", k > 0 ? " " : "", json_string_value(text));
    ck_assert_str_eq(line, lines[i]);
  }
  json_decref(commands);
}
END_TEST

START_TEST(a_grid_has_an_end) {
  bs_error err = BS_ERROR_INIT;
  json_t *commands = NULL;
  ck_assert_int_eq(read_grid("model: m\nseed: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]\n"
                             "threads: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]\n",
                             &commands, &err),
                   BS_INPUT);
  ck_assert_str_eq(err.id, "BS-SEAL-GRID");
  ck_assert_ptr_null(commands);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {shares_are_of_all_registered_cells}, {nothing_covered_has_no_mean}, {other_work_is_another_model},
      {a_grid_in_the_order_of_its_file},    {a_grid_has_an_end},           {0}};
  return run_tests("seal", tests, (test_setup){0});
}
