/* SPDX-License-Identifier: MIT
 * test_watch.c - a case tells its steps in order, all of them, with the gate it is run for; a request to stop
 * is heard between two pieces of the weight, not after the build. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "lab/case/case.h"
#include "lab/gate/faults.h"
#include "lab/gate/reference.h"
#include "lab/gate/verdict.h"
#include "lab/stop.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { B = 3, N = 200, K = 40, RANKS = 2 };
static bs_context *context;

/* The reads of a weight; at one of them somebody asks to stop. */
typedef struct weight {
  atomic_int reads;
  int stop_at;
} weight;

static int32_t read_weight(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t stride, bs_error *err) {
  weight *w = ctx;
  const int64_t width = cols ? cols->count : K;
  (void)err;
  if (w && atomic_fetch_add(&w->reads, 1) + 1 == w->stop_at) bs_stop_ask(SIGINT);
  for (int64_t i = 0; i < nrows; ++i) {
    for (int64_t k = 0; k < width; ++k) {
      const double v = (double)((row + i + k) % 3 - 1);
      if (dtype == BS_F64)
        ((double *)out)[i * stride + k] = v;
      else
        ((float *)out)[i * stride + k] = (float)v;
    }
  }
  return BS_OK;
}

/* Every new step, and the last count of each. */
typedef struct steps {
  char text[1024], newest[48];
  uint64_t done, total, built, builds, references;
  atomic_flag busy;
} steps;

static void on_step(void *user, const char *what, uint64_t done, uint64_t total) {
  steps *s = user;
  if (atomic_flag_test_and_set(&s->busy)) return;
  if (strcmp(s->newest, what) != 0) {
    const size_t used = strlen(s->text);
    snprintf(s->text + used, sizeof s->text - used, "%s;", what);
    snprintf(s->newest, sizeof s->newest, "%s", what);
  }
  ck_assert(done <= total);
  s->references += strcmp(what, "reference") == 0;
  if (strcmp(what, "build") == 0) {
    s->built = done;
    s->builds++;
  }
  s->done = done;
  s->total = total;
  atomic_flag_clear(&s->busy);
}

static bs_case make_case(const char *method, uint32_t ranks, const bs_source *x, const bs_source *w,
                         steps *s) {
  return (bs_case){.context = context,
                   .method = method,
                   .backend = "cpu",
                   .comm = "threads",
                   .world_size = ranks,
                   .threads_per_rank = 1,
                   .timeout_s = 60,
                   .spec = {.struct_size = sizeof(bs_layer_spec),
                            .B = B,
                            .N = N,
                            .K = K,
                            .x_dtype = BS_F32,
                            .w_dtype = BS_F32,
                            .y_dtype = BS_F32},
                   .x = x,
                   .w = w,
                   .warmup = 1,
                   .iterations = 2,
                   .progress = s ? on_step : NULL,
                   .progress_user = s};
}

#define SOURCE(n, user)                                                                       \
  {                                                                                           \
    .struct_size = sizeof(bs_source), .dtype = BS_F32, .rows = (n), .cols = K, .ctx = (user), \
    .read = read_weight                                                                       \
  }

START_TEST(steps_in_order) {
  static const char *const methods[] = {"column_parallel", "row_parallel"};
  for (int i = 0; i < 2; ++i) {
    const bs_source x = SOURCE(B, NULL), w = SOURCE(N, NULL);
    steps s = {.busy = ATOMIC_FLAG_INIT};
    const bs_case c = make_case(methods[i], RANKS, &x, &w, &s);
    bs_case_result result;
    bs_verdict verdict;
    bs_gate gate;
    bs_error err = BS_ERROR_INIT;
    bs_fault_report faults;
    ck_assert_msg(bs_case_run(&c, &result, &err) == BS_OK, "%s", err.message);
    ck_assert_str_eq(s.text, "build;warm-up;forward;");
    ck_assert(s.done == 2 && s.total == 2);
    ck_assert_int_eq(bs_verdict_make(&c, &result, 0, &verdict, &err), BS_OK);
    ck_assert_str_eq(s.text, "build;warm-up;forward;reference;judge;");
    bs_case_result_free(&result);
    s.text[0] = '\0';
    ck_assert_int_eq(bs_integer_gate(&c, BS_FAULT_COUNT_, 7, &gate, &err), BS_OK);
    ck_assert_str_eq(s.text, "T5 build;T5 forward;T5 reference;");
    ck_assert_uint_eq(s.total, 7);
    s.text[0] = '\0';
    ck_assert_int_eq(bs_fault_gate(&c, &faults, &err), BS_OK);
    ck_assert_str_eq(s.text, "T6 fault;"); /* no step of each */
    ck_assert(s.done == s.total && faults.caught == faults.injected);
  }
}
END_TEST

/* Told while they are read: the first and the last of the rows, in steps of less than all of them. */
START_TEST(rows_are_counted) {
  const bs_source x = SOURCE(B, NULL), w = SOURCE(N, NULL);
  steps s = {.busy = ATOMIC_FLAG_INIT};
  const bs_case c = make_case("dense", 1, &x, &w, &s);
  bs_case_result result;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_case_run(&c, &result, &err), BS_OK);
  ck_assert_uint_eq(s.built, N);
  ck_assert_uint_gt(s.builds, 3);
  bs_case_result_free(&result);
}
END_TEST

/* Once before all features and once before each. */
START_TEST(features_are_counted) {
  const bs_source x = SOURCE(B, NULL), w = SOURCE(N, NULL);
  steps s = {.busy = ATOMIC_FLAG_INIT};
  const bs_reference_request request = {
      .x = &x, .w = &w, .world_size = 1, .threads = 1, .max_features = 50, .tell = on_step, .tell_user = &s};
  bs_reference reference;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_reference_compute(&request, &reference, &err), BS_OK);
  ck_assert_uint_eq(s.references, 51);
  ck_assert(s.done == 49 && s.total == 50);
  bs_reference_free(&reference);
}
END_TEST

START_TEST(stops_within_a_build) {
  bs_case_result result;
  bs_error err = BS_ERROR_INIT;
  weight all = {.stop_at = 0}, some = {.stop_at = 2};
  const bs_source x = SOURCE(B, NULL), whole = SOURCE(N, &all), stopped = SOURCE(N, &some);
  const bs_case good = make_case("dense", 1, &x, &whole, NULL);
  const bs_case bad = make_case("dense", 1, &x, &stopped, NULL);
  ck_assert_int_eq(bs_case_run(&good, &result, &err), BS_OK);
  bs_case_result_free(&result);
  ck_assert_int_gt(atomic_load(&all.reads), 2);
  ck_assert_int_eq(bs_case_run(&bad, &result, &err), BS_ABORTED);
  bs_stop_ask(0);
  ck_assert_str_eq(err.id, "BS-STOPPED");
  ck_assert_int_eq(atomic_load(&some.reads), 2);
}
END_TEST

static void setup(void) {
  const bs_context_options options = {.struct_size = sizeof options};
  bs_error err;
  ck_assert_int_eq(bs_context_open(&options, &context, &err), BS_OK);
}
static void teardown(void) {
  bs_context_close(context);
}

int main(void) {
  const test_case tests[] = {
      {steps_in_order}, {rows_are_counted}, {features_are_counted}, {stops_within_a_build}, {0}};
  return run_tests("watch", tests, (test_setup){setup, teardown});
}
