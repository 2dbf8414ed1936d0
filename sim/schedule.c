/* SPDX-License-Identifier: MIT
 * schedule.c - a rank of a schedule: COPYs, sends, receives and REDUCEs of one round after the other. */
#include "sim/schedule.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/steps.h"

enum { WINDOW_BYTES = 128 << 20, WINDOW_LEAST = 16, ENOUGH = 0x7fffffff };
enum phase { ROUND_BEGINS, ROUND_SENDS, ROUND_RECEIVES };

/* The times that go with a message when the critical path is followed. */
typedef struct path {
  uint64_t latency, reduce;
} path;
typedef struct parcel {
  path so_far;
  void *inner;
} parcel;

typedef struct rank_state {
  sim_step *steps; /* the window: whole rounds */
  uint32_t n, room;
  uint32_t seen; /* steps before the window */
  uint32_t next; /* the round that the next window begins with */
  uint32_t at, end, k;
  uint8_t phase, complete;
  path so_far;
  sim_call call;
} rank_state;

typedef struct run {
  const sim_schedule_config *config;
  sim_engine *engine;
  rank_state *ranks;
  uint64_t element_bytes;
  uint64_t most; /* steps of a rank */
  uint32_t window;
  sim_schedule_result result;
  /* While a window is loaded. */
  uint32_t loading, full;
  uint64_t scratch;
  bs_error *err;
} run;

/* ---- the window ------------------------------------------------------------------------------- */

static int32_t keep(run *r, const bs_coll_step *step) {
  rank_state *me = &r->ranks[r->loading];
  if (me->n == me->room) {
    const uint32_t room = me->room == 0 ? WINDOW_LEAST : me->room * 2;
    if (room < me->room) return bs_error_set(r->err, BS_OVERFLOW, "BS-ALG-STEPS", "too many steps");
    sim_step *steps = realloc(me->steps, room * sizeof *steps);
    if (steps == NULL)
      return bs_error_set(r->err, BS_NO_MEMORY, "BS-MEM", "no memory for the steps of rank %u", r->loading);
    me->steps = steps;
    me->room = room;
  }
  me->steps[me->n] = (sim_step){.round = step->round,
                                .peer = step->peer,
                                .action = (uint8_t)step->action,
                                .buffer = (uint8_t)step->buffer,
                                .from_buffer = (uint8_t)step->from_buffer,
                                .first = step->first,
                                .count = step->count,
                                .from_first = step->from_first};
  ++me->n;
  if (step->round >= r->result.rounds) r->result.rounds = step->round + 1;
  return 0;
}

static int32_t on_emit(void *user, const bs_coll_step *step) {
  run *r = user;
  rank_state *me = &r->ranks[r->loading];
  if (step->round < me->next) return 0;
  if (me->n >= r->window && step->round > me->steps[me->n - 1].round) {
    me->next = step->round;
    r->full = 1;
    return ENOUGH;
  }
  int32_t rc = sim_step_check(r->config->shape, r->scratch, r->loading, step, r->err);
  if (rc == BS_OK && me->n > 0 && step->round < me->steps[me->n - 1].round)
    rc = bs_error_set(r->err, BS_PLUGIN, "BS-ALG-STEP", "rank %u: round %u comes after round %u", r->loading,
                      step->round, me->steps[me->n - 1].round);
  if (rc == BS_OK && me->seen + me->n >= r->most)
    rc = bs_error_set(r->err, BS_PLUGIN, "BS-ALG-STEPS", "rank %u: more than %llu steps", r->loading,
                      (unsigned long long)r->most);
  return rc != BS_OK || step->count == 0 ? rc : keep(r, step);
}

static int32_t load(run *r, uint32_t rank, bs_error *err) {
  const sim_schedule_config *c = r->config;
  rank_state *me = &r->ranks[rank];
  bs_coll_shape shape = *c->shape;
  shape.from_round = me->next;
  me->seen += me->n;
  me->n = me->at = 0;
  r->loading = rank;
  r->full = 0;
  r->err = err;
  int32_t rc = sim_scratch_of(c->algorithm, c->state, c->shape, rank, &r->scratch, err);
  const bs_steps_call call = {.algorithm = c->algorithm, .state = c->state, .shape = &shape, .rank = rank};
  if (rc == BS_OK) rc = bs_steps_each(&call, on_emit, r, err);
  me->complete = rc == BS_OK && !r->full;
  if (me->seen + me->n > r->result.most_steps) r->result.most_steps = me->seen + me->n;
  return rc == ENOUGH ? BS_OK : rc;
}

/* ---- a round ---------------------------------------------------------------------------------- */

static int is_local(uint32_t rank, const sim_step *s) {
  return s->action == BS_STEP_REDUCE && s->peer == rank;
}

static sim_message message_of(run *r, uint32_t rank, const sim_step *s, int sends) {
  rank_state *me = &r->ranks[rank];
  me->call.round = s->round + 1u;
  me->call.count = s->count;
  return (sim_message){.from = sends ? rank : s->peer,
                       .to = sends ? s->peer : rank,
                       .bytes = s->count * r->element_bytes,
                       .call = &me->call};
}

static void drop_inner(run *r, void *inner) {
  if (inner != NULL) r->config->data->drop(r->config->data->user, inner);
}

/* Wraps what `pack` made when the path is followed too. */
static int32_t make_payload(run *r, uint32_t rank, sim_step *s, bs_error *err) {
  const sim_data *data = r->config->data;
  void *inner = NULL;
  const int32_t rc = data != NULL ? data->pack(data->user, rank, s, &inner, err) : BS_OK;
  s->held = inner;
  if (rc != BS_OK || !r->config->follow) return rc;
  parcel *p = malloc(sizeof *p);
  if (p == NULL) {
    s->held = NULL;
    drop_inner(r, inner);
    return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for a message");
  }
  *p = (parcel){r->ranks[rank].so_far, inner};
  s->held = p;
  return BS_OK;
}

static void drop(void *user, void *payload) {
  run *r = user;
  if (payload == NULL) return;
  if (r->config->follow) {
    parcel *p = payload;
    drop_inner(r, p->inner);
    free(p);
  } else {
    drop_inner(r, payload);
  }
}

static int32_t send_all(run *r, uint32_t rank, bs_error *err) {
  rank_state *me = &r->ranks[rank];
  for (; me->k < me->end; ++me->k) {
    sim_step *s = &me->steps[me->k];
    if (s->action != BS_STEP_SEND) continue;
    if (s->held == NULL) {
      const int32_t rc = make_payload(r, rank, s, err);
      if (rc != BS_OK) return -rc;
    }
    sim_message m = message_of(r, rank, s, 1);
    m.payload = s->held;
    const int32_t rc = sim_send_now(r->engine, &m);
    if (rc != SIM_DONE) return rc;
    s->held = NULL;
  }
  return SIM_DONE;
}

/* Takes a received payload: writes it into memory, or holds it until the round's REDUCEs are done. */
static int32_t take(run *r, uint32_t rank, sim_step *s, const sim_message *m, uint64_t before,
                    bs_error *err) {
  const sim_data *data = r->config->data;
  void *inner = m->payload;
  if (r->config->follow && m->payload != NULL) {
    parcel *p = m->payload;
    if (m->done > before) {
      r->ranks[rank].so_far = p->so_far;
      r->ranks[rank].so_far.latency += m->latency;
    }
    inner = p->inner;
    free(p);
  }
  if (data == NULL) return BS_OK;
  if (s->action == BS_STEP_REDUCE) {
    s->held = inner;
    return BS_OK;
  }
  const int32_t rc = data->put(data->user, rank, s, inner, err);
  drop_inner(r, inner);
  return rc;
}

static int32_t receive_all(run *r, uint32_t rank, bs_error *err) {
  rank_state *me = &r->ranks[rank];
  for (; me->k < me->end; ++me->k) {
    sim_step *s = &me->steps[me->k];
    if (s->action == BS_STEP_SEND || s->action == BS_STEP_COPY || is_local(rank, s)) continue;
    const uint64_t before = sim_clock(r->engine, rank);
    sim_message m = message_of(r, rank, s, 0);
    int32_t rc = sim_recv_now(r->engine, &m);
    if (rc != SIM_DONE) return rc;
    rc = take(r, rank, s, &m, before, err);
    if (rc != BS_OK) return -rc;
  }
  return SIM_DONE;
}

static int32_t reduce_all(run *r, uint32_t rank, bs_error *err) {
  const sim_data *data = r->config->data;
  rank_state *me = &r->ranks[rank];
  int32_t rc = BS_OK;
  for (uint32_t k = me->at; k < me->end && rc == BS_OK; ++k) {
    sim_step *s = &me->steps[k];
    if (s->action != BS_STEP_REDUCE) continue;
    const uint64_t ps = sim_bytes_ps(s->count * r->element_bytes, r->config->gamma_q32);
    sim_set_clock(r->engine, rank, sim_add(sim_clock(r->engine, rank), ps));
    me->so_far.reduce += ps;
    if (data == NULL) continue;
    rc = data->add(data->user, rank, s, s->held, err);
    drop_inner(r, s->held);
    s->held = NULL;
  }
  return rc;
}

static int32_t begin(run *r, uint32_t rank, bs_error *err) {
  const sim_data *data = r->config->data;
  rank_state *me = &r->ranks[rank];
  for (me->end = me->at; me->end < me->n && me->steps[me->end].round == me->steps[me->at].round;) ++me->end;
  me->k = me->at;
  me->phase = ROUND_SENDS;
  for (uint32_t k = me->at; data != NULL && k < me->end; ++k) {
    if (me->steps[k].action != BS_STEP_COPY) continue;
    const int32_t rc = data->copy(data->user, rank, &me->steps[k], err);
    if (rc != BS_OK) return rc;
  }
  return BS_OK;
}

static int32_t failed(run *r, uint32_t rank, int32_t code, const bs_error *err) {
  sim_abort(r->engine, rank, code, err);
  return -code;
}

static int32_t resume(void *user, uint32_t rank) {
  run *r = user;
  rank_state *me = &r->ranks[rank];
  bs_error err = BS_ERROR_INIT;
  if (sim_failure(r->engine) != NULL && me->phase == ROUND_BEGINS) return SIM_DONE;
  for (;;) {
    int32_t rc = BS_OK;
    if (me->phase == ROUND_BEGINS) {
      if (me->at == me->n && me->complete) return SIM_DONE;
      if (r->config->stop != NULL) rc = r->config->stop(&err);
      if (rc == BS_OK) rc = me->at == me->n ? load(r, rank, &err) : begin(r, rank, &err);
      if (rc != BS_OK) return failed(r, rank, rc, &err);
      continue;
    }
    if (me->phase == ROUND_SENDS) {
      rc = send_all(r, rank, &err);
      if (rc < 0 && err.code != BS_OK) return failed(r, rank, err.code, &err);
      if (rc != SIM_DONE) return rc;
      me->phase = ROUND_RECEIVES;
      me->k = me->at;
    }
    rc = receive_all(r, rank, &err);
    if (rc < 0 && err.code != BS_OK) return failed(r, rank, err.code, &err);
    if (rc != SIM_DONE) return rc;
    rc = reduce_all(r, rank, &err);
    if (rc != BS_OK) return failed(r, rank, rc, &err);
    me->at = me->end;
    me->phase = ROUND_BEGINS;
  }
}

static uint32_t route(void *user, uint32_t from, uint32_t to, sim_hop *out_hops) {
  const run *r = user;
  return r->config->route(r->config->route_user, from, to, out_hops);
}

/* ----------------------------------------------------------------------------------------------- */

static void close_run(run *r) {
  for (uint32_t rank = 0; r->ranks != NULL && rank < r->config->shape->world_size; ++rank) {
    rank_state *me = &r->ranks[rank];
    for (uint32_t k = me->at; k < me->n; ++k) {
      if (me->steps[k].action == BS_STEP_REDUCE)
        drop_inner(r, me->steps[k].held);
      else
        drop(r, me->steps[k].held);
    }
    free(me->steps);
  }
  if (r->engine != NULL) sim_engine_free(r->engine);
  free(r->ranks);
}

static void finish(run *r) {
  const uint32_t p = r->config->shape->world_size;
  const sim_counters count = sim_count(r->engine);
  r->result.messages = count.messages;
  r->result.bytes = count.bytes;
  for (uint32_t rank = 0; rank < p; ++rank) {
    const uint64_t end = sim_clock(r->engine, rank);
    if (r->config->out_ends != NULL) r->config->out_ends[rank] = end;
    if (rank > 0 && end <= r->result.ps) continue;
    r->result.ps = end;
    r->result.last_rank = rank;
    r->result.latency_ps = r->ranks[rank].so_far.latency;
    r->result.reduce_ps = r->ranks[rank].so_far.reduce;
  }
}

int32_t sim_schedule_run(const sim_schedule_config *config, sim_schedule_result *out_result, bs_error *err) {
  const uint32_t p = config->shape->world_size;
  run r = {.config = config, .element_bytes = config->shape->element_bytes, .window = config->window};
  if (config->algorithm->schedule == NULL)
    return bs_error_set(err, BS_UNSUPPORTED, "BS-ALG-COST", "the algorithm %s has a formula and no schedule",
                        config->algorithm->name);
  if (p == 0) return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-ALG-RANKS", "a world of no ranks");
  r.most = bs_steps_most(config->algorithm, config->shape);
  if (r.window == 0) r.window = (uint32_t)(WINDOW_BYTES / sizeof(sim_step) / p);
  if (r.window < WINDOW_LEAST) r.window = WINDOW_LEAST;
  const sim_config engine = {.ranks = p,
                             .order = config->order,
                             .link = config->link,
                             .resume = resume,
                             .route = config->route != NULL ? route : NULL,
                             .drop = drop,
                             .user = &r,
                             .trace = config->trace};
  r.ranks = calloc(p, sizeof *r.ranks);
  int32_t rc = r.ranks != NULL ? BS_OK : bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "no memory for the ranks");
  for (uint32_t rank = 0; rc == BS_OK && rank < p; ++rank)
    r.ranks[rank].call =
        (sim_call){.kind = bs_name_of(BS_NAMES_COLL, config->shape->kind), .site = config->algorithm->name};
  if (rc == BS_OK) rc = sim_engine_new(&engine, &r.engine, err);
  if (rc == BS_OK && config->late_ps > 0) sim_set_clock(r.engine, config->late_rank, config->late_ps);
  if (rc == BS_OK) rc = sim_run(r.engine, err);
  if (rc == BS_OK) finish(&r);
  close_run(&r);
  if (rc == BS_OK) *out_result = r.result;
  return rc;
}
