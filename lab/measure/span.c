/* SPDX-License-Identifier: MIT
 * span.c - durations that carry their phase. */
#include "lab/measure/span.h"

#include <math.h>

#include "core/base/error.h"

const char *bs_time_phase_name(uint32_t phase) {
  static const char *const names[] = {"?", "build", "pack", "first", "warm", "steady-hot", "steady-cold"};
  return phase < sizeof names / sizeof names[0] ? names[phase] : "?";
}

bs_span bs_span_make(uint32_t phase, double seconds, uint64_t count) {
  return (bs_span){.phase = phase, .count = count, .seconds = seconds};
}

double bs_span_each(const bs_span *span) {
  return span->count > 0 ? span->seconds / (double)span->count : 0.0;
}

static int32_t refuse(uint32_t over, uint32_t under, bs_error *err) {
  bs_error_set(err, BS_USAGE, "BS-SPAN-PHASE", "a time of phase %s is not divided by one of phase %s",
               bs_time_phase_name(over), bs_time_phase_name(under));
  bs_error_hint(
      err, "compare times of one phase; a first call compared with a steady one says nothing about speed");
  return BS_USAGE;
}

static int32_t check_clocks(const bs_span *over, const bs_span *under, bs_error *err) {
  if (over->clock == under->clock) return BS_OK;
  bs_error_set(err, BS_USAGE, "BS-SPAN-CLOCK", "a %s time is not divided by a %s one",
               over->clock == BS_CLOCK_VIRTUAL ? "simulated" : "measured",
               under->clock == BS_CLOCK_VIRTUAL ? "simulated" : "measured");
  bs_error_hint(err, "compare two measured times, or two simulated ones of the same machine");
  return BS_USAGE;
}

int32_t bs_span_ratio(const bs_span *over, const bs_span *under, double *out_ratio, bs_error *err) {
  *out_ratio = NAN;
  if (over->phase != under->phase || over->phase == 0) return refuse(over->phase, under->phase, err);
  const int32_t rc = check_clocks(over, under, err);
  if (rc != BS_OK) return rc;
  const double each = bs_span_each(under);
  if (!(each > 0))
    return bs_error_set(err, BS_USAGE, "BS-SPAN-ZERO", "%s: nothing is divided by %g s in %llu calls",
                        bs_time_phase_name(under->phase), under->seconds, (unsigned long long)under->count);
  *out_ratio = bs_span_each(over) / each;
  return BS_OK;
}

static double once(const bs_span span[2]) {
  return bs_span_each(&span[0]) + bs_span_each(&span[1]);
}

int32_t bs_span_break_even(const bs_span once_subject[2], const bs_span once_other[2],
                           const bs_span *each_subject, const bs_span *each_other, double *out_calls,
                           bs_error *err) {
  *out_calls = NAN;
  for (int i = 0; i < 2; i++) {
    if (once_subject[i].phase != once_other[i].phase)
      return refuse(once_subject[i].phase, once_other[i].phase, err);
  }
  if (each_subject->phase != each_other->phase) return refuse(each_subject->phase, each_other->phase, err);
  for (int i = 0; i < 3; i++) {
    const int32_t rc =
        check_clocks(i < 2 ? &once_subject[i] : each_subject, i < 2 ? &once_other[i] : each_other, err);
    if (rc != BS_OK) return rc;
  }
  const double extra = once(once_subject) - once(once_other);
  const double saved = bs_span_each(each_other) - bs_span_each(each_subject);
  if (saved < 0 || (saved == 0 && extra > 0)) {
    *out_calls = INFINITY;
  } else {
    *out_calls = extra > 0 ? extra / saved : 0.0;
  }
  return BS_OK;
}
