/* SPDX-License-Identifier: MIT
 * clock.h - synthetic clocks: arms whose times are made of a true time and what spoils measurements. They
 * drive the sampler itself; no real time is measured. */
#ifndef TESTS_MEASURE_CLOCK_H
#define TESTS_MEASURE_CLOCK_H
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "lab/measure/sampler.h"
#include "tests/marks.h"

enum { CLOCK_ARMS = 4, CLOCK_LOG = 40000 };

typedef struct clock_model {
  double drift;            /* share by which everything is slower after 60 samples (a series of 30 pairs) */
  double sine, period;     /* share, and samples */
  double noise;            /* share, normal */
  double spikes, spike;    /* how often, and the share that it adds */
  double slow_share, slow; /* two modes: how often the slower one, and the share that it adds */
  double stolen;           /* how often a sample loses 30 % to another guest, which steal tells of */
  double alike;            /* each arm's noise remembers this share of the arm's last */
  double first;            /* share added to an arm's first sample of a series */
  double warm;             /* share added at an arm's first call, halved with each sample */
  double build;            /* share, normal: what an arm's place in memory does, until it is built anew */
  double carry, carry_for; /* share by which arm 0 slows the arm after it, for so many seconds */
} clock_model;

/* What went over the counter, in the order of time. */
typedef struct clock_entry {
  uint32_t arm;
  uint64_t calls;
  double seconds;
} clock_entry;

typedef struct clock_world {
  clock_model m;
  double now;
  uint64_t seed, drawn, at; /* at: samples since the pairs began */
  size_t n_log;
  clock_entry log[CLOCK_LOG];
  double last[CLOCK_ARMS], built[CLOCK_ARMS];
  uint32_t ran;           /* the arm that ran last, + 1 */
  uint32_t rebuilds, odd; /* how often all were built anew; how often the numbers told so */
  double rebuild_takes;
  uint64_t calls_of[CLOCK_ARMS], samples_of[CLOCK_ARMS];
  bs_disturb counts;
  uint32_t cores;         /* of which the load is told; 0: it is not */
  double threads;         /* processors that an arm uses while it runs, where others leave them */
  double others, on, off; /* processors that others have, for `on` seconds in `on` + `off`; on 0: always */
  double waited;          /* of its time a sample's threads wait for a processor */
  uint64_t steal_every;   /* a sample in so many loses 30 % of its time, and steal rises; 0: none */
  uint64_t switch_every;  /* a sample in so many tells of a switch; 0: none */
  uint64_t fail_after;    /* samples after which an arm fails; 0: never */
  size_t steady_at;       /* where the log was when all was warm */
  double jump;            /* each sample is so much faster than the one before: never settles */
} clock_world;

typedef struct clock_arm {
  clock_world *world;
  uint32_t index;
  double seconds; /* of one call */
} clock_arm;

static inline double clock_normal(clock_world *w) {
  float z = 0;
  bs_rng_normal(w->seed, 1, w->drawn++, 1, &z);
  return z;
}
static inline double clock_uniform(clock_world *w) {
  float u = 0;
  bs_rng_uniform(w->seed, 2, w->drawn++, 1, &u);
  return u;
}

/* What /proc/stat would tell of that time. */
static inline void clock_pass(clock_world *w, double seconds) {
  const int there = w->on == 0 || fmod(w->now, w->on + w->off) < w->on;
  const double others = there ? w->others : 0;
  w->now += seconds;
  w->counts.load.clock = w->now;
  w->counts.load.cores = w->cores;
  w->counts.load.total += seconds * w->cores;
  const double own = fmin(w->threads, fmax(0, w->cores - others));
  w->counts.load.own += seconds * own;
  w->counts.load.idle += seconds * fmax(0, w->cores - own - others);
  w->counts.waited += seconds * w->waited;
}

static inline int32_t clock_batch(void *user, uint64_t lead, uint64_t calls, bs_sample *out, bs_error *err) {
  clock_arm *a = user;
  clock_world *w = a->world;
  const clock_model *m = &w->m;
  if (w->fail_after > 0 && w->n_log >= w->fail_after)
    return bs_error_set(err, BS_RANK_FAILED, "BS-CLOCK-FAIL", "arm %u stopped", a->index);
  const double z = clock_normal(w), u = clock_uniform(w), v = clock_uniform(w);
  w->last[a->index] = m->alike * w->last[a->index] + m->noise * sqrt(1 - m->alike * m->alike) * z;
  double t = a->seconds * (1 + m->drift * (double)w->at / 60.0);
  if (m->sine > 0) t *= 1 + m->sine * sin((double)w->seed + 6.283185307179586 * (double)w->at / m->period);
  t *= 1 + w->built[a->index];
  if (w->ran == 1 && a->index != 0 && (double)lead * t < m->carry_for) t *= 1 + m->carry;
  w->ran = a->index + 1;
  t *= 1 + w->last[a->index] + (u < m->spikes ? m->spike : 0) + (v < m->slow_share ? m->slow : 0);
  t *= 1 + m->warm * pow(0.5, (double)w->samples_of[a->index]);
  if (w->jump > 0) t *= pow(1 - w->jump, (double)w->samples_of[a->index]);
  const int stolen = m->stolen > 0 && clock_uniform(w) < m->stolen;
  if (stolen || (w->steal_every > 0 && w->n_log % w->steal_every == w->steal_every - 1)) {
    t *= 1.3;
    ++w->counts.count[BS_DISTURB_STEAL];
  }
  ck_assert_uint_lt(w->n_log, CLOCK_LOG);
  w->log[w->n_log++] = (clock_entry){a->index, calls, t};
  clock_pass(w, t * (double)(lead + calls));
  w->calls_of[a->index] += lead + calls;
  ++w->samples_of[a->index];
  ++w->at;
  out->seconds = t;
  out->switches = w->switch_every > 0 && w->n_log % w->switch_every == 0;
  return BS_OK;
}

/* All arms get another place. */
static inline int32_t clock_rebuild(void *user, uint32_t build, bs_error *err) {
  clock_world *w = user;
  (void)err;
  for (uint32_t i = 0; i < CLOCK_ARMS; ++i) w->built[i] = w->m.build * clock_normal(w);
  w->odd += build == ++w->rebuilds;
  w->now += w->rebuild_takes;
  return BS_OK;
}

static inline double clock_now(void *user) {
  return ((clock_world *)user)->now;
}
static inline void clock_disturb(void *user, bs_disturb *out) {
  *out = ((clock_world *)user)->counts;
}

/* A sampling of arms that take `seconds` each. */
typedef struct clock_run {
  clock_world world;
  clock_arm arm[CLOCK_ARMS];
  bs_sampler_options o;
  bs_sampler_host host;
  bs_sampled *s;
  bs_error err;
} clock_run;

static inline void clock_make(clock_run *r, const clock_model *m, uint64_t seed) {
  memset(r, 0, sizeof *r);
  r->err = (bs_error)BS_ERROR_INIT;
  r->world.m = *m;
  r->world.seed = seed;
  r->world.counts.known[BS_DISTURB_STEAL] = 1;
  bs_sampler_defaults(&r->o);
  r->o.seed = seed;
  r->host = (bs_sampler_host){.user = &r->world, .now = clock_now, .disturb = clock_disturb};
  if (m->build > 0) {
    r->host.rebuild = clock_rebuild;
    clock_rebuild(&r->world, 1, NULL);
    r->world.rebuilds = r->world.odd = 0;
  }
}

static inline int32_t clock_sample(clock_run *r, uint32_t n_arms, const double *seconds) {
  static const char *const names[CLOCK_ARMS] = {"subject", "other", "third", "fourth"};
  bs_sampler_arm arms[CLOCK_ARMS];
  for (uint32_t i = 0; i < n_arms; ++i) {
    r->arm[i] = (clock_arm){&r->world, i, seconds[i]};
    arms[i] = (bs_sampler_arm){.name = names[i], .user = &r->arm[i], .batch = clock_batch};
  }
  return bs_sampler_run(&r->o, &r->host, arms, n_arms, &r->s, &r->err);
}

static inline int clock_says(const bs_sampled *s, const char *text) {
  for (uint32_t i = 0; i < s->n_warnings; ++i) {
    if (strstr(s->warning[i], text) != NULL) return 1;
  }
  return 0;
}
#endif
