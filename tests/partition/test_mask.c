/* SPDX-License-Identifier: MIT
 *
 * test_mask.c - patterns and mask names: known answer K21, both spellings of every pattern, and what is
 * refused with which id.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/partition/partition.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

START_TEST(k21_accepted_patterns) {
  static const char *const same[] = {"1100", "[1,1,0,0]", "1-1-0-0", "[1, 1, 0, 0]", "1,1,0,0"};
  for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
    uint32_t bits = 99;
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_pattern_parse(same[i], &bits, &err) == BS_OK, "%s: %s", same[i], err.message);
    ck_assert_uint_eq(bits, 0x3); /* bit j = character j */
  }
}
END_TEST

START_TEST(k21_rejected_patterns) {
  static const char *const wrong[] = {"110",  "11000", "1110",    "1000", "[1,1,0,2]", "",
                                      "abcd", "11 0x", "1100110", "0000", "1111",      "-1100-1"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    uint32_t bits = 99;
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_pattern_parse(wrong[i], &bits, &err) == BS_CONFIG, "'%s' was accepted", wrong[i]);
    ck_assert_str_eq(err.id, "BS-MASK-PATTERN");
    ck_assert_int_eq(bs_status_exit_code(err.code), 3);
    ck_assert(err.hint[0] != '\0');
    ck_assert_uint_eq(bits, 99);
  }
}
END_TEST

static const struct {
  const char *a;
  uint32_t a_bits, b_bits;
  const char *canonical;
} six[] = {
    {"1100", 0x3, 0xC, "complement_1100_0011"}, {"0011", 0xC, 0x3, "complement_0011_1100"},
    {"1010", 0x5, 0xA, "complement_1010_0101"}, {"0101", 0xA, 0x5, "complement_0101_1010"},
    {"1001", 0x9, 0x6, "complement_1001_0110"}, {"0110", 0x6, 0x9, "complement_0110_1001"},
};

static void expect_complement(const char *name, const char *a, const char *b, size_t i) {
  bs_mask mask;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_mask_parse(name, a, b, &mask, &err) == BS_OK, "%s/%s: %s", name, a, err.message);
  ck_assert_uint_eq(mask.struct_size, sizeof mask);
  ck_assert_uint_eq(mask.kind, BS_MASK_COMPLEMENT);
  ck_assert_uint_eq(mask.pattern_len, 4);
  ck_assert_uint_eq(mask.pattern_a, six[i].a_bits);
  ck_assert_uint_eq(mask.pattern_b, six[i].b_bits);
  ck_assert_str_eq(mask.name, six[i].canonical);
}

START_TEST(all_patterns_by_every_way) {
  const size_t i = (size_t)_i;
  char half[32];
  snprintf(half, sizeof half, "complement_%s", six[i].a);
  expect_complement(six[i].canonical, NULL, NULL, i); /* K21: the name gives both */
  expect_complement(half, NULL, NULL, i);
  expect_complement(six[i].a, NULL, NULL, i);
  expect_complement(NULL, six[i].a, NULL, i); /* b defaults to NOT a */
  expect_complement("complement", six[i].a, NULL, i);
  expect_complement(six[i].canonical, six[i].a, six[i].canonical + 16, i);
  expect_complement("complement_1100_0011", six[i].a, NULL, i); /* patterns win over the name */
}
END_TEST

START_TEST(non_complementary_b_is_refused) {
  static const char *const pairs[][2] = {{"1100", "0110"}, {"1100", "1100"}, {"1001", "0011"}};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    bs_mask mask;
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(bs_mask_parse(NULL, pairs[i][0], pairs[i][1], &mask, &err), BS_CONFIG);
    ck_assert_str_eq(err.id, "BS-MASK-COMPLEMENT");
    ck_assert_int_eq(bs_status_exit_code(err.code), 3);
    ck_assert(strstr(err.message, pairs[i][1]) != NULL);
    ck_assert(strstr(err.hint, "pattern_b") != NULL);
  }
  bs_mask mask;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_mask_parse("complement_1100_0110", NULL, NULL, &mask, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-MASK-COMPLEMENT");
}
END_TEST

START_TEST(plain_names) {
  static const struct {
    const char *name;
    uint32_t kind;
  } rows[] = {{"contiguous", BS_MASK_CONTIGUOUS}, {"interleave", BS_MASK_INTERLEAVE},
              {"uneven", BS_MASK_UNEVEN},         {"random_2of4", BS_MASK_RANDOM_2OF4},
              {"magnitude", BS_MASK_MAGNITUDE},   {"transposable", BS_MASK_TRANSPOSABLE}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    bs_mask mask;
    ck_assert_int_eq(bs_mask_parse(rows[i].name, NULL, NULL, &mask, NULL), BS_OK);
    ck_assert_uint_eq(mask.kind, rows[i].kind);
    ck_assert_str_eq(mask.name, rows[i].name);
    ck_assert_ptr_null(mask.shares);
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(bs_mask_parse(rows[i].name, "1100", NULL, &mask, &err), BS_CONFIG);
    ck_assert_str_eq(err.id, "BS-MASK-PATTERN");
  }
}
END_TEST

START_TEST(unknown_names_are_refused_with_the_nearest) {
  bs_mask mask;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_mask_parse("interleav", NULL, NULL, &mask, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-MASK-NAME");
  ck_assert(strstr(err.hint, "interleave") != NULL);
  ck_assert_int_eq(bs_mask_parse("checkerboard", NULL, NULL, &mask, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-MASK-NAME");
  ck_assert_int_eq(bs_mask_parse("11000", NULL, NULL, &mask, &err), BS_CONFIG);
  ck_assert_int_eq(bs_mask_parse("complement", NULL, NULL, &mask, &err), BS_CONFIG);
  ck_assert_int_eq(bs_mask_parse("complement_110_001", NULL, NULL, &mask, &err), BS_CONFIG);
  ck_assert_int_eq(bs_mask_parse(NULL, NULL, NULL, &mask, &err), BS_INVALID_ARGUMENT);
}
END_TEST

START_TEST(check_of_masks_made_by_hand) {
  static const double good[] = {3, 1}, zero[] = {1, 0}, negative[] = {2, -1};
  bs_mask mask = {.struct_size = sizeof mask, .kind = BS_MASK_UNEVEN, .n_shares = 2, .shares = good};
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_mask_check(&mask, &err), BS_OK);
  mask.shares = zero;
  ck_assert_int_eq(bs_mask_check(&mask, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-MASK-SHARES");
  mask.shares = negative;
  ck_assert_int_eq(bs_mask_check(&mask, &err), BS_CONFIG);
  mask.shares = NULL;
  ck_assert_int_eq(bs_mask_check(&mask, &err), BS_CONFIG);
  mask = (bs_mask){.struct_size = sizeof mask,
                   .kind = BS_MASK_COMPLEMENT,
                   .pattern_len = 8,
                   .pattern_a = 3,
                   .pattern_b = 12};
  ck_assert_int_eq(bs_mask_check(&mask, &err), BS_CONFIG);
  mask.pattern_len = 4;
  ck_assert_int_eq(bs_mask_check(&mask, &err), BS_OK);
  mask.pattern_a = 0x13;
  ck_assert_int_eq(bs_mask_check(&mask, &err), BS_CONFIG);
  mask.kind = 77;
  ck_assert_int_eq(bs_mask_check(&mask, &err), BS_CONFIG);
  ck_assert_str_eq(err.id, "BS-MASK-NAME");
}
END_TEST

int main(void) {
  const test_case tests[] = {{k21_accepted_patterns},
                             {k21_rejected_patterns},
                             {all_patterns_by_every_way, TEST_COUNT(six)},
                             {non_complementary_b_is_refused},
                             {plain_names},
                             {unknown_names_are_refused_with_the_nearest},
                             {check_of_masks_made_by_hand},
                             {0}};
  return run_tests("mask", tests, (test_setup){0});
}
