/* SPDX-License-Identifier: MIT
 * sampler_arm.h - what settle.c and sampler.c share. */
#ifndef BS_LAB_MEASURE_SAMPLER_ARM_H
#define BS_LAB_MEASURE_SAMPLER_ARM_H
#include "lab/measure/sampler.h"

/* One sample; an error when it is no time at all. */
int32_t bs_sampler_batch(const bs_sampler_arm *arm, uint64_t calls, double *out_seconds, bs_error *err);
/* The host's clock; the monotonic one when host is NULL or has none. */
double bs_sampler_now(const bs_sampler_host *host);
#endif
