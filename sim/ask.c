/* SPDX-License-Identifier: MIT
 * ask.c - see ask.h. */
#include "sim/ask.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "sim/choose.h"
#include "sim/launch.h"

#define AGREE 0.01 /* of the device's sum */

enum { BINDS_FROM = 1000 }; /* less than this part of the time: no class binds */

/* ---- the fastest tile --------------------------------------------------------------------------- */

typedef struct candidates {
  const sim_device *device;
  const sim_knobs *asked;
} candidates;

/* As choose.h has it. */
static int candidate(const void *user, uint32_t i, sim_knobs *out) {
  const candidates *of = user;
  const sim_device *d = of->device;
  const sim_knobs *asked = of->asked;
  const uint32_t stages = d->n_stages > 0 ? d->n_stages : 1;
  *out = *asked;
  if (asked->tm > 0) return i == 0;
  if (i >= d->n_tiles * stages) return 0;
  const uint32_t *tile = d->tiles[i % d->n_tiles];
  out->tm = tile[SIM_TILE_M];
  out->tn = tile[SIM_TILE_N];
  out->tk = tile[SIM_TILE_K];
  out->resident = tile[SIM_TILE_RESIDENT];
  if (out->group == 0) out->group = d->group;
  out->stages = d->n_stages > 0 ? d->stages[i / d->n_tiles] : 2;
  return 1;
}

static int32_t check_tiles(const sim_device *d, const sim_knobs *asked, bs_error *err) {
  if (asked->tm > 0 || d->n_tiles > 0) return BS_OK;
  bs_error_set(err, BS_CONFIG, "BS-INSIDE-KNOB", "device %s has no tiles for products", d->name);
  bs_error_hint(err, "tiles: {product: [\"256,256,64\"]}");
  return BS_CONFIG;
}

/* Makes the program of the fastest candidate. */
static int32_t choose(const candidates *of, sim_layout *l, const sim_op *op, sim_program *out_best,
                      uint64_t *out_ps, bs_error *err) {
  const sim_choose c = {.layout = l, .op = op, .candidate = candidate, .user = of};
  sim_chosen chosen;
  int32_t rc = check_tiles(of->device, of->asked, err);
  if (rc == BS_OK) rc = sim_choose_run(&c, out_best, &chosen, err);
  if (rc != BS_OK) return rc;
  *out_ps = chosen.result.settled;
  sim_program_close(out_best);
  return sim_program_make(l, op, &chosen.knobs, out_best, err);
}

/* ---- what binds --------------------------------------------------------------------------------- */

/* The class whose 10 % take most off the time: is it one of units? As explain says it (lab/sim/inside.h). */
static int32_t find_binding(sim_program *p, sim_layout *l, sim_inside_time *time, bs_error *err) {
  uint64_t best = time->ps - time->ps / BINDS_FROM;
  int32_t rc = BS_OK;
  for (uint32_t c = 0; rc == BS_OK && c < l->device->n_classes; c++) {
    sim_inside_result result = {0};
    if (!sim_layout_has_speed(l, c) || l->device->classes[c].does == SIM_DOES_COMMAND) continue;
    l->speed[c] = SIM_FASTER;
    rc = sim_run_once(p, l, NULL, NULL, &result, err);
    l->speed[c] = 0;
    if (rc != BS_OK || result.settled > best) continue;
    best = result.settled;
    time->units_bind = l->device->classes[c].kind == SIM_SERVER;
  }
  return rc;
}

/* ---- the launch --------------------------------------------------------------------------------- */

static void note_end(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                     uint64_t end) {
  const sim_program *p = user;
  uint64_t *ends = p->told;
  (void)index, (void)job, (void)begin;
  ends[lane] = sim_max(ends[lane], end);
}

static int has_lists(const sim_device *d) {
  return d->launch_out.n > 0 || d->launch_back.n > 0;
}

static uint64_t *ends_new(const sim_device *d, bs_error *err) {
  uint64_t *ends = calloc(d->lanes > 0 ? d->lanes : 1, sizeof *ends);
  if (ends == NULL) bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for %u lanes", d->lanes);
  return ends;
}

/* The lanes of the chosen program end when they do: their answers come back one after the other. */
static int32_t find_launch(sim_program *p, sim_layout *l, sim_inside_time *time, bs_error *err) {
  const sim_inside_config hooks = {.done = note_end};
  sim_inside_result result = {0};
  uint64_t stamp = 0, whole = 0, *ends;
  time->launch = l->device->launch;
  if (!has_lists(l->device)) return BS_OK;
  ends = ends_new(l->device, err);
  if (ends == NULL) return BS_NO_MEMORY;
  int32_t rc = sim_run_once(p, l, &hooks, ends, &result, err);
  if (rc == BS_OK) rc = sim_launch_around(l, ends, time->ps, &stamp, &whole, err);
  if (rc == BS_OK) time->launch = whole - time->ps;
  free(ends);
  return rc;
}

int32_t sim_ask_launch(const sim_device *device, uint64_t *out_ps, bs_error *err) {
  sim_layout layout;
  uint64_t stamp = 0, *ends;
  *out_ps = device->launch;
  if (!has_lists(device)) return BS_OK;
  int32_t rc = sim_layout_make(device, 0, &layout, err);
  if (rc != BS_OK) return rc;
  ends = ends_new(device, err);
  rc = ends != NULL ? sim_launch_around(&layout, ends, 0, &stamp, out_ps, err) : BS_NO_MEMORY;
  free(ends);
  sim_layout_free(&layout);
  return rc;
}

int32_t sim_ask_run(const sim_device *device, const sim_ask *ask, sim_inside_time *out, bs_error *err) {
  const uint32_t in = BS_DTYPE_BYTES((uint32_t)ask->in_dtype),
                 weight = BS_DTYPE_BYTES((uint32_t)ask->weight_dtype);
  const sim_op op = {.kind = SIM_OP_PRODUCT,
                     .product = {.m = ask->m,
                                 .n = ask->n,
                                 .k = ask->k,
                                 .in_bytes = weight > in ? weight : in,
                                 .out_bytes = BS_DTYPE_BYTES((uint32_t)ask->out_dtype),
                                 .epilogue = (uint32_t)ask->epilogue}};
  const sim_knobs knobs = {.tm = (uint32_t)ask->tm,
                           .tn = (uint32_t)ask->tn,
                           .tk = (uint32_t)ask->tk,
                           .stages = (uint32_t)ask->stages,
                           .group = (uint32_t)ask->group,
                           .accumulators = (uint32_t)ask->accumulators,
                           .grain = (uint32_t)ask->grain,
                           .rows = (uint32_t)ask->rows};
  const candidates of = {device, &knobs};
  sim_layout layout = {0};
  sim_program best;
  memset(out, 0, sizeof *out);
  memset(&best, 0, sizeof best);
  int32_t rc =
      sim_layout_make(device, (uint32_t)(weight > in ? ask->weight_dtype : ask->in_dtype), &layout, err);
  if (rc == BS_OK) rc = choose(&of, &layout, &op, &best, &out->ps, err);
  if (rc == BS_OK) rc = find_binding(&best, &layout, out, err);
  if (rc == BS_OK) rc = find_launch(&best, &layout, out, err);
  sim_program_close(&best);
  sim_layout_free(&layout);
  return rc;
}

/* ---- sums ---------------------------------------------------------------------------------------- */

static double places_of(const sim_device *d, const sim_class *c) {
  return (double)d->levels[c->level].places;
}

/* Of all units of products; 0: the device has no such rate. */
static double flops_of(const sim_device *d, uint32_t rate) {
  double sum = 0;
  for (uint32_t i = 0; i < d->n_classes; i++) {
    const sim_class *c = &d->classes[i];
    if (c->kind == SIM_SERVER && c->does == SIM_DOES_PRODUCT)
      sum += places_of(d, c) * (double)c->workers * c->rate[rate];
  }
  return sum;
}

void sim_device_sums(const sim_device *d, sim_sums *out) {
  const uint32_t class = sim_device_memory(d);
  *out = (sim_sums){.name = d->name,
                    .label = d->label,
                    .flops = fmax(flops_of(d, SIM_RATE_BF16), flops_of(d, SIM_RATE_F16)),
                    .flops_f32 = flops_of(d, SIM_RATE_F32),
                    .flops_f64 = flops_of(d, SIM_RATE_F64),
                    .flops_f8 = fmax(flops_of(d, SIM_RATE_F8), flops_of(d, SIM_RATE_I8)),
                    .launch = d->launch};
  if (class == SIM_CLASSES) return;
  const sim_class *memory = &d->classes[class];
  out->mem_Bps = places_of(d, memory) * (double)memory->workers * memory->rate[0];
  out->mem_bytes = places_of(d, memory) * (double)memory->bytes;
}

int32_t sim_sums_agree(const sim_sums *s, const char *key, double given, bs_error *err) {
  const struct {
    const char *key;
    double sum;
  } sums[] = {{"flops", s->flops},         {"flops_f32", s->flops_f32},
              {"flops_f64", s->flops_f64}, {"flops_f8", s->flops_f8},
              {"mem_Bps", s->mem_Bps},     {"launch_s", (double)s->launch * 1e-12}};
  for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
    const double sum = sums[i].sum;
    if (strcmp(sums[i].key, key) != 0 || !(given > 0) || !(sum > 0)) continue;
    if (fabs(given - sum) <= AGREE * sum) continue;
    bs_error_set(err, BS_CONFIG, "BS-DEVICE-TWICE",
                 "plugins.sim.%s is %.6g, the parts of device %s add up to %.6g", key, given, s->name, sum);
    bs_error_hint(err, "leave one out: --set plugins.sim.%s=0, or no hardware.device", key);
    return BS_CONFIG;
  }
  return BS_OK;
}
