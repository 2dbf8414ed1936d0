/* SPDX-License-Identifier: MIT
 * oracle.h - the error that attention SHOULD have: an emulation of the number format on sampled rows of
 * some heads. Inputs are normal, rounded to the format; scores, powers and sums are made as an implementation
 * of the class makes them, in tiles of keys, and compared with f64. A gate takes a multiple of this in the
 * place of a round number: a kernel that is much worse is wrong, one that is much better computes something
 * else. Pure: seconds for 32,768 keys are tenths. */
#ifndef BS_LAB_KERNEL_ORACLE_H
#define BS_LAB_KERNEL_ORACLE_H
#include "blockshock/blockshock.h"
#include "lab/kernel/tail.h"

/* The factor by which a right kernel may exceed the prediction: other orders of the same sums. */
#define BS_SDPA_SLACK 1.3
/* The variance of an output's three roundings in f32, by which it is scaled with its sum (the power, the
 * reciprocal, the product), relative to its square: 0.425 units each (docs/gates.md). Of one key it is all
 * the error there is; an emulation may divide once. */
#define BS_SDPA_SCALING (3.0 * (0.425 * 0x1p-24) * (0.425 * 0x1p-24))

/* Faults that tests emulate; a gate has to see each. */
enum bs_sdpa_fault {
  BS_SDPA_RIGHT = 0,
  BS_SDPA_TRUNCATED = 1, /* Q, K and V are cut to the format, not rounded: half a last place too small */
  BS_SDPA_LINEAR8 = 2, /* u = round((x / largest + 1) 127.5), read as (u - 128) / 127: half a step too low */
  BS_SDPA_NORMALIZED = 3, /* powers are divided by their sum before they are rounded: small ones vanish */
  BS_SDPA_ZERO = 4        /* no output is written */
};

typedef struct bs_sdpa_format {
  int64_t S, T, D, E;
  uint32_t dtype;      /* of Q, K and V */
  uint32_t out_dtype;  /* 0: dtype; of fp8: bf16 */
  uint32_t tolerance;  /* enum bs_tolerance: ACC_F32 keeps the powers in f32, ACC_LOW rounds them to dtype,
                        * ACC_F64 rounds only the output */
  uint32_t causal;     /* enum bs_causal */
  int64_t left, right; /* windows; 0: none */
  double p_scale;      /* fp8 powers are rounded as p * p_scale; 0: 256 */
  uint32_t fault;      /* enum bs_sdpa_fault */
  uint32_t outliers;   /* 1: one value of 1,000 gets another normal one of deviation 10 added */
  uint64_t seed;
} bs_sdpa_format;

typedef struct bs_sdpa_error {
  /* Relative to the root mean square of the right outputs. */
  double rmse;       /* against f64 of the same, rounded Q, K and V */
  double whole_rmse; /* against f64 of the inputs before they were rounded to dtype */
  bs_tail tail;      /* of the rows, against f64 of the rounded Q, K and V */
} bs_sdpa_error;

/* BS_INVALID_ARGUMENT: no shape, or a dtype or class that attention has not. BS_NO_MEMORY. */
int32_t bs_sdpa_emulate(const bs_sdpa_format *format, bs_sdpa_error *out_error, bs_error *err);
/* Queries of one head with known inputs, the keys first <= t < end that each sees, and the right results. */
typedef struct bs_sdpa_rows {
  int64_t n;
  const int64_t *first, *end;
  double *q, *k, *v;   /* [n][D], [T][D], [T][E]: only read */
  const double *right; /* [n][E] in f64 */
} bs_sdpa_rows;
/* Adds an implementation's errors on these rows to the tail, and the squares of the right values to
 * inout_right. S, masks, windows, seed, outliers and fault of the format are ignored. */
int32_t bs_sdpa_add_rows(const bs_sdpa_format *format, const bs_sdpa_rows *rows, double *inout_right,
                         bs_tail *inout_tail, bs_error *err);
/* One value as the format has it: rounded, or with the fault. largest: of the tensor (fp8 is scaled by it).
 */
double bs_sdpa_rounded(uint32_t dtype, uint32_t fault, double largest, double value);
#endif
