/* SPDX-License-Identifier: MIT
 * test_names.c - the words of names.h: each number of an enum has one name, each word reads as its number. */
#include "blockshock/names.h"

#include <ctype.h>

#include "blockshock/blockshock.h"
#include "tests/run_tests.h"

static const uint32_t dtypes[] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                  BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};

/* Number i of a table's enum; 0 after the last. */
static int number_of(uint32_t table, uint32_t i, uint32_t *out_number) {
  static const uint32_t counts[BS_NAMES_COUNT_] = {
      [BS_NAMES_DTYPE] = TEST_COUNT(dtypes), [BS_NAMES_ACTIVATION] = BS_ACT_GELU_TANH + 1,
      [BS_NAMES_COLL] = BS_COLL_COUNT_,      [BS_NAMES_REDUCE] = BS_REDUCE_MIN + 1,
      [BS_NAMES_GATE] = BS_GATE_SKIPPED + 1, [BS_NAMES_OP] = BS_CORE_OPS};
  *out_number = table == BS_NAMES_DTYPE && i < counts[table] ? dtypes[i] : i;
  return i < counts[table];
}

START_TEST(each_number_has_one_name) {
  uint32_t number, again;
  for (uint32_t i = 0; number_of((uint32_t)_i, i, &number); i++) {
    const char *name = bs_name_of((uint32_t)_i, number);
    ck_assert_msg(name[0] != '?', "table %d, number %u", _i, number);
    ck_assert(bs_name_read((uint32_t)_i, name, &again));
    ck_assert_uint_eq(again, number);
  }
  ck_assert_str_eq(bs_name_of((uint32_t)_i, 77777), "?");
}
END_TEST

START_TEST(each_word_reads_in_either_case) {
  uint32_t n, number = 5;
  const bs_name *rows = bs_name_rows(&n);
  for (uint32_t i = 0; i < n; i++) {
    char text[40];
    snprintf(text, sizeof text, "%s", rows[i].word);
    for (char *at = text; *at != '\0'; at++) *at = (char)toupper((unsigned char)*at);
    ck_assert_msg(bs_name_read(rows[i].table, rows[i].word, &number) && number == rows[i].number, "%s", text);
    ck_assert_msg(bs_name_read(rows[i].table, text, &number) && number == rows[i].number, "%s", text);
    for (uint32_t k = 0; k < i; k++)
      ck_assert_msg(rows[k].table != rows[i].table || strcmp(rows[k].word, rows[i].word) != 0, "%s", text);
  }
  number = 5;
  static const char *const wrong[] = {"", "f", "f322", "f3", "all", "all_reduces", "?"};
  for (uint32_t table = 0; table < BS_NAMES_COUNT_; table++) {
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
      ck_assert(!bs_name_read(table, wrong[i], &number));
    ck_assert(!bs_name_read(table, NULL, &number));
  }
  ck_assert_uint_eq(number, 5);
}
END_TEST

START_TEST(a_collective_is_described) {
  char text[80], small[12];
  volatile size_t room = sizeof small; /* no warning of what is cut */
  bs_coll_call call = {
      .kind = BS_COLL_ALL_REDUCE, .dtype_in = BS_BF16, .rows = 4, .count = 1024, .site = "y"};
  bs_coll_describe(&call, text, sizeof text);
  ck_assert_str_eq(text, "all_reduce bf16 4x1024 at 'y'");
  bs_coll_describe(&call, small, room);
  ck_assert_str_eq(small, "all_reduce ");
  call.kind = BS_COLL_BARRIER;
  call.site = NULL;
  bs_coll_describe(&call, text, sizeof text);
  ck_assert_str_eq(text, "barrier at ''");
  call.kind = 99;
  call.dtype_in = 1;
  bs_coll_describe(&call, text, sizeof text);
  ck_assert_str_eq(text, "? ? 4x1024 at ''");
}
END_TEST

int main(void) {
  const test_case rows[] = {{each_number_has_one_name, BS_NAMES_COUNT_},
                            {each_word_reads_in_either_case},
                            {a_collective_is_described},
                            {0}};
  return run_tests("names", rows, (test_setup){0});
}
