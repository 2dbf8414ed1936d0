/* SPDX-License-Identifier: MIT
 * retime.c - see retime.h. */
#include "sim/retime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/rng.h"

typedef struct retiming {
  const sim_oplog *log;
  const sim_program *program;
  const sim_layout *layout;
  sim_oplog *out;
  uint32_t *lane_of; /* of each lane of the device: that of the log; UINT32_MAX: none */
  bs_error *err;
  int32_t rc;
} retiming;

/* ---- lanes ------------------------------------------------------------------------------------- */

/* Lanes of the same name; where the device has not all names, in the order in which the log has them. */
static int32_t match_lanes(retiming *r) {
  const uint32_t lanes = r->layout->device->lanes, n = r->log->n_lanes;
  uint32_t found = 0;
  char name[64];
  if (n > lanes) {
    bs_error_set(r->err, BS_CONFIG, "BS-RETIME-LANES", "the log has %u lanes, device %s has %u", n,
                 r->layout->device->name, lanes);
    bs_error_hint(r->err, "make a new log for the device");
    return BS_CONFIG;
  }
  r->lane_of = malloc((lanes > 0 ? lanes : 1) * sizeof *r->lane_of);
  if (r->lane_of == NULL)
    return bs_error_set(r->err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for %u lanes of a device", lanes);
  for (uint32_t l = 0; l < lanes; l++) {
    sim_layout_lane_name(r->layout, l, name, sizeof name);
    r->lane_of[l] = sim_oplog_lane(r->log, name);
    found += r->lane_of[l] != UINT32_MAX;
  }
  for (uint32_t l = 0; found < n && l < lanes; l++) r->lane_of[l] = l < n ? l : UINT32_MAX;
  return BS_OK;
}

static int32_t copy_head(const sim_oplog *log, const sim_device *device, sim_oplog *out, bs_error *err) {
  memcpy(out->op, log->op, sizeof out->op);
  memcpy(out->knobs, log->knobs, sizeof out->knobs);
  memcpy(out->device, device->name, sizeof out->device);
  out->hash = device->hash;
  for (uint32_t l = 0; l < log->n_lanes; l++)
    if (sim_oplog_add_lane(out, log->lanes[l]) != l)
      return bs_error_set(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for an op log");
  return BS_OK;
}

/* ---- jobs -------------------------------------------------------------------------------------- */

static void trip(retiming *r, uint32_t lane, uint32_t way, const sim_range *range, sim_job *out) {
  sim_trip t = {.way = way, .lane = lane, .home = UINT32_MAX};
  t.request.bytes = range->bytes * range->rows;
  t.request.address = sim_space_begins(range->space) + range->start;
  t.request.pitch = range->pitch;
  t.request.rows = range->rows;
  out->key = t.request.address;
  const int32_t rc = sim_layout_trip(r->layout, &t, out, r->rc == BS_OK ? r->err : NULL);
  if (rc != BS_OK) r->rc = rc;
}

static uint64_t product_amount(const sim_program *p, const sim_logged *j) {
  (void)j;
  return p->product.amount;
}

static uint64_t epilogue_amount(const sim_program *p, const sim_logged *j) {
  return j->writes.bytes / p->product.shape.out_bytes * p->product.shape.epilogue;
}

static uint64_t map_amount(const sim_program *p, const sim_logged *j) {
  const sim_map_shape *s = &p->map.shape;
  return j->n_reads > 0 ? j->reads[0].bytes / ((uint64_t)s->inputs * s->in_bytes) * s->ops : 0;
}

static uint64_t scores_amount(const sim_program *p, const sim_logged *j) {
  (void)j;
  return p->attention.scores;
}

static uint64_t exp_amount(const sim_program *p, const sim_logged *j) {
  (void)j;
  return (uint64_t)p->plan.knobs.tm * p->plan.knobs.tn;
}

static uint64_t values_amount(const sim_program *p, const sim_logged *j) {
  (void)j;
  return p->attention.values;
}

/* What a job does: a trip, or an amount on a unit. */
static const struct deed {
  uint32_t kinds; /* of programs that have it, a bit each; 0: none that has a log */
  uint32_t way;   /* SIM_WAYS: none */
  uint32_t does;  /* which unit serves it */
  uint64_t (*amount)(const sim_program *p, const sim_logged *j);
} deeds[SIM_WHATS] = {
    [SIM_LOAD_A] = {1u << SIM_OP_PRODUCT, SIM_WAY_LOAD, 0, NULL},
    [SIM_LOAD_B] = {1u << SIM_OP_PRODUCT, SIM_WAY_LOAD, 0, NULL},
    [SIM_PRODUCT] = {1u << SIM_OP_PRODUCT, SIM_WAYS, SIM_DOES_PRODUCT, product_amount},
    [SIM_EPILOGUE] = {1u << SIM_OP_PRODUCT, SIM_WAYS, SIM_DOES_MAP, epilogue_amount},
    [SIM_STORE] = {1u << SIM_OP_PRODUCT | 1u << SIM_OP_MAP | 1u << SIM_OP_ATTENTION, SIM_WAY_STORE, 0, NULL},
    [SIM_LOAD] = {1u << SIM_OP_MAP, SIM_WAY_LOAD, 0, NULL},
    [SIM_MAP] = {1u << SIM_OP_MAP, SIM_WAYS, SIM_DOES_MAP, map_amount},
    [SIM_LOAD_Q] = {1u << SIM_OP_ATTENTION, SIM_WAY_LOAD, 0, NULL},
    [SIM_LOAD_K] = {1u << SIM_OP_ATTENTION, SIM_WAY_LOAD, 0, NULL},
    [SIM_LOAD_V] = {1u << SIM_OP_ATTENTION, SIM_WAY_LOAD, 0, NULL},
    [SIM_SCORES] = {1u << SIM_OP_ATTENTION, SIM_WAYS, SIM_DOES_PRODUCT, scores_amount},
    [SIM_EXP] = {1u << SIM_OP_ATTENTION, SIM_WAYS, SIM_DOES_MAP, exp_amount},
    [SIM_VALUES] = {1u << SIM_OP_ATTENTION, SIM_WAYS, SIM_DOES_PRODUCT, values_amount}};

static void serve(const retiming *r, const struct deed *d, uint32_t lane, const sim_logged *j, sim_job *out) {
  const uint32_t class = sim_layout_does(r->layout, d->does);
  if (class == SIM_CLASSES) return;
  out->stops[out->n_stops++] =
      (sim_stop){.part = sim_layout_part(r->layout, class, lane), .amount = d->amount(r->program, j)};
}

static int next(void *user, uint32_t lane, uint64_t index, sim_job *out) {
  retiming *r = user;
  const uint32_t of = r->lane_of[lane];
  if (r->rc != BS_OK || of == UINT32_MAX || index >= sim_oplog_jobs(r->log, of)) return 0;
  const sim_logged *j = sim_oplog_job(r->log, of, index);
  const struct deed *d = &deeds[j->what];
  out->what = j->what;
  for (uint32_t k = 0; k < j->n_needs; k++) out->needs[out->n_needs++] = j->job - j->needs[k];
  if ((d->kinds >> sim_program_kind_of(r->program) & 1u) == 0)
    r->rc = bs_error_set(r->err, BS_UNSUPPORTED, "BS-RETIME-JOB", "a %s is no job of %.60s",
                         sim_what_name(j->what), r->log->op);
  else if (d->way == SIM_WAYS)
    serve(r, d, lane, j, out);
  else if (d->way == SIM_WAY_STORE ? j->n_writes > 0 : j->n_reads > 0)
    trip(r, lane, d->way, d->way == SIM_WAY_STORE ? &j->writes : &j->reads[0], out);
  return r->rc == BS_OK;
}

static void done(void *user, uint32_t lane, uint64_t index, const sim_job *job, uint64_t begin,
                 uint64_t end) {
  retiming *r = user;
  sim_logged j = *sim_oplog_job(r->log, r->lane_of[lane], index);
  (void)job;
  j.begin = begin;
  j.end = end;
  if (r->rc == BS_OK) r->rc = sim_oplog_add(r->out, &j, r->err);
}

/* ------------------------------------------------------------------------------------------------ */

int32_t sim_retime(const sim_oplog *log, const sim_program *program, sim_layout *layout, sim_oplog *out,
                   bs_error *err) {
  retiming r = {.log = log, .program = program, .layout = layout, .out = out, .err = err};
  sim_inside_result result;
  memset(out, 0, sizeof *out);
  int32_t rc = match_lanes(&r);
  if (rc == BS_OK) rc = copy_head(log, layout->device, out, err);
  if (rc == BS_OK) rc = sim_layout_reset(layout, err);
  const sim_inside_config config = {.parts = layout->parts,
                                    .n_parts = layout->n_parts,
                                    .n_lanes = layout->device->lanes,
                                    .next = next,
                                    .done = done,
                                    .user = &r};
  if (rc == BS_OK) rc = sim_inside_run(&config, &result, err);
  if (rc == BS_OK) rc = r.rc;
  if (rc == BS_OK) rc = sim_oplog_index(out, err);
  free(r.lane_of);
  return rc;
}

int sim_retime_equal(const sim_oplog *a, const sim_oplog *b, uint64_t *out_job) {
  *out_job = 0;
  if (a->n != b->n || a->n_lanes != b->n_lanes) return 0;
  for (uint64_t i = 0; i < a->n; i++) {
    const sim_logged *x = &a->jobs[i];
    *out_job = i;
    if (x->job >= sim_oplog_jobs(b, x->lane)) return 0;
    const sim_logged *y = sim_oplog_job(b, x->lane, x->job);
    if (x->begin != y->begin || x->end != y->end) return 0;
  }
  return 1;
}

void sim_retime_draw(sim_layout *layout, uint64_t seed, uint32_t machine) {
  float u[SIM_CLASSES];
  bs_rng_uniform(seed, machine, 0, SIM_CLASSES, u);
  for (uint32_t c = 0; c < SIM_CLASSES; c++) layout->speed[c] = exp2(2 * (double)u[c] - 1);
}
