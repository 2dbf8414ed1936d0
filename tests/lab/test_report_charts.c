/* SPDX-License-Identifier: MIT
 * test_report_charts.c - scales, marks and charts. Each chart of golden/rows.json is the text of
 * golden/<id>.svg; BS_TEST_GOLDEN=write writes them anew, to be looked at and committed. */
#include <math.h>

#include "lab/report/model.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static void golden_dir(char out[1024]) {
  const char *source = getenv("BS_TEST_SOURCE_DIR");
  snprintf(out, 1024, "%s/tests/lab/golden", source != NULL ? source : ".");
}

static json_t *golden_rows(void) {
  char dir[1024];
  golden_dir(dir);
  char *text = read_text(dir, "rows.json");
  ck_assert_ptr_nonnull(text);
  json_t *rows = json_loads(text, 0, NULL);
  ck_assert_ptr_nonnull(rows);
  free(text);
  return rows;
}

static void must_be_golden(const char *id, const char *svg) {
  const char *write = getenv("BS_TEST_GOLDEN");
  char dir[1024], name[80];
  golden_dir(dir);
  snprintf(name, sizeof name, "%s.svg", id);
  if (write != NULL && strcmp(write, "write") == 0) write_text(dir, name, svg);
  char *text = read_text(dir, name);
  ck_assert_msg(text != NULL, "%s/%s is not there", dir, name);
  ck_assert_msg(strcmp(text, svg) == 0, "%s is not as golden/%s:\n%s", id, name, svg);
  free(text);
}

START_TEST(ticks) {
  static const struct {
    enum bs_scale_kind kind;
    double low, high, first, last;
    size_t n;
  } cases[] = {{BS_SCALE_LINEAR, 0, 9.3, 0, 10, 6},
               {BS_SCALE_LINEAR, -3, 3, -4, 4, 5},
               {BS_SCALE_LINEAR, 5, 5, 2, 8, 4},
               {BS_SCALE_LOG2, 256, 4096, 256, 4096, 5},
               {BS_SCALE_LOG2, 300, 300, 256, 512, 2},
               {BS_SCALE_LOG10, 0.3, 40, 0.2, 50, 8},
               {BS_SCALE_LOG10, 1e-6, 1e6, 1e-6, 1e6, 7},
               {BS_SCALE_LOG10, INFINITY, -INFINITY, 1, 10, 4},
               {BS_SCALE_LINEAR, INFINITY, -INFINITY, 0, 1, 6}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bs_scale scale = bs_scale_of(cases[i].kind);
    double got[BS_SVG_TICKS];
    bs_scale_fit(&scale, cases[i].low);
    bs_scale_fit(&scale, cases[i].high);
    bs_scale_fit(&scale, NAN);
    bs_scale_round(&scale);
    const size_t n = bs_scale_ticks(&scale, got);
    ck_assert_msg(n == cases[i].n, "case %zu: %zu ticks", i, n);
    ck_assert_double_eq_tol(got[0], cases[i].first, fabs(cases[i].first) * 1e-9 + 1e-15);
    ck_assert_double_eq_tol(got[n - 1], cases[i].last, fabs(cases[i].last) * 1e-9 + 1e-15);
  }
}
END_TEST

START_TEST(places) {
  const bs_scale log2_scale = {BS_SCALE_LOG2, 256, 1024, 0, 200};
  ck_assert_double_eq_tol(bs_scale_at(&log2_scale, 512), 100, 1e-9);
  ck_assert_double_eq_tol(bs_scale_at(&log2_scale, 1e9), 200, 1e-9); /* kept within */
  ck_assert(isnan(bs_scale_at(&log2_scale, 0)));
  ck_assert(isnan(bs_scale_at(&log2_scale, NAN)));
  const bs_scale linear = {BS_SCALE_LINEAR, 0, 10, 100, 0};
  ck_assert_double_eq_tol(bs_scale_at(&linear, 2.5), 75, 1e-9);
}
END_TEST

START_TEST(a_line_has_at_most_200_points) {
  static bs_svg_point points[5000];
  bs_text text = {0};
  bs_svg svg;
  size_t n = 0;
  for (int i = 0; i < 5000; i++) points[i] = (bs_svg_point){i, i % 7, 0, 9};
  bs_svg_begin(&svg, &text, 400, 300, "<many>");
  bs_scale_fit(&svg.x, 0);
  svg.x = bs_scale_of(BS_SCALE_LINEAR);
  svg.y = bs_scale_of(BS_SCALE_LINEAR);
  bs_scale_fit(&svg.x, 0);
  bs_scale_fit(&svg.x, 4999);
  bs_scale_fit(&svg.y, 9);
  bs_svg_axes(&svg, "x", "y");
  const size_t before = text.size;
  bs_svg_line(&svg, points, 5000, "s0 line");
  for (const char *p = text.data + before; *p != '\0'; p++) n += *p == 'L' || *p == 'M';
  ck_assert_uint_eq(n, BS_SVG_POINTS);
  ck_assert_ptr_nonnull(strstr(text.data, "&lt;many&gt;"));
  bs_text_free(&text);
}
END_TEST

START_TEST(text_is_escaped) {
  bs_text text = {0};
  bs_svg_escape(&text, "a<b>&\"'\x01z");
  ck_assert_str_eq(text.data, "a&lt;b&gt;&amp;&quot;&#39; z");
  bs_text_free(&text);
}
END_TEST

static const struct {
  const char *id;
  bs_chart_fn draw;
  size_t rows; /* of its data */
} charts[] = {{"forest", bs_chart_forest, 4},     {"heat", bs_chart_heat, 3},
              {"regions", bs_chart_regions, 3},   {"residual", bs_chart_residual, 3},
              {"roofline", bs_chart_roofline, 3}, {"ecdf", bs_chart_ecdf, 5},
              {"samples", bs_chart_samples, 6}};

/* Samples of two arms, the last of the first discarded. */
static json_t *sample_rows(void) {
  json_t *rows = json_array();
  for (int i = 0; i < 6; i++)
    json_array_append_new(
        rows, json_pack("{s:s, s:i, s:f, s:b}", "series", i < 3 ? "blockshock" : "dense", "at", i % 3,
                        "seconds", 1e-3 * (1 + (i * 5) % 7), "discarded", i == 2));
  return rows;
}

START_TEST(each_chart_is_as_it_was) {
  const int sampled = _i >= 5;
  json_t *rows = sampled ? sample_rows() : golden_rows();
  bs_error err = BS_ERROR_INIT;
  bs_chart chart;
  ck_assert_msg(charts[_i].draw(rows, &chart, &err) == BS_OK, "%s", err.message);
  ck_assert_str_eq(chart.id, charts[_i].id);
  ck_assert_uint_eq(json_array_size(chart.data), charts[_i].rows);
  ck_assert_ptr_null(strstr(chart.svg.data, "row<"));
  must_be_golden(chart.id, chart.svg.data);
  bs_chart_free(&chart);
  json_decref(rows);
}
END_TEST

START_TEST(lines_are_as_they_were) {
  static const bs_lines_spec spec = {.id = "lines",
                                     .title = "Time over N",
                                     .what = "",
                                     .x = "N",
                                     .x_name = "N",
                                     .x_scale = BS_SCALE_LOG2,
                                     .y_scale = BS_SCALE_LOG10,
                                     .y = "median_s",
                                     .y_name = "ms",
                                     .factor = 1e3,
                                     .low = "low_s",
                                     .high = "high_s",
                                     .ceiling = "bound_s"};
  json_t *rows = golden_rows();
  bs_chart chart;
  ck_assert_int_eq(bs_chart_lines(rows, &spec, &chart, NULL), BS_OK);
  must_be_golden("lines", chart.svg.data);
  /* The simulated row is a series of its own, and no limit stands in it. */
  const json_t *simulated = NULL;
  for (size_t i = 0; i < json_array_size(chart.data); i++)
    if (bs_row_true(json_array_get(chart.data, i), "simulated")) simulated = json_array_get(chart.data, i);
  ck_assert_ptr_nonnull(simulated);
  ck_assert_ptr_nonnull(strstr(bs_row_text(simulated, "series"), "simulated"));
  ck_assert(isnan(bs_row_number(simulated, "ceiling")));
  bs_chart_free(&chart);
  json_decref(rows);
}
END_TEST

/* Runs repeated at one place are their median with a band, not a zigzag. */
START_TEST(repeated_runs_are_one_point) {
  static const bs_lines_spec spec = {
      .id = "m", .title = "t", .what = "", .x = "N", .x_name = "N", .y = "ms", .y_name = "ms"};
  json_t *rows = json_array();
  for (int i = 0; i < 5; i++)
    json_array_append_new(rows, json_pack("{s:s, s:i, s:f}", "method", "a", "N", 8, "ms", 1.0 + i));
  bs_chart chart;
  ck_assert_int_eq(bs_chart_lines(rows, &spec, &chart, NULL), BS_OK);
  ck_assert_uint_eq(json_array_size(chart.data), 1);
  const json_t *row = json_array_get(chart.data, 0);
  ck_assert_double_eq_tol(bs_row_number(row, "y"), 3, 1e-12);
  ck_assert_double_eq_tol(bs_row_number(row, "low"), 1, 1e-12);
  ck_assert_double_eq_tol(bs_row_number(row, "high"), 5, 1e-12);
  bs_chart_free(&chart);
  json_decref(rows);
}
END_TEST

/* A ratio is that of one run's own clock; a simulated one is marked, and no tile of measured ratios. */
START_TEST(simulated_ratios_are_marked) {
  json_t *rows = golden_rows();
  bs_chart chart;
  ck_assert_int_eq(bs_chart_forest(rows, &chart, NULL), BS_OK);
  const json_t *last = json_array_get(chart.data, 3);
  ck_assert_str_eq(bs_row_text(last, "word"), "simulated");
  ck_assert_str_eq(bs_row_text(last, "against"), "dense, one device");
  bs_chart_free(&chart);
  json_decref(rows);
}
END_TEST

/* A simulated machine may be another one: its time is a mark, and no percent is made of it. */
START_TEST(a_simulated_time_has_no_percent) {
  json_t *rows =
      json_pack("[{s:s, s:s, s:i, s:f}, {s:s, s:s, s:i, s:f, s:b}]", "method", "a", "phase", "p", "N", 8,
                "median_s", 1.0, "method", "a", "phase", "p", "N", 8, "median_s", 0.01, "simulated", 1);
  bs_chart chart;
  ck_assert_int_eq(bs_chart_residual(rows, &chart, NULL), BS_OK);
  ck_assert_uint_eq(json_array_size(chart.data), 1);
  ck_assert_double_eq_tol(bs_row_number(json_array_get(chart.data, 0), "simulated_ms"), 10, 1e-9);
  ck_assert_ptr_nonnull(strstr(chart.svg.data, "simulated: 10 ms"));
  ck_assert_ptr_null(strstr(chart.svg.data, " %"));
  bs_chart_free(&chart);
  json_decref(rows);
}
END_TEST

START_TEST(nothing_is_drawn_of_nothing) {
  json_t *rows = json_pack("[{s:s, s:n, s:s}, {}, [], n, i]", "method", "a", "speedup", "median_s", "x", 3);
  for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++) {
    bs_chart chart;
    ck_assert_int_eq(charts[i].draw(i < 5 ? rows : NULL, &chart, NULL), BS_OK);
    ck_assert_uint_eq(json_array_size(chart.data), 0);
    ck_assert_uint_eq(chart.svg.size, 0);
    bs_chart_free(&chart);
  }
  json_decref(rows);
}
END_TEST

/* Names come from plugins, files and people: the page shows them as text. */
START_TEST(hostile_names_stay_text) {
  static const char *const bad = "</script><script>alert(1)</script>\"'&";
  json_t *rows = golden_rows();
  json_t *model = json_pack(
      "{s:O, s:O, s:[{s:s, s:s}], s:[{s:s, s:s}], s:[], s:[{s:s, s:s}], s:{s:s}, s:[s], s:i, s:i, "
      "s:[{s:s, s:{s:{s:s, s:s}, s:f, s:{s:s, s:f}, s:[{s:s}], s:[{s:s, s:s}]}}]}",
      "latest", rows, "comparisons", rows, "warnings", "what", bad, "why", bad, "refused", "what", bad, "why",
      bad, "untried", "notes", "run", bad, "text", bad, "env", bad, bad, "commands", bad, "damaged", 0,
      "unfinished", 0, "profiles", "run", bad, "profile", "subject", "kind", bad, "name", bad, "call_s", 0.5,
      "bound", "limit", bad, "percent", 12.5, "parts", "part", bad, "findings", "rule", bad, "says", bad);
  ck_assert_ptr_nonnull(model);
  json_object_set_new(json_array_get(rows, 0), "method", json_string(bad));
  bs_chart chart;
  bs_text text = {0};
  ck_assert_int_eq(bs_chart_forest(rows, &chart, NULL), BS_OK);
  const bs_page page = {.model = model, .charts = &chart, .n_charts = 1};
  ck_assert_int_eq(bs_report_html(&page, &text, NULL), BS_OK);
  ck_assert_ptr_null(strstr(text.data, "<script>alert"));
  ck_assert_ptr_null(strstr(text.data, "\"'&"));
  ck_assert_ptr_nonnull(strstr(text.data, "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"));
  ck_assert_ptr_nonnull(strstr(text.data, "<h2 id=\"profiles\">"));
  ck_assert_ptr_nonnull(strstr(text.data, "0.5 s, 12.5 % of the bound by "));
  ck_assert_ptr_nonnull(strstr(text.data, "Of 3 comparisons 1 are FASTER, 1 SLOWER, 0 SAME, 1 UNCLEAR"));
  bs_text_free(&text);
  bs_chart_free(&chart);
  json_decref(model);
  json_decref(rows);
}
END_TEST

int main(void) {
  const test_case tests[] = {{ticks},
                             {places},
                             {a_line_has_at_most_200_points},
                             {text_is_escaped},
                             {each_chart_is_as_it_was, sizeof charts / sizeof charts[0]},
                             {lines_are_as_they_were},
                             {repeated_runs_are_one_point},
                             {simulated_ratios_are_marked},
                             {a_simulated_time_has_no_percent},
                             {nothing_is_drawn_of_nothing},
                             {hostile_names_stay_text},
                             {0}};
  return run_tests("report_charts", tests, (test_setup){0});
}
