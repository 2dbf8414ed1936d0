/* SPDX-License-Identifier: MIT
 * exact.c - a search for offsets below a given height that proves when there are none (branch and bound over
 * canonical plans). In a canonical plan each item lies at the bottom or on another item. Items are placed in
 * the order of (offset, rank), each on its floor: the highest end of the placed items that share a section
 * with it. Every plan can be pushed down to a canonical one, so that no other plans need to be looked at. A
 * branch ends when
 *   - an item's floor, or a section's lowest floor, leaves no room for what is not placed there yet;
 *   - an item not placed yet would fit below the next one: that plan is found in another branch;
 *   - an equal item of a lower rank is not placed yet;
 *   - an item that no other rests on was placed, and no plan was found.
 * When no unplaced item crosses from one section to the next, the parts before and after are searched
 * separately.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "graph/plan/inside.h"

typedef struct saved {
  uint64_t floor;
  uint32_t item;
} saved;

typedef struct search {
  const gplan_item *items; /* by rank */
  uint32_t n, n_sections;
  uint64_t height, steps, limit;
  uint64_t *floor, *solution; /* of items */
  uint32_t *twin;             /* the equal item of the next lower rank, or GPLAN_NONE */
  uint8_t *placed;
  uint32_t *near_first, *near; /* the items that share a section with item i: near[near_first[i] ...] */
  uint64_t *total;             /* of sections: the sizes of all items */
  uint64_t *above;             /* of sections, in has_room */
  uint32_t *crossing;          /* of sections: unplaced items that also lie in the next one */
  saved *trail;                /* floors before they rose */
  size_t n_trail;
  uint32_t *pool; /* the items of parts */
  size_t n_pool;
} search;

/* Items that are searched for themselves, and the sections that they lie in. */
typedef struct part {
  uint32_t *items; /* their order may change */
  uint32_t n, first, past;
} part;

/* ---- one placement --------------------------------------------------------------------------- */

/* Raises the floors of what shares a section with `item`, which ends at `end`. How many rose. */
static uint32_t raise_floors(search *s, uint32_t item, uint64_t end) {
  uint32_t changed = 0;
  for (uint32_t k = s->near_first[item]; k < s->near_first[item + 1]; k++) {
    const uint32_t other = s->near[k];
    if (s->placed[other] || s->floor[other] >= end) continue;
    s->trail[s->n_trail++] = (saved){s->floor[other], other};
    s->floor[other] = end;
    changed++;
  }
  s->steps += s->near_first[item + 1] - s->near_first[item];
  return changed;
}

static void restore_floors(search *s, size_t n_trail) {
  while (s->n_trail > n_trail) {
    s->n_trail--;
    s->floor[s->trail[s->n_trail].item] = s->trail[s->n_trail].floor;
  }
}

/* The part's items in the order of their floors; few have changed since the last time. */
static void sort_by_floor(search *s, const part *p) {
  for (uint32_t k = 1; k < p->n; k++) {
    const uint32_t item = p->items[k];
    uint32_t to = k;
    for (; to > 0 && s->floor[p->items[to - 1]] > s->floor[item]; to--) p->items[to] = p->items[to - 1];
    p->items[to] = item;
    s->steps += 1 + k - to;
  }
}

/* Is there room for all that is not placed yet? What comes lies at `offset` or above. In each section the
 * items with the k highest floors lie above the lowest of these floors, for every k. */
static int has_room(search *s, const part *p, uint64_t offset) {
  sort_by_floor(s, p);
  for (uint32_t section = p->first; section < p->past; section++) s->above[section] = 0;
  s->steps += p->n + (p->past - p->first);
  for (uint32_t k = p->n; k-- > 0;) {
    const uint32_t item = p->items[k];
    if (s->placed[item]) continue;
    const gplan_item *it = &s->items[item];
    const uint64_t floor = s->floor[item] > offset ? s->floor[item] : offset;
    for (uint32_t section = it->first; section < it->past; section++) {
      s->above[section] += it->size;
      if (floor + s->above[section] > s->height) return 0;
    }
    s->steps += it->past - it->first;
  }
  return 1;
}

/* ---- the search ------------------------------------------------------------------------------ */

static int search_part(search *s, const part *p, uint64_t from, uint32_t from_rank);

/* The part's sections first .. past - 1 for themselves. */
static int search_between(search *s, const part *p, uint32_t first, uint32_t past, uint64_t from,
                          uint32_t from_rank) {
  const size_t n_pool = s->n_pool;
  part sub = {&s->pool[n_pool], 0, first, past};
  for (uint32_t k = 0; k < p->n; k++) {
    const uint32_t item = p->items[k];
    if (s->placed[item] || s->items[item].first < first || s->items[item].first >= past) continue;
    s->pool[s->n_pool++] = item;
    sub.n++;
  }
  s->steps += p->n;
  const int found = search_part(s, &sub, from, from_rank);
  s->n_pool = n_pool;
  return found;
}

/* `item` has just been placed: searches the rest, in parts where it was the last that held them together. */
static int search_rest(search *s, const part *p, uint32_t item, uint64_t offset) {
  const gplan_item *it = &s->items[item];
  int found = GPLAN_FOUND;
  uint32_t begin = p->first, n_cuts = 0;
  for (uint32_t section = it->first; section + 1 < it->past; section++) n_cuts += --s->crossing[section] == 0;
  s->steps += it->past - it->first;
  if (n_cuts == 0) found = search_part(s, p, offset, item + 1);
  for (uint32_t section = it->first; n_cuts > 0 && section + 1 < it->past && found == GPLAN_FOUND;
       section++) {
    if (s->crossing[section] != 0) continue;
    found = search_between(s, p, begin, section + 1, offset, item + 1);
    begin = section + 1;
  }
  if (n_cuts > 0 && found == GPLAN_FOUND) found = search_between(s, p, begin, p->past, offset, item + 1);
  for (uint32_t section = it->first; section + 1 < it->past; section++) s->crossing[section]++;
  return found;
}

/* The next item in the order of (floor, rank), from (from, from_rank) on; GPLAN_NONE at the end. Items whose
 * floor is `below` or higher would leave room for another item under them. */
static uint32_t next_item(search *s, const part *p, uint64_t from, uint32_t from_rank, uint64_t below) {
  uint32_t best = GPLAN_NONE;
  for (uint32_t k = 0; k < p->n; k++) {
    const uint32_t item = p->items[k];
    const uint64_t floor = s->floor[item];
    if (s->placed[item] || floor >= below || floor < from || (floor == from && item < from_rank)) continue;
    if (s->twin[item] != GPLAN_NONE && !s->placed[s->twin[item]]) continue;
    if (best != GPLAN_NONE && (floor > s->floor[best] || (floor == s->floor[best] && item > best))) continue;
    best = item;
  }
  s->steps += p->n;
  return best;
}

/* Items are placed at (from, from_rank) or later in the order. FOUND: solution has the part's offsets. */
static int search_part(search *s, const part *p, uint64_t from, uint32_t from_rank) {
  uint64_t below = UINT64_MAX; /* the lowest end that an unplaced item could have */
  if (s->steps > s->limit) return GPLAN_OUT_OF_STEPS;
  for (uint32_t k = 0; k < p->n; k++) {
    const uint32_t item = p->items[k];
    if (s->placed[item]) continue;
    const uint64_t end = s->floor[item] + s->items[item].size;
    if (end < below) below = end;
  }
  s->steps += p->n;
  if (below == UINT64_MAX) return GPLAN_FOUND;
  for (;;) {
    const uint32_t item = next_item(s, p, from, from_rank, below);
    if (item == GPLAN_NONE) return GPLAN_IMPOSSIBLE;
    const uint64_t offset = s->floor[item];
    const size_t n_trail = s->n_trail;
    s->placed[item] = 1;
    const uint32_t changed = raise_floors(s, item, offset + s->items[item].size);
    const int found = has_room(s, p, offset) ? search_rest(s, p, item, offset) : GPLAN_IMPOSSIBLE;
    restore_floors(s, n_trail);
    s->placed[item] = 0;
    if (found == GPLAN_FOUND) s->solution[item] = offset;
    if (found != GPLAN_IMPOSSIBLE || changed == 0) return found;
    from = offset;
    from_rank = item + 1;
  }
}

/* ---- a search from its tables ---------------------------------------------------------------- */

typedef struct rank_key {
  uint64_t key[3];
  uint32_t item;
} rank_key;

static int by_key(const void *a, const void *b) {
  const rank_key *x = a, *y = b;
  for (int k = 0; k < 3; k++)
    if (x->key[k] != y->key[k]) return x->key[k] > y->key[k] ? -1 : 1; /* the largest first */
  return x->item < y->item ? -1 : x->item > y->item;
}

/* Ranks by three keys in one of three orders: the sections that an item lies in, size times those, the
 * fullest of its sections. `round` counts rankings: three plain ones, three whose first key is multiplied by
 * a random number from 0.5 to 1.5, three plain ones, and so on. */
enum { N_RANKINGS = 3, SEED = 0x65786163 };
static void rank_items(const gplan_item *items, uint32_t n, const uint64_t *total, uint32_t round,
                       rank_key *out) {
  static const uint8_t order[N_RANKINGS][3] = {{0, 1, 2}, {2, 1, 0}, {2, 0, 1}};
  for (uint32_t i = 0; i < n; i++) {
    const uint64_t width = items[i].past - items[i].first;
    uint64_t fullest = 0;
    uint32_t random;
    for (uint32_t section = items[i].first; section < items[i].past; section++)
      if (total[section] > fullest) fullest = total[section];
    const uint64_t keys[3] = {width, width * items[i].size, fullest};
    for (int k = 0; k < 3; k++) out[i].key[k] = keys[order[round % N_RANKINGS][k]];
    if (round / N_RANKINGS % 2 == 1) {
      bs_rng_bits(SEED, round, i, 1, &random);
      out[i].key[0] = (uint64_t)((double)out[i].key[0] * (0.5 + random * 0x1p-32));
    }
    out[i].item = i;
  }
  qsort(out, n, sizeof *out, by_key);
}

static int share_section(const gplan_item *a, const gplan_item *b) {
  return a->first < b->past && b->first < a->past;
}

static void fill_tables(search *s) {
  uint32_t n_near = 0;
  memset(s->placed, 0, s->n);
  for (uint32_t i = 0; i < s->n; i++) {
    const gplan_item *it = &s->items[i];
    s->floor[i] = 0;
    s->twin[i] = GPLAN_NONE;
    s->near_first[i] = n_near;
    for (uint32_t k = 0; k < s->n; k++) {
      const gplan_item *other = &s->items[k];
      if (k == i || !share_section(it, other)) continue;
      s->near[n_near++] = k;
      if (k < i && other->size == it->size && other->first == it->first && other->past == it->past)
        s->twin[i] = k;
    }
  }
  s->near_first[s->n] = n_near;
}

/* Totals and crossings do not depend on ranks. */
static void fill_sections(search *s, const gplan_item *items) {
  for (uint32_t i = 0; i < s->n; i++) {
    for (uint32_t section = items[i].first; section < items[i].past; section++) {
      s->total[section] += items[i].size;
      if (section + 1 < items[i].past) s->crossing[section]++;
    }
  }
}

static uint64_t count_near(const gplan_item *items, uint32_t n) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < i; k++) count += 2 * (uint64_t)share_section(&items[i], &items[k]);
  return count;
}

/* Tries the rankings one after the other, with a step limit that doubles, until one has an answer. The best
 * ranking differs from plan to plan, and a search that does not end soon seldom ends late. */
static int search_in_turn(search *s, const gplan_item *items, gplan_item *ranked, rank_key *keys,
                          uint32_t *all, uint64_t *steps, uint64_t *out_offsets) {
  uint64_t left = *steps, turn = 512 * (uint64_t)s->n;
  int found = GPLAN_OUT_OF_STEPS;
  for (uint32_t i = 0; i < s->n; i++) all[i] = i;
  const part whole = {all, s->n, 0, s->n_sections};
  for (uint32_t round = 0; found == GPLAN_OUT_OF_STEPS && left > 0;) {
    rank_items(items, s->n, s->total, round, keys);
    for (uint32_t i = 0; i < s->n; i++) ranked[i] = items[keys[i].item];
    s->items = ranked;
    fill_tables(s);
    s->steps = 0;
    s->limit = turn < left ? turn : left;
    found = search_part(s, &whole, 0, 0);
    left -= s->steps < left ? s->steps : left;
    round++;
    if (round % N_RANKINGS == 0) turn *= 2;
  }
  if (found == GPLAN_FOUND)
    for (uint32_t i = 0; i < s->n; i++) out_offsets[keys[i].item] = s->solution[i];
  *steps = left;
  return found;
}

static void *take(char **at, size_t count, size_t size) {
  void *table = *at;
  *at += (count * size + 15) / 16 * 16;
  return table;
}

int gplan_exact(const gplan_item *items, uint32_t n, uint32_t n_sections, uint64_t height, uint64_t *steps,
                uint64_t *out_offsets) {
  search s = {.n = n, .n_sections = n_sections, .height = height};
  if (n > GPLAN_EXACT_MAX) return GPLAN_OUT_OF_STEPS;
  const size_t n_near = (size_t)count_near(items, n), n_pool = (size_t)n * (n + 1) / 2;
  const size_t bytes = n * (2 * sizeof(uint64_t) + 3 * sizeof(uint32_t) + 1 + sizeof(gplan_item)) +
                       n * sizeof(rank_key) + n_near * (sizeof(uint32_t) + sizeof(saved)) +
                       n_sections * (2 * sizeof(uint64_t) + sizeof(uint32_t)) + n_pool * sizeof(uint32_t) +
                       512;
  char *memory = calloc(1, bytes), *at = memory;
  if (memory == NULL) return GPLAN_OUT_OF_MEMORY;
  s.floor = take(&at, n, sizeof *s.floor);
  s.solution = take(&at, n, sizeof *s.solution);
  s.total = take(&at, n_sections, sizeof *s.total);
  s.above = take(&at, n_sections, sizeof *s.above);
  s.trail = take(&at, n_near, sizeof *s.trail);
  rank_key *keys = take(&at, n, sizeof *keys);
  gplan_item *ranked = take(&at, n, sizeof *ranked);
  s.twin = take(&at, n, sizeof *s.twin);
  s.near_first = take(&at, n + 1, sizeof *s.near_first);
  uint32_t *all = take(&at, n, sizeof *all);
  s.near = take(&at, n_near, sizeof *s.near);
  s.crossing = take(&at, n_sections, sizeof *s.crossing);
  s.pool = take(&at, n_pool, sizeof *s.pool);
  s.placed = take(&at, n, 1);
  fill_sections(&s, items);
  const int found = search_in_turn(&s, items, ranked, keys, all, steps, out_offsets);
  free(memory);
  return found;
}
