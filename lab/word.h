/* SPDX-License-Identifier: MIT
 * word.h - words of names.h of which only some serve: the floating dtypes of a layer, the collectives of a
 * benchmark. Pure. */
#ifndef BS_LAB_WORD_H
#define BS_LAB_WORD_H
#include "blockshock/blockshock.h"

enum { BS_WORDS_MAX = 64, BS_FLOAT_DTYPES = 6 };
/* The dtypes of layers and kernels: f64, f32, f16, bf16, f8e4m3, f8e5m2. */
extern const uint32_t bs_float_dtypes[BS_FLOAT_DTYPES];

/* Finds the number of a word of a table (enum bs_name_table), in any spelling, if it is one of only[0..n);
 * only NULL: any number. Returns 0, and leaves *out_number, for another word and for NULL. */
int bs_word_read(uint32_t table, const uint32_t *only, size_t n, const char *text, uint32_t *out_number);
/* The word, in any spelling, that is nearest to an unknown text; NULL: no word is near. */
const char *bs_word_nearest(uint32_t table, const uint32_t *only, size_t n, const char *text);
/* The names of those numbers, in the order of the table. Returns how many were written. */
size_t bs_word_list(uint32_t table, const uint32_t *only, size_t n, const char *out_words[BS_WORDS_MAX]);
#endif
