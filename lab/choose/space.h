/* SPDX-License-Identifier: MIT
 * space.h - the points that a tuner chooses from: every combination of the values that some knobs may have,
 * less those that a constraint refuses. A point is a number below `size`: the values' places, mixed radix,
 * the last knob runs fastest. Pure. */
#ifndef BS_LAB_CHOOSE_SPACE_H
#define BS_LAB_CHOOSE_SPACE_H
#include <stddef.h>
#include <stdint.h>

#include "blockshock/abi.h"

enum { BS_SPACE_KNOBS = 16, BS_SPACE_VALUES = 64, BS_SPACE_WORD = 24, BS_SPACE_TEXT = 512 };
/* Larger spaces are refused: they cannot be measured, and a random draw searches for an allowed point. */
#define BS_SPACE_MOST (UINT64_C(1) << 24)

typedef struct bs_space_knob {
  char name[32];
  uint32_t n;
  uint32_t ordered;  /* 1: all values are numbers, rising; neighbours of a value are adjacent in the list */
  uint32_t standard; /* place of the default; n: "auto", which is not a value */
  char value[BS_SPACE_VALUES][BS_SPACE_WORD];
} bs_space_knob;

typedef struct bs_space {
  uint32_t n;
  uint64_t size; /* the product of all n; 1 without knobs */
  char constraint[256];
  bs_space_knob knob[BS_SPACE_KNOBS];
} bs_space;

void bs_space_init(bs_space *out);
/* values: pieces with commas between them, each a word, a number, FROM:TO*FACTOR ("16:256*2") or FROM:TO+STEP
 * ("8:64+8"). standard: one of them, or "auto". BS_CONFIG (BS-KNOB-VALUES, BS-KNOB-SPACE). */
int32_t bs_space_add(bs_space *space, const char *name, const char *values, const char *standard,
                     bs_error *err);
/* Allows only points for which an expression of knobs, numbers and words is true: "rows*keys <= 16384 && exp
 * != fast". Operators: * / % + - < <= > >= == != && || ! and parentheses. BS_CONFIG (BS-KNOB-WHERE): it
 * cannot be read, has an unknown knob, or compares a word as a number. A value that is not a number (rows %
 * 0) makes it false. */
int32_t bs_space_limit(bs_space *space, const char *constraint, bs_error *err);
int bs_space_allows(const bs_space *space, uint64_t point);
/* The number of points that the constraint allows. */
uint64_t bs_space_count(const bs_space *space);

uint32_t bs_space_place(const bs_space *space, uint64_t point, uint32_t knob);
/* The point with another value of one knob. */
uint64_t bs_space_with(const bs_space *space, uint64_t point, uint32_t knob, uint32_t place);
/* "keys=128;exp=fast". Returns out. */
char *bs_space_text(const bs_space *space, uint64_t point, char *out, size_t size);
/* Finds the point of such a text, which must name every knob exactly once; 0: no such point. */
int bs_space_find(const bs_space *space, const char *text, uint64_t *out_point);
/* The reason why bs_space_find has no point for a text: "there is no knob 'warps'". "": it has one. Returns
 * out. */
char *bs_space_why(const bs_space *space, const char *text, char *out, size_t size);
/* The point nearest to a text. Missing knobs get their default (else their first value); for numbers the
 * value with the nearest ratio is taken. *out_exact: 1: no value was changed. */
uint64_t bs_space_nearest(const bs_space *space, const char *text, int *out_exact);
/* The value of a knob in "a=1;b=x"; 0: it is not in it. */
int bs_space_value(const char *text, const char *name, char *out, size_t size);

/* where.c. Tests the constraint for one point: 1, 0, or -1 with an error. */
int bs_where_holds(const bs_space *space, const char *text, uint64_t point, bs_error *err);
#endif
