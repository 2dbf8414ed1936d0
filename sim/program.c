/* SPDX-License-Identifier: MIT
 * program.c - see program.h: the table of programs, and what they share (program_parts.h). */
#include <string.h>

#include "core/base/error.h"
#include "sim/program_parts.h"

enum { MAP_TILE = 16384 }; /* elements of all lanes of a place, unless tm is given */

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

static uint64_t product_jobs(const sim_program *p) {
  return sim_product_jobs(&p->product);
}

static const sim_program_kind product = {.make = product_make,
                                         .next = product_next,
                                         .bound = product_bound,
                                         .flops = product_flops,
                                         .jobs = product_jobs};

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

uint32_t sim_program_kind_of(const sim_program *p) {
  uint32_t kind = 0;
  while (kinds[kind] != p->kind) kind++;
  return kind;
}

uint64_t sim_program_jobs(const sim_program *p) {
  return p->kind->jobs != NULL ? p->kind->jobs(p) : 0;
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

/* ---- what a device has for an op ---------------------------------------------------------------- */

static int product_tile(const sim_device *d, const sim_op *op, uint32_t stages, uint32_t i, sim_knobs *out) {
  (void)op, (void)stages;
  if (i >= d->n_tiles) return 0;
  *out = (sim_knobs){.tm = d->tiles[i][SIM_TILE_M],
                     .tn = d->tiles[i][SIM_TILE_N],
                     .tk = d->tiles[i][SIM_TILE_K],
                     .resident = d->tiles[i][SIM_TILE_RESIDENT]};
  return 1;
}

static int attention_tile(const sim_device *d, const sim_op *op, uint32_t stages, uint32_t i,
                          sim_knobs *out) {
  (void)op, (void)stages;
  if (i >= d->n_attention) return 0;
  *out = (sim_knobs){.tm = d->attention[i][0], .tn = d->attention[i][1]};
  return 1;
}

/* Whole rows; half as many where the buffers of all lanes of a place do not fit. Where one row a lane does
 * not fit, fewer lanes work. */
static int map_tile(const sim_device *d, const sim_op *op, uint32_t stages, uint32_t i, sim_knobs *out) {
  const uint64_t row = op->kind == SIM_OP_MAP && op->map.row > 1 ? op->map.row : 1,
                 most = MAP_TILE / d->lanes_each,
                 slots = stages > 0        ? stages
                         : d->n_stages > 0 ? d->stages[0]
                                           : 2;
  uint64_t tm = row < most ? most / row * row : row;
  *out = (sim_knobs){0};
  if (op->kind == SIM_OP_MAP && d->scratch > 0) {
    const uint64_t each =
        slots * ((uint64_t)op->map.inputs * op->map.in_bytes + (uint64_t)op->map.outputs * op->map.out_bytes);
    while (tm / row > 1 && d->lanes_each * tm * each > d->scratch) tm = tm / row / 2 * row;
    for (out->resident = d->lanes_each; out->resident > 1 && out->resident * tm * each > d->scratch;)
      out->resident /= 2;
  }
  out->tm = (uint32_t)(tm <= UINT32_MAX ? tm : UINT32_MAX);
  return i == 0;
}

int sim_program_tile(const sim_device *d, const sim_op *op, uint32_t stages, uint32_t i, sim_knobs *out) {
  static int (*const tiles[SIM_OPS])(const sim_device *, const sim_op *, uint32_t, uint32_t, sim_knobs *) = {
      product_tile, attention_tile, map_tile, map_tile};
  return tiles[op->kind](d, op, stages, i, out);
}

int32_t sim_program_no_tiles(const sim_device *d, uint32_t kind, bs_error *err) {
  static const struct {
    const char *what, *hint;
  } texts[SIM_OPS] = {{"products", "tiles: {product: [\"256,256,64\"]}"},
                      {"attention", "tiles: {attention: [\"128,128\"]}"},
                      {"maps", "--knob tm=4096"},
                      {"sends", "--knob tm=4096"}};
  bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "device %s has no tiles for %s", d->name, texts[kind].what);
  bs_error_hint(err, "%s", texts[kind].hint);
  return BS_CONFIG;
}

/* Copies and sends compute nothing, maps use no unit of products. */
int32_t sim_program_layout(const sim_device *device, const sim_op *op, uint32_t dtype, sim_layout *out,
                           bs_error *err) {
  const int moves = op->kind == SIM_OP_SEND || (op->kind == SIM_OP_MAP && op->map.ops == 0);
  if (op->kind == SIM_OP_PRODUCT || op->kind == SIM_OP_ATTENTION)
    return sim_layout_make(device, dtype, out, err);
  return sim_layout_make_without_products(device, moves ? 0 : dtype, out, err);
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
