/* SPDX-License-Identifier: MIT
 * test_bsrun_vary.c - ladder --vary: candidates by the values of a key, timed in one sampling; which take
 * it, each once; keys and values that are refused. */
#include <jansson.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

#define LAYER                                                                                              \
  "--n", "64", "--b", "8", "--dtype", "f32", "-P", "2", "--threads-per-rank", "1", "--cache", "off", "-o", \
      "json"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static json_t *rows_of(ran *r) {
  json_error_t why;
  must_be(r, 0);
  json_t *rows = json_loads(r->out, JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(json_is_array(rows), "%s: %s", why.text, r->out);
  ran_free(r);
  return rows;
}

static const json_t *row_named(const json_t *rows, const char *candidate) {
  size_t i;
  const json_t *row;
  json_array_foreach(rows, i, row) {
    if (strcmp(json_string_value(json_object_get(row, "candidate")), candidate) == 0) return row;
  }
  ck_abort_msg("no row of %s", candidate);
  return NULL;
}

static double num(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "no number %s", key);
  return json_number_value(value);
}

/* The candidates without the dense layer that stands beside them. */
static size_t splits_of(const json_t *rows) {
  size_t n = 0, i;
  const json_t *row;
  json_array_foreach(rows, i, row) n +=
      strncmp(json_string_value(json_object_get(row, "candidate")), "dense on ", 9) != 0;
  return n;
}

/* The gather of a fixed mask, and beside it the same mask by 2:4 values: how many times as long, and from
 * where to where. */
START_TEST(sparse24_beside_the_gather) {
  ran r = bsrun(dir, "ladder", "blockshock", "--masks", "complement_1100_0011", "--vary",
                "method.kernel=gather,sparse24", "--seconds", "0.3", LAYER, NULL);
  json_t *rows = rows_of(&r);
  const json_t *first = row_named(rows, "blockshock complement_1100_0011 kernel=gather"),
               *second = row_named(rows, "blockshock complement_1100_0011 kernel=sparse24");
  ck_assert_uint_eq(splits_of(rows), 2); /* the dense layer has no kernel to vary */
  row_named(rows, "dense on all cores");
  ck_assert(json_is_null(json_object_get(first, "speedup")));
  ck_assert(num(first, "measured_ms") > 0.0 && num(second, "measured_ms") > 0.0);
  ck_assert_double_le(num(second, "speedup_low"), num(second, "speedup"));
  ck_assert_double_ge(num(second, "speedup_high"), num(second, "speedup"));
  ck_assert_double_gt(num(second, "speedup_low"), 0.0);
  const char *why = json_string_value(json_object_get(second, "why"));
  ck_assert_msg(strstr(why, "0.531 of the weight bytes") != NULL, "%s", why);
  json_decref(rows);
}
END_TEST

/* An option that one of the methods has is varied in that one alone; a candidate that has a value of the key
 * gets the new ones in its place, and is there once. */
START_TEST(each_once_where_it_means_something) {
  ran r = bsrun(dir, "ladder", "blockshock", "column_parallel", "row_parallel", "--masks", "interleave",
                "--overlap", "off,3", "--vary", "method.slices=row,column", "--vary", "method.overlap=2,off",
                "--measure", "0", LAYER, NULL);
  json_t *rows = rows_of(&r);
  row_named(rows, "blockshock interleave slices=row overlap=2");
  row_named(rows, "blockshock interleave slices=column overlap=off");
  row_named(rows, "column_parallel overlap=2");
  row_named(rows, "row_parallel overlap=off");
  ck_assert_uint_eq(splits_of(rows), 4 + 2 + 2);
  json_decref(rows);
}
END_TEST

/* What a candidate had of the key is gone from its name too. */
START_TEST(a_name_has_each_key_once) {
  ran r = bsrun(dir, "ladder", "blockshock", "--masks", "random_2of4", "--vary", "method.slices=column,row",
                "--set", "auto.placements=[replicated, split]", "--vary", "method.y_placement=replicated",
                "--measure", "0", "--n", "64", "--b", "8", "--dtype", "f32", "-P", "4", "--threads-per-rank",
                "1", "--cache", "off", "-o", "json", NULL);
  json_t *rows = rows_of(&r);
  row_named(rows, "blockshock random_2of4 x=replicated slices=row y=replicated");
  row_named(rows, "blockshock random_2of4 x=replicated slices=column y=replicated");
  json_decref(rows);
}
END_TEST

START_TEST(refused) {
  static const char *const bad[][2] = {
      {"method.kernel", "no values"},
      {"=gather", "no values"},
      {"method.kernel=gather,", "an empty value"},
      {"model.N=64,128", "not a key of how a layer is split"},
      {"hardware.nothing=1", "not a key of how a layer is split"},
      {"method.nothing=1", "none of the methods has that option"},
      {"mask.name=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "more than 16"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    ran r = bsrun(dir, "ladder", "blockshock", "--vary", bad[i][0], "--measure", "0", LAYER, NULL);
    must_be(&r, 3);
    ck_assert_msg(strstr(r.err, "BS-AUTO-VARY") && strstr(r.err, bad[i][1]) && strstr(r.err, "KEY=V1,V2"),
                  "%s: %s", bad[i][0], r.err);
    ran_free(&r);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{sparse24_beside_the_gather},
                             {each_once_where_it_means_something},
                             {a_name_has_each_key_once},
                             {refused},
                             {0}};
  return run_tests("bsrun_vary", tests, (test_setup){setup, teardown, 60});
}
