/* SPDX-License-Identifier: MIT
 * test_report_page.c - the page of a sweep of 12 points, made of stored records: its title, the order of its
 * sections, which charts are open, one colour a method, one spelling of a mask. BS_TEST_PAGE=FILE also writes
 * the page there, for scripts/check-report. */
#include "lab/report/model.h"

#include "tests/lab/store_runs.h"
#include "tests/run_tests.h"

static const char env[] =
    "{\"cpu\":{\"model\":\"Test CPU\",\"cores_online\":8},\"system\":{\"host\":\"box\"},"
    "\"command\":\"bsrun --method a --phase time\"}\n";
static const char *const methods[] = {"blockshock", "my_method", "row_parallel"};

/* [low, high] of a comparison and its word; every point has its own. */
static json_t *comparison(const char *against, double speedup) {
  const double low = speedup * 0.95, high = speedup * 1.05;
  const char *word = low > 1 ? "FASTER" : high < 1 ? "SLOWER" : "UNCLEAR";
  return json_pack("{s:s, s:f, s:f, s:f, s:s, s:s}", "against", against, "speedup", speedup, "low", low,
                   "high", high, "word", word, "cause", word[0] == 'U' ? "machine disturbed" : "");
}

static json_t *arm(const char *name, const char *method, int ranks, double seconds) {
  json_t *one =
      json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:s, s:f, s:{s:f}, s:{s:f, s:f, s:f}}", "name",
                name, "method", method, "world_size", ranks, "threads_per_rank", 1, "median_s", seconds,
                "low_s", seconds * 0.98, "high_s", seconds * 1.02, "flops", 1e9, "limit", "compute",
                "share_of_limit", 0.5, "predicted_s", "total", seconds * 1.1, "bound_s", "total", seconds / 2,
                "compute", seconds / 2, "memory", seconds / 3);
  ck_assert_ptr_nonnull(one);
  return one;
}

static json_t *record_of(int point, const char *method, int N, int B) {
  const double dense = 1e-9 * N * (N / 1000.0) * (16 + B), all = 0.8 + 0.03 * point, one = 1.1 + 0.05 * point;
  json_t *record = json_pack(
      "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:s, s:s, s:f, s:f, s:I, s:I, s:{s:{s:f, s:i}, "
      "s:{s:f, s:i}}, s:[o, o, o], s:[o, o], s:[s], s:f}",
      "phase", "phase1_forward", "method", method, "sweep", "s12", "point", point, "seq", 0, "N", N, "K", N,
      "B", B, "dtype", "bf16", "world_size", 2, "mask", "complement_1100_0011", "backend", "cpu", "median_s",
      dense / all, "timestamp_unix", 1795974313.0 + 60 * point, "wire_bytes_per_forward",
      (json_int_t)4 * N * B, "memory_peak_bytes", (json_int_t)4 * N * N, "timings_ms", "forward", "p50_ms",
      dense * 1e3, "count", 1, "allreduce", "p50_ms", dense * 2e2, "count", 1, "arms",
      arm("method", method, 2, dense / all), arm("dense, one rank's cores", "dense", 1, dense * one / all),
      arm("dense, all cores", "dense", 1, dense), "comparisons", comparison("dense, one rank's cores", one),
      comparison("dense, all cores", all), "measuring_warnings", "involuntary switches", "relative_error",
      0.002);
  ck_assert_ptr_nonnull(record);
  return record;
}

static void keep_point(int point, const char *method, int N, int B) {
  char id[40];
  bs_error err = BS_ERROR_INIT;
  bs_run *run;
  snprintf(id, sizeof id, "20261129_174500_%06d", point);
  const bs_run_request q = {.out_dir = dir,
                            .group = "s12",
                            .phase = "phase1_forward",
                            .method = method,
                            .run_id = id,
                            .key = KEY,
                            .config = config,
                            .env = env,
                            .seed = 7};
  json_t *record = record_of(point, method, N, B);
  ck_assert_msg(bs_store_begin(&q, &run, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_store_append(run, record, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_store_commit(run, "ok", &err) == BS_OK, "%s", err.message);
  json_decref(record);
}

/* The page of `points` of: three sizes, two batches, two methods. The caller frees it. */
static bs_text page_of(int points) {
  bs_error err = BS_ERROR_INIT;
  bs_page page = {0};
  bs_text text = {0};
  json_t *model = NULL;
  bs_chart *charts = NULL;
  setup();
  for (int i = 0; i < points; i++) keep_point(i, methods[i % 3], 512 << i / 3 % 4, 64);
  const bs_report_request request = {.root = dir, .command = "bsrun report s12"};
  ck_assert_msg(bs_report_model(&request, &model, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_report_charts(model, &charts, &page.n_charts, &err) == BS_OK, "%s", err.message);
  page.model = model;
  page.charts = charts;
  ck_assert_int_eq(bs_report_html(&page, &text, &err), BS_OK);
  bs_charts_free(charts, page.n_charts);
  json_decref(model);
  teardown();
  return text;
}

static size_t count_of(const char *text, const char *end, const char *what) {
  size_t n = 0;
  for (const char *p = text; (p = strstr(p, what)) != NULL && p < end; p++) n++;
  return n;
}

static const char *at(const bs_text *page, const char *what) {
  const char *found = strstr(page->data, what);
  ck_assert_msg(found != NULL, "the page has no %s", what);
  return found;
}

START_TEST(the_title_says_what_when_where_against_what) {
  bs_text page = page_of(12);
  const char *file = getenv("BS_TEST_PAGE");
  FILE *out = file != NULL ? fopen(file, "w") : NULL;
  if (out != NULL) {
    ck_assert_uint_eq(fwrite(page.data, 1, page.size, out), page.size);
    fclose(out);
  }
  at(&page, "<title>Sweep s12: blockshock, my_method, row_parallel, N = K 512 to 4096, B 64, bf16, P 2 - ");
  at(&page, "<h1>Sweep s12: blockshock, my_method, row_parallel, N = K 512 to 4096, B 64, bf16, P 2</h1>");
  at(&page,
     "2026-11-29 17:45 to 17:56 UTC; Test CPU, 8 cores, host box; against dense on all cores and "
     "dense on one rank&#39;s cores</p>");
  at(&page,
     "<p class=\"verdict\">No numbers were judged. Speedup against dense on all cores: best 1.13 "
     "[1.07, 1.19] (row_parallel, N 4096); 12 settings from 0.8 to 1.13. "
     "Against dense on one rank&#39;s cores: best 1.65 [");
  bs_text_free(&page);
}
END_TEST

START_TEST(what_a_reader_must_know_is_above_the_charts) {
  static const char *const ids[] = {"settings", "warnings", "unclear", "repeat", "charts", "environment"};
  bs_text page = page_of(12);
  const char *before = page.data;
  char id[40];
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
    snprintf(id, sizeof id, "<h2 id=\"%s\"", ids[i]);
    const char *here = at(&page, id);
    ck_assert_msg(here > before, "%s is too early", ids[i]);
    before = here;
  }
  at(&page, "<b>12 times</b>: involuntary switches</li>"); /* what all runs say is said once */
  bs_text_free(&page);
}
END_TEST

START_TEST(six_charts_are_open_and_the_rest_is_folded) {
  bs_text page = page_of(12);
  const char *end = page.data + page.size, *more = at(&page, "<details class=\"more\">");
  const size_t all = count_of(page.data, end, "<figure"), open = count_of(page.data, more, "<figure");
  char words[60];
  ck_assert_uint_eq(open, 6);
  ck_assert_uint_gt(all, 6);
  snprintf(words, sizeof words, "<summary>%zu more charts</summary>", all - open);
  at(&page, words);
  /* One text is not below every chart. */
  ck_assert_uint_le(count_of(page.data, end,
                             "A line is one way to split the layer; several runs at one place "
                             "are their median, and the band is their spread."),
                    2);
  ck_assert_uint_eq(count_of(page.data, end, "A tile is a speedup"), 1);
  bs_text_free(&page);
}
END_TEST

/* "verdict" is the fourth column at most, so that 400 pixels show it. */
START_TEST(the_verdict_is_among_the_first_columns) {
  bs_text page = page_of(12);
  const char *table = at(&page, "<thead>"), *verdict = at(&page, ">verdict</th>");
  ck_assert_uint_le(count_of(table, verdict, "<th "), 4);
  ck_assert_ptr_null(strstr(page.data, "complement_"));
  at(&page, "<caption>All rows: ");
  at(&page, "mask 1100/0011");
  bs_text_free(&page);
}
END_TEST

/* The names of the legends, each with its class, as {name: class}. */
static json_t *legend_of(const char *text) {
  json_t *colours = json_object();
  for (const char *p = text; (p = strstr(p, "class=\"s")) != NULL; p++) {
    char css[8] = "", name[120] = "";
    if (sscanf(p,
               "class=\"%7[s0-9] fill\"/>\n<text x=\"%*[0-9.]\" y=\"%*[0-9.]\" text-anchor=\"start\" "
               "class=\"name\">%119[^<]",
               css, name) != 2)
      continue;
    if (strncmp(name, "dense", 5) != 0) name[strcspn(name, ",")] = '\0';
    const char *known = json_string_value(json_object_get(colours, name));
    ck_assert_msg(known == NULL || strcmp(known, css) == 0, "%s is %s and %s", name, known, css);
    json_object_set_new(colours, name, json_string(css));
  }
  return colours;
}

START_TEST(a_method_has_one_colour) {
  bs_text page = page_of(12);
  json_t *colours = legend_of(page.data);
  ck_assert_uint_eq(json_object_size(colours), 5);
  ck_assert_str_eq(bs_row_text(colours, "blockshock"), "s0");
  ck_assert_str_eq(bs_row_text(colours, "row_parallel"), "s1");
  ck_assert_str_eq(bs_row_text(colours, "dense, all cores"), "s4");
  ck_assert_int_ge(bs_row_text(colours, "my_method")[1], '5');
  ck_assert_int_ne(bs_row_text(colours, "my_method")[1], '6');
  json_t *seen = json_object(), *css;
  const char *name;
  json_object_foreach(colours, name, css) json_object_set_new(seen, json_string_value(css), json_true());
  ck_assert_uint_eq(json_object_size(seen), 5); /* and none has that of another */
  json_decref(seen);
  json_decref(colours);
  bs_text_free(&page);
}
END_TEST

/* One or two marks are no chart: the table says the same. */
START_TEST(two_points_are_no_chart) {
  bs_text page = page_of(2);
  ck_assert_ptr_null(strstr(page.data, "chart-forest"));
  ck_assert_ptr_null(strstr(page.data, "-over-"));
  at(&page, "chart-regions");
  bs_text_free(&page);
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_title_says_what_when_where_against_what},
                             {what_a_reader_must_know_is_above_the_charts},
                             {six_charts_are_open_and_the_rest_is_folded},
                             {the_verdict_is_among_the_first_columns},
                             {a_method_has_one_colour},
                             {two_points_are_no_chart},
                             {0}};
  return run_tests("report_page", tests, (test_setup){0});
}
