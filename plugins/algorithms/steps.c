/* SPDX-License-Identifier: MIT
 * steps.c - emitting steps, and ranges. */
#include "steps.h"

static void emit(steps *s, const bs_coll_step *step) {
  if (s->rc == 0 && step->count > 0 && step->round >= s->shape->from_round) s->rc = s->emit(s->user, step);
}

static bs_coll_step blank(const steps *s, uint32_t action, uint32_t peer, uint32_t buffer, range r) {
  const bs_coll_step step = {.struct_size = (uint32_t)sizeof step,
                             .round = s->round,
                             .action = action,
                             .peer = peer,
                             .buffer = buffer,
                             .first = r.first,
                             .count = r.count};
  return step;
}

void steps_send(steps *s, uint32_t to, uint32_t buffer, range what) {
  const bs_coll_step step = blank(s, BS_STEP_SEND, to, buffer, what);
  emit(s, &step);
}

void steps_recv(steps *s, uint32_t from, uint32_t buffer, range where) {
  const bs_coll_step step = blank(s, BS_STEP_RECV, from, buffer, where);
  emit(s, &step);
}

void steps_reduce(steps *s, uint32_t from, uint32_t buffer, range where) {
  const bs_coll_step step = blank(s, BS_STEP_REDUCE, from, buffer, where);
  emit(s, &step);
}

void steps_copy(steps *s, uint32_t from_buffer, uint64_t from_first, uint32_t buffer, range where) {
  bs_coll_step step = blank(s, BS_STEP_COPY, 0, buffer, where);
  step.from_buffer = from_buffer;
  step.from_first = from_first;
  emit(s, &step);
}

void steps_add(steps *s, uint32_t from_buffer, uint64_t from_first, uint32_t buffer, range where) {
  bs_coll_step step = blank(s, BS_STEP_REDUCE, s->rank, buffer, where);
  step.from_buffer = from_buffer;
  step.from_first = from_first;
  emit(s, &step);
}

void steps_copy_in(steps *s) {
  steps_copy(s, BS_BUFFER_IN, 0, BS_BUFFER_OUT, range_all(s->shape));
}

uint32_t steps_skip(steps *s, uint32_t rounds) {
  const uint32_t from = s->shape->from_round, gone = from > s->round ? from - s->round : 0;
  const uint32_t skipped = gone < rounds ? gone : rounds;
  s->round += skipped;
  return skipped;
}

range range_all(const bs_coll_shape *shape) {
  const range r = {0, shape->count};
  return r;
}

range range_block(const bs_coll_shape *shape, uint32_t b) {
  const uint64_t first = bs_coll_first(shape, b), end = bs_coll_first(shape, b + 1);
  const range r = {first, end - first};
  return r;
}

range range_part(range r, uint32_t i, uint32_t n) {
  const uint64_t whole = r.count / n, rest = r.count % n; /* rest * n fits: both are below 2^32 */
  const uint64_t first = whole * i + rest * i / n, end = whole * (i + 1u) + rest * (i + 1u) / n;
  const range part = {r.first + first, end - first};
  return part;
}

uint32_t floor_log2(uint32_t n) {
  uint32_t log = 0;
  while (n > 1) {
    n /= 2;
    ++log;
  }
  return log;
}

uint32_t ceil_log2(uint32_t n) {
  const uint32_t log = floor_log2(n);
  return n > 1u << log ? log + 1 : log;
}

double cost_bytes(const bs_coll_shape *shape) {
  return (double)shape->count * (double)shape->element_bytes;
}

double cost_byte(const bs_link *link) {
  return link->bytes_per_s > 0 ? 1 / link->bytes_per_s : 0;
}

double cost_ring(uint32_t n, double bytes, const bs_link *link) {
  const double rounds = 2.0 * (n - 1.0);
  return rounds * link->latency_s + rounds / n * bytes * cost_byte(link);
}

double cost_halving_doubling(uint32_t n, double bytes, const bs_link *link) {
  const double active = (double)(1u << floor_log2(n));
  const double halving =
      2.0 * floor_log2(n) * link->latency_s + 2.0 * (active - 1) / active * bytes * cost_byte(link);
  return n > active ? halving + 2 * (link->latency_s + bytes * cost_byte(link)) : halving;
}

int32_t need_kind(const char *who, uint64_t kinds, const bs_coll_shape *shape, bs_error *err) {
  if (shape->kind < BS_COLL_COUNT_ && (kinds & KIND(shape->kind)) != 0) return BS_OK;
  return bs_fail(
      err, BS_UNSUPPORTED, "BS-ALG-KIND", "the algorithm %s has no schedule of %s", who,
      shape->kind < BS_COLL_COUNT_ ? bs_name_of(BS_NAMES_COLL, shape->kind) : "an unknown collective");
}
