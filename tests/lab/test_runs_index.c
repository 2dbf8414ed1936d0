/* SPDX-License-Identifier: MIT
 * test_runs_index.c - notes, baselines, names and conditions of kept runs; the cache of their rows. */
#include <sys/stat.h>

#include "lab/store/find.h"
#include "lab/store/fsck.h"
#include "lab/store/metrics.h"
#include "lab/store/notes.h"
#include "lab/store/read.h"
#include "tests/lab/store_runs.h"
#include "tests/run_tests.h"

START_TEST(notes_are_dated_and_baselines_named) {
  bs_error err = BS_ERROR_INIT;
  const char *run = "phase0_correctness/dense/run";
  json_t *notes, *names, *rows;
  keep("run", NULL);
  ck_assert_int_eq(bs_run_note(dir, run, "plan", "it will be fast", &err), BS_OK);
  ck_assert_int_eq(bs_run_note(dir, run, "observation", "it was not", &err), BS_OK);
  ck_assert_int_eq(bs_run_note(dir, run, "observation", " ", &err), BS_USAGE);
  ck_assert_int_eq(bs_run_note(dir, "phase0_correctness/dense/no", "plan", "x", &err), BS_NOT_FOUND);
  ck_assert_int_eq(bs_run_notes(dir, run, &notes, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(notes), 2);
  ck_assert_ptr_nonnull(json_object_get(json_array_get(notes, 0), "date"));
  json_decref(notes);
  ck_assert_int_eq(bs_runs_index(dir, &rows, NULL, &err), BS_OK);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 0), "note")), "it was not");
  json_decref(rows);
  ck_assert_int_eq(bs_baseline_set(dir, "main", run, &err), BS_OK);
  ck_assert_int_eq(bs_baseline_set(dir, "no/name", run, &err), BS_USAGE);
  ck_assert_int_eq(bs_baselines_read(dir, &names, &err), BS_OK);
  ck_assert_str_eq(json_string_value(json_object_get(names, "main")), run);
  json_decref(names);
  write_text(dir, "baselines.json", "[]");
  ck_assert_int_eq(bs_baselines_read(dir, &names, &err), BS_CORRUPT);
}
END_TEST

START_TEST(a_run_is_found_by_what_a_person_types) {
  static const struct {
    const char *text;
    int32_t rc;
  } cases[] = {{"2026_aa", BS_OK},     {"phase0_correctness/dense/2026_aa", BS_OK},
               {"2026_a", BS_OK},      {"2026_", BS_USAGE},
               {"none", BS_NOT_FOUND}, {"", BS_NOT_FOUND},
               {"2026_b", BS_USAGE},   {"2026_bb", BS_OK}};
  keep("2026_aa", NULL);
  keep("2026_bb", NULL);
  keep("2026_bbb", NULL);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    char *root, *run;
    ck_assert_msg(bs_run_find(dir, cases[i].text, &root, &run, &err) == cases[i].rc, "%s", cases[i].text);
    if (cases[i].rc == BS_OK) ck_assert_ptr_nonnull(strstr(run, "2026_"));
    free(root);
    free(run);
  }
  bs_error err = BS_ERROR_INIT;
  char path[700], *root, *run;
  snprintf(path, sizeof path, "%s/phase0_correctness/dense/2026_aa/", dir);
  ck_assert_int_eq(bs_run_find("elsewhere", path, &root, &run, &err), BS_OK);
  ck_assert_str_eq(run, "2026_aa");
  free(root);
  free(run);
  ck_assert_int_eq(bs_run_find(dir, path, &root, &run, &err),
                   BS_OK); /* named from the root that it is below */
  ck_assert_str_eq(root, dir);
  ck_assert_str_eq(run, "phase0_correctness/dense/2026_aa");
  free(root);
  free(run);
}
END_TEST

START_TEST(conditions_select_rows) {
  static const struct {
    const char *text;
    int holds; /* -1: refused */
  } cases[] = {{"method=dense", 1}, {"method!=dense", 0}, {"N>1k", 1},          {"N<=1024", 0},
               {"N=2Ki", 1},        {"note=null", 1},     {"passed=true", 1},   {"regions.forward<2", 1},
               {"regions.x>0", 0},  {"mathod=dense", -1}, {"method>dense", -1}, {"method", -1},
               {"=3", -1},          {"N=>3", -1},         {"speedup>=1.25", 1}, {"speedup>1.25", 0}};
  json_t *row = json_pack("{s:s, s:i, s:n, s:b, s:{s:f}, s:f}", "method", "dense", "N", 2048, "note",
                          "passed", 1, "regions", "forward", 1.5, "speedup", 1.25);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    bs_condition c;
    const int32_t rc = bs_condition_parse(cases[i].text, &c, &err);
    ck_assert_msg((rc == BS_OK) == (cases[i].holds >= 0), "%s", cases[i].text);
    if (rc == BS_OK) ck_assert_msg(bs_condition_holds(&c, row) == cases[i].holds, "%s", cases[i].text);
  }
  json_decref(row);
}
END_TEST

/* The cache makes no row that the runs do not have, and is made again whatever is in it. */
START_TEST(the_index_is_a_cache) {
  static const char *const broken[] = {NULL, "", "{\"run\": 3}\nnot json\n", "{\"torn"};
  bs_error err = BS_ERROR_INIT;
  json_t *first, *again;
  keep("a", "k");
  ck_assert_int_eq(bs_runs_index(dir, &first, NULL, &err), BS_OK);
  for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
    if (broken[i] != NULL) write_text(dir, "index.jsonl", broken[i]);
    ck_assert_int_eq(bs_runs_index(dir, &again, NULL, &err), BS_OK);
    ck_assert(json_equal(first, again));
    json_decref(again);
    char *text = read_text(dir, "index.jsonl");
    ck_assert_ptr_nonnull(strstr(text, "\"run\":\"phase0_correctness/dense/a\""));
    free(text);
  }
  ck_assert_int_eq(unlink(file_of("a", "DONE")), 0); /* it counts no longer */
  ck_assert_int_eq(bs_runs_index(dir, &again, NULL, &err), BS_OK);
  ck_assert_uint_eq(json_array_size(again), 0);
  json_decref(again);
  json_decref(first);
}
END_TEST

/* Writes index.jsonl, of one line, with `from` replaced by `to`, as long as it. sum: the line's sum is right.
 */
static void change_index(const char *from, const char *to, int sum) {
  char *text = read_text(dir, "index.jsonl"), *at = text != NULL ? strstr(text, from) : NULL;
  bs_text line = {0};
  ck_assert_ptr_nonnull(at);
  for (size_t i = 0; to[i] != '\0'; i++) at[i] = to[i];
  char *end = strstr(text, ",\"crc32c\":");
  ck_assert(end != NULL && end[22] == '\0');
  if (sum) {
    memcpy(end, "}", 2);
    bs_line_print(text, &line);
  }
  write_text(dir, "index.jsonl", sum ? line.data : text);
  bs_text_free(&line);
  free(text);
}

static json_int_t first_n(void) {
  bs_error err = BS_ERROR_INIT;
  json_t *rows;
  ck_assert_int_eq(bs_runs_index(dir, &rows, NULL, &err), BS_OK);
  const json_int_t n = json_integer_value(json_object_get(json_array_get(rows, 0), "N"));
  json_decref(rows);
  return n;
}

/* Rows that another version kept are not taken, though their run did not change. */
START_TEST(rows_of_another_version_are_made_anew) {
  keep("a", "k");
  ck_assert_int_eq(first_n(), 4);
  change_index("\"N\":4", "\"N\":9", 1);
  ck_assert_int_eq(first_n(), 9); /* the cache is used */
  change_index("\"stamp\":\"v", "\"stamp\":\"w", 1);
  ck_assert_int_eq(first_n(), 4);
}
END_TEST

/* A line without a right sum, as older versions wrote it, is not believed, and the file is made anew. */
START_TEST(lines_have_sums) {
  char *whole, *text, *end;
  keep("a", "k");
  ck_assert_int_eq(first_n(), 4);
  whole = read_text(dir, "index.jsonl");
  change_index("\"N\":4", "\"N\":9", 0);
  ck_assert_int_eq(first_n(), 4);
  text = read_text(dir, "index.jsonl");
  ck_assert_str_eq(text, whole);
  end = strstr(text, ",\"crc32c\":");
  memcpy(end, "}\n", 3);
  write_text(dir, "index.jsonl", text);
  free(text);
  ck_assert_int_eq(first_n(), 4);
  text = read_text(dir, "index.jsonl");
  ck_assert_str_eq(text, whole);
  free(text);
  free(whole);
}
END_TEST

/* fsck tells what the index has otherwise than the records, and drops it where it may. */
START_TEST(fsck_compares_the_index) {
  static const struct {
    int sum;
    const char *run, *what;
  } cases[] = {{0, "index.jsonl", "1 of 1 lines have no right crc32c and are not read"},
               {1, "phase0_correctness/dense/a", "index.jsonl says otherwise than the records"}};
  bs_error err = BS_ERROR_INIT;
  keep("a", "k");
  for (size_t i = 0; i < 2; i++) {
    for (int repair = 0; repair < 2; repair++) {
      bs_fsck f;
      ck_assert_int_eq(first_n(), 4);
      ck_assert_int_eq(bs_fsck_run(dir, repair, &f, &err), BS_OK); /* what a list wrote is right */
      ck_assert_uint_eq(json_array_size(f.rows), 0);
      bs_fsck_free(&f);
      change_index("\"N\":4", "\"N\":9", cases[i].sum);
      ck_assert_int_eq(bs_fsck_run(dir, repair, &f, &err), BS_OK);
      ck_assert_uint_eq(json_array_size(f.rows), 1);
      const json_t *row = json_array_get(f.rows, 0);
      ck_assert_str_eq(json_string_value(json_object_get(row, "run")), cases[i].run);
      ck_assert_str_eq(json_string_value(json_object_get(row, "state")), "index differs");
      ck_assert_str_eq(json_string_value(json_object_get(row, "what")), cases[i].what);
      ck_assert(json_is_string(json_object_get(row, "done")) == repair);
      ck_assert_uint_eq(f.whole, 1);
      bs_fsck_free(&f);
      if (!repair) change_index("\"N\":9", "\"N\":4", 1);
    }
  }
}
END_TEST

/* notes.jsonl as a link to another file: that file is neither written nor read. */
START_TEST(links_are_not_followed_to_notes) {
  bs_error err = BS_ERROR_INIT;
  const char *run = "phase0_correctness/dense/run";
  char target[700];
  json_t *notes;
  keep("run", NULL);
  write_text(dir, "other", "{\"text\": \"secret\"}\n");
  snprintf(target, sizeof target, "%s/other", dir);
  ck_assert_int_eq(symlink(target, file_of("run", "notes.jsonl")), 0);
  ck_assert_int_eq(bs_run_note(dir, run, "plan", "x", &err), BS_IO);
  ck_assert_ptr_nonnull(strstr(err.hint, "not followed"));
  ck_assert_int_eq(bs_run_notes(dir, run, &notes, &err), BS_IO);
  char *text = read_text(dir, "other");
  ck_assert_str_eq(text, "{\"text\": \"secret\"}\n");
  free(text);
}
END_TEST

int main(void) {
  const test_case tests[] = {{notes_are_dated_and_baselines_named},
                             {a_run_is_found_by_what_a_person_types},
                             {conditions_select_rows},
                             {the_index_is_a_cache},
                             {rows_of_another_version_are_made_anew},
                             {lines_have_sums},
                             {fsck_compares_the_index},
                             {links_are_not_followed_to_notes},
                             {0}};
  return run_tests("runs_index", tests, (test_setup){setup, teardown});
}
