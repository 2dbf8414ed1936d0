/* SPDX-License-Identifier: MIT
 * ncu_number.h - numbers of Nsight Compute, which writes them in the locale of its user: "1,234.5" or
 * "1.234,5". One file has one style, and its numbers together show which. */
#ifndef BS_LAB_PROFILE_NCU_NUMBER_H
#define BS_LAB_PROFILE_NCU_NUMBER_H
#include <stddef.h>

enum bs_ncu_style { BS_NCU_POINT, BS_NCU_COMMA, BS_NCU_STYLES };

typedef struct bs_ncu_range {
  double least, most; /* the range of the metric; a number outside it is invalid */
} bs_ncu_range;

/* 1: the cell has no value: empty, n/a, nan, inf, or marked with (!). */
int bs_ncu_tells_nothing(const char *text);
/* 1: `text` is a number in that style and in the range. */
int bs_ncu_number(const char *text, enum bs_ncu_style style, const bs_ncu_range *range, double *out);

/* The number of texts that only one style allows, and the place of the first; the place of the first comma
 * that either style allows. The caller numbers the places from 1; 0: none. */
typedef struct bs_ncu_votes {
  size_t n[BS_NCU_STYLES], first[BS_NCU_STYLES], doubtful;
} bs_ncu_votes;
void bs_ncu_vote(const char *text, const bs_ncu_range *range, size_t place, bs_ncu_votes *votes);
#endif
