/* SPDX-License-Identifier: MIT
 * test_report_model.c - what a report makes of rows: names of lines, what is left out, points of a plan. */
#include "lab/report/model_parts.h"

#include "tests/lab/store_runs.h"
#include "tests/run_tests.h"

/* A model of `n` rows of the method "a", each with a dense peer. */
static json_t *model_of(int n) {
  json_t *model = json_pack("{s:[], s:[], s:[], s:[], s:[], s:[], s:[], s:[]}", "rows", "latest", "arms",
                            "comparisons", "lines", "untried", "warnings", "commands");
  json_t *rows = json_object_get(model, "rows");
  for (int i = 0; i < 2 * n; i++) {
    char run[32];
    snprintf(run, sizeof run, "phase1_forward/a/%d", i / 2);
    json_array_append_new(
        rows, json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:s, s:f, s:f, s:s, s:s}", "run", run,
                        "phase", "phase1_forward", "method", i % 2 ? "dense" : "a", "arm",
                        i % 2 ? "dense, all cores" : "method", "N", 8 + i / 2, "K", 8, "world_size", 2,
                        "threads_per_rank", 1, "host", "one", "backend", "cpu", "median_s", 1.0, "speedup",
                        1.5, "speedup_word", "FASTER", "against", "dense, all cores"));
  }
  return model;
}

/* The lines' names, sorted by nothing: "a; dense; ...", each once. */
static void names_of(const json_t *model, char *out, size_t size) {
  const json_t *lines = json_object_get(model, "lines");
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < json_array_size(lines); i++) {
    const char *series = bs_row_text(json_array_get(lines, i), "series");
    if (strstr(out, series) == NULL) used += (size_t)snprintf(out + used, size - used, "%s; ", series);
    ck_assert_uint_lt(used, size);
  }
}

/* An UNCLEAR comparison says why; a dense layer is not called dense twice. */
START_TEST(words_of_a_row_say_all_once) {
  json_t *model = model_of(1), *peer = json_array_get(json_object_get(model, "rows"), 1);
  bs_text text = {0};
  char words[200];
  bs_row_words(peer, BS_ROW_METHOD | 1u << 1, NULL, words, sizeof words);
  ck_assert_str_eq(words, "dense, all cores");
  json_t *arm = json_pack("{s:s, s:s}", "method", "blockshock", "arm",
                          "blockshock complement_1010_0101 kernel=sparse24");
  bs_row_words(arm, BS_ROW_METHOD | 1u << 1, NULL, words, sizeof words);
  ck_assert_str_eq(words, "blockshock 1010/0101 kernel=sparse24");
  json_decref(arm);
  json_object_set_new(peer, "speedup_word", json_string("UNCLEAR"));
  json_object_set_new(peer, "cause", json_string("machine disturbed"));
  ck_assert_int_eq(bs_model_derive(model, NULL), BS_OK);
  const bs_page page = {.model = model};
  ck_assert_int_eq(bs_report_html(&page, &text, NULL), BS_OK);
  ck_assert_ptr_nonnull(strstr(text.data, "against dense on all cores; machine disturbed"));
  ck_assert_ptr_nonnull(strstr(text.data, "speedup</th>")); /* against what: the caption says */
  bs_text_free(&text);
  json_decref(model);
}
END_TEST

/* Two machines, or two numbers of threads with the same ranks, are two lines, also of the dense layer. */
START_TEST(lines_of_two_machines_do_not_merge) {
  static const struct {
    const char *key;
    int32_t number; /* what the second run has; 0: the text "two" */
    int ranks;      /* its world_size */
    const char *names;
  } cases[] = {{"host", 0, 2, "a, on one; dense, all cores, on one; a, on two; dense, all cores, on two; "},
               {"backend", 0, 2, "a, cpu; dense, all cores, cpu; a, two; dense, all cores, two; "},
               {"threads_per_rank", 4, 2,
                "a, threads a rank 1; dense, all cores, threads a rank 1; a, threads a rank 4; dense, all "
                "cores, threads a rank 4; "},
               {"threads_per_rank", 4, 1, "a; dense, all cores; "},
               {"N", 64, 2, "a; dense, all cores; "}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    json_t *model = model_of(2);
    char names[400];
    for (size_t i = 2; i < 4; i++) {
      json_t *row = json_array_get(json_object_get(model, "rows"), i);
      json_object_set_new(row, cases[c].key,
                          cases[c].number ? json_integer(cases[c].number) : json_string("two"));
      json_object_set_new(row, "world_size", json_integer(cases[c].ranks));
    }
    ck_assert_int_eq(bs_model_derive(model, NULL), BS_OK);
    names_of(model, names, sizeof names);
    ck_assert_str_eq(names, cases[c].names);
    json_decref(model);
  }
}
END_TEST

START_TEST(the_page_says_what_its_charts_leave_out) {
  static const struct {
    int runs;
    const char *verdict, *below;
  } cases[] = {{500, "Of 500 comparisons", NULL},
               {501, "Of the first 500 of 501 comparisons", "the first 500 of 501 in the order"},
               {1001, "Of the first 500 of 1001", "the newest 2000 of 2002 measurements"}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    json_t *model = model_of(cases[c].runs);
    bs_text text = {0};
    ck_assert_int_eq(bs_model_derive(model, NULL), BS_OK);
    const bs_page page = {.model = model};
    ck_assert_int_eq(bs_report_html(&page, &text, NULL), BS_OK);
    ck_assert_ptr_nonnull(strstr(text.data, cases[c].verdict));
    if (cases[c].below != NULL)
      ck_assert_ptr_nonnull(strstr(text.data, cases[c].below));
    else
      ck_assert_ptr_null(strstr(text.data, "Charts of "));
    bs_text_free(&text);
    json_decref(model);
  }
}
END_TEST

/* A speedup against one rank's cores may be larger, and is not what a user gains: it comes second. */
START_TEST(the_first_sentence_is_of_dense_on_all_cores) {
  json_t *model = json_pack(
      "{s:[], s:i, s:[{s:s, s:s, s:s, s:f}, {s:s, s:s, s:s, s:f}]}", "latest", "compared", 2, "comparisons",
      "method", "blockshock", "against", "dense, one rank's cores", "speedup_word", "FASTER", "speedup", 4.5,
      "method", "row_parallel", "against", "dense, all cores", "speedup_word", "FASTER", "speedup", 1.25);
  char text[512];
  bs_report_verdict(model, text, sizeof text);
  ck_assert_ptr_nonnull(strstr(text,
                               "Speedup against dense on all cores: best 1.25 (row_parallel). Against "
                               "dense on one rank's cores: best 4.5 (blockshock). Of 2"));
  json_decref(model);
}
END_TEST

/* A point is over when each of its phases has a run, or when one did not end well. */
START_TEST(points_of_a_plan_are_over_or_not_run) {
  static const char *const plan =
      "{\"n\":4,\"command\":\"bsrun sweep -x N=10:13+1\"}\n"
      "{\"i\":0,\"request_key\":\"s0\",\"keys\":[\"ok0\",\"ok1\"],\"settings\":{\"N\":10}}\n"
      "{\"i\":1,\"request_key\":\"s1\",\"keys\":[\"ok0\",\"none\"],\"settings\":{\"N\":11}}\n"
      "{\"i\":2,\"request_key\":\"s2\",\"keys\":[\"bad\",\"none\"],\"settings\":{\"N\":12}}\n"
      "{\"i\":3,\"request_key\":\"s3\",\"keys\":[\"again\",\"none\"],\"settings\":{\"N\":13}}\n";
  static const char *const runs[][2] = {
      {"ok0", "ok"}, {"ok1", "ok"}, {"bad", "not passed"}, {"again", "ok"}, {"again", "failed"}};
  const char *folder = scratch_dir();
  json_t *model = model_of(0), *untried = json_object_get(model, "untried");
  write_text(folder, "plan.jsonl", plan);
  for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
    json_array_append_new(json_object_get(model, "rows"),
                          json_pack("{s:s, s:s}", "request_key", runs[i][0], "status", runs[i][1]));
  bs_model_plans(model, folder);
  ck_assert_uint_eq(json_array_size(untried), 2);
  ck_assert_str_eq(bs_row_text(json_array_get(untried, 0), "what"), "N=11");
  ck_assert_str_eq(bs_row_text(json_array_get(untried, 1), "what"), "N=13");
  const json_t *command = json_array_get(json_object_get(model, "commands"), 0);
  ck_assert_str_eq(json_string_value(command), "bsrun sweep -x N=10:13+1");
  json_decref(model);
  remove_dir(folder);
}
END_TEST

/* A point of a sweep with two arms: the exchange of 2 MiB a rank takes 1 ms. */
static void keep_point(int i) {
  char id[16];
  bs_error err = BS_ERROR_INIT;
  bs_run *run;
  snprintf(id, sizeof id, "p%d", i);
  const bs_run_request q = {.out_dir = dir,
                            .group = "s",
                            .phase = "phase1_forward",
                            .method = "a",
                            .run_id = id,
                            .key = KEY,
                            .config = config,
                            .env = "{}\n",
                            .seed = 7};
  ck_assert_msg(bs_store_begin(&q, &run, &err) == BS_OK, "%s", err.message);
  json_t *record = json_pack(
      "{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:I, s:I, s:{s:{s:f, s:i}}, s:[{s:s, s:f, "
      "s:{s:f}}, "
      "{s:s, s:s, s:f, s:{s:f}}]}",
      "run_id", id, "phase", "phase1_forward", "method", "a", "sweep", "s", "point", i, "seq", 0, "N",
      64 << i, "K", 64, "B", 8, "world_size", 2, "median_s", 0.01, "wire_bytes_per_forward",
      (json_int_t)4 << (20 + i), "memory_peak_bytes", (json_int_t)1 << (20 + i), "timings_ms", "allreduce",
      "p50_ms", 1.0 + i, "count", 1, "arms", "name", "method", "median_s", 0.01, "predicted_s", "total",
      0.011, "name", "dense, all cores", "method", "dense", "median_s", 0.02, "predicted_s", "total", 0.018);
  ck_assert_ptr_nonnull(record);
  ck_assert_msg(bs_store_append(run, record, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_store_commit(run, "ok", &err) == BS_OK, "%s", err.message);
  json_decref(record);
}

static const bs_chart *chart_of(const bs_chart *charts, size_t n, const char *id) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(charts[i].id, id) == 0) return &charts[i];
  ck_abort_msg("no chart %s", id);
}

/* Bytes over their rate, memory over points, and predictions of every arm. */
START_TEST(charts_of_a_sweep) {
  bs_error err = BS_ERROR_INIT;
  json_t *model = NULL;
  bs_chart *charts = NULL;
  size_t n = 0;
  setup();
  for (int i = 0; i < 3; i++) keep_point(i);
  const bs_report_request request = {.root = dir};
  ck_assert_msg(bs_report_model(&request, &model, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_report_charts(model, &charts, &n, &err) == BS_OK, "%s", err.message);
  const json_t *bus = chart_of(charts, n, "bus-over-bytes")->data;
  ck_assert_uint_eq(json_array_size(bus), 3);
  ck_assert_double_eq_tol(bs_row_number(json_array_get(bus, 0), "x"), 2 << 20, 1e-6);
  ck_assert_double_eq_tol(bs_row_number(json_array_get(bus, 0), "y"), 2.097152, 1e-9);
  const json_t *memory = chart_of(charts, n, "memory-over-points")->data;
  ck_assert_uint_eq(json_array_size(memory), 3);
  ck_assert_double_eq_tol(bs_row_number(json_array_get(memory, 1), "x"), 2, 1e-9);
  ck_assert_double_eq_tol(bs_row_number(json_array_get(memory, 1), "y"), 2, 1e-9);
  const json_t *residual = chart_of(charts, n, "residual")->data;
  ck_assert_uint_eq(json_array_size(residual), 6);
  ck_assert_double_eq_tol(bs_row_number(json_array_get(residual, 0), "residual"), 10, 1e-6);
  ck_assert_double_eq_tol(bs_row_number(json_array_get(residual, 1), "residual"), -10, 1e-6);
  bs_charts_free(charts, n);
  json_decref(model);
  teardown();
}
END_TEST

int main(void) {
  const test_case tests[] = {{charts_of_a_sweep},
                             {words_of_a_row_say_all_once},
                             {lines_of_two_machines_do_not_merge},
                             {the_page_says_what_its_charts_leave_out},
                             {the_first_sentence_is_of_dense_on_all_cores},
                             {points_of_a_plan_are_over_or_not_run},
                             {0}};
  return run_tests("report_model", tests, (test_setup){0});
}
