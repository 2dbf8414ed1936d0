/* SPDX-License-Identifier: MIT
 * kernel.c - a profile of one kernel: its calls compared with the bound of its work. */
#include <math.h>
#include <stdlib.h>

#include "lab/error.h"
#include "lab/kernel/bound.h"
#include "lab/measure/stats.h"
#include "lab/profile/parts.h"
#include "lab/stop.h"

enum { LEAST_CALLS = 5, MOST_CALLS = 20000, WARM_CALLS = 3 };

static const char *const limits[BS_LIMITS_] = {"fma", "exp", "bytes", "launch"};

/* The time of a call with almost no work: a problem of one query, one key. Below 0: not known. */
static double launch_of(const bs_kernel_setup *setup) {
  bs_kernel_problem least = *setup->problem;
  bs_kernel_setup s = *setup;
  bs_kernel_arm *arm = NULL;
  double seconds[11];
  if (least.kind != BS_KERNEL_SDPA) return -1.0;
  least.B = least.S = least.T = 1;
  least.H = least.G = 1;
  s.problem = &least;
  s.data = NULL;
  s.knobs = NULL;
  if (bs_kernel_arm_open(&s, &arm, NULL) != BS_OK) return -1.0;
  const int32_t rc = bs_kernel_arm_series(arm, WARM_CALLS, 11, seconds, NULL);
  bs_kernel_arm_close(arm);
  return rc == BS_OK ? bs_median(seconds, 11) : -1.0;
}

/* The number of calls that fit into the time. */
static uint64_t calls_for(bs_kernel_arm *arm, double seconds, double *out_first, bs_error *err, int32_t *rc) {
  *rc = bs_kernel_arm_series(arm, WARM_CALLS, 1, out_first, err);
  const double n = *rc == BS_OK && *out_first > 0 ? seconds / *out_first : LEAST_CALLS;
  return n < LEAST_CALLS ? LEAST_CALLS : n > MOST_CALLS ? MOST_CALLS : (uint64_t)n;
}

static int32_t describe(const bs_kernel_setup *setup, bs_kernel_arm *arm, const bs_counters *counters,
                        double calls, double call_s, json_t **out, bs_error *err) {
  const bs_kernel_problem *p = setup->problem;
  char text[BS_KERNEL_TEXT];
  bs_kernel_peaks rates = {0};
  bs_kernel_bound bound = {0};
  const uint32_t threads = setup->threads > 0 ? setup->threads : 1;
  bs_kernel_problem_text(p, text, sizeof text);
  const int stopped = bs_stop_asked() != 0; /* the machine is not measured any more */
  int32_t rc = stopped ? BS_OK : bs_kernel_peaks_measure(p, threads, 0, &rates, err);
  if (rc == BS_OK && !stopped) bs_kernel_bound_of(p, &rates, launch_of(setup), &bound);
  for (int i = 0; stopped && i < BS_LIMITS_; i++) bound.limit_s[i] = -1.0;
  *out = rc == BS_OK ? bs_profile_record("kernel", text, threads, 1, call_s) : NULL;
  if (rc == BS_OK && *out == NULL) rc = bs_no_memory(err, "a profile");
  const bs_profile_part part = {.name = bs_kernel_arm_provider(arm),
                                .rank = 0,
                                .seconds = call_s,
                                .flops = bs_kernel_flops(p),
                                .bytes = bs_kernel_bytes(p),
                                .bound_s = bound.seconds};
  if (rc == BS_OK && json_object_set_new(json_object_get(*out, "subject"), "dtype_bytes",
                                         json_integer((json_int_t)BS_DTYPE_BYTES(p->dtype))) != 0)
    rc = bs_no_memory(err, "a profile");
  if (rc == BS_OK) rc = bs_profile_add(*out, &part, err);
  if (rc == BS_OK) rc = bs_profile_bound(*out, limits, bound.limit_s, BS_LIMITS_, err);
  if (rc == BS_OK) rc = bs_profile_set(*out, "ranks", json_pack("{s:i}", "n", 1), err);
  if (rc == BS_OK)
    rc = bs_profile_set(*out, "counters", bs_counters_json(counters, calls, call_s, rates.bytes), err);
  return rc;
}

/* Times n calls, or those until a request to stop, if they are enough; *inout_n: how many. */
static int32_t time_calls(bs_kernel_arm *arm, uint64_t *inout_n, double **out_seconds, bs_error *err) {
  const uint64_t n = *inout_n;
  double *seconds = *out_seconds = calloc(n, sizeof *seconds);
  if (seconds == NULL) return bs_no_memory(err, "the times of calls");
  const int32_t rc = bs_kernel_arm_series(arm, 0, n, seconds, err);
  if (rc == BS_OK || bs_stop_asked() == 0) return rc;
  uint64_t done = 0;
  while (done < n && seconds[done] > 0.0) done++;
  *inout_n = done;
  return done >= LEAST_CALLS ? BS_OK : rc;
}

int32_t bs_profile_kernel(const bs_kernel_setup *setup, const bs_profile_options *options, json_t **out,
                          bs_error *err) {
  bs_counters counters;
  bs_kernel_arm *arm = NULL;
  double first = 0, *seconds = NULL;
  uint64_t n = 0;
  bs_load before;
  *out = NULL;
  bs_load_now(&before);
  bs_counters_open(options->counters, &counters); /* before the arm's threads are there */
  int32_t rc = bs_kernel_arm_open(setup, &arm, err);
  if (rc == BS_OK) n = calls_for(arm, options->seconds, &first, err, &rc);
  bs_counters_start(&counters);
  if (rc == BS_OK) rc = time_calls(arm, &n, &seconds, err);
  bs_counters_stop(&counters);
  if (rc == BS_OK) rc = describe(setup, arm, &counters, (double)n, bs_median(seconds, n), out, err);
  if (rc == BS_OK)
    rc =
        bs_profile_calls(*out, (double)n, bs_percentile(seconds, n, 0), bs_percentile(seconds, n, 0.95), err);
  if (rc == BS_OK) rc = bs_profile_conditions(*out, &before, err);
  if (rc == BS_OK) rc = bs_profile_trace(*out, options->trace, err);
  bs_kernel_arm_close(arm);
  bs_counters_close(&counters);
  free(seconds);
  if (rc != BS_OK) {
    json_decref(*out);
    *out = NULL;
  }
  return rc;
}
