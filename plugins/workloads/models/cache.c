/* SPDX-License-Identifier: MIT
 * cache.c - a bounded cache of units (cache.h): one mutex for the table, units are made outside it. Slots are
 * reused by the clock rule: the hand passes over those in use and gives those read since its last turn
 * another one. A thread holds one slot at a time, so waiting for a slot ends. */
#include "cache.h"

#include <inttypes.h>
#include <pthread.h>

enum slot_state { SLOT_FREE = 0, SLOT_MAKING = 1, SLOT_READY = 2 };

typedef struct slot {
  void *data; /* allocated when first used */
  int64_t unit;
  uint32_t state; /* enum slot_state */
  uint32_t pins;
  uint32_t recent;
  uint32_t reserved;
} slot;

struct models_cache {
  models_cache_spec spec;
  pthread_mutex_t lock;
  pthread_cond_t changed; /* a unit was finished or failed, a pin was given back */
  int64_t n_slots, hand, n_held;
  slot *slots;
  int64_t *slot_of; /* [n_units]: slot + 1, 0 for none */
};

int32_t models_cache_make(const models_cache_spec *spec, models_cache **out_cache, bs_error *err) {
  const bs_host *h = spec->host;
  int64_t slots = (int64_t)(spec->max_bytes / (spec->unit_bytes + sizeof(slot)));
  models_cache *c = h->alloc(h->ctx, sizeof *c, 0);
  if (c == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate %zu bytes", sizeof *c);
  if (slots < spec->min_kept) slots = spec->min_kept;
  if (slots < 1) slots = 1;
  c->spec = *spec;
  c->n_slots = slots < spec->n_units ? slots : spec->n_units;
  c->slots = h->alloc(h->ctx, (uint64_t)c->n_slots * sizeof *c->slots, 0);
  c->slot_of = h->alloc(h->ctx, (uint64_t)spec->n_units * sizeof *c->slot_of, 0);
  if (c->slots == NULL || c->slot_of == NULL) {
    h->free(h->ctx, c->slots);
    h->free(h->ctx, c->slot_of);
    h->free(h->ctx, c);
    return bs_fail(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate the table of %" PRId64 " parts of X",
                   spec->n_units);
  }
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  *out_cache = c;
  return BS_OK;
}

/* Takes a slot for `unit`, which has none: its own if every unit has one, else an unused one, emptied; -1:
 * all are in use. */
static int64_t take_slot(models_cache *c, int64_t unit) {
  if (c->n_slots == c->spec.n_units) return unit;
  for (int64_t turn = 0; turn < 2 * c->n_slots; turn++) {
    int64_t at = c->hand;
    slot *s = &c->slots[at];
    c->hand = at + 1 < c->n_slots ? at + 1 : 0;
    if (s->state == SLOT_MAKING || s->pins > 0) continue;
    if (s->state == SLOT_READY && s->recent) {
      s->recent = 0;
      continue;
    }
    if (s->state == SLOT_READY) c->slot_of[s->unit] = 0;
    s->state = SLOT_FREE;
    return at;
  }
  return -1;
}

/* Makes `unit` in the taken slot `at`, without the lock meanwhile; the slot is pinned when it is ready. */
static int32_t make_unit(models_cache *c, int64_t at, int64_t unit, bs_error *err) {
  const bs_host *h = c->spec.host;
  slot *s = &c->slots[at];
  int32_t rc = BS_OK;
  s->unit = unit;
  s->state = SLOT_MAKING;
  c->slot_of[unit] = at + 1;
  pthread_mutex_unlock(&c->lock);
  void *data = s->data != NULL ? s->data : h->alloc(h->ctx, c->spec.unit_bytes, 0);
  if (data == NULL)
    rc = bs_fail(err, BS_NO_MEMORY, "BS-MEM", "cannot allocate %" PRIu64 " bytes for a part of X",
                 c->spec.unit_bytes);
  else
    rc = c->spec.build(c->spec.ctx, unit, data, err);
  pthread_mutex_lock(&c->lock);
  if (s->data == NULL && data != NULL) c->n_held++;
  s->data = data;
  s->state = rc == BS_OK ? SLOT_READY : SLOT_FREE;
  s->pins = rc == BS_OK;
  s->recent = 1;
  if (rc != BS_OK) c->slot_of[unit] = 0;
  pthread_cond_broadcast(&c->changed);
  return rc;
}

int32_t models_cache_get(models_cache *c, int64_t unit, const void **out_data, int64_t *out_slot,
                         bs_error *err) {
  int32_t rc = BS_OK;
  pthread_mutex_lock(&c->lock);
  for (;;) {
    int64_t at = c->slot_of[unit] - 1;
    if (at >= 0 && c->slots[at].state == SLOT_READY) {
      c->slots[at].pins++;
      c->slots[at].recent = 1;
      *out_slot = at;
      break;
    }
    if (at < 0 && (at = take_slot(c, unit)) >= 0) {
      rc = make_unit(c, at, unit, err);
      *out_slot = at;
      break;
    }
    pthread_cond_wait(&c->changed, &c->lock);
  }
  if (rc == BS_OK) *out_data = c->slots[*out_slot].data;
  pthread_mutex_unlock(&c->lock);
  return rc;
}

/* The caller holds the lock. */
static void unpin(models_cache *c, int64_t at) {
  if (--c->slots[at].pins == 0 && c->n_slots < c->spec.n_units) pthread_cond_broadcast(&c->changed);
}

void models_cache_release(models_cache *c, int64_t at) {
  pthread_mutex_lock(&c->lock);
  unpin(c, at);
  pthread_mutex_unlock(&c->lock);
}

int32_t models_cache_share(models_cache *c, int64_t first, int64_t count, bs_error *err) {
  int32_t rc = BS_OK;
  if (c->n_slots < c->spec.n_units) return BS_OK;
  pthread_mutex_lock(&c->lock);
  for (int64_t unit = first; unit < first + count && rc == BS_OK; unit++) {
    if (c->slot_of[unit] != 0) continue;
    rc = make_unit(c, unit, unit, err);
    if (rc == BS_OK) unpin(c, unit);
  }
  pthread_mutex_unlock(&c->lock);
  return rc;
}

uint64_t models_cache_bytes(models_cache *c) {
  pthread_mutex_lock(&c->lock);
  uint64_t bytes = (uint64_t)c->n_held * c->spec.unit_bytes;
  pthread_mutex_unlock(&c->lock);
  return bytes;
}

void models_cache_free(models_cache *c) {
  if (c == NULL) return;
  const bs_host *h = c->spec.host;
  for (int64_t i = 0; i < c->n_slots; i++) h->free(h->ctx, c->slots[i].data);
  h->free(h->ctx, c->slots);
  h->free(h->ctx, c->slot_of);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
  h->free(h->ctx, c);
}
