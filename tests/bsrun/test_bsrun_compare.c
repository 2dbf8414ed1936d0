/* SPDX-License-Identifier: MIT
 * test_bsrun_compare.c - bsrun compare: two specs measured in turn and kept, stored runs with what differs
 * between them, what is refused, and a baseline that a run is slower than. Where a verdict is asked for the
 * times are simulated ones. */
#include <jansson.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

#define SIM \
  "--plugin", "sim", "--hardware", "sim-flat", "--method", "row_parallel", "-P", "2", "--phase", "1", "-q"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static json_t *rows_of(ran *r, int code) {
  json_error_t why;
  must_be(r, code);
  json_t *rows = json_loads(r->out, JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(json_is_array(rows), "%s: %s", why.text, r->out);
  return rows;
}

static const char *str(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text != NULL ? text : "";
}

static void run_simulated(const char *n, const char *id) {
  ran r = bsrun(dir, SIM, "--n", n, "--run-id", id, NULL);
  must_be(&r, 0);
  ran_free(&r);
}

/* Both sides are arms of one sampling, in the order in which they are given; the run has all samples. */
START_TEST(two_specs_are_measured_and_kept) {
  ran r = bsrun(dir, "compare", "--a", "method=row_parallel", "--b", "method=column_parallel model.K=48",
                "-P", "2", "--n", "64", "--set", "model.B=4", "--dtype", "f32", "--seconds", "0.3",
                "--run-id", "ab", "-o", "json", NULL);
  json_t *rows = rows_of(&r, 0);
  ck_assert_uint_eq(json_array_size(rows), 2);
  const json_t *a = json_array_get(rows, 0), *b = json_array_get(rows, 1);
  ck_assert_str_eq(str(a, "candidate"), "A");
  ck_assert_str_eq(str(b, "settings"), "method.name=column_parallel model.K=48");
  ck_assert(json_is_null(json_object_get(a, "verdict")) && str(b, "verdict")[0] != '\0');
  ck_assert_double_gt(json_number_value(json_object_get(b, "speedup")), 0.0);
  char folder[1200];
  snprintf(folder, sizeof folder, "%s/results/raw/compare/row_parallel/ab", dir);
  char *metrics = read_text(folder, "metrics.jsonl"), *done = read_text(folder, "DONE");
  ck_assert(done != NULL && metrics != NULL);
  json_t *record = json_loads(metrics, 0, NULL);
  ck_assert_uint_eq(json_array_size(json_object_get(record, "arms")), 2);
  ck_assert_uint_eq(json_array_size(json_object_get(record, "comparisons")), 1);
  json_decref(record);
  json_decref(rows);
  free(metrics);
  free(done);
  ran_free(&r);
  r = bsrun(dir, "report", "results/raw", "-o", "json", NULL); /* each side is a row, B beside A */
  rows = rows_of(&r, 0);
  ck_assert_uint_eq(json_array_size(rows), 2);
  for (size_t i = 0; i < 2; i++) {
    const json_t *row = json_array_get(rows, i);
    ck_assert_str_eq(str(row, "against"), strcmp(str(row, "method"), "column_parallel") == 0 ? "A" : "");
  }
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* What is compared with itself is an arm twice: numbers, and no word, also where it is written otherwise. */
START_TEST(a_side_may_be_the_other) {
  static const char *const sides[][2] = {
      {"P=2", "P=2"}, {"n=32", "model.N=32"}, {"P=2 threads-per-rank=1", "threads-per-rank=1"}};
  ran r = bsrun(dir, "compare", "--a", sides[_i][0], "--b", sides[_i][1], "--method", "row_parallel", "--n",
                "32", "--seconds", "0.1", "--dtype", "f32", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "forward: both sides are the same configuration: B is ") != NULL &&
                    strstr(r.out, "times as fast as A [") != NULL &&
                    strstr(r.out, "run: results/raw/compare/") != NULL,
                "%s", r.out);
  ck_assert_msg(strstr(r.out, "FASTER") == NULL && strstr(r.out, "SLOWER") == NULL &&
                    strstr(r.out, "SAME") == NULL && strstr(r.out, "UNCLEAR") == NULL,
                "%s", r.out);
  ran_free(&r);
}
END_TEST

START_TEST(stored_runs_show_what_differs) {
  run_simulated("256", "small");
  run_simulated("512", "large");
  ran r = bsrun(dir, "compare", "small", "large", "-o", "json", NULL);
  json_t *rows = rows_of(&r, 0);
  const json_t *row = json_array_get(rows, 0), *differences = json_object_get(row, "differences"), *one;
  size_t i, found = 0;
  ck_assert_str_eq(str(row, "word"), "SLOWER");
  ck_assert(json_equal(json_object_get(row, "low"), json_object_get(row, "high"))); /* simulated: exact */
  json_array_foreach(differences, i, one) {
    found += strcmp(str(one, "what"), "config.model.N") == 0 && strcmp(str(one, "a"), "256") == 0 &&
             strcmp(str(one, "b"), "512") == 0;
    ck_assert_msg(strstr(str(one, "what"), "run_id") == NULL && strstr(str(one, "what"), "load") == NULL,
                  "%s", str(one, "what"));
  }
  ck_assert_uint_eq(found, 1);
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "compare", "smal", "results/raw/phase1_forward/row_parallel/small/", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "nothing differs") != NULL && strstr(r.out, "the same configuration") != NULL &&
                    strstr(r.out, "SAME") == NULL,
                "%s", r.out);
  ran_free(&r);
}
END_TEST

START_TEST(a_slower_run_ends_with_14) {
  run_simulated("256", "small");
  run_simulated("512", "large");
  char raw[1200];
  snprintf(raw, sizeof raw, "%s/results/raw", dir);
  write_text(raw, "baselines.json", "{\"nightly\": \"phase1_forward/row_parallel/small\"}");
  ran r = bsrun(dir, "compare", "large", "--baseline", "nightly", "--junit", "out.xml", NULL);
  must_be(&r, 14);
  ck_assert_msg(strstr(r.err, "BS-COMPARE-SLOWER") != NULL, "%s", r.err);
  char *xml = read_text(dir, "out.xml");
  ck_assert_msg(xml != NULL && strstr(xml, "failures=\"1\"") != NULL &&
                    strstr(xml, "<failure message=\"SLOWER") != NULL,
                "%s", xml);
  free(xml);
  ran_free(&r);
  r = bsrun(dir, "compare", "small", "--baseline", "nightly", NULL);
  must_be(&r, 0);
  ran_free(&r);
  r = bsrun(dir, "compare", "small", "--baseline", "nightl", NULL);
  ck_assert_msg(r.code != 0 && strstr(r.err, "did you mean 'nightly'") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* The baseline has a method that the run has not, and takes many times as long: nothing is SLOWER. */
START_TEST(a_run_that_lacks_an_arm_ends_with_5) {
  ran r = bsrun(dir, "ladder", "row_parallel", "column_parallel", "-P", "2", "--n", "512", "--b", "8",
                "--seconds", "0.1", "--cache", "off", "--run-id", "two", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
  r = bsrun(dir, "ladder", "row_parallel", "-P", "2", "--n", "32", "--b", "8", "--seconds", "0.1", "--cache",
            "off", "--run-id", "one", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
  r = bsrun(dir, "runs", "baseline", "nightly", "two", NULL);
  must_be(&r, 0);
  ran_free(&r);
  r = bsrun(dir, "compare", "one", "--baseline", "nightly", NULL);
  must_be(&r, 5);
  ck_assert_msg(strstr(r.err, "BS-COMPARE-MISSING") != NULL && strstr(r.err, "column_parallel") != NULL &&
                    strstr(r.out, "MISSING") != NULL,
                "%s%s", r.out, r.err);
  ran_free(&r);
}
END_TEST

/* Passes that are timed by a region have samples too. */
START_TEST(backward_and_training_runs_are_compared) {
  const char *phase = _i == 0 ? "2" : "3", *pass = _i == 0 ? "backward" : "total_step";
  static const char *const names[] = {"before", "after"};
  for (int k = 0; k < 2; k++) {
    ran r = bsrun(dir, "--method", "row_parallel", "-P", "2", "--n", "64", "--b", "4", "--phase", phase,
                  "--run-id", names[k], "--set", "phase.timed_iters=12", "--set", "phase.fault_gate=false",
                  "-q", NULL);
    must_be(&r, 0);
    ran_free(&r);
  }
  ran r = bsrun(dir, "compare", "before", "after", "-o", "json", "-q", NULL);
  must_be(&r, 0);
  json_t *said = json_loads(r.out, 0, NULL);
  const json_t *rows = json_is_array(said) ? said : json_object_get(said, "arms");
  ck_assert_msg(json_array_size(rows) >= 1, "%s", r.out);
  const json_t *row = json_array_get(rows, json_array_size(rows) - 1);
  ck_assert_msg(json_integer_value(json_object_get(row, "samples_a")) == 12, "%s", r.out);
  ck_assert(json_number_value(json_object_get(row, "speedup")) > 0);
  ck_assert_msg(strstr(r.out, pass) != NULL, "%s", r.out);
  json_decref(said);
  ran_free(&r);
}
END_TEST

START_TEST(runs_that_are_not_alike_are_refused) {
  run_simulated("256", "simulated");
  ran r = bsrun(dir, "--method", "row_parallel", "-P", "2", "--n", "256", "--phase", "0", "--run-id",
                "judged", "-q", NULL);
  must_be(&r, 0);
  ran_free(&r);
  r = bsrun(dir, "compare", "simulated", "judged", NULL);
  must_be(&r, 3);
  ck_assert_msg(strstr(r.err, "BS-COMPARE-UNLIKE") != NULL &&
                    strstr(r.err, "clock virtual and host") != NULL &&
                    strstr(r.err, "phase phase1_forward and phase0_correctness") != NULL &&
                    strstr(r.err, "--force") != NULL,
                "%s", r.err);
  ran_free(&r);
  r = bsrun(dir, "compare", "simulated", "judged", "--force", NULL); /* and there is no time to compare */
  ck_assert_msg(strstr(r.err, "BS-COMPARE-SAMPLES") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

START_TEST(mistakes_are_named) {
  static const struct {
    const char *words[6];
    int code;
    const char *id, *says;
  } bad[] = {
      {{"--a", "n=3"}, 2, "BS-COMPARE-WHAT", "--b SPEC"},
      {{"--a", "methd=x", "--b", "n=3"}, 2, "BS-COMPARE-SPEC", "did you mean 'method'"},
      {{"--a", "n", "--b", "n=3"}, 2, "BS-COMPARE-SPEC", "KEY=VALUE"},
      {{"--a", "n=3 N=4", "--b", "n=3"}, 2, "BS-COMPARE-SPEC", "twice"},
      {{"--a", "n=8", "--b", "method=nobody"}, 3, "BS-PLG-NOTFOUND", "nobody"},
      {{"one", "two"}, 5, "BS-STO-NORUN", "one"},
      {{"one", "--junit", "x"}, 2, "BS-COMPARE-WHAT", "RUN RUN"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    ran r = bsrun(dir, "compare", bad[i].words[0], bad[i].words[1], bad[i].words[2], bad[i].words[3], NULL);
    ck_assert_msg(r.code == bad[i].code, "%s: %d", bad[i].words[1], r.code);
    ck_assert_msg(strstr(r.err, bad[i].id) != NULL && strstr(r.err, bad[i].says) != NULL, "%s", r.err);
    ran_free(&r);
  }
}
END_TEST

/* For one version methods as words are the ladder that they were. */
START_TEST(methods_are_a_ladder) {
  ran r = bsrun(dir, "compare", "row_parallel", "--measure", "0", "--n", "64", "--b", "8", "--cache", "off",
                "-P", "2", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.err, "bsrun ladder") != NULL && strstr(r.out, "PREDICTED") != NULL, "%s%s", r.err,
                r.out);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{two_specs_are_measured_and_kept},
                             {a_side_may_be_the_other, 3},
                             {stored_runs_show_what_differs},
                             {a_slower_run_ends_with_14},
                             {a_run_that_lacks_an_arm_ends_with_5},
                             {backward_and_training_runs_are_compared, 2},
                             {runs_that_are_not_alike_are_refused},
                             {mistakes_are_named},
                             {methods_are_a_ladder},
                             {0}};
  return run_tests("bsrun_compare", tests, (test_setup){setup, teardown, 60});
}
