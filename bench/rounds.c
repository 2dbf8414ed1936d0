/* SPDX-License-Identifier: MIT
 *
 * rounds.c - see rounds.h. */
#include "rounds.h"

#include <time.h>

#include "support.h"

#define PAUSE_SECONDS 1e-3
enum { LEAST_PAIRS = 6 };

/* An arm without a lead waits instead: threads of the arm before fall asleep. */
static int32_t led_batch(void *user, uint64_t lead, uint64_t calls, bs_sample *out, bs_error *err) {
  static const struct timespec pause = {0, (long)(PAUSE_SECONDS * 1e9)};
  bench_arm *arm = user;
  double untimed = 0.0;
  int32_t rc = BS_OK;
  if (lead > 0)
    rc = arm->ops->batch(arm, lead, &untimed, err);
  else
    (void)nanosleep(&pause, NULL);
  return rc == BS_OK ? arm->ops->batch(arm, calls, &out->seconds, err) : rc;
}

int32_t bench_take(bench_arm *const *arms, size_t n_arms, const bench_round_options *o, int short_calls,
                   bs_sampling **out, bs_error *err) {
  static const bs_sampler_host watched = {.disturb = bs_disturb_host};
  bs_sampler_arm sampled[BENCH_ARMS];
  bs_sampler_options options;
  bs_sampler_defaults(&options);
  options.batch_seconds = o->batch_seconds;
  options.warm_seconds = o->warm_seconds;
  options.pairs_min = LEAST_PAIRS;
  options.pairs_max = (size_t)(o->pairs > LEAST_PAIRS ? o->pairs : LEAST_PAIRS);
  options.seconds = o->seconds_a_shape;
  for (size_t i = 0; i < n_arms; ++i)
    sampled[i] = (bs_sampler_arm){.name = arms[i]->name, .user = arms[i], .batch = led_batch};
  bench_on_one_core();
  const int32_t rc =
      bs_sampler_run(&options, short_calls ? &watched : NULL, sampled, (uint32_t)n_arms, out, err);
  bench_on_all_cores();
  return rc;
}
