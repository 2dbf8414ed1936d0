/* SPDX-License-Identifier: MIT
 * sampler.c - takes pairs of samples in balanced orders until a stopping rule holds, and rebuilds the arms
 * between groups of pairs. settle.c warms the arms up; order.c finds their leads; verdict.c evaluates the
 * samples. */
#include "lab/measure/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "lab/cores.h"
#include "lab/error.h"
#include "lab/measure/sampler_arm.h"
#include "lab/process/child.h"
#include "lab/stop.h"

enum {
  FEWEST = 5,
  ORDER_STREAM = 11,
  ENOUGH_SEEN = 8,
  MIN_BUILDS = 3,
  GROUPS_TO_STOP = 20, /* with fewer an interval is often narrow by chance */
  MAX_ROWS = 2 * BS_SAMPLER_ARMS
};
static const double SHORTEST_BATCH = 1e-3;
static const double WAITED = 0.05; /* of a pair's time: on a quiet machine waking threads wait for less */

typedef struct run {
  const bs_sampler_options *o;
  const bs_sampler_host *host;
  const bs_sampler_arm *arm;
  bs_sampled *out;
  size_t may_discard;
  size_t group;   /* pairs from one build to the next */
  double rebuilt; /* seconds spent on rebuilding */
  int built_last; /* no rebuilding from now on */
  double start;
  uint32_t next_look; /* groups at which the intervals are looked at */
  bs_disturb seen;    /* counts before the pair */
  bs_disturbance_judge judge;
  int begun;                        /* pairs were begun: the judge has its first counts */
  uint32_t row[MAX_ROWS], next_row; /* rows of the design in the order of this round */
  uint64_t rounds;
  uint32_t before; /* the arm of the sample before; n_arms: not known */
} run;

void bs_sampler_defaults(bs_sampler_options *out) {
  *out = (bs_sampler_options){.phase = BS_TIME_HOT,
                              .warm_blocks = 200,
                              .warm_seconds = 2.0,
                              .batch_seconds = 2e-3,
                              .batch_calls = 1000000000,
                              .pairs_min = 20,
                              .pairs_max = 300,
                              .group = 6,
                              .rebuild_seconds = 2.0,
                              .half_width = 0.005,
                              .margin = 0.01,
                              .seed = 1};
}

const char *bs_stop_name(uint32_t stop) {
  static const char *const names[] = {"?", "interval", "max_pairs", "seconds", "signal"};
  return stop < sizeof names / sizeof names[0] ? names[stop] : "?";
}

double bs_sampler_now(const bs_sampler_host *host) {
  return host != NULL && host->now != NULL ? host->now(host->user) : bs_process_now();
}

static int32_t refuse_options(const bs_sampler_options *o, uint32_t n_arms, bs_error *err) {
  if (n_arms == 0 || n_arms > BS_SAMPLER_ARMS)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SAMPLER-OPTIONS", "%u arms (1 to %d)", n_arms,
                        BS_SAMPLER_ARMS);
  if (o->pairs_min < FEWEST || o->pairs_max < o->pairs_min || o->group == 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SAMPLER-OPTIONS",
                        "%zu to %zu pairs (%d or more) in groups of %zu", o->pairs_min, o->pairs_max, FEWEST,
                        o->group);
  if (!(o->batch_seconds >= SHORTEST_BATCH) || o->batch_calls == 0)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SAMPLER-OPTIONS",
                        "samples of %g s (%g s or more) and at most %llu calls", o->batch_seconds,
                        SHORTEST_BATCH, (unsigned long long)o->batch_calls);
  if (o->phase != BS_TIME_HOT && o->phase != BS_TIME_COLD)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-SAMPLER-OPTIONS", "samples of phase %s",
                        bs_time_phase_name(o->phase));
  return BS_OK;
}

/* Collects facts other than samples on which the words depend. 0: no memory. */
static int describe_arms(run *r, uint32_t n_arms) {
  const uint32_t cores = bs_machine_cores();
  uint32_t widest = 0, known = 1, crowded = 0;
  for (uint32_t i = 0; i < n_arms; ++i) {
    const bs_sampler_arm *arm = &r->arm[i];
    bs_sampled_arm *a = &r->out->arm[i];
    a->oversubscribed = arm->threads > cores;
    crowded |= a->oversubscribed;
    known &= arm->threads > 0;
    widest = arm->threads > widest ? arm->threads : widest;
    while (arm->configuration != NULL && a->kind < i &&
           (r->arm[a->kind].configuration == NULL ||
            strcmp(r->arm[a->kind].configuration, arm->configuration) != 0))
      ++a->kind;
    if (arm->configuration == NULL) a->kind = i;
  }
  return bs_disturbance_open(&r->judge, r->o->pairs_max, known ? widest : 0, crowded);
}

static int32_t make_room(run *r, uint32_t n_arms, bs_error *err) {
  r->out = calloc(1, sizeof *r->out);
  int good = r->out != NULL;
  r->may_discard = r->o->pairs_max / 4;
  r->group = r->o->pairs_max < MIN_BUILDS * r->o->group ? r->o->pairs_max / MIN_BUILDS : r->o->group;
  for (uint32_t i = 0; good && i < n_arms; ++i) {
    bs_sampled_arm *a = &r->out->arm[i];
    snprintf(a->name, sizeof a->name, "%s", r->arm[i].name);
    a->seconds = calloc(r->o->pairs_max, sizeof *a->seconds);
    a->discarded = calloc(r->may_discard + 1, sizeof *a->discarded);
    for (size_t g = 0; g < BS_GROUPS_MAX; ++g) a->echo[g] = NAN;
    good = a->seconds != NULL && a->discarded != NULL;
    r->out->n_arms = i + 1;
  }
  if (good && describe_arms(r, n_arms)) return BS_OK;
  return bs_no_memory(err, "%zu pairs of %u arms", r->o->pairs_max, n_arms);
}

/* ---- pairs -------------------------------------------------------------------------------------- */

/* Reads the host's counts, and the use of other processes for the arms. */
static int look_around(const run *r, bs_disturb *out) {
  if (r->host == NULL || r->host->disturb == NULL) return 0;
  r->host->disturb(r->host->user, out);
  for (uint32_t i = 0; i < r->out->n_arms; ++i) {
    bs_process_use use = {0};
    if (r->arm[i].elsewhere == NULL) continue;
    r->arm[i].elsewhere(r->arm[i].user, &use);
    out->load.own += use.cpu_s;
    if (out->waited >= 0.0 && use.waited_s > 0.0) out->waited += use.waited_s;
  }
  return 1;
}

/* Counts which kinds of disturbance increased since the last look. 1: the hypervisor or a quota took the
 * processor; *out_steal: the ticks. */
static int taken_away(run *r, uint64_t switches, bs_disturb *now, bs_disturbed_pair *out,
                      uint64_t *out_steal) {
  static const uint32_t kinds[] = {BS_DISTURB_STEAL, BS_DISTURB_THROTTLE};
  int rose[BS_DISTURB_COUNT_] = {0};
  *out_steal = 0;
  *out = (bs_disturbed_pair){0};
  r->out->disturbed[BS_DISTURB_SWITCH] += switches > 0;
  if (!look_around(r, now)) return 0;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; ++i) {
    const uint32_t k = kinds[i];
    rose[k] = now->known[k] && r->seen.known[k] && now->count[k] > r->seen.count[k];
    r->out->disturbed[k] += (size_t)rose[k];
    if (rose[k] && k == BS_DISTURB_STEAL) *out_steal = now->count[k] - r->seen.count[k];
  }
  const double passed = now->load.clock - r->seen.load.clock;
  out->steal = rose[BS_DISTURB_STEAL] != 0;
  out->quota = rose[BS_DISTURB_THROTTLE] != 0;
  out->waited = switches > 0 && r->seen.waited >= 0.0 && now->waited - r->seen.waited > WAITED * passed;
  r->seen = *now;
  return out->steal || out->quota;
}

/* If more than half of the pairs are disturbed, replacements would be disturbed too. */
static int worth_discarding(const run *r) {
  const bs_sampled *s = r->out;
  const size_t seen = s->pairs + s->discarded, bad = s->discarded + s->disturbed_kept;
  return s->discarded < r->may_discard && (seen < ENOUGH_SEEN || 2 * bad <= seen);
}

/* The rows of the design in random order, the next one of them. */
static uint32_t next_row(run *r) {
  const uint32_t rows = bs_design_rows(r->out->n_arms);
  uint32_t bits[MAX_ROWS];
  if (r->next_row == 0) {
    bs_rng_bits(r->o->seed, ORDER_STREAM, r->rounds++ * MAX_ROWS, MAX_ROWS, bits);
    for (uint32_t i = 0; i < rows; ++i) r->row[i] = i;
    for (uint32_t i = rows; i > 1; --i) {
      const uint32_t j = (uint32_t)((uint64_t)bits[i - 1] * i >> 32), kept = r->row[i - 1];
      r->row[i - 1] = r->row[j];
      r->row[j] = kept;
    }
  }
  const uint32_t row = r->row[r->next_row];
  r->next_row = r->next_row + 1 < rows ? r->next_row + 1 : 0;
  return row;
}

/* Appends a sample to the trail; facts on the whole pair follow later. */
static int32_t keep_sample(run *r, uint32_t i, const bs_sample *sample, uint32_t flags, bs_error *err) {
  const uint64_t calls = r->out->arm[i].warm.calls, most = UINT32_MAX;
  bs_sample_row row = {
      .t = bs_sampler_now(r->host),
      .seconds = sample->seconds,
      .cpu_ns = sample->cpu_ns,
      .arm = (uint16_t)i,
      .flags = (uint16_t)(flags | (r->o->phase == BS_TIME_COLD ? BS_SAMPLE_COLD : BS_SAMPLE_HOT)),
      .pair = (uint32_t)r->out->pairs,
      .rebuild = r->out->builds - 1,
      .calls = (uint32_t)(calls < most ? calls : most),
      .switches = (uint32_t)(sample->switches < most ? sample->switches : most),
      .ranks = sample->ranks};
  memcpy(row.rank_seconds, sample->rank_seconds, sizeof row.rank_seconds);
  return bs_samples_add(&r->out->trail, &row) ? BS_OK : bs_no_memory(err, "samples");
}

/* Takes one sample. With `echo` takes a second one right after it, so that one follows its own arm: *echo is
 * the log of first / second. */
static int32_t take_sample(run *r, uint32_t i, double *out_seconds, uint64_t *switches, double *echo,
                           bs_error *err) {
  bs_sampled_arm *a = &r->out->arm[i];
  const int follows = r->before != i;
  bs_sample first, second;
  int32_t rc = bs_sampler_batch(&r->arm[i], a->warm.lead, a->warm.calls, &first, err);
  r->before = i;
  if (rc == BS_OK) rc = keep_sample(r, i, &first, follows ? 0 : BS_SAMPLE_AFTER_OWN, err);
  if (rc != BS_OK) return rc;
  *out_seconds = first.seconds;
  *switches += first.switches;
  ++r->out->batches;
  if (echo == NULL || !follows || !isnan(a->echo[r->out->groups])) return BS_OK;
  rc = bs_sampler_batch(&r->arm[i], a->warm.lead, a->warm.calls, &second, err);
  if (rc != BS_OK) return rc;
  *echo = log(first.seconds / second.seconds);
  return keep_sample(r, i, &second, BS_SAMPLE_AFTER_OWN | BS_SAMPLE_ECHO, err);
}

/* Each arm once, in the order of a row: one pair for each arm with the subject. A disturbed one is taken
 * again, all arms of it, in the same order. */
static int32_t take_pair(run *r, int with_echo, bs_error *err) {
  bs_sampled *s = r->out;
  uint32_t order[BS_SAMPLER_ARMS];
  bs_design_row(s->n_arms, next_row(r), order);
  for (;;) {
    double seconds[BS_SAMPLER_ARMS], echo[BS_SAMPLER_ARMS];
    uint64_t switches = 0, steal;
    bs_disturb now = {0};
    bs_disturbed_pair by;
    const size_t from = s->trail.n;
    for (uint32_t j = 0; j < s->n_arms; ++j) {
      const uint32_t i = order[j];
      echo[i] = NAN;
      const int32_t rc = take_sample(r, i, &seconds[i], &switches, with_echo ? &echo[i] : NULL, err);
      if (rc != BS_OK) return rc;
    }
    const int bad = taken_away(r, switches, &now, &by, &steal), discard = bad && worth_discarding(r);
    for (size_t k = from; k < s->trail.n; ++k) {
      s->trail.row[k].steal = (uint32_t)(steal < UINT32_MAX ? steal : UINT32_MAX);
      if (discard) s->trail.row[k].flags |= BS_SAMPLE_DISCARDED;
    }
    for (uint32_t i = 0; i < s->n_arms; ++i) {
      *(discard ? &s->arm[i].discarded[s->discarded] : &s->arm[i].seconds[s->pairs]) = seconds[i];
      if (!discard && with_echo && !isnan(echo[i])) s->arm[i].echo[s->groups] = echo[i];
    }
    s->disturbed_kept += (size_t)(bad && !discard);
    s->discarded += (size_t)discard;
    s->pairs += (size_t)!discard;
    if (!discard) bs_disturbance_pair(&r->judge, &by, &now);
    if (!discard) return BS_OK;
  }
}

/* ---- builds ------------------------------------------------------------------------------------- */

static int32_t steady(run *r, bs_error *err) {
  r->before = r->out->n_arms;
  const int32_t rc = r->host != NULL && r->host->steady != NULL ? r->host->steady(r->host->user, err) : BS_OK;
  if (rc != BS_OK || !look_around(r, &r->seen)) return rc;
  if (!r->begun) bs_disturbance_begin(&r->judge, &r->seen);
  r->begun = 1;
  return BS_OK;
}

/* If building takes long, divides the remaining pairs into fewer groups. */
static void spread_builds(run *r, double each) {
  const double afford = floor(r->o->rebuild_seconds / each);
  const double wanted = ceil((double)r->o->pairs_max / (double)r->group) - 1.0;
  if (afford >= wanted) return;
  const size_t builds = afford < MIN_BUILDS - 1 ? MIN_BUILDS - 1 : (size_t)afford;
  const size_t left = r->o->pairs_max - r->out->pairs;
  r->group = (left + builds - 1) / builds;
}

static int32_t build_anew(run *r, bs_error *err) {
  bs_sampled *s = r->out;
  if (r->host == NULL || r->host->rebuild == NULL || r->built_last) return BS_OK;
  const double from = bs_sampler_now(r->host);
  void *user = r->host->build_user != NULL ? r->host->build_user : r->host->user;
  int32_t rc = r->host->rebuild(user, s->builds, err);
  if (rc == BS_OK) rc = bs_sampler_warm_again(r->arm, s, s->builds % 2 == 1, err);
  if (rc == BS_OK) rc = steady(r, err);
  if (rc != BS_OK) return rc;
  const double took = bs_sampler_now(r->host) - from;
  r->rebuilt += took;
  if (s->builds++ == 1) spread_builds(r, took);
  if (r->rebuilt + took > r->o->rebuild_seconds && s->builds >= MIN_BUILDS) r->built_last = 1;
  return BS_OK;
}

/* ---- when it stops ------------------------------------------------------------------------------ */

static int32_t stop_at_intervals(run *r, bs_error *err) {
  bs_sampled *s = r->out;
  if (s->n_arms < 2 || s->groups < r->next_look) return BS_OK;
  r->next_look = s->groups + (s->groups + 1) / 2; /* each look is a chance to stop too early */
  const int32_t rc = bs_sampling_compare(s, r->o->margin, err);
  if (rc != BS_OK) return rc;
  for (uint32_t i = 1; i < s->n_arms; ++i) {
    const bs_comparison *c = &s->arm[i].comparison;
    if ((c->high - c->low) / 2 > r->o->half_width * c->ratio) return BS_OK;
  }
  s->stop = BS_STOP_INTERVAL;
  return BS_OK;
}

/* Pairs of the group that is being taken: three builds fit into the fewest pairs, BS_GROUPS_MAX groups hold
 * the most. */
static size_t group_size(const run *r) {
  const bs_sampled *s = r->out;
  const size_t room = BS_GROUPS_MAX - s->groups, soon = r->o->pairs_min / MIN_BUILDS;
  const size_t least = (r->o->pairs_max - s->start[s->groups] + room - 1) / room;
  if (s->groups < MIN_BUILDS) return soon < r->group ? soon : r->group;
  return least > r->group ? least : r->group;
}

/* Runs after each pair; a group may end here. All pairs after the last build are one group. */
static int32_t look_at_rules(run *r, bs_error *err) {
  bs_sampled *s = r->out;
  const int enough = s->pairs >= r->o->pairs_min;
  s->seconds = bs_sampler_now(r->host) - r->start;
  s->start[s->groups + 1] = s->pairs;
  if (enough && r->o->seconds > 0 && s->seconds >= r->o->seconds) s->stop = BS_STOP_SECONDS;
  if (s->pairs >= r->o->pairs_max) s->stop = BS_STOP_PAIRS;
  const int one = r->built_last && s->builds >= MIN_BUILDS;
  const int ended = !one && s->pairs - s->start[s->groups] >= group_size(r);
  if (s->stop != 0 || ended) ++s->groups;
  if (s->stop != 0 || !ended) return BS_OK;
  int32_t rc = enough ? stop_at_intervals(r, err) : BS_OK;
  if (rc == BS_OK && s->stop == 0) rc = build_anew(r, err);
  return rc;
}

static int32_t take_pairs(run *r, bs_error *err) {
  bs_sampled *s = r->out;
  const int echoes = s->n_arms > 1 && r->o->phase != BS_TIME_COLD;
  s->builds = 1;
  int32_t rc = steady(r, err);
  r->start = bs_sampler_now(r->host);
  while (rc == BS_OK && s->stop == 0 && (rc = bs_stop_check(err)) == BS_OK) {
    const size_t at = s->pairs - s->start[s->groups];
    rc = take_pair(r, echoes && at >= (r->group > 1), err);
    if (rc == BS_OK) rc = look_at_rules(r, err);
    if (r->host != NULL && r->host->progress != NULL)
      r->host->progress(r->host->user, "pairs", s->pairs, r->o->pairs_max);
  }
  bs_disturbance_end(&r->judge, &r->seen, &s->disturbance);
  return rc;
}

/* A signal asked to stop, and there are pairs enough for an interval. */
static int may_keep(const run *r) {
  return r->o->keep_stopped && bs_stop_asked() != 0 && r->out != NULL && r->out->pairs >= 5;
}

static void end_group(bs_sampled *s) {
  s->stop = BS_STOP_SIGNAL;
  s->start[s->groups + 1] = s->pairs;
  if (s->pairs > s->start[s->groups]) ++s->groups;
}

int32_t bs_sampler_run(const bs_sampler_options *o, const bs_sampler_host *host, const bs_sampler_arm *arms,
                       uint32_t n_arms, bs_sampled **out, bs_error *err) {
  run r = {.o = o, .host = host, .arm = arms, .next_look = GROUPS_TO_STOP};
  *out = NULL;
  int32_t rc = refuse_options(o, n_arms, err);
  if (rc == BS_OK) rc = make_room(&r, n_arms, err);
  for (uint32_t i = 0; rc == BS_OK && i < n_arms; ++i) {
    if (host != NULL && host->progress != NULL) host->progress(host->user, "warm-up", i, n_arms);
    rc = bs_sampler_warm(o, host, &arms[i], &r.out->arm[i].warm, err);
  }
  if (rc == BS_OK) {
    r.out->phase = o->phase;
    rc = bs_sampler_find_lead(o, arms, r.out, err);
  }
  if (rc == BS_OK) rc = take_pairs(&r, err);
  if (rc != BS_OK && may_keep(&r)) {
    end_group(r.out);
    rc = BS_OK;
  }
  if (rc == BS_OK) rc = bs_sampling_compare(r.out, o->margin, err);
  if (rc == BS_OK) rc = bs_sampling_judge(r.out, err);
  bs_disturbance_close(&r.judge);
  if (rc == BS_OK) {
    *out = r.out;
  } else {
    bs_sampling_free(r.out);
  }
  return rc;
}

void bs_sampling_free(bs_sampled *s) {
  if (s == NULL) return;
  for (uint32_t i = 0; i < BS_SAMPLER_ARMS; ++i) {
    free(s->arm[i].seconds);
    free(s->arm[i].discarded);
  }
  bs_samples_free(&s->trail);
  free(s);
}

bs_series bs_sampling_series(const bs_sampled *s, uint32_t arm) {
  return (bs_series){
      .phase = s->phase, .calls = s->arm[arm].warm.calls, .count = s->pairs, .seconds = s->arm[arm].seconds};
}
