/* SPDX-License-Identifier: MIT
 * check.h - judges tensors that other programs made, by the gates that need no run of this program
 * (docs/check.md), and names the likely error. */
#ifndef BS_LAB_CHECK_CHECK_H
#define BS_LAB_CHECK_CHECK_H
#include "lab/check/tensors.h"
#include "lab/result.h"

enum { BS_CHECK_GATES = 16 };

typedef struct bs_check_options {
  uint32_t y_dtype;      /* that Y was rounded to; 0: of the file, see bs_check_result.y_dtype */
  uint32_t reduce_dtype; /* of partials and their sums; 0: f64 where Y is f64, else f32 */
  uint32_t activation;   /* enum bs_activation */
  int64_t max_features;  /* outputs judged a token; 0: as many as keep the reference small */
  uint32_t ranks;        /* ranks of the sum; 0: as many as the tensors show */
  int transposed;        /* 1: W is [K,N] */
} bs_check_options;

typedef struct bs_check_result {
  bs_gate gates[BS_CHECK_GATES]; /* a warning is BS_GATE_UNKNOWN */
  uint32_t n_gates;
  uint32_t y_dtype; /* the dtype for judging; an f32 file whose X, W and Y are all bf16 values counts as
                     * bf16 */
  int64_t B, N, K, features;
  uint32_t ranks;
  int wrong;       /* a gate failed */
  char cause[512]; /* a sentence; "" if nothing is wrong */
} bs_check_result;

/* BS_INPUT: shapes that no layer has (BS-CHECK-SHAPE), fewer ranks than tensors (BS-CHECK-RANKS). Threads:
 * the reference uses all cores. */
int32_t bs_check_judge(const bs_check_set *set, const bs_check_options *options, bs_check_result *out,
                       bs_error *err);
#endif
