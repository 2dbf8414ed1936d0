/* SPDX-License-Identifier: MIT
 * span.h - durations tagged with their phase. A ratio of two different phases (a first call over a steady
 * one) is refused here, so no caller can print one. */
#ifndef BS_LAB_MEASURE_SPAN_H
#define BS_LAB_MEASURE_SPAN_H
#include <stddef.h>
#include <stdint.h>

#include "blockshock/blockshock.h"
#include "lab/store/samples.h"

enum bs_time_phase {
  BS_TIME_BUILD = 1, /* a layer built, its packing included */
  BS_TIME_PACK = 2,  /* of the building: weights pulled into panels */
  BS_TIME_FIRST = 3, /* the first call after the build */
  BS_TIME_WARM = 4,  /* calls made until the times settled */
  BS_TIME_HOT = 5,   /* steady, caches as the calls before left them */
  BS_TIME_COLD = 6   /* steady, caches flushed before each call */
};
/* "build", "pack", "first", "warm", "steady-hot", "steady-cold"; "?" for no phase. */
const char *bs_time_phase_name(uint32_t phase);

/* The clock of the seconds: the machine's, or a simulated machine's. */
enum bs_span_clock { BS_CLOCK_REAL = 0, BS_CLOCK_VIRTUAL = 1 };

/* `seconds` that `count` calls of one phase took together. */
typedef struct bs_span {
  uint32_t phase; /* enum bs_time_phase */
  uint32_t clock; /* enum bs_span_clock */
  uint64_t count;
  double seconds;
} bs_span;

bs_span bs_span_make(uint32_t phase, double seconds, uint64_t count);
/* Seconds of one call; 0 for none. */
double bs_span_each(const bs_span *span);
/* Seconds of one call of `over` / seconds of one call of `under`. BS_USAGE, id BS-SPAN-PHASE, when the phases
 * differ; id BS-SPAN-CLOCK when the clocks do; id BS-SPAN-ZERO when `under` holds no time. */
int32_t bs_span_ratio(const bs_span *over, const bs_span *under, double *out_ratio, bs_error *err);

typedef struct bs_sample {
  double seconds;    /* of one call: the mean of a batch */
  uint64_t switches; /* involuntary switches of the threads that worked, while they were timed */
  uint64_t cpu_ns;   /* processor time of the same; 0: not known */
  uint32_t ranks;    /* ranks that report their own seconds: the first ones */
  double rank_seconds[BS_SAMPLE_RANKS];
} bs_sample;

/* Samples of one arm: seconds of one call, each the mean of `calls` calls. */
typedef struct bs_series {
  uint32_t phase; /* BS_TIME_HOT or BS_TIME_COLD, as a rule */
  uint32_t reserved;
  uint64_t calls;
  size_t count;
  const double *seconds;
} bs_series;

/* The number of calls after which the subject has recovered its higher one-off costs (build and first call):
 * (its build + first - the other's) / (seconds saved per call). 0: immediately; INFINITY: never. Only this
 * function combines one-off and steady times. once_*: build and first; each_*: of one phase. */
int32_t bs_span_break_even(const bs_span once_subject[2], const bs_span once_other[2],
                           const bs_span *each_subject, const bs_span *each_other, double *out_calls,
                           bs_error *err);
#endif
