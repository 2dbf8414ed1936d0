/* SPDX-License-Identifier: MIT
 * test_gate_repro.c - the gates of what a layer promises of its bits: they pass where it is kept, a single
 * bit fails them, and so does a layer that promises what it does not keep. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/plugin/registry.h"
#include "lab/gate/repro.h"
#include "lab/gate/small.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static bs_context *context;
static bs_small small;

static void setup(void) {
  const bs_context_options options = {.struct_size = sizeof options};
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_context_open(&options, &context, &err) == BS_OK, "%s", err.message);
}

static void teardown(void) {
  bs_small_close(&small);
  bs_context_close(context);
}

static const char *const keys[] = {"repro"};
static const char *const values[5][1] = {{"R0"}, {"R1"}, {"R2"}, {"R3"}, {"R4"}};

static bs_case make(int repro, uint32_t y_placement) {
  bs_error err = BS_ERROR_INIT;
  bs_layer_spec spec = {.struct_size = sizeof spec,
                        .B = 9,
                        .N = 21,
                        .K = 300,
                        .x_dtype = BS_F32,
                        .w_dtype = BS_F32,
                        .y_dtype = BS_F32,
                        .y_placement = y_placement,
                        .n_options = 1,
                        .option_keys = keys,
                        .option_values = values[repro]};
  ck_assert_int_eq(bs_small_open(context, "random_normal", &spec, &small, &err), BS_OK);
  return (bs_case){.context = context,
                   .method = "row_parallel",
                   .backend = "ref",
                   .comm = "threads",
                   .world_size = 4,
                   .threads_per_rank = 1,
                   .timeout_s = 60,
                   .iterations = 1,
                   .spec = spec,
                   .x = &small.x,
                   .w = &small.w};
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
  return run_tests("gate_repro", tests, (test_setup){setup, teardown, 60});
}
