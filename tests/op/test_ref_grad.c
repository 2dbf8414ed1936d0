/* SPDX-License-Identifier: MIT
 * test_ref_grad.c - what matmul_dw and matmul_update of ref refuse: workspaces, dtypes, no memory, no weight.
 */
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

START_TEST(refusals) {
  fx f;
  fx_tensor x, dy, dw, alpha;
  uint32_t columns[9];
  const int64_t one = 1;
  void *state = NULL;
  void *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  bs_op_answer a = {.struct_size = sizeof a};
  fx_open(&f, 2, 1);
  const bs_partition part = fx_gather(9, 3, 5, columns);
  fx_matrix(&x, BS_F32, 3, part.count);
  fx_matrix(&dy, BS_F32, 3, 4);
  fx_matrix(&dw, BS_F32, 4, part.count);
  fx_tensor_make(&alpha, BS_F32, 1, &one, NULL);
  const bs_op_impl *impl = fx_impl("matmul_dw", &state);
  const bs_tensor_desc *args[3] = {&x.d, &dy.d, &dw.d};
  bs_op_query q = fx_query("matmul_dw", args, 3);
  q.partition = &part;
  q.workspace_limit = 1000;
  ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  ck_assert_uint_eq(a.reason, BS_REASON_WORKSPACE);
  q.workspace_limit = 0;
  q.accumulate = BS_ACC_F32;
  x.d.dtype = BS_F64;
  ck_assert_int_eq(impl->supports(state, &q, &a), BS_OK);
  ck_assert_ptr_nonnull(strstr(a.text, "not summed in f32"));
  ck_assert_int_eq(impl->prepare(state, &f.exec, &q, NULL, &plan, &err), BS_UNSUPPORTED);
  x.d.dtype = BS_F32;
  for (int64_t at = 1; at <= 2; at++) { /* the plan, its workspace */
    f.fail_alloc_at = at;
    ck_assert_int_eq(impl->prepare(state, &f.exec, &q, NULL, &plan, &err), BS_NO_MEMORY);
  }
  impl = fx_impl("matmul_update", &state);
  args[2] = &alpha.d;
  q.op = "matmul_update";
  q.weight_dtype = BS_F32;
  ck_assert_int_eq(impl->prepare(state, &f.exec, &q, NULL, &plan, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-REF-WEIGHT");
  fx_tensor *const all[] = {&x, &dy, &dw, &alpha};
  for (int i = 0; i < TEST_COUNT(all); i++) fx_tensor_free(all[i]);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{refusals}, {0}};
  return run_tests("ref_grad", tests, (test_setup){0});
}
