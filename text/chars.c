/* SPDX-License-Identifier: MIT
 * chars.c - kinds of characters by utf8proc, and what Unicode added since (added_chars.c). Called by split.c,
 * rewrite.c and added.c. */
#include "text/chars.h"

#include <utf8proc.h>

#include "text/added_chars.h"

/* The general category, two letters. */
static const char *category(uint32_t c) {
  const char *known = utf8proc_category_string((utf8proc_int32_t)c);
  size_t low = 0, high = bs_tok_n_added_chars;
  if (known[0] != 'C' || known[1] != 'n') return known;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const bs_tok_added_chars *row = &bs_tok_the_added_chars[middle];
    if (c >= row->first && c <= row->last) return row->category;
    if (c < row->first)
      high = middle;
    else
      low = middle + 1;
  }
  return known;
}

int bs_tok_is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

int bs_tok_is_numeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  return category(c)[0] == 'N';
}

int bs_tok_is_punctuation(uint32_t c) {
  if (c < 0x80)
    return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
  return category(c)[0] == 'P';
}

int bs_tok_is_word(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  const char *kind = category(c);
  if (kind[0] == 'L' || kind[0] == 'M' || (kind[0] == 'N' && kind[1] != 'o') ||
      (kind[0] == 'P' && kind[1] == 'c'))
    return 1;
  /* Other_Alphabetic that is no mark, and Join_Control. */
  return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
         (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c || c == 0x200d;
}

int bs_tok_is_word_like(uint32_t c) {
  return !bs_tok_is_word(c) && !bs_tok_is_space(c);
}

int bs_tok_is_control(uint32_t c) {
  if (c < 0x80) return c < ' ' || c == 0x7f;
  const char *kind = category(c);
  return kind[0] == 'C' && kind[1] != 'n';
}

int bs_tok_is_mark(uint32_t c) {
  return c >= 0x300 && category(c)[0] == 'M';
}

int bs_tok_is_nonspacing(uint32_t c) {
  if (c < 0x300) return 0;
  const char *kind = category(c);
  return kind[0] == 'M' && kind[1] == 'n';
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
  out[0] = c < 0x80 ? (c >= 'A' && c <= 'Z' ? c + 32 : c) : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
  return 1;
}
