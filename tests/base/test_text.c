/* SPDX-License-Identifier: MIT
 * test_text.c - the growing text, the nearest name and strict number parsing. */
#include <stdlib.h>
#include <string.h>

#include "core/base/size.h"
#include "core/base/text.h"
#include "tests/comma_locale.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

START_TEST(grows) {
  bs_text t = {0};
  bs_text_printf(&t, "%s", "");
  ck_assert_str_eq(t.data, "");
  for (int i = 0; i < 1000; i++) bs_text_printf(&t, "%03d", i);
  ck_assert_uint_eq(t.size, 3000);
  ck_assert_int_eq(strncmp(t.data + 2997, "999", 4), 0);
  bs_text_append(&t, "a\0b", 3);
  ck_assert_uint_eq(t.size, 3003);
  ck_assert_mem_eq(t.data + 3000, "a\0b", 4);
  ck_assert(!t.failed);
  bs_text_append(&t, "", SIZE_MAX);
  ck_assert(t.failed); /* and it stays so */
  bs_text_printf(&t, "x");
  ck_assert_uint_eq(t.size, 3003);
  bs_text_free(&t);
  ck_assert(t.data == NULL && !t.failed);
}
END_TEST

/* A program that embeds us may have set a locale with a decimal comma. */
START_TEST(numbers_ignore_the_locale) {
  (void)comma_locale();
  bs_text t = {0};
  double d = 0;
  bs_text_printf(&t, "%.2f", 1.5);
  ck_assert_str_eq(t.data, "1.50");
  ck_assert(bs_parse_f64("1.5", &d) && d == 1.5);
  ck_assert(!bs_parse_f64("1,5", &d));
  bs_text_free(&t);
}
END_TEST

START_TEST(nearest) {
  static const char *const names[] = {"dense",        "column_parallel", "row_parallel",
                                      "masked_split", "blockshock",      "ref"};
  static const struct {
    const char *word, *want;
  } rows[] = {
      {"dense", "dense"},
      {"dens", "dense"},
      {"desne", "dense"}, /* a swap is one step */
      {"Dense", "dense"},
      {"BLOCKSHOCK", "blockshock"},
      {"block_shock", "blockshock"},
      {"blokshok", "blockshock"},
      {"row-parallel", "row_parallel"},
      {"rowparallel", "row_parallel"},
      {"colum_paralel", "column_parallel"},
      {"maskedsplit", "masked_split"},
      {"reff", "ref"},
      {"rfe", "ref"},
      {"xyz", NULL},
      {"", NULL},
      {"d", NULL},
      {"conv2d", NULL},
      {"dnse_", "dense"}, /* distance 2 = 1 + 5/4 */
      {"dns__", NULL},    /* 3 */
      {"blk___ck", NULL}, /* 5 > 1 + 8/4 */
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const char *got = bs_nearest(rows[i].word, names, sizeof names / sizeof names[0]);
    int equal = got == NULL || rows[i].want == NULL ? got == rows[i].want : strcmp(got, rows[i].want) == 0;
    ck_assert_msg(equal, "'%s': %s", rows[i].word, got != NULL ? got : "nothing");
  }
  ck_assert_ptr_null(bs_nearest("dense", NULL, 0));
  char word[600];
  memset(word, 'd', sizeof word - 1);
  word[sizeof word - 1] = '\0';
  const char *const long_names[] = {word};
  ck_assert_ptr_null(bs_nearest("dense", long_names, 1));
  ck_assert_ptr_null(bs_nearest(word, names, 6));
  static const char *const close[] = {"abcdefgx", "abcdefgh"};
  ck_assert_str_eq(bs_nearest("abcdefgh_", close, 2), "abcdefgh"); /* the nearer of two */
  static const char *const single[] = {"x"};
  ck_assert_ptr_null(bs_nearest("y", single, 1)); /* one step, but nothing in common */
}
END_TEST

START_TEST(integers) {
  static const struct {
    const char *text;
    int unit, ok;
    int64_t value;
  } rows[] = {
      {"0", 0, 1, 0},
      {"-0", 0, 1, 0},
      {"12", 0, 1, 12},
      {"+12", 0, 1, 12},
      {"-12", 0, 1, -12},
      {"9223372036854775807", 0, 1, INT64_MAX},
      {"9223372036854775808", 0, 0, 0},
      {"-9223372036854775808", 0, 1, INT64_MIN},
      {"-9223372036854775809", 0, 0, 0},
      {"99999999999999999999999", 0, 0, 0},
      {"", 0, 0, 0},
      {"-", 0, 0, 0},
      {"+", 0, 0, 0},
      {" 1", 0, 0, 0},
      {"1 ", 0, 0, 0},
      {"01", 0, 0, 0},
      {"0x1", 0, 0, 0},
      {"1.0", 0, 0, 0},
      {"--1", 0, 0, 0},
      {"1k", 0, 0, 0},
      {"1k", 1, 1, 1000},
      {"2K", 1, 1, 2000},
      {"-3M", 1, 1, -3000000},
      {"4G", 1, 1, INT64_C(4000000000)},
      {"1Ki", 1, 1, 1024},
      {"2ki", 1, 1, 2048},
      {"-3Mi", 1, 1, -3 * 1048576},
      {"4Gi", 1, 1, INT64_C(4294967296)},
      {"0Gi", 1, 1, 0},
      {"7", 1, 1, 7},
      {"1Ki", 0, 0, 0},
      {"1kk", 1, 0, 0},
      {"1Kib", 1, 0, 0},
      {"1i", 1, 0, 0},
      {"1m", 1, 0, 0},
      {"1g", 1, 0, 0},
      {"1T", 1, 0, 0},
      {"1.5k", 1, 0, 0},
      {"1 k", 1, 0, 0},
      {"k", 1, 0, 0},
      {"Ki", 1, 0, 0},
      {"9223372036G", 1, 1, INT64_C(9223372036000000000)},
      {"9223372037G", 1, 0, 0},
      {"8589934591Gi", 1, 1, INT64_C(8589934591) << 30},
      {"8589934592Gi", 1, 0, 0},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    int64_t v = 5;
    int ok = rows[i].unit ? bs_parse_size(rows[i].text, &v) : bs_parse_i64(rows[i].text, &v);
    ck_assert_msg(ok == rows[i].ok, "'%s': %d", rows[i].text, ok);
    ck_assert_msg(v == (ok ? rows[i].value : 5), "'%s': %lld", rows[i].text, (long long)v);
  }
}
END_TEST

START_TEST(floats) {
  static const struct {
    const char *text;
    int ok;
    double value;
  } rows[] = {{"0", 1, 0},      {"1.5", 1, 1.5},     {"-1.5e3", 1, -1500},  {".5", 1, 0.5},
              {"5.", 1, 5},     {"+2E-1", 1, 0.2},   {"1e308", 1, 1e308},   {"1e309", 0, 0},
              {"-1e999", 0, 0}, {"1e-400", 1, 0},    {"5e-324", 1, 5e-324}, {"nan", 0, 0},
              {"inf", 0, 0},    {"-Infinity", 0, 0}, {"0x1p3", 0, 0},       {"", 0, 0},
              {".", 0, 0},      {"e5", 0, 0},        {"1e", 0, 0},          {"1e+", 0, 0},
              {" 1", 0, 0},     {"1 ", 0, 0},        {"1_0", 0, 0},         {"1f", 0, 0},
              {"0.1", 1, 0.1},  {"010", 0, 0},       {"00", 0, 0},          {"-01.5", 0, 0},
              {"00.5", 0, 0},   {"-0", 1, 0},        {"0e5", 1, 0},         {"1e-05", 1, 1e-5},
              {"0x10", 0, 0},   {"+010", 0, 0},      {"0.10", 1, 0.1},      {"0b1", 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    double v = 5;
    int ok = bs_parse_f64(rows[i].text, &v);
    ck_assert_msg(ok == rows[i].ok && v == (ok ? rows[i].value : 5), "'%s': %d %g", rows[i].text, ok, v);
  }
}
END_TEST

START_TEST(truth) {
  static const char *const yes[] = {"true", "True", "TRUE", "yes", "on", "1"};
  static const char *const no[] = {"false", "no", "off", "Off", "0"};
  static const char *const neither[] = {"", "t", "truee", "y", "2", "tru", " true", "01"};
  int v;
  for (int i = 0; i < 6; i++) ck_assert(bs_parse_bool(yes[i], &v) && v == 1);
  for (int i = 0; i < 5; i++) ck_assert(bs_parse_bool(no[i], &v) && v == 0);
  for (int i = 0; i < 8; i++) ck_assert_msg(!bs_parse_bool(neither[i], &v), "'%s'", neither[i]);
}
END_TEST

START_TEST(copies) {
  char *copy = bs_strdup("abc");
  ck_assert_str_eq(copy, "abc");
  free(copy);
  ck_assert_ptr_null(bs_strdup(NULL));
}
END_TEST

START_TEST(checked_sizes) {
  uint64_t u = 1;
  int64_t s = 1;
  ck_assert(bs_mul_u64(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &u) && u == UINT64_C(0xffffffff00000000));
  ck_assert(!bs_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &u) && u == UINT64_C(0xffffffff00000000));
  ck_assert(bs_add_u64(UINT64_MAX, 0, &u) && u == UINT64_MAX);
  ck_assert(!bs_add_u64(UINT64_MAX, 1, &u) && u == UINT64_MAX);
  ck_assert(bs_mul_i64(INT64_MIN, 1, &s) && s == INT64_MIN);
  ck_assert(!bs_mul_i64(INT64_MIN, -1, &s) && s == INT64_MIN);
  ck_assert(bs_add_i64(INT64_MAX, -1, &s) && s == INT64_MAX - 1);
  ck_assert(!bs_add_i64(INT64_MAX, 1, &s) && s == INT64_MAX - 1);
}
END_TEST

int main(void) {
  const test_case tests[] = {{grows},   {numbers_ignore_the_locale},
                             {nearest}, {integers},
                             {floats},  {truth},
                             {copies},  {checked_sizes},
                             {0}};
  return run_tests("text", tests, (test_setup){0});
}
