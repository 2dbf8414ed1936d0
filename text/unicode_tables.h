/* SPDX-License-Identifier: MIT
 * unicode_tables.h - kinds of characters as Hugging Face's tokenizers sees them (unicode_tables.c, which
 * scripts/unicode-tables writes). Its parts know different versions of Unicode, from 8 to 17, and none is
 * that of PCRE2 or utf8proc. */
#ifndef BS_TEXT_UNICODE_TABLES_H
#define BS_TEXT_UNICODE_TABLES_H
#include <stddef.h>
#include <stdint.h>

typedef struct bs_tok_added_chars {
  uint32_t first, last;
  char category[3]; /* the general category: "Lu" */
} bs_tok_added_chars;

typedef struct bs_tok_range {
  uint32_t first, last;
} bs_tok_range;

typedef struct bs_tok_set {
  const bs_tok_range *at; /* in order */
  size_t n;
} bs_tok_set;

typedef struct bs_tok_shift {
  uint32_t first, last;
  int32_t by;
} bs_tok_shift;

/* What regular expressions know and Unicode 14, which is that of PCRE2 10.42, does not. */
extern const bs_tok_added_chars bs_tok_the_added_chars[];
extern const size_t bs_tok_n_added_chars;
/* Kinds of characters beyond ASCII. */
extern const bs_tok_set bs_tok_numeric, bs_tok_punctuation, bs_tok_word, bs_tok_control, bs_tok_mark,
    bs_tok_nonspacing;
/* Characters of Unicode 14 that normal forms do not know: they have no class and no parts. */
extern const bs_tok_set bs_tok_unnormalized;
/* Lower case that Unicode 14 does not have. */
extern const bs_tok_shift bs_tok_lower_shifts[];
extern const size_t bs_tok_n_lower_shifts;
#endif
