/* SPDX-License-Identifier: MIT
 * test_bsrun_bench_sdpa.c - `bsrun bench sdpa` and `bsrun bench matmul` as a user calls them: rows and their
 * units, what is refused, gates that fail and are kept as runs, and PyTorch as an arm (fixtures/fake_torch.c
 * in its place). */
#include <jansson.h>
#include <math.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

#define QUICK "--seconds 0.02 --warmup 1 --iters 20 --seeds 2 --threads 1 "
#define NO_TORCH QUICK "--torch off "

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static ran run_verb(const char *verb, const char *line) {
  char copy[900],
      *argv[64] = {(char *)(uintptr_t) "bsrun", (char *)(uintptr_t) "bench", (char *)(uintptr_t)verb};
  char *save = NULL;
  int n = 3;
  snprintf(copy, sizeof copy, "%s", line);
  for (char *word = strtok_r(copy, " ", &save); word != NULL && n < 63; word = strtok_r(NULL, " ", &save)) {
    char *tab = strchr(word, '\t'); /* a space of one argument */
    if (tab != NULL) *tab = ' ';
    argv[n++] = strcmp(word, "EMPTY") == 0 ? (char *)(uintptr_t) "" : word;
  }
  return finish_bsrun(dir, start_bsrun(dir, argv));
}

static ran run_line(const char *line) {
  return run_verb("sdpa", line);
}

static json_t *rows_of(const ran *r) {
  json_t *rows = json_loads(r->out, 0, NULL);
  ck_assert_msg(json_is_array(rows), "%s%s", r->out, r->err);
  return rows;
}

static double number(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "no number %s", key);
  return json_number_value(value);
}

static const char *text(const json_t *row, const char *key) {
  const char *value = json_string_value(json_object_get(row, key));
  ck_assert_msg(value != NULL, "no text %s", key);
  return value;
}

/* What --plugin names takes part whatever its score is, or a line says why not. */
START_TEST(named_plugins_take_part) {
  static const struct {
    const char *line;
    size_t rows;
    const char *says;
  } named[] = {
      {"b1h1s16d8 --plugin ref", 2, NULL},
      {"b1h1s16d8 --plugin cpu", 1, NULL},
      {"b1h1s16d8 --plugin sim", 1, "the plugin sim takes no part: it has no attention for the backend cpu"},
      {"b1h1s16d8 --plugin ref --provider cpu:online", 1, "takes no part: --provider names others"},
      {"b1h1s16d8:f64 --plugin cpu --provider ref", 1, "the plugin cpu takes no part"},
  };
  char line[300];
  snprintf(line, sizeof line, "%s --out off -o json " NO_TORCH, named[_i].line);
  ran r = run_line(line);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_msg(json_array_size(rows) == named[_i].rows, "%s", r.out);
  ck_assert_msg((strstr(r.err, "takes no part") != NULL) == (named[_i].says != NULL), "%s", r.err);
  if (named[_i].says != NULL) ck_assert_msg(strstr(r.err, named[_i].says) != NULL, "%s", r.err);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* f64 beside an f64 reference: gates as of any other dtype. */
START_TEST(f64_has_gates) {
  ran r = run_line(
      "b1h1s4d8:f64 b2h4g2s67d33e17:f64:causal b1h1s3t300d64:f64 --provider ref --out off -o json " NO_TORCH);
  must_be(&r, 0);
  json_t *rows = rows_of(&r), *row;
  size_t i;
  ck_assert_uint_eq(json_array_size(rows), 3);
  json_array_foreach(rows, i, row) {
    ck_assert_str_eq(text(row, "failed_stage"), "");
    ck_assert(number(row, "predicted_rmse") > 1e-16 && number(row, "predicted_rmse") < 1e-14);
    ck_assert(number(row, "relative_rmse") <= 1.3 * number(row, "predicted_rmse"));
  }
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* Each dtype and mask has a row of each provider; every time is one of a call, of all rows alike, and what an
 * item takes is another column (defect (g): one arm's time was divided by the batch, the other's not). */
START_TEST(each_provider_has_a_row_of_each_problem) {
  ran r = run_line(
      "b4h2s16d8 b1h2g1s8t24d4:f16:causal_br --dtype f32,bf16 --provider cpu:online,ref --out off -o "
      "json " NO_TORCH);
  static const char *const problems[] = {"b4h2s16d8:f32:full", "b4h2s16d8:bf16:full",
                                         "b1h2g1s8t24d4:f16:causal_br"};
  must_be(&r, 0);
  json_t *rows = rows_of(&r), *row;
  size_t i;
  ck_assert_uint_eq(json_array_size(rows), 6);
  json_array_foreach(rows, i, row) {
    const double us = number(row, "p50_us");
    ck_assert_str_eq(text(row, "problem"), problems[i / 2]);
    ck_assert_str_eq(text(row, "provider"), i % 2 == 0 ? "cpu:online" : "ref:portable");
    ck_assert_str_eq(text(row, "unit"), "us_per_call");
    ck_assert(us > 0 && us <= number(row, "p90_us") && number(row, "p90_us") <= number(row, "p99_us"));
    ck_assert(fabs(number(row, "p50_us_per_item") * (i < 4 ? 4 : 1) / us - 1) < 1e-9);
    ck_assert(fabs(number(row, "gflops") * us * 1e3 / number(row, "flops") - 1) < 1e-9);
    ck_assert(number(row, "bound_percent") > 0 && number(row, "bound_percent") <= 100);
    ck_assert(number(row, "relative_rmse") <= 1.3 * number(row, "predicted_rmse"));
    ck_assert(number(row, "ratio_low") <= number(row, "ratio") &&
              number(row, "ratio") <= number(row, "ratio_high"));
    ck_assert(number(row, "seeds") == 2 && number(row, "calls") == 20 && number(row, "pairs") >= 20);
    ck_assert_str_eq(text(row, "against"), i % 2 == 0 ? "ref:portable" : "cpu:online");
    ck_assert_str_eq(text(row, "failed_stage"), "");
  }
  /* Each ratio of a pair is the other one turned round. */
  ck_assert(fabs(number(json_array_get(rows, 0), "ratio") * number(json_array_get(rows, 1), "ratio") - 1) <
            1e-6);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* --backward, or the word in front of a problem: dQ, dK and dV are judged together. */
START_TEST(gradients_go_the_same_way) {
  static const char *const line[] = {"b2h2g1s20t24d8:f32:causal --backward ",
                                     "sdpa_dx\tb2h2g1s20t24d8:f32:causal "};
  for (int i = 0; i < 2; i++) {
    char all[300];
    snprintf(all, sizeof all, "%s--provider cpu,ref --out off -o json " NO_TORCH, line[i]);
    ran r = run_line(all);
    must_be(&r, 0);
    json_t *rows = rows_of(&r), *row;
    size_t k;
    ck_assert_uint_eq(json_array_size(rows), 2);
    json_array_foreach(rows, k, row) {
      ck_assert_str_eq(text(row, "problem"), "sdpa_dx b2h2g1s20t24d8:f32:causal");
      ck_assert_str_eq(text(row, "provider"), k == 0 ? "cpu:tiles" : "ref:portable");
      ck_assert_str_eq(text(row, "flops_convention"), "exact pairs x 2 (3 D + 2 E)");
      ck_assert(number(row, "relative_rmse") > 0 &&
                number(row, "relative_rmse") <= 1.3 * number(row, "predicted_rmse"));
      ck_assert(number(row, "bound_percent") <= 100 && number(row, "pairs") >= 20);
      ck_assert_str_eq(text(row, "failed_stage"), "");
    }
    json_decref(rows);
    ran_free(&r);
  }
}
END_TEST

static const struct {
  const char *line, *id, *hint;
  int code;
} refused[] = {
    {"misson", "BS-KERNEL-PROBLEM", "did you mean 'mission'", 2},
    {"mission:bf61", "BS-KERNEL-PROBLEM", "did you mean 'bf16'", 2},
    {"mission --dtype fp9", "BS-KERNEL-PROBLEM", "known: f64, f32, f16, bf16, f8e4m3, f8e5m2", 2},
    {"mission --mask casual", "BS-KERNEL-PROBLEM", "did you mean 'causal'", 2},
    /* Defect (c): nothing selected passed. */
    {"EMPTY", "BS-KERNEL-EMPTY", "", 2},
    {", --torch off", "BS-KERNEL-EMPTY", "", 2},
    {"small --dtype ,", "BS-KERNEL-EMPTY", "", 2},
    {"small --provider ,", "BS-KERNEL-EMPTY", "", 2},
    {"matmul24 --torch off", "BS-KERNEL-PROBLEM", "", 2},
    {"b1h1s8d8 --torch off --provider cpu:onlin", "BS-KERNEL-PROVIDER", "did you mean 'cpu:online'", 2},
    {"b1h1s8d8 --torch off --provider nosuch", "BS-KERNEL-PROVIDER", "these were asked: cpu:online", 2},
    {"b1h1s8d8 --torch off --provider cpu:online{rows=48", "BS-KERNEL-PROVIDER", "{rows=48;keys=64}", 2},
    {"b1h1s8d8 --torch off --provider cpu:online{rowz=48}", "BS-OP-KNOB", "did you mean 'rows'", 2},
    {"b1h1s8d8 --torch off --seeds 17", "BS-USE-NUMBER", "", 2},
    {"b1h1s8d8 --torch off --gates nosuch", "BS-CFG-NAME", "there are: sdpa", 3},
    {"b1h1s8d8 --torch /bin/false", "BS-KERNEL-TORCH", "--torch /bin/false", 5},
    {"b1h1s8d8 --torch off --gates sdpb", "BS-CFG-NAME", "did you mean 'sdpa'", 3},
    {"b1h1s8d8 --torch off --dytpe f32", "BS-USE-OPTION", "--dtype", 2},
    {"b1h1s8d8 --torch /nowhere/python", "BS-KERNEL-TORCH", "", 5},
};

START_TEST(what_is_refused) {
  ran r = run_line(refused[_i].line);
  ck_assert_msg(r.code == refused[_i].code, "%s: %d %s", refused[_i].line, r.code, r.err);
  ck_assert_msg(strstr(r.err, refused[_i].id) != NULL, "%s: %s", refused[_i].line, r.err);
  ck_assert_msg(strstr(r.err, refused[_i].hint) != NULL, "%s: %s", refused[_i].line, r.err);
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
}
END_TEST

/* A gate that fails ends in 6, of speed or of what is stored of it in 14, and its run is kept with its cause.
 */
static const struct {
  const char *metric, *compare, *limit, *stage;
  int code;
  const char *word;
} gates[] = {
    {"numeric.relative_rmse", "le", "1e-12", "numeric", 6, "WRONG"},
    {"memory.plan_bytes", "le", "1", "memory", 6, "NOT PASSED"},
    {"performance.p50_us", "le", "1e-9", "performance", 14, "NOT PASSED"},
    {"evidence.samples", "ge", "1000", "evidence", 14, "NOT PASSED"},
};

/* What `runs show` and `why` say of such a run: problem, numbers, and gates by their names. */
static void must_be_told(const char *run, const char *stage) {
  static const char *const shown[] = {"b1h1s8d8:f32:full", "p50_s", "bound_s", "relative_error_predicted",
                                      "failed: planted"};
  char told[80];
  ran show = bsrun(dir, "runs", "show", run, "-o", "csv", NULL);
  must_be(&show, 0);
  for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
    ck_assert_msg(strstr(show.out, shown[i]) != NULL, "no %s in\n%s", shown[i], show.out);
  ran_free(&show);
  ran why = bsrun(dir, "why", run, "-o", "csv", NULL);
  must_be(&why, 0);
  snprintf(told, sizeof told, "planted: failed at stage %s: ", stage);
  ck_assert_msg(strstr(why.out, told) != NULL && strstr(why.out, "cpu:online on b1h1s8d8:f32:full") != NULL,
                "%s", why.out);
  ck_assert_msg(strstr(why.out, "% of the bound") != NULL && strstr(why.out, "--dump") == NULL, "%s",
                why.out);
  ran_free(&why);
}

START_TEST(a_failed_stage_is_kept_with_its_cause) {
  char yaml[300];
  snprintf(yaml, sizeof yaml,
           "rules:\n  - name: planted\n    stage: %s\n    metric: %s\n    compare: %s\n    limit: %s\n    "
           "control: "
           "zero\n    says: \"planted by a test\"\n",
           gates[_i].stage, gates[_i].metric, gates[_i].compare, gates[_i].limit);
  write_text(dir, "planted.yaml", yaml);
  ran r = run_line("b1h1s8d8 --gates ./planted.yaml -o json " NO_TORCH);
  ck_assert_msg(r.code == gates[_i].code, "%d %s", r.code, r.err);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-KERNEL-GATE"));
  ck_assert_ptr_nonnull(strstr(r.err, "planted by a test"));
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(text(json_array_get(rows, 0), "failed_stage"), gates[_i].stage);
  json_decref(rows);
  ran_free(&r);
  ran list = bsrun(dir, "runs", "list", "-o", "json", NULL);
  must_be(&list, 0);
  rows = rows_of(&list);
  ck_assert_uint_eq(json_array_size(rows), 1);
  const json_t *row = json_array_get(rows, 0);
  ck_assert_str_eq(text(row, "status"), "not passed");
  ck_assert_str_eq(text(row, "phase"), "bench_sdpa");
  ck_assert_str_eq(text(row, "method"), "cpu:online");
  ck_assert_str_eq(text(row, "word"), gates[_i].word);
  ck_assert_str_eq(text(row, "failed_stage"), gates[_i].stage);
  ck_assert_str_eq(text(row, "problem"), "b1h1s8d8:f32:full");
  ck_assert_ptr_nonnull(strstr(text(row, "error"), "gate planted"));
  if (gates[_i].code == 14) must_be_told(text(row, "run_id"), gates[_i].stage);
  json_decref(rows);
  ran_free(&list);
}
END_TEST

/* Nobody serves rows of 512, or the one that was named does not: the stage build fails, who was asked says
 * why, and that is kept too. */
START_TEST(what_nobody_serves_is_a_negative) {
  static const char *const line[] = {"b1h1s8d512 -o json " NO_TORCH,
                                     "b1h1s8d512 --provider cpu:online -o json " NO_TORCH,
                                     "b1h1s8d8:fp8 --backward -o json " NO_TORCH},
                           *const who[] = {"nobody serves it: ", "cpu:online does not serve it: ",
                                           "gradients have no factors"},
                           *const why[] = {"1 to 256", "1 to 256", "f8e4m3"};
  ran r = run_line(line[_i]);
  ck_assert_int_eq(r.code, 5);
  ck_assert_msg(strstr(r.err, who[_i]) != NULL && strstr(r.err, why[_i]) != NULL, "%s", r.err);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-KERNEL-REFUSED"));
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(text(json_array_get(rows, 0), "failed_stage"), "build");
  json_decref(rows);
  ran_free(&r);
  ran list = bsrun(dir, "runs", "list", NULL);
  ck_assert_msg(strstr(list.out, "NOT PASSED:") != NULL && strstr(list.out, "build") != NULL, "%s", list.out);
  ck_assert_ptr_null(strstr(list.out, "WRONG"));
  ran_free(&list);
  ran report = bsrun(dir, "report", "-o", "table", NULL);
  ck_assert_msg(
      strstr(report.out, "WRONG") == NULL && strstr(report.out, "1 did not pass a gate of something else"),
      "%s%s", report.out, report.err);
  ran_free(&report);
}
END_TEST

/* ---- knobs -------------------------------------------------------------------------------------- */

#define BAD "--plugin bad_attention --backend bad_attention "
#define KEYS(n) "bad_attention:naive{keys=" #n "}"

START_TEST(knobs_reach_the_plan) {
  static const char *const given[] = {KEYS(32), KEYS(64), "bad_attention:naive"}, *const knobs[] = {
                                                                                      "keys=32", "keys=64",
                                                                                      "keys=16"};
  ran r = run_line("b1h2s8d8 " BAD "--provider " KEYS(32) "," KEYS(64) ",bad_attention -o json " NO_TORCH);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 3);
  for (size_t i = 0; i < 3; i++) {
    const json_t *row = json_array_get(rows, i);
    ck_assert_str_eq(text(row, "provider"), given[i]);
    ck_assert_str_eq(text(row, "knobs"), knobs[i]);
    ck_assert_str_ne(text(row, "against"), given[i]);
  }
  json_decref(rows);
  ran_free(&r);
  r = run_line("b1h2s8d8 " BAD "--provider " KEYS(33) " -o json " NO_TORCH);
  ck_assert_msg(r.code == 2 && strstr(r.err, "BS-OP-KNOB") != NULL, "%d %s", r.code, r.err);
  ran_free(&r);
}
END_TEST

/* The plan reports another value than it was told: wrong, and not only not served. */
START_TEST(a_value_that_is_lost_fails_its_gate) {
  ran r = run_line("b1h2s8d8 " BAD
                   "--set plugins.bad_attention.fault=lost_knob --provider " KEYS(32) " -o json " NO_TORCH);
  ck_assert_msg(r.code == 6 && strstr(r.err, "asked keys=32, the plan reports keys=16") != NULL, "%d %s",
                r.code, r.err);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(text(json_array_get(rows, 0), "gates_failed"), "prepared, knobs");
  ck_assert_str_eq(text(json_array_get(rows, 0), "gates_skipped"), "same_code");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* A device whose plan tells nothing of registers has not passed the gates of resources. */
START_TEST(a_device_that_reports_nothing_is_unknown) {
  ran r = run_line("b1h2s8d8 " BAD "--set plugins.bad_attention.fault=mute_device -o json " NO_TORCH);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(text(json_array_get(rows, 0), "gates_unknown"), "spills, registers, shared_memory");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* Two settings of one implementation can be told apart, no name is cut, every line fits, and gates that did
 * not run are named. */
START_TEST(a_table_shows_providers_as_given) {
  ran r =
      run_line("b1h2s8d8 b10h12g3s20d8:f32:causal_br " BAD "--provider " KEYS(32) "," KEYS(64) " " NO_TORCH);
  static const char *const says[] = {"keys=32}",
                                     "keys=64}",
                                     "causal_br",
                                     "VERDICT",
                                     "/16 passed",
                                     "P50",
                                     "GATES 9/16 passed: skipped, nothing to judge (same_code, spills,"};
  char *rest = NULL;
  must_be(&r, 0);
  for (size_t i = 0; i < sizeof says / sizeof says[0]; i++)
    ck_assert_msg(strstr(r.out, says[i]) != NULL, "no %s in\n%s", says[i], r.out);
  for (char *line = strtok_r(r.out, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
    ck_assert_msg(strncmp(line, "run: ", 5) == 0 || strlen(line) <= 120, "%s", line);
  ran_free(&r);
}
END_TEST

/* A page has the columns of the table, not the forty of csv. */
START_TEST(a_page_has_the_columns_of_the_table) {
  ran r = run_line("b1h1s8d8 --provider cpu:online --out off -o md " NO_TORCH);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "| PROVIDER |") != NULL && strstr(r.out, "GATES") != NULL, "%s", r.out);
  ck_assert_msg(strstr(r.out, "PLAN BYTES") == NULL && strstr(r.out, "ALGORITHM") == NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

/* A line of the tuning file that `bsrun tune` wrote, with another choice. */
START_TEST(the_tuned_choice_comes_first) {
  char file[700], *lines;
  snprintf(file, sizeof file, "%s/tuning.jsonl", dir);
  ran r = bsrun(dir, "tune", "b1h2s8d8", "--plugin", "bad_attention", "--backend", "bad_attention",
                "--threads", "1", "--strategy", "full", "--sample-seconds", "0.001", "--pair-seconds", "0.05",
                "--finalists", "0", "--tune-cache", file, "--points", "off", NULL);
  must_be(&r, 0);
  ran_free(&r);
  lines = read_text(dir, "tuning.jsonl");
  json_t *entry = lines != NULL ? json_loads(lines, 0, NULL) : NULL;
  ck_assert_msg(entry != NULL, "%s", lines);
  ck_assert_str_ne(text(entry, "build"), "");
  json_object_set_new(entry, "choice", json_string(KEYS(64)));
  free(lines);
  lines = json_dumps(entry, JSON_COMPACT);
  ck_assert_ptr_nonnull(lines);
  write_text(dir, "tuning.jsonl", lines);
  free(lines);
  static const char *const first[] = {KEYS(64), "bad_attention:naive"};
  for (int off = 0; off < 2; off++) {
    char line[900];
    snprintf(line, sizeof line, "b1h2s8d8 " BAD "--out off -o json --tune-cache %s " NO_TORCH,
             off ? "off" : file);
    r = run_line(line);
    must_be(&r, 0);
    json_t *rows = rows_of(&r);
    ck_assert_str_eq(text(json_array_get(rows, 0), "provider"), first[off]);
    ck_assert_str_eq(text(json_array_get(rows, 0), "knobs"), off ? "keys=16" : "keys=64");
    json_decref(rows);
    ran_free(&r);
  }
  /* The choice was measured with other code: gate same_code. */
  char line[900];
  json_object_set_new(entry, "build", json_string("0123"));
  lines = json_dumps(entry, JSON_COMPACT);
  ck_assert_ptr_nonnull(lines);
  write_text(dir, "tuning.jsonl", lines);
  free(lines);
  json_decref(entry);
  snprintf(line, sizeof line, "b1h2s8d8 " BAD "--out off -o json --tune-cache %s " NO_TORCH, file);
  r = run_line(line);
  must_be(&r, 6);
  ck_assert_msg(strstr(r.err, "same_code") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* Of a value with an interval around the limit nobody knows on which side it is: no pass, and no failure. */
START_TEST(a_limit_in_the_interval_is_unknown) {
  static const struct {
    const char *strict;
    int code;
  } rows[] = {{"", 0}, {"--strict ", 15}};
  write_text(
      dir, "interval.yaml",
      "rules:\n  - {name: ran, stage: numeric, metric: numeric.nonfinite, compare: le, limit: 0, control: "
      "nan, says: planted}\n  - {name: between, stage: numeric, metric: numeric.relative_rmse, low: "
      "numeric.nonfinite, high: numeric.rows, compare: le, limit: 1, control: zero, says: planted}\n");
  for (size_t i = 0; i < 2; i++) {
    char line[300];
    snprintf(line, sizeof line,
             "b1h1s8d8 --provider cpu:online --gates ./interval.yaml %s--out off -o json " NO_TORCH,
             rows[i].strict);
    ran r = run_line(line);
    must_be(&r, rows[i].code);
    json_t *list = rows_of(&r);
    const json_t *row = json_array_get(list, 0);
    ck_assert_str_eq(text(row, "gates_unknown"), "between");
    ck_assert_msg(strstr(text(row, "unknown_reasons"), "the limit lies in the interval") != NULL, "%s",
                  text(row, "unknown_reasons"));
    json_decref(list);
    ran_free(&r);
  }
}
END_TEST

/* Defect (c): a file whose gates are all skipped, or lack their number, proves nothing. */
START_TEST(no_gate_that_ran_is_refused) {
  static const char *const lacking[] = {"when: {metric: performance.peers, compare: ge, limit: 99}\n    ",
                                        ""};
  char yaml[400];
  snprintf(yaml, sizeof yaml,
           "rules:\n  - name: never\n    stage: numeric\n    metric: numeric.nothing\n    compare: le\n    "
           "limit: 1\n"
           "    %scontrol: zero\n    says: \"planted by a test\"\n",
           lacking[_i]);
  write_text(dir, "never.yaml", yaml);
  ran r = run_line("b1h1s8d8 --gates ./never.yaml --out off " NO_TORCH);
  must_be(&r, 2);
  ck_assert_msg(strstr(r.err, "BS-RULES-NONE") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* ---- PyTorch ------------------------------------------------------------------------------------ */

static ran run_fake_of(const char *verb, const char *shape, const char *how, const char *more) {
  char line[600];
  setenv("FAKE_TORCH", how, 1);
  snprintf(line, sizeof line, "%s --torch %s -o json %s %s", shape, BS_TEST_FAKE_TORCH, more, QUICK);
  ran r = run_verb(verb, line);
  unsetenv("FAKE_TORCH");
  return r;
}

static ran run_fake(const char *how, const char *more) {
  return run_fake_of("sdpa", "b2h2g1s12t12d8", how, more);
}

START_TEST(pytorch_is_an_arm_on_the_same_bytes) {
  ran r = run_fake("", "--mask full,causal");
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 4);
  for (size_t i = 1; i < 4; i += 2) {
    const json_t *row = json_array_get(rows, i);
    ck_assert_str_eq(text(row, "provider"), "torch");
    ck_assert_str_eq(text(row, "build_id"), "PyTorch 0.0 (textbook)");
    ck_assert(number(row, "relative_rmse") < 1e-7); /* it is right, so it had our numbers */
    ck_assert(fabs(number(row, "p50_us") - 100) < 1e-6 && fabs(number(row, "min_us") - 100) < 1e-6);
    ck_assert_str_eq(text(row, "gates"), "");
    ck_assert_str_eq(text(json_array_get(rows, i - 1), "against"), "torch");
  }
  json_decref(rows);
  ran_free(&r);
  ran list = bsrun(dir, "runs", "list", "-o", "json", NULL);
  rows = rows_of(&list);
  ck_assert_uint_eq(json_array_size(rows), 4); /* a record of each arm */
  json_decref(rows);
  ran_free(&list);
}
END_TEST

/* One that refuses a problem, or computes something else, is told and left out. */
START_TEST(pytorch_that_is_of_no_use_is_left_out) {
  static const char *const how[] = {"refuse", "wrong", ""}, *const more[] = {"", "", "--backward"},
                           *const says[] = {"kernel for it", "are off by 1", "no gradients"};
  ran r = run_fake(how[_i], more[_i]);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.err, says[_i]) != NULL, "%s", r.err);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 1);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(pytorch_that_was_asked_for_must_be_there) {
  static const char *const how[] = {"none", "die"}, *const says[] = {"No module named", "has ended"};
  ran r = run_fake(how[_i], "");
  ck_assert_msg(r.code == 5, "%d %s", r.code, r.err);
  ck_assert_msg(strstr(r.err, says[_i]) != NULL && strstr(r.err, "import torch") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* The script itself, where there is a Python: what it says when it cannot import torch is a line of the
 * protocol. */
START_TEST(the_script_is_python) {
  write_text(dir, "torch.py", "raise ImportError('planted')\n");
  setenv("PYTHONPATH", dir, 1);
  if (system("python3 -c '' 2>/dev/null") != 0) return;
  ran r = run_line("b1h1s8d8 --torch python3 --out off " QUICK);
  ck_assert_int_eq(r.code, 5);
  ck_assert_msg(strstr(r.err, "PyTorch: planted") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* ---- products ----------------------------------------------------------------------------------- */

/* Each size of one option with each of the others, or as shapes; the rows are those of `bench sdpa`. A plugin
 * that is named takes part in 2:4 products, too. */
START_TEST(products_go_the_same_way) {
  static const char *const lines[] = {"--n 33,48 --k 20 --b 1,5 --provider cpu,ref",
                                      "--n 33 --k 20 --b 1 --sparse24 --plugin ref",
                                      "n33k20b1,matmul\tn48k20b5 n8k4b2:f16 --dtype bf16 --provider cpu,ref",
                                      "--n 48 --b 5 --provider cpu,ref",
                                      "--n 33 --k 20 --b 1,5 --product dx --provider cpu,ref",
                                      "--n 33 --k 20 --b 5 --product dw --sparse24 --provider cpu,ref"};
  static const char *const problems[][4] = {
      {"matmul n33k20b1:f32", "matmul n33k20b5:f32", "matmul n48k20b1:f32", "matmul n48k20b5:f32"},
      {"matmul24 n33k20b1:f32"},
      {"matmul n33k20b1:bf16", "matmul n48k20b5:bf16", "matmul n8k4b2:f16"},
      {"matmul n48k48b5:f32"},
      {"matmul_dx n33k20b1:f32", "matmul_dx n33k20b5:f32"},
      {"matmul24_dw n33k20b5:f32"}};
  static const size_t sizes[] = {8, 2, 6, 2, 4, 2};
  static const double flops[] = {2 * 33 * 20,     33 * 20,     2 * 33 * 20,
                                 2 * 48 * 48 * 5, 2 * 33 * 20, 33 * 20 * 5};
  char line[300];
  snprintf(line, sizeof line, "%s --out off -o json " NO_TORCH, lines[_i]);
  ran r = run_verb("matmul", line);
  must_be(&r, 0);
  json_t *rows = rows_of(&r), *row;
  size_t i;
  ck_assert_uint_eq(json_array_size(rows), sizes[_i]);
  ck_assert(number(json_array_get(rows, 0), "flops") == flops[_i]);
  json_array_foreach(rows, i, row) {
    ck_assert_str_eq(text(row, "problem"), problems[_i][i / 2]);
    ck_assert_str_eq(text(row, "provider"), i % 2 == 0 ? "cpu:packed" : "ref:portable");
    ck_assert_str_eq(text(row, "flops_convention"),
                     _i == 1 || _i == 5 ? "B N K, kept weights alone" : "2 B N K");
    ck_assert(number(row, "bound_percent") > 0 && number(row, "pairs") >= 20);
    ck_assert_str_eq(text(row, "failed_stage"), "");
  }
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* A provider with another problem is timed in the same pairs, judged by its own numbers, and no other one is
 * judged by its speed. */
START_TEST(other_problems_are_timed_in_the_same_pairs) {
  static const char *const line =
      "--n 64 --k 48 --b 5 --sparse24 --provider cpu,cpu@dense,ref,cpu@bf16,cpu@run --out off -o "
      "json " NO_TORCH;
  static const char *const problems[] = {"matmul24 n64k48b5:f32", "matmul n64k48b5:f32",
                                         "matmul24 n64k48b5:f32", "matmul24 n64k48b5:bf16",
                                         "matmul n64k48b5:f32:run"},
                           *const providers[] = {"cpu:packed", "cpu:packed@dense", "ref:portable",
                                                 "cpu:packed@bf16", "cpu:packed@run"};
  ran r = run_verb("matmul", line);
  must_be(&r, 0);
  json_t *rows = rows_of(&r), *row;
  size_t i;
  ck_assert_uint_eq(json_array_size(rows), 5);
  json_array_foreach(rows, i, row) {
    ck_assert_str_eq(text(row, "problem"), problems[i]);
    ck_assert_str_eq(text(row, "provider"), providers[i]);
    ck_assert(number(row, "relative_rmse") <= 1.3 * number(row, "predicted_rmse") &&
              number(row, "bound_percent") > 0);
    ck_assert((number(row, "predicted_rmse") > 1e-3) == (i == 3));
    ck_assert(json_is_string(json_object_get(row, "against")) == (i == 0 || i == 2));
    ck_assert(json_is_number(json_object_get(row, "of_subject")) == (i > 0));
    if (i > 0) ck_assert(number(row, "of_subject_low") <= number(row, "of_subject"));
    if (i > 0) ck_assert(number(row, "of_subject") <= number(row, "of_subject_high"));
  }
  ck_assert_str_eq(text(json_array_get(rows, 0), "against"), "ref:portable");
  ck_assert(fabs(number(json_array_get(rows, 0), "ratio") / number(json_array_get(rows, 2), "of_subject") -
                 1) < 1e-6);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* Held to AVX2 the bound is, too; and so few pairs are taken as are asked for where the time is up. */
START_TEST(options_reach_the_bound_and_the_pairs) {
  ran r = run_verb("matmul", "n64k64b4 --isa avx2 --pairs 6 --provider cpu,ref --out off -o json " NO_TORCH);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  const json_t *row = json_array_get(rows, 0);
  const char *loop = text(row, "loop");
  ck_assert_msg(strncmp(loop, "avx512", 6) != 0 && strncmp(loop, "amx", 3) != 0, "%s", loop);
  ck_assert(number(row, "pairs") >= 6 && number(row, "pairs") < 20);
  ck_assert(number(row, "place") == 0 && number(json_array_get(rows, 1), "place") == 1);
  ck_assert(json_is_number(json_object_get(json_array_get(rows, 1), "of_subject")));
  json_decref(rows);
  ran_free(&r);
  r = run_verb("matmul",
               "n1kk1kb256 --slowest 0.01 --iters 3 --provider cpu,ref --out off -o json "
               "--seconds 0.02 --warmup 0 --seeds 1 --threads 1 --torch off");
  rows = rows_of(&r);
  ck_assert(json_is_null(json_object_get(json_array_get(rows, 1), "of_subject")));
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* The limit is the error of f64 sums, a billionth of that of f32 sums. */
START_TEST(f64_products_have_gates_of_f64) {
  ran r = run_verb("matmul", "n48k64b5:f64 --provider ref --out off -o json " NO_TORCH);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  const json_t *row = json_array_get(rows, 0);
  ck_assert(number(row, "predicted_rmse") > 1e-17 && number(row, "predicted_rmse") < 1e-14);
  json_decref(rows);
  ran_free(&r);
}
END_TEST

static const struct {
  const char *verb, *line, *id, *hint;
} no_products[] = {
    {"matmul", "b1h1s8d8", "BS-KERNEL-PROBLEM", ""},
    {"matmul", "sdpa\tb1h1s8d8", "BS-KERNEL-KIND", "bench matmul times products: not attention"},
    {"sdpa", "matmul\tn4k4b4", "BS-KERNEL-KIND", "bench sdpa times attention: not matmul"},
    {"matmul", "n4k4b4 --n 4", "BS-USE-CHOICE", "leave out --n, --k and --b"},
    {"matmul", "--n 0", "BS-KERNEL-PROBLEM", ""},
    {"matmul", "--n 4b3", "BS-KERNEL-PROBLEM", ""},
    {"matmul", "--b ,", "BS-KERNEL-EMPTY", "--b names no size"},
    {"matmul", ",", "BS-KERNEL-EMPTY", ""},
    {"matmul", "--n 4 --provider ,", "BS-KERNEL-EMPTY", "bsrun explain matmul lists them"},
    {"matmul", "--n 4 --mask causal", "BS-USE-OPTION", ""},
    {"matmul", "--n 4 --isa avx", "BS-USE-VALUE", "--isa is avx2 or all"},
    {"matmul", "--n 4 --product dy", "BS-USE-VALUE", "--product is forward, dx or dw"},
    {"matmul", "--n 4 --provider cpu,cpu@f23", "BS-KERNEL-VARY", "no '@f23' of matmul n4k4b64:f32"},
    {"matmul", "--n 4 --provider cpu@dense", "BS-KERNEL-VARY", "of 2:4 weights dense"},
    {"sdpa", "small --sparse24", "BS-USE-OPTION", ""},
};

START_TEST(what_is_no_product_is_refused) {
  ran r = run_verb(no_products[_i].verb, no_products[_i].line);
  ck_assert_msg(r.code == 2, "%s: %d %s", no_products[_i].line, r.code, r.err);
  ck_assert_msg(strstr(r.err, no_products[_i].id) != NULL && strstr(r.err, no_products[_i].hint) != NULL,
                "%s: %s", no_products[_i].line, r.err);
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
}
END_TEST

/* One bit of one output of each product. */
START_TEST(a_wrong_product_fails_its_gates_and_is_kept) {
  ran r = run_verb("matmul",
                   "n64k64b4 --backend fault:cpu --set plugins.fault.plan=rank=0,op=matmul,seq=*,do=flip "
                   "-o json " NO_TORCH);
  ck_assert_msg(r.code == 6 && strstr(r.err, "gate rmse") != NULL, "%d %s", r.code, r.err);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(text(json_array_get(rows, 0), "gates_failed"), "rmse, worst, each_head");
  json_decref(rows);
  ran_free(&r);
  ran list = bsrun(dir, "runs", "list", "-o", "json", NULL);
  must_be(&list, 0);
  rows = rows_of(&list);
  ck_assert_str_eq(text(json_array_get(rows, 0), "phase"), "bench_matmul");
  ck_assert_str_eq(text(json_array_get(rows, 0), "word"), "WRONG");
  ck_assert_str_eq(text(json_array_get(rows, 0), "failed_stage"), "numeric");
  ran why = bsrun(dir, "why", text(json_array_get(rows, 0), "run_id"), "-o", "csv", NULL);
  must_be(&why, 0);
  ck_assert_msg(strstr(why.out, "cpu:packed on matmul n64k64b4:f32") != NULL, "%s", why.out);
  ran_free(&why);
  json_decref(rows);
  ran_free(&list);
}
END_TEST

/* PyTorch's linear has the same X and W. It is left out, with a note, where it is wrong or has no such
 * product. */
START_TEST(pytorch_takes_part_in_products) {
  static const char *const how[] = {"", "wrong", "refuse", ""}, *const more[] = {"", "", "", "--sparse24"},
                           *const says[] = {"", "are off by 1", "kernel for it",
                                            "PyTorch has no matmul24 of f32"};
  ran r = run_fake_of("matmul", "n12k20b7", how[_i], more[_i]);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.err, says[_i]) != NULL, "%s", r.err);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), _i == 0 ? 2 : 1);
  if (_i == 0) {
    const json_t *row = json_array_get(rows, 1);
    ck_assert_str_eq(text(row, "provider"), "torch");
    ck_assert(number(row, "relative_rmse") < 1e-7); /* it is right, so it had our numbers */
    ck_assert(fabs(number(row, "p50_us") - 100) < 1e-6 && fabs(number(row, "min_us") - 100) < 1e-6);
    ck_assert_str_eq(text(json_array_get(rows, 0), "against"), "torch");
  }
  json_decref(rows);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case cases[] = {{each_provider_has_a_row_of_each_problem},
                             {f64_has_gates},
                             {named_plugins_take_part, 5},
                             {what_is_refused, TEST_COUNT(refused)},
                             {a_failed_stage_is_kept_with_its_cause, TEST_COUNT(gates)},
                             {what_nobody_serves_is_a_negative, 3},
                             {gradients_go_the_same_way},
                             {knobs_reach_the_plan},
                             {a_value_that_is_lost_fails_its_gate},
                             {a_device_that_reports_nothing_is_unknown},
                             {a_table_shows_providers_as_given},
                             {a_page_has_the_columns_of_the_table},
                             {the_tuned_choice_comes_first},
                             {a_limit_in_the_interval_is_unknown},
                             {no_gate_that_ran_is_refused, 2},
                             {pytorch_is_an_arm_on_the_same_bytes},
                             {pytorch_that_is_of_no_use_is_left_out, 3},
                             {pytorch_that_was_asked_for_must_be_there, 2},
                             {the_script_is_python},
                             {products_go_the_same_way, 6},
                             {other_problems_are_timed_in_the_same_pairs},
                             {options_reach_the_bound_and_the_pairs},
                             {f64_products_have_gates_of_f64},
                             {what_is_no_product_is_refused, TEST_COUNT(no_products)},
                             {a_wrong_product_fails_its_gates_and_is_kept},
                             {pytorch_takes_part_in_products, 4},
                             {0}};
  return run_tests("bsrun_bench_sdpa", cases, (test_setup){.before = setup, .after = teardown});
}
