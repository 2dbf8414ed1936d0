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
_Static_assert((int)SIM_ASK_PRODUCT == (int)SIM_OP_PRODUCT && (int)SIM_ASK_MAP == (int)SIM_OP_MAP &&
                   (int)SIM_ASK_ATTENTION == (int)SIM_OP_ATTENTION,
               "kinds of programs");

/* ---- the op ------------------------------------------------------------------------------------- */

/* The wider of both: its rate counts, as for the roofline. */
static uint32_t dtype_of(const sim_ask *ask) {
  const uint32_t in = (uint32_t)ask->in_dtype, weight = (uint32_t)ask->weight_dtype;
  return BS_DTYPE_BYTES(weight) > BS_DTYPE_BYTES(in) ? weight : in;
}

static void set_product(const sim_ask *a, sim_op *out) {
  out->product = (sim_product_shape){.m = a->m, .n = a->n, .k = a->k, .epilogue = (uint32_t)a->epilogue};
  out->product.in_bytes = BS_DTYPE_BYTES(dtype_of(a));
  out->product.out_bytes = BS_DTYPE_BYTES((uint32_t)a->out_dtype);
}

static void set_attention(const sim_ask *a, sim_op *out) {
  out->attention = (sim_attention_shape){.heads = a->heads,
                                         .group = a->sharing,
                                         .s = a->s,
                                         .t = a->t,
                                         .d = a->d,
                                         .e = a->e,
                                         .sees_from = (int64_t)a->sees_from,
                                         .sees_end = (int64_t)a->sees_end,
                                         .in_bytes = BS_DTYPE_BYTES(dtype_of(a)),
                                         .out_bytes = BS_DTYPE_BYTES((uint32_t)a->out_dtype)};
}

static void set_map(const sim_ask *a, sim_op *out) {
  out->map = (sim_map_shape){.elements = a->elements,
                             .row = a->row,
                             .out_of = a->out_of,
                             .inputs = (uint32_t)a->inputs,
                             .outputs = (uint32_t)a->outputs,
                             .in_bytes = BS_DTYPE_BYTES(dtype_of(a)),
                             .out_bytes = BS_DTYPE_BYTES((uint32_t)a->out_dtype),
                             .ops = (uint32_t)a->ops};
}

static void set_op(const sim_ask *a, sim_op *out) {
  static void (*const sets[SIM_ASK_KINDS])(const sim_ask *, sim_op *) = {set_product, set_attention, set_map};
  *out = (sim_op){.kind = (uint32_t)a->kind};
  sets[a->kind](a, out);
}

/* ---- the fastest tile --------------------------------------------------------------------------- */

typedef struct candidates {
  const sim_device *device;
  const sim_op *op;
  const sim_knobs *asked;
  uint32_t n_tiles, n_stages, n_ahead;
} candidates;

/* Scores one ahead are tried beside none, as explain does. */
static void count_candidates(const sim_device *d, const sim_op *op, const sim_knobs *asked, candidates *out) {
  sim_knobs tile;
  *out = (candidates){d, op, asked, 0, d->n_stages > 0 ? d->n_stages : 1, 1};
  out->n_ahead = op->kind == SIM_OP_ATTENTION ? 2 : 1;
  while (sim_program_tile(d, op, asked->stages, out->n_tiles, &tile)) out->n_tiles++;
}

/* As choose.h has it. */
static int candidate(const void *user, uint32_t i, sim_knobs *out) {
  const candidates *of = user;
  const sim_device *d = of->device;
  const sim_knobs *asked = of->asked;
  *out = *asked;
  if (asked->tm > 0) return i == 0;
  if (i >= of->n_tiles * of->n_stages * of->n_ahead) return 0;
  sim_program_tile(d, of->op, asked->stages, i % of->n_tiles, out);
  i /= of->n_tiles;
  out->stages = d->n_stages > 0 ? d->stages[i % of->n_stages] : 2;
  out->ahead = out->stages > 1 ? i / of->n_stages : 0;
  out->group = asked->group > 0 ? asked->group : of->op->kind == SIM_OP_PRODUCT ? d->group : 1;
  out->accumulators = asked->accumulators;
  out->grain = asked->grain;
  out->rows = asked->rows;
  return 1;
}

static int32_t check_tiles(const candidates *of, bs_error *err) {
  return of->asked->tm > 0 || of->n_tiles > 0 ? BS_OK : sim_program_no_tiles(of->device, of->op->kind, err);
}

/* Makes the program of the fastest candidate. */
static int32_t choose(const candidates *of, sim_layout *l, sim_program *out_best, uint64_t *out_ps,
                      bs_error *err) {
  const sim_choose c = {.layout = l, .op = of->op, .candidate = candidate, .user = of};
  sim_chosen chosen;
  int32_t rc = check_tiles(of, err);
  if (rc == BS_OK) rc = sim_choose_run(&c, out_best, &chosen, err);
  if (rc != BS_OK) return rc;
  *out_ps = chosen.result.settled;
  sim_program_close(out_best);
  return sim_program_make(l, of->op, &chosen.knobs, out_best, err);
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

/* The device cannot serve the op: an error of products alone. */
static int is_without(const sim_ask *ask, const bs_error *why) {
  return ask->kind != SIM_ASK_PRODUCT &&
         (why->code == BS_CONFIG || why->code == BS_UNSUPPORTED || strcmp(why->id, "BS-INSIDE-SCRATCH") == 0);
}

static int32_t run_op(const sim_device *device, const sim_ask *ask, const sim_op *op, sim_inside_time *out,
                      bs_error *err) {
  const sim_knobs knobs = {.tm = (uint32_t)ask->tm,
                           .tn = (uint32_t)ask->tn,
                           .tk = (uint32_t)ask->tk,
                           .stages = (uint32_t)ask->stages,
                           .group = (uint32_t)ask->group,
                           .accumulators = (uint32_t)ask->accumulators,
                           .grain = (uint32_t)ask->grain,
                           .rows = (uint32_t)ask->rows,
                           .ahead = (uint32_t)ask->ahead};
  candidates of;
  sim_layout layout = {0};
  sim_program best;
  memset(&best, 0, sizeof best);
  count_candidates(device, op, &knobs, &of);
  int32_t rc = sim_program_layout(device, op, dtype_of(ask), &layout, err);
  if (rc == BS_OK) rc = choose(&of, &layout, &best, &out->ps, err);
  if (rc == BS_OK) rc = find_binding(&best, &layout, out, err);
  if (rc == BS_OK) rc = find_launch(&best, &layout, out, err);
  sim_program_close(&best);
  sim_layout_free(&layout);
  return rc;
}

int32_t sim_ask_run(const sim_device *device, const sim_ask *ask, sim_inside_time *out, bs_error *err) {
  bs_error why = BS_ERROR_INIT;
  sim_op op;
  memset(out, 0, sizeof *out);
  set_op(ask, &op);
  const int32_t rc = run_op(device, ask, &op, out, &why);
  if (rc == BS_OK) return BS_OK;
  if (is_without(ask, &why)) {
    *out = (sim_inside_time){.has_none = 1};
    return BS_OK;
  }
  if (err != NULL) *err = why;
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
