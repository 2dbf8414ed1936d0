/* SPDX-License-Identifier: MIT
 * program_parts.h - what the programs of program.h share: a table of kinds, and the parts of a job. */
#ifndef BS_SIM_PROGRAM_PARTS_H
#define BS_SIM_PROGRAM_PARTS_H
#include "sim/program.h"

/* One kind of program. A new op adds a row to the table of program.c. */
typedef struct sim_program_kind {
  int32_t (*make)(const sim_layout *layout, const sim_op *op, const sim_knobs *knobs, sim_program *p,
                  bs_error *err);
  int (*next)(sim_program *p, uint32_t lane, uint64_t index, sim_job *out_job);
  uint64_t (*bound)(const sim_program *p);
  double (*flops)(const sim_op *op); /* NULL: 0 */
  void (*start)(sim_program *p);     /* of a run; NULL: nothing to do */
  void (*close)(sim_program *p);     /* NULL: nothing to free */
} sim_program_kind;

extern const sim_program_kind sim_program_attention, sim_program_map, sim_program_send;

/* Amounts of each class, for a bound. */
typedef struct sim_amounts {
  uint64_t of[SIM_CLASSES];
} sim_amounts;

static inline uint64_t sim_divided(uint64_t n, uint64_t by) {
  return n / by + (n % by != 0);
}

/* n in multiples of a grain. */
static inline uint64_t sim_grained(uint64_t n, uint32_t grain) {
  return grain > 1 ? sim_divided(n, grain) * grain : n;
}

/* ---- lanes that work (knobs where_first, where_places, resident): a lane of each place, then the next of
 * each ---- */

static inline uint32_t sim_working_places(const sim_layout *l, const sim_knobs *k) {
  return k->where_places > 0 ? k->where_places : l->device->levels[l->device->lane_level].places;
}

static inline uint32_t sim_resident(const sim_layout *l, const sim_knobs *k) {
  const uint32_t each = l->device->lanes_each;
  return k->resident > 0 && k->resident < each ? k->resident : each;
}

static inline uint32_t sim_working(const sim_layout *l, const sim_knobs *k) {
  return sim_working_places(l, k) * sim_resident(l, k);
}

/* Which of them a lane is. 0: it is idle. */
static inline int sim_works(const sim_layout *l, const sim_knobs *k, uint32_t lane, uint32_t *out_number) {
  const uint32_t each = l->device->lanes_each, places = sim_working_places(l, k);
  const uint32_t place = lane / each - k->where_first;
  *out_number = lane % each * places + place;
  return lane / each >= k->where_first && place < places && lane % each < sim_resident(l, k);
}

static inline uint32_t sim_lane_at(const sim_layout *l, const sim_knobs *k, uint32_t number) {
  const uint32_t each = l->device->lanes_each, places = sim_working_places(l, k);
  return (k->where_first + number % places) * each + number / places;
}

/* The job needs the one that is `back` before it. A lane's jobs further back have ended. */
static inline void sim_need(sim_job *job, uint64_t back) {
  if (back > 0 && back < SIM_OPEN) job->needs[job->n_needs++] = (uint32_t)back;
}

/* Gives a cache of tiles in flight room for those of merged steps. The layout was reset, and has not run. */
void sim_product_widen(const sim_product *p, sim_layout *layout);
/* BS_CONFIG BS-INSIDE-KNOB: more places than there are. */
int32_t sim_where_check(const sim_layout *layout, const sim_knobs *knobs, bs_error *err);
/* Sets the classes, and checks tm, tn (where `columns`), stages and accumulators. */
int32_t sim_plan_make(const sim_layout *layout, const sim_knobs *knobs, int columns, sim_plan *out,
                      bs_error *err);
/* BS_CONFIG BS-INSIDE-SIZE: more than SIM_PROGRAM_TOKENS. */
int32_t sim_plan_tokens(double tokens, bs_error *err);
/* BS_UNSUPPORTED BS-INSIDE-OP: the class is SIM_CLASSES. */
int32_t sim_plan_has(const sim_plan *plan, uint32_t class, const char *what, const char *hint, bs_error *err);
/* Adds a stop at the lane's part of a class. */
void sim_serve(const sim_layout *layout, uint32_t class, uint32_t lane, uint64_t amount, sim_job *job);
/* Adds a load or a store of one run of bytes; key: of its tile. */
void sim_plan_move(sim_plan *plan, uint32_t way, uint32_t lane, uint64_t address, uint64_t bytes,
                   sim_job *job);
/* Bytes that a way moves, up to its cache. */
void sim_plan_moved(const sim_plan *plan, uint32_t way, uint64_t bytes, sim_amounts *inout);
/* ps that no run can be below: of each class its amount over the rate of all its units. */
uint64_t sim_plan_bound(const sim_plan *plan, const sim_amounts *amounts);
#endif
