/* SPDX-License-Identifier: MIT
 * against.h - a measured time against the bound and the prediction: the share of the limit, a time that the
 * machine does not allow, a prediction that is off, and what is known of the cause. Pure. */
#ifndef BS_LAB_MEASURE_AGAINST_H
#define BS_LAB_MEASURE_AGAINST_H
#include "lab/measure/predict.h"

typedef struct bs_against {
  uint32_t below_bound; /* shorter than the fastest machine allows that the constants can be of (`least`) */
  double share;         /* bound / measured, at most 1; 0: UNKNOWN, also where the bound may be another one */
  double ratio;         /* measured / predicted; 0: UNKNOWN */
  uint32_t off;         /* by more than 15 %, either way */
} bs_against;

/* What is known about the measuring of an arm. */
typedef struct bs_against_facts {
  const char *arm;
  const bs_machine *machine;
  uint32_t ranks, threads; /* threads: of each rank */
  uint64_t pairs, disturbed;
} bs_against_facts;

/* Seconds of one call. A sample lasts two milliseconds at least, of which the clock's resolution is nothing.
 */
bs_against bs_against_of(const bs_predicted *predicted, double measured);
/* Adds below_bound, share_of_limit and measured_over_predicted; null: UNKNOWN. */
void bs_against_json(json_t *into, const bs_against *against);
/* 1 and a sentence where the time is below the bound, or else where the prediction is off. */
int bs_against_sentence(const bs_predicted *predicted, double measured, const bs_against_facts *facts,
                        char *out_text, size_t size);
#endif
