/* SPDX-License-Identifier: MIT
 * chars.h - kinds of characters, as Hugging Face's tokenizers sees them. */
#ifndef BS_TEXT_CHARS_H
#define BS_TEXT_CHARS_H
#include <stdint.h>

int bs_tok_is_space(uint32_t c);   /* White_Space */
int bs_tok_is_numeric(uint32_t c); /* categories Nd, Nl, No */
int bs_tok_is_punctuation(
    uint32_t c);                      /* categories P, and all of ASCII that is no letter, digit or control */
int bs_tok_is_word(uint32_t c);       /* \w: letters, marks, digits, connectors, joiners */
int bs_tok_is_control(uint32_t c);    /* categories Cc, Cf, Co */
int bs_tok_is_mark(uint32_t c);       /* categories M */
int bs_tok_is_nonspacing(uint32_t c); /* category Mn */
int bs_tok_is_ideograph(uint32_t c);  /* what BERT calls a Chinese character */
int bs_tok_is_normalized(uint32_t c); /* normal forms know it: its class and its parts count */
/* Writes the lower case; returns how many characters it has: 1 or 2. */
int bs_tok_lower(uint32_t c, uint32_t out[2]);
#endif
