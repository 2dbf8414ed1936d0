/* SPDX-License-Identifier: MIT
 * test_loss.c - the losses on K1 (known answer K13's value), whole on one rank and split over two. */
#include <math.h>

#include "lab/case/loss.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static float whole[8] = {30, 11, 9, -20, 37, -4, -3, 7};
static float left[4] = {30, 11, 37, -4}, right[4] = {9, -20, -3, 7};

static int32_t read_target(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                           void *out, int64_t stride, bs_error *err) {
  (void)ctx, (void)nrows, (void)cols, (void)dtype, (void)stride, (void)err;
  for (int64_t n = 0; n < 4; ++n) ((double *)out)[n] = (double)whole[row * 4 + n] - (n == 3 ? 2.0 : 0.0);
  return BS_OK;
}

static double loss_of(uint32_t loss, uint32_t placement, const bs_source *target) {
  bs_case c = {.spec = {.B = 2, .N = 4, .y_dtype = BS_F32, .y_placement = placement}};
  bs_case_rank ranks[2] = {{.y = whole, .y_cols = 4}, {.y = whole, .y_cols = 4}};
  bs_case_result result = {.world_size = 2, .ranks = ranks};
  bs_error err;
  double value = NAN;
  if (placement == BS_SPLIT) {
    ranks[0] = (bs_case_rank){.y = left, .y_cols = 2};
    ranks[1] = (bs_case_rank){.y = right, .y_begin = 2, .y_cols = 2};
  }
  ck_assert_int_eq(bs_loss_value(loss, &c, &result, target, &value, &err), BS_OK);
  return value;
}

START_TEST(losses_of_k1) {
  const bs_source target = {.struct_size = sizeof target, .rows = 2, .cols = 4, .read = read_target};
  for (uint32_t placement = BS_REPLICATED; placement <= BS_SPLIT; ++placement) {
    ck_assert_double_eq(loss_of(BS_LOSS_SUM, placement, NULL), 67.0);
    ck_assert_double_eq(loss_of(BS_LOSS_MSE_ZERO, placement, NULL), 368.125);
    ck_assert_double_eq(loss_of(BS_LOSS_MSE_ZERO, placement, &target), 368.125);
    ck_assert_double_eq(loss_of(BS_LOSS_MSE_TARGET, placement, &target), 1.0); /* one of four is off by 2 */
  }
}
END_TEST

START_TEST(names_are_those_of_the_configuration) {
  ck_assert_str_eq(bs_loss_name(BS_LOSS_SUM), "sum");
  ck_assert_str_eq(bs_loss_name(BS_LOSS_MSE_ZERO), "mse_zero");
  ck_assert_str_eq(bs_loss_name(BS_LOSS_MSE_TARGET), "mse_target");
  ck_assert_str_eq(bs_loss_name(3), "?");
}
END_TEST

int main(void) {
  const test_case tests[] = {{losses_of_k1}, {names_are_those_of_the_configuration}, {0}};
  return run_tests("loss", tests, (test_setup){0});
}
