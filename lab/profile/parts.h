/* SPDX-License-Identifier: MIT
 * parts.h - shared parts of the subjects of a profile. */
#ifndef BS_LAB_PROFILE_PARTS_H
#define BS_LAB_PROFILE_PARTS_H
#include "lab/measure/load.h"
#include "lab/profile/counters.h"
#include "lab/profile/profile.h"

/* Adds one part; members that are 0 are left out. bound_s: the lower bound of the part's time. */
typedef struct bs_profile_part {
  const char *name;
  int32_t rank; /* -1: none */
  double seconds, flops, bytes, bound_s;
} bs_profile_part;

/* A record with its subject, call_s and an empty list of parts; NULL: out of memory. */
json_t *bs_profile_record(const char *kind, const char *name, uint32_t threads, uint32_t ranks,
                          double call_s);
int32_t bs_profile_add(json_t *record, const bs_profile_part *part, bs_error *err);
/* Adds the spread of call_s: the shortest and the 95th percentile of so many calls (or samples). */
int32_t bs_profile_calls(json_t *record, double n, double min_s, double p95_s, bs_error *err);
/* bound: seconds by each of n > 0 named limits; below 0: not known. */
int32_t bs_profile_bound(json_t *record, const char *const *names, const double *seconds, uint32_t n,
                         bs_error *err);
/* One thing of the record, which it takes over. */
int32_t bs_profile_set(json_t *record, const char *key, json_t *value, bs_error *err);
/* conditions: what else the processors did since `before` (bs_load_json). */
int32_t bs_profile_conditions(json_t *record, const bs_load *before, bs_error *err);
/* Writes the parts, one after the other, as Chrome trace events: a process for each rank. NULL path:
 * nothing. */
int32_t bs_profile_trace(const json_t *record, const char *path, bs_error *err);
#endif
