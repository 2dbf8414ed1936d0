/* SPDX-License-Identifier: MIT
 *
 * test_compile.c - the mask compiler: gather, 2:4 or dense for every kind of mask, in which hardware formats
 * a kept set is legal (against the definitions of those formats), and the bytes of each form.
 */
#include "core/partition/compile.h"
#include "tests/partition/kept_kit.h"
#include "tests/run_tests.h"

/* A kept set that is one pattern by row and group. */
typedef struct made_set {
  uint8_t (*of)(int64_t row, int64_t group);
} made_set;

static int32_t read_made(void *ctx, int64_t row, int64_t nrows, int64_t group, int64_t ngroups, uint8_t *out,
                         int64_t stride, bs_error *err) {
  const made_set *s = ctx;
  (void)err;
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t g = 0; g < ngroups; g++) out[r * stride + g] = s->of(row + r, group + g);
  return BS_OK;
}

static uint8_t pairs_only(int64_t row, int64_t group) {
  return (row * 7 + group) % 3 ? 0x3 : 0xC;
}
static uint8_t one_of_two(int64_t row, int64_t group) {
  return six[1 + (row * 5 + group * 3) % 4];
}
static uint8_t by_column(int64_t row, int64_t group) {
  (void)row;
  return six[group % 6];
}
static uint8_t odd_at_the_end(int64_t row, int64_t group) {
  return row == 98 && group == 10 ? 0x5 : 0x3;
}

static bs_kept_facts look(uint8_t (*of)(int64_t, int64_t), int64_t rows, int64_t cols) {
  made_set set = {of};
  const bs_kept kept = {sizeof kept, 0, rows, cols, &set, read_made};
  bs_kept_facts facts;
  ck_assert_int_eq(bs_kept_look(&kept, &facts, NULL), BS_OK);
  return facts;
}

#define LEGAL(format) (1u << BS_SPARSE_##format)

START_TEST(facts_of_made_sets) {
  bs_kept_facts f = look(pairs_only, 99, 44);
  ck_assert(!f.same_rows && f.legal == (LEGAL(2OF4) | LEGAL(PAIRS)) && f.rows_read == 99);
  f = look(one_of_two, 99, 44);
  ck_assert(!f.same_rows && f.legal == (LEGAL(2OF4) | LEGAL(1OF2)) && f.rows_read == 99);
  f = look(by_column, 99, 44);
  ck_assert(f.same_rows && f.legal == LEGAL(2OF4) && f.rows_read == 99);
  f = look(odd_at_the_end, 99, 44); /* one group of one row, the last but one */
  ck_assert(!f.same_rows && f.legal == LEGAL(2OF4));
  f = look(by_column, 1, 44);
  ck_assert(f.same_rows);
  f = look(by_column, 0, 44);
  ck_assert(f.same_rows && f.legal == (LEGAL(2OF4) | LEGAL(1OF2) | LEGAL(PAIRS)));
}
END_TEST

/* By the words of the formats: one of each two columns; of eight columns two whole pairs. */
START_TEST(legality_of_the_six_patterns) {
  static const struct {
    const char *name;
    uint32_t legal;
  } rows[] = {{"1100", LEGAL(2OF4) | LEGAL(PAIRS)}, {"0011", LEGAL(2OF4) | LEGAL(PAIRS)},
              {"1010", LEGAL(2OF4) | LEGAL(1OF2)},  {"0101", LEGAL(2OF4) | LEGAL(1OF2)},
              {"1001", LEGAL(2OF4) | LEGAL(1OF2)},  {"0110", LEGAL(2OF4) | LEGAL(1OF2)}};
  for (int i = 0; i < 6; i++) {
    const bs_mask mask = mask_named(rows[i].name);
    bs_compiled c;
    ck_assert_int_eq(bs_mask_compile(&mask, 100, 64, NULL, 2, NULL, &c, NULL), BS_OK);
    ck_assert_uint_eq(c.facts.legal, rows[i].legal);
    int one_of_two_columns = 1, whole_pairs = 1;
    for (int j = 0; j < 4; j += 2) {
      const int kept = (rows[i].name[j] == '1') + (rows[i].name[j + 1] == '1');
      one_of_two_columns &= kept == 1;
      whole_pairs &= kept != 1;
    }
    ck_assert_int_eq((c.facts.legal & LEGAL(1OF2)) != 0, one_of_two_columns);
    ck_assert_int_eq((c.facts.legal & LEGAL(PAIRS)) != 0, whole_pairs);
  }
}
END_TEST

static void expect(const bs_mask *mask, const bs_source *w, uint32_t P, const char *no_op, uint32_t form,
                   const char *why) {
  bs_compiled c;
  bs_error err = BS_ERROR_INIT;
  ck_assert_msg(bs_mask_compile(mask, w->rows, w->cols, w, P, no_op, &c, &err) == BS_OK, "%s", err.message);
  ck_assert_msg(c.form == form && strstr(c.why, why) != NULL, "%s on %u: %s, %s", mask->name, P,
                bs_form_name(c.form), c.why);
}

START_TEST(decisions) {
  static float data[40 * 30];
  static const double shares[2] = {1, 2};
  static uint32_t order[30];
  for (uint32_t k = 0; k < 30; k++) order[k] = k;
  bs_rng_normal(1, 1, 0, 40 * 30, data);
  bs_source w = source_of(data, BS_F32, 40, 30);
  static const char *const by_row[] = {"random_2of4", "magnitude", "transposable"};
  for (int i = 0; i < 3; i++) {
    const bs_mask mask = mask_named(by_row[i]);
    expect(&mask, &w, 1, NULL, BS_FORM_DENSE, "both halves");
    expect(&mask, &w, 2, NULL, BS_FORM_SPARSE24, "rows keep different columns");
    expect(&mask, &w, 4, NULL, BS_FORM_SPARSE24, "rows keep different columns");
    expect(&mask, &w, 2, "no such op here", BS_FORM_DENSE, "no such op here");
  }
  bs_mask mask = mask_named("1001");
  expect(&mask, &w, 2, NULL, BS_FORM_GATHER, "same columns");
  expect(&mask, &w, 2, "no such op here", BS_FORM_GATHER, "same columns");
  expect(&mask, &w, 1, NULL, BS_FORM_DENSE, "both halves");
  mask = mask_named("interleave");
  expect(&mask, &w, 3, NULL, BS_FORM_GATHER, "same columns");
  expect(&mask, &w, 1, NULL, BS_FORM_DENSE, "all columns");
  mask = mask_named("contiguous");
  expect(&mask, &w, 3, NULL, BS_FORM_RUN, "run of columns");
  mask = mask_named("uneven");
  mask.shares = shares;
  mask.n_shares = 2;
  expect(&mask, &w, 2, NULL, BS_FORM_RUN, "run of columns");
  mask = mask_named("importance");
  mask.order = order;
  mask.n_order = 30;
  expect(&mask, &w, 2, NULL, BS_FORM_GATHER, "same columns");
  bs_source_release(&w);
}
END_TEST

/* Weights whose large columns are the same in every row make magnitude a gather; one row that differs, 2:4.
 */
START_TEST(magnitude_over_columns_is_a_gather) {
  enum { ROWS = 37, COLS = 29 };
  static float data[ROWS * COLS];
  for (int i = 0; i < ROWS * COLS; i++) data[i] = (float)(1 + i % COLS * 5 % 7) * (i / COLS % 2 ? -1 : 1);
  bs_source w = source_of(data, BS_F32, ROWS, COLS);
  const bs_mask mask = mask_named("magnitude");
  expect(&mask, &w, 2, NULL, BS_FORM_GATHER, "same columns");
  data[36 * COLS + 28] = data[36 * COLS + 27] = 0; /* padding counts as zeros too */
  data[36 * COLS + 24] = 99;
  data[36 * COLS + 25] = 99;
  expect(&mask, &w, 2, NULL, BS_FORM_SPARSE24, "rows keep different columns");
  bs_source_release(&w);
}
END_TEST

/* Parts of the dense W at P = 2: 8/16 gathered, 9/16 as 2:4 of 16 bits, 10/16 of 8 bits. */
START_TEST(bytes) {
  static const struct {
    uint32_t dtype;
    double part;
  } rows[] = {{BS_F64, 0.515625}, {BS_F32, 0.53125},  {BS_BF16, 0.5625},
              {BS_F16, 0.5625},   {BS_F8E4M3, 0.625}, {BS_I8, 0.625}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const double dense = 512.0 * 1024 * BS_DTYPE_BYTES(rows[i].dtype);
    ck_assert((double)bs_form_bytes(BS_FORM_SPARSE24, rows[i].dtype, 512, 1024, 0) == rows[i].part * dense);
    ck_assert((double)bs_form_bytes(BS_FORM_GATHER, rows[i].dtype, 512, 1024, 512) == 0.5 * dense);
    ck_assert((double)bs_form_bytes(BS_FORM_RUN, rows[i].dtype, 512, 1024, 512) == 0.5 * dense);
    ck_assert((double)bs_form_bytes(BS_FORM_DENSE, rows[i].dtype, 512, 1024, 512) == dense);
  }
  ck_assert_uint_eq(bs_form_bytes(BS_FORM_SPARSE24, BS_F32, 3, 5, 0), 3 * 4 * 4 + 3); /* 6 groups of 4 bits */
  ck_assert_uint_eq(bs_form_bytes(BS_FORM_SPARSE24, BS_F32, 0, 5, 0), 0);
  ck_assert_int_eq(bs_form_columns(BS_FORM_SPARSE24, 5, 2), 4);
  ck_assert_int_eq(bs_form_columns(BS_FORM_GATHER, 5, 2), 2);
  ck_assert_int_eq(bs_form_columns(BS_FORM_DENSE, 5, 2), 5);
}
END_TEST

static int32_t no_weights(void *ctx, int64_t row, int64_t nrows, const bs_partition *cols, uint32_t dtype,
                          void *out, int64_t stride, bs_error *err) {
  (void)ctx, (void)row, (void)nrows, (void)cols, (void)dtype, (void)out, (void)stride;
  return bs_error_set(err, BS_IO, "BS-TEST-READ", "the file is gone");
}

START_TEST(refusals) {
  bs_mask mask = mask_named("magnitude");
  bs_compiled c;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_mask_compile(&mask, 8, 8, NULL, 2, NULL, &c, &err), BS_INVALID_ARGUMENT);
  ck_assert_str_eq(err.id, "BS-MASK-WEIGHTS");
  const bs_source broken = {sizeof broken, BS_F32, 8, 8, NULL, no_weights, NULL};
  ck_assert_int_eq(bs_mask_compile(&mask, 8, 8, &broken, 2, NULL, &c, &err), BS_IO);
  ck_assert_str_eq(err.id, "BS-TEST-READ");
  mask = mask_named("1100");
  mask.pattern_b = 0x3;
  ck_assert_int_eq(bs_mask_compile(&mask, 8, 8, NULL, 2, NULL, &c, &err), BS_CONFIG);
  ck_assert_str_eq(bs_form_name(99), "?");
  ck_assert_str_eq(bs_sparse_format_name(99), "?");
}
END_TEST

int main(void) {
  const test_case tests[] = {{facts_of_made_sets},
                             {legality_of_the_six_patterns},
                             {decisions},
                             {magnitude_over_columns_is_a_gather},
                             {bytes},
                             {refusals},
                             {0}};
  return run_tests("compile", tests, (test_setup){0});
}
