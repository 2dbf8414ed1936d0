/* SPDX-License-Identifier: MIT
 * test_cuda_columns.c - gather_columns and scatter_columns of the cuda plugin, their bodies run by the CPU
 * twins, against ref: every element size; runs, lists and columns that repeat, from any first column; every
 * layout. Nothing but the partition's columns is read or written. */
#include "plain.h"
#include "products_case.h"
#include "tests/run_tests.h"

enum { TOTAL = 83, RUN = 0, LIST, PERIOD, PERIOD_PART, KINDS };

static const uint32_t dtypes[5] = {BS_I8, BS_BF16, BS_F32, BS_F64, BS_BOOL};

/* Columns k of [begin, end) with k mod period in bits, told as what they are. */
static bs_partition repeating(int64_t total, uint32_t period, uint32_t bits, int64_t begin, int64_t end,
                              uint32_t *columns) {
  bs_partition p = fx_gather(total, period, 0, columns);
  for (int64_t k = begin; k < end; k++)
    if (bits >> (k % period) & 1u) columns[p.count++] = (uint32_t)k;
  p.period = period;
  p.pattern_bits = bits;
  p.begin = begin;
  p.span = end - begin;
  return p;
}

static bs_partition make_partition(int kind, int64_t total, uint32_t *columns, uint64_t *seed) {
  const uint32_t period = 1 + (uint32_t)fx_below(seed, 32);
  const uint32_t bits = (uint32_t)fx_next(seed) & (period == 32 ? 0xffffffffu : (1u << period) - 1u);
  bs_partition p;
  switch (kind) {
    case RUN:
      return fx_contiguous(total, total / 5, total / 2);
    case LIST:
      p = fx_gather(total, 1, 0, columns);
      for (int64_t k = 0; k < total; k++)
        if (fx_below(seed, 3) > 0) columns[p.count++] = (uint32_t)k;
      return p;
    case PERIOD:
      return repeating(total, 4, 1u + (uint32_t)fx_below(seed, 15), 0, total, columns);
    default:
      return repeating(total, period, bits, fx_below(seed, total / 2 + 1), total, columns);
  }
}

static void check(pl *p, int scatter, uint32_t dtype, const bs_partition *part, int64_t rows, int lay,
                  int where, uint64_t *seed) {
  const int64_t from_cols = scatter ? part->count : part->total,
                to_cols = scatter ? part->total : part->count;
  pl_tensor in, got, want;
  pc_lay(&in, dtype, rows, from_cols, lay, where);
  pc_lay(&got, dtype, rows, to_cols, (lay * 3 + 1) % PC_LAYS, where);
  pc_lay(&want, dtype, rows, to_cols, (lay * 3 + 1) % PC_LAYS, where);
  pl_fill_bits(&in, seed);
  pl_fill_bits(&got, seed); /* scatter keeps what is there */
  pl_copy(&want, &got);
  const bs_tensor_desc *descs[2] = {&in.d, &got.d};
  bs_op_query q = fx_query(scatter ? "scatter_columns" : "gather_columns", descs, 2);
  q.partition = part;
  pl_run_ref(p, &q, NULL, (bs_tensor *[]){&in.t, &want.t});
  pl_run_cuda(p, scatter ? &cuda_scatter_columns : &cuda_gather_columns, &q, NULL,
              (bs_tensor *[]){&in.t, &got.t});
  pl_same_bits(&got, &want, q.op);
  pl_free(&in);
  pl_free(&got);
  pl_free(&want);
}

START_TEST(every_kind_and_layout) {
  static const int64_t rows[] = {0, 1, 3, 4, 9};
  pl p;
  pl_open(&p);
  uint64_t seed = 47;
  uint32_t columns[TOTAL];
  for (int scatter = 0; scatter < 2; scatter++)
    for (int d = 0; d < 5; d++)
      for (int kind = 0; kind < KINDS; kind++)
        for (int lay = 0; lay < PC_LAYS; lay++)
          for (int where = 0; where < PL_PLACES; where++) {
            const bs_partition part = make_partition(kind, TOTAL, columns, &seed);
            check(&p, scatter, dtypes[d], &part, rows[(lay + where + kind) % 5], lay, where, &seed);
          }
  pl_close(&p);
}
END_TEST

/* Small shapes, each of them: period, pattern, where the partition begins. */
START_TEST(every_short_pattern) {
  pl p;
  pl_open(&p);
  uint64_t seed = 53;
  uint32_t columns[32];
  for (uint32_t period = 1; period <= 4; period++)
    for (uint32_t bits = 1; bits < 1u << period; bits++)
      for (int64_t begin = 0; begin <= 5; begin++)
        for (int64_t total = 5; total <= 14; total += 3) {
          const bs_partition part = repeating(total, period, bits, begin, total, columns);
          check(&p, (int)(begin & 1), BS_BF16, &part, 2, PC_DENSE, PL_LAST, &seed);
        }
  pl_close(&p);
}
END_TEST

/* The halves of complement masks: every two of four columns, every size of element, partitions that begin on
 * a piece and beside one, rows that end within a group. */
START_TEST(two_of_each_four) {
  pl p;
  pl_open(&p);
  uint64_t seed = 57;
  uint32_t columns[200];
  for (int d = 0; d < 4; d++)
    for (uint32_t bits = 0; bits < 16; bits++)
      for (int64_t begin = 0; begin <= 32; begin += 8)
        for (int64_t total = 160; total <= 163; total++) {
          if (__builtin_popcount(bits) != 2) continue;
          const bs_partition part = repeating(total, 4, bits, begin - begin % 3, total, columns);
          check(&p, 0, dtypes[d], &part, 1 + total % 5, total % 2 ? PC_WIDE : PC_DENSE, (int)(bits % 2),
                &seed);
        }
  pl_close(&p);
}
END_TEST

/* Columns that repeat are told without a list, and a list that does not is kept. A period that is not that of
 * the list is not believed. */
START_TEST(lists_are_read_where_they_must) {
  pl p;
  pl_open(&p);
  uint64_t seed = 59;
  uint32_t columns[TOTAL];
  bs_partition part = repeating(TOTAL, 4, 3, 8, TOTAL, columns);
  const int64_t live = p.f.live;
  for (int wrong = 0; wrong < 2; wrong++) {
    if (wrong) part.pattern_bits = 6;
    pl_tensor in, out;
    pl_matrix(&in, BS_BF16, 2, TOTAL, TOTAL, 1, PL_FIRST);
    pl_matrix(&out, BS_BF16, 2, part.count, part.count, 1, PL_FIRST);
    const bs_tensor_desc *descs[2] = {&in.d, &out.d};
    bs_op_query q = fx_query("gather_columns", descs, 2);
    q.partition = &part;
    void *plan = NULL;
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(cuda_gather_columns.prepare(&p.state, &p.exec, &q, NULL, &plan, &err), BS_OK);
    ck_assert_int_eq(p.f.live - live, wrong ? 2 : 1); /* the plan, and the list */
    cuda_gather_columns.plan_free(plan);
    ck_assert_int_eq(p.f.live, live);
    check(&p, 0, BS_BF16, &part, 3, PC_DENSE, PL_FIRST, &seed);
    pl_free(&in);
    pl_free(&out);
  }
  pl_close(&p);
}
END_TEST

START_TEST(refusals) {
  pl p;
  pl_open(&p);
  uint32_t columns[8];
  const bs_partition part = fx_gather(8, 2, 1, columns);
  const bs_tensor_desc full = bs_desc_2d(BS_F32, 3, 8), kept = bs_desc_2d(BS_F32, 3, 4),
                       other = bs_desc_2d(BS_F16, 3, 4), wide = bs_desc_2d(BS_F32, 3, 5);
  const struct {
    const bs_tensor_desc *in, *out;
    const bs_partition *partition;
    uint32_t reason;
  } rows[] = {{&full, &kept, &part, BS_REASON_NONE},
              {&full, &kept, NULL, BS_REASON_SHAPE},
              {&full, &other, &part, BS_REASON_DTYPE},
              {&full, &wide, &part, BS_REASON_SHAPE},
              {&full, NULL, &part, BS_REASON_RANK}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const bs_tensor_desc *descs[2] = {rows[i].in, rows[i].out};
    bs_op_query q = fx_query("gather_columns", descs, 2);
    bs_op_answer answer = {.struct_size = (uint32_t)sizeof answer};
    q.partition = rows[i].partition;
    ck_assert_int_eq(cuda_gather_columns.supports(&p.state, &q, &answer), BS_OK);
    ck_assert_uint_eq(answer.reason, rows[i].reason);
    ck_assert_int_eq(answer.level == BS_LEVEL_NO, rows[i].reason != BS_REASON_NONE);
    ck_assert_int_eq(answer.text[0] != 0, 1);
  }
  pl_close(&p);
}
END_TEST

int main(void) {
  const test_case tests[] = {{every_kind_and_layout},
                             {every_short_pattern},
                             {two_of_each_four},
                             {lists_are_read_where_they_must},
                             {refusals},
                             {0}};
  return run_tests("cuda columns", tests, (test_setup){0});
}
