/* SPDX-License-Identifier: MIT
 * test_sim_coroutine.c - coroutines keep their registers and stacks, run what is deep on the main stack, and
 * an overrun of a stack is seen. */
#include <fenv.h>

#include "sim/coroutine.h"
#include "tests/run_tests.h"

enum { MANY = 5000, ROUNDS = 3 };

typedef struct count {
  sim_coroutines *set;
  uint64_t sums[MANY];
  size_t deep;
} count;

static void body(void *arg, uint32_t i) {
  count *c = arg;
  double a = i, b = i * 0.5;
  uint64_t sum = i;
  for (int round = 0; round < ROUNDS; round++) {
    sum = sum * 3 + (uint64_t)a + (uint64_t)(2 * b);
    sim_coroutine_yield(c->set);
    a += 1;
    b += 0.5;
  }
  c->sums[i] = sum;
}

START_TEST(each_keeps_its_own_values) {
  static count c;
  c.set = sim_coroutines_new(MANY, 0, body, &c);
  ck_assert_ptr_nonnull(c.set);
  for (int round = 0; round <= ROUNDS; round++)
    for (uint32_t i = 0; i < MANY; i++) {
      ck_assert_int_eq(sim_coroutine_resume(c.set, i), round == ROUNDS ? SIM_CO_ENDED : SIM_CO_BLOCKED);
      if (i % 7 == 0) sim_coroutine_trim(c.set, i);
    }
  for (uint64_t i = 0; i < MANY; i++) {
    uint64_t sum = i;
    for (uint64_t round = 0; round < ROUNDS; round++) sum = sum * 3 + 2 * (i + round);
    ck_assert_uint_eq(c.sums[i], sum);
  }
  ck_assert_int_eq(sim_coroutine_resume(c.set, 3), SIM_CO_ENDED);
  sim_coroutines_free(c.set);
}
END_TEST

static void deep(void *arg) {
  volatile char big[512 << 10];
  count *c = arg;
  for (size_t i = 0; i < sizeof big; i += 4096) big[i] = 1;
  c->deep += (size_t)big[4096] * sizeof big;
  ck_assert_uint_eq(sim_coroutine_running(c->set), UINT32_MAX);
}

static void calls_deep(void *arg, uint32_t i) {
  count *c = arg;
  ck_assert_uint_eq(sim_coroutine_running(c->set), i);
  sim_on_main(c->set, deep, c);
  sim_coroutine_yield(c->set);
  sim_on_main(c->set, deep, c);
}

START_TEST(what_needs_much_stack_runs_on_the_main_one) {
  static count c;
  c.set = sim_coroutines_new(2, 0, calls_deep, &c);
  ck_assert_int_eq(sim_coroutine_resume(c.set, 1), SIM_CO_BLOCKED);
  ck_assert_int_eq(sim_coroutine_resume(c.set, 0), SIM_CO_BLOCKED);
  ck_assert_int_eq(sim_coroutine_resume(c.set, 1), SIM_CO_ENDED);
  ck_assert_uint_eq(c.deep, 3 * (512 << 10));
  sim_on_main(c.set, deep, &c); /* outside: a call */
  ck_assert_uint_eq(c.deep, 4 * (512 << 10));
  sim_coroutines_free(c.set); /* coroutine 0 is dropped */
}
END_TEST

static void rounds_up(void *arg, uint32_t i) {
  count *c = arg;
  if (i == 1) fesetround(FE_UPWARD);
  sim_coroutine_yield(c->set);
  c->sums[i] = (uint64_t)fegetround();
}

START_TEST(the_rounding_mode_is_each_ones_own) {
#if defined(__x86_64__) && !defined(SIM_ASAN) && !defined(SIM_TSAN)
  static count c;
  c.set = sim_coroutines_new(2, 0, rounds_up, &c);
  for (int round = 0; round < 2; round++)
    for (uint32_t i = 0; i < 2; i++) sim_coroutine_resume(c.set, 1 - i);
  ck_assert_uint_eq(c.sums[1], FE_UPWARD);
  ck_assert_uint_eq(c.sums[0], FE_TONEAREST);
  ck_assert_int_eq(fegetround(), FE_TONEAREST);
  sim_coroutines_free(c.set);
#else
  (void)rounds_up;
#endif
}
END_TEST

static void overruns(void *arg, uint32_t i) {
  count *c = arg;
  /* The last word of the stack, as a frame of an overrun would write it: 64 KiB below its top. */
  unsigned char here = 0;
  const uintptr_t page = 4096, low = ((uintptr_t)&here & ~(page - 1)) - (SIM_STACK_BYTES - page);
  (void)i;
  *(volatile uint64_t *)low = 1; /* NOLINT(performance-no-int-to-ptr) */
  sim_coroutine_yield(c->set);
}

START_TEST(an_overrun_is_seen) {
#if !defined(SIM_ASAN) && !defined(SIM_TSAN)
  static count c;
  c.set = sim_coroutines_new(1, 0, overruns, &c);
  ck_assert_int_eq(sim_coroutine_resume(c.set, 0), SIM_CO_OVERFLOW);
  sim_coroutines_free(c.set);
#else
  (void)overruns;
#endif
}
END_TEST

static void paints(void *arg, uint32_t i) {
  count *c = arg;
  sim_stack_paint(c->set);
  volatile char some[3000];
  for (size_t k = 0; k < sizeof some; k++) some[k] = (char)i;
  c->deep = sim_stack_used(c->set);
  sim_coroutine_yield(c->set);
}

START_TEST(the_depth_of_a_stack_is_told) {
#if !defined(SIM_ASAN) && !defined(SIM_TSAN)
  static count c;
  c.set = sim_coroutines_new(1, 0, paints, &c);
  ck_assert_int_eq(sim_coroutine_resume(c.set, 0), SIM_CO_BLOCKED);
  ck_assert_int_eq(sim_coroutine_resume(c.set, 0), SIM_CO_ENDED);
  ck_assert_uint_lt(c.deep, 16384);
  sim_coroutines_free(c.set);
#else
  (void)paints;
#endif
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {each_keeps_its_own_values},          {what_needs_much_stack_runs_on_the_main_one},
      {the_rounding_mode_is_each_ones_own}, {an_overrun_is_seen},
      {the_depth_of_a_stack_is_told},       {0}};
  return run_tests("sim_coroutine", tests, (test_setup){0});
}
