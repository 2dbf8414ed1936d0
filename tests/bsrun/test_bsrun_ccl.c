/* SPDX-License-Identifier: MIT
 * test_bsrun_ccl.c - `bsrun ccl list | check | explain` as a user calls it: exit codes, texts, JSON. */
#include <jansson.h>
#include <string.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

static const char *text_of(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text != NULL ? text : "";
}

static const json_t *row_named(const json_t *rows, const char *name) {
  for (size_t i = 0; i < json_array_size(rows); i++)
    if (strcmp(text_of(json_array_get(rows, i), "algorithm"), name) == 0) return json_array_get(rows, i);
  ck_abort_msg("no row %s", name);
  return NULL;
}

static json_t *rows_of(const ran *r) {
  json_t *rows = json_loads(r->out, 0, NULL);
  ck_assert_msg(json_is_array(rows), "%s", r->out);
  return rows;
}

START_TEST(list_names_all) {
  static const char *const names[] = {
      "ring",     "ring_bidir", "doubling",    "halving_doubling", "binomial", "one_shot",    "two_shot",
      "pairwise", "chain",      "double_tree", "torus2d",          "nccl230",  "hierarchical"};
  ran r = bsrun(dir, "ccl", "list", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  for (int i = 0; i < TEST_COUNT(names); i++) row_named(rows, names[i]);
  ck_assert_str_eq(text_of(row_named(rows, "chain"), "params"), "chunks=16");
  ck_assert_str_eq(text_of(row_named(rows, "chain"), "kinds"), "broadcast");
  ck_assert_str_eq(text_of(row_named(rows, "ring"), "same_order"), "yes");
  ck_assert_str_eq(text_of(row_named(rows, "ring"), "file"), "plugins/algorithms/ring.c:1");
  ck_assert_str_eq(text_of(row_named(rows, "nccl230"), "runs"), "formula only");
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(check_proves_one) {
  ran r = bsrun(dir, "ccl", "check", "two_shot", "--max-ranks", "9", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_uint_eq(json_array_size(rows), 5);
  for (size_t i = 0; i < 5; i++) {
    const json_t *row = json_array_get(rows, i);
    ck_assert_str_eq(text_of(row, "result"), "right");
    ck_assert_int_gt(json_integer_value(json_object_get(row, "cases")), 0);
  }
  json_decref(rows);
  ran_free(&r);
}
END_TEST

/* The skeleton as a stranger's file. */
START_TEST(check_takes_a_file) {
  ran r = bsrun(dir, "ccl", "check", BS_TEST_SKELETON_DIR "/bs_skel_algorithm.so", "--max-ranks", "9", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, "skel_algorithm") != NULL && strstr(r.out, "WRONG") == NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

/* Rows 1, 5 and 7 of the known answers, through the command. */
START_TEST(explain_gives_known_answers) {
  static const struct {
    const char *name, *ranks;
    long long ps, messages;
  } known[] = {{"ring", "8", 43700160, 112},       {"ring", "64", 104287680, 8064},
               {"doubling", "64", 128829120, 384}, {"halving_doubling", "64", 47287680, 768},
               {"one_shot", "8", 147300640, 56},   {"two_shot", "8", 37700160, 112}};
  for (int i = 0; i < TEST_COUNT(known); i++) {
    ran r = bsrun(dir, "ccl", "explain", known[i].name, "-P", known[i].ranks, "--count", "262144", "--set",
                  "plugins.sim.alpha_s=0.5e-6", "--set", "plugins.sim.bw_Bps=50e9", "-o", "json", NULL);
    must_be(&r, 0);
    json_t *rows = rows_of(&r);
    const json_t *row = json_array_get(rows, 0);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "simulated_ps")), known[i].ps);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "messages")), known[i].messages);
    ck_assert_double_lt(json_real_value(json_object_get(row, "difference_ps")), .5);
    ck_assert_double_gt(json_real_value(json_object_get(row, "difference_ps")), -.5);
    json_decref(rows);
    ran_free(&r);
  }
}
END_TEST

/* On two ranks of each communicator that is always there: right values, and both times. How far they are
 * apart is the machine's affair. */
/* Without --hardware the machine is that of sim scale; never one in which everything takes 0. */
START_TEST(explain_has_a_machine) {
  ran bare = bsrun(dir, "ccl", "explain", "ring", "-P", "64", "-o", "json", NULL);
  ran named = bsrun(dir, "ccl", "explain", "ring", "-P", "64", "-o", "json", "--hardware", "sim-flat", NULL);
  must_be(&bare, 0);
  must_be(&named, 0);
  ck_assert_str_eq(bare.out, named.out);
  ran_free(&bare);
  ran_free(&named);
  ran own = bsrun(dir, "ccl", "explain", "ring", "-P", "8", "-o", "json", "--set", "plugins.sim.alpha_s=1e-6",
                  NULL);
  must_be(&own, 0); /* that of the user, and nothing of sim-flat */
  json_t *rows = rows_of(&own);
  ck_assert(json_number_value(json_object_get(row_named(rows, "ring"), "simulated_us")) == 14);
  json_decref(rows);
  ran_free(&own);
  own = bsrun(dir, "ccl", "explain", "ring", "--hardware", "cpu", NULL);
  must_be(&own, 3);
  ck_assert_ptr_nonnull(strstr(own.err, "BS-SIM-MACHINE"));
  ran_free(&own);
}
END_TEST

START_TEST(bench_measures_beside_the_simulation) {
  static const char *const comms[] = {"threads", "shm"};
  ran r = bsrun(dir, "ccl", "bench", "ring", "two_shot", "--comm", comms[_i], "-P", "2", "--max-bytes",
                "4194304", "--samples", "3", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = rows_of(&r);
  ck_assert_uint_ge(json_array_size(rows), 4);
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "wrong")), 0);
    ck_assert_double_gt(json_real_value(json_object_get(row, "measured_us")), 0);
    ck_assert_double_gt(json_real_value(json_object_get(row, "simulated_us")), 0);
    ck_assert(json_is_real(json_object_get(row, "error_percent")));
  }
  json_decref(rows);
  ran_free(&r);
}
END_TEST

START_TEST(what_is_wrong_is_said) {
  static const struct {
    const char *words[7];
    int code;
    const char *says;
  } wrong[] = {{{"ccl", "prove"}, 2, "BS-USE-VERB"},
               {{"ccl", "check"}, 2, "NAME|FILE.so"},
               {{"ccl", "check", "rings"}, 5, "'ring'"},
               {{"ccl", "check", "ring", "--level", "V9"}, 2, "V4"},
               {{"ccl", "check", "nccl230"}, 3, "nothing to prove"},
               {{"ccl", "check", "chain", "--option", "chunks=0"}, 2, "1..65536"},
               {{"ccl", "check", "hierarchical", "--option", "group=7", "--max-ranks=5"}, 15, "nothing ran"},
               {{"ccl", "explain", "chain", "--coll", "all_reduce"}, 2, "broadcast"},
               {{"ccl", "explain", "ring", "--dtype", "f31"}, 2, "f31"},
               {{"ccl", "explain"}, 2, "NAME..."}};
  for (int i = 0; i < TEST_COUNT(wrong); i++) {
    const char *const *w = wrong[i].words;
    ran r = bsrun(dir, w[0], w[1], w[2], w[3], w[4], w[5], w[6], NULL);
    ck_assert_msg(r.code == wrong[i].code, "%s %s: exit %d: %s", w[1], w[2] != NULL ? w[2] : "", r.code,
                  r.err);
    ck_assert_msg(strstr(r.err, wrong[i].says) != NULL, "%s", r.err);
    ran_free(&r);
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{list_names_all},        {check_proves_one},
                             {check_takes_a_file},    {explain_gives_known_answers},
                             {explain_has_a_machine}, {bench_measures_beside_the_simulation, 2},
                             {what_is_wrong_is_said}, {0}};
  return run_tests("bsrun_ccl", tests, (test_setup){setup, teardown});
}
