/* SPDX-License-Identifier: MIT
 *
 * rounds.h - samples of arms in turn, by the sampler of phase 1 (lab/measure/sampler.h), so that
 * what drifts falls on all. */
#ifndef BS_BENCH_ROUNDS_H
#define BS_BENCH_ROUNDS_H
#include "arms.h"
#include "lab/measure/sampler.h"

enum { BENCH_ARMS = BS_SAMPLER_ARMS };

typedef struct bench_round_options {
  int64_t pairs;          /* at most; 6 are always taken */
  double batch_seconds;   /* a sample lasts at least this, or one call */
  double warm_seconds;    /* of each arm, at most */
  double seconds_a_shape; /* no new round after so long */
} bench_round_options;

/* All arms are ready; arms[0] is the subject. Before each sample its arm runs untimed: threads of the arm
 * before have fallen asleep by then and its own are awake. Arms whose call lasts 50 ms or longer wait a
 * millisecond instead. */
int32_t bench_take(bench_arm *const *arms, size_t n_arms, const bench_round_options *options, int short_calls,
                   bs_sampling **out, bs_error *err);

#endif
