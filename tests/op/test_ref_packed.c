/* SPDX-License-Identifier: MIT
 * test_ref_packed.c - ref's packed weights: read back, updated in place, and given back whole when memory
 * runs out at any step. */
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

/* One packed weight, read back, updated in place and read again, shared by plans of two batch classes. */
START_TEST(packed_weight_reads_and_updates) {
  static const uint32_t dtypes[4] = {BS_F64, BS_F32, BS_F16, BS_BF16};
  for (int d = 0; d < 4; d++) {
    fx f;
    fx_tensor x, w, y, back, delta;
    uint32_t columns[9];
    uint64_t seed = 3;
    bs_packed *packed = NULL;
    bs_error err = BS_ERROR_INIT;
    fx_open(&f, 2, 1);
    fx_matrix(&x, dtypes[d], 2, 9);
    fx_matrix(&w, dtypes[d], 70, 9);
    fx_matrix(&y, dtypes[d], 2, 70);
    fx_fill(&w, &seed);
    const bs_partition p = fx_gather(9, 4, 3, columns); /* 0 1 4 5 8 */
    ck_assert_int_eq(p.count, 5);
    const int64_t dims[2] = {20, 5}, strides[2] = {13, 2}, full[2] = {70, 5};
    fx_tensor_make(&back, BS_F32, 2, dims, strides);
    fx_tensor_make(&delta, BS_F32, 2, full, NULL);
    fx_fill(&delta, &seed);
    const bs_tensor_desc *descs[4] = {&x.d, NULL, NULL, &y.d};
    bs_op_query q = fx_query("matmul", descs, 4);
    q.partition = &p;
    q.flags = BS_QUERY_X_FULL;
    q.weight_dtype = dtypes[d];
    const bs_source source = fx_source(&w);
    ck_assert_int_eq(bs_dispatch_pack(&f.ops, &q, &source, &packed, &err), BS_OK);
    ck_assert_msg(bs_dispatch_packed_read(packed, 50, &back.t, &err) == BS_OK, "%s", err.message);
    for (int64_t r = 0; r < 20; r++)
      for (int64_t c = 0; c < 5; c++)
        ck_assert_double_eq(fx_get(&back, r, c), (double)(float)fx_get(&w, 50 + r, columns[c]));
    fx_check_guards(&back, "read back");
    ck_assert_msg(bs_dispatch_packed_update(packed, &delta.t, &err) == BS_OK, "%s", err.message);
    ck_assert_int_eq(bs_dispatch_packed_read(packed, 50, &back.t, &err), BS_OK);
    for (int64_t r = 0; r < 20; r++)
      for (int64_t c = 0; c < 5; c++) {
        unsigned char stored[8];
        bs_store_f64(dtypes[d], stored, 0, fx_get(&w, 50 + r, columns[c]) + fx_get(&delta, 50 + r, c));
        ck_assert_double_eq(fx_get(&back, r, c), (double)(float)bs_load_f64(dtypes[d], stored, 0));
      }
    ck_assert_int_eq(bs_dispatch_packed_read(packed, 51, &back.t, &err), BS_INVALID_ARGUMENT);
    back.t.dims[1] = 4;
    ck_assert_int_eq(bs_dispatch_packed_read(packed, 0, &back.t, &err), BS_INVALID_ARGUMENT);
    delta.t.dtype = BS_F64;
    ck_assert_int_eq(bs_dispatch_packed_update(packed, &delta.t, &err), BS_INVALID_ARGUMENT);
    bs_dispatch_packed_release(packed);
    fx_tensor_free(&x);
    fx_tensor_free(&w);
    fx_tensor_free(&y);
    fx_tensor_free(&back);
    fx_tensor_free(&delta);
    fx_close(&f);
  }
}
END_TEST

/* Every allocation on the way fails once: the error is said and nothing leaks. */
START_TEST(out_of_memory_is_an_error) {
  int failures = 0;
  for (int64_t at = 1; at < 30; at++) {
    fx f;
    fx_tensor x, w, y;
    uint32_t columns[8];
    bs_packed *packed = NULL;
    bs_plan *plan = NULL;
    bs_error err = BS_ERROR_INIT;
    fx_open(&f, 2, 1);
    fx_matrix(&x, BS_F32, 2, 8);
    fx_matrix(&w, BS_F32, 4, 8);
    fx_matrix(&y, BS_F32, 2, 4);
    const bs_partition p = fx_gather(8, 4, 3, columns);
    const bs_tensor_desc *descs[4] = {&x.d, NULL, NULL, &y.d};
    bs_op_query q = fx_query("matmul", descs, 4);
    q.partition = &p;
    q.flags = BS_QUERY_X_FULL;
    q.weight_dtype = BS_F32;
    const bs_source source = fx_source(&w);
    f.fail_alloc_at = at;
    int32_t rc = bs_dispatch_pack(&f.ops, &q, &source, &packed, &err);
    if (rc == BS_OK) rc = bs_dispatch_prepare(&f.ops, &q, packed, &plan, &err);
    if (rc != BS_OK) {
      failures++;
      ck_assert_int_eq(rc, BS_NO_MEMORY);
      ck_assert_str_eq(err.id, "BS-REF-MEMORY");
      ck_assert_str_eq(err.plugin, "ref");
    }
    bs_dispatch_release(plan);
    bs_dispatch_packed_release(packed);
    fx_tensor_free(&x);
    fx_tensor_free(&w);
    fx_tensor_free(&y);
    f.fail_alloc_at = 0;
    fx_close(&f);
  }
  ck_assert_int_eq(failures, 6); /* record, data, errors; plan, columns, workspace */
}
END_TEST

int main(void) {
  const test_case tests[] = {{packed_weight_reads_and_updates}, {out_of_memory_is_an_error}, {0}};
  return run_tests("ref_packed", tests, (test_setup){0});
}
