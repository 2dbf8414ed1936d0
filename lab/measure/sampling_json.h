/* SPDX-License-Identifier: MIT
 * sampling_json.h - a sampling as fields of a record (docs/runs.md lists them). */
#ifndef BS_LAB_MEASURE_SAMPLING_JSON_H
#define BS_LAB_MEASURE_SAMPLING_JSON_H
#include <jansson.h>

#include "lab/measure/sampler.h"

/* Adds an arm's warm-up, samples and what is to be said of them. */
int bs_sampling_arm_json(json_t *into, const bs_sampling *sampling, uint32_t arm);
/* One comparison with the subject, new reference; NULL when out of memory. */
json_t *bs_sampling_comparison_json(const bs_sampling *sampling, uint32_t arm);
/* pairs, the rule that stopped, disturbances, warnings; new reference. */
json_t *bs_sampling_pairs_json(const bs_sampling *sampling);
#endif
