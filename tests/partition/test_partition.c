/* SPDX-License-Identifier: MIT
 *
 * test_partition.c - the table mask x P as properties: for every mask, P in 1..9 (and 16, 40) and K in
 * 0..70 (and a few large), the parts are ascending, disjoint and cover K, and the period says the same
 * as the list; then single cells of the table by value, and the refusals.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/partition/partition.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

static const char *const complements[] = {"1100", "0011", "1010", "0101", "1001", "0110"};
static const double share_values[40] = {3,  1, 0.5, 7, 2, 1e-3, 4,   1, 9,   2, 1,   1, 1,  5,
                                        1,  8, 1,   1, 2, 3,    0.1, 6, 1e6, 2, 2.5, 1, 11, 13,
                                        17, 1, 1,   4, 1, 1,    1,   2, 2,   2, 3,   1};

static int64_t column(const bs_partition *p, int64_t i) {
  return p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[i] : p->begin + i;
}

/* A check in an inner loop: ck_assert marks its place on every call, which is dear a million times. */
static void hold(int ok, const char *what, const bs_partition *p, int64_t value) {
  if (ok) return;
  ck_abort_msg("%s: %lld (K=%lld, %lld columns)", what, (long long)value, (long long)p->total,
               (long long)p->count);
}

/* The columns that the period information alone would give must be the list. */
static void check_period(const bs_partition *p) {
  if (p->period == 0) return;
  hold(p->begin >= 0 && p->span >= 0 && p->begin + p->span <= p->total, "window out of range", p, p->begin);
  int64_t n = 0;
  for (int64_t k = p->begin; k < p->begin + p->span; k++) {
    if ((p->pattern_bits >> (k % p->period) & 1u) == 0) continue;
    hold(n < p->count && column(p, n) == k, "the period keeps another column", p, k);
    n++;
  }
  hold(n == p->count, "the period keeps another number of columns", p, n);
}

static void check_all_ranks(const bs_mask *mask, int64_t K, uint32_t P) {
  uint8_t *seen = calloc(1, (size_t)K + 1);
  int64_t total = 0;
  for (uint32_t r = 0; r < P; r++) {
    const bs_partition *p = NULL;
    bs_error err = BS_ERROR_INIT;
    if (bs_partition_make(mask, K, r, P, &p, &err) != BS_OK) ck_abort_msg("%s: %s", err.id, err.message);
    hold(p->struct_size == sizeof *p && p->total == K, "struct_size or total", p, p->total);
    hold(p->kind != BS_PARTITION_CONTIGUOUS || p->columns == NULL, "a run with a list", p, p->begin);
    for (int64_t i = 0; i < p->count; i++) {
      const int64_t k = column(p, i);
      hold(k >= 0 && k < K && !seen[k], "column out of range or owned twice", p, k);
      hold(i == 0 || k > column(p, i - 1), "columns do not ascend", p, k);
      seen[k] = 1;
    }
    total += p->count;
    check_period(p);
    bs_partition_free(p);
  }
  ck_assert_int_eq(total, K);
  free(seen);
}

static void check_mask(const bs_mask *mask, uint32_t P) {
  static const int64_t large[] = {1023, 4096, 40961};
  for (int64_t K = 0; K <= 70; K++) check_all_ranks(mask, K, P);
  for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) check_all_ranks(mask, large[i], P);
}

START_TEST(parts_cover_and_are_disjoint) {
  static const uint32_t worlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 40};
  const uint32_t P = worlds[_i];
  bs_mask mask;
  ck_assert_int_eq(bs_mask_parse("contiguous", NULL, NULL, &mask, NULL), BS_OK);
  check_mask(&mask, P);
  ck_assert_int_eq(bs_mask_parse("interleave", NULL, NULL, &mask, NULL), BS_OK);
  check_mask(&mask, P);
  ck_assert_int_eq(bs_mask_parse("uneven", NULL, NULL, &mask, NULL), BS_OK);
  mask.n_shares = P;
  mask.shares = share_values;
  check_mask(&mask, P);
  if (P > 2 && P % 2 != 0) return;
  for (size_t i = 0; i < sizeof complements / sizeof complements[0]; i++) {
    ck_assert_int_eq(bs_mask_parse(complements[i], NULL, NULL, &mask, NULL), BS_OK);
    check_mask(&mask, P);
  }
}
END_TEST

static void expect(const char *name, int64_t K, uint32_t r, uint32_t P, int64_t n, const int64_t *want) {
  bs_mask mask;
  const bs_partition *p = NULL;
  ck_assert_int_eq(bs_mask_parse(name, NULL, NULL, &mask, NULL), BS_OK);
  ck_assert_int_eq(bs_partition_make(&mask, K, r, P, &p, NULL), BS_OK);
  ck_assert_int_eq(p->count, n);
  for (int64_t i = 0; i < n; i++) ck_assert_int_eq(column(p, i), want[i]);
  bs_partition_free(p);
}

START_TEST(cells_of_the_table) {
  expect("1100", 8, 0, 2, 4, (const int64_t[]){0, 1, 4, 5}); /* K7 */
  expect("1100", 8, 1, 2, 4, (const int64_t[]){2, 3, 6, 7});
  expect("1001", 8, 0, 2, 4, (const int64_t[]){0, 3, 4, 7});
  expect("1010", 7, 1, 2, 3, (const int64_t[]){1, 3, 5}); /* K not a multiple of 4 */
  expect("0011", 2, 0, 2, 0, NULL);                       /* K < 4: an empty part */
  /* P = 4: ranks 0 and 2 share pattern a, rank 0 has its first slice; 5 columns go 3 + 2 */
  expect("1100", 10, 0, 4, 3, (const int64_t[]){0, 1, 4});
  expect("1100", 10, 2, 4, 3, (const int64_t[]){5, 8, 9});
  expect("1100", 9, 2, 4, 2, (const int64_t[]){5, 8});
  expect("1100", 10, 1, 4, 2, (const int64_t[]){2, 3});
  expect("1100", 10, 3, 4, 2, (const int64_t[]){6, 7});
  expect("1100", 8, 0, 1, 8, (const int64_t[]){0, 1, 2, 3, 4, 5, 6, 7});
  expect("interleave", 8, 1, 3, 3, (const int64_t[]){1, 4, 7});
  expect("interleave", 8, 2, 4, 2, (const int64_t[]){2, 6}); /* K8 */
  expect("contiguous", 8, 1, 3, 3, (const int64_t[]){3, 4, 5});
  expect("contiguous", 2, 2, 3, 0, NULL);
}
END_TEST

START_TEST(period_is_offered_where_it_exists) {
  bs_mask mask;
  const bs_partition *p = NULL;
  ck_assert_int_eq(bs_mask_parse("1001", NULL, NULL, &mask, NULL), BS_OK);
  ck_assert_int_eq(bs_partition_make(&mask, 64, 1, 2, &p, NULL), BS_OK);
  ck_assert_uint_eq(p->kind, BS_PARTITION_GATHER);
  ck_assert_uint_eq(p->period, 4);
  ck_assert_uint_eq(p->pattern_bits, 0x6);
  ck_assert_int_eq(p->begin, 0); /* widened to whole groups */
  ck_assert_int_eq(p->span, 64);
  bs_partition_free(p);
  ck_assert_int_eq(bs_partition_make(&mask, 64, 3, 4, &p, NULL), BS_OK); /* second slice: groups 8..15 */
  ck_assert_int_eq(p->begin, 32);
  ck_assert_int_eq(p->span, 32);
  bs_partition_free(p);
  ck_assert_int_eq(bs_mask_parse("interleave", NULL, NULL, &mask, NULL), BS_OK);
  ck_assert_int_eq(bs_partition_make(&mask, 60, 2, 5, &p, NULL), BS_OK);
  ck_assert_uint_eq(p->period, 5);
  ck_assert_uint_eq(p->pattern_bits, 1u << 2);
  bs_partition_free(p);
  ck_assert_int_eq(bs_partition_make(&mask, 60, 2, 33, &p, NULL), BS_OK);
  ck_assert_uint_eq(p->period, 0); /* a period of 33 does not fit the 32 pattern bits */
  bs_partition_free(p);
}
END_TEST

/* Rounding by largest remainder: no rank is more than one column away from its exact share. */
START_TEST(uneven_shares_are_fair) {
  bs_mask mask;
  ck_assert_int_eq(bs_mask_parse("uneven", NULL, NULL, &mask, NULL), BS_OK);
  mask.n_shares = 2;
  mask.shares = share_values; /* 3 : 1 */
  const bs_partition *p = NULL;
  ck_assert_int_eq(bs_partition_make(&mask, 10, 0, 2, &p, NULL), BS_OK);
  ck_assert_int_eq(p->count, 8); /* 7.5 and 2.5: the tie goes to rank 0 */
  bs_partition_free(p);
  for (uint32_t P = 1; P <= 40; P++) {
    double sum = 0;
    for (uint32_t r = 0; r < P; r++) sum += share_values[r];
    mask.n_shares = P;
    for (uint32_t r = 0; r < P; r++) {
      ck_assert_int_eq(bs_partition_make(&mask, 1000, r, P, &p, NULL), BS_OK);
      ck_assert(fabs((double)p->count - 1000.0 * share_values[r] / sum) < 1.0 + 1e-9);
      bs_partition_free(p);
    }
  }
  static const double huge[3] = {1e308, 1e308, 1e308};
  mask.n_shares = 3;
  mask.shares = huge; /* scaled before summing: no infinity */
  ck_assert_int_eq(bs_partition_make(&mask, 9, 1, 3, &p, NULL), BS_OK);
  ck_assert_int_eq(p->begin, 3);
  ck_assert_int_eq(p->count, 3);
  bs_partition_free(p);
}
END_TEST

static void refused(const bs_mask *mask, int64_t K, uint32_t r, uint32_t P, int32_t code, const char *id,
                    const char *hint) {
  const bs_partition *p = (const bs_partition *)(uintptr_t)1;
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_partition_make(mask, K, r, P, &p, &err), code);
  ck_assert_str_eq(err.id, id);
  ck_assert_msg(strstr(err.hint, hint) != NULL, "hint '%s' lacks '%s'", err.hint, hint);
  ck_assert_ptr_null(p);
}

START_TEST(refusals) {
  bs_mask mask;
  ck_assert_int_eq(bs_mask_parse("1100", NULL, NULL, &mask, NULL), BS_OK);
  for (uint32_t P = 3; P <= 9; P += 2)
    refused(&mask, 64, 0, P, BS_UNSUPPORTED, "BS-MASK-WORLD", "interleave");
  refused(&mask, -1, 0, 2, BS_CONFIG, "BS-PART-SIZE", "");
  refused(&mask, INT64_C(1) << 33, 0, 2, BS_CONFIG, "BS-PART-SIZE", "");
  refused(&mask, 64, 2, 2, BS_INVALID_ARGUMENT, "BS-PART-ARG", "");
  refused(&mask, 64, 0, 0, BS_INVALID_ARGUMENT, "BS-PART-ARG", "");
  mask.pattern_b = 0x6;
  refused(&mask, 64, 0, 2, BS_CONFIG, "BS-MASK-COMPLEMENT", "pattern_b");
  static const char *const by_row[] = {"random_2of4", "magnitude", "transposable"};
  for (size_t i = 0; i < 3; i++) {
    ck_assert_int_eq(bs_mask_parse(by_row[i], NULL, NULL, &mask, NULL), BS_OK);
    for (uint32_t P = 1; P <= 4; P++)
      refused(&mask, 64, 0, P, BS_UNSUPPORTED, "BS-MASK-BYROW", "complement_1100_0011");
    bs_error err = BS_ERROR_INIT;
    const bs_partition *p = NULL;
    bs_partition_make(&mask, 64, 0, 2, &p, &err);
    ck_assert(strstr(err.message, by_row[i]) != NULL);
    ck_assert(strstr(err.message, "no rank owns whole columns") != NULL);
  }
  ck_assert_int_eq(bs_mask_parse("uneven", NULL, NULL, &mask, NULL), BS_OK);
  refused(&mask, 64, 0, 2, BS_CONFIG, "BS-MASK-SHARES", "3,1");
  mask.n_shares = 3;
  mask.shares = share_values;
  refused(&mask, 64, 0, 2, BS_CONFIG, "BS-MASK-SHARES", "one number per rank");
}
END_TEST

START_TEST(shares_of_a_range) {
  for (int64_t n = 0; n < 30; n++)
    for (uint32_t P = 1; P < 12; P++) {
      int64_t next = 0;
      for (uint32_t r = 0; r < P; r++) {
        int64_t begin, count;
        bs_share(n, r, P, &begin, &count);
        ck_assert_int_eq(begin, next);
        ck_assert_int_eq(count, n / P + ((int64_t)r < n % P ? 1 : 0));
        next += count;
      }
      ck_assert_int_eq(next, n);
    }
}
END_TEST

int main(void) {
  const test_case tests[] = {{parts_cover_and_are_disjoint, 11},
                             {cells_of_the_table},
                             {period_is_offered_where_it_exists},
                             {uneven_shares_are_fair},
                             {refusals},
                             {shares_of_a_range},
                             {0}};
  return run_tests("partition", tests, (test_setup){.timeout = 120});
}
