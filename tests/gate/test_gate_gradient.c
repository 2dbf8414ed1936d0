/* SPDX-License-Identifier: MIT
 * test_gate_gradient.c - backward passes through the gates: no false alarm on clean cases (methods x masks x
 * dtypes x P x placements x losses x odd shapes), and every injected fault caught. test_gate_slope compares
 * gradients with finite differences of the loss. */
#include <string.h>

#include "lab/gate/gradient.h"
#include "lab/gate/small.h"
#include "tests/gate/gate_case.h"
#include "tests/run_tests.h"

static const struct {
  const char *method, *mask;
} subjects[] = {
    {"dense", NULL},
    {"column_parallel", NULL},
    {"row_parallel", NULL},
    {"blockshock", "complement_1100_0011"},
    {"blockshock", "complement_1001_0110"},
    {"blockshock", "interleave"},
    {"masked_split", "complement_1010_0101"},
};
#define N_SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))
static const uint32_t dtypes[] = {BS_F32, BS_F16, BS_BF16, BS_F64};
static const int64_t shapes[][3] = {{1, 1, 1}, {3, 7, 4}, {17, 65, 63}, {64, 24, 130}, {512, 24, 256}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

static bs_case make_case(int subject, const bs_mask *mask, uint32_t P, uint32_t dtype,
                         const int64_t shape[3]) {
  bs_case c = gate_case(subjects[subject].method, P, dtype, shape, mask);
  c.iterations = 2;
  c.spec.flags = BS_LAYER_BACKWARD;
  return c;
}

static int run_clean(bs_case *c, const bs_small *data, uint32_t loss) {
  bs_error err = BS_ERROR_INIT;
  bs_gradient_result result;
  bs_gradient_verdict verdict;
  bs_case run;
  bs_small_case(c, &c->spec, data, &run);
  run.iterations = 2;
  int32_t rc = bs_gradient_run(&run, loss, NULL, &result, &err);
  if (rc == BS_UNSUPPORTED && strcmp(c->method, "column_parallel") == 0 && c->spec.x_placement == BS_SPLIT)
    return 1;
  ck_assert_msg(rc == BS_OK, "%s P=%u: %s: %s (%s)", c->method, c->world_size, err.id, err.message,
                err.where);
  rc = bs_gradient_judge(&run, &result, 0, &verdict, &err);
  ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
  bs_gradient_result_free(&result);
  return !gate_alarm(c, verdict.gates, verdict.n_gates);
}

static int refused_here(int subject, uint32_t P) {
  if (strcmp(subjects[subject].method, "dense") == 0) return P > 1;
  return subjects[subject].mask != NULL && strncmp(subjects[subject].mask, "comp", 4) == 0 && P == 3;
}

START_TEST(clean_cases_pass) {
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  int alarms = 0, seed = 0;
  if (subjects[_i].mask != NULL) mask = gate_mask(subjects[_i].mask);
  for (uint32_t P = 1; P <= 3; ++P) {
    if (refused_here(_i, P)) continue;
    for (size_t shape = 0; shape < N_SHAPES; ++shape)
      for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; ++d, ++seed) {
        if (shape == N_SHAPES - 1 && d % 2 != 0) continue; /* many tokens: two dtypes tell */
        bs_small data;
        bs_case c = make_case(_i, subjects[_i].mask != NULL ? &mask : NULL, P, dtypes[d], shapes[shape]);
        c.spec.has_bias = (uint32_t)(seed % 2);
        c.spec.x_placement = seed % 3 == 1 ? BS_SPLIT : BS_REPLICATED;
        c.spec.y_placement = seed % 5 == 2 ? BS_SPLIT : BS_REPLICATED;
        c.spec.reduce_dtype = seed % 7 == 3 ? dtypes[d] : 0;
        ck_assert_int_eq(bs_small_open(context, "random_normal", &c.spec, &data, &err), BS_OK);
        alarms += !run_clean(&c, &data, BS_LOSS_SUM);
        alarms += !run_clean(&c, &data, BS_LOSS_MSE_ZERO);
        bs_small_close(&data);
      }
  }
  ck_assert_int_eq(alarms, 0);
}
END_TEST

START_TEST(every_fault_is_caught) {
  bs_error err = BS_ERROR_INIT;
  bs_mask mask;
  if (subjects[_i].mask != NULL) mask = gate_mask(subjects[_i].mask);
  for (uint32_t P = 1; P <= 2; ++P) {
    if (refused_here(_i, P)) continue;
    for (size_t d = 0; d < 3; ++d)
      for (uint32_t x = BS_REPLICATED; x <= BS_SPLIT; ++x) {
        if (x == BS_SPLIT && P > 1 && strcmp(subjects[_i].method, "column_parallel") == 0) continue;
        bs_fault_tally tally;
        bs_case c = make_case(_i, subjects[_i].mask != NULL ? &mask : NULL, P, dtypes[d], shapes[2]);
        c.spec.x_placement = x;
        const int32_t rc = bs_gradient_fault_gate(&c, &tally, &err);
        ck_assert_msg(rc == BS_OK, "%s: %s", err.id, err.message);
        ck_assert_uint_ge(tally.injected, 8);
        ck_assert_msg(tally.caught == tally.injected, "%s P=%u %s x %u: missed %s", c.method, P,
                      bs_dtype_name(dtypes[d]), x, tally.missed);
      }
  }
}
END_TEST

int main(void) {
  const test_case tests[] = {{clean_cases_pass, N_SUBJECTS}, {every_fault_is_caught, N_SUBJECTS}, {0}};
  return run_tests("gate_gradient", tests, (test_setup){open_context, close_context, 300});
}
