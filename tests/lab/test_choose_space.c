/* SPDX-License-Identifier: MIT
 * test_choose_space.c - values of knobs, points, constraints: what is read, and what is refused. */
#include "lab/choose/space.h"
#include "tests/lab/lab_test.h"
#include "tests/run_tests.h"

static const struct {
  const char *values, *standard;
  uint32_t n, ordered, place;
  const char *first, *last;
} good[] = {{"48,96,192", "96", 3, 1, 1, "48", "192"}, {"16:256*2", "auto", 5, 1, 5, "16", "256"},
            {"8:64+8", "16", 8, 1, 1, "8", "64"},      {"exact,fast", "exact", 2, 0, 0, "exact", "fast"},
            {"off,2:8+1", "off", 8, 0, 0, "off", "8"}, {"96,48", "48", 2, 0, 1, "96", "48"},
            {"0:2+1", "0", 3, 1, 0, "0", "2"},         {"7", "7", 1, 1, 0, "7", "7"}};

START_TEST(values_are_read) {
  bs_space s;
  bs_error err = BS_ERROR_INIT;
  bs_space_init(&s);
  ck_assert_msg(bs_space_add(&s, "k", good[_i].values, good[_i].standard, &err) == BS_OK, "%s", err.message);
  const bs_space_knob *k = &s.knob[0];
  ck_assert_uint_eq(k->n, good[_i].n);
  ck_assert_uint_eq(s.size, good[_i].n);
  ck_assert_uint_eq(k->ordered, good[_i].ordered);
  ck_assert_uint_eq(k->standard, good[_i].place);
  ck_assert_str_eq(k->value[0], good[_i].first);
  ck_assert_str_eq(k->value[k->n - 1], good[_i].last);
}
END_TEST

static const struct {
  const char *values, *standard;
} bad[] = {{"", "auto"},      {"1,,2", "1"},     {"1,1", "1"},     {"16:256", "16"},       {"16:256*1", "16"},
           {"0:8*2", "auto"}, {"9:8+1", "auto"}, {"1:900+1", "1"}, {"1:8+0", "1"},         {"1:8+1x", "1"},
           {"a b", "a b"},    {"a,b", "c"},      {"a;b", "auto"},  {"1:9999999999*2", "1"}};

START_TEST(what_is_no_list_of_values_is_refused) {
  bs_space s;
  bs_error err = BS_ERROR_INIT;
  bs_space_init(&s);
  ck_assert_int_eq(bs_space_add(&s, "k", bad[_i].values, bad[_i].standard, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-KNOB-VALUES");
  ck_assert_uint_eq(s.n, 0);
}
END_TEST

static void make(bs_space *s) {
  bs_error err = BS_ERROR_INIT;
  bs_space_init(s);
  ck_assert_int_eq(bs_space_add(s, "rows", "4:32*2", "8", &err), BS_OK);
  ck_assert_int_eq(bs_space_add(s, "exp", "exact,fast", "exact", &err), BS_OK);
  ck_assert_int_eq(bs_space_add(s, "keys", "16,64,256", "auto", &err), BS_OK);
}

START_TEST(points_and_texts_are_each_others) {
  bs_space s;
  char text[BS_SPACE_TEXT];
  make(&s);
  ck_assert_uint_eq(s.size, 24);
  for (uint64_t p = 0; p < s.size; p++) {
    uint64_t back = 99;
    ck_assert(bs_space_find(&s, bs_space_text(&s, p, text, sizeof text), &back));
    ck_assert_uint_eq(back, p);
    for (uint32_t k = 0; k < s.n; k++)
      ck_assert_uint_eq(bs_space_with(&s, p, k, bs_space_place(&s, p, k)), p);
  }
  ck_assert_str_eq(bs_space_text(&s, 0, text, sizeof text), "rows=4;exp=exact;keys=16");
  ck_assert_str_eq(bs_space_text(&s, 23, text, sizeof text), "rows=32;exp=fast;keys=256");
  uint64_t p = 0;
  ck_assert(bs_space_find(&s, "keys=64;rows=4;exp=fast", &p)); /* in any order */
  ck_assert_uint_eq(p, 4);
  ck_assert(!bs_space_find(&s, "keys=64;rows=4", &p));
  ck_assert(!bs_space_find(&s, "keys=64;rows=4;exp=fast;warps=2", &p));
  ck_assert(!bs_space_find(&s, "keys=65;rows=4;exp=fast", &p));
  ck_assert(!bs_space_find(&s, "", &p));
}
END_TEST

START_TEST(the_nearest_point_of_an_echo) {
  bs_space s;
  char text[BS_SPACE_TEXT];
  int exact = 9;
  make(&s);
  static const struct {
    const char *echo, *point;
    int exact;
  } rows[] = {{"rows=16;exp=fast;keys=64", "rows=16;exp=fast;keys=64", 1},
              {"rows=15;exp=fast;keys=200", "rows=16;exp=fast;keys=256", 0},
              {"rows=1000;exp=poly;keys=33", "rows=32;exp=exact;keys=64", 0},
              {"keys=256", "rows=8;exp=exact;keys=256", 0},
              {"", "rows=8;exp=exact;keys=16", 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const uint64_t p = bs_space_nearest(&s, rows[i].echo, &exact);
    ck_assert_str_eq(bs_space_text(&s, p, text, sizeof text), rows[i].point);
    ck_assert_int_eq(exact, rows[i].exact);
  }
}
END_TEST

START_TEST(why_a_text_is_no_point) {
  static const struct {
    const char *text, *why;
  } rows[] = {{"rows=16;exp=fast;keys=64", ""},
              {"warps=2;rows=4;exp=fast;keys=64", "there is no knob 'warps'"},
              {"rows=5;exp=fast;keys=64", "'rows=5' is not one of the values of rows here"},
              {"rows;exp=fast;keys=64", "'rows' is not one of the values of rows here"},
              {"nonsense", "there is no knob 'nonsense'"},
              {"rows=4;keys=64", "it has no value for exp"},
              {"", "it has no value for rows"},
              {"rows=4;exp=fast;keys=64;keys=16", "a knob comes twice"}};
  bs_space s;
  char why[200];
  uint64_t p = 0;
  make(&s);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ck_assert_str_eq(bs_space_why(&s, rows[i].text, why, sizeof why), rows[i].why);
    ck_assert_int_eq(bs_space_find(&s, rows[i].text, &p), rows[i].why[0] == '\0');
  }
}
END_TEST

static const struct {
  const char *text;
  int points; /* that it leaves of 24; -1: bad syntax, -2: names or words that this space has not */
} where[] = {{"rows*keys <= 512", 12},
             {"rows < 16 && exp == fast", 6},
             {"rows < 16 || exp == fast", 18},
             {"!(exp == exact)", 12},
             {"exp != exact && keys % 64 == 0", 8},
             {"(rows + keys) / 4 >= 16 - 2*2", 18},
             {"rows > 1000", 0},
             {"rows - 4 - 4 == 0", 6},
             {"rows % 0", 0}, /* what is no number holds nowhere */
             {"!(rows % 0)", 0},
             {"rows % 0 != 1", 0},
             {"rows % 0 < 1 && rows > 0", 0},
             {"rows % (rows - 4) == 0 && exp == fast", 3},
             {"rows == 4 || rows % (rows - 4) == 0", 12},
             {"", -1},
             {"1 < 2", -1},
             {"rows <", -1},
             {"rows < 16)", -1},
             {"(rows < 16", -1},
             {"exp < 3", -2},
             {"exp", -2},
             {"exp == fats", -2},
             {"warps == 4", -2},
             {"rows = 4", -1},
             {"rows < 0x10", -1},
             {"rows < 016", -1},
             {"rows < 1.6e+1", 6 + 6},
             {"((((((((((((((((((((((((((((((((((rows))))))))))))))))))))))))))))))))))", -1}};

START_TEST(constraints) {
  bs_space s;
  bs_error err = BS_ERROR_INIT;
  int n = 0;
  make(&s);
  const int32_t rc = bs_space_limit(&s, where[_i].text, &err);
  ck_assert_msg((rc == BS_OK) == (where[_i].points >= 0), "%s: %s", where[_i].text, err.message);
  if (rc != BS_OK) {
    ck_assert_str_eq(err.id, "BS-KNOB-WHERE");
    ck_assert_int_eq(rc, where[_i].points == -1 ? BS_USAGE : BS_CONFIG);
    ck_assert_str_eq(s.constraint, "");
    return;
  }
  for (uint64_t p = 0; p < s.size; p++) n += bs_space_allows(&s, p);
  ck_assert_msg(n == where[_i].points, "%s: %d", where[_i].text, n);
  ck_assert_uint_eq(bs_space_count(&s), (uint64_t)n);
  ck_assert(!bs_space_allows(&s, s.size));
}
END_TEST

START_TEST(a_space_that_is_too_large_is_refused) {
  bs_space s;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = BS_OK;
  char name[8];
  bs_space_init(&s);
  for (int i = 0; i < 5 && rc == BS_OK; i++) {
    snprintf(name, sizeof name, "k%d", i);
    rc = bs_space_add(&s, name, "1:64+1", "1", &err);
  }
  ck_assert_int_eq(rc, BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-KNOB-SPACE");
  ck_assert_uint_eq(s.n, 4);
  ck_assert_uint_eq(s.size, BS_SPACE_MOST);
}
END_TEST

int main(void) {
  const test_case rows[] = {{values_are_read, TEST_COUNT(good)},
                            {what_is_no_list_of_values_is_refused, TEST_COUNT(bad)},
                            {points_and_texts_are_each_others},
                            {the_nearest_point_of_an_echo},
                            {why_a_text_is_no_point},
                            {constraints, TEST_COUNT(where)},
                            {a_space_that_is_too_large_is_refused},
                            {0}};
  return run_tests("choose_space", rows, (test_setup){0});
}
