/* SPDX-License-Identifier: MIT
 * chars.c - kinds of characters by the tables of unicode_tables.c; lower case by utf8proc and what Unicode
 * added since. Called by split.c, rewrite.c and added.c. */
#include "text/chars.h"

#include <utf8proc.h>

#include "text/unicode_tables.h"

static int is_in(const bs_tok_set *set, uint32_t c) {
  size_t low = 0, high = set->n;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (c > set->at[middle].last)
      low = middle + 1;
    else
      high = middle;
  }
  return low < set->n && c >= set->at[low].first;
}

int bs_tok_is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

int bs_tok_is_numeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return is_in(&bs_tok_numeric, c);
}

int bs_tok_is_punctuation(uint32_t c) {
  if (c < 0x80)
    return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
  return is_in(&bs_tok_punctuation, c);
}

int bs_tok_is_word(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  return is_in(&bs_tok_word, c);
}

int bs_tok_is_control(uint32_t c) {
  if (c < 0x80) return c < ' ' || c == 0x7f;
  return is_in(&bs_tok_control, c);
}

int bs_tok_is_mark(uint32_t c) {
  return c >= 0x300 && is_in(&bs_tok_mark, c);
}

int bs_tok_is_nonspacing(uint32_t c) {
  return c >= 0x300 && is_in(&bs_tok_nonspacing, c);
}

int bs_tok_is_normalized(uint32_t c) {
  if (c < 0x300 || is_in(&bs_tok_unnormalized, c)) return c < 0x300;
  for (size_t i = 0; i < bs_tok_n_added_chars; i++)
    if (c <= bs_tok_the_added_chars[i].last) return c < bs_tok_the_added_chars[i].first;
  return 1;
}

int bs_tok_is_ideograph(uint32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

int bs_tok_lower(uint32_t c, uint32_t out[2]) {
  if (c == 0x130) {
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  for (size_t i = 0; i < bs_tok_n_lower_shifts && c >= 0x80; i++) {
    const bs_tok_shift *row = &bs_tok_lower_shifts[i];
    if (c < row->first) break;
    if (c > row->last) continue;
    out[0] = (uint32_t)((int32_t)c + row->by);
    return 1;
  }
  out[0] = c < 0x80 ? (c >= 'A' && c <= 'Z' ? c + 32 : c) : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
  return 1;
}
