/* SPDX-License-Identifier: MIT
 * test_bsrun_why.c - `bsrun plugins why`: each way in which a plugin is or is not used has its row with the
 * right answer and rule, and the exit code is 0 exactly when the plugin can be used. */
#include <jansson.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

#define ANY "--set", "plugin_trust=any", "-o", "json"

static const char *dir;
static char first[600], second[600];

static void copy(const char *id, const char *to) {
  char command[1500];
  snprintf(command, sizeof command, "cp '%s/bs_%s.so' '%s/' && chmod 0644 '%s/bs_%s.so'", BS_TEST_FIXTURE_DIR,
           id, to, to, id);
  ck_assert_int_eq(system(command), 0);
}

static void setup(void) {
  char both[1300];
  dir = scratch_dir();
  snprintf(first, sizeof first, "%s/first", dir);
  snprintf(second, sizeof second, "%s/second", dir);
  ck_assert_int_eq(mkdir(first, 0700), 0);
  ck_assert_int_eq(mkdir(second, 0700), 0);
  snprintf(both, sizeof both, "%s:%s", first, second);
  setenv("BS_PLUGIN_PATH", both, 1);
}
static void teardown(void) {
  remove_dir(dir);
}

static json_t *rows_of(const ran *r) {
  json_t *rows = json_loads(r->out, JSON_REJECT_DUPLICATES, NULL);
  ck_assert_msg(json_is_array(rows), "no rows: %s%s", r->out, r->err);
  return rows;
}

static const char *cell(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  ck_assert_ptr_nonnull(text);
  return text;
}

/* Is there a row with this step, answer and rule (NULL: any), and this in its text? */
static int has_row(const json_t *rows, const char *step, const char *answer, const char *rule,
                   const char *text) {
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(cell(row, "step"), step) == 0 && strcmp(cell(row, "answer"), answer) == 0 &&
        (rule == NULL || strcmp(cell(row, "rule"), rule) == 0) && strstr(cell(row, "text"), text) != NULL)
      return 1;
  }
  return 0;
}

static void must_have(const ran *r, const char *step, const char *answer, const char *rule,
                      const char *text) {
  json_t *rows = rows_of(r);
  ck_assert_msg(has_row(rows, step, answer, rule, text), "no row %s %s %s '%s' in\n%s%s", step, answer,
                rule == NULL ? "*" : rule, text, r->out, r->err);
  json_decref(rows);
}

START_TEST(found_but_not_selected) {
  copy("good", second);
  ran r = bsrun(dir, "plugins", "why", "good", ANY, NULL);
  must_be(&r, 0);
  must_have(&r, "searched", "yes", "", "BS_PLUGIN_PATH[0]");
  must_have(&r, "searched", "yes", "", "second: 1 plugin file");
  must_have(&r, "found", "found", "", "BS_PLUGIN_PATH[1]");
  must_have(&r, "opened", "yes", "", "child");
  must_have(&r, "registers", "method", "", "good_method, also good_alias, good_other: a fixture (good.c:42)");
  must_have(&r, "registers", "workload", "", "good_work");
  must_have(&r, "selected", "no", "", "none is this plugin's");
  must_have(&r, "used", "no", "", "bsrun --plugin good");
  ck_assert_str_eq(r.err, "");
  ran_free(&r);
}
END_TEST

START_TEST(selected_by_the_configuration) {
  static const struct {
    const char *option, *value, *text;
  } ways[] = {{"--set", "method.name=good_method", "method.name: good_method"},
              {"--set", "method.name=good_alias", "method.name: good_alias"},
              {"--set", "workload.type=good_work", "workload.name: good_work"},
              {"--plugin", "good", "plugin: good names it"},
              {"--set", "plugin=[good]", "plugin: good names it"},
              {"--plugin", "second/bs_good.so", "plugin: second/bs_good.so names it"}};
  copy("good", second);
  for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
    ran r = bsrun(dir, "plugins", "why", "good", ways[i].option, ways[i].value, ANY, NULL);
    must_be(&r, 0);
    must_have(&r, "selected", "yes", "", ways[i].text);
    must_have(&r, "used", "yes", "", "");
    ran_free(&r);
  }
}
END_TEST

START_TEST(shadowed) {
  copy("good", first);
  copy("good", second);
  ran r = bsrun(dir, "plugins", "why", "second/bs_good.so", "--set", "method.name=good_method", ANY, NULL);
  must_be(&r, 0);
  must_have(&r, "found", "found", "", "first/bs_good.so");
  must_have(&r, "found", "shadowed", "BS-PLG-DUP", "first/bs_good.so (BS_PLUGIN_PATH[0])");
  must_have(&r, "opened", "yes", "", "");
  must_have(&r, "used", "no", "BS-PLG-DUP", "bsrun --plugin second/bs_good.so");
  ran_free(&r);
}
END_TEST

/* A name that an earlier plugin offers is taken from there. */
START_TEST(taken_from_another) {
  copy("driver", first);
  copy("nothing", second);
  ran r = bsrun(dir, "plugins", "why", "nothing", "--set", "method.name=bad_method", ANY, NULL);
  must_be(&r, 0);
  must_have(&r, "selected", "no", "", "bad_method is taken from driver, which comes first");
  must_have(&r, "used", "no", "", "");
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", "nothing", "--plugin", "nothing", "--set", "method.name=bad_method", ANY,
            NULL);
  must_be(&r, 0);
  must_have(&r, "used", "yes", "", "");
  ran_free(&r);
}
END_TEST

static const struct {
  const char *id, *rule, *text;
} refusals[] = {{"minor", "BS-PLG-ABI", "host has 0."},      {"ledger", "BS-PLG-ABI", "other headers"},
                {"sanitizer", "BS-PLG-SANITIZER", "built"},  {"wrongid", "BS-PLG-ID", "somebody_else"},
                {"nosymbol", "BS-PLG-SYMBOL", "has no bs_"}, {"major", "BS-PLG-ABI", "plugin ABI 2"}};

/* The one error line has the id of the rule and the file, as a run that names the plugin has. */
static void must_name(const ran *r, const char *rule, const char *file) {
  char start[100];
  snprintf(start, sizeof start, "bsrun: error[%s] ", rule);
  ck_assert_msg(strstr(r->err, start) == r->err && strstr(r->err, file) != NULL, "%s %s: %s", rule, file,
                r->err);
}

START_TEST(refused) {
  char file[100];
  copy(refusals[_i].id, first);
  snprintf(file, sizeof file, "first/bs_%s.so", refusals[_i].id);
  ran r = bsrun(dir, "plugins", "why", refusals[_i].id, ANY, NULL);
  must_be(&r, 5);
  must_have(&r, "found", "refused", refusals[_i].rule, refusals[_i].text);
  must_have(&r, "used", "no", NULL, "");
  must_name(&r, refusals[_i].rule, file);
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", file, ANY, NULL);
  must_be(&r, 5);
  must_have(&r, "accepted", "no", refusals[_i].rule, refusals[_i].text);
  ck_assert_ptr_nonnull(strstr(r.err, refusals[_i].rule));
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", refusals[_i].id, "--plugin", refusals[_i].id, ANY, NULL);
  must_be(&r, 5); /* named: the run would end with it */
  must_have(&r, "searched", "error", refusals[_i].rule, refusals[_i].text);
  must_have(&r, "selected", "yes", "", "names it");
  must_have(&r, "used", "no", NULL, "a run that names it");
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", "ref", "--set", "hardware.backend=ref", "--plugin", refusals[_i].id, ANY,
            NULL);
  must_be(&r, 0); /* the other one can be used, but not in that run */
  must_have(&r, "used", "no", NULL, "ends before");
  ran_free(&r);
}
END_TEST

/* The search does not trust the folder; by its path the same file is opened, with a warning. */
START_TEST(not_trusted) {
  copy("good", first);
  ck_assert_int_eq(chmod(first, 0777), 0);
  ran r = bsrun(dir, "plugins", "why", "good", "-o", "json", NULL);
  must_be(&r, 5);
  must_have(&r, "found", "refused", "BS-PLG-TRUST", "world-writable");
  ran_free(&r);
  r = bsrun(dir, "plugins", "inspect", "good", NULL);
  must_be(&r, 5);
  must_name(&r, "BS-PLG-TRUST", "first/bs_good.so");
  ck_assert_ptr_nonnull(strstr(r.err, "; hint: chmod go-w"));
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", "first/bs_good.so", "-o", "json", NULL);
  must_be(&r, 0);
  must_have(&r, "found", "refused", "BS-PLG-TRUST", "world-writable");
  must_have(&r, "accepted", "yes", "", "by its path");
  must_have(&r, "used", "no", "BS-PLG-TRUST", "--plugin first/bs_good.so");
  ck_assert_ptr_nonnull(strstr(r.err, "opened all the same"));
  ran_free(&r);
}
END_TEST

START_TEST(does_not_open) {
  copy("driver", first);
  ran r = bsrun(dir, "plugins", "why", "driver", "--set", "method.name=bad_method", ANY, NULL);
  must_be(&r, 5);
  must_have(&r, "found", "found", "", "bs_driver.so");
  must_have(&r, "opened", "no", "BS-PLG-ACTIVATE", "no driver on this machine");
  must_have(&r, "lists", "method", "", "bad_method");
  must_have(&r, "used", "no", NULL, "");
  ck_assert_ptr_nonnull(strstr(r.err, "bsrun: error[BS-PLG-ACTIVATE]"));
  ran_free(&r);
}
END_TEST

START_TEST(not_there) {
  setenv("BS_PLUGIN_PATH", "lib:/no/such/folder", 1);
  ran r = bsrun(dir, "plugins", "why", "reff", ANY, NULL);
  must_be(&r, 5);
  must_have(&r, "searched", "no", "BS-PLG-PATH", "BS_PLUGIN_PATH[0] lib: relative path 'lib' is refused");
  must_have(&r, "searched", "no", "BS-PLG-PATH", "BS_PLUGIN_PATH[1] /no/such/folder: cannot search");
  must_have(&r, "found", "no", "", "no bs_reff.so");
  ck_assert_msg(strstr(r.err, "bsrun: error[BS-PLG-NONE]") == r.err, "%s", r.err);
  ck_assert_ptr_nonnull(strstr(r.err, "did you mean 'ref'?"));
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", "./bs_none.so", ANY, NULL);
  must_be(&r, 5);
  must_have(&r, "found", "no", "", "no search comes to this file");
  must_have(&r, "accepted", "no", "BS-PLG-NOTFOUND", "cannot resolve the path");
  ran_free(&r);
}
END_TEST

/* What lies in no searched folder can be used, but only by its path. */
START_TEST(not_searched) {
  unsetenv("BS_PLUGIN_PATH");
  copy("good", first);
  ran r = bsrun(dir, "plugins", "why", "first/bs_good.so", "--set", "method.name=good_method", ANY, NULL);
  must_be(&r, 0);
  must_have(&r, "found", "no", "", "no search comes to this file");
  must_have(&r, "opened", "yes", "", "");
  must_have(&r, "used", "no", "", "bsrun --plugin first/bs_good.so");
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", "first/bs_good.so", "--plugin", "first/bs_good.so", ANY, NULL);
  must_be(&r, 0);
  must_have(&r, "found", "found", "", "--plugin");
  must_have(&r, "used", "yes", "", "");
  ran_free(&r);
}
END_TEST

/* Whatever letters a path has, the file at it is the one that is asked about. */
START_TEST(odd_paths) {
  static const char *const folders[] = {"it's \"here\": {a, b]", "two\nlines\tand # more", "back\\slash"};
  for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
    char from[900], to[900], path[300];
    copy("good", first);
    snprintf(from, sizeof from, "%s/bs_good.so", first);
    snprintf(to, sizeof to, "%s/%s", dir, folders[i]);
    ck_assert_int_eq(mkdir(to, 0700), 0);
    snprintf(to, sizeof to, "%s/%s/bs_good.so", dir, folders[i]);
    ck_assert_int_eq(rename(from, to), 0);
    snprintf(path, sizeof path, "%s/bs_good.so", folders[i]);
    ran r = bsrun(dir, "plugins", "why", path, ANY, NULL);
    must_be(&r, 0);
    must_have(&r, "accepted", "yes", "", "");
    must_have(&r, "opened", "yes", "", "");
    ran_free(&r);
  }
}
END_TEST

START_TEST(built_in) {
  ran r = bsrun(dir, "plugins", "why", "ref", "-o", "json", NULL);
  must_be(&r, 0);
  must_have(&r, "found", "found", "", "built in");
  must_have(&r, "registers", "op", "", "matmul@ref");
  must_have(&r, "used", "no", "", "");
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", "ref", "--set", "hardware.backend=ref", "-o", "json", NULL);
  must_be(&r, 0);
  must_have(&r, "selected", "yes", "", "hardware.backend: ref");
  must_have(&r, "selected", "yes", "", "its ops serve hardware.backend: ref");
  must_have(&r, "used", "yes", "", "");
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", "cpu", "--plugin", "ref", "-o", "json", NULL);
  must_be(&r, 0); /* ref brings its own backend */
  must_have(&r, "used", "no", "", "");
  ran_free(&r);
  r = bsrun(dir, "plugins", "why", "cpu", NULL); /* a table */
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "hardware.backend: cpu is one of its things"));
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {{found_but_not_selected},
                             {selected_by_the_configuration},
                             {shadowed},
                             {taken_from_another},
                             {refused, TEST_COUNT(refusals)},
                             {not_trusted},
                             {does_not_open},
                             {not_there},
                             {not_searched},
                             {odd_paths},
                             {built_in},
                             {0}};
  return run_tests("bsrun_why", tests, (test_setup){setup, teardown});
}
