/* SPDX-License-Identifier: MIT
 * compare.h - the numbers of an output against those expected. */
#ifndef BS_LAB_MODEL_COMPARE_H
#define BS_LAB_MODEL_COMPARE_H
#include <stdint.h>

typedef struct bs_model_limits {
  double deviation; /* of a float output, relative to its largest expected number (core/base/deviation.h) */
  double cosine;    /* of each row; < 0: not requested */
} bs_model_limits;

typedef struct bs_model_judged {
  double deviation, limit;
  double cosine;      /* the largest cosine distance of a row; < 0: not requested */
  const char *reason; /* NULL: as expected */
} bs_model_judged;

/* Compares `count` dense numbers in rows of `row`. Integers must be equal. Numbers that fill a mask are
 * compared relative to themselves, and do not count for the cosine. */
void bs_model_compare(uint32_t dtype, const void *got, const void *want, uint64_t count, uint64_t row,
                      const bs_model_limits *limits, bs_model_judged *out);
#endif
