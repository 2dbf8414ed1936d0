/* SPDX-License-Identifier: MIT
 * part.c - see part.h. */
#include "sim/part.h"

#include <stdlib.h>

#include "sim/cache.h"

int sim_part_open(sim_part *p) {
  const uint32_t n = p->workers > 0 ? p->workers : 1;
  p->free = calloc(n, sizeof *p->free);
  if (p->kind == SIM_MEMORY) {
    p->piece_bytes = calloc(n, sizeof *p->piece_bytes);
    p->pieces = calloc(n, sizeof *p->pieces);
    p->served = calloc(n, sizeof *p->served);
  }
  if (p->kind == SIM_CACHE) p->cache = sim_cache_new(p->bytes);
  return p->free != NULL &&
         (p->kind != SIM_MEMORY || (p->piece_bytes != NULL && p->pieces != NULL && p->served != NULL)) &&
         (p->kind != SIM_CACHE || p->cache != NULL);
}

void sim_part_close(sim_part *p) {
  free(p->free);
  free(p->piece_bytes);
  free(p->pieces);
  free(p->served);
  sim_cache_free(p->cache);
  p->free = p->piece_bytes = p->served = NULL;
  p->pieces = NULL;
  p->cache = NULL;
}

/* The worker that is free first. */
static uint64_t *first_free(sim_part *p) {
  uint64_t *best = p->free;
  for (uint32_t w = 1; w < p->workers; w++)
    if (p->free[w] < *best) best = &p->free[w];
  return best;
}

static void count(sim_part *p, uint64_t amount, uint64_t waited) {
  p->jobs++;
  p->amount += amount;
  p->waited += waited;
  p->waits++;
}

void sim_part_serve(sim_part *p, uint64_t amount, sim_flow *t) {
  uint64_t *free_at = first_free(p);
  const uint64_t begin = sim_max(t->whole, *free_at);
  const uint64_t units = p->grain > 1 ? (amount + p->grain - 1) / p->grain * p->grain : amount;
  const uint64_t takes = sim_add(p->first, sim_bytes_ps(units, p->q32));
  count(p, amount, begin - t->whole);
  p->busy = sim_add(p->busy, takes);
  *free_at = sim_add(begin, takes);
  t->head = t->tail = t->whole = *free_at;
}

static uint64_t flit_ps(const sim_part *p, uint64_t bytes) {
  return sim_bytes_ps(p->flit > 0 && p->flit < bytes ? p->flit : bytes, p->q32);
}

void sim_part_pass(sim_part *p, uint64_t bytes, sim_flow *t) {
  uint64_t *free_at = first_free(p);
  const uint64_t begin = sim_max(t->head, *free_at);
  const uint64_t takes = sim_bytes_ps(bytes, p->q32), flit = flit_ps(p, bytes);
  const uint64_t end = sim_max(sim_add(begin, takes), sim_add(t->tail, flit));
  count(p, bytes, begin - t->head);
  p->busy = sim_add(p->busy, takes);
  *free_at = end;
  t->head = sim_add(begin, p->first);
  t->whole = sim_add(end, p->first);
  t->tail = t->whole - (t->whole == SIM_NEVER ? 0 : flit);
}

/* ---- memory ------------------------------------------------------------------------------------ */

typedef struct touched {
  uint64_t head, last, begin,
      end; /* last: the last flit has come; begin: of the first channel; end: of the last */
  uint64_t known_bytes, known_ps; /* the last division */
} touched;

/* What one channel does for the token: so many pieces, so many bytes. */
static void serve_channel(sim_part *p, uint32_t channel, uint64_t pieces, uint64_t bytes, touched *t) {
  if (bytes != t->known_bytes) {
    t->known_bytes = bytes;
    t->known_ps = sim_bytes_ps(bytes, p->q32);
  }
  const uint64_t begin = sim_max(t->head, p->free[channel]);
  const uint64_t gaps = pieces * p->gap, takes = sim_add(t->known_ps, gaps);
  const uint64_t end = sim_max(sim_add(begin, takes), t->last);
  p->free[channel] = end;
  p->busy = sim_add(p->busy, takes);
  p->served[channel] = sim_add(p->served[channel], takes);
  p->gaps = sim_add(p->gaps, gaps);
  p->waited += begin - t->head;
  p->waits++;
  if (begin < t->begin) t->begin = begin;
  if (end > t->end) t->end = end;
}

/* One run of bytes: its blocks go round the channels, so each channel's share is known without a loop over
 * blocks. */
static void access_run(sim_part *p, uint64_t address, uint64_t bytes, touched *t) {
  const uint64_t unit = p->interleave, first = address / unit, last = (address + bytes - 1) / unit;
  const uint64_t blocks = last - first + 1, n = p->workers;
  const uint64_t touch = blocks < n ? blocks : n, ends_at = (blocks - 1) % n;
  uint32_t channel = (uint32_t)(first % n);
  for (uint64_t j = 0; j < touch; j++) {
    const uint64_t mine = (blocks - j + n - 1) / n;
    uint64_t of = mine * unit;
    if (j == 0) of -= address - first * unit;
    if (j == ends_at) of -= (last + 1) * unit - (address + bytes);
    serve_channel(p, channel, mine, of, t);
    if (++channel == n) channel = 0;
  }
}

/* Several rows: the pieces are added up for each channel, which then serves them together. */
static void access_rows(sim_part *p, const sim_request *r, touched *t) {
  const uint64_t each = r->bytes / r->rows, unit = p->interleave;
  for (uint32_t row = 0; row < r->rows; row++) {
    uint64_t at = r->address + row * r->pitch, left = each;
    while (left > 0) {
      const uint64_t room = unit - at % unit, n = left < room ? left : room;
      const uint32_t channel = (uint32_t)(at / unit % p->workers);
      p->pieces[channel]++;
      p->piece_bytes[channel] += n;
      at += n;
      left -= n;
    }
  }
  for (uint32_t c = 0; c < p->workers; c++) {
    if (p->pieces[c] == 0) continue;
    serve_channel(p, c, p->pieces[c], p->piece_bytes[c], t);
    p->pieces[c] = 0;
    p->piece_bytes[c] = 0;
  }
}

void sim_part_access(sim_part *p, const sim_request *r, sim_flow *t) {
  const uint64_t flit = flit_ps(p, r->bytes);
  const uint64_t last = sim_max(sim_add(t->tail, flit), t->whole);
  touched all = {.head = t->head, .last = last, .begin = SIM_NEVER};
  p->jobs++;
  p->amount += r->bytes;
  if (r->bytes == 0) { /* a command alone */
    t->head = sim_add(t->head, p->first);
    t->tail = t->whole = sim_add(t->whole, p->first);
    return;
  }
  if (r->rows > 1)
    access_rows(p, r, &all);
  else
    access_run(p, r->address, r->bytes, &all);
  t->head = sim_add(sim_add(all.begin, p->first), flit);
  t->tail = t->whole = sim_add(all.end, p->first);
}

/* ---- queues ------------------------------------------------------------------------------------ */

static void wait_in(sim_waiter **first, sim_waiter **last, sim_waiter *waiter) {
  waiter->next = NULL;
  if (*first == NULL)
    *first = waiter;
  else
    (*last)->next = waiter;
  *last = waiter;
}

static sim_waiter *next_of(sim_waiter **first) {
  sim_waiter *waiter = *first;
  if (waiter != NULL) *first = waiter->next;
  return waiter;
}

int sim_part_take(sim_part *p, uint64_t now, sim_waiter *waiter, uint64_t *out_at) {
  uint64_t *slot = first_free(p);
  if (*slot == SIM_NEVER || p->want_slot != NULL) {
    wait_in(&p->want_slot, &p->want_slot_last, waiter);
    return 0;
  }
  *out_at = sim_max(now, *slot);
  *slot = SIM_NEVER;
  return 1;
}

sim_waiter *sim_part_give(sim_part *p, uint64_t now, uint64_t *out_at) {
  sim_waiter *waiter = next_of(&p->want_slot);
  *out_at = sim_add(now, p->credit);
  for (uint32_t s = 0; waiter == NULL && s < p->workers; s++)
    if (p->free[s] == SIM_NEVER) {
      p->free[s] = *out_at;
      break;
    }
  return waiter;
}

int sim_part_get(sim_part *p, sim_waiter *waiter) {
  if (p->items == 0 || p->want_item != NULL) {
    wait_in(&p->want_item, &p->want_item_last, waiter);
    return 0;
  }
  p->items--;
  return 1;
}

sim_waiter *sim_part_put(sim_part *p) {
  sim_waiter *waiter = next_of(&p->want_item);
  p->items += waiter == NULL;
  return waiter;
}
