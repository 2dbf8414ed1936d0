/* SPDX-License-Identifier: MIT
 * test_split_order.c - weight sources in another order of rows and columns, read as methods read them: whole,
 * by runs and by lists of columns, in another dtype. And orders of the units of a pair. */
#include <stdlib.h>
#include <string.h>

#include "core/partition/order.h"
#include "graph/split/pair.h"
#include "tests/run_tests.h"

enum { ROWS = 24, COLS = 600 };

static float data[ROWS * COLS];
static bs_source memory, source;
static bs_order rows, columns;
static bs_error err;

static void ok(int32_t rc) {
  ck_assert_msg(rc == BS_OK, "%s %s", err.id, err.message);
}

/* Lists of columns are ascending, as a partition is. */
static int32_t read_strictly(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                             void *out, int64_t out_stride, bs_error *why) {
  for (int64_t i = 1; cols != NULL && cols->columns != NULL && i < cols->count; i++)
    ck_assert_uint_gt(cols->columns[i], cols->columns[i - 1]);
  return ((const bs_source *)ctx)
      ->read(((const bs_source *)ctx)->ctx, row, nrows, cols, dtype, out, out_stride, why);
}

/* Rows 12-23, 0-5, 6-11, in runs; columns in groups of 50, the last group first. */
static void before(void) {
  for (int i = 0; i < ROWS * COLS; i++) data[i] = (float)i;
  ok(bs_source_from_memory(data, BS_F32, ROWS, COLS, COLS, &memory, &err));
  source = memory;
  source.ctx = &memory;
  source.read = read_strictly;
  ok(bs_order_add(&rows, 12, 12, &err));
  ok(bs_order_add(&rows, 0, 6, &err));
  ok(bs_order_add(&rows, 6, 6, &err));
  for (int i = 11; i >= 0; i--) ok(bs_order_add(&columns, 50 * i, 50, &err));
}

static void after(void) {
  bs_source_release(&memory);
  bs_order_free(&rows);
  bs_order_free(&columns);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int64_t row_at(int64_t i, int ordered) {
  return !ordered ? i : i < 12 ? i + 12 : i - 12;
}
static int64_t column_at(int64_t k, int ordered) {
  return ordered ? 550 - k / 50 * 50 + k % 50 : k;
}

/* Parts of it, with the columns of each kind of list. */
static const struct {
  int64_t row, n, begin, count;
  int kind; /* -1: all columns; else enum bs_partition_kind; of a list every third one */
} reads[] = {{0, ROWS, 0, COLS, -1},
             {3, 17, 0, COLS, BS_PARTITION_CONTIGUOUS},
             {11, 2, 37, 301, BS_PARTITION_CONTIGUOUS},
             {23, 1, 599, 1, BS_PARTITION_CONTIGUOUS},
             {0, 0, 0, 0, BS_PARTITION_CONTIGUOUS},
             {5, 9, 1, 200, BS_PARTITION_GATHER},
             {0, ROWS, 2, 199, BS_PARTITION_GATHER}};

static void compare(const bs_order_view *v, int i, uint32_t dtype, int by_rows, int by_columns) {
  static double out[ROWS * COLS];
  static uint32_t list[COLS];
  const int64_t n = reads[i].n, count = reads[i].count, first = reads[i].begin;
  for (int64_t k = 0; k < count && reads[i].kind == BS_PARTITION_GATHER; k++)
    list[k] = (uint32_t)(first + 3 * k);
  const bs_partition cols = {.struct_size = sizeof cols,
                             .kind = reads[i].kind < 0 ? 0 : (uint32_t)reads[i].kind,
                             .total = COLS,
                             .begin = first,
                             .count = count,
                             .columns = reads[i].kind == BS_PARTITION_GATHER ? list : NULL};
  ok(v->source.read(v->source.ctx, reads[i].row, n, reads[i].kind < 0 ? NULL : &cols, dtype, out, COLS,
                    &err));
  for (int64_t r = 0; r < n; r++)
    for (int64_t k = 0; k < count; k++) {
      const int64_t column = reads[i].kind == BS_PARTITION_GATHER ? first + 3 * k : first + k;
      const double wanted = data[row_at(reads[i].row + r, by_rows) * COLS + column_at(column, by_columns)];
      const double seen = dtype == BS_F64 ? out[r * COLS + k] : (double)((float *)out)[r * COLS + k];
      ck_assert_msg(seen == wanted, "read %d: row %d, column %d: %g, not %g", i, (int)r, (int)k, seen,
                    wanted);
    }
}

START_TEST(reads_are_in_order) {
  for (int way = 0; way < 4; way++) {
    bs_order_view v;
    ok(bs_order_view_make(&source, way & 1 ? &rows : NULL, way & 2 ? &columns : NULL, &v, &err));
    ck_assert_ptr_null(v.source.generator);
    for (int i = 0; i < TEST_COUNT(reads); i++) {
      compare(&v, i, BS_F32, way & 1, way & 2);
      compare(&v, i, BS_F64, way & 1, way & 2);
    }
  }
}
END_TEST

START_TEST(orders) {
  ck_assert_uint_eq(rows.n, 2); /* 0-5 and 6-11 are one run */
  ok(bs_order_check(&rows, ROWS, &err));
  ok(bs_order_check(&columns, COLS, &err));
  ck_assert(!bs_order_is_plain(&rows));
  ck_assert_int_eq(bs_order_at(&rows, 11), 23);
  ck_assert_int_eq(bs_order_at(&columns, 599), 49);
  ck_assert_int_eq(bs_order_check(&rows, ROWS + 1, &err), BS_INTERNAL);
  ok(bs_order_add(&rows, 3, 1, &err));
  ck_assert_int_eq(bs_order_check(&rows, ROWS + 1, &err), BS_INTERNAL);
  ck_assert_ptr_nonnull(strstr(err.message, "row 3 "));
}
END_TEST

START_TEST(what_is_refused) {
  bs_order_view v;
  float out[COLS];
  uint32_t far[2] = {0, COLS};
  const bs_partition list = {.struct_size = sizeof list,
                             .kind = BS_PARTITION_GATHER,
                             .total = COLS,
                             .count = 2,
                             .columns = far},
                     run = {.struct_size = sizeof run, .total = COLS, .begin = 1, .count = COLS};
  ck_assert_int_eq(bs_order_view_make(&source, &columns, NULL, &v, &err), BS_INVALID_ARGUMENT);
  ok(bs_order_view_make(&source, &rows, &columns, &v, &err));
  ck_assert_int_eq(v.source.read(v.source.ctx, ROWS, 1, NULL, BS_F32, out, COLS, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(v.source.read(v.source.ctx, 0, 1, &list, BS_F32, out, COLS, &err), BS_INVALID_ARGUMENT);
  ck_assert_int_eq(v.source.read(v.source.ctx, 0, 1, &run, BS_F32, out, COLS, &err), BS_INVALID_ARGUMENT);
}
END_TEST

int main(void) {
  const test_case all[] = {{reads_are_in_order}, {orders}, {what_is_refused}, {0}};
  return run_tests("split_order", all, (test_setup){.before = before, .after = after, .timeout = 20});
}
