/* SPDX-License-Identifier: MIT
 *
 * numbers.h - W and X of a product, the same for all arms, and the judgement of their outputs. */
#ifndef BS_BENCH_NUMBERS_H
#define BS_BENCH_NUMBERS_H
#include "arms.h"

/* W [n,k] and X [b,k] in [-1, 1), rounded to `dtype`, and in fp32 as well when `with_f32` (exactly the same
 * values). Memory is kept for the next shape; W is made anew only when n or k change. */
typedef struct bench_source_numbers {
  uint32_t dtype;
  int with_f32;
  int kept;    /* W is zero where bench_kept says so: two of each four columns are left, other ones a row */
  int product; /* BENCH_... */
  bench_numbers narrow, wide; /* wide: fp32; the same memory as narrow when dtype is f32 */
} bench_source_numbers;

/* Which of the columns 4 group .. are kept in a row: two bits of four are set, by row and group. */
uint8_t bench_kept(int64_t row, int64_t group);
int32_t bench_numbers_make(bench_source_numbers *source, int64_t n, int64_t k, int64_t b, bs_error *err);
const bench_numbers *bench_numbers_of(const bench_source_numbers *source, uint32_t dtype);
void bench_numbers_free(bench_source_numbers *source);

/* Largest difference between Y of dtype `of` and of dtype `to`, relative to the largest of `to`; NaN differs
 * by infinity. */
double bench_difference(const bench_numbers *numbers, const void *y, uint32_t of, const void *other,
                        uint32_t to);
/* The same against some 60 elements computed in fp64, of any product. */
double bench_spot_difference(const bench_numbers *numbers, const void *y);
/* What sums of fp32 and outputs of these dtypes may differ by. */
double bench_tolerance(uint32_t of, uint32_t to);

#endif
