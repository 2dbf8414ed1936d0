/* SPDX-License-Identifier: MIT
 * program_send.c - see program.h. Each tile: load, put into the queue of another lane, get from the own one
 * and store. A slot is held from the put on until the store of that item has ended. */
#include "core/base/error.h"
#include "sim/program_parts.h"

enum { LOAD, PUT, GET, JOBS };

/* Where a lane stores what it gets. */
#define Y_BEGINS (UINT64_C(1) << 40)

static int32_t make(const sim_layout *layout, const sim_op *op, const sim_knobs *knobs, sim_program *p,
                    bs_error *err) {
  sim_send *s = &p->send;
  const sim_device *d = layout->device;
  s->shape = op->send;
  int32_t rc = sim_plan_make(layout, knobs, 0, &s->plan, err);
  if (rc != BS_OK) return rc;
  const uint32_t lanes = sim_working(layout, knobs);
  if (lanes < 2 || s->shape.shift % lanes == 0) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP",
                 "a send needs two lanes; of %s %u work, and the shift is %u", d->name, lanes,
                 s->shape.shift);
    return BS_UNSUPPORTED;
  }
  rc = sim_plan_has(&s->plan, s->plan.queue, "queue of each lane",
                    "a part with kind: queue at the lanes' level", err);
  s->share = sim_divided(s->shape.elements, lanes);
  s->tiles = sim_divided(s->share, s->plan.knobs.tm);
  if (rc == BS_OK) rc = sim_plan_tokens((double)s->tiles * JOBS * lanes, err);
  const uint64_t slots = d->classes[rc == BS_OK ? s->plan.queue : 0].workers;
  return rc == BS_OK ? sim_device_fits(d,
                                       (uint64_t)d->lanes_each * (s->plan.knobs.stages + slots) *
                                           s->plan.knobs.tm * s->shape.bytes,
                                       err)
                     : rc;
}

/* Adds a stop at the queue of a lane. */
static void at_queue(const sim_send *s, uint32_t lane, uint16_t how, sim_job *j) {
  j->stops[j->n_stops++] =
      (sim_stop){.part = sim_layout_part(s->plan.layout, s->plan.queue, lane), .how = how};
}

static int next(sim_program *p, uint32_t lane, uint64_t index, sim_job *j) {
  sim_send *s = &p->send;
  const uint64_t tile = index / JOBS;
  const uint32_t in = (uint32_t)(index % JOBS), all = sim_working(s->plan.layout, &s->plan.knobs);
  uint32_t number;
  if (!sim_works(s->plan.layout, &s->plan.knobs, lane, &number)) return 0;
  if (s->plan.rc != BS_OK || tile >= s->tiles) return 0;
  const uint64_t from = tile * s->plan.knobs.tm, left = s->share - from,
                 n = (left < s->plan.knobs.tm ? left : s->plan.knobs.tm) * s->shape.bytes;
  const uint64_t address = (number * s->share + from) * s->shape.bytes;
  if (in == LOAD) {
    j->what = SIM_LOAD;
    sim_need(j, (uint64_t)s->plan.knobs.stages * JOBS - PUT);
    sim_plan_move(&s->plan, SIM_WAY_LOAD, lane, address, n, j);
  } else if (in == PUT) {
    const uint32_t to = sim_lane_at(s->plan.layout, &s->plan.knobs, (number + s->shape.shift) % all);
    const sim_trip trip = {
        .way = SIM_WAY_SEND, .lane = lane, .to = to, .home = UINT32_MAX, .request = {n, address, 0, 0}};
    j->what = SIM_SEND_PUT;
    sim_need(j, 1);
    sim_need(j, JOBS); /* items go in order */
    at_queue(s, to, SIM_PUT, j);
    const int32_t rc = sim_layout_trip(s->plan.layout, &trip, j, s->plan.rc == BS_OK ? s->plan.err : NULL);
    if (rc != BS_OK) s->plan.rc = rc;
  } else {
    j->what = SIM_SEND_GET;
    at_queue(s, lane, SIM_GET, j);
    sim_plan_move(&s->plan, SIM_WAY_STORE, lane, Y_BEGINS + address, n, j);
  }
  return 1;
}

static uint64_t bound(const sim_program *p) {
  const sim_send *s = &p->send;
  const uint64_t bytes = s->share * sim_working(s->plan.layout, &s->plan.knobs) * s->shape.bytes;
  sim_amounts a = {{0}};
  sim_plan_moved(&s->plan, SIM_WAY_LOAD, bytes, &a);
  sim_plan_moved(&s->plan, SIM_WAY_SEND, bytes, &a);
  sim_plan_moved(&s->plan, SIM_WAY_STORE, bytes, &a);
  return sim_plan_bound(&s->plan, &a);
}

const sim_program_kind sim_program_send = {.make = make, .next = next, .bound = bound};
