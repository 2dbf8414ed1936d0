/* SPDX-License-Identifier: MIT
 * check_static.c - level V4: what can be said of a schedule without running it on values. */
#include <stdlib.h>
#include <string.h>

#include "blockshock/plugin.h"
#include "core/base/error.h"
#include "sim/check.h"

/* One end of a transfer. */
typedef struct end {
  uint32_t from, to, number; /* number: of the rank's steps, so that ends sort in the order emitted */
  bs_coll_step step;
} end;

typedef struct ends {
  end *items;
  size_t n, room;
} ends;

/* Elements that a round reads for a send, or writes by a receive. */
typedef struct touch {
  uint32_t buffer, writes;
  uint64_t first, behind;
  bs_coll_step step;
} touch;

typedef struct reading {
  const sim_case *c;
  uint32_t rank, number;
  uint64_t scratch;
  bs_coll_step last;
  ends sends, receives;
  touch *round;
  size_t n_round, room_round;
  bs_error *err;
} reading;

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for the steps of a schedule");
}

static int32_t add_end(ends *list, end e, bs_error *err) {
  if (list->n == list->room) {
    const size_t room = list->room == 0 ? 256 : list->room * 2;
    end *items = realloc(list->items, room * sizeof *items);
    if (items == NULL) return no_memory(err);
    list->items = items;
    list->room = room;
  }
  list->items[list->n++] = e;
  return BS_OK;
}

/* ---- overlaps in a round ---------------------------------------------------------------------- */

static int by_place(const void *left, const void *right) {
  const touch *a = left, *b = right;
  if (a->buffer != b->buffer) return a->buffer < b->buffer ? -1 : 1;
  return (a->first > b->first) - (a->first < b->first);
}

static int32_t overlap(const reading *r, const touch *a, const touch *b) {
  char first[160], second[160];
  const touch *writes = a->writes ? a : b, *other = a->writes ? b : a;
  sim_step_text(r->rank, &writes->step, first, sizeof first);
  sim_step_text(r->rank, &other->step, second, sizeof second);
  return bs_error_set(r->err, BS_PLUGIN, "BS-CCL-OVERLAP",
                      "%s: it overwrites elements of the same round, which are in flight: %s", first, second);
}

/* Sorted by place, a touch meets an earlier one that reaches over its beginning. */
static int32_t end_round(reading *r) {
  const touch *reads = NULL, *writes = NULL;
  int32_t rc = BS_OK;
  if (r->n_round > 1) qsort(r->round, r->n_round, sizeof *r->round, by_place);
  for (size_t i = 0; i < r->n_round && rc == BS_OK; ++i) {
    const touch *t = &r->round[i];
    if (writes != NULL && writes->buffer == t->buffer && writes->behind > t->first)
      rc = overlap(r, writes, t);
    if (rc == BS_OK && t->writes && reads != NULL && reads->buffer == t->buffer && reads->behind > t->first)
      rc = overlap(r, t, reads);
    const touch **latest = t->writes ? &writes : &reads;
    if (*latest == NULL || (*latest)->buffer != t->buffer || (*latest)->behind < t->behind) *latest = t;
  }
  r->n_round = 0;
  return rc;
}

static int32_t add_touch(reading *r, const bs_coll_step *step) {
  const bs_coll_shape *shape = r->c->shape;
  if (r->n_round == r->room_round) {
    const size_t room = r->room_round == 0 ? 64 : r->room_round * 2;
    touch *round = realloc(r->round, room * sizeof *round);
    if (round == NULL) return no_memory(r->err);
    r->round = round;
    r->room_round = room;
  }
  touch t = {step->buffer, step->action == BS_STEP_RECV, step->first, step->first + step->count, *step};
  /* In place IN lies in OUT. */
  if (t.buffer == BS_BUFFER_IN && shape->kind != BS_COLL_REDUCE_SCATTER &&
      shape->kind != BS_COLL_ALL_TO_ALL) {
    const uint64_t at = shape->kind == BS_COLL_ALL_GATHER ? bs_coll_first(shape, r->rank) : 0;
    t.buffer = BS_BUFFER_OUT;
    t.first += at;
    t.behind += at;
  }
  r->round[r->n_round++] = t;
  return BS_OK;
}

/* ---- reading ---------------------------------------------------------------------------------- */

static int32_t on_step(void *user, const bs_coll_step *step) {
  reading *r = user;
  int32_t rc = sim_step_check(r->c->shape, r->scratch, r->rank, step, r->err);
  if (rc == BS_OK && r->number > 0 && step->round < r->last.round) {
    char text[160];
    sim_step_text(r->rank, step, text, sizeof text);
    rc = bs_error_set(r->err, BS_PLUGIN, "BS-ALG-STEP", "%s: it comes after round %u", text, r->last.round);
  }
  if (rc == BS_OK && r->number > 0 && step->round != r->last.round) rc = end_round(r);
  r->last = *step;
  const uint32_t number = r->number++;
  if (rc != BS_OK || step->count == 0 || step->action == BS_STEP_COPY) return rc;
  if (step->action == BS_STEP_REDUCE && step->peer == r->rank) return rc;
  const int sends = step->action == BS_STEP_SEND;
  if (step->action != BS_STEP_REDUCE) rc = add_touch(r, step);
  const end e = {sends ? r->rank : step->peer, sends ? step->peer : r->rank, number, *step};
  return rc != BS_OK ? rc : add_end(sends ? &r->sends : &r->receives, e, r->err);
}

static int by_pair(const void *left, const void *right) {
  const end *a = left, *b = right;
  if (a->from != b->from) return a->from < b->from ? -1 : 1;
  if (a->to != b->to) return a->to < b->to ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}

static int pair_order(const end *a, const end *b) {
  if (a->from != b->from) return a->from < b->from ? -1 : 1;
  return (a->to > b->to) - (a->to < b->to);
}

static int32_t alone(const end *e, int sends, bs_error *err) {
  char text[160];
  sim_step_text(sends ? e->from : e->to, &e->step, text, sizeof text);
  return bs_error_set(err, BS_PLUGIN, "BS-CCL-PAIR", "%s: rank %u has no %s for it", text,
                      sends ? e->to : e->from, sends ? "RECV or REDUCE" : "SEND");
}

static int32_t match(reading *r) {
  const ends *s = &r->sends, *v = &r->receives;
  if (s->n > 1) qsort(s->items, s->n, sizeof *s->items, by_pair);
  if (v->n > 1) qsort(v->items, v->n, sizeof *v->items, by_pair);
  for (size_t i = 0; i < s->n || i < v->n; ++i) {
    const int order = i == s->n ? 1 : i == v->n ? -1 : pair_order(&s->items[i], &v->items[i]);
    if (order < 0) return alone(&s->items[i], 1, r->err);
    if (order > 0) return alone(&v->items[i], 0, r->err);
    if (s->items[i].step.count == v->items[i].step.count) continue;
    char first[160], second[160];
    sim_step_text(s->items[i].from, &s->items[i].step, first, sizeof first);
    sim_step_text(s->items[i].to, &v->items[i].step, second, sizeof second);
    return bs_error_set(r->err, BS_PLUGIN, "BS-CCL-SIZE", "%s has another size than %s, which takes it",
                        first, second);
  }
  return BS_OK;
}

int32_t sim_check_static(const sim_case *c, bs_error *err) {
  reading r = {.c = c, .err = err};
  int32_t rc = BS_OK;
  for (r.rank = 0; rc == BS_OK && r.rank < c->shape->world_size; ++r.rank) {
    r.number = 0;
    rc = sim_case_stop(c, err);
    if (rc == BS_OK)
      rc = sim_scratch_of(c->request->algorithm, c->request->state, c->shape, r.rank, &r.scratch, err);
    if (rc == BS_OK) rc = sim_case_steps(c, r.rank, on_step, &r, err);
    if (rc == BS_OK) rc = end_round(&r);
  }
  if (rc == BS_OK) rc = match(&r);
  free(r.sends.items);
  free(r.receives.items);
  free(r.round);
  return rc != BS_OK ? rc : sim_case_run(c, NULL, err); /* a cycle of waiting ranks is stuck there */
}
