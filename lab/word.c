/* SPDX-License-Identifier: MIT
 * word.c - see word.h. */
#include "lab/word.h"

#include "core/base/text.h"

const uint32_t bs_float_dtypes[BS_FLOAT_DTYPES] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2};

static int serves(const uint32_t *only, size_t n, uint32_t number) {
  size_t i = 0;
  while (only != NULL && i < n && only[i] != number) i++;
  return only == NULL || i < n;
}

int bs_word_read(uint32_t table, const uint32_t *only, size_t n, const char *text, uint32_t *out_number) {
  uint32_t number;
  if (!bs_name_read(table, text, &number) || !serves(only, n, number)) return 0;
  *out_number = number;
  return 1;
}

const char *bs_word_nearest(uint32_t table, const uint32_t *only, size_t n, const char *text) {
  const char *words[BS_WORDS_MAX];
  uint32_t n_rows;
  size_t count = 0;
  const bs_name *rows = bs_name_rows(&n_rows);
  for (uint32_t i = 0; i < n_rows && count < BS_WORDS_MAX; i++)
    if (rows[i].table == table && serves(only, n, rows[i].number)) words[count++] = rows[i].word;
  return bs_nearest(text, words, count);
}

size_t bs_word_list(uint32_t table, const uint32_t *only, size_t n, const char *out_words[BS_WORDS_MAX]) {
  uint32_t n_rows;
  size_t count = 0;
  const bs_name *rows = bs_name_rows(&n_rows);
  for (uint32_t i = 0; i < n_rows && count < BS_WORDS_MAX; i++) {
    const int first = i == 0 || rows[i - 1].table != table || rows[i - 1].number != rows[i].number;
    if (rows[i].table == table && first && serves(only, n, rows[i].number)) out_words[count++] = rows[i].word;
  }
  return count;
}
