/* SPDX-License-Identifier: MIT
 * program_map.c - see program.h. Each tile: its inputs are loaded, the vector unit serves it, its outputs are
 * stored. A copy has no vector unit: a store needs its load. */
#include "core/base/error.h"
#include "sim/program_parts.h"

enum { TILE_MOST = 1 << 24 }; /* elements of a tile, as sim_plan_make has it */

/* Where the operands begin. */
#define BEGINS(operand) ((uint64_t)(operand) << 40)

/* Jobs of a tile in this order: loads, the map if there is one, stores. */
static uint32_t first_store(const sim_map *m) {
  return m->shape.inputs + m->maps;
}

static uint64_t tile_bytes(const sim_map *m) {
  return (uint64_t)m->plan.knobs.tm * ((uint64_t)m->shape.inputs * m->shape.in_bytes +
                                       (m->maps ? (uint64_t)m->shape.outputs * m->shape.out_bytes : 0));
}

int32_t sim_map_make(const sim_layout *layout, const sim_map_shape *shape, const sim_knobs *knobs, sim_map *m,
                     bs_error *err) {
  m->shape = *shape;
  if (m->shape.row == 0) m->shape.row = 1;
  if (m->shape.out_of == 0) m->shape.out_of = 1;
  const sim_map_shape *s = &m->shape;
  if (s->row > TILE_MOST) {
    bs_error_set(err, BS_CONFIG, "BS-INSIDE-SIZE",
                 "a row of %llu elements is too long: a tile holds whole rows", (unsigned long long)s->row);
    bs_error_hint(err, "rows of at most %d elements", TILE_MOST);
    return BS_CONFIG;
  }
  int32_t rc = sim_plan_make(layout, knobs, 0, &m->plan, err);
  if (rc != BS_OK) return rc;
  if (s->inputs > SIM_MAP_INPUTS || s->outputs > SIM_MAP_OUTPUTS || s->inputs + s->outputs > SIM_NEEDS ||
      s->inputs == 0 || (s->ops == 0 && s->inputs != s->outputs))
    return bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP",
                        "a map has 1 to %d inputs and at most %d outputs", SIM_MAP_INPUTS, SIM_MAP_OUTPUTS);
  if (m->plan.knobs.tm % s->row != 0) {
    bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "tm=%u: a tile does not hold whole rows of %llu elements",
                 m->plan.knobs.tm, (unsigned long long)s->row);
    bs_error_hint(err, "give a multiple, of at most 16,777,216");
    return BS_CONFIG;
  }
  m->maps = s->ops > 0;
  m->tiles = sim_divided(s->elements, m->plan.knobs.tm);
  m->jobs_a_tile = first_store(m) + s->outputs;
  if (m->maps) rc = sim_plan_has(&m->plan, m->plan.vector, "unit for maps", "a server with does: map", err);
  if (rc == BS_OK) rc = sim_plan_tokens((double)m->tiles * m->jobs_a_tile, err);
  return rc == BS_OK
             ? sim_device_fits(layout->device,
                               (uint64_t)m->plan.knobs.resident * m->plan.knobs.stages * tile_bytes(m), err)
             : rc;
}

/* A slot of an input is free behind what read it `stages` tiles back, one of an output behind its store. */
int sim_map_next(sim_map *m, uint32_t lane, uint64_t index, sim_job *j) {
  const sim_map_shape *s = &m->shape;
  const sim_knobs *k = &m->plan.knobs;
  uint32_t number;
  if (!sim_works(m->plan.layout, k, lane, &number)) return 0;
  const uint64_t turn = index / m->jobs_a_tile, tile = number + turn * sim_working(m->plan.layout, k);
  const uint32_t in = (uint32_t)(index % m->jobs_a_tile), map_at = s->inputs, store_at = first_store(m);
  const uint64_t before = (uint64_t)k->stages * m->jobs_a_tile;
  if (m->plan.rc != BS_OK || tile >= m->tiles) return 0;
  const uint64_t from = tile * m->plan.knobs.tm, left = s->elements - from,
                 n = left < m->plan.knobs.tm ? left : m->plan.knobs.tm;
  if (in < s->inputs) {
    j->what = SIM_LOAD;
    sim_need(j, before - (m->maps ? map_at : store_at + in) + in);
    sim_plan_move(&m->plan, SIM_WAY_LOAD, lane, BEGINS(in) + from * s->in_bytes, n * s->in_bytes, j);
  } else if (in < store_at) {
    j->what = SIM_MAP;
    for (uint32_t i = 1; i <= s->inputs; i++) sim_need(j, i);
    for (uint32_t o = 0; o < s->outputs; o++) sim_need(j, before - 1 - o);
    sim_serve(m->plan.layout, m->plan.vector, lane, n * s->ops, j);
  } else {
    const uint64_t first = from / s->out_of, end = (from + n) / s->out_of, which = in - store_at;
    j->what = SIM_STORE;
    sim_need(j, m->maps ? in - map_at : s->inputs);
    sim_plan_move(&m->plan, SIM_WAY_STORE, lane, BEGINS(SIM_MAP_INPUTS + which) + first * s->out_bytes,
                  (end - first) * s->out_bytes, j);
  }
  return 1;
}

uint64_t sim_map_bound(const sim_map *m) {
  const sim_map_shape *s = &m->shape;
  sim_amounts a = {{0}};
  sim_plan_moved(&m->plan, SIM_WAY_LOAD, s->elements * s->inputs * s->in_bytes, &a);
  sim_plan_moved(&m->plan, SIM_WAY_STORE, s->elements / s->out_of * s->outputs * s->out_bytes, &a);
  if (m->maps) a.of[m->plan.vector] = s->elements * s->ops;
  return sim_plan_bound(&m->plan, &a);
}

static int32_t make(const sim_layout *layout, const sim_op *op, const sim_knobs *knobs, sim_program *p,
                    bs_error *err) {
  return sim_map_make(layout, &op->map, knobs, &p->map, err);
}

static int next(sim_program *p, uint32_t lane, uint64_t index, sim_job *j) {
  return sim_map_next(&p->map, lane, index, j);
}

static uint64_t bound(const sim_program *p) {
  return sim_map_bound(&p->map);
}

static uint64_t jobs(const sim_program *p) {
  return p->map.tiles * p->map.jobs_a_tile;
}

const sim_program_kind sim_program_map = {.make = make, .next = next, .bound = bound, .jobs = jobs};
