/* SPDX-License-Identifier: MIT
 * party.c - collectives of some ranks over a range of OUT: rings, halving and doubling. */
#include "steps.h"

party party_world(const steps *s) {
  const party g = {
      .base = 0, .stride = 1, .size = s->shape->world_size, .me = s->rank, .all = range_all(s->shape)};
  return g;
}

uint32_t party_rank(const party *g, uint32_t member) {
  return g->base + g->stride * (g->mirrored ? g->size - 1 - member : member);
}

range party_block(const party *g, uint32_t member) {
  return g->blocks != NULL ? range_block(g->blocks, member) : range_part(g->all, member, g->size);
}

/* Member number i of a ring of n, for i from -n on. */
static uint32_t around(int64_t i, uint32_t n) {
  return (uint32_t)((i % n + n) % n);
}

void party_reduce_scatter_step(steps *s, const party *g, uint32_t step) {
  const int64_t me = g->me;
  const uint32_t next = party_rank(g, around(me + 1, g->size));
  const uint32_t before = party_rank(g, around(me - 1, g->size));
  steps_send(s, next, BS_BUFFER_OUT, party_block(g, around(me - step - 1, g->size)));
  steps_reduce(s, before, BS_BUFFER_OUT, party_block(g, around(me - step - 2, g->size)));
}

void party_all_gather_step(steps *s, const party *g, uint32_t step) {
  const int64_t me = g->me;
  const uint32_t next = party_rank(g, around(me + 1, g->size));
  const uint32_t before = party_rank(g, around(me - 1, g->size));
  steps_send(s, next, BS_BUFFER_OUT, party_block(g, around(me - step, g->size)));
  steps_recv(s, before, BS_BUFFER_OUT, party_block(g, around(me - step - 1, g->size)));
}

void party_reduce_scatter(steps *s, const party *g) {
  for (uint32_t step = steps_skip(s, g->size - 1); step + 1 < g->size && s->rc == 0; ++step) {
    party_reduce_scatter_step(s, g, step);
    ++s->round;
  }
}

void party_all_gather(steps *s, const party *g) {
  for (uint32_t step = steps_skip(s, g->size - 1); step + 1 < g->size && s->rc == 0; ++step) {
    party_all_gather_step(s, g, step);
    ++s->round;
  }
}

/* ---- sizes that are no power of two ---------------------------------------------------------- */

folded fold(const party *g) {
  folded f = {.active = 1u << floor_log2(g->size)};
  f.extra = g->size - f.active;
  f.me = g->me >= 2 * f.extra ? g->me - f.extra : g->me % 2 == 1 ? g->me / 2 : UINT32_MAX;
  return f;
}

uint32_t fold_member(const folded *f, uint32_t active) {
  return active < f->extra ? 2 * active + 1 : active + f->extra;
}

void fold_in(steps *s, const party *g, const folded *f) {
  if (f->extra == 0) return;
  if (f->me == UINT32_MAX) {
    steps_send(s, party_rank(g, g->me + 1), BS_BUFFER_OUT, g->all);
  } else if (f->me < f->extra) {
    steps_reduce(s, party_rank(g, g->me - 1), BS_BUFFER_OUT, g->all);
  }
  ++s->round;
}

void fold_out(steps *s, const party *g, const folded *f) {
  if (f->extra == 0) return;
  if (f->me == UINT32_MAX) {
    steps_recv(s, party_rank(g, g->me + 1), BS_BUFFER_OUT, g->all);
  } else if (f->me < f->extra) {
    steps_send(s, party_rank(g, g->me - 1), BS_BUFFER_OUT, g->all);
  }
  ++s->round;
}

/* Blocks low .. high - 1 of the active members' even blocks, as one range. */
static range blocks_of(const party *g, const folded *f, uint32_t low, uint32_t high) {
  const range first = range_part(g->all, low, f->active), last = range_part(g->all, high - 1, f->active);
  const range all = {first.first, last.first + last.count - first.first};
  return all;
}

/* Halving: with the partner at half the distance each time, a member keeps the half of its blocks that its
 * own block lies in. Doubling: the same backwards. */
void party_halving_doubling(steps *s, const party *g) {
  const folded f = fold(g);
  fold_in(s, g, &f);
  uint32_t low = 0, high = f.active;
  for (uint32_t d = f.active / 2; d > 0; d /= 2, ++s->round) {
    if (f.me == UINT32_MAX) continue;
    const uint32_t partner = party_rank(g, fold_member(&f, f.me ^ d)), middle = low + d;
    const int upper = (f.me & d) != 0;
    steps_send(s, partner, BS_BUFFER_OUT,
               upper ? blocks_of(g, &f, low, middle) : blocks_of(g, &f, middle, high));
    low = upper ? middle : low;
    high = upper ? high : middle;
    steps_reduce(s, partner, BS_BUFFER_OUT, blocks_of(g, &f, low, high));
  }
  for (uint32_t d = 1; d < f.active; d *= 2, ++s->round) {
    if (f.me == UINT32_MAX) continue;
    const uint32_t partner = party_rank(g, fold_member(&f, f.me ^ d));
    const uint32_t mine = f.me / d * d, theirs = mine ^ d;
    steps_send(s, partner, BS_BUFFER_OUT, blocks_of(g, &f, mine, mine + d));
    steps_recv(s, partner, BS_BUFFER_OUT, blocks_of(g, &f, theirs, theirs + d));
  }
  fold_out(s, g, &f);
}
