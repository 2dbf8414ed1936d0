/* SPDX-License-Identifier: MIT
 * sections.c - blocks as items: sizes in units of the alignment, time as sections (inside.h); the lower
 * bound; and the check of a finished plan. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/size.h"
#include "graph/plan/inside.h"

static int32_t check_alignment(uint64_t *alignment, bs_error *err) {
  if (*alignment == 0) *alignment = GPLAN_ALIGNMENT;
  if ((*alignment & (*alignment - 1)) == 0 && *alignment <= UINT64_C(1) << 30) return BS_OK;
  return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLAN-ALIGN",
                      "an alignment of %" PRIu64 " bytes: a power of two up to 2^30 is needed", *alignment);
}

static int32_t check_blocks(const gplan_block *blocks, uint32_t n, uint64_t alignment, bs_error *err) {
  uint64_t sum = 0;
  const uint64_t limit = UINT64_C(1) << 62;
  if (n > GPLAN_MAX_BLOCKS)
    return bs_error_set(err, BS_OVERFLOW, "BS-PLAN-BLOCKS", "%" PRIu32 " blocks in one plan: at most %d", n,
                        GPLAN_MAX_BLOCKS);
  for (uint32_t i = 0; i < n; i++) {
    if (blocks[i].lower >= blocks[i].upper)
      return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-PLAN-LIFE",
                          "block %" PRIu32 " begins in step %" PRIu32 " and ends before step %" PRIu32, i,
                          blocks[i].lower, blocks[i].upper);
    uint64_t bytes;
    if (!bs_add_u64(blocks[i].bytes, alignment - 1, &bytes) || !bs_add_u64(sum, bytes, &sum) || sum > limit)
      return bs_error_set(err, BS_OVERFLOW, "BS-PLAN-SIZE",
                          "the sizes of %" PRIu32 " blocks exceed 2^62 bytes", i + 1);
  }
  return BS_OK;
}

typedef struct event {
  uint32_t step, item;
} event;

static int by_step(const void *a, const void *b) {
  const event *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return x->item < y->item ? -1 : x->item > y->item;
}

/* A section ends where a block begins after another has ended. Items are in the order of births. */
static void make_sections(gplan_problem *p, const event *births, const event *deaths) {
  uint32_t section = 0, dead = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    const uint32_t before = dead;
    for (; dead < p->n && deaths[dead].step <= births[i].step; dead++)
      p->items[deaths[dead].item].past = section + 1;
    if (dead > before) section++;
    p->items[i].first = section;
    p->last_birth[section] = births[i].step;
  }
  for (; dead < p->n; dead++) p->items[deaths[dead].item].past = section + 1;
  p->n_sections = p->n == 0 ? 0 : section + 1;
}

static void make_totals(gplan_problem *p) {
  uint64_t live = 0;
  for (uint32_t i = 0; i < p->n; i++) { /* differences first */
    p->total[p->items[i].first] += p->items[i].size;
    if (p->items[i].past < p->n_sections) p->total[p->items[i].past] -= p->items[i].size;
  }
  for (uint32_t section = 0; section < p->n_sections; section++) {
    live += p->total[section];
    p->total[section] = live;
    if (live > p->bound) p->bound = live;
  }
}

int32_t gplan_problem_make(const gplan_block *blocks, uint32_t n, uint64_t alignment, gplan_problem *out,
                           bs_error *err) {
  memset(out, 0, sizeof *out);
  int32_t rc = check_alignment(&alignment, err);
  if (rc == BS_OK) rc = check_blocks(blocks, n, alignment, err);
  if (rc != BS_OK) return rc;
  out->alignment = alignment;
  out->items = calloc((size_t)n + 1, sizeof *out->items);
  out->block = calloc((size_t)n + 1, sizeof *out->block);
  out->last_birth = calloc((size_t)n + 1, sizeof *out->last_birth);
  out->total = calloc((size_t)n + 1, sizeof *out->total);
  event *events = calloc(2 * (size_t)n + 1, sizeof *events);
  if (out->items == NULL || out->block == NULL || out->last_birth == NULL || out->total == NULL ||
      events == NULL) {
    free(events);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a plan of %" PRIu32 " blocks", n);
  }
  event *births = events, *deaths = events + n;
  for (uint32_t i = 0; i < n; i++)
    if (blocks[i].bytes != 0) births[out->n++] = (event){blocks[i].lower, i};
  qsort(births, out->n, sizeof *births, by_step);
  for (uint32_t i = 0; i < out->n; i++) {
    const gplan_block *block = &blocks[births[i].item];
    out->items[i].size = (block->bytes + alignment - 1) / alignment;
    out->block[i] = births[i].item;
    deaths[i] = (event){block->upper, i};
  }
  qsort(deaths, out->n, sizeof *deaths, by_step);
  make_sections(out, births, deaths);
  make_totals(out);
  free(events);
  return BS_OK;
}

void gplan_problem_free(gplan_problem *problem) {
  free(problem->items);
  free(problem->block);
  free(problem->last_birth);
  free(problem->total);
  memset(problem, 0, sizeof *problem);
}

int32_t gplan_bound(const gplan_block *blocks, uint32_t n, uint64_t alignment, uint64_t *out_bytes,
                    uint32_t *out_step, bs_error *err) {
  gplan_problem p;
  const int32_t rc = gplan_problem_make(blocks, n, alignment, &p, err);
  if (rc == BS_OK) {
    uint32_t section = 0;
    while (section < p.n_sections && p.total[section] != p.bound) section++;
    *out_bytes = p.bound * p.alignment;
    if (out_step != NULL) *out_step = section < p.n_sections ? p.last_birth[section] : 0;
  }
  gplan_problem_free(&p);
  return rc;
}

/* ---- the check of a plan --------------------------------------------------------------------- */

typedef struct lying {
  uint64_t begin, end;
  uint32_t block;
} lying;

static int by_begin(const void *a, const void *b) {
  const lying *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->block < y->block ? -1 : x->block > y->block;
}

/* Compares each block, in the order of offsets, with the later ones that begin before its end. */
static int32_t check_overlaps(const gplan_block *blocks, const lying *in_order, uint32_t n, bs_error *err) {
  for (uint32_t i = 0; i < n; i++) {
    const gplan_block *a = &blocks[in_order[i].block];
    for (uint32_t k = i + 1; k < n && in_order[k].begin < in_order[i].end; k++) {
      const gplan_block *b = &blocks[in_order[k].block];
      if (a->lower >= b->upper || b->lower >= a->upper) continue;
      return bs_error_set(err, BS_INTERNAL, "BS-PLAN-OVERLAP",
                          "block %" PRIu32 " (steps %" PRIu32 " to %" PRIu32 ", bytes %" PRIu64 " to %" PRIu64
                          ") and block %" PRIu32 " (steps %" PRIu32 " to %" PRIu32 ", bytes %" PRIu64
                          " to %" PRIu64 ") overlap",
                          in_order[i].block, a->lower, a->upper - 1, in_order[i].begin, in_order[i].end - 1,
                          in_order[k].block, b->lower, b->upper - 1, in_order[k].begin, in_order[k].end - 1);
    }
  }
  return BS_OK;
}

int32_t gplan_check(const gplan_block *blocks, uint32_t n, uint64_t alignment, const uint64_t *offsets,
                    uint64_t arena, bs_error *err) {
  uint32_t n_lying = 0;
  int32_t rc = check_alignment(&alignment, err);
  if (rc == BS_OK) rc = check_blocks(blocks, n, alignment, err);
  if (rc != BS_OK) return rc;
  lying *in_order = calloc((size_t)n + 1, sizeof *in_order);
  if (in_order == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the check of a plan");
  for (uint32_t i = 0; i < n && rc == BS_OK; i++) {
    uint64_t end;
    if (blocks[i].bytes == 0) continue;
    if (offsets[i] % alignment != 0) {
      rc = bs_error_set(err, BS_INTERNAL, "BS-PLAN-ALIGN",
                        "block %" PRIu32 " lies at byte %" PRIu64 ", which is no multiple of %" PRIu64, i,
                        offsets[i], alignment);
    } else if (!bs_add_u64(offsets[i], blocks[i].bytes, &end) || end > arena) {
      rc = bs_error_set(err, BS_INTERNAL, "BS-PLAN-ARENA",
                        "block %" PRIu32 " of %" PRIu64 " bytes at byte %" PRIu64
                        " does not fit into an arena of %" PRIu64 " bytes",
                        i, blocks[i].bytes, offsets[i], arena);
    } else {
      in_order[n_lying++] = (lying){offsets[i], end, i};
    }
  }
  qsort(in_order, n_lying, sizeof *in_order, by_begin);
  if (rc == BS_OK) rc = check_overlaps(blocks, in_order, n_lying, err);
  free(in_order);
  return rc;
}
