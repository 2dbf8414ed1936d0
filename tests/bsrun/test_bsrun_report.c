/* SPDX-License-Identifier: MIT
 * test_bsrun_report.c - `bsrun report`: the page, charts, CSV and tables of runs, and the original's records.
 */
#include <jansson.h>

#include "tests/bsrun/original.h"
#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

/* Two small runs: a proof, and one in virtual time. */
static void make_runs(void) {
  ran r = bsrun(dir, "--method", "blockshock", "--phase", "0", "--n", "64", "--out", "runs", "--run-id",
                "one", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
  r = bsrun(dir, "--plugin", "sim", "--hardware", "sim-flat", "--method", "row_parallel", "--phase", "1",
            "--n", "64", "--out", "runs", "--run-id", "two", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
}

static char *read_must(const char *name) {
  char *text = read_text(dir, name);
  ck_assert_msg(text != NULL, "%s is not there", name);
  return text;
}

static size_t count(const char *text, const char *word) {
  size_t n = 0;
  for (const char *p = text; (p = strstr(p, word)) != NULL; p += strlen(word)) n++;
  return n;
}

START_TEST(the_page_says_what_was_run) {
  make_runs();
  ran r = bsrun(dir, "report", "runs", "-o", "page.html", "--svg", "svg", "--csv", "runs.csv", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "The judged setting is RIGHT."));
  ck_assert_ptr_nonnull(strstr(r.out, "report: page.html"));
  char *page = read_must("page.html"), *csv = read_must("runs.csv"), *svg = read_must("svg/regions.svg");
  static const char *const parts[] = {"<html lang=\"en\">",
                                      "class=\"verdict\"",
                                      "id=\"settings\"",
                                      "<figure id=",
                                      "<tr class=\"sim\">",
                                      "id=\"environment\"",
                                      "id=\"repeat\"",
                                      "bsrun --method blockshock --phase 0",
                                      "prefers-color-scheme:dark",
                                      "aria-sort"};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    ck_assert_msg(strstr(page, parts[i]) != NULL, "the page lacks %s", parts[i]);
  /* Nothing from outside: the one address is the name of a namespace. */
  ck_assert_uint_eq(count(page, "http"),
                    count(page, "http://www.w3.org/2000/svg") + count(page, "http-equiv"));
  ck_assert_uint_eq(count(page, "src="), 0);
  ck_assert_uint_eq(count(page, "<figure"), count(page, "</figure>"));
  ck_assert_uint_eq(count(page, "<figure"), count(page, "The data as a table"));
  ck_assert_ptr_nonnull(strstr(svg, "<style>"));
  ck_assert_ptr_nonnull(strstr(csv, ",forward_avg_ms,"));
  ck_assert_ptr_nonnull(strstr(csv, ",timings_ms,"));
  free(page);
  free(csv);
  free(svg);
  ran_free(&r);
}
END_TEST

static void shell(const char *script) {
  char command[2048];
  snprintf(command, sizeof command, "cd '%s' && BSRUN='%s' sh -c '%s'", dir, bsrun_path(), script);
  ck_assert_msg(system(command) == 0, "%s", script);
}

/* A device, a FIFO, a link and stdout are written to; none of them becomes a page. */
START_TEST(only_a_regular_file_is_replaced) {
  static const char *const scripts[] = {
      "$BSRUN report runs -q -o /dev/full 2>err; test $? = 10 && test -c /dev/full && grep -q BS-OUT-WRITE "
      "err",
      "mkfifo fi && { cat fi >read & } && $BSRUN report runs -o fi -q >words && wait && test -p fi && "
      "grep -q /html read && grep -q \"report: fi\" words",
      ": >target.html && ln -s target.html li && $BSRUN report runs -o li -q >words && test -h li && "
      "grep -q /html target.html",
      "$BSRUN report runs -o - -q >page 2>words && head -c 15 page | grep -qi doctype && test ! -e - && "
      "grep -q RIGHT words && tail -n 1 page | grep -q /html",
      "$BSRUN report runs -o /dev/stdout -q >page2 2>/dev/null && grep -q /html page2",
      "$BSRUN report runs --csv - -q 2>/dev/null | grep -q forward_avg_ms",
      "$BSRUN report runs --csv - -o - -q 2>err; test $? = 2 && grep -q BS-USE-TWICE err",
      "$BSRUN report runs --svg - -q 2>err; test $? = 2 && grep -q BS-USE-FOLDER err && test ! -e -",
  };
  make_runs();
  for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) shell(scripts[i]);
}
END_TEST

/* The one file that it writes in the root is the index. */
START_TEST(the_help_says_what_is_written) {
  ran r = bsrun(dir, "report", "--help", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "index.jsonl"));
  ran_free(&r);
}
END_TEST

START_TEST(rows_are_printed_and_chosen) {
  make_runs();
  ran r = bsrun(dir, "report", "runs", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, 0, NULL);
  ck_assert_uint_eq(json_array_size(rows), 2);
  json_decref(rows);
  ran_free(&r);
  static const char *const words[] = {"one", "phase0_correctness/blockshock",
                                      "runs/phase0_correctness/blockshock/one"};
  for (size_t i = 0; i < 3; i++) {
    r = bsrun(dir, "report", words[i], "--out", "runs", "-o", "json", NULL);
    must_be(&r, 0);
    rows = json_loads(r.out, 0, NULL);
    ck_assert_msg(json_array_size(rows) == 1, "%s: %s", words[i], r.out);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 0), "method")), "blockshock");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 0), "word")), "RIGHT");
    json_decref(rows);
    ran_free(&r);
  }
}
END_TEST

/* Of a sweep's plan the page names what was refused and what has no run, and of notes all with their kinds.
 */
START_TEST(the_page_says_what_was_not_tried) {
  make_runs();
  write_text(
      dir, "runs/plan.jsonl",
      "{\"argv\":[],\"n\":3}\n"
      "{\"i\":0,\"request_key\":\"a\",\"keys\":[\"b\"],\"settings\":{\"model.N\":\"77\"},\"duplicate_of\":"
      "null,"
      "\"refused\":null}\n"
      "{\"i\":1,\"request_key\":\"c\",\"keys\":[],\"settings\":{\"model.N\":\"3<4\"},\"refused\":\"N is "
      "odd\"}\n"
      "{\"i\":2,\"request_key\":\"a\",\"keys\":[\"b\"],\"settings\":{\"model.N\":\"78\"},\"duplicate_of\":0,"
      "\"refused\":null}\n");
  ran r = bsrun(dir, "runs", "note", "one", "--plan", "why <it> was run", "--out", "runs", NULL);
  must_be(&r, 0);
  ran_free(&r);
  r = bsrun(dir, "report", "runs", "-o", "page.html", NULL);
  must_be(&r, 0);
  char *page = read_must("page.html");
  ck_assert_ptr_nonnull(strstr(page, "<b>model.N=77</b>: not run"));
  ck_assert_ptr_nonnull(strstr(page, "<b>model.N=3&lt;4</b>: refused: N is odd"));
  ck_assert_ptr_null(strstr(page, "model.N=78"));
  ck_assert_ptr_nonnull(strstr(page, ", plan: why &lt;it&gt; was run"));
  free(page);
  ran_free(&r);
}
END_TEST

START_TEST(errors_say_what_to_do) {
  static const struct {
    const char *words[4];
    int code;
    const char *id;
  } cases[] = {{{"nothing"}, 4, "BS-REPORT-NONE"},
               {{"--original", "nowhere"}, 4, "BS-REPORT-ORIGINAL"},
               {{"--original", "."}, 4, "BS-REPORT-ORIGINAL"},
               {{"--orginal", "x"}, 2, "--original"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ran r = bsrun(dir, "report", cases[i].words[0], cases[i].words[1], NULL);
    must_be(&r, cases[i].code);
    ck_assert_msg(strstr(r.err, cases[i].id) != NULL, "%s", r.err);
    ck_assert_str_eq(r.out, "");
    ran_free(&r);
  }
  make_runs();
  ran r = bsrun(dir, "report", "runs", "-o", "no/such/folder/page.html", NULL);
  must_be(&r, 10);
  ran_free(&r);
}
END_TEST

static void original_dir(char out[1024]) {
  const char *source = getenv("BS_TEST_SOURCE_DIR");
  snprintf(out, 1024, "%s/tests/bsrun/fixtures/original", source != NULL ? source : ".");
}

/* The sample: dense_single 2048 takes 1 ms, so 8388608 bytes a ms; sweeps alone are counted. */
START_TEST(the_originals_table_has_predictions) {
  char official[1024];
  original_dir(official);
  ran r = bsrun(dir, "report", "--original", official, "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.err, "torn"));
  json_t *rows = json_loads(r.out, 0, NULL);
  ck_assert_uint_eq(json_array_size(rows), 2);
  static const struct {
    const char *key;
    double at[2];
  } cells[] = {{"N", {1024, 2048}},
               {"dense_single_ms", {0.25, 1}},
               {"dense_single_predicted_ms", {0.25, 1}},
               {"dense_tp_ms", {0.325, 0.7}},
               {"dense_tp_runs", {2, 2}},
               {"dense_tp_predicted_ms", {0.225, 0.6}},
               {"block_shock_predicted_ms", {0.25 * 9 / 16 + 0.15, 9.0 / 16 + 0.15}},
               {"allreduce_ms", {0.1, 0.1}},
               {"layout_fix_ms", {0.05, 0.05}}};
  for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
    for (size_t n = 0; n < 2; n++)
      ck_assert_double_eq_tol(json_number_value(json_object_get(json_array_get(rows, n), cells[i].key)),
                              cells[i].at[n], 1e-9);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(the_originals_records_stand_beside_ours) {
  char official[1024];
  original_dir(official);
  make_runs();
  ran r = bsrun(dir, "report", "runs", "--original", official, "-o", "both.html", "--csv", "both.csv", "-q",
                NULL);
  must_be(&r, 0);
  char *page = read_must("both.html"), *csv = read_must("both.csv");
  ck_assert_ptr_nonnull(strstr(page, "id=\"original\""));
  ck_assert_ptr_nonnull(strstr(page, "chart-original-forward_p50_ms"));
  ck_assert_ptr_nonnull(strstr(page, "chart-original-memory_peak_bytes"));
  ck_assert_uint_eq(count(csv, "\n"), 13); /* the header, ten of the sample, two of ours */
  free(page);
  free(csv);
  ran_free(&r);
}
END_TEST

/* The original's own records, where they are at hand: 342, and the medians that were published. */
START_TEST(the_originals_own_records_give_its_table) {
  const char *configs = original_configs();
  char official[1200];
  if (configs == NULL) return;
  snprintf(official, sizeof official, "%.1000s/../official", configs);
  if (access(official, R_OK) != 0) return;
  ran r = bsrun(dir, "report", "--original", official, "--csv", "all.csv", "-q", NULL);
  must_be(&r, 0);
  static const char *const cells[] = {"0.028 (8)", "0.336 (8)",  "1.536 (8)",  "4.454 (8)",
                                      "4.399 (7)", "16.539 (5)", "13.324 (4)", "15.626 (3)"};
  for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
    ck_assert_msg(strstr(r.out, cells[i]) != NULL, "%s is not in\n%s", cells[i], r.out);
  char *csv = read_must("all.csv");
  ck_assert_uint_eq(count(csv, "\n"), 343);
  free(csv);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_page_says_what_was_run},
                             {only_a_regular_file_is_replaced},
                             {the_help_says_what_is_written},
                             {rows_are_printed_and_chosen},
                             {the_page_says_what_was_not_tried},
                             {errors_say_what_to_do},
                             {the_originals_table_has_predictions},
                             {the_originals_records_stand_beside_ours},
                             {the_originals_own_records_give_its_table},
                             {0}};
  return run_tests("bsrun_report", tests, (test_setup){.before = setup, .after = teardown});
}
