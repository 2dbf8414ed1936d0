/* SPDX-License-Identifier: MIT
 * test_tokenizers_absent.c - text.h without PCRE2 or utf8proc: no tokenizer is opened, and the error says
 * what to install. It has text/absent.c itself. */
#include <string.h>

#include "blockshock/text.h"
#include "core/base/error.h"
#include "tests/run_tests.h"

START_TEST(says_what_is_missing) {
  bs_error err = BS_ERROR_INIT;
  bs_tokenizer *t = NULL;
  uint64_t n = 0;
  ck_assert_int_eq(bs_tokenizer_open("tokenizer.json", &t, &err), BS_UNAVAILABLE);
  ck_assert_str_eq(err.id, "BS-TOK-ABSENT");
  ck_assert_ptr_nonnull(strstr(err.hint, "libpcre2-dev"));
  ck_assert_ptr_nonnull(strstr(err.hint, "libutf8proc-dev"));
  ck_assert_ptr_null(t);
  ck_assert_int_eq(bs_tokenizer_encode(t, "a", 1, 0, NULL, 0, &n, NULL), BS_UNAVAILABLE);
  ck_assert_int_eq(bs_tokenizer_special(t, BS_TOKEN_EOS), -1);
  bs_tokenizer_close(t);
}
END_TEST

int main(void) {
  const test_case rows[] = {{says_what_is_missing}, {0}};
  return run_tests("tokenizers_absent", rows, (test_setup){0});
}
