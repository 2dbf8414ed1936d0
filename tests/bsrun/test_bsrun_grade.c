/* SPDX-License-Identifier: MIT
 * test_bsrun_grade.c - what `plugins check` says of a file is kept in the cache folder, shown by list,
 * inspect and why, stored in records, and lost by a change of the file. */
#include <jansson.h>

#include "tests/run_tests.h"
#include "tests/spawn.h"

static char plugin[700], cache[700];

static void setup(void) {
  dir = scratch_dir();
  ck_assert_int_eq(chmod(dir, 0700), 0);
  snprintf(plugin, sizeof plugin, "%s/bs_skel_workload.so", dir);
  snprintf(cache, sizeof cache, "%s/cache/blockshock", dir);
  shell("cp '%s' '%s'", BS_TEST_SKELETON_DIR "/bs_skel_workload.so", plugin);
  char place[600];
  snprintf(place, sizeof place, "%s/cache", dir);
  setenv("XDG_CACHE_HOME", place, 1);
  setenv("BS_PLUGIN_PATH", dir, 1);
}

#define ANY "--set", "plugin_trust=any"

static void check_it(int code) {
  ran r = bsrun(dir, "plugins", "check", plugin, NULL);
  must_be(&r, code);
  ran_free(&r);
}

/* The row with key = value; the caller releases the whole. */
static const json_t *row_with(const json_t *rows, const char *key, const char *value) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const char *text = json_string_value(json_object_get(json_array_get(rows, i), key));
    if (text != NULL && strcmp(text, value) == 0) return json_array_get(rows, i);
  }
  ck_abort_msg("no row with %s = %s", key, value);
}

static json_t *rows_of(ran *r) {
  must_be(r, 0);
  json_t *rows = json_loads(r->out, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(json_is_array(rows), "%s", r->out);
  ran_free(r);
  return rows;
}

/* What list, inspect and why say of it. */
static void must_be_shown(const char *listed, const char *line, const char *why) {
  ran r = bsrun(dir, "plugins", "list", ANY, "-o", "json", NULL);
  json_t *rows = rows_of(&r);
  ck_assert_str_eq(json_string_value(json_object_get(row_with(rows, "id", "skel_workload"), "graded")),
                   listed);
  ck_assert_str_eq(json_string_value(json_object_get(row_with(rows, "id", "ref"), "graded")), "built in");
  json_decref(rows);
  r = bsrun(dir, "plugins", "inspect", plugin, "-o", "json", NULL);
  rows = rows_of(&r);
  const char *value = json_string_value(json_object_get(row_with(rows, "name", "grade"), "value"));
  ck_assert_msg(strncmp(value, line, strlen(line)) == 0, "%s", value);
  json_decref(rows);
  r = bsrun(dir, "plugins", "why", plugin, "-o", "json", NULL);
  rows = rows_of(&r);
  const json_t *row = row_with(rows, "step", "graded");
  ck_assert_str_eq(json_string_value(json_object_get(row, "answer")), why);
  json_decref(rows);
}

/* The plugin's row in the only record of a new run; `key` gets the part of the run's name that is its key. */
static json_t *recorded(char key[16], json_t **out_env_row) {
  ran r = bsrun(dir, "--plugin", plugin, "--set", "hardware.backend=ref", "--method", "dense", "--workload",
                "skel_workload", "--phase", "0", "-P", "1", "--tune-cache", "off", SMALL, NULL);
  must_be(&r, 0);
  const char *folder = run_folder(&r, dir, 0);
  const char *name = strrchr(folder, '/') + 1;
  snprintf(key, 16, "%.12s", name + strlen("20260131_120000_"));
  char *text = read_text(folder, "metrics.jsonl"), *env_text = read_text(folder, "env.json");
  json_t *record = json_loads(text, 0, NULL), *env = json_loads(env_text, 0, NULL);
  json_t *row =
      json_incref((json_t *)(uintptr_t)row_with(json_object_get(record, "plugins"), "id", "skel_workload"));
  *out_env_row =
      json_incref((json_t *)(uintptr_t)row_with(json_object_get(env, "plugins"), "id", "skel_workload"));
  json_decref(record);
  json_decref(env);
  free(text);
  free(env_text);
  ran_free(&r);
  return row;
}

START_TEST(a_grade_is_kept_shown_recorded_and_lost) {
  char before[16], after[16], changed[16];
  json_t *env;
  must_be_shown("not graded", "not graded", "no");
  json_t *row = recorded(before, &env);
  ck_assert(json_is_null(json_object_get(row, "grade")) && json_is_null(json_object_get(env, "grade")));
  json_decref(row);
  json_decref(env);

  check_it(0);
  must_be_shown("conformant (quick)", "blockshock-conformant ", "yes");
  row = recorded(after, &env);
  const json_t *grade = json_object_get(row, "grade");
  ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(grade, "line")), "workload ("));
  ck_assert(json_is_true(json_object_get(grade, "conformant")));
  ck_assert_int_gt(json_integer_value(json_object_get(json_object_get(grade, "counts"), "pass")), 5);
  ck_assert(json_equal(grade, json_object_get(env, "grade")));
  ck_assert_str_eq(before, after); /* the grade is not in the run's key */
  json_decref(row);
  json_decref(env);

  shell("printf x >> '%s'", plugin); /* still a plugin, but another file */
  must_be_shown("not graded", "not graded", "no");
  row = recorded(changed, &env);
  ck_assert(json_is_null(json_object_get(row, "grade")));
  ck_assert_str_ne(before, changed);
  json_decref(row);
  json_decref(env);
}
END_TEST

START_TEST(settings_and_form_are_kept_parts_are_not) {
  ran r = bsrun(dir, "plugins", "check", plugin, "--only", "abi", NULL);
  must_be(&r, 0);
  ran_free(&r);
  ck_assert_ptr_null(read_text(cache, "grades.jsonl"));
  r = bsrun(dir, "plugins", "check", plugin, "--option", "every=8", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *report = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(report != NULL, "%s", r.out);
  ran_free(&r);
  char *line = read_text(cache, "grades.jsonl");
  json_t *kept = json_loads(line, 0, NULL);
  ck_assert_msg(json_equal(json_object_get(kept, "line"), json_object_get(report, "grade")), "%s", line);
  ck_assert(json_equal(json_object_get(kept, "counts"), json_object_get(report, "counts")));
  const json_t *settings = json_object_get(kept, "settings");
  ck_assert_str_eq(json_string_value(json_array_get(settings, 0)), "option every=8");
  free(line);
  json_decref(kept);
  json_decref(report);
  r = bsrun(dir, "plugins", "check", plugin, "-o", "tap", NULL);
  must_be(&r, 0);
  ran_free(&r);
  char *lines = read_text(cache, "grades.jsonl");
  ck_assert_ptr_nonnull(strchr(lines, '\n'));
  ck_assert_ptr_nonnull(strstr(strchr(lines, '\n') + 1, "\"line\":\"blockshock-conformant "));
  free(lines);
}
END_TEST

START_TEST(damage_is_told_and_costs_the_grade_only) {
  shell("mkdir -p '%s' && echo '{torn' > '%s/grades.jsonl'", cache, cache);
  ran r = bsrun(dir, "plugins", "list", ANY, NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.err, "note: 1 line of ") != NULL && strstr(r.err, "as a grade: skipped") != NULL,
                "%s", r.err);
  ran_free(&r);
  shell("rm '%s/grades.jsonl' && mkdir '%s/grades.jsonl'", cache, cache);
  r = bsrun(dir, "plugins", "check", plugin, NULL);
  must_be(&r, 0); /* the grade is what it is */
  ck_assert_ptr_nonnull(strstr(r.err, "[BS-GRADE-IO]"));
  ran_free(&r);
  must_be_shown("not graded", "not graded", "no");
  shell("rm -r '%s' && echo > '%s'", cache, cache); /* a file where the folder should be */
  r = bsrun(dir, "plugins", "check", plugin, NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.err, "the grade is not kept") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

/* What a check is told is obeyed or refused, for a path too. */
START_TEST(nothing_is_passed_over) {
  static const struct {
    int code;
    const char *option, *value, *id, *says;
  } wrong[] = {{3, "--set", "nonsense.key=1", "BS-CFG-KEY", "nonsense"},
               {4, "--config", "/nonexistent", "BS-CFG-", "/nonexistent"},
               {3, "--set", "plugins.skel_workload.size=3", "BS-CHK-PARAM", "--param size=VALUE"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    ran r = bsrun(dir, "plugins", "check", plugin, wrong[i].option, wrong[i].value, NULL);
    must_be(&r, wrong[i].code);
    ck_assert_msg(strstr(r.err, wrong[i].id) != NULL && strstr(r.err, wrong[i].says) != NULL, "%s", r.err);
    ran_free(&r);
  }
  char *words[3 + 2 * 200 + 1] = {(char *)(uintptr_t)bsrun_path(), "plugins", "check"};
  int n = 3;
  words[n++] = plugin;
  for (int i = 0; i < 199; i++) {
    words[n++] = "--option";
    words[n++] = "every=8";
  }
  ran r = finish_spawn(dir, start_bsrun(dir, words));
  must_be(&r, 2);
  ck_assert_msg(strstr(r.err, "BS-USE-VALUE") != NULL && strstr(r.err, "199 values") != NULL, "%s", r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{a_grade_is_kept_shown_recorded_and_lost},
                             {settings_and_form_are_kept_parts_are_not},
                             {damage_is_told_and_costs_the_grade_only},
                             {nothing_is_passed_over},
                             {0}};
  return run_tests("bsrun_grade", tests, (test_setup){setup, dir_remove});
}
