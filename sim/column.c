/* SPDX-License-Identifier: MIT
 * column.c - sampled elements: a short list of tracked places a rank. */
#include "sim/column.h"

#include <stdlib.h>
#include <string.h>

#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "sim/check.h"
#include "sim/values.h"

#define MODULUS ((UINT64_C(1) << 61) - 1)

typedef struct tracked {
  uint64_t index; /* in the buffer; in a payload: from its first element */
  uint64_t weight, order;
  uint32_t buffer;
} tracked;

typedef struct place_list {
  tracked *items;
  uint32_t n, room;
} place_list;

typedef struct parcel {
  uint32_t n;
  tracked items[];
} parcel;

struct sim_columns {
  const bs_coll_shape *shape;
  uint64_t seed;
  sim_data data;
  uint32_t n;
  uint64_t sampled[SIM_COLUMNS_MAX];
  place_list *ranks;
};

static uint64_t weight_of(const sim_columns *c, uint32_t rank, uint64_t index) {
  return sim_mix(sim_mix(c->seed + rank) ^ index) % MODULUS;
}

static uint64_t add_weights(uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum >= MODULUS ? sum - MODULUS : sum;
}

/* The mark of the sum a + b, which has the same bits as b + a. */
static uint64_t add_orders(uint64_t a, uint64_t b) {
  return a < b ? sim_mix(a ^ sim_mix(b)) : sim_mix(b ^ sim_mix(a));
}

/* ---- a rank's list ---------------------------------------------------------------------------- */

static int inside(const tracked *t, uint32_t buffer, uint64_t first, uint64_t count) {
  return t->buffer == buffer && t->index >= first && t->index - first < count;
}

static void forget(place_list *list, uint32_t buffer, uint64_t first, uint64_t count) {
  for (uint32_t i = 0; i < list->n;) {
    if (inside(&list->items[i], buffer, first, count))
      list->items[i] = list->items[--list->n];
    else
      ++i;
  }
}

static int32_t append(place_list *list, tracked t, bs_error *err) {
  if (list->n == list->room) {
    const uint32_t room = list->room == 0 ? SIM_COLUMNS_MAX : list->room * 2;
    tracked *items = realloc(list->items, room * sizeof *items);
    if (items == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for sampled elements");
    list->items = items;
    list->room = room;
  }
  list->items[list->n++] = t;
  return BS_OK;
}

static tracked *find(place_list *list, uint32_t buffer, uint64_t index) {
  for (uint32_t i = 0; i < list->n; ++i)
    if (list->items[i].buffer == buffer && list->items[i].index == index) return &list->items[i];
  return NULL;
}

static int32_t take(const place_list *list, uint32_t buffer, uint64_t first, uint64_t count, parcel **out,
                    bs_error *err) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < list->n; ++i) n += (uint32_t)inside(&list->items[i], buffer, first, count);
  parcel *p = malloc(sizeof *p + n * sizeof p->items[0]);
  if (p == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for sampled elements");
  p->n = 0;
  for (uint32_t i = 0; i < list->n; ++i) {
    if (!inside(&list->items[i], buffer, first, count)) continue;
    p->items[p->n] = list->items[i];
    p->items[p->n++].index -= first;
  }
  *out = p;
  return BS_OK;
}

static int32_t write_items(place_list *list, const sim_step *s, const parcel *p, bs_error *err) {
  int32_t rc = BS_OK;
  forget(list, s->buffer, s->first, s->count);
  for (uint32_t i = 0; rc == BS_OK && i < p->n; ++i) {
    tracked t = p->items[i];
    t.buffer = s->buffer;
    t.index += s->first;
    rc = append(list, t, err);
  }
  return rc;
}

/* A tracked element that is added to one that is not, or the other way round, spoils the sum: what was not
 * tracked has another weight. */
static int32_t add_items(place_list *list, const sim_step *s, const parcel *p, bs_error *err) {
  uint32_t met = 0, here = 0;
  for (uint32_t i = 0; i < p->n; ++i) {
    tracked *t = find(list, s->buffer, p->items[i].index + s->first);
    if (t == NULL) {
      tracked spoilt = p->items[i];
      spoilt.index += s->first;
      spoilt.buffer = s->buffer;
      spoilt.weight = spoilt.order = sim_mix(spoilt.weight);
      const int32_t rc = append(list, spoilt, err);
      if (rc != BS_OK) return rc;
      continue;
    }
    t->weight = add_weights(t->weight, p->items[i].weight);
    t->order = add_orders(t->order, p->items[i].order);
    ++met;
  }
  for (uint32_t i = 0; i < list->n; ++i)
    here += (uint32_t)inside(&list->items[i], s->buffer, s->first, s->count);
  if (met == p->n && here == met) return BS_OK;
  for (uint32_t i = 0; i < list->n; ++i) {
    tracked *t = &list->items[i];
    int found = !inside(t, s->buffer, s->first, s->count);
    for (uint32_t k = 0; !found && k < p->n; ++k) found = p->items[k].index + s->first == t->index;
    if (!found) t->weight = t->order = sim_mix(t->weight);
  }
  return BS_OK;
}

/* ---- steps ------------------------------------------------------------------------------------ */

static int32_t pack(void *user, uint32_t rank, const sim_step *s, void **out_payload, bs_error *err) {
  sim_columns *c = user;
  parcel *p = NULL;
  const int32_t rc = take(&c->ranks[rank], s->buffer, s->first, s->count, &p, err);
  *out_payload = p;
  return rc;
}

static int32_t put(void *user, uint32_t rank, const sim_step *s, const void *payload, bs_error *err) {
  sim_columns *c = user;
  return write_items(&c->ranks[rank], s, payload, err);
}

static int32_t own(sim_columns *c, uint32_t rank, const sim_step *s, int adds, bs_error *err) {
  parcel *p = NULL;
  int32_t rc = take(&c->ranks[rank], s->from_buffer, s->from_first, s->count, &p, err);
  if (rc == BS_OK)
    rc = adds ? add_items(&c->ranks[rank], s, p, err) : write_items(&c->ranks[rank], s, p, err);
  free(p);
  return rc;
}

static int32_t add(void *user, uint32_t rank, const sim_step *s, const void *payload, bs_error *err) {
  sim_columns *c = user;
  if (payload == NULL) return own(c, rank, s, 1, err);
  return add_items(&c->ranks[rank], s, payload, err);
}

static int32_t copy(void *user, uint32_t rank, const sim_step *s, bs_error *err) {
  return own(user, rank, s, 0, err);
}

static void drop(void *user, void *payload) {
  (void)user;
  free(payload);
}

/* ---- the samples ------------------------------------------------------------------------------ */

/* The sampled element of the vector as an index of this rank's IN; UINT64_MAX: it is not there. */
static uint64_t in_index(const bs_coll_shape *shape, uint32_t rank, uint64_t element) {
  if (shape->kind == BS_COLL_BROADCAST && rank != shape->root) return UINT64_MAX;
  if (shape->kind != BS_COLL_ALL_GATHER) return element;
  const uint64_t first = bs_coll_first(shape, rank), end = bs_coll_first(shape, rank + 1);
  return element >= first && element < end ? element - first : UINT64_MAX;
}

static void choose(sim_columns *c, uint32_t n) {
  const uint64_t count = c->shape->count;
  for (uint32_t i = 0; i < n && count > 0; ++i) {
    const uint64_t e = i == 0 ? 0 : i == 1 ? count - 1 : sim_mix(c->seed ^ i) % count;
    int known = 0;
    for (uint32_t k = 0; k < c->n; ++k) known |= c->sampled[k] == e;
    if (!known) c->sampled[c->n++] = e;
  }
}

int32_t sim_columns_new(const bs_coll_shape *shape, uint32_t n, uint64_t seed, sim_columns **out_columns,
                        bs_error *err) {
  sim_columns *c = calloc(1, sizeof *c);
  if (c != NULL) c->ranks = calloc(shape->world_size, sizeof *c->ranks);
  if (c == NULL || c->ranks == NULL) {
    free(c);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for sampled elements");
  }
  c->shape = shape;
  c->seed = seed;
  c->data = (sim_data){c, pack, put, add, copy, drop};
  choose(c, n < SIM_COLUMNS_MAX ? n : SIM_COLUMNS_MAX);
  int32_t rc = BS_OK;
  for (uint32_t rank = 0; rc == BS_OK && rank < shape->world_size; ++rank)
    for (uint32_t i = 0; rc == BS_OK && i < c->n; ++i) {
      const uint64_t index = in_index(shape, rank, c->sampled[i]);
      if (index == UINT64_MAX) continue;
      const tracked t = {index, weight_of(c, rank, index), sim_mix(sim_mix(rank) ^ ~index), BS_BUFFER_IN};
      rc = append(&c->ranks[rank], t, err);
    }
  if (rc != BS_OK) {
    sim_columns_free(c);
    return rc;
  }
  *out_columns = c;
  return BS_OK;
}

void sim_columns_free(sim_columns *c) {
  if (c == NULL) return;
  for (uint32_t rank = 0; rank < c->shape->world_size; ++rank) free(c->ranks[rank].items);
  free(c->ranks);
  free(c);
}

const sim_data *sim_columns_data(sim_columns *c) {
  return &c->data;
}

/* ---- judging ---------------------------------------------------------------------------------- */

/* The places of this rank's OUT where the i-th sample must be: `turn` counts them (an all-to-all has one a
 * source). UINT64_MAX: no more. */
static uint64_t out_index(const bs_coll_shape *shape, uint32_t rank, uint64_t element, uint32_t turn) {
  const uint64_t first = bs_coll_first(shape, rank), end = bs_coll_first(shape, rank + 1);
  const int mine = element >= first && element < end;
  if (shape->kind == BS_COLL_ALL_TO_ALL)
    return mine && turn < shape->world_size ? turn * (end - first) + (element - first) : UINT64_MAX;
  if (turn > 0) return UINT64_MAX;
  if (shape->kind == BS_COLL_REDUCE_SCATTER) return mine ? element - first : UINT64_MAX;
  return element;
}

static uint64_t expected(const sim_columns *c, uint32_t rank, uint64_t index, const uint64_t *sums,
                         uint32_t sample) {
  uint32_t from = 0;
  uint64_t in = 0;
  return sim_source_of(c->shape, rank, index, &from, &in) ? sums[sample] : weight_of(c, from, in);
}

static int32_t judge(sim_columns *c, uint32_t rank, uint32_t sample, const uint64_t *sums, uint32_t *out_met,
                     bs_error *err) {
  for (uint32_t turn = 0;; ++turn) {
    const uint64_t index = out_index(c->shape, rank, c->sampled[sample], turn);
    if (index == UINT64_MAX) return BS_OK;
    const tracked *t = find(&c->ranks[rank], BS_BUFFER_OUT, index);
    if (t == NULL)
      return bs_error_set(err, BS_NUMERIC, "BS-CCL-SUM",
                          "rank %u: element %llu of OUT was not written, or with another one", rank,
                          (unsigned long long)index);
    if (t->weight != expected(c, rank, index, sums, sample))
      return bs_error_set(err, BS_NUMERIC, "BS-CCL-SUM",
                          "rank %u: element %llu of OUT is not the sum of one element of each rank: a "
                          "contribution is missing, doubled or another's",
                          rank, (unsigned long long)index);
    ++*out_met;
  }
}

int32_t sim_columns_check(sim_columns *c, bs_error *err) {
  uint64_t sums[SIM_COLUMNS_MAX] = {0};
  int32_t rc = BS_OK;
  for (uint32_t i = 0; i < c->n; ++i)
    for (uint32_t rank = 0; rank < c->shape->world_size; ++rank)
      sums[i] = add_weights(sums[i], weight_of(c, rank, c->sampled[i]));
  for (uint32_t rank = 0; rc == BS_OK && rank < c->shape->world_size; ++rank) {
    uint32_t met = 0, there = 0;
    for (uint32_t i = 0; rc == BS_OK && i < c->n; ++i) rc = judge(c, rank, i, sums, &met, err);
    for (uint32_t i = 0; i < c->ranks[rank].n; ++i) there += c->ranks[rank].items[i].buffer == BS_BUFFER_OUT;
    if (rc == BS_OK && there != met)
      rc = bs_error_set(err, BS_NUMERIC, "BS-CCL-SUM", "rank %u: elements lie at wrong places of OUT", rank);
  }
  return rc;
}

int32_t sim_columns_same_order(sim_columns *c, bs_error *err) {
  for (uint32_t i = 0; i < c->n; ++i)
    for (uint32_t rank = 1; rank < c->shape->world_size; ++rank) {
      const tracked *a = find(&c->ranks[0], BS_BUFFER_OUT, c->sampled[i]);
      const tracked *b = find(&c->ranks[rank], BS_BUFFER_OUT, c->sampled[i]);
      if (a == NULL || b == NULL || a->order == b->order) continue;
      return bs_error_set(err, BS_NUMERIC, "BS-CCL-ORDER",
                          "ranks 0 and %u add element %llu in different orders: their bits may differ", rank,
                          (unsigned long long)c->sampled[i]);
    }
  return BS_OK;
}
