/* SPDX-License-Identifier: MIT
 * program.c - see program.h: the table of programs, and what they share (program_parts.h). */
#include <string.h>

#include "core/base/error.h"
#include "sim/program_parts.h"

const char *sim_what_name(uint32_t what) {
  static const char *const names[] = {"load A", "load B", "product", "epilogue", "store",
                                      "load",   "map",    "put",     "get",      "load Q",
                                      "load K", "load V", "scores",  "exp",      "values"};
  _Static_assert(sizeof names / sizeof names[0] == SIM_WHATS, "a name for each");
  return what < SIM_WHATS ? names[what] : "?";
}

/* ---- a product --------------------------------------------------------------------------------- */

/* The adding of a product's partial sums: the largest tiles that fit. */
static int32_t adding_make(const sim_layout *layout, const sim_product_shape *of, sim_program *p,
                           bs_error *err) {
  const uint32_t split = p->product.knobs.split;
  const sim_map_shape shape = {.elements = of->m * of->n,
                               .inputs = split,
                               .outputs = 1,
                               .in_bytes = 4,
                               .out_bytes = of->out_bytes,
                               .ops = split - 1 + of->epilogue};
  const sim_knobs *k = &p->product.knobs;
  sim_knobs knobs = {
      .tm = 16384, .stages = 2, .where_first = k->where_first, .where_places = k->where_places};
  while (knobs.tm > 256 && sim_map_make(layout, &shape, &knobs, &p->adding, NULL) == BS_NO_MEMORY)
    knobs.tm /= 2;
  return sim_map_make(layout, &shape, &knobs, &p->adding, err);
}

static int32_t product_make(const sim_layout *layout, const sim_op *op, const sim_knobs *knobs,
                            sim_program *p, bs_error *err) {
  const int32_t rc = sim_product_make(layout, &op->product, knobs, &p->product, err);
  return rc == BS_OK && p->product.knobs.split > 1 ? adding_make(layout, &op->product, p, err) : rc;
}

static int product_next(sim_program *p, uint32_t lane, uint64_t index, sim_job *out_job) {
  return p->adds ? sim_map_next(&p->adding, lane, index, out_job)
                 : sim_product_next(&p->product, lane, index, out_job);
}

static uint64_t product_bound(const sim_program *p) {
  const uint64_t sums = sim_product_bound(&p->product);
  return p->product.knobs.split > 1 ? sums + sim_map_bound(&p->adding) : sums;
}

static double product_flops(const sim_op *op) {
  return 2.0 * (double)op->product.m * (double)op->product.n * (double)op->product.k;
}

static const sim_program_kind product = {product_make,  product_next, product_bound,
                                         product_flops, NULL,         NULL};

/* ---- the table --------------------------------------------------------------------------------- */

static const sim_program_kind *const kinds[SIM_OPS] = {&product, &sim_program_attention, &sim_program_map,
                                                       &sim_program_send};

int32_t sim_program_make(const sim_layout *layout, const sim_op *op, const sim_knobs *knobs, sim_program *out,
                         bs_error *err) {
  memset(out, 0, sizeof *out);
  out->kind = kinds[op->kind];
  return out->kind->make(layout, op, knobs, out, err);
}

void sim_program_close(sim_program *p) {
  if (p->kind != NULL && p->kind->close != NULL) p->kind->close(p);
}

int sim_program_next(void *user, uint32_t lane, uint64_t index, sim_job *out_job) {
  sim_program *p = user;
  return p->kind->next(p, lane, index, out_job);
}

uint64_t sim_program_bound(const sim_program *p) {
  return p->kind->bound(p);
}

const sim_knobs *sim_program_knobs(const sim_program *p) {
  return p->kind == &product ? &p->product.knobs : &p->plan.knobs;
}

uint32_t sim_program_unit(const sim_program *p) {
  return p->kind == &product ? p->product.unit : p->plan.unit;
}

double sim_op_flops(const sim_op *op) {
  return kinds[op->kind]->flops != NULL ? kinds[op->kind]->flops(op) : 0;
}

/* ---- a run ------------------------------------------------------------------------------------- */

static const sim_layout *layout_of(const sim_program *p) {
  return p->kind == &product ? p->product.layout : p->plan.layout;
}

static void name_lane(void *user, uint32_t lane, char *out, uint32_t size) {
  sim_layout_lane_name(layout_of(user), lane, out, size);
}

static void name_part(void *user, uint32_t part, char *out, uint32_t size) {
  sim_layout_part_name(layout_of(user), part, out, size);
}

/* One program without a barrier. */
static int32_t run(sim_program *p, const sim_inside_config *config, int32_t *rc_of, sim_inside_result *out,
                   bs_error *err) {
  bs_error stopped = BS_ERROR_INIT; /* a lane whose way fails has no more jobs: others may wait for it */
  *rc_of = BS_OK;
  if (p->kind->start != NULL) p->kind->start(p);
  const int32_t rc = sim_inside_run(config, out, &stopped);
  if (*rc_of != BS_OK) return *rc_of;
  if (rc != BS_OK && err != NULL) *err = stopped;
  return rc;
}

/* Sums that all lanes have stored are added: no lane begins before. */
static int32_t run_adding(sim_program *p, sim_inside_config *config, sim_inside_result *inout,
                          bs_error *err) {
  const sim_inside_result sums = *inout;
  p->adds = 1;
  p->adding.plan.err = err;
  config->start = sums.settled;
  const int32_t rc = run(p, config, &p->adding.plan.rc, inout, err);
  inout->events += sums.events;
  inout->jobs += sums.jobs;
  p->adds = 0;
  return rc;
}

int32_t sim_program_run(sim_program *p, sim_layout *layout, const sim_inside_config *hooks,
                        sim_inside_result *out, bs_error *err) {
  sim_inside_config config = hooks != NULL ? *hooks : (sim_inside_config){0};
  const int of_product = p->kind == &product;
  config.parts = layout->parts;
  config.n_parts = layout->n_parts;
  config.n_lanes = layout->device->lanes;
  config.next = sim_program_next;
  config.lane_name = name_lane;
  config.part_name = name_part;
  config.user = p;
  if (of_product) {
    p->product.err = err;
    sim_product_widen(&p->product, layout);
  } else {
    p->plan.err = err;
  }
  const int32_t rc = run(p, &config, of_product ? &p->product.rc : &p->plan.rc, out, err);
  return rc == BS_OK && of_product && p->product.knobs.split > 1 ? run_adding(p, &config, out, err) : rc;
}
