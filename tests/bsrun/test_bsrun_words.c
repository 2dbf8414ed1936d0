/* SPDX-License-Identifier: MIT
 * test_bsrun_words.c - `bsrun explain words` has each word that a verdict can print. */
#include "lab/measure/stats.h"
#include "lab/report/rows.h"
#include "lab/store/summary.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

static json_t *explained(void) {
  ran r = bsrun(dir, "explain", "words", "-o", "json", NULL);
  must_be(&r, 0);
  json_t *rows = json_loads(r.out, 0, NULL);
  ck_assert_uint_gt(json_array_size(rows), 20);
  ran_free(&r);
  return rows;
}

static void must_have(const json_t *rows, const char *word) {
  for (size_t i = 0; i < json_array_size(rows); i++)
    if (strcmp(json_string_value(json_object_get(json_array_get(rows, i), "word")), word) == 0) return;
  ck_abort_msg("bsrun explain words has no '%s'", word);
}

START_TEST(verdicts_and_their_causes_are_explained) {
  json_t *rows = explained();
  size_t n = 0;
  for (uint32_t i = 0; strcmp(bs_comparison_name(i), "?") != 0; i++)
    if (bs_comparison_name(i)[0] != '\0') must_have(rows, bs_comparison_name(i)), n++;
  ck_assert_uint_eq(n, 4);
  for (uint32_t i = 0; strcmp(bs_unclear_name(i), "?") != 0; i++)
    if (bs_unclear_name(i)[0] != '\0') must_have(rows, bs_unclear_name(i)), n++;
  ck_assert_uint_ge(n, 12);
  json_decref(rows);
}
END_TEST

/* What a record's gates say, and what the first words of the screen's line are. */
START_TEST(words_of_gates_are_explained) {
  static const char *const records[] = {
      "{'passed':true,'gates':[{'name':'T1','state':'pass'}]}",
      "{'passed':false,'gates':[{'name':'T1','state':'fail'}]}",
      "{'passed':false,'gates':[{'gate':'kept','stage':'performance','state':'fail'}]}",
      "{'passed':false,'gates':[{'name':'T1','state':'unknown'}]}",
      "{'passed':true,'half_alone':true,'gates':[{'name':'T1','state':'pass'}]}",
      "{'passed':true,'segments':[],'gates':[{'name':'T1','state':'pass'}]}"};
  json_t *rows = explained();
  for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
    char text[256], word[64];
    snprintf(text, sizeof text, "%s", records[i]);
    for (char *p = text; *p != '\0'; p++)
      if (*p == '\'') *p = '"';
    json_t *record = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(record);
    must_have(rows, bs_record_word(record));
    snprintf(word, sizeof word, "%s", bs_gates_words(record));
    word[strcspn(word, ",")] = '\0';
    must_have(rows, word);
    json_decref(record);
  }
  json_decref(rows);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {verdicts_and_their_causes_are_explained, 1}, {words_of_gates_are_explained, 1}, {0}};
  return run_tests("bsrun_words", tests, (test_setup){dir_make, dir_remove});
}
