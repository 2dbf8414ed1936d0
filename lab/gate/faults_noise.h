/* SPDX-License-Identifier: MIT
 * faults_noise.h - changes one output by enough that the gates must detect it, for faults.c: by the spread of
 * the outputs, or by the largest possible round-off of one. */
#ifndef BS_LAB_GATE_FAULTS_NOISE_H
#define BS_LAB_GATE_FAULTS_NOISE_H
#include "lab/gate/verdict.h"

typedef struct bs_fault_noise {
  uint32_t ranks;
  int sums; /* the judged output is a sum over ranks, in the dtype: */
  bs_arithmetic arithmetic;
  int partial;    /* outputs are one rank's terms */
  double carried; /* T3's bound for errors of dZ, in units of the spread of dX */
} bs_fault_noise;

bs_fault_noise bs_fault_noise_of(const bs_case *c, const bs_proposal *proposal);
/* y: `count` values, one of which is changed. */
void bs_fault_put_off(const bs_fault_noise *noise, void *y, int64_t count, uint32_t dtype);
#endif
