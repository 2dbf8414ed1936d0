/* SPDX-License-Identifier: MIT
 * program_product.c - see program.h. A lane takes tiles of Y one after the other. Of each step of the depth:
 * load A, load B, product. After the last step: epilogue, store. */
#include <string.h>

#include "core/base/error.h"
#include "sim/cache.h"
#include "sim/program_parts.h"

/* Where the operands begin; a home depends on addresses by tile, so that these are multiples of any tile. */
#define B_BEGINS (UINT64_C(1) << 40)
#define Y_BEGINS (UINT64_C(2) << 40)

enum { LOADS = 2, STEP = 3, TAIL = 2 }; /* jobs: loads of a step, all of a step, epilogue and store */

static uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

/* ---- the plan ---------------------------------------------------------------------------------- */

enum { DEPTH_MOST = 1 << 24 };

static int32_t check_knobs(const sim_knobs *k, bs_error *err) {
  const uint32_t most = 1 << 16;
  if (k->tm > 0 && k->tn > 0 && k->tk > 0 && k->tm <= most && k->tn <= most && k->tk <= most &&
      k->stages > 0 && k->stages <= SIM_PROGRAM_STAGES && k->grain <= most && k->group <= most &&
      k->accumulators <= 64 && k->split <= SIM_SPLIT_MOST && (uint64_t)k->tk * k->grain <= DEPTH_MOST)
    return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB",
               "tm=%u;tn=%u;tk=%u;stages=%u;group=%u;accumulators=%u;grain=%u;split=%u", k->tm, k->tn, k->tk,
               k->stages, k->group, k->accumulators, k->grain, k->split);
  bs_error_hint(err,
                "tm, tn, tk, group and grain are 1 to %u, tk times grain at most %d, stages 1 to %d, "
                "accumulators 1 to 64, "
                "split 1 to %d",
                most, DEPTH_MOST, SIM_PROGRAM_STAGES, SIM_SPLIT_MOST);
  return BS_CONFIG;
}

/* Slots of A and B of a lane. */
static uint64_t slots_of(const sim_product *p) {
  const sim_knobs *k = &p->knobs;
  return (uint64_t)k->stages * (k->tm + k->tn) * k->tk * p->shape.in_bytes;
}

/* Fewer lanes of a place work where its slots do not hold the operands of all. */
static int32_t fit_slots(sim_product *p, bs_error *err) {
  const sim_device *d = p->layout->device;
  const uint64_t bytes = slots_of(p);
  if (d->slots == 0) return BS_OK;
  if (bytes <= d->slots) {
    p->knobs.resident = (uint32_t)least(p->knobs.resident, d->slots / bytes);
    return BS_OK;
  }
  bs_error_set(err, BS_NO_MEMORY, "BS-INSIDE-SCRATCH",
               "the slots of a lane's operands take %llu bytes, %s has %llu for those of a place",
               (unsigned long long)bytes, d->name, (unsigned long long)d->slots);
  bs_error_hint(err, "smaller tiles, or fewer stages");
  return BS_NO_MEMORY;
}

/* Slots, sums in f32, and a tile of Y that leaves. */
static uint64_t scratch_of(const sim_product *p) {
  const sim_knobs *k = &p->knobs;
  return slots_of(p) + (uint64_t)k->tm * k->tn * (4 * k->accumulators + p->shape.out_bytes);
}

static void set_depth(sim_product *p, uint32_t grain) {
  p->knobs.grain = grain;
  p->depth = p->knobs.tk * grain;
  p->steps = sim_divided(sim_divided(p->shape.k, p->depth), p->knobs.split);
  p->jobs_a_tile = STEP * p->steps + TAIL;
}

/* The nearer of two caches on the way of loads: it holds tiles in flight, which neighbours want at one time.
 */
static int is_near(const sim_device *d, uint32_t class) {
  const sim_way_of *way = &d->ways[SIM_WAY_LOAD];
  uint32_t i = 0;
  while (i < way->n && way->classes[i] != class) i++;
  for (i++; i < way->n; i++)
    if (d->classes[way->classes[i]].kind == SIM_CACHE) return d->classes[class].kind == SIM_CACHE;
  return 0;
}

/* Do the bytes in flight of all lanes stay below half of each cache? Lanes of one row or column of tiles
 * share their tiles there. */
static int caches_hold(const sim_product *p) {
  const sim_device *d = p->layout->device;
  const uint64_t rows = least(p->knobs.group, p->row_tiles),
                 columns = least(sim_divided(sim_working(p->layout, &p->knobs), rows), p->column_tiles);
  const uint64_t flight =
      p->knobs.stages * (rows * p->knobs.tm + columns * p->knobs.tn) * p->depth * p->shape.in_bytes;
  for (uint32_t c = 0; c < d->n_classes; c++)
    if (d->classes[c].kind == SIM_CACHE && !is_near(d, c) && flight > d->classes[c].bytes / 2) return 0;
  return 1;
}

/* Has each part of the depth as many steps? */
static int split_divides(const sim_product *p) {
  return sim_divided(p->shape.k, p->depth) == p->steps * p->knobs.split;
}

/* Merges steps while there are too many tokens. */
static void choose_grain(sim_product *p) {
  uint32_t grain = 1;
  set_depth(p, grain);
  while (p->tiles * p->jobs_a_tile > SIM_PROGRAM_GRAIN_FROM && p->steps > 1) {
    set_depth(p, 2 * grain);
    if (!caches_hold(p) || !split_divides(p)) break;
    grain *= 2;
  }
  set_depth(p, grain);
}

int32_t sim_product_make(const sim_layout *layout, const sim_product_shape *shape, const sim_knobs *knobs,
                         sim_product *out, bs_error *err) {
  sim_product *p = out;
  memset(p, 0, sizeof *p);
  *p = (sim_product){.layout = layout, .shape = *shape, .knobs = *knobs, .err = err};
  if (p->knobs.group == 0) p->knobs.group = 1;
  if (p->knobs.accumulators == 0) p->knobs.accumulators = 1;
  if (p->knobs.split == 0) p->knobs.split = 1;
  p->knobs.resident = sim_resident(layout, knobs);
  if (p->knobs.split > 1) { /* sums in f32; the epilogue comes when they have been added */
    p->shape.out_bytes = 4;
    p->shape.epilogue = 0;
  }
  int32_t rc = check_knobs(&p->knobs, err);
  if (rc == BS_OK) rc = sim_where_check(layout, &p->knobs, err);
  if (rc == BS_OK) rc = fit_slots(p, err);
  if (rc != BS_OK) return rc;
  p->unit = sim_layout_does(layout, SIM_DOES_PRODUCT);
  p->vector = sim_layout_does(layout, SIM_DOES_MAP);
  if (p->unit == SIM_CLASSES) {
    bs_error_set(err, BS_UNSUPPORTED, "BS-INSIDE-OP", "device %s has no unit for products",
                 layout->device->name);
    bs_error_hint(err, "a server with does: product");
    return BS_UNSUPPORTED;
  }
  p->row_tiles = sim_divided(shape->m, p->knobs.tm);
  p->column_tiles = sim_divided(shape->n, p->knobs.tn);
  p->tiles = p->row_tiles * p->column_tiles * p->knobs.split;
  if (p->knobs.grain == 0)
    choose_grain(p);
  else
    set_depth(p, p->knobs.grain);
  if (!split_divides(p)) {
    bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "split=%u does not divide the %llu steps of the depth",
                 p->knobs.split, (unsigned long long)sim_divided(p->shape.k, p->depth));
    bs_error_hint(err, "another split, tk or grain");
    return BS_CONFIG;
  }
  if (p->tiles > SIM_PROGRAM_TOKENS || p->tiles * p->jobs_a_tile > SIM_PROGRAM_TOKENS) {
    bs_error_set(err, BS_CONFIG, "BS-INSIDE-SIZE", "the program has %.3g tokens, at most %d are allowed",
                 (double)p->tiles * (double)p->jobs_a_tile, SIM_PROGRAM_TOKENS);
    bs_error_hint(err, "larger tiles, a larger grain, or a smaller shape");
    return BS_CONFIG;
  }
  const sim_class *unit = &layout->device->classes[p->unit];
  p->amount = 2 * sim_grained(p->knobs.tm, unit->grain[0]) * sim_grained(p->knobs.tn, unit->grain[1]) *
              sim_grained(p->depth, unit->grain[2]);
  return sim_device_fits(layout->device, p->knobs.resident * scratch_of(p), err);
}

/* ---- jobs -------------------------------------------------------------------------------------- */

typedef struct spot {
  uint64_t turn, part, tile_row, tile_column, tile; /* the lane's how many-th tile, and which it is */
} spot;

/* Tiles go to a lane of each place first, then to the next one of each. Rows of tiles are taken in groups:
 * within a group lanes go down the rows first. */
static int spot_of(const sim_product *p, uint32_t lane, uint64_t turn, spot *out) {
  uint32_t mine;
  const int works = sim_works(p->layout, &p->knobs, lane, &mine);
  const uint64_t number = mine + turn * sim_working(p->layout, &p->knobs),
                 in_group = p->knobs.group * p->column_tiles;
  if (!works || number >= p->tiles) return 0;
  const uint64_t in_part = p->row_tiles * p->column_tiles, at = number % in_part;
  const uint64_t first = at / in_group * p->knobs.group, in = at % in_group;
  const uint64_t rows = least(p->row_tiles - first, p->knobs.group);
  out->turn = turn;
  out->part = number / in_part;
  out->tile_row = first + in % rows;
  out->tile_column = in / rows;
  out->tile = out->part * in_part + out->tile_row * p->column_tiles + out->tile_column;
  return 1;
}

/* A tile of `across` rows or columns (from tile `at`) and of step `step`, of an operand with so many. */
static void load(sim_product *p, uint32_t lane, uint64_t begins, uint64_t at, uint64_t across, uint64_t limit,
                 uint64_t step, sim_job *j) {
  const uint64_t rows = least(across, limit - at * across);
  const uint64_t depth = least(p->depth, p->shape.k - step * p->depth),
                 full = across * p->depth * p->shape.in_bytes, all = p->steps * p->knobs.split;
  sim_trip trip = {.way = SIM_WAY_LOAD, .lane = lane, .home = UINT32_MAX};
  trip.request.bytes = rows * depth * p->shape.in_bytes;
  trip.request.address = begins + (at * all + step) * full;
  if (p->knobs.rows) {
    trip.request.rows = (uint32_t)rows;
    trip.request.pitch = p->shape.k * p->shape.in_bytes;
    trip.request.address = begins + at * across * trip.request.pitch + step * p->depth * p->shape.in_bytes;
  }
  j->key = begins + (at * all + step);
  const int32_t rc = sim_layout_trip(p->layout, &trip, j, p->rc == BS_OK ? p->err : NULL);
  if (rc != BS_OK) p->rc = rc;
}

static void store(sim_product *p, uint32_t lane, const spot *s, sim_job *j) {
  const sim_knobs *k = &p->knobs;
  const uint64_t rows = least(k->tm, p->shape.m - s->tile_row * k->tm),
                 columns = least(k->tn, p->shape.n - s->tile_column * k->tn);
  sim_trip trip = {.way = SIM_WAY_STORE, .lane = lane, .home = UINT32_MAX};
  trip.request.bytes = rows * columns * p->shape.out_bytes;
  trip.request.address = Y_BEGINS + s->tile * k->tm * k->tn * p->shape.out_bytes;
  if (k->rows) {
    trip.request.rows = (uint32_t)rows;
    trip.request.pitch = p->shape.n * p->shape.out_bytes;
    trip.request.address = Y_BEGINS + (s->part * p->shape.m + s->tile_row * k->tm) * trip.request.pitch +
                           s->tile_column * k->tn * p->shape.out_bytes;
  }
  const int32_t rc = sim_layout_trip(p->layout, &trip, j, p->rc == BS_OK ? p->err : NULL);
  if (rc != BS_OK) p->rc = rc;
}

/* The product that had the slot before: `stages` products back. */
static uint64_t slot_before(const sim_product *p, const spot *s, uint64_t step, uint64_t index) {
  const uint64_t number = s->turn * p->steps + step;
  if (number < p->knobs.stages) return 0;
  const uint64_t before = number - p->knobs.stages;
  return index - (before / p->steps * p->jobs_a_tile + before % p->steps * STEP + LOADS);
}

/* The sums go in the order of the depth, always: a product needs the one before it. */
static void product(sim_product *p, uint32_t lane, const spot *s, uint64_t step, sim_job *j) {
  const uint64_t per = p->jobs_a_tile, free_in = p->knobs.accumulators;
  sim_need(j, 1);
  sim_need(j, 2);
  if (step > 0)
    sim_need(j, STEP);
  else if (s->turn > 0)
    sim_need(j, STEP + TAIL);
  if (step == 0 && s->turn >= free_in) sim_need(j, free_in * per + LOADS - STEP * p->steps);
  sim_serve(p->layout, p->unit, lane, p->amount, j);
}

int sim_product_next(void *user, uint32_t lane, uint64_t index, sim_job *j) {
  sim_product *p = user;
  const uint64_t turn = index / p->jobs_a_tile, in = index % p->jobs_a_tile, step = in / STEP;
  spot s;
  if (p->rc != BS_OK || !spot_of(p, lane, turn, &s)) return 0;
  if (in == STEP * p->steps) {
    const uint64_t rows = least(p->knobs.tm, p->shape.m - s.tile_row * p->knobs.tm),
                   columns = least(p->knobs.tn, p->shape.n - s.tile_column * p->knobs.tn);
    j->what = SIM_EPILOGUE;
    sim_need(j, 1);
    if (s.turn > 0) sim_need(j, p->jobs_a_tile - 1); /* the tile that leaves has one buffer */
    if (p->vector != SIM_CLASSES)
      sim_serve(p->layout, p->vector, lane, rows * columns * p->shape.epilogue, j);
  } else if (in > STEP * p->steps) {
    j->what = SIM_STORE;
    sim_need(j, 1);
    store(p, lane, &s, j);
  } else if (in % STEP == LOADS) {
    j->what = SIM_PRODUCT;
    product(p, lane, &s, step, j);
  } else {
    j->what = in % STEP == 0 ? SIM_LOAD_A : SIM_LOAD_B;
    sim_need(j, slot_before(p, &s, step, index));
    if (j->what == SIM_LOAD_A)
      load(p, lane, 0, s.tile_row, p->knobs.tm, p->shape.m, s.part * p->steps + step, j);
    else
      load(p, lane, B_BEGINS, s.tile_column, p->knobs.tn, p->shape.n, s.part * p->steps + step, j);
  }
  return 1;
}

/* ---- a run ------------------------------------------------------------------------------------- */

static uint64_t over_units(const sim_product *p, uint32_t class, uint64_t amount) {
  const uint64_t units = sim_layout_units(p->layout, class);
  return sim_bytes_ps(amount, p->layout->parts[p->layout->base[class]].q32) / (units > 0 ? units : 1);
}

uint64_t sim_product_jobs(const sim_product *p) {
  return p->tiles * p->jobs_a_tile;
}

static uint32_t place_in(const sim_way_of *way, uint32_t class) {
  uint32_t i = 0;
  while (i < way->n && way->classes[i] != class) i++;
  return i;
}

uint64_t sim_product_bound(const sim_product *p) {
  const sim_device *d = p->layout->device;
  const sim_product_shape *s = &p->shape;
  const uint64_t moved[] = {(p->column_tiles * s->m + p->row_tiles * s->n) * s->k * s->in_bytes,
                            s->m * s->n * s->out_bytes * p->knobs.split}; /* by load, by store */
  uint64_t amounts[SIM_CLASSES] = {0}, bound = 0;
  const uint64_t once = (s->m + s->n) * s->k * s->in_bytes; /* what no cache can spare */
  for (uint32_t w = SIM_WAY_LOAD; w <= SIM_WAY_STORE; w++) {
    uint32_t past = 0; /* hits of the caches so far go on here */
    for (uint32_t i = 0; i < d->ways[w].n; i++) {
      const uint32_t c = d->ways[w].classes[i], kind = d->classes[c].kind;
      if (kind == SIM_CACHE) past = (uint32_t)sim_max(past, place_in(&d->ways[w], d->classes[c].hit));
      if (kind == SIM_LINK || kind == SIM_MEMORY) amounts[c] += i < past ? once : moved[w];
    }
  }
  amounts[p->unit] = p->tiles * p->steps * p->amount;
  for (uint32_t c = 0; c < d->n_classes; c++)
    if (amounts[c] > 0) bound = sim_max(bound, over_units(p, c, amounts[c]));
  return bound;
}

static void name_lane(void *user, uint32_t lane, char *out, uint32_t size) {
  const sim_product *p = user;
  sim_layout_lane_name(p->layout, lane, out, size);
}

static void name_part(void *user, uint32_t part, char *out, uint32_t size) {
  const sim_product *p = user;
  sim_layout_part_name(p->layout, part, out, size);
}

void sim_product_widen(const sim_product *p, sim_layout *l) {
  const sim_device *d = l->device;
  for (uint32_t c = 0; c < d->n_classes; c++)
    for (uint32_t i = 0; i < l->n[c] && p->knobs.grain > 1 && is_near(d, c); i++)
      sim_cache_room(l->parts[l->base[c] + i].cache, p->knobs.grain * d->classes[c].bytes);
}

int32_t sim_product_run(sim_product *p, sim_layout *layout, const sim_inside_config *hooks,
                        sim_inside_result *out, bs_error *err) {
  sim_inside_config config = hooks != NULL ? *hooks : (sim_inside_config){0};
  config.parts = layout->parts;
  config.n_parts = layout->n_parts;
  config.n_lanes = layout->device->lanes;
  config.next = sim_product_next;
  config.lane_name = name_lane;
  config.part_name = name_part;
  config.user = p;
  p->rc = BS_OK;
  p->err = err;
  sim_product_widen(p, layout);
  const int32_t rc = sim_inside_run(&config, out, err);
  return rc != BS_OK ? rc : p->rc;
}
