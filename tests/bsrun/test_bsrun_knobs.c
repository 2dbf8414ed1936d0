/* SPDX-License-Identifier: MIT
 * test_bsrun_knobs.c - knobs as a user meets them: the table of all, inspect, explain with the values in use,
 * a run that is told some and keeps what its plan said, and values that are refused with the nearest. */
#include <jansson.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

#define LAYER "--b", "32", "--n", "256", "--k", "256", "--dtype", "f32"
#define QUIET "--tune-cache", "off", "--set", "hardware.threads_per_rank=2", "--backend", "cpu"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static json_t *rows_of(const ran *r) {
  json_error_t why;
  json_t *rows = json_loads(r->out, JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(json_is_array(rows), "%s: %s", why.text, r->out);
  return rows;
}

static const char *str(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  ck_assert_msg(text != NULL, "no text %s", key);
  return text;
}

/* The row with these two texts; NULL: none. */
static const json_t *row_with(const json_t *rows, const char *a, const char *is_a, const char *b,
                              const char *is_b) {
  size_t i;
  const json_t *row;
  json_array_foreach(rows, i, row) {
    if (strcmp(str(row, a), is_a) == 0 && strcmp(str(row, b), is_b) == 0) return row;
  }
  return NULL;
}

START_TEST(one_table_has_all_knobs) {
  static const struct {
    const char *of, *knob, *values, *set;
  } cases[] = {{"matmul@cpu/packed", "tokens", "12:384*2", "tune.choices={tokens=}"},
               {"matmul24@cpu/packed", "form", "narrow,wide", "tune.choices={form=}"},
               {"blockshock", "kernel", "auto,gather,sparse24", "method.kernel"},
               {"row_parallel", "overlap", "off,auto,2,3,4,5,6,7,8", "method.overlap"},
               {"ring", "algorithm", "ring", "hardware.algorithm"}};
  ran r = bsrun(dir, "plugins", "knobs", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const json_t *row = row_with(rows, "of", cases[i].of, "knob", cases[i].knob);
    ck_assert_msg(row != NULL, "no knob %s of %s", cases[i].knob, cases[i].of);
    ck_assert_str_eq(str(row, "values"), cases[i].values);
    ck_assert_str_eq(str(row, "set"), cases[i].set);
    ck_assert_str_ne(str(row, "text"), "");
  }
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "plugins", "knobs", "blockshock", "-o", "json", NULL);
  must_be(&r, 0);
  rows = rows_of(&r);
  ck_assert_ptr_null(row_with(rows, "of", "matmul@cpu/packed", "knob", "tokens"));
  json_decref(rows);
  ran_free(&r);
  r = bsrun(dir, "plugins", "knobs", "blockshok", NULL);
  must_be(&r, 5);
  ck_assert_ptr_nonnull(strstr(r.err, "blockshock"));
  ran_free(&r);
}
END_TEST

START_TEST(inspect_lists_them) {
  ran r = bsrun(dir, "plugins", "inspect", "cpu", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  const json_t *row = row_with(rows, "part", "knob", "name", "matmul@cpu/packed.keep");
  ck_assert_ptr_nonnull(row);
  ck_assert_str_eq(str(row, "value"), "auto");
  ck_assert_str_eq(str(row, "at"), "off,on");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* "KEY -> cpu:packed{knobs}" of the layer, as --set takes it. */
static void choice_of(const char *knobs, char *out, size_t size) {
  ran r = bsrun(dir, "explain", "matmul", LAYER, "--bias", QUIET, "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  snprintf(out, size, "tune.choices=['%s -> cpu:packed{%s}']", str(json_array_get(rows, 0), "key"), knobs);
  json_decref(rows);
  ran_free(&r);
}

static const char *in_use(const json_t *knobs, const char *name) {
  size_t i;
  const json_t *knob;
  json_array_foreach(knobs, i, knob) if (strcmp(str(knob, "knob"), name) == 0) return str(knob, "in_use");
  ck_abort_msg("no knob %s", name);
}

START_TEST(explain_tells_the_values_in_use) {
  char set[600];
  ran r = bsrun(dir, "explain", "matmul", LAYER, "--bias", QUIET, NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "\ntokens   12:384*2") != NULL, "%s", r.out);
  ran_free(&r);
  choice_of("tokens=24;threads=1", set, sizeof set);
  r = bsrun(dir, "explain", "matmul", LAYER, "--bias", QUIET, "--set", set, "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  const json_t *row = json_array_get(rows, 0), *knobs = json_object_get(row, "knobs");
  ck_assert_str_eq(str(row, "implementation"), "matmul@cpu/packed");
  ck_assert_str_eq(str(row, "given"), "tokens=24;threads=1");
  ck_assert_str_eq(in_use(knobs, "tokens"), "24");
  ck_assert_str_eq(in_use(knobs, "threads"), "1");
  ck_assert_str_eq(in_use(knobs, "beside"), "4");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* The only record below the folder of runs. */
static json_t *record(void) {
  char command[600], line[16384] = "";
  snprintf(command, sizeof command, "cat '%s'/runs/*/*/*/metrics.jsonl", dir);
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
  pclose(f);
  json_t *r = json_loads(line, 0, NULL);
  ck_assert_msg(r != NULL, "%s", line);
  return r;
}

START_TEST(a_run_keeps_what_its_plan_said) {
  char set[600];
  choice_of("tokens=24;keep=on", set, sizeof set);
  ran r = bsrun(dir, "--method", "dense", "--phase", "0", LAYER, QUIET, "--set", set, "--set",
                "logging.out_dir=runs", NULL);
  must_be(&r, 0);
  ran_free(&r);
  json_t *kept = record();
  const json_t *plan = json_array_get(json_object_get(kept, "plans"), 0);
  ck_assert_str_eq(str(plan, "implementation"), "cpu:packed");
  ck_assert_str_eq(str(plan, "given"), "tokens=24;keep=on");
  ck_assert_ptr_nonnull(strstr(str(plan, "knobs"), "tokens=24;"));
  ck_assert_ptr_nonnull(strstr(str(plan, "knobs"), "keep=on"));
  ck_assert_str_eq(str(json_array_get(json_object_get(kept, "choices"), 0), "knobs"), "tokens=24;keep=on");
  ck_assert_ptr_nonnull(strstr(json_string_value(json_array_get(json_object_get(kept, "algorithms"), 0)),
                               "matmul@cpu/packed{tokens=24;keep=on}"));
  json_decref(kept);
}
END_TEST

START_TEST(wrong_values_are_refused_with_the_nearest) {
  static const struct {
    const char *knobs, *id, *text;
    int code;
  } cases[] = {{"tokens=25", "BS-OP-KNOB", "the nearest is tokens=24", 3},
               {"token=24", "BS-OP-KNOB", "did you mean 'tokens'?", 3},
               {"threads=128", "BS-CPU-KNOB", "threads=128 asked, 2 can work", 3},
               {"tokens", "BS-OP-KNOB", "is not KNOB=VALUE", 3}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char set[600];
    choice_of(cases[i].knobs, set, sizeof set);
    ran r = bsrun(dir, "--method", "dense", "--phase", "0", LAYER, QUIET, "--set", set, NULL);
    must_be(&r, cases[i].code);
    ck_assert_msg(strstr(r.err, cases[i].id) != NULL && strstr(r.err, cases[i].text) != NULL, "%s", r.err);
    ran_free(&r);
  }
  ran r = bsrun(dir, "--method", "blockshock", "--phase", "0", LAYER, QUIET, "--set", "method.kernel=gathr",
                NULL);
  must_be(&r, 3);
  ck_assert_msg(strstr(r.err, "legal are auto,gather,sparse24; hint: the nearest is kernel=gather") != NULL,
                "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{one_table_has_all_knobs},
                             {inspect_lists_them},
                             {explain_tells_the_values_in_use},
                             {a_run_keeps_what_its_plan_said},
                             {wrong_values_are_refused_with_the_nearest},
                             {0}};
  return run_tests("bsrun_knobs", tests, (test_setup){setup, teardown});
}
