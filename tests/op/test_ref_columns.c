/* SPDX-License-Identifier: MIT
 * test_ref_columns.c - gather_columns and scatter_columns of ref: known answer K7, every dtype bit for bit,
 * generated shapes, strides and partitions, and scatter leaves all other columns alone. */
#include <string.h>

#include "op_fixture.h"
#include "tests/run_tests.h"

static void run_columns(fx *f, const char *op, const bs_partition *p, fx_tensor *in, fx_tensor *out) {
  const bs_tensor_desc *descs[2] = {&in->d, &out->d};
  bs_tensor *args[2] = {&in->t, &out->t};
  bs_op_query q = fx_query(op, descs, 2);
  q.partition = p;
  bs_plan *plan = NULL;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_dispatch_prepare(&f->ops, &q, NULL, &plan, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(bs_dispatch_run(plan, args, 2, NULL, &err) == BS_OK, "%s", err.message);
  bs_dispatch_release(plan);
}

START_TEST(known_answer_k7) {
  static const double x[2][8] = {{1, 0, 2, -1, 1, 1, 0, 2}, {0, 1, 1, 1, -1, 2, 3, 0}};
  static const double w[4][8] = {{1, 2, 3, 4, 5, 6, 7, 8},
                                 {-1, 0, 2, 1, 3, -2, 0, 4},
                                 {2, -3, 1, 0, 0, 1, -1, 2},
                                 {0, 5, -4, 2, 1, 1, 1, -6}};
  static const double x_kept[2][4] = {{1, 0, 1, 1}, {0, 1, -1, 2}};
  static const double w_kept[4][4] = {{1, 2, 5, 6}, {-1, 0, 3, -2}, {2, -3, 0, 1}, {0, 5, 1, 1}};
  static const double y[2][4] = {{12, 0, 3, 2}, {9, -7, -1, 6}};
  fx f;
  fx_tensor tx, tw, kx, kw;
  uint32_t columns[8];
  fx_open(&f, 1, 1);
  const bs_partition p = fx_gather(8, 4, 3, columns);
  fx_matrix(&tx, BS_BF16, 2, 8);
  fx_matrix(&tw, BS_BF16, 4, 8);
  fx_matrix(&kx, BS_BF16, 2, 4);
  fx_matrix(&kw, BS_BF16, 4, 4);
  for (int k = 0; k < 8; k++) {
    for (int r = 0; r < 2; r++) fx_set(&tx, r, k, x[r][k]);
    for (int r = 0; r < 4; r++) fx_set(&tw, r, k, w[r][k]);
  }
  run_columns(&f, "gather_columns", &p, &tx, &kx);
  run_columns(&f, "gather_columns", &p, &tw, &kw);
  for (int b = 0; b < 2; b++)
    for (int n = 0; n < 4; n++) {
      double sum = 0;
      ck_assert_double_eq(fx_get(&kx, b, n), x_kept[b][n]);
      for (int k = 0; k < 4; k++) sum += fx_get(&kx, b, k) * fx_get(&kw, n, k);
      ck_assert_double_eq(sum, y[b][n]);
    }
  for (int n = 0; n < 4; n++)
    for (int k = 0; k < 4; k++) ck_assert_double_eq(fx_get(&kw, n, k), w_kept[n][k]);
  ck_assert_uint_eq(f.counters[BS_COUNT_FLOPS], 0);
  ck_assert_uint_eq(f.counters[BS_COUNT_OP_BYTES], 2 * 2 * (2 * 4 + 4 * 4));
  fx_tensor_free(&tx);
  fx_tensor_free(&tw);
  fx_tensor_free(&kx);
  fx_tensor_free(&kw);
  fx_close(&f);
}
END_TEST

static unsigned char *element(const fx_tensor *t, int64_t r, int64_t c) {
  return (unsigned char *)t->t.data +
         (r * t->d.strides[0] + c * t->d.strides[1]) * (int64_t)BS_DTYPE_BYTES(t->d.dtype);
}

static void random_matrix(fx_tensor *out, uint32_t dtype, int64_t rows, int64_t cols, uint64_t *seed) {
  const int64_t dims[2] = {rows, cols}, step = 1 + fx_below(seed, 2);
  const int64_t strides[2] = {cols * step + fx_below(seed, 3), step};
  fx_tensor_make(out, dtype, 2, dims, cols > 0 ? strides : NULL);
}

/* Random bits (NaN payloads among them) in the elements; both ops; every byte accounted for. */
static void check_pair(fx *f, uint32_t dtype, int64_t rows, const bs_partition *p, uint64_t *seed) {
  const uint32_t size = BS_DTYPE_BYTES(dtype);
  fx_tensor full, kept, back;
  random_matrix(&full, dtype, rows, p->total, seed);
  random_matrix(&kept, dtype, rows, p->count, seed);
  random_matrix(&back, dtype, rows, p->total, seed);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = 0; k < p->total; k++) {
      const uint64_t bits = fx_next(seed);
      memcpy(element(&full, r, k), &bits, size);
      memset(element(&back, r, k), 0x5c, size);
    }
  run_columns(f, "gather_columns", p, &full, &kept);
  run_columns(f, "scatter_columns", p, &kept, &back);
  for (int64_t r = 0; r < rows; r++) {
    int64_t i = 0;
    for (int64_t k = 0; k < p->total; k++) {
      unsigned char untouched[8];
      memset(untouched, 0x5c, sizeof untouched);
      const int owned = i < p->count && bs_op_partition_column(p, i) == (uint32_t)k;
      if (owned && memcmp(element(&kept, r, i), element(&full, r, k), size) != 0)
        ck_abort_msg("gather: row %lld column %lld differs", (long long)r, (long long)k);
      if (memcmp(element(&back, r, k), owned ? element(&full, r, k) : untouched, size) != 0)
        ck_abort_msg("scatter: row %lld column %lld (owned %d) is wrong", (long long)r, (long long)k, owned);
      i += owned;
    }
  }
  fx_check_guards(&full, "full");
  fx_check_guards(&kept, "kept");
  fx_check_guards(&back, "back");
  fx_tensor_free(&full);
  fx_tensor_free(&kept);
  fx_tensor_free(&back);
}

START_TEST(every_dtype_and_generated_partitions) {
  static const uint32_t dtypes[11] = {BS_F64, BS_F32, BS_F16, BS_BF16, BS_F8E4M3, BS_F8E5M2,
                                      BS_I64, BS_I32, BS_I8,  BS_U8,   BS_BOOL};
  uint64_t seed = 17;
  uint32_t columns[300];
  fx f;
  fx_open(&f, 3, 1);
  f.threads = 1;
  for (int i = 0; i < 330; i++) {
    const int64_t total = fx_below(&seed, 70), rows = fx_below(&seed, 9);
    const uint32_t period = 1 + (uint32_t)fx_below(&seed, 8);
    bs_partition p = fx_gather(total, period, (uint32_t)fx_next(&seed), columns);
    if (i % 3 == 0) {
      const int64_t begin = total > 0 ? fx_below(&seed, total) : 0;
      p = fx_contiguous(total, begin, fx_below(&seed, total - begin + 1));
    }
    check_pair(&f, dtypes[i % 11], rows, &p, &seed);
  }
  fx_close(&f);
}
END_TEST

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
  const test_case tests[] = {
      {known_answer_k7}, {every_dtype_and_generated_partitions}, {plan_owns_its_columns}, {0}};
  return run_tests("ref_columns", tests, (test_setup){0});
}
