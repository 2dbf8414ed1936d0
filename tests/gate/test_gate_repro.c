/* SPDX-License-Identifier: MIT
 * test_gate_repro.c - the gates of what a layer promises of its bits: they pass where it is kept, a single
 * bit fails them, and so does a layer that promises what it does not keep. */
#include <string.h>

#include "lab/gate/repro.h"
#include "lab/gate/small.h"
#include "tests/gate/gate_case.h"
#include "tests/run_tests.h"

static bs_small small;

static void teardown(void) {
  bs_small_close(&small);
  close_context();
}

static const char *const keys[] = {"repro"};
static const char *const values[5][1] = {{"R0"}, {"R1"}, {"R2"}, {"R3"}, {"R4"}};

static bs_case make(int repro, uint32_t y_placement) {
  bs_error err = BS_ERROR_INIT;
  static const int64_t shape[3] = {9, 21, 300};
  bs_case c = gate_case("row_parallel", 4, BS_F32, shape, NULL);
  c.backend = "ref";
  c.spec.y_placement = y_placement;
  c.spec.n_options = 1;
  c.spec.option_keys = keys;
  c.spec.option_values = values[repro];
  ck_assert_int_eq(bs_small_open(context, "random_normal", &c.spec, &small, &err), BS_OK);
  c.x = &small.x;
  c.w = &small.w;
  return c;
}

static uint32_t judge(const bs_case *c, const bs_case_result *result, bs_gate gates[2]) {
  bs_error err = BS_ERROR_INIT;
  uint32_t count = 9;
  ck_assert_msg(bs_repro_gates(c, result, gates, &count, &err) == BS_OK, "%s", err.message);
  return count;
}

/* _i: the class; R0 and R1 are T4's. */
START_TEST(kept_and_broken_by_one_bit) {
  static const uint32_t placements[] = {BS_REPLICATED, BS_SPLIT};
  static const uint32_t wanted[] = {0, 0, 1, 2, 2};
  for (int p = 0; p < 2; p++) {
    bs_error err = BS_ERROR_INIT;
    bs_case_result result;
    bs_gate gates[2];
    bs_case c = make(_i, placements[p]);
    ck_assert_msg(bs_case_run(&c, &result, &err) == BS_OK, "%s", err.message);
    ck_assert_uint_eq(bs_repro_of(&result), _i < 1 ? 1u : (uint32_t)_i);
    ck_assert_uint_eq(judge(&c, &result, gates), wanted[_i]);
    for (uint32_t g = 0; g < wanted[_i]; g++) {
      ck_assert_str_eq(gates[g].name, g == 0 ? "R2" : "R3");
      ck_assert_int_eq(gates[g].state, BS_GATE_PASS);
    }
    /* The last token's first output of the last rank. */
    const bs_case_rank *last = &result.ranks[3];
    ((uint8_t *)last->y)[(size_t)(8 * last->y_cols) * sizeof(float)] ^= 1u;
    (void)judge(&c, &result, gates);
    for (uint32_t g = 0; g < wanted[_i]; g++) {
      ck_assert_int_eq(gates[g].state, BS_GATE_FAIL);
      ck_assert_double_ge(gates[g].value, 1.0);
    }
    bs_case_result_free(&result);
    bs_small_close(&small);
  }
}
END_TEST

/* A plain sum over four ranks that says it is the one of any number of ranks. */
START_TEST(a_promise_that_is_not_kept) {
  bs_error err = BS_ERROR_INIT;
  bs_case_result result;
  bs_gate gates[2];
  bs_case c = make(2, BS_REPLICATED);
  ck_assert_int_eq(bs_case_run(&c, &result, &err), BS_OK);
  for (uint32_t r = 0; r < 4; r++) result.ranks[r].proposal.repro = BS_REPRO_R3;
  ck_assert_uint_eq(judge(&c, &result, gates), 2);
  ck_assert_int_eq(gates[0].state, BS_GATE_PASS);
  ck_assert_int_eq(gates[1].state, BS_GATE_FAIL);
  ck_assert_ptr_nonnull(strstr(gates[1].text, "4 ranks and one"));
  bs_case_result_free(&result);
}
END_TEST

int main(void) {
  const test_case tests[] = {{kept_and_broken_by_one_bit, 5}, {a_promise_that_is_not_kept}, {0}};
  return run_tests("gate_repro", tests, (test_setup){open_context, teardown, 60});
}
