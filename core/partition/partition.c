/* SPDX-License-Identifier: MIT
 *
 * partition.c - the table mask x P of docs/methods.md: which input columns a rank owns. Called by
 * bs_rank_api and the host table for methods, and by tests and embedders directly. Thread-safe.
 */
#include "core/partition/partition.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/partition/split.h"

/* The K-partition and its column list are one block of memory. */
typedef struct owned_partition {
  bs_partition part;
  uint32_t columns[];
} owned_partition;

void bs_share(int64_t total, uint32_t rank, uint32_t world, int64_t *out_begin, int64_t *out_count) {
  int64_t base = total / (int64_t)world, extra = total % (int64_t)world, r = (int64_t)rank;
  *out_begin = r * base + (r < extra ? r : extra);
  *out_count = base + (r < extra ? 1 : 0);
}

/* NULL: out of memory, said in err. total < 2^32, so that sizes cannot overflow. */
static owned_partition *make(int64_t total, int64_t columns, bs_error *err) {
  owned_partition *p = calloc(1, sizeof *p + (uint64_t)columns * sizeof(uint32_t));
  if (p == NULL) {
    bs_error_set(err, BS_NO_MEMORY, "BS-PART-MEMORY", "no memory for a partition of %lld columns",
                 (long long)columns);
    return NULL;
  }
  p->part.struct_size = (uint32_t)sizeof p->part;
  p->part.total = total;
  return p;
}

static int32_t make_contiguous(int64_t total, int64_t begin, int64_t count, const bs_partition **out,
                               bs_error *err) {
  owned_partition *p = make(total, 0, err);
  if (p == NULL) return BS_NO_MEMORY;
  p->part.kind = BS_PARTITION_CONTIGUOUS;
  p->part.begin = begin;
  p->part.count = count;
  *out = &p->part;
  return BS_OK;
}

/* Columns kept by `pattern` of `period` (bit j: k mod period = j) among the first n, n >= 0. */
static int64_t kept_below(int64_t n, uint32_t period, uint32_t pattern) {
  int64_t kept = n / period * __builtin_popcount(pattern);
  for (int64_t j = 0; j < n % period; j++) kept += pattern >> j & 1u;
  return kept;
}

/* The window in which the pattern alone says what is kept: from the slice's first to its last column,
 * widened to whole periods where that lets no other kept column in (kernels like aligned windows). */
static void fill_window(bs_partition *part, uint32_t period, uint32_t pattern) {
  if (part->count == 0) return;
  int64_t first = part->columns[0], last = part->columns[part->count - 1];
  int64_t begin = first / period * period;
  int64_t end = last / period * period + period;
  if (end > part->total) end = part->total;
  if (kept_below(begin, period, pattern) != kept_below(first, period, pattern)) begin = first;
  if (kept_below(end, period, pattern) != kept_below(last + 1, period, pattern)) end = last + 1;
  part->period = period;
  part->pattern_bits = pattern;
  part->begin = begin;
  part->span = end - begin;
}

/* Slice `slice` of `slices` of the columns with k mod period in `pattern`. */
static int32_t make_periodic(int64_t total, uint32_t period, uint32_t pattern, uint32_t slice,
                             uint32_t slices, const bs_partition **out, bs_error *err) {
  int64_t skip, count;
  bs_share(kept_below(total, period, pattern), slice, slices, &skip, &count);
  owned_partition *p = make(total, count, err);
  if (p == NULL) return BS_NO_MEMORY;
  int64_t ones = __builtin_popcount(pattern), n = 0;
  /* Start at the period that holds the slice's first column. */
  int64_t k = skip / ones * period, seen = skip / ones * ones;
  for (; n < count; k++) {
    if ((pattern >> (k % period) & 1u) == 0) continue;
    if (seen++ >= skip) p->columns[n++] = (uint32_t)k;
  }
  p->part.kind = BS_PARTITION_GATHER;
  p->part.count = count;
  p->part.columns = p->columns;
  fill_window(&p->part, period, pattern);
  *out = &p->part;
  return BS_OK;
}

static int32_t make_interleave(int64_t total, uint32_t rank, uint32_t world, const bs_partition **out,
                               bs_error *err) {
  if (world <= 32) return make_periodic(total, world, 1u << rank, 0, 1, out, err);
  int64_t count = total > (int64_t)rank ? (total - rank - 1) / world + 1 : 0;
  owned_partition *p = make(total, count, err);
  if (p == NULL) return BS_NO_MEMORY;
  for (int64_t i = 0; i < count; i++) p->columns[i] = (uint32_t)(rank + i * world);
  p->part.kind = BS_PARTITION_GATHER;
  p->part.count = count;
  p->part.columns = p->columns;
  *out = &p->part;
  return BS_OK;
}

static int32_t make_uneven(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world,
                           const bs_partition **out, bs_error *err) {
  int64_t begin, count;
  const int32_t rc = bs_split_by_shares(mask, total, rank, world, &begin, &count, err);
  return rc == BS_OK ? make_contiguous(total, begin, count, out, err) : rc;
}

static int32_t make_importance(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world,
                               const bs_partition **out, bs_error *err) {
  int64_t begin, count;
  const int32_t rc = bs_split_by_importance(mask, total, rank, world, &begin, &count, err);
  if (rc != BS_OK) return rc;
  if (world == 1) return make_contiguous(total, 0, total, out, err);
  owned_partition *p = make(total, count, err);
  if (p == NULL) return BS_NO_MEMORY;
  bs_split_columns(mask, begin, count, p->columns);
  p->part.kind = BS_PARTITION_GATHER;
  p->part.count = count;
  p->part.columns = p->columns;
  *out = &p->part;
  return BS_OK;
}

static int32_t refuse_by_row(const bs_mask *mask, bs_error *err) {
  bs_error_set(err, BS_UNSUPPORTED, "BS-MASK-BYROW",
               "mask %s keeps other columns in every row: no rank owns whole columns of it",
               mask->name != NULL ? mask->name : "?");
  bs_error_hint(
      err,
      "methods blockshock (as 2:4 halves) and masked_split (dense, zeros stored) run it; all methods "
      "that split columns: complement_1100_0011 (and the other 2-of-4 patterns), interleave, "
      "contiguous, uneven, importance");
  return BS_UNSUPPORTED;
}

static int32_t make_complement(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world,
                               const bs_partition **out, bs_error *err) {
  if (world == 1) return make_contiguous(total, 0, total, out, err);
  if (world % 2 != 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-MASK-WORLD",
                 "mask %s has two halves and cannot be split over an odd number of ranks (P = %u)",
                 mask->name != NULL ? mask->name : "complement", world);
    bs_error_hint(err, "use the mask interleave, which takes any P, or an even P");
    return BS_UNSUPPORTED;
  }
  uint32_t pattern = rank % 2 == 0 ? mask->pattern_a : mask->pattern_b;
  return make_periodic(total, mask->pattern_len, pattern, rank / 2, world / 2, out, err);
}

int32_t bs_partition_make(const bs_mask *mask, int64_t total, uint32_t rank, uint32_t world_size,
                          const bs_partition **out_partition, bs_error *err) {
  if (out_partition == NULL)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PART-ARG", "no place for the partition");
  *out_partition = NULL;
  if (world_size == 0 || rank >= world_size)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PART-ARG", "rank %u of a world of %u", rank,
                        world_size);
  if (total < 0 || total > (int64_t)UINT32_MAX)
    return bs_error_set(err, BS_CONFIG, "BS-PART-SIZE", "K = %lld columns: 0 to %u can be split",
                        (long long)total, UINT32_MAX);
  int32_t rc = bs_mask_check(mask, err);
  if (rc != BS_OK) return rc;
  int64_t begin, count;
  switch (mask->kind) {
    case BS_MASK_COMPLEMENT:
      return make_complement(mask, total, rank, world_size, out_partition, err);
    case BS_MASK_INTERLEAVE:
      if (world_size == 1) return make_contiguous(total, 0, total, out_partition, err);
      return make_interleave(total, rank, world_size, out_partition, err);
    case BS_MASK_UNEVEN:
      return make_uneven(mask, total, rank, world_size, out_partition, err);
    case BS_MASK_IMPORTANCE:
      return make_importance(mask, total, rank, world_size, out_partition, err);
    case BS_MASK_CONTIGUOUS:
      bs_share(total, rank, world_size, &begin, &count);
      return make_contiguous(total, begin, count, out_partition, err);
    default:
      return refuse_by_row(mask, err);
  }
}

void bs_partition_free(const bs_partition *partition) {
  /* The partition is the first member of its block, which calloc gave and no one else may free. */
  free((void *)(uintptr_t)partition);
}
