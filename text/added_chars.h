/* SPDX-License-Identifier: MIT
 * added_chars.h - characters that Unicode added after version 14, which is that of PCRE2 10.42
 * (added_chars.c). */
#ifndef BS_TEXT_ADDED_CHARS_H
#define BS_TEXT_ADDED_CHARS_H
#include <stddef.h>
#include <stdint.h>

typedef struct bs_tok_added_chars {
  uint32_t first, last;
  char category[3]; /* the general category: "Lu" */
} bs_tok_added_chars;

extern const bs_tok_added_chars bs_tok_the_added_chars[];
extern const size_t bs_tok_n_added_chars;
#endif
