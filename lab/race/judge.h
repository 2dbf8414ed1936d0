/* SPDX-License-Identifier: MIT
 * judge.h - may a candidate be timed at all: the gates of configs/gates/sdpa.yaml from build to memory, on
 * the problem and on a small one with ragged edges. */
#ifndef BS_LAB_RACE_JUDGE_H
#define BS_LAB_RACE_JUDGE_H
#include "lab/kernel/case.h"

typedef struct bs_judgement {
  uint32_t verdict;  /* enum bs_verdict of lab/choose/history.h */
  uint32_t unserved; /* 1: no plan, for the implementation does not serve the problem (BS_UNSUPPORTED) */
  char cause[320]; /* the gate and its numbers; "": all passed. After a pass: why only one shape was judged */
} bs_judgement;

/* Opens the arm, which the caller closes (NULL: no plan was made), and judges it. An error means that a run
 * failed, or the machine did. */
int32_t bs_judge_candidate(const bs_kernel_setup *setup, bs_kernel_arm **out_arm, bs_judgement *out,
                           bs_error *err);
/* Judges only the gates of the build: a plan is opened, and nothing runs. setup->stored_id: of the stored
 * choice. */
int32_t bs_judge_build(const bs_kernel_setup *setup, bs_judgement *out, bs_error *err);
/* The second problem: of the same kind, dtype and mask, with sizes that no tile divides. */
void bs_judge_ragged(const bs_kernel_problem *problem, bs_kernel_problem *out);
#endif
