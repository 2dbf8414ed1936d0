/* SPDX-License-Identifier: MIT
 * sampler.h - takes samples of several arms so that they can be compared (docs/measuring.md). A pure engine:
 * tables provide the arms, the clock and the disturbances. So synthetic clocks in tests drive the code that
 * phase 1, the doctor, the tuner and bench/ use.
 *
 *   bs_sampler_options o;
 *   bs_sampler_defaults(&o);
 *   const bs_sampler_arm arms[] = {{.name = "mine", .user = &a, .batch = run_a}, {.name = "peer", ...}};
 *   bs_sampled *s = NULL;                                 // arms[0] is the subject
 *   int32_t rc = bs_sampler_run(&o, NULL, arms, 2, &s, err);
 *   if (rc == BS_OK) printf("%g %s\n", s->arm[1].comparison.ratio,
 *                           bs_comparison_name(s->arm[1].comparison.word));
 *   bs_sampling_free(s);
 *
 * Each arm is called once (its first call). Then it is warmed up in blocks until the median of a block is
 * less than 1 % better than that of the block before. Meanwhile the calls in a sample grow until a sample
 * lasts batch_seconds. Each sample follows untimed calls of its own arm (the lead). The lead is lengthened
 * until a sample takes as long after another arm as after its own. Then pairs are taken: each arm once, in
 * the order of a row of a Williams design (each arm follows each other arm equally often), the rows in random
 * order. After each group of pairs all arms are rebuilt, if the host can do that. Only pairs during which the
 * hypervisor or a quota took the processor are removed, as a whole, and counted. */
#ifndef BS_LAB_MEASURE_SAMPLER_H
#define BS_LAB_MEASURE_SAMPLER_H
#include <jansson.h>
#include "lab/measure/disturb.h"
#include "lab/measure/span.h"
#include "lab/measure/stats.h"

enum { BS_SAMPLER_ARMS = 16, BS_SAMPLER_WARNINGS = 24 };

typedef struct bs_sampler_arm {
  const char *name;
  void *user;
  /* Makes `lead` calls that are not timed and n calls that are. Other untimed work (flushing caches, waking
   * threads) must be outside the returned seconds. *out is zeroed before. */
  int32_t (*batch)(void *user, uint64_t lead, uint64_t n, bs_sample *out, bs_error *err);
  uint32_t threads; /* that work at the same time, of all its processes; 0: not known, all cores are needed */
  /* Reads the use of other processes for the arm so far; NULL: the arm runs in this process only. */
  void (*elsewhere)(void *user, bs_process_use *out);
  /* A text that two arms share if they measure the same configuration; NULL: unlike all other arms. Read
   * while the sampler runs. */
  const char *configuration;
} bs_sampler_arm;

/* The environment of the arms. Each slot may be NULL. Then `now` is the monotonic clock, disturbances are not
 * detected (bs_disturb_host detects this machine's), arms are built once, and progress is not reported. */
typedef struct bs_sampler_host {
  void *user;
  double (*now)(void *user); /* seconds; for the caps on time, never for a sample */
  void (*disturb)(void *user, bs_disturb *out);
  void (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
  int32_t (*steady)(void *user, bs_error *err); /* called after each build: all arms are warm, pairs begin */
  /* Rebuilds all arms in separate memory; `build` counts from 1. Even builds go in the opposite order: an
   * allocator first returns what was freed last, so each arm gets each place equally often. */
  int32_t (*rebuild)(void *user, uint32_t build, bs_error *err);
  void *build_user; /* of rebuild; NULL: user */
} bs_sampler_host;

typedef struct bs_sampler_options {
  uint32_t phase;         /* BS_TIME_HOT; BS_TIME_COLD: the arms flush the caches */
  uint32_t warm_blocks;   /* at most, of 4 samples each (200) */
  double warm_seconds;    /* at most, each arm (2) */
  uint64_t warm_calls;    /* at least (0) */
  double batch_seconds;   /* a sample lasts at least this (2e-3); below 1e-3 is refused */
  uint64_t batch_calls;   /* but has at most so many calls (1e9) */
  size_t pairs_min;       /* 20; below 5 is refused */
  size_t pairs_max;       /* 300 */
  size_t group;           /* pairs of one build, at least (6) */
  double rebuild_seconds; /* total time for rebuilding (2); three builds are made in any case */
  double seconds;         /* no new pair after so long, once pairs_min are there; 0: no cap (0) */
  double half_width;      /* stop when each interval is narrower than +- this share of its ratio (0.005) */
  double margin;          /* equivalence margin of the verdicts (0.01) */
  uint64_t seed;          /* of the order within the rounds (1) */
  uint32_t keep_stopped;  /* 1: where a signal asks to stop (lab/stop.h), the pairs so far are the result */
} bs_sampler_options;
void bs_sampler_defaults(bs_sampler_options *out);

/* The rule that ended the pairs. */
enum bs_stop { BS_STOP_INTERVAL = 1, BS_STOP_PAIRS = 2, BS_STOP_SECONDS = 3, BS_STOP_SIGNAL = 4 };
/* "interval", "max_pairs", "seconds", "signal". */
const char *bs_stop_name(uint32_t stop);

/* The warm-up of an arm. */
typedef struct bs_warm {
  uint64_t lead;  /* untimed calls before each sample, from now on */
  bs_span first;  /* the first call */
  bs_span warm;   /* all others before the pairs */
  uint64_t calls; /* in a sample, from now on */
  uint32_t blocks;
  uint32_t settled;
} bs_warm;

typedef struct bs_sampled_arm {
  char name[48];
  bs_warm warm;
  double *seconds;   /* [pairs], of one call, in the order of time: only disturbed pairs are missing */
  double *discarded; /* [discarded]: those */
  /* A group: log of (time after another arm / time after itself); NAN: not known. */
  double echo[BS_GROUPS_MAX];
  double carry;            /* the same as the longest lead left it; 0: it passed */
  double order;            /* the same over all groups; 0: within noise */
  uint32_t oversubscribed; /* it has more threads than there are cores */
  uint32_t kind;           /* the first arm of the same configuration: itself, or one before it */
  bs_look look;
  bs_comparison comparison; /* subject = arm 0, other = this one; of arm 0: all zero */
} bs_sampled_arm;

typedef struct bs_sampled {
  uint32_t phase;
  uint32_t n_arms;
  size_t pairs;                        /* used */
  size_t discarded;                    /* pairs taken away, all arms of them */
  size_t disturbed_kept;               /* disturbed pairs beyond the limit for discarding: used */
  size_t disturbed[BS_DISTURB_COUNT_]; /* pairs in which each kind was seen, discarded ones included */
  bs_disturbance disturbance;          /* of the pairs that are used: decides whether there is a word */
  uint64_t batches;                    /* samples of pairs of all arms, discarded ones included */
  uint32_t builds;                     /* 1: built once */
  uint32_t groups;
  size_t start[BS_GROUPS_MAX + 1]; /* group g has the pairs start[g] to start[g + 1] - 1 */
  double lead_seconds;             /* untimed before each sample; one call at least */
  uint32_t stop;                   /* enum bs_stop */
  uint32_t n_warnings;
  bs_samples trail; /* every sample of pairs, with its disturbances */
  double seconds;   /* from the first pair to the last, building included, by the host's clock */
  bs_sampled_arm arm[BS_SAMPLER_ARMS];
  char warning[BS_SAMPLER_WARNINGS]
              [BS_LOOK_SENTENCE]; /* sentences for the reader: not settled, shapes, ... */
} bs_sampled;

/* Runs a sampling. arms[0] is the subject; a single arm is sampled until pairs_max or the time cap. An arm's
 * error ends it: then out is NULL. At most pairs_max / 4 disturbed pairs are discarded and taken again, and
 * none while more than half of the pairs are disturbed. */
int32_t bs_sampler_run(const bs_sampler_options *options, const bs_sampler_host *host,
                       const bs_sampler_arm *arms, uint32_t n_arms, bs_sampled **out, bs_error *err);
void bs_sampling_free(bs_sampled *sampling);
/* The groups of pairs that comparisons count as one observation each, [groups + 1] starts; 0: the arms were
 * built less than three times, and bs_compare_pairs made groups. */
uint32_t bs_sampling_groups(const bs_sampled *sampling, size_t out_start[BS_GROUPS_MAX + 1]);
/* Applies the rule of word.c to a comparison of two arms of the sampling, with its facts on them and on the
 * machine. Comparisons with arm 0 have it already. */
void bs_sampling_settle(const bs_sampled *sampling, uint32_t subject, uint32_t other,
                        bs_comparison *comparison);
/* Typed samples of an arm, for bs_compare_series. */
bs_series bs_sampling_series(const bs_sampled *sampling, uint32_t arm);

/* Runs only the first half: the first call, then blocks until settled. */
int32_t bs_sampler_warm(const bs_sampler_options *options, const bs_sampler_host *host,
                        const bs_sampler_arm *arm, bs_warm *out, bs_error *err);

/* sampling_json.c: a sampling as fields of a record (docs/runs.md lists them). */
/* Adds an arm's warm-up, samples and warnings. */
int bs_sampling_arm_json(json_t *into, const bs_sampled *sampling, uint32_t arm);
/* One comparison with the subject, new reference; NULL when out of memory. */
json_t *bs_sampling_comparison_json(const bs_sampled *sampling, uint32_t arm);
/* pairs, the rule that stopped, disturbances, warnings; new reference. */
json_t *bs_sampling_pairs_json(const bs_sampled *sampling);
#endif
