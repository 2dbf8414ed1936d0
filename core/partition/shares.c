/* SPDX-License-Identifier: MIT
 *
 * shares.c - masks by shares: uneven (runs of the columns) and importance (runs of the columns in a given
 * order). What is not whole is settled by largest remainder. Called by partition.c. Thread-safe.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/partition/partition.h"
#include "core/partition/split.h"

typedef struct share_part {
  double remainder;
  int64_t count;
  uint32_t rank;
  uint32_t reserved;
} share_part;

static int by_remainder(const void *a, const void *b) {
  const share_part *x = a, *y = b;
  if (x->remainder != y->remainder) return x->remainder > y->remainder ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_rank(const void *a, const void *b) {
  const share_part *x = a, *y = b;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Each rank gets the whole part of its share, the columns left over go one each to the largest fractions
 * (ties: the lower rank). */
int32_t bs_split_by_shares(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world,
                           int64_t *out_begin, int64_t *out_count, bs_error *err) {
  if (mask->n_shares != world) {
    bs_error_set(err, BS_CONFIG, "BS-MASK-SHARES", "the mask %s has %u shares, the world has %u ranks",
                 mask->name != NULL ? mask->name : "uneven", mask->n_shares, world);
    bs_error_hint(err, "give one number per rank");
    return BS_CONFIG;
  }
  share_part *parts = calloc(world, sizeof *parts);
  if (parts == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-PART-MEMORY", "no memory for %u shares", world);
  double largest = 0.0, sum = 0.0;
  for (uint32_t r = 0; r < world; r++) largest = fmax(largest, mask->shares[r]);
  for (uint32_t r = 0; r < world; r++) sum += mask->shares[r] / largest; /* scaled: no overflow */
  int64_t left = total;
  for (uint32_t r = 0; r < world; r++) {
    double exact = (double)total * (mask->shares[r] / largest / sum);
    parts[r].rank = r;
    parts[r].count = (int64_t)floor(exact);
    if (parts[r].count > left) parts[r].count = left; /* rounding of `exact` never costs a column */
    parts[r].remainder = exact - floor(exact);
    left -= parts[r].count;
  }
  qsort(parts, world, sizeof *parts, by_remainder);
  for (uint32_t i = 0; left > 0; i = (i + 1) % world, left--) parts[i].count++;
  qsort(parts, world, sizeof *parts, by_rank);
  *out_begin = 0;
  for (uint32_t r = 0; r < rank; r++) *out_begin += parts[r].count;
  *out_count = parts[rank].count;
  free(parts);
  return BS_OK;
}

static int32_t order_error(bs_error *err, const char *hint) {
  bs_error_hint(err, "%s", hint);
  return BS_CONFIG;
}

/* Is the order each of the columns once? */
static int32_t check_order(const bs_mask *mask, int64_t total, bs_error *err) {
  if (mask->order == NULL || mask->n_order != total) {
    bs_error_set(err, BS_CONFIG, "BS-MASK-ORDER",
                 "the mask importance has an order of %lld columns, the layer has %lld",
                 (long long)(mask->order == NULL ? 0 : mask->n_order), (long long)total);
    return order_error(err, "the order lists each column once, the most important first");
  }
  uint8_t *seen = calloc(1, (size_t)total + 1);
  if (seen == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-PART-MEMORY", "no memory for an order of %lld columns",
                        (long long)total);
  int32_t rc = BS_OK;
  for (int64_t i = 0; i < total && rc == BS_OK; i++) {
    const uint32_t k = mask->order[i];
    if (k < total && !seen[k]) {
      seen[k] = 1;
      continue;
    }
    bs_error_set(err, BS_CONFIG, "BS-MASK-ORDER", "entry %lld of the order of columns is %u, which is %s",
                 (long long)i, k, k < total ? "there already" : "no column");
    rc = order_error(err, "the order lists each column once, the most important first");
  }
  free(seen);
  return rc;
}

static int ascending(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

int32_t bs_split_by_importance(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world,
                               int64_t *out_begin, int64_t *out_count, bs_error *err) {
  const int32_t rc = check_order(mask, total, err);
  if (rc != BS_OK) return rc;
  if (mask->n_shares != 0) return bs_split_by_shares(mask, total, rank, world, out_begin, out_count, err);
  bs_share(total, rank, world, out_begin, out_count);
  return BS_OK;
}

void bs_split_columns(const bs_mask *mask, int64_t begin, int64_t count, uint32_t *out_columns) {
  if (count == 0) return;
  memcpy(out_columns, mask->order + begin, (size_t)count * sizeof *out_columns);
  qsort(out_columns, (size_t)count, sizeof *out_columns, ascending);
}
