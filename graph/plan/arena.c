/* SPDX-License-Identifier: MIT
 * arena.c - offsets for blocks: a portfolio of placements in a fixed order, then the exact search. The plan
 * is cut where no block crosses from one section to the next; each piece is placed for itself, and the arena
 * is that of the largest. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "graph/plan/inside.h"

/* An item that has an offset. */
typedef struct placed_item {
  uint64_t begin, end;
  uint32_t first, past;
} placed_item;

/* One piece, while it is placed. All tables have n entries, but total. */
typedef struct piece {
  const gplan_item *items;
  const uint64_t *total; /* units in use in each section */
  uint32_t n, n_sections;
  uint32_t *order, *best_order;
  uint64_t *offsets, *best_offsets;
  placed_item *placed;
  uint64_t height, low; /* of the best; no arena of this piece is lower than `low` */
  uint64_t work;        /* placed items that were looked at */
  const char *by;       /* what placed the best */
} piece;

/* Candidates after the first are skipped when so many placed items have been looked at: about 0.2 s. */
#define WORK_LIMIT UINT64_C(200000000)
enum { N_INSERTIONS = 40, MORE = 8 };

/* ---- placing items one after another --------------------------------------------------------- */

/* The lowest of the smallest gaps that an item fits into, below the first placed item and between those that
 * share a section with it; else above them all. */
static uint64_t best_gap(const piece *p, uint32_t n_placed, const gplan_item *it) {
  uint64_t top = 0, best = 0, best_size = UINT64_MAX;
  for (uint32_t k = 0; k < n_placed; k++) {
    const placed_item *other = &p->placed[k];
    if (other->first >= it->past || it->first >= other->past) continue;
    if (other->begin > top) {
      const uint64_t gap = other->begin - top;
      if (gap >= it->size && gap < best_size) {
        best = top;
        best_size = gap;
      }
    }
    if (other->end > top) top = other->end;
  }
  return best_size == UINT64_MAX ? top : best;
}

/* Keeps `placed` in the order of its offsets. */
static void insert_placed(piece *p, uint32_t n_placed, const gplan_item *it, uint64_t offset) {
  uint32_t low = 0, high = n_placed;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (p->placed[middle].begin <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  memmove(&p->placed[low + 1], &p->placed[low], (n_placed - low) * sizeof *p->placed);
  p->placed[low] = (placed_item){offset, offset + it->size, it->first, it->past};
}

/* Places all items in the order of p->order. The height; UINT64_MAX when it would exceed `limit`. */
static uint64_t place_in_order(piece *p, uint64_t limit) {
  uint64_t height = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    const gplan_item *it = &p->items[p->order[i]];
    const uint64_t offset = best_gap(p, i, it);
    p->work += i;
    p->offsets[p->order[i]] = offset;
    if (offset + it->size > height) height = offset + it->size;
    if (height > limit) return UINT64_MAX;
    insert_placed(p, i, it, offset);
  }
  return height;
}

static void keep(piece *p, uint64_t height, const char *by) {
  p->height = height;
  p->by = by;
  memcpy(p->best_offsets, p->offsets, p->n * sizeof *p->offsets);
  memcpy(p->best_order, p->order, p->n * sizeof *p->order);
}

/* ---- orders ---------------------------------------------------------------------------------- */

typedef struct order_key {
  uint64_t key[2];
  uint32_t item;
} order_key;

static int by_keys(const void *a, const void *b) {
  const order_key *x = a, *y = b;
  for (int k = 0; k < 2; k++)
    if (x->key[k] != y->key[k]) return x->key[k] < y->key[k] ? -1 : 1;
  return x->item < y->item ? -1 : x->item > y->item;
}

static uint64_t life(const gplan_item *it) {
  return it->past - it->first;
}

/* The largest first. */
static void key_of_size(const piece *p, uint32_t item, uint64_t *out) {
  out[0] = ~p->items[item].size;
  out[1] = ~life(&p->items[item]);
}

/* Sections by the units in use in them, the fullest first; within a section the largest item first. */
static void key_of_breadth(const piece *p, uint32_t item, uint64_t *out) {
  uint64_t fullest = 0;
  for (uint32_t section = p->items[item].first; section < p->items[item].past; section++)
    if (p->total[section] > fullest) fullest = p->total[section];
  out[0] = ~fullest;
  out[1] = ~p->items[item].size;
}

static void key_of_birth(const piece *p, uint32_t item, uint64_t *out) {
  out[0] = p->items[item].first;
  out[1] = ~p->items[item].size;
}

static void key_of_area(const piece *p, uint32_t item, uint64_t *out) {
  const uint64_t size = p->items[item].size, sections = life(&p->items[item]);
  out[0] = ~(size > UINT64_MAX / sections ? UINT64_MAX : size * sections);
  out[1] = ~size;
}

static const struct {
  const char *name;
  void (*key)(const piece *p, uint32_t item, uint64_t *out);
} orders[] = {
    {"size", key_of_size}, {"breadth", key_of_breadth}, {"birth", key_of_birth}, {"area", key_of_area}};

/* BS_NO_MEMORY, else BS_OK. */
static int32_t try_orders(piece *p, uint64_t target, bs_error *err) {
  order_key *keys = calloc(p->n, sizeof *keys);
  if (keys == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a plan");
  for (size_t k = 0; k < sizeof orders / sizeof orders[0] && p->height > target; k++) {
    if (k > 0 && p->work > WORK_LIMIT) break;
    for (uint32_t i = 0; i < p->n; i++) {
      orders[k].key(p, i, keys[i].key);
      keys[i].item = i;
    }
    qsort(keys, p->n, sizeof *keys, by_keys);
    for (uint32_t i = 0; i < p->n; i++) p->order[i] = keys[i].item;
    const uint64_t height = place_in_order(p, p->height - 1);
    if (height < p->height) keep(p, height, orders[k].name);
  }
  free(keys);
  return BS_OK;
}

/* One of the items that end at the top, by the best plan. Its place in the best order. */
static uint32_t item_at_top(const piece *p, uint32_t random) {
  uint32_t n = 0, found = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    const uint32_t item = p->best_order[i];
    n += p->best_offsets[item] + p->items[item].size == p->height;
  }
  random = n == 0 ? 0 : random % n;
  for (uint32_t i = 0; i < p->n; i++) {
    const uint32_t item = p->best_order[i];
    if (p->best_offsets[item] + p->items[item].size != p->height) continue;
    if (random-- == 0) found = i;
  }
  return found;
}

/* Moves one item at the top to an earlier place in the order, 40 times. A plan as good as the best replaces
 * it, so that the next moves start from another. */
static void try_insertions(piece *p, uint64_t target) {
  enum { SEED = 0x706c616e, STREAM = 0 };
  for (uint32_t k = 0; k < N_INSERTIONS && p->height > target && p->work <= WORK_LIMIT; k++) {
    uint32_t random[2];
    bs_rng_bits(SEED, STREAM, 2 * (uint64_t)k, 2, random);
    const uint32_t from = item_at_top(p, random[0]);
    if (from == 0) continue;
    const uint32_t to = random[1] % from, item = p->best_order[from];
    memcpy(p->order, p->best_order, p->n * sizeof *p->order);
    memmove(&p->order[to + 1], &p->order[to], (from - to) * sizeof *p->order);
    p->order[to] = item;
    const uint64_t before = p->height, height = place_in_order(p, p->height);
    if (height <= before) keep(p, height, height < before ? "insert" : p->by);
  }
}

/* ---- the exact search ------------------------------------------------------------------------ */

/* One search below `height`, of at most `most` steps. */
static int search_below(piece *p, uint64_t height, uint64_t most, uint64_t *steps) {
  uint64_t left = most < *steps ? most : *steps;
  const uint64_t given = left;
  const int found = gplan_exact(p->items, p->n, p->n_sections, height, &left, p->offsets);
  *steps -= given - left;
  if (found == GPLAN_FOUND) {
    uint64_t top = 0;
    for (uint32_t i = 0; i < p->n; i++)
      if (p->offsets[i] + p->items[i].size > top) top = p->offsets[i] + p->items[i].size;
    keep(p, top, "exact");
  } else if (found == GPLAN_IMPOSSIBLE && height + 1 > p->low) {
    p->low = height + 1;
  }
  return found;
}

/* Searches at the target, then halves what is left between it and the best: first with few steps a search,
 * because a plan near the bound is mostly found soon, then with half of what is left each. */
static int32_t try_exact(piece *p, uint64_t target, uint64_t *steps, bs_error *err) {
  const uint64_t few = *steps / 64;
  for (int round = 0; round < 2; round++) {
    uint64_t low = target > p->low ? target : p->low;
    uint64_t height = low;
    while (low < p->height) {
      if (*steps <= few) break;
      const int found = search_below(p, height, round == 0 ? few : *steps / 2, steps);
      if (found == GPLAN_OUT_OF_MEMORY)
        return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for the exact search of a plan");
      if (found != GPLAN_FOUND) low = height + 1;
      if (round == 0 && p->height - low < p->height / 64) break; /* the next round searches on */
      height = low + (p->height > low ? (p->height - 1 - low) / 2 : 0);
    }
  }
  return BS_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int32_t place_piece(piece *p, uint64_t target, uint64_t *steps, uint64_t *steps_more, bs_error *err) {
  for (uint32_t section = 0; section < p->n_sections; section++)
    if (p->total[section] > p->low) p->low = p->total[section];
  p->height = UINT64_MAX;
  int32_t rc = try_orders(p, target, err);
  if (rc == BS_OK) try_insertions(p, target);
  if (rc == BS_OK && p->height > target && *steps > 0) rc = try_exact(p, target, steps, err);
  if (rc == BS_OK && *steps_more > 0 && p->height > target + target / 20)
    rc = try_exact(p, target, steps_more, err);
  return rc;
}

static void *piece_table(char **at, size_t count, size_t size) {
  void *table = *at;
  *at += count * size;
  return table;
}

/* The number of items of the piece that begins with item `begin`. *past: the section after it. */
static uint32_t cut_piece(const gplan_problem *problem, uint32_t begin, uint32_t *past) {
  const gplan_item *items = problem->items;
  uint32_t end = begin;
  *past = items[begin].past;
  for (end++; end < problem->n && items[end].first < *past; end++)
    if (items[end].past > *past) *past = items[end].past;
  return end - begin;
}

typedef struct placing {
  uint64_t target, low;
  uint64_t steps, more; /* left of the exact search; left for pieces far from the bound */
  const char *by;
  uint64_t height;
} placing;

/* Places one piece, and writes the offsets of its blocks. */
static int32_t place_between(gplan_problem *problem, uint32_t begin, uint32_t n, uint32_t past, placing *all,
                             uint64_t *out_offsets, bs_error *err) {
  gplan_item *items = &problem->items[begin];
  const uint32_t first = items[0].first;
  piece p = {.items = items, .total = &problem->total[first], .n = n, .n_sections = past - first};
  char *memory = calloc(n, 2 * sizeof(uint64_t) + sizeof(placed_item) + 2 * sizeof(uint32_t)), *at = memory;
  if (memory == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory for a plan");
  p.offsets = piece_table(&at, n, sizeof *p.offsets);
  p.best_offsets = piece_table(&at, n, sizeof *p.best_offsets);
  p.placed = piece_table(&at, n, sizeof *p.placed);
  p.order = piece_table(&at, n, sizeof *p.order);
  p.best_order = piece_table(&at, n, sizeof *p.best_order);
  for (uint32_t i = 0; i < n; i++) {
    items[i].first -= first;
    items[i].past -= first;
  }
  const int32_t rc = place_piece(&p, all->target, &all->steps, &all->more, err);
  for (uint32_t i = 0; i < n && rc == BS_OK; i++)
    out_offsets[problem->block[begin + i]] = p.best_offsets[i] * problem->alignment;
  if (p.low > all->low) all->low = p.low;
  if (p.height > all->height) {
    all->height = p.height;
    all->by = p.by;
  }
  if (p.height > all->target) all->target = p.height; /* a lower height of the others gains nothing */
  free(memory);
  return rc;
}

int32_t gplan_place(const gplan_block *blocks, uint32_t n, const gplan_options *options,
                    uint64_t *out_offsets, gplan_arena *out, bs_error *err) {
  gplan_problem problem;
  const uint64_t most = UINT64_C(1) << 56, given = options->exact_steps < most ? options->exact_steps : most;
  memset(out, 0, sizeof *out);
  out->by = "size";
  int32_t rc = gplan_problem_make(blocks, n, options->alignment, &problem, err);
  placing all = {.target = problem.bound, .steps = given, .more = MORE * given, .by = "size"};
  for (uint32_t i = 0; i < n && rc == BS_OK; i++) out_offsets[i] = 0;
  for (uint32_t begin = 0; begin < problem.n && rc == BS_OK;) {
    uint32_t past;
    const uint32_t count = cut_piece(&problem, begin, &past);
    rc = place_between(&problem, begin, count, past, &all, out_offsets, err);
    begin += count;
  }
  if (rc == BS_OK) {
    uint32_t section = 0;
    while (section < problem.n_sections && problem.total[section] != problem.bound) section++;
    out->bytes = all.height * problem.alignment;
    out->bound = problem.bound * problem.alignment;
    out->steps = (1 + MORE) * given - all.steps - all.more;
    out->by = all.by;
    out->peak = section < problem.n_sections ? problem.last_birth[section] : 0;
    out->proven = all.low >= all.height;
  }
  gplan_problem_free(&problem);
  return rc;
}
