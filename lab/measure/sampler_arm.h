/* SPDX-License-Identifier: MIT
 * sampler_arm.h - shared parts of settle.c and sampler.c. */
#ifndef BS_LAB_MEASURE_SAMPLER_ARM_H
#define BS_LAB_MEASURE_SAMPLER_ARM_H
#include "lab/measure/sampler.h"

/* Takes one sample; an error if it took no time. */
int32_t bs_sampler_batch(const bs_sampler_arm *arm, uint64_t lead, uint64_t calls, bs_sample *out,
                         bs_error *err);
/* Warms up arms that were rebuilt: a few samples of each, not stored, the arms alternately (`backwards`: from
 * the last to the first). So no arm is warmer than the others in the first pair. */
int32_t bs_sampler_warm_again(const bs_sampler_arm *arms, const bs_sampled *s, int backwards, bs_error *err);
/* Lengthens the leads of all arms until the work before a sample no longer affects it; *out_seconds is the
 * length of a lead. */
int32_t bs_sampler_find_lead(const bs_sampler_options *options, const bs_sampler_arm *arms, bs_sampled *s,
                             bs_error *err);

/* Compares all arms with the subject, from the pairs so far. */
int32_t bs_sampling_compare(bs_sampled *sampling, double margin, bs_error *err);
/* Finishes a sampling: the look of each arm, the words that the machine allows and the warnings. */
int32_t bs_sampling_judge(bs_sampled *sampling, bs_error *err);

/* The order of the arms in row `row` of a Williams design. Over all bs_design_rows(n) rows each arm follows
 * each other arm equally often. */
uint32_t bs_design_rows(uint32_t n_arms);
void bs_design_row(uint32_t n_arms, uint32_t row, uint32_t *out_order);
/* The host's clock; the monotonic one if host is NULL or has none. */
double bs_sampler_now(const bs_sampler_host *host);
#endif
