/* SPDX-License-Identifier: MIT
 *
 * test_importance.c - the masks importance and uneven over generated orders and shares: parts are ascending,
 * disjoint and cover K, the first ranks have the most important columns, shares are kept to within a column,
 * and every order that is not each column once is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/partition/partition.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { MAX_K = 200, MAX_P = 9 };

/* A permutation of K from seed. */
static void shuffled(uint64_t seed, uint32_t K, uint32_t *order) {
  uint32_t bits[MAX_K];
  bs_rng_bits(seed, 5, 0, K, bits);
  for (uint32_t k = 0; k < K; k++) order[k] = k;
  for (uint32_t k = K; k > 1; k--) {
    const uint32_t j = bits[k - 1] % k, keep = order[k - 1];
    order[k - 1] = order[j];
    order[j] = keep;
  }
}

static bs_mask importance_of(const uint32_t *order, int64_t K) {
  bs_mask mask;
  ck_assert_int_eq(bs_mask_parse("importance", NULL, NULL, &mask, NULL), BS_OK);
  ck_assert_uint_eq(mask.kind, BS_MASK_IMPORTANCE);
  mask.order = order;
  mask.n_order = K;
  return mask;
}

static void check_parts(const bs_mask *mask, int64_t K, uint32_t P) {
  uint8_t owner[MAX_K];
  int64_t count[MAX_P] = {0}, at = 0;
  double sum = 0;
  memset(owner, 0xFF, sizeof owner);
  for (uint32_t r = 0; r < mask->n_shares; r++) sum += mask->shares[r];
  for (uint32_t r = 0; r < P; r++) {
    const bs_partition *p = NULL;
    bs_error err = BS_ERROR_INIT;
    ck_assert_msg(bs_partition_make(mask, K, r, P, &p, &err) == BS_OK, "%s: %s", err.id, err.message);
    ck_assert_int_eq(p->total, K);
    ck_assert_uint_eq(p->period, 0);
    count[r] = p->count;
    for (int64_t i = 0; i < p->count; i++) {
      const int64_t k = p->kind == BS_PARTITION_GATHER ? (int64_t)p->columns[i] : p->begin + i;
      if (k < 0 || k >= K || owner[k] != 0xFF) ck_abort_msg("rank %u: column %lld", r, (long long)k);
      if (p->kind == BS_PARTITION_GATHER && i > 0 && p->columns[i] <= p->columns[i - 1])
        ck_abort_msg("rank %u does not ascend", r);
      owner[k] = (uint8_t)r;
    }
    const double exact = mask->n_shares > 0 ? (double)K * mask->shares[r] / sum : (double)K / P;
    ck_assert_msg(fabs((double)p->count - exact) < 1 + 1e-9, "rank %u: %lld of %g", r, (long long)p->count,
                  exact);
    bs_partition_free(p);
  }
  /* In the order of importance the owners are 0 .. 0, 1 .. 1, ...: all columns, none twice. */
  for (uint32_t r = 0; r < P; r++)
    for (int64_t i = 0; i < count[r]; i++, at++)
      ck_assert_uint_eq(owner[mask->order != NULL ? mask->order[at] : (uint32_t)at], r);
  ck_assert_int_eq(at, K);
}

START_TEST(generated_orders_and_shares) {
  uint32_t order[MAX_K], draws[2 + MAX_P];
  double shares[MAX_P];
  for (uint64_t t = 0; t < 300; t++) {
    bs_rng_bits(t, 6, 0, 2 + MAX_P, draws);
    const uint32_t K = draws[0] % (MAX_K + 1), P = 1 + draws[1] % MAX_P;
    for (uint32_t r = 0; r < P; r++)
      shares[r] = ldexp(1 + draws[2 + r] % 1000, (int)(draws[2 + r] >> 28) - 8);
    shuffled(t, K, order);
    bs_mask mask = importance_of(order, K);
    check_parts(&mask, K, P);
    mask.shares = shares;
    mask.n_shares = P;
    check_parts(&mask, K, P);
    mask.kind = BS_MASK_UNEVEN; /* which takes no order */
    mask.order = NULL;
    check_parts(&mask, K, P);
  }
}
END_TEST

static void refused(const bs_mask *mask, int64_t K, uint32_t P, const char *id, const char *text) {
  for (uint32_t r = 0; r < P; r++) { /* on every rank, also those that own nothing wrong */
    const bs_partition *p = (const bs_partition *)(uintptr_t)1;
    bs_error err = BS_ERROR_INIT;
    ck_assert_int_eq(bs_partition_make(mask, K, r, P, &p, &err), BS_CONFIG);
    ck_assert_str_eq(err.id, id);
    ck_assert_msg(strstr(err.message, text) != NULL, "%s", err.message);
    ck_assert(err.hint[0] != '\0');
    ck_assert_ptr_null(p);
  }
}

/* Any single change of a permutation loses a column: by a column that is there already or by none. */
START_TEST(no_wrong_order_passes) {
  uint32_t order[MAX_K], draws[4];
  for (uint64_t t = 0; t < 300; t++) {
    bs_rng_bits(t, 7, 0, 4, draws);
    const uint32_t K = 1 + draws[0] % MAX_K, P = 1 + draws[1] % 4, at = draws[2] % K;
    shuffled(t, K, order);
    const uint32_t right = order[at];
    bs_mask mask = importance_of(order, K);
    order[at] = K + draws[3] % 5;
    refused(&mask, K, P, "BS-MASK-ORDER", "which is no column");
    order[at] = UINT32_MAX;
    refused(&mask, K, P, "BS-MASK-ORDER", "which is no column");
    if (K == 1) continue;
    order[at] = (right + 1) % K;
    refused(&mask, K, P, "BS-MASK-ORDER", "which is there already");
  }
}
END_TEST

START_TEST(refusals) {
  static const uint32_t order[4] = {3, 1, 0, 2};
  static const double shares[3] = {1, 2, 0};
  bs_mask mask = importance_of(order, 4);
  check_parts(&mask, 4, 2);
  refused(&mask, 5, 2, "BS-MASK-ORDER", "has an order of 4 columns, the layer has 5");
  refused(&mask, 3, 2, "BS-MASK-ORDER", "has an order of 4 columns, the layer has 3");
  mask.order = NULL;
  refused(&mask, 4, 2, "BS-MASK-ORDER", "has an order of 0 columns");
  mask.order = order;
  mask.shares = shares;
  mask.n_shares = 3;
  refused(&mask, 4, 3, "BS-MASK-SHARES", "share 2 of the mask importance is 0");
  mask.n_shares = 2;
  refused(&mask, 4, 3, "BS-MASK-SHARES", "the mask importance has 2 shares, the world has 3 ranks");
}
END_TEST

int main(void) {
  const test_case tests[] = {{generated_orders_and_shares}, {no_wrong_order_passes}, {refusals}, {0}};
  return run_tests("importance", tests, (test_setup){0});
}
