/* SPDX-License-Identifier: MIT
 *
 * rounds.c - see rounds.h. */
#include "rounds.h"

#include <time.h>

#include "support.h"

#define LEAD_SECONDS 1e-3
#define LONG_CALL 0.02
enum { LEAST_PAIRS = 6 };

typedef struct led {
  bench_arm *arm;
  double one_call; /* seconds, of the newest sample; 0: none yet */
} led;

static int32_t led_batch(void *user, uint64_t calls, double *out_seconds, bs_error *err) {
  static const struct timespec pause = {0, (long)(LEAD_SECONDS * 1e9)};
  led *l = user;
  double seconds = 0.0;
  int32_t rc = BS_OK;
  if (l->one_call > 0.0 && l->one_call < LONG_CALL)
    rc = l->arm->ops->batch(l->arm, 1 + (uint64_t)(LEAD_SECONDS / l->one_call), &seconds, err);
  else
    (void)nanosleep(&pause, NULL);
  if (rc == BS_OK) rc = l->arm->ops->batch(l->arm, calls, out_seconds, err);
  if (rc == BS_OK) l->one_call = *out_seconds;
  return rc;
}

int32_t bench_take(bench_arm *const *arms, size_t n_arms, const bench_round_options *o, int short_calls,
                   bs_sampling **out, bs_error *err) {
  static const bs_sampler_host watched = {.disturb = bs_disturb_host};
  led users[BENCH_ARMS];
  bs_sampler_arm sampled[BENCH_ARMS];
  bs_sampler_options options;
  bs_sampler_defaults(&options);
  options.batch_seconds = o->batch_seconds;
  options.warm_seconds = o->warm_seconds;
  options.pairs_min = LEAST_PAIRS;
  options.pairs_max = (size_t)(o->pairs > LEAST_PAIRS ? o->pairs : LEAST_PAIRS);
  options.seconds = o->seconds_a_shape;
  for (size_t i = 0; i < n_arms; ++i) {
    users[i] = (led){arms[i], 0.0};
    sampled[i] = (bs_sampler_arm){arms[i]->name, &users[i], led_batch};
  }
  bench_on_one_core();
  const int32_t rc =
      bs_sampler_run(&options, short_calls ? &watched : NULL, sampled, (uint32_t)n_arms, out, err);
  bench_on_all_cores();
  return rc;
}
