/* SPDX-License-Identifier: MIT
 * test_ref_loss.c - queries of loss_gradient that are refused, each with its id. */
#include "op_fixture.h"
#include "tests/run_tests.h"

static bs_op_query query_of(const bs_tensor_desc *const descs[4], int64_t kind, int64_t count) {
  bs_op_query q = fx_query("loss_gradient", descs, 4);
  q.attrs[0] = kind;
  q.attrs[1] = count;
  return q;
}

static const struct {
  uint32_t y, target, loss;
  int64_t target_cols, loss_cols, kind, count;
  const char *id;
} refused[] = {
    {BS_F32, 0, BS_F64, 8, 1, 2, 8, "BS-OP-ATTR"},       {BS_F32, 0, BS_F64, 8, 1, 1, 0, "BS-OP-ATTR"},
    {BS_F32, BS_F32, BS_F64, 8, 1, 0, 8, "BS-OP-ARG"},   {BS_I32, 0, BS_F64, 8, 1, 1, 8, "BS-OP-DTYPE"},
    {BS_F32, BS_F32, BS_F64, 7, 1, 1, 8, "BS-OP-SHAPE"}, {BS_F32, 0, BS_F32, 8, 1, 1, 8, "BS-OP-DTYPE"},
    {BS_F32, 0, BS_F64, 8, 2, 1, 8, "BS-OP-SHAPE"},
};
START_TEST(what_does_not_fit_is_refused) {
  bs_error err = BS_ERROR_INIT;
  const bs_tensor_desc y = bs_desc_2d(refused[_i].y, 4, 8), dy = bs_desc_2d(BS_F32, 4, 8);
  const bs_tensor_desc target = bs_desc_2d(refused[_i].target, 4, refused[_i].target_cols);
  const bs_tensor_desc loss = bs_desc_2d(refused[_i].loss, 4, refused[_i].loss_cols);
  const bs_tensor_desc *descs[4] = {&y, refused[_i].target != 0 ? &target : NULL, &dy, &loss};
  const bs_op_query q = query_of(descs, refused[_i].kind, refused[_i].count);
  ck_assert_int_eq(bs_op_check(&q, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, refused[_i].id);
}
END_TEST

int main(void) {
  const test_case tests[] = {{what_does_not_fit_is_refused, TEST_COUNT(refused)}, {0}};
  return run_tests("ref_loss", tests, (test_setup){0});
}
