/* SPDX-License-Identifier: MIT
 *
 * coll_rounds.c - the schedule of one rank: asked of the algorithm once, every step checked against the
 * buffers before any of them is run, and kept. A schedule of many thousand steps (a ring of thousands of
 * ranks) is kept in parts: a part holds whole rounds, and the algorithm is asked for the next one when it has
 * been run.
 */
#include <stdlib.h>
#include <string.h>

#include "blockshock/plugin.h"
#include "core/base/size.h"
#include "core/base/steps.h"
#include "core/world/coll_rounds.h"

#define KEPT 1024u      /* steps of a part, or of the round with the most */
#define FULL BS_ABORTED /* what ends a schedule whose steps have no more room */

typedef struct scan {
  const bs_coll_rounds *r;
  uint64_t steps; /* that do something */
  uint32_t last, any, rounds;
  uint32_t in_round, most_in_round;
  uint32_t calls, most_calls;
  uint64_t landing, most_landing;
  bs_error *err;
} scan;

static const char *const action_names[] = {"?", "send", "recv", "reduce", "copy"};
static const char *const buffer_names[] = {"in", "out", "scratch"};

static int32_t wrong(const scan *s, const bs_coll_step *step, const char *what, uint64_t value) {
  const char *action = step->action <= BS_STEP_COPY ? action_names[step->action] : "step";
  bs_error_set(s->err, BS_PLUGIN, "BS-COLL-STEP",
               "algorithm %s, rank %u of %u, round %u: %s of elements %llu to %llu: %s (%llu)",
               s->r->algorithm->name, s->r->plan->me, s->r->plan->n, step->round, action,
               (unsigned long long)step->first, (unsigned long long)(step->first + step->count), what,
               (unsigned long long)value);
  bs_error_where(s->err, "%s", s->r->plan->site);
  bs_error_hint(s->err, "bsrun coll check %s looks at all ranks", s->r->algorithm->name);
  return BS_PLUGIN;
}

static int32_t check_range(const scan *s, const bs_coll_step *step, uint32_t buffer, uint64_t first) {
  uint64_t end = 0;
  if (buffer >= BS_ROUNDS_BUFFERS) return wrong(s, step, "unknown buffer", buffer);
  if (bs_add_u64(first, step->count, &end) && end <= s->r->elements[buffer]) return BS_OK;
  bs_error_set(s->err, BS_PLUGIN, "BS-COLL-STEP",
               "algorithm %s, rank %u of %u, round %u: %s of %llu elements from %llu on: %s has %llu",
               s->r->algorithm->name, s->r->plan->me, s->r->plan->n, step->round, action_names[step->action],
               (unsigned long long)step->count, (unsigned long long)first, buffer_names[buffer],
               (unsigned long long)s->r->elements[buffer]);
  bs_error_where(s->err, "%s", s->r->plan->site);
  return BS_PLUGIN;
}

static int32_t check_step(const scan *s, const bs_coll_step *step) {
  const uint32_t me = s->r->plan->me, kind = s->r->plan->call.kind;
  const int reduces = kind == BS_COLL_ALL_REDUCE || kind == BS_COLL_REDUCE_SCATTER;
  const int local = step->action == BS_STEP_COPY || (step->action == BS_STEP_REDUCE && step->peer == me);
  if (step->action < BS_STEP_SEND || step->action > BS_STEP_COPY)
    return wrong(s, step, "unknown action", step->action);
  if (s->any && step->round < s->last) return wrong(s, step, "behind a later round", s->last);
  if (!local && (step->peer >= s->r->plan->n || step->peer == me))
    return wrong(s, step, "peer is no other rank", step->peer);
  if (step->action != BS_STEP_SEND && step->buffer == BS_BUFFER_IN)
    return wrong(s, step, "writes into the input", step->buffer);
  if (step->action == BS_STEP_REDUCE && !reduces) return wrong(s, step, "nothing is reduced here", kind);
  const int32_t rc = check_range(s, step, step->buffer, step->first);
  return rc == BS_OK && local ? check_range(s, step, step->from_buffer, step->from_first) : rc;
}

static int32_t look(void *user, const bs_coll_step *step) {
  scan *s = user;
  const int32_t rc = check_step(s, step);
  if (rc != BS_OK) return rc;
  if (!s->any || step->round != s->last) {
    s->in_round = s->calls = 0;
    s->landing = 0;
    s->rounds++;
  }
  s->any = 1;
  s->last = step->round;
  if (step->count == 0) return BS_OK;
  s->steps++;
  if (++s->in_round > s->most_in_round) s->most_in_round = s->in_round;
  if (step->action == BS_STEP_COPY || step->peer == s->r->plan->me) return BS_OK;
  if (++s->calls > s->most_calls) s->most_calls = s->calls;
  if (step->action == BS_STEP_REDUCE && !bs_add_u64(s->landing, step->count, &s->landing))
    return wrong(s, step, "too much is reduced at once", step->count);
  if (s->landing > s->most_landing) s->most_landing = s->landing;
  return BS_OK;
}

/* Elements of IN, OUT and SCRATCH (algorithm.h). */
static int32_t size_buffers(bs_coll_rounds *r, bs_error *err) {
  const bs_coll_plan *p = r->plan;
  const uint64_t block = bs_coll_first(&r->shape, p->me + 1) - bs_coll_first(&r->shape, p->me);
  r->elements[BS_BUFFER_IN] = r->elements[BS_BUFFER_OUT] = r->shape.count;
  r->elements[BS_BUFFER_SCRATCH] = 0;
  if (p->call.kind == BS_COLL_ALL_GATHER) r->elements[BS_BUFFER_IN] = block;
  if (p->call.kind == BS_COLL_REDUCE_SCATTER) r->elements[BS_BUFFER_OUT] = block;
  if (p->call.kind == BS_COLL_BROADCAST && !p->has_in) r->elements[BS_BUFFER_IN] = 0;
  if (p->call.kind == BS_COLL_ALL_TO_ALL) r->elements[BS_BUFFER_OUT] = block * p->n; /* the plan's out_cols */
  if (r->algorithm->scratch == NULL) return BS_OK;
  return r->algorithm->scratch(r->state, &r->shape, p->me, &r->elements[BS_BUFFER_SCRATCH], err);
}

static int32_t no_memory(bs_error *err) {
  return bs_error_set(err, BS_NO_MEMORY, "BS-COLL-MEMORY", "no memory for the rounds of a collective");
}

static int32_t grow_steps(bs_coll_rounds *r, uint64_t steps) {
  if (steps <= r->capacity) return 1;
  bs_coll_step *grown = realloc(r->steps, (size_t)steps * sizeof *grown);
  if (grown == NULL) return 0;
  r->steps = grown;
  r->capacity = (uint32_t)steps;
  return 1;
}

static int32_t grow_calls(bs_coll_rounds *r, uint32_t n) {
  if (n <= r->ncalls) return 1;
  bs_coll_call *calls = calloc(n, sizeof *calls);
  const bs_coll_call **pointers = calloc(n, sizeof *pointers);
  if (calls == NULL || pointers == NULL) {
    free(calls);
    free(pointers);
    return 0;
  }
  for (uint32_t i = 0; i < n; ++i) pointers[i] = &calls[i];
  free(r->calls);
  free(r->pointers);
  r->calls = calls;
  r->pointers = pointers;
  r->ncalls = n;
  return 1;
}

/* Bytes of `elements` in all rows. */
static int bytes_of(const bs_coll_rounds *r, uint64_t elements, uint64_t *out_bytes) {
  const uint64_t rows = r->flat ? 1 : r->plan->rows;
  return bs_mul_u64(elements, r->size, out_bytes) && bs_mul_u64(*out_bytes, rows, out_bytes) &&
         *out_bytes <= (uint64_t)INT64_MAX;
}

/* Memory for input or output of the plan's most rows, where a run may need it: they are of another dtype, or
 * their rows may have gaps. Pages that no run touches stay unused. */
static int32_t grow_work(bs_coll_rounds *r, uint32_t buffer, uint32_t dtype, uint64_t cols, bs_error *err) {
  const uint64_t rows = r->plan->rows;
  uint64_t bytes = 0;
  if (r->phantom || (dtype == r->dtype && (!r->flat || rows <= 1))) return BS_OK;
  if (!bs_mul_u64(rows, cols, &bytes) || !bs_mul_u64(bytes, r->size, &bytes) || bytes > (uint64_t)INT64_MAX)
    return bs_error_set(err, BS_OVERFLOW, "BS-COLL-SIZE", "the rows of a collective overflow");
  return bs_rounds_grow(r, &r->work[buffer], bytes, err);
}

static int32_t grow_rooms(bs_coll_rounds *r, uint64_t scratch, uint64_t landing, bs_error *err) {
  const bs_coll_plan *p = r->plan;
  int32_t rc = bs_rounds_grow(r, &r->work[BS_BUFFER_SCRATCH], scratch, err);
  if (rc == BS_OK) rc = bs_rounds_grow(r, &r->landing, landing, err);
  if (rc == BS_OK && p->has_in) rc = grow_work(r, BS_BUFFER_IN, p->call.dtype_in, p->in_cols, err);
  if (rc == BS_OK && p->has_out) rc = grow_work(r, BS_BUFFER_OUT, p->call.dtype_out, p->out_cols, err);
  return rc;
}

static int32_t each_step(const bs_coll_rounds *r, int32_t (*each)(void *user, const bs_coll_step *step),
                         void *user, bs_error *err) {
  const bs_steps_call call = {.algorithm = r->algorithm,
                              .state = r->state,
                              .shape = &r->shape,
                              .rank = r->plan->me,
                              .timeout_ns = r->plan->call.timeout_ns};
  return bs_steps_each(&call, each, user, err);
}

static int32_t fit(bs_coll_rounds *r, uint64_t rows, bs_error *err) {
  scan s = {.r = r, .err = err};
  uint64_t scratch = 0, landing = 0;
  if (r->flat) r->shape.count = rows * r->columns; /* prepare has checked that it fits */
  int32_t rc = size_buffers(r, err);
  if (rc == BS_OK) rc = each_step(r, look, &s, err);
  if (rc != BS_OK) {
    if (err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", r->plan->site);
    return rc;
  }
  const uint64_t part = s.most_in_round > KEPT ? s.most_in_round : KEPT;
  if (!bytes_of(r, r->elements[BS_BUFFER_SCRATCH], &scratch) || !bytes_of(r, s.most_landing, &landing))
    return bs_error_set(err, BS_OVERFLOW, "BS-COLL-SIZE", "the scratch of algorithm %s overflows",
                        r->algorithm->name);
  if (!grow_steps(r, s.steps < part ? s.steps : part) || !grow_calls(r, s.most_calls)) return no_memory(err);
  r->rounds = s.rounds;
  r->landing_elements = s.most_landing;
  rc = grow_rooms(r, scratch, landing, err);
  return rc == BS_OK ? bs_rounds_load(r, 0, err) : rc;
}

int32_t bs_rounds_fit(bs_coll_rounds *r, uint64_t rows, bs_error *err) {
  const int32_t rc = fit(r, rows, err);
  if (rc != BS_OK && r->flat) r->shape.count = UINT64_MAX; /* fitted to nothing: the next run asks again */
  return rc;
}

typedef struct keeper {
  bs_coll_rounds *r;
  scan look; /* steps are checked each time that they are given: a part may differ from what fit has seen */
} keeper;

static int32_t keep(void *user, const bs_coll_step *step) {
  keeper *k = user;
  bs_coll_rounds *r = k->r;
  if (step->count == 0 || step->round < r->from) return BS_OK;
  const int32_t rc = check_step(&k->look, step);
  if (rc != BS_OK) return rc;
  k->look.any = 1;
  k->look.last = step->round;
  if (r->nsteps == r->capacity) {
    r->next = step->round;
    return FULL;
  }
  r->steps[r->nsteps++] = *step;
  return BS_OK;
}

int32_t bs_rounds_load(bs_coll_rounds *r, uint32_t from, bs_error *err) {
  r->from = r->shape.from_round = from;
  r->nsteps = 0;
  r->next = UINT32_MAX;
  keeper k = {r, {.r = r, .err = err}};
  const int32_t rc = each_step(r, keep, &k, err);
  r->shape.from_round = 0;
  if (r->next == UINT32_MAX) return rc;
  while (r->nsteps > 0 && r->steps[r->nsteps - 1].round == r->next) r->nsteps--; /* whole rounds alone */
  if (r->nsteps > 0) return BS_OK;
  return bs_error_set(err, BS_PLUGIN, "BS-COLL-STEP",
                      "algorithm %s gives other steps of round %u than it gave before", r->algorithm->name,
                      r->next);
}
