/* SPDX-License-Identifier: MIT
 * test_look.c - outliers in series made for it; durations that carry their
 * phase; the texts that tell what took the processor away. */
#include "tests/measure/clock.h"
#include "tests/run_tests.h"

enum { N = 40 };

static bs_look look;
static char sentence[BS_LOOK_SENTENCE];

/* A clean series: 1 ms with 0.4 % noise. */
static void clean(double *v, uint64_t seed) {
  float z[N];
  bs_rng_normal(seed, 4, 0, N, z);
  for (int i = 0; i < N; ++i) v[i] = 1e-3 * (1 + 0.004 * (double)z[i]);
}
static int looked(const double *v, size_t n) {
  ck_assert(bs_look_at(v, n, &look));
  return bs_look_sentence(&look, "arm", sentence, sizeof sentence);
}

START_TEST(order_statistics) {
  const double v[] = {5, 1, 2, 4, 3};
  looked(v, 5);
  ck_assert(look.count == 5 && look.min == 1 && look.max == 5 && look.p50 == 3 && look.mad == 1);
  ck_assert_double_eq_tol(look.p90, 4.6, 1e-12);
  ck_assert_double_eq_tol(look.p99, 4.96, 1e-12);
  ck_assert_int_eq(looked(v, 0), 0);
  ck_assert_int_eq(looked(v, 1), 0);
}
END_TEST

START_TEST(outliers_on_both_sides) {
  double v[N];
  clean(v, 1);
  ck_assert_int_eq(looked(v, N), 0);
  v[7] = 2e-3;
  v[20] = 0.5e-3;
  v[21] = 0.5e-3;
  ck_assert_int_eq(looked(v, N), 1);
  ck_assert(look.z_high == 1 && look.z_low == 2 && look.far == 3);
  ck_assert(look.tukey_high >= 1 && look.tukey_low >= 2);
  ck_assert_str_eq(sentence, "arm: 3 of 40 samples are outliers (2 low, 1 high), all kept");
}
END_TEST

START_TEST(equal_samples_have_no_spread_to_divide_by) {
  double v[N];
  for (int i = 0; i < N; ++i) v[i] = 1e-3;
  ck_assert_int_eq(looked(v, N), 0);
  ck_assert(look.mad == 0 && look.z_high + look.z_low + look.tukey_high == 0);
  v[9] = 1.5e-3;
  ck_assert_int_eq(looked(v, N), 1);
  ck_assert(look.mad == 0 && look.z_high == 1 && look.tukey_high == 1);
}
END_TEST

START_TEST(outliers_come_seldom_by_chance) {
  double v[N];
  int outliers = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    clean(v, 1000 + seed);
    looked(v, N);
    outliers += look.far > 0;
  }
  ck_assert_int_le(outliers, 10);
}
END_TEST

/* ---- durations ---------------------------------------------------------------------------------- */

START_TEST(times_of_two_phases_have_no_ratio) {
  bs_error err = BS_ERROR_INIT;
  double ratio = 7;
  for (uint32_t a = BS_TIME_BUILD; a <= BS_TIME_COLD; ++a) {
    for (uint32_t b = BS_TIME_BUILD; b <= BS_TIME_COLD; ++b) {
      const bs_span over = bs_span_make(a, 6, 3), under = bs_span_make(b, 1, 1);
      const int32_t rc = bs_span_ratio(&over, &under, &ratio, &err);
      if (a == b) {
        ck_assert(rc == BS_OK && ratio == 2);
        continue;
      }
      ck_assert_int_eq(rc, BS_USAGE);
      ck_assert(isnan(ratio)); /* not a number that could be printed as one */
      ck_assert_str_eq(err.id, "BS-SPAN-PHASE");
      ck_assert_ptr_nonnull(strstr(err.message, bs_time_phase_name(a)));
      ck_assert_ptr_nonnull(strstr(err.message, bs_time_phase_name(b)));
    }
  }
  const bs_span untyped = {0}, none = bs_span_make(BS_TIME_HOT, 0, 0), hot = bs_span_make(BS_TIME_HOT, 1, 1);
  ck_assert_int_eq(bs_span_ratio(&untyped, &untyped, &ratio, &err), BS_USAGE);
  ck_assert_int_eq(bs_span_ratio(&hot, &none, &ratio, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-SPAN-ZERO");
  ck_assert_str_eq(bs_time_phase_name(BS_TIME_COLD), "steady-cold");
  ck_assert_str_eq(bs_time_phase_name(99), "?");
}
END_TEST

/* Seconds of a simulated machine are none of this one. */
START_TEST(times_of_two_clocks_have_no_ratio) {
  const bs_span measured = {.phase = BS_TIME_HOT, .count = 1, .seconds = 2},
                simulated = {.phase = BS_TIME_HOT, .clock = BS_CLOCK_VIRTUAL, .count = 1, .seconds = 1};
  const bs_span once[2] = {{.phase = BS_TIME_BUILD, .count = 1}, {.phase = BS_TIME_FIRST, .count = 1}};
  double ratio = 0;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_span_ratio(&measured, &simulated, &ratio, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-SPAN-CLOCK");
  ck_assert_int_eq(bs_span_break_even(once, once, &simulated, &measured, &ratio, &err), BS_USAGE);
  ck_assert_str_eq(err.id, "BS-SPAN-CLOCK");
  ck_assert_int_eq(bs_span_ratio(&simulated, &simulated, &ratio, &err), BS_OK);
  ck_assert_double_eq(ratio, 1);
}
END_TEST

START_TEST(hot_and_cold_do_not_mix) {
  static clock_run r;
  static const double alike[] = {1e-3, 1e-3};
  static const clock_model still = {.noise = 0.001};
  bs_comparison c;
  clock_make(&r, &still, 16);
  r.o.phase = BS_TIME_COLD;
  ck_assert_int_eq(clock_sample(&r, 2, alike), BS_OK);
  const bs_series cold = bs_sampling_series(r.s, 0);
  bs_series hot = bs_sampling_series(r.s, 1);
  ck_assert(cold.phase == BS_TIME_COLD && cold.count == r.s->pairs);
  ck_assert_int_eq(bs_compare_series(&cold, &hot, 0.01, &c, &r.err), BS_OK);
  ck_assert_double_eq(c.ratio, r.s->arm[1].comparison.ratio);
  hot.phase = BS_TIME_HOT;
  ck_assert_int_eq(bs_compare_series(&cold, &hot, 0.01, &c, &r.err), BS_USAGE);
  ck_assert_str_eq(r.err.id, "BS-SPAN-PHASE");
  ck_assert(c.word == BS_WORD_UNCLEAR && c.ratio == 0);
  hot.phase = BS_TIME_COLD;
  hot.count -= 1;
  ck_assert_int_eq(bs_compare_series(&cold, &hot, 0.01, &c, &r.err), BS_USAGE);
  bs_sampling_free(r.s);
}
END_TEST

static double even(double extra, double each_subject, double each_other) {
  bs_error err = BS_ERROR_INIT;
  const bs_span a[2] = {bs_span_make(BS_TIME_BUILD, 1 + extra, 1), bs_span_make(BS_TIME_FIRST, 1, 1)};
  const bs_span b[2] = {bs_span_make(BS_TIME_BUILD, 1, 1), bs_span_make(BS_TIME_FIRST, 1, 1)};
  const bs_span c = bs_span_make(BS_TIME_HOT, each_subject, 1), d = bs_span_make(BS_TIME_HOT, each_other, 1);
  const bs_span cold = bs_span_make(BS_TIME_COLD, each_other, 1);
  double calls = 0, refused = 0;
  ck_assert_int_eq(bs_span_break_even(a, b, &c, &d, &calls, &err), BS_OK);
  ck_assert_int_eq(bs_span_break_even(a, b, &c, &cold, &refused, &err), BS_USAGE);
  ck_assert(isnan(refused));
  return calls;
}

START_TEST(break_even) {
  ck_assert_double_eq_tol(even(10, 1, 3), 5, 1e-12);
  ck_assert_double_eq(even(-1, 1, 3), 0); /* cheaper at once and for ever */
  ck_assert_double_eq(even(0, 1, 1), 0);
  ck_assert(isinf(even(10, 3, 1)));
  ck_assert(isinf(even(-10, 3, 1)));
  ck_assert(isinf(even(10, 1, 1)));
}
END_TEST

/* ---- what took the processor away ---------------------------------------------------------------- */

typedef struct files {
  const char *stat, *cgroup, *cpu_stat_path, *cpu_stat;
} files;

static int fake_read(void *user, const char *path, char *text, size_t size) {
  const files *f = user;
  const char *found = NULL;
  if (strcmp(path, "/proc/stat") == 0) found = f->stat;
  if (strcmp(path, "/proc/self/cgroup") == 0) found = f->cgroup;
  if (f->cpu_stat_path != NULL && strcmp(path, f->cpu_stat_path) == 0) found = f->cpu_stat;
  if (found == NULL) return 0;
  snprintf(text, size, "%s", found);
  return 1;
}

static bs_disturb disturb_of(files *f) {
  const bs_disturb_source source = {f, fake_read};
  bs_disturb d;
  memset(&d, 0xff, sizeof d);
  bs_disturb_read(&source, &d);
  return d;
}

START_TEST(counts_are_read) {
  files f = {"cpu  1 2 3 4 5 6 7 4711 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n", "0::/user.slice/a b\n",
             "/sys/fs/cgroup/user.slice/a b/cpu.stat",
             "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 77\n"};
  bs_disturb d = disturb_of(&f);
  ck_assert(d.known[BS_DISTURB_STEAL] == 1 && d.count[BS_DISTURB_STEAL] == 4711);
  ck_assert(d.known[BS_DISTURB_SWITCH] == 0); /* samples tell of these */
  ck_assert(d.known[BS_DISTURB_THROTTLE] == 1 && d.count[BS_DISTURB_THROTTLE] == 3);
  f.cgroup = "0::/\n";
  f.cpu_stat_path = "/sys/fs/cgroup/cpu.stat";
  f.cpu_stat = "nr_throttled 8";
  d = disturb_of(&f);
  ck_assert(d.known[BS_DISTURB_THROTTLE] == 1 && d.count[BS_DISTURB_THROTTLE] == 8);
  f.cgroup = "12:memory:/m\n4:cpu,cpuacct:/jobs/7\n0::/\n"; /* version 1 */
  f.cpu_stat_path = "/sys/fs/cgroup/cpu/jobs/7/cpu.stat";
  d = disturb_of(&f);
  ck_assert(d.known[BS_DISTURB_THROTTLE] == 1 && d.count[BS_DISTURB_THROTTLE] == 8);
}
END_TEST

START_TEST(what_is_not_told_is_not_known) {
  static const char *const stats[] = {NULL, "", "cpu  1 2 3\ncpu0 1 2 3 4 5 6 7 8\n", "cpuid 1 2 3 4 5 6 7 8",
                                      "cpu  a b c"};
  for (size_t i = 0; i < sizeof stats / sizeof stats[0]; ++i) {
    files f = {.stat = stats[i]};
    const bs_disturb d = disturb_of(&f);
    for (uint32_t k = 0; k < BS_DISTURB_COUNT_; ++k) ck_assert_uint_eq(d.known[k], 0);
  }
  static const char *const groups[] = {"", "0::", "nonsense\n", "3:memory:/x\n", "\n\n\n"};
  for (size_t i = 0; i < sizeof groups / sizeof groups[0]; ++i) {
    files f = {
        .cgroup = groups[i], .cpu_stat_path = "/sys/fs/cgroup/x/cpu.stat", .cpu_stat = "nr_throttled 1"};
    ck_assert_uint_eq(disturb_of(&f).known[BS_DISTURB_THROTTLE], 0);
  }
  bs_disturb here; /* this machine: whatever it tells, it does not go back */
  bs_disturb later;
  bs_disturb_host(NULL, &here);
  bs_disturb_host(NULL, &later);
  for (uint32_t k = 0; k < BS_DISTURB_COUNT_; ++k) ck_assert(later.count[k] >= here.count[k]);
  ck_assert_str_eq(bs_disturb_name(BS_DISTURB_THROTTLE), "throttling");
  ck_assert_str_eq(bs_disturb_name(9), "?");
}
END_TEST

int main(void) {
  const test_case tests[] = {{order_statistics},
                             {times_of_two_clocks_have_no_ratio},
                             {outliers_on_both_sides},
                             {equal_samples_have_no_spread_to_divide_by},
                             {outliers_come_seldom_by_chance},
                             {times_of_two_phases_have_no_ratio},
                             {hot_and_cold_do_not_mix},
                             {break_even},
                             {counts_are_read},
                             {what_is_not_told_is_not_known},
                             {0}};
  return run_tests("look", tests, (test_setup){0});
}
