/* SPDX-License-Identifier: MIT
 * test_bsrun_model.c - `bsrun model`: its sub-verbs as a user calls them. */
#include <jansson.h>

#include "tests/bsrun/spawn.h"
#include "tests/run_tests.h"

static const char *dir;
static void setup(void) {
  dir = scratch_dir();
}
static void teardown(void) {
  remove_dir(dir);
}

/* ---- plan ------------------------------------------------------------------------------------ */

static const char example[] = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";

/* The example of minimalloc's README: it needs 12, and each offset is one of 0, 4, 8. */
START_TEST(plan_of_an_example) {
  write_text(dir, "e.csv", example);
  ran r = bsrun(dir, "model", "plan", "e.csv", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *plan = json_loads(r.out, 0, NULL);
  ck_assert_ptr_nonnull(plan);
  const char *by;
  json_int_t arena, bound, blocks, peak, naive;
  double ratio, seconds;
  int proven;
  json_t *placements, *largest;
  ck_assert_int_eq(
      json_unpack(plan, "{s:I, s:I, s:I, s:I, s:I, s:F, s:F, s:b, s:s, s:o, s:o}", "arena", &arena, "bound",
                  &bound, "blocks", &blocks, "peak_step", &peak, "naive", &naive, "ratio", &ratio, "seconds",
                  &seconds, "proven", &proven, "by", &by, "placements", &placements, "largest", &largest),
      0);
  ck_assert(arena == 12 && bound == 12 && blocks == 5 && peak == 0 && naive == 20 && ratio == 1 && proven);
  ck_assert_uint_eq(json_array_size(largest), 3);
  ck_assert_uint_eq(json_array_size(placements), 5);
  for (size_t i = 0; i < 5; i++) {
    const json_int_t offset = json_integer_value(json_object_get(json_array_get(placements, i), "offset"));
    ck_assert(offset == 0 || offset == 4 || offset == 8);
  }
  json_decref(plan);
  ran_free(&r);
}
END_TEST

/* -o csv is a file that can be planned again, with columns in another order and more of them; the table says
 * what is proven. */
START_TEST(plan_as_csv_and_table) {
  write_text(dir, "e.csv", example);
  ran r = bsrun(dir, "model", "plan", "e.csv", "-o", "csv", NULL);
  must_be(&r, 0);
  ck_assert_ptr_eq(strstr(r.out, "id,lower,upper,size,offset"), r.out);
  write_text(dir, "placed.csv", r.out);
  ran_free(&r);
  write_text(dir, "mixed.csv", "size, upper ,lower,id,note\r\n4,3,0,b1,x\r\n\r\n4,9,0,b3,\r\n");
  static const char *const files[] = {"placed.csv", "mixed.csv"};
  static const char *const arenas[] = {"5 blocks of 20 bytes lie in an arena of 12 bytes.",
                                       "2 blocks of 8 bytes lie in an arena of 8 bytes."};
  for (int i = 0; i < 2; i++) {
    r = bsrun(dir, "model", "plan", files[i], NULL);
    must_be(&r, 0);
    ck_assert_msg(strstr(r.out, arenas[i]) != NULL && strstr(r.out, "no arena is smaller") != NULL, "%s",
                  r.out);
    ran_free(&r);
  }
  r = bsrun(dir, "model", "plan", "e.csv", "--align", "64", "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_ptr_nonnull(strstr(r.out, "\"arena\": 192"));
  ran_free(&r);
}
END_TEST

static const struct {
  const char *text, *id, *says;
} bad[] = {
    {"", "BS-PLAN-FILE", "is empty"},
    {"id,lower,upper,size\n", "BS-PLAN-FILE", "has no blocks"},
    {"id,lower,upper\na,1,2\n", "BS-PLAN-LINE", "bad.csv:1: no column 'size'"},
    {"id,lower,upper,size\na,1,2,3\nb,1,2\n", "BS-PLAN-LINE", "bad.csv:3: not as many cells"},
    {"id,lower,upper,size\na,1,x,3\n", "BS-PLAN-LINE", "bad.csv:2: upper is no whole number of 32 bits: 'x'"},
    {"id,lower,upper,size\na,-1,2,3\n", "BS-PLAN-LINE", "bad.csv:2: lower is no whole number"},
    {"id,lower,upper,size\na,1,4294967296,3\n", "BS-PLAN-LINE", "bad.csv:2: upper is no whole number"},
    {"id,lower,upper,size\na,1,2,9223372036854775808\n", "BS-PLAN-LINE",
     "bad.csv:2: size is no whole number"},
    {"id,lower,upper,size\na,3,3,3\n", "BS-PLAN-LINE", "bad.csv:2: lower is not below upper in block 'a'"},
    {"id,lower,upper,size,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,\n", "BS-PLAN-LINE", "more than 32 columns"},
};

START_TEST(bad_files_are_exit_4) {
  write_text(dir, "bad.csv", bad[_i].text);
  ran r = bsrun(dir, "model", "plan", "bad.csv", NULL);
  must_be(&r, 4);
  ck_assert_msg(strstr(r.err, bad[_i].id) != NULL && strstr(r.err, bad[_i].says) != NULL, "%s", r.err);
  ck_assert_str_eq(r.out, "");
  ran_free(&r);
}
END_TEST

START_TEST(sizes_beyond_2_62_are_exit_10) {
  write_text(dir, "big.csv", "id,lower,upper,size\na,1,2,4611686018427387904\nb,1,2,4611686018427387904\n");
  ran r = bsrun(dir, "model", "plan", "big.csv", NULL);
  must_be(&r, 10);
  ck_assert_ptr_nonnull(strstr(r.err, "BS-PLAN-SIZE"));
  ran_free(&r);
}
END_TEST

/* ---- words ----------------------------------------------------------------------------------- */

static const struct {
  int code;
  const char *words[6], *says;
} uses[] = {
    {0, {"model", "--help"}, "usage: bsrun model"},
    {2, {"model"}, "usage: bsrun model"},
    {0, {"help", "model"}, "Options of model plan:"},
    {0, {"model", "plan", "--help"}, "--align BYTES"},
    {2, {"model", "plam"}, "did you mean 'plan'?"},
    {2, {"model", "plan"}, "0 words given"},
    {2, {"model", "plan", "a", "b"}, "2 words given"},
    {2, {"model", "plan", "a", "--align", "3"}, "3 is not a power of two"},
    {2, {"model", "plan", "a", "-o", "yaml"}, "unknown output format 'yaml'"},
    {4, {"model", "plan", "missing.csv"}, "missing.csv"},
};

START_TEST(words_of_the_verb) {
  const char *const *w = uses[_i].words;
  ran r = bsrun(dir, w[0], w[1], w[2], w[3], w[4], NULL);
  must_be(&r, uses[_i].code);
  ck_assert_msg(strstr(r.out, uses[_i].says) != NULL || strstr(r.err, uses[_i].says) != NULL, "%s%s", r.out,
                r.err);
  ran_free(&r);
}
END_TEST

int main(void) {
  return run_tests("bsrun_model",
                   (test_case[]){{plan_of_an_example},
                                 {plan_as_csv_and_table},
                                 {bad_files_are_exit_4, TEST_COUNT(bad)},
                                 {sizes_beyond_2_62_are_exit_10},
                                 {words_of_the_verb, TEST_COUNT(uses)},
                                 {0}},
                   (test_setup){setup, teardown});
}
