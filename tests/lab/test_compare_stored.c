/* SPDX-License-Identifier: MIT
 * test_compare_stored.c - two stored runs held against each other: a planted difference of the environment is
 * listed and what always differs is not; unlike runs are refused; ratios of samples that were made up; JUnit.
 */
#include "lab/compare/baseline.h"
#include "lab/compare/stored.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

/* A run of phase 1 with samples of 5 builds around `centre` seconds. */
static bs_stored_run run_of(double centre, const char *phase, const char *cpu, const char *governor,
                            double load) {
  bs_stored_run run = {.config = json_pack("{s:s}", "model.N", "64")};
  json_t *seconds = json_array(), *starts = json_array();
  for (int i = 0; i < 50; i++) {
    json_array_append_new(seconds, json_real(centre * (1 + 0.004 * (i % 3) + 0.001 * (i / 10))));
    if (i % 10 == 0) json_array_append_new(starts, json_integer(i));
  }
  run.records = json_pack("[{s:s,s:s,s:s,s:o}]", "phase", phase, "dtype", "bf16", "backend", "cpu",
                          "group_starts", starts);
  run.samples = json_pack("[{s:i,s:s,s:s,s:o}]", "record", 0, "arm", "method", "phase", "steady-hot",
                          "seconds", seconds);
  run.env = json_pack("{s:{s:s,s:s},s:{s:[f]},s:s,s:[{s:s,s:s},{s:s,s:s}]}", "cpu", "model", cpu, "governor",
                      governor, "system", "load_average", load, "command", load > 1 ? "one" : "another",
                      "plugins", "id", load > 1 ? "cpu" : "ref", "sha256", "aa", "id",
                      load > 1 ? "ref" : "cpu", "sha256", "aa");
  ck_assert(run.records != NULL && run.samples != NULL && run.env != NULL);
  return run;
}

START_TEST(what_differs_is_listed) {
  bs_stored_run a = run_of(1e-3, "phase1_forward", "x", "powersave", 0.5);
  bs_stored_run b = run_of(1e-3, "phase1_forward", "x", "performance", 2.0);
  json_t *rows = bs_stored_differences(&a, &b);
  ck_assert_uint_eq(json_array_size(rows), 1); /* not the load, the command, or the order of plugins */
  const json_t *row = json_array_get(rows, 0);
  ck_assert_str_eq(json_string_value(json_object_get(row, "what")), "env.cpu.governor");
  ck_assert_str_eq(json_string_value(json_object_get(row, "a")), "powersave");
  ck_assert_str_eq(json_string_value(json_object_get(row, "b")), "performance");
  ck_assert_int_eq(bs_stored_alike(&a, &b, NULL), BS_OK);
  json_decref(rows);
  json_object_set_new(b.config, "model.K", json_string("8")); /* what one alone has */
  rows = bs_stored_differences(&a, &b);
  ck_assert_uint_eq(json_array_size(rows), 2);
  ck_assert(json_is_null(json_object_get(json_array_get(rows, 0), "a")));
  json_decref(rows);
  bs_stored_close(&a);
  bs_stored_close(&b);
}
END_TEST

/* {"device": {"clock": "events"}} is the time of an accelerator; the last has its pass in a second record. */
START_TEST(unlike_runs_are_refused) {
  static const struct {
    const char *phase, *cpu, *more, *says;
  } cases[] = {{"phase0_correctness", "x", "{}", "phase "},
               {"phase1_forward", "y", "{}", "device "},
               {"phase1_forward", "x", "{\"dtype\": \"f32\"}", "dtype bf16 and f32"},
               {"phase1_forward", "x", "{\"simulated\": {}}", "clock host and virtual"},
               {"phase1_forward", "x", "{\"device\": {\"clock\": \"events\"}}", "clock host and device"},
               {"phase1_forward", "x", "{\"pass\": \"backward\"}", "pass forward and backward"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    for (size_t at = 0; at < 2; at++) { /* the difference is in the first record, or in the second */
      bs_error err = BS_ERROR_INIT;
      bs_stored_run a = run_of(1e-3, "phase1_forward", "x", "g", 0);
      bs_stored_run b = run_of(1e-3, at == 0 ? cases[i].phase : "phase1_forward", cases[i].cpu, "g", 0);
      json_object_set_new(json_array_get(a.records, 0), "pass", json_string("forward"));
      json_object_set_new(json_array_get(b.records, 0), "pass", json_string("forward"));
      json_array_append_new(a.records, json_deep_copy(json_array_get(a.records, 0)));
      json_array_append_new(b.records, json_deep_copy(json_array_get(b.records, 0)));
      json_t *record = json_array_get(b.records, at), *more = json_loads(cases[i].more, 0, NULL);
      json_object_set_new(record, "phase", json_string(cases[i].phase));
      json_object_update(record, more);
      json_decref(more);
      ck_assert_int_eq(bs_stored_alike(&a, &b, &err), BS_CONFIG);
      ck_assert_str_eq(err.id, "BS-COMPARE-UNLIKE");
      ck_assert_msg(strstr(err.message, cases[i].says) != NULL, "%s", err.message);
      bs_stored_close(&a);
      bs_stored_close(&b);
    }
  }
}
END_TEST

static json_t *rows_of(double a_s, double b_s) {
  json_t *rows = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_stored_run a = run_of(a_s, "phase1_forward", "x", "g", 0),
                b = run_of(b_s, "phase1_forward", "x", "g", 0);
  ck_assert_msg(bs_stored_rows(&a, &b, &rows, &err) == BS_OK, "%s", err.message);
  ck_assert_uint_eq(json_array_size(rows), 1);
  bs_stored_close(&a);
  bs_stored_close(&b);
  return rows;
}

static void must_say(double a_s, double b_s, const char *word, int slower) {
  json_t *rows = rows_of(a_s, b_s);
  const json_t *row = json_array_get(rows, 0);
  const double ratio = json_number_value(json_object_get(row, "speedup"));
  ck_assert_str_eq(json_string_value(json_object_get(row, "word")), word);
  ck_assert_double_eq_tol(ratio, a_s / b_s, 1e-6);
  ck_assert(json_number_value(json_object_get(row, "low")) <= ratio &&
            ratio <= json_number_value(json_object_get(row, "high")));
  ck_assert_int_eq(bs_baseline_slower(rows) != NULL, slower);
  json_decref(rows);
}

START_TEST(ratios_have_words) {
  must_say(1e-3, 2e-3, "SLOWER", 1);
  must_say(2e-3, 1e-3, "FASTER", 0);
  must_say(1e-3, 1e-3, "SAME", 0);
}
END_TEST

/* What the records tell of the machine decides, of either side; a run has no word beside itself. */
START_TEST(disturbed_runs_are_unclear) {
  static const struct {
    const char *a, *b; /* disturbance */
    int same;
    const char *word, *cause;
  } cases[] = {{NULL, NULL, 0, "SLOWER", ""},
               {"{\"pairs\": 20, \"disturbed\": 4}", NULL, 0, "SLOWER", ""},
               {"{\"pairs\": 20, \"disturbed\": 5}", NULL, 0, "UNCLEAR", "machine disturbed"},
               {NULL, "{\"pairs\": 20, \"disturbed\": 20}", 0, "UNCLEAR", "machine disturbed"},
               {NULL, NULL, 1, "", "both sides are the same configuration"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bs_stored_run run[2] = {run_of(1e-3, "phase1_forward", "x", "g", 0),
                            run_of(2e-3, "phase1_forward", "x", "g", 0)};
    const char *const told[] = {cases[i].a, cases[i].b};
    json_t *rows = NULL;
    for (int k = 0; k < 2; k++) {
      run[k].root = strdup("runs");
      run[k].path = strdup(k == 1 && !cases[i].same ? "b" : "a");
      if (told[k] != NULL)
        json_object_set_new(json_array_get(run[k].records, 0), "disturbance", json_loads(told[k], 0, NULL));
    }
    ck_assert_int_eq(bs_stored_rows(&run[0], &run[1], &rows, NULL), BS_OK);
    const json_t *row = json_array_get(rows, 0);
    ck_assert_str_eq(json_string_value(json_object_get(row, "word")), cases[i].word);
    ck_assert_str_eq(json_string_value(json_object_get(row, "cause")), cases[i].cause);
    ck_assert_int_eq(bs_baseline_slower(rows) != NULL, strcmp(cases[i].word, "SLOWER") == 0);
    json_decref(rows);
    bs_stored_close(&run[0]);
    bs_stored_close(&run[1]);
  }
}
END_TEST

/* Adds the samples of an arm `factor` times as slow as those of the method. */
static void add_arm(bs_stored_run *run, const char *arm, double factor) {
  const json_t *own = json_object_get(json_array_get(run->samples, 0), "seconds"), *one;
  json_t *seconds = json_array();
  size_t i;
  json_array_foreach(own, i, one) json_array_append_new(seconds, json_real(factor * json_number_value(one)));
  json_array_append_new(run->samples, json_pack("{s:i,s:s,s:s,s:o}", "record", 0, "arm", arm, "phase",
                                                "steady-hot", "seconds", seconds));
}

/* The method, and the dense layer beside it, in B as many times as slow as in A. */
static json_t *beside_dense(double method, double dense, const char *word) {
  bs_stored_run a = run_of(1e-3, "phase1_forward", "x", "g", 0),
                b = run_of(method * 1e-3, "phase1_forward", "x", "g", 0);
  json_t *rows = NULL;
  add_arm(&a, "dense, one rank's cores", 3);
  add_arm(&b, "dense, one rank's cores", 3 * dense / method);
  ck_assert_int_eq(bs_stored_rows(&a, &b, &rows, NULL), BS_OK);
  ck_assert_uint_eq(json_array_size(rows), 2);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 0), "word")), word);
  bs_stored_close(&a);
  bs_stored_close(&b);
  return rows;
}

START_TEST(dense_arms_show_the_machine_and_decide_nothing) {
  static const struct {
    double method, dense;
    const char *word;
    int slower;
  } cases[] = {{1.0, 1.1, "SAME", 0},    {1.1, 1.1, "UNCLEAR", 0}, {1.0 / 1.1, 1.0 / 1.1, "UNCLEAR", 0},
               {1.5, 1.1, "SLOWER", 1},  {1.1, 1.0, "SLOWER", 1},  {1.1, 0.9, "SLOWER", 1},
               {1.1, 1.5, "UNCLEAR", 0}, {0.5, 0.9, "FASTER", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    json_t *rows = beside_dense(cases[i].method, cases[i].dense, cases[i].word);
    ck_assert_int_eq(bs_baseline_slower(rows) != NULL, cases[i].slower);
    ck_assert_ptr_null(bs_baseline_missing(rows));
    json_decref(rows);
  }
}
END_TEST

START_TEST(an_arm_that_b_lacks_is_told) {
  const char *dir = scratch_dir();
  char path[600];
  bs_stored_run a = run_of(1e-3, "phase1_forward", "x", "g", 0),
                b = run_of(1e-3, "phase1_forward", "x", "g", 0);
  json_t *rows = NULL;
  add_arm(&a, "dense, all cores", 3);
  ck_assert_int_eq(bs_stored_rows(&a, &b, &rows, NULL), BS_OK);
  ck_assert_uint_eq(json_array_size(rows), 2);
  const json_t *row = bs_baseline_missing(rows);
  ck_assert(row != NULL && row == json_array_get(rows, 1));
  ck_assert_str_eq(json_string_value(json_object_get(row, "arm")), "dense, all cores");
  snprintf(path, sizeof path, "%s/out.xml", dir);
  ck_assert_int_eq(bs_junit_write(path, "nightly", rows, NULL), BS_OK);
  char *xml = read_text(dir, "out.xml");
  ck_assert_msg(
      strstr(xml, "failures=\"0\" errors=\"1\"") != NULL && strstr(xml, "<error message=\"MISSING") != NULL,
      "%s", xml);
  free(xml);
  json_decref(rows);
  bs_stored_close(&a);
  bs_stored_close(&b);
  remove_dir(dir);
}
END_TEST

/* Cold pairs have groups of their own; those of the hot ones lie elsewhere. */
static json_t *cold_rows(const char *starts) {
  bs_stored_run runs[2] = {run_of(1e-3, "phase1_forward", "x", "g", 0),
                           run_of(1e-3, "phase1_forward", "x", "g", 0)};
  json_t *rows = NULL;
  for (size_t i = 0; i < 2; i++) {
    json_t *record = json_array_get(runs[i].records, 0);
    json_t *cold = json_pack("{s:O}", "group_starts", json_object_get(record, "group_starts"));
    if (starts != NULL) {
      json_object_set_new(record, "pairs_cold", cold);
      json_object_set_new(record, "group_starts", json_loads(starts, 0, NULL));
      json_object_set_new(json_array_get(runs[i].samples, 0), "phase", json_string("steady-cold"));
    } else {
      json_decref(cold);
    }
  }
  ck_assert_int_eq(bs_stored_rows(&runs[0], &runs[1], &rows, NULL), BS_OK);
  bs_stored_close(&runs[0]);
  bs_stored_close(&runs[1]);
  return rows;
}

START_TEST(cold_samples_have_groups_of_their_own) {
  json_t *hot = cold_rows(NULL), *cold = cold_rows("[0, 1, 2]");
  json_object_set(json_array_get(hot, 0), "phase", json_object_get(json_array_get(cold, 0), "phase"));
  ck_assert(json_equal(hot, cold));
  json_decref(hot);
  json_decref(cold);
}
END_TEST

START_TEST(verdicts_are_junit) {
  const char *dir = scratch_dir();
  char path[600];
  json_t *rows = rows_of(1e-3, 2e-3);
  json_object_set_new(json_array_get(rows, 0), "arm", json_string("a<b & \"c\""));
  json_object_set_new(json_array_get(rows, 0), "phase", json_string("<hot>\n"));
  snprintf(path, sizeof path, "%s/out.xml", dir);
  ck_assert_int_eq(bs_junit_write(path, "nightly", rows, NULL), BS_OK);
  char *xml = read_text(dir, "out.xml");
  ck_assert_msg(strstr(xml, "tests=\"1\" failures=\"1\"") != NULL &&
                    strstr(xml, "name=\"a&lt;b &amp; &quot;c&quot; (&lt;hot&gt; )\"") != NULL &&
                    strstr(xml, "<failure message=\"SLOWER: speedup 0.5 [") != NULL,
                "%s", xml);
  free(xml);
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_junit_write("/nowhere/at/all.xml", "nightly", rows, &err), BS_IO);
  json_decref(rows);
  remove_dir(dir);
}
END_TEST

START_TEST(baselines_are_found) {
  const char *dir = scratch_dir();
  char *run = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_baseline_find(dir, "nightly", &run, &err), BS_NOT_FOUND);
  write_text(dir, "baselines.json", "{\"nightly\": \"a/b\"}");
  ck_assert_int_eq(bs_baseline_find(dir, "nightly", &run, &err), BS_OK);
  ck_assert_str_eq(run, "a/b");
  free(run);
  write_text(dir, "baselines.json", "[]");
  ck_assert_int_eq(bs_baseline_find(dir, "nightly", &run, &err), BS_CORRUPT);
  ck_assert_str_eq(err.id, "BS-STO-BASELINES");
  remove_dir(dir);
}
END_TEST

int main(void) {
  const test_case tests[] = {{what_differs_is_listed},
                             {unlike_runs_are_refused},
                             {ratios_have_words},
                             {disturbed_runs_are_unclear},
                             {cold_samples_have_groups_of_their_own},
                             {dense_arms_show_the_machine_and_decide_nothing},
                             {an_arm_that_b_lacks_is_told},
                             {verdicts_are_junit},
                             {baselines_are_found},
                             {0}};
  return run_tests("compare_stored", tests, (test_setup){0});
}
