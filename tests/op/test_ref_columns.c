/* SPDX-License-Identifier: MIT
 * test_ref_columns.c - a plan of gather_columns of ref needs no list of its caller once it is made. */
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

START_TEST(plan_owns_its_columns) {
  fx f;
  fx_tensor in, out;
  uint32_t columns[8];
  uint64_t seed = 4;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  fx_open(&f, 2, 1);
  bs_partition p = fx_gather(8, 2, 2, columns);
  fx_matrix(&in, BS_F32, 3, 8);
  fx_matrix(&out, BS_F32, 3, 4);
  fx_fill(&in, &seed);
  const bs_tensor_desc *descs[2] = {&in.d, &out.d};
  bs_tensor *args[2] = {&in.t, &out.t};
  bs_op_query q = fx_query("gather_columns", descs, 2);
  q.partition = &p;
  ck_assert_int_eq(bs_dispatch_prepare(&f.ops, &q, NULL, &plan, &err), BS_OK);
  memset(columns, 0xff, sizeof columns); /* the caller's list is gone after prepare */
  memset(&p, 0, sizeof p);
  ck_assert_int_eq(bs_dispatch_run(plan, args, 2, NULL, &err), BS_OK);
  for (int r = 0; r < 3; r++)
    for (int i = 0; i < 4; i++) ck_assert_double_eq(fx_get(&out, r, i), fx_get(&in, r, 2 * i + 1));
  bs_dispatch_release(plan);
  fx_tensor_free(&in);
  fx_tensor_free(&out);
  fx_close(&f);
}
END_TEST

int main(void) {
  const test_case tests[] = {{plan_owns_its_columns}, {0}};
  return run_tests("ref_columns", tests, (test_setup){0});
}
